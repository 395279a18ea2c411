// Inserts in the transactions of drivers and query builders: there if these are committed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { drizzle } from "drizzle-orm/node-postgres";
import knex from "knex";
import { Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import { defineKind, insert, insertMany, Worker } from "postgres-jobs";
import { assertInserted, workAll } from "postgres-jobs/testing";
import postgres from "postgres";
import { rows } from "../dist/esm/database.js";
import { count, url, withDatabase } from "./database.mjs";
import { blockWith, load } from "./readme/blocks.mjs";

const { inDrizzle, inKysely } = await load(blockWith("inDrizzle"));

// Each opens what runs transactions, and says what its transaction is to `insert`.
const libraries = {
  async postgres(use) {
    const sql = postgres(url, { onnotice() {} });
    await use((run) => sql.begin(run)).finally(() => sql.end());
  },
  async Knex(use) {
    const db = knex({ client: "pg", connection: url });
    await use((run) => db.transaction(run)).finally(() => db.destroy());
  },
  // Prisma itself needs a schema and code made of it. This has of it what `insert` knows it by.
  async Prisma(use) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    const prisma = { $queryRawUnsafe: async (text, ...values) => (await client.query(text, values)).rows };
    const inTransaction = async (run) => {
      let end = "rollback";
      await client.query("begin");
      try {
        const result = await run(prisma);
        end = "commit";
        return result;
      } finally {
        await client.query(end);
      }
    };
    await use(inTransaction).finally(() => client.end());
  },
  async Drizzle(use) {
    const pool = new pg.Pool({ connectionString: url });
    await use((run) => drizzle(pool).transaction((tx) => run(inDrizzle(tx)))).finally(() => pool.end());
  },
  async Kysely(use) {
    const db = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url }) }) });
    await use((run) => db.transaction().execute((tx) => run(inKysely(tx)))).finally(() => db.destroy());
  },
};

test("what is no connection is refused, with what to do", async () => {
  const refused = (database, message) => assert.rejects(insert(database, "k"), { name: "TypeError", message });
  await refused(drizzle(new pg.Pool()), "Drizzle needs an adapter of a few lines, which the package's README has");
  await refused(new Kysely({ dialect: new PostgresDialect({}) }), "Kysely needs an adapter of a few lines, which the package's README has");
  const usable = "database must be a client, pool or transaction of pg, postgres, Knex or Prisma, or have a function query, not ";
  await refused(undefined, `${usable}undefined`);
  await refused("postgresql://", `${usable}string`);
  await refused({}, `${usable}Object`);
});

withDatabase("an error of rights says which are lacking", async (client, queue) => {
  await client.query("begin");
  await client.query(`create role "${queue}"`);
  await client.query(`set local role "${queue}"`);
  const lacks = async (grant, call) => {
    await client.query("savepoint before");
    await assert.rejects(call, ({ message, hint }) => message.endsWith(hint) && hint.includes(`jobs.grant_${grant}('`));
    await client.query("rollback to before");
  };
  await lacks("producer", () => insert(client, "k"));
  await lacks("application", () => assertInserted(client, "k"));
  // As versions of Prisma wrap it.
  const wrapped = (meta) => ({
    async $queryRawUnsafe(text, ...values) {
      const error = await client.query(text, values).then(assert.fail, (error) => error);
      throw Object.assign(new Error("Raw query failed"), { code: "P2010", meta: meta(error.code) });
    },
  });
  await lacks("producer", () => insert(wrapped((code) => ({ code })), "k"));
  await lacks("producer", () => insert(wrapped((originalCode) => ({ driverAdapterError: { cause: { originalCode } } })), "k"));
  await client.query("rollback");
});

withDatabase("a date that is none is refused, and nothing is inserted", async (client, queue) => {
  await assert.rejects(insert(client, "k", {}, { queue, scheduledAt: new Date("none") }), RangeError);
  assert.equal(await count(client, queue), 0);
});

for (const [name, open] of Object.entries(libraries)) {
  withDatabase(`${name}: a job is there if its transaction was committed`, (client, queue) =>
    open(async (inTransaction) => {
      const args = { to: "ada", quoted: `"'\\$1?{}`, none: null };
      const options = { queue, tags: ["a,b", '"'], meta: { m: 1 }, scheduledAt: new Date(0), timeout: 5 };
      const { id, state, duplicate } = await inTransaction((tx) => insert(tx, "k", args, options));
      assert.deepEqual([typeof id, state, duplicate], ["number", "available", false]);
      const { rows } = await client.query("select kind, args, tags, meta from jobs.jobs where queue = $1", [queue]);
      assert.deepEqual(rows, [{ kind: "k", args, tags: options.tags, meta: { m: 1 } }]);
      const failing = inTransaction(async (tx) => {
        await insertMany(tx, [{ kind: "k", queue }, { kind: "k", queue }]);
        throw new Error("of the transaction");
      });
      await assert.rejects(failing, /of the transaction/);
      assert.equal(await count(client, queue), 1);
    }),
  );

  withDatabase(`${name}: the helpers for tests work in its transaction`, (client, queue) =>
    open(async (inTransaction) => {
      const failing = inTransaction(async (tx) => {
        await insert(tx, queue, { n: 1 }, { queue });
        await assertInserted(tx, queue, { n: 1 });
        await assertInserted(tx, defineKind(queue), { n: 1 });
        await assert.rejects(assertInserted(tx, queue, { n: 2 }), /no job of kind ".*" has args {"n":2}; the newest of that kind have:\n{"n":1}/);
        await insert(tx, "far", {}, { queue });
        await insert(tx, "farther", {}, { queue, maxAttempts: 1 });
        const worker = new Worker(url, { queues: [queue] })
          .kind(queue, (job) => job.args.n + 1)
          .kind("far", async (job) => {
            await job.progress({ percent: 50 });
            const stored = "select to_json(progress is not null)::text as row from jobs.jobs where id = $1::text::bigint";
            return { isStored: await rows(tx, stored, [String(job.id)]) };
          })
          .kind("farther", (job) => job.progress(NaN));
        const [worked, far, farther] = await workAll(tx, worker);
        assert.deepEqual([worked.state, worked.output], ["completed", 2]);
        assert.deepEqual([far.output, farther.error], [{ isStored: [false] }, "NaN has no JSON form"]);
        throw new Error("rolled back");
      });
      await assert.rejects(failing, /rolled back/);
      assert.equal(await count(client, queue), 0);
    }),
  );
}

withDatabase("workAll takes no job outside of a transaction", async (client, queue) => {
  const { id } = await insert(client, "k", {}, { queue });
  await assert.rejects(workAll(client, new Worker(url, { queues: [queue] }).kind("k", () => {})), { code: "25P01" });
  const { rows } = await client.query("select state from jobs.jobs where id = $1", [id]);
  assert.deepEqual(rows, [{ state: "available" }]);
});
