//! Settings of the server that hold for a while, set by its own machinery: it knows what was
//! before, whatever is set meanwhile by others, and also when an error ends it.

use std::ffi::CStr;

use pgrx::pg_sys::{self, GucAction};

pub type Setting = (&'static CStr, &'static CStr);

/// Runs `work` with these settings, as a function that is declared with SET: what `work` sets with
/// SET LOCAL is over when it ends, what it sets with SET is the session's. An abort restores what
/// was before by itself.
pub fn set_while<T>(settings: &[Setting], work: impl FnOnce() -> T) -> T {
    // SAFETY: begun and ended within one transaction.
    unsafe {
        let nesting = pg_sys::NewGUCNestLevel();
        for setting in settings {
            set(*setting, GucAction::GUC_ACTION_SAVE);
        }
        let done = work();
        pg_sys::AtEOXact_GUC(true, nesting);
        done
    }
}

/// Makes an undefined setting under this prefix an error, not silence.
pub fn reserve_prefix(prefix: &'static CStr) {
    // SAFETY: called once, while the library is loaded.
    unsafe { pg_sys::MarkGUCPrefixReserved(prefix.as_ptr()) };
}

/// Sets something until the transaction ends.
pub fn set_locally(setting: Setting) {
    // SAFETY: within a transaction.
    unsafe { set(setting, GucAction::GUC_ACTION_LOCAL) };
}

unsafe fn set((name, value): Setting, action: GucAction::Type) {
    // SAFETY: the server copies the value.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            action,
            true,
            0,
            false,
        );
    }
}
