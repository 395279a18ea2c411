//! Taking jobs out of the lanes of `ready`, from their floors on.

use std::time::{Duration, Instant};

use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

use super::shapes::{self, ready, scheduled};
use crate::fault::{self, Fault};
use crate::pg::scan::{Key, Seen};
use crate::pg::table::{Deleted, Table};
use crate::pg::time;
use crate::pg::transaction;
use crate::worker::floor::{self, Floors, Lane};

/// A floor is worth something where it takes longer than this to find the first row. Where there is little to walk over,
/// everything is looked at.
const WORTH_A_FLOOR: Duration = Duration::from_micros(20);

/// A job that was taken.
pub struct Taken {
    /// its id
    pub job_id: i64,
    /// when it was due, where that differs from its first schedule
    pub scheduled_at: Option<i64>,
    /// attempts before this one
    pub attempts: i32,
}

/// Takes up to so many jobs of a queue, those first that come first, passing over what others have locked and what
/// `wants` does not want; `None`: use a statement.
pub fn take(queue: &str, now: i64, most: usize, wants: &dyn Fn(i64) -> bool) -> Option<Vec<Taken>> {
    let table = Table::open(&shapes::READY)?;
    let floors = floor::of(shapes::READY.name.oid(), queue);
    let mut walk = Walk {
        table: &table,
        queue: queue.into_datum().expect("names are not null"),
        now,
        most,
        wants,
        // A transaction does not see what it has deleted itself, which lives on if it is rolled back.
        may_raise: transaction::is_read_committed() && !transaction::has_written(),
        taken: Vec::with_capacity(most.min(1000)),
    };
    match &floors {
        None => {
            walk.everything();
        }
        Some(floors) => {
            walk.begin_at_floors(floors);
            if walk.taken.len() < most && floors.may_look_at_all() {
                let begun = Instant::now();
                let walked = walk.everything();
                floors.looked_at_all(begun.elapsed());
                for (priority, position) in walked.lowest {
                    // What came in without our knowing.
                    put_ready(queue, priority, position);
                }
            }
        }
    }
    Some(walk.taken)
}

/// A job was put into a lane of `ready`.
pub fn put_ready(queue: &str, priority: i16, seq: i64) {
    floor::inserted(shapes::READY.name.oid(), queue, Lane::Ready(priority), seq);
}

/// A job was put into `scheduled`.
pub fn put_scheduled(queue: &str, due_at: i64) {
    floor::inserted(shapes::SCHEDULED.name.oid(), queue, Lane::Scheduled, due_at);
}

/// From when on a queue may have scheduled jobs: those that were due before are gone.
pub fn scheduled_from(queue: &str) -> i64 {
    let floors = floor::of(shapes::SCHEDULED.name.oid(), queue);
    floors.map_or(floor::LOWEST, |floors| floors.of(Lane::Scheduled))
}

/// The queues that have scheduled jobs, or had some of late; `None`: use a statement.
pub fn scheduled_queues() -> Option<Vec<String>> {
    let table = open_scheduled()?;
    let mut queues: Vec<String> = Vec::new();
    loop {
        pgrx::check_for_interrupts!();
        let last = queues.last().map_or("", String::as_str).into_datum();
        let last = last.expect("it is not null");
        match table.first_above(&shapes::SCHEDULED_DUE, last) {
            Some(queue) => queues.push(queue),
            None => return Some(queues),
        }
    }
}

/// When the first scheduled job of a queue is due; `None`: use a statement.
pub fn first_due(queue: &str) -> Option<Option<i64>> {
    let table = open_scheduled()?;
    let found = look_from_floor(&table, queue, i64::MAX, &|due| due.first.is_some());
    Some(found.and_then(|found| found.first))
}

/// Whether a queue has jobs that are due but not yet ready; `None`: use a statement.
pub fn has_due(queue: &str, now: i64) -> Option<bool> {
    let table = open_scheduled()?;
    let is_free = |due: &Due| due.is_there;
    let found = look_from_floor(&table, queue, now, &is_free);
    let is_there = |found: Option<Due>| found.is_some_and(|found| found.is_there);
    let floors = floor::known(shapes::SCHEDULED.name.oid(), queue);
    if let Some(floors) = floors
        && floors.of(Lane::Scheduled) > floor::LOWEST
        && floors.may_look_at_all()
    {
        let begun = Instant::now();
        let all = look_for_due(&table, queue, floor::LOWEST, now, &is_free);
        floors.looked_at_all(begun.elapsed());
        if let Some(all) = all {
            // It may have come in without our knowing.
            put_scheduled(queue, all.lowest);
        }
        return Some(is_there(all) || is_there(found));
    }
    Some(is_there(found))
}

fn open_scheduled() -> Option<Table> {
    Table::open_to_read(&shapes::SCHEDULED, &shapes::SCHEDULED_DUE)
}

/// What is due until then, from the floor on, which it raises. A queue gets a floor once there is much to walk over.
fn look_from_floor(
    table: &Table,
    queue: &str,
    until: i64,
    is_enough: &dyn Fn(&Due) -> bool,
) -> Option<Due> {
    let scheduled = shapes::SCHEDULED.name.oid();
    let floors = floor::known(scheduled, queue);
    let from = floors
        .as_ref()
        .map_or(floor::LOWEST, |floors| floors.of(Lane::Scheduled));
    let may_raise = transaction::is_read_committed() && !transaction::has_written();
    let begun = Instant::now();
    let found = look_for_due(table, queue, from, until, is_enough);
    if may_raise && begun.elapsed() > WORTH_A_FLOOR {
        match floors {
            // The walk began with these.
            Some(floors) => {
                let lowest = found.as_ref().map(|found| found.lowest);
                let position = lowest.unwrap_or_else(|| until.min(time::now()));
                floors.nothing_below(Lane::Scheduled, position);
            }
            None => drop(floor::of(scheduled, queue)),
        }
    }
    found
}

