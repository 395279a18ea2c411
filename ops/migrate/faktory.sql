-- Moves jobs of Faktory into jobs. Reads them from standard input as JSON, one per line.
-- docs/migration/faktory.md explains it.
--
--   psql -v ON_ERROR_STOP=1 -f ops/migrate/faktory.sql [-v queue=NAME] < jobs.jsonl

\set source faktory
\ir begin.sql

-- No JSON text contains these two characters, so each line is taken literally.
CREATE TEMPORARY TABLE line (position bigint GENERATED ALWAYS AS IDENTITY, job jsonb NOT NULL) ON COMMIT DROP;
\copy line (job) FROM pstdin WITH (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')

-- A job is moved only once, so a new dump may repeat old lines.
WITH read AS (
  SELECT DISTINCT ON (job->>'jid') position, job, job->>'jid' AS jid, coalesce(job->'custom', '{}') AS custom,
    coalesce((job->>'retry')::int, 25) AS retries,
    coalesce((job->'failure'->>'next_at')::timestamptz, (job->>'at')::timestamptz) AS due
  FROM line
  ORDER BY jid, position DESC
), wanted AS (
  SELECT read.*, (custom->>'unique_for')::numeric
      - extract(epoch FROM clock_timestamp() - greatest((job->>'created_at')::timestamptz, (job->>'at')::timestamptz)) AS unique_left
  FROM read
  WHERE :'queue' IN ('', job->>'queue')
    AND NOT EXISTS (SELECT FROM public.jobs_moved x WHERE x.source = :'source' AND x.old_id = jid)
)
INSERT INTO moving (old_id, old, attempt, kind, args, unique_opts, queue, priority, scheduled_at, max_attempts, meta, timeout, retry, expires_at)
SELECT jid, job, coalesce((job->'failure'->>'retry_count')::int + 1, 0), job->>'jobtype', coalesce(job->'args', '[]'),
  -- A hold counts from the insert, or from scheduled_at if that is later.
  CASE WHEN custom->>'unique_for' IS NULL OR unique_left <= 0 THEN '{}'
    ELSE jsonb_build_object('faktory', jsonb_build_object('unique_for', least(unique_left, (custom->>'unique_for')::numeric),
      'unique_until', coalesce(custom->>'unique_until', 'success'))) END,
  coalesce(job->>'queue', 'default'), 6 - (job->>'priority')::int, due,
  greatest(coalesce((job->'failure'->>'remaining')::int, retries - (job->'failure'->>'retry_count')::int, retries + 1), 1),
  custom, make_interval(secs => coalesce((job->>'reserve_for')::int, 1800)), '"faktory"', (custom->>'expires_at')::timestamptz
FROM wanted
ORDER BY position;

\ir end.sql
