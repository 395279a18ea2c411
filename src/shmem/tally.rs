//! What the transaction under way counts, and what becomes of that: its commit adds it to shared
//! memory, or it is written before, where that cannot be; what is rolled back does not count.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::{ManuallyDrop, replace};
use std::rc::Rc;
use std::sync::OnceLock;

use jobs_core::counts::{self as places, Counts, Event, Time};
use pgrx::pg_sys;
use pgrx::prelude::*;
use smallvec::SmallVec;

use super::entries::{self, Counted, MINUTE, Names, Pinned, PlaceCount};
use crate::fault::{self, Fault};
use crate::pg::critical::without_allocating;
use crate::pg::transaction;

/// A queue and a kind, as this session has numbered them. Good until the transaction ends.
#[derive(Clone, Copy)]
pub struct Pair {
    number: u32,
    /// By which sessions that know the pair find it again.
    pub key: i32,
}

/// Small, as a [`Tally`] is: a session may insert jobs of many kinds in one transaction.
struct Known {
    /// Shared with the pair before, if the queue is the same.
    queue: Rc<str>,
    kind: Box<str>,
    hash: u64,
    /// The place of its last tally.
    tally: u32,
}

/// Places and what was counted there; few have something.
type Places = SmallVec<[PlaceCount; 6]>;

/// What the transaction counts of a pair in a minute.
struct Tally {
    pair: u32,
    minute: u32,
    /// The subtransaction that counted last, or the one that it was merged into.
    by: u32,
    counts: Places,
    /// Set while the transaction commits.
    entry: Option<Pinned>,
}

/// What a tally was before a subtransaction that may yet be rolled back.
struct Before {
    subtransaction: u32,
    tally: usize,
    by: u32,
    counts: Places,
}

struct Session {
    pairs: Vec<Known>,
    by_key: BTreeMap<i32, u32>,
    /// The pair that was last asked for.
    last: usize,
    tallies: Vec<Tally>,
    /// The innermost last.
    before: Vec<Before>,
}

/// The transaction itself, as the number of a subtransaction.
const TOP: u32 = 1;
/// Pairs that are remembered beyond a transaction.
const REMEMBERED: usize = 1000;
/// Rows that are written together.
const ROWS: usize = 100;
/// Tallies whose memory is kept beyond a transaction.
const KEPT: usize = 64;

thread_local! {
    /// Never dropped: to have it dropped with the process takes memory, be it at a commit.
    static SESSION: RefCell<ManuallyDrop<Session>> = const {
        RefCell::new(ManuallyDrop::new(Session {
            pairs: Vec::new(),
            by_key: BTreeMap::new(),
            last: 0,
            tallies: Vec::new(),
            before: Vec::new(),
        }))
    };
}

pub fn pair(queue: &str, kind: &str) -> Pair {
    SESSION.with_borrow_mut(|session| session.pair(queue, kind))
}

/// The pair with this key, if the session knows it.
pub fn by_key(key: i32) -> Option<Pair> {
    SESSION.with_borrow_mut(|session| {
        if session.pairs.get(session.last)?.key() != key {
            session.last = *session.by_key.get(&key)? as usize;
        }
        Some(session.last_pair())
    })
}

/// Counts an event that happened then so many times, and a time that ended with it.
pub fn count(pair: Pair, at: i64, event: Event, times: u64, time: Option<(Time, i64)>) {
    SESSION.with_borrow_mut(|session| {
        let tally = session.tally(pair, at);
        tally.add(places::place(event), times);
        if let Some((time, micros)) = time {
            let [sum, bucket] = places::places(time, micros);
            tally.add(sum, micros.max(0) as u64);
            tally.add(bucket, 1);
        }
    });
}

impl Known {
    fn key(&self) -> i32 {
        self.hash as i32
    }
}

impl Session {
    fn last_pair(&self) -> Pair {
        Pair { number: self.last as u32, key: self.pairs[self.last].key() }
    }

