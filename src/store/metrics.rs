//! Everything to be measured: each statement is one kind of thing, and says metric, type, labels,
//! value and what it means.

use std::rc::Rc;

use jobs_core::counts::{Event, Time};

use super::spi::{Tuples, big, column, plans, text};
use super::types::*;
use super::{config_cache, forwarded, history};
use crate::settings;

/// Hands the metrics to `take`, kind by kind.
pub fn measure(mut take: impl FnMut(&Tuples)) {
    let by_kind = by_kind();
    let mut left = settings::metrics_max_series().saturating_sub(by_kind.len());
    if !config_cache::rules().is_empty() {
        LIMITS.run(&[big((left / 2 / LIMIT_SERIES) as i64)], |rows| {
            left -= rows.len();
            take(rows)
        });
    }
    QUEUES.run(&[big((left / QUEUE_SERIES) as i64)], &mut take);
    for plan in [&WORK, &TRAFFIC, &TABLES, &MAINTENANCE, &HEALTH, &WORKERS, &STANDBY] {
        plan.run(&[], &mut take);
    }
    if forwarded::are_here() {
        OUTBOXES.run(&[], &mut take);
    }
    if config_cache::here().is_some() {
        CELL.run(&[], &mut take);
    }
    let args = [
        column(TEXT, &by_kind, |one| text(&one.metric)),
        column(TEXT, &by_kind, |one| text(&one.queue)),
        column(TEXT, &by_kind, |one| text(&one.kind)),
        column(INT8, &by_kind, |one| big(one.up_to)),
        column(INT8, &by_kind, |one| big(one.value)),
    ];
    BY_KIND.run(&args, &mut take);
}

/// The rows of a queue, at most.
const QUEUE_SERIES: usize = 15;

/// The rows of a limit.
const LIMIT_SERIES: usize = 2;

/// A row of a queue and kind.
struct Series {
    metric: String,
    queue: Rc<str>,
    kind: Rc<str>,
    /// The upper bound of a histogram's bucket.
    up_to: i64,
    value: i64,
}

/// What the history has counted, and times as the histograms of Prometheus.
fn by_kind() -> Vec<Series> {
    let mut series = Vec::new();
    for (queue, kind, counts) in history::totals() {
        let (queue, kind): (Rc<str>, Rc<str>) = (queue.into(), kind.into());
        let mut add = |metric: &str, up_to: i64, value: u64| {
            series.push(Series {
                metric: metric.to_owned(),
                queue: queue.clone(),
                kind: kind.clone(),
                up_to,
                value: value as i64,
            });
        };
        for event in Event::ALL {
            add(&format!("{event:?}"), 0, counts.of(event));
        }
        let measured = |time: &Time| counts.measured(*time) > 0;
        for time in [Time::Wait, Time::Run].into_iter().filter(measured) {
            for power in history::UP_TO {
                let micros = 1 << (2 * power);
                add(&format!("{time:?}"), micros, counts.up_to(time, micros));
            }
            add(&format!("{time:?}"), -1, counts.measured(time));
            add(&format!("{time:?}Sum"), 0, counts.sum(time));
            add(&format!("{time:?}Count"), 0, counts.measured(time));
        }
    }
    series
}

