//! Limits of queues: how many jobs of one run at a time, how many start in a period. Each that may
//! is a row; a fetch takes rows that are free, so fetches do not wait for each other.

use jobs_core::interval::Interval;

use super::queue::Queue;
use super::spi::{Value, big, bigs, plans};
use super::types::*;
use crate::pg::time;
use crate::shmem::leases;

/// Locks up to so many free slots of a queue with this limit.
pub fn lock_slots(queue: &Queue, limit: i32, most: usize) -> Vec<i64> {
    let args = [queue.arg(), big(limit.into()), big(most as i64)];
    LOCK_SLOTS.values(&args)
}

/// Gives slots to jobs that run, a job a slot.
pub fn occupy(slots: &[i64], jobs: &[i64]) {
    if !jobs.is_empty() {
        OCCUPY.execute(&[bigs(&slots[..jobs.len()]), bigs(jobs)]);
    }
}

/// Frees the slots of jobs that no longer run; returns their queues.
pub fn free(slots: &[i64]) -> Vec<Queue> {
    if slots.is_empty() {
        return Vec::new();
    }
    FREE.values(&[bigs(slots)])
}

pub fn has_free_slot(queue: &Queue, limit: i32) -> bool {
    HAS_FREE_SLOT.execute(&[queue.arg(), big(limit.into())]) > 0
}

/// When the next start of a queue may be made; `None`: a fetch can make one now, or cuts it.
pub fn next_start(queue: &Queue, now: i64, period: Interval) -> Option<i64> {
    let args = [queue.arg(), big(now), Some(time::interval_datum(period))];
    NEXT_START.value(&args)
}

/// Locks up to so many of a queue's starts that may be made now. Where there are fewer, starts are
/// cut.
pub fn lock_starts(queue: &Queue, most: usize, now: i64, period: Interval) -> Vec<i64> {
    let args = [queue.arg(), big(most as i64), big(now)];
    let starts = LOCK_STARTS.values(&args);
    if starts.len() < most {
        cut_starts(queue, period);
    }
    starts
}

/// Cuts the starts of a queue that a clock which was put back left too far ahead to a period from
/// now. Returns how many it cut.
fn cut_starts(queue: &Queue, period: Interval) -> usize {
    CUT_STARTS.execute(&[queue.arg(), Some(time::interval_datum(period))])
}

/// Cuts the starts of every queue likewise.
pub fn cut_all_starts() -> usize {
    let rates =
        RATES.list(&[], |rows, row| rows.get(row, "queue").zip(rows.get(row, "rate_period")));
    let cut = |(queue, period): &(Queue, Interval)| cut_starts(queue, *period);
    rates.iter().map(cut).sum()
}

/// Makes starts: each may be made again a period later.
pub fn start(starts: &[i64], now: i64, period: Interval) {
    if !starts.is_empty() {
        START.execute(&[bigs(starts), big(time::add(now, period))]);
    }
}

/// Makes a queue have as many slots as its row says, which the caller has written, and gives one to
/// each of its jobs that run without, if need be above the limit. Waits for sessions that are
/// finishing one of them.
pub fn set_slots(queue: &Queue) {
    for plan in [&SLOT_RUNNING, &ADD_SLOTS] {
        plan.execute(&[queue.arg()]);
    }
    // Rows of jobs that run may have been written anew.
    leases::noted(i64::MIN);
}

/// Makes a queue have so many starts.
pub fn set_starts(queue: &Queue, limit: Option<i32>, now: i64) {
    let limit = big(limit.unwrap_or(0).into());
    ADD_STARTS.execute(&[queue.arg(), limit, big(now)]);
    DROP_STARTS.execute(&[queue.arg(), limit]);
}

// What may be taken are the free slots up to the limit ($2), without the highest ones: one less for
// each job that still runs above the limit. Every fetch leaves out the highest, so no two make up
// for the same job.
const FREE_SLOTS: &str =
    "FROM jobs.queue_slot s
      WHERE s.queue = $1 AND s.job_id IS NULL
        AND s.n < (SELECT COALESCE(min(f.n), $2 + 1) FROM (
                    SELECT f.n FROM jobs.queue_slot f WHERE f.queue = $1 AND f.n <= $2 AND f.job_id IS NULL ORDER BY f.n DESC
                     LIMIT (SELECT count(*) FROM jobs.queue_slot o WHERE o.queue = $1 AND o.n > $2 AND o.job_id IS NOT NULL)) f)";

