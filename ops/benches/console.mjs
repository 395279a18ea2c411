// What `pgjobs console` costs among many jobs: processor time of the server and time of the page
// for each screen and each filter, time until a browser has loaded it, 50 open pages against a
// worker, the program's size, and how long it takes to start. Prints results, a line each: title,
// aim, figure, spread, of what. What each page took, and which aims are missed, is on stderr.
//
//   node console.mjs PROGRAM JOBS [BROWSER]
//
// BROWSER is the directory of the browser tests' driver. The database is that of PGHOST, PGPORT and
// PGDATABASE, and has the extension and no jobs.
import { spawn } from "node:child_process";
import { readFileSync, statSync } from "node:fs";

const [program, jobs, driver] = [process.argv[2], Number(process.argv[3]), process.argv[4]];
const { PGHOST, PGPORT, PGDATABASE, PGUSER } = process.env;
const URL = `postgresql://${PGUSER}@/${PGDATABASE}?host=${PGHOST}&port=${PGPORT}`;

const QUEUES = Math.ceil(jobs / 1000);
/** Of a thousand jobs 40 wait in a queue of their own; the others are final. */
const FINAL = jobs - 40 * QUEUES;
const ROUNDS = 3;
const STARTS = 11;
const CONSOLES = 50;
const SECONDS = 30;
const RATE = 50;

/** What has been started and may still run when something fails. */
const children = new Set();
process.on("exit", () => children.forEach((child) => child.kill()));
function started(command, options, stdio) {
  const child = spawn(command, options, { stdio });
  children.add(child);
  child.once("exit", () => children.delete(child));
  return child;
}

// --- The database --------------------------------------------------------------------------------

/** Runs statements in one session; what they answer. */
async function sql(...statements) {
  const psql = spawn("psql", ["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1"], {
    env: { ...process.env, PGOPTIONS: "-c client_min_messages=warning -c synchronous_commit=off" },
    stdio: ["pipe", "pipe", "inherit"],
  });
  psql.stdin.end(statements.join(";\n"));
  const ended = new Promise((done) => psql.on("close", done));
  let answer = "";
  for await (const part of psql.stdout) answer += part;
  if ((await ended) !== 0) throw new Error(`failed: ${statements}`);
  return answer.trim();
}

/** Jobs of ten days that have ended, of a hundred kinds, and five of a kind that nobody knows. */
const ended = (from, to) => `
  create temp table past as
  select id, now() - (${jobs} - id) * interval '10 days' / ${jobs} as at,
         case when id % 100 = 8 then 'discarded' when id % 200 = 10 then 'cancelled' else 'completed' end::jobs.state as state,
         case when id % ${Math.ceil(FINAL / 5)} = 7 then 'rare' else 'kind.' || (hashint8(id) & 2147483647) % 100 end as kind,
         'queue.' || (hashint8(id * 7) & 2147483647) % ${QUEUES} as queue
    from generate_series(${from}::bigint, ${to}) id;
  insert into jobs.job (id, created_at, max_attempts, priority, kind, queue, args, tags)
  select id, at, 25, 1, kind, queue, jsonb_build_object('user_id', id, 'template', 'welcome'),
         case when id % 50 = 0 then array['vip', 'tag.' || id % 7] end from past;
  insert into jobs.finished (job_id, finalized_at, attempted_at, attempt, state, is_kept, worker)
  select id, at + interval '3 s', at + interval '2 s', 1, state, false, 'worker.' || id % 20 from past;
  insert into jobs.error (job_id, at, attempt, state, worker, error, details)
  select id, at + interval '3 s', 1, state, 'worker.' || id % 20,
         case id / 100 % 3 when 0 then 'timeout after ' || id % 60 || ' s' when 1 then 'user ' || md5(id::text)::uuid || ' not found'
              else E'boom\\n  at line ' || id end, '{"type": "Boom"}'
    from past where state = 'discarded' order by at`;

