//! Everything to be measured: each statement is one kind of thing, and says metric, type, labels,
//! value and what it means.

use super::spi::{Plan, Tuples};

/// Hands the metrics to `take`, kind by kind.
pub fn measure(mut take: impl FnMut(&Tuples)) {
    for plan in [&QUEUES, &WORK, &TRAFFIC, &TABLES, &MAINTENANCE, &HEALTH] {
        plan.run(&[], &mut take);
    }
}

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
