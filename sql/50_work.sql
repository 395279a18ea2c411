-- Fetches, finishing calls and calls that manage jobs. Rust:
-- src/api/work_fetch.rs, src/api/work_wait.rs, src/api/work_results.rs,
-- src/api/work_finish.rs, src/api/work_finish_many.rs, src/api/work_manage.rs

CREATE TYPE jobs.fetched_job AS (
  id               bigint,
  token            bigint,
  attempt          integer,
  kind             text,
  args             jsonb,
  meta             jsonb,
  queue            text,
  priority         integer,
  tags             text[],
  max_attempts     integer,
  created_at       timestamptz,
  scheduled_at     timestamptz,
  attempted_at     timestamptz,
  lease_expires_at timestamptz,
  deadline_at      timestamptz);
COMMENT ON TYPE jobs.fetched_job IS
  'A job that a worker has fetched, with the token of this attempt.';

CREATE FUNCTION jobs.fetch(
  queue text DEFAULT 'default', max_jobs integer DEFAULT 1, worker text DEFAULT NULL,
  lease interval DEFAULT NULL, kinds text[] DEFAULT NULL, min_jobs integer DEFAULT 1, linger interval DEFAULT NULL)
RETURNS SETOF jobs.fetched_job
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'fetch_wrapper';
COMMENT ON FUNCTION jobs.fetch(text, integer, text, interval, text[], integer, interval) IS
$$Returns up to max_jobs (1 to 10000) available or due jobs of a queue, and makes them running: the lowest priority number first, then in the order in which they became available. Commit at once.
- token: new for each attempt, and required by later calls about it
- worker: 1 to 127 characters, no control characters; defaults to application_name, then to the process id
- lease: how long the server waits for a heartbeat, at most until the deadline (start + timeout); defaults to the job's timeout, then to 1 hour
- kinds: fetches only these
- min_jobs (1 to max_jobs): returns nothing until so many jobs can start, or the oldest has been available for linger (null: no limit)
A job whose args, meta and tags exceed 768 MB of text cannot be returned: it is discarded with an error of type too_long.$$;

CREATE FUNCTION jobs.fetch_any(
  queues text[], max_jobs integer DEFAULT 1, worker text DEFAULT NULL,
  lease interval DEFAULT NULL, kinds text[] DEFAULT NULL, min_jobs integer DEFAULT 1, linger interval DEFAULT NULL)
RETURNS SETOF jobs.fetched_job
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'fetch_any_wrapper';
COMMENT ON FUNCTION jobs.fetch_any(text[], integer, text, interval, text[], integer, interval) IS
$$As jobs.fetch, from several queues (at most 10000) in strict order: a queue is fetched from only when those before it have no jobs left. min_jobs counts the jobs of all queues. Errors: as jobs.fetch.$$;

-- A procedure that ends transactions can be neither SECURITY DEFINER nor have settings. It switches
-- to its owner to read the tables.
CREATE PROCEDURE jobs.wait(
  queue text DEFAULT 'default', timeout interval DEFAULT '30 s')
LANGUAGE c
AS 'MODULE_PATHNAME', 'wait_wrapper';
COMMENT ON PROCEDURE jobs.wait(text, interval) IS
$$Returns when a job of the queue may be ready to fetch, at the latest after timeout (0: at once). Another worker can get the job first.
While waiting it holds no snapshot, transaction id or table lock. It ends the transaction: call it on its own, in autocommit mode. Without preload it polls ten times a second.
Errors: 25001 (inside a transaction block), 25006 (on a standby).$$;

CREATE PROCEDURE jobs.wait_any(
  queues text[], timeout interval DEFAULT '30 s', worker text DEFAULT NULL)
LANGUAGE c
AS 'MODULE_PATHNAME', 'wait_any_wrapper';
COMMENT ON PROCEDURE jobs.wait_any(text[], interval, text) IS
$$As jobs.wait, for several queues (at most 10000).
With worker, the name that the worker fetches with, it also returns on a request: one of the worker's jobs is to be cancelled, or the worker gets a command (see jobs.worker_beat). Only requests since the call began, or since the session's last call for this worker, count. Without preload it polls for them once a second.
A worker with the command quiet or stop waits for requests alone, as with no queues.
Errors: as jobs.wait.$$;

CREATE PROCEDURE jobs.wait_for(
  ids bigint[], timeout interval DEFAULT '30 s', want text DEFAULT 'all')
