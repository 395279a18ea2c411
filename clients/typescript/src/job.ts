import { rows, type Database, type Value } from "./database.js";
import { toJson } from "./json.js";

/** A row of `jobs.fetch_any`, how many seconds its attempt has as a `whole`, and how many are `left`. */
export type JobRow = Record<string, any>;

/** Selects a JobRow of each of these jobs. */
export const jobRows = (jobs: string): string =>
  `select to_json(j)::text as row from (select *,
    extract(epoch from deadline_at - attempted_at) as whole,
    extract(epoch from deadline_at - clock_timestamp()) as left from ${jobs}) as j`;

/** A job, as its handler gets it. */
export class Job<Args = any> {
  readonly id: number;
  /** What to do. */
  readonly kind: string;
  readonly queue: string;
  /** As inserted. Integers that a number cannot hold exactly are bigints. */
  readonly args: Args;
  /** What else was inserted along with it; `{}` if nothing. */
  readonly meta: Record<string, any>;
  readonly tags: string[];
  /** The lower number is fetched first. */
  readonly priority: number;
  /** Which attempt this is, from 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly createdAt: Date;
  /** When the job was due. */
  readonly scheduledAt: Date;
  /** When this attempt began. */
  readonly attemptedAt: Date;
  /** When the attempt is over, in the clock of this machine; null: it has no limit. */
  readonly deadline: Date | null;
  #isCompleted = false;
  readonly #token: number;
  readonly #progress: (value: string) => Promise<void>;

  constructor(
    row: JobRow,
    progress: (value: string) => Promise<void>,
    /** Aborted when the handler is to end: timeout, cancellation, stop, or the job is lost. */
    readonly signal: AbortSignal,
  ) {
    ({ id: this.id, kind: this.kind, queue: this.queue, args: this.args, meta: this.meta, tags: this.tags } = row);
    ({ priority: this.priority, attempt: this.attempt, max_attempts: this.maxAttempts } = row);
    this.createdAt = new Date(row.created_at);
    this.scheduledAt = new Date(row.scheduled_at);
    this.attemptedAt = new Date(row.attempted_at);
    this.deadline = row.left === null ? null : new Date(Date.now() + row.left * 1000);
    this.#token = row.token;
    this.#progress = progress;
  }

  /** Whether the handler has completed it in a transaction of its own. */
  get isCompleted(): boolean {
    return this.#isCompleted;
  }

  /** Stores progress, any JSON, which `jobs.jobs` shows; renews the lease. */
  async progress(value: unknown): Promise<void> {
    await this.#progress(toJson(value));
  }

  /**
   * Completes the job within a transaction of the handler. If the handler then returns, the worker
   * sends nothing more, so commit before. If it throws, the attempt has failed, unless the
   * transaction was committed.
   */
  async complete(transaction: Database, output?: unknown): Promise<void> {
    const values: Value[] = [String(this.id), String(this.#token), output === undefined ? null : toJson(output)];
    const complete = "jobs.complete($1::text::bigint, $2::text::bigint, nullif($3::text::jsonb, 'null'))";
    // Before the call: from then on the job is locked, and no heartbeat may wait for that.
    this.#isCompleted = true;
    try {
      await rows(transaction, `select to_json(${complete})::text as row`, values);
    } catch (error) {
      this.#isCompleted = false;
      throw error;
    }
  }
}
