//! Sessions that wait for something, in shared memory: who commits it wakes them directly.
//!
//! What they wait for are [`things`](super::things): queues, jobs, workers. A seat has a few of
//! them exactly, of more a Bloom filter: a session woken for nothing looks, and sleeps again.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::announce::Announcement;
use super::bounded::Filter;
use super::spinlock::Lock;
use crate::fault::{self, Fault};
use crate::pg::server;

/// Sessions that can be woken; those beyond look now and then.
const SEATS: usize = 2048;
/// How many a test leaves, by [`Fault::FewSeats`].
const FEW_SEATS: usize = 32;
/// Numbers of workers that share a count of requests.
const REQUEST_COUNTS: usize = 1024;

/// What is waited for: a set of these.
pub type Kinds = u8;
/// A job of a queue may be ready.
pub const QUEUES: Kinds = 1;
/// A job is final or deleted.
pub const JOBS: Kinds = 2;
/// A worker has a command or a cancellation.
pub const WORKERS: Kinds = 4;

/// What a session waits for that has only a filter of it.
const MANY: u8 = u8::MAX;
/// As many things have a word each.
pub const FEW: usize = 8;

/// One session that waits.
#[derive(Default)]
struct Seat {
    /// The session's process id; 0 is a free seat.
    owner: AtomicI32,
    database: AtomicU32,
    latch: AtomicUsize,
    /// The kinds of things that the session waits for.
    kinds: AtomicU8,
    /// How many words are used, one for each thing; with [`MANY`] they are a filter.
    count: AtomicU8,
    /// A commit has announced something for the session.
    woken: AtomicBool,
    words: [AtomicU64; FEW],
}

struct Waiters {
    /// How many seats are taken. Mostly none, and then a commit looks no further.
    count: AtomicU32,
    /// How many of them wait for things of each kind.
    of_kind: [AtomicU32; 3],
    /// Seats from here on are free.
    end: AtomicU32,
    /// Held while a seat is taken or the end is lowered. No commit waits for it.
    seating: Lock,
    seats: [Seat; SEATS],
    /// How many requests workers got, waiting or not.
    requests: [AtomicU64; REQUEST_COUNTS],
    /// How many commits asked more workers than an announcement can name.
    requests_of_any: AtomicU64,
}

thread_local! {
    /// The seat of this session.
    static MINE: Cell<Option<&'static Seat>> = const { Cell::new(None) };
    /// Whether this session has said what is to be done when it ends.
    static PREPARED: Cell<bool> = const { Cell::new(false) };
}

shared!(
    WAITERS: Waiters = c"jobs waiters",
    Waiters {
        count: AtomicU32::new(0),
        of_kind: Default::default(),
        end: AtomicU32::new(0),
        seating: Lock::new(),
        seats: std::array::from_fn(|_| Seat::default()),
        requests: [const { AtomicU64::new(0) }; REQUEST_COUNTS],
        requests_of_any: AtomicU64::new(0),
    }
);

/// Wakes those who wait for what a transaction has just committed. Called in the commit
/// callback: nothing in here may fail.
pub fn wake(database: Oid, announced: &Announcement) {
    let waiters = WAITERS.get();
    if !announced.workers.is_empty() {
        waiters.count_requests(announced);
    }
    if waiters.count.load(SeqCst) == 0 {
        return;
    }
    let kinds = waiters.kinds_of(announced);
    if kinds == 0 {
        return;
    }
    let filter = announced.filter();
    let end = waiters.end.load(SeqCst) as usize;
    for seat in waiters.seats.iter().take(end) {
        if seat.owner.load(SeqCst) != 0
            && seat.kinds.load(SeqCst) & kinds != 0
            && seat.database.load(SeqCst) == database.to_u32()
            && seat.may_wait_for(announced, kinds, &filter)
            && !seat.woken.swap(true, SeqCst)
        {
            // Whose seat is being taken just now may have none yet.
            server::set_latch(seat.latch.load(SeqCst));
        }
    }
}

/// How often something was asked of a worker. A number for several workers: it grows more often.
pub fn requests(worker: u64) -> u64 {
    let waiters = WAITERS.get();
    let own = waiters.requests[worker as usize % REQUEST_COUNTS].load(SeqCst);
    own.wrapping_add(waiters.requests_of_any.load(SeqCst))
}

impl Waiters {
    fn count_requests(&self, announced: &Announcement) {
        for worker in announced.workers.as_slice() {
            self.requests[*worker as usize % REQUEST_COUNTS].fetch_add(1, SeqCst);
        }
        if announced.workers.has_more() {
            self.requests_of_any.fetch_add(1, SeqCst);
        }
    }

    /// Of what kinds there is something to wake for.
    fn kinds_of(&self, announced: &Announcement) -> Kinds {
        let announces = [
            !announced.queues.is_empty(),
            !announced.jobs.is_empty(),
            !announced.workers.is_empty(),
        ];
        let waited_for = |kind: usize| self.of_kind[kind].load(SeqCst) != 0;
        (0..3)
            .filter(|kind| announces[*kind] && waited_for(*kind))
            .fold(0, |kinds, kind| kinds | (1 << kind))
    }

