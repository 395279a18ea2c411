// The driver of the conformance suite for the TypeScript library, which must be built. README.md
// says what it does. JOBS_DRIVER=postgres connects the worker with that package instead of pg.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";
import {
  Cancel, Cells, connectPg, connectPostgres, defineKind, Discard, Producer, RetryIn, Snooze, waitFor, Worker,
} from "../typescript/dist/esm/index.js";
import { advance, assertInserted, workAll } from "../typescript/dist/esm/testing.js";

const require = createRequire(new URL("../typescript/package.json", import.meta.url));
const pg = require("pg");

const url = process.env.DATABASE_URL;
const urls = process.env.CELL_URLS.split(" ");
const LATER = 7; // seconds
const given = JSON.parse(process.argv[2] ?? "{}");
// Bigints are args of the suite, which the library keeps exact: they are printed as numbers.
const print = (event) =>
  process.stdout.write(`${JSON.stringify(event, (_, value) => (typeof value === "bigint" ? Number(value) : value))}\n`);

const cells = new Cells(urls.map((connectionString) => new pg.Pool({ connectionString, allowExitOnIdle: true }).on("error", () => {})));

// Calls back with a connection, or with what takes its place.
async function connected(action, useCells) {
  if (useCells) return action(cells);
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    return await action(client);
  } finally {
    await client.end();
  }
}

const middleware = {
  insert(jobs, next) {
    for (const { kind } of jobs) print({ event: "middleware", around: "insert", kind });
    return next(jobs.map((job) => ({ ...job, meta: { ...job.meta, middleware: true } })));
  },
  work(job, next) {
    print({ event: "middleware", around: "work", kind: job.kind });
    return next();
  },
};
const layers = given.middleware ? [middleware] : [];

// --- What handlers do ----------------------------------------------------------------------------

const badValues = {
  nul: () => "before \0 after",
  surrogate: () => "before \ud800 after",
  circular() {
    const value = {};
    value.itself = value;
    return value;
  },
  deep() {
    let value = [];
    for (let level = 0; level < 100_000; level++) value = [value];
    return value;
  },
  nan: () => NaN,
  other: () => () => {},
  huge: () => "x".repeat(300e6),
  long: () => new Array(2 ** 24 + 1).fill(0),
};

class Broken extends Error {
  get message() {
    throw new Error("no message");
  }
  get stack() {
    throw new Error("no stack");
  }
  toString() {
    throw new Error("no text");
  }
}

const badErrors = {
  nul: () => new Error("before \0 after"),
  surrogate: () => new Error("before \ud800 after"),
  huge: () => new Error("x".repeat(100e6)),
  empty: () => new Error(""),
  nothing: () => undefined,
  broken() {
    // Three kinds of them, in turn.
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    return [new Broken(), proxy, { toString: null, [Symbol.toPrimitive]: null }][Math.floor(Math.random() * 3)];
  },
};

const actions = {
  say: (job, say) => print({ event: "said", job: job.id, attempt: job.attempt, say }),
  describe(job) {
    const { id, kind, queue, attempt, maxAttempts: max_attempts, priority, args, meta, tags, deadline } = job;
    const left = deadline && (deadline - Date.now()) / 1000;
    print({ event: "described", job: { id, kind, queue, attempt, max_attempts, priority, args, meta, tags }, left });
  },
  async sleep(job, seconds) {
    await sleep(seconds * 1000, null, { signal: job.signal }).catch((error) => {
      print({ event: "cancelled", job: job.id, why: job.signal.reason.why });
      throw error;
    });
  },
  block(_job, seconds) {
    for (const end = Date.now() + seconds * 1000; Date.now() < end; );
  },
  sleep_on: (_job, seconds) => sleep(seconds * 1000),
  fail(_job, text) {
    throw new Error(text);
  },
  async fail_badly(_job, name) {
    if (name === "exit") {
      Promise.reject(new Error("nobody waits for this"));
      await Promise.reject(new Error("a rejected promise"));
    }
    throw badErrors[name]();
  },
  snooze(_job, seconds) {
    throw new Snooze(seconds);
  },
  cancel(_job, reason) {
    throw new Cancel(reason);
  },
  discard(_job, text) {
    throw new Discard(text);
  },
  retry_in(_job, seconds) {
    throw new RetryIn(seconds, "later");
  },
  discard_without_error() {
    throw new Discard();
  },
  retry_in_without_error(_job, seconds) {
    throw new RetryIn(seconds);
  },
  progress: (job, value) => job.progress(value),
  sql: (_job, text) => connected((client) => client.query(text)),
  exit_process: (_job, code) => process.exit(code),
  sql_in_test: (_job, text) => inTest.query(text),
  complete_in_test: (job, output) => job.complete(inTest, output),
};

