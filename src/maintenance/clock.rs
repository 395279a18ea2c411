//! Cuts stored times that lie ahead of a clock that was put back, as part of the rescue: see
//! [`crate::store::clock`].

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32};

use crate::pg::{time, versions};
use crate::store::clock;
use crate::{shmem, ticks};

/// How often the background worker looks for them, in microseconds.
const LOOK_EVERY: i64 = 60 * 1_000_000;
/// How many jobs are looked at for each that may be cut.
const JOBS: i64 = 10;

/// When it looked last.
static LOOKED: AtomicI64 = AtomicI64::new(0);
/// The last job that was looked at; 0: none is left to look at; the last one that there can be: all
/// were, and other rows are left.
static AFTER: AtomicI64 = AtomicI64::new(0);
/// How many times were cut since the first of these jobs, and how far ahead of the clock they lay.
static CUT: AtomicI64 = AtomicI64::new(0);
static BY: AtomicI64 = AtomicI64::new(0);
/// The transaction of a session that cut something last.
static TRANSACTION: AtomicU32 = AtomicU32::new(0);

/// Cuts about `limit` times at most. Returns how many, and whether there may be more.
pub fn cut(limit: i64) -> (usize, bool) {
    let now = time::now();
    // What a session has cut in another transaction may have been rolled back.
    let transaction = versions::local_transaction();
    if !shmem::is_worker() && TRANSACTION.swap(transaction, Relaxed) != transaction {
        for state in [&AFTER, &CUT, &BY] {
            state.store(0, Relaxed);
        }
    }
    let after = AFTER.load(Relaxed);
    let since = now - LOOKED.load(Relaxed);
    if shmem::is_worker() && after == 0 && (0..LOOK_EVERY).contains(&since) {
        return (0, false);
    }
    LOOKED.store(now, Relaxed);
    let ahead = clock::ahead();
    if after == 0 && ahead.is_none() {
        return (0, false);
    }
    BY.fetch_max(ahead.unwrap_or(0), Relaxed);
    // Jobs first: after a crash, the other tables still show that there is something to cut.
    let page = clock::cut_jobs(after, limit.saturating_mul(JOBS));
    AFTER.store(page.last.unwrap_or(0), Relaxed);
    if page.last.is_some() {
        CUT.fetch_add(page.cut as i64, Relaxed);
        return (page.cut, true);
    }
    let (others, more) = clock::cut_others(limit);
    if more {
        CUT.fetch_add(others as i64, Relaxed);
        AFTER.store(i64::MAX, Relaxed);
        return (others, true);
    }
    let cut = others + ticks::cut(now);
    let total = CUT.fetch_add(cut as i64, Relaxed) + cut as i64;
    if total > 0 {
        CUT.store(0, Relaxed);
        clock::note(BY.swap(0, Relaxed), total);
    }
    (cut, false)
}
