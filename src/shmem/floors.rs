//! Floors: positions in an index below which there is nothing any more. docs/internals/floors.md
//! says how they rise, and what has none. The inserter of a row looks for a candidate above
//! it, so the row is either found by the second walk, or lowers the floor.
//!
//! Without shared memory there are no floors. A session that cannot get at a queue's floors,
//! because the one is at them is not running, does without, and has them forgotten: to lower them
//! may have been what it wanted.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, fence};
use std::time::Duration;

use pgrx::pg_sys::Oid;
use pgrx::prelude::*;
use smallvec::SmallVec;

use super::spinlock::Lock;
use super::things::{self, Queue};
use crate::pg::{server, time, transaction};

/// The lowest position.
pub const LOWEST: i64 = i64::MIN;

/// Queues that have floors.
const QUEUES: usize = 512;
/// Where a queue may be.
const WAYS: usize = 4;
/// Lanes that a queue has floors for.
const LANES: usize = 8;
/// A queue that was not asked for that long may be forgotten, in microseconds.
const FORGOTTEN_AFTER: i64 = 10_000_000;
/// A fetch that finds nothing looks without floors at most this often, in microseconds.
const LOOK_AT_ALL_EVERY: i64 = 1_000_000;
/// Such looks take at most one part in so many of the time.
const LOOK_AT_ALL_SHARE: i64 = 200;
/// They still happen at least this often.
const LOOK_AT_ALL_AT_LEAST: i64 = 600_000_000;
/// A fetch that finds too few jobs looks this much later, so that those it found do not wait.
const LATER: i64 = 4_000_000;

/// Which jobs of a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Available jobs of this priority, by `seq`.
    Ready(i16),
    /// Scheduled jobs, by `due_at`.
    Scheduled,
}

impl Lane {
    const FREE: i32 = i32::MIN;

    fn number(self) -> i32 {
        match self {
            Lane::Ready(priority) => priority.into(),
            Lane::Scheduled => i32::MAX,
        }
    }
}

/// One lane; written only by the session that has its queue locked.
struct Floor {
    lane: AtomicI32,
    confirmed: AtomicI64,
    candidate: AtomicI64,
    /// Above every row ever taken: a candidate once none is left. It only has to be near the rows
    /// that are looked at first.
    end: AtomicI64,
}

struct Place {
    /// A hash of database, table and name; 0 is a free place.
    key: AtomicU64,
    lock: Lock,
    /// Of the first of several places: held while one of them is given to another queue.
    settling: Lock,
    used_at: AtomicI64,
    /// How often floors were lowered, or all forgotten.
    lowered: AtomicU64,
    /// When to look without floors again.
    look_at_all_at: AtomicI64,
    lanes: [Floor; LANES],
}

struct Shared([Place; QUEUES]);

shared!(
    SHARED: Shared = c"jobs floors",
    Shared(std::array::from_fn(|_| Place {
        key: AtomicU64::new(0),
        lock: Lock::new(),
        settling: Lock::new(),
        used_at: AtomicI64::new(0),
        lowered: AtomicU64::new(0),
        look_at_all_at: AtomicI64::new(0),
        lanes: std::array::from_fn(|_| Floor {
            lane: AtomicI32::new(Lane::FREE),
            confirmed: AtomicI64::new(LOWEST),
            candidate: AtomicI64::new(LOWEST),
            end: AtomicI64::new(LOWEST),
        }),
    }))
);

/// The floors of one queue, as one walk begins.
pub struct Floors {
    place: &'static Place,
    key: u64,
    lowered: u64,
    lanes: Lanes,
}

/// Lanes that have floors, without allocating: they are read under a lock.
type Lanes = SmallVec<[Known; LANES]>;

/// A lane that has a floor.
#[derive(Clone, Copy)]
struct Known {
    number: i32,
    confirmed: i64,
    candidate: i64,
    end: i64,
}

/// The rows of a table that share floors: those of a queue or, where it is `None`, of all queues.
#[derive(Clone, Copy)]
pub struct Rows(u64);

