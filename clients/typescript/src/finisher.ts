import { setImmediate } from "node:timers/promises";
import type { Attempt } from "./attempt.js";
import type { Link } from "./connection.js";
import { invalidOutput, isOfValue, textOf, type Result } from "./endings.js";
import type { Logger } from "./log.js";
import type { Reports } from "./reports.js";
import { atMost, pause } from "./timing.js";

interface Waiting {
  attempt: Attempt;
  result: Result;
  text: string;
  failures: number;
  isReplaced: boolean;
}

/** Returns the outcome of results other than completed jobs, which are nearly all. */
export const FINISH = `select to_json(f)::text as row from jobs.finish_many($1::text::jsonb) as f
  where not f.done or f.state is distinct from 'completed'`;
const COMPLETED = { state: "completed", done: true, reason: null };

const MOST_RESULTS = 1_000;
const MOST_CHARACTERS = 2 ** 24;

/** Sends results. Those that arrive during a call are sent together. */
export class Finisher {
  #waiting: Waiting[] = [];
  #open = 0;
  #refused = new Set<Waiting>();
  #sending = false;
  #onEmpty = () => {};

  constructor(
    private readonly link: Link,
    private readonly logger: Logger,
    private readonly reports: Reports,
    private readonly onAnswer: (attempt: Attempt) => void,
  ) {}

  /** How many results cannot be sent for now, and so hold the places of their jobs. */
  get kept(): number {
    return this.link.isFailing || this.#open > MOST_RESULTS ? this.#open : this.#refused.size;
  }

  /** Sends a result. */
  send(attempt: Attempt, result: Result): void {
    this.#open++;
    this.#push({ attempt, result, text: this.#text(attempt, result), failures: 0, isReplaced: false });
  }

  /**
   * Waits up to this many seconds for the work under way and for all results to be sent. Returns
   * how many results are lost.
   */
  async flush(seconds: number, work: Promise<void>): Promise<number> {
    const empty = () => new Promise<void>((resolve) => (this.#open > 0 ? (this.#onEmpty = resolve) : resolve()));
    await atMost(seconds, work.then(empty));
    return this.#open;
  }

  #text(attempt: Attempt, result: Result): string {
    if (result.do === "fail") this.reports.failed(attempt, result);
    return elementOf(attempt.job.id, attempt.token, result);
  }

  #answered(one: Waiting): void {
    this.#open--;
    this.#refused.delete(one);
    this.onAnswer(one.attempt);
    if (this.#open === 0) this.#onEmpty();
  }

  #push(one: Waiting): void {
    this.#waiting.push(one);
    if (!this.#sending) void this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    this.#sending = true;
    await setImmediate(); // results of handlers that end together are sent together
    while (this.#waiting.length > 0 && !this.link.closed.aborted) {
      let [count, characters] = [0, 0];
      for (const { text } of this.#waiting) {
        characters += text.length;
        if (count === MOST_RESULTS || (count > 0 && characters > MOST_CHARACTERS)) break;
        count++;
      }
      await this.#finish(this.#waiting.splice(0, count));
    }
    this.#sending = false;
  }

  async #finish(results: Waiting[]): Promise<void> {
    try {
      const rows = await this.link.rows(FINISH, [`[${results.map(({ text }) => text).join(",")}]`]);
      const answers = new Map(rows.map((row) => [row.ord - 1, row]));
      for (const [at, one] of results.entries()) {
        const { state, done, reason } = answers.get(at) ?? COMPLETED;
        if (!done && reason !== "locked") this.logger.warn("job lost, result discarded", { ...one.attempt.fields, reason });
        if (done && state === "discarded" && one.result.do === "fail") this.reports.discarded(one.attempt, one.result);
        if (reason === "locked") void this.#repeat(one, reason); // by another transaction
        else this.#answered(one);
      }
    } catch (error) {
      if (this.link.closed.aborted) return;
      const [one] = results as [Waiting];
      if (results.length > 1) for (const result of results) await this.#finish([result]);
      else if (isOfValue(error) && !one.isReplaced) {
        one.result = invalidOutput(error);
        one.text = this.#text(one.attempt, one.result);
        one.isReplaced = true;
        await this.#finish([one]);
      } else void this.#repeat(one, error);
    }
  }

  async #repeat(one: Waiting, error: unknown): Promise<void> {
    this.logger.warn("result refused, retrying", { ...one.attempt.fields, error: textOf(error) });
    this.#refused.add(one);
    one.failures = await pause(++one.failures, this.link.hurried, this.link.closed);
    this.#push(one);
  }
}

/** The element of the argument of `jobs.finish_many`. */
export function elementOf(id: number, token: number, result: Result): string {
  if (result.do !== "complete" || result.output === undefined) return JSON.stringify({ id, token, ...result });
  return `{"id":${id},"token":${token},"do":"complete","output":${result.output}}`;
}
