import { inspect } from "node:util";

/** An element of what `jobs.finish_many` takes, without id and token. `output` is JSON text. */
export type Result =
  | { do: "complete"; output?: string }
  | { do: "fail"; error: string; details: Record<string, string>; retry_in?: number; retryable?: boolean }
  | { do: "snooze"; delay: number }
  | { do: "cancel"; reason?: string }
  | { do: "release" };

// By a symbol and not by class: a program can have this package twice, as ESM and as CommonJS.
const RESULT = Symbol.for("postgres-jobs.result");

const NOT_GIVEN = "no error was given";

abstract class Ending extends Error {
  abstract [RESULT](): Result;
}

/** Thrown or returned by a handler: the job comes again after the delay, in seconds; the attempt does not count. */
export class Snooze extends Ending {
  constructor(readonly delay: number) {
    super(`snoozed for ${delay}`);
    this.delay = fromZero(delay);
  }
  [RESULT](): Result {
    return { do: "snooze", delay: this.delay };
  }
}

/** Thrown or returned by a handler: the job is cancelled. */
export class Cancel extends Ending {
  constructor(readonly reason?: string) {
    super(reason ?? "cancelled");
  }
  [RESULT](): Result {
    return this.reason === undefined ? { do: "cancel" } : { do: "cancel", reason: storable(this.reason) };
  }
}

/** Thrown or returned by a handler: the job has failed for good. The error is a text, or what was caught. */
export class Discard extends Ending {
  constructor(error: unknown = NOT_GIVEN) {
    super(typeof error === "string" ? error : undefined, { cause: error });
  }
  [RESULT](): Result {
    return { ...failure(typeof this.cause === "string" ? this : this.cause), retryable: false };
  }
}

/** Thrown or returned by a handler: the attempt has failed, and the job is retried after the delay, in seconds. */
export class RetryIn extends Ending {
  constructor(readonly delay: number, error: unknown = NOT_GIVEN) {
    super(typeof error === "string" ? error : undefined, { cause: error });
    this.delay = fromZero(delay);
  }
  [RESULT](): Result {
    return { ...failure(typeof this.cause === "string" ? this : this.cause), retry_in: this.delay };
  }
}

function fromZero(delay: number): number {
  if (!Number.isFinite(delay)) throw new RangeError(`delay: ${delay} is no number of seconds`);
  return Math.max(delay, 0);
}

/** What a handler has asked for by what it threw or returned, if it did so. */
export function askedFor(given: unknown): Result | undefined {
  try {
    return (given as Ending | undefined)?.[RESULT]?.();
  } catch {
    return undefined; // such as a proxy that was revoked
  }
}

/** The failed attempt of whatever was thrown. Never throws. */
export function failure(thrown: unknown): Result & { do: "fail" } {
  const error = thrown as Partial<Error & { code: unknown }>;
  const own = read(() => Object.hasOwn(error, "name") && error.name);
  const type = own || read(() => error.constructor?.name) || typeof thrown;
  const message = typeof thrown === "string" ? thrown : read(() => error.message);
  const text = message ?? read(() => inspect(thrown, { maxStringLength: LENGTH }));
  const code = read(() => (typeof error.code === "number" ? String(error.code) : error.code));
  const trace = read(() => error.stack);
  return {
    do: "fail",
    error: storable(text || type),
    details: {
      type: storable(type),
      ...(code && { code: storable(code) }),
      ...(trace && { trace: storable(trace, -LENGTH) }),
    },
  };
}

/** A failed attempt of which the library itself knows the type. */
export const failureOf = (type: string, error: string): Result & { do: "fail" } =>
  ({ do: "fail", error: storable(error), details: { type } });

/**
 * Whether a call was refused because of its value. XX000 is of any internal error: the text, which
 * is never translated, says that the value is too large to store.
 */
export const isOfValue = ({ code, message }: any): boolean =>
  /^(22|54|XX000 .*invalid memory alloc request size)/s.test(`${code} ${message}`);

/** The failed attempt of an output that was refused, here or by the database. */
export const invalidOutput = (error: unknown): Result & { do: "fail" } =>
  failureOf("invalid_output", `the output has no JSON that the database can hold: ${failure(error).error}`);

// A text from an object that may be anything: its getters may throw.
function read(get: () => unknown): string | undefined {
  try {
    const value = get();
    return typeof value === "string" ? value : undefined;
  } catch {
    return undefined;
  }
}

const LENGTH = 10_000;

// A text as the database can hold it: without NUL and lone surrogates, and cut after so many
// characters, or before the last so many.
function storable(text: string, length = LENGTH): string {
  // A character has at most two code units. Few are looked at, however long the text is.
  const characters = [...(length < 0 ? text.slice(2 * length) : text.slice(0, 2 * length))];
  const cut = length < 0 ? characters.slice(length) : characters.slice(0, length);
  return cut.join("").replace(/[\0\p{Surrogate}]/gu, "\uFFFD");
}
