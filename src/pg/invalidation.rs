//! How sessions tell each other that a table has changed: by the invalidation of its relation cache.

use std::cell::Cell;

use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::prelude::*;

thread_local! {
    static HEARD: Cell<Option<fn(Oid)>> = const { Cell::new(None) };
}

/// Calls `heard` whenever a table has changed: with its object id, or an invalid one for any table. Only the first call counts.
pub fn listen(heard: fn(Oid)) {
    if HEARD.get().is_none() {
        HEARD.set(Some(heard));
        // SAFETY: once a session; the callback lives as long as the library, which is never unloaded.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(relation_changed), Datum::null()) };
    }
}

/// Hears now of what other sessions have committed. A long transaction that takes no new lock would not.
pub fn accept() {
    // SAFETY: processes what other sessions have sent.
    unsafe { pg_sys::AcceptInvalidationMessages() };
}

/// Tells all sessions, once this transaction commits, that a table has changed.
pub fn changed(table: Oid) {
    // SAFETY: the table exists; the message is sent at commit.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(table) };
}

#[pg_guard]
unsafe extern "C-unwind" fn relation_changed(_argument: Datum, relation: Oid) {
    if let Some(heard) = HEARD.get() {
        heard(relation);
    }
}