/// What is due of a queue.
#[derive(Clone, Copy)]
struct Due {
    /// since when, at the longest
    lowest: i64,
    /// there is something that is not just being inserted or deleted
    is_there: bool,
    /// since or from when on; who commits what was due before says so
    first: Option<i64>,
}

/// Takes no lock. Looks until that is enough.
fn look_for_due(
    table: &Table,
    queue: &str,
    from: i64,
    until: i64,
    is_enough: &dyn Fn(&Due) -> bool,
) -> Option<Due> {
    transaction::make_visible();
    let seen = seen();
    let mut scan = table.scan(&shapes::SCHEDULED_DUE, &seen, 3);
    let queue = queue.into_datum().expect("names are not null");
    scan.find(&[
        Key::text(1, queue),
        Key::at_from(2, from),
        Key::at_to(2, until),
    ]);
    let now = time::now();
    let mut found: Option<Due> = None;
    while let Some(row) = scan.next() {
        pgrx::check_for_interrupts!();
        let due_at = row.big(scheduled::DUE_AT).expect("it is not null");
        let found = found.get_or_insert(Due {
            lowest: due_at,
            is_there: false,
            first: None,
        });
        found.is_there |= !row.is_in_progress;
        if !row.is_in_progress || due_at > now {
            found.first = found.first.or(Some(due_at));
        }
        if is_enough(found) {
            break;
        }
    }
    found
}

/// What there is, also of transactions that are under way, which a floor has to stay below; above READ COMMITTED
/// what the transaction sees.
pub fn seen() -> Seen {
    match transaction::is_read_committed() {
        true => Seen::dirty(),
        false => Seen::now(),
    }
}

struct Walk<'a> {
    table: &'a Table,
    queue: Datum,
    now: i64,
    most: usize,
    wants: &'a dyn Fn(i64) -> bool,
    may_raise: bool,
    taken: Vec<Taken>,
}

/// What a walk has found.
#[derive(Default)]
struct Walked {
    /// of each priority the lowest position at which there is anything at all
    lowest: Vec<(i16, i64)>,
    /// it took long to find the first
    is_long: bool,
}

impl Walk<'_> {
    /// Walks through all of the queue.
    fn everything(&mut self) -> Walked {
        self.walk(&[Key::text(1, self.queue)], None)
    }

    /// Walks through the lanes that have floors from there, and through all that is between them.
    fn begin_at_floors(&mut self, floors: &Floors) {
        let mut next = Some(i16::MIN);
        for priority in floors.priorities() {
            if let Some(first) = next.filter(|first| *first < priority) {
                self.between(first, priority - 1, floors);
            }
            self.lane(priority, floors);
            next = priority.checked_add(1);
        }
        if let Some(first) = next {
            self.between(first, i16::MAX, floors);
        }
    }

    fn lane(&mut self, priority: i16, floors: &Floors) {
        let lane = Lane::Ready(priority);
        let keys = [
            Key::text(1, self.queue),
            Key::small(2, priority),
            Key::big_from(3, floors.of(lane)),
        ];
        let walked = self.walk(&keys, Some(floors));
        if self.may_raise && walked.is_long {
            match walked.lowest.first() {
                Some((_, position)) => floors.nothing_below(lane, *position),
                None if self.taken.len() < self.most => floors.nothing_left(lane),
                None => {}
            }
        }
    }

    fn between(&mut self, first: i16, last: i16, floors: &Floors) {
        let keys = [
            Key::text(1, self.queue),
            Key::small_from(2, first),
            Key::small_to(2, last),
        ];
        let walked = self.walk(&keys, Some(floors));
        for (priority, position) in walked.lowest {
            if self.may_raise && walked.is_long {
                floors.nothing_below(Lane::Ready(priority), position);
            }
        }
    }

    /// Takes what can be taken.
    fn walk(&mut self, keys: &[Key], floors: Option<&Floors>) -> Walked {
        let mut walked = Walked::default();
        if self.taken.len() >= self.most {
            return walked;
        }
        // A walk before this one may have deleted some.
        transaction::make_visible();
        let seen = seen();
        let mut scan = self.table.scan(&shapes::READY.key, &seen, keys.len());
        scan.find(keys);
        let mut last = None;
        let begun = Instant::now();
        let mut next = scan.next();
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
            // Who is just inserting or deleting it has it locked.
            let is_free = !row.is_in_progress && !is_expired && (self.wants)(job_id);
            let deleted = match is_free {
                true => self.table.delete(&row, false),
                false => Deleted::Locked,
            };
            deleted.fail_to_serialize();
            if deleted != Deleted::Done {
                next = scan.next();
                continue;
            }
            self.taken.push(Taken {
                job_id,
                scheduled_at: row.big(ready::SCHEDULED_AT),
                attempts: row.int(ready::ATTEMPT).expect("it is not null"),
            });
            if let Some((done, highest)) = last
                && done != priority
                && let Some(floors) = floors
            {
                floors.taken(Lane::Ready(done), highest);
            }
            last = Some((priority, seq));
            if self.taken.len() < self.most {
                next = scan.next();
            }
        }
        if let (Some((priority, highest)), Some(floors)) = (last, floors) {
            floors.taken(Lane::Ready(priority), highest);
        }
        walked
    }
}
