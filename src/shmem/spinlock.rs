//! A lock in shared memory for moments in which nothing may fail, as while a transaction commits.
//!
//! No wait for one is without end: its holder may not be running, and a process that waits can be
//! neither cancelled nor terminated. One that has waited long enough gives up, says so in the lock
//! and does without. What these locks guard are hints. Before its holder gives the lock back it
//! makes of them what is true whatever the others had to say.
//!
//! Under a lock nothing is allocated, and no interrupt is dealt with: its holder would end, and it
//! would stay locked.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::fault::{self, Fault};
use crate::pg::critical::without_allocating;

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Held, and a process has stopped waiting for it.
const GIVEN_UP: u8 = 2;

/// It is held for no longer than it takes to copy a kilobyte.
const SPINS: u32 = 200;
/// A holder beyond that is not running. It gets the time to be given the processor again, even if
/// many want it.
const NAPS: u32 = 100;
const NAP: Duration = Duration::from_millis(1);

pub struct Lock(AtomicU8);

impl Lock {
    pub const fn new() -> Lock {
        Lock(AtomicU8::new(FREE))
    }

    /// Does some work under this lock; `None`: it cannot be had. The process that holds
    /// it then does `doubt`, which must be the same in all processes, later than all that came
    /// before this call.
    pub fn with<T>(&self, work: impl FnOnce() -> T, doubt: impl Fn()) -> Option<T> {
        if !self.take() {
            return None;
        }
        let done = without_allocating(|| {
            fault::allocate(Fault::AllocateUnderLock);
            work()
        });
        fault::stop_under_lock();
        while self.change(HELD, FREE).is_err() {
            // Who gives up from here on has it done once more.
            self.0.store(HELD, Ordering::SeqCst);
            if !fault::is_on(Fault::StopAndTrust) {
                without_allocating(&doubt);
            }
        }
        Some(done)
    }

    /// Whether it was to be had.
    fn take(&self) -> bool {
        for turn in 0..SPINS + NAPS {
            match self.change(FREE, HELD) {
                Ok(_) => return true,
                // Others have waited for it long enough.
                Err(GIVEN_UP) => return false,
                Err(_) if turn < SPINS => std::hint::spin_loop(),
                Err(_) => std::thread::sleep(NAP),
            }
        }
        loop {
            match self.change(HELD, GIVEN_UP) {
                Ok(_) | Err(GIVEN_UP) => return false,
                // It has just been released.
                Err(_) if self.change(FREE, HELD).is_ok() => return true,
                // And taken by another process, which is running.
                Err(_) => {}
            }
        }
    }

    fn change(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
    }
}
