-- The latest error is a subquery, evaluated only if selected; a join would find that of every job.
-- Each state is a branch (available has three) with a constant state and its own join, so that
-- WHERE state = 'running' reads one table, and conditions on a job reach every branch.
-- 1 minute is DEFAULT_TIMEOUT of src/store/fetch.rs.
CREATE VIEW jobs.jobs AS
SELECT p.id, p.state, p.queue, p.kind, p.priority, p.attempt, p.max_attempts,
       CASE WHEN v.sees_payload THEN p.args END AS args, CASE WHEN v.sees_payload THEN COALESCE(p.meta, '{}') END AS meta,
       COALESCE(p.tags, '{}') AS tags,
       p.created_at, COALESCE(p.moved_to, p.scheduled_at, p.created_at) AS scheduled_at,
       p.attempted_at, p.finalized_at, p.expires_at,
       COALESCE(p.timeout, '1 minute') AS timeout, p.lease_expires_at, p.deadline_at,
       p.cancel_requested_at, p.cancel_reason, p.worker, p.token,
       CASE WHEN v.sees_payload THEN p.progress END AS progress, CASE WHEN v.sees_payload THEN p.output END AS output,
       COALESCE(p.retry, '"river"') AS retry, encode(p.unique_key, 'hex') AS unique_key,
       (SELECT e.error FROM jobs.error e WHERE e.job_id = p.id ORDER BY e.at DESC LIMIT 1) AS last_error,
       (SELECT e.at FROM jobs.error e WHERE e.job_id = p.id ORDER BY e.at DESC LIMIT 1) AS last_error_at,
       NULL::bigint AS flow_id, NULL::text AS step
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
    SELECT j.*, 'available', p.attempt, p.scheduled_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL
      FROM jobs.job j JOIN jobs.scheduled p ON p.job_id = j.id WHERE p.state = 'available'
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
  'One row per job. args, meta, progress and output are null without SELECT on jobs.job, as for a viewer (jobs.grant_viewer).';
COMMENT ON COLUMN jobs.jobs.id IS 'Later jobs have larger ids.';
COMMENT ON COLUMN jobs.jobs.state IS 'Current state.';
COMMENT ON COLUMN jobs.jobs.queue IS 'Queue that it is fetched from.';
COMMENT ON COLUMN jobs.jobs.kind IS 'What to do.';
COMMENT ON COLUMN jobs.jobs.priority IS 'Within a queue, the lowest number is fetched first.';
COMMENT ON COLUMN jobs.jobs.attempt IS 'Attempts so far, without snoozed and released ones.';
COMMENT ON COLUMN jobs.jobs.max_attempts IS 'Maximum number of attempts.';
COMMENT ON COLUMN jobs.jobs.args IS 'Arguments, as inserted or updated.';
COMMENT ON COLUMN jobs.jobs.meta IS 'Further data, as inserted or updated; defaults to {}.';
COMMENT ON COLUMN jobs.jobs.tags IS 'Tags, for filters.';
COMMENT ON COLUMN jobs.jobs.created_at IS 'When the job was inserted.';
COMMENT ON COLUMN jobs.jobs.scheduled_at IS 'When the job is or was last due: as inserted, or by its retry or snooze.';
COMMENT ON COLUMN jobs.jobs.attempted_at IS 'When the current attempt, or the last one of a final job, began; else null.';
COMMENT ON COLUMN jobs.jobs.finalized_at IS 'When the job became completed, cancelled or discarded; else null.';
COMMENT ON COLUMN jobs.jobs.expires_at IS 'When the job is discarded unless it was fetched; null: never.';
COMMENT ON COLUMN jobs.jobs.timeout IS 'Maximum duration of one attempt; negative: no limit.';
COMMENT ON COLUMN jobs.jobs.lease_expires_at IS 'When the current attempt fails without another heartbeat.';
COMMENT ON COLUMN jobs.jobs.deadline_at IS 'When the current attempt fails regardless of heartbeats; null: never.';
COMMENT ON COLUMN jobs.jobs.cancel_requested_at IS 'When a running job got a cancel request; else null.';
COMMENT ON COLUMN jobs.jobs.cancel_reason IS 'Reason given to jobs.cancel.';
COMMENT ON COLUMN jobs.jobs.worker IS 'Worker that runs or finished the job, by the name that it fetched with.';
COMMENT ON COLUMN jobs.jobs.token IS 'Token of the current attempt, or of the one that finished the job; else null.';
COMMENT ON COLUMN jobs.jobs.progress IS 'Progress by the latest heartbeat of the current attempt.';
COMMENT ON COLUMN jobs.jobs.output IS 'Output given to jobs.complete.';
COMMENT ON COLUMN jobs.jobs.retry IS 'Retry policy in force, as given; defaults to "river".';
COMMENT ON COLUMN jobs.jobs.unique_key IS 'Unique key, 64 hex digits, as jobs.unique_key returns it; null: not unique.';
COMMENT ON COLUMN jobs.jobs.last_error IS 'Text of the latest error, even if a later attempt succeeded; null: none.';
COMMENT ON COLUMN jobs.jobs.last_error_at IS 'When that error occurred.';
COMMENT ON COLUMN jobs.jobs.flow_id IS 'Reserved; always null.';
COMMENT ON COLUMN jobs.jobs.step IS 'Reserved; always null.';

