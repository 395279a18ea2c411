-- How an upgrade script begins and ends: copy this to sql/jobs--OLD--NEW.sql, and write what
-- changes where it says so. The suite server:upgrade compares what it leaves in the catalog with a
-- new installation.

SET LOCAL search_path = pg_catalog, pg_temp;

-- A schema of that name may belong to a role that renamed ours. A superuser must run nothing in it.
DO $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_catalog.pg_extension e
      JOIN pg_catalog.pg_namespace n ON n.nspname = 'jobs' AND n.nspowner = e.extowner
      JOIN pg_catalog.pg_proc p ON p.oid = pg_catalog.to_regprocedure('jobs.installed()') AND p.proowner = e.extowner
     WHERE e.extname = 'jobs'
       AND 2 = (SELECT pg_catalog.count(*) FROM pg_catalog.pg_depend d
                 WHERE (d.classid, d.objid) IN (('pg_catalog.pg_namespace'::pg_catalog.regclass, n.oid), ('pg_catalog.pg_proc'::pg_catalog.regclass, p.oid))
                   AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid AND d.deptype = 'e'))
  THEN
    RAISE EXCEPTION 'schema jobs is not the extension''s own'
      USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'The schema and jobs.installed() must belong to the extension, and to the role that owns it.',
            HINT = 'Rename the schema that has the name now, and the extension''s own back to jobs; ALTER SCHEMA .. OWNER TO and ALTER FUNCTION .. OWNER TO give back what another role owns.';
  END IF;
END $$;

-- All that is changed is locked at once, or nothing: sessions at work take these locks in any
-- order. A call that waits for jobs.job has not begun; one that has begun is let through.
DO $$
DECLARE
  begun CONSTANT timestamptz := clock_timestamp();
  patience CONSTANT interval := NULLIF(current_setting('lock_timeout'), '0');
BEGIN
  LOOP
    BEGIN
      LOCK TABLE jobs.job IN ACCESS EXCLUSIVE MODE;
      -- Tables and views that the script changes.
      LOCK TABLE jobs.error, jobs.errors IN ACCESS EXCLUSIVE MODE NOWAIT;
      EXIT;
    EXCEPTION WHEN lock_not_available THEN
      IF clock_timestamp() > begun + patience THEN
        RAISE;
      END IF;
      PERFORM pg_sleep(0.02);
    END;
  END LOOP;
END $$;

-- What changes.

-- As each script ends: only the owner has a right to what it has made. GRANT and REVOKE
-- stand in no upgrade script: in one, Postgres takes all rights to the object, those that were
-- granted by hand too, for what the extension comes with, and dumps leave them out.
SELECT jobs.installed();
