// A web application that inserts jobs in its own transactions, and the worker of these jobs.
//
//     npm install FILE pg        # the file that `npm pack` has made: README.md
//     DATABASE_URL=postgresql://app@localhost/shop npx tsx web.ts
//     DATABASE_URL=postgresql://app@localhost/shop npx tsx web.ts worker
//
//     create table orders (id integer generated always as identity primary key, customer text,
//                          confirmed boolean default false);
//
//     curl -d '{"customer": "ada"}' localhost:8000/orders
//     curl localhost:8000/jobs/1

import { createServer, type IncomingMessage } from "node:http";
import { json } from "node:stream/consumers";
import pg from "pg";
import { insert, waitFor, Worker, type Job } from "postgres-jobs";

const url = process.env.DATABASE_URL!;
const pool = new pg.Pool({ connectionString: url });
pool.on("error", console.error);

async function inTransaction<T>(work: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const tx = await pool.connect();
  try {
    await tx.query("begin");
    const result = await work(tx);
    await tx.query("commit");
    return result;
  } catch (error) {
    await tx.query("rollback").catch(console.error);
    throw error;
  } finally {
    tx.release();
  }
}

function placeOrder(customer: string) {
  // The order and its job: both or neither.
  return inTransaction(async (tx) => {
    const { rows } = await tx.query("insert into orders (customer) values ($1) returning id", [customer]);
    const job = await insert(tx, "order.confirm", { order: rows[0].id }, { queue: "orders" });
    return { order: rows[0].id, job: job.id };
  });
}

async function waitForJob(id: number) {
  // Waiting occupies a connection: better one of its own than one of the pool.
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await waitFor(client, [id], { timeout: 5 }))[0];
  } finally {
    await client.end();
  }
}

async function confirm(job: Job<{ order: number }>) {
  // What the job changes and its end: both or neither, so never twice.
  await inTransaction(async (tx) => {
    await tx.query("update orders set confirmed = true where id = $1", [job.args.order]);
    await job.complete(tx, { confirmed: job.args.order });
  });
}

async function answer(request: IncomingMessage): Promise<unknown> {
  const [, job] = /^\/jobs\/(\d+)$/.exec(request.url ?? "") ?? [];
  if (job) return waitForJob(Number(job));
  const { customer } = (await json(request)) as { customer: string };
  return placeOrder(customer);
}

if (process.argv[2] === "worker") {
  const worker = new Worker(url, { queues: ["orders"] });
  worker.kind("order.confirm", confirm, { timeout: 30 });
  await worker.run();
  await pool.end();
} else {
  const server = createServer(async (request, response) => {
    try {
      response.end(JSON.stringify(await answer(request)));
    } catch (error) {
      console.error(error);
      response.writeHead(500).end();
    }
  });
  server.listen(8000);
}
