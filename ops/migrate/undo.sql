-- Returns the moved jobs that still wait to the old system's table, each row unchanged.
--
--   psql -v ON_ERROR_STOP=1 -f ops/migrate/undo.sql -v source=public.river_job
--
-- source is a value of public.jobs_moved.source. First stop the new workers or pause their queues:
-- the script fails if a worker fetches one of the jobs meanwhile. Jobs that run or have run stay,
-- as do duplicates, whose job was not moved.

\set ON_ERROR_STOP on
BEGIN;
CREATE TEMPORARY TABLE going_back ON COMMIT DROP AS
  SELECT m.* FROM public.jobs_moved m JOIN jobs.jobs j ON j.id = m.job_id
  WHERE m.source = :'source' AND NOT m.duplicate AND j.state IN ('available', 'scheduled', 'pending', 'retryable');
CREATE TEMPORARY TABLE given_back ON COMMIT DROP AS SELECT g.old_id, jobs.delete(g.job_id, reason => 'ops/migrate/undo.sql') AS was FROM going_back g;
DO $$
BEGIN
  IF EXISTS (SELECT FROM given_back WHERE was NOT IN ('available', 'scheduled', 'pending', 'retryable')) THEN
    RAISE EXCEPTION 'a worker has just run a job that was to be returned'
      USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Nothing was returned. Stop the new workers or pause their queues, and try again.';
  END IF;
END $$;
SELECT count(*) AS given_back FROM given_back;

-- Generated columns are computed again.
SELECT format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM going_back g, jsonb_populate_record(NULL::%1$s, g.old) o',
    attrelid::regclass, string_agg(quote_ident(attname), ', ' ORDER BY attnum), string_agg('o.' || quote_ident(attname), ', ' ORDER BY attnum))
FROM pg_attribute WHERE attrelid = :'source'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
GROUP BY attrelid \gexec

DELETE FROM public.jobs_moved m USING going_back r WHERE m.source = r.source AND m.old_id = r.old_id;
COMMIT;
