import { inspect } from "node:util";
import type { Handler } from "./attempt.js";
import { Batch, type BatchHandler } from "./batch.js";
import type { Job } from "./job.js";
import { asKept, defined, toKind, type Kind } from "./kind.js";
import { inThread, isFound } from "./threads.js";

/** Options of a kind's handler. */
export interface KindOptions {
  /** How long the handler may run, in seconds; -1 is no limit. Default: the kind's, else the worker's timeout. */
  timeout?: number;
  /** The maximum number of the kind's jobs that run at once in this worker. Default: the worker's. */
  concurrency?: number;
}

/** Options of a batch handler. */
export interface BatchOptions extends KindOptions {
  /** The most jobs that the handler gets at once. Default: 100. */
  size?: number;
  /** How many seconds the first job waits for others. Default: 0, so the handler gets what is there. */
  linger?: number;
}

const KIND_OPTIONS = ["timeout", "concurrency"];

/** How the jobs of a kind are handled. */
export interface Handling extends KindOptions {
  handler: Handler<any>;
  batch?: { handler: BatchHandler<any>; size: number; linger: number };
}

/** The handlers of a worker. */
export class Handlers {
  /** The kinds that have defaults. */
  readonly defined: Kind<any>[] = [];
  /** By kind; null is every other kind. */
  readonly #of = new Map<string | null, Handling>();

  /** Sets the handler of a kind. */
  set(given: string | Kind<any> | null, handler: unknown, options: BatchOptions, isBatch = false): void {
    const { name, defaults } = toKind(given ?? "");
    const kind = given === null ? null : asKept(name);
    const shown = shownKind(kind);
    if (kind !== null) checkName("kind", kind);
    checkKnown(options, isBatch ? [...KIND_OPTIONS, "size", "linger"] : KIND_OPTIONS);
    if (this.#of.has(kind)) throw new RangeError(`${shown} already has a handler`);
    const handling: Handling = { timeout: defaults.timeout, ...defined(options), handler: toHandler(`the handler of ${shown}`, handler, !isBatch) };
    const { concurrency, size = 100, linger = 0 } = options;
    checkTimeout(handling.timeout);
    check(concurrency === undefined || isCount(concurrency), "concurrency", concurrency, "be an integer of at least 1");
    if (isBatch) {
      check(isCount(size), "size", size, "be an integer of at least 1");
      check(linger >= 0 && linger < Infinity, "linger", linger, "be at least 0");
      handling.batch = { handler: handling.handler as any, size, linger };
    }
    this.#of.set(kind, handling);
    // A fetch of all kinds cannot leave one out.
    const [limited] = this.#limited;
    if (limited && !this.kinds) throw new RangeError(`${shownKind(limited[0])} cannot have a concurrency beside a handler of every other kind`);
    if (kind !== null && Object.keys(defaults).length > 0) this.defined.push({ ...toKind(given!), name: kind });
  }

  get #limited(): [string | null, Handling][] {
    return [...this.#of].filter(([, { concurrency }]) => concurrency !== undefined);
  }

  /** The kinds that have a handler, or null for all. */
  get kinds(): string[] | null {
    return this.#of.has(null) ? null : ([...this.#of.keys()] as string[]);
  }

  /** What is fetched by itself: each kind with a concurrency of its own, and all others. */
  get groups(): Group[] {
    const groups = this.#limited.map(([kind, { concurrency }]): Group => ({ kinds: [kind!], concurrency, hasMore: true }));
    const others = this.kinds?.filter((kind) => this.of(kind).concurrency === undefined) ?? null;
    return others?.length === 0 ? groups : [{ kinds: others, hasMore: true }, ...groups];
  }

  of(kind: string): Handling {
    return (this.#of.get(kind) ?? this.#of.get(null))!;
  }

  /** Runs the handler of a job: a batch handler with the job alone, unless it is in a batch. */
  run(job: Job<any>, batch?: Batch): unknown {
    const { handler, batch: options } = this.of(job.kind);
    if (!options) return handler(job, job.signal);
    if (batch) return batch.join(job);
    const alone = new Batch(options.handler);
    alone.close(1);
    return alone.join(job);
  }
}

/** Kinds that are fetched together. */
export interface Group {
  /** Null for all kinds. */
  kinds: string[] | null;
  concurrency?: number;
  /** The database may have more of their jobs than were fetched. */
  hasMore: boolean;
}

function toHandler(whose: string, handler: any, canBeInThread: boolean): Handler<any> {
  if (canBeInThread && (typeof handler?.thread === "string" || handler?.thread instanceof URL)) {
    check(isFound(handler), whose, handler.thread, "be in a file that exists");
    return inThread(handler);
  }
  check(typeof handler === "function", whose, handler, canBeInThread ? "be a function, or have a thread" : "be a function");
  return handler;
}

const shownKind = (kind: string | null): string => (kind === null ? "every other kind" : `kind ${inspect(kind)}`);

export function check(isRight: boolean, option: string, value: unknown, rule: string): void {
  if (!isRight) throw new RangeError(`${option} must ${rule}, not ${inspect(value)}`);
}

export function checkKnown(options: object, known: string[]): void {
  for (const option of Object.keys(options)) if (!known.includes(option)) throw new RangeError(`unknown option ${option}`);
}

/** Checks the name of a queue, kind or worker as the database does. */
export const checkName = (what: string, name: string): void =>
  check(/^[^\p{Cc}\p{Cs}]{1,127}$/u.test(asKept(name)), what, name, "have 1 to 127 characters and no control characters");

export const isCount = (value: unknown): boolean => Number.isInteger(value) && (value as number) > 0;

export const checkTimeout = (timeout?: number): void =>
  check(timeout === undefined || timeout === -1 || timeout > 0, "timeout", timeout, "be positive, or -1 for no limit");