async function inTransaction(job, statement, then) {
  return connected(async (client) => {
    await client.query("begin");
    await client.query(statement);
    await job.complete(client, { in: "transaction" });
    if (then === "exit") process.exit(9);
    if (then === "rollback_later") await sleep(LATER * 1000);
    if (then.startsWith("rollback")) {
      await client.query("rollback");
      throw new Error("rolled back");
    }
    await client.query("commit");
    if (then === "commit_and_exit") process.exit(9);
    if (then === "commit_and_fail") throw new Error("after the commit");
    return { in: "handler" };
  });
}

async function handle(job) {
  const list = job.args?.do ?? (job.attempt === 1 ? job.args?.first : job.args?.later) ?? [];
  for (const action of list) {
    if ("return" in action) return action.return;
    if ("return_bad" in action) return badValues[action.return_bad]();
    if ("in_transaction" in action) return inTransaction(job, action.in_transaction, action.then);
    const [[name, value]] = Object.entries(action);
    await actions[name](job, value);
  }
  return null;
}

// How the actions of a job of a batch end it.
const batchEndings = {
  return: (value) => value,
  fail: (text) => new Error(text),
  snooze: (seconds) => new Snooze(seconds),
  cancel: (reason) => new Cancel(reason),
  discard: (text) => new Discard(text),
  retry_in: (seconds) => new RetryIn(seconds, "later"),
};

async function handleBatch(jobs) {
  print({ event: "batch", jobs: jobs.map(({ id }) => id) });
  for (const job of jobs) {
    const list = job.args?.do ?? [{ return: null }];
    for (const action of list) {
      const [[name, value]] = Object.entries(action);
      if (name === "raise") throw new Error(value);
      if (name in batchEndings) job.end(batchEndings[name](value));
      else if (name !== "leave") await actions[name](job, value);
    }
  }
}

// --- Operations ----------------------------------------------------------------------------------

const producer = new Producer({ middleware: layers });
const camel = (object = {}) =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [name.replace(/_./g, ([, letter]) => letter.toUpperCase()), value]));
const toOptions = ({ unique_opts, ...others } = {}) =>
  ({ ...camel(others), ...(unique_opts && { uniqueOpts: camel(unique_opts) }) });
const refused = (error) => {
  console.error(error);
  const { code = null, message, detail, hint } = error;
  const text = [message, detail && `DETAIL: ${detail}`, hint && `HINT: ${hint}`].filter(Boolean).join("\n");
  print({ event: "refused", code, error: text });
};
// The definitions of kinds by their names.
const defined = (kinds = {}) =>
  Object.fromEntries(Object.entries(kinds).map(([name, { defaults }]) => [name, defaults ? defineKind(name, toOptions(defaults)) : name]));
const definitions = defined(given.worker?.kinds ?? given.kinds);

let inTest; // the connection of the operation `testing`

const testSteps = {
  insert: async ({ kind, args, options }) => (await producer.insert(inTest, kind, args ?? {}, toOptions(options))).id,
  sql: async (text) => (await inTest.query({ text, rowMode: "array" })).rows,
  assert_inserted: ({ kind, args }) => assertInserted(inTest, kind, args),
  advance: (seconds) => advance(inTest, seconds).then(() => null),
  work_all: (_, worker) => workAll(inTest, worker),
};

