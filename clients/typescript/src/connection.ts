import { rows, type Value } from "./database.js";
import { atMost, backOff, sleep } from "./timing.js";

/** A session of the database, in autocommit. Adapters make it from a driver. */
export interface Connection {
  /** Runs one statement, by the extended protocol if it has values. */
  query(text: string, values: Value[]): Promise<{ row: string }[]>;
  /** Asks the server to cancel the statement under way. */
  cancel(): Promise<unknown>;
  /** Closes the connection, whatever is under way. */
  close(): Promise<unknown>;
}

/** Connects. The name is that of the worker, for `application_name`. */
export type Connect = (name: string) => Promise<Connection>;

/** Where a worker logs to; `console` is one. */
export interface Logger {
  info(message: string, fields?: object): void;
  warn(message: string, fields?: object): void;
  error(message: string, fields?: object): void;
}

// What has nothing to do with the statement: shutdown, broken connections, a standby, conflicts.
const REPEATED = /^(57P0[1-5]|08...|25006|40P01|40001|55P03|57014)$/;
const KEEPS_CONNECTION = /^(40P01|40001|55P03|57014)$/;

// Seconds. The network of itself can take much longer to find that nobody is there.
const PATIENCE = 120;

/** The SQLSTATE with which the server has refused a statement for good; else undefined. */
export function refusal(error: any): string | undefined {
  // Errors of the network have codes, too, such as EPIPE, but no severity.
  const { severity, code } = error ?? {};
  return severity === "ERROR" && typeof code === "string" && !REPEATED.test(code) ? code : undefined;
}

/** A connection of the worker: runs one statement at a time, and connects again when it breaks. */
export class Link {
  #connection?: Connection;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly connect: () => Promise<Connection>,
    private readonly closed: AbortSignal,
    private readonly logger: Logger,
  ) {}

  /**
   * The column `row` of what a statement returns. It is repeated until the server has answered.
   * Rejects if the server refuses the statement for good, or once the link is closed. Without an
   * answer for `patience` seconds the connection counts as broken.
   */
  rows(text: string, values: Value[], patience = PATIENCE): Promise<any[]> {
    return this.#next(() => this.#rows(text, values, patience));
  }

  /** Runs a call that waits. It is not repeated: who waits has to look, whatever ended it. */
  wait(text: string, values: Value[], patience: number): Promise<any[]> {
    return this.#next(() => this.#rows(text, values, patience, true));
  }

  #next(run: () => Promise<any[]>): Promise<any[]> {
    const answer = this.#last.then(run);
    this.#last = answer.catch(() => {});
    return answer;
  }

  async #rows(text: string, values: Value[], patience: number, isWait = false): Promise<any[]> {
    for (let failures = 0; ; failures++) {
      this.closed.throwIfAborted();
      try {
        this.#connection ??= await this.connect();
        this.closed.throwIfAborted();
        return await answered(rows(this.#connection, text, values), patience);
      } catch (error) {
        if (this.#connection && refusal(error)) throw error;
        if (!KEEPS_CONNECTION.test((error as any)?.code)) await this.close();
        this.closed.throwIfAborted();
        this.logger.warn("a connection to the database failed, to be repeated", { error });
        await sleep(backOff(failures), this.closed);
        if (isWait) return [];
      }
    }
  }

  /** Ends a wait, and with it the loop that waits: by a cancel request, else by closing. */
  async interrupt(loop: Promise<unknown>): Promise<void> {
    let over = false;
    const ended = loop.finally(() => (over = true));
    // A request that comes before its statement is lost.
    for (let tries = 0; tries < 5 && !over; tries++) {
      await atMost(0.2, Promise.all([ended, this.#connection?.cancel().catch(() => {})]));
    }
    if (!over) await this.close();
    await atMost(1, ended);
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    await atMost(1, Promise.resolve(connection?.close()).catch(() => {}));
  }
}

function answered<T>(answer: Promise<T>, patience: number): Promise<T> {
  if (patience === Infinity) return answer;
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(`no answer within ${patience} s`));
    const timer = setTimeout(late, patience * 1000);
    answer.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
