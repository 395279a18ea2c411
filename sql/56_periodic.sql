-- Periodic jobs. Rust: src/api/periodic.rs, src/ticks.rs

CREATE FUNCTION jobs.schedule(
  name text, cron text, kind text, args jsonb DEFAULT '{}', time_zone text DEFAULT 'UTC', unique_opts jsonb DEFAULT NULL,
  queue text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL,
  meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, reason text DEFAULT NULL)
RETURNS timestamptz
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'schedule_wrapper';
COMMENT ON FUNCTION jobs.schedule(text, text, text, jsonb, text, jsonb, text, integer, integer, text[], jsonb, interval, jsonb, text) IS
$$Defines a periodic job: at each tick one job is inserted, as jobs.insert does, with the tick as its scheduled_at. A definition of the same name is replaced as a whole; a tick of it that has passed is dealt with first. Returns the next tick.
cron: minute, hour, day of month, month and day of week of a clock in time_zone; or @hourly, @daily, @weekly, @monthly, @yearly; or every and a duration of fixed length (every 90 seconds), which counts from 0001-01-01 00:00 UTC.
Where the clock is put forward, a tick that it skips comes at the first moment after; where it is put back, a tick is the first time only; a schedule of every hour goes on with the time that passes.
One job a tick, whatever the number of workers, restarts and failovers; of ticks that were missed the latest one only. A job that the unique options skip or reject, or that cannot be inserted, is left out; jobs.periodic says so.
Options: as jobs.insert; null: the default when the job is inserted. Errors: 22023 and 22004 as jobs.insert, 22023 a cron or time_zone that is none, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when the definition was changed meanwhile.$$;

CREATE FUNCTION jobs.unschedule(
  name text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unschedule_wrapper';
COMMENT ON FUNCTION jobs.unschedule(text, text) IS
$$Ends a periodic job; its jobs that are there stay. Whether there was one of this name. Errors: 22004, 22023 what cannot be a name, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when the definition was changed meanwhile.$$;
