import { rows, toInterval, type Database, type Duration } from "./database.js";
import { toArray, toJson } from "./json.js";
import { toKind, type Kind } from "./kind.js";
import type { Middleware } from "./middleware.js";

/** The state of a job. */
export type State =
  | "available" | "scheduled" | "pending" | "running" | "retryable" | "completed" | "cancelled" | "discarded";

/** What makes a job unique, and what happens to a duplicate. Default: the kind's. */
export interface Unique<Wait extends boolean = boolean> {
  /** By kind alone. */
  byKind?: boolean;
  /** By all args, or by these paths of them, such as `"address.city"`. */
  byArgs?: boolean | string[];
  /** By these paths of meta. */
  byMeta?: string[];
  byQueue?: boolean;
  /** Also by the time, rounded down to a multiple of this. */
  byPeriod?: Duration;
  /** The states in which an existing job conflicts. Default: all but cancelled and discarded. */
  byState?: State[];
  /** An existing job conflicts only while it is younger than this. */
  window?: Duration;
  windowFrom?: "created_at" | "scheduled_at";
  /** How long the job holds its key, even if it is deleted. */
  holdFor?: Duration;
  /** What releases the hold early. Default: `"success"`. */
  holdUntil?: "success" | "start";
  /** Jobs of other kinds are duplicates, too. */
  excludeKind?: boolean;
  /** Use this text instead of args, meta, queue and period. */
  key?: string;
  /** What happens to a duplicate. Default: `"skip"`. The lists name fields as in SQL. */
  onConflict?:
    | "skip" | "reject" | "replace" | "replace_except_schedule"
    | { update: Partial<Record<State | "*", string[]>> };
  /** False: skip the job while another transaction is inserting its key. Default: true. */
  wait?: Wait;
}

/** Unique options in the format of another queue. */
export type ForeignUnique = { oban: object } | { faktory: object } | { ojs: object };

/** Options of an insert: the parameters of `jobs.insert`. Default: the kind's. */
export interface InsertOptions<Wait extends boolean = boolean> {
  /** Default: `"default"`. */
  queue?: string;
  /** Lower numbers are fetched first. Default: 1. */
  priority?: number;
  /** When the job is due. Default: now. */
  scheduledAt?: Date | string;
  /** The maximum number of attempts. Default: 25. */
  maxAttempts?: number;
  tags?: string[];
  /** Metadata, any JSON object. */
  meta?: Record<string, unknown>;
  /** The timeout of an attempt; -1 is no limit. Default: 1 minute. */
  timeout?: Duration;
  /** The retry policy: `"river"` (the default), `"oban"`, `"faktory"`, or an object. */
  retry?: unknown;
  /** The time from which the job is discarded instead of fetched. Default: never. */
  expiresAt?: Date | string;
  /** Whether the job waits for `jobs.activate`. Default: false. */
  pending?: boolean;
  /** Default: not unique. */
  uniqueOpts?: Unique<Wait> | ForeignUnique | Record<string, never>;
}

/** A job to insert. */
export interface NewJob<Args = unknown, Wait extends boolean = boolean> extends InsertOptions<Wait> {
  kind: string;
  /** Any JSON; a bigint becomes a number. Default: `{}`. */
  args?: Args;
}

/** The result of an insert. The id and state can be null only with `wait: false`; the id is always
 * null in an outbox. */
export interface Inserted<Wait extends boolean = true> {
  /** The id of the new job, or of the existing one; null if that is not committed yet. */
  id: number | (Wait extends true ? never : null);
  state: State | (Wait extends true ? never : null);
  /** Whether nothing was inserted because the job is a duplicate. */
  duplicate: boolean;
}

/** Inserts jobs with middleware around each insert. */
export class Producer {
  readonly #middleware: readonly Middleware[];

  constructor(options: { middleware?: readonly Middleware[] } = {}) {
    this.#middleware = options.middleware ?? [];
  }

