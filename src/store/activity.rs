//! Who works on a queue, as far as that can be told.

use std::collections::{HashMap, HashSet};

use super::spi::{Plan, Snapshot, big, text, texts};
use super::types::*;
use crate::pg::time;
use crate::shmem::fetches;

/// A queue that nobody has fetched from for so long has no worker, in microseconds.
pub const UNATTENDED: i64 = 300_000_000;

/// When somebody fetched from a queue last, as the calling statement sees it.
pub fn last_fetched(queue: &str) -> Option<i64> {
    let args = [text(queue)];
    noted_or(queue, || {
        LAST_FETCHED.run_as_of(Snapshot::Callers, &args, |rows| rows.big(0, 1))
    })
}

/// When somebody fetched from a queue last. Where that is not known (the library is not preloaded,
/// or the server was started anew), by the jobs that run and those that ended last.
fn noted_or(queue: &str, by_jobs: impl FnOnce() -> Option<i64>) -> Option<i64> {
    noted(queue).or_else(by_jobs).filter(is_past)
}

fn noted(queue: &str) -> Option<i64> {
    fetches::last(queue).filter(is_past)
}

/// The clock may have been put back since.
fn is_past(at: &i64) -> bool {
    *at <= time::now()
}

/// Whether a queue that was last fetched from then has had no worker since, as the calling
/// statement sees it.
pub fn is_unattended(queue: &str, fetched_at: Option<i64>, since: i64, now: i64) -> bool {
    fetched_at.is_none_or(|at| at < since) && !is_at_work(queue, now)
}

/// Those of these queues that have had no worker since then, and when each was fetched from last.
/// They are looked at together, since a look may read all that runs.
pub fn unattended(queues: Vec<String>, since: i64, now: i64) -> Vec<(String, Option<i64>)> {
    if queues.is_empty() {
        return Vec::new();
    }
    let names = texts(&queues);
    let by_jobs = LAST_FETCHED_OF.list(&[names], |rows, row| {
        Some((rows.text(row, 1)?, rows.big(row, 2)?))
    });
    let by_jobs: HashMap<String, i64> = by_jobs.into_iter().collect();
    let at_work = AT_WORK.list(&[names, big(now)], |rows, row| rows.text(row, 1));
    let at_work: HashSet<String> = at_work.into_iter().collect();
    let left = queues.into_iter().filter_map(|queue| {
        let fetched_at = noted_or(&queue, || by_jobs.get(&queue).copied());
        let is_left = fetched_at.is_none_or(|at| at < since) && !at_work.contains(&queue);
        is_left.then_some((queue, fetched_at))
    });
    left.collect()
}

/// When a queue was last fetched from, if that was lately, and nobody has lately asked for jobs of
/// this kind there. Not known (`None`) where the library is not preloaded.
pub fn passes_over(queue: &str, kind: &str, now: i64) -> Option<i64> {
    let lately = |at: &i64| *at >= now - UNATTENDED;
    let is_asked_for = fetches::last_for(queue, kind).as_ref().is_some_and(lately);
    noted(queue).filter(|at| lately(at) && !is_asked_for)
}

/// Whether somebody who may fetch has a job of the queue, and its lease has not run out.
fn is_at_work(queue: &str, now: i64) -> bool {
    let args = [text(queue), big(now)];
    IS_AT_WORK.run_as_of(Snapshot::Callers, &args, |rows| !rows.is_empty())
}

// The attempts that run and those of the jobs that ended last, with their queues.
macro_rules! attempts {
    () => {
        "(SELECT COALESCE(r.queue, j.queue) AS queue, r.attempted_at AS at FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
          UNION ALL
          SELECT j.queue, f.attempted_at
            FROM (VALUES ('completed'::jobs.state), ('cancelled'), ('discarded')) s(state), unnest('{false,true}'::boolean[]) k(is_kept), LATERAL (
                   SELECT f.job_id, f.attempted_at FROM jobs.finished f
                    WHERE f.state = s.state AND f.is_kept = k.is_kept ORDER BY f.finalized_at DESC LIMIT 1000) f
            JOIN jobs.job j ON j.id = f.job_id) a"
    };
}
// The jobs that run and whose workers may fetch.
macro_rules! at_work {
    () => {
        "FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
          WHERE r.lease_expires_at > $2 AND NOT EXISTS (SELECT FROM jobs.worker_command c WHERE c.worker = r.worker)
            AND COALESCE(r.queue, j.queue) = "
    };
}
static LAST_FETCHED: Plan = Plan::new(
    concat!("SELECT max(a.at) FROM ", attempts!(), " WHERE a.queue = $1"),
    &[TEXT],
);
static LAST_FETCHED_OF: Plan = Plan::new(
    concat!(
        "SELECT a.queue, max(a.at) FROM ",
        attempts!(),
        " WHERE a.queue = ANY ($1) AND a.at IS NOT NULL GROUP BY a.queue"
    ),
    &[TEXTS],
);
static IS_AT_WORK: Plan = Plan::new(concat!("SELECT ", at_work!(), "$1 LIMIT 1"), &[TEXT, AT]);
static AT_WORK: Plan = Plan::new(
    concat!(
        "SELECT DISTINCT COALESCE(r.queue, j.queue) ",
        at_work!(),
        "ANY ($1)"
    ),
    &[TEXTS, AT],
);
