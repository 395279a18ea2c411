import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { setImmediate } from "node:timers/promises";
import { inspect } from "node:util";
import { Attempt, completion, type Handler } from "./attempt.js";
import { Link, type Connect } from "./connection.js";
import type { Result } from "./endings.js";
import { Finisher } from "./finisher.js";
import { jobRows, type Job, type JobRow } from "./job.js";
import { toArray, toJson } from "./json.js";
import { textLogger, type Logger } from "./log.js";
import type { Middleware } from "./middleware.js";
import { connectPg } from "./pg.js";
import { connectPostgres } from "./postgres.js";
import { aborted, atMost, sleep } from "./timing.js";
import { VERSION } from "./version.js";

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
  /** How long handlers may go on after a stop. Default: 10. */
  grace?: number;
  /** The worker's name in `jobs.workers`. Default: `HOST:PID:RANDOM`. */
  name?: string;
  /** Shown in `jobs.workers`, beside the library's name and version. */
  info?: Record<string, unknown>;
  /** Middleware around every handler, the first outermost. Default: none. */
  middleware?: readonly Middleware[];
  /** The logger. Default: lines of text by `console`. */
  logger?: Logger;
}

/** Options of a kind. */
export interface KindOptions {
  /** How long its handler may run, in seconds; -1 is no limit. Default: the worker's timeout. */
  timeout?: number;
}

const FETCH = jobRows(`jobs.fetch_any(queues => $1::text::text[], max_jobs => $2::text::int, worker => $3::text,
  lease => $4::text::interval, kinds => $5::text::text[])`);
const WAIT = "call jobs.wait_any($1::text::text[], $2::text::interval)";
const WAIT_FOR_REQUESTS = "call jobs.wait_any('{}', $1::text::interval, $2::text)";
const BEAT = `select to_json(jobs.worker_beat($1::text, $2::text::text[], $3::text::int,
  $4::text::jsonb))::text as row`;
// A call takes at most 10,000 jobs.
const HEARTBEAT = `select to_json(cancel_requested)::text as row
  from (select $1::text::bigint[] as ids, $2::text::bigint[] as tokens) held,
    generate_series(1, cardinality(ids), 10000) n,
    jobs.heartbeat_many(ids[n:n + 9999], tokens[n:n + 9999])`;
const PROGRESS = `select to_json(cancel_requested)::text as row
  from jobs.heartbeat($1::text::bigint, $2::text::bigint, progress => $3::text::jsonb)`;

const IDLE_WAIT = 30;
const BEATING = 10; // without an answer, so that another connection can renew the leases in time
const SENDING = 10; // seconds after the last handler ended

// The workers of this process within `run()`, and the handlers that they left behind.
let [mains, left] = [0, 0];

// A name as the database stores it.
const asKept = (name: string) => String(name).normalize("NFC");

/** Fetches jobs and runs their handlers, many at once. */
export class Worker {
  /** The worker's name in `jobs.workers`. */
  readonly name: string;
  readonly #options;
  readonly #weights: Map<string, number>;
  readonly #handlers = new Map<string, KindOptions & { handler: Handler<any> }>();
  #otherwise?: KindOptions & { handler: Handler<any> };

  // Each holds a place until its handler has ended.
  readonly #running = new Map<Attempt, Promise<void>>();
  readonly #held = new Set<Attempt>(); // until the server has their results
  #command = "run";
  #wake = () => {};

  readonly #stopping = new AbortController(); // no more fetches
  readonly #cancelling = new AbortController(); // handlers are cancelled
  readonly #ending = new AbortController(); // no more results are sent
  readonly #fetch: Link;
  readonly #finish: Link;
  readonly #control: Link;
  readonly #finisher: Finisher;
  #started?: Promise<void>;
  #ended?: Promise<void>;

