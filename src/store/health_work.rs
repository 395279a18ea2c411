//! Findings of `jobs.health()` about the work itself: what fails, what runs too long, what nobody
//! fetches, what is paused.
//!
//! What fails and what is usual is told by the latest jobs, of which so many are looked at, and
//! only where there is reason to.

use jobs_core::state::State;

use super::activity;
use super::count::heads;
use super::health::{age, line};
use super::periodic_schedule::BUSY;
use super::spi::{Arg, Plan, Tuples, big, text, texts};
use super::types::*;
use crate::pg::{array, time};
use crate::settings::Retention;

/// How far back failed attempts are looked at, in microseconds. It is in texts as well.
const LATELY: i64 = 600_000_000;

/// Hands the findings to `take`, kind by kind.
pub fn find(take: &mut impl FnMut(&Tuples)) {
    let since = big(time::now() - LATELY);
    let kept = big(Retention::current().of(State::Completed).unwrap_or(-1));
    MOSTLY_FAILING.run(&[since, kept, big(LATELY)], &mut *take);
    for plan in [&RUNNING_LONG, &QUEUE_PAUSED, &LOST_WORKERS] {
        plan.run(&[], &mut *take);
    }
    find_unattended(take);
    PERIODIC_FAILED.run(&[text(BUSY)], take);
}

/// Finds queues whose available jobs nobody fetches.
fn find_unattended(take: &mut impl FnMut(&Tuples)) {
    let now = time::now();
    let since = now - activity::UNATTENDED;
    let waiting = WAITING.values(&[big(since)]);
    let unattended = activity::unattended(waiting, since, now);
    let (queues, fetched_at): (Vec<String>, Vec<Option<i64>>) = unattended.into_iter().unzip();
    if !queues.is_empty() {
        let fetched_at: Vec<Arg> = fetched_at.iter().map(|at| at.and_then(big)).collect();
        let fetched_at = array::build(AT, &fetched_at);
        UNATTENDED_QUEUES.run(&[texts(&queues), Some(fetched_at)], take);
    }
}

