-- Moves the waiting messages of a pgmq queue into jobs. docs/migration/pgmq.md explains it.
--
--   psql -v ON_ERROR_STOP=1 -f ops/migrate/pgmq.sql -v queue=NAME [-v kind=KIND] [-v
--   limit=10000] [-v running=on] [-v max_attempts=25] [-v timeout='10 minutes']

\set ON_ERROR_STOP on
\if :{?queue}
\else
  DO $$ BEGIN RAISE EXCEPTION 'no queue given: use -v queue=NAME'; END $$;
\endif
\if :{?kind}
\else
  \set kind :queue
\endif
\if :{?max_attempts}
\else
  \set max_attempts 25
\endif
SELECT format('pgmq.%I', lower('q_' || :'queue')) AS source \gset
\ir begin.sql

-- A read message stays invisible until vt. A message that is invisible but was never read was sent
-- with a delay.
WITH waiting AS (
  SELECT msg_id FROM :source
  WHERE vt <= clock_timestamp() OR read_ct = 0 OR :'running' = 'on'
  ORDER BY msg_id
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM :source m USING waiting w WHERE m.msg_id = w.msg_id RETURNING m.*
)
INSERT INTO moving (old_id, old, attempt, kind, args, queue, scheduled_at, max_attempts, meta)
SELECT msg_id, to_jsonb(gone), read_ct, :'kind', coalesce(message, '{}'), :'queue',
  CASE WHEN read_ct = 0 THEN vt ELSE least(vt, clock_timestamp()) END,
  greatest(:max_attempts - read_ct, 1), jsonb_strip_nulls(jsonb_build_object('headers', to_jsonb(gone)->'headers'))
FROM gone
ORDER BY msg_id;

\ir end.sql

SELECT count(*) AS left_behind FROM :source;
