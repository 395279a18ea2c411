import { refusal, type Link, type Logger } from "./connection.js";
import { failureOf, type Result } from "./endings.js";
import { atMost, backOff, sleep } from "./timing.js";

interface Waiting {
  id: number;
  token: number;
  text: string;
  failures: number;
  isReplaced: boolean;
  done(): void;
}

export const FINISH = "select to_json(f)::text as row from jobs.finish_many($1::text::jsonb) as f";

const MOST_RESULTS = 1_000;
const MOST_CHARACTERS = 2 ** 24;

/** Sends results, together those that come while a call is under way. */
export class Finisher {
  #waiting: Waiting[] = [];
  #sending = false;
  #open = new Set<Promise<void>>();
  /** How many results could not be sent. */
  lost = 0;

  constructor(
    private readonly link: Link,
    private readonly closed: AbortSignal,
    private readonly logger: Logger,
  ) {}

  /** Whether so much waits that no more is to be begun. */
  get isFull(): boolean {
    return this.#waiting.length > MOST_RESULTS;
  }

  /** Returns when the server has answered, or never will. */
  send(id: number, token: number, result: Result): Promise<void> {
    const answered = new Promise<void>((done) => {
      this.#waiting.push({ id, token, text: textOf(id, token, result), failures: 0, isReplaced: false, done });
    });
    this.#open.add(answered);
    if (!this.#sending) void this.#sendAll();
    return answered.finally(() => this.#open.delete(answered));
  }

  /** Waits for so many seconds until all is sent, and counts what is not as lost. */
  async flush(seconds: number): Promise<void> {
    await atMost(seconds, Promise.all(this.#open));
    this.lost += this.#open.size;
  }

  async #sendAll(): Promise<void> {
    this.#sending = true;
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
        if (!done) this.logger.warn("a result was dropped: the job is not ours", { job: result.id, state, reason });
        result.done();
      }
    } catch (error) {
      if (this.closed.aborted) return;
      const [one] = results;
      if (results.length > 1) for (const result of results) await this.#finish([result]);
      else if (one) await this.#refused(one, error);
    }
  }

  async #refused(result: Waiting, error: any): Promise<void> {
    const { id, token, failures } = result;
    if (!/^(22|54)/.test(refusal(error) ?? "")) {
      this.logger.error("a result was refused, to be repeated", { job: id, error });
      void sleep(backOff(failures), this.closed).then(() => {
        this.#waiting.push({ ...result, failures: failures + 1 });
        if (!this.#sending) void this.#sendAll();
      });
    } else if (!result.isReplaced) {
      const text = textOf(id, token, failureOf("invalid_output", `the result was refused: ${error.message}`));
      await this.#finish([{ ...result, text, isReplaced: true }]);
    } else {
      this.logger.error("a result cannot be sent", { job: id, error });
      this.lost++;
      result.done();
    }
  }
}

/** The element of what `jobs.finish_many` takes. */
export function textOf(id: number, token: number, result: Result): string {
  if (result.do !== "complete" || result.output === undefined) return JSON.stringify({ id, token, ...result });
  return `{"id":${id},"token":${token},"do":"complete","output":${result.output}}`;
}
