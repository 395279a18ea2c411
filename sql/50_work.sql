-- Claim jobs, finish them, move them about.
-- Rust: src/api/work_fetch.rs, src/api/work_wait.rs, src/api/work_results.rs,
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
$$Fetches up to max_jobs (1 to 10000) available jobs of a queue for this worker: lower priority number first, then in the order in which they became available. Never waits for another fetch.
Each row has a new token: every later call about this attempt needs it. worker: a name of 1 to 127 characters, none of them a control character; null or empty: application_name, else the process id. kinds: only these.
lease: how long the server waits for a heartbeat (default: the job's timeout, else 1 hour); never past the deadline (start + timeout).
min_jobs (1 to max_jobs): nothing, unless so many may start now, or the one of them that is available for longest is so for linger (null: never fewer). Fetches with min_jobs above 1 take turns with those of the same queue, and sometimes with those of other queues.
Jobs that are due but not yet moved by the background worker are taken too. Commit at once.
A job whose row cannot be returned, because args, meta and tags have more than 768 MB of text, is discarded with an error of type too_long, and the other jobs are returned.
Errors: 22023, 22004, 25006; 40001 under REPEATABLE READ and SERIALIZABLE.$$;

CREATE FUNCTION jobs.fetch_any(
  queues text[], max_jobs integer DEFAULT 1, worker text DEFAULT NULL,
  lease interval DEFAULT NULL, kinds text[] DEFAULT NULL, min_jobs integer DEFAULT 1, linger interval DEFAULT NULL)
RETURNS SETOF jobs.fetched_job
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'fetch_any_wrapper';
COMMENT ON FUNCTION jobs.fetch_any(text[], integer, text, interval, text[], integer, interval) IS
$$As jobs.fetch over several queues, in the strict order given: a queue is looked at only when the ones before it have nothing left. min_jobs counts the jobs of all of them together. At most 10000 queues (22023).$$;

-- Ends transactions, so it can be neither SECURITY DEFINER nor have settings of its own: it looks
-- at the tables as its owner.
CREATE PROCEDURE jobs.wait(
  queue text DEFAULT 'default', timeout interval DEFAULT '30 s')
LANGUAGE c
AS 'MODULE_PATHNAME', 'wait_wrapper';
COMMENT ON PROCEDURE jobs.wait(text, interval) IS
$$Returns as soon as a job of the queue may be ready to be fetched, else after the timeout (0: at once): woken by the commit that makes it available, or when it is due. There may be none then: another worker can get the job first.
A job that an earlier call of the session has returned for, and that is still there, is kept back: for 0.1 seconds, and with preload for twice as long each time, up to a second. Such a job is locked, or of a kind that was not asked for. A commit ends the wait all the same.
While it waits it holds no snapshot, transaction id or table lock. It ends the transaction, so it must be a statement of its own, in autocommit mode. Without preload it looks ten times a second.
Errors: 25001 inside a transaction block, 22023, 22004 a null, 25006 on a standby.$$;

CREATE PROCEDURE jobs.wait_any(
  queues text[], timeout interval DEFAULT '30 s', worker text DEFAULT NULL)
LANGUAGE c
AS 'MODULE_PATHNAME', 'wait_any_wrapper';
COMMENT ON PROCEDURE jobs.wait_any(text[], interval, text) IS
$$As jobs.wait for several queues: returns when a job of one of them may be ready. With worker, the name that it fetches with, it also returns when one of the worker's jobs is asked to stop, and when the worker gets another command: jobs.quiet_worker, stop_worker, resume_worker. jobs.heartbeat and jobs.worker_beat say what it is.
Of these requests only new ones count: those since the call began, or since the session's last call for that worker. A worker that is quiet or to stop gets no jobs, so jobs do not end its wait. With a worker and no queue at all it waits for these requests alone. Without preload it looks once a second for these requests.
At most 10000 queues. Errors: as jobs.wait; 22023 more queues.$$;

CREATE PROCEDURE jobs.wait_for(
  ids bigint[], timeout interval DEFAULT '30 s', want text DEFAULT 'all')
LANGUAGE c
AS 'MODULE_PATHNAME', 'wait_for_wrapper';
COMMENT ON PROCEDURE jobs.wait_for(bigint[], interval, text) IS
$$Returns once it has seen that all of the jobs are over, or with want => 'any' one of them, else after the timeout (0: at once). A job is over when it is completed, cancelled or discarded. A job that is not there is over, too: it was deleted or pruned, or never inserted and committed.
The call checks when it begins, when the job ends that it waits for at the moment, and from time to time. A job that was over at a check counts, even if it is retried later. A job that was over only between two checks does not.
At most 10000 ids, in any order and more than once; none at all: it returns at once. jobs.results says what became of them.
Woken by the commit that ends a job; while it waits it holds no snapshot, transaction id or table lock. It ends the transaction, so it must be a statement of its own, in autocommit mode. Without preload it looks ten times a second.
Errors: 25001 inside a transaction block; 22023 more than 10000 ids, another want, a negative timeout; 22004 a null, also as an element; 25006 on a standby.$$;

CREATE TYPE jobs.job_result AS (
  ord          integer,
  id           bigint,
  state        jobs.state,
  output       jsonb,
  error        text,
  finalized_at timestamptz);
COMMENT ON TYPE jobs.job_result IS
  'What became of one of several jobs.';

-- Not SECURITY DEFINER: what it shows is what its caller may see.
CREATE FUNCTION jobs.results(
  ids bigint[])
RETURNS SETOF jobs.job_result
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'results_wrapper';
COMMENT ON FUNCTION jobs.results(bigint[]) IS
$$What became of jobs: a row per id, in order, ord from 1. state: as it is now, null where there is no such job, or no more. output: what jobs.complete was given; error: the text of the latest failed attempt; finalized_at: since when the job is final, null while it is not.
The caller sees output with SELECT on jobs.job, and error with SELECT on jobs.errors, as in the views; else they are null. So a producer sees how its jobs ended, but no job's output: a program that is to read it is granted application (docs/security.md).
At most 10000 ids. Works on a standby. Errors: 22023 more of them; 22004 a null, also as an element.$$;

CREATE FUNCTION jobs.complete(
  id bigint, token bigint, output jsonb DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'complete_wrapper';
COMMENT ON FUNCTION jobs.complete(bigint, bigint, jsonb) IS
$$Finishes a running job: completed, with its output. Also after a cancel request. Part of the caller's transaction.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 54000 an output whose text is longer than jobs.max_payload, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE TYPE jobs.batch_complete_result AS (
  id    bigint,
  state jobs.state,
  done  boolean);
COMMENT ON TYPE jobs.batch_complete_result IS
  'Whether one of many jobs was completed, and its state now.';

CREATE FUNCTION jobs.complete_many(
  ids bigint[], tokens bigint[], outputs jsonb[] DEFAULT NULL)
RETURNS SETOF jobs.batch_complete_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'complete_many_wrapper';
COMMENT ON FUNCTION jobs.complete_many(bigint[], bigint[], jsonb[]) IS
$$Completes many jobs, each with its output (outputs, or one of them, null: none); a row per pair, in order, never all or nothing. done: this token completed the job, now or by an earlier call of complete, complete_many or finish_many, and not so where another call has used it; state: the job's state now, null where there is no such job.
It waits for a transaction that has one of the jobs locked, and the others wait with it: jobs.finish_many leaves that job instead.
At most 10000. Errors: 22023 arrays of different length, more than 10000; 22004 a null in ids or tokens, 54000 an output whose text is longer than jobs.max_payload, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

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
$$Records a failed attempt. Attempts left: retryable after retry_in, else after the job's policy (see jobs.insert); available at once if that is 0.
An error longer than 1,000,000 bytes is cut; the text that is kept says so.
At max_attempts, with retryable => false, or when the policy's non_retryable has the type of the error (details: {"type": ..}): discarded. After a cancel request: cancelled. scheduled_at: when it will be retried, null when final.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id, token or error, 54000 details whose text is longer than jobs.max_payload, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved, 22023 a negative retry_in.$$;

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
$$Records failed attempts of many jobs, each as jobs.fail does, with its error and its details (details, or one of them, null: none); a row per pair, in order, never all or nothing. retry_in counts for all of them.
done: this token failed the job, now or by an earlier call of fail, fail_many or finish_many; state and scheduled_at are then those that it got, else state is the job's state now, null where there is no such job.
It waits for a transaction that has one of the jobs locked, and the others wait with it: jobs.finish_many leaves that job instead.
At most 10000. Errors: 22023 arrays of different length, more than 10000, a negative retry_in; 22004 a null in ids, tokens or errors; 54000 details whose text is longer than jobs.max_payload; 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE TYPE jobs.batch_finish_result AS (
  ord          integer,
  id           bigint,
  state        jobs.state,
  scheduled_at timestamptz,
  done         boolean,
  reason       text);
COMMENT ON TYPE jobs.batch_finish_result IS
  'What became of one of many jobs whose attempts were to end, or the reason why its attempt could not.';

CREATE FUNCTION jobs.finish_many(
  results jsonb)
RETURNS SETOF jobs.batch_finish_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'finish_many_wrapper';
COMMENT ON FUNCTION jobs.finish_many(jsonb) IS
$$Ends the attempts of many jobs, each in its own way: results is an array of objects with id, token and do. do is one of complete (may have output), fail (error; may have details, retry_in, retryable), snooze (delay) and release, and means what the function of that name does; or it is cancel (may have reason): the worker itself cancels the job, as by jobs.cancel and jobs.release in one. Durations are seconds, ISO 8601 or Postgres interval text. JSON null leaves a member out, but it is a value of output.
A row per result, in order (ord from 1), never all or nothing. done: this call ended the attempt, or the same call did before; state and scheduled_at are then those that the job got. Else reason is lease_lost, already_finished or unknown, as of a call for one job, or locked, and state is the job's state now, null where there is no such job. locked: another transaction still had the job locked after a second, or half of statement_timeout where that is less, as an open jobs.cancel does. Nothing is lost: send the result again, and go on with heartbeats. Of results with the same id and token the first one counts.
At most 10000. Jobs are locked in the order of their ids, as by all calls for many: only a transaction with several such calls can get 40P01. Errors, each with the element in DETAIL, and then nothing is changed: 22023 no array, an unknown member or do, a member that goes with another do, a wrong type, a negative delay or retry_in, more than 10000; 22004 no id, token, do, error or delay; 54000 output or details whose text is longer than jobs.max_payload; 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.snooze(
  id bigint, token bigint, delay interval)
RETURNS jobs.finish_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'snooze_wrapper';
COMMENT ON FUNCTION jobs.snooze(bigint, bigint, interval) IS
$$Gives a running job back until delay from now: scheduled, the attempt does not count, no error is recorded. After a cancel request: cancelled.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved, 22023 a negative delay.$$;

CREATE FUNCTION jobs.release(
  id bigint, token bigint)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'release_wrapper';
COMMENT ON FUNCTION jobs.release(bigint, bigint) IS
$$Gives a running job back at once (the worker shuts down): available, the attempt does not count, no error is recorded. After a cancel request: cancelled.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

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
$$A heartbeat: renews the lease (null: as long as the fetch asked for), never past the deadline, and may record progress (null: unchanged). cancel_requested: the worker should stop.
It waits for nobody. While another transaction has the job locked, as an open jobs.cancel does, it returns the lease as it was and records no progress. It counts all the same: when that transaction ends, the lease goes on as asked for.
Errors: 55000 with DETAIL already_finished when a finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, 55000 with DETAIL deadline_exceeded past the deadline, P0002, 22004, 22023 a lease that is not positive, 54000 a progress whose text is longer than jobs.max_payload, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.cancel(
  id bigint, reason text DEFAULT NULL, force boolean DEFAULT false)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'cancel_wrapper';
COMMENT ON FUNCTION jobs.cancel(bigint, text, boolean) IS
$$Cancels a job that is not final. A running one stays running with cancel_requested_at set and its worker is told at its next heartbeat and by a notification on channel jobs; with force it is cancelled at once and the worker's later calls are refused.
A final job is left as it is. So is a running job that was asked to stop already, but another reason is written down. Returns the state. Errors: P0002 unknown id, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.retry(
  id bigint, reset boolean DEFAULT false, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'retry_wrapper';
COMMENT ON FUNCTION jobs.retry(bigint, boolean, text) IS
$$Makes a job available now: one that waits, is pending, or is final (max_attempts grows by 1 if attempts were exhausted). reset: attempt back to 0; errors are kept.
An available or running job is left as it is. Returns the state. Errors: P0002 unknown id, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.delete(
  id bigint, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'delete_wrapper';
COMMENT ON FUNCTION jobs.delete(bigint, text) IS
$$Deletes a job that is not running, with its errors. Returns the state that it had. Errors: 55000 it is running, P0002 unknown id, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE TYPE jobs.batch_heartbeat_result AS (
  id               bigint,
  lease_expires_at timestamptz,
  deadline_at      timestamptz,
  cancel_requested boolean);
COMMENT ON TYPE jobs.batch_heartbeat_result IS
  'The lease of one of many running jobs. All but id are null for a job that is lost.';

CREATE FUNCTION jobs.heartbeat_many(
  ids bigint[], tokens bigint[], lease interval DEFAULT NULL)
RETURNS SETOF jobs.batch_heartbeat_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'heartbeat_many_wrapper';
COMMENT ON FUNCTION jobs.heartbeat_many(bigint[], bigint[], interval) IS
$$Heartbeats of many jobs in one statement; a row per id, in order. A job that is lost (its token is no longer current, or its deadline is over) has nulls. It waits for nobody, as jobs.heartbeat.
At most 10000. Errors: 22023 arrays of two lengths, more than 10000, a lease that is not positive; 22004 a null array or element, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.activate(
  id bigint, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'activate_wrapper';
COMMENT ON FUNCTION jobs.activate(bigint, text) IS
$$Makes a pending job available, or scheduled if its scheduled_at is in the future. Returns the state. Errors: 55000 it is not pending, P0002 unknown id, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.update(
  id bigint, args jsonb DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL,
  max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL,
  retry jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'update_wrapper';
COMMENT ON FUNCTION jobs.update(bigint, jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, text) IS
$$Changes a job that is neither running nor final; null: unchanged. A new scheduled_at makes a waiting job scheduled or available, as an insert would; a pending one stays pending. A queue or priority puts an available job at the end of that lane. Other values that the job has already change nothing. Its unique key stays.
Returns the state. Errors: 55000 it is running or final, P0002 unknown id, 22023 and 54000 as jobs.insert (args and meta count together, also if only one is changed), 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.cancel_many(
  queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL,
  older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'cancel_many_wrapper';
COMMENT ON FUNCTION jobs.cancel_many(text, text, jobs.state[], text, interval, integer, text) IS
$$Cancels the jobs that a filter finds, as jobs.cancel does, for this reason: running ones are asked to stop, those that were asked already are left out. Returns how many.
Filters are joined by and; null: any; older_than counts from created_at; none at all is refused (for all jobs give all states). At most max_jobs, oldest first.
Errors: 22023 no filter, a negative older_than, max_jobs not from 1 to 10000; 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when a job moved, 40P01 a deadlock with another transaction that has locked several of the jobs: repeat the transaction.$$;

CREATE FUNCTION jobs.retry_many(
  queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL,
  older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000,
  reset boolean DEFAULT false, error_like text DEFAULT NULL, failed_after timestamptz DEFAULT NULL, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'retry_many_wrapper';
COMMENT ON FUNCTION jobs.retry_many(text, text, jobs.state[], text, interval, integer, boolean, text, timestamptz, text) IS
$$Makes the jobs that a filter finds available, as jobs.retry does; available and running ones are left out. reset: attempt back to 0. Returns how many.
Filters are joined by and; null: any; older_than counts from created_at; error_like is a LIKE pattern of the job's latest error, in which % and _ are wildcards and \ before one escapes it, and failed_after says after when that was: by these two alone no completed job is found, whatever it failed at before. None at all is refused (for all jobs give all states). At most max_jobs, oldest first.
Errors: 22023 no filter, a negative older_than, max_jobs not from 1 to 10000, an error_like that ends with a single backslash, an infinite failed_after; 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when a job moved, 40P01 a deadlock with another transaction that has locked several of the jobs: repeat the transaction.$$;

CREATE FUNCTION jobs.delete_many(
  queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL,
  older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'delete_many_wrapper';
COMMENT ON FUNCTION jobs.delete_many(text, text, jobs.state[], text, interval, integer, text) IS
$$Deletes the jobs that a filter finds, as jobs.delete does; running ones are left out. Returns how many.
Filters are joined by and; null: any; older_than counts from created_at; none at all is refused (for all jobs give all states). At most max_jobs, oldest first.
Errors: 22023 no filter, a negative older_than, max_jobs not from 1 to 10000; 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when a job moved, 40P01 a deadlock with another transaction that has locked several of the jobs: repeat the transaction.$$;
