import { AssertionError } from "node:assert";
import { Attempt } from "./attempt.js";
import { rows as ask, run, toInterval, type Database, type Duration, type Value } from "./database.js";
import { failure, invalidOutput, isOfValue, type Result } from "./endings.js";
import { elementOf, FINISH } from "./finisher.js";
import { RESULTS, type JobResult, type State } from "./insert.js";
import { jobRows, type JobRow } from "./job.js";
import { toArray, toJson } from "./json.js";
import { toKind, type Kind } from "./kind.js";
import type { Worker } from "./worker.js";

const INSERTED = `select json_build_object('id', id, 'kind', kind, 'queue', queue, 'state', state, 'args', args)::text as row
  from jobs.jobs where kind = $1::text and args @> $2::text::jsonb order by id desc limit 1`;
const OF_KIND = "select to_json(args)::text as row from jobs.jobs where kind = $1::text order by id desc limit 10";
const FETCH = jobRows("jobs.fetch_any($1::text::text[], worker => 'workAll', kinds => $2::text::text[])");
const ADVANCE = `select to_json(jobs.update(id, scheduled_at => scheduled_at - $1::text::interval))::text as row
  from jobs.jobs where state in ('scheduled', 'retryable')`;

const MOST_ATTEMPTS = 1_000;

const rows = (transaction: Database, text: string, values: Value[]) => ask(transaction, text, values, "application");

/** A job found by `assertInserted`. */
export interface Found<Args = unknown> {
  id: number;
  kind: string;
  queue: string;
  state: State;
  args: Args;
}

/** Returns the newest job of the kind with at least these args. Throws an AssertionError if there is none. */
export async function assertInserted<Args = unknown>(
  transaction: Database,
  given: string | Kind<Args>,
  args: unknown = {},
): Promise<Found<Args>> {
  const kind = toKind(given).name;
  const [found] = await rows(transaction, INSERTED, [kind, toJson(args)]);
  if (found) return found;
  const others = await rows(transaction, OF_KIND, [kind]);
  const seen = others.map(toJson).join("\n") || "none";
  throw new AssertionError({ message: `no job of kind "${kind}" has args ${toJson(args)}; the newest of that kind have:\n${seen}` });
}

/** An attempt made by `workAll`, and the job after it. */
export interface Worked extends JobResult {
  kind: string;
}

/**
 * Runs the due jobs of the worker's kinds and queues in the transaction, one after another, until
 * none is left. The worker must not be started. The writes of a handler stay if it completes the job;
 * otherwise they are rolled back. Timeouts have no effect, and progress is not stored.
 */
export async function workAll(transaction: Database, worker: Worker): Promise<Worked[]> {
  const worked: Worked[] = [];
  const { queues, kinds } = worker;
  const values = [toArray(queues), kinds && toArray(kinds)];
  // Fails outside of a transaction, before a job is taken.
  await run(transaction, "savepoint before_handlers", []);
  await run(transaction, "release before_handlers", []);
  for (;;) {
    const [row]: JobRow[] = await rows(transaction, FETCH, values);
    if (!row) return worked;
    if (worked.length === MOST_ATTEMPTS) throw new Error("jobs are still due after 1,000 attempts");
    await work(transaction, worker, row);
    const [result]: JobResult[] = await rows(transaction, RESULTS, [toArray([row.id])]);
    const { state, output, error } = result!;
    worked.push({ id: row.id, kind: row.kind, state, output, error });
  }
}

async function work(transaction: Database, worker: Worker, row: JobRow): Promise<void> {
  const attempt = new Attempt(row, async () => {});
  const finish = (result: Result) => rows(transaction, FINISH, [`[${elementOf(row.id, row.token, result)}]`]);
  // Returns no rows: Kysely returns one for this.
  const undo = () => run(transaction, "rollback to before_handler", []);
  await run(transaction, "savepoint before_handler", []);
  const result = await attempt.run(() => worker.handle(attempt.job));
  if (result && result.do !== "complete") await undo();
  if (result) {
    await finish(result).catch(async (error) => {
      await undo();
      await finish(isOfValue(error) ? invalidOutput(error) : failure(error));
    });
  }
  await run(transaction, "release before_handler", []);
}

/** Makes every scheduled and retryable job due that much earlier. */
export async function advance(transaction: Database, interval: Duration): Promise<void> {
  await rows(transaction, ADVANCE, [toInterval(interval)]);
}
