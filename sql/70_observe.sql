-- What monitoring asks. Rust: src/api/observe.rs, src/health.rs, src/metrics.rs

CREATE FUNCTION jobs.health(
  old_snapshot interval DEFAULT '5 minutes', oldest_available interval DEFAULT '5 minutes', lock_wait interval DEFAULT '1 second',
  dead_rows bigint DEFAULT 100000)
RETURNS TABLE (severity text, finding text, message text, hint text)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'health_wrapper';
COMMENT ON FUNCTION jobs.health(interval, interval, interval, bigint) IS
$$What needs somebody's attention: a row per finding, the worst first; none means that all is well. severity: critical, warning or info. finding, a word to filter by:
worker_not_running (of the background worker), maintenance_paused, restoring, maintenance_failing, old_snapshot (what keeps vacuum from clearing away dead rows, and whose it is), oldest_available (a queue that is not paused, and how long its oldest available job has waited), discarded (jobs discarded in the last hour), expired_leases (not rescued for a minute), bloat (a table with more dead rows than live ones), lock_wait (sessions that wait for a unique key, and for whom).
Parameters: from when on a snapshot, an available job or a wait for a key is a finding (critical from 12 times that on, a wait from 60 times), and how many dead rows; null: never. Errors: 22023 where one is negative.
Works on a standby, for what can be seen there.$$;

CREATE FUNCTION jobs.metrics()
RETURNS TABLE (metric text, type text, labels jsonb, value double precision, help text)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'metrics_wrapper';
COMMENT ON FUNCTION jobs.metrics() IS
$$Everything to be measured, for Prometheus and others: name of the metric, type (gauge or counter), labels as a JSON object, value, what it means. Times are in seconds. Costs as much as the views jobs.queues and jobs.maintenance. Counters of rows are those of the server's statistics: they count what was rolled back as well, and begin anew when those are reset.$$;
