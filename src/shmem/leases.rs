//! Until when no lease of a database runs out, in shared memory, so that the worker need not read
//! all of `running` each time, with its dead rows: where an old snapshot is held there are millions
//! of them.
//!
//! Who writes a row of `running` lowers that time to the end of its lease, once the row is there.
//! The worker forgets the time before it reads the table, and then lowers it to the ends of all
//! rows that it finds, also of those that others are just writing. So a row is either found, or its
//! session lowers the time after it was forgotten. A lease that is over before its row is committed
//! is left out: the commit lowers the time. Where that is earlier than the worker was to get up, if
//! there is one, its commit wakes it. Rows that come in some other way (COPY, replication, an
//! UPDATE by hand) are found when the table is read the next time, which is as often as it takes no
//! more than a small part of the time, and once a minute.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI64, fence};

use super::commit::{self, Work};
use super::databases;
use crate::pg::time;

/// The table is read at least this often, in microseconds.
const AT_LEAST: i64 = 60 * 1_000_000;
/// It is read more often while reading takes at most one part in so many of the time.
const ONE_PART_IN: i64 = 50;
/// Due work that was locked is looked at again after this long: a rollback wakes no one.
pub const LOOK_AGAIN: i64 = 1_000_000;
/// No lease expires.
pub const NEVER: i64 = i64::MAX;

pub struct Leases {
    none_before: AtomicI64,
    read_again_at: AtomicI64,
}

/// What was found in the table.
pub struct FoundLeases {
    /// The first end of a lease to wait for.
    pub first: i64,
    /// An expired lease is locked by another transaction.
    pub has_stuck: bool,
}

impl Leases {
    pub const fn unknown() -> Leases {
        Leases { none_before: AtomicI64::new(NEVER), read_again_at: AtomicI64::new(i64::MIN) }
    }

    pub fn forget(&self) {
        self.read_again_at.store(i64::MIN, SeqCst);
    }
}

/// The first end of a lease that the transaction under way has noted.
static PENDING: AtomicI64 = AtomicI64::new(NEVER);

/// A lease begins or is renewed, or its row was written anew; the row is there.
pub fn noted(ends_at: i64) {
    PENDING.fetch_min(ends_at, Relaxed);
    lower(ends_at);
}

/// The transaction is over. A lease that ended before others could see it was taken for stuck.
pub fn end(is_committed: bool) {
    let first = PENDING.swap(NEVER, Relaxed);
    if is_committed && first != NEVER && first <= time::now() {
        lower(first);
    }
}

fn lower(ends_at: i64) {
    if let Some(place) = databases::own_place() {
        fence(SeqCst);
        if place.leases.none_before.load(SeqCst) > ends_at {
            place.leases.none_before.fetch_min(ends_at, SeqCst);
        }
        if place.looks_later_than(ends_at) {
            commit::wake_worker(Work::MayBeDue);
        }
    }
}

/// Until when no lease runs out, as far as the worker need not read the table.
pub fn none_before() -> Option<i64> {
    let leases = known()?;
    let until = leases.read_again_at.load(SeqCst);
    let now = time::now();
    // The clock may have been put back.
    let is_known = now < until && until - now <= AT_LEAST;
    is_known.then(|| leases.none_before.load(SeqCst))
}

/// What is known may be wrong: what was made of it has failed.
pub fn doubt() {
    if let Some(leases) = known() {
        leases.forget();
    }
}

/// Reads the table with `read`, which adds to what is found.
pub fn read_with(read: impl FnOnce(&mut FoundLeases)) -> FoundLeases {
    let begun = time::now();
    let leases = known();
    if let Some(leases) = leases {
        leases.forget();
        leases.none_before.store(NEVER, SeqCst);
        fence(SeqCst);
    }
    let mut found = FoundLeases { first: NEVER, has_stuck: false };
    read(&mut found);
    if let Some(leases) = leases {
        let now = time::now();
        let rest = ((now - begun) * ONE_PART_IN).clamp(0, AT_LEAST);
        let again = now + rest.max(LOOK_AGAIN);
        let stuck = if found.has_stuck { again } else { NEVER };
        leases.none_before.fetch_min(found.first.min(stuck), SeqCst);
        leases.read_again_at.store(now + rest, SeqCst);
    }
    found
}

/// Only the worker keeps it up to date: `jobs.maintain()` reads the table whenever it is called.
fn known() -> Option<&'static Leases> {
    super::is_worker().then(databases::own_place).flatten().map(|place| &place.leases)
}