  /** Inserts a job on the caller's connection or in its transaction. */
  insert<Args, Wait extends boolean = true>(
    database: Database, kind: Kind<Args>, args: Args, options?: InsertOptions<Wait>,
  ): Promise<Inserted<Wait>>;
  insert<Args = unknown, Wait extends boolean = true>(
    database: Database, kind: string, args?: Args, options?: InsertOptions<Wait>,
  ): Promise<Inserted<Wait>>;
  async insert(database: Database, kind: string | Kind<any>, ...given: [args?: unknown, options?: InsertOptions]): Promise<any> {
    const [args, options] = given;
    const job = { ...toKind(kind).job(args, options), ...(given.length === 0 && { args: {} }) };
    return (await this.insertMany(database, [job]))[0]!;
  }

  /** Inserts all of the jobs in one statement, or none if one is refused. */
  async insertMany<Wait extends boolean = true>(
    database: Database,
    jobs: readonly NewJob<unknown, Wait>[],
  ): Promise<Inserted<Wait>[]> {
    const layered = this.#middleware.reduceRight(
      (next, layer) => (layer.insert ? async (all: NewJob[]) => layer.insert!(all, next) : next),
      async (all: NewJob[]): Promise<any[]> => {
        const inserted = await rows(database, INSERT, [toJson(all.map(parametersOf))]);
        return inserted.map((row) => ({ id: row.id, state: row.state, duplicate: row.unique_skipped_as_duplicate }));
      },
    );
    return layered([...jobs]);
  }
}

const plain = new Producer();

/** Inserts a job on the caller's connection or in its transaction. */
export const insert: Producer["insert"] = plain.insert.bind(plain);

/** Inserts all of the jobs in one statement, or none if one is refused. */
export const insertMany: Producer["insertMany"] = plain.insertMany.bind(plain);

export const INSERT = "select to_json(i)::text as row from jobs.insert_many($1::text::jsonb) as i order by ord";

/** The members of an element of the argument of `jobs.insert_many`. */
export function parametersOf(job: { args?: unknown; uniqueOpts?: object }): object {
  if ("args" in job && !hasJson(job.args)) throw new TypeError(`args must be JSON, not ${typeof job.args}; pass {} for none`);
  return toSnake({ ...job, ...(job.uniqueOpts && { uniqueOpts: toSnake(job.uniqueOpts) }) });
}

const hasJson = (value: unknown) => !["undefined", "function", "symbol"].includes(typeof value);

const toSnake = (object: object): object =>
  Object.fromEntries(
    Object.entries(object).map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), sent(value)]),
  );

// An invalid date would become null, as if it were left out.
const sent = (value: unknown): unknown => (value instanceof Date ? value.toISOString() : value);

export const RESULTS = "select to_json(r)::text as row from jobs.results($1::text::bigint[]) as r order by ord";

/** The state and result of a job. */
export interface JobResult<Output = any> {
  id: number;
  /** The current state, or null if the job does not exist. */
  state: State | null;
  /** The job's output; null also if the role may not see it. */
  output: Output | null;
  /** The error of the latest failed attempt. */
  error: string | null;
}

/**
 * Waits until all of the jobs, or any of them, are over, for `timeout` (default 30 s) at most.
 * Returns their states and results. Needs a connection in autocommit, and occupies it.
 */
export async function waitFor<Output = any>(
  database: Database,
  ids: readonly number[],
  { timeout = 30, want = "all" }: { timeout?: Duration; want?: "all" | "any" } = {},
): Promise<JobResult<Output>[]> {
  const wait = "call jobs.wait_for($1::text::bigint[], $2::text::interval, $3::text)";
  await rows(database, wait, [toArray(ids), toInterval(timeout), want]);
  const found = await rows(database, RESULTS, [toArray(ids)]);
  return found.map(({ id, state, output, error }) => ({ id, state, output, error }));
}
