import type { Attempt } from "./attempt.js";
import { textOf, THROWN, type Failure } from "./endings.js";
import type { Logger } from "./log.js";

/** Called with a job and what its handler threw. What it throws is logged, and ends nothing. */
export type Hook = (job: Attempt["job"], error: unknown) => unknown;

/** Tells log and hooks of failures. */
export class Reports {
  constructor(
    private readonly logger: Logger,
    private readonly onError?: Hook,
    private readonly onDiscarded?: Hook,
  ) {}

  failed(attempt: Attempt, failure: Failure): void {
    this.logger.warn("attempt failed", fieldsOf(attempt, failure));
    void this.#call(this.onError, attempt, failure);
  }

  discarded(attempt: Attempt, failure: Failure): void {
    this.logger.error("job discarded", fieldsOf(attempt, failure));
    void this.#call(this.onDiscarded, attempt, failure);
  }

  async #call(hook: Hook | undefined, { job, fields }: Attempt, failure: Failure): Promise<void> {
    try {
      await hook?.(job, failure[THROWN]);
    } catch (error) {
      this.logger.error("hook failed", { ...fields, error: textOf(error) });
    }
  }
}

function fieldsOf({ fields, job }: Attempt, { error, details: { type, trace } }: Failure): object {
  return { ...fields, max_attempts: job.maxAttempts, type, error, ...(trace && { trace }) };
}