LANGUAGE c
AS 'MODULE_PATHNAME', 'wait_for_wrapper';
COMMENT ON PROCEDURE jobs.wait_for(bigint[], interval, text) IS
$$Returns when all of the jobs (at most 10000) are over or, with want => 'any', one of them, at the latest after timeout (0: at once). A job is over when it is final or does not exist: it was deleted, pruned or never committed. jobs.results returns the outcomes.
ids can be empty, unordered and repeated. Call it as jobs.wait. On a standby it polls 10 times a second.
Errors: as jobs.wait but for 25006; 22023 (want is neither all nor any).$$;

CREATE TYPE jobs.job_result AS (
  ord          integer,
  id           bigint,
  state        jobs.state,
  output       jsonb,
  error        text,
  finalized_at timestamptz);
COMMENT ON TYPE jobs.job_result IS 'The outcome of one of several jobs.';

-- Not SECURITY DEFINER: it shows what its caller can see.
CREATE FUNCTION jobs.results(
  ids bigint[])
RETURNS SETOF jobs.job_result
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'results_wrapper';
COMMENT ON FUNCTION jobs.results(bigint[]) IS
$$Returns the outcomes of jobs (at most 10000): a row per id, in order (ord from 1).
- state: the current state; null if the job does not exist
- output: what jobs.complete was given; null without SELECT on jobs.job
- error: the text of the latest failed attempt; null without SELECT on jobs.errors
- finalized_at: when the job became final; null if it is not
Works on a standby.$$;

