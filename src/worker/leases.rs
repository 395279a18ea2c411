//! Until when no lease of a database runs out, in shared memory, so that the worker need not read all of `running` each
//! time, with its dead rows: where an old snapshot is held there are millions of them.
//!
//! Who begins or renews a lease lowers that time to its end, once its row is there. The worker forgets the time before
//! it reads the table, and then lowers it to the ends of all rows that it finds, also of those that others are just
//! writing. So a row is either found, or its session lowers the time after it was forgotten. Rows that come in some other
//! way (COPY, replication, an UPDATE by hand) are found when the table is read the next time, which is as often as it
//! takes no more than a small part of the time, and once a minute.

use std::sync::atomic::{AtomicI64, Ordering};

use super::{process, wake};
use crate::pg::time;

/// The table is read at least once in so long, in microseconds, ..
const AT_LEAST: i64 = 60 * 1_000_000;
/// .. and while that takes no more than this part of the time.
const ONE_PART_IN: i64 = 50;
/// No lease at all runs out.
const NEVER: i64 = i64::MAX;

/// What is known of a database.
pub struct Leases {
    none_before: AtomicI64,
    read_again_at: AtomicI64,
}

impl Leases {
    /// Nothing is known.
    pub const fn unknown() -> Leases {
        Leases {
            none_before: AtomicI64::new(NEVER),
            read_again_at: AtomicI64::new(i64::MIN),
        }
    }

    /// Forgets what is known.
    pub fn forget(&self) {
        self.read_again_at.store(i64::MIN, Ordering::SeqCst);
    }
}

/// A lease begins or is renewed; its row is there.
pub fn noted(ends_at: i64) {
    if let Some(slot) = wake::own_slot()
        && slot.leases.none_before.load(Ordering::SeqCst) > ends_at
    {
        slot.leases.none_before.fetch_min(ends_at, Ordering::SeqCst);
    }
}

/// Until when no lease runs out, as far as the worker need not read the table.
pub fn none_before() -> Option<i64> {
    let leases = known()?;
    let until = leases.read_again_at.load(Ordering::SeqCst);
    let now = time::now();
    // The clock may have been put back.
    let is_known = now < until && until - now <= AT_LEAST;
    is_known.then(|| leases.none_before.load(Ordering::SeqCst))
}

/// Reads the table: `read` says when the first of its leases ends, if there is one.
pub fn read_with(read: impl FnOnce() -> Option<i64>) -> Option<i64> {
    let begun = time::now();
    if let Some(leases) = known() {
        leases.forget();
        leases.none_before.store(NEVER, Ordering::SeqCst);
    }
    let first = read();
    if let Some(leases) = known() {
        leases
            .none_before
            .fetch_min(first.unwrap_or(NEVER), Ordering::SeqCst);
        let now = time::now();
        let rest = ((now - begun) * ONE_PART_IN).clamp(0, AT_LEAST);
        leases.read_again_at.store(now + rest, Ordering::SeqCst);
    }
    first
}

/// Only the worker keeps it up to date: `jobs.maintain()` reads the table whenever it is called.
fn known() -> Option<&'static Leases> {
    process::is_worker()
        .then(wake::own_slot)
        .flatten()
        .map(|slot| &slot.leases)
}
