//! Object ids that a session remembers until a relation or schema has changed: then any name may
//! mean something else.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use pgrx::pg_sys::{self, Datum, Oid, SysCacheIdentifier};
use pgrx::prelude::*;

pub struct Remembered(
    /// The number of the memory, and the object id.
    AtomicU64,
);

/// Counts how often everything was forgotten, from 1 on; 0: Postgres was not asked to tell us of
/// changes.
static MEMORY: AtomicU32 = AtomicU32::new(0);

impl Remembered {
    pub const fn nothing() -> Remembered {
        Remembered(AtomicU64::new(0))
    }

    /// What is remembered, or what `look` finds.
    #[inline]
    pub fn or_else<E>(&self, look: impl FnOnce() -> Result<Oid, E>) -> Result<Oid, E> {
        let memory = MEMORY.load(Relaxed);
        let remembered = self.0.load(Relaxed);
        if memory != 0 && (remembered >> 32) as u32 == memory {
            return Ok(Oid::from(remembered as u32));
        }
        if memory == 0 {
            listen();
        }
        // What is heard of while it looks may be later than what it sees: that is forgotten
        // already.
        let memory = MEMORY.load(Relaxed);
        let found = look()?;
        let remembered = u64::from(memory) << 32 | u64::from(found.to_u32());
        self.0.store(remembered, Relaxed);
        Ok(found)
    }
}

#[cold]
fn listen() {
    MEMORY.store(1, Relaxed);
    for cache in [SysCacheIdentifier::RELNAMENSP, SysCacheIdentifier::NAMESPACENAME] {
        // SAFETY: once a session; the callback lives as long as the library, which is never
        // unloaded.
        unsafe { pg_sys::CacheRegisterSyscacheCallback(cache as i32, Some(forget), Datum::null()) };
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn forget(_argument: Datum, _cache: i32, _hash: u32) {
    let next = MEMORY.load(Relaxed).wrapping_add(1).max(1);
    MEMORY.store(next, Relaxed);
}
