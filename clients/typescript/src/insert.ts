import { rows, toInterval, type Database, type Duration } from "./database.js";
import { toArray, toJson } from "./json.js";
import type { Middleware } from "./middleware.js";

/** Where a job stands. */
export type State =
  | "available" | "scheduled" | "pending" | "running" | "retryable" | "completed" | "cancelled" | "discarded";

/** What a job is unique by, and what becomes of a duplicate. Left out: the default of the kind. */
export interface Unique<Wait extends boolean = boolean> {
  /** The kind alone. */
  byKind?: boolean;
  /** All args, or only these paths, such as `"address.city"`. */
  byArgs?: boolean | string[];
  /** These paths of meta. */
  byMeta?: string[];
  byQueue?: boolean;
  /** The time, rounded down to a multiple of this. */
  byPeriod?: Duration;
  /** States in which an existing job is a duplicate. Default: all but cancelled and discarded. */
  byState?: State[];
  /** An existing job counts only while it is younger than this. */
  window?: Duration;
  windowFrom?: "created_at" | "scheduled_at";
  /** The job holds its key for so long, even if it is deleted. */
  holdFor?: Duration;
  /** What ends the hold earlier. Default `"success"`. */
  holdUntil?: "success" | "start";
  /** Without the kind. */
  excludeKind?: boolean;
  /** This text instead of args, meta, queue and period. */
  key?: string;
  /** What becomes of a duplicate. Default `"skip"`. The lists are of fields, by their SQL names. */
  onConflict?:
    | "skip" | "reject" | "replace" | "replace_except_schedule"
    | { update: Partial<Record<State | "*", string[]>> };
  /** False: a job whose key another transaction is inserting right now is skipped. Default true. */
  wait?: Wait;
}

/** Unique options as another system has them. */
export type ForeignUnique = { oban: object } | { faktory: object } | { ojs: object };

/** Options of an insert: the parameters of `jobs.insert`. Left out: the default of the kind. */
export interface InsertOptions<Wait extends boolean = boolean> {
  /** Default `"default"`. */
  queue?: string;
  /** The lower number is fetched first. Default 1. */
  priority?: number;
  /** Not before this time. Default: now. */
  scheduledAt?: Date | string;
  /** How many attempts there may be. Default 25. */
  maxAttempts?: number;
  tags?: string[];
  /** What else is to be known of the job; any JSON object. */
  meta?: Record<string, unknown>;
  /** How long one attempt may run; -1 is no limit. Default 1 minute. */
  timeout?: Duration;
  /** The retry policy: `"river"` (the default), `"oban"`, `"faktory"`, or an object. */
  retry?: unknown;
  /** From then on it is discarded instead of being fetched. Default: never. */
  expiresAt?: Date | string;
  /** It waits for `jobs.activate`. Default false. */
  pending?: boolean;
  /** Default: not unique. */
  uniqueOpts?: Unique<Wait> | ForeignUnique | Record<string, never>;
}

/** A job to be inserted. */
export interface NewJob<Args = unknown, Wait extends boolean = boolean> extends InsertOptions<Wait> {
  kind: string;
  /** Any JSON; a bigint becomes a number. Default `{}`. */
  args?: Args;
}

/** What an insert has come to. Only with `wait: false` id and state can be null. */
export interface Inserted<Wait extends boolean = true> {
  /** The id of the new job, or of the one that this would duplicate; null: that is not committed. */
  id: number | (Wait extends true ? never : null);
  state: State | (Wait extends true ? never : null);
  /** Nothing was inserted: the job with this id is there already. */
  duplicate: boolean;
}

/** Inserts jobs, with middleware around each insert. */
export class Producer {
  readonly #middleware: readonly Middleware[];

  constructor(options: { middleware?: readonly Middleware[] } = {}) {
    this.#middleware = options.middleware ?? [];
  }

  /** Inserts a job, by the connection or in the transaction of the caller. */
  async insert<Args = unknown, Wait extends boolean = true>(
    database: Database,
    kind: string,
    args?: Args,
    options: InsertOptions<Wait> = {},
  ): Promise<Inserted<Wait>> {
    return (await this.insertMany<Wait>(database, [{ ...options, kind, args }]))[0]!;
  }

  /** Inserts many jobs in one statement: all of them or, if one is refused, none. */
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

/** Inserts a job, by the connection or in the transaction of the caller. */
export const insert: Producer["insert"] = (...given) => plain.insert(...given);

/** Inserts many jobs in one statement: all of them or, if one is refused, none. */
export const insertMany: Producer["insertMany"] = (...given) => plain.insertMany(...given);

const INSERT = "select to_json(i)::text as row from jobs.insert_many($1::text::jsonb) as i order by ord";

// The members of an element of what jobs.insert_many takes.
const parametersOf = (job: NewJob): object =>
  toSnake({ ...job, ...(job.uniqueOpts && { uniqueOpts: toSnake(job.uniqueOpts) }) });

const toSnake = (object: object): object =>
  Object.fromEntries(
    Object.entries(object).map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), sent(value)]),
  );

// A date that is none would be null, as if it were left out.
const sent = (value: unknown): unknown => (value instanceof Date ? value.toISOString() : value);

export const RESULTS = "select to_json(r)::text as row from jobs.results($1::text::bigint[]) as r order by ord";

/** What became of a job. */
export interface JobResult<Output = any> {
  id: number;
  /** As it is now; null: there is no such job, or no more. */
  state: State | null;
  /** What its handler returned; null also where the role may not see it. */
  output: Output | null;
  /** The text of the latest failed attempt. */
  error: string | null;
}

/**
 * Waits until all of the jobs are over, or one of them, or for `timeout` (default 30 s), and
 * returns how they stand. Needs a connection in autocommit, and occupies it.
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
