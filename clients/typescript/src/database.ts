import { ofProducer } from "./hints.js";
import { fromJson } from "./json.js";

/** A duration: a number of seconds, or a text such as `"2 hours"` or `"PT2H"`. */
export type Duration = number | string;

/** A parameter of a statement. All are texts, which the statement casts. */
export type Value = string | null;

/** A Client, PoolClient or Pool of `pg`, or an object of your own. */
export interface Queryable {
  /** The text has `$1`, `$2`, .. in order, each once. Returns rows or `{ rows }`. */
  query(text: string, values: any[]): PromiseLike<any>;
}

/** Sql or TransactionSql of `postgres`. */
export interface Unsafe {
  unsafe(text: string, values?: any[]): PromiseLike<any>;
}

/** Knex, or one of its transactions. */
export interface Raw {
  raw(text: string, bindings: any[]): PromiseLike<any>;
}

/** A Prisma client, or the client of an interactive transaction. */
export interface QueryRawUnsafe {
  $queryRawUnsafe(text: string, ...values: any[]): PromiseLike<any>;
}

/** The caller's connection, transaction or pool. */
export type Database = Queryable | Unsafe | Raw | QueryRawUnsafe;

/** The rows of a statement whose only column, `row`, is JSON text, so that driver types do not matter. */
export async function rows(database: Database, text: string, values: Value[], rights = "producer"): Promise<any[]> {
  const refused = (error: unknown) => Promise.reject(ofProducer(error, rights, roleOf(database)));
  const found = await textRows(database, text, values).then(undefined, refused);
  return found.map(({ row }) => fromJson(row));
}

/** The same rows, with their texts. */
export async function textRows(database: Database, text: string, values: Value[]): Promise<{ row: string }[]> {
  const result = await run(database, text, values);
  return Array.isArray(result) ? result : result.rows;
}

const roleOf = (database: any): string | undefined => database?.user ?? database?.options?.user;

/** Runs a statement, and returns the result of the caller's library. */
export function run(database: Database, text: string, values: Value[]): PromiseLike<any> {
  if (!isDatabase(database)) throw new TypeError(UNUSABLE(database));
  if ("$queryRawUnsafe" in database) return database.$queryRawUnsafe(text, ...values);
  if ("unsafe" in database) return database.unsafe(text, values);
  if ("raw" in database) return database.raw(text.replace(/\$\d+/g, "?"), values);
  return database.query(text, values);
}

const isDatabase = (given: any): boolean =>
  given && ["$queryRawUnsafe", "unsafe", "raw", "query"].some((name) => typeof given[name] === "function");

function UNUSABLE(given: any): string {
  for (const [library, method] of [["Kysely", "executeQuery"], ["Drizzle", "execute"]] as const) {
    if (typeof given?.[method] === "function") return `${library} needs an adapter of a few lines, which the package's README has`;
  }
  const what = given === null || typeof given !== "object" ? `not ${typeof given}` : `not ${given.constructor?.name || "an object"}`;
  return `database must be a client, pool or transaction of pg, postgres, Knex or Prisma, or have a function query, ${what}`;
}

/** A duration as a parameter of type interval. */
export const toInterval = (duration: Duration): string =>
  typeof duration === "number" ? `${duration} seconds` : duration;
