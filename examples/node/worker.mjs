// A complete worker in JavaScript with pg: fetches in batches, keeps its leases, and stops
// gracefully.
//
//   npm ci
//   DATABASE_URL=postgresql://postgres@localhost/jobs node worker.mjs [QUEUE]
//
// LEASE, CONCURRENCY and GRACE (seconds) set it up. Its handlers write a row into a table of ours:
//
//   create table done (job_id bigint, attempt int, worker text);
//
// docs/workers.md says why it does what it does. A worker that loses its database ends with an
// error; whoever supervises it starts it again, and the jobs that it held come back when their
// leases run out.

import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";
import pg from "pg";

const { env } = process;
const url = env.DATABASE_URL ?? "postgresql://postgres@localhost/jobs";
const queue = process.argv[2] ?? "default";
const lease = Number(env.LEASE ?? 30);
const concurrency = Number(env.CONCURRENCY ?? 4);
const grace = Number(env.GRACE ?? 10);
const name = `node worker ${process.pid}`;

// --- What the jobs do: a function for each kind. It ends early, by throwing, when its signal is
// aborted.

const handlers = {
  async ok() {
    return { by: name };
  },
  async fail_once(job) {
    if (job.attempt === 1) throw new TypeError("the first attempt always fails");
    return { by: name };
  },
  async slow(job, signal) {
    await sleep(job.args.seconds * 1000, null, { signal });
    return { by: name };
  },
  async endless(job, signal) {
    // Until somebody cancels the job, or the worker stops.
    for (;;) await sleep(60_000, null, { signal });
  },
  // Such as a bug would do it: none of it may end the worker.
  async bad_error() {
    throw new RangeError(`no text of the database: \0 \ud800 ${"x".repeat(100_000)}`);
  },
  async bad_output() {
    return { "no JSON of the database": "\0", "nor of any other": 1n };
  },
  async broken() {
    throw undefined;
  },
  // Whose rows the database refuses.
  async refused() {},
  async not_found() {},
};

// --- The worker ----------------------------------------------------------------------------------

const connect = async () => {
  const client = new pg.Client({ connectionString: url, application_name: name });
  await client.connect();
  return client;
};
const fetching = await connect(); // also waits for work, so nothing else can use it
const finishing = await connect(); // heartbeats and results
// id -> { job, stop }: the jobs that we hold, and how to stop their handlers.
const held = new Map();
const stopping = new AbortController();
let command = "run"; // quiet: fetch no more; stop: end as well, once what runs is done

// One transaction at a time on the second connection.
let last = Promise.resolve();
function alone(action) {
  const result = last.then(action);
  last = result.catch(() => {});
  return result;
}

// pg gives a bigint as a string, and takes it as one: ids and tokens are passed on as they are.
async function fetchJobs(maxJobs) {
  const { rows } = await fetching.query(
    "select id, token, attempt, kind, args from jobs.fetch(queue => $1, max_jobs => $2, worker => $3, lease => $4)",
    [queue, maxJobs, name, `${lease} s`],
  );
  return rows;
}

// Runs the handler of a job that we hold, and tells the queue what came of it.
async function work(job) {
  const stop = new AbortController();
  held.set(job.id, { job, stop });
  try {
    if (!Object.hasOwn(handlers, job.kind)) {
      // Another attempt would not change that.
      return await fail(job, `there is no handler for ${job.kind}`, "unknown_kind", false);
    }
    try {
      const output = await handlers[job.kind](job, stop.signal);
      await complete(job, output);
    } catch (error) {
      if (error instanceof Lost) throw error;
      // Stopped, see beat() and the end. The attempt does not count; the job becomes
      // available for others, or cancelled if that was the reason.
      if (stop.signal.aborted) await alone(() => finish("select jobs.release($1, $2)", [job.id, job.token]));
      else await fail(job, ...described(error));
    }
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
  } finally {
    held.delete(job.id);
  }
}

// Whatever was thrown, as the text and the type of an error.
function described(error) {
  try {
    if (error instanceof Error) return [String(error.message) || inspect(error), String(error.name)];
    return [typeof error === "string" && error ? error : inspect(error), typeof error];
  } catch {
    return ["an error that cannot be shown", typeof error];
  }
}

