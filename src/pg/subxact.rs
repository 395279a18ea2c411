//! Subtransactions: the only way to continue after an error, and to undo what was written.
//!
//! One that wrote something and is kept has an id of its own until the transaction ends. Of each
//! transaction the server has 64 of these at hand; where there are more, every snapshot that others
//! take meanwhile is slower to look through. So there are not many of ours ([`has_room`]): the
//! caller has some as well.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};

use super::report;
use super::transaction::Count;

/// As many as a transaction keeps.
const MOST_KEPT: u32 = 48;

thread_local! {
    /// How many the transaction has kept.
    static KEPT: Count = const { Count::none() };
    /// How many are for others.
    static RESERVED: Cell<u32> = const { Cell::new(0) };
}

/// Whether the transaction under way should keep one more. A caller that does without is
/// slower, or leaves something to the next transaction.
pub fn has_room() -> bool {
    KEPT.with(Count::get) + RESERVED.get() < MOST_KEPT
}

/// While it lives there is less room: so many are for what comes later.
pub struct Reserve;

impl Reserve {
    pub fn of(count: u32) -> Reserve {
        RESERVED.set(count);
        Reserve
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        RESERVED.set(0);
    }
}

/// Runs `work` in a subtransaction; on an error everything it did is rolled back and the error
/// returned.
pub fn attempt<T>(work: impl FnOnce() -> T) -> Result<T, Box<CaughtError>> {
    attempt_and_keep(work, |_| true)
}

/// Runs `work` in a subtransaction that is rolled back where what it returned is not to `keep`. An
/// error is raised again.
pub fn kept_if<T>(keep: impl FnOnce(&T) -> bool, work: impl FnOnce() -> T) -> T {
    attempt_and_keep(work, keep).unwrap_or_else(|error| rethrow(*error))
}

fn attempt_and_keep<T>(
    work: impl FnOnce() -> T,
    keep: impl FnOnce(&T) -> bool,
) -> Result<T, Box<CaughtError>> {
    // SAFETY: the sequence of PL/pgSQL's exception blocks.
    unsafe {
        let kept = KEPT.with(Count::get);
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
            let has_written =
                pg_sys::GetCurrentTransactionIdIfAny() != pg_sys::InvalidTransactionId;
            pg_sys::ReleaseCurrentSubTransaction();
            KEPT.with(|kept| kept.set(kept.get() + u32::from(has_written)));
        } else {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
            report::renew();
            // With those that were in it.
            KEPT.with(|count| count.set(kept));
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
        outcome
    }
}

/// [`attempt`] that says what went wrong. A cancel means all of it, so it is raised again.
pub fn attempt_unless_cancelled<T>(
    work: impl FnOnce() -> T,
) -> Result<T, (PgSqlErrorCode, String)> {
    attempt(work).map_err(|error| match describe(&error) {
        (PgSqlErrorCode::ERRCODE_QUERY_CANCELED, _) => rethrow(*error),
        described => described,
    })
}

/// Runs `work` for each of these, and hands those that it fails for to `fail`, with the reason; the
/// sum of what it returned for the others. As many are done together as succeed together, so that
/// few subtransactions are kept. Where there is no room for more of them, the rest is left.
pub fn attempt_each<T>(
    things: &[T],
    work: &dyn Fn(&T) -> usize,
    fail: &mut dyn FnMut(&T, PgSqlErrorCode, String),
) -> usize {
    let together = || {
        let each = things.iter().map(|thing| {
            pgrx::check_for_interrupts!();
            work(thing)
        });
        each.sum()
    };
    if things.is_empty() || !has_room() {
        return 0;
    }
    match (attempt_unless_cancelled(together), things) {
        (Ok(done), _) => done,
        (Err((code, why)), [thing]) => {
            fail(thing, code, why);
            0
        }
        (Err(_), _) => {
            let (before, behind) = things.split_at(things.len() / 2);
            attempt_each(before, work, fail) + attempt_each(behind, work, fail)
        }
    }
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
    // SAFETY: what is on it now stays there, unlike what the work has put there.
    let callbacks = unsafe { pg_sys::error_context_stack };
    PgTryBuilder::new(AssertUnwindSafe(|| Ok(work())))
        .catch_others(|error| Err(Box::new(error)))
        .catch_rust_panic(|error| Err(Box::new(error)))
        // SAFETY: a variable of this process.
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
        | CaughtError::RustPanic { ereport: report, .. } => {
            (report.sql_error_code(), report.message().to_string())
        }
    }
}
