//! Taking jobs out of the lanes of `ready`, from their floors on.

use std::time::{Duration, Instant};

use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;
use smallvec::SmallVec;

use super::shapes::{self, ready};
use crate::fault::{self, Fault};
use crate::pg::scan::{Key, Seen};
use crate::pg::table::{Deleted, Table};
use crate::pg::transaction;
use crate::shmem::floors::{Floors, Lane};
use crate::store::effects;
use crate::store::fetch::Picked;
use crate::store::lanes;
use crate::store::queue::Queue;

/// A floor is worth something where it takes longer than this to find the first row. Where there is
/// little to walk over, everything is looked at.
pub(super) const WORTH_A_FLOOR: Duration = Duration::from_micros(20);

/// A scan reads all entries of a page that its keys allow, of which a lane has some two hundred in
/// a page. So a fetch of few jobs first looks only twice as many positions above what was taken,
/// and so many more.
const NEAR: i64 = 16;

/// What a walk does with jobs that could be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    Take,
    Look,
    /// As [`How::Look`], and counts jobs that others are just taking, which may come back.
    Await,
}

/// Takes up to so many jobs of a queue, or looks at them, those first that come first, passing over
/// what others have locked and what `wants` does not want; `None`: use a statement.
pub fn take(
    how: How,
    queue: &Queue,
    now: i64,
    most: usize,
    wants: &dyn Fn(i64) -> bool,
) -> Option<Vec<Picked>> {
    let table = match how {
        How::Take => Table::open(&shapes::READY)?,
        How::Look | How::Await => Table::open_to_read(&shapes::READY, &shapes::READY.key)?,
    };
    let ready = lanes::ready(queue);
    let floors = match how {
        How::Take | How::Look => ready.floors(),
        // There is a floor once there is much to walk over.
        How::Await => ready.known_floors(),
    };
    let mut walk = Walk {
        how,
        table: &table,
        queue: queue.name().into_datum().expect("names are not null"),
        now,
        most,
        wants,
        // A transaction does not see what it has deleted itself, which lives on if it is rolled
        // back.
        may_raise: transaction::is_read_committed() && !transaction::has_written(),
        taken: Vec::with_capacity(most.min(1000)),
    };
    match &floors {
        None => {
            let walked = walk.everything();
            if walked.is_long && how == How::Await {
                drop(ready.floors());
            }
        }
        Some(floors) => {
            walk.begin_at_floors(floors);
            let taken = walk.taken.len();
            if taken < most && floors.may_look_at_all(taken > 0) {
                if how != How::Take {
                    // They are met once more.
                    walk.taken.clear();
                }
                let begun = Instant::now();
                let walked = walk.everything();
                floors.looked_at_all(begun.elapsed());
                effects::found(queue, &walked.lowest);
            }
        }
    }
    Some(walk.taken)
}

/// What there is, also of transactions that are under way, which a floor has to stay below; above
/// READ COMMITTED what the transaction sees.
pub fn seen() -> Seen {
    match transaction::is_read_committed() {
        true => Seen::dirty(),
        false => Seen::now(),
    }
}

/// Priorities of a queue that are walked through at once.
pub(super) enum Part {
    /// A lane that has a floor, from there on.
    Lane(i16),
    /// The lanes from the first to the last, which have no floor.
    Between(i16, i16),
}

/// All priorities, in their order.
pub(super) fn parts(floors: &Floors) -> SmallVec<[Part; 17]> {
    let mut parts = SmallVec::new();
    let mut next = Some(i16::MIN);
    for priority in floors.priorities() {
        if let Some(first) = next.filter(|first| *first < priority) {
            parts.push(Part::Between(first, priority - 1));
        }
        parts.push(Part::Lane(priority));
        next = priority.checked_add(1);
    }
    parts.extend(next.map(|first| Part::Between(first, i16::MAX)));
    parts
}

impl Part {
    /// What its rows are found by along the key of `ready`.
    pub(super) fn keys(&self, queue: Datum, floors: &Floors) -> [Key; 3] {
        let queue = Key::text(1, queue);
        match *self {
            Part::Lane(priority) => {
                let from = floors.of(Lane::Ready(priority));
                [queue, Key::small(2, priority), Key::big_from(3, from)]
            }
            Part::Between(first, last) => {
                [queue, Key::small_from(2, first), Key::small_to(2, last)]
            }
        }
    }
}

struct Walk<'a> {
    how: How,
    table: &'a Table,
    queue: Datum,
    now: i64,
    most: usize,
    wants: &'a dyn Fn(i64) -> bool,
    may_raise: bool,
    taken: Vec<Picked>,
}

/// What a walk has found.
#[derive(Default)]
struct Walked {
    /// The lowest position of any row, of each priority.
    lowest: Vec<(i16, i64)>,
    /// Finding the first took long.
    is_long: bool,
}

