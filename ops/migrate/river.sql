-- Moves the waiting jobs of River into jobs. docs/migration/river.md explains it.
--
--   psql -v ON_ERROR_STOP=1 -f ops/migrate/river.sql [-v schema=public] [-v queue=NAME] [-v
--   limit=10000] [-v running=on] [-v unique=ignore] [-v timeout='10 minutes']

\if :{?schema}
\else
  \set schema public
\endif
SELECT format('%I.river_job', :'schema') AS source \gset
\ir begin.sql

WITH waiting AS (
  SELECT id FROM :source
  WHERE (state IN ('available', 'scheduled', 'retryable') OR (:'running' = 'on' AND state = 'running'))
    AND :'queue' IN ('', queue)
  ORDER BY priority, scheduled_at, id
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM :source j USING waiting w WHERE j.id = w.id RETURNING j.*
)
INSERT INTO moving (old_id, old, attempt, kind, args, unique_opts, must_be_unique, queue, priority, scheduled_at, max_attempts, tags, meta)
SELECT id, to_jsonb(gone), attempt, kind, args,
  CASE WHEN unique_key IS NULL THEN '{}'::jsonb END, unique_key IS NOT NULL,
  queue, priority, scheduled_at, greatest(max_attempts - attempt, 1), tags, metadata
FROM gone
ORDER BY priority, scheduled_at, id;

\ir end.sql

SELECT state AS left_behind, count(*) FROM :source WHERE finalized_at IS NULL GROUP BY state ORDER BY state;
