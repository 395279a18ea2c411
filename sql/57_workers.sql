-- Workers as operators see them. Rust: src/api/workers.rs

CREATE FUNCTION jobs.worker_beat(
  worker text, queues text[], concurrency integer, info jsonb DEFAULT NULL)
RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'worker_beat_wrapper';
COMMENT ON FUNCTION jobs.worker_beat(text, text[], integer, jsonb) IS
$$A worker says that it is there, under the name that it fetches with: which queues it takes jobs from, how many it runs at a time, and what else is worth knowing (info: an object; version is shown by itself). The view jobs.workers shows it then, idle or not.
To be called at least every 30 seconds: a worker that was not seen for 60 seconds is shown as lost. It renews no lease: that is what jobs.heartbeat is for. What was said before is replaced; said again within 3 seconds, nothing is written.
Returns the command of the worker: run; quiet (fetch no more, let what runs end); stop (the same, and then end).
At most 10000 queues. Errors: 22023 more queues, a concurrency below 1, a bad name, info that is no object; 54000 info whose text is longer than jobs.max_payload; 22004, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE.$$;

CREATE FUNCTION jobs.quiet_worker(
  worker text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'quiet_worker_wrapper';
COMMENT ON FUNCTION jobs.quiet_worker(text, text) IS
$$Stops a worker from fetching, until jobs.resume_worker: from the next fetch on it gets nothing, whatever its program does, and jobs.worker_beat tells it. What it runs goes on, heartbeats too. It need not have said that it is there: the name that it fetches with counts. A worker that has this command already stays as it is. Kept in the database: it outlives restarts, and dumps have it. Maintenance forgets it once the worker has neither fetched nor said that it is there for 30 days, and runs nothing.
Errors: 22023 a bad name, 22004, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when it got another command meanwhile.$$;

CREATE FUNCTION jobs.stop_worker(
  worker text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stop_worker_wrapper';
COMMENT ON FUNCTION jobs.stop_worker(text, text) IS
$$As jobs.quiet_worker, and jobs.worker_beat asks the worker to end once what it runs is done. A worker that starts again under that name has the same command, until jobs.resume_worker. Errors: as jobs.quiet_worker.$$;

CREATE FUNCTION jobs.resume_worker(
  worker text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_worker_wrapper';
COMMENT ON FUNCTION jobs.resume_worker(text, text) IS
$$Takes back the command that jobs.quiet_worker or jobs.stop_worker gave a worker; one that has none stays as it is. Errors: as jobs.quiet_worker.$$;
