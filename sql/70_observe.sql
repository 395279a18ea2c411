-- What monitoring asks. Rust: src/api/observe.rs, src/health.rs, src/metrics.rs

CREATE FUNCTION jobs.health()
RETURNS TABLE (severity text, finding text, message text, hint text)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'health_wrapper';
COMMENT ON FUNCTION jobs.health() IS
$$What needs somebody's attention: a row per finding, the worst first; none means that all is well. severity: critical, warning or info. finding, a word to filter by:
worker_not_running (of the background worker), maintenance_paused, restoring, maintenance_failing, old_snapshot (what keeps vacuum from clearing away dead rows, and whose it is: from 5 minutes on, critical from 1 hour), oldest_available (a queue that is not paused whose oldest available job has waited 5 minutes, critical: 1 hour), discarded (jobs discarded in the last hour), expired_leases (not rescued for a minute), bloat (dead rows in a table: more than 100,000, and more than live ones), lock_wait (sessions that have waited a second for a unique key, and for whom; critical: a minute).
Works on a standby, for what can be seen there.$$;

CREATE FUNCTION jobs.metrics()
RETURNS TABLE (metric text, type text, labels jsonb, value double precision, help text)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'metrics_wrapper';
COMMENT ON FUNCTION jobs.metrics() IS
$$Everything to be measured, for Prometheus and others: name of the metric, type (gauge or counter), labels as a JSON object, value, what it means. Times are in seconds. Costs as much as the views jobs.queues and jobs.maintenance. Counters of rows are those of the server's statistics: they count what was rolled back as well, and begin anew when those are reset.$$;