CREATE VIEW jobs.errors AS
SELECT e.job_id, e.attempt, e.at, e.error, e.details, e.worker, (SELECT j.kind FROM jobs.job j WHERE j.id = e.job_id) AS job_kind
  FROM jobs.error e;
COMMENT ON VIEW jobs.errors IS 'Every failed attempt.';
COMMENT ON COLUMN jobs.errors.job_id IS 'Id of the job.';
COMMENT ON COLUMN jobs.errors.attempt IS 'Number of attempts made.';
COMMENT ON COLUMN jobs.errors.at IS 'When it failed.';
COMMENT ON COLUMN jobs.errors.error IS 'Text of the error, from the worker or the rescue.';
COMMENT ON COLUMN jobs.errors.details IS 'Details from the worker, such as type, code and trace. Without a worker, type is timeout, lease_expired, expired or too_long.';
COMMENT ON COLUMN jobs.errors.worker IS 'Worker of the attempt, by the name that it fetched with; null: no attempt was running.';
COMMENT ON COLUMN jobs.errors.job_kind IS 'Kind of the job.';

CREATE FUNCTION jobs.count_queues()
RETURNS TABLE (queue text, available bigint, scheduled bigint, pending bigint, running bigint, retryable bigint,
               completed bigint, cancelled bigint, discarded bigint, oldest_available_at timestamptz,
               estimated jobs.state[], counted_at timestamptz)
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'count_queues_wrapper';
COMMENT ON FUNCTION jobs.count_queues() IS 'Returns what jobs.queues shows of queues that have jobs, if there are at most 10,000 queues.';

-- Each queue has one row, from one branch, so that a condition on the queue reaches every branch.
CREATE VIEW jobs.queues AS
WITH counted AS MATERIALIZED (
  SELECT f.queue COLLATE "C" AS queue, f.available, f.scheduled, f.pending, f.running, f.retryable, f.completed, f.cancelled, f.discarded,
         f.oldest_available_at, f.estimated, f.counted_at
    FROM jobs.count_queues() f
)
SELECT c.queue,
       COALESCE(c.available, 0) AS available, COALESCE(c.scheduled, 0) AS scheduled,
       COALESCE(c.pending, 0) AS pending, COALESCE(c.running, 0) AS running,
       COALESCE(c.retryable, 0) AS retryable, COALESCE(c.completed, 0) AS completed,
       COALESCE(c.cancelled, 0) AS cancelled, COALESCE(c.discarded, 0) AS discarded,
       c.oldest_available_at,
       q.paused_at IS NOT NULL AS paused, q.paused_at, q.paused_by, q.pause_reason, q.concurrency, q.rate, q.rate_period, q.max_waiting,
       COALESCE(c.estimated, '{}') AS estimated, c.counted_at,
       q.retention_completed * interval '1 microsecond' AS retention_completed,
       q.retention_cancelled * interval '1 microsecond' AS retention_cancelled,
       q.retention_discarded * interval '1 microsecond' AS retention_discarded
  FROM (SELECT f.* FROM counted f
        UNION ALL
        SELECT k.queue, k.available, k.scheduled, k.pending, k.running, k.retryable, k.completed, k.cancelled, k.discarded,
               k.oldest_available_at, (SELECT enum_range(NULL::jobs.state)), (SELECT min(t.counted_at) FROM jobs.kept_count t)
          FROM jobs.kept_queue k
        UNION ALL
        SELECT s.queue, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL
          FROM jobs.queue s
         WHERE num_nonnulls(s.paused_at, s.concurrency, s.rate, s.rate_period, s.max_waiting, s.retention_completed, s.retention_cancelled, s.retention_discarded) > 0
           AND s.queue NOT IN (SELECT f.queue FROM counted f) AND NOT EXISTS (SELECT FROM jobs.kept_queue k WHERE k.queue = s.queue)) c
  LEFT JOIN jobs.queue q ON q.queue = c.queue;
