//! How far final jobs have been cleared away, so that those that are kept longer than others are not looked through
//! again and again, and do not look overdue.
//!
//! Jobs are cleared away by groups: those of a state, of a queue or of all that have no retention of their own. Of a
//! group all that became final up to some moment have been dealt with. The worker notes that once its transaction has
//! committed: in its own memory, and, as far as there is room, in shared memory for the workers after it. It is a hint:
//! it is forgotten after an hour, for jobs that were locked just then, when a final job gets another queue, and when the
//! first job can go that was passed over because its own uniqueness keeps it.
//! `jobs.maintain()` goes by nobody's notes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::{databases, is_worker};
use crate::pg::{time, versions};

/// Nothing has been cleared away.
pub const NOTHING: i64 = i64::MIN;

/// How long a hint is believed, in microseconds.
const BELIEVED: i64 = 3600 * 1_000_000;

/// Looking through jobs that are kept on takes no more than a hundredth of the time: so many microseconds of rest for each.
const REST: i64 = 200;

/// Final jobs past their retention that something else keeps.
#[derive(Clone, Copy, Default)]
pub struct KeptOn {
    /// how many
    pub count: usize,
    /// until when the first one is kept
    pub first: Option<i64>,
}

/// How long a hint is believed.
#[derive(Clone, Copy)]
struct Term {
    /// until then
    until: i64,
    /// and no shorter than that, for those that are kept on; 0: there are none
    rested: i64,
}

impl Term {
    /// From now on.
    fn new() -> Term {
        Term {
            until: time::now() + BELIEVED,
            rested: 0,
        }
    }

    fn is_over(self) -> bool {
        !(1..=BELIEVED).contains(&(self.until - time::now()))
    }

    /// Of those that are kept on, the first one is to go in time, but not at the price of looking through all of them
    /// over and over.
    fn shortened(self, kept: KeptOn) -> Term {
        let Some(first) = kept.first else {
            return self;
        };
        let begun = if self.rested == 0 {
            time::now()
        } else {
            self.rested
        };
        let rested = begun.saturating_add((kept.count as i64).saturating_mul(REST));
        Term {
            until: self.until.min(first.max(rested)),
            rested,
        }
    }
}

/// The hints about a database.
pub struct Cleared {
    hints: [Hint; 32],
    /// how often all were taken back
    taken_back: AtomicU64,
}

struct Hint {
    /// which jobs; 0: free
    group: AtomicU64,
    /// its term
    until: AtomicI64,
    rested: AtomicI64,
    /// those that became final up to then
    up_to: AtomicI64,
    /// as often had all been taken back
    taken_back: AtomicU64,
}

/// What a transaction has dealt with.
struct Pending {
    transaction: u32,
    group: u64,
    up_to: i64,
    kept: KeptOn,
    /// it is to be remembered
    is_told: bool,
}

/// What a worker remembers itself. Groups that find no room in shared memory would be looked through in each pass.
struct Own {
    /// how often all were taken back when these were noted
    taken_back: u64,
    /// of a group its term, and up to when its jobs were dealt with
    hints: HashMap<u64, (Term, i64)>,
}

