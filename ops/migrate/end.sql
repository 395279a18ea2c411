-- The end of a migration, included by each system's script: inserts the rows of `moving`, records
-- them, commits and reports.

UPDATE moving SET must_be_unique = false WHERE :'unique' = 'ignore';

DO $$
DECLARE
  kinds text;
BEGIN
  SELECT string_agg(DISTINCT m.kind, ', ') INTO kinds
  FROM moving m
  WHERE m.must_be_unique
    AND (SELECT e.policy FROM jobs.explain_unique(m.kind, m.args, m.unique_opts, m.queue, m.meta, m.scheduled_at) e) IS NULL;
  IF kinds IS NOT NULL THEN
    RAISE EXCEPTION 'unique jobs, but no unique options for these kinds: %', kinds
      USING HINT = 'Set them with jobs.define_kind(kind, unique_opts => ..), or move the jobs with -v unique=ignore.';
  END IF;
END
$$;

DO $$
DECLARE
  m moving;
  made record;
  policy jsonb;
  opts jsonb;
BEGIN
  FOR m IN SELECT * FROM moving ORDER BY position LOOP
    m.meta := coalesce(m.meta, '{}') || jsonb_build_object('moved_from',
      jsonb_build_object('source', m.source, 'id', m.old_id, 'attempt', m.attempt));
    SELECT e.policy INTO policy FROM jobs.explain_unique(m.kind, m.args, m.unique_opts, m.queue, m.meta, m.scheduled_at) e;
    -- A duplicate of a job inserted by a producer is left out, whatever its on_conflict: the old
    -- job must not replace it. A duplicate of another moved job waited beside it in the old system,
    -- so it is inserted here without a key.
    FOREACH opts IN ARRAY ARRAY[coalesce(policy || '{"on_conflict": "skip", "wait": true}', '{}'), '{}'] LOOP
      SELECT i.id, i.unique_skipped_as_duplicate AS duplicate INTO made
      FROM jobs.insert(m.kind, m.args, opts, queue => m.queue, priority => m.priority, scheduled_at => m.scheduled_at,
        max_attempts => m.max_attempts, tags => m.tags, meta => m.meta, timeout => m.timeout, retry => m.retry, expires_at => m.expires_at) i;
      EXIT WHEN NOT made.duplicate OR NOT EXISTS (SELECT FROM public.jobs_moved x WHERE x.job_id = made.id AND NOT x.duplicate);
    END LOOP;
    INSERT INTO public.jobs_moved (source, old_id, job_id, duplicate, old) VALUES (m.source, m.old_id, made.id, made.duplicate, m.old);
  END LOOP;
END
$$;

SELECT count(*) FILTER (WHERE NOT duplicate) AS moved, count(*) FILTER (WHERE duplicate) AS duplicates
FROM moving JOIN public.jobs_moved USING (source, old_id);

COMMIT;
