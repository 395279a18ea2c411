// Live refresh, charts, keys and copying. Without this script everything else works.
'use strict';

const { live, start } = document.body.dataset;

// A page refreshes when the server says so, and only while it is visible. A browser has few
// connections to a server, so hidden pages keep none.
let source = null;

function listen() {
  if (document.hidden) return rest();
  if (source) return;
  const isBack = source === null && listen.hasListened;
  listen.hasListened = true;
  source = new EventSource(live);
  source.addEventListener('changed', refresh);
  source.addEventListener('tick', refresh);
  source.addEventListener('login', ({ data }) => { rest(); location.assign(data); });
  source.addEventListener('error', tryAgain);
  if (isBack) refresh();
}

// A browser reconnects by itself only after a lost connection, and not after an error answer, such
// as a proxy's while the console restarts.
function tryAgain({ target }) {
  if (target !== source || source.readyState !== EventSource.CLOSED) return;
  rest();
  setTimeout(listen, 10_000);
}

function rest() {
  source?.close();
  source = null;
}

function refresh() {
  htmx.trigger(document.body, 'refresh');
}

if (live) {
  document.addEventListener('visibilitychange', listen);
  // The item of this page may be deleted before the next page loads.
  document.addEventListener('submit', rest);
  window.addEventListener('pageshow', listen);
  listen();
}

function notice(name, isShown) {
  const element = document.getElementById(name);
  if (element) element.hidden = !isShown;
}
document.body.addEventListener('htmx:sendError', () => notice('connection', true));
document.body.addEventListener('htmx:afterOnLoad', ({ detail: { xhr } }) => {
  notice('connection', xhr.status >= 500);
  notice('gone', xhr.status === 404);
});

// A refresh leaves alone what is in use: opened details, touched forms and charts.
const touched = new WeakSet();
document.addEventListener('input', (event) => {
  const form = event.target.closest('form');
  if (form) touched.add(form);
});

function isInUse(form) {
  return touched.has(form) || form.contains(document.activeElement);
}

Object.assign(Idiomorph.defaults.callbacks, {
  beforeNodeMorphed(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) return true;
    if (old.tagName === 'FORM' && isInUse(old)) return false;
    if (old.matches('[data-chart]') && fresh instanceof Element) {
      if (old.dataset.chart !== fresh.dataset.chart) {
        old.dataset.chart = fresh.dataset.chart;
        draw(old);
      }
      return false;
    }
    return true;
  },
  beforeAttributeUpdated(name, node) {
    return !(name === 'open' && (node.tagName === 'DETAILS' || node.tagName === 'DIALOG'))
      && !(name === 'hidden' && node.matches('[data-copy], [data-close]'));
  },
});

// Charts

const plots = new WeakMap();

