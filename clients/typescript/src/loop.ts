import type { Attempt } from "./attempt.js";
import type { Logger } from "./log.js";

const EVERY = 200; // milliseconds
const BLOCKED = 1000;
const MOST_SHOWN = 5;

/** Logs when the event loop was blocked, and attempts that ran since the last look. */
export class LoopWatch {
  #last = performance.now();
  #before: Attempt[] = [];
  #after: Attempt[] = []; // the first has most likely blocked the loop
  readonly #timer: NodeJS.Timeout;

  constructor(logger: Logger, running: () => Attempt[]) {
    this.#timer = setInterval(() => {
      const { late } = this;
      const shown = [...new Set([...this.#after, ...running(), ...this.#before])].slice(0, MOST_SHOWN);
      [this.#last, this.#before, this.#after] = [performance.now(), [], []];
      if (late < BLOCKED) return;
      const jobs = shown.map(({ job: { id, kind } }) => ({ job: id, kind }));
      logger.warn("event loop blocked", { seconds: Math.round((late + EVERY) / 100) / 10, ...(jobs.length === 1 ? jobs[0] : { jobs }) });
    }, EVERY).unref();
  }

  /** The milliseconds by which the next look is late. */
  get late(): number {
    return performance.now() - this.#last - EVERY;
  }

  /** The attempt has run just now. */
  passed(attempt: Attempt): void {
    const passed = this.late < BLOCKED ? this.#before : this.#after;
    if (passed.length < MOST_SHOWN) passed.push(attempt);
  }

  end(): void {
    clearInterval(this.#timer);
  }
}
