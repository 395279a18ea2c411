// A handler for threads: it does what the args say.
import { threadId } from "node:worker_threads";
import pg from "pg";
import { Discard, Snooze } from "postgres-jobs";

class Declined extends Error {
  code = "card";
}

const actions = {
  return: (_job, value) => value,
  thread: () => threadId,
  job: ({ id, kind, attempt, meta, args, deadline }) => ({ id, kind, attempt, meta, args, left: deadline - Date.now() }),
  progress: async (job, value) => (await job.progress(value), "stored"),
  fail(_job, text) {
    throw new Declined(text, { cause: new Error("inner") });
  },
  snooze: (_job, seconds) => new Snooze(seconds),
  discard(_job, text) {
    throw new Discard(text);
  },
  invalid: () => () => {},
  exit: (_job, code) => process.exit(code),
  stray: () => new Promise(() => setTimeout(() => { throw new Error("stray"); })),
  compute(_job, seconds) {
    for (const end = performance.now() + 1000 * seconds; performance.now() < end; );
    return "computed";
  },
  looking({ signal }) {
    while (!signal.aborted);
    signal.throwIfAborted();
  },
  deaf() {
    for (;;);
  },
  async complete(job, url) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query("begin");
    await job.complete(client, "in a transaction");
    await client.query("commit");
    await client.end();
  },
};

export default async (job, signal) => {
  if (signal !== job.signal) throw new Error("another signal");
  const [[name, value]] = Object.entries(job.args);
  return actions[name](job, value);
};