impl Rows {
    pub fn of(table: Oid, queue: Option<&Queue>) -> Rows {
        let table = u64::from(server::database().to_u32()) << 32 | u64::from(table.to_u32());
        let queue = queue.map_or(0, Queue::number);
        Rows(things::spread(queue ^ things::spread(table)).max(1))
    }

    /// Their floors; they get a place for them if they have none.
    pub fn floors(self) -> Option<Floors> {
        with_place(self.0, settle)
    }

    /// Their floors, if they have a place for them.
    pub fn known_floors(self) -> Option<Floors> {
        with_place(self.0, |_, _| None)
    }
}

fn with_place(key: u64, otherwise: fn(u64, i64) -> Option<&'static Place>) -> Option<Floors> {
    if !super::is_preloaded() || transaction::is_serializable() {
        return None;
    }
    let now = time::now();
    let place = find(key).or_else(|| otherwise(key, now))?;
    place.used_at.store(now, Relaxed);
    let floors = place.with_lock(|| {
        (place.key.load(SeqCst) == key).then(|| Floors {
            place,
            key,
            lowered: place.lowered.load(SeqCst),
            lanes: place.known(),
        })
    });
    floors.flatten()
}

impl Floors {
    /// Where a lane begins.
    pub fn of(&self, lane: Lane) -> i64 {
        self.known(lane).map_or(LOWEST, |known| known.confirmed)
    }

    /// Above all that was ever taken out of a lane.
    pub fn end(&self, lane: Lane) -> i64 {
        self.known(lane).map_or(LOWEST, |known| known.end)
    }

    /// The priorities that have floors, ascending.
    pub fn priorities(&self) -> Vec<i16> {
        let mut numbers: Vec<i16> =
            self.lanes.iter().filter_map(|known| known.number.try_into().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// A walk over a lane from its floor on has found nothing live below `position`, not even what
    /// another session is just inserting or deleting. To be called only by a transaction that had
    /// written nothing before the walk: it does not see what it has deleted itself, which comes
    /// back if it is rolled back.
    pub fn nothing_below(&self, lane: Lane, position: i64) {
        let known = self.known(lane);
        let candidate = known.map_or(LOWEST, |known| known.candidate);
        let confirmed = known.map_or(LOWEST, |known| known.confirmed);
        let confirms = candidate > confirmed && candidate <= position;
        if !confirms && position <= candidate {
            return;
        }
        self.place.with_lock(|| {
            if !self.is_unchanged() {
                return;
            }
            let Some(floor) = self.place.floor(lane.number()) else {
                return;
            };
            if confirms && candidate > floor.confirmed.load(SeqCst) {
                floor.confirmed.store(candidate, SeqCst);
            }
            if position > floor.candidate.load(SeqCst) {
                floor.candidate.store(position, SeqCst);
            }
        });
    }

    /// A walk has found nothing live in a lane at all.
    pub fn nothing_left(&self, lane: Lane) {
        if let Some(known) = self.known(lane) {
            self.nothing_below(lane, known.end);
        }
    }

    pub fn taken(&self, lane: Lane, position: i64) {
        self.place.with_lock(|| {
            if self.place.key.load(SeqCst) == self.key
                && let Some(floor) = self.place.floor(lane.number())
            {
                floor.end.fetch_max(position.saturating_add(1), SeqCst);
            }
        });
    }

    /// Whether it is time to look without floors, for what came in without our knowing.
    pub fn may_look_at_all(&self, has_found: bool) -> bool {
        let at = self.place.look_at_all_at.load(SeqCst);
        let now = time::now();
        let take_turn = |at| {
            let next = now + LOOK_AT_ALL_EVERY;
            self.place.look_at_all_at.compare_exchange(at, next, SeqCst, SeqCst).is_ok()
        };
        // The clock may have been put back.
        let later = if has_found { LATER } else { 0 };
        let is_due = now >= at + later || at > now + LOOK_AT_ALL_AT_LEAST;
        is_due && take_turn(at)
    }

    /// That took so long.
    pub fn looked_at_all(&self, took: Duration) {
        let took = took.as_micros() as i64;
        let rest = (took * LOOK_AT_ALL_SHARE).clamp(LOOK_AT_ALL_EVERY, LOOK_AT_ALL_AT_LEAST);
        let next = time::now() + rest;
        self.place.look_at_all_at.store(next, SeqCst);
    }

    fn known(&self, lane: Lane) -> Option<Known> {
        self.lanes.iter().find(|known| known.number == lane.number()).copied()
    }

    fn is_unchanged(&self) -> bool {
        self.place.key.load(SeqCst) == self.key && self.place.lowered.load(SeqCst) == self.lowered
    }
}

/// A row was inserted into a lane: a floor that is above it is lowered. To be called after its
/// index entry is there.
pub fn inserted(rows: Rows, lane: Lane, position: i64) {
    if !super::is_preloaded() {
        return;
    }
    fence(SeqCst);
    let Some(place) = find(rows.0) else {
        return;
    };
    let number = lane.number();
    let floor = place.lanes.iter().find(|floor| floor.lane.load(SeqCst) == number);
    if floor.is_some_and(|floor| floor.candidate.load(SeqCst) > position) {
        place.with_lock(|| {
            place.lowered.fetch_add(1, SeqCst);
            for floor in &place.lanes {
                if floor.lane.load(SeqCst) == number {
                    floor.candidate.fetch_min(position, SeqCst);
                    floor.confirmed.fetch_min(position, SeqCst);
                }
            }
        });
    }
}

fn places(key: u64) -> &'static [Place] {
    let first = (key as usize % (QUEUES / WAYS)) * WAYS;
    &SHARED.get().0[first..first + WAYS]
}

fn find(key: u64) -> Option<&'static Place> {
    places(key).iter().find(|place| place.key.load(SeqCst) == key)
}

