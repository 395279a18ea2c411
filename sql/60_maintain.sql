-- What the background worker does, to be done at once. Rust: src/api/maintain.rs, src/worker/

CREATE FUNCTION jobs.maintain()
RETURNS TABLE (task text, rows bigint, duration interval, error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'maintain_wrapper';
COMMENT ON FUNCTION jobs.maintain() IS
$$Runs every maintenance task once: schedule (due jobs become available), periodic (jobs of ticks that have passed are inserted), expire, rescue (leases that ran out; times that lie ahead of a clock which was put back), prune (final jobs past their retention, and past their own by_period and window; rows of jobs.audit past theirs; workers that were not seen for a day; the command of a worker, once that is not seen for 30 days), claims (keys that no job needs), statistics (counts of long tables; minutes of jobs.history).
A row per task; a failing task, or a job that a task fails at, is reported in error and does not stop the others. What is too much for one transaction is left to the next call, and error says so. While maintenance is paused, or the database is being restored, nothing is done and error says so. Errors: 25006 on a standby or read only.$$;

CREATE FUNCTION jobs.pause_maintenance(reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_maintenance_wrapper';
COMMENT ON FUNCTION jobs.pause_maintenance(text) IS
$$Stops maintenance of this database, by the background worker and by jobs.maintain(), until jobs.resume_maintenance(). Waits for maintenance that is under way: a round of the background worker, or a transaction that has called jobs.maintain(); once this is committed nothing is maintained. Inserting, fetching and finishing go on, and a fetch still finds what is due. Kept in the database: it outlives restarts, and dumps have it. While it is paused already, nothing changes. Errors: 25006 on a standby or read only.$$;

CREATE FUNCTION jobs.resume_maintenance(reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_maintenance_wrapper';
COMMENT ON FUNCTION jobs.resume_maintenance(text) IS
$$Lets maintenance go on that jobs.pause_maintenance() has stopped. Errors: 25006 on a standby or read only.$$;

CREATE FUNCTION jobs.installed() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'installed_wrapper';
COMMENT ON FUNCTION jobs.installed() IS
$$The end of the install script, and of each upgrade script: refuses a database whose encoding is not UTF8 (0A000), takes what others have come by that is the owner's alone, as by ALTER DEFAULT PRIVILEGES, and tells the background worker, at commit, that this database has the extension. Of what the script has made it takes every right, of what was there before the right to write, TRIGGER, REFERENCES and CREATE; what jobs.grant_producer and the like have granted stays. For the extension's owner and superusers only (42501). Harmless otherwise.$$;
