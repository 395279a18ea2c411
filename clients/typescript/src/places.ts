import type { Attempt } from "./attempt.js";
import type { Group } from "./handlers.js";

/** The jobs that a worker has fetched from a database, and how many more it can take. */
export class Places {
  /** Those of all of its databases, between which it shares the places. */
  all: Places[] = [this];
  /** The queues that live in this database. */
  queues: string[];
  /** The fetch under way. */
  asked?: { group: Group; most: number; link: { isFailing: boolean } };
  // In the order of their fetch, with some that are over. A Set or Map would keep alive what it had
  // long ago: V8's garbage collector follows its old tables.
  #attempts: Attempt[] = [];
  #next = 0; // none before it waits
  running = 0;
  waiting = 0;

  constructor(
    readonly weights: ReadonlyMap<string, number>,
    private readonly concurrency: number,
    private readonly prefetch: number,
    private readonly kept: () => number, // the places of results that cannot be sent
  ) {
    this.queues = [...weights.keys()];
  }

  /** How many jobs have a place. */
  get taken(): number {
    return this.running + this.kept();
  }

  #sum(count: (one: Places) => number): number {
    return this.all.reduce((sum, one) => sum + count(one), 0);
  }

  /** Adds attempts, which wait for a place. */
  add(attempts: Attempt[]): void {
    this.#attempts = this.#attempts.filter(({ place, isHeld }) => place || isHeld).concat(attempts);
    this.#next = 0;
    this.waiting += attempts.length;
  }

  /** Forgets attempts that are over. Returns those whose results the server does not have. */
  held(): Attempt[] {
    this.add([]);
    return this.#attempts.filter(({ isHeld }) => isHeld);
  }

  /** The attempt runs or waits no longer. */
  leave(attempt: Attempt): void {
    if (attempt.place) this[attempt.place]--;
    attempt.place = undefined;
  }

  at(place: "running" | "waiting"): Attempt[] {
    return this.#attempts.filter((attempt) => attempt.place === place);
  }

  /** The next attempt, which runs now, if there is a place. */
  next(): Attempt | undefined {
    if (this.waiting === 0 || this.#sum(({ taken }) => taken) >= this.concurrency) return undefined;
    while (this.#attempts[this.#next]!.place !== "waiting") this.#next++;
    const attempt = this.#attempts[this.#next]!;
    this.leave(attempt);
    this.running++;
    attempt.place = "running";
    return attempt;
  }

  /** Whether it is time for a fetch: jobs ahead of need are fetched many at a time. */
  get isLow(): boolean {
    return this.#sum(({ waiting }) => waiting) <= this.prefetch / 2;
  }

  /**
   * The queues to fetch from, the one furthest below its share first, and how many jobs to ask for;
   * null if there is no place.
   */
  free({ kinds, concurrency = Infinity }: Group): [queues: string[], most: number] | null {
    if (!this.isLow || this.queues.length === 0) return null;
    const all = this.concurrency + this.prefetch;
    const held = new Map<string, number>();
    let ofKind = 0;
    for (const { job, place } of this.all.flatMap((one) => one.#attempts)) {
      if (!place) continue;
      held.set(job.queue, (held.get(job.queue) ?? 0) + 1);
      if (job.kind === kinds?.[0]) ofKind++;
    }
    // What a fetch elsewhere has asked for, unless its connection fails.
    const asked = this.all.flatMap((one) => (one !== this && one.asked && !one.asked.link.isFailing ? [one.asked] : []));
    const most = (of: typeof asked) => of.reduce((sum, one) => sum + one.most, 0);
    const left = all - this.#sum(({ taken, waiting }) => taken + waiting) - most(asked);
    const leftOfKind = concurrency - ofKind - most(asked.filter(({ group }) => group.kinds?.[0] === kinds?.[0]));
    const free = Math.min(Math.ceil(left / this.all.length), leftOfKind);
    if (free <= 0) return null;
    const load = (queue: string) => (held.get(queue) ?? 0) / this.weights.get(queue)!;
    const queues = [...this.queues].sort((a, b) => load(a) - load(b));
    const [first] = queues as [string];
    const total = [...this.weights.values()].reduce((sum, weight) => sum + weight);
    const lacking = Math.ceil((all * this.weights.get(first)!) / total - (held.get(first) ?? 0));
    return [queues, Math.min(free, Math.max(lacking, 1), 10_000)];
  }
}
