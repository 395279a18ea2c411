import { createHash } from "node:crypto";
import type { Value } from "./database.js";
import { textOf } from "./endings.js";
import { ABOUT, firstHint, hinted } from "./hints.js";
import { fromJson } from "./json.js";
import type { Logger } from "./log.js";
import { atMost, pause } from "./timing.js";

/** A database session in autocommit, which an adapter makes from a driver. */
export interface Connection {
  /** Runs one statement by the extended protocol. A named one is prepared once. */
  query(text: string, values: Value[], name?: string): Promise<{ row: string }[]>;
  /** Asks the server to cancel the statement under way. */
  cancel(): Promise<unknown>;
  /** Closes the connection, whatever is under way. */
  close(): Promise<unknown>;
  /** The server's, for the log. */
  readonly host?: string;
}

/** Connects. The name is the worker's, for `application_name`. */
export type Connect = (name: string) => Promise<Connection>;

// Unrelated to the statement: shutdown, broken connections, a standby, conflicts.
const REPEATED = /^(57P0[1-5]|08...|25006|40P01|40001|55P03|57014)$/;
export const WRONG_CELL = "JB001";
const KEEPS_CONNECTION = /^(40P01|40001|55P03|57014)$/;

// A pooler sent the statement to another session than the one that prepared it. It has not run.
const NOT_PREPARED = /^(26000|42P05)$/;

// Neither driver is installed, or the driver or the server refuses the URL or a parameter of it:
// connecting again does not help.
const NEVER_CONNECTS = /MODULE_NOT_FOUND|ERR_INVALID_URL|ERR_SOCKET_BAD_PORT|URIError|^(22023|42601|42704|55P02)$/;

// Seconds. The network itself can take much longer to detect a dead peer.
export const PATIENCE = 120;

/** The SQLSTATE with which the server has permanently refused a statement, or undefined. */
export function refusal(error: any): string | undefined {
  // Network errors also have codes, such as EPIPE, but no severity. Its text depends on the
  // server's language.
  const { severity, code } = error ?? {};
  return typeof severity === "string" && /^[0-9A-Z]{5}$/.test(code) && !REPEATED.test(code) ? code : undefined;
}

/** An error that ends the worker: its connection has never worked, and would not if it were tried again. */
export class Unusable {
  constructor(readonly error: unknown) {}
}

/** The text of an error in one line. */
export const lineOf = (error: unknown): string => textOf(error).replace(/\s*\n\s*/g, " ");

/** A connection of the worker: runs one statement at a time and reconnects when it breaks. */
export class Link {
  #connection?: Connection;
  #last: Promise<unknown> = Promise.resolve();
  #isPreparing = true;
  /** How many calls in a row have failed. */
  #failures = 0;
  /** Whether the latest call failed and is being repeated. */
  isFailing = false;
  /** Whether the latest call is a wait. */
  isWaiting = false;
  /** Whether a call of the extension has succeeded: until then some errors end the worker. */
  #hasWorked = false;
  /** The role that connects, once it is known. */
  role?: string;
  /** Whether it is one of several cells: a statement that one refuses is repeated. */
  isToCell = false;

  constructor(
    private readonly connect: () => Promise<Connection>,
    readonly hurried: AbortSignal,
    readonly closed: AbortSignal,
    private readonly logger: Logger,
    private readonly isVital = true,
  ) {}

  get host(): string | undefined {
    return this.#connection?.host;
  }

  /**
   * Returns the column `row` of the statement's result. Repeats it until the server has answered, or
   * returns no rows after a pause if it is not to be repeated.
   * Rejects if the server permanently refuses the statement, or once the link is closed. A connection
   * without an answer for `patience` seconds counts as broken. A wait is not repeated, since the
   * caller looks for work after it anyway.
   */
  rows(text: string, values: Value[], patience = PATIENCE, isWait = false, isRepeated = !isWait): Promise<any[]> {
    this.isWaiting = isWait;
    const answer = this.#last.then(() => this.#rows(text, values, patience, isRepeated));
    this.#last = answer.catch(() => {});
    return answer;
  }

  async #rows(text: string, values: Value[], patience: number, isRepeated: boolean): Promise<any[]> {
    for (;;) {
      this.closed.throwIfAborted();
      try {
        this.#connection ??= await this.connect();
        this.closed.throwIfAborted();
        const name = this.#isPreparing ? nameOf(text) : undefined;
        const found = await atMost(patience, this.#connection.query(text, values, name));
        if (!found) throw new Error(`no answer from the database within ${patience} s`);
        this.isFailing = false;
        this.#failures = 0;
        this.#hasWorked ||= text !== ABOUT; // for which no rights are needed
        return found.map(({ row }) => fromJson(row));
      } catch (error) {
        const { code, name } = error as { code?: string; name?: string };
        if (this.#isPreparing && NOT_PREPARED.test(code ?? "")) {
          this.#isPreparing = false;
          continue;
        }
        const hint = this.isVital && !this.#hasWorked ? firstHint(error, this.role) : undefined;
        if (hint !== undefined) throw new Unusable(hinted(error, hint));
        const isWrongCell = this.isToCell && code === WRONG_CELL;
        const isHopeless = this.isVital && !this.#hasWorked && NEVER_CONNECTS.test(code ?? name ?? "");
        if (this.#connection ? refusal(error) && !isWrongCell : isHopeless) throw error;
        this.isFailing = true;
        if (!KEEPS_CONNECTION.test(code ?? "") && !isWrongCell) await this.close();
        this.closed.throwIfAborted();
        this.logger.warn("call failed, retrying", { error: lineOf(error) });
        this.#failures = await pause(this.#failures + 1, this.hurried, this.closed);
        if (!isRepeated) return [];
      }
    }
  }

  /** Ends a wait and the loop around it: by a cancel request, else by closing the connection. */
  async interrupt(loop: Promise<unknown>): Promise<void> {
    let over = false;
    const ended = loop.finally(() => (over = true));
    // A request that arrives before its statement has no effect.
    for (let tries = 0; tries < 5 && !over; tries++) {
      await atMost(0.2, Promise.all([ended, this.#connection?.cancel().catch(() => {})]));
    }
    if (!over) await this.close();
    await atMost(1, ended);
  }

  /** The last call, without a second try. */
  async last(text: string, values: Value[]): Promise<void> {
    await atMost(1, Promise.resolve(this.#connection?.query(text, values)).catch(() => {}));
    await this.close();
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    await atMost(1, Promise.resolve(connection?.close()).catch(() => {}));
  }
}

// Programs behind the same pooler share a name only for the same text.
const names = new Map<string, string>();
const nameOf = (text: string): string =>
  names.get(text) ?? names.set(text, `jobs_${createHash("sha256").update(text).digest("hex").slice(0, 40)}`).get(text)!;