    fn pair(&mut self, queue: &str, kind: &str) -> Pair {
        let is_it = |known: &Known| *known.kind == *kind && *known.queue == *queue;
        if !self.pairs.get(self.last).is_some_and(is_it) {
            let mut hasher = DefaultHasher::new();
            (queue, kind).hash(&mut hasher);
            let hash = hasher.finish();
            let found = self.by_key.get(&(hash as i32)).map(|found| *found as usize);
            let found = found.filter(|found| is_it(&self.pairs[*found]));
            if found.is_none() {
                let before = self.pairs.get(self.last).map(|known| known.queue.clone());
                let same = before.filter(|before| **before == *queue);
                self.by_key.insert(hash as i32, self.pairs.len() as u32);
                self.pairs.push(Known {
                    queue: same.unwrap_or_else(|| queue.into()),
                    kind: kind.into(),
                    hash,
                    tally: 0,
                });
            }
            self.last = found.unwrap_or(self.pairs.len() - 1);
        }
        self.last_pair()
    }

    fn tally(&mut self, pair: Pair, at: i64) -> &mut Tally {
        let minute = entries::minute_number(at);
        let is_it = |tally: &Tally| tally.pair == pair.number && tally.minute == minute;
        let mut number = self.pairs[pair.number as usize].tally as usize;
        if !self.tallies.get(number).is_some_and(is_it) {
            number = self.tallies.len();
            self.pairs[pair.number as usize].tally = number as u32;
            self.tallies.push(Tally {
                pair: pair.number,
                minute,
                by: TOP,
                counts: Places::new(),
                entry: None,
            });
        }
        let (tally, subtransaction) = (&mut self.tallies[number], transaction::subtransaction());
        if tally.by != subtransaction {
            self.before.push(Before {
                subtransaction,
                tally: number,
                by: replace(&mut tally.by, subtransaction),
                counts: tally.counts.clone(),
            });
        }
        tally
    }

    /// A subtransaction is rolled back, with those in it, or becomes part of its parent.
    fn end_subtransaction(&mut self, own: u32, parent: Option<u32>) {
        let mut place = self.before.len();
        while place > 0 && self.before[place - 1].subtransaction >= own {
            place -= 1;
            let before = &mut self.before[place];
            let tally = &mut self.tallies[before.tally];
            match parent {
                // The parent has counted nothing of it before: now this is what to go back to.
                Some(parent) if before.by < parent => {
                    (before.subtransaction, tally.by) = (parent, parent);
                    continue;
                }
                Some(_) => tally.by = before.by,
                None => (tally.by, tally.counts) = (before.by, std::mem::take(&mut before.counts)),
            }
            // Those behind it are the parent's, in any order.
            self.before.swap_remove(place);
        }
    }

    /// Pins an entry for each tally from this one on, which moves on; what has none, or cannot have
    /// one, up to so many.
    fn before_end(&mut self, is_prepared: bool, next: &mut usize, most: usize) -> Vec<Counted> {
        let mut rows = Vec::new();
        while rows.len() < most
            && let Some(tally) = self.tallies.get_mut(*next)
        {
            *next += 1;
            if !tally.has_any() {
                continue;
            }
            let known = &self.pairs[tally.pair as usize];
            if !is_prepared {
                tally.pin(known);
            }
            if tally.entry.is_none() {
                let mut counts = Counts::default();
                for counted in tally.counts.drain(..) {
                    counts.add(counted.place.into(), counted.count);
                }
                rows.push(Counted {
                    serial: None,
                    minute: i64::from(tally.minute) * MINUTE,
                    queue: known.queue.to_string(),
                    kind: known.kind.to_string(),
                    counts,
                });
            }
        }
        rows
    }

