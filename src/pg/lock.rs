//! Locks of tables and of numbers, kept until the end of the transaction.

use pgrx::pg_sys::{self, Oid};

/// Takes the lock on a table that everybody takes who writes its rows.
pub fn to_write(table: Oid) {
    // SAFETY: as a statement does it.
    unsafe { pg_sys::LockRelationOid(table, pg_sys::RowExclusiveLock as i32) };
}

/// Takes the lock on a table that everybody takes who locks its rows, if that is free; whether it
/// was.
pub fn try_to_lock_rows(table: Oid) -> bool {
    // SAFETY: as a statement does it.
    unsafe { pg_sys::ConditionalLockRelationOid(table, pg_sys::RowShareLock as i32) }
}

/// Whether no transaction is open that writes to a table, or has not yet told others of it: whoever
/// does so holds a lock until then.
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

/// Takes an advisory lock, as `pg_advisory_xact_lock(bigint)` does; whether it was free. Waits only
/// with `wait`.
pub fn advisory(id: i64, wait: bool) -> bool {
    const OF_ONE_NUMBER: u16 = 1;
    // SAFETY: a valid tag.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: pg_sys::MyDatabaseId.to_u32(),
            locktag_field2: (id as u64 >> 32) as u32,
            locktag_field3: id as u32,
            locktag_field4: OF_ONE_NUMBER,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        };
        let mode = pg_sys::ExclusiveLock as i32;
        let taken = pg_sys::LockAcquire(&tag, mode, false, true);
        let is_free = taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL;
        if !is_free && wait {
            pg_sys::LockAcquire(&tag, mode, false, false);
        }
        is_free
    }
}
