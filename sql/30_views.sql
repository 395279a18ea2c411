-- One branch a state, each with a constant state, so that WHERE state = 'running'
-- reads one table and WHERE id = .. is a few primary key probes.
CREATE VIEW jobs.jobs AS
WITH place AS NOT MATERIALIZED (
  SELECT j.id AS job_id, 'available'::jobs.state AS state, r.attempt, r.scheduled_at,
         NULL::timestamptz AS attempted_at, NULL::timestamptz AS finalized_at,
         NULL::timestamptz AS lease_expires_at, NULL::timestamptz AS deadline_at,
         NULL::timestamptz AS cancel_requested_at, NULL::text AS cancel_reason,
         NULL::text AS worker, NULL::bigint AS token, NULL::jsonb AS progress, NULL::jsonb AS output
    FROM jobs.job j JOIN jobs.ready r ON r.queue = j.queue AND r.priority = j.priority AND r.seq = j.id AND r.job_id = j.id
  UNION ALL
  SELECT r.job_id, 'available', r.attempt, r.scheduled_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM jobs.ready r WHERE r.seq <> r.job_id
  UNION ALL
  SELECT s.job_id, 'scheduled', s.attempt, s.due_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM jobs.scheduled s WHERE s.state = 'scheduled'
  UNION ALL
  SELECT s.job_id, 'pending', s.attempt, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM jobs.scheduled s WHERE s.state = 'pending'
  UNION ALL
  SELECT s.job_id, 'retryable', s.attempt, s.due_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM jobs.scheduled s WHERE s.state = 'retryable'
  UNION ALL
  SELECT r.job_id, 'running', r.attempt, r.scheduled_at, r.attempted_at, NULL, r.lease_expires_at, r.deadline_at,
         r.cancel_requested_at, r.cancel_reason, r.worker, r.token, r.progress, NULL
    FROM jobs.running r
  UNION ALL
  SELECT f.job_id, 'completed', f.attempt, f.scheduled_at, f.attempted_at, f.finalized_at, NULL, NULL,
         f.cancel_requested_at, f.cancel_reason, f.worker, f.token, NULL, f.output
    FROM jobs.finished f WHERE f.state = 'completed'
  UNION ALL
  SELECT f.job_id, 'cancelled', f.attempt, f.scheduled_at, f.attempted_at, f.finalized_at, NULL, NULL,
         f.cancel_requested_at, f.cancel_reason, f.worker, f.token, NULL, f.output
    FROM jobs.finished f WHERE f.state = 'cancelled'
  UNION ALL
  SELECT f.job_id, 'discarded', f.attempt, f.scheduled_at, f.attempted_at, f.finalized_at, NULL, NULL,
         f.cancel_requested_at, f.cancel_reason, f.worker, f.token, NULL, f.output
    FROM jobs.finished f WHERE f.state = 'discarded'
)
SELECT j.id, p.state, j.queue, j.kind, j.priority, p.attempt, j.max_attempts,
       j.args, COALESCE(j.meta, '{}') AS meta, COALESCE(j.tags, '{}') AS tags,
       j.created_at, COALESCE(p.scheduled_at, j.scheduled_at, j.created_at) AS scheduled_at,
       p.attempted_at, p.finalized_at, j.expires_at,
       COALESCE(j.timeout, '1 minute') AS timeout, p.lease_expires_at, p.deadline_at,
       p.cancel_requested_at, p.cancel_reason, p.worker, p.token, p.progress, p.output
  FROM place p JOIN jobs.job j ON j.id = p.job_id;
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
       min(s.oldest) AS oldest_available_at
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
  ) s
 GROUP BY s.queue;
COMMENT ON VIEW jobs.queues IS 'Queues that have jobs: how many in each state (counted), and since when the oldest available one waits.';
