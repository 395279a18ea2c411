import type { ForeignUnique, InsertOptions, NewJob, Unique } from "./insert.js";

/** Defaults of a kind's jobs: they travel with each insert, whose own options win. */
export interface KindDefaults extends Pick<InsertOptions, "queue" | "priority" | "maxAttempts" | "retry"> {
  /** Of an attempt, in seconds; -1 is no limit. Also the handler's timeout. */
  timeout?: number;
  uniqueOpts?: Unique<true> | ForeignUnique | Record<string, never>;
}

/** A kind with the type of its args and its defaults, for producers and workers. `defineKind` makes it. */
export interface Kind<Args = unknown> {
  readonly name: string;
  readonly defaults: KindDefaults;
  /** A job for `insertMany`. */
  job(args: Args, options?: InsertOptions): NewJob<Args>;
  /** Never set: only a kind of the same args is assignable. */
  readonly args?: (args: Args) => Args;
}

/** Defines a kind: `defineKind<{ to: string }>("email.send", { queue: "mail" })`. */
export function defineKind<Args = unknown>(name: string, defaults: KindDefaults = {}): Kind<Args> {
  return { name, defaults, job: (args, options) => ({ ...defaults, ...defined(options), kind: name, args }) };
}

/** Options without those that are undefined. */
export const defined = <T extends object>(options: T = {} as T): { [K in keyof T]: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as any;

/** The kind of this name, or the kind itself. */
export const toKind = <Args>(kind: string | Kind<Args>): Kind<Args> => (typeof kind === "string" ? defineKind(kind) : kind);

/** A name as the database stores it. */
export const asKept = (name: string): string => String(name).normalize("NFC");