/// Gives a queue the place of one that is not used any more.
fn settle(key: u64, now: i64) -> Option<&'static Place> {
    // One at a time, so that a queue settles in one place.
    let settling = &places(key)[0].settling;
    let settled = settling.with(|| find(key).or_else(|| settle_alone(key, now)), || ());
    settled.flatten()
}

fn settle_alone(key: u64, now: i64) -> Option<&'static Place> {
    let used_at = |place: &&Place| place.used_at.load(Relaxed);
    let oldest = places(key).iter().min_by_key(used_at)?;
    let before = oldest.key.load(SeqCst);
    if before != 0 && now - used_at(&oldest) < FORGOTTEN_AFTER {
        return None;
    }
    oldest.with_lock(|| {
        if oldest.key.load(SeqCst) == before {
            oldest.forget_floors();
            for floor in &oldest.lanes {
                floor.lane.store(Lane::FREE, SeqCst);
                floor.end.store(LOWEST, SeqCst);
            }
            oldest.look_at_all_at.store(0, SeqCst);
            oldest.used_at.store(now, Relaxed);
            oldest.key.store(key, SeqCst);
        }
    })?;
    Some(oldest)
}

impl Place {
    fn known(&self) -> Lanes {
        self.lanes
            .iter()
            .map(|floor| Known {
                number: floor.lane.load(SeqCst),
                confirmed: floor.confirmed.load(SeqCst),
                candidate: floor.candidate.load(SeqCst),
                end: floor.end.load(SeqCst),
            })
            .filter(|known| known.number != Lane::FREE)
            .collect()
    }

    /// The floor of a lane, a new one if there is room.
    fn floor(&self, number: i32) -> Option<&Floor> {
        let is = |wanted: i32| move |floor: &&Floor| floor.lane.load(SeqCst) == wanted;
        self.lanes.iter().find(is(number)).or_else(|| {
            let free = self.lanes.iter().find(is(Lane::FREE))?;
            free.lane.store(number, SeqCst);
            Some(free)
        })
    }

    /// Everything begins at the beginning again, and walks in progress raise nothing.
    fn forget_floors(&self) {
        self.lowered.fetch_add(1, SeqCst);
        for floor in &self.lanes {
            floor.confirmed.store(LOWEST, SeqCst);
            floor.candidate.store(LOWEST, SeqCst);
        }
    }

    /// `None`: it cannot be had; then the floors are forgotten.
    fn with_lock<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.lock.with(work, || self.forget_floors())
    }
}