/** What is inserted at once into each queue of these, by the functions that everybody has. */
const waiting = (from, to) => {
  const batch = (n, more) => `
    select count(*) from generate_series(${from}, ${to}) q, lateral jobs.insert_batch('kind.' || (hashint4(q) & 2147483647) % 100,
      array(select jsonb_build_object('user_id', q, 'n', n) from generate_series(1, ${n}) n), queue => 'queue.' || q, ${more})`;
  return `${batch(29, "tags => array['tag.' || q % 7], timeout => '-1 s'")}; ${batch(10, "scheduled_at => now() + interval '7 days'")}; ${batch(1, "pending => true")};
    select count(jobs.fail(f.id, f.token, 'no route to host ' || f.id, interval '1 day'))
      from generate_series(${from}, ${to}) q, lateral jobs.fetch('queue.' || q, 9, 'worker.' || q % 20) f`;
};

async function fill() {
  const settings = ["retention_completed", "retention_cancelled", "retention_discarded"];
  const half = Math.floor(FINAL / 2);
  await sql("alter system set max_wal_size = '8GB'", ...settings.map((name) => `alter system set jobs.${name} = -1`), "select pg_reload_conf()");
  await Promise.all([sql(ended(1, half)), sql(ended(half + 1, FINAL))]);
  await sql(`select setval('jobs.job_seq', ${FINAL})`);
  await sql("vacuum analyze");
  const middle = Math.floor(QUEUES / 2);
  await Promise.all([sql(waiting(0, middle - 1)), sql(waiting(middle, QUEUES - 1))]);
  await sql(
    `select count(*) from generate_series(0, least(500, ${QUEUES}) - 1) q, lateral jobs.fetch('queue.' || q, 1, 'worker.' || q % 20, '1 day')`,
    "select jobs.worker_beat('worker.' || n, array['queue.' || n], 10, '{\"version\": \"1\"}') from generate_series(0, 19) n",
    "select jobs.schedule('every.' || n, n % 60 || ' * * * *', 'kind.' || n) from generate_series(0, 49) n",
    "select jobs.pause_queue('queue.' || n, 'the bench') from generate_series(0, 49) n",
    "select id from jobs.insert('kind.1', '{\"user_id\": 1}', '{\"by_args\": true}', scheduled_at => now() + interval '7 days')",
    "vacuum analyze",
    "checkpoint",
    "select count(*) from jobs.maintain()",
  );
  say(`${await sql("select string_agg(n || ' ' || state, ', ') from (select state, sum(n) as n from jobs.queues q, lateral (values ('available', q.available), ('scheduled', q.scheduled), ('pending', q.pending), ('running', q.running), ('retryable', q.retryable), ('completed', q.completed), ('cancelled', q.cancelled), ('discarded', q.discarded)) s(state, n) group by state) s")}, ${await sql("select pg_size_pretty(pg_database_size(current_database()))")}`);
}

// --- Processor time ------------------------------------------------------------------------------

const processes = (postmaster) => readFileSync(`/proc/${postmaster}/task/${postmaster}/children`, "utf8").trim().split(" ");

/** What each process of the server has taken so far, in milliseconds. */
function taken(postmaster) {
  const each = new Map();
  for (const pid of processes(postmaster)) {
    try {
      each.set(pid, readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[0] / 1e6);
    } catch {} // it has ended
  }
  return each;
}

/** What the server has taken so far with all that has ended, in milliseconds. */
function takenByAll(postmaster) {
  const ticks = (pid, last) => {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
      return fields.slice(11, last).reduce((sum, field) => sum + Number(field), 0);
    } catch {
      return 0; // it has ended, and its parent has it
    }
  };
  return 10 * processes(postmaster).reduce((sum, pid) => sum + ticks(pid, 13), ticks(postmaster, 15));
}

// --- The console ---------------------------------------------------------------------------------

/** Starts it; once it says where it is, it answers. */
async function start() {
  const begun = performance.now();
  const child = started(program, ["-d", URL, "console", "--listen", "127.0.0.1:0", "--max-per-address", "1000"], ["ignore", "pipe", "inherit"]);
  const line = await new Promise((said, failed) => {
    child.stdout.once("data", said);
    child.once("exit", () => failed(new Error("the console has ended")));
  });
  return { child, took: performance.now() - begun, base: String(line).match(/http:\/\/[^/\s]+/)[0] };
}

async function end(child) {
  const ended = new Promise((done) => child.on("close", done));
  child.kill();
  await ended;
}