COMMENT ON VIEW jobs.queues IS
  'Queues that have jobs or settings. Up to 10,000 jobs of a group of states (available; scheduled, retryable and pending; running; final) are counted on each read. For more, the counts are from maintenance: estimated lists the states, counted_at is the time. With more than 10,000 queues, all counts and ages are from maintenance.';
COMMENT ON COLUMN jobs.queues.queue IS 'Name of the queue.';
COMMENT ON COLUMN jobs.queues.available IS 'Available jobs, including held ones.';
COMMENT ON COLUMN jobs.queues.scheduled IS 'Jobs that are due later.';
COMMENT ON COLUMN jobs.queues.pending IS 'Jobs that wait for jobs.activate.';
COMMENT ON COLUMN jobs.queues.running IS 'Jobs that workers hold.';
COMMENT ON COLUMN jobs.queues.retryable IS 'Failed jobs that wait for their next attempt.';
COMMENT ON COLUMN jobs.queues.completed IS 'Completed jobs that are not pruned.';
COMMENT ON COLUMN jobs.queues.cancelled IS 'Cancelled jobs that are not pruned.';
COMMENT ON COLUMN jobs.queues.discarded IS 'Discarded jobs that are not pruned.';
COMMENT ON COLUMN jobs.queues.oldest_available_at IS 'Since when the oldest available job has waited: when it was due, inserted, retried, activated or released, or its queue resumed, whichever is latest. Considers up to 10,000 keys of held jobs. Null: none.';
COMMENT ON COLUMN jobs.queues.paused IS 'Whether the queue is paused (jobs.pause_queue).';
COMMENT ON COLUMN jobs.queues.paused_at IS 'When it was paused; null: it is not.';
COMMENT ON COLUMN jobs.queues.paused_by IS 'Role that paused it.';
COMMENT ON COLUMN jobs.queues.pause_reason IS 'Reason given to jobs.pause_queue.';
COMMENT ON COLUMN jobs.queues.concurrency IS 'Maximum number of running jobs; null: no limit.';
COMMENT ON COLUMN jobs.queues.rate IS 'Maximum number of jobs that start within rate_period; null: no limit.';
COMMENT ON COLUMN jobs.queues.rate_period IS 'Period of rate.';
COMMENT ON COLUMN jobs.queues.max_waiting IS 'Maximum number of available, scheduled, retryable and pending jobs, beyond which inserts fail; null: no bound.';
COMMENT ON COLUMN jobs.queues.estimated IS 'States whose count is from counted_at; empty: all counts are current.';
COMMENT ON COLUMN jobs.queues.counted_at IS 'When the oldest of these counts was made.';
COMMENT ON COLUMN jobs.queues.retention_completed IS 'How long completed jobs are kept; negative: forever; null: jobs.retention_completed.';
COMMENT ON COLUMN jobs.queues.retention_cancelled IS 'How long cancelled jobs are kept, likewise.';
COMMENT ON COLUMN jobs.queues.retention_discarded IS 'How long discarded jobs are kept, likewise.';

CREATE VIEW jobs.kinds AS
SELECT k.kind, k.queue, k.priority::integer, k.max_attempts, k.timeout, k.retry, k.unique_opts
  FROM jobs.kind k;
COMMENT ON VIEW jobs.kinds IS
  'Defaults of kinds, set by jobs.define_kind. Null means the system''s default.';
