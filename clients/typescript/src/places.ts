import type { Attempt } from "./attempt.js";
import type { Group } from "./handlers.js";

/** The jobs that a worker has fetched, and how many more it can take. */
export class Places {
  /** Attempts whose handlers run. */
  readonly running = new Map<Attempt, Promise<void>>();
  /** Those that wait for a place, in order. */
  readonly waiting = new Set<Attempt>();

  constructor(
    readonly weights: ReadonlyMap<string, number>,
    private readonly concurrency: number,
    private readonly prefetch: number,
  ) {}

  /** The next attempt to run if there is a place. Results that cannot be sent hold as many as are kept. */
  next(kept: number): Attempt | undefined {
    if (this.waiting.size === 0 || this.running.size + kept >= this.concurrency) return undefined;
    for (const attempt of this.waiting) {
      this.waiting.delete(attempt);
      return attempt;
    }
  }

  /**
   * The queues to fetch from, the one furthest below its share first, and how many jobs to ask for;
   * null if there is no place.
   */
  free({ kinds, concurrency = Infinity }: Group, kept: number): [queues: string[], most: number] | null {
    // Jobs ahead of need are fetched many at a time.
    if (this.waiting.size > this.prefetch / 2) return null;
    const all = this.concurrency + this.prefetch;
    const held = new Map<string, number>();
    let ofKind = 0;
    for (const { job } of [...this.running.keys(), ...this.waiting]) {
      held.set(job.queue, (held.get(job.queue) ?? 0) + 1);
      if (job.kind === kinds?.[0]) ofKind++;
    }
    const free = Math.min(all - this.running.size - this.waiting.size - kept, concurrency - ofKind);
    if (free <= 0) return null;
    const load = (queue: string) => (held.get(queue) ?? 0) / this.weights.get(queue)!;
    const queues = [...this.weights.keys()].sort((a, b) => load(a) - load(b));
    const [first] = queues as [string];
    const total = [...this.weights.values()].reduce((sum, weight) => sum + weight);
    const lacking = Math.ceil((all * this.weights.get(first)!) / total - (held.get(first) ?? 0));
    return [queues, Math.min(free, Math.max(lacking, 1), 10_000)];
  }
}
