// A database with the extension, for tests that need one.
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import pg from "pg";

export const url = process.env.DATABASE_URL;

/** A test that gets a client, a queue of its own, and its context. */
export function withDatabase(name, run) {
  test(name, { skip: url ? false : "DATABASE_URL is not set", timeout: 180_000 }, async (t) => {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    t.after(() => client.end()); // also after the timeout, or the process would stay
    await run(client, `test-${randomUUID()}`, t);
  });
}

export const count = async (client, queue) => {
  const { rows } = await client.query("select count(*)::int from jobs.jobs where queue = $1", [queue]);
  return rows[0].count;
};