// The latest completed jobs, at most 10,000, if there is something to compare them with.
macro_rules! latest {
    ($which:literal, $if:literal) => {
        concat!(
            "latest AS MATERIALIZED (
               SELECT f.job_id, f.attempted_at, f.finalized_at
                 FROM unnest('{false,true}'::boolean[]) AS k(is_kept), LATERAL (
                        SELECT f.job_id, f.attempted_at, f.finalized_at FROM jobs.finished f
                         WHERE f.state = 'completed' AND f.is_kept = k.is_kept",
            $which,
            "             ORDER BY f.finalized_at DESC LIMIT 10000) f
                WHERE ",
            $if,
            " ORDER BY f.finalized_at DESC LIMIT 10000)"
        )
    };
}

// Where more jobs were completed than are looked at, those before are reckoned by these, and so
// that a kind of which chance shows too few is not a finding. Where completed jobs go at once,
// nothing is known. A queue is told of where none of its kinds is.
static MOSTLY_FAILING: Plan = Plan::of_ranges(
    concat!(
        "WITH failed AS MATERIALIZED (
           SELECT j.kind, j.queue, e.at, e.error
             FROM (SELECT e.job_id, e.at, e.error FROM jobs.error e
                    WHERE e.at > $1 AND e.state <> 'cancelled' AND (e.details ->> 'type') IS DISTINCT FROM 'expired' LIMIT 10000) e
             JOIN jobs.job j ON j.id = e.job_id LEFT JOIN jobs.queue q ON q.queue = j.queue
            WHERE COALESCE(q.retention_completed, $2) NOT BETWEEN 0 AND $3 - 1),
         suspect AS MATERIALIZED (
           SELECT 'kind' AS what, f.kind AS name, count(*) AS failed, max(f.at) AS at FROM failed f GROUP BY f.kind HAVING count(*) >= 10
           UNION ALL
           SELECT 'queue', f.queue, count(*), max(f.at) FROM failed f GROUP BY f.queue HAVING count(*) >= 10), ",
        latest!(" AND f.finalized_at > $1", "EXISTS (SELECT FROM suspect)"),
        ", part AS (
           SELECT CASE WHEN count(*) < 10000 THEN 0 ELSE 3 END AS unseen,
                  CASE WHEN count(*) < 10000 THEN 1 ELSE GREATEST(600 / GREATEST(extract(epoch FROM clock_timestamp() - min(l.finalized_at)), 0.001), 1) END AS times
             FROM latest l),
         done AS MATERIALIZED (SELECT j.kind, j.queue FROM latest l JOIN jobs.job j ON j.id = l.job_id),
         completed AS MATERIALIZED (
           SELECT 'kind' AS what, d.kind AS name, count(*) AS n FROM done d GROUP BY d.kind
           UNION ALL
           SELECT 'queue', d.queue, count(*) FROM done d GROUP BY d.queue),
         found AS MATERIALIZED (
           SELECT s.*, COALESCE(c.n, 0) AS completed FROM suspect s CROSS JOIN part p LEFT JOIN completed c ON c.what = s.what AND c.name = s.name
            WHERE s.failed > (COALESCE(c.n, 0) + p.unseen) * p.times)
         SELECT 'warning', 'mostly_failing',
                format('%s attempts of %s %s failed in the last 10 minutes and %s were completed: %s', f.failed, f.what, f.name, f.completed,
                       (SELECT ",
        line!("e.error"),
        "          FROM failed e WHERE e.at = f.at AND f.name IN (e.kind, e.queue) LIMIT 1)),
                format('SELECT e.* FROM jobs.errors e JOIN jobs.jobs j ON j.id = e.job_id WHERE j.%s = %L ORDER BY e.at DESC LIMIT 10; So that attempts are kept until it is mended: SELECT jobs.pause_queue(%L);', f.what, f.name,
                       (SELECT e.queue FROM failed e WHERE e.at = f.at AND f.name IN (e.kind, e.queue) LIMIT 1))
           FROM found f
          WHERE f.what = 'kind' OR NOT EXISTS (SELECT FROM failed e JOIN found k ON k.what = 'kind' AND k.name = e.kind WHERE e.queue = f.name)
          ORDER BY f.failed DESC LIMIT 20"
    ),
    &[AT, INT8, INT8],
);

static RUNNING_LONG: Plan = Plan::new(
    concat!(
        "WITH long AS MATERIALIZED (
           SELECT r.job_id, j.kind, r.attempted_at FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
            WHERE r.attempted_at < clock_timestamp() - interval '1 minute'), ",
        latest!("", "EXISTS (SELECT FROM long)"),
        ", usual AS MATERIALIZED (
           SELECT j.kind, percentile_disc(0.95) WITHIN GROUP (ORDER BY l.finalized_at - l.attempted_at) AS mostly, max(l.finalized_at - l.attempted_at) AS longest
             FROM latest l JOIN jobs.job j ON j.id = l.job_id WHERE l.attempted_at IS NOT NULL GROUP BY j.kind HAVING count(*) >= 20)
         SELECT 'warning', 'running_long',
                format('%s jobs of kind %s run for more than ten times as long as jobs of it do (95 of 100 took up to %s): %s since %s',
                       count(*), l.kind, date_trunc('milliseconds', min(u.mostly)), (array_agg(l.job_id ORDER BY l.attempted_at))[1], ",
        age!("min(l.attempted_at)"),
        "),     format('SELECT jobs.show(%s); To stop it: SELECT jobs.cancel(%1$s);', (array_agg(l.job_id ORDER BY l.attempted_at))[1])
           FROM long l JOIN usual u ON u.kind = l.kind
          WHERE l.attempted_at < clock_timestamp() - 10 * u.mostly AND l.attempted_at < clock_timestamp() - u.longest
          GROUP BY l.kind ORDER BY min(l.attempted_at) LIMIT 20"
    ),
    &[],
);

