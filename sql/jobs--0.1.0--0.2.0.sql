-- From 0.1.0 to 0.2.0: what maintenance does is written down and can be paused, views for operators, health and
-- metrics, rights by function. tests/upgrade.rs compares the result with a new installation.

SET LOCAL search_path = pg_catalog, pg_temp;

-- A schema of that name may be somebody's who has renamed ours. A superuser must run nothing in it.
DO $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_catalog.pg_extension e
      JOIN pg_catalog.pg_namespace n ON n.nspname = 'jobs' AND n.nspowner = e.extowner
      JOIN pg_catalog.pg_proc p ON p.oid = pg_catalog.to_regprocedure('jobs.installed()') AND p.proowner = e.extowner
     WHERE e.extname = 'jobs'
       AND 2 = (SELECT pg_catalog.count(*) FROM pg_catalog.pg_depend d
                 WHERE (d.classid, d.objid) IN (('pg_catalog.pg_namespace'::pg_catalog.regclass, n.oid), ('pg_catalog.pg_proc'::pg_catalog.regclass, p.oid))
                   AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid AND d.deptype = 'e'))
  THEN
    RAISE EXCEPTION 'schema jobs is not the extension''s own'
      USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'The schema and jobs.installed() must belong to the extension, and to the role that owns it.',
            HINT = 'Rename the schema that has the name now, and the extension''s own back to jobs; ALTER SCHEMA .. OWNER TO and ALTER FUNCTION .. OWNER TO give back what another role owns.';
  END IF;
END $$;

-- All that is changed is locked at once, or nothing: sessions at work take these locks in any order. Who waits for jobs.job
-- meanwhile has not begun; who has begun is let through.
DO $$
DECLARE
  begun CONSTANT timestamptz := clock_timestamp();
  patience CONSTANT interval := NULLIF(current_setting('lock_timeout'), '0');
BEGIN
  LOOP
    BEGIN
      LOCK TABLE jobs.job IN ACCESS EXCLUSIVE MODE;
      LOCK TABLE jobs.scheduled, jobs.running, jobs.error, jobs.unique_hold_release, jobs.unique_orphan, jobs.jobs, jobs.errors, jobs.queues, jobs.periodic IN ACCESS EXCLUSIVE MODE NOWAIT;
      EXIT;
    EXCEPTION WHEN lock_not_available THEN
      IF clock_timestamp() > begun + patience THEN
        RAISE;
      END IF;
      PERFORM pg_sleep(0.02);
    END;
  END LOOP;
END $$;

-- Jobs that were inserted before keep their retention alone.
ALTER TABLE jobs.job ADD COLUMN unique_until timestamptz, ADD COLUMN unique_window interval, ADD COLUMN unique_final smallint;
COMMENT ON COLUMN jobs.job.unique_until IS 'Until when the job counts under its key once it is final, however short its retention: the end of its by_period, or of its window from created_at; null: neither.';
COMMENT ON COLUMN jobs.job.unique_window IS 'The same, counted from when it was due: its window from scheduled_at; null: none.';
COMMENT ON COLUMN jobs.job.unique_final IS 'The final states in which that is so: 1 completed, 2 cancelled, 4 discarded, or their sum; null: none.';

-- Appended in the order of time, so that a few entries find the latest errors among millions.
CREATE INDEX error_by_age ON jobs.error USING brin (at);
-- Maintenance finds what is due by its time, whatever the queues are called; a fetch finds what is due of its queues.
CREATE INDEX scheduled_next ON jobs.scheduled (due_at);

-- A row a task from the start, so that noting a run never inserts. Not dumped: it tells of this server.
CREATE TABLE jobs.maintenance_task (
  task           text        COLLATE "C" NOT NULL,
  last_run_at    timestamptz,
  duration       interval,
  rows           bigint,
  rows_total     bigint      NOT NULL DEFAULT 0,
  failures       integer     NOT NULL DEFAULT 0,
  failures_total bigint      NOT NULL DEFAULT 0,
  last_error_at  timestamptz,
  last_error     text,
  CONSTRAINT maintenance_task_pkey PRIMARY KEY (task)
) WITH (fillfactor = 30);
COMMENT ON TABLE jobs.maintenance_task IS 'The latest run of each maintenance task that had something to do or failed. Runs that find nothing are not written down: an idle database writes no WAL.';
INSERT INTO jobs.maintenance_task (task)
VALUES ('schedule'), ('periodic'), ('expire'), ('rescue'), ('prune'), ('claims'), ('statistics');

CREATE TABLE jobs.maintenance_pause (
  paused_at timestamptz NOT NULL,
  paused_by text        NOT NULL,
  one       boolean     NOT NULL DEFAULT true CONSTRAINT maintenance_pause_one CHECK (one),
  CONSTRAINT maintenance_pause_pkey PRIMARY KEY (one)
);
COMMENT ON TABLE jobs.maintenance_pause IS 'A row while maintenance is paused: jobs.pause_maintenance, jobs.resume_maintenance.';

-- A row a table from the start, so that keeping a count never inserts. Not dumped: it is counted again.
CREATE TABLE jobs.kept_count (
  place      text        COLLATE "C" NOT NULL,
  counted_at timestamptz,
  took       interval,
  changes    bigint,
  counts     jsonb,
  CONSTRAINT kept_count_pkey PRIMARY KEY (place)
) WITH (fillfactor = 30);
COMMENT ON TABLE jobs.kept_count IS 'How many jobs are in the tables that are too long to be counted whenever somebody asks: by queue and state. Counted now and then by maintenance.';
INSERT INTO jobs.kept_count (place) VALUES ('ready'), ('scheduled'), ('running'), ('finished');
COMMENT ON COLUMN jobs.kept_count.counted_at IS 'Null: the table is short.';
COMMENT ON COLUMN jobs.kept_count.place IS 'The table: ready, scheduled, running or finished.';
COMMENT ON COLUMN jobs.kept_count.took IS 'How long counting took; the longer, the more rarely it is done.';
COMMENT ON COLUMN jobs.kept_count.changes IS 'Rows inserted and deleted up to then, by the server''s statistics: while they do not change, nothing is counted again.';

COMMENT ON TABLE jobs.unique_orphan IS
  'Keys that lost a job while their claims were let alone, or have no job left but a hold: maintenance looks from due_at on whether the claims can go.';