COMMENT ON COLUMN jobs.kinds.kind IS 'The kind.';
COMMENT ON COLUMN jobs.kinds.queue IS 'Queue; null: default.';
COMMENT ON COLUMN jobs.kinds.priority IS 'Priority; null: 1.';
COMMENT ON COLUMN jobs.kinds.max_attempts IS 'Maximum number of attempts; null: 25.';
COMMENT ON COLUMN jobs.kinds.timeout IS 'Maximum duration of one attempt; negative: no limit; null: 1 minute.';
COMMENT ON COLUMN jobs.kinds.retry IS 'Retry policy, as given; null: river.';
COMMENT ON COLUMN jobs.kinds.unique_opts IS 'Unique options, as given; null: not unique.';

-- The only definition of a worker's status. Its joins let a condition on the worker reach each
-- table.
CREATE VIEW jobs.workers AS
SELECT COALESCE(COALESCE(h.worker, w.worker), c.worker) AS worker, COALESCE(h.running, 0) AS running, COALESCE(h.job_ids, '{}') AS job_ids,
       COALESCE(w.queues, h.queues, '{}') AS queues, COALESCE(h.kinds, '{}') AS kinds, h.oldest_attempted_at, h.next_lease_expires_at, h.last_lease_expires_at,
       COALESCE(h.expired, 0) AS expired, COALESCE(h.cancel_requested, 0) AS cancel_requested,
       CASE WHEN w.last_seen_at <= clock_timestamp() - interval '60 s' THEN 'lost'
            ELSE COALESCE(c.command, CASE WHEN h.worker IS NULL THEN 'idle' ELSE 'busy' END) END AS status,
       w.first_seen_at, w.last_seen_at, w.concurrency, COALESCE(h.running, 0) AS busy,
       w.info ->> 'version' AS version, w.info, c.command, c.commanded_at, c.commanded_by, c.command_reason
  FROM (SELECT r.worker, count(*) AS running, array_agg(r.job_id ORDER BY r.job_id) AS job_ids,
               array_agg(DISTINCT COALESCE(r.queue, j.queue) ORDER BY COALESCE(r.queue, j.queue)) AS queues,
               array_agg(DISTINCT j.kind ORDER BY j.kind) AS kinds,
               min(r.attempted_at) AS oldest_attempted_at, min(r.lease_expires_at) AS next_lease_expires_at,
               max(r.lease_expires_at) AS last_lease_expires_at,
               count(*) FILTER (WHERE r.lease_expires_at <= clock_timestamp()) AS expired, count(r.cancel_requested_at) AS cancel_requested
          FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
         GROUP BY r.worker) h
  FULL JOIN jobs.worker w ON w.worker = h.worker
  FULL JOIN jobs.worker_command c ON c.worker = COALESCE(h.worker, w.worker);
COMMENT ON VIEW jobs.workers IS 'Workers that hold jobs, have a command, or have called jobs.worker_beat: idle ones too, and lost ones for a day.';
COMMENT ON COLUMN jobs.workers.worker IS 'Name that the worker fetches with.';
COMMENT ON COLUMN jobs.workers.running IS 'Jobs that it holds.';
COMMENT ON COLUMN jobs.workers.job_ids IS 'Ids of these jobs.';
COMMENT ON COLUMN jobs.workers.queues IS 'Queues that it registered; without a beat, the queues of its jobs.';
COMMENT ON COLUMN jobs.workers.kinds IS 'Kinds of the jobs that it holds.';
COMMENT ON COLUMN jobs.workers.oldest_attempted_at IS 'When its oldest running attempt began.';
COMMENT ON COLUMN jobs.workers.next_lease_expires_at IS 'When its first lease expires.';
COMMENT ON COLUMN jobs.workers.last_lease_expires_at IS 'When its last lease expires.';
COMMENT ON COLUMN jobs.workers.expired IS 'Its expired leases that are not rescued yet.';
COMMENT ON COLUMN jobs.workers.cancel_requested IS 'Its jobs with a cancel request.';
COMMENT ON COLUMN jobs.workers.status IS 'lost: the latest beat is more than 60 seconds old; else the command, quiet or stop; else busy if it holds jobs, or idle.';
COMMENT ON COLUMN jobs.workers.first_seen_at IS 'Time of its first beat; null: none.';
COMMENT ON COLUMN jobs.workers.last_seen_at IS 'Time of its latest beat, exact to 3 seconds.';
COMMENT ON COLUMN jobs.workers.concurrency IS 'Most jobs that it runs at a time.';
COMMENT ON COLUMN jobs.workers.busy IS 'The same as running.';
COMMENT ON COLUMN jobs.workers.version IS 'version in info.';
COMMENT ON COLUMN jobs.workers.info IS 'Further data that it registered.';
COMMENT ON COLUMN jobs.workers.command IS 'Command of an operator, quiet or stop, even if the worker is lost; null: none.';
COMMENT ON COLUMN jobs.workers.commanded_at IS 'When the command was given.';
COMMENT ON COLUMN jobs.workers.commanded_by IS 'Role that gave it.';
COMMENT ON COLUMN jobs.workers.command_reason IS 'Reason for it.';

