//! How our own statements are planned, whatever the session has set, also when they are planned
//! anew.
//!
//! A queue's tables are empty when they are analysed and full when they are used, so the planner's
//! guess is wrong when it matters. Every statement of ours is written for one plan: index scans and
//! nested loops. They are prepared with a mark that the planner hands to a hook, which sets the
//! planner's switches for as long as it plans. They run with the session's own, so that functions
//! of triggers are planned as the session wants.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::guc::{self, Setting};

/// The option that a statement of ours is prepared with: a bit that Postgres gives no meaning.
pub const PINNED: i32 = 1 << 29;
/// With it: an index may be read as a bitmap as well. Some can be read in no other way.
pub const BITMAPS: i32 = 1 << 28;

/// The one plan that our statements are written for. Whether what is compiled pays off is decided
/// by the plan as well.
const SWITCHES: [Setting; 11] = switches(c"off");
/// And with bitmaps.
const WITH_BITMAPS: [Setting; 11] = switches(c"on");

const fn switches(bitmaps: &'static CStr) -> [Setting; 11] {
    [
        (c"enable_indexscan", c"on"),
        (c"enable_indexonlyscan", c"on"),
        (c"enable_tidscan", c"on"),
        (c"enable_nestloop", c"on"),
        (c"enable_sort", c"on"),
        (c"enable_seqscan", c"off"),
        (c"enable_bitmapscan", bitmaps),
        (c"enable_hashjoin", c"off"),
        (c"enable_mergejoin", c"off"),
        (c"enable_memoize", c"off"),
        (c"jit", c"off"),
    ]
}

/// The hook that was there before, to be called in our place.
static BEFORE: OnceLock<pg_sys::planner_hook_type> = OnceLock::new();

// The binding of pgrx catches every error that passes through it. Errors of other statements must
// pass unchanged.
unsafe extern "C-unwind" {
    fn standard_planner(
        query: *mut pg_sys::Query,
        text: *const c_char,
        options: c_int,
        params: pg_sys::ParamListInfo,
    ) -> *mut pg_sys::PlannedStmt;
}

/// Has Postgres plan our statements so from now on.
pub fn register() {
    // SAFETY: called once, when the library is loaded.
    unsafe {
        let _ = BEFORE.set(pg_sys::planner_hook);
        pg_sys::planner_hook = Some(plan);
    }
}

/// Plans a statement. An error jumps over it.
unsafe extern "C-unwind" fn plan(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
    params: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: as Postgres hands them over.
    unsafe {
        match options & PINNED {
            0 => plan_as_before(query, text, options, params),
            _ => plan_pinned(query, text, options),
        }
    }
}

/// For whatever parameters. An error jumps over it, and the abort restores the switches.
#[pg_guard]
unsafe extern "C-unwind" fn plan_pinned(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
) -> *mut pg_sys::PlannedStmt {
    let any = std::ptr::null_mut();
    let switches = match options & BITMAPS {
        0 => &SWITCHES,
        _ => &WITH_BITMAPS,
    };
    // SAFETY: as above.
    guc::set_while(switches, || unsafe { plan_as_before(query, text, options, any) })
}

unsafe fn plan_as_before(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
    params: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: as the server calls its planner.
    unsafe {
        match BEFORE.get() {
            Some(Some(before)) => before(query, text, options, params),
            _ => standard_planner(query, text, options, params),
        }
    }
}
