//! Taking jobs out of the lanes of `ready`, from their floors on.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use pgrx::IntoDatum;
use pgrx::pg_sys::{Datum, Oid};
use smallvec::SmallVec;

use super::shapes::{self, ready, scheduled};
use crate::fault::{self, Fault};
use crate::pg::index::IndexShape;
use crate::pg::row::Row;
use crate::pg::scan::{Key, Seen};
use crate::pg::table::{Deleted, Table};
use crate::pg::time;
use crate::pg::transaction;
use crate::shmem::floors::{self, Floors, Lane};

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
    let floors = floors::of(shapes::READY.name.oid(), queue);
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
    floors::inserted(shapes::READY.name.oid(), queue, Lane::Ready(priority), seq);
}

/// A job was put into `scheduled`.
pub fn put_scheduled(queue: &str, due_at: i64) {
    for whose in [Whose::Queue(queue), Whose::All] {
        let (table, queue) = whose.floor();
        floors::inserted(table, queue, Lane::Scheduled, due_at);
    }
}

/// Whose scheduled jobs are meant. Both have a floor.
#[derive(Clone, Copy)]
enum Whose<'a> {
    /// those of this queue
    Queue(&'a str),
    /// those of all queues, as they come due
    All,
}

impl Whose<'_> {
    /// What their floor is known by.
    fn floor(&self) -> (Oid, &str) {
        match self {
            Whose::Queue(queue) => (shapes::SCHEDULED.name.oid(), queue),
            // No queue has this name, and an index may be built anew under another OID.
            Whose::All => (shapes::SCHEDULED.name.oid(), ""),
        }
    }

    fn index(&self) -> &'static IndexShape {
        match self {
            Whose::Queue(_) => &shapes::SCHEDULED_DUE,
            Whose::All => &shapes::SCHEDULED_NEXT,
        }
    }

    fn open(&self) -> Option<Table> {
        Table::open_to_read(&shapes::SCHEDULED, self.index())
    }
}

/// Which scheduled jobs are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// all of them
    All,
    /// those that may be left
    FromFloor,
}

/// From when on a queue may have scheduled jobs: those that were due before are gone.
pub fn scheduled_from(queue: &str, reach: Reach) -> i64 {
    let from_floor = || {
        let floors = floors::of(shapes::SCHEDULED.name.oid(), queue);
        floors.map(|floors| floors.of(Lane::Scheduled))
    };
    let floor = (reach == Reach::FromFloor).then(from_floor).flatten();
    floor.unwrap_or(floors::LOWEST)
}

/// Up to so many queues that have scheduled jobs, or had some of late: those that come after this one; and whether these are
/// all. `None`: use a statement.
pub fn scheduled_queues(after: &str, most: usize) -> Option<(Vec<String>, bool)> {
    let whose = Whose::Queue(after);
    let table = whose.open()?;
    let mut queues: Vec<String> = Vec::new();
    while queues.len() < most {
        pgrx::check_for_interrupts!();
        let last = queues.last().map_or(after, String::as_str).into_datum();
        let last = last.expect("it is not null");
        match table.first_above(whose.index(), last) {
            Some(queue) => queues.push(queue),
            None => return Some((queues, true)),
        }
    }
    Some((queues, false))
}

/// What is due of all queues.
#[derive(Default)]
pub struct DueQueues {
    /// queues that have due jobs, and since when
    pub queues: Vec<(String, i64)>,
    /// jobs that were looked at
    pub jobs: usize,
}

/// The queues of the first so many jobs that are due; `None`: use a statement.
pub fn due_queues(now: i64, most: usize, reach: Reach) -> Option<DueQueues> {
    let table = Whose::All.open()?;
    let mut due = DueQueues::default();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut add = |row: &Row, _: &Due| {
        // Who is just moving a job sees to it.
        if !row.is_in_progress {
            due.jobs += 1;
            let queue = row.text(scheduled::QUEUE).expect("it is not null");
            let due_at = row.big(scheduled::DUE_AT).expect("it is not null");
            // A second look, below the floor, may find an older one.
            if let Some(at) = known.get(&queue) {
                let (_, since) = &mut due.queues[*at];
                *since = due_at.min(*since);
            } else {
                known.insert(queue.clone(), due.queues.len());
                due.queues.push((queue, due_at));
            }
        }
        due.jobs >= most
    };
    match reach {
        Reach::All => drop(look_for_due(
            &table,
            Whose::All,
            floors::LOWEST,
            now,
            &mut add,
        )),
        Reach::FromFloor => drop(look_also_below(&table, Whose::All, now, &mut add)),
    }
    Some(due)
}

