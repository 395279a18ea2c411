// How a program with Drizzle (on node-postgres) inserts jobs by SQL. The library in TypeScript does
// this in a few lines, and has a worker: docs/workers.md.
//
//   create table orders (id bigint generated always as identity primary key, customer text not
//   null, quantity smallint not null); DATABASE_URL=postgresql://postgres@localhost/jobs node
//   drizzle_example.mjs

import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, pgTable, smallint, text } from "drizzle-orm/pg-core";

const orders = pgTable("orders", {
  id: bigint({ mode: "number" }).primaryKey().generatedAlwaysAsIdentity(),
  customer: text().notNull(),
  quantity: smallint().notNull(),
});
const db = drizzle(process.env.DATABASE_URL);
const one = async (tx, query) => (await tx.execute(query)).rows[0];
// An object or array in sql`..` would be spread or sent as an array: JSON goes as text, and what
// jobs.insert takes is known.
const json = (value) => JSON.stringify(value);

// --- Insert: every ${..} is a bound parameter, names of parameters stand in the text. ------------

const mail = await one(db, sql`select id, state, queue
  from jobs.insert(kind => ${"email.send"}, args => ${json({ user_id: 42, subject: "Grüße, 'Ada' \\ 😀" })}, queue => ${"mail"})`);
console.log(`insert: ${mail.state} in ${mail.queue}`);

// --- Unique: a duplicate is the row of the job that exists, or, if so wished, an error. ----------

const report = (unique) => one(db, sql`select id, unique_skipped_as_duplicate as skipped
  from jobs.insert(kind => 'report', args => ${json({ customer: 7 })}, unique_opts => ${json({ by_args: true, ...unique })})`);
const [first, second] = [await report(), await report()];
console.log(`unique: skipped ${first.skipped}, then ${second.skipped}, same job ${first.id === second.id}`);
try {
  await report({ on_conflict: "reject" });
} catch (error) {
  const { code, detail } = error.cause; // the DrizzleQueryError is around what node-postgres threw
  if (code !== "23505") throw error;
  console.log(`reject: ${code}, names the existing job ${String(JSON.parse(detail).existing_job_id) === first.id}`);
}

// --- The job and the row that it is about are one transaction: both go through tx. ---------------

function order(values, check) {
  return db.transaction(async (tx) => {
    const [{ id }] = await tx.insert(orders).values(values).returning({ id: orders.id });
    await tx.execute(sql`select jobs.insert(kind => 'order.confirm', args => ${json({ order_id: id })})`);
    check();
  });
}
await order({ customer: "Ada", quantity: 2 }, () => { throw new Error("out of stock"); })
  .catch((error) => console.log(`rolled back: ${error.message}`));
await order({ customer: "Grace", quantity: 3 }, () => {});
console.log(`committed: ${await db.$count(orders)} order`);

// --- Types ---------------------------------------------------------------------------------------

const insert = (kind, args, job = {}) => one(db, sql`select id, state, scheduled_at from jobs.insert(kind => ${kind}, args => ${args},
  priority => ${job.priority ?? null}, scheduled_at => ${job.scheduledAt ?? null}, expires_at => ${job.expiresAt ?? null},
  tags => ${sql.param(job.tags ?? null)}, meta => ${job.meta ?? null}, timeout => ${job.timeout ?? null},
  retry => ${job.retry ?? null}, queue => ${job.queue ?? null}, max_attempts => ${job.maxAttempts ?? null})`);
// text[]: an array within sql.param(..); without, it would become a list of parameters.
const typed = await insert("typed", json([1, { deep: [null] }]), {
  priority: -5, scheduledAt: new Date("2999-01-01T13:00:00+01:00"), expiresAt: "2999-01-02 00:00:00+00",
  tags: ["a", 'b, "c"', "NULL"], meta: json({ tenant: "acme" }), timeout: "1 hour 30 minutes", retry: json("oban"), maxAttempts: 3,
});
// Drizzle gives times and intervals of execute() as Postgres' text, so that they are compared and
// computed with there.
console.log(`types: ${typed.state} ${new Date(typed.scheduled_at).toISOString()}`);
// JSON null is the text "null"; null would be SQL's, which args refuse.
const nulls = await insert("nulls", "null");
const refused = await insert("nulls", null).catch((error) => error.cause);
console.log(`nulls: JSON null ${nulls.state}, SQL NULL ${refused.code}`);

// --- A prepared statement with a name: db.select() from the function. Its plan stays with the
// connection.

// One connection, to look at its plans.
const { inserted, generic } = await db.transaction(async (tx) => {
  const index = tx.select({ skipped: sql`unique_skipped_as_duplicate` })
    .from(sql`jobs.insert(kind => 'index', args => ${sql.placeholder("args")}, unique_opts => ${json({ by_args: ["page"] })})`)
    .prepare("insert_index");
  let inserted = 0;
  for (let n = 0; n < 12; n++) {
    const [{ skipped }] = await index.execute({ args: json({ page: n % 6 }) });
    if (!skipped) inserted++;
  }
  return { inserted, ...(await one(tx, sql`select generic_plans > 0 as generic from pg_prepared_statements where name = 'insert_index'`)) };
});
console.log(`prepared: ${inserted} of 12 inserted, generic plan ${generic}`);

// --- Many at once: one statement, however many. Then a worker in its smallest form. --------------

const queue = "work";
const { rows: many } = await db.execute(sql`select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_many(jobs => ${json([
  { kind: "ok", queue, args: { n: 1 }, unique_opts: { by_args: true } },
  { kind: "bad", queue },
  { kind: "ok", queue, args: { n: 1 }, unique_opts: { by_args: true } },
])}) order by ord`);
console.log(`insert_many: skipped ${many.map((row) => row.skipped)}, third is the first ${many[2].id === many[0].id}`);

class BadAddress extends Error {}
const handlers = {
  async ok() { return { done: true }; },
  async bad() { throw new BadAddress("no such address"); },
};
for (;;) {
  const job = await one(db, sql`select id, token, kind, args from jobs.fetch(queue => ${queue}, worker => 'drizzle', lease => '30 s')`);
  if (!job) break; // a real worker waits here: call jobs.wait(..), not in a transaction
  let state;
  try {
    const output = await handlers[job.kind](job.args);
    ({ state } = await one(db, sql`select jobs.complete(${job.id}, ${job.token}, output => ${json(output)}) as state`));
  } catch (error) {
    ({ state } = await one(db, sql`select state from jobs.fail(${job.id}, ${job.token}, ${error.message},
      retryable => false, details => ${json({ type: error.constructor.name })})`));
  }
  console.log(`worker: ${job.kind} ${state}`);
}

// --- Read: each type as the driver gives it. -----------------------------------------------------

const read = await one(db, sql`select scheduled_at, extract(epoch from timeout)::int as timeout, tags, meta
  from jobs.jobs where id = ${typed.id}`);
console.log(`read: ${new Date(read.scheduled_at).toISOString()}, ${read.timeout / 60} minutes, ` +
  `${json(read.tags)}, ${json(read.meta)}`);
// Beyond 2^53: as a string or a BigInt, never as a number. It comes back as a string.
const big = await one(db, sql`select id, lease_expires_at
  from jobs.heartbeat_many(ids => ${sql.param([9007199254740993n])}, tokens => ${sql.param(["1"])})`);
console.log(`bigint: ${big.id}, lease ${big.lease_expires_at}`);
await db.$client.end();
