//! The search_path that our own statements run with.

use std::ffi::CStr;

use pgrx::pg_sys;

/// What every function is declared with that does not switch to its owner by itself.
const PINNED: &CStr = c"pg_catalog, pg_temp";

/// Runs `work` with it, whatever the caller's is: no operator or function of a caller's schema may run with our rights.
/// Where it is set already, that is a comparison. An abort restores the caller's by itself.
pub fn pinned<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a setting that is always a string; sets and restores within one transaction.
    unsafe {
        if CStr::from_ptr(pg_sys::namespace_search_path) == PINNED {
            return work();
        }
        let nesting = pg_sys::NewGUCNestLevel();
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            PINNED.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        let done = work();
        pg_sys::AtEOXact_GUC(true, nesting);
        done
    }
}
