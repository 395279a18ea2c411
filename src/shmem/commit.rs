//! What the transaction under way makes for others to do, and what its commit tells them. Nothing
//! of that may fail.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::announce::{self, Announcement};
use super::databases::{self, Place};
use super::{leases, waiters};
use crate::fault::{self, Fault};
use crate::pg::critical::without_allocating;
use crate::pg::server;
use crate::settings;

/// What a transaction made for the worker to do; of several the greatest counts.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    Nothing,
    /// Jobs that can be fetched at once. The next pass is early enough for them.
    Available,
    /// Something may be due earlier than everything before.
    MayBeDue,
    /// A limit holds jobs back that may be able to start by the commit.
    Held,
}

/// What the transaction under way made for the worker: a [`Work`].
static PENDING: AtomicU8 = AtomicU8::new(Work::Nothing as u8);

thread_local! {
    /// The transaction has committed, and the others are not told yet.
    static COMMITTED: Cell<bool> = const { Cell::new(false) };
}

/// Asks for being called at the end of each transaction.
pub fn register() {
    // SAFETY: the callbacks live as long as the library, which is never unloaded.
    unsafe {
        pg_sys::RegisterXactCallback(Some(on_transaction_end), std::ptr::null_mut());
        pg_sys::RegisterResourceReleaseCallback(Some(on_release), std::ptr::null_mut());
    }
}

/// Wakes the worker of this database for this, when the transaction commits. What a worker makes
/// itself, it looks for after its pass anyway.
pub fn wake_worker(work: Work) {
    if !super::is_worker() {
        PENDING.fetch_max(work as u8, Ordering::Relaxed);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_transaction_end(
    event: pg_sys::XactEvent::Type,
    _argument: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::*;
    let over = matches!(event, XACT_EVENT_COMMIT | XACT_EVENT_ABORT | XACT_EVENT_PREPARE);
    if over {
        without_allocating(|| {
            fault::allocate(Fault::AllocateAtCommit);
            end(event);
        });
    }
    if event == XACT_EVENT_COMMIT {
        fault::stop(Fault::StopAtCommit);
    }
}

/// The transaction has ended so.
fn end(event: pg_sys::XactEvent::Type) {
    use pg_sys::XactEvent::*;
    leases::end(event == XACT_EVENT_COMMIT);
    if event == XACT_EVENT_COMMIT {
        COMMITTED.set(true);
        return;
    }
    announce::end(|_| {});
    let work = PENDING.swap(Work::Nothing as u8, Ordering::Relaxed);
    if event == XACT_EVENT_PREPARE && work != Work::Nothing as u8 {
        databases::with_place(server::database(), Place::note_prepared);
    }
}

/// Others are told of a commit here. In the callback above the server has told no session yet that
/// what it remembers of a table has changed: a woken session would go by old settings.
#[pg_guard]
unsafe extern "C-unwind" fn on_release(
    phase: pg_sys::ResourceReleasePhase::Type,
    _is_commit: bool,
    is_top_level: bool,
    _argument: *mut std::ffi::c_void,
) {
    let over = is_top_level
        && phase == pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS
        && COMMITTED.take();
    if over {
        without_allocating(tell_all);
    }
}

/// What the transaction made is committed, and all sessions can see it.
fn tell_all() {
    let database = server::database();
    announce::end(|announcement| tell(database, announcement));
    let work = PENDING.swap(Work::Nothing as u8, Ordering::Relaxed);
    if work != Work::Nothing as u8 {
        databases::with_place(database, |place| place.touch(work));
    }
}

/// Tells sessions that wait for jobs, and has listeners notified.
fn tell(database: Oid, announcement: &Announcement) {
    waiters::wake(database, announcement);
    if settings::NOTIFY.get() && !announcement.to_notify.is_empty() {
        databases::with_place(database, |place| {
            if place.to_notify.put(&announcement.to_notify) {
                place.call();
            }
        });
    }
}

/// A prepared transaction has committed. What it made is not known any more, so it may be anything.
pub fn prepared_has_committed() {
    let database = server::database();
    tell(database, &Announcement::unknown());
    databases::with_place(database, |place| {
        place.leases.forget();
        place.touch(Work::MayBeDue as u8);
    });
}
