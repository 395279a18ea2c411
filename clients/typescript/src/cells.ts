import { createHash } from "node:crypto";
import { refusal, WRONG_CELL } from "./connection.js";
import { textRows, type Database, type Queryable, type Value } from "./database.js";
import { check } from "./handlers.js";
import { hinted, stateOf } from "./hints.js";
import { INSERT } from "./insert.js";
import { fromJson, toJson } from "./json.js";
import { asKept } from "./kind.js";

/** What a database says of itself, of other cells and of the queues. */
export interface CellMap {
  database: string;
  cell: number | null;
  identity: string | null;
  is_retired: boolean;
  others: Record<string, string>;
  placements: Record<string, Placement>;
}

interface Placement {
  by: Record<string, [string]> | null;
  cells: number[];
}

export const MAP = `select json_build_object('database', current_database(), 'cell', c.cell, 'identity', c.identity,
    'is_retired', c.retired_at is not null, 'others', coalesce(o.list, '{}'), 'placements', coalesce(p.list, '{}'))::text as row
  from (select json_object_agg(queue, to_json(p)) as list from jobs.placements p) p,
       (select json_object_agg(cell, identity) as list from jobs.cells where not is_self and identity is not null) o
  left join jobs.cells c on c.is_self`;
const ASK = `select to_json(jobs.cell_for(job->>'kind', args => coalesce(job->'args', '{}'), unique_opts => job->'unique_opts',
    queue => job->>'queue', meta => job->'meta'))::text as row
  from jsonb_array_elements($1::text::jsonb) with ordinality as jobs(job, n) order by n`;

/** Throws unless the databases are different cells that know each other. */
export function checkCells(maps: Iterable<CellMap>): void {
  const list = [...maps].filter((map) => !map.is_retired);
  for (const one of list) {
    for (const { database, cell, identity } of list.filter((other) => other !== one)) {
      if (cell === null) refuse(`the database "${database}" has no cell number`, "Run jobs.set_cell in it, or remove it from the list.");
      if (cell === one.cell) refuse(`the databases "${one.database}" and "${database}" are both cell ${cell}`, "Remove one of them from the list.");
      if ((one.others[cell] ?? identity) === identity) continue;
      const hint = `If cell ${cell} was reinstated, call jobs.set_cell_address with its new identity in cell ${one.cell}.`;
      refuse(`the database "${database}" is not the cell ${cell} that cell ${one.cell} knows`, `Check its URL. ${hint}`);
    }
  }
}

function refuse(message: string, hint: string): never {
  throw hinted(new Error(message), hint);
}

/** Those of the queues that live in this database. */
export const queuesHere = (map: CellMap, queues: string[]): string[] =>
  queues.filter((queue) => map.cell === null || placementOf(map, queue)?.cells.includes(map.cell));

const placementOf = ({ placements }: CellMap, queue: string): Placement | undefined => placements[asKept(queue)] ?? placements["*"];

/** The cell of a job, or null if the database must be asked. */
function cellOf(map: CellMap, job: any): number | null {
  const placement = job.queue ? placementOf(map, job.queue) : undefined;
  if (!placement?.by) return placement?.cells[0] ?? null;
  const [[field, [path]]] = Object.entries(placement.by) as [[string, [string]]];
  let value = job[field.slice("by_".length)];
  for (const name of path.split(".")) value = value?.[name];
  if (path.includes("\\") || !(typeof value === "string" || Number.isSafeInteger(value))) return null;
  const text = JSON.stringify(typeof value === "string" ? value.normalize("NFC") : value);
  const hash = createHash("sha256").update(text).digest().readBigUInt64BE();
  return placement.cells[Number(hash % BigInt(placement.cells.length))]!;
}

/**
 * A list of databases, pools as a rule, in place of one in `insert` and `insertMany`. Each job is
 * inserted and committed in its cell.
 */