/// When the first scheduled job is due; `None`: use a statement.
pub fn first_due() -> Option<Option<i64>> {
    let table = Whose::All.open()?;
    let mut is_enough = |_: &Row, due: &Due| due.first.is_some();
    let found = look_from_floor(&table, Whose::All, i64::MAX, &mut is_enough);
    Some(found.and_then(|found| found.first))
}

/// Whether a queue has jobs that are due but not yet ready; `None`: use a statement.
pub fn has_due(queue: &str, now: i64) -> Option<bool> {
    let whose = Whose::Queue(queue);
    let table = whose.open()?;
    let mut is_there = |_: &Row, due: &Due| due.is_there;
    Some(look_also_below(&table, whose, now, &mut is_there))
}

/// Whether anything is due, from the floor on, and now and then below it: it may have come in without our knowing.
fn look_also_below(
    table: &Table,
    whose: Whose,
    now: i64,
    is_enough: &mut dyn FnMut(&Row, &Due) -> bool,
) -> bool {
    let is_there = |found: Option<Due>| found.is_some_and(|found| found.is_there);
    let found = look_from_floor(table, whose, now, is_enough);
    let (of, queue) = whose.floor();
    if let Some(floors) = floors::known(of, queue)
        && floors.of(Lane::Scheduled) > floors::LOWEST
        && floors.may_look_at_all()
    {
        let begun = Instant::now();
        let all = look_for_due(table, whose, floors::LOWEST, now, is_enough);
        floors.looked_at_all(begun.elapsed());
        if let Some(all) = all {
            floors::inserted(of, queue, Lane::Scheduled, all.lowest);
        }
        return is_there(all) || is_there(found);
    }
    is_there(found)
}

/// What is due until then, from the floor on, which it raises. There is a floor once there is much to walk over.
fn look_from_floor(
    table: &Table,
    whose: Whose,
    until: i64,
    is_enough: &mut dyn FnMut(&Row, &Due) -> bool,
) -> Option<Due> {
    let (of, queue) = whose.floor();
    let floors = floors::known(of, queue);
    let from = floors
        .as_ref()
        .map_or(floors::LOWEST, |floors| floors.of(Lane::Scheduled));
    let may_raise = transaction::is_read_committed() && !transaction::has_written();
    let begun = Instant::now();
    let found = look_for_due(table, whose, from, until, is_enough);
    if may_raise && begun.elapsed() > WORTH_A_FLOOR {
        match floors {
            // The walk began with these.
            Some(floors) => {
                let lowest = found.as_ref().map(|found| found.lowest);
                let position = lowest.unwrap_or_else(|| until.min(time::now()));
                floors.nothing_below(Lane::Scheduled, position);
            }
            None => drop(floors::of(of, queue)),
        }
    }
    found
}

/// What is due.
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
    whose: Whose,
    from: i64,
    until: i64,
    is_enough: &mut dyn FnMut(&Row, &Due) -> bool,
) -> Option<Due> {
    transaction::make_visible();
    let seen = seen();
    let mut keys = SmallVec::<[Key; 3]>::new();
    if let Whose::Queue(queue) = whose {
        let queue = queue.into_datum().expect("names are not null");
        keys.push(Key::text(1, queue));
    }
    let due_at = keys.len() as i16 + 1;
    keys.extend([Key::at_from(due_at, from), Key::at_to(due_at, until)]);
    let mut scan = table.scan(whose.index(), &seen, keys.len());
    scan.find(&keys);
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
        if is_enough(&row, found) {
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
