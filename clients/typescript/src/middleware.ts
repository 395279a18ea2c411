import type { Job } from "./job.js";
import type { Inserted, NewJob } from "./insert.js";

/** Wraps each insert of a `Producer`, and each handler of a `Worker`. */
export interface Middleware {
  /** Wraps an insert of one or more jobs. May change them, and must return `next(..)`. */
  insert?(jobs: NewJob[], next: (jobs: NewJob[]) => Promise<Inserted<boolean>[]>): Promise<Inserted<boolean>[]>;
  /** Wraps a handler. Returns the output, of `next()` or its own. */
  work?(job: Job, next: () => Promise<unknown>): Promise<unknown>;
}
