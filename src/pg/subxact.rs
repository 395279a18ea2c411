//! Subtransactions: the only way to go on after an error, and to take back what was written.

use std::panic::AssertUnwindSafe;

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};

use super::report;

/// Runs `work` in a subtransaction; on an error everything it did is rolled back and the error returned.
pub fn attempt<T>(work: impl FnOnce() -> T) -> Result<T, Box<CaughtError>> {
    attempt_and_keep(work, |_| true)
}

/// The same, and everything is rolled back also where what `work` returned is not to `keep`.
pub fn attempt_and_keep<T>(
    work: impl FnOnce() -> T,
    keep: impl FnOnce(&T) -> bool,
) -> Result<T, Box<CaughtError>> {
    // SAFETY: the sequence of PL/pgSQL's exception blocks.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let outcome = catch(|| {
            let done = work();
            // What came up meanwhile (a timeout that was set for the work) is still the work's.
            pgrx::check_for_interrupts!();
            done
        });
        pg_sys::MemoryContextSwitchTo(context);
        if outcome.as_ref().is_ok_and(keep) {
            pg_sys::ReleaseCurrentSubTransaction();
        } else {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
        outcome
    }
}

/// The same, and says what went wrong. Whoever cancels means all of it, so that is raised again.
pub fn attempt_unless_cancelled<T>(
    work: impl FnOnce() -> T,
) -> Result<T, (PgSqlErrorCode, String)> {
    attempt(work).map_err(|error| match describe(&error) {
        (PgSqlErrorCode::ERRCODE_QUERY_CANCELED, _) => rethrow(*error),
        described => described,
    })
}

/// Whether an error says nothing about what was to be done, and may not come the next time.
pub fn is_passing(code: PgSqlErrorCode) -> bool {
    matches!(
        code,
        PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE
            | PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED
            | PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE
            | PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES
            | PgSqlErrorCode::ERRCODE_DISK_FULL
            | PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY
    )
}

/// Runs `work` and returns its error instead of raising it. The caller has to roll back.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Box<CaughtError>> {
    // SAFETY: whoever is on it now is so still, unlike those that the work has put there.
    let callbacks = unsafe { pg_sys::error_context_stack };
    PgTryBuilder::new(AssertUnwindSafe(|| Ok(work())))
        .catch_others(|error| Err(Box::new(error)))
        .catch_rust_panic(|error| Err(Box::new(error)))
        .finally(|| unsafe { pg_sys::error_context_stack = callbacks })
        .execute()
}

/// Raises a caught error again, as it was.
pub fn rethrow(error: CaughtError) -> ! {
    report::again();
    error.rethrow()
}

/// The SQLSTATE and message of a caught error.
pub fn describe(error: &CaughtError) -> (PgSqlErrorCode, String) {
    match error {
        CaughtError::PostgresError(report)
        | CaughtError::ErrorReport(report)
        | CaughtError::RustPanic {
            ereport: report, ..
        } => (report.sql_error_code(), report.message().to_string()),
    }
}