// A text as the database can hold it: without NUL and lone surrogates, and not endless.
const storable = (text) => Buffer.from(text.slice(0, 10_000).replaceAll("\0", "\\0")).toString();

// The job is no longer ours: our lease ran out, or it was cancelled by force, or deleted. Whoever
// has it now is not disturbed.
class Lost extends Error {}

// Makes a finishing call. What it refuses says something of the job; the same SQLSTATE from another
// statement, that of a handler, says nothing of it.
async function finish(call, values) {
  try {
    await finishing.query(call, values);
  } catch (error) {
    const isRefused = error.code === "55000" && ["lease_lost", "already_finished"].includes(error.detail);
    throw isRefused || error.code === "P0002" ? new Lost(error.message) : error;
  }
}

// The row and the end of the job are one transaction: if the job is no longer ours, there is no row
// either.
function complete(job, output) {
  return alone(async () => {
    await finishing.query("begin");
    try {
      await finishing.query("insert into done values ($1, $2, $3)", [job.id, job.attempt, name]);
      await finish("select jobs.complete($1, $2, $3)", [job.id, job.token, JSON.stringify(output ?? null)]);
      await finishing.query("commit");
    } catch (error) {
      await finishing.query("rollback");
      throw error;
    }
  });
}

function fail(job, error, type, retryable = true) {
  const details = JSON.stringify({ type: storable(type) });
  const call = "select jobs.fail($1, $2, $3, retryable => $4, details => $5)";
  return alone(() => finish(call, [job.id, job.token, storable(error), retryable, details]));
}

// Says that we are there, and hears our command; renews all leases in one statement.
async function beat() {
  const jobs = [...held.values()].map(({ job }) => job);
  const leases = [jobs.map((job) => job.id), jobs.map((job) => job.token)];
  const { rows } = await alone(async () => {
    const beat = await finishing.query("select jobs.worker_beat($1, $2, $3) as command", [name, [queue], concurrency]);
    command = beat.rows[0].command;
    return finishing.query("select id, cancel_requested from jobs.heartbeat_many($1, $2)", leases);
  });
  // cancel_requested is null where the job is lost
  for (const row of rows) if (row.cancel_requested !== false) held.get(row.id)?.stop.abort();
}

// Often enough that two heartbeats may go missing.
async function beats(signal) {
  for (;;) {
    await sleep(Math.min(lease / 3, 30) * 1000, null, { signal });
    await beat();
  }
}

// Returns also when we get another command, or one of our jobs is to stop. The beat says which.
async function waitForWork() {
  await fetching.query("call jobs.wait_any(queues => $1, worker => $2)", [[queue], name]);
  await beat();
}

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => stopping.abort());
const stopped = once(stopping.signal, "abort");
const ended = new AbortController();
await beat();
const beating = beats(ended.signal).catch((error) => {
  // Unhandled, here and everywhere else: the process ends with an error.
  if (!ended.signal.aborted) throw error;
});

const tasks = new Set();
while (!stopping.signal.aborted && command !== "stop") {
  const free = concurrency - tasks.size;
  const jobs = free > 0 && command === "run" ? await fetchJobs(free) : [];
  for (const job of jobs) {
    const task = work(job).then(() => tasks.delete(task));
    tasks.add(task);
  }
  if (jobs.length === 0) {
    // No room: until a job is done. No job: until there may be one. In any case until we are to
    // stop.
    const others = free > 0 ? [waitForWork()] : [...tasks];
    await Promise.race([stopped, ...others]);
  }
}
// Told to stop, we end once what runs is done. After a signal it may end within the grace period,
// and the rest is given back. The beats go on meanwhile.
await Promise.race([stopped, Promise.all(tasks)]);
const over = new AbortController();
await Promise.race([Promise.all(tasks), sleep(grace * 1000, null, { signal: over.signal })]);
over.abort();
for (const { stop } of held.values()) stop.abort();
await Promise.all(tasks);
ended.abort();
await beating;
// It may be waiting for work.
await finishing.query("select pg_cancel_backend($1)", [fetching.processID]);
await Promise.all([fetching.end(), finishing.end()]);
