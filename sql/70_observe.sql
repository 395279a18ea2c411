-- Functions for monitoring, and for people at a prompt. Rust: src/api/observe.rs and
-- src/store/{health,metrics,show,explain}.rs

CREATE FUNCTION jobs.health(
  old_snapshot interval DEFAULT '5 minutes', oldest_available interval DEFAULT '5 minutes', lock_wait interval DEFAULT '1 second',
  dead_rows bigint DEFAULT 100000)
RETURNS TABLE (severity text, finding text, message text, hint text)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'health_wrapper';
COMMENT ON FUNCTION jobs.health(interval, interval, interval, bigint) IS
$$Returns what needs attention: a row per finding, the worst first; no row if all is well. severity is critical, warning or info. hint has a command that shows the cause or fixes it. The findings:
- worker_not_running: no background worker, and no jobs.maintain() for 10 minutes (5 if no process is left for the worker)
- no_place: more than 256 databases have the extension; the background worker visits this one every 5 seconds
- maintenance_paused: by whom and since when
- restoring: maintenance waits for pg_restore
- maintenance_failing: the latest run of a task failed
- old_snapshot: a transaction, slot or standby keeps vacuum from removing dead rows
- oldest_available: how long the oldest available job of an unpaused queue has waited
- discarded: jobs discarded in the last hour
- mostly_failing: a kind or queue with at least 10 failed attempts in the last 10 minutes, and more than completed jobs. Not reported if completed jobs are kept for a shorter time
- running_long: jobs that have run for at least a minute, 10 times the p95 of their kind, and longer than any of the latest
- queue_paused: a paused queue with jobs to fetch; a warning after an hour
- limit_paused: a paused limit, or key, that holds jobs; a warning after an hour. Without SELECT on jobs.job the key is left out
- key_blocked: a discarded job blocks a key of a strict order that has jobs waiting
- no_worker: an unpaused queue whose jobs have waited for 5 minutes, with no fetch for as long
- lost_worker: a worker that holds jobs and was not seen for a minute
- periodic_failed: the latest tick of a periodic job has no job because of an error
- forward_behind: an outbox with rows that have waited for 5 minutes, or not reported for as long (critical from an hour)
- forward_refused: an outbox with rows that this queue refused
- clock_moved: stored times are more than a minute ahead of the clock, or were corrected within the last day
- expired_leases: running jobs not rescued within a minute of the end of their lease
- cell_retired: this cell refuses all writes
- cell_unreplicated: synchronous_standby_names is empty in a cell
- placements_differ: a queue that this cell does not take has jobs or periodic jobs here
- bloat: a table with more dead than live rows
- lock_wait: a session that waits for a unique key, and for whom
- table_changed: a change to a table that makes calls slower, or an unfinished index
- foreign_right: another role than the owner has the right to write, TRIGGER, REFERENCES or CREATE on the extension's objects
- foreign_trigger: a trigger or rule that is not the extension's
- foreign_owner: an object whose owner is not the extension's
The parameters are thresholds: the age of a snapshot and of an available job (critical from 12 times that), the wait for a key (critical from 60 times) and the number of dead rows. Null turns a finding off.
Works on a standby, for what is visible there. Errors: 22023 (negative parameter).$$;