/** Every screen, and every filter as who is on call would set it. */
async function pages() {
  const id = (condition) => sql(`select max(id) from jobs.jobs where ${condition}`);
  const [failed, waits, middle, key] = [await id("state = 'discarded'"), await id("state = 'scheduled'"), Math.floor(jobs / 2), await sql("select key from jobs.unique_claims limit 1")];
  const [yesterday, later] = (await sql("select to_char(now() - i, 'YYYY-MM-DD\"T\"HH24:MI') from unnest(array['1 day', '23 hours']::interval[]) i")).split("\n");
  const states = ["available", "scheduled", "pending", "running", "retryable", "completed", "cancelled", "discarded"];
  const filters = ["kind=kind.1", "kind=rare", "kind=none", "queue=queue.1", "tag=vip", "tag=none", "worker=worker.1", "worker=none", "error=boom", "error=none",
    `after=${yesterday}&before=${later}`, `failed_after=${yesterday}`, "state=discarded&kind=kind.1", "state=available&kind=none", "state=retryable&queue=queue.1",
    "state=completed&tag=tag.3", `from=${middle}`, `to=${middle}`];
  const bulk = ["retry", "cancel", "delete"].flatMap((what) => ["kind=kind.1", "kind=rare", "kind=none", "queue=queue.1", "tag=vip", "tag=none"].map((of) => `do=${what}&${of}`));
  return [
    "/", "/failures", "/failures?since=1d", "/failures?since=7d", "/queues", "/queues?filter=77", "/queue?name=queue.1", "/workers", "/worker?name=worker.1",
    "/periodic", "/periodic/job?name=every.1", "/unique", `/unique?search=${key}`, "/audit", "/maintenance", `/jobs/${failed}`, `/jobs/${waits}/edit`,
    "/jobs", ...states.map((state) => `/jobs?state=${state}`), ...filters.map((filter) => `/jobs?${filter}`),
    ...["kind", "queue", "tag", "worker"].map((of) => `/jobs/suggestions?of=${of}&${of}=1`),
    ...bulk.map((query) => `/bulk?${query}`), "/bulk?do=retry&state=discarded", `/bulk?do=retry&kind=kind.1&error=boom&failed_after=${yesterday}`,
  ];
}

/** What a page takes of the server's processor and of the clock, in milliseconds. */
async function asked(base, path, postmaster) {
  const before = taken(postmaster);
  const begun = performance.now();
  const answer = await fetch(base + path, { redirect: "manual" });
  await answer.text();
  const clock = performance.now() - begun;
  if (answer.status >= 400) throw new Error(`${path}: ${answer.status}`);
  const after = taken(postmaster);
  const ours = (await sql("select pid from pg_stat_activity where application_name = 'jobs console'")).split("\n");
  const processor = ours.reduce((sum, pid) => sum + (after.get(pid) ?? 0) - (before.get(pid) ?? 0), 0);
  return { processor, clock };
}

/** What a browser takes until it has loaded a page; nothing if there is no browser. */
async function inBrowser(base, paths) {
  const found = new Map();
  if (!driver) return found;
  process.env.CONSOLE_URL = base;
  const { browser, open } = await import(`${driver}/browser.mjs`);
  const page = await open({ role: null });
  for (const path of paths) {
    const times = [];
    for (let round = 0; round <= ROUNDS; round++) {
      await page.goto(base + path, { waitUntil: "load" });
      times.push(await page.evaluate(() => performance.getEntriesByType("navigation")[0].loadEventStart));
    }
    found.set(path, median(times.slice(1)));
  }
  await browser.close();
  return found;
}

/** Somebody who has a page open: it is loaded anew whenever there is something new. */
async function watch(base, path, stop) {
  try {
    const events = await fetch(`${base}/live`, { signal: stop });
    for await (const part of events.body.pipeThrough(new TextDecoderStream())) {
      if (!part.includes("event:")) continue;
      const answer = await fetch(base + path, { headers: { "HX-Request": "true" }, signal: stop });
      await answer.text();
      if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
      refreshed += 1;
    }
  } catch (error) {
    if (!stop.aborted) throw error;
  }
}

/** What the server takes in a second while this happens, in milliseconds. */
async function during(postmaster, ...happens) {
  const running = happens.map((begin) => begin());
  await wait(5);
  const [before, begun] = [takenByAll(postmaster), performance.now()];
  await wait(SECONDS);
  const each = ((takenByAll(postmaster) - before) / (performance.now() - begun)) * 1000;
  for (const stop of running) await stop();
  await sql("select jobs.delete_many(queue => 'work')"); // the next worker does not begin behind
  return each;
}

