import { setImmediate } from "node:timers/promises";
import { Attempt, type Handler } from "./attempt.js";
import { Batch, type BatchHandler } from "./batch.js";
import { checkCells, MAP, queuesHere, type CellMap } from "./cells.js";
import { lineOf, Link, PATIENCE, Unusable, type Connect } from "./connection.js";
import type { Database } from "./database.js";
import { failure, type Result } from "./endings.js";
import { Finisher } from "./finisher.js";
import { check, Handlers, type BatchOptions, type Group, type Handling, type KindOptions } from "./handlers.js";
import { ABOUT, checkExtension, hinted, firstHint, type About } from "./hints.js";
import { jobRows, type Job, type JobRow } from "./job.js";
import { toArray, toJson } from "./json.js";
import { toKind, type Kind } from "./kind.js";
import { LoopWatch } from "./loop.js";
import { settled, type WorkerOptions } from "./options.js";
import { connectPg } from "./pg.js";
import { Places } from "./places.js";
import { connectPostgres } from "./postgres.js";
import { Reports } from "./reports.js";
import { sync, type Change, type Periodic, type PeriodicOptions } from "./sync.js";
import type { InThread } from "./threads.js";
import { aborted, atMost, sleep } from "./timing.js";
import { VERSION } from "./version.js";

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
const LEAVE = "select to_json(jobs.worker_leave($1::text))::text as row";
const PROGRESS = `select to_json(cancel_requested)::text as row
  from jobs.heartbeat($1::text::bigint, $2::text::bigint, progress => $3::text::jsonb)`;

const IDLE_WAIT = 30;
const BEATING = 10; // without an answer, so that another connection can renew the leases in time
const SENDING = 10; // seconds after the last handler ended

// The workers of this process within `run()`, and the handlers that they left behind.
let [mains, left] = [0, 0];

/** Fetches jobs and runs their handlers, many at once. */
export class Worker {
  /** The worker's name in `jobs.workers`. */
  readonly name: string;
  readonly #options;
  #handlers = new Handlers();
  readonly #periodic: Periodic[] = [];

  // A worker for each database of a list, this one included. The first is the program's.
  #cells: Worker[] = [this];
  #maps?: Map<Worker, CellMap>; // of a list
  readonly #places: Places;
  readonly #gathering = new Map<string, { batch: Batch; attempts: Attempt[]; late?: NodeJS.Timeout }>();
  #watch?: LoopWatch; // of the first
  #groups: Group[] = [];
  #command = "run";
  #isAwake = false;
  #onWake = () => {};

  readonly #stopping = new AbortController(); // no more fetches
  readonly #cancelling = new AbortController(); // handlers are cancelled
  readonly #ending = new AbortController(); // no more results are sent
  readonly #fetch: Link;
  readonly #finish: Link;
  readonly #control: Link;
  readonly #finisher: Finisher;
  #started?: Promise<void>;
  #worked?: Promise<void>; // in its database
  #ended?: Promise<void>; // in all
  #failure?: { error: unknown };

  /**
   * The database is a URL, or `{ connect }` with a function such as `connectPg({..})`. A list has
   * those of several cells.
   */
  constructor(given: Source | readonly Source[], options: WorkerOptions = {}) {
    this.#options = settled(options);
    const { weights, concurrency, prefetch, logger, onError, onDiscarded } = this.#options;
    this.name = this.#options.name;
    const [database, ...others] = Array.isArray(given) ? given : [given];
    const connect = typeof database === "string" ? connectUrl(database) : database?.connect;
    // The value is not shown: it can have a password.
    check(typeof connect === "function", "database", database && typeof database, "be a URL, or have a function connect");
    const connected = () => connect(this.name);
    this.#fetch = new Link(connected, this.#stopping.signal, this.#stopping.signal, logger);
    this.#finish = new Link(connected, this.#cancelling.signal, this.#ending.signal, logger, false);
    this.#control = new Link(connected, this.#cancelling.signal, this.#ending.signal, logger);
    this.#finisher = new Finisher(this.#finish, logger, new Reports(logger, onError, onDiscarded), (attempt) => this.#forget(attempt));
    this.#places = new Places(weights, concurrency, prefetch, () => this.#finisher.kept);
    if (Array.isArray(given)) this.#add(others, { ...options, name: this.name });
  }

