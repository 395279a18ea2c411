import { fromJson } from "./json.js";

/** A length of time: a number of seconds, or a text such as `"2 hours"` or `"PT2H"`. */
export type Duration = number | string;

/** A value of a statement. All are texts, which the statement casts. */
export type Value = string | null;

/** Whatever runs a statement with `$1`, `$2`, ..: a Client or PoolClient of `pg`, or your own. */
export interface Queryable {
  query(text: string, values: any[]): PromiseLike<any>;
}

/** Sql or TransactionSql of `postgres`. */
export interface Unsafe {
  unsafe(text: string, values?: any[]): PromiseLike<any>;
}

/** A connection, a transaction or a pool of the caller. */
export type Database = Queryable | Unsafe;

/** Rows of a statement whose one column, `row`, is JSON as text. So no driver's types matter. */
export async function rows(database: Database, text: string, values: Value[]): Promise<any[]> {
  const result = await ("unsafe" in database ? database.unsafe(text, values) : database.query(text, values));
  const found: { row: string }[] = Array.isArray(result) ? result : result.rows;
  return found.map(({ row }) => fromJson(row));
}

/** What the parameter of type interval takes. */
export const toInterval = (duration: Duration): string =>
  typeof duration === "number" ? `${duration} seconds` : duration;
