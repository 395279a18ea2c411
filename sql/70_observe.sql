-- What monitoring asks, and people at a prompt. Rust: src/api/observe.rs and
-- src/store/{health,metrics,show,explain}.rs

CREATE FUNCTION jobs.health(
  old_snapshot interval DEFAULT '5 minutes', oldest_available interval DEFAULT '5 minutes', lock_wait interval DEFAULT '1 second',
  dead_rows bigint DEFAULT 100000)
RETURNS TABLE (severity text, finding text, message text, hint text)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'health_wrapper';
COMMENT ON FUNCTION jobs.health(interval, interval, interval, bigint) IS
$$What needs somebody's attention: a row per finding, the worst first; none means that all is well. severity is critical, warning or info. finding is one of the words below, to filter by. hint has a command that shows what is behind it or mends it, as it stands.
worker_not_running: the background worker does not run here, and nobody has called jobs.maintain() for 10 minutes; for 5 where no process is left for the worker.
no_slot: more than 256 databases of the server have the extension, and this one is among those that the background worker visits in turn, every 5 seconds.
maintenance_paused: by whom, and since when.
restoring: maintenance waits for pg_restore.
maintenance_failing: a task has failed at least the last time, with the error.
old_snapshot: what keeps vacuum from clearing away dead rows, and whose it is.
oldest_available: how long the oldest available job of a queue that is not paused has waited (see jobs.queues.oldest_available_at).
discarded: jobs that were discarded in the last hour.
mostly_failing: a kind or queue of which more attempts failed in the last 10 minutes than jobs were completed, and 10 at least; with the newest error. Not where completed jobs are kept for less than 10 minutes.
running_long: jobs that have run for a minute at least, ten times as long as 95 of 100 of the latest jobs of their kind, and longer than any of them.
queue_paused: a paused queue with jobs that could be fetched; info, from an hour on a warning.
no_worker: a queue that is not paused, whose jobs have waited for 5 minutes, and from which nobody has fetched for as long.
lost_worker: a worker that was not seen for a minute and holds jobs, and when the last of their leases ends.
periodic_failed: a periodic job whose latest tick has no job because of an error.
clock_moved: stored times lie more than a minute ahead of the clock, or were brought forward within the last day; with how many and by how much.
expired_leases: running jobs that nobody has rescued a minute after their lease ran out.
bloat: a table with more dead rows than live ones.
lock_wait: a session that waits for a unique key, and for whom.
table_changed: what somebody has changed about a table that makes calls slower, or an index that was left behind unfinished.
foreign_right: what others may do with the extension's objects that is the owner's alone: write, TRIGGER, REFERENCES, CREATE.
foreign_trigger: a trigger or rule that somebody has attached; it makes calls slower, too.
foreign_owner: an object that another role owns than the extension.
Parameters: from when on a snapshot, an available job or a wait for a key is a finding (critical from 12 times that on, a wait from 60 times), and how many dead rows; null: never. Errors: 22023 where one is negative.
Works on a standby, for what can be seen there.$$;

CREATE FUNCTION jobs.metrics()
RETURNS TABLE (metric text, type text, labels jsonb, value double precision, help text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'metrics_wrapper';
COMMENT ON FUNCTION jobs.metrics() IS
$$Everything to be measured, for Prometheus and others: name of the metric, type (gauge or counter), labels as a JSON object, value, what it means. Times are in seconds. At most jobs.metrics_max_series rows are by queue and kind. The busiest queues have rows of their own, and so have pairs of queue and kind as long as there is room or in the place of idle ones; the rest is summed as (others). A histogram without measurements is left out. Costs as much as the views jobs.queues, jobs.workers and jobs.maintenance. Counters without labels are those of the server's statistics: they count what was rolled back as well, and begin anew when those are reset. Counters by queue and kind, and histograms of how long attempts waited and ran (jobs_wait_seconds, jobs_run_seconds), are those of jobs.history since the server began.$$;

CREATE FUNCTION jobs.history(
  queue text DEFAULT NULL, kind text DEFAULT NULL, since interval DEFAULT '1 hour', step interval DEFAULT '1 minute')
RETURNS TABLE (at timestamptz, queue text, kind text, inserted bigint, started bigint, completed bigint, failed bigint,
               discarded bigint, cancelled bigint, wait_p50 interval, wait_p95 interval, wait_p99 interval,
               run_p50 interval, run_p95 interval, run_p99 interval)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'history_wrapper';
COMMENT ON FUNCTION jobs.history(text, text, interval, interval) IS
$$What happened to jobs, by steps of time, queue and kind, up to what has just committed. queue, kind: only that one; null: all, each with rows of its own. since: how far back; step: whole minutes, and at is a multiple of it in UTC. A step in which nothing happened has no row.
inserted, completed, discarded and cancelled count jobs; started and failed count attempts, of the queue and kind with which they were fetched. Each counts at its own time, not at that of the commit; what is rolled back does not count. An attempt that is snoozed or released counts as started only.
wait_p50, wait_p95, wait_p99: how long half, 95 and 99 % of the attempts that began waited at most: since the later of when the job was due and when it was inserted, retried, activated or released, or its queue resumed. run_..: how long those ran at most that ended: completed, failed or cancelled. Both are off by less than a quarter, or by less than 256 microseconds. Null: there was none.
Minutes are kept for jobs.retention_history. A crash or a restart of the server loses those that maintenance has not written yet, mostly the last one or two. Errors: 22023 a bad name, a since that is not positive, a step that is not of whole minutes; 22004 a null since or step. Works on a standby, for what was written.$$;

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
  ), span AS (  -- of the minute, or of the part of it in which so many were completed
    SELECT CASE WHEN count(*) < 10000 THEN 60 ELSE GREATEST(extract(epoch FROM (SELECT c.now FROM clock c) - min(l.finalized_at)), 0.001) END AS seconds FROM latest l
  ), completed AS (
    SELECT j.queue, count(*) AS n FROM latest l JOIN jobs.job j ON j.id = l.job_id GROUP BY j.queue
  ), failed AS (
    SELECT j.queue, count(*) AS n
      FROM (SELECT e.job_id FROM jobs.error e WHERE e.at > (SELECT c.now - interval '1 minute' FROM clock c) LIMIT 10000) e JOIN jobs.job j ON j.id = e.job_id
     GROUP BY j.queue
  ), busy AS (
    SELECT COALESCE(r.queue, j.queue) AS queue, count(DISTINCT r.worker) AS workers FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id GROUP BY 1
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
                 concat_ws(', ', CASE WHEN b.paused THEN 'paused' END, CASE WHEN b.is_full THEN 'full' END, CASE WHEN b.is_estimated THEN 'estimated' END)
            FROM busiest b LEFT JOIN busy w ON w.queue = b.queue LEFT JOIN failed f ON f.queue = b.queue
         ) a(part, queue, available, oldest, running, workers, scheduled, retryable, completed, failed, note), span s
   ORDER BY a.part, a.completed DESC, a.running DESC, a.available DESC, a.queue;
