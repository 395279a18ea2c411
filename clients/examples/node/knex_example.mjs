// How a program with Knex (on node-postgres) inserts jobs by SQL. The library in TypeScript does
// this, and has a worker: docs/workers.md.
//
//   create table orders (id bigint generated always as identity primary key, customer text not
//   null, quantity smallint not null); DATABASE_URL=postgresql://postgres@localhost/jobs node
//   knex_example.mjs

import knex from "knex";

const db = knex({ client: "pg", connection: process.env.DATABASE_URL, pool: { min: 0, max: 4 } });
const one = async (query) => (await query).rows[0];

// --- Insert: `:name` is a bound parameter, `name =>` the function's. Knex replaces no `::`, so
// casts stay casts.

const mail = await one(db.raw("select id, state, queue from jobs.insert(kind => :kind, args => :args, queue => :queue)", {
  // An object becomes JSON by itself.
  kind: "email.send", args: { user_id: 42, subject: "Grüße, 'Ada' \\ 😀" }, queue: "mail",
}));
console.log(`insert: ${mail.state} in ${mail.queue}`);

// --- Unique: a duplicate is the row of the job that exists, or, if so wished, an error. ----------

const report = (unique) => one(db.raw(
  "select id, unique_skipped_as_duplicate as skipped from jobs.insert(kind => 'report', args => ?, unique_opts => ?)",
  [{ customer: 7 }, { by_args: true, ...unique }],
));
const [first, second] = [await report(), await report()];
console.log(`unique: skipped ${first.skipped}, then ${second.skipped}, same job ${first.id === second.id}`);
try {
  await report({ on_conflict: "reject" });
} catch (error) {
  if (error.code !== "23505") throw error;
  const { existing_job_id: existing } = JSON.parse(error.detail);
  console.log(`reject: ${error.code}, names the existing job ${String(existing) === first.id}`);
}

// --- The job and the row that it is about are one transaction: both go through trx. --------------

function order(values, check) {
  return db.transaction(async (trx) => {
    const [{ id }] = await trx("orders").insert(values).returning("id"); // a bigint: a string
    await trx.raw("select jobs.insert(kind => 'order.confirm', args => ?)", [{ order_id: Number(id) }]);
    check();
  });
}
await order({ customer: "Ada", quantity: 2 }, () => { throw new Error("out of stock"); })
  .catch((error) => console.log(`rolled back: ${error.message}`));
await order({ customer: "Grace", quantity: 3 }, () => {});
const [orders] = await db("orders").count();
console.log(`committed: ${orders.count} order`);

// --- Types. What a function takes is known, so no parameter needs a cast. Undefined is refused by
// Knex: say null.

const insert = (kind, args, job = {}) => one(db.raw(`select id, state, scheduled_at from jobs.insert(kind => :kind, args => :args,
  priority => :priority, scheduled_at => :scheduledAt, expires_at => :expiresAt, tags => :tags, meta => :meta,
  timeout => :timeout, retry => :retry, queue => :queue, max_attempts => :maxAttempts)`, {
  kind, args, priority: null, scheduledAt: null, expiresAt: null, tags: null, meta: null, timeout: null, retry: null,
  queue: null, maxAttempts: null, ...job,
}));
// An array becomes a Postgres array, which is right for text[] and wrong for jsonb: that needs
// JSON.stringify.
const typed = await insert("typed", JSON.stringify([1, { deep: [null] }]), {
  priority: -5, scheduledAt: new Date("2999-01-01T13:00:00+01:00"), expiresAt: "2999-01-02 00:00:00+00",
  tags: ["a", 'b, "c"', "NULL"], meta: { tenant: "acme" }, timeout: "1 hour 30 minutes", retry: JSON.stringify("oban"), maxAttempts: 3,
});
console.log(`types: ${typed.state} ${typed.scheduled_at.toISOString()}`);
// JSON null is the text "null"; null would be SQL's, which args refuse.
const nulls = await insert("nulls", "null");
const refused = await insert("nulls", null).catch((error) => error);
console.log(`nulls: JSON null ${nulls.state}, SQL NULL ${refused.code}`);

// --- A prepared statement: options reach node-postgres, and a name makes it one, on each
// connection.

// One connection, to look at its plans.
const { inserted, generic } = await db.transaction(async (trx) => {
  let inserted = 0;
  for (let n = 0; n < 12; n++) {
    const index = trx.raw("select unique_skipped_as_duplicate as skipped from jobs.insert(kind => 'index', args => ?, unique_opts => ?)",
      [{ page: n % 6 }, { by_args: ["page"] }]).options({ name: "insert_index" });
    if (!(await one(index)).skipped) inserted++;
  }
  return { inserted, ...(await one(trx.raw("select generic_plans > 0 as generic from pg_prepared_statements where name = 'insert_index'"))) };
});
console.log(`prepared: ${inserted} of 12 inserted, generic plan ${generic}`);

// --- Many at once: one statement, however many. Then a worker in its smallest form. --------------

const queue = "work";
const { rows: many } = await db.raw("select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_many(jobs => ?) order by ord", [
  JSON.stringify([
    { kind: "ok", queue, args: { n: 1 }, unique_opts: { by_args: true } },
    { kind: "bad", queue },
    { kind: "ok", queue, args: { n: 1 }, unique_opts: { by_args: true } },
  ]),
]);
console.log(`insert_many: skipped ${many.map((row) => row.skipped)}, third is the first ${many[2].id === many[0].id}`);

class BadAddress extends Error {}
const handlers = {
  async ok() { return { done: true }; },
  async bad() { throw new BadAddress("no such address"); },
};
for (;;) {
  const job = await one(db.raw("select id, token, kind, args from jobs.fetch(queue => ?, worker => 'knex', lease => '30 s')", [queue]));
  if (!job) break; // a real worker waits here: call jobs.wait(?), not in a transaction
  let state;
  try {
    const output = await handlers[job.kind](job.args);
    ({ state } = await one(db.raw("select jobs.complete(?, ?, output => ?) as state", [job.id, job.token, output])));
  } catch (error) {
    ({ state } = await one(db.raw("select state from jobs.fail(?, ?, ?, retryable => false, details => ?)", [
      job.id, job.token, error.message, { type: error.constructor.name },
    ])));
  }
  console.log(`worker: ${job.kind} ${state}`);
}

// --- Read: each type as the driver gives it. -----------------------------------------------------

const read = await db("jobs.jobs").first("scheduled_at", "timeout", "tags", "meta").where({ id: typed.id });
const { hours, minutes } = read.timeout; // an interval is an object
console.log(`read: ${read.scheduled_at.toISOString()}, ${hours * 60 + minutes} minutes, ` +
  `${JSON.stringify(read.tags)}, ${JSON.stringify(read.meta)}`);
// Beyond 2^53: as a string or a BigInt, never as a number. In a list of bindings an array is one
// value, as it must be here.
const big = await one(db.raw("select id, lease_expires_at from jobs.heartbeat_many(ids => ?, tokens => ?)", [["9007199254740993"], ["1"]]));
console.log(`bigint: ${big.id}, lease ${big.lease_expires_at}`);
await db.destroy();