impl Walk<'_> {
    /// Walks through all of the queue.
    fn everything(&mut self) -> Walked {
        self.walk(&[[Key::text(1, self.queue)]], None)
    }

    fn begin_at_floors(&mut self, floors: &Floors) {
        for part in parts(floors) {
            match part {
                Part::Lane(priority) => {
                    let walked = self.walk(&self.near_and_far(priority, floors), Some(floors));
                    self.raise(priority, walked, floors);
                }
                Part::Between(..) => {
                    let walked = self.walk(&[part.keys(self.queue, floors)], Some(floors));
                    self.raise_first(walked, floors);
                }
            }
        }
    }

    /// A lane from its floor on, in two.
    fn near_and_far(&self, priority: i16, floors: &Floors) -> [[Key; 4]; 2] {
        let lane = Lane::Ready(priority);
        let most = self.most.try_into().unwrap_or(i64::MAX);
        let reach = most.saturating_mul(2).saturating_add(NEAR);
        let near = floors.end(lane).saturating_add(reach);
        let floor = floors.of(lane);
        [(floor, near), (floor.max(near.saturating_add(1)), i64::MAX)].map(|(from, to)| {
            let [queue, priority] = [Key::text(1, self.queue), Key::small(2, priority)];
            [queue, priority, Key::big_from(3, from), Key::big_to(3, to)]
        })
    }

    fn raise(&self, priority: i16, walked: Walked, floors: &Floors) {
        let lane = Lane::Ready(priority);
        if self.may_raise && walked.is_long {
            match walked.lowest.first() {
                Some((_, position)) => floors.nothing_below(lane, *position),
                None if self.taken.len() < self.most => floors.nothing_left(lane),
                None => {}
            }
        }
    }

    fn raise_first(&self, walked: Walked, floors: &Floors) {
        for (priority, position) in walked.lowest {
            if self.may_raise && walked.is_long {
                floors.nothing_below(Lane::Ready(priority), position);
            }
        }
    }

    /// Takes what can be taken, along one set of keys after the other.
    fn walk<const KEYS: usize>(&mut self, sets: &[[Key; KEYS]], floors: Option<&Floors>) -> Walked {
        let mut walked = Walked::default();
        if self.taken.len() >= self.most {
            return walked;
        }
        // A walk before this one may have deleted some.
        transaction::make_visible();
        let seen = seen();
        let mut scan = self.table.scan(&shapes::READY.key, &seen, KEYS);
        let mut sets = sets.iter();
        let mut last = None;
        let begun = Instant::now();
        let mut next = sets.find_map(|keys| scan.first(keys));
        walked.is_long = begun.elapsed() > WORTH_A_FLOOR;
        while let Some(row) = next.take() {
            pgrx::check_for_interrupts!();
            let seq = row.big(ready::SEQ).expect("it is not null");
            let priority = row.small(ready::PRIORITY).expect("it is not null");
            let counts = !(row.is_in_progress && fault::is_on(Fault::RaiseBlindly));
            let latest = walked.lowest.last();
            if counts && latest.is_none_or(|(found, _)| *found != priority) {
                walked.lowest.push((priority, seq));
            }
            let is_expired = row.big(ready::EXPIRES_AT).is_some_and(|at| at <= self.now);
            let job_id = row.big(ready::JOB_ID).expect("it is not null");
            // A session that is just inserting or deleting it has it locked.
            let is_locked = match self.how {
                How::Await => row.is_new,
                How::Take | How::Look => row.is_in_progress,
            };
            let is_free = !is_locked && !is_expired && (self.wants)(job_id);
            let deleted = match (is_free, self.how) {
                (true, How::Take) => self.table.delete(row.tid(), false),
                (true, How::Look | How::Await) => Deleted::Done,
                (false, _) => Deleted::Locked,
            };
            // As a statement says it that locks the row first.
            match deleted {
                Deleted::Gone => Deleted::Moved.fail_to_serialize(),
                other => other.fail_to_serialize(),
            }
            if deleted != Deleted::Done {
                next = scan.next_along(&mut sets);
                continue;
            }
            self.taken.push(Picked {
                job_id,
                priority,
                gate: row.big(ready::GATE),
                seq,
                scheduled_at: row.big(ready::SCHEDULED_AT),
                available_at: row.big(ready::AVAILABLE_AT),
                attempt: row.int(ready::ATTEMPT).expect("it is not null"),
            });
            if let Some((done, highest)) = last
                && done != priority
                && let Some(floors) = floors
            {
                floors.taken(Lane::Ready(done), highest);
            }
            last = Some((priority, seq)).filter(|_| self.how == How::Take);
            if self.taken.len() < self.most {
                next = scan.next_along(&mut sets);
            }
        }
        if let (Some((priority, highest)), Some(floors)) = (last, floors) {
            floors.taken(Lane::Ready(priority), highest);
        }
        walked
    }
}