END;
COMMENT ON FUNCTION jobs.top() IS
$$What happens right now, for \watch in psql: a row for all queues together, then one for each of the 1,000 busiest queues, in that order. available, running, scheduled, retryable: how many jobs, as in jobs.queues; oldest: how long the oldest available one has waited; workers: how many hold jobs; completed_per_s: over the last minute, or as long as the latest 10,000 took, of those that are kept (a retention of less than a minute hides some); failed_per_s: attempts that failed in the last minute, of which at most 10,000 are counted; note: paused, full (as many run as may), estimated (some of the numbers were counted before, see jobs.queues).$$;

CREATE FUNCTION jobs.last_id() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  SELECT s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END FROM jobs.job_seq s;
END;
COMMENT ON FUNCTION jobs.last_id() IS
$$No job has a larger id than this, also none of a transaction that is still open; 0: there has been none yet. Costs nothing, however many jobs there are, so a program can read the jobs that were inserted last: WHERE id > jobs.last_id() - 1000. It can be larger than the id of the newest job: some numbers are given to nothing that stays. No errors; works on a standby.$$;

CREATE FUNCTION jobs.show(id bigint) RETURNS text
LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'show_wrapper';
COMMENT ON FUNCTION jobs.show(bigint) IS
$$The whole story of a job as text, to be read by people: what it is, what it carries, what happened to it and when, in the session's time zone, and what comes next. In psql best seen by \g (format=unaligned tuples_only). Shows what the caller may see in the views: a viewer sees no args, meta, progress and output. Control characters are shown as escapes, so no text commands the terminal or looks like another line. The form of the text may change; programs read jobs.jobs and jobs.errors. Errors: P0002 no such job, 22004 id is null.$$;

-- Not SECURITY DEFINER: it looks whether the caller may see what jobs carry before it switches to
-- the owner.
CREATE FUNCTION jobs.explain(id bigint)
RETURNS TABLE (reason text, detail text, until timestamptz, by_ids bigint[])
LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'explain_wrapper';
COMMENT ON FUNCTION jobs.explain(bigint) IS
$$Why a job does not run now, or since when it does: a row for each reason that holds, the decisive one first. detail says it in words, until is when the reason is over by itself (null: not known), by_ids are jobs that it is about (10 of them at most). All of it is what one snapshot shows.
reason: final, running (with worker, lease, deadline, a request to stop, and the progress for a role that may SELECT from jobs.job; until: the lease), expired; or of a job that waits those of pending (with scheduled, if it is due later), scheduled, retryable, queue paused, queue limit (as many run as may; by_ids: those), queue rate (until: the next start), no worker (nobody has fetched from its queue for 5 minutes, or since all its workers are quiet), kind not asked for (its queue is fetched from, and no fetch of the last 5 minutes has asked for its kind; not known without preload, nor of fetches before the server was started), behind n jobs (that a fetch from its queue takes before it; more than 10000 are not counted), next (the next fetch from its queue gets it).
A job that is due but not yet available can be fetched: then the last two say so. A job of a kind that is not asked for is not next. Costs the same however many jobs wait. Errors: P0002 no such job, 22004 id is null. Works on a standby.$$;
