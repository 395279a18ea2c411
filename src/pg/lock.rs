//! Locks of tables and of numbers, mostly kept until the end of the transaction.

use pgrx::pg_sys::{self, Oid};

/// Takes the lock on a table that every writer of its rows takes.
pub fn to_write(table: Oid) {
    // SAFETY: as a statement does it.
    unsafe { pg_sys::LockRelationOid(table, pg_sys::RowExclusiveLock as i32) };
}

/// Takes the lock on a table that every locker of its rows takes, if that is free; whether it
/// was.
pub fn try_to_lock_rows(table: Oid) -> bool {
    // SAFETY: as a statement does it.
    unsafe { pg_sys::ConditionalLockRelationOid(table, pg_sys::RowShareLock as i32) }
}

/// Whether no transaction is open that writes to a table, or has not yet told others of it: a
/// transaction that does so holds a lock until then.
pub fn nobody_writes(table: Oid) -> bool {
    let lock = pg_sys::ShareLock as i32;
    // SAFETY: as a statement does it; of no use once it was free.
    unsafe {
        let is_free = pg_sys::ConditionalLockRelationOid(table, lock);
        if is_free {
            pg_sys::UnlockRelationOid(table, lock);
        }
        is_free
    }
}

/// What kind of advisory lock has a number.
#[repr(u16)]
enum Advisory {
    /// A lock of `pg_advisory_lock(bigint)`.
    OfUsers = 1,
    /// A lock that no user can take.
    Own = 3,
    /// A lock that no user can take, for a task that one transaction does at a time.
    Turn = 4,
}

fn tag(id: i64, kind: Advisory) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: reads a variable.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: (id as u64 >> 32) as u32,
        locktag_field3: id as u32,
        locktag_field4: kind as u16,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

/// Does some work while no other session does some under one of these numbers.
pub fn in_turn<T>(mut ids: Vec<i64>, work: impl FnOnce() -> T) -> T {
    // In one order, so that there is no deadlock.
    ids.sort_unstable();
    ids.dedup();
    let mode = pg_sys::ExclusiveLock as i32;
    let tags: Vec<_> = ids.iter().map(|id| tag(*id, Advisory::Own)).collect();
    // SAFETY: valid tags; after an error Postgres gives the locks back.
    unsafe {
        for tag in &tags {
            pg_sys::LockAcquire(tag, mode, false, false);
        }
        let done = work();
        for tag in &tags {
            pg_sys::LockRelease(tag, mode, false);
        }
        done
    }
}

/// Takes an advisory lock, as `pg_advisory_xact_lock(bigint)` does; whether it was free. Waits only
/// with `wait`.
pub fn advisory(id: i64, wait: bool) -> bool {
    take(&tag(id, Advisory::OfUsers), wait)
}

/// Whether it is this transaction's turn to do what has this number, until it ends. No other
/// transaction has it then.
pub fn is_our_turn(id: i64) -> bool {
    take(&tag(id, Advisory::Turn), false)
}

fn take(tag: &pg_sys::LOCKTAG, wait: bool) -> bool {
    // SAFETY: a valid tag.
    unsafe {
        let mode = pg_sys::ExclusiveLock as i32;
        let taken = pg_sys::LockAcquire(tag, mode, false, true);
        let is_free = taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL;
        if !is_free && wait {
            pg_sys::LockAcquire(tag, mode, false, false);
        }
        is_free
    }
}
