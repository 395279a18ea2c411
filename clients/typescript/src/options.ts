import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { completion } from "./attempt.js";
import { check, checkKnown, checkName, checkTimeout, isCount } from "./handlers.js";
import { asKept, defined } from "./kind.js";
import { LEVELS, textLogger, type Logger } from "./log.js";
import type { Middleware } from "./middleware.js";
import type { Hook } from "./reports.js";

/** Options of a worker. Times are in seconds. */
export interface WorkerOptions {
  /** Queues, or queues with the weights by which they share the places. Default: `["default"]`. */
  queues?: readonly string[] | Readonly<Record<string, number>>;
  /** The maximum number of handlers that run at once. Default: 10. */
  concurrency?: number;
  /** How long a handler may run, unless its kind has a timeout; -1 is no limit. Default: no limit. */
  timeout?: number;
  /** How long a job stays with a dead worker before it is rescued. Default: 30. */
  lease?: number;
  /** How long handlers may run after a stop. Default: 10. */
  grace?: number;
  /** The worker's name in `jobs.workers`. Default: `HOST:PID:RANDOM`. */
  name?: string;
  /** Shown in `jobs.workers`, beside the library's name and version. */
  info?: Record<string, unknown>;
  /** How many more jobs than it has free places a worker fetches. Default: 0. */
  prefetch?: number;
  /** Called after each failed attempt, with what the handler threw. */
  onError?: Hook;
  /** Called when a job is discarded, with the error of its last attempt. */
  onDiscarded?: Hook;
  /** Middleware around every handler, the first outermost. Default: none. */
  middleware?: readonly Middleware[];
  /** The logger. Default: lines of text by `console`. */
  logger?: Logger;
}

// Seconds: the longest duration in the database, 1,000 years.
const LONGEST = 1000 * 360 * 86_400;

/** The options of a worker with their defaults, checked. */
export function settled(options: WorkerOptions) {
  const name = `${hostname().slice(0, 60)}:${process.pid}:${randomBytes(4).toString("hex")}`;
  const defaults = {
    queues: ["default"], concurrency: 10, lease: 30, grace: 10, name, info: {}, prefetch: 0, middleware: [], logger: textLogger,
    timeout: undefined, onError: undefined, onDiscarded: undefined,
  };
  checkKnown(options, Object.keys(defaults));
  const all: Required<Omit<WorkerOptions, "timeout" | "onError" | "onDiscarded">> & WorkerOptions = { ...defaults, ...defined(options) };
  const { queues, concurrency, timeout, lease, grace, info, prefetch, middleware, logger, onError, onDiscarded } = all;
  const given: [string, number][] = Array.isArray(queues) ? queues.map((queue) => [queue, 1]) : Object.entries(queues);
  const weights = new Map(given.map(([queue, weight]): [string, number] => [asKept(queue), weight]));
  check(typeof queues === "object", "queues", queues, "be a list of names, or names with weights");
  check(weights.size > 0, "queues", queues, "name at least one queue");
  for (const queue of weights.keys()) checkName("a name in queues", queue);
  check(given.length === weights.size, "queues", queues, "name each queue once");
  check([...weights.values()].every((weight) => weight > 0 && weight < Infinity), "queues", queues, "have positive weights");
  check(isCount(concurrency), "concurrency", concurrency, "be an integer of at least 1");
  check(prefetch === 0 || isCount(prefetch), "prefetch", prefetch, "be an integer of at least 0");
  check(lease >= 1e-6 && lease <= LONGEST, "lease", lease, `be positive and at most ${LONGEST}`);
  check(grace >= 0, "grace", grace, "be at least 0");
  checkTimeout(timeout);
  checkName("name", all.name);
  check(isStorable(info), "info", info, "be JSON that the database can store");
  check(Array.isArray(middleware), "middleware", middleware, "be a list");
  check(LEVELS.every((level) => typeof logger?.[level] === "function"), "logger", logger, `have the methods ${LEVELS.join(", ")}`);
  for (const [hook, value] of Object.entries({ onError, onDiscarded })) {
    check(value === undefined || typeof value === "function", hook, value, "be a function");
  }
  return { ...all, weights };
}

function isStorable(info: unknown): boolean {
  const result = completion(info);
  // A NUL or a lone surrogate, and not a text of a backslash and "u0000".
  return result.do === "complete" && !/\\u(0000|d)/.test(result.output?.replaceAll("\\\\", "") ?? "");
}
