-- Moves the waiting jobs of Oban into jobs. docs/migration/oban.md explains it.
--
--   psql -v ON_ERROR_STOP=1 -f ops/migrate/oban.sql [-v schema=public] [-v queue=NAME] [-v
--   limit=10000] [-v running=on] [-v timeout='10 minutes']

\if :{?schema}
\else
  \set schema public
\endif
SELECT format('%I.oban_jobs', :'schema') AS source \gset
\ir begin.sql

WITH waiting AS (
  SELECT id FROM :source
  WHERE (state IN ('available', 'scheduled', 'retryable') OR (:'running' = 'on' AND state = 'executing'))
    AND :'queue' IN ('', queue)
  ORDER BY priority, scheduled_at, id
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM :source j USING waiting w WHERE j.id = w.id RETURNING j.*
)
INSERT INTO moving (old_id, old, attempt, kind, args, queue, priority, scheduled_at, max_attempts, tags, meta, retry)
SELECT id, to_jsonb(gone), attempt, worker, args, queue, priority + 1,
  scheduled_at AT TIME ZONE 'UTC', -- the column has no time zone
  greatest(max_attempts - attempt, 1), coalesce(tags, '{}'), meta, '"oban"'
FROM gone
ORDER BY priority, scheduled_at, id;

\ir end.sql

SELECT state AS left_behind, count(*) FROM :source WHERE state NOT IN ('completed', 'cancelled', 'discarded') GROUP BY state ORDER BY state;