CREATE FUNCTION jobs.metrics()
RETURNS TABLE (metric text, type text, labels jsonb, value double precision, help text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'metrics_wrapper';
COMMENT ON FUNCTION jobs.metrics() IS
$$Returns all metrics: type (gauge or counter), labels as a JSON object, value (times in seconds) and help, its meaning.
At most jobs.metrics_max_series rows are by limit, queue and kind; the rest is summed as (others). Histograms without measurements are left out.
Counters without labels are server statistics: they include rollbacks, and restart when statistics are reset. Counters by queue and kind, and the histograms jobs_wait_seconds and jobs_run_seconds, are those of jobs.history since the server started.$$;

CREATE FUNCTION jobs.history(
  queue text DEFAULT NULL, kind text DEFAULT NULL, since interval DEFAULT '1 hour', step interval DEFAULT '1 minute')
RETURNS TABLE (at timestamptz, queue text, kind text, inserted bigint, started bigint, completed bigint, failed bigint,
               discarded bigint, cancelled bigint, wait_p50 interval, wait_p95 interval, wait_p99 interval,
               run_p50 interval, run_p95 interval, run_p99 interval)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'history_wrapper';
COMMENT ON FUNCTION jobs.history(text, text, interval, interval) IS
$$Returns what happened to jobs, by step, queue and kind, up to the latest commit. A step without events has no row.
- queue, kind: only this one; null: all, in rows of their own
- since: how far back
- step: whole minutes; at is a multiple of it in UTC
- inserted, completed, discarded, cancelled: jobs
- started, failed: attempts, by the queue and kind with which they were fetched. A snoozed or released attempt counts as started only
- wait_p..: percentiles of the wait of started attempts, since jobs.queues.oldest_available_at
- run_p..: percentiles of the duration of completed, failed and cancelled attempts
Percentiles are accurate to within a quarter, or 256 microseconds; null: no attempts.
Minutes are kept for jobs.retention_history. A restart or crash of the server loses those that maintenance has not written yet, usually the last one or two. Works on a standby, for what was written.
Errors: 22004 (since, step), 22023 (invalid name, since not positive, step not whole minutes).$$;

CREATE FUNCTION jobs.top()
RETURNS TABLE (queue text, available bigint, oldest interval, running bigint, workers bigint, scheduled bigint, retryable bigint,
               completed_per_s numeric, failed_per_s numeric, note text)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  WITH clock AS (SELECT clock_timestamp() AS now), latest AS MATERIALIZED (
    SELECT f.job_id, f.finalized_at
      FROM unnest('{false,true}'::boolean[]) AS k(is_kept), LATERAL (
        SELECT f.job_id, f.finalized_at FROM jobs.finished f
         WHERE f.state = 'completed' AND f.is_kept = k.is_kept AND f.finalized_at > (SELECT c.now - interval '1 minute' FROM clock c)
         ORDER BY f.finalized_at DESC LIMIT 10000) f
     ORDER BY f.finalized_at DESC LIMIT 10000
  ), span AS (  -- The minute, or the part of it in which the latest were completed.
    SELECT CASE WHEN count(*) < 10000 THEN 60 ELSE GREATEST(extract(epoch FROM (SELECT c.now FROM clock c) - min(l.finalized_at)), 0.001) END AS seconds FROM latest l
  ), completed AS (
    SELECT j.queue, count(*) AS n FROM latest l JOIN jobs.job j ON j.id = l.job_id GROUP BY j.queue
  ), failed AS (
    SELECT j.queue, count(*) AS n
      FROM (SELECT e.job_id FROM jobs.error e WHERE e.at > (SELECT c.now - interval '1 minute' FROM clock c) LIMIT 10000) e JOIN jobs.job j ON j.id = e.job_id
     GROUP BY j.queue
  ), busy AS (
    SELECT COALESCE(r.queue, j.queue) AS queue, count(DISTINCT r.worker) AS workers FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id GROUP BY 1
  ), held AS (
    SELECT s.queue, count(*) AS n FROM jobs.scheduled s WHERE s.gate IS NOT NULL GROUP BY s.queue
  ), blocked AS (
    SELECT t.queue, count(DISTINCT t.gate) AS n FROM jobs.turn t WHERE t.is_blocked GROUP BY t.queue
  ), line AS MATERIALIZED (
    SELECT q.queue, q.available, (SELECT c.now FROM clock c) - q.oldest_available_at AS oldest, q.running, q.scheduled, q.retryable,
           q.paused, q.running >= q.concurrency AS is_full, q.estimated <> '{}' AS is_estimated
      FROM jobs.queues q
  ), busiest AS (
    SELECT l.*, COALESCE(c.n, 0) AS completed
      FROM line l LEFT JOIN completed c ON c.queue = l.queue
     ORDER BY completed DESC, l.running DESC, l.available DESC, l.queue LIMIT 1000
  )
  SELECT a.queue, a.available, date_trunc('second', CASE WHEN a.oldest < interval '0' THEN interval '0' ELSE a.oldest END), a.running, a.workers, a.scheduled, a.retryable,
         round(a.completed / s.seconds, 1), round(a.failed / 60.0, 1), a.note
    FROM (SELECT 0 AS part, '(all)', sum(l.available)::bigint, max(l.oldest), sum(l.running)::bigint, (SELECT count(DISTINCT r.worker) FROM jobs.running r),
                 sum(l.scheduled)::bigint, sum(l.retryable)::bigint,
                 COALESCE((SELECT sum(c.n) FROM completed c), 0), COALESCE((SELECT sum(f.n) FROM failed f), 0), ''
            FROM line l HAVING count(*) > 0
          UNION ALL
          SELECT 1, b.queue, b.available, b.oldest, b.running, COALESCE(w.workers, 0), b.scheduled, b.retryable, b.completed, COALESCE(f.n, 0),
                 concat_ws(', ', CASE WHEN b.paused THEN 'paused' END, CASE WHEN b.is_full THEN 'full' END, h.n || ' held',
                           k.n || CASE k.n WHEN 1 THEN ' key blocked' ELSE ' keys blocked' END, CASE WHEN b.is_estimated THEN 'estimated' END)
            FROM busiest b LEFT JOIN busy w ON w.queue = b.queue LEFT JOIN failed f ON f.queue = b.queue LEFT JOIN held h ON h.queue = b.queue
                 LEFT JOIN blocked k ON k.queue = b.queue
         ) a(part, queue, available, oldest, running, workers, scheduled, retryable, completed, failed, note), span s
   ORDER BY a.part, a.completed DESC, a.running DESC, a.available DESC, a.queue;
END;
COMMENT ON FUNCTION jobs.top() IS
$$Returns the current activity, for \watch in psql: a row for all queues, then one for each of the 1,000 busiest, in that order.
- available, running, scheduled, retryable: jobs, as in jobs.queues
- oldest: how long the oldest available job has waited
- workers: how many hold jobs
- completed_per_s: over the last minute, or the part of it with the latest 10,000
- failed_per_s: failed attempts over the last minute, at most 10,000 counted
- note: paused, full (concurrency is reached), how many jobs limits and orders hold, how many keys discarded jobs block, estimated (some counts are older, see jobs.queues)$$;

CREATE FUNCTION jobs.last_id() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  SELECT s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END FROM jobs.job_seq s;
END;
COMMENT ON FUNCTION jobs.last_id() IS
$$Returns a number that no job's id exceeds, even in open transactions; 0: there was no job yet. For the newest jobs: WHERE id > jobs.last_id() - 1000. Works on a standby.$$;

CREATE FUNCTION jobs.show(id bigint) RETURNS text
LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'show_wrapper';
COMMENT ON FUNCTION jobs.show(bigint) IS
$$Returns the story of a job as text for people, in the session's time zone, without args, meta, progress and output for a viewer. In psql, end the statement with \g (format=unaligned tuples_only). The format can change.
Errors: P0002.$$;

-- Not SECURITY DEFINER: it checks whether the caller can see args before it switches to the owner.
CREATE FUNCTION jobs.explain(id bigint)
RETURNS TABLE (reason text, detail text, until timestamptz, by_ids bigint[])
LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'explain_wrapper';
COMMENT ON FUNCTION jobs.explain(bigint) IS
$$Returns why a job is not running, or since when it is: a row per reason, the decisive one first, from one snapshot. detail is the reason in words, until is when it ends by itself (null: unknown), by_ids are the jobs that it is about, at most 10. reason is one of:
- wrong cell: its queue lives in another cell, or this one is retired
- final, expired, pending, scheduled, retryable, queue paused
- running: until is the end of the lease
- queue limit: the queue's concurrency is reached; by_ids are the running jobs
- queue rate: until is the next start
- limit, limit paused: a limit holds the job; by_ids are the jobs that run under its key
- order: earlier jobs of its key come first, or a discarded job blocks the key; by_ids are these jobs
- no worker: no worker has fetched from the queue for 5 minutes, or all of them are quiet
- kind not asked for: no fetch in the last 5 minutes asked for this kind. Unknown without preload, and of fetches before the server started
- behind n jobs: a fetch takes n jobs before it; at most 10000 are counted
- next: the next fetch returns it
The cost does not depend on how many jobs wait. Works on a standby. Errors: P0002.$$;