export class Cells implements Queryable {
  readonly #databases: readonly Database[];
  // Of the databases that could be read, in the order of the list, the retired ones last.
  #maps = new Map<Database, CellMap>();
  // Why another one could not.
  #down: unknown;

  constructor(databases: readonly Database[]) {
    check(Array.isArray(databases) && databases.length > 0, "databases", databases, "be a list of at least one");
    this.#databases = databases;
  }

  /** Runs the statement of an insert. */
  async query(text: string, values: Value[]): Promise<{ row: string }[]> {
    if (text !== INSERT) throw new TypeError("Cells can only insert: pass a connection to the cell");
    const jobs: any[] = fromJson(values[0]!);
    const rows: { row: string }[] = [];
    for (const [database, part] of parts(await this.#place(jobs))) {
      try {
        await this.#insert(database, jobs, part, rows);
      } catch (error) {
        if (stateOf(error as object) !== WRONG_CELL) throw error;
        const cells = await this.#ask(database, part.map((at) => jobs[at]));
        await this.#read();
        const homes = cells.map((cell) => this.#database(cell));
        if (cells.includes(null) || homes.includes(undefined) || homes.includes(database)) throw error;
        for (const [home, smaller] of parts(homes)) await this.#insert(home!, jobs, smaller.map((at) => part[at]!), rows);
      }
    }
    return rows;
  }

  async #insert(database: Database, jobs: any[], part: number[], rows: { row: string }[]): Promise<void> {
    const inserted = await textRows(database, INSERT, [toJson(part.map((at) => jobs[at]))]);
    part.forEach((at, n) => (rows[at] = inserted[n]!));
  }

  /** The database of each job. */
  async #place(jobs: any[]): Promise<Database[]> {
    if (this.#maps.size === 0) await this.#read();
    const cells = jobs.map((job) => cellOf(this.#first[1], job));
    const asked = jobs.filter((_, at) => cells[at] === null);
    const answers = asked.length > 0 ? await this.#askFirst(asked) : [];
    const homes = cells.map((cell) => cell ?? answers.shift()!);
    if (homes.some((cell) => !this.#database(cell))) await this.#read();
    return homes.map((cell) => {
      const database = this.#database(cell);
      if (!database && this.#down) throw this.#down;
      return database ?? refuse(`cell ${cell} is none of the databases`, "Add it to the list.");
    });
  }

  async #askFirst(jobs: any[]): Promise<(number | null)[]> {
    try {
      return await this.#ask(this.#first[0], jobs);
    } catch (error) {
      if (refusal(error)) throw error;
      await this.#read(); // and ask the next one
      return this.#ask(this.#first[0], jobs);
    }
  }

  async #ask(database: Database, jobs: any[]): Promise<(number | null)[]> {
    return (await textRows(database, ASK, [toJson(jobs)])).map(({ row }) => JSON.parse(row));
  }

  get #first(): [Database, CellMap] {
    return this.#maps.entries().next().value!;
  }

  /** Undefined: it is not known. Where no cell takes the job, the first one says so. */
  #database(cell: number | null): Database | undefined {
    if (cell === null) return this.#first[0];
    return [...this.#maps].find(([, map]) => (map.cell ?? 0) === cell)?.[0];
  }

  async #read(): Promise<void> {
    const maps = new Map<Database, CellMap>();
    let down: unknown;
    for (const database of this.#databases) {
      try {
        maps.set(database, JSON.parse((await textRows(database, MAP, []))[0]!.row));
      } catch (error) {
        down = error;
      }
    }
    checkCells(maps.values());
    if (down && maps.size === 0) throw down;
    this.#maps = new Map([...maps].sort(([, a], [, b]) => Number(a.is_retired) - Number(b.is_retired)));
    this.#down = down;
  }
}

/** The numbers of the jobs of each database, in the order of their first jobs. */
function parts<Home>(homes: Home[]): [Home, number[]][] {
  return [...new Set(homes)].map((home) => [home, homes.flatMap((one, at) => (one === home ? [at] : []))]);
}