  #add(others: readonly Source[], options: WorkerOptions): void {
    this.#maps = new Map();
    for (const other of others) this.#cells.push(new Worker(other, options));
    const all = this.#cells.map((cell) => cell.#places);
    for (const cell of this.#cells) {
      [cell.#cells, cell.#maps, cell.#handlers] = [this.#cells, this.#maps, this.#handlers];
      [cell.#places.all, cell.#places.queues] = [all, []]; // until it has the map
      for (const link of [cell.#fetch, cell.#finish, cell.#control]) link.isToCell = true;
    }
  }

  /** Sets the handler of a kind: a function, or a module's in threads. A worker fetches only kinds that have a handler. */
  kind<Args = unknown>(kind: string | Kind<Args>, handler: Handler<Args> | InThread, options: KindOptions = {}): this {
    this.#handlers.set(kind, handler, options);
    return this;
  }

  /** Sets the handler of a kind, which gets several jobs at once. */
  batch<Args = unknown>(kind: string | Kind<Args>, handler: BatchHandler<Args>, options: BatchOptions = {}): this {
    this.#handlers.set(kind, handler, options, true);
    return this;
  }

  /** Sets the handler of every other kind. */
  otherwise(handler: Handler, options: Omit<KindOptions, "concurrency"> = {}): this {
    this.#handlers.set(null, handler, options);
    return this;
  }

  /** Declares a periodic job, for `sync`. */
  periodic<Args = unknown>(name: string, cron: string, kind: string | Kind<Args>, args: Args, options: PeriodicOptions = {}): this {
    this.#periodic.push({ ...toKind(kind).job(args, options), name, cron });
    return this;
  }

  /**
   * Writes into the database, on the caller's connection or in its transaction, what it lacks or
   * has otherwise of the defaults of kinds and of periodic jobs. Removes nothing. Returns the
   * outcome of each.
   */
  sync(database: Database): Promise<Change[]> {
    return sync(database, this.#handlers.defined, this.#periodic);
  }

  /** The queues that the worker fetches from. */
  get queues(): string[] {
    return [...this.#options.weights.keys()];
  }

  /** The kinds that the worker fetches, or null for all. */
  get kinds(): string[] | null {
    return this.#handlers.kinds;
  }

  /** Runs the handler of a job within the middleware. */
  handle(job: Job<any>, batch?: Batch): unknown {
    const handle = this.#options.middleware.reduceRight<() => unknown>(
      (next, layer) => (layer.work ? () => layer.work!(job, async () => next()) : next),
      () => this.#handlers.run(job, batch),
    );
    return handle();
  }

  /**
   * Runs until SIGTERM or SIGINT, or until an operator stops the worker. A second signal acts as
   * `stopAndCancel()`. Rejects if a result could not be sent, and if the database refuses the
   * worker as it starts. The process belongs to the worker: errors that handlers throw in the
   * background are logged and do not end it. If a handler did not stop, the process exits once no
   * other worker is within `run()`.
   */
  async run(): Promise<void> {
    let signals = 0;
    const onSignal = () => void (signals++ === 0 ? this.stop() : this.stopAndCancel()).catch(() => {});
    const onStray = (stray: any) => {
      if (stray?.syscall === "write") return; // perhaps the log itself, whose reader is gone
      const { error, details: { type, trace } } = failure(stray);
      this.#options.logger.error("error outside of handlers", { type, error, trace });
    };
    const listeners = { SIGTERM: onSignal, SIGINT: onSignal, unhandledRejection: onStray, uncaughtException: onStray };
    for (const [event, listener] of Object.entries(listeners)) process.on(event, listener);
    mains++;
    const ended = this.start().then(() => this.#ended);
    const code = await ended.then(() => 0, () => 1);
    for (const [event, listener] of Object.entries(listeners)) process.off(event, listener);
    for (const cell of this.#cells) left += cell.#places.running;
    // Their timers and sockets would keep the process alive.
    if (--mains === 0 && left > 0) process.exit(code);
    return ended;
  }

  /** Starts the worker, and returns once a server knows it. Installs no signal handlers. */
  start(): Promise<void> {
    return (this.#started ??= this.#startAll());
  }

  async #startAll(): Promise<void> {
    if (this.kinds?.length === 0) throw new Error("the worker has no handlers");
    const started = this.#cells.map((cell) => cell.#start());
    const worked = this.#cells.map(async (cell, at) => {
      try {
        await started[at];
        await cell.#worked;
      } catch (error) {
        this.#stopAll();
        throw error;
      }
    });
    this.#ended = Promise.allSettled(worked).then(() => Promise.all(worked)).then(() => {});
    this.#ended.catch(() => {}); // for those who wait for it
    await Promise.race(started);
  }

  /**
   * Stops fetching, gives handlers the grace period, then cancels and releases the rest. Returns
   * when all results are sent. Rejects if a result could not be sent.
   */
  async stop(): Promise<void> {
    this.#stopAll();
    await atMost(this.#options.grace, this.#started ? this.ended() : Promise.resolve());
    await this.stopAndCancel();
  }

  /** Stops without a grace period. */
  async stopAndCancel(): Promise<void> {
    this.#stopAll();
    for (const cell of this.#cells) cell.#cancelling.abort();
    await this.ended();
  }

  /** Returns when the worker has stopped, also by an operator's command. */
  async ended(): Promise<void> {
    await this.#started;
    await this.#ended;
  }

  #stopAll(): void {
    for (const cell of this.#cells) cell.#stop();
  }

  #stop(): void {
    this.#stopping.abort();
    this.#releaseWaiting();
    for (const { attempts, late } of this.#gathering.values()) {
      clearTimeout(late);
      for (const attempt of attempts) attempt.abort("stopping");
    }
    this.#gathering.clear();
    this.#wake();
  }

  async #start(): Promise<void> {
    this.#groups = this.#handlers.groups;
    await Promise.race([this.#greet(), aborted(this.#stopping.signal)]).catch(async (error) => {
      this.#ending.abort();
      await this.#control.close();
      throw this.#failed(error instanceof Unusable ? error.error : hinted(error, firstHint(error, this.#control.role)));
    });
    this.#worked = this.#work();
  }

  async #greet(): Promise<void> {
    const [about] = (await this.#control.rows(ABOUT, [], BEATING)) as [About];
    checkExtension(about);
    const { database, user, extension } = about;
    for (const link of [this.#fetch, this.#control]) link.role = user;
    await this.#beat();
    const { concurrency, logger } = this.#options;
    const [worker, queues, kinds, host] = [this.name, this.#places.queues, this.kinds ?? "all kinds", this.#control.host];
    logger.info("worker started", { worker, queues, kinds, concurrency, database, user, host, extension, library: VERSION });
  }

  async #work(): Promise<void> {
    const { logger } = this.#options;
    const running = () => this.#places.at("running");
    const runningInAll = () => this.#cells.flatMap((cell) => cell.#places.at("running"));
    if (this === this.#cells[0]) this.#watch = new LoopWatch(logger, runningInAll);
    const cancelled = aborted(this.#cancelling.signal);
    const controlling = this.#controlling();
    const fetching = this.#fetching();
    await aborted(this.#stopping.signal);
    // A wait is ended. A fetch under way is not: its jobs are ours and are released.
    const fetched = this.#fetch.isWaiting ? this.#fetch.interrupt(fetching) : fetching;
    const emptied = Promise.all([fetched, ...running().map(({ handled }) => handled)]);
    await Promise.race([emptied, cancelled]);
    for (const attempt of running()) attempt.abort("stopping");
    await atMost(1, emptied);
    for (const attempt of running()) {
      logger.warn("handler did not stop", attempt.fields);
      // A job that is completed in a transaction is locked by it.
      if (!attempt.job.isCompleted) this.#settle(attempt, { do: "release" });
    }
    this.#cancelling.abort();
    const lost = await this.#finisher.flush(SENDING, fetched);
    this.#ending.abort();
    await this.#control.interrupt(controlling);
    this.#watch?.end();
    await Promise.all([this.#fetch.close(), this.#finish.close(), this.#control.last(LEAVE, [this.name])]);
    if (lost > 0) logger.error("results could not be sent", { worker: this.name, results: lost });
    logger.info("worker stopped", { worker: this.name });
    if (this.#failure) throw this.#failure.error;
    if (lost > 0) throw new Error(`results could not be sent: ${lost}`);
  }

  // --- Fetching ----------------------------------------------------------------------------------

  async #fetching(): Promise<void> {
    const stopping = this.#stopping.signal;
    const { logger } = this.#options;
    while (!stopping.aborted) {
      try {
        this.#isAwake = false;
        // The group that was first is the last next time.
        this.#groups.push(...this.#groups.splice(0, 1));
        const found = await this.#fetchFrom(this.#groups, this.#fetch);
        if (found === "no place") await this.#woken();
        else if (found === "less") await this.#waitForJobs();
      } catch (error) {
        if (stopping.aborted) return;
        if (error instanceof Unusable) return this.#fail(error.error);
        logger.error("fetch refused, retrying", { error: lineOf(error) });
        await sleep(1, stopping);
      }
    }
  }

  /** Fetches what there is a place for. Says whether there may be more, if there was any place. */
  async #fetchFrom(groups: Group[], link: Link): Promise<"more" | "less" | "no place"> {
    let found: "more" | "less" | "no place" = "no place";
    for (const group of [...groups]) {
      const free = this.#command === "run" && !this.#stopping.signal.aborted && this.#places.free(group);
      group.hasMore ||= !free;
      if (!free) continue;
      const [queues, most] = free;
      const values = [toArray(queues), String(most), this.name, `${this.#options.lease} s`, group.kinds && toArray(group.kinds)];
      this.#places.asked = { group, most, link };
      const rows: JobRow[] = await link.rows(FETCH, values, PATIENCE, false, false).finally(() => (this.#places.asked = undefined));
      group.hasMore = rows.length === most;
      if (found !== "more") found = group.hasMore ? "more" : "less";
      this.#take(rows);
      // Others may have waited for these places.
      if (rows.length < most && this.#cells.length > 1) this.#goOn();
    }
    return found;
  }

  /** Waits until there may be jobs. Meanwhile places of kinds can become free that have more. */
  async #waitForJobs(): Promise<void> {
    let isOver = false;
    const queues = toArray(this.#places.queues);
    const waited = this.#fetch.rows(WAIT, [queues, `${IDLE_WAIT} s`], 2 * IDLE_WAIT, true).finally(() => (isOver = true));
    waited.catch(() => {}); // it is awaited below
    while (!isOver && this.#groups.length > 1) {
      await Promise.race([waited, this.#woken()]);
      const full = this.#groups.filter(({ hasMore }) => hasMore);
      if (!isOver && full.length > 0) await this.#fetchFrom(full, this.#finish);
    }
    await waited;
  }

  async #woken(): Promise<void> {
    if (!this.#isAwake) await new Promise<void>((resolve) => (this.#onWake = resolve));
    this.#isAwake = false;
    // Handlers that end together make room for one fetch, unless it is ahead of need.
    if (this.#places.waiting === 0) await setImmediate();
  }

  #wake(): void {
    this.#isAwake = true;
    this.#onWake();
  }

  /** Ends the worker because of an error. */
  #fail(error: unknown): void {
    this.#failure = { error: this.#failed(error) };
    this.#stop();
  }

  #failed(error: unknown): unknown {
    this.#options.logger.error("worker failed", { worker: this.name, error: lineOf(error) });
    return error;
  }

  // --- Handling ----------------------------------------------------------------------------------

  #take(rows: JobRow[]): void {
    const taken = rows.map((row) => {
      const attempt: Attempt = new Attempt(row, (value) => this.#progress(attempt, value));
      return attempt;
    });
    this.#places.add(taken);
    if (!this.#stopping.signal.aborted) this.#begin();
    if (this.#command !== "run" || this.#stopping.signal.aborted) this.#releaseWaiting();
    if (this.#places.waiting > 0) void this.#limitWaiting(taken);
  }

  /** Releases attempts that have waited too long. Most begins before the next turn of the loop. */
  async #limitWaiting(taken: Attempt[]): Promise<void> {
    await setImmediate();
    for (const attempt of taken) {
      if (attempt.place === "waiting") attempt.waitAtMost(attempt.left(), () => this.#release(attempt));
    }
  }

  /** Begins what waits, as long as there are places. */
  #begin(): void {
    for (let attempt; (attempt = this.#places.next()); ) {
      const { kind } = attempt.job;
      const { batch } = this.#handlers.of(kind);
      if (batch) this.#gather(kind, attempt, batch);
      else this.#run(attempt, attempt.left(this.#timeoutOf(kind)));
    }
    if (this.#gathering.size === 0) return;
    for (const kind of this.#gathering.keys()) if (!this.#handlers.of(kind).batch!.linger) this.#close(kind);
  }

  /** The attempt waits for its batch. */
  #gather(kind: string, attempt: Attempt, { handler, size, linger }: NonNullable<Handling["batch"]>): void {
    const open = this.#gathering.get(kind) ?? { batch: new Batch(handler), attempts: [], late: undefined };
    if (open.attempts.length === 0) {
      this.#gathering.set(kind, open);
      if (linger > 0) open.late = setTimeout(() => this.#close(kind), linger * 1000);
    }
    open.attempts.push(attempt);
    this.#run(attempt, Infinity, open.batch);
    const { concurrency = Infinity } = this.#handlers.of(kind);
    if (open.attempts.length >= Math.min(size, this.#options.concurrency, concurrency)) this.#close(kind);
  }

  /** Begins a batch. */
  #close(kind: string): void {
    const { batch, attempts, late } = this.#gathering.get(kind)!;
    this.#gathering.delete(kind);
    clearTimeout(late);
    const open = attempts.filter(({ place }) => place === "running");
    const seconds = Math.min(...open.map((attempt) => attempt.left(this.#timeoutOf(kind))));
    for (const attempt of open) attempt.timeOutIn(seconds, (result, one) => this.#settle(one, result), open);
    batch.close(attempts.length);
    for (const attempt of open) this.#passed(attempt);
  }

  #passed(attempt: Attempt): void {
    this.#cells[0]!.#watch?.passed(attempt);
  }

  #timeoutOf(kind: string): number | undefined {
    return this.#handlers.of(kind).timeout ?? this.#options.timeout;
  }

  #run(attempt: Attempt, seconds: number, batch?: Batch): void {
    attempt.timeOutIn(seconds, (result) => this.#settle(attempt, result));
    attempt.handled = this.#handled(attempt, batch);
  }

  async #handled(attempt: Attempt, batch?: Batch): Promise<void> {
    const running = attempt.run(() => this.handle(attempt.job, batch));
    this.#passed(attempt);
    const result = await running;
    this.#passed(attempt);
    batch?.leave(attempt.job);
    this.#places.leave(attempt);
    this.#settle(attempt, result);
    this.#goOn();
  }

  /** Begins and fetches what there is a place for now, first in the database with the fewest jobs. */
  #goOn(): void {
    const cells = this.#cells.length > 1 ? [...this.#cells].sort((a, b) => a.#places.taken - b.#places.taken) : this.#cells;
    for (const cell of cells) {
      cell.#begin();
      if (cell.#places.isLow) cell.#wake();
    }
  }

  #settle(attempt: Attempt, result: Result | null): void {
    if (attempt.isSettled) return;
    attempt.isSettled = true;
    if (result) this.#finisher.send(attempt, result);
    else this.#forget(attempt);
  }

  #forget(attempt: Attempt): void {
    attempt.isHeld = false;
    this.#goOn(); // if results held all places
  }

  /** Releases an attempt whose handler has not begun. */
  #release(attempt: Attempt): void {
    attempt.stopWaiting();
    this.#places.leave(attempt);
    this.#settle(attempt, { do: "release" });
  }

  #releaseWaiting(): void {
    for (const attempt of this.#places.at("waiting")) this.#release(attempt);
  }

  #cancel(attempt: Attempt): void {
    if (attempt.place === "waiting") this.#release(attempt); // which cancels it
    else if (!attempt.job.isCompleted) attempt.abort("cancelled");
  }

  #lose(attempt: Attempt): void {
    // A job that completed while the answer was on its way looks lost, and is not.
    if (attempt.isSettled || attempt.job.isCompleted) return;
    this.#options.logger.warn("job lost", attempt.fields);
    if (attempt.place === "waiting") this.#places.leave(attempt);
    attempt.stopWaiting();
    this.#settle(attempt, null);
    attempt.abort("lost");
  }

  async #progress(attempt: Attempt, progress: string): Promise<void> {
    try {
      const values = [String(attempt.job.id), String(attempt.token), progress];
      const [isCancelled] = await this.#finish.rows(PROGRESS, values);
      if (isCancelled) this.#cancel(attempt);
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
      if (!ending.aborted) this.#options.logger.error(`${call} refused, retrying`, { error: lineOf(error) });
      await sleep(Math.min(pace, 1), ending);
    };
    while (!ending.aborted) {
      const wait = this.#control.rows(WAIT_FOR_REQUESTS, [`${pace} s`, this.name], pace + BEATING / 2, true);
      await wait.catch(refused("wait"));
      await this.#beat().catch(refused("heartbeat"));
    }
  }

  async #readMap(maps: Map<Worker, CellMap>): Promise<void> {
    const [map] = (await this.#control.rows(MAP, [], BEATING)) as [CellMap];
    if (!maps.has(this)) checkCells(maps.set(this, map).values());
    const before = this.#places.queues;
    this.#places.queues = queuesHere(map, this.queues);
    if (before.length === 0) this.#wake();
  }

  async #beat(): Promise<void> {
    const { concurrency, info, logger } = this.#options;
    const shown = toJson({ library: "postgres-jobs for TypeScript", version: VERSION, ...info });
    if (this.#maps) await this.#readMap(this.#maps);
    const values = [this.name, toArray(this.#places.queues), String(concurrency), shown];
    const [command] = await this.#control.rows(BEAT, values, BEATING);
    if (command !== this.#command) {
      logger.info("operator command received", { worker: this.name, command });
      this.#command = command;
      if (command === "stop") this.#stopAll();
      else if (command !== "run") this.#releaseWaiting();
      this.#wake();
    }
    const held = this.#places.held();
    if (held.length === 0) return;
    const ids = [toArray(held.map(({ job }) => job.id)), toArray(held.map(({ token }) => token))];
    const answers: (boolean | null)[] = await this.#control.rows(HEARTBEAT, ids, BEATING);
    answers.forEach((isCancelled, at) => {
      const attempt = held[at]!;
      if (isCancelled === null) this.#lose(attempt);
      else if (isCancelled) this.#cancel(attempt);
    });
  }
}

type Source = string | { connect: Connect };

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
