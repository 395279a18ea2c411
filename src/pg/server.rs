//! What a session knows of the server, its database and itself.

use std::ffi::CStr;

use pgrx::pg_sys::{self, Oid};

/// Whether the server loads its `shared_preload_libraries`, and not for `pg_upgrade`.
pub fn is_preloading() -> bool {
    // SAFETY: set by the server before it loads us.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress && !pg_sys::IsBinaryUpgrade }
}

/// Whether it is a standby.
pub fn is_standby() -> bool {
    // SAFETY: reads the state of the server.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// Whether text of this database is UTF-8.
pub fn is_utf8() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetDatabaseEncoding() == pg_sys::pg_enc::PG_UTF8 as i32 }
}

/// The database of this process.
pub fn database() -> Oid {
    // SAFETY: set for the life of the process.
    unsafe { pg_sys::MyDatabaseId }
}

/// The number of this process.
pub fn process() -> i32 {
    // SAFETY: set for the life of the process.
    unsafe { pg_sys::MyProcPid }
}

/// The session's application_name, which may be empty.
pub fn application_name() -> String {
    // SAFETY: a setting's text, never null.
    let name = unsafe { CStr::from_ptr(pg_sys::application_name) };
    name.to_string_lossy().into_owned()
}

/// Fills a buffer with random numbers of the server's strong source, since a session can seed `random()`; whether there are any.
pub fn random(bytes: &mut [u8]) -> bool {
    // SAFETY: fills exactly the buffer.
    unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) }
}
