//! The SQLSTATE of an error that is not ours. pgrx takes each error apart that comes through it and raises it anew, with that of an
//! internal error if it does not know the error's own: one that somebody's trigger has made up. Here it gets its own back.

use std::cell::{Cell, UnsafeCell};

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::{self, ErrorContextCallback};

// Not by pgrx' bindings, which prepare for errors: these do not fail while a report is being made.
unsafe extern "C-unwind" {
    fn geterrcode() -> i32;
    fn errcode(sqlstate: i32) -> i32;
}

const INTERNAL: i32 = PgSqlErrorCode::ERRCODE_INTERNAL_ERROR as i32;

thread_local! {
    /// That of the latest report, if pgrx does not know it.
    static UNKNOWN: Cell<Option<i32>> = const { Cell::new(None) };
}

/// What Postgres calls with each report, before anybody gets it.
struct Callback(UnsafeCell<ErrorContextCallback>);
// SAFETY: a session has one thread.
unsafe impl Sync for Callback {}

static CALLBACK: Callback = Callback(UnsafeCell::new(ErrorContextCallback {
    previous: std::ptr::null_mut(),
    callback: Some(look),
    arg: std::ptr::null_mut(),
}));

/// Runs `work`, a statement. If it fails, Postgres goes on to call back until somebody catches the error, since it is raised anew on
/// the way: so what catches one must end that ([`crate::pg::subxact::catch`]).
pub fn kept<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: what is linked is static, and what it leads to belongs to those who called us.
    unsafe {
        let before = pg_sys::error_context_stack;
        if !is_linked(before) {
            (*CALLBACK.0.get()).previous = before;
            pg_sys::error_context_stack = CALLBACK.0.get();
        }
        UNKNOWN.set(None);
        let done = work();
        pg_sys::error_context_stack = before;
        done
    }
}

/// Whether Postgres calls back already: a trigger of the statement has called us.
unsafe fn is_linked(mut stack: *mut ErrorContextCallback) -> bool {
    unsafe {
        while !stack.is_null() {
            if stack == CALLBACK.0.get() {
                return true;
            }
            stack = (*stack).previous;
        }
        false
    }
}

/// Remembers the SQLSTATE of the report under way, or gives it back.
unsafe extern "C-unwind" fn look(_: *mut std::ffi::c_void) {
    // SAFETY: asks about the report that Postgres is making, and sets a field of it.
    unsafe {
        let sqlstate = geterrcode();
        match UNKNOWN.get() {
            Some(unknown) if sqlstate == INTERNAL => {
                errcode(unknown);
            }
            _ => {
                let is_known = PgSqlErrorCode::from(sqlstate) as i32 == sqlstate;
                UNKNOWN.set((!is_known).then_some(sqlstate));
            }
        }
    }
}
