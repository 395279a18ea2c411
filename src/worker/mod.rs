//! The background worker.
//!
//! A launcher without a database ([`launcher`]) starts a worker for each database that
//! has the extension ([`database`]), which stays as long as there is work and goes when
//! there is none, or when somebody wants to drop, rename or copy its database. Sessions
//! wake them through shared memory ([`wake`]), and sessions that wait for jobs as well
//! ([`waiters`]). All that the worker does are the
//! [`tasks`], which `jobs.maintain()` runs as well.

mod bounded;
pub mod cleared;
mod database;
pub mod floor;
mod journal;
mod launcher;
pub mod leases;
pub mod news;
mod notify;
mod prepared;
pub mod process;
mod shelf;
mod spin;
pub mod tasks;
pub mod waiters;
pub mod wake;

/// Registers what has to be there from the server's start. Without preload there is no
/// worker and nothing to wake.
pub fn register() {
    use pgrx::pg_sys;
    // SAFETY: set by the server before it loads us.
    let (preloading, upgrading) = unsafe {
        (
            pg_sys::process_shared_preload_libraries_in_progress,
            pg_sys::IsBinaryUpgrade,
        )
    };
    if preloading && !upgrading {
        wake::register();
        waiters::register();
        floor::register();
        prepared::register();
        launcher::register();
    }
}