function seconds(value) {
  if (value == null) return '–';
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${+(value * 1e3).toPrecision(3)} ms`;
  if (value < 120) return `${+value.toPrecision(3)} s`;
  if (value < 7200) return `${+(value / 60).toPrecision(3)} min`;
  return `${+(value / 3600).toPrecision(3)} h`;
}

function rate(value) {
  return value == null ? '–' : value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 1 : 0 });
}

function clock(time, step) {
  const at = new Date(time * 1000);
  return step >= 86400
    ? at.toLocaleDateString([], { day: 'numeric', month: 'short' })
    : at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
}

const tones = {
  quiet: { stroke: '--grey', dash: [4, 4] },
  good: { stroke: '--green', fills: true },
  bad: { stroke: '--red' },
  wait: { stroke: '--violet' },
  'wait-half': { stroke: '--violet', dash: [4, 4] },
  run: { stroke: '--teal' },
  'run-half': { stroke: '--teal', dash: [4, 4] },
};

function colour(element, name) {
  // The browser resolves light-dark() only where a colour is used.
  element.style.color = `var(${name})`;
  const value = getComputedStyle(element).color;
  element.style.color = '';
  return value;
}

function draw(element) {
  const { at, unit, series } = JSON.parse(element.dataset.chart);
  const isTime = unit === 'seconds';
  const format = isTime ? seconds : rate;
  const label = (mark) => (isTime && mark > 100 ? `${rate(mark)} s` : format(mark));
  const values = series.flatMap((one) => one.values).filter((value) => value > 0);
  const [text, line] = [colour(element, '--ink-quiet'), colour(element, '--line')];
  const axis = {
    stroke: text,
    font: '12px system-ui, sans-serif',
    grid: { stroke: line, width: 1 },
    ticks: { show: false },
  };
  // A logarithmic scale shows only the powers of ten.
  const whole = isTime
    ? (_, marks) => marks.map((mark) => (Number.isInteger(+Math.log10(mark).toFixed(6)) ? mark : null))
    : (_, marks) => marks;
  const options = {
    width: element.clientWidth,
    height: element.clientHeight - 60, // above two lines of the legend
    legend: { markers: { dash: (_, n) => (tones[series[n - 1]?.tone]?.dash ? 'dashed' : 'solid') } },
    cursor: { y: false, points: { size: 6 } },
    scales: {
      x: { time: true },
      y: isTime
        ? { distr: 3, range: () => decades(values) }
        : { range: (_, __, most) => [0, Math.max(most * 1.1, 1)] },
    },
    axes: [
      { ...axis, values: (_, times, __, ___, step) => times.map((time) => clock(time, step)) },
      {
        ...axis,
        grid: { ...axis.grid, filter: whole },
        size: 64,
        values: (_, marks) => marks.map((mark) => (mark == null ? '' : label(mark))),
        filter: whole,
      },
    ],
    series: [
      { label: 'time', value: (_, time) => (time == null ? '–' : clock(time, 60)) },
      ...series.map((one) => {
        const tone = tones[one.tone];
        const stroke = colour(element, tone.stroke);
        return {
          label: one.label,
          stroke,
          dash: tone.dash,
          fill: tone.fills ? stroke.replace('rgb(', 'rgba(').replace(')', ', 0.12)') : undefined,
          width: 1.5,
          points: { show: isTime && one.values.filter((value) => value != null).length < 3 },
          value: (_, value) => format(value),
        };
      }),
    ],
  };
  plots.get(element)?.destroy();
  plots.set(element, new uPlot(options, [at, ...series.map((one) => one.values)], element));
}

// Powers of ten around all values.
function decades(values) {
  if (!values.length) return [0.001, 10];
  const low = 10 ** Math.floor(Math.log10(Math.min(...values)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...values) * 1.01));
  return [low, Math.max(high, low * 10)];
}

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = plots.get(target);
    if (plot && plot.width !== target.clientWidth) {
      plot.setSize({ width: target.clientWidth, height: plot.height });
    }
  }
});

function drawAll() {
  for (const element of document.querySelectorAll('[data-chart]')) {
    if (!plots.has(element)) {
      draw(element);
      sizes.observe(element);
    }
  }
}
drawAll();
document.body.addEventListener('htmx:afterSettle', () => { drawAll(); showButtons(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  document.querySelectorAll('[data-chart]').forEach(draw);
});

// Copying

// Shows the buttons that need a script.
function showButtons() {
  for (const button of document.querySelectorAll('[data-copy]')) button.hidden = !navigator.clipboard;
  for (const button of document.querySelectorAll('[data-close]')) button.hidden = false;
}
showButtons();

document.addEventListener('click', async (event) => {
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
});

// Confirmations

function close(question) {
  question.open = false;
  question.querySelector('summary').focus();
}

document.addEventListener('toggle', ({ target }) => {
  if (target.matches('.confirm[open]')) {
    target.querySelector('.panel :is(input:not([type="hidden"]), select, button:not([data-close]))')?.focus();
  }
}, true);

document.addEventListener('click', ({ target }) => {
  const question = document.querySelector('.confirm[open]');
  // The backdrop is part of the element itself.
  const isOutside = target === question || !question?.contains(target);
  if (question && (isOutside || target.closest('[data-close]'))) close(question);
});

document.addEventListener('keydown', ({ key }) => {
  const question = document.querySelector('.confirm[open]');
  if (question && key === 'Escape') close(question);
});

// In a narrow window the navigation scrolls.
document.querySelector('.sidebar nav > ul [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });

// Keys

const help = document.getElementById('help');
const helpButton = document.getElementById('help-button');
if (helpButton) {
  helpButton.hidden = false;
  helpButton.addEventListener('click', () => help.showModal());
}

let isGoing = false;

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest('input, textarea, select, [contenteditable]') || !help) return;
  const key = event.key;
  if (isGoing) {
    isGoing = false;
    const path = help.querySelector(`[data-key="${CSS.escape(key)}"]`)?.dataset.path;
    if (path) location.assign(path === '/' ? start : start.replace(/\/$/, '') + path);
  } else if (key === 'g') {
    isGoing = true;
    setTimeout(() => { isGoing = false; }, 1500);
  } else if (key === '?' && !help.open) {
    help.showModal();
  } else if (key === '/') {
    const field = document.querySelector('form[role="search"] input:not([type="hidden"]), form.filter input:not([type="hidden"])');
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  }
});
