import { rows, type Database } from "./database.js";
import { parametersOf, type InsertOptions } from "./insert.js";
import { toJson } from "./json.js";
import { asKept, type Kind } from "./kind.js";

/** Options of a periodic job: those of its inserts, and of `jobs.schedule`. */
export interface PeriodicOptions extends Omit<InsertOptions, "scheduledAt" | "expiresAt" | "pending"> {
  /** Of the cron expression. Default: `"UTC"`. */
  timeZone?: string;
  /** What happens to ticks that were missed. Default: `"once"`. */
  missed?: string;
}

/** The parameters of `jobs.schedule`. */
export interface Periodic extends PeriodicOptions {
  name: string;
  cron: string;
  kind: string;
  args?: unknown;
}

/** What `sync` did about a kind or a periodic job. */
export interface Change {
  object: "kind" | "periodic job";
  name: string;
  outcome: "created" | "changed" | "unchanged";
}

const KIND = `jsonb_to_record($1::text::jsonb) as g (kind text, queue text, priority int, max_attempts int,
  timeout interval, retry jsonb, unique_opts jsonb)`;
const OUTCOME = `select to_json(case when k.kind is null then 'created'
    when (k.queue, k.priority, k.max_attempts, k.timeout, k.retry, k.unique_opts) is distinct from
      (g.queue, g.priority, g.max_attempts, g.timeout, g.retry, g.unique_opts) then 'changed'
    else 'unchanged' end)::text as row
  from ${KIND} left join jobs.kinds k on k.kind = g.kind`;
const DEFINE = `select '""' as row from ${KIND},
  jobs.define_kind(g.kind, g.queue, g.priority, g.max_attempts, g.timeout, g.retry, g.unique_opts)`;
const SCHEDULE = `select to_json(s.outcome)::text as row
  from jsonb_to_record($1::text::jsonb) as g (name text, cron text, kind text, args jsonb, time_zone text, unique_opts jsonb, queue text,
    priority int, max_attempts int, tags text[], meta jsonb, timeout interval, retry jsonb, missed text),
  jobs.schedule(g.name, g.cron, g.kind, g.args, g.time_zone, g.unique_opts, g.queue, g.priority, g.max_attempts, g.tags, g.meta,
    g.timeout, g.retry, g.missed) as s`;

// With names as the database stores them.
const inForm = <T extends { kind: string; queue?: string }>(one: T): T =>
  ({ ...one, kind: asKept(one.kind), ...(one.queue && { queue: asKept(one.queue) }) });

/** Writes the defaults of kinds and the periodic jobs that differ from those of the database. */
export async function sync(database: Database, kinds: readonly Kind<any>[], periodic: readonly Periodic[]): Promise<Change[]> {
  const changes: Change[] = [];
  for (const { name, defaults } of kinds) {
    const values = [toJson(parametersOf(inForm({ ...defaults, kind: name })))];
    const [outcome] = await rows(database, OUTCOME, values, "application");
    if (outcome !== "unchanged") await rows(database, DEFINE, values, "application");
    changes.push({ object: "kind", name, outcome });
  }
  for (const one of periodic) {
    const [outcome] = await rows(database, SCHEDULE, [toJson(parametersOf({ timeZone: "UTC", missed: "once", ...one }))], "application");
    changes.push({ object: "periodic job", name: one.name, outcome });
  }
  return changes;
}
