//! COMMIT PREPARED, which runs no callback of the transaction that it commits: another session may
//! have prepared it, before the server was started. So the statement itself is noticed, by a hook,
//! and wakes the worker and sessions that wait for jobs.
//!
//! Sessions count in shared memory what they prepare, and the worker forgets it when the catalog
//! has no prepared transaction of its database, so that others' cost nothing. A subscription with
//! `two_phase` commits without a statement: what that brings is found by the worker's regular
//! visits.

use std::ffi::c_char;
use std::sync::OnceLock;

use pgrx::pg_sys;

use super::{commit, databases};

/// The hook that was there before, to be called in our place.
static BEFORE: OnceLock<pg_sys::ProcessUtility_hook_type> = OnceLock::new();

// Not by pgrx' bindings, and the hook without a guard: they take each error that comes along apart
// and leave out half of it when they put it together again. Errors jump over the hook, which has
// nothing to clean up.
unsafe extern "C-unwind" {
    fn standard_ProcessUtility(
        statement: *mut pg_sys::PlannedStmt,
        text: *const c_char,
        is_shared: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        params: pg_sys::ParamListInfo,
        environment: *mut pg_sys::QueryEnvironment,
        receiver: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
}

/// Has Postgres tell us of utility statements from now on.
pub fn register() {
    // SAFETY: called once, when the library is loaded.
    unsafe {
        let _ = BEFORE.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(process);
    }
}

unsafe extern "C-unwind" fn process(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    is_shared: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: what Postgres hands over is handed on.
    unsafe {
        // Asked before: once it has committed, the worker may forget it.
        let is_ours = commits_prepared(statement) && databases::has_prepared();
        let next = BEFORE.get().copied().flatten();
        let next = next.unwrap_or(standard_ProcessUtility);
        next(statement, text, is_shared, context, params, environment, receiver, completion);
        if is_ours {
            commit::prepared_has_committed();
        }
    }
}

unsafe fn commits_prepared(statement: *mut pg_sys::PlannedStmt) -> bool {
    // SAFETY: nodes of the parser's, of the types that they say.
    unsafe {
        let statement = (*statement).utilityStmt;
        (*statement).type_ == pg_sys::NodeTag::T_TransactionStmt
            && (*statement.cast::<pg_sys::TransactionStmt>()).kind
                == pg_sys::TransactionStmtKind::TRANS_STMT_COMMIT_PREPARED
    }
}
