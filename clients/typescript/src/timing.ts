import { once } from "node:events";
import { setTimeout as timer } from "node:timers/promises";

/** Sleeps for this many seconds, or until the signal is aborted. */
export const sleep = (seconds: number, signal?: AbortSignal): Promise<void> =>
  timer(seconds * 1000, undefined, { signal }).catch(() => {});

/** Returns when the signal is aborted. */
export async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort");
}

/** Returns the result of the work, or undefined after this many seconds. */
export function atMost<T>(seconds: number, work: Promise<T>): Promise<T | void> {
  let late: NodeJS.Timeout | undefined;
  const over = new Promise<void>((resolve) => (late = setTimeout(resolve, Math.min(seconds, MOST_SECONDS) * 1000)));
  return Promise.race([work, over]).finally(() => clearTimeout(late));
}

/** The longest time of a timer in Node: 24 days. */
export const MOST_SECONDS = (2 ** 31 - 1) / 1000;

/**
 * Pauses after this many failures: for 0.1 s, doubled up to 10 s, each ± 25 %. `hurried` ends a
 * pause and resets the count; after that only `closed` does. Returns the failures that count.
 */
export async function pause(failures: number, hurried: AbortSignal, closed: AbortSignal): Promise<number> {
  const signal = hurried.aborted ? closed : hurried;
  await sleep(Math.min(10, 0.05 * 2 ** Math.min(failures, 10)) * (0.75 + Math.random() / 2), signal);
  return signal.aborted ? 0 : failures;
}
