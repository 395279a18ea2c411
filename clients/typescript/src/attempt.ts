import { askedFor, failure, failureOf, invalidOutput, type Result } from "./endings.js";
import { Job, type JobRow } from "./job.js";
import { toJson } from "./json.js";
import { MOST_SECONDS } from "./timing.js";

/** The handler of a kind. Its return value is the job's output; what it throws fails the attempt. */
export type Handler<Args = unknown> = (job: Job<Args>, signal: AbortSignal) => unknown;

/** Why a handler was cancelled. */
export type Reason = "timeout" | "cancelled" | "stopping" | "lost";

const MESSAGES = {
  timeout: "the attempt ran longer than its timeout",
  cancelled: "the job was cancelled",
  stopping: "the worker is stopping",
  lost: "the job was lost",
};

/** The reason of a handler's signal once it is aborted. */
export class Aborted extends Error {
  override readonly name = "AbortError";

  constructor(readonly why: Reason) {
    super(MESSAGES[why]);
  }
}

/** The attempt of a job that this worker has fetched. */
export class Attempt {
  readonly job: Job;
  readonly token: number;
  /** None once its handler has ended, or if it never begins. */
  place?: "waiting" | "running" = "waiting";
  /** Its handler, which runs. */
  handled?: Promise<void>;
  /** The result is decided, and nothing more is sent. */
  isSettled = false;
  /** Whether the server does not have the result yet. */
  isHeld = true;
  #aborting = new AbortController();
  #timer?: NodeJS.Timeout;
  readonly #deadline: number;

  constructor(row: JobRow, progress: (value: string) => Promise<void>) {
    this.token = row.token;
    this.job = new Job(row, progress, this.#aborting.signal);
    // A little before the server's, so that the worker is the one who says it.
    this.#deadline = row.left === null ? Infinity : performance.now() / 1000 + row.left - Math.min(row.whole / 20, 1);
  }

  /** The fields of its log lines. */
  get fields(): object {
    const { id, kind, attempt } = this.job;
    return { job: id, kind, attempt };
  }

  /** The seconds until it is over: by the server's deadline, or by the handler's timeout if it begins now. */
  left(timeout = -1): number {
    return Math.min(timeout < 0 ? Infinity : timeout, this.#deadline - performance.now() / 1000);
  }

  /** Cancels the handler. The first reason counts. */
  abort(why: Reason): void {
    this.#aborting.abort(new Aborted(why));
  }

  /** Calls back after so many seconds, unless it begins before. */
  waitAtMost(seconds: number, onEnd: () => void): void {
    this.stopWaiting();
    if (seconds <= MOST_SECONDS) this.#timer = setTimeout(onEnd, Math.ceil(Math.max(seconds, 0) * 1000));
  }

  stopWaiting(): void {
    clearTimeout(this.#timer);
  }

  /** Cancels the handler after so many seconds, with the other jobs of its batch, and calls back for each. */
  timeOutIn(seconds: number, onTimeout: (result: Result, attempt: Attempt) => void, batch: Attempt[] = [this]): void {
    this.waitAtMost(seconds, () => {
      // Its transaction has the job locked, and may fail.
      if (this.job.isCompleted) return this.timeOutIn(1, onTimeout, batch);
      for (const attempt of batch) {
        if (attempt.job.isCompleted) continue;
        attempt.abort("timeout");
        onTimeout(failureOf("timeout", MESSAGES.timeout), attempt);
      }
    });
  }

  /** Runs the handler. Returns the result to send, or null for none. Never rejects. */
  async run(handler: () => unknown): Promise<Result | null> {
    try {
      const output = await handler();
      return this.job.isCompleted ? null : (askedFor(output) ?? completion(output));
    } catch (thrown) {
      return resultOf(thrown, this.job.signal);
    } finally {
      clearTimeout(this.#timer);
    }
  }
}

/** The failure of an attempt that was aborted because of its timeout. */
export const timedOut = (signal?: AbortSignal): Result | undefined =>
  signal?.reason?.why === "timeout" ? failureOf("timeout", MESSAGES.timeout) : undefined;

/** The result of a handler that has thrown this. */
export const resultOf = (thrown: unknown, signal?: AbortSignal): Result =>
  timedOut(signal) ?? askedFor(thrown) ?? (signal?.aborted ? { do: "release" } : failure(thrown));

/** The result of a handler that has returned this. */
export function completion(output: unknown): Result {
  if (output === undefined || output === null) return { do: "complete" };
  try {
    return { do: "complete", output: toJson(output) };
  } catch (error) {
    return invalidOutput(error);
  }
}