    /// Counts waits for things of some kinds.
    fn add(&self, kinds: Kinds, more: u32) {
        for (kind, count) in self.of_kind.iter().enumerate() {
            if kinds & (1 << kind) != 0 {
                count.fetch_add(more, SeqCst);
            }
        }
        self.count.fetch_add(more, SeqCst);
    }

    /// Does some work on which seats are taken, alone.
    fn with_seats<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        // Who gave up may have wanted to lower the end, which is no harm, and takes no seat.
        self.seating.with(work, || ())
    }

    /// Lowers the end to behind the last seat that is taken.
    fn lower_end(&self) {
        let is_taken = |seat: &Seat| seat.owner.load(SeqCst) != 0;
        let end = self.end.load(SeqCst) as usize;
        let last = self.seats[..end].iter().rposition(is_taken);
        let end = last.map_or(0, |last| last + 1);
        self.end.store(end as u32, SeqCst);
    }
}

impl Seat {
    /// Whether it may be one of the things that are waited for here.
    fn may_wait_for(&self, announced: &Announcement, kinds: Kinds, filter: &Filter<FEW>) -> bool {
        let kinds = kinds & self.kinds.load(SeqCst);
        let is = |kind: Kinds, may_be: bool| kinds & kind != 0 && may_be;
        let has = |word: u64| {
            is(QUEUES, announced.queues.may_have(word))
                || is(JOBS, announced.jobs.may_have(word))
                || is(WORKERS, announced.workers.may_have(word))
        };
        let words = self.words.iter().map(|word| word.load(SeqCst));
        match self.count.load(SeqCst) {
            MANY => words.zip(filter.words()).any(|(word, bits)| word & bits != 0),
            count => words.take(count.into()).any(has),
        }
    }
}

/// A seat that was taken; freed when it is dropped, or with the end of the process.
pub struct Taken(&'static Seat);

/// Takes a seat for this session; `None` if there is none. A commit that is not visible to a
/// snapshot taken after [`Taken::wait_for`] will wake the session: the seat is taken before the
/// snapshot is, and a commit is visible before it looks for seats.
pub fn take_seat(kinds: Kinds) -> Option<Taken> {
    if !super::is_preloaded() {
        return None;
    }
    if !PREPARED.replace(true) {
        // SAFETY: the callback lives as long as the library, which is never unloaded.
        unsafe { pg_sys::before_shmem_exit(Some(on_exit), pg_sys::Datum::null()) };
    }
    let waiters = WAITERS.get();
    let seats = match fault::is_on(Fault::FewSeats) {
        true => &waiters.seats[..FEW_SEATS],
        false => &waiters.seats[..],
    };
    let (owner, database) = (server::process(), server::database().to_u32());
    let seat = waiters.with_seats(|| {
        let is_free = |seat: &Seat| seat.owner.load(SeqCst) == 0;
        let number = seats.iter().position(is_free)?;
        let seat = &seats[number];
        seat.count.store(0, SeqCst);
        seat.kinds.store(kinds, SeqCst);
        seat.database.store(database, SeqCst);
        seat.latch.store(server::latch(), SeqCst);
        seat.owner.store(owner, SeqCst);
        waiters.end.fetch_max(number as u32 + 1, SeqCst);
        Some(seat)
    });
    let seat = seat.flatten()?;
    MINE.set(Some(seat));
    waiters.add(kinds, 1);
    Some(Taken(seat))
}

impl Taken {
    /// These are waited for from now on, and what committed so far is not new any more.
    pub fn wait_for(&self, things: impl ExactSizeIterator<Item = u64>) {
        let (mut words, mut count) = ([0; FEW], MANY);
        if things.len() <= FEW {
            count = things.len() as u8;
            words.iter_mut().zip(things).for_each(|(word, thing)| *word = thing);
        } else {
            let mut filter = Filter::new();
            things.for_each(|thing| filter.add(thing));
            words = *filter.words();
        }
        for (word, value) in self.0.words.iter().zip(words) {
            word.store(value, SeqCst);
        }
        self.0.count.store(count, SeqCst);
        self.forget();
    }

    /// What committed so far is not new any more.
    pub fn forget(&self) {
        self.0.woken.store(false, SeqCst);
    }

    pub fn is_woken(&self) -> bool {
        self.0.woken.load(SeqCst)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        stand_up();
    }
}

/// Gives this session's seat back. An error comes here by unwinding, the end of the process
/// by its callback.
fn stand_up() {
    if let Some(seat) = MINE.take() {
        let waiters = WAITERS.get();
        waiters.add(seat.kinds.load(SeqCst), u32::MAX);
        seat.owner.store(0, SeqCst);
        waiters.with_seats(|| waiters.lower_end());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_exit(_code: i32, _argument: pg_sys::Datum) {
    stand_up();
}