    /// The transaction is over: nothing in here may fail.
    fn end(&mut self, is_committed: bool) {
        for tally in &mut self.tallies {
            if is_committed && tally.entry.is_none() && tally.has_any() {
                // Counted after the others were made ready.
                tally.pin(&self.pairs[tally.pair as usize]);
            }
            if let Some(entry) = tally.entry {
                entry.add_and_let_go(if is_committed { &tally.counts } else { &[] });
            }
        }
        self.before.clear();
        self.tallies.clear();
        if self.tallies.capacity() > KEPT {
            self.tallies = Vec::new();
        }
        if self.pairs.len() > REMEMBERED {
            self.pairs = Vec::new();
            (self.by_key, self.last) = (BTreeMap::new(), 0);
        }
    }
}

impl Tally {
    fn add(&mut self, place: u16, count: u64) {
        match self.counts.iter_mut().find(|known| known.place == place) {
            Some(known) => known.count += count,
            None => self.counts.push(PlaceCount { place, count }),
        }
    }

    /// What was rolled back may have left nothing.
    fn has_any(&self) -> bool {
        self.counts.iter().any(|counted| counted.count > 0)
    }

    fn pin(&mut self, known: &Known) {
        let names = Names { queue: &known.queue, kind: &known.kind, hash: known.hash };
        self.entry = entries::pin(&names, i64::from(self.minute) * MINUTE);
    }
}

/// Who writes what cannot go to shared memory.
static WRITE: OnceLock<fn(Vec<Counted>)> = OnceLock::new();

/// Asks for being called at the end of each transaction and subtransaction. `write` is called
/// within a transaction that is about to end.
pub fn register(write: fn(Vec<Counted>)) {
    let _ = WRITE.set(write);
    let nothing = std::ptr::null_mut();
    // SAFETY: the callbacks live as long as the library, which is never unloaded.
    unsafe {
        pg_sys::RegisterXactCallback(Some(on_transaction_end), nothing);
        pg_sys::RegisterSubXactCallback(Some(on_subtransaction_end), nothing);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_transaction_end(
    event: pg_sys::XactEvent::Type,
    _argument: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::*;
    let is_committed = match event {
        XACT_EVENT_PRE_COMMIT | XACT_EVENT_PRE_PREPARE => {
            return before_end(event == XACT_EVENT_PRE_PREPARE);
        }
        XACT_EVENT_COMMIT => true,
        XACT_EVENT_ABORT | XACT_EVENT_PREPARE => false,
        _ => return,
    };
    let counts = is_committed || fault::is_on(Fault::CountRolledBack);
    without_allocating(|| with_session(|session| session.end(counts)));
}

fn before_end(is_prepared: bool) {
    let mut next = 0;
    // In parts: a row takes a few kilobytes.
    while let Some(rows) = with_session(|session| session.before_end(is_prepared, &mut next, ROWS))
        .filter(|rows| !rows.is_empty())
    {
        if let Some(write) = WRITE.get() {
            write(rows);
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_subtransaction_end(
    event: pg_sys::SubXactEvent::Type,
    own: pg_sys::SubTransactionId,
    parent: pg_sys::SubTransactionId,
    _argument: *mut std::ffi::c_void,
) {
    use pg_sys::SubXactEvent::*;
    let parent = match event {
        SUBXACT_EVENT_COMMIT_SUB => Some(parent),
        SUBXACT_EVENT_ABORT_SUB if fault::is_on(Fault::CountRolledBack) => Some(parent),
        SUBXACT_EVENT_ABORT_SUB => None,
        _ => return,
    };
    without_allocating(|| with_session(|session| session.end_subtransaction(own, parent)));
}

/// If the transaction has counted anything.
fn with_session<T>(work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    SESSION.with(|session| {
        // SAFETY: it is not borrowed, except where memory is out: that ends the session,
        // and does not come back.
        let session = unsafe { &mut *session.as_ptr() };
        (!session.tallies.is_empty()).then(|| work(session))
    })
}