CREATE VIEW jobs.unique_claims AS
SELECT encode(c.key, 'hex') AS key, COALESCE(h.holders, '{}') AS holders, h.until, c.key AS key_bytes
  FROM jobs.unique_claim c, LATERAL (
    SELECT array_agg(u.id ORDER BY u.id) FILTER (WHERE u.exists OR u.hold_ends_at IS NOT NULL) AS holders,
           max(u.hold_ends_at) AS until
      FROM (SELECT l.id, EXISTS (SELECT FROM jobs.job j WHERE j.id = l.id) AS exists,
                   CASE WHEN l.hold_ends_at > clock_timestamp()
                         AND NOT EXISTS (SELECT FROM jobs.unique_note n WHERE n.key = c.key AND n.kind = 'h' AND n.seq = l.id) THEN l.hold_ends_at END AS hold_ends_at
              FROM (SELECT * FROM unnest(c.jobs, c.hold_ends_at) AS l(id, hold_ends_at)
                    UNION
                    SELECT n.job_id, NULL FROM jobs.unique_note n WHERE n.key = c.key AND n.kind = 'r' AND n.job_id <> ALL (c.jobs)) l) u) h;
COMMENT ON VIEW jobs.unique_claims IS
  'Unique keys, and the jobs that an insert with the key would check for a conflict.';
COMMENT ON COLUMN jobs.unique_claims.key IS 'Unique key, 64 hex digits, as jobs.unique_key returns it.';
COMMENT ON COLUMN jobs.unique_claims.holders IS 'Ids of the jobs under the key, including deleted jobs with a hold.';
COMMENT ON COLUMN jobs.unique_claims.until IS 'When the last hold (hold_for) on the key ends; null: none.';
COMMENT ON COLUMN jobs.unique_claims.key_bytes IS 'The key as bytes, decode(key, ''hex''): filter by this column, which has an index.';

