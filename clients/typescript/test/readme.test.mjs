// Every block of README.md compiles, runs by itself, and does what is said of it.
import assert from "node:assert/strict";
import { randomInt, randomUUID } from "node:crypto";
import { test } from "node:test";
import { connectPg, connectPostgres, Discard, insert, Producer, waitFor, Worker } from "postgres-jobs";
import { workAll } from "postgres-jobs/testing";
import { url, withDatabase } from "./database.mjs";
import { blocks, blockWith, complaints, load } from "./readme/blocks.mjs";

/** Sets what the blocks take for given, as readme/given.d.ts declares it. */
function give(client, queue) {
  const given = {
    Worker, Producer, Discard, connectPg, connectPostgres, assert,
    test: (_name, run) => (given.runTest = run),
    url, urls: [url], client, pools: [client], ca: "", order: randomInt(2 ** 31), customer: `${queue}@example.com`, recorded: [],
    worker: new Worker(url, { queues: [queue] }),
    mailer: { send: async (to) => `message to ${to}` },
    metrics: { record: (kind) => given.recorded.push(kind), count: (kind, { message }) => given.recorded.push(kind, message) },
    sentry: { captureException: ({ message }, hint) => given.recorded.push(message, hint) },
    store: async (rows) => rows.map((row) => row === "new"),
    placeOrder: (_client, to) => insert(client, "email.send", { to }, { queue }),
    tenant: () => "blue",
  };
  return Object.assign(globalThis, given, { given });
}

/** The worker works a job, in a transaction that is rolled back. */
async function work(client, worker, kind, args = {}) {
  await client.query("begin");
  await insert(client, kind, args, { queue: worker.queues[0] });
  const [worked] = await workAll(client, worker);
  await client.query("rollback");
  assert.equal(worked.state, "completed", worked.error);
  return worked.output;
}

// By a part of the block: runs it, and looks at what it has done.
const checks = {
  "await worker.run()": async (run, client) => {
    const running = run();
    const { id } = await insert(client, "email.send", { to: "ada" }, { queue: "mail" });
    const [{ output }] = await waitFor(client, [id]);
    process.kill(process.pid, "SIGTERM");
    await running;
    assert.deepEqual(output, { messageId: "message to ada" });
  },
  "uniqueOpts: { byArgs: true }": async (run, client) => {
    await run();
    const { rows } = await client.query("select from orders where id = $1", [order]);
    assert.equal(rows.length, 1);
    const { rows: jobs } = await client.query("select queue from jobs.jobs where args = $1", [{ to: customer }]);
    assert.deepEqual(jobs, [{ queue: "mail" }]);
  },
  // insert.test.mjs inserts by these.
  "const inDrizzle": async (run) => assert.deepEqual(Object.keys(await run()), ["inDrizzle", "inKysely"]),
  defineKind: async (run, client) => {
    await client.query("begin");
    await run();
    const { rows } = await client.query("select queue, priority, max_attempts from jobs.jobs where args = $1", [{ to: customer }]);
    assert.deepEqual(rows, [{ queue: "mail", priority: 2, max_attempts: 5 }]);
    const { rows: periodic } = await client.query("select time_zone, queue from jobs.periodic where name = 'email.weekly'");
    assert.deepEqual(periodic, [{ time_zone: "Europe/Berlin", queue: "mail" }]);
    await client.query("rollback");
  },
  'test("an order is confirmed"': async (run, client) => {
    worker.kind("email.send", () => "sent");
    await run();
    await given.runTest();
  },
  'worker.kind("report.build"': async (run, client) => {
    const { fetch } = globalThis;
    globalThis.fetch = async (address) => new Response(address);
    try {
      await run();
      assert.deepEqual(await work(client, worker, "report.build", { month: "may" }), { bytes: 31 });
    } finally {
      globalThis.fetch = fetch;
    }
  },
  'worker.batch("event.store"': async (run, client) => {
    await run();
    assert.deepEqual(await work(client, worker, "event.store", { row: "new" }), { stored: true });
    await assert.rejects(work(client, worker, "event.store", { row: "old" }), /^AssertionError.*: duplicate/);
  },
  // threads.test.mjs runs some.
  'worker.kind("image.resize"': (run) => run(),
  "await worker.start();": async (run, client) => {
    worker.kind("k", () => {});
    await run();
    await worker.ended();
  },
  "connect: connectPg(": (run) => run(), // it connects when it is started
  "new Cells": async (run, client) => {
    const { worker } = await run();
    const { rows } = await client.query("select queue from jobs.jobs where args = $1", [{ to: customer }]);
    assert.deepEqual([rows, worker.queues], [[{ queue: "mail" }], ["mail"]]);
  },
  onDiscarded: async (run, client, queue) => {
    const { worker } = await run();
    const failing = worker.kind(queue, () => Promise.reject(new Error("no")));
    await failing.start();
    const { id } = await insert(client, queue, {}, { maxAttempts: 1 });
    await waitFor(client, [id]);
    await failing.stop();
    assert.deepEqual(given.recorded, [queue, "no", "no", { extra: { job: id } }]);
  },
  "const timed": async (run, client) => {
    const { worker } = await run();
    const kind = randomUUID();
    await work(client, worker.kind(kind, () => "output"), kind);
    assert.deepEqual(given.recorded, [kind]);
  },
  "const withTenant": async (run, client) => {
    await run();
    const { rows } = await client.query("select meta from jobs.jobs where args = $1", [{ to: customer }]);
    assert.deepEqual(rows, [{ meta: { tenant: "blue" } }]);
  },
  // opentelemetry.test.mjs looks at the spans.
  "tracing()": async (run, client) => {
    const { worker, producer } = await run();
    assert(producer instanceof Producer);
    const kind = randomUUID();
    assert.equal(await work(client, worker.kind(kind, () => "output"), kind), "output");
  },
};

async function check(part, client, queue, block = blockWith(part)) {
  give(client, queue);
  // The example application has another table of this name.
  await client.query("create schema if not exists readme");
  await client.query("set search_path = readme");
  await client.query("create table if not exists orders (id bigint)");
  await checks[part](() => load(block), client, queue);
}

test("every block is that of a check", () => {
  assert.deepEqual(Object.keys(checks).map(blockWith), blocks);
});

test("every block compiles; control: one that is changed does not", { timeout: 600_000 }, () => {
  const changed = blockWith("await worker.run()").replace("worker.kind", "worker.knd");
  const said = complaints([...blocks, changed]);
  assert.match(said.pop().join(), /'knd' does not exist/);
  assert.deepEqual(said.flat(), []);
});

for (const part of Object.keys(checks)) {
  withDatabase(`the block with ${part} does what it says`, (client, queue) => check(part, client, queue));
}

withDatabase("control: a block that is changed does something else", async (client, queue) => {
  const part = "uniqueOpts: { byArgs: true }";
  await assert.rejects(check(part, client, queue, blockWith(part).replace('"mail"', '"post"')), { code: "ERR_ASSERTION" });
});
