import { AssertionError } from "node:assert";
import { Attempt, type Handler } from "./attempt.js";
import { rows, toInterval, type Database, type Duration } from "./database.js";
import { FINISH, textOf } from "./finisher.js";
import type { State } from "./insert.js";
import { jobRows, PROGRESS, type JobRow } from "./job.js";
import { toArray, toJson } from "./json.js";

const INSERTED = `select to_json(args)::text as row from jobs.jobs
  where kind = $1::text and args @> $2::text::jsonb limit 1`;
const OF_KIND = `select to_json(args)::text as row from jobs.jobs where kind = $1::text order by id desc limit 5`;
const DUE_QUEUES = `select distinct to_json(queue)::text as row from jobs.jobs
  where state = 'available' or state in ('scheduled', 'retryable') and scheduled_at <= clock_timestamp()`;
const FETCH = jobRows(`jobs.fetch_any($1::text::text[], worker => 'workAll', kinds => $2::text::text[])`);
const WORKED = `select json_build_object('id', id, 'kind', kind, 'state', state, 'output', output,
  'error', last_error)::text as row
  from unnest($1::text::bigint[]) with ordinality as w(id, n) join jobs.jobs using (id) order by n`;
const ADVANCE = `select to_json(jobs.update(id, scheduled_at => scheduled_at - $1::text::interval))::text as row
  from jobs.jobs where state in ('scheduled', 'retryable')`;

const MOST_ATTEMPTS = 10_000;

/** Throws an AssertionError unless there is a job of the kind with at least these args. */
export async function assertInserted(database: Database, kind: string, args: unknown = {}): Promise<void> {
  const [found] = await rows(database, INSERTED, [kind, toJson(args)]);
  if (found !== undefined) return;
  const others = await rows(database, OF_KIND, [kind]);
  const seen = others.length > 0 ? `; there are ${others.map(toJson).join(", ")}` : "";
  throw new AssertionError({ message: `there is no job ${kind} with args ${toJson(args)}${seen}` });
}

/** A job that `workAll` has run, as it is then. */
export interface Worked {
  id: number;
  kind: string;
  state: State;
  /** What its handler has returned; null: nothing. */
  output: any;
  /** The text of its latest error; null: there is none. */
  error: string | null;
}

/**
 * Runs the jobs that are due and have a handler, one after the other, until there are no more.
 * `queues`: only those of these queues; default: of all.
 */
export async function workAll(
  transaction: Database,
  handlers: Readonly<Record<string, Handler>>,
  options: { queues?: readonly string[] } = {},
): Promise<Worked[]> {
  const ids = new Set<number>();
  for (let attempts = 0; attempts < MOST_ATTEMPTS; attempts++) {
    const queues = options.queues ?? (await rows(transaction, DUE_QUEUES, []));
    const values = [toArray(queues), toArray(Object.keys(handlers))];
    const [row]: JobRow[] = queues.length > 0 ? await rows(transaction, FETCH, values) : [];
    if (!row) return rows(transaction, WORKED, [toArray([...ids])]);
    ids.add(row.id);
    await work(transaction, row, handlers[row.kind]!);
  }
  throw new Error(`there was no end after ${MOST_ATTEMPTS} attempts`);
}

async function work(transaction: Database, row: JobRow, handler: Handler): Promise<void> {
  const { id, token } = row;
  const progress = async (value: string) => {
    await rows(transaction, PROGRESS, [String(id), String(token), value]);
  };
  const attempt = new Attempt(row, { progress });
  await rows(transaction, "savepoint before_handler", []);
  const result = await attempt.run(() => handler(attempt.job, attempt.job.signal));
  if (!result) return;
  const finish = () => rows(transaction, FINISH, [`[${textOf(id, token, result)}]`]);
  await finish().catch(async () => {
    // A statement of the handler was refused, and the transaction takes no more.
    await rows(transaction, "rollback to before_handler", []);
    await finish();
  });
}

/** Lets time pass: jobs that are to run later run that much earlier. */
export async function advance(transaction: Database, interval: Duration): Promise<void> {
  await rows(transaction, ADVANCE, [toInterval(interval)]);
}
