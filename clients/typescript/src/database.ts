import { fromJson } from "./json.js";

/** A length of time: a number of seconds, or a text such as `"2 hours"` or `"PT2H"`. */
export type Duration = number | string;

/** A value of a statement. All are texts, which the statement casts. */
export type Value = string | null;

/** A Client, PoolClient or Pool of `pg`, or your own. */
export interface Queryable {
  /** The text has `$1`, `$2`, .. in this order, each once. Returns rows, or `{ rows }`. */
  query(text: string, values: any[]): PromiseLike<any>;
}

/** Sql or TransactionSql of `postgres`. */
export interface Unsafe {
  unsafe(text: string, values?: any[]): PromiseLike<any>;
}

/** Knex, or a transaction of it. */
export interface Raw {
  raw(text: string, bindings: any[]): PromiseLike<any>;
}

/** The client of Prisma, or that of an interactive transaction. */
export interface QueryRawUnsafe {
  $queryRawUnsafe(text: string, ...values: any[]): PromiseLike<any>;
}

/** A connection, a transaction or a pool of the caller. */
export type Database = Queryable | Unsafe | Raw | QueryRawUnsafe;

/** Rows of a statement whose one column, `row`, is JSON as text. So no driver's types matter. */
export async function rows(database: Database, text: string, values: Value[]): Promise<any[]> {
  const result = await run(database, text, values);
  const found: { row: string }[] = Array.isArray(result) ? result : result.rows;
  return found.map(({ row }) => fromJson(row));
}

/** Runs a statement, and returns what the library of the caller has for it. */
export function run(database: Database, text: string, values: Value[]): PromiseLike<any> {
  if ("$queryRawUnsafe" in database) return database.$queryRawUnsafe(text, ...values);
  if ("unsafe" in database) return database.unsafe(text, values);
  if ("raw" in database) return database.raw(text.replace(/\$\d+/g, "?"), values);
  return database.query(text, values);
}

/** What the parameter of type interval takes. */
export const toInterval = (duration: Duration): string =>
  typeof duration === "number" ? `${duration} seconds` : duration;
