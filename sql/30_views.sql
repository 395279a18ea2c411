-- One branch a state, each with a constant state and a join of its own, so that
-- WHERE state = 'running' reads one table, and conditions on a job reach every branch.
CREATE VIEW jobs.jobs AS
SELECT p.id, p.state, p.queue, p.kind, p.priority, p.attempt, p.max_attempts,
       p.args, COALESCE(p.meta, '{}') AS meta, COALESCE(p.tags, '{}') AS tags,
       p.created_at, COALESCE(p.moved_to, p.scheduled_at, p.created_at) AS scheduled_at,
       p.attempted_at, p.finalized_at, p.expires_at,
       COALESCE(p.timeout, '1 minute') AS timeout, p.lease_expires_at, p.deadline_at,
       p.cancel_requested_at, p.cancel_reason, p.worker, p.token, p.progress, p.output
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
    SELECT j.*, 'running', p.attempt, p.scheduled_at, p.attempted_at, NULL, p.lease_expires_at,
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
  ) p;
COMMENT ON VIEW jobs.jobs IS 'Every job, one row.';

CREATE VIEW jobs.errors AS
SELECT e.job_id, e.attempt, e.at, e.error, e.details
  FROM jobs.error e ORDER BY e.job_id, e.at DESC;
COMMENT ON VIEW jobs.errors IS 'Every failed attempt, the newest of a job first.';

-- No view touches args here: a viewer of queues sees counts only.
CREATE VIEW jobs.queues AS
SELECT s.queue,
       sum(s.available)::bigint AS available, sum(s.scheduled)::bigint AS scheduled,
       sum(s.pending)::bigint AS pending, sum(s.running)::bigint AS running,
       sum(s.retryable)::bigint AS retryable, sum(s.completed)::bigint AS completed,
       sum(s.cancelled)::bigint AS cancelled, sum(s.discarded)::bigint AS discarded,
       min(s.oldest) AS oldest_available_at,
       COALESCE(bool_or(q.paused_at IS NOT NULL), false) AS paused, max(q.concurrency) AS concurrency,
       max(q.rate) AS rate, max(q.rate_period) AS rate_period
  FROM (
    SELECT r.queue, count(*) AS available, 0 AS scheduled, 0 AS pending, 0 AS running, 0 AS retryable,
           0 AS completed, 0 AS cancelled, 0 AS discarded, min(COALESCE(r.scheduled_at, j.scheduled_at, j.created_at)) AS oldest
      FROM jobs.ready r JOIN jobs.job j ON j.id = r.job_id GROUP BY r.queue
    UNION ALL
    SELECT s.queue, 0, count(*) FILTER (WHERE s.state = 'scheduled'), count(*) FILTER (WHERE s.state = 'pending'), 0,
           count(*) FILTER (WHERE s.state = 'retryable'), 0, 0, 0, NULL
      FROM jobs.scheduled s GROUP BY s.queue
    UNION ALL
    SELECT j.queue, 0, 0, 0, count(*), 0, 0, 0, 0, NULL
      FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id GROUP BY j.queue
    UNION ALL
    SELECT j.queue, 0, 0, 0, 0, 0, count(*) FILTER (WHERE f.state = 'completed'), count(*) FILTER (WHERE f.state = 'cancelled'),
           count(*) FILTER (WHERE f.state = 'discarded'), NULL
      FROM jobs.finished f JOIN jobs.job j ON j.id = f.job_id GROUP BY j.queue
    UNION ALL
    SELECT q.queue, 0, 0, 0, 0, 0, 0, 0, 0, NULL FROM jobs.queue q
  ) s LEFT JOIN jobs.queue q ON q.queue = s.queue
 GROUP BY s.queue;
COMMENT ON VIEW jobs.queues IS 'Queues that have jobs or of which something is set: how many in each state (counted), since when the oldest available one waits, whether it is paused, its limits.';

CREATE VIEW jobs.unique_claims AS
SELECT encode(c.key, 'hex') AS key, COALESCE(h.holders, '{}') AS holders, h.until
  FROM jobs.unique_claim c, LATERAL (
    SELECT array_agg(u.id ORDER BY u.id) FILTER (WHERE u.exists OR u.hold_ends_at IS NOT NULL) AS holders,
           max(u.hold_ends_at) AS until
      FROM (SELECT l.id, EXISTS (SELECT FROM jobs.job j WHERE j.id = l.id) AS exists,
                   CASE WHEN l.hold_ends_at > clock_timestamp()
                         AND NOT EXISTS (SELECT FROM jobs.unique_hold_release r WHERE r.job_id = l.id) THEN l.hold_ends_at END AS hold_ends_at
              FROM (SELECT * FROM unnest(c.jobs, c.hold_ends_at) AS l(id, hold_ends_at)
                    UNION
                    SELECT r.job_id, NULL FROM jobs.unique_return r WHERE r.key = c.key AND r.job_id <> ALL (c.jobs)) l) u) h;
COMMENT ON VIEW jobs.unique_claims IS
  'Unique keys, as jobs.unique_key gives them, and the jobs under each that are looked at when another one wants the key. until: when the last hold on it runs out; null: no job holds it by itself.';

CREATE VIEW jobs.periodic AS
SELECT p.name, p.cron, p.time_zone, p.kind, COALESCE(p.queue, k.queue, 'default') AS queue, p.next_run_at, p.last_run_at,
       p.last_job_id, p.last_skipped, p.last_error, p.defined_at,
       p.args, p.unique_opts, p.priority, p.max_attempts, p.tags, p.meta, p.timeout, p.retry
  FROM jobs.periodic_schedule p LEFT JOIN jobs.kind k ON k.kind = p.kind;
COMMENT ON VIEW jobs.periodic IS
  'Periodic jobs: when they run, the latest tick and what became of it (its job, or the one that it was skipped as a duplicate of, or why there is none), and what is inserted (null: the default).';
