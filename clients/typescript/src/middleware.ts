import type { Job } from "./job.js";
import type { Inserted, NewJob } from "./insert.js";

/** What goes around each insert of a `Producer`, and around each handler of a `Worker`. */
export interface Middleware {
  /** Around an insert, of one job or of many: may change them, and must return `next(..)`. */
  insert?(jobs: NewJob[], next: (jobs: NewJob[]) => Promise<Inserted<boolean>[]>): Promise<Inserted<boolean>[]>;
  /** Around a handler: returns the output, that of `next()` or another one. */
  work?(job: Job, next: () => Promise<unknown>): Promise<unknown>;
}
