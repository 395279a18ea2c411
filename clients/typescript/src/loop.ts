import type { Attempt } from "./attempt.js";
import type { Logger } from "./log.js";

const EVERY = 0.2; // seconds
const BLOCKED = 1;
export const MOST_SHOWN = 5;

/** Logs when the event loop was blocked, with the attempts that ran since the last look. Returns how it ends. */
export function watchLoop(logger: Logger, ran: () => Attempt[]): () => void {
  let last = performance.now();
  const timer = setInterval(() => {
    const seconds = (performance.now() - last) / 1000;
    last = performance.now();
    const attempts = ran();
    if (seconds - EVERY < BLOCKED) return;
    const shown = attempts.slice(0, MOST_SHOWN).map(({ job: { id, kind } }) => ({ job: id, kind }));
    logger.warn("event loop blocked", { seconds: Math.round(seconds * 10) / 10, ...(shown.length === 1 ? shown[0] : { jobs: shown }) });
  }, EVERY * 1000).unref();
  return () => clearInterval(timer);
}
