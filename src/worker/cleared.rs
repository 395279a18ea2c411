//! How far final jobs have been cleared away, so that those that are kept longer than others are not looked through
//! again and again, and do not look overdue.
//!
//! Jobs are cleared away by groups: those of a state, of a queue or of all that have no retention of their own. Of a
//! group all that became final up to some moment have been dealt with. The worker notes that in shared memory, once
//! its transaction has committed. It is a hint: it is forgotten after an hour, for jobs that were locked just then.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::{process, wake};
use crate::pg::{time, versions};

/// Nothing has been cleared away.
pub const NOTHING: i64 = i64::MIN;

/// How long a hint is believed, in microseconds.
const BELIEVED: i64 = 3600 * 1_000_000;

/// The hints about a database.
pub struct Cleared([Hint; 32]);

struct Hint {
    /// which jobs; 0: free
    group: AtomicU64,
    /// since when it is believed
    since: AtomicI64,
    /// those that became final up to then
    up_to: AtomicI64,
}

/// What a transaction has dealt with.
struct Pending {
    transaction: u32,
    group: u64,
    up_to: i64,
    /// others are to know it
    is_told: bool,
}

thread_local! {
    /// What the transaction under way has dealt with.
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Up to when the jobs of a group that became final were dealt with, also by this transaction.
pub fn up_to(group: u64) -> i64 {
    let now = versions::local_transaction();
    let here = PENDING.with_borrow(|pending| {
        let of_group = |p: &&Pending| p.group == group && p.transaction == now;
        pending.iter().filter(of_group).map(|p| p.up_to).max()
    });
    let before = wake::own_slot().map_or(NOTHING, |slot| slot.cleared.up_to(group));
    before.max(here.unwrap_or(NOTHING))
}

/// Notes that it is so up to this moment, if the transaction commits. Only of the worker's transactions is nothing
/// rolled back before that but what is then dealt with anew.
pub fn note(group: u64, up_to: i64) {
    if process::is_worker() {
        add(group, up_to, true);
    }
}

/// For the rest of this transaction it counts as so up to this moment.
pub fn pass_over(group: u64, up_to: i64) {
    add(group, up_to, false);
}

fn add(group: u64, up_to: i64, is_told: bool) {
    if !REGISTERED.replace(true) {
        // SAFETY: once a session; the callback lives as long as the library, which is never unloaded.
        unsafe {
            pg_sys::RegisterSubXactCallback(Some(on_subtransaction_end), std::ptr::null_mut())
        };
    }
    let transaction = versions::local_transaction();
    PENDING.with_borrow_mut(|pending| {
        pending.retain(|p| p.transaction == transaction && p.group != group);
        pending.push(Pending {
            transaction,
            group,
            up_to,
            is_told,
        });
    });
}

/// What was dealt with in a subtransaction that is rolled back is to be dealt with again.
#[pg_guard]
unsafe extern "C-unwind" fn on_subtransaction_end(
    event: pg_sys::SubXactEvent::Type,
    _own: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _argument: *mut std::ffi::c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        PENDING.with_borrow_mut(Vec::clear);
    }
}

/// The transaction is over.
pub fn end(is_committed: bool) {
    PENDING.with_borrow_mut(|pending| {
        for noted in pending.drain(..) {
            if is_committed
                && noted.is_told
                && let Some(slot) = wake::own_slot()
            {
                slot.cleared.set(noted.group, noted.up_to);
            }
        }
    });
}

impl Cleared {
    /// No hints.
    pub fn new() -> Cleared {
        Cleared(std::array::from_fn(|_| Hint {
            group: AtomicU64::new(0),
            since: AtomicI64::new(0),
            up_to: AtomicI64::new(NOTHING),
        }))
    }

    /// Forgets all of them.
    pub fn clear(&self) {
        for hint in &self.0 {
            hint.group.store(0, Ordering::SeqCst);
        }
    }

    fn up_to(&self, group: u64) -> i64 {
        let now = time::now();
        let found = self.find(group);
        found
            .filter(|hint| (0..BELIEVED).contains(&(now - hint.since.load(Ordering::SeqCst))))
            .map_or(NOTHING, |hint| hint.up_to.load(Ordering::SeqCst))
    }

    /// A database has one worker, so nobody else writes.
    fn set(&self, group: u64, up_to: i64) {
        let now = time::now();
        let known = self.up_to(group) != NOTHING;
        let oldest = || {
            let since = |hint: &&Hint| match hint.group.load(Ordering::SeqCst) {
                0 => i64::MIN,
                _ => hint.since.load(Ordering::SeqCst),
            };
            self.0.iter().min_by_key(since).expect("there are some")
        };
        let hint = self.find(group).unwrap_or_else(oldest);
        if !known {
            // Free while it is of neither.
            hint.group.store(0, Ordering::SeqCst);
            hint.since.store(now, Ordering::SeqCst);
        }
        hint.up_to.store(up_to, Ordering::SeqCst);
        hint.group.store(group, Ordering::SeqCst);
    }

    fn find(&self, group: u64) -> Option<&Hint> {
        self.0
            .iter()
            .find(|hint| hint.group.load(Ordering::SeqCst) == group)
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::{Cleared, NOTHING};

    #[pg_test]
    fn hints_are_found_again_moved_on_and_make_room() {
        let cleared = Cleared::new();
        assert_eq!(cleared.up_to(7), NOTHING);
        cleared.set(7, 100);
        assert_eq!(cleared.up_to(7), 100);
        cleared.set(7, 200);
        assert_eq!((cleared.up_to(7), cleared.up_to(8)), (200, NOTHING));
        (100..200).for_each(|group| cleared.set(group, 1));
        assert_eq!(cleared.up_to(7), NOTHING, "the oldest has made room");
        assert_eq!((cleared.up_to(199), cleared.up_to(180)), (1, 1));
        cleared.clear();
        assert_eq!(cleared.up_to(199), NOTHING);
    }
}
