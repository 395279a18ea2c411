//! How sessions tell each other that some tables have changed: by the invalidation of the relation
//! cache.

use std::cell::Cell;

use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::prelude::*;

const COUNT: usize = 7;
type Tables = [Oid; COUNT];

thread_local! {
    static TABLES: Cell<Tables> = const { Cell::new([Oid::INVALID; COUNT]) };
    /// How often they have changed, from 1 on; 0: Postgres was not asked to tell us.
    static CHANGES: Cell<u64> = const { Cell::new(0) };
}

/// How often the tables have changed, as far as other sessions have committed it.
pub fn heard() -> u64 {
    if CHANGES.get() == 0 {
        CHANGES.set(1);
        // SAFETY: once a session; the callback lives as long as the library, which is never
        // unloaded.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(relation_changed), Datum::null()) };
    }
    // A long transaction that takes no new lock would not hear of it.
    // SAFETY: processes what other sessions have sent.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    CHANGES.get()
}

/// Says which tables count from now on: what is read of them later.
pub fn watch(tables: Tables) {
    TABLES.set(tables);
}

/// Tells all sessions, once this transaction commits, that some of the tables have changed.
pub fn changed(tables: Tables) {
    // Also for what comes later in the same statement.
    CHANGES.set(heard() + 1);
    // The previous version has fewer.
    for table in tables.into_iter().filter(|table| *table != Oid::INVALID) {
        // SAFETY: the table exists; the message is sent at commit.
        unsafe { pg_sys::CacheInvalidateRelcacheByRelid(table) };
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn relation_changed(_argument: Datum, relation: Oid) {
    if relation == pg_sys::InvalidOid || TABLES.get().contains(&relation) {
        CHANGES.set(CHANGES.get() + 1);
    }
}
