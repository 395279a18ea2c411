//! What sessions and background processes tell each other through shared memory.
//!
//! All of it is hints: what is lost, or is not there because the library was not preloaded, costs
//! time and no jobs. Only what is counted ([`entries`]) is told to people. Nothing in here reads or
//! writes a table.

/// Memory that all processes share, all of it atomics: a static of this name and type, and what it
/// begins with.
macro_rules! shared {
    ($static:ident: $type:ty = $name:literal, $begin:expr) => {
        // SAFETY: atomics only; addresses of latches are the same in every process.
        unsafe impl pgrx::PGRXSharedMemory for $type {}

        // SAFETY: the name is this extension's own.
        static $static: pgrx::PgAtomic<$type> = unsafe { pgrx::PgAtomic::new($name) };

        pub fn register() {
            pgrx::pg_shmem_init!($static = $begin);
        }
    };
}

pub mod announce;
mod bounded;
pub mod commit;
pub mod databases;
pub mod entries;
pub mod fetches;
pub mod floors;
pub mod leases;
pub mod outbox;
mod prepared;
pub mod puts;
mod spinlock;
pub mod tally;
pub mod things;
pub mod waiters;

use std::sync::atomic::{AtomicBool, Ordering};

/// The library was preloaded.
static PRELOADED: AtomicBool = AtomicBool::new(false);
/// This process is one of the extension's own.
static WORKER: AtomicBool = AtomicBool::new(false);

/// Asks for the shared memory. Called while the server starts.
pub fn register() {
    databases::register();
    waiters::register();
    floors::register();
    fetches::register();
    puts::register();
    entries::register();
    commit::register();
    prepared::register();
    PRELOADED.store(true, Ordering::Relaxed);
}

/// Whether there is shared memory, that is, whether the library was preloaded.
pub fn is_preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// This process is the launcher or a worker, and not a client's session.
pub fn become_worker() {
    WORKER.store(true, Ordering::Relaxed);
}

/// Whether it is one of those.
pub fn is_worker() -> bool {
    WORKER.load(Ordering::Relaxed)
}
