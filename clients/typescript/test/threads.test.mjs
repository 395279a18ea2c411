// Handlers in threads.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { insert, waitFor, Worker } from "postgres-jobs";
import { workAll } from "postgres-jobs/testing";
import { url, withDatabase } from "./database.mjs";

const quiet = { info() {}, warn() {}, error() {} };
const thread = new URL("./threads/handler.mjs", import.meta.url);

/** Runs a worker whose handler is in threads, and inserts jobs with these args. Returns their results. */
async function worked(client, queue, args, { options = {}, kind = {}, meanwhile = async () => {}, ...insertOptions } = {}) {
  const worker = new Worker(url, { queues: [queue], logger: quiet, ...options }).kind("k", { thread }, kind);
  await worker.start();
  try {
    const ids = [];
    for (const one of args) ids.push((await insert(client, "k", one, { queue, maxAttempts: 1, ...insertOptions })).id);
    await meanwhile(ids);
    return await waitFor(client, ids, { timeout: 120 });
  } finally {
    await worker.stop();
  }
}

const detailsOf = async (client, id) =>
  (await client.query("select details from jobs.errors where job_id = $1", [id])).rows[0].details;

withDatabase("a thread gets the job, and its output, progress and errors come back", async (client, queue) => {
  const args = [{ return: { a: [1, null] } }, { job: 1 }, { progress: { percent: 5 } }, { fail: "no" }, { discard: "d" }, { invalid: 1 }, { return: null }];
  const [returned, job, stored, failed, discarded, invalid, none] = await worked(client, queue, args, { meta: { m: 1 } });
  assert.deepEqual(returned.output, { a: [1, null] });
  const { left, ...seen } = job.output;
  assert.deepEqual(seen, { id: job.id, kind: "k", attempt: 1, meta: { m: 1 }, args: { job: 1 } });
  assert.ok(left > 50_000 && left <= 60_000, left);
  assert.equal(stored.output, "stored");
  assert.deepEqual([failed.state, failed.error], ["discarded", "no: inner"]);
  const { type, code, trace } = await detailsOf(client, failed.id);
  assert.deepEqual([type, code], ["Declined", "card"]);
  assert.match(trace, /^Error: no\n +at Object\.fail .*handler\.mjs.*\ncaused by: Error: inner\n/s);
  assert.deepEqual([discarded.state, discarded.error], ["discarded", "d"]);
  assert.equal((await detailsOf(client, invalid.id)).type, "invalid_output");
  assert.deepEqual([none.state, none.output], ["completed", null]);
});

withDatabase("threads are reused, and each has one job at a time", async (client, queue) => {
  const results = await worked(client, queue, Array(6).fill({ thread: 1 }), { kind: { concurrency: 1 } });
  assert.equal(new Set(results.map(({ output }) => output)).size, 1);
});

withDatabase("a handler that computes keeps its lease, and its worker goes on", async (client, queue) => {
  const args = [{ compute: 12 }, { return: "meanwhile" }];
  const [computed, other] = await worked(client, queue, args, { options: { lease: 9 } });
  assert.deepEqual([computed.output, computed.state, other.output], ["computed", "completed", "meanwhile"]);
});

withDatabase("a cancel reaches a handler that looks at its signal, and ends one that does not", async (client, queue) => {
  const meanwhile = async (ids) => {
    for (;;) {
      const { rows } = await client.query("select count(*)::int from jobs.jobs where id = any($1) and state = 'running'", [ids]);
      if (rows[0].count === ids.length) break;
      await sleep(20);
    }
    for (const id of ids) await client.query("select jobs.cancel($1)", [id]);
  };
  const results = await worked(client, queue, [{ looking: 1 }, { deaf: 1 }], { meanwhile });
  assert.deepEqual(results.map(({ state, error }) => [state, error]), [["cancelled", null], ["cancelled", null]]);
});

withDatabase("a timeout ends the thread of a handler that does not stop", async (client, queue) => {
  const [{ id, state }, next] = await worked(client, queue, [{ deaf: 1 }, { return: "next" }], { kind: { timeout: 15, concurrency: 1 } });
  assert.deepEqual([state, (await detailsOf(client, id)).type, next.output], ["discarded", "timeout", "next"]);
});

withDatabase("a thread that dies fails its attempt, and no other", async (client, queue) => {
  const args = [{ exit: 3 }, { stray: 1 }, { return: "next" }];
  const [exited, strayed, next] = await worked(client, queue, args, { kind: { concurrency: 1 } });
  assert.deepEqual([exited.error, strayed.error, next.output], ["the thread ended with code 3", "stray", "next"]);
});

withDatabase("a job is completed in a transaction of its thread", async (client, queue) => {
  const [{ state, output }] = await worked(client, queue, [{ complete: url }]);
  assert.deepEqual([state, output], ["completed", "in a transaction"]);
});

withDatabase("a module without a handler fails the attempt; a test of CommonJS runs threads too", async (client, queue) => {
  const inCommonJs = createRequire(import.meta.url)("postgres-jobs");
  await client.query("begin");
  const worker = new inCommonJs.Worker(url, { queues: [queue] }).kind("none", { thread: "test/threads/none.cjs" }).kind("k", { thread });
  await insert(client, "none", {}, { queue });
  await insert(client, "k", { return: 7 }, { queue });
  await insert(client, "k", { snooze: 60 }, { queue });
  const [none, returned, snoozed] = await workAll(client, worker);
  await client.query("rollback");
  assert.match(none.error, /none\.cjs has no default export that is a function$/);
  assert.deepEqual([returned.output, snoozed.state], [7, "scheduled"]);
});
