import { inspect } from "node:util";
import { fromJson } from "./json.js";

/** An element of the argument of `jobs.finish_many`, without id and token. `output` is JSON text. */
export type Result =
  | { do: "complete"; output?: string }
  | Failure
  | { do: "snooze"; delay: number }
  | { do: "cancel"; reason?: string }
  | { do: "release" };

/** A failed attempt. What was thrown is for the worker alone: a symbol does not come into JSON. */
export interface Failure {
  do: "fail";
  error: string;
  details: Record<string, string>;
  retry_in?: number;
  retryable?: boolean;
  [THROWN]: unknown;
}

export const THROWN = Symbol("thrown");

// A symbol instead of a class: a program can load this package twice, as ESM and as CommonJS.
const RESULT = Symbol.for("postgres-jobs.result");

const NOT_GIVEN = "no error was given";

abstract class Ending extends Error {
  abstract [RESULT](): Result;
}

/** Thrown or returned by a handler: runs the job again after the delay in seconds. The attempt does not count. */
export class Snooze extends Ending {
  constructor(readonly delay: number) {
    super(`snoozed for ${delay}`);
    this.delay = fromZero(delay);
  }
  [RESULT](): Result {
    return { do: "snooze", delay: this.delay };
  }
}

/** Thrown or returned by a handler: cancels the job. */
export class Cancel extends Ending {
  constructor(readonly reason?: string) {
    super(reason ?? "cancelled");
  }
  [RESULT](): Result {
    return this.reason === undefined ? { do: "cancel" } : { do: "cancel", reason: storable(this.reason) };
  }
}

/** Thrown or returned by a handler: fails the attempt and discards the job. The error is a text, or what was caught. */
export class Discard extends Ending {
  constructor(error: unknown = NOT_GIVEN) {
    super(typeof error === "string" ? error : undefined, { cause: error });
  }
  [RESULT](): Result {
    return { ...failure(typeof this.cause === "string" ? this : this.cause), retryable: false };
  }
}

/** Thrown or returned by a handler: fails the attempt and retries the job after the delay in seconds. */
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
  if (!Number.isFinite(delay)) throw new RangeError(`delay must be a finite number of seconds, not ${delay}`);
  return Math.max(delay, 0);
}

/** The outcome that a handler threw or returned, if any. */
export function askedFor(given: unknown): Result | undefined {
  return attempted(() => (given as Ending | undefined)?.[RESULT]?.()); // not of a revoked proxy
}

/** The failure for whatever was thrown. Never throws. */
export function failure(thrown: unknown): Failure {
  const error = thrown as Partial<Error & { code: unknown }>;
  const type = typeOf(thrown);
  const code = read(() => (typeof error.code === "number" ? String(error.code) : error.code));
  const trace = told(thrown, (one) => read(() => one.stack)?.slice(-2 * LENGTH), "\ncaused by: ", "\nand: ");
  return {
    do: "fail",
    error: textOf(thrown),
    details: {
      type: storable(type),
      ...(code && { code: storable(code) }),
      ...(trace && { trace: storable(trace, -LENGTH) }),
    },
    [THROWN]: thrown,
  };
}

/** Returns or throws what has this result: that of a handler in a thread. */
export function outcomeOf(result: Result | null): unknown {
  if (!result) return undefined;
  if (result.do === "complete") return result.output === undefined ? undefined : fromJson(result.output);
  if (result.do !== "fail" || result.retry_in !== undefined || result.retryable === false) throw Object.assign(new Error(result.do), { [RESULT]: () => result });
  const { type, trace, code } = result.details;
  throw Object.assign(new Error(result.error), { name: type, stack: trace, ...(code && { code }) });
}

/** The text of whatever was thrown, and of its causes. Never throws. */
export const textOf = (thrown: unknown): string => storable(told(thrown, ownText, ": ", "; ") || typeOf(thrown));

function typeOf(thrown: unknown): string {
  const error = thrown as Partial<Error>;
  const own = read(() => Object.hasOwn(error, "name") && error.name);
  return own || read(() => error.constructor?.name) || typeof thrown;
}

function ownText(thrown: any): string | undefined {
  const message = typeof thrown === "string" ? thrown : read(() => thrown.message);
  return (message ?? read(() => inspect(thrown, { maxStringLength: LENGTH })))?.slice(0, 2 * LENGTH);
}

const MOST_CAUSES = 20;

// What is told of an error, of its cause and of the errors within it, each once.
function told(thrown: any, tell: (one: any) => string | undefined, after: string, between: string, seen = new Set()): string {
  if (seen.has(thrown) || seen.size === MOST_CAUSES) return "";
  seen.add(thrown);
  const own = tell(thrown) ?? "";
  const inner = [attempted(() => thrown.cause), ...(attempted(() => Array.isArray(thrown.errors) && [...thrown.errors]) || [])];
  const others = inner.filter((one) => one != null).map((one) => told(one, tell, after, between, seen));
  // Many texts have that of their cause already.
  const more = others.filter((text) => !own.includes(text)).join(between);
  return own && more ? own + after + more : own || more;
}

/** A failure with a type of this library. */
export const failureOf = (type: string, error: string, cause?: unknown): Failure =>
  ({ do: "fail", error: storable(error), details: { type }, [THROWN]: Object.assign(new Error(error, { cause }), { name: type }) });

/**
 * Whether a call was refused because of a value. XX000 is the code of every internal error. The text,
 * which is never translated, says that the value is too large to store.
 */
export const isOfValue = ({ code, message }: any): boolean =>
  /^(22|54|XX000 .*invalid memory alloc request size)/s.test(`${code} ${message}`);

/** The failure for an output that was refused, here or by the database. */
export const invalidOutput = (error: unknown): Failure =>
  failureOf("invalid_output", `the output cannot be stored as JSON: ${textOf(error)}`, error);

// What an object has, unless its getter throws.
function attempted<T>(get: () => T): T | undefined {
  try {
    return get();
  } catch {
    return undefined;
  }
}

function read(get: () => unknown): string | undefined {
  const value = attempted(get);
  return typeof value === "string" ? value : undefined;
}

const LENGTH = 10_000;

// A text that the database can store: without NUL and lone surrogates, cut to its first `length`
// characters, or to its last if that is negative.
function storable(text: string, length = LENGTH): string {
  // A character has at most two code units. Few are looked at, however long the text is.
  const characters = [...(length < 0 ? text.slice(2 * length) : text.slice(0, 2 * length))];
  const cut = length < 0 ? characters.slice(length) : characters.slice(0, length);
  return cut.join("").replace(/[\0\p{Surrogate}]/gu, "\uFFFD");
}
