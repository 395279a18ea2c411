import { rows, type Database, type Value } from "./database.js";
import { toJson } from "./json.js";

/** A row of `jobs.fetch_any`, with the seconds of its attempt: `whole`, and `left`. */
export type JobRow = Record<string, any>;

/** Selects a JobRow for each of these jobs. */
export const jobRows = (jobs: string): string =>
  `select to_json(j)::text as row from (select id, token, attempt, kind, args, meta, queue, priority, tags, max_attempts,
    date_part('epoch', created_at) as created_at, date_part('epoch', scheduled_at) as scheduled_at,
    date_part('epoch', attempted_at) as attempted_at,
    date_part('epoch', deadline_at - attempted_at) as whole,
    date_part('epoch', deadline_at - clock_timestamp()) as left from ${jobs}) as j`;

const toDate = (seconds: number) => new Date(Math.round(seconds * 1000));

/** What a job keeps to itself, but shows to handlers in threads. A program can load this package twice. */
export const INNER = Symbol.for("postgres-jobs.inner");

interface Inner {
  row: JobRow;
  isCompleted: boolean;
}

/** The job that a handler gets. */
export class Job<Args = unknown> {
  readonly id: number;
  /** The kind, which selects the handler. */
  readonly kind: string;
  readonly queue: string;
  /** The args. Integers that a number cannot represent exactly are bigints. */
  readonly args: Args;
  /** Metadata; `{}` if there is none. */
  readonly meta: Record<string, any>;
  readonly tags: string[];
  /** Lower numbers are fetched first. */
  readonly priority: number;
  /** The number of this attempt, from 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly createdAt: Date;
  /** When the job was due. */
  readonly scheduledAt: Date;
  /** When this attempt started. */
  readonly attemptedAt: Date;
  /** When the attempt is over, in this machine's clock; null if it has no limit. */
  readonly deadline: Date | null;
  readonly #inner: Inner;
  readonly #progress: (value: string) => Promise<void>;

  constructor(
    row: JobRow,
    progress: (value: string) => Promise<void>,
    /** Aborted when the handler must stop: on timeout, cancel, stop of the worker, or a lost job. */
    readonly signal: AbortSignal,
  ) {
    ({ id: this.id, kind: this.kind, queue: this.queue, args: this.args, meta: this.meta, tags: this.tags } = row);
    ({ priority: this.priority, attempt: this.attempt, max_attempts: this.maxAttempts } = row);
    this.createdAt = toDate(row.created_at);
    this.scheduledAt = toDate(row.scheduled_at);
    this.attemptedAt = toDate(row.attempted_at);
    this.deadline = row.left === null ? null : new Date(Date.now() + row.left * 1000);
    this.#inner = { row, isCompleted: false };
    this.#progress = progress;
  }

  /** Whether the handler has completed the job in a transaction of its own. */
  get isCompleted(): boolean {
    return this.#inner.isCompleted;
  }

  get [INNER](): Inner {
    return this.#inner;
  }

  /** Stores progress, any JSON, which `jobs.jobs` shows, and renews the lease. */
  async progress(value: unknown): Promise<void> {
    await this.#progress(toJson(value));
  }

  /**
   * Completes the job within a transaction of the handler. Commit before the handler returns: the
   * worker then sends nothing more. If the handler throws, the attempt fails, unless the transaction
   * was committed.
   */
  async complete(transaction: Database, output?: unknown): Promise<void> {
    const values: Value[] = [String(this.id), String(this.#inner.row.token), output === undefined ? null : toJson(output)];
    const complete = "jobs.complete($1::text::bigint, $2::text::bigint, nullif($3::text::jsonb, 'null'))";
    // Set before the call: from then on the job is locked, and no heartbeat may wait for that.
    this.#inner.isCompleted = true;
    try {
      await rows(transaction, `select to_json(${complete})::text as row`, values, "worker");
    } catch (error) {
      this.#inner.isCompleted = false;
      throw error;
    }
  }
}
