import { types } from "node:util";
import { askedFor } from "./endings.js";
import type { Job } from "./job.js";

/** A job of a batch. */
export interface BatchJob<Args = unknown> extends Job<Args> {
  /** Ends the job: with its output, with an error, or with an outcome such as a `Snooze`. The first call counts. */
  end(outcome?: unknown): void;
}

/**
 * Handles several jobs of a kind. Jobs that it does not end are completed when it returns, and fail
 * with what it throws. The signal is aborted once every job that it has not ended is.
 */
export type BatchHandler<Args = unknown> = (jobs: BatchJob<Args>[], signal: AbortSignal) => unknown;

interface Member {
  job: BatchJob<any>;
  isEnded: boolean;
  end(outcome?: unknown): void;
  fail(error: unknown): void;
}

/** Jobs that a batch handler gets at once. Each runs within middleware of its own, and joins there. */
export class Batch {
  readonly #members: Member[] = [];
  readonly #aborting = new AbortController();
  #isRunning = false;
  #absent = 0;
  #expected?: number;

  constructor(private readonly handler: BatchHandler<any>) {}

  /** Returns the output of the job, or rejects with what else ends it. */
  join(job: Job<any>): Promise<unknown> {
    const ended = new Promise((resolve, reject) => {
      const fail = (error: unknown) => ((member.isEnded = true), reject(error));
      const end = (outcome?: unknown) => {
        if (outcome instanceof Error || types.isNativeError(outcome)) return fail(outcome);
        member.isEnded = true;
        resolve(outcome);
      };
      const member: Member = { job: Object.assign(job, { end }), isEnded: false, end, fail };
      this.#members.push(member);
      if (job.signal.aborted) this.#onAbort(member);
      else job.signal.addEventListener("abort", () => this.#onAbort(member), { once: true });
    });
    this.#begin();
    return ended;
  }

  /** The job has ended, perhaps without having joined. */
  leave(job: Job<any>): void {
    if (this.#isRunning || this.#members.some((member) => member.job === job)) return;
    this.#absent++;
    this.#begin();
  }

  /** Runs the handler once so many jobs have joined or left. */
  close(expected: number): void {
    this.#expected = expected;
    this.#begin();
  }

  #begin(): void {
    if (this.#members.length + this.#absent === this.#expected) void this.#run();
  }

  #onAbort({ job, fail }: Member): void {
    if (!this.#isRunning) return fail(job.signal.reason);
    const open = this.#members.filter(({ isEnded }) => !isEnded);
    if (open.every((member) => member.job.signal.aborted)) this.#aborting.abort(job.signal.reason);
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    const jobs = this.#members.filter(({ isEnded }) => !isEnded).map(({ job }) => job);
    try {
      const returned = jobs.length > 0 ? await this.handler(jobs, this.#aborting.signal) : undefined;
      const outcome = askedFor(returned) && returned;
      for (const { end } of this.#members) end(outcome);
    } catch (error) {
      for (const { fail } of this.#members) fail(error);
    }
  }
}
