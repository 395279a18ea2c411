-- Moves the waiting jobs of pg-boss into jobs. docs/migration/pg-boss.md explains it.
--
--   psql -v ON_ERROR_STOP=1 -f ops/migrate/pg-boss.sql [-v schema=pgboss] [-v queue=NAME] [-v
--   limit=10000] [-v running=on] [-v unique=ignore]

\if :{?schema}
\else
  \set schema pgboss
\endif
SELECT format('%I.job', :'schema') AS source \gset
\ir begin.sql

-- Columns that not every version has are read from `old`, the row as JSON.
WITH waiting AS (
  SELECT name, id FROM :source j
  WHERE (state IN ('created', 'retry') OR (:'running' = 'on' AND state = 'active'))
    AND keep_until > now()
    AND NOT coalesce((to_jsonb(j)->>'blocked')::boolean, false)
    AND NOT coalesce((to_jsonb(j)->>'blocking')::boolean, false)
    AND :'queue' IN ('', name)
  ORDER BY priority DESC, created_on, id
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM :source j USING waiting w WHERE j.name = w.name AND j.id = w.id RETURNING j.*
), read AS (
  SELECT gone.*, to_jsonb(gone) AS old, greatest(retry_delay, 0.001) AS delay FROM gone
)
INSERT INTO moving (old_id, old, attempt, kind, args, unique_opts, must_be_unique, queue, priority, scheduled_at, max_attempts, meta, timeout, retry, expires_at)
SELECT id, old, CASE WHEN started_on IS NULL THEN 0 ELSE retry_count + 1 END,
  name, coalesce(data, '{}'),
  CASE
    WHEN singleton_on IS NOT NULL THEN NULL
    WHEN policy IN ('short', 'exclusive') THEN
      CASE WHEN singleton_key IS NULL THEN '{"by_queue": true}' ELSE jsonb_build_object('key', singleton_key) END
      || jsonb_build_object('by_state', CASE policy WHEN 'short' THEN '["available", "scheduled", "pending", "retryable"]'::jsonb
        ELSE '["available", "scheduled", "pending", "retryable", "running"]' END)
    ELSE '{}'
  END,
  singleton_on IS NOT NULL,
  name, greatest(least(1 - priority::bigint, 32767), -32768), start_after,
  CASE WHEN started_on IS NULL THEN retry_limit + 1 ELSE greatest(retry_limit - retry_count, 1) END,
  jsonb_strip_nulls(jsonb_build_object('singleton_key', singleton_key, 'dead_letter', dead_letter, 'group_id', old->'group_id')),
  coalesce(make_interval(secs => (old->>'expire_seconds')::int), (old->>'expire_in')::interval),
  -- From once to twice the delay after the first failure, and twice as long after each further one.
  CASE WHEN retry_backoff
    THEN jsonb_build_object('strategy', 'exponential', 'initial', greatest(delay, 1) * 1.5, 'coefficient', 2, 'jitter', 0.333,
      'max', coalesce((old->>'retry_delay_max')::numeric, greatest(delay, 1) * 65536))
    ELSE jsonb_build_object('strategy', 'constant', 'initial', delay, 'max', delay, 'jitter', false) END,
  keep_until
FROM read
ORDER BY priority DESC, created_on, id;

\ir end.sql

SELECT name, state AS left_behind, count(*) FROM :source WHERE state IN ('created', 'retry', 'active') GROUP BY name, state ORDER BY name, state;
