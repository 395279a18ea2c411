//! The advisory lock on a key: so that `pg_locks` shows which session waits for which, and a
//! waiter is queued fairly. It is not what makes keys unique; the claim's primary key is.

use jobs_core::key::Key;

use crate::pg::transaction::Count;
use crate::pg::{guc, lock};
use crate::settings;

/// Unique inserts of one transaction that take the lock; later ones do without, so that
/// no number of inserts fills the shared lock table.
const PER_TRANSACTION: u32 = 16;

thread_local! {
    static LOCKS: Count = const { Count::none() };
}

/// Takes the lock on a key until the end of the transaction; whether another session had
/// it, so that what was looked at before is stale.
pub fn take(key: Key) -> bool {
    once_more() && !lock::advisory(id(key), true)
}

/// Takes the lock on a key if no other session has it; whether it is free. There is to be room.
pub fn try_take(key: Key) -> bool {
    !once_more() || lock::advisory(id(key), false)
}

/// Whether the transaction takes one more of these locks.
pub fn has_room() -> bool {
    LOCKS.with(Count::get) < PER_TRANSACTION
}

/// Whether there is room; counts it.
fn once_more() -> bool {
    let has_room = has_room();
    if has_room {
        LOCKS.with(|locks| locks.set(locks.get() + 1));
    }
    has_room
}

fn id(key: Key) -> i64 {
    key.lock_id(settings::ADVISORY_LOCK_PREFIX.get())
}

/// Runs `work`, a subtransaction, in which waiting for a lock ends after a millisecond
/// (55P03).
pub fn no_wait<T>(work: impl FnOnce() -> T) -> T {
    guc::set_while(&[(c"lock_timeout", c"1")], work)
}
