-- Periodic jobs. Rust: src/api/periodic.rs, src/ticks.rs

CREATE TYPE jobs.schedule_result AS (
  outcome     text,
  next_run_at timestamptz);
COMMENT ON TYPE jobs.schedule_result IS
  'Whether a periodic job was created, changed or left unchanged by its definition, and its next tick.';

CREATE FUNCTION jobs.schedule(
  name text, cron text, kind text, args jsonb DEFAULT '{}', time_zone text DEFAULT 'UTC', unique_opts jsonb DEFAULT NULL,
  queue text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL,
  meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, missed text DEFAULT 'once',
  reason text DEFAULT NULL)
RETURNS jobs.schedule_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'schedule_wrapper';
COMMENT ON FUNCTION jobs.schedule(text, text, text, jsonb, text, jsonb, text, integer, integer, text[], jsonb, interval, jsonb, text, text) IS
$$Defines a periodic job: at each tick one job is inserted, as jobs.insert does, with the tick as its scheduled_at. A definition of the same name is replaced as a whole; a tick of it that has passed is dealt with first. One that says the same already is left as it is, and one that is paused stays so.
Returns outcome (created, changed or unchanged) and the next tick (null: it is paused).
cron: minute, hour, day of month, month and day of week of a clock in time_zone; or @hourly, @daily, @weekly, @monthly, @yearly; or every and a duration of fixed length (every 90 seconds), which counts from 0001-01-01 00:00 UTC and allows no other time_zone. Days can be L (last day of the month), 15W (nearest weekday), 5L (last Friday) and 1#2 (second Monday).
time_zone: a name in pg_timezone_names. Offsets such as UTC+3 and abbreviations are refused.
Where the clock is put forward, a tick that it skips comes at the first moment after; where it is put back, a tick is the first time only; a schedule of every hour goes on with the time that passes.
One job a tick, whatever the number of workers, restarts and failovers. A job that the unique options skip or reject, or that cannot be inserted, is left out; jobs.periodic says so.
missed: what happens to ticks that are more than 60 seconds late because neither server nor worker ran. once: the latest gets its job; skip: none does.
Options: as jobs.insert; null: the default when the job is inserted. Errors: 22023 and 22004 as jobs.insert, 22023 an invalid cron, time_zone or missed, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when the definition was changed meanwhile.$$;

CREATE FUNCTION jobs.unschedule(
  name text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unschedule_wrapper';
COMMENT ON FUNCTION jobs.unschedule(text, text) IS
$$Ends a periodic job; its jobs that are there stay. Whether there was one of this name. Errors: 22004, 22023 what cannot be a name, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when the definition was changed meanwhile.$$;

CREATE FUNCTION jobs.pause_periodic(
  name text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_periodic_wrapper';
COMMENT ON FUNCTION jobs.pause_periodic(text, text) IS
$$Stops the ticks of a periodic job until jobs.resume_periodic; a tick that has passed and has no job yet gets none. Its jobs that are there stay. jobs.periodic shows since when, by whom and why; what is paused already stays as it is. Errors: P0002 no such name, 22023 what cannot be a name, 22004, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when the definition was changed meanwhile.$$;

CREATE FUNCTION jobs.resume_periodic(
  name text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_periodic_wrapper';
COMMENT ON FUNCTION jobs.resume_periodic(text, text) IS
$$Lets a periodic job that is paused go on, from the next tick on: those that fell into the pause are not made up for. What is not paused stays as it is. Errors: as jobs.pause_periodic; 22023 also where the server does not know the time zone any more.$$;

CREATE FUNCTION jobs.run_periodic(
  name text, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'run_periodic_wrapper';
COMMENT ON FUNCTION jobs.run_periodic(text, text) IS
$$Inserts the job of a periodic job now, beside its ticks, which come as ever; also while it is paused. Returns the id of the job or, where the unique options of the definition skip it as a duplicate, that of the job that is there. Errors: P0002 no such name, and as jobs.insert, also 23505 where the unique options reject a duplicate.$$;