thread_local! {
    /// What the transaction under way has dealt with.
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
    static OWN: RefCell<Own> = RefCell::new(Own { taken_back: 0, hints: HashMap::new() });
    /// The worker's transaction that has asked last, and how often all had been taken back when it first did.
    static ASKED: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
    /// The transaction under way takes all back.
    static TAKES_BACK: Cell<bool> = const { Cell::new(false) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Up to when the jobs of a group that became final were dealt with, also by this transaction.
pub fn up_to(group: u64) -> i64 {
    let transaction = versions::local_transaction();
    let here = PENDING.with_borrow(|pending| {
        let of_group = |p: &&Pending| p.group == group && p.transaction == transaction;
        pending.iter().filter(of_group).map(|p| p.up_to).max()
    });
    let before = before(group, transaction).map_or(NOTHING, |(_, up_to)| up_to);
    here.unwrap_or(NOTHING).max(before)
}

/// When the jobs of a group are looked through again for those that are kept on, if there are some.
pub fn looked_through_again(group: u64) -> Option<i64> {
    let (term, _) = before(group, versions::local_transaction())?;
    (term.rested != 0).then_some(term.until)
}

/// What the worker's transactions before this one have dealt with.
fn before(group: u64, transaction: u32) -> Option<(Term, i64)> {
    let slot = databases::own_slot().filter(|_| is_worker());
    let cleared = slot.map(|slot| &slot.cleared)?;
    if ASKED.get().0 != transaction {
        ASKED.set((transaction, cleared.taken_back.load(Ordering::SeqCst)));
    }
    let own = OWN.with_borrow_mut(|own| {
        let (_, taken_back) = ASKED.get();
        if own.taken_back != taken_back {
            own.taken_back = taken_back;
            own.hints.clear();
        }
        let hint = own.hints.get(&group).copied();
        hint.filter(|(term, _)| !term.is_over())
    });
    let (_, taken_back) = ASKED.get();
    own.or_else(|| cleared.believed(group, taken_back))
}

/// Notes that it is so up to this moment but for those that are kept on, if the transaction commits. Only of the worker's
/// transactions is nothing rolled back before that but what is then dealt with anew.
pub fn note(group: u64, up_to: i64, kept: KeptOn) {
    if is_worker() {
        add(group, up_to, kept, true);
    }
}

/// A final job belongs to another group, once the transaction commits: what is noted of that may be wrong then.
pub fn take_back() {
    TAKES_BACK.set(true);
}

/// For the rest of this transaction it counts as so up to this moment.
pub fn pass_over(group: u64, up_to: i64) {
    add(group, up_to, KeptOn::default(), false);
}

fn add(group: u64, up_to: i64, kept: KeptOn, is_told: bool) {
    if !REGISTERED.replace(true) {
        // SAFETY: once a session; the callback lives as long as the library, which is never unloaded.
        unsafe {
            pg_sys::RegisterSubXactCallback(Some(on_subtransaction_end), std::ptr::null_mut())
        };
    }
    let transaction = versions::local_transaction();
    let count = PENDING.with_borrow_mut(|pending| {
        pending.retain(|p| p.transaction == transaction && p.group != group);
        pending.push(Pending {
            transaction,
            group,
            up_to,
            kept,
            is_told,
        });
        pending.len()
    });
    // At the commit there is to be room.
    OWN.with_borrow_mut(|own| own.hints.reserve(count));
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
        with_pending(Vec::clear);
    }
}

/// Where the session has run out of memory and ends, it may have been at it: then nothing is told.
fn with_pending(work: impl FnOnce(&mut Vec<Pending>)) {
    PENDING.with(|pending| {
        if let Ok(mut pending) = pending.try_borrow_mut() {
            work(&mut pending);
        }
    });
}

/// The transaction is over.
pub fn end(is_committed: bool) {
    if TAKES_BACK.take()
        && is_committed
        && let Some(slot) = databases::own_slot()
    {
        slot.cleared.take_back();
    }
    with_pending(|pending| {
        for noted in pending.drain(..) {
            if is_committed
                && noted.is_told
                && let Some(slot) = databases::own_slot()
            {
                remember(&slot.cleared, &noted);
            }
        }
    });
}

/// Remembers what the worker's transaction has dealt with. Where all was taken back since it began to look, that is of no use.
fn remember(cleared: &Cleared, noted: &Pending) {
    let Pending {
        group, up_to, kept, ..
    } = *noted;
    OWN.with_borrow_mut(|own| {
        let known = own.hints.get(&group).map(|hint| hint.0);
        let term = known.filter(|term| !term.is_over());
        let term = term.unwrap_or_else(Term::new).shortened(kept);
        own.hints.insert(group, (term, up_to));
    });
    let (_, taken_back) = ASKED.get();
    cleared.set(group, up_to, kept, taken_back);
}

impl Cleared {
    /// No hints.
    pub fn new() -> Cleared {
        Cleared {
            hints: std::array::from_fn(|_| Hint {
                group: AtomicU64::new(0),
                until: AtomicI64::new(0),
                rested: AtomicI64::new(0),
                up_to: AtomicI64::new(NOTHING),
                taken_back: AtomicU64::new(0),
            }),
            taken_back: AtomicU64::new(0),
        }
    }

    /// Forgets all of them.
    pub fn clear(&self) {
        for hint in &self.hints {
            hint.group.store(0, Ordering::SeqCst);
        }
    }

    /// Some may be wrong by now: none is believed any more.
    pub fn take_back(&self) {
        self.taken_back.fetch_add(1, Ordering::SeqCst);
    }

    fn believed(&self, group: u64, taken_back: u64) -> Option<(Term, i64)> {
        let hint = self.find(group);
        hint.filter(|hint| hint.is_believed(taken_back))
            .map(|hint| (hint.term(), hint.up_to.load(Ordering::SeqCst)))
    }

    /// A database has one worker, so nobody else writes. What is believed of other groups stays as it is.
    fn set(&self, group: u64, up_to: i64, kept: KeptOn, taken_back: u64) {
        let is_believed = |hint: &&Hint| hint.is_believed(taken_back);
        let known = self.find(group).filter(is_believed);
        let Some(hint) = known.or_else(|| self.hints.iter().find(|hint| !is_believed(hint))) else {
            return;
        };
        let term = known.map_or_else(Term::new, Hint::term).shortened(kept);
        // Of neither meanwhile.
        hint.group.store(0, Ordering::SeqCst);
        hint.until.store(term.until, Ordering::SeqCst);
        hint.rested.store(term.rested, Ordering::SeqCst);
        hint.taken_back.store(taken_back, Ordering::SeqCst);
        hint.up_to.store(up_to, Ordering::SeqCst);
        hint.group.store(group, Ordering::SeqCst);
    }

    fn find(&self, group: u64) -> Option<&Hint> {
        self.hints
            .iter()
            .find(|hint| hint.group.load(Ordering::SeqCst) == group)
    }
}

impl Hint {
    fn term(&self) -> Term {
        Term {
            until: self.until.load(Ordering::SeqCst),
            rested: self.rested.load(Ordering::SeqCst),
        }
    }

    /// Whether it is one, its term is not over, and it was not taken back.
    fn is_believed(&self, taken_back: u64) -> bool {
        self.group.load(Ordering::SeqCst) != 0
            && self.taken_back.load(Ordering::SeqCst) == taken_back
            && !self.term().is_over()
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::{Cleared, KeptOn, NOTHING, Term, time};

    fn up_to(cleared: &Cleared, group: u64, taken_back: u64) -> i64 {
        let found = cleared.believed(group, taken_back);
        found.map_or(NOTHING, |(_, up_to)| up_to)
    }

    fn set(cleared: &Cleared, group: u64, up_to: i64, taken_back: u64) {
        cleared.set(group, up_to, KeptOn::default(), taken_back);
    }

    #[pg_test]
    fn a_term_ends_when_the_first_that_is_kept_on_can_go_but_not_at_once_again() {
        let now = time::now();
        let kept = |count, seconds: i64| KeptOn {
            count,
            first: Some(now + seconds * 1_000_000),
        };
        let hour = Term::new();
        assert_eq!(hour.shortened(KeptOn::default()).until, hour.until);
        assert_eq!(hour.shortened(kept(1, 7200)).until, hour.until);
        let minute = hour.shortened(kept(1, 60));
        assert_eq!(minute.until, now + 60_000_000);
        assert!(!minute.is_over() && hour.shortened(kept(0, -1)).is_over());
        // A million take 200 seconds of rest, also where another one can go before.
        let rested = hour.shortened(kept(1_000_000, -1));
        assert!(rested.until >= now + 200_000_000);
        assert!(rested.shortened(kept(1, 1)).until >= now + 200_000_000);
    }

    #[pg_test]
    fn hints_are_found_again_and_moved_on_while_there_is_room() {
        let cleared = Cleared::new();
        assert_eq!(up_to(&cleared, 7, 0), NOTHING);
        set(&cleared, 7, 100, 0);
        assert_eq!(up_to(&cleared, 7, 0), 100);
        set(&cleared, 7, 200, 0);
        assert_eq!(
            (up_to(&cleared, 7, 0), up_to(&cleared, 8, 0)),
            (200, NOTHING)
        );
        (100..200).for_each(|group| set(&cleared, group, 1, 0));
        assert_eq!((up_to(&cleared, 7, 0), up_to(&cleared, 100, 0)), (200, 1));
        assert_eq!(up_to(&cleared, 199, 0), NOTHING, "there was no room");
        assert_eq!(up_to(&cleared, 7, 1), NOTHING, "all were taken back");
        set(&cleared, 199, 1, 1);
        assert_eq!(
            (up_to(&cleared, 199, 1), up_to(&cleared, 7, 1)),
            (1, NOTHING)
        );
        cleared.clear();
        assert_eq!(up_to(&cleared, 199, 1), NOTHING);
    }
}
