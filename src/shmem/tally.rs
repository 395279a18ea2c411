//! What the transaction under way counts, and what becomes of that: its commit adds it to shared
//! memory, or it is written before, where that cannot be; what is rolled back does not count.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use jobs_core::history::{self as places, Event, Time};
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::history::{self, MINUTE, Names, Pinned};
use crate::fault::{self, Fault};
use crate::pg::critical::without_allocating;
use crate::pg::transaction;

/// A queue and a kind, as this session has numbered them. Good until the transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair(u32);

struct Known {
    queue: String,
    kind: String,
    key: i32,
    /// the entry that it had last
    last: Option<Pinned>,
    /// where its last tally is
    tally: usize,
}

/// Pairs that are remembered beyond a transaction.
const REMEMBERED: usize = 1000;

/// What is counted of a pair in a minute, by one subtransaction. There may be several.
#[derive(Default)]
struct Tally {
    pair: u32,
    minute: i64,
    subtransaction: u32,
    /// where it is to be written in the end
    table: u32,
    /// few places have something
    counts: Vec<(u16, u64)>,
    /// since the commit is being made
    entry: Option<Pinned>,
}

struct Session {
    pairs: Vec<Known>,
    by_key: HashMap<i32, u32>,
    /// the pair that was asked for last
    last: usize,
    /// those behind `used` are kept for later
    tallies: Vec<Tally>,
    used: usize,
    /// with more of them those are joined that belong together
    join_from: usize,
}

/// Tallies that are kept between transactions.
const KEPT: usize = 64;

thread_local! {
    /// Never dropped: to have it dropped with the process takes memory, be it at a commit.
    static SESSION: RefCell<ManuallyDrop<Option<Session>>> = const {
        RefCell::new(ManuallyDrop::new(None))
    };
}

/// What cannot go to shared memory, to be written as a row.
pub struct Delta {
    /// when its minute began
    pub minute: i64,
    /// the queue
    pub queue: String,
    /// the kind
    pub kind: String,
    /// places and counts in turns
    pub counts: Vec<i64>,
}

fn with<T>(work: impl FnOnce(&mut Session) -> T) -> T {
    SESSION.with_borrow_mut(|session| {
        work(session.get_or_insert_with(|| Session {
            pairs: Vec::new(),
            by_key: HashMap::new(),
            last: 0,
            tallies: Vec::new(),
            used: 0,
            join_from: KEPT,
        }))
    })
}

/// The pair of a queue and a kind.
pub fn pair(queue: &str, kind: &str) -> Pair {
    with(|session| Pair(session.pair(queue, kind)))
}

/// A number of the pair, by which this session finds it again, and others that know the pair.
pub fn key(pair: Pair) -> i32 {
    with(|session| session.pairs[pair.0 as usize].key)
}

/// The pair with this number, if the session knows it.
pub fn by_key(key: i32) -> Option<Pair> {
    with(|session| {
        let known = session.pairs.get(session.last);
        if known.is_some_and(|known| known.key == key) {
            return Some(Pair(session.last as u32));
        }
        let found = session.by_key.get(&key).copied();
        session.last = found.map_or(session.last, |found| found as usize);
        found.map(Pair)
    })
}

/// Counts an event that happened then so many times.
pub fn count(pair: Pair, at: i64, event: Event, times: u64) {
    with(|session| session.tally(pair, at).add(places::place(event), times));
}

/// Counts an event, and measures a time that ended with it.
pub fn measure(pair: Pair, at: i64, event: Event, time: Time, micros: i64) {
    with(|session| {
        let tally = session.tally(pair, at);
        let [sum, bucket] = places::places(time, micros);
        tally.add(places::place(event), 1);
        tally.add(bucket, 1);
        tally.add(sum, micros.max(0) as u64);
    });
}

impl Session {
    fn pair(&mut self, queue: &str, kind: &str) -> u32 {
        let is_it = |known: &Known| known.kind == kind && known.queue == queue;
        if self.pairs.get(self.last).is_some_and(is_it) {
            return self.last as u32;
        }
        if self.pairs.len() >= REMEMBERED && self.used == 0 {
            self.pairs.clear();
            self.by_key.clear();
        }
        for salt in 0u32.. {
            let mut hasher = DefaultHasher::new();
            (queue, kind, salt).hash(&mut hasher);
            let key = hasher.finish() as i32;
            match self.by_key.get(&key).copied() {
                Some(found) if !is_it(&self.pairs[found as usize]) => continue,
                Some(found) => self.last = found as usize,
                None => {
                    self.last = self.pairs.len();
                    self.by_key.insert(key, self.last as u32);
                    self.pairs.push(Known {
                        queue: queue.into(),
                        kind: kind.into(),
                        key,
                        last: None,
                        tally: 0,
                    });
                }
            }
            break;
        }
        self.last as u32
    }

    fn tally(&mut self, pair: Pair, at: i64) -> &mut Tally {
        let minute = at.div_euclid(MINUTE) * MINUTE;
        let subtransaction = transaction::subtransaction();
        let is_it = |tally: &Tally| {
            tally.pair == pair.0
                && tally.minute == minute
                && tally.subtransaction == subtransaction
                && tally.entry.is_none()
        };
        let last = self.pairs[pair.0 as usize].tally;
        if last < self.used && is_it(&self.tallies[last]) {
            return &mut self.tallies[last];
        }
        if self.used == 0 {
            self.tallies.truncate(KEPT);
            self.join_from = KEPT;
        } else if self.used >= self.join_from {
            self.join();
        }
        if self.used == self.tallies.len() {
            self.tallies.push(Tally::default());
        }
        self.pairs[pair.0 as usize].tally = self.used;
        self.used += 1;
        let tally = &mut self.tallies[self.used - 1];
        (tally.pair, tally.minute, tally.subtransaction) = (pair.0, minute, subtransaction);
        tally.table = history::table();
        tally
    }