COMMENT ON TABLE jobs.answer IS
  'What became of jobs by finishing calls that left no other trace (snooze, release, the completion of a job that was retried), so that a repeated call gets the same answer. Kept for an hour.';
COMMENT ON COLUMN jobs.answer.scheduled_at IS 'Until when a snooze put the job off, also where it was cancelled instead; null: another call.';

-- Postgres reads them anew from their text with each statement, and only the extension writes.
ALTER TABLE jobs.job DROP CONSTRAINT job_hold_until;
ALTER TABLE jobs.scheduled DROP CONSTRAINT scheduled_state;
ALTER TABLE jobs.finished DROP CONSTRAINT finished_state;

-- The tables that jobs pass through are empty again and again. Vacuum would give their pages back each time, under a lock that
-- keeps every fetch waiting, and the next jobs would have to get new ones.
ALTER TABLE jobs.ready SET (vacuum_truncate = off);
ALTER TABLE jobs.scheduled SET (vacuum_truncate = off);
ALTER TABLE jobs.running SET (vacuum_truncate = off);

-- Tables without a primary key: where they are part of a publication (FOR ALL TABLES), rows could not be deleted otherwise.
ALTER TABLE jobs.error REPLICA IDENTITY FULL;

ALTER TABLE jobs.unique_hold_release REPLICA IDENTITY FULL;

ALTER TABLE jobs.unique_orphan REPLICA IDENTITY FULL;

ALTER TABLE jobs.running ADD COLUMN queue text COLLATE "C";
COMMENT ON COLUMN jobs.running.queue IS 'The queue that the job was fetched from, and counts for while it runs, where it was given another one meanwhile; null: as in job.';

