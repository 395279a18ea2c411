-- Defaults of kinds and settings of queues. Rust: src/api/configure.rs

CREATE FUNCTION jobs.define_kind(
  kind text, queue text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL,
  timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, unique_opts jsonb DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'define_kind_wrapper';
COMMENT ON FUNCTION jobs.define_kind(text, text, integer, integer, interval, jsonb, jsonb, text) IS
$$Sets the defaults of a kind, for inserts by every client; null means the system's default. Replaces an earlier definition. Existing jobs are unaffected. An insert with unique_opts '{}' is not unique, whatever the kind's default. The queue may be another cell's.
Errors: as jobs.insert, but JB001 only in a retired cell.$$;

CREATE FUNCTION jobs.undefine_kind(
  kind text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'undefine_kind_wrapper';
COMMENT ON FUNCTION jobs.undefine_kind(text, text) IS
$$Removes the defaults of a kind. Returns true if it had any. Existing jobs are unaffected.$$;

CREATE FUNCTION jobs.pause_queue(
  queue text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_queue_wrapper';
COMMENT ON FUNCTION jobs.pause_queue(text, text) IS
$$Pauses a queue: fetches return nothing from it until jobs.resume_queue. Running jobs, inserts and maintenance are unaffected. The queue need not exist yet. Has no effect if it is already paused.$$;

CREATE FUNCTION jobs.resume_queue(
  queue text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_queue_wrapper';
COMMENT ON FUNCTION jobs.resume_queue(text, text) IS
$$Resumes a paused queue. Has no effect if it is not paused.$$;

CREATE FUNCTION jobs.configure_queue(
  queue text, concurrency integer DEFAULT NULL, rate integer DEFAULT NULL, rate_period interval DEFAULT NULL,
  retention_completed interval DEFAULT NULL, retention_cancelled interval DEFAULT NULL, retention_discarded interval DEFAULT NULL,
  max_waiting integer DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'configure_queue_wrapper';
COMMENT ON FUNCTION jobs.configure_queue(text, integer, integer, interval, interval, interval, interval, integer, text) IS
$$Sets all limits of a queue; null means no limit or, for retention, the default.
- concurrency: how many jobs can run at a time, across all workers (1 to 10000)
- rate, rate_period: how many jobs can start within any period of this length (1 to 100000); both or neither
- retention_..: how long final jobs are kept; -1 second: forever
- max_waiting, the bound: how many jobs can be available, scheduled, retryable or pending
A fetch can return fewer jobs than the limits allow. Running jobs count towards a new concurrency; started jobs do not count towards a new rate.
An insert beyond the bound fails with 54000, DETAIL {"depth": waiting jobs, counted up to the bound, "bound": ..}; a batch fails as a whole. Duplicates do not count. A periodic job is retried every second. Nothing else is refused.
Errors: 40P01 (with a transaction that configures or pauses several queues).$$;

CREATE FUNCTION jobs.reset_queue(
  queue text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'reset_queue_wrapper';
COMMENT ON FUNCTION jobs.reset_queue(text, text) IS
$$Removes a queue's settings, so that it has no limits and the default retention. Returns true if the queue had settings. A paused queue stays paused.$$;