    /// Joins the tallies that belong together, which subtransactions have left.
    fn join(&mut self) {
        self.tallies.truncate(self.used);
        self.tallies
            .sort_by_key(|tally| (tally.pair, tally.minute, tally.subtransaction, tally.table));
        self.tallies.dedup_by(|tally, before| {
            let is_one = (tally.pair, tally.minute, tally.subtransaction, tally.table)
                == (
                    before.pair,
                    before.minute,
                    before.subtransaction,
                    before.table,
                )
                && tally.entry.is_none()
                && before.entry.is_none();
            if is_one {
                for (place, count) in &tally.counts {
                    before.add(*place, *count);
                }
            }
            is_one
        });
        self.used = self.tallies.len();
        self.join_from = (2 * self.used).max(KEPT);
    }

    /// Pins an entry for each tally; what has none.
    fn before_end(&mut self, is_prepared: bool) -> Vec<Delta> {
        let mut rows = Vec::new();
        for tally in &mut self.tallies[..self.used] {
            if tally.entry.is_some() || tally.counts.is_empty() {
                continue;
            }
            let known = &mut self.pairs[tally.pair as usize];
            if !is_prepared {
                tally.pin(known);
            }
            if tally.entry.is_none() {
                let counts = tally.counts.drain(..);
                rows.push(Delta {
                    minute: tally.minute,
                    queue: known.queue.clone(),
                    kind: known.kind.clone(),
                    counts: counts
                        .flat_map(|(place, count)| [place.into(), count as i64])
                        .collect(),
                });
            }
        }
        rows
    }

    /// The transaction is over: nothing in here may fail.
    fn end(&mut self, is_committed: bool) {
        for tally in &mut self.tallies[..self.used] {
            if is_committed && tally.entry.is_none() && !tally.counts.is_empty() {
                // Counted after the others were made ready.
                tally.pin(&mut self.pairs[tally.pair as usize]);
            }
            tally.end(is_committed);
        }
        self.used = 0;
    }

    /// A subtransaction is rolled back, with those in it, or becomes part of its parent.
    fn end_subtransaction(&mut self, from: u32, parent: Option<u32>) {
        let mut place = 0;
        while place < self.used {
            let tally = &mut self.tallies[place];
            if tally.subtransaction < from {
                place += 1;
            } else if let Some(parent) = parent {
                tally.subtransaction = parent;
                place += 1;
            } else {
                tally.end(false);
                self.used -= 1;
                self.tallies.swap(place, self.used);
            }
        }
    }
}

impl Tally {
    fn add(&mut self, place: u16, count: u64) {
        match self.counts.iter_mut().find(|(known, _)| *known == place) {
            Some((_, known)) => *known += count,
            None => self.counts.push((place, count)),
        }
    }

    fn pin(&mut self, known: &mut Known) {
        let names = Names {
            table: self.table,
            queue: &known.queue,
            kind: &known.kind,
            key: known.key,
        };
        self.entry = history::pin(&names, self.minute, known.last);
        known.last = self.entry.or(known.last);
    }

    fn end(&mut self, is_committed: bool) {
        if let Some(entry) = self.entry.take() {
            let counts = match is_committed {
                true => &self.counts[..],
                false => &[],
            };
            entry.add_and_let_go(counts.iter().copied());
        }
        self.counts.clear();
    }
}

/// Who writes what cannot go to shared memory.
static WRITE: OnceLock<fn(Vec<Delta>)> = OnceLock::new();

/// Asks for being called at the end of each transaction and subtransaction. `write` is called
/// within a transaction that is about to end.
pub fn register(write: fn(Vec<Delta>)) {
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
    let is_over = match event {
        XACT_EVENT_PRE_COMMIT | XACT_EVENT_PRE_PREPARE => {
            return before_end(event == XACT_EVENT_PRE_PREPARE);
        }
        XACT_EVENT_COMMIT => Some(true),
        XACT_EVENT_ABORT => Some(false),
        XACT_EVENT_PREPARE => None,
        _ => return,
    };
    without_allocating(|| {
        history::end_writing(0, is_over);
        let is_committed = is_over == Some(true) || fault::is_on(Fault::CountRolledBack);
        if_any(|session| session.end(is_committed));
    });
}

/// What a trigger does that the writing fires may count as well, though not for ever.
fn before_end(is_prepared: bool) {
    for _ in 0..10 {
        let rows = if_any(|session| session.before_end(is_prepared)).unwrap_or_default();
        match WRITE.get() {
            Some(write) if !rows.is_empty() => write(rows),
            _ => return,
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
    without_allocating(|| {
        if parent.is_none() {
            history::end_writing(own, Some(false));
        }
        if_any(|session| session.end_subtransaction(own, parent));
    });
}

/// If the transaction has counted anything.
fn if_any<T>(work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    SESSION.with(|session| {
        // SAFETY: nobody has it borrowed, but for who gets no more memory: that ends the session,
        // and does not come back.
        let session = unsafe { &mut *session.as_ptr() };
        session
            .as_mut()
            .filter(|session| session.used > 0)
            .map(work)
    })
}
