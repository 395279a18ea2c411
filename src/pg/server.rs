//! What a session knows of the server, its database and itself.

use std::cell::RefCell;
use std::time::Duration;

use pgrx::pg_sys::{self, Oid};

use super::text;

/// Whether the server loads its `shared_preload_libraries`, and not for `pg_upgrade`.
pub fn is_preloading() -> bool {
    // SAFETY: set by the server before it loads us.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress && !pg_sys::IsBinaryUpgrade }
}

pub fn is_standby() -> bool {
    // SAFETY: reads the state of the server.
    unsafe { pg_sys::RecoveryInProgress() }
}

pub fn is_utf8() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetDatabaseEncoding() == pg_sys::pg_enc::PG_UTF8 as i32 }
}

pub fn database() -> Oid {
    // SAFETY: set for the life of the process.
    unsafe { pg_sys::MyDatabaseId }
}

/// The number of the database in this server. A server that takes over has the same.
pub fn database_number() -> i64 {
    database().to_u32().into()
}

/// The number of this server. Its standbys have the same, one that a dump is restored into has
/// another.
pub fn system() -> i64 {
    // SAFETY: reads what the server's control file says.
    unsafe { pg_sys::GetSystemIdentifier() as i64 }
}

pub fn process() -> i32 {
    // SAFETY: set for the life of the process.
    unsafe { pg_sys::MyProcPid }
}

/// The latch of this process, as a number that other processes can set it by: latches are in shared
/// memory, and never freed.
pub fn latch() -> usize {
    // SAFETY: reads a variable.
    unsafe { pg_sys::MyLatch as usize }
}

/// Sets the latch of another process; 0 is none. Allocates nothing. A stale one wakes some process
/// for nothing, which every process is prepared for.
pub fn set_latch(latch: usize) {
    if latch != 0 {
        // SAFETY: latches are never freed.
        unsafe { pg_sys::SetLatch(latch as *mut pg_sys::Latch) };
    }
}

/// Waits until the latch of this process is set, at most so long. Ends the process when the
/// postmaster is gone.
pub fn wait_for_latch(at_most: Duration) {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // Rounded up: what is due in half a millisecond is not due yet.
    let milliseconds = at_most.as_micros().div_ceil(1000).clamp(1, 3_600_000);
    // SAFETY: this process' own latch.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            events as i32,
            milliseconds as std::ffi::c_long,
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
}

/// The session's `statement_timeout`, if it has one.
pub fn statement_timeout() -> Option<Duration> {
    // SAFETY: reads a variable.
    let milliseconds = unsafe { pg_sys::StatementTimeout };
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds as u64))
}

pub fn application_name() -> String {
    // SAFETY: a setting's text, never null.
    unsafe { text::copied(pg_sys::application_name) }
}

/// A random number of the server's strong source, since a session can seed `random()`. Of those it
/// takes some at once: each time costs as much as for one.
pub fn random() -> u64 {
    thread_local! {
        static DRAWN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }
    DRAWN.with_borrow_mut(|drawn| {
        if drawn.is_empty() {
            let mut bytes = [0u8; 64 * 8];
            // SAFETY: fills exactly the buffer.
            let has = unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) };
            assert!(has, "the server has no random numbers");
            drawn.extend(bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes));
        }
        drawn.pop().expect("some were drawn")
    })
}
