import { setImmediate } from "node:timers/promises";
import { refusal, type Link, type Logger } from "./connection.js";
import { invalidOutput, type Result } from "./endings.js";
import { atMost, backOff, sleep } from "./timing.js";

interface Waiting {
  id: number;
  token: number;
  text: string;
  failures: number;
  isReplaced: boolean;
  onAnswer(): void;
}

export const FINISH = "select to_json(f)::text as row from jobs.finish_many($1::text::jsonb) as f";

const MOST_RESULTS = 1_000;
const MOST_CHARACTERS = 2 ** 24;

/** Sends results, together those that come while a call is under way. */
export class Finisher {
  #waiting: Waiting[] = [];
  #open = new Set<Waiting>();
  #sending = false;
  #onEmpty = () => {};
  /** How many results could not be sent. */
  lost = 0;

  constructor(
    private readonly link: Link,
    private readonly closed: AbortSignal,
    private readonly logger: Logger,
  ) {}

  /** How many results keep the places of their jobs: those that cannot be sent for now. */
  get kept(): number {
    if (this.link.isFailing || this.#open.size > MOST_RESULTS) return this.#open.size;
    return [...this.#open].filter(({ failures }) => failures > 0).length;
  }

  /** Calls back when the server has answered, or never will. */
  send(id: number, token: number, result: Result, onAnswer: () => void): void {
    const one = { id, token, text: textOf(id, token, result), failures: 0, isReplaced: false, onAnswer };
    this.#open.add(one);
    this.#push(one);
  }

  /** Waits for so many seconds until all is sent, and counts what is not as lost. */
  async flush(seconds: number): Promise<void> {
    const empty = new Promise<void>((resolve) => (this.#onEmpty = resolve));
    if (this.#open.size > 0) await atMost(seconds, empty);
    this.lost += this.#open.size;
  }

  #answered(one: Waiting): void {
    this.#open.delete(one);
    one.onAnswer();
    if (this.#open.size === 0) this.#onEmpty();
  }

  #push(one: Waiting): void {
    this.#waiting.push(one);
    if (!this.#sending) void this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    this.#sending = true;
    await setImmediate(); // those of handlers that end together go together
    while (this.#waiting.length > 0 && !this.closed.aborted) {
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
      for (const { ord, done, state, reason } of rows) {
        const result = results[ord - 1]!;
        if (!done) this.logger.warn("a result was not stored", { job: result.id, state, reason });
        if (reason === "locked") this.#repeat(result); // by another transaction
        else this.#answered(result);
      }
    } catch (error) {
      if (this.closed.aborted) return;
      if (results.length > 1) for (const result of results) await this.#finish([result]);
      else await this.#refused(results[0]!, error);
    }
  }

  #repeat = (one: Waiting) => void sleep(backOff(one.failures++), this.closed).then(() => this.#push(one));

  async #refused(one: Waiting, error: any): Promise<void> {
    if (!/^(22|54)/.test(refusal(error) ?? "")) {
      this.logger.error("a result was refused, to be repeated", { job: one.id, error });
      this.#repeat(one);
    } else if (!one.isReplaced) {
      one.text = textOf(one.id, one.token, invalidOutput(error));
      one.isReplaced = true;
      await this.#finish([one]);
    } else {
      this.logger.error("a result cannot be sent", { job: one.id, error });
      this.lost++;
      this.#answered(one);
    }
  }
}

/** The element of what `jobs.finish_many` takes. */
export function textOf(id: number, token: number, result: Result): string {
  if (result.do !== "complete" || result.output === undefined) return JSON.stringify({ id, token, ...result });
  return `{"id":${id},"token":${token},"do":"complete","output":${result.output}}`;
}
