//! The search_path that our own statements run with.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::guc;

/// What every function is declared with that does not switch to its owner by itself.
const PINNED: &CStr = c"pg_catalog, pg_temp";

/// Runs `work` with it, whatever the caller's is: no operator or function of a caller's schema may
/// run with our rights. Where it is set already, that is a comparison.
pub fn pinned<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a setting that is always a string.
    if unsafe { CStr::from_ptr(pg_sys::namespace_search_path) } == PINNED {
        return work();
    }
    guc::set_while(&[(c"search_path", PINNED)], work)
}