/** What happens: each begins, and returns how it ends. */
const produce = () => {
  const psql = started("psql", ["-X", "-q"], ["pipe", "ignore", "inherit"]);
  const insert = () => psql.stdin.write("select id from jobs.insert('work', queue => 'work');\n");
  const clock = setInterval(insert, 1000 / RATE);
  return () => {
    clearInterval(clock);
    return end(psql);
  };
};
const work = () => {
  const worker = started(program, ["-d", URL, "work", "--queue", "work", "--", "true"], ["ignore", "ignore", "ignore"]);
  return () => end(worker);
};
const people = (base) => () => {
  const controller = new AbortController();
  const screens = ["/", "/jobs", "/queues", "/workers", "/failures"];
  for (let n = 0; n < CONSOLES; n++) watch(base, screens[n % screens.length], controller.signal);
  return () => controller.abort();
};

// --- Results -------------------------------------------------------------------------------------

const say = (line) => process.stderr.write(`${line}\n`);
const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const sorted = (values) => [...values].sort((a, b) => a - b);
const median = (values) => sorted(values)[Math.floor(values.length / 2)];

/** How often an open page was loaded anew. */
let refreshed = 0;
const missed = [];
function result(title, limit, figure, digits, spread, of) {
  title = `console, ${jobs} jobs: ${title}`;
  if (!(figure < limit)) missed.push(`${title}: ${figure.toFixed(digits)}, wanted < ${limit}`);
  console.log([title, `< ${limit}`, figure.toFixed(digits), spread, of].join("\t"));
}

/** The slowest page, by what each took. */
function slowest(title, limit, each) {
  const pages = [...each].sort((a, b) => a[1] - b[1]);
  if (pages.length === 0) return;
  const [path, most] = pages.at(-1);
  result(`${title}, the slowest of ${pages.length} pages`, limit, most, 0, `${pages[0][1].toFixed(0)} to ${most.toFixed(0)}, median ${median(pages.map((page) => page[1])).toFixed(0)}`, `ms: ${path}`);
}

const postmaster = (await sql("select (string_to_array(pg_read_file('postmaster.pid'), e'\\n'))[1]")).trim();
say(`filling the database with ${jobs} jobs in ${QUEUES} queues`);
await fill();

const starts = [];
for (let n = 0; n < STARTS; n++) {
  const { child, took } = await start();
  starts.push(took);
  await end(child);
}
const { child, base } = await start();
const processor = new Map();
const clock = new Map();
const paths = await pages();
for (const path of paths) {
  await asked(base, path, postmaster);
  const rounds = [];
  for (let round = 0; round < ROUNDS; round++) rounds.push(await asked(base, path, postmaster));
  processor.set(path, median(rounds.map((each) => each.processor)));
  clock.set(path, median(rounds.map((each) => each.clock)));
}
const browser = await inBrowser(base, paths.filter((path) => !path.includes("suggestions")));
say("server ms  page ms  browser ms");
for (const path of paths) {
  const columns = [[processor, 9], [clock, 9], [browser, 12]];
  say(`${columns.map(([each, width]) => (each.get(path)?.toFixed(0) ?? "-").padStart(width)).join("")}  ${path}`);
}
slowest("processor time of the server", 200, processor);
slowest("time until the page has come", 200, clock);
slowest("time until a browser has loaded it", 1000, browser);

const alone = await during(postmaster, produce);
const worked = (await during(postmaster, produce, work)) - alone;
const watched = (await during(postmaster, produce, work, people(base))) - alone - worked;
say(`${refreshed} refreshes of ${CONSOLES} open pages`);
result(`${CONSOLES} open pages, against a worker of ${RATE} jobs/s`, 1, watched / worked, 2, "-", `${watched.toFixed(0)} ms of the server's processor a second against ${worked.toFixed(0)}`);
await end(child);
result("start until it answers", 100, median(starts), 0, `${sorted(starts)[0].toFixed(0)} to ${sorted(starts).at(-1).toFixed(0)}`, "ms");
result("size of the program", 20, statSync(program).size / 1e6, 1, "-", "MB");
await sql("alter system reset all", "select pg_reload_conf()");
say(missed.length ? `missed:\n${missed.map((line) => `  ${line}`).join("\n")}` : "no aim is missed");
