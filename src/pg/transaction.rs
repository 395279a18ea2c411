//! The transaction under way: its isolation level, whether it has written, what it sees of that,
//! and how often it has done what.

use std::cell::Cell;

use pgrx::pg_sys;

use super::versions;

/// Whether statements see what is committed when they begin.
pub fn is_read_committed() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32 }
}

pub fn is_serializable() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::XactIsoLevel == pg_sys::XACT_SERIALIZABLE as i32 }
}

/// Whether parallel workers are at it, or may be.
pub fn is_parallel() -> bool {
    // SAFETY: reads the state of the transaction.
    unsafe { pg_sys::IsInParallelMode() }
}

pub fn is_read_only() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::XactReadOnly }
}

/// Whether a transaction is this one, or a part of it.
pub fn is_ours(transaction: u32) -> bool {
    // SAFETY: looks at this process' own transactions.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId(transaction.into()) }
}

pub fn has_written() -> bool {
    // SAFETY: reads the state of the transaction.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// What was written so far is seen by what comes next in this transaction.
pub fn make_visible() {
    // SAFETY: not in a parallel worker: what comes here writes.
    unsafe { pg_sys::CommandCounterIncrement() }
}

/// The number of the subtransaction under way, or 1. It is higher than those of all that began
/// before, in this transaction.
#[inline]
pub fn subtransaction() -> u32 {
    // Not by pgrx' bindings: what they do for errors takes longer than this, which raises none.
    unsafe extern "C" {
        fn GetCurrentSubTransactionId() -> u32;
    }
    // SAFETY: reads the state of the transaction.
    unsafe { GetCurrentSubTransactionId() }
}

/// Runs `work` with a snapshot of now, whatever the transaction's level. What it sees may have come
/// since the transaction began.
pub fn with_latest_snapshot<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: popped afterwards, or by Postgres after an error.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        let done = work();
        pg_sys::PopActiveSnapshot();
        done
    }
}

/// How often the transaction under way has done something: the last one that did it, and how often.
pub struct Count(Cell<(u32, u32)>);

impl Count {
    pub const fn none() -> Count {
        Count(Cell::new((0, 0)))
    }

    pub fn get(&self) -> u32 {
        let (last, count) = self.0.get();
        if last == versions::local_transaction() { count } else { 0 }
    }

    pub fn set(&self, count: u32) {
        self.0.set((versions::local_transaction(), count));
    }
}
