//! What maintenance is to act on, found without statements: scheduled jobs, leases that ran out.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use pgrx::IntoDatum;
use smallvec::SmallVec;

use super::shapes::{self, running, scheduled};
use super::walk::{WORTH_A_FLOOR, seen};
use crate::pg::index::IndexShape;
use crate::pg::row::Row;
use crate::pg::scan::Key;
use crate::pg::table::Table;
use crate::pg::{time, transaction};
use crate::shmem::floors::{self, Lane};
use crate::shmem::leases;
use crate::store::lanes::{self, Reach, Whose};
use crate::store::queue::Queue;
use crate::store::{clock, due};

impl Whose<'_> {
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

/// Queues that have due jobs, and from when on to look for those of each; `None`: use a statement.
///
/// Where more than `most` jobs are due not all queues can be known: first come those among the next
/// so many queues after this one, by their names, then those of the jobs that have been due for
/// longest; and the last queue that was looked at is `after` for the next time.
pub fn queues_with_due(
    now: i64,
    most: usize,
    after: &mut String,
    reach: Reach,
) -> Option<Vec<(String, i64)>> {
    let due = due_queues(now, most, reach)?;
    if due.jobs < most {
        return Some(due.queues);
    }
    let next = next_queues(after, most)?;
    if let Some(last) = next.last() {
        after.clone_from(last);
    }
    let mut queues: Vec<(String, i64)> = Vec::new();
    for name in next {
        let queue = Queue::named(&name);
        if has_due(&queue, now)? {
            let from = lanes::scheduled_from(&queue, reach);
            queues.push((name, from));
        }
    }
    let known: HashSet<String> = queues.iter().map(|(queue, _)| queue.clone()).collect();
    queues.extend(due.queues.into_iter().filter(|(queue, _)| !known.contains(queue)));
    Some(queues)
}

/// Up to so many queues that may have scheduled jobs: those after this one, by their names, and
/// then from the first on.
fn next_queues(after: &str, most: usize) -> Option<Vec<String>> {
    let (mut queues, is_end) = scheduled_queues(after, most)?;
    if is_end {
        let (first, _) = scheduled_queues("", most - queues.len())?;
        queues.extend(first.into_iter().take_while(|queue| queue.as_str() <= after));
    }
    Some(queues)
}

/// Up to so many queues that have scheduled jobs, or had some of late: those that come after this
/// one; and whether these are all. `None`: use a statement.
fn scheduled_queues(after: &str, most: usize) -> Option<(Vec<String>, bool)> {
    let index = &shapes::SCHEDULED_DUE;
    let table = Table::open_to_read(&shapes::SCHEDULED, index)?;
    let mut queues: Vec<String> = Vec::new();
    while queues.len() < most {
        pgrx::check_for_interrupts!();
        let last = queues.last().map_or(after, String::as_str).into_datum();
        let last = last.expect("it is not null");
        match table.first_above(index, last) {
            Some(queue) => queues.push(queue),
            None => return Some((queues, true)),
        }
    }
    Some((queues, false))
}

#[derive(Default)]
struct DueQueues {
    /// Queues with due jobs, and since when.
    queues: Vec<(String, i64)>,
    /// How many jobs were looked at.
    jobs: usize,
}

