-- Registration and commands of workers. Rust: src/api/workers.rs

CREATE FUNCTION jobs.worker_beat(
  worker text, queues text[], concurrency integer, info jsonb DEFAULT NULL)
RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'worker_beat_wrapper';
COMMENT ON FUNCTION jobs.worker_beat(text, text[], integer, jsonb) IS
$$Returns the worker's command: run, quiet (fetch nothing, let running jobs end) or stop (likewise, then exit).
Registers the worker, by the name that it fetches with, in jobs.workers: its queues (at most 10000), how many jobs it runs at a time, and info, an object whose version has its own column. Replaces earlier values; an identical call within 3 seconds writes nothing.
Call it at least every 30 seconds; after 60 seconds the worker counts as lost. It does not renew leases.
Errors: 22023 (concurrency below 1, invalid name, info not an object), 54000 (info longer than jobs.max_payload).$$;

CREATE FUNCTION jobs.worker_leave(
  worker text)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'worker_leave_wrapper';
COMMENT ON FUNCTION jobs.worker_leave(text) IS
$$Removes a worker from jobs.workers: the last call of a worker that stops. Returns true if the worker had called jobs.worker_beat. Has no effect while the worker holds jobs. A command of the worker is still shown.$$;

CREATE FUNCTION jobs.quiet_worker(
  worker text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'quiet_worker_wrapper';
COMMENT ON FUNCTION jobs.quiet_worker(text, text) IS
$$Stops a worker, by the name that it fetches with, from fetching until jobs.resume_worker: its fetches return nothing, and jobs.worker_beat returns quiet. Running jobs and heartbeats are unaffected. The worker need not have called jobs.worker_beat. Has no effect if it is already quiet.
The command survives restarts and dumps, until the worker has run no jobs, fetched nothing and not called jobs.worker_beat for 30 days.$$;

CREATE FUNCTION jobs.stop_worker(
  worker text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stop_worker_wrapper';
COMMENT ON FUNCTION jobs.stop_worker(text, text) IS
$$As jobs.quiet_worker, but jobs.worker_beat returns stop: the worker exits once its running jobs have ended. A new worker of this name gets the same command, until jobs.resume_worker.$$;

CREATE FUNCTION jobs.resume_worker(
  worker text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_worker_wrapper';
COMMENT ON FUNCTION jobs.resume_worker(text, text) IS
$$Removes the worker's command, if it has one.$$;
