// What the types promise: compiled only. Where an error is expected, its absence is one.
import type { Knex } from "knex";
import type { Client, Pool, PoolClient } from "pg";
import type { Sql, TransactionSql } from "postgres";
import {
  Cells, connectPg, connectPostgres, defineKind, insert, insertMany, Producer, waitFor, Worker, type BatchJob, type Job, type Kind,
} from "postgres-jobs";
import { tracing } from "postgres-jobs/opentelemetry";
import { advance, assertInserted, workAll } from "postgres-jobs/testing";

interface Mail {
  to: string;
}

export async function producing(
  database: Client | Pool | PoolClient | Sql | TransactionSql | Knex | Knex.Transaction,
  prisma: { $queryRawUnsafe<T = unknown>(query: string, ...values: any[]): Promise<T> },
) {
  const { id, state, duplicate } = await insert<Mail>(database, "mail", { to: "ada" }, { scheduledAt: new Date() });
  const seen: [number, string, boolean] = [id, state, duplicate];
  await insert(prisma, "mail", { to: "ada" }, { timeout: "1 minute", uniqueOpts: { byArgs: ["to"], byPeriod: 60 } });
  await insertMany(database, [{ kind: "mail" }, { kind: "mail", args: { to: "ada" }, uniqueOpts: {} }]);
  const skipped = await insert(database, "mail", {}, { uniqueOpts: { wait: false } });
  skipped.id satisfies number | null;
  // @ts-expect-error: the id can be null
  skipped.id satisfies number;
  const [first] = await insertMany(database, [{ kind: "mail" }, { kind: "mail", uniqueOpts: { wait: false } }]);
  // @ts-expect-error: the id can be null
  first!.id satisfies number;
  const [result] = await waitFor<{ sent: boolean }>(database, [id], { want: "any" });
  const sent: boolean | undefined = result?.output?.sent;
  // @ts-expect-error: no such option
  await insert(database, "mail", {}, { scheduled_at: new Date() });
  // @ts-expect-error: args of another type
  await insert<Mail>(database, "mail", { from: "ada" });
  // @ts-expect-error: not a connection
  await insert("postgresql://", "mail");
  await insert(new Cells([database, prisma]), "mail");
  // @ts-expect-error: not a list
  new Cells(database);
  new Worker(["postgresql://a", { connect: connectPg("postgresql://b") }]);
  return [seen, sent];
}

const SendMail = defineKind<Mail>("mail", { queue: "mail", timeout: 30, uniqueOpts: { byArgs: ["to"] } });

export async function kinds(database: Client) {
  const { id } = await insert(database, SendMail, { to: "ada" }, { priority: 2 });
  id satisfies number;
  await insertMany(database, [SendMail.job({ to: "ada" }, { scheduledAt: new Date() }), { kind: "other", args: 1 }]);
  // @ts-expect-error: args of another type
  await insert(database, SendMail, { from: "ada" });
  // @ts-expect-error: more args
  await insert(database, SendMail, { to: "ada", from: "eve" });
  // @ts-expect-error: no args
  await insert(database, SendMail);
  // @ts-expect-error: args of another type
  SendMail.job({ from: "ada" });
  // @ts-expect-error: no such kind
  await insert(database, SendMial, { to: "ada" });
  // @ts-expect-error: an object that is no kind
  await insert(database, { name: "mail" }, { to: "ada" });
  // @ts-expect-error: no such default
  defineKind<Mail>("mail", { max_attempts: 3 });
  // @ts-expect-error: a kind of other args
  SendMail satisfies Kind<{ from: string }>;
  new Worker("postgresql://")
    .kind(SendMail, (job) => job.args.to.length, { concurrency: 2 })
    .kind(SendMail, { thread: new URL("file:///mail.js") })
    .batch(SendMail, (jobs) => jobs.forEach((job) => job.end(job.args.to)), { size: 10, linger: 0.1 })
    .batch("other", async (jobs: BatchJob<Mail>[], signal) => jobs[0]?.end(signal.aborted))
    .periodic("daily", "@daily", SendMail, { to: "ada" }, { timeZone: "Europe/Berlin" })
    // @ts-expect-error: args have no such member
    .kind(SendMail, (job) => job.args.from)
    // @ts-expect-error: a handler of other args
    .kind(SendMail, (job: Job<{ from: string }>) => job.args.from)
    // @ts-expect-error: a handler of other args
    .batch(SendMail, (jobs: BatchJob<{ from: string }>[]) => jobs[0]?.args.from)
    // @ts-expect-error: args of another type
    .periodic("daily", "@daily", SendMail, { from: "ada" })
    // @ts-expect-error: neither a function nor a thread
    .kind(SendMail, { timeout: 5 });
  const [change] = await worker.sync(database);
  return change?.outcome === "created";
}

export const worker = new Worker(connected(), { queues: { mail: 3, default: 1 }, middleware: [tracing()] })
  .kind("whole", async (job: Job<Mail>, signal) => ({ sent: job.args.to, aborted: signal.aborted }))
  .kind<Mail>("given", ({ args }) => args.to.length, { timeout: -1 })
  .kind("part", (job: { args: Mail }) => job.args.to)
  .kind("not typed", (job) => JSON.stringify(job.args))
  // @ts-expect-error: args that have no type are unknown
  .kind("not typed", (job) => job.args.whatever)
  // @ts-expect-error: args have no such member
  .kind<Mail>("wrong", (job) => job.args.from)
  .otherwise((job) => job.kind);

// @ts-expect-error: a number is expected
new Worker("postgresql://", { lease: "30 s" });

function connected() {
  return { connect: Math.random() < 0.5 ? connectPg({ host: "db" }) : connectPostgres("postgresql://") };
}

export const producer = new Producer({
  middleware: [
    { insert: (jobs, next) => next(jobs.map((job) => ({ ...job, meta: { ...job.meta, tenant: 1 } }))) },
    { work: async (job, next) => [job.kind, await next()] },
  ],
});

export async function testing(tx: PoolClient) {
  const { args } = await assertInserted<Mail>(tx, "mail", { to: "ada" });
  args.to satisfies string;
  (await assertInserted(tx, SendMail)).args.to satisfies string;
  await advance(tx, "1 hour");
  const [worked] = await workAll(tx, worker);
  return worked?.state === "completed";
}