/// The queues of the first so many jobs that are due; `None`: use a statement.
fn due_queues(now: i64, most: usize, reach: Reach) -> Option<DueQueues> {
    let table = Whose::All.open()?;
    let mut due = DueQueues::default();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut add = |row: &Row, _: &Due| {
        // A session that is just moving a job sees to it.
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
        Reach::All => drop(look_for_due(&table, Whose::All, floors::LOWEST, now, &mut add)),
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
pub fn has_due(queue: &Queue, now: i64) -> Option<bool> {
    let whose = Whose::Queue(queue);
    let table = whose.open()?;
    let mut is_there = |_: &Row, due: &Due| due.is_there;
    Some(look_also_below(&table, whose, now, &mut is_there))
}

/// When the first scheduled job of a queue is due, and its id; `None`: use a statement.
pub fn first_of(queue: &Queue) -> Option<Option<(i64, i64)>> {
    let whose = Whose::Queue(queue);
    let table = whose.open()?;
    let mut first: Option<(i64, i64)> = None;
    let mut is_there = |row: &Row, _: &Due| {
        let due_at = row.big(scheduled::DUE_AT).expect("it is not null");
        let id = row.big(scheduled::JOB_ID).expect("it is not null");
        // A session that is just taking it may roll back.
        let is_there = !row.is_new;
        // A second look, below the floor, may find an earlier one.
        if is_there && first.is_none_or(|first| (due_at, id) < first) {
            first = Some((due_at, id));
        }
        is_there
    };
    look_also_below(&table, whose, i64::MAX, &mut is_there);
    Some(first)
}

/// Whether anything is due, from the floor on, and now and then below it: it may have come in
/// without our knowing.
fn look_also_below(
    table: &Table,
    whose: Whose,
    now: i64,
    is_enough: &mut dyn FnMut(&Row, &Due) -> bool,
) -> bool {
    let is_there = |found: Option<Due>| found.is_some_and(|found| found.is_there);
    let found = look_from_floor(table, whose, now, is_enough);
    if let Some(floors) = whose.rows().known_floors()
        && floors.of(Lane::Scheduled) > floors::LOWEST
        && floors.may_look_at_all(
            found.is_some_and(|found| found.is_there && found.lowest <= time::now()),
        )
    {
        let begun = Instant::now();
        let all = look_for_due(table, whose, floors::LOWEST, now, is_enough);
        floors.looked_at_all(begun.elapsed());
        if let Some(all) = all {
            floors::inserted(whose.rows(), Lane::Scheduled, all.lowest);
        }
        return is_there(all) || is_there(found);
    }
    is_there(found)
}

/// What is due until then, from the floor on, which it raises. There is a floor once there is much
/// to walk over.
fn look_from_floor(
    table: &Table,
    whose: Whose,
    until: i64,
    is_enough: &mut dyn FnMut(&Row, &Due) -> bool,
) -> Option<Due> {
    let floors = whose.rows().known_floors();
    let from = floors.as_ref().map_or(floors::LOWEST, |floors| floors.of(Lane::Scheduled));
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
            None => drop(whose.rows().floors()),
        }
    }
    found
}

#[derive(Clone, Copy)]
struct Due {
    /// No job is due before this time.
    lowest: i64,
    /// Some row is neither being inserted nor deleted.
    is_there: bool,
    /// When the first is due. A commit of an earlier one announces it.
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
        let queue = queue.name().into_datum().expect("names are not null");
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
        let found = found.get_or_insert(Due { lowest: due_at, is_there: false, first: None });
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

/// Jobs whose leases ran out, but not these; `None`: use a statement.
pub fn expired_leases(now: i64, limit: i64, but: &[i64]) -> Option<Vec<i64>> {
    if leases::none_before().is_some_and(|until| until > now) {
        return Some(Vec::new());
    }
    let but: HashSet<i64> = but.iter().copied().collect();
    let mut expired = Vec::new();
    read_leases(now, |found, row, ends_at| {
        if ends_at > now {
            found.first = found.first.min(ends_at);
            return;
        }
        // It may also be locked.
        found.has_stuck = true;
        let id = row.big(running::JOB_ID).expect("it is not null");
        if !row.is_in_progress && !but.contains(&id) {
            expired.push(id);
        }
        if expired.len() as i64 > limit {
            // The next round deals with more of them.
            found.first = now;
        }
    })?;
    expired.sort_unstable();
    Some(expired)
}

/// When the first lease ends, as [`next_due`](crate::store::due::next_due) has it; `None`: use a
/// statement.
pub fn first_lease(looked_at: i64) -> Option<Option<i64>> {
    let found = read_leases(looked_at, |found, _, ends_at| {
        let at = due::unless_looked_at(ends_at, looked_at);
        found.first = found.first.min(at);
    })?;
    Some(Some(found.first).filter(|at| *at != leases::NEVER))
}

/// Reads `running`: hands over each row and the end of its lease, to be added to what is found, but
/// not one that is over by then and not committed yet: the commit tells. `None`: use a statement.
fn read_leases(
    by: i64,
    mut add: impl FnMut(&mut leases::FoundLeases, &Row, i64),
) -> Option<leases::FoundLeases> {
    let table = Table::open_to_read(&shapes::RUNNING, &shapes::RUNNING.key)?;
    transaction::make_visible();
    let now = time::now();
    Some(leases::read_with(|found| {
        table.for_each(&seen(), |row| {
            let ends_at = row.big(running::LEASE_EXPIRES_AT).expect("it is not null");
            let began_at = row.big(running::ATTEMPTED_AT).expect("it is not null");
            clock::lease_began(began_at, now);
            if !row.is_new || ends_at > by {
                add(found, row, ends_at);
            }
        });
    }))
}
