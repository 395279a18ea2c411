//! Everything to be measured: each statement is one kind of thing, and says metric, type, labels,
//! value and what it means.

use jobs_core::counts::{Event, Time};

use super::history;
use super::spi::{Plan, Tuples, bigs, texts};
use super::types::*;

/// Hands the metrics to `take`, kind by kind.
pub fn measure(mut take: impl FnMut(&Tuples)) {
    for plan in [
        &QUEUES,
        &WORK,
        &TRAFFIC,
        &TABLES,
        &MAINTENANCE,
        &HEALTH,
        &WORKERS,
    ] {
        plan.run(&[], &mut take);
    }
    by_kind(&mut take);
}

/// Up to where times are counted, in microseconds: powers of 4, from a millisecond to 5 hours.
const UP_TO: std::ops::RangeInclusive<u32> = 5..=17;

/// What the history has counted, and times as the histograms of Prometheus.
fn by_kind(take: &mut impl FnMut(&Tuples)) {
    let (mut metrics, mut queues, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    let (mut up_to, mut values) = (Vec::new(), Vec::new());
    for (queue, kind, counts) in history::totals() {
        let mut add = |metric: &str, micros: i64, value: u64| {
            metrics.push(metric.to_owned());
            queues.push(queue.clone());
            kinds.push(kind.clone());
            up_to.push(micros);
            values.push(value as i64);
        };
        for event in Event::ALL {
            add(&format!("{event:?}"), 0, counts.of(event));
        }
        for time in [Time::Wait, Time::Run] {
            for power in UP_TO {
                let micros = 1 << (2 * power);
                add(&format!("{time:?}"), micros, counts.up_to(time, micros));
            }
            add(&format!("{time:?}"), -1, counts.measured(time));
            add(&format!("{time:?}Sum"), 0, counts.sum(time));
            add(&format!("{time:?}Count"), 0, counts.measured(time));
        }
    }
    let args = [
        texts(&metrics),
        texts(&queues),
        texts(&kinds),
        bigs(&up_to),
        bigs(&values),
    ];
    BY_KIND.run(&args, take);
}

static BY_KIND: Plan = Plan::new(
    "SELECT m.metric, 'counter',
            jsonb_build_object('queue', v.queue, 'kind', v.kind)
              || CASE WHEN v.up_to = 0 THEN '{}'
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
      ORDER BY v.n",
    &[TEXTS, TEXTS, TEXTS, INT8S, INT8S],
);

static QUEUES: Plan = Plan::new(
    "SELECT m.metric, 'gauge', m.labels, m.value, m.help
       FROM jobs.queues q, LATERAL (
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
         UNION ALL
         SELECT 'jobs_queue_concurrency_limit', jsonb_build_object('queue', q.queue), q.concurrency::double precision, 'The most jobs of the queue that run at a time'
          WHERE q.concurrency IS NOT NULL
         UNION ALL
         SELECT 'jobs_queue_waiting_limit', jsonb_build_object('queue', q.queue), q.max_waiting::double precision, 'The most jobs of the queue that may wait'
          WHERE q.max_waiting IS NOT NULL
         UNION ALL
         SELECT 'jobs_queue_counted_age_seconds', jsonb_build_object('queue', q.queue),
                EXTRACT(epoch FROM clock_timestamp() - q.counted_at)::double precision, 'How long ago the kept counts of the queue were made'
          WHERE q.counted_at IS NOT NULL) m(metric, labels, value, help)
      ORDER BY m.metric, m.labels",
    &[],
);

static WORK: Plan = Plan::new(
    "SELECT m.metric, 'gauge', '{}'::jsonb, m.value::double precision, m.help
       FROM (SELECT count(DISTINCT r.worker) AS workers, count(*) FILTER (WHERE r.lease_expires_at <= clock_timestamp()) AS expired FROM jobs.running r) w,
            LATERAL (VALUES
              ('jobs_workers', w.workers, 'Workers that hold jobs'),
              ('jobs_expired_leases', w.expired, 'Running jobs whose lease has run out and that are not yet rescued'),
              ('jobs_unique_claims', (SELECT greatest(c.reltuples, 0)::bigint FROM pg_catalog.pg_class c WHERE c.oid = 'jobs.unique_claim'::pg_catalog.regclass),
               'Unique keys that are claimed, as of the last ANALYZE')
            ) m(metric, value, help)",
    &[],
);

static WORKERS: Plan = Plan::new(
    "SELECT 'jobs_known_workers', 'gauge', jsonb_build_object('status', s.status), count(w.status)::double precision,
            'Workers that jobs.workers shows: at work, idle, commanded to be quiet or to stop, or lost'
       FROM (VALUES ('busy'), ('idle'), ('lost'), ('quiet'), ('stop')) s(status)
       LEFT JOIN jobs.workers w ON w.status = s.status
      GROUP BY s.status ORDER BY s.status",
    &[],
);

// The server counts these anyway; they count what was rolled back, too.
static TRAFFIC: Plan = Plan::new(
    "SELECT m.metric, 'counter', '{}'::jsonb, pg_catalog.pg_stat_get_tuples_inserted(m.place)::double precision, m.help
       FROM (VALUES
         ('jobs_inserted_total', 'jobs.job'::pg_catalog.regclass, 'Jobs inserted'),
         ('jobs_fetched_total', 'jobs.running'::pg_catalog.regclass, 'Attempts begun'),
         ('jobs_finished_total', 'jobs.finished'::pg_catalog.regclass, 'Jobs that became completed, cancelled or discarded'),
         ('jobs_failed_attempts_total', 'jobs.error'::pg_catalog.regclass, 'Attempts that failed')) m(metric, place, help)",
    &[],
);

static TABLES: Plan = Plan::new(
    "SELECT m.metric, 'gauge', jsonb_build_object('table', c.relname), m.value::double precision, m.help
       FROM pg_catalog.pg_class c, LATERAL (VALUES
         ('jobs_table_bytes', pg_catalog.pg_total_relation_size(c.oid), 'Size of a table with its indexes'),
         ('jobs_table_dead_rows', pg_catalog.pg_stat_get_dead_tuples(c.oid), 'Dead rows that vacuum has not cleared away')) m(metric, value, help)
      WHERE c.relnamespace = 'jobs'::pg_catalog.regnamespace AND c.relkind = 'r'
      ORDER BY m.metric, c.relname",
    &[],
);

static MAINTENANCE: Plan = Plan::new(
    "SELECT m.metric, m.type, jsonb_build_object('task', t.task), m.value, m.help
       FROM jobs.maintenance t, LATERAL (VALUES
         ('jobs_maintenance_last_run_timestamp_seconds', 'gauge', EXTRACT(epoch FROM t.last_run_at)::double precision, 'When the task ran last'),
         ('jobs_maintenance_last_duration_seconds', 'gauge', EXTRACT(epoch FROM t.duration)::double precision, 'How long it took then'),
         ('jobs_maintenance_failures', 'gauge', t.failures::double precision, 'How often the task has failed since it last succeeded'),
         ('jobs_maintenance_rows_total', 'counter', t.rows_total::double precision, 'Rows that the task has handled'),
         ('jobs_maintenance_failures_total', 'counter', t.failures_total::double precision, 'What the task has failed at')) m(metric, type, value, help)
      WHERE m.value IS NOT NULL
      ORDER BY m.metric, t.task",
    &[],
);

static HEALTH: Plan = Plan::new(
    "SELECT 'jobs_health_findings', 'gauge', jsonb_build_object('severity', s.severity),
            (SELECT count(*) FROM jobs.health() h WHERE h.severity = s.severity)::double precision, 'Findings of jobs.health()'
       FROM (VALUES ('critical'), ('warning'), ('info')) s(severity)
     UNION ALL
     SELECT 'jobs_maintenance_paused', 'gauge', '{}', (SELECT count(*) FROM jobs.maintenance_pause)::double precision, '1: maintenance is paused'",
    &[],
);