plans! {
    BY_KIND(TEXTS, TEXTS, TEXTS, INT8S, INT8S) =
        "SELECT m.metric, 'counter',
                jsonb_build_object('queue', v.queue, 'kind', v.kind)
                  || CASE WHEN v.up_to = 0 THEN '{{}}'
                          ELSE jsonb_build_object('le', CASE v.up_to WHEN -1 THEN '+Inf' ELSE trim_scale(v.up_to / 1e6)::text END) END,
                v.value::double precision / m.unit, m.help
           FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY v(name, queue, kind, up_to, value, n)
           JOIN (VALUES
             ('Inserted', 'jobs_kind_inserted_total', 1, 'Jobs inserted, by queue and kind'),
             ('Started', 'jobs_kind_started_total', 1, 'Attempts begun, by queue and kind'),
             ('Completed', 'jobs_kind_completed_total', 1, 'Jobs completed, by queue and kind'),
             ('Failed', 'jobs_kind_failed_attempts_total', 1, 'Attempts that failed, by queue and kind'),
             ('Discarded', 'jobs_kind_discarded_total', 1, 'Jobs discarded, by queue and kind'),
             ('Cancelled', 'jobs_kind_cancelled_total', 1, 'Jobs cancelled, by queue and kind'),
             ('Wait', 'jobs_wait_seconds_bucket', 1, 'Attempts that waited at most so long'),
             ('WaitSum', 'jobs_wait_seconds_sum', 1000000, 'How long all attempts waited together'),
             ('WaitCount', 'jobs_wait_seconds_count', 1, 'Attempts whose wait was measured'),
             ('Run', 'jobs_run_seconds_bucket', 1, 'Attempts that ran at most so long'),
             ('RunSum', 'jobs_run_seconds_sum', 1000000, 'How long all attempts ran together'),
             ('RunCount', 'jobs_run_seconds_count', 1, 'Attempts whose time was measured')) m(name, metric, unit, help) ON m.name = v.name
          ORDER BY v.n";
    // The busiest queues, and the others together, which are only looked at if there are any. A
    // queue that has their name is one of them.
    QUEUES(INT8) =
        "WITH named AS MATERIALIZED (
           SELECT q.queue, q.available, q.scheduled, q.pending, q.running, q.retryable, q.completed, q.cancelled, q.discarded, q.oldest_available_at, q.counted_at
             FROM jobs.queues q
            ORDER BY q.available + q.scheduled + q.pending + q.running + q.retryable DESC, q.completed + q.cancelled + q.discarded DESC, q.queue LIMIT $1)
         SELECT m.metric, 'gauge', m.labels, m.value, m.help
           FROM (SELECT n.*, s.paused_at IS NOT NULL AS paused, s.concurrency, s.max_waiting, o.waiting_keys, o.blocked_keys
                   FROM named n LEFT JOIN jobs.queue s ON s.queue = n.queue LEFT JOIN jobs.orders o ON o.queue = n.queue WHERE n.queue <> '(others)'
                 UNION ALL
                 SELECT '(others)', sum(q.available), sum(q.scheduled), sum(q.pending), sum(q.running), sum(q.retryable), sum(q.completed),
                        sum(q.cancelled), sum(q.discarded), min(q.oldest_available_at), NULL, NULL, NULL, NULL, sum(o.waiting_keys), sum(o.blocked_keys)
                   FROM jobs.queues q LEFT JOIN jobs.orders o ON o.queue = q.queue
                  WHERE (SELECT count(*) = $1 OR bool_or(n.queue = '(others)') FROM named n)
                    AND q.queue NOT IN (SELECT n.queue FROM named n WHERE n.queue <> '(others)') HAVING count(*) > 0) q, LATERAL (
             SELECT 'jobs_queue_jobs', jsonb_build_object('queue', q.queue, 'state', s.state), s.jobs::double precision,
                    'Jobs by queue and state; of long tables as counted before, see jobs_queue_counted_age_seconds'
               FROM (VALUES ('available', q.available), ('scheduled', q.scheduled), ('pending', q.pending), ('running', q.running),
                            ('retryable', q.retryable), ('completed', q.completed), ('cancelled', q.cancelled), ('discarded', q.discarded)) s(state, jobs)
             UNION ALL
             SELECT 'jobs_queue_oldest_available_age_seconds', jsonb_build_object('queue', q.queue),
                    COALESCE(greatest(EXTRACT(epoch FROM clock_timestamp() - q.oldest_available_at), 0), 0)::double precision,
                    'How long the oldest available job has waited; 0: there is none'
             UNION ALL
             SELECT 'jobs_queue_paused', jsonb_build_object('queue', q.queue), q.paused::integer::double precision, '1: the queue is paused'
              WHERE q.paused IS NOT NULL
             UNION ALL
             SELECT 'jobs_queue_concurrency_limit', jsonb_build_object('queue', q.queue), q.concurrency::double precision, 'The most jobs of the queue that run at a time'
              WHERE q.concurrency IS NOT NULL
             UNION ALL
             SELECT 'jobs_queue_waiting_limit', jsonb_build_object('queue', q.queue), q.max_waiting::double precision, 'The most jobs of the queue that may wait'
              WHERE q.max_waiting IS NOT NULL
             UNION ALL
             SELECT 'jobs_queue_waiting_keys', jsonb_build_object('queue', q.queue), q.waiting_keys::double precision,
                    'Keys of the queue''s order with available jobs, not counting jobs that a limit holds'
              WHERE q.waiting_keys IS NOT NULL
             UNION ALL
             SELECT 'jobs_queue_blocked_keys', jsonb_build_object('queue', q.queue), q.blocked_keys::double precision,
                    'Keys of the queue''s order that a discarded job blocks'
              WHERE q.blocked_keys IS NOT NULL
             UNION ALL
             SELECT 'jobs_queue_counted_age_seconds', jsonb_build_object('queue', q.queue),
                    EXTRACT(epoch FROM clock_timestamp() - q.counted_at)::double precision, 'How long ago the kept counts of the queue were made'
              WHERE q.counted_at IS NOT NULL) m(metric, labels, value, help)
          ORDER BY m.metric, q.queue, m.labels";
    // The limits that hold most, and the others together. A queue's own limit is told by its jobs.
    LIMITS(INT8) =
        "SELECT m.metric, 'gauge', jsonb_build_object('limit', l.name), m.value::double precision, m.help
           FROM (SELECT CASE WHEN n.n < $1 THEN n.name ELSE '(others)' END AS name, sum(n.running) AS running, sum(n.held) AS held
                   FROM (SELECT r.name, r.running, r.held, row_number() OVER (ORDER BY r.held DESC, r.running DESC, r.name) AS n
                           FROM jobs.limits r WHERE r.name NOT LIKE 'queue/%') n
                  GROUP BY 1) l, LATERAL (VALUES
             ('jobs_limit_running', l.running, 'Running jobs under the limit'),
             ('jobs_limit_held', l.held, 'Available jobs that the limit holds')) m(metric, value, help)
          ORDER BY m.metric, l.name";
    WORK() =
        "SELECT m.metric, 'gauge', '{{}}'::jsonb, m.value::double precision, m.help
           FROM (SELECT count(DISTINCT r.worker) AS workers, count(*) FILTER (WHERE r.lease_expires_at <= clock_timestamp()) AS expired FROM jobs.running r) w,
                LATERAL (VALUES
                  ('jobs_workers', w.workers, 'Workers that hold jobs'),
                  ('jobs_expired_leases', w.expired, 'Running jobs whose lease has run out and that are not yet rescued'),
                  ('jobs_unique_claims', (SELECT greatest(c.reltuples, 0)::bigint FROM pg_catalog.pg_class c WHERE c.oid = 'jobs.unique_claim'::pg_catalog.regclass),
                   'Unique keys that are claimed, as of the last ANALYZE')
                ) m(metric, value, help)";
    WORKERS() =
        "SELECT 'jobs_known_workers', 'gauge', jsonb_build_object('status', s.status), count(w.status)::double precision,
                'Workers that jobs.workers shows: at work, idle, commanded to be quiet or to stop, or lost'
           FROM (VALUES ('busy'), ('idle'), ('lost'), ('quiet'), ('stop')) s(status)
           LEFT JOIN jobs.workers w ON w.status = s.status
          GROUP BY s.status ORDER BY s.status";
    // One that is connected and has replayed all that it got is not behind. No row before anything
    // was replayed. The program pgjobs has this as well (cli/src/standby.rs), for servers with
    // another version of the extension.
    STANDBY() =
        "SELECT 'jobs_replication_lag_seconds', 'gauge', '{{}}'::jsonb, l.lag::double precision, 'On a standby: how far it is behind the primary'
           FROM (SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver)
                              AND pg_catalog.pg_last_wal_replay_lsn() >= pg_catalog.pg_last_wal_receive_lsn() THEN 0
                             ELSE greatest(EXTRACT(epoch FROM clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()), 0) END AS lag
                  WHERE pg_catalog.pg_is_in_recovery()) l
          WHERE l.lag IS NOT NULL";
    CELL() =
        "SELECT 'jobs_cell_retired', 'gauge', jsonb_build_object('cell', c.cell::text), (c.retired_at IS NOT NULL)::integer::double precision,
                '1: the cell is retired, and refuses all writes'
           FROM jobs.cells c WHERE c.is_self";
    // The server counts these anyway; they count what was rolled back, too.
    TRAFFIC() =
        "SELECT m.metric, 'counter', '{{}}'::jsonb, pg_catalog.pg_stat_get_tuples_inserted(m.place)::double precision, m.help
           FROM (VALUES
             ('jobs_inserted_total', 'jobs.job'::pg_catalog.regclass, 'Jobs inserted'),
             ('jobs_fetched_total', 'jobs.running'::pg_catalog.regclass, 'Attempts begun'),
             ('jobs_finished_total', 'jobs.finished'::pg_catalog.regclass, 'Jobs that became completed, cancelled or discarded'),
             ('jobs_failed_attempts_total', 'jobs.error'::pg_catalog.regclass, 'Attempts that failed')) m(metric, place, help)";
    TABLES() =
        "SELECT m.metric, 'gauge', jsonb_build_object('table', c.relname), m.value::double precision, m.help
           FROM pg_catalog.pg_class c, LATERAL (VALUES
             ('jobs_table_bytes', pg_catalog.pg_total_relation_size(c.oid), 'Size of a table with its indexes'),
             ('jobs_table_dead_rows', pg_catalog.pg_stat_get_dead_tuples(c.oid), 'Dead rows that vacuum has not cleared away')) m(metric, value, help)
          WHERE c.relnamespace = 'jobs'::pg_catalog.regnamespace AND c.relkind = 'r'
          ORDER BY m.metric, c.relname";
    MAINTENANCE() =
        "SELECT m.metric, m.type, jsonb_build_object('task', t.task), m.value, m.help
           FROM jobs.maintenance t, LATERAL (VALUES
             ('jobs_maintenance_last_run_timestamp_seconds', 'gauge', EXTRACT(epoch FROM t.last_run_at)::double precision, 'When the task ran last'),
             ('jobs_maintenance_last_duration_seconds', 'gauge', EXTRACT(epoch FROM t.duration)::double precision, 'How long it took then'),
             ('jobs_maintenance_failures', 'gauge', t.failures::double precision, 'How often the task has failed since it last succeeded'),
             ('jobs_maintenance_rows_total', 'counter', t.rows_total::double precision, 'Rows that the task has handled'),
             ('jobs_maintenance_failures_total', 'counter', t.failures_total::double precision, 'What the task has failed at')) m(metric, type, value, help)
          WHERE m.value IS NOT NULL
          ORDER BY m.metric, t.task";
    OUTBOXES() =
        "SELECT m.metric, 'gauge', jsonb_build_object('source', f.source, 'address', f.address), m.value::double precision, m.help
           FROM jobs.forwarder f, LATERAL (VALUES
             ('jobs_forward_waiting_rows', f.waiting, 'Rows of an outbox that waited when it was reported last'),
             ('jobs_forward_refused_rows', f.refused, 'Rows of an outbox that were refused when it was reported last'),
             ('jobs_forward_behind_seconds', greatest(EXTRACT(epoch FROM f.seen_at - f.oldest_at), EXTRACT(epoch FROM clock_timestamp() - f.seen_at), 0),
              'Age of the oldest waiting row of an outbox, or of its last report')) m(metric, value, help)
          ORDER BY m.metric, f.source";
    HEALTH() =
        "SELECT 'jobs_health_findings', 'gauge', jsonb_build_object('severity', s.severity),
                s.findings::double precision, 'Findings of jobs.health()'
           FROM (SELECT s.severity, count(h.severity) AS findings
                   FROM (VALUES (1, 'critical'), (2, 'warning'), (3, 'info')) s(n, severity) LEFT JOIN jobs.health() h ON h.severity = s.severity
                  GROUP BY s.n, s.severity ORDER BY s.n) s
         UNION ALL
         SELECT 'jobs_maintenance_paused', 'gauge', '{{}}', (SELECT count(*) FROM jobs.maintenance_pause)::double precision, '1: maintenance is paused'";
}
