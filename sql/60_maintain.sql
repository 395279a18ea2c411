-- Maintenance by hand. Rust: src/api/maintain.rs, src/worker/

CREATE FUNCTION jobs.maintain()
RETURNS TABLE (task text, rows bigint, duration interval, error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'maintain_wrapper';
COMMENT ON FUNCTION jobs.maintain() IS
$$Runs every maintenance task once. Returns a row per task. A task that fails, or a job that it fails at, is reported in error and does not stop the others.
- schedule: makes due jobs available
- limits: has jobs that limits held back fetched where there is room
- periodic: inserts the jobs of elapsed ticks
- expire: discards expired jobs
- rescue: ends attempts whose lease has expired; corrects times ahead of a clock that was set back
- prune: deletes final jobs after their retention, by_period and window; rows of jobs.audit after jobs.retention_audit; keys of jobs.forward, and outboxes, after jobs.retention_forwarded; workers not seen for a day; commands of workers not seen for 30 days
- claims: removes keys that no job needs
- statistics: counts long tables, and writes the minutes of jobs.history
Work beyond one transaction is left to the next call. While maintenance is paused or the database is being restored, nothing is done. error says so.$$;

CREATE FUNCTION jobs.pause_maintenance(reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_maintenance_wrapper';
COMMENT ON FUNCTION jobs.pause_maintenance(text) IS
$$Pauses maintenance of this database, also by jobs.maintain(), until jobs.resume_maintenance(). Waits for maintenance in progress: a round of the background worker, or a transaction that has called jobs.maintain(). Takes effect at commit.$$;

CREATE FUNCTION jobs.resume_maintenance(reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_maintenance_wrapper';
COMMENT ON FUNCTION jobs.resume_maintenance(text) IS
$$Resumes maintenance after jobs.pause_maintenance().$$;

CREATE FUNCTION jobs.installed() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'installed_wrapper';
COMMENT ON FUNCTION jobs.installed() IS
$$Ends the install script and each upgrade script. Revokes all rights to objects that the script made, such as those by ALTER DEFAULT PRIVILEGES, and the rights to write, TRIGGER, REFERENCES and CREATE on others; grants by jobs.grant_producer and the like stay. At commit, tells the background worker that this database has the extension. Otherwise harmless.
Errors: 0A000 (the encoding is not UTF8), 42501 (neither the extension's owner nor a superuser).$$;
