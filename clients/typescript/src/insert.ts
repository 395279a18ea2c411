import { rows, toInterval, type Database, type Duration, type Value } from "./database.js";
import { toArray, toJson } from "./json.js";
import type { Middleware } from "./middleware.js";

/** Where a job stands. */
export type State =
  | "available" | "scheduled" | "pending" | "running" | "retryable" | "completed" | "cancelled" | "discarded";

/** What a job is unique by, and what becomes of a duplicate. Left out: the default of the kind. */
export interface Unique {
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
  wait?: boolean;
}

/** Unique options as another system has them. */
export type ForeignUnique = { oban: object } | { faktory: object } | { ojs: object };

/** Options of an insert: the parameters of `jobs.insert`. Left out: the default of the kind. */
export interface InsertOptions {
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
  uniqueOpts?: Unique | ForeignUnique | Record<string, never>;
}

/** A job to be inserted. */
export interface NewJob<Args = unknown> extends InsertOptions {
  kind: string;
  /** Any JSON; a bigint becomes a number. Default `{}`. */
  args?: Args;
}

/** What an insert has come to. */
export interface Inserted {
  /** The id of the new job, or of the one that this would duplicate. */
  id: number;
  state: State;
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
  async insert<Args = unknown>(
    database: Database,
    kind: string,
    args?: Args,
    options: InsertOptions = {},
  ): Promise<Inserted> {
    const [inserted] = await this.#around([{ ...options, kind, args }], async ([job]) => {
      const parameters = Object.entries(parametersOf(job!));
      const list = parameters.map(([name], at) => `${name} => $${at + 1}::text::${TYPES[name as keyof typeof TYPES]}`);
      const call = `select to_json(i)::text as row from jobs.insert(${list.join(", ")}) as i`;
      return rows(database, call, parameters.map(([name, value]) => toText(name, value)));
    });
    return inserted!;
  }

  /** Inserts many jobs in one statement: all of them or, if one is refused, none. */
  insertMany(database: Database, jobs: readonly NewJob[]): Promise<Inserted[]> {
    return this.#around([...jobs], (all) => {
      const call = "select to_json(i)::text as row from jobs.insert_many($1::text::jsonb) as i order by ord";
      return rows(database, call, [toJson(all.map(parametersOf))]);
    });
  }

  async #around(jobs: NewJob[], insert: (jobs: NewJob[]) => Promise<any[]>): Promise<Inserted[]> {
    const insertAll = async (all: NewJob[]): Promise<Inserted[]> =>
      (await insert(all)).map((row) => ({ id: row.id, state: row.state, duplicate: row.unique_skipped_as_duplicate }));
    const layered = this.#middleware.reduceRight(
      (next, layer) => (layer.insert ? async (all: NewJob[]) => layer.insert!(all, next) : next),
      insertAll,
    );
    return layered(jobs);
  }
}

const plain = new Producer();

/** Inserts a job, by the connection or in the transaction of the caller. */
export const insert: Producer["insert"] = (...given) => plain.insert(...given);

/** Inserts many jobs in one statement: all of them or, if one is refused, none. */
export const insertMany: Producer["insertMany"] = (...given) => plain.insertMany(...given);

// The parameters of jobs.insert.
const TYPES = {
  kind: "text",
  args: "jsonb",
  unique_opts: "jsonb",
  queue: "text",
  priority: "integer",
  scheduled_at: "timestamptz",
  max_attempts: "integer",
  tags: "text[]",
  meta: "jsonb",
  timeout: "interval",
  retry: "jsonb",
  expires_at: "timestamptz",
  pending: "boolean",
};

const toSnake = (object: object): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(object)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]),
  );

function parametersOf(job: NewJob): Record<string, unknown> {
  const parameters = toSnake(job);
  for (const name of Object.keys(parameters)) {
    if (!Object.hasOwn(TYPES, name)) throw new TypeError(`jobs.insert has no parameter ${name}`);
  }
  if (job.uniqueOpts) parameters.unique_opts = toSnake(job.uniqueOpts);
  return parameters;
}

function toText(name: string, value: unknown): Value {
  const type = TYPES[name as keyof typeof TYPES];
  if (type === "jsonb") return toJson(value);
  if (type === "interval") return toInterval(value as Duration);
  if (type === "text[]") return toArray(value as string[]);
  return value instanceof Date ? value.toISOString() : String(value);
}

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
  options: { timeout?: Duration; want?: "all" | "any" } = {},
): Promise<JobResult<Output>[]> {
  const { timeout = 30, want = "all" } = options;
  const wait = "call jobs.wait_for($1::text::bigint[], $2::text::interval, $3::text)";
  await rows(database, wait, [toArray(ids), toInterval(timeout), want]);
  const found = await rows(
    database,
    "select to_json(r)::text as row from jobs.results($1::text::bigint[]) as r order by ord",
    [toArray(ids)],
  );
  return found.map(({ id, state, output, error }) => ({ id, state, output, error }));
}
