// How a program with node-postgres (pg) inserts jobs and finishes them by SQL. The library in
// TypeScript does this: docs/workers.md.
//
//   create table orders (id bigint generated always as identity primary key, customer text not
//   null, quantity smallint not null); DATABASE_URL=postgresql://postgres@localhost/jobs node
//   postgres_example.mjs

import pg from "pg";

const db = new pg.Client({ connectionString: process.env.DATABASE_URL });
await db.connect();
const one = async (text, values) => (await db.query(text, values)).rows[0];

// --- Insert: parameters by name. An object becomes JSON by itself. -------------------------------

const mail = await one("select id, state, queue from jobs.insert(kind => $1, args => $2, queue => $3)", [
  "email.send", { user_id: 42, subject: "Grüße, 'Ada' \\ 😀" }, "mail",
]);
console.log(`insert: ${mail.state} in ${mail.queue}`);

// --- Unique: a duplicate is the row of the job that exists, or, if so wished, an error. ----------

const report = (unique) =>
  one("select id, unique_skipped_as_duplicate as skipped from jobs.insert(kind => $1, args => $2, unique_opts => $3)", [
    "report", { customer: 7 }, { by_args: true, ...unique },
  ]);
const [first, second] = [await report(), await report()];
console.log(`unique: skipped ${first.skipped}, then ${second.skipped}, same job ${first.id === second.id}`);
try {
  await report({ on_conflict: "reject" });
} catch (error) {
  if (error.code !== "23505") throw error;
  const { existing_job_id: existing } = JSON.parse(error.detail);
  console.log(`reject: ${error.code}, names the existing job ${String(existing) === first.id}`);
}

// --- The job and the row that it is about are one transaction. With a Pool: all of it on one
// client of pool.connect().

async function order(customer, quantity, check) {
  await db.query("begin");
  try {
    const { id } = await one("insert into orders (customer, quantity) values ($1, $2) returning id", [customer, quantity]);
    // A bigint is a string here; Number() below 2^53, else as a string.
    await db.query("select jobs.insert(kind => 'order.confirm', args => $1)", [{ order_id: Number(id) }]);
    check();
    await db.query("commit");
  } catch (error) {
    await db.query("rollback");
    console.log(`rolled back: ${error.message}`);
  }
}
await order("Ada", 2, () => { throw new Error("out of stock"); });
await order("Grace", 3, () => {});
const { orders } = await one("select count(*) as orders from orders");
console.log(`committed: ${orders} order`);

// --- Types. What a function takes is known, so no parameter needs a cast. null and undefined are
// NULL: the default.

const insert = `select id, state, scheduled_at from jobs.insert(kind => $1, args => $2, priority => $3, scheduled_at => $4, tags => $5,
  meta => $6, timeout => $7, retry => $8, expires_at => $9, queue => $10, max_attempts => $11)`;
// An array becomes a Postgres array, which is right for text[] and wrong for jsonb: that needs
// JSON.stringify.
const typed = await one(insert, [
  "typed", JSON.stringify([1, { deep: [null] }]), -5, new Date("2999-01-01T13:00:00+01:00"), ["a", 'b, "c"', "NULL"],
  { tenant: "acme" }, "1 hour 30 minutes", JSON.stringify("oban"), "2999-01-02 00:00:00+00", null, 3,
]);
console.log(`types: ${typed.state} ${typed.scheduled_at.toISOString()}`);
// JSON null is the text "null"; null would be SQL's, which args refuse.
const nulls = await one(insert, ["nulls", "null", ...Array(9).fill(null)]);
const refused = await one(insert, ["nulls", null, ...Array(9).fill(null)]).catch((error) => error);
console.log(`nulls: JSON null ${nulls.state}, SQL NULL ${refused.code}`);

// --- A prepared statement: a name makes it one, on each connection. Postgres soon keeps its
// plan.

const prepared = { name: "insert_index", text: "select unique_skipped_as_duplicate as skipped from jobs.insert($1, $2, $3)" };
let inserted = 0;
for (let n = 0; n < 12; n++) {
  const { rows } = await db.query({ ...prepared, values: ["index", { page: n % 6 }, { by_args: ["page"] }] });
  if (!rows[0].skipped) inserted++;
}
const { generic } = await one("select generic_plans > 0 as generic from pg_prepared_statements where name = $1", [prepared.name]);
console.log(`prepared: ${inserted} of 12 inserted, generic plan ${generic}`);

// --- Many at once: one statement, however many. Then a worker in its smallest form. --------------

const queue = "work";
const many = await db.query("select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_many(jobs => $1) order by ord", [
  JSON.stringify([
    { kind: "ok", queue, args: { n: 1 }, unique_opts: { by_args: true } },
    { kind: "bad", queue },
    { kind: "ok", queue, args: { n: 1 }, unique_opts: { by_args: true } },
  ]),
]);
console.log(`insert_many: skipped ${many.rows.map((row) => row.skipped)}, third is the first ${many.rows[2].id === many.rows[0].id}`);

class BadAddress extends Error {}
const handlers = {
  async ok() { return { done: true }; },
  async bad() { throw new BadAddress("no such address"); },
};
for (;;) {
  const job = await one("select id, token, kind, args from jobs.fetch(queue => $1, worker => 'pg', lease => '30 s')", [queue]);
  if (!job) break; // a real worker waits here: call jobs.wait($1)
  let state;
  try {
    const output = await handlers[job.kind](job.args);
    ({ state } = await one("select jobs.complete($1, $2, output => $3) as state", [job.id, job.token, output]));
  } catch (error) {
    ({ state } = await one("select state from jobs.fail($1, $2, $3, retryable => false, details => $4)", [
      job.id, job.token, error.message, { type: error.constructor.name },
    ]));
  }
  console.log(`worker: ${job.kind} ${state}`);
}

// --- Read: each type as the driver gives it. -----------------------------------------------------

const read = await one("select scheduled_at, timeout, tags, meta from jobs.jobs where id = $1", [typed.id]);
const { hours, minutes } = read.timeout; // an interval is an object
console.log(`read: ${read.scheduled_at.toISOString()}, ${hours * 60 + minutes} minutes, ` +
  `${JSON.stringify(read.tags)}, ${JSON.stringify(read.meta)}`);
// Beyond 2^53: as a string or a BigInt, never as a number.
const big = await one("select id, lease_expires_at from jobs.heartbeat_many(ids => $1, tokens => $2)", [[9007199254740993n], ["1"]]);
console.log(`bigint: ${big.id}, lease ${big.lease_expires_at}`);
await db.end();
