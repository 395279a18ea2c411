//! Where nothing may fail, and so nothing may be allocated: under a lock of shared memory, and at
//! the end of a transaction.
//!
//! Builds with debug assertions enforce it. There such work is a critical section of Postgres', in
//! which an error ends the server, as do its own allocations if it has assertions; and what Rust
//! asks for is refused here.

use std::ffi::c_char;

use pgrx::pg_sys;

/// Does work in which nothing may be allocated.
#[inline]
pub fn without_allocating<T>(work: impl FnOnce() -> T) -> T {
    if !cfg!(debug_assertions) {
        return work();
    }
    // SAFETY: a variable of this process; whatever does not come back from the work ends the
    // process.
    unsafe {
        pg_sys::CritSectionCount += 1;
        let done = work();
        pg_sys::CritSectionCount -= 1;
        done
    }
}

/// Memory is asked for: ends the process where that may not be.
#[inline]
pub fn may_allocate(size: usize) {
    // SAFETY: reads a variable of this process.
    if cfg!(debug_assertions) && unsafe { pg_sys::CritSectionCount } != 0 {
        refuse(size);
    }
}

// Not by pgrx' bindings, which allocate.
unsafe extern "C-unwind" {
    fn write_stderr(format: *const c_char, ...);
}

/// The server then ends all other sessions as well, so that no test overlooks it.
#[cold]
fn refuse(size: usize) -> ! {
    // SAFETY: the format takes a size.
    unsafe {
        write_stderr(c"PANIC: jobs asked for %zu bytes where nothing may fail\n".as_ptr(), size)
    };
    std::process::abort()
}