  /** The database is a URL, or `{ connect }` with a function such as `connectPg({..})`. */
  constructor(database: string | { connect: Connect }, options: WorkerOptions = {}) {
    const name = `${hostname().slice(0, 60)}:${process.pid}:${randomBytes(4).toString("hex")}`;
    const defaults = { queues: ["default"], concurrency: 10, lease: 30, grace: 10, name, info: {}, middleware: [] };
    const known = { ...defaults, timeout: undefined, logger: textLogger };
    for (const option of Object.keys(options)) if (!(option in known)) throw new RangeError(`unknown option ${option}`);
    this.#options = { ...known, ...defined(options) };
    this.name = this.#options.name;
    const { queues, concurrency, timeout, lease, grace, info, logger } = this.#options;
    const given: [string, number][] = Array.isArray(queues) ? queues.map((queue) => [queue, 1]) : Object.entries(queues);
    const weights = given.map(([queue, weight]): [string, number] => [asKept(queue), weight]);
    this.#weights = new Map(weights);
    check(typeof queues === "object", "queues", queues, "be a list of names, or names with weights");
    check(weights.length > 0, "queues", queues, "name at least one queue");
    check(weights.length === this.#weights.size, "queues", queues, "name each queue once");
    check(weights.every(([, weight]) => weight > 0 && weight < Infinity), "queues", queues, "have positive weights");
    check(Number.isInteger(concurrency) && concurrency > 0, "concurrency", concurrency, "be an integer of at least 1");
    check(lease > 0, "lease", lease, "be positive");
    check(grace >= 0, "grace", grace, "be at least 0");
    checkTimeout(timeout);
    check(completion(info).do === "complete", "info", info, "be JSON that the database can store");

    const connect = typeof database === "string" ? connectUrl(database) : database?.connect;
    // The value is not shown: it can have a password.
    check(typeof connect === "function", "database", database && typeof database, "be a URL, or have a function connect");
    const connected = () => connect(this.name);
    this.#fetch = new Link(connected, this.#stopping.signal, this.#stopping.signal, logger);
    this.#finish = new Link(connected, this.#cancelling.signal, this.#ending.signal, logger);
    this.#control = new Link(connected, this.#cancelling.signal, this.#ending.signal, logger);
    this.#finisher = new Finisher(this.#finish, logger);
  }

  /** Sets the handler of a kind. A worker fetches only kinds that have a handler. */
  kind<Args = unknown>(kind: string, handler: Handler<Args>, options: KindOptions = {}): this {
    kind = asKept(kind);
    if (this.#handlers.has(kind)) throw new RangeError(`kind ${inspect(kind)} already has a handler`);
    this.#handlers.set(kind, checked(`the handler of kind ${inspect(kind)}`, handler, options));
    return this;
  }

  /** Sets the handler of every other kind. */
  otherwise(handler: Handler, options: KindOptions = {}): this {
    if (this.#otherwise) throw new RangeError("every other kind already has a handler");
    this.#otherwise = checked("the handler of every other kind", handler, options);
    return this;
  }

  /** The queues that the worker fetches from. */
  get queues(): string[] {
    return [...this.#weights.keys()];
  }

  /** The kinds that the worker fetches, or null for all. */
  get kinds(): string[] | null {
    return this.#otherwise ? null : [...this.#handlers.keys()];
  }

  /** Runs the handler of a job within the middleware. */
  async handle(job: Job): Promise<unknown> {
    const { handler } = this.#handlers.get(job.kind) ?? this.#otherwise!;
    const handle = this.#options.middleware.reduceRight(
      (next, layer) => (layer.work ? async () => layer.work!(job, next) : next),
      async () => handler(job, job.signal),
    );
    return handle();
  }

  /**
   * Runs until SIGTERM or SIGINT, or until an operator stops the worker. A second signal acts as
   * `stopAndCancel()`. Rejects if a result could not be sent. The process belongs to the worker:
   * errors that handlers throw in the background are logged and do not end it. If a handler did not
   * stop, the process exits once no other worker is within `run()`.
   */
  async run(): Promise<void> {
    let signals = 0;
    const onSignal = () => void (signals++ === 0 ? this.stop() : this.stopAndCancel()).catch(() => {});
    // A failed write may be the log itself, whose reader is gone.
    const onStray = (error: any) => error?.syscall !== "write" && this.#options.logger.error("error outside of handlers", { error });
    const listeners = { SIGTERM: onSignal, SIGINT: onSignal, unhandledRejection: onStray, uncaughtException: onStray };
    for (const [event, listener] of Object.entries(listeners)) process.on(event, listener);
    mains++;
    const ended = this.start().then(() => this.#ended);
    const code = await ended.then(() => 0, () => 1);
    for (const [event, listener] of Object.entries(listeners)) process.off(event, listener);
    left += this.#running.size;
    // Their timers and sockets would keep the process alive.
    if (--mains === 0 && left > 0) process.exit(code);
    return ended;
  }

  /** Starts the worker, and returns once the server knows it. Installs no signal handlers. */
  start(): Promise<void> {
    return (this.#started ??= this.#start());
  }

  /**
   * Stops fetching, gives handlers the grace period, then cancels and releases the rest. Returns
   * when all results are sent. Rejects if a result could not be sent.
   */
  async stop(): Promise<void> {
    this.#stop();
    await atMost(this.#options.grace, this.#started ? this.ended() : Promise.resolve());
    await this.stopAndCancel();
  }

  /** Stops without a grace period. */
  async stopAndCancel(): Promise<void> {
    this.#stop();
    this.#cancelling.abort();
    await this.ended();
  }

  /** Returns when the worker has stopped, also by an operator's command. */
  async ended(): Promise<void> {
    await this.#started;
    await this.#ended;
  }

  #stop(): void {
    this.#stopping.abort();
    this.#wake();
  }

  async #start(): Promise<void> {
    if (this.kinds?.length === 0) throw new Error("the worker has no handlers");
    this.#options.logger.info("worker started", { worker: this.name });
    await Promise.race([this.#beat(), aborted(this.#stopping.signal)]).catch(async (error) => {
      this.#ending.abort();
      await this.#control.close();
      throw error;
    });
    this.#ended = this.#work();
    this.#ended.catch(() => {}); // for those who wait for it
  }

  async #work(): Promise<void> {
    const { logger } = this.#options;
    const cancelled = aborted(this.#cancelling.signal);
    const controlling = this.#controlling();
    const fetching = this.#fetching();
    await aborted(this.#stopping.signal);
    // A wait is ended. A fetch under way is not: its jobs are ours and are released.
    const fetched = this.#fetch.isWaiting ? this.#fetch.interrupt(fetching) : fetching;
    const emptied = Promise.all([fetched, ...this.#running.values()]);
    await Promise.race([emptied, cancelled]);
    for (const attempt of this.#running.keys()) attempt.abort("stopping");
    await atMost(1, emptied);
    for (const attempt of this.#running.keys()) {
      logger.warn("handler did not stop", attempt.fields);
      // A job that is completed in a transaction is locked by it.
      if (!attempt.job.isCompleted) this.#settle(attempt, { do: "release" });
    }
    this.#cancelling.abort();
    const lost = await this.#finisher.flush(SENDING, fetched);
    this.#ending.abort();
    await this.#control.interrupt(controlling);
    await Promise.all([this.#fetch.close(), this.#finish.close(), this.#control.close()]);
    if (lost > 0) logger.error("results could not be sent", { worker: this.name, results: lost });
    logger.info("worker stopped", { worker: this.name });
    if (lost > 0) throw new Error(`results could not be sent: ${lost}`);
  }

  // --- Fetching ----------------------------------------------------------------------------------

  async #fetching(): Promise<void> {
    const stopping = this.#stopping.signal;
    const { concurrency, lease, logger } = this.#options;
    const kinds = this.kinds && toArray(this.kinds);
    while (!stopping.aborted) {
      const free = concurrency - this.#running.size - this.#finisher.kept;
      if (free <= 0 || this.#command !== "run") {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        await setImmediate(); // handlers that end together make room for one fetch
        continue;
      }
      const [queues, most] = this.#next(free);
      try {
        const values = [toArray(queues), String(most), this.name, `${lease} s`, kinds];
        const jobs: JobRow[] = await this.#fetch.rows(FETCH, values);
        for (const job of jobs) this.#begin(job);
        if (jobs.length === most) continue;
        await this.#fetch.rows(WAIT, [toArray(queues), `${IDLE_WAIT} s`], 2 * IDLE_WAIT, true);
      } catch (error) {
        if (stopping.aborted) return;
        logger.error("fetch refused, retrying", { error });
        await sleep(1, stopping);
      }
    }
  }

  // The queues, the one furthest below its share first, and how many jobs to ask for.
  #next(free: number): [queues: string[], most: number] {
    const running = new Map<string, number>();
    for (const { job } of this.#running.keys()) running.set(job.queue, (running.get(job.queue) ?? 0) + 1);
    const load = (queue: string) => (running.get(queue) ?? 0) / this.#weights.get(queue)!;
    const queues = [...this.#weights.keys()].sort((a, b) => load(a) - load(b));
    const [first] = queues as [string];
    const total = [...this.#weights.values()].reduce((sum, weight) => sum + weight);
    const share = (this.#options.concurrency * this.#weights.get(first)!) / total;
    const lacking = Math.ceil(share - (running.get(first) ?? 0));
    return [queues, Math.min(free, Math.max(lacking, 1), 10_000)];
  }

  // --- Handling ----------------------------------------------------------------------------------

  #begin(row: JobRow): void {
    const attempt: Attempt = new Attempt(row, (value) => this.#progress(attempt, value));
    this.#held.add(attempt);
    if (this.#stopping.signal.aborted) return this.#settle(attempt, { do: "release" });
    const { timeout } = this.#handlers.get(row.kind) ?? this.#otherwise!;
    attempt.timeOutIn(limit(row, timeout ?? this.#options.timeout), (result) => this.#settle(attempt, result));
    this.#running.set(attempt, this.#run(attempt));
  }

  async #run(attempt: Attempt): Promise<void> {
    const result = await attempt.run(() => this.handle(attempt.job));
    this.#running.delete(attempt);
    this.#settle(attempt, result);
    this.#wake();
  }

  #settle(attempt: Attempt, result: Result | null): void {
    if (attempt.isSettled) return;
    attempt.isSettled = true;
    const forget = () => {
      this.#held.delete(attempt);
      this.#wake(); // if results held all places
    };
    if (result) this.#finisher.send(attempt, result, forget);
    else forget();
  }

  #lose(attempt: Attempt): void {
    // A job that completed while the answer was on its way looks lost, and is not.
    if (attempt.isSettled || attempt.job.isCompleted) return;
    this.#options.logger.warn("job lost", attempt.fields);
    this.#settle(attempt, null);
    attempt.abort("lost");
  }

  async #progress(attempt: Attempt, progress: string): Promise<void> {
    try {
      const values = [String(attempt.job.id), String(attempt.token), progress];
      const [isCancelled] = await this.#finish.rows(PROGRESS, values);
      if (isCancelled && !attempt.job.isCompleted) attempt.abort("cancelled");
    } catch (error) {
      if (["55000", "P0002"].includes((error as any).code)) this.#lose(attempt);
      throw error;
    }
  }

  // --- Control -----------------------------------------------------------------------------------

  async #controlling(): Promise<void> {
    const ending = this.#ending.signal;
    const pace = Math.min(this.#options.lease / 3, 10);
    const refused = (call: string) => async (error: unknown) => {
      if (!ending.aborted) this.#options.logger.error(`${call} refused, retrying`, { error });
      await sleep(Math.min(pace, 1), ending);
    };
    while (!ending.aborted) {
      const wait = this.#control.rows(WAIT_FOR_REQUESTS, [`${pace} s`, this.name], pace + BEATING / 2, true);
      await wait.catch(refused("wait"));
      await this.#beat().catch(refused("heartbeat"));
    }
  }

  async #beat(): Promise<void> {
    const { concurrency, info, logger } = this.#options;
    const shown = toJson({ library: "postgres-jobs for TypeScript", version: VERSION, ...info });
    const values = [this.name, toArray(this.queues), String(concurrency), shown];
    const [command] = await this.#control.rows(BEAT, values, BEATING);
    if (command !== this.#command) {
      logger.info("operator command received", { worker: this.name, command });
      this.#command = command;
      if (command === "stop") this.#stopping.abort();
      this.#wake();
    }
    const held = [...this.#held];
    if (held.length === 0) return;
    const ids = [toArray(held.map(({ job }) => job.id)), toArray(held.map(({ token }) => token))];
    const answers: (boolean | null)[] = await this.#control.rows(HEARTBEAT, ids, BEATING);
    answers.forEach((isCancelled, at) => {
      const attempt = held[at]!;
      if (isCancelled === null) this.#lose(attempt);
      else if (isCancelled && !attempt.job.isCompleted) attempt.abort("cancelled");
    });
  }
}

/** The seconds until the attempt is over: by the server's deadline or the handler's timeout. */
function limit(row: JobRow, timeout = -1): number {
  const own = timeout < 0 ? Infinity : timeout;
  return row.left === null ? own : Math.min(own, row.left - Math.min(row.whole / 20, 1));
}

// Uses the driver that is installed.
const connectUrl = (url: string): Connect => async (name) => {
  const connect = await import("pg").then(() => connectPg, () => import("postgres").then(() => connectPostgres, noDriver));
  return connect(url)(name);
};

function noDriver(cause: unknown): never {
  const { code } = cause as { code?: string };
  const message = "no driver for Postgres is installed: run npm install pg, or npm install postgres";
  throw Object.assign(new Error(message, { cause }), { code });
}

function check(isRight: boolean, option: string, value: unknown, rule: string): void {
  if (!isRight) throw new RangeError(`${option} must ${rule}, not ${inspect(value)}`);
}

function checked(whose: string, handler: any, options: KindOptions): KindOptions & { handler: Handler<any> } {
  check(typeof handler === "function", whose, handler, "be a function");
  checkTimeout(options.timeout);
  return { handler, ...options };
}

const checkTimeout = (timeout?: number): void =>
  check(timeout === undefined || timeout === -1 || timeout > 0, "timeout", timeout, "be positive, or -1 for no limit");

const defined = <T extends object>(options: T): { [K in keyof T]: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as any;