// The furthest ahead that a start can be made again. A tenth of the period allows for months and
// days, some of which are longer than others.
pub(super) fn latest_start(now: &str, period: &str) -> String {
    format!("{now} + {period} * 1.1")
}

plans! {
    LOCK_SLOTS(TEXT, INT8, INT8) =
        "SELECT s.slot {FREE_SLOTS} ORDER BY s.n LIMIT $3 FOR UPDATE OF s SKIP LOCKED";
    HAS_FREE_SLOT(TEXT, INT8) = "SELECT {FREE_SLOTS} LIMIT 1";
    NEXT_START(TEXT, AT, SPAN) =
        "SELECT CASE WHEN s.free_at > $2 AND s.free_at <= {latest_start} THEN s.free_at END FROM jobs.queue_start s WHERE s.queue = $1 ORDER BY s.free_at LIMIT 1",
        latest_start = latest_start("$2", "$3");
    OCCUPY(INT8S, INT8S) =
        "UPDATE jobs.queue_slot s SET job_id = n.job_id FROM unnest($1, $2) AS n(slot, job_id) WHERE s.slot = n.slot";
    FREE(INT8S) =
        "UPDATE jobs.queue_slot s SET job_id = NULL WHERE s.slot = ANY ($1) RETURNING s.queue";
    LOCK_STARTS(TEXT, INT8, AT) =
        "SELECT s.slot FROM jobs.queue_start s WHERE s.queue = $1 AND s.free_at <= $3 ORDER BY s.free_at LIMIT $2 FOR UPDATE SKIP LOCKED";
    // By the clock of the moment: others may just have made starts.
    CUT_STARTS(TEXT, SPAN) =
        "UPDATE jobs.queue_start t SET free_at = clock_timestamp() + $2
          WHERE t.slot = ANY (ARRAY(
            SELECT s.slot FROM jobs.queue_start s WHERE s.queue = $1 AND s.free_at > (SELECT {latest_start}) FOR UPDATE SKIP LOCKED))",
        latest_start = latest_start("clock_timestamp()", "$2");
    RATES() = "SELECT q.queue, q.rate_period FROM jobs.queue q WHERE q.rate IS NOT NULL";
    START(INT8S, AT) = "UPDATE jobs.queue_start s SET free_at = $2 WHERE s.slot = ANY ($1)";
    // The queue that a job was fetched from is in `running` where `job` has another one by now.
    SLOT_RUNNING(TEXT) =
        "WITH unlimited AS (
           SELECT r.job_id, nextval('jobs.job_seq') AS slot FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
            WHERE COALESCE(r.queue, j.queue) = $1 AND r.slot IS NULL ORDER BY r.job_id FOR UPDATE OF r),
         limited AS (UPDATE jobs.running r SET slot = u.slot FROM unlimited u WHERE r.job_id = u.job_id)
         INSERT INTO jobs.queue_slot (slot, job_id, n, queue)
         SELECT u.slot, u.job_id,
                (SELECT count(*) FROM jobs.queue_slot s WHERE s.queue = $1) + row_number() OVER (ORDER BY u.slot), $1
           FROM unlimited u";
    ADD_SLOTS(TEXT) =
        "INSERT INTO jobs.queue_slot (slot, n, queue)
         SELECT nextval('jobs.job_seq'), g.n, q.queue
           FROM jobs.queue q, generate_series(1, q.concurrency) AS g(n)
          WHERE q.queue = $1 AND NOT EXISTS (SELECT FROM jobs.queue_slot s WHERE s.queue = q.queue AND s.n = g.n)";
    ADD_STARTS(TEXT, INT8, AT) =
        "INSERT INTO jobs.queue_start (slot, free_at, queue)
         SELECT nextval('jobs.job_seq'), $3, $1
           FROM generate_series(1, $2 - (SELECT count(*) FROM jobs.queue_start s WHERE s.queue = $1))";
    DROP_STARTS(TEXT, INT8) =
        "DELETE FROM jobs.queue_start WHERE slot IN (
           SELECT s.slot FROM jobs.queue_start s WHERE s.queue = $1 ORDER BY s.free_at DESC OFFSET $2)";
}
