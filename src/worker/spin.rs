//! A lock in shared memory for moments in which nothing may fail, as while a transaction commits.

use std::sync::atomic::{AtomicBool, Ordering};

/// Does some work while nobody else does any under this lock.
///
/// Nobody holds one for longer than it takes to copy a kilobyte, and nobody can be ended meanwhile by less than what makes
/// all of the server start anew.
pub fn with_lock<T>(locked: &AtomicBool, work: impl FnOnce() -> T) -> T {
    let mut tries = 0u32;
    while locked.swap(true, Ordering::Acquire) {
        tries += 1;
        if tries.is_multiple_of(100) {
            // Whoever holds it may not be running.
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
    let done = work();
    locked.store(false, Ordering::Release);
    done
}