-- One branch a state, each with a constant state and a join of its own, so that
-- WHERE state = 'running' reads one table, and conditions on a job reach every branch.
CREATE OR REPLACE VIEW jobs.jobs AS
SELECT p.id, p.state, p.queue, p.kind, p.priority, p.attempt, p.max_attempts,
       CASE WHEN v.sees_payload THEN p.args END AS args, CASE WHEN v.sees_payload THEN COALESCE(p.meta, '{}') END AS meta,
       COALESCE(p.tags, '{}') AS tags,
       p.created_at, COALESCE(p.moved_to, p.scheduled_at, p.created_at) AS scheduled_at,
       p.attempted_at, p.finalized_at, p.expires_at,
       COALESCE(p.timeout, '1 minute') AS timeout, p.lease_expires_at, p.deadline_at,
       p.cancel_requested_at, p.cancel_reason, p.worker, p.token,
       CASE WHEN v.sees_payload THEN p.progress END AS progress, CASE WHEN v.sees_payload THEN p.output END AS output
  FROM (
    SELECT j.*, 'available'::jobs.state AS state, p.attempt, p.scheduled_at AS moved_to,
           NULL::timestamptz AS attempted_at, NULL::timestamptz AS finalized_at,
           NULL::timestamptz AS lease_expires_at, NULL::timestamptz AS deadline_at,
           NULL::timestamptz AS cancel_requested_at, NULL::text AS cancel_reason, NULL::text AS worker,
           NULL::bigint AS token, NULL::jsonb AS progress, NULL::jsonb AS output
      FROM jobs.job j JOIN jobs.ready p ON p.queue = j.queue AND p.priority = j.priority AND p.seq = j.id
    UNION ALL
    SELECT j.*, 'available', p.attempt, p.scheduled_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL
      FROM jobs.job j JOIN jobs.ready p ON p.job_id = j.id WHERE p.seq <> p.job_id
    UNION ALL
    SELECT j.*, 'scheduled', p.attempt, p.due_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL
      FROM jobs.job j JOIN jobs.scheduled p ON p.job_id = j.id WHERE p.state = 'scheduled'
    UNION ALL
    SELECT j.*, 'pending', p.attempt, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM jobs.job j JOIN jobs.scheduled p ON p.job_id = j.id WHERE p.state = 'pending'
    UNION ALL
    SELECT j.*, 'retryable', p.attempt, p.due_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL
      FROM jobs.job j JOIN jobs.scheduled p ON p.job_id = j.id WHERE p.state = 'retryable'
    UNION ALL
    SELECT j.id, j.created_at, j.scheduled_at, j.expires_at, j.hold_ends_at, j.timeout, j.max_attempts, j.priority, j.kind,
           COALESCE(p.queue, j.queue), j.args, j.meta, j.tags, j.retry, j.unique_key, j.hold_until, j.unique_until, j.unique_window, j.unique_final,
           'running', p.attempt, p.scheduled_at, p.attempted_at, NULL, p.lease_expires_at,
           p.deadline_at, p.cancel_requested_at, p.cancel_reason, p.worker, p.token, p.progress, NULL
      FROM jobs.job j JOIN jobs.running p ON p.job_id = j.id
    UNION ALL
    SELECT j.*, 'completed', p.attempt, p.scheduled_at, p.attempted_at, p.finalized_at, NULL, NULL,
           p.cancel_requested_at, p.cancel_reason, p.worker, p.token, NULL, p.output
      FROM jobs.job j JOIN jobs.finished p ON p.job_id = j.id WHERE p.state = 'completed'
    UNION ALL
    SELECT j.*, 'cancelled', p.attempt, p.scheduled_at, p.attempted_at, p.finalized_at, NULL, NULL,
           p.cancel_requested_at, p.cancel_reason, p.worker, p.token, NULL, p.output
      FROM jobs.job j JOIN jobs.finished p ON p.job_id = j.id WHERE p.state = 'cancelled'
    UNION ALL
    SELECT j.*, 'discarded', p.attempt, p.scheduled_at, p.attempted_at, p.finalized_at, NULL, NULL,
           p.cancel_requested_at, p.cancel_reason, p.worker, p.token, NULL, p.output
      FROM jobs.job j JOIN jobs.finished p ON p.job_id = j.id WHERE p.state = 'discarded'
  ) p, (SELECT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') OFFSET 0) v(sees_payload);
COMMENT ON VIEW jobs.jobs IS
  'Every job, one row. args, meta, progress and output are null for who may not SELECT from jobs.job, such as a viewer (jobs.grant_viewer).';
COMMENT ON COLUMN jobs.jobs.id IS 'Number of the job; larger ones were inserted later.';
COMMENT ON COLUMN jobs.jobs.state IS 'Where the job stands.';
COMMENT ON COLUMN jobs.jobs.queue IS 'Queue that it is fetched from.';
COMMENT ON COLUMN jobs.jobs.kind IS 'What to do.';
COMMENT ON COLUMN jobs.jobs.priority IS 'Within its queue the lower number is fetched first.';
COMMENT ON COLUMN jobs.jobs.attempt IS 'How many attempts have begun; a snoozed or released one does not count.';
COMMENT ON COLUMN jobs.jobs.max_attempts IS 'How many there may be.';
COMMENT ON COLUMN jobs.jobs.args IS 'Arguments of the job, as inserted or updated.';
COMMENT ON COLUMN jobs.jobs.meta IS 'What else was given along with it; {} if nothing.';
COMMENT ON COLUMN jobs.jobs.tags IS 'Tags, for filters.';
COMMENT ON COLUMN jobs.jobs.created_at IS 'When it was inserted.';
COMMENT ON COLUMN jobs.jobs.scheduled_at IS 'When it was or will be due most recently: as inserted, or the time of its retry or snooze.';
COMMENT ON COLUMN jobs.jobs.attempted_at IS 'When the attempt began that runs or was the last one of a final job; else null.';
COMMENT ON COLUMN jobs.jobs.finalized_at IS 'When it became completed, cancelled or discarded; else null.';
COMMENT ON COLUMN jobs.jobs.expires_at IS 'From then on it is discarded instead of being fetched; null: never.';
COMMENT ON COLUMN jobs.jobs.timeout IS 'How long one attempt may run; negative: no limit.';
COMMENT ON COLUMN jobs.jobs.lease_expires_at IS 'While it runs: without a sign of life until then the attempt fails.';
COMMENT ON COLUMN jobs.jobs.deadline_at IS 'While it runs: when the attempt is over, whatever the heartbeats; null: no limit.';
COMMENT ON COLUMN jobs.jobs.cancel_requested_at IS 'When somebody asked a running job to stop; else null.';
COMMENT ON COLUMN jobs.jobs.cancel_reason IS 'The reason given to jobs.cancel.';
COMMENT ON COLUMN jobs.jobs.worker IS 'Who has it, or finished it, by the name that the fetch gave.';
COMMENT ON COLUMN jobs.jobs.token IS 'Of the attempt that runs, or that finished the job; else null.';
COMMENT ON COLUMN jobs.jobs.progress IS 'What the latest heartbeat said, while it runs.';
COMMENT ON COLUMN jobs.jobs.output IS 'What jobs.complete was given.';

CREATE OR REPLACE VIEW jobs.errors AS
SELECT e.job_id, e.attempt, e.at, e.error, e.details
  FROM jobs.error e;
COMMENT ON VIEW jobs.errors IS 'Every failed attempt.';
COMMENT ON COLUMN jobs.errors.job_id IS 'The job.';
COMMENT ON COLUMN jobs.errors.attempt IS 'Which attempt failed.';
COMMENT ON COLUMN jobs.errors.at IS 'When.';
COMMENT ON COLUMN jobs.errors.error IS 'What went wrong, as the worker or the rescue says it.';
COMMENT ON COLUMN jobs.errors.details IS 'What the worker gave beside the text, such as type, code and trace; type is timeout, lease_expired or expired where no worker failed it.';

-- No view from here on touches args: a viewer of queues sees counts only.
CREATE FUNCTION jobs.count_queues()
RETURNS TABLE (queue text, available bigint, scheduled bigint, pending bigint, running bigint, retryable bigint,
               completed bigint, cancelled bigint, discarded bigint, oldest_available_at timestamptz,
               estimated jobs.state[], counted_at timestamptz)
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'count_queues_wrapper';
COMMENT ON FUNCTION jobs.count_queues() IS 'What the view jobs.queues shows of queues that have jobs.';

CREATE OR REPLACE VIEW jobs.queues AS
SELECT COALESCE(c.queue, q.queue) AS queue,
       COALESCE(c.available, 0) AS available, COALESCE(c.scheduled, 0) AS scheduled,
       COALESCE(c.pending, 0) AS pending, COALESCE(c.running, 0) AS running,
       COALESCE(c.retryable, 0) AS retryable, COALESCE(c.completed, 0) AS completed,
       COALESCE(c.cancelled, 0) AS cancelled, COALESCE(c.discarded, 0) AS discarded,
       c.oldest_available_at,
       q.paused_at IS NOT NULL AS paused, q.concurrency, q.rate, q.rate_period,
       COALESCE(c.estimated, '{}') AS estimated, c.counted_at,
       q.retention_completed * interval '1 microsecond' AS retention_completed,
       q.retention_cancelled * interval '1 microsecond' AS retention_cancelled,
       q.retention_discarded * interval '1 microsecond' AS retention_discarded
  FROM jobs.count_queues() c FULL JOIN jobs.queue q ON q.queue = c.queue;
COMMENT ON VIEW jobs.queues IS
  'Queues that have jobs or of which something is set: how many in each state, since when the oldest available one waits, whether it is paused, its limits. Up to 10,000 jobs of a kind of state are counted right then; where there are more, in any queue, the count is one that maintenance made before: the states are in estimated, the time is in counted_at.';
COMMENT ON COLUMN jobs.queues.queue IS 'Name of the queue.';
COMMENT ON COLUMN jobs.queues.available IS 'Jobs that can be fetched now.';
COMMENT ON COLUMN jobs.queues.scheduled IS 'Jobs that wait for their time.';
COMMENT ON COLUMN jobs.queues.pending IS 'Jobs that wait for jobs.activate.';
COMMENT ON COLUMN jobs.queues.running IS 'Jobs that a worker has.';
COMMENT ON COLUMN jobs.queues.retryable IS 'Jobs that failed and wait for the next attempt.';
COMMENT ON COLUMN jobs.queues.completed IS 'Completed jobs that are not yet pruned.';
COMMENT ON COLUMN jobs.queues.cancelled IS 'Cancelled jobs that are not yet pruned.';
COMMENT ON COLUMN jobs.queues.discarded IS 'Jobs that are given up and not yet pruned.';
COMMENT ON COLUMN jobs.queues.oldest_available_at IS 'Since when the oldest available job has been due, also if it was given back since; null: there is none.';
COMMENT ON COLUMN jobs.queues.paused IS 'Whether fetching from it is stopped: jobs.pause_queue.';
COMMENT ON COLUMN jobs.queues.concurrency IS 'The most of its jobs that run at a time; null: no limit.';
COMMENT ON COLUMN jobs.queues.rate IS 'The most of its jobs that start within rate_period; null: no limit.';
COMMENT ON COLUMN jobs.queues.rate_period IS 'The time that rate is for.';
COMMENT ON COLUMN jobs.queues.estimated IS 'States whose count was made before, by maintenance, at counted_at; empty: all are counted now.';
COMMENT ON COLUMN jobs.queues.counted_at IS 'When the oldest of those counts was made.';
COMMENT ON COLUMN jobs.queues.retention_completed IS 'How long completed jobs of the queue are kept, negative: for ever; null: jobs.retention_completed.';
COMMENT ON COLUMN jobs.queues.retention_cancelled IS 'The same for cancelled ones.';
COMMENT ON COLUMN jobs.queues.retention_discarded IS 'The same for discarded ones.';

CREATE VIEW jobs.workers AS
SELECT r.worker, count(*) AS running, array_agg(r.job_id ORDER BY r.job_id) AS job_ids, array_agg(DISTINCT COALESCE(r.queue, j.queue) ORDER BY COALESCE(r.queue, j.queue)) AS queues,
       array_agg(DISTINCT j.kind ORDER BY j.kind) AS kinds,
       min(r.attempted_at) AS oldest_attempted_at, min(r.lease_expires_at) AS next_lease_expires_at,
       count(*) FILTER (WHERE r.lease_expires_at <= clock_timestamp()) AS expired, count(r.cancel_requested_at) AS cancel_requested
  FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
 GROUP BY r.worker;
COMMENT ON VIEW jobs.workers IS 'Workers that hold jobs, by the name that they fetch with: which jobs, since when, and until when they keep them without a sign of life.';
COMMENT ON COLUMN jobs.workers.worker IS 'Name that it fetches with.';
COMMENT ON COLUMN jobs.workers.running IS 'How many jobs it holds.';
COMMENT ON COLUMN jobs.workers.job_ids IS 'Which.';
COMMENT ON COLUMN jobs.workers.queues IS 'Queues of these jobs.';
COMMENT ON COLUMN jobs.workers.kinds IS 'Kinds of these jobs.';
COMMENT ON COLUMN jobs.workers.oldest_attempted_at IS 'When the longest running one began.';
COMMENT ON COLUMN jobs.workers.next_lease_expires_at IS 'When the first of its leases runs out.';
COMMENT ON COLUMN jobs.workers.expired IS 'How many of its leases have run out and are not yet rescued.';
COMMENT ON COLUMN jobs.workers.cancel_requested IS 'How many of its jobs have been asked to stop.';
COMMENT ON COLUMN jobs.unique_claims.key IS '64 hex digits, as jobs.unique_key gives them.';
COMMENT ON COLUMN jobs.unique_claims.holders IS 'Ids of the jobs under the key; of a deleted job, if its hold goes on.';
COMMENT ON COLUMN jobs.unique_claims.until IS 'When the last hold (hold_for) on the key runs out; null: no job holds it by itself.';

CREATE OR REPLACE VIEW jobs.periodic AS
SELECT p.name, p.cron, p.time_zone, p.kind, COALESCE(p.queue, k.queue, 'default') AS queue, p.next_run_at, p.last_run_at,
       p.last_job_id, p.last_skipped, p.last_error, p.defined_at,
       CASE WHEN v.sees_payload THEN p.args END AS args, p.unique_opts, p.priority, p.max_attempts, p.tags,
       CASE WHEN v.sees_payload THEN p.meta END AS meta, p.timeout, p.retry
  FROM jobs.periodic_schedule p LEFT JOIN jobs.kind k ON k.kind = p.kind,
       (SELECT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') OFFSET 0) v(sees_payload);
COMMENT ON VIEW jobs.periodic IS
  'Periodic jobs: when they run, the latest tick and what became of it (its job, or the one that it was skipped as a duplicate of, or why there is none), and what is inserted (null: the default; args and meta also for who may not SELECT from jobs.job).';
COMMENT ON COLUMN jobs.periodic.name IS 'Name of the definition.';
COMMENT ON COLUMN jobs.periodic.cron IS 'When it runs, as given.';
COMMENT ON COLUMN jobs.periodic.time_zone IS 'Whose clock cron means.';
COMMENT ON COLUMN jobs.periodic.kind IS 'Kind of its jobs.';
COMMENT ON COLUMN jobs.periodic.queue IS 'Queue that its next job goes to.';
COMMENT ON COLUMN jobs.periodic.next_run_at IS 'The next tick, or when maintenance tries the last one again; null: never.';
COMMENT ON COLUMN jobs.periodic.last_run_at IS 'The latest tick that was dealt with.';
COMMENT ON COLUMN jobs.periodic.last_job_id IS 'The job of that tick or, if it was skipped, the one that it would have duplicated.';
COMMENT ON COLUMN jobs.periodic.last_skipped IS 'Whether the unique options skipped it.';
COMMENT ON COLUMN jobs.periodic.last_error IS 'Why that tick has no job, or why the next one is put off; null: nothing is wrong.';
COMMENT ON COLUMN jobs.periodic.defined_at IS 'When it was defined; ticks before do not count.';
COMMENT ON COLUMN jobs.periodic.args IS 'Arguments of its jobs.';
COMMENT ON COLUMN jobs.periodic.unique_opts IS 'Unique options of its jobs, as given; null: the default of the kind.';
COMMENT ON COLUMN jobs.periodic.priority IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.max_attempts IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.tags IS 'As given; null: none.';
COMMENT ON COLUMN jobs.periodic.meta IS 'As given; null: none.';
COMMENT ON COLUMN jobs.periodic.timeout IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.retry IS 'As given; null: the default.';

CREATE FUNCTION jobs.idle_runs()
RETURNS TABLE (task text, at timestamptz, duration interval)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'idle_runs_wrapper';
COMMENT ON FUNCTION jobs.idle_runs() IS
  'The latest runs of maintenance tasks in this database that found nothing to do. The background worker keeps them in shared memory, so there are none without it.';

CREATE VIEW jobs.maintenance AS
SELECT t.task, GREATEST(t.last_run_at, i.at) AS last_run_at,
       CASE WHEN i.at > COALESCE(t.last_run_at, '-infinity') THEN 0 ELSE t.rows END AS rows,
       CASE WHEN i.at > COALESCE(t.last_run_at, '-infinity') THEN i.duration ELSE t.duration END AS duration,
       t.last_error, t.last_error_at, t.failures, t.rows_total, t.failures_total, p.paused_at, p.paused_by
  FROM jobs.maintenance_task t LEFT JOIN jobs.idle_runs() i ON i.task = t.task LEFT JOIN jobs.maintenance_pause p ON true
 ORDER BY t.task;
COMMENT ON VIEW jobs.maintenance IS
  'The maintenance tasks: the last run of each, how many rows it handled and how long it took; its last error, and how often it has failed since it last succeeded (failures); totals; whether maintenance is paused.';
COMMENT ON COLUMN jobs.maintenance.task IS 'Name of the task, as jobs.maintain() gives it.';
COMMENT ON COLUMN jobs.maintenance.last_run_at IS 'When it ran last; null: never.';
COMMENT ON COLUMN jobs.maintenance.rows IS 'How many rows that run handled.';
COMMENT ON COLUMN jobs.maintenance.duration IS 'How long it took.';
COMMENT ON COLUMN jobs.maintenance.last_error IS 'What it failed at last, even if all is well by now.';
COMMENT ON COLUMN jobs.maintenance.last_error_at IS 'When that was.';
COMMENT ON COLUMN jobs.maintenance.failures IS 'How often it has failed since it last succeeded; 0: all is well.';
COMMENT ON COLUMN jobs.maintenance.rows_total IS 'Rows that it has ever handled.';
COMMENT ON COLUMN jobs.maintenance.failures_total IS 'How much it has ever failed at.';
COMMENT ON COLUMN jobs.maintenance.paused_at IS 'Since when maintenance is paused, the same for each task; null: it is not.';
COMMENT ON COLUMN jobs.maintenance.paused_by IS 'Who paused it.';

-- Asking the library first loads it, and with it the settings, where it was not preloaded.
CREATE FUNCTION jobs.is_preloaded() RETURNS boolean
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'is_preloaded_wrapper';
COMMENT ON FUNCTION jobs.is_preloaded() IS 'Whether shared_preload_libraries has jobs: without that there is no background worker.';

CREATE VIEW jobs.settings AS
SELECT s.name, pg_catalog.current_setting(s.name) AS value, s.boot_val AS default_value, s.unit,
       s.source, s.sourcefile AS source_file, s.sourceline AS source_line,
       s.context, s.short_desc || COALESCE(' ' || NULLIF(s.extra_desc, ''), '') AS description
  FROM pg_catalog.pg_settings s
 WHERE s.name LIKE 'jobs.%' AND (SELECT jobs.is_preloaded()) IS NOT NULL;
COMMENT ON VIEW jobs.settings IS
  'The settings jobs.*: the value in force in this session, the default in the given unit, and where the value comes from (source; file and line are shown to members of pg_read_all_settings). What is set of a single queue is in jobs.queues.';
COMMENT ON COLUMN jobs.settings.name IS 'Name of the setting.';
COMMENT ON COLUMN jobs.settings.value IS 'Value in force in this session, with its unit.';
COMMENT ON COLUMN jobs.settings.default_value IS 'What it is if nobody sets it, in unit.';
COMMENT ON COLUMN jobs.settings.unit IS 'Unit of default_value and of a value that is written without one; null: none.';
COMMENT ON COLUMN jobs.settings.source IS 'Where the value comes from: default, configuration file, and so on.';
COMMENT ON COLUMN jobs.settings.source_file IS 'File that sets it; null for who is no member of pg_read_all_settings.';
COMMENT ON COLUMN jobs.settings.source_line IS 'Line in that file.';
COMMENT ON COLUMN jobs.settings.context IS 'sighup: it is set for the whole server, and read again on reload.';
COMMENT ON COLUMN jobs.settings.description IS 'What it does.';
-- It switches to its owner by itself now, which is faster.
ALTER FUNCTION jobs.insert(text, jsonb, jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) SECURITY INVOKER RESET search_path;
COMMENT ON FUNCTION jobs.insert(text, jsonb, jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) IS
$$Inserts one job; part of the caller's transaction.
Defaults: queue 'default', priority 1 (lower runs first), max_attempts 25, timeout 1 minute (-1 second: none), retry 'river'.
A scheduled_at in the future makes it scheduled, pending => true pending, otherwise it is available.
retry: how long it waits after a failure: "river": (errors before this one + 1)^4 s, 10 % either way; "oban": 15 + 2^attempt s and up to 10 %; "faktory": n^4 + 15 + rand(30) (n + 1) s, n the failures before this one;
or as Open Job Spec has it {"strategy": "exponential" | "linear" | "constant" | "polynomial", "initial": 1 s, "coefficient": 2, "max": 5 minutes, "jitter": true (a factor from 0.5 to 1.5) or a part, "non_retryable": ["type", "prefix.*"]}; strategy may be one of the three names, too;
or Open Job Spec's RetryPolicy in its own words {"ojs": {"max_attempts": 3, "initial_interval": "PT1S", ..}}, whose max_attempts counts where max_attempts is not given. In each object "after_lease": how long it waits instead where the lease of its worker ran out.
unique_opts is a uniqueness policy (River's names; {"oban": ..}, {"faktory": ..} and {"ojs": ..} as those systems have them); a duplicate is skipped, or rejected with 23505, or replaces or updates the existing job.
Returns the job with the id: the new one (replaced_id: the newest of those that it replaces), or the existing one with unique_skipped_as_duplicate.
Errors: 22023 bad value, 22004 null where none is allowed, 23505 rejected duplicate, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when a rival committed meanwhile.$$;
COMMENT ON FUNCTION jobs.complete(bigint, bigint, jsonb) IS
$$Finishes a running job: completed, with its output. Also after a cancel request. Part of the caller's transaction.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

COMMENT ON FUNCTION jobs.complete_many(bigint[], bigint[]) IS
$$Completes many jobs; a row per pair, in order, never all or nothing. done: this token completed the job, now or by an earlier call of complete or complete_many, and not so where another call has used it; state: the job's state now, null where there is no such job.
Errors: 22023 arrays of different length, 22004 a null in them, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

COMMENT ON FUNCTION jobs.fail(bigint, bigint, text, interval, boolean, jsonb) IS
$$Records a failed attempt. Attempts left: retryable after retry_in, else after the job's policy (see jobs.insert); available at once if that is 0.
At max_attempts, with retryable => false, or when the policy's non_retryable has the type of the error (details: {"type": ..}): discarded. After a cancel request: cancelled. scheduled_at: when it will be retried, null when final.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved, 22023 a negative retry_in.$$;

COMMENT ON FUNCTION jobs.snooze(bigint, bigint, interval) IS
$$Gives a running job back until delay from now: scheduled, the attempt does not count, no error is recorded. After a cancel request: cancelled.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved, 22023 a negative delay.$$;

COMMENT ON FUNCTION jobs.release(bigint, bigint) IS
$$Gives a running job back at once (the worker shuts down): available, the attempt does not count, no error is recorded. After a cancel request: cancelled.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

COMMENT ON FUNCTION jobs.heartbeat(bigint, bigint, interval, jsonb) IS
$$A sign of life: renews the lease (null: as long as the fetch asked for), never past the deadline, and may record progress (null: unchanged). cancel_requested: the worker should stop.
Errors: 55000 with DETAIL already_finished when a finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, 55000 with DETAIL deadline_exceeded past the deadline, P0002, 22004, 22023 a lease that is not positive, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

COMMENT ON FUNCTION jobs.cancel_many(text, text, jobs.state[], text, interval, integer) IS
$$Cancels the jobs that a filter finds, as jobs.cancel does: running ones are asked to stop, those that were asked already are left out. Returns how many.
Filters are joined by and; null: any; older_than counts from created_at; none at all is refused (for all jobs give all states). At most max_jobs, oldest first.
Errors: 22023 no filter, a negative older_than, max_jobs not from 1 to 10000; 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when a job moved.$$;
COMMENT ON FUNCTION jobs.retry_many(text, text, jobs.state[], text, interval, integer) IS
$$Makes the jobs that a filter finds available, as jobs.retry does; available and running ones are left out. Returns how many.
Filters are joined by and; null: any; older_than counts from created_at; none at all is refused (for all jobs give all states). At most max_jobs, oldest first.
Errors: 22023 no filter, a negative older_than, max_jobs not from 1 to 10000; 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when a job moved.$$;
COMMENT ON FUNCTION jobs.delete_many(text, text, jobs.state[], text, interval, integer) IS
$$Deletes the jobs that a filter finds, as jobs.delete does; running ones are left out. Returns how many.
Filters are joined by and; null: any; older_than counts from created_at; none at all is refused (for all jobs give all states). At most max_jobs, oldest first.
Errors: 22023 no filter, a negative older_than, max_jobs not from 1 to 10000; 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when a job moved.$$;
COMMENT ON FUNCTION jobs.maintain() IS
$$Runs every maintenance task once: schedule (due jobs become available), periodic (jobs of ticks that have passed are inserted), expire, rescue (leases that ran out), prune (final jobs past their retention, and past their own by_period and window), claims (keys that no job needs), statistics (counts of long tables).
A row per task; a failing task, or a job that a task fails at, is reported in error and does not stop the others. What is too much for one transaction is left to the next call, and error says so. While maintenance is paused, or the database is being restored, nothing is done and error says so. Errors: 25006 on a standby or read only.$$;

CREATE FUNCTION jobs.pause_maintenance() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_maintenance_wrapper';
COMMENT ON FUNCTION jobs.pause_maintenance() IS
$$Stops maintenance of this database, by the background worker and by jobs.maintain(), until jobs.resume_maintenance(). Waits for maintenance that is under way: a round of the worker, or a transaction that has called jobs.maintain(); once this is committed nothing is maintained. Inserting, fetching and finishing go on, and a fetch still finds what is due. Kept in the database: it outlives restarts, and dumps have it. While it is paused already, nothing changes. Errors: 25006 on a standby or read only.$$;

CREATE FUNCTION jobs.resume_maintenance() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_maintenance_wrapper';
COMMENT ON FUNCTION jobs.resume_maintenance() IS
$$Lets maintenance go on that jobs.pause_maintenance() has stopped. Errors: 25006 on a standby or read only.$$;

CREATE FUNCTION jobs.health(
  old_snapshot interval DEFAULT '5 minutes', oldest_available interval DEFAULT '5 minutes', lock_wait interval DEFAULT '1 second',
  dead_rows bigint DEFAULT 100000)
RETURNS TABLE (severity text, finding text, message text, hint text)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'health_wrapper';
COMMENT ON FUNCTION jobs.health(interval, interval, interval, bigint) IS
$$What needs somebody's attention: a row per finding, the worst first; none means that all is well. severity: critical, warning or info. finding, a word to filter by:
worker_not_running (of the background worker), maintenance_paused, restoring, maintenance_failing, old_snapshot (what keeps vacuum from clearing away dead rows, and whose it is), oldest_available (a queue that is not paused, and how long its oldest available job has waited), discarded (jobs discarded in the last hour), expired_leases (not rescued for a minute), bloat (a table with more dead rows than live ones), lock_wait (sessions that wait for a unique key, and for whom), table_changed (what somebody has changed about a table that makes calls slower, and an index that was left behind unfinished), foreign_right (what others may do with the extension's objects that is the owner's alone: write, TRIGGER, REFERENCES, CREATE), foreign_trigger (a trigger or rule that somebody has attached, which makes calls slower, too), foreign_owner (an object that another role owns than the extension).
Parameters: from when on a snapshot, an available job or a wait for a key is a finding (critical from 12 times that on, a wait from 60 times), and how many dead rows; null: never. Errors: 22023 where one is negative.
Works on a standby, for what can be seen there.$$;

CREATE FUNCTION jobs.metrics()
RETURNS TABLE (metric text, type text, labels jsonb, value double precision, help text)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'metrics_wrapper';
COMMENT ON FUNCTION jobs.metrics() IS
$$Everything to be measured, for Prometheus and others: name of the metric, type (gauge or counter), labels as a JSON object, value, what it means. Times are in seconds. Costs as much as the views jobs.queues and jobs.maintenance. Counters of rows are those of the server's statistics: they count what was rolled back as well, and begin anew when those are reset.$$;

CREATE FUNCTION jobs.top()
RETURNS TABLE (queue text, available bigint, oldest interval, running bigint, workers bigint, scheduled bigint, retryable bigint,
               completed_per_s numeric, failed_per_s numeric, note text)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  WITH clock AS (SELECT clock_timestamp() AS now), latest AS MATERIALIZED (
    SELECT f.job_id, f.finalized_at FROM jobs.finished f
     WHERE f.state = 'completed' AND f.finalized_at > (SELECT c.now - interval '1 minute' FROM clock c)
     ORDER BY f.finalized_at DESC LIMIT 10000
  ), span AS (  -- of the minute, or of the part of it in which so many were completed
    SELECT CASE WHEN count(*) < 10000 THEN 60 ELSE GREATEST(extract(epoch FROM (SELECT c.now FROM clock c) - min(l.finalized_at)), 0.001) END AS seconds FROM latest l
  ), completed AS (
    SELECT j.queue, count(*) AS n FROM latest l JOIN jobs.job j ON j.id = l.job_id GROUP BY j.queue
  ), failed AS (
    SELECT j.queue, count(*) AS n
      FROM (SELECT e.job_id FROM jobs.error e WHERE e.at > (SELECT c.now - interval '1 minute' FROM clock c) LIMIT 10000) e JOIN jobs.job j ON j.id = e.job_id
     GROUP BY j.queue
  ), busy AS (
    SELECT COALESCE(r.queue, j.queue) AS queue, count(DISTINCT r.worker) AS workers FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id GROUP BY 1
  ), line AS (
    SELECT q.queue, q.available, (SELECT c.now FROM clock c) - q.oldest_available_at AS oldest, q.running, COALESCE(b.workers, 0) AS workers,
           q.scheduled, q.retryable, COALESCE(c.n, 0) / s.seconds AS completed, COALESCE(f.n, 0) / 60.0 AS failed,
           concat_ws(', ', CASE WHEN q.paused THEN 'paused' END, CASE WHEN q.running >= q.concurrency THEN 'full' END,
             CASE WHEN q.estimated <> '{}' THEN 'estimated' END) AS note
      FROM jobs.queues q CROSS JOIN span s LEFT JOIN completed c ON c.queue = q.queue LEFT JOIN failed f ON f.queue = q.queue LEFT JOIN busy b ON b.queue = q.queue
  ), total AS (
    SELECT '(all)', sum(l.available)::bigint, max(l.oldest), sum(l.running)::bigint, (SELECT count(DISTINCT r.worker) FROM jobs.running r),
           sum(l.scheduled)::bigint, sum(l.retryable)::bigint, sum(l.completed), sum(l.failed), '' FROM line l HAVING count(*) > 0
  )
  SELECT a.queue, a.available, date_trunc('second', CASE WHEN a.oldest < interval '0' THEN interval '0' ELSE a.oldest END), a.running, a.workers, a.scheduled, a.retryable,
         round(a.completed, 1), round(a.failed, 1), a.note
    FROM (SELECT 0 AS part, * FROM total t(queue, available, oldest, running, workers, scheduled, retryable, completed, failed, note)
          UNION ALL SELECT 1, * FROM line) a
   ORDER BY a.part, a.completed DESC, a.running DESC, a.available DESC, a.queue;
END;
COMMENT ON FUNCTION jobs.top() IS
$$What happens right now, for \watch in psql: a row for all queues together, then one a queue, the busiest first. available, running, scheduled, retryable: how many jobs, as in jobs.queues; oldest: how long the oldest available one has waited; workers: how many hold jobs; completed_per_s: over the last minute, or as long as the latest 10,000 took, of those that are kept (a retention of less than a minute hides some); failed_per_s: attempts that failed in the last minute, of which at most 10,000 are counted; note: paused, full (as many run as may), estimated (some of the numbers were counted before, see jobs.queues).$$;

CREATE FUNCTION jobs.show(id bigint) RETURNS text
LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'show_wrapper';
COMMENT ON FUNCTION jobs.show(bigint) IS
$$The whole story of a job as text, to be read by people: what it is, what it carries, what happened to it and when, in the session's time zone, and what comes next. In psql best seen by \g (format=unaligned tuples_only). Shows what the caller may see in the views: a viewer sees no args, meta, progress and output. The form of the text may change; programs read jobs.jobs and jobs.errors. Errors: P0002 no such job, 22004 id is null.$$;

CREATE FUNCTION jobs.check()
RETURNS TABLE (invariant text, violations bigint, job_ids bigint[], rule text)
LANGUAGE sql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  WITH place AS (
    SELECT r.job_id FROM jobs.ready r
    UNION ALL SELECT s.job_id FROM jobs.scheduled s
    UNION ALL SELECT r.job_id FROM jobs.running r
    UNION ALL SELECT f.job_id FROM jobs.finished f
  ), waiting AS (
    SELECT r.job_id, r.queue, r.priority, r.expires_at, r.attempt FROM jobs.ready r
    UNION ALL SELECT s.job_id, s.queue, NULL, s.expires_at, s.attempt FROM jobs.scheduled s
  ), broken AS MATERIALIZED (
    SELECT 'one_place' AS invariant, COALESCE(j.id, p.job_id) AS job_id
      FROM jobs.job j FULL JOIN (SELECT p.job_id, count(*) AS places FROM place p GROUP BY p.job_id) p ON p.job_id = j.id
     WHERE j.id IS NULL OR p.places IS DISTINCT FROM 1
    UNION ALL
    SELECT 'same_queue', j.id FROM jobs.job j JOIN waiting w ON w.job_id = j.id
     WHERE w.queue <> j.queue OR w.priority <> j.priority OR w.expires_at IS DISTINCT FROM j.expires_at
    UNION ALL
    SELECT 'attempts', w.job_id FROM waiting w WHERE w.attempt < 0
    UNION ALL
    SELECT 'attempts', r.job_id FROM jobs.running r WHERE r.attempt < 1
    UNION ALL
    SELECT 'attempts', f.job_id FROM jobs.finished f WHERE f.attempt < 0 OR f.state = 'completed' AND f.attempt < 1
    UNION ALL
    SELECT 'state', s.job_id FROM jobs.scheduled s
     WHERE s.state NOT IN ('scheduled', 'retryable', 'pending') OR (s.state = 'pending') <> (s.due_at = 'infinity')
    UNION ALL
    SELECT 'state', f.job_id FROM jobs.finished f WHERE f.state NOT IN ('completed', 'cancelled', 'discarded')
    UNION ALL
    SELECT 'lease', r.job_id FROM jobs.running r
     WHERE r.lease_expires_at > r.deadline_at OR r.token NOT BETWEEN 0 AND 9007199254740991
    UNION ALL
    SELECT 'error', e.job_id FROM jobs.error e WHERE NOT EXISTS (SELECT FROM jobs.job j WHERE j.id = e.job_id)
    UNION ALL
    SELECT 'claim', j.id FROM jobs.job j
     WHERE j.unique_key IS NOT NULL
       AND NOT EXISTS (SELECT FROM jobs.unique_claim c WHERE c.key = j.unique_key AND (j.id = ANY (c.jobs)
             OR EXISTS (SELECT FROM jobs.unique_folded u WHERE u.key = c.key AND u.job_id = j.id)
             OR EXISTS (SELECT FROM jobs.unique_return u WHERE u.key = c.key AND u.job_id = j.id)))
    UNION ALL
    SELECT 'claim', u.id FROM jobs.unique_claim c, unnest(c.jobs) u(id) JOIN jobs.job j ON j.id = u.id WHERE j.unique_key IS DISTINCT FROM c.key
    UNION ALL
    SELECT 'claim', c.jobs[1] FROM jobs.unique_claim c
     WHERE cardinality(c.jobs) = 0 OR cardinality(c.hold_ends_at) <> cardinality(c.jobs) OR array_position(c.jobs, NULL) IS NOT NULL
    UNION ALL
    SELECT 'slot', q.job_id FROM jobs.queue_slot q
     WHERE q.job_id IS NOT NULL AND NOT EXISTS (SELECT FROM jobs.running r WHERE r.job_id = q.job_id AND r.slot = q.slot)
    UNION ALL
    SELECT 'slot', r.job_id FROM jobs.running r JOIN jobs.queue_slot q ON q.slot = r.slot WHERE q.job_id IS DISTINCT FROM r.job_id
    UNION ALL
    SELECT 'sequence', j.id FROM jobs.job j, jobs.job_seq s WHERE j.id > s.last_value
    UNION ALL
    SELECT 'sequence', r.job_id FROM jobs.ready r, jobs.job_seq s WHERE r.seq > s.last_value
  ), rule(n, invariant, rule) AS (VALUES
    (1, 'one_place', 'Every job is in exactly one of the tables ready, scheduled, running and finished, and these have no others.'),
    (2, 'same_queue', 'What waits has the queue, the priority and the expiry of its job.'),
    (3, 'attempts', 'No count of attempts is negative, and what runs or is completed has had one.'),
    (4, 'state', 'Each state is one of its table, and only what is pending is due at no time.'),
    (5, 'lease', 'A lease does not go beyond the deadline of its attempt, and its token is a number that JSON can carry.'),
    (6, 'error', 'Errors are those of jobs that exist.'),
    (7, 'claim', 'A job that was inserted as unique is listed under its key, and no key lists a job of another one.'),
    (8, 'slot', 'A slot of a queue with a limit is taken by a job that runs in it.'),
    (9, 'sequence', 'The numbers of jobs and of their places are ones that have been given out, so that none comes again.'))
  SELECT r.invariant, count(*), ARRAY(SELECT DISTINCT x.job_id FROM broken x WHERE x.invariant = r.invariant AND x.job_id IS NOT NULL ORDER BY x.job_id LIMIT 10), r.rule
    FROM rule r JOIN broken b ON b.invariant = r.invariant
   GROUP BY r.n, r.invariant, r.rule ORDER BY r.n;
END;
COMMENT ON FUNCTION jobs.check() IS
$$Whether everything holds that must hold in these tables, whatever happened: a row per invariant that is violated, how often, up to ten of the jobs, and what the rule is. No row: all is well; a row is a defect of the extension, of the storage, or somebody wrote to the tables by hand. Only while a dump is being restored, or a subscriber copies the tables, there may be some.
Reads all jobs, in one snapshot: work goes on meanwhile, and on millions of jobs it takes seconds to minutes; not in a SERIALIZABLE transaction, which would be in the way of all others. Works on a standby.$$;

CREATE FUNCTION jobs.grant_producer(role text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_producer_wrapper';
COMMENT ON FUNCTION jobs.grant_producer(text) IS
$$Lets a role, named as in pg_roles, insert jobs: insert, insert_many, insert_batch, unique_key, ojs_manifest. It can skip, replace or update what its own policy conflicts with, and cannot read jobs. For the extension's owner and superusers only, whoever has been granted EXECUTE. Errors: 42501 for others, 42704 no such role, 22004, 25006.$$;

CREATE FUNCTION jobs.grant_worker(role text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_worker_wrapper';
COMMENT ON FUNCTION jobs.grant_worker(text) IS
$$Lets a role fetch and finish jobs: fetch, fetch_any, wait, heartbeat, heartbeat_many, complete, complete_many, fail, snooze, release, ojs_manifest. A worker that inserts jobs is granted producer as well. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_viewer(role text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_viewer_wrapper';
COMMENT ON FUNCTION jobs.grant_viewer(text) IS
$$Lets a role read all views, jobs.health(), jobs.metrics(), jobs.check(), jobs.top() and jobs.show(), without what jobs carry: args, meta, progress and output are null for it. Texts of errors are shown. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_admin(role text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_admin_wrapper';
COMMENT ON FUNCTION jobs.grant_admin(text) IS
$$Lets a role call every function but those that grant and revoke, and read all views, with what jobs carry. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.revoke(role text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'revoke_wrapper';
COMMENT ON FUNCTION jobs.revoke(text) IS
$$Takes away from a role whatever it was granted in the schema jobs, by these functions or by hand. Errors: as jobs.grant_producer.$$;

SELECT pg_catalog.pg_extension_config_dump('jobs.maintenance_pause', '');

-- It looks who calls.
ALTER FUNCTION jobs.installed() SECURITY INVOKER;
COMMENT ON FUNCTION jobs.installed() IS
$$The end of the install script, and of each upgrade script: refuses a database whose encoding is not UTF8 (0A000), takes what others have come by that is the owner's alone, as by ALTER DEFAULT PRIVILEGES, and tells the background worker, at commit, that this database has the extension. Of what the script has made it takes every right, of what was there before the right to write, TRIGGER, REFERENCES and CREATE; what jobs.grant_producer and the like have granted stays. For the extension's owner and superusers only (42501). Harmless otherwise.$$;

-- As each script ends: nobody but the owner has any right to what it has made. GRANT and REVOKE stand in no upgrade script:
-- in one, Postgres takes all rights to the object, those that were granted by hand too, for what the extension comes with, and
-- dumps leave them out.
SELECT jobs.installed();