static WAITING: Plan = Plan::new(
    concat!(
        heads!(),
        "SELECT h.queue FROM head h
          WHERE NOT EXISTS (SELECT FROM jobs.queue q WHERE q.queue = h.queue AND q.paused_at IS NOT NULL)
          GROUP BY h.queue HAVING min(h.since) < $1 ORDER BY min(h.since) LIMIT 1000"
    ),
    &[AT],
);
static UNATTENDED_QUEUES: Plan = Plan::new(
    concat!(
        "SELECT 'warning', 'no_worker',
                format('jobs of queue %s wait, and ', u.queue) || COALESCE('nobody has fetched from it for ' || ",
        age!("u.fetched_at"),
        ", 'nobody is known to have fetched from it'),
                format('Start a worker that fetches from it, or see why none does: SELECT * FROM jobs.workers WHERE %L = ANY (queues); Its jobs: SELECT * FROM jobs.jobs WHERE queue = %1$L AND state = ''available'' ORDER BY priority, id LIMIT 10;', u.queue),
                count(*) OVER () AS total, 'queues have waiting jobs, and no worker fetches from them' AS many,
                'Start workers that fetch from these queues. Known workers: SELECT worker, status, queues FROM jobs.workers; The queues: SELECT queue, available, oldest_available_at FROM jobs.queues WHERE NOT paused ORDER BY oldest_available_at LIMIT 20;' AS hint_for_all
           FROM unnest($1, $2) WITH ORDINALITY AS u(queue, fetched_at, n) ORDER BY u.n LIMIT 20"
    ),
    &[TEXTS, ATS],
);

static QUEUE_PAUSED: Plan = Plan::new(
    concat!(
        "SELECT CASE WHEN q.paused_at < clock_timestamp() - interval '1 hour' THEN 'warning' ELSE 'info' END, 'queue_paused',
                format('queue %s was paused %s ago%s, and %s of its jobs wait', q.queue, ",
        age!("q.paused_at"),
        ", ' by ' || q.paused_by || COALESCE(' (' || q.pause_reason || ')', ''), CASE WHEN w.n > 1000 THEN 'more than 1000' ELSE w.n::text END), format('SELECT jobs.resume_queue(%L);', q.queue),
                count(*) OVER () AS total, 'queues are paused while their jobs wait' AS many,
                'SELECT queue, paused_at, paused_by, pause_reason FROM jobs.queues WHERE paused ORDER BY paused_at LIMIT 20;' AS hint_for_all
           FROM (SELECT * FROM jobs.queue q WHERE q.paused_at IS NOT NULL ORDER BY q.paused_at LIMIT 1000) q, LATERAL (SELECT count(*) AS n FROM (
                  SELECT 1 FROM jobs.ready r WHERE r.queue = q.queue
                  UNION ALL
                  SELECT 1 FROM jobs.scheduled s WHERE s.queue = q.queue AND s.due_at <= clock_timestamp() LIMIT 1001) x) w
          WHERE w.n > 0
          ORDER BY q.paused_at LIMIT 20"
    ),
    &[],
);

static LOST_WORKERS: Plan = Plan::new(
    concat!(
        "SELECT 'warning', 'lost_worker',
                format('worker %s holds %s and was last seen %s ago; the last of its leases ends in %s', w.worker,
                       CASE w.running WHEN 1 THEN '1 job' ELSE w.running || ' jobs' END, ",
        age!("w.last_seen_at"),
        ", greatest(date_trunc('second', w.last_lease_expires_at - clock_timestamp()), interval '0')),
                format('Each job is retried when its lease ends. SELECT * FROM jobs.workers WHERE worker = %L;', w.worker),
                count(*) OVER () AS total, format('lost workers hold %s jobs; the last of their leases ends in %s', sum(w.running) OVER (),
                  greatest(date_trunc('second', max(w.last_lease_expires_at) OVER () - clock_timestamp()), interval '0')) AS many,
                'SELECT * FROM jobs.workers WHERE status = ''lost'' AND running > 0;' AS hint_for_all
           FROM jobs.workers w WHERE w.status = 'lost' AND w.running > 0 ORDER BY w.running DESC, w.worker LIMIT 20"
    ),
    &[],
);

static PERIODIC_FAILED: Plan = Plan::new(
    concat!(
        "SELECT 'warning', 'periodic_failed', format('the latest tick of periodic job %s has no job: %s', p.name, ",
        line!("p.last_error"),
        "), format('SELECT * FROM jobs.periodic WHERE name = %L; next_run_at is when it is tried again.', p.name),
                count(*) OVER () AS total, 'periodic jobs have a latest tick without a job' AS many, 'SELECT name, last_error, next_run_at FROM jobs.periodic WHERE last_error IS NOT NULL;' AS hint_for_all
           FROM jobs.periodic_schedule p WHERE p.last_error IS NOT NULL AND p.last_error <> $1 AND p.paused_at IS NULL ORDER BY p.name LIMIT 20"
    ),
    &[TEXT],
);
