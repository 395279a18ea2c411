//! Heartbeats that could not be written, since somebody had the job locked, in shared memory. A
//! heartbeat waits for nobody, and counts all the same: who rescues looks here first. Hints, as all
//! of it: one that is lost costs an attempt, as if it had not come.

use pgrx::prelude::*;
use pgrx::{PgAtomic, pg_shmem_init};

use super::things;
use super::times::Times;
use crate::pg::time;

/// Leases that can be told apart.
const PLACES: usize = 4096;

// SAFETY: the name is this extension's own.
static SHARED: PgAtomic<Times<PLACES>> = unsafe { PgAtomic::new(c"jobs heartbeats") };

/// Asks for the shared memory.
pub fn register() {
    pg_shmem_init!(SHARED = Times::new());
}

/// A lease as its row says.
#[derive(Clone, Copy)]
pub struct Lease {
    /// of which job
    pub id: i64,
    /// of its holder
    pub token: i64,
    /// its end: once a later heartbeat was written, this one counts no more
    pub ends_at: i64,
}

impl Lease {
    /// It goes on until then, whatever its row says.
    pub fn goes_on(self, until: i64) {
        if super::is_preloaded() {
            SHARED.get().set(self.thing(), until, 0, time::now());
        }
    }

    /// When it really ends.
    pub fn end(self) -> i64 {
        let noted = super::is_preloaded().then(|| SHARED.get().get(self.thing()));
        noted.flatten().unwrap_or(self.ends_at)
    }

    fn thing(self) -> u64 {
        things::lease_here(self.id, self.token, self.ends_at)
    }
}