const operations = {
  stop: () => worker.stop().then(ended, failed),
  stop_and_cancel: () => worker.stopAndCancel().then(ended, failed),
  async insert({ kind, args, options, then, cells: useCells }) {
    await connected(async (client) => {
      if (!useCells) await client.query("begin");
      const { id, state, duplicate } = await producer.insert(client, kind, args ?? {}, toOptions(options));
      if (!useCells) await client.query(then);
      print({ event: "inserted", id, state, duplicate });
    }, useCells).catch(refused);
  },
  insert_of_kind: ({ kind, ...rest }) => operations.insert({ kind: definitions[kind], ...rest }),
  async insert_many({ jobs, cells: useCells }) {
    const toJob = ({ kind, args, of_kind, ...options }) =>
      of_kind ? definitions[kind].job(args, toOptions(options)) : { kind, args: args ?? {}, ...toOptions(options) };
    await connected(async (client) => {
      const inserted = await producer.insertMany(client, jobs.map(toJob));
      print({ event: "inserted_many", jobs: inserted });
    }, useCells).catch(refused);
  },
  async sync({ worker: { periodic = [], ...options }, then }) {
    const made = newWorker(options);
    for (const { name, cron, kind, args, ...rest } of periodic) made.periodic(name, cron, kind, args, camel(rest));
    await connected(async (client) => {
      await client.query("begin");
      const changes = await made.sync(client);
      await client.query(then);
      print({ event: "synced", changes: changes.map(({ object, name, outcome }) => [object, name, outcome]) });
    }).catch(refused);
  },
  async wait_for({ ids, timeout, want }) {
    await connected(async (client) => {
      const results = await waitFor(client, ids, { timeout, want });
      print({ event: "results", results });
    }).catch(refused);
  },
  check({ worker }) {
    try {
      newWorker(worker);
      print({ event: "checked", error: null });
    } catch ({ message }) {
      print({ event: "checked", error: message });
    }
  },
  async testing({ worker, steps }) {
    const results = await connected(async (client) => {
      inTest = client;
      await client.query("begin");
      const list = [];
      for (const step of steps) {
        const [[name, value]] = Object.entries(step);
        list.push(await testSteps[name](value, newWorker(worker)).catch(({ message }) => ({ error: message })));
      }
      await client.query("rollback");
      return list;
    });
    print({ event: "tested", results });
  },
};

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const { op, ...rest } = JSON.parse(line);
  void operations[op](rest);
});

// --- The worker ----------------------------------------------------------------------------------

// The process then ends by itself: the worker has left nothing that keeps it.
function ended() {
  print({ event: "stopped" });
  process.stdin.destroy();
}
function failed(error) {
  if (process.exitCode === 1) return;
  console.error(error);
  print({ event: "failed", error: error.message });
  process.exitCode = 1;
  process.stdin.destroy();
}

const log = (level) => (message, fields) => console.error(`${level} ${message} ${inspect(fields, { breakLength: Infinity })}`);
const logger = { info: log("INFO"), warn: log("WARN"), error: log("ERROR") };

const hook = (name) => ({ id }, error) => {
  print({ event: "hook", hook: name, job: id, error: String(error?.message ?? error) });
  if (given.hooks === "raise") throw new Error(`the hook ${name} fails`);
};
const hooks = given.hooks ? { onError: hook("error"), onDiscarded: hook("discarded") } : {};

function newWorker({ kinds = { run: {} }, otherwise, again, cells: hasCells, ...options }) {
  const source = (url) => ({ connect: process.env.JOBS_DRIVER === "postgres" ? connectPostgres(url) : connectPg(url) });
  const made = new Worker(hasCells ? urls.map(source) : source(url), { ...options, ...hooks, middleware: layers, logger });
  for (const [name, { timeout, concurrency, batch }] of Object.entries(kinds)) {
    const kind = defined(kinds)[name];
    if (batch) made.batch(kind, handleBatch, { timeout, concurrency, ...batch });
    else made.kind(kind, handle, { timeout, concurrency });
  }
  if (again) made.kind(again, handle);
  if (otherwise) made.otherwise(handle);
  return made;
}

function unfit(error) {
  if (error.message !== "the worker has no handlers") return failed(error);
  print({ event: "unfit", error: error.message });
  process.stdout.write("", () => process.exit(2));
  return new Promise(() => {});
}

let worker;
if (given.worker) {
  worker = newWorker(given.worker);
  const running = given.in_program ? worker.start() : worker.run();
  running.catch(() => {});
  await worker.start().then(() => print({ event: "ready" }), unfit);
  if (given.in_program) worker.ended().catch(failed);
  else await running.then(ended, failed);
} else {
  lines.on("close", () => process.exit(0));
}
