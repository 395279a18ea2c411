//! How sessions tell each other that a table has changed: by the invalidation of its relation
//! cache.

use std::cell::Cell;

use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::prelude::*;

/// Who wants to hear of it.
type Listeners = [Option<fn(Oid)>; LISTENERS];
const LISTENERS: usize = 2;

thread_local! {
    static HEARD: Cell<Listeners> = const { Cell::new([None; LISTENERS]) };
}

/// Calls `heard` whenever a table has changed: with its object id, or an invalid one for any table.
/// Of several calls with the same function only the first one counts.
pub fn listen(heard: fn(Oid)) {
    let mut all = HEARD.get();
    let is = |other: &fn(Oid)| std::ptr::fn_addr_eq(*other, heard);
    if all.iter().flatten().any(is) {
        return;
    }
    if all[0].is_none() {
        // SAFETY: once a session; the callback lives as long as the library, which is never
        // unloaded.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(relation_changed), Datum::null()) };
    }
    let free = all.iter_mut().find(|listener| listener.is_none());
    *free.expect("there is room for each") = Some(heard);
    HEARD.set(all);
}

/// Hears now of what other sessions have committed. A long transaction that takes no new lock would
/// not.
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
    for heard in HEARD.get().into_iter().flatten() {
        heard(relation);
    }
}
