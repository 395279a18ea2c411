//! The transaction under way: its isolation level, whether it has written, and what it sees of that.

use pgrx::pg_sys;

/// Whether statements see what is committed when they begin.
pub fn is_read_committed() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Whether the transaction is SERIALIZABLE.
pub fn is_serializable() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::XactIsoLevel == pg_sys::XACT_SERIALIZABLE as i32 }
}

/// Whether this transaction has written anything.
pub fn has_written() -> bool {
    // SAFETY: reads the state of the transaction.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// What was written so far is seen by what comes next in this transaction.
pub fn make_visible() {
    // SAFETY: not in a parallel worker: what comes here writes.
    unsafe { pg_sys::CommandCounterIncrement() }
}