CREATE VIEW jobs.periodic AS
SELECT p.name, p.cron, p.time_zone, p.kind, COALESCE(p.queue, k.queue, 'default') AS queue, p.next_run_at, p.last_run_at,
       p.last_job_id, p.last_skipped, p.last_error, p.defined_at,
       CASE WHEN v.sees_payload THEN p.args END AS args, p.unique_opts, p.priority::integer, p.max_attempts, p.tags,
       CASE WHEN v.sees_payload THEN p.meta END AS meta, p.timeout, p.retry,
       p.missed, p.paused_at, p.paused_by, p.pause_reason,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object('at', (t.tick ->> 'at')::timestamptz, 'job_id', t.tick -> 'job_id',
                 'state', (SELECT j.state FROM jobs.jobs j WHERE j.id = (t.tick ->> 'job_id')::bigint),
                 'skipped', t.tick -> 'skipped', 'error', t.tick -> 'error') ORDER BY t.n), '[]')
          FROM jsonb_array_elements(p.last_ticks) WITH ORDINALITY AS t(tick, n)) AS last_ticks
  FROM jobs.periodic_schedule p LEFT JOIN jobs.kind k ON k.kind = p.kind,
       (SELECT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') OFFSET 0) v(sees_payload);
COMMENT ON VIEW jobs.periodic IS
  'Periodic jobs: when they run, their latest ticks, and what they insert (null: the default). args and meta are also null without SELECT on jobs.job.';
COMMENT ON COLUMN jobs.periodic.name IS 'Name of the definition.';
COMMENT ON COLUMN jobs.periodic.cron IS 'When it runs, as given.';
COMMENT ON COLUMN jobs.periodic.time_zone IS 'Time zone of cron.';
COMMENT ON COLUMN jobs.periodic.kind IS 'Kind of its jobs.';
COMMENT ON COLUMN jobs.periodic.queue IS 'Queue of its next job.';
COMMENT ON COLUMN jobs.periodic.next_run_at IS 'The next tick, or when maintenance retries the latest one; null: never, or paused.';
COMMENT ON COLUMN jobs.periodic.last_run_at IS 'The latest tick that was handled.';
COMMENT ON COLUMN jobs.periodic.last_job_id IS 'Job of that tick or, if it was skipped, the existing job.';
COMMENT ON COLUMN jobs.periodic.last_skipped IS 'Whether it was skipped as a duplicate.';
COMMENT ON COLUMN jobs.periodic.last_error IS 'Why that tick has no job, or why the next one is delayed; null: no error.';
COMMENT ON COLUMN jobs.periodic.defined_at IS 'When it was defined; earlier ticks do not count.';
COMMENT ON COLUMN jobs.periodic.args IS 'Arguments of its jobs.';
COMMENT ON COLUMN jobs.periodic.unique_opts IS 'Unique options of its jobs, as given; null: the kind''s default.';
COMMENT ON COLUMN jobs.periodic.priority IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.max_attempts IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.tags IS 'As given; null: none.';
COMMENT ON COLUMN jobs.periodic.meta IS 'As given; null: none.';
COMMENT ON COLUMN jobs.periodic.timeout IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.retry IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.missed IS 'What happens to ticks that are more than 60 seconds late because nothing ran. once: the latest gets a job; skip: none does.';
COMMENT ON COLUMN jobs.periodic.paused_at IS 'When it was paused by jobs.pause_periodic; null: it is not.';
COMMENT ON COLUMN jobs.periodic.paused_by IS 'Role that paused it.';
COMMENT ON COLUMN jobs.periodic.pause_reason IS 'Reason given to jobs.pause_periodic.';
COMMENT ON COLUMN jobs.periodic.last_ticks IS 'The latest ten ticks, newest first: an array of {"at", "job_id", "state", "skipped", "error"}. job_id, skipped and error are as in the columns last_..; state is the job''s current state, null if it no longer exists.';

CREATE FUNCTION jobs.idle_runs()
RETURNS TABLE (task text, at timestamptz, duration interval)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'idle_runs_wrapper';
COMMENT ON FUNCTION jobs.idle_runs() IS
  'Returns the latest runs of maintenance tasks in this database that found nothing to do. The background worker keeps them in shared memory; without it there are none.';

CREATE VIEW jobs.maintenance AS
SELECT t.task, GREATEST(t.last_run_at, i.at) AS last_run_at,
       CASE WHEN i.at > COALESCE(t.last_run_at, '-infinity') THEN 0 ELSE t.rows END AS rows,
       CASE WHEN i.at > COALESCE(t.last_run_at, '-infinity') THEN i.duration ELSE t.duration END AS duration,
       t.last_error, t.last_error_at, t.failures, t.rows_total, t.failures_total, p.paused_at, p.paused_by
  FROM jobs.maintenance_task t LEFT JOIN jobs.idle_runs() i ON i.task = t.task LEFT JOIN jobs.maintenance_pause p ON true
 ORDER BY t.task;
COMMENT ON VIEW jobs.maintenance IS
  'Maintenance tasks: the latest run, the latest error and totals of each, and whether maintenance is paused.';
COMMENT ON COLUMN jobs.maintenance.task IS 'Name of the task, as in jobs.maintain().';
COMMENT ON COLUMN jobs.maintenance.last_run_at IS 'When it ran last; null: never.';
COMMENT ON COLUMN jobs.maintenance.rows IS 'Rows that this run handled.';
COMMENT ON COLUMN jobs.maintenance.duration IS 'Duration of this run.';
COMMENT ON COLUMN jobs.maintenance.last_error IS 'Latest error, even if later runs succeeded.';
COMMENT ON COLUMN jobs.maintenance.last_error_at IS 'When that error occurred.';
COMMENT ON COLUMN jobs.maintenance.failures IS 'Failures since the latest success.';
COMMENT ON COLUMN jobs.maintenance.rows_total IS 'Rows handled in total.';
COMMENT ON COLUMN jobs.maintenance.failures_total IS 'Failures in total.';
COMMENT ON COLUMN jobs.maintenance.paused_at IS 'When maintenance was paused, the same for each task; null: it is not.';
COMMENT ON COLUMN jobs.maintenance.paused_by IS 'Role that paused it.';

CREATE VIEW jobs.audit AS
SELECT a.at, a.role, a.login_role, a.application_name, a.action, a.target,
       CASE WHEN a.arguments ?| '{key,weights}' AND NOT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') THEN a.arguments - '{key,weights}'::text[] ELSE a.arguments END AS arguments,
       a.jobs, a.reason
  FROM jobs.audit_record a;
COMMENT ON VIEW jobs.audit IS
  'Every change made by a managing call, recorded in the call''s transaction. Calls that changed nothing, and those of producers and workers, have no row. The action "clock put back" means that maintenance corrected times ahead of the clock. Kept for jobs.retention_audit.';
COMMENT ON COLUMN jobs.audit.at IS 'When the call was made.';
COMMENT ON COLUMN jobs.audit.role IS 'Role that the session acted as: that of SET ROLE, or the login role.';
COMMENT ON COLUMN jobs.audit.login_role IS 'Role that the session logged in as (session_user); SET ROLE does not change it.';
COMMENT ON COLUMN jobs.audit.application_name IS 'application_name of the session.';
COMMENT ON COLUMN jobs.audit.action IS 'Function that was called, or "clock put back".';
COMMENT ON COLUMN jobs.audit.target IS 'Id of the job, or name of the kind, queue, periodic job, worker or role; null: a filter, or maintenance.';
COMMENT ON COLUMN jobs.audit.arguments IS 'Other arguments, including defaults but not nulls. args and meta are true if given; keys of limits and orders are left out without SELECT on jobs.job.';
COMMENT ON COLUMN jobs.audit.jobs IS 'Jobs changed; null: not about jobs.';
COMMENT ON COLUMN jobs.audit.reason IS 'Reason given to the call.';

-- The call loads the library, and so its settings, if it is not preloaded.
CREATE FUNCTION jobs.is_preloaded() RETURNS boolean
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'is_preloaded_wrapper';
COMMENT ON FUNCTION jobs.is_preloaded() IS 'Returns true if shared_preload_libraries has jobs. Without that there is no background worker.';

CREATE VIEW jobs.settings AS
SELECT s.name, pg_catalog.current_setting(s.name) AS value, s.boot_val AS default_value, s.unit,
       s.source, s.sourcefile AS source_file, s.sourceline AS source_line,
       s.context, s.short_desc || COALESCE(' ' || NULLIF(s.extra_desc, ''), '') AS description
  FROM pg_catalog.pg_settings s
 WHERE s.name LIKE 'jobs.%' AND (SELECT jobs.is_preloaded()) IS NOT NULL;
COMMENT ON VIEW jobs.settings IS
  'Settings jobs.*, with the value in force in this session and its source. Settings of a queue are in jobs.queues.';
COMMENT ON COLUMN jobs.settings.name IS 'Name of the setting.';
COMMENT ON COLUMN jobs.settings.value IS 'Value in force in this session, with its unit.';
COMMENT ON COLUMN jobs.settings.default_value IS 'Default, in unit.';
COMMENT ON COLUMN jobs.settings.unit IS 'Unit of default_value, and of a value that you set without one; null: none.';
COMMENT ON COLUMN jobs.settings.source IS 'Source of the value: default, configuration file and so on.';
COMMENT ON COLUMN jobs.settings.source_file IS 'File that sets it; null if you are not a member of pg_read_all_settings.';
COMMENT ON COLUMN jobs.settings.source_line IS 'Line in that file.';
COMMENT ON COLUMN jobs.settings.context IS 'sighup: set for the whole server, and read again on reload.';
COMMENT ON COLUMN jobs.settings.description IS 'What the setting does.';
