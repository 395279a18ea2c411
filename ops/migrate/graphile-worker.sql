-- Moves the waiting jobs of Graphile Worker into jobs. docs/migration/graphile-worker.md explains
-- it.
--
--   psql -v ON_ERROR_STOP=1 -f ops/migrate/graphile-worker.sql [-v schema=graphile_worker] [-v
--   queue=NAME] [-v limit=10000] [-v running=on] [-v timeout='10 minutes']

\if :{?schema}
\else
  \set schema graphile_worker
\endif
SELECT format('%I._private_jobs', :'schema') AS source, format('%I._private_job_queues', :'schema') AS queues,
  format('%I._private_tasks', :'schema') AS tasks \gset
\ir begin.sql

WITH waiting AS (
  SELECT j.id FROM :source j LEFT JOIN :queues q ON q.id = j.job_queue_id
  WHERE ((j.locked_at IS NULL AND j.attempts < j.max_attempts) OR (:'running' = 'on' AND j.locked_at IS NOT NULL))
    AND :'queue' IN ('', coalesce(q.queue_name, ''))
  ORDER BY j.priority, j.run_at, j.id
  LIMIT :limit
  FOR UPDATE OF j SKIP LOCKED
), gone AS (
  DELETE FROM :source j USING waiting w WHERE j.id = w.id RETURNING j.*
)
INSERT INTO moving (old_id, old, attempt, kind, args, unique_opts, queue, priority, scheduled_at, max_attempts, tags, retry)
SELECT gone.id, to_jsonb(gone), attempts, t.identifier, payload::jsonb,
  CASE WHEN key IS NULL THEN '{}' ELSE jsonb_build_object('key', key, 'exclude_kind', true,
    'by_state', '["available", "scheduled", "pending", "retryable"]'::jsonb) END,
  q.queue_name, least(priority + 1, 32767), run_at, greatest(max_attempts - attempts, 1),
  ARRAY(SELECT jsonb_object_keys(flags)),
  '{"strategy": "exponential", "initial": 2.718281828459045, "coefficient": 2.718281828459045, "max": 22026.465794806718, "jitter": false}'
FROM gone JOIN :tasks t ON t.id = gone.task_id LEFT JOIN :queues q ON q.id = gone.job_queue_id
ORDER BY priority, run_at, gone.id;

-- A named queue of Graphile Worker runs one job at a time. A queue that already has settings is
-- left alone, since jobs.configure_queue would replace them.
SELECT count(jobs.configure_queue(m.queue, concurrency => 1, reason => 'ops/migrate/graphile-worker.sql')) AS queues_made_serial
FROM (SELECT DISTINCT queue FROM moving WHERE queue IS NOT NULL) m LEFT JOIN jobs.queues q ON q.queue = m.queue
WHERE num_nonnulls(q.concurrency, q.rate, q.max_waiting, q.retention_completed, q.retention_cancelled, q.retention_discarded) = 0;

\ir end.sql

SELECT CASE WHEN locked_at IS NOT NULL THEN 'running' WHEN attempts >= max_attempts THEN 'failed permanently' ELSE 'waiting' END AS left_behind, count(*)
FROM :source GROUP BY 1 ORDER BY 1;
