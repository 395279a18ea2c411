// How a program with Prisma (its client without an engine, and the adapter for node-postgres)
// inserts jobs by SQL. The library in TypeScript does this, and has a worker: docs/workers.md.
//
//   create table orders (id bigint generated always as identity primary key, customer text not
//   null, quantity smallint not null); npx prisma generate
//   DATABASE_URL=postgresql://postgres@localhost/jobs node prisma_example.mjs

import { createHash } from "node:crypto";
import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "@prisma/client";

// Prisma writes and reads a timestamptz without its zone: in any other time zone of the session
// jobs would run hours off.
const options = "-c TimeZone=UTC";
// Only a statement with a name is prepared, on each connection. A name belongs to one text, so it
// is made from it; and not all of Prisma's statements get one, since a list in a filter makes
// another text for each of its lengths.
const statementNameGenerator = ({ sql }) => (sql.includes("jobs.insert(") ? createHash("md5").update(sql).digest("hex") : undefined);
const db = new PrismaClient({
  adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL, options, max: 4 }, { statementNameGenerator }),
});
const first = (rows) => rows[0];
const codeOf = (error) => error.meta?.driverAdapterError?.cause?.originalCode; // the SQLSTATE

// --- Insert: every ${..} of a $queryRaw`..` is a bound parameter. An object becomes JSON by
// itself.

const mail = await db.$queryRaw`select id, state, queue from jobs.insert(kind => ${"email.send"},
  args => ${{ user_id: 42, subject: "Grüße, 'Ada' \\ 😀" }}, queue => ${"mail"})`.then(first);
console.log(`insert: ${mail.state} in ${mail.queue}`);

// --- Unique: a duplicate is the row of the job that exists, or, if so wished, an error. ----------

const report = (unique) => db.$queryRaw`select id, unique_skipped_as_duplicate as skipped
  from jobs.insert(kind => 'report', args => ${{ customer: 7 }}, unique_opts => ${{ by_args: true, ...unique }})`.then(first);
const [one, two] = [await report(), await report()];
console.log(`unique: skipped ${one.skipped}, then ${two.skipped}, same job ${one.id === two.id}`);
try {
  await report({ on_conflict: "reject" });
} catch (error) {
  if (codeOf(error) !== "23505") throw error;
  // The adapter drops DETAIL, which has the job's id: who needs the id takes the default, skip,
  // instead.
  console.log(`reject: ${codeOf(error)}`);
}

// --- The job and the row that it is about are one transaction: both go through tx. ---------------

function order(data, check) {
  return db.$transaction(async (tx) => {
    const { id } = await tx.order.create({ data });
    // `id` is a BigInt.
    await tx.$queryRaw`select id from jobs.insert(kind => 'order.confirm', args => ${{ order_id: Number(id) }})`;
    check();
  });
}
await order({ customer: "Ada", quantity: 2 }, () => { throw new Error("out of stock"); })
  .catch((error) => console.log(`rolled back: ${error.message}`));
await order({ customer: "Grace", quantity: 3 }, () => {});
console.log(`committed: ${await db.order.count()} order`);

// --- Types. What a function takes is known, so no parameter needs a cast. null and undefined are
// NULL: the default.

const insert = (kind, args, job = {}) => db.$queryRaw`select id, state, scheduled_at
  from jobs.insert(kind => ${kind}, args => ${args},
  priority => ${job.priority}, scheduled_at => ${job.scheduledAt}, expires_at => ${job.expiresAt}, tags => ${job.tags},
  meta => ${job.meta}, timeout => ${job.timeout}, retry => ${job.retry}, queue => ${job.queue}, max_attempts => ${job.maxAttempts})`.then(first);
// An array becomes a Postgres array, which is right for text[] and wrong for jsonb: that needs
// JSON.stringify.
const typed = await insert("typed", JSON.stringify([1, { deep: [null] }]), {
  priority: -5, scheduledAt: new Date("2999-01-01T13:00:00+01:00"), expiresAt: "2999-01-02 00:00:00+00",
  tags: ["a", 'b, "c"', "NULL"], meta: { tenant: "acme" }, timeout: "1 hour 30 minutes", retry: JSON.stringify("oban"), maxAttempts: 3,
});
console.log(`types: ${typed.state} ${typed.scheduled_at.toISOString()}`);
// JSON null is the text "null"; null would be SQL's, which args refuse.
const nulls = await insert("nulls", "null");
const refused = await insert("nulls", null).catch(codeOf);
console.log(`nulls: JSON null ${nulls.state}, SQL NULL ${refused}`);

// --- A prepared statement: see statementNameGenerator. Its plan stays with the connection. -------

// One connection, to look at its plans.
const { inserted, generic } = await db.$transaction(async (tx) => {
  let inserted = 0;
  for (let n = 0; n < 12; n++) {
    const { skipped } = await tx.$queryRaw`select unique_skipped_as_duplicate as skipped
      from jobs.insert(kind => 'index', args => ${{ page: n % 6 }}, unique_opts => ${{ by_args: ["page"] }})`.then(first);
    if (!skipped) inserted++;
  }
  const plans = await tx.$queryRaw`select generic_plans > 0 as generic from pg_prepared_statements where statement like '%index%'`;
  return { inserted, ...plans[0] };
});
console.log(`prepared: ${inserted} of 12 inserted, generic plan ${generic}`);

// --- Many at once: one statement, however many. Then a worker in its smallest form. --------------

const queue = "work";
const many = await db.$queryRaw`select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_many(jobs => ${JSON.stringify([
  { kind: "ok", queue, args: { n: 1 }, unique_opts: { by_args: true } },
  { kind: "bad", queue },
  { kind: "ok", queue, args: { n: 1 }, unique_opts: { by_args: true } },
])}) order by ord`;
console.log(`insert_many: skipped ${many.map((row) => row.skipped)}, third is the first ${many[2].id === many[0].id}`);

class BadAddress extends Error {}
const handlers = {
  async ok() { return { done: true }; },
  async bad() { throw new BadAddress("no such address"); },
};
for (;;) {
  const job = await db.$queryRaw`select id, token, kind, args from jobs.fetch(queue => ${queue}, worker => 'prisma', lease => '30 s')`.then(first);
  if (!job) break; // a real worker waits here: call jobs.wait(..), not in a transaction
  let state;
  try {
    const output = await handlers[job.kind](job.args);
    ({ state } = await db.$queryRaw`select jobs.complete(${job.id}, ${job.token}, output => ${output}) as state`.then(first));
  } catch (error) {
    ({ state } = await db.$queryRaw`select state from jobs.fail(${job.id}, ${job.token}, ${error.message},
      retryable => false, details => ${{ type: error.constructor.name }})`.then(first));
  }
  console.log(`worker: ${job.kind} ${state}`);
}

// --- Read: each type as the driver gives it. -----------------------------------------------------

// There is no type for an interval: read it as something else.
const read = await db.$queryRaw`select scheduled_at, extract(epoch from timeout)::int as timeout, tags, meta
  from jobs.jobs where id = ${typed.id}`.then(first);
console.log(`read: ${read.scheduled_at.toISOString()}, ${read.timeout / 60} minutes, ` +
  `${JSON.stringify(read.tags)}, ${JSON.stringify(read.meta)}`);
// A bigint is a BigInt, both ways.
const big = await db.$queryRaw`select id, lease_expires_at
  from jobs.heartbeat_many(ids => ${[9007199254740993n]}, tokens => ${[1n]})`.then(first);
console.log(`bigint: ${big.id}, lease ${big.lease_expires_at}`);
await db.$disconnect();
