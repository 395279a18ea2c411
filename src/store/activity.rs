//! Who works on a queue, as far as that can be told.

use std::collections::{HashMap, HashSet};

use super::queue::Queue;
use super::spi::{Snapshot, big, plans, texts};
use super::types::*;
use crate::pg::time;
use crate::shmem::fetches;

/// A queue without fetches for so long has no worker, in microseconds.
pub const UNATTENDED: i64 = 300_000_000;

/// When a queue was last fetched from, as the calling statement sees it.
pub fn last_fetched(queue: &Queue) -> Option<i64> {
    noted_or(queue, || fetched_by_jobs(Snapshot::Callers, &[queue.name()]).remove(queue.name()))
}

/// When a queue was last fetched from. Where that is not known (the library is not preloaded,
/// or the server was started anew), by the jobs that run and those that ended last.
fn noted_or(queue: &Queue, by_jobs: impl FnOnce() -> Option<i64>) -> Option<i64> {
    noted(queue).or_else(by_jobs).filter(is_past)
}

fn noted(queue: &Queue) -> Option<i64> {
    fetches::last(queue).filter(is_past)
}

/// The clock may have been put back since.
fn is_past(at: &i64) -> bool {
    *at <= time::now()
}

/// Whether a queue that was last fetched from then has had no worker since, as the calling
/// statement sees it.
pub fn is_unattended(queue: &Queue, fetched_at: Option<i64>, since: i64, now: i64) -> bool {
    is_before(fetched_at, since) && at_work(Snapshot::Callers, &[queue.name()], now).is_empty()
}

/// Those of these queues that have had no worker since then, and when each was fetched from last.
/// They are looked at together, since a look may read all that runs.
pub fn unattended(queues: Vec<String>, since: i64, now: i64) -> Vec<(String, Option<i64>)> {
    if queues.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = queues.iter().map(String::as_str).collect();
    let by_jobs = fetched_by_jobs(Snapshot::Own, &names);
    let at_work = at_work(Snapshot::Own, &names, now);
    let left = queues.into_iter().filter_map(|queue| {
        let fetched_at = noted_or(&Queue::named(&queue), || by_jobs.get(&queue).copied());
        let is_left = is_before(fetched_at, since) && !at_work.contains(&queue);
        is_left.then_some((queue, fetched_at))
    });
    left.collect()
}

/// Whether there was no fetch since then.
fn is_before(fetched_at: Option<i64>, since: i64) -> bool {
    fetched_at.is_none_or(|at| at < since)
}

/// When a queue was last fetched from, if that was lately, and no fetch has lately asked for jobs
/// of this kind there. Not known (`None`) where the library is not preloaded.
pub fn passes_over(queue: &Queue, kind: &str, now: i64) -> Option<i64> {
    let lately = |at: &i64| *at >= now - UNATTENDED;
    let is_asked_for = fetches::last_for(queue, kind).as_ref().is_some_and(lately);
    noted(queue).filter(|at| lately(at) && !is_asked_for)
}

/// When each of these queues was fetched from last, by the jobs that run and those that ended last.
fn fetched_by_jobs(snapshot: Snapshot, queues: &[&str]) -> HashMap<String, i64> {
    let fetched = FETCHED_BY_JOBS.list_as_of(snapshot, &[texts(queues)], |rows, row| {
        rows.get(row, "queue").zip(rows.get(row, "at"))
    });
    fetched.into_iter().collect()
}

/// Those of these queues of which a role that may fetch has a job, and its lease has not run out.
fn at_work(snapshot: Snapshot, queues: &[&str], now: i64) -> HashSet<String> {
    let args = [texts(queues), big(now)];
    let queues = AT_WORK.list_as_of(snapshot, &args, |rows, row| rows.get(row, "queue"));
    queues.into_iter().collect()
}

plans! {
    FETCHED_BY_JOBS(TEXTS) =
        "SELECT a.queue, max(a.at) AS at
           FROM (SELECT COALESCE(r.queue, j.queue) AS queue, r.attempted_at AS at FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
                 UNION ALL
                 SELECT j.queue, f.attempted_at
                   FROM (VALUES ('completed'::jobs.state), ('cancelled'), ('discarded')) s(state), unnest('{{false,true}}'::boolean[]) k(is_kept), LATERAL (
                          SELECT f.job_id, f.attempted_at FROM jobs.finished f
                           WHERE f.state = s.state AND f.is_kept = k.is_kept ORDER BY f.finalized_at DESC LIMIT 1000) f
                   JOIN jobs.job j ON j.id = f.job_id) a
          WHERE a.queue = ANY ($1) AND a.at IS NOT NULL GROUP BY a.queue";
    AT_WORK(TEXTS, AT) =
        "SELECT DISTINCT COALESCE(r.queue, j.queue) AS queue FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
          WHERE r.lease_expires_at > $2 AND NOT EXISTS (SELECT FROM jobs.worker_command c WHERE c.worker = r.worker)
            AND COALESCE(r.queue, j.queue) = ANY ($1)";
}
