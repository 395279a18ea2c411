//! Procedures that end the transaction in which they are called.

use std::time::Duration;

use pgrx::pg_sys::{self, FunctionCallInfo};

use super::{guc, server};

/// Whether a procedure was called where it may end the transaction without ending anything
/// of its caller: as a statement of its own, or by another procedure that may do so and has
/// written nothing yet.
pub fn may_end_transaction(call: FunctionCallInfo) -> bool {
    // SAFETY: CALL hands this over as the context of the call.
    unsafe {
        let context: *const pg_sys::CallContext = (*call).context.cast();
        !context.is_null()
            && (*context).type_ == pg_sys::NodeTag::T_CallContext
            && !(*context).atomic
            && !pg_sys::IsSubTransaction()
            && pg_sys::MyXactFlags & pg_sys::XACT_FLAGS_PIPELINING as i32 == 0
            && pg_sys::GetTopTransactionIdIfAny() == pg_sys::InvalidTransactionId
    }
}

/// Runs a procedure's body, which may call [`next_transaction`].
pub fn run<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the SPI protocol; an error unwinds through here and Postgres cleans up.
    unsafe {
        pg_sys::SPI_connect_ext(pg_sys::SPI_OPT_NONATOMIC as i32);
        let done = body();
        pg_sys::SPI_finish();
        done
    }
}

/// Commits, and begins the next transaction: it has no snapshot and no lock before it does
/// something.
pub fn next_transaction() {
    // SAFETY: called within `run`, with no snapshot left on the stack but the portal's own.
    unsafe { pg_sys::SPI_commit() };
}

/// Runs `work`, which only reads, in what is left of a transaction that has done nothing
/// yet; under READ COMMITTED, whatever the session's default is.
pub fn in_transaction<T>(work: impl FnOnce() -> T) -> T {
    guc::set_locally((c"transaction_isolation", c"read committed"));
    // SAFETY: what is pushed is popped, or dropped by an abort.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let done = work();
        pg_sys::PopActiveSnapshot();
        next_transaction();
        done
    }
}

// Not among pgrx' bindings.
unsafe extern "C-unwind" {
    fn pq_check_connection() -> bool;
}

/// Sleeps until this process' latch is set, and then does what signals ask for: ends the
/// statement or the session. Ends the session also when the postmaster or the client is gone.
pub fn sleep(at_most: Duration) {
    server::wait_for_latch(at_most);
    // SAFETY: variables of this process.
    unsafe {
        if is_abandoned() {
            pg_sys::ClientConnectionLost = 1;
            pg_sys::InterruptPending = 1;
        }
    }
    pgrx::check_for_interrupts!();
}

/// Whether the client has gone, as far as the platform can tell.
unsafe fn is_abandoned() -> bool {
    // SAFETY: reads this process' own variables and asks about its socket.
    unsafe {
        pg_sys::whereToSendOutput == pg_sys::CommandDest::DestRemote
            && pg_sys::WaitEventSetCanReportClosed()
            && !pq_check_connection()
    }
}
