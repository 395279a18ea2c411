-- Periodic jobs. Rust: src/api/periodic.rs, src/ticks.rs

CREATE TYPE jobs.schedule_result AS (
  outcome     text,
  next_run_at timestamptz);
COMMENT ON TYPE jobs.schedule_result IS
  'Whether a periodic job was created, changed or unchanged, and its next tick.';

CREATE FUNCTION jobs.schedule(
  name text, cron text, kind text, args jsonb DEFAULT '{}', time_zone text DEFAULT 'UTC', unique_opts jsonb DEFAULT NULL,
  queue text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL,
  meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, missed text DEFAULT 'once',
  reason text DEFAULT NULL)
RETURNS jobs.schedule_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'schedule_wrapper';
COMMENT ON FUNCTION jobs.schedule(text, text, text, jsonb, text, jsonb, text, integer, integer, text[], jsonb, interval, jsonb, text, text) IS
$$Defines a periodic job: each tick inserts one job as jobs.insert does, with the tick as scheduled_at. Returns outcome (created, changed or unchanged) and the next tick (null: paused).
Replaces a definition of the same name as a whole, after its elapsed ticks are handled. A paused one stays paused. An identical definition has no effect.
- cron: minute, hour, day of month, month and day of week; or @hourly, @daily, @weekly, @monthly, @yearly; or every and a fixed duration (every 90 seconds), counted from 0001-01-01 00:00 UTC. Days can be L (last day of the month), 15W (nearest weekday), 5L (last Friday) and 1#2 (second Monday)
- time_zone: a name from pg_timezone_names; offsets such as UTC+3 and abbreviations are refused
- missed: what happens to ticks that are more than 60 seconds late because neither server nor worker ran. once: the latest gets a job; skip: none does
- other options: as jobs.insert; null: the default at the tick
Each tick inserts one job, or none if it is a duplicate or cannot be inserted; jobs.periodic shows why.
Errors: as jobs.insert; 22023 (invalid cron, time_zone or missed).$$;

CREATE FUNCTION jobs.unschedule(
  name text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unschedule_wrapper';
COMMENT ON FUNCTION jobs.unschedule(text, text) IS
$$Removes a periodic job. Returns true if it existed. Jobs that it has inserted are unaffected.$$;

CREATE FUNCTION jobs.pause_periodic(
  name text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_periodic_wrapper';
COMMENT ON FUNCTION jobs.pause_periodic(text, text) IS
$$Pauses a periodic job until jobs.resume_periodic. An elapsed tick that has no job yet gets none. Jobs that it has inserted are unaffected. Has no effect if it is already paused.
Errors: P0002 (no such name).$$;

CREATE FUNCTION jobs.resume_periodic(
  name text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_periodic_wrapper';
COMMENT ON FUNCTION jobs.resume_periodic(text, text) IS
$$Resumes a paused periodic job from its next tick on; ticks during the pause get no jobs. Has no effect if it is not paused.
Errors: as jobs.pause_periodic; 22023 (the server no longer knows the time zone).$$;

CREATE FUNCTION jobs.run_periodic(
  name text, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'run_periodic_wrapper';
COMMENT ON FUNCTION jobs.run_periodic(text, text) IS
$$Inserts the job of a periodic job now, even while that is paused. The schedule is unaffected. Returns the id of the new job or, if it is skipped as a duplicate, of the existing one.
Errors: as jobs.insert; P0002 (no such name).$$;