CREATE FUNCTION jobs.complete(
  id bigint, token bigint, output jsonb DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'complete_wrapper';
COMMENT ON FUNCTION jobs.complete(bigint, bigint, jsonb) IS
$$Completes a running job, even after a cancel request, as part of your transaction. Returns the state.
A repeated call with the same token returns the same result, whatever its other arguments.
Errors:
- 55000, DETAIL already_finished: another finishing call has used the token
- 55000, DETAIL lease_lost: the token is not that of the current attempt
- 54000: output is longer than jobs.max_payload as text
- P0002$$;

CREATE TYPE jobs.batch_complete_result AS (
  id    bigint,
  state jobs.state,
  done  boolean);
COMMENT ON TYPE jobs.batch_complete_result IS
  'Whether one of many jobs was completed, and its current state.';

CREATE FUNCTION jobs.complete_many(
  ids bigint[], tokens bigint[], outputs jsonb[] DEFAULT NULL)
RETURNS SETOF jobs.batch_complete_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'complete_many_wrapper';
COMMENT ON FUNCTION jobs.complete_many(bigint[], bigint[], jsonb[]) IS
$$Completes many jobs (at most 10000), each independently of the others, with its element of outputs (null: none). Returns a row per job, in order.
- done: this token completed the job, now or by an earlier complete, complete_many or finish_many
- state: the current state; null if the job does not exist
If another transaction has a job locked, the call waits; jobs.finish_many does not.
Errors: 22004 (ids, tokens), 22023 (arrays of different lengths), 54000 (an output longer than jobs.max_payload).$$;

CREATE TYPE jobs.finish_result AS (
  state        jobs.state,
  scheduled_at timestamptz);
COMMENT ON TYPE jobs.finish_result IS
  'The state of a job after an attempt, and when it can run again.';

CREATE FUNCTION jobs.fail(
  id bigint, token bigint, error text, retry_in interval DEFAULT NULL, retryable boolean DEFAULT true, details jsonb DEFAULT NULL)
RETURNS jobs.finish_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'fail_wrapper';
COMMENT ON FUNCTION jobs.fail(bigint, bigint, text, interval, boolean, jsonb) IS
$$Records a failed attempt. Returns the state, and when the job is retried (null: never).
The job becomes retryable after retry_in, which defaults to the delay of its retry policy (see jobs.insert); with a delay of 0 it is available at once. It is discarded at max_attempts, with retryable => false, or if the policy's non_retryable has the type of the error (details: {"type": ..}). After a cancel request it is cancelled.
An error longer than 1,000,000 bytes is cut, and says so.
Repeated calls and errors: as jobs.complete (54000 for details); 22023 (negative retry_in).$$;

CREATE TYPE jobs.batch_fail_result AS (
  id           bigint,
  state        jobs.state,
  scheduled_at timestamptz,
  done         boolean);
COMMENT ON TYPE jobs.batch_fail_result IS
  'Whether a failed attempt of one of many jobs was recorded, its state, and when it can run again.';

CREATE FUNCTION jobs.fail_many(
  ids bigint[], tokens bigint[], errors text[], details jsonb[] DEFAULT NULL, retry_in interval DEFAULT NULL)
RETURNS SETOF jobs.batch_fail_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'fail_many_wrapper';
COMMENT ON FUNCTION jobs.fail_many(bigint[], bigint[], text[], jsonb[], interval) IS
$$Fails the attempts of many jobs (at most 10000) as jobs.fail does, each independently of the others, with its elements of errors and details (null: none). retry_in applies to all. Returns a row per job, in order.
- done: this token failed the job, now or by an earlier fail, fail_many or finish_many
- state, scheduled_at: those after the failure; if not done, the current state, null if the job does not exist
If another transaction has a job locked, the call waits; jobs.finish_many does not.
Errors: 22004 (ids, tokens, errors), 22023 (arrays of different lengths, negative retry_in), 54000 (details longer than jobs.max_payload).$$;

CREATE TYPE jobs.batch_finish_result AS (
  ord          integer,
  id           bigint,
  state        jobs.state,
  scheduled_at timestamptz,
  done         boolean,
  reason       text);
COMMENT ON TYPE jobs.batch_finish_result IS
  'The outcome of one of many attempts, or the reason why it could not be finished.';

CREATE FUNCTION jobs.finish_many(
  results jsonb)
RETURNS SETOF jobs.batch_finish_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'finish_many_wrapper';
COMMENT ON FUNCTION jobs.finish_many(jsonb) IS
$$Finishes many attempts (at most 10000), each in its own way and independently of the others. results is an array of objects with id, token, do and the members of that do:
- complete: output (optional)
- fail: error; details, retry_in, retryable (optional)
- snooze: delay
- release
- cancel: reason (optional). The worker cancels its own job, as by jobs.cancel and jobs.release in one
Durations are seconds, ISO 8601 or Postgres interval text. JSON null means absent, except for output.
Returns a row per result, in order (ord from 1). Of results with the same id and token, the first one counts.
- done: this result, sent now or before, finished the attempt
- state, scheduled_at: those after the attempt; if not done, the current state, null if the job does not exist
- reason: if not done, lease_lost, already_finished or unknown, as for a single call, or locked: another transaction still had the job locked after 1 second, or half of statement_timeout if less. Send a locked result again, and continue heartbeats
Errors change nothing and name the element in DETAIL:
- 22023: not an array, an unknown member or do, a member of another do, a wrong type, negative delay or retry_in
- 22004: no id, token, do, error or delay
- 54000: output or details longer than jobs.max_payload
- 40P01: only in a transaction with several calls for many jobs$$;

CREATE FUNCTION jobs.snooze(
  id bigint, token bigint, delay interval)
RETURNS jobs.finish_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'snooze_wrapper';
COMMENT ON FUNCTION jobs.snooze(bigint, bigint, interval) IS
$$Makes a running job scheduled, due after delay. The attempt does not count, and no error is recorded. After a cancel request it is cancelled instead. Returns the state, and when the job is due.
Repeated calls and errors: as jobs.complete; 22023 (negative delay).$$;

CREATE FUNCTION jobs.release(
  id bigint, token bigint)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'release_wrapper';
COMMENT ON FUNCTION jobs.release(bigint, bigint) IS
$$Makes a running job available again, because its worker shuts down. The attempt does not count, and no error is recorded. After a cancel request it is cancelled instead. Returns the state.
Repeated calls and errors: as jobs.complete.$$;

CREATE TYPE jobs.heartbeat_result AS (
  lease_expires_at timestamptz,
  deadline_at      timestamptz,
  cancel_requested boolean);
COMMENT ON TYPE jobs.heartbeat_result IS
  'The lease of a running job, and whether its worker should stop.';

CREATE FUNCTION jobs.heartbeat(
  id bigint, token bigint, lease interval DEFAULT NULL, progress jsonb DEFAULT NULL)
RETURNS jobs.heartbeat_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'heartbeat_wrapper';
COMMENT ON FUNCTION jobs.heartbeat(bigint, bigint, interval, jsonb) IS
$$Renews the lease of a running job, at most to the deadline, and records progress unless it is null. lease defaults to that of the fetch. Returns both times, and cancel_requested: whether the worker should stop.
Never waits: while another transaction has the job locked, the call returns the old lease and records no progress. The lease is renewed when that transaction ends.
Errors:
- 55000, DETAIL already_finished: a finishing call has used the token
- 55000, DETAIL lease_lost: the token is not that of the current attempt
- 55000, DETAIL deadline_exceeded: the deadline has passed
- 22023: lease is not positive
- 54000: progress is longer than jobs.max_payload as text
- P0002$$;

CREATE FUNCTION jobs.cancel(
  id bigint, reason text DEFAULT NULL, force boolean DEFAULT false)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'cancel_wrapper';
COMMENT ON FUNCTION jobs.cancel(bigint, text, boolean) IS
$$Cancels a job that is not final. Returns the state.
A running job keeps running with cancel_requested_at set; its worker is told at the next heartbeat and on channel jobs. With force it is cancelled at once, and its worker's later calls are refused. A second request only changes the reason. A final job is unaffected.
Errors: P0002.$$;

CREATE FUNCTION jobs.retry(
  id bigint, reset boolean DEFAULT false, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'retry_wrapper';
COMMENT ON FUNCTION jobs.retry(bigint, boolean, text) IS
$$Makes a scheduled, retryable, pending or final job available. Returns the state. If no attempts are left, max_attempts grows by 1. reset sets attempt to 0 and keeps the errors. An available or running job is unaffected.
Errors: P0002.$$;

CREATE FUNCTION jobs.delete(
  id bigint, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'delete_wrapper';
COMMENT ON FUNCTION jobs.delete(bigint, text) IS
$$Deletes a job that is not running, and its errors. Returns the state that the job had.
Errors: 55000 (the job is running), P0002.$$;

CREATE TYPE jobs.batch_heartbeat_result AS (
  id               bigint,
  lease_expires_at timestamptz,
  deadline_at      timestamptz,
  cancel_requested boolean);
COMMENT ON TYPE jobs.batch_heartbeat_result IS
  'The lease of one of many running jobs. For a lost job, all columns but id are null.';

CREATE FUNCTION jobs.heartbeat_many(
  ids bigint[], tokens bigint[], lease interval DEFAULT NULL)
RETURNS SETOF jobs.batch_heartbeat_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'heartbeat_many_wrapper';
COMMENT ON FUNCTION jobs.heartbeat_many(bigint[], bigint[], interval) IS
$$Renews the leases of many jobs (at most 10000) as jobs.heartbeat does. Returns a row per job, in order; all but id are null if the token is not current or the deadline has passed. Never waits.
Errors: 22023 (arrays of different lengths, lease not positive).$$;

CREATE FUNCTION jobs.activate(
  id bigint, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'activate_wrapper';
COMMENT ON FUNCTION jobs.activate(bigint, text) IS
$$Makes a pending job available, or scheduled if its scheduled_at is in the future. Returns the state.
Errors: 55000 (the job is not pending), P0002.$$;

CREATE FUNCTION jobs.update(
  id bigint, args jsonb DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL,
  max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL,
  retry jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'update_wrapper';
COMMENT ON FUNCTION jobs.update(bigint, jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, text) IS
$$Changes a job that is neither running nor final. Returns the state. Null leaves a field unchanged, and the unique key never changes.
A new scheduled_at makes the job scheduled or available, but a pending job stays pending. Setting queue or priority moves an available job to the end of that lane, even if the value is the same.
Errors: 55000 (the job is running or final), 22023 and 54000 as jobs.insert (args and meta together, even if only one changes), P0002.$$;

CREATE FUNCTION jobs.cancel_many(
  queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL,
  older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'cancel_many_wrapper';
COMMENT ON FUNCTION jobs.cancel_many(text, text, jobs.state[], text, interval, integer, text) IS
$$Cancels the jobs that match all filters as jobs.cancel does, the oldest first, at most max_jobs (1 to 10000). Returns how many. Running jobs with a cancel request are left out.
A null filter matches every job; older_than is the age since created_at. At least one filter is required: to match all jobs, pass all states.
Errors: 22023 (no filter, negative older_than), 40P01.$$;

CREATE FUNCTION jobs.retry_many(
  queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL,
  older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000,
  reset boolean DEFAULT false, error_like text DEFAULT NULL, failed_after timestamptz DEFAULT NULL, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'retry_many_wrapper';
COMMENT ON FUNCTION jobs.retry_many(text, text, jobs.state[], text, interval, integer, boolean, text, timestamptz, text) IS
$$Retries the jobs that match all filters as jobs.retry does, the oldest first, at most max_jobs (1 to 10000). Returns how many. Available and running jobs are left out. reset sets attempt to 0.
Filters are those of jobs.cancel_many, and two for the latest error, which alone match no completed job:
- error_like: LIKE pattern of its text; \ escapes % and _
- failed_after: it occurred after this time
Errors: as jobs.cancel_many; 22023 (error_like ends with a single backslash, infinite failed_after).$$;

CREATE FUNCTION jobs.delete_many(
  queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL,
  older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'delete_many_wrapper';
COMMENT ON FUNCTION jobs.delete_many(text, text, jobs.state[], text, interval, integer, text) IS
$$Deletes the jobs that match all filters as jobs.delete does, the oldest first, at most max_jobs (1 to 10000). Returns how many. Running jobs are left out.
Filters and errors: as jobs.cancel_many.$$;
