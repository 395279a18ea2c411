//! Permits, starts and held jobs without statements. What is counted here is what is there,
//! whoever may see it: that makes limits exact at every isolation level.

use std::cell::RefCell;
use std::collections::HashMap;

use pgrx::pg_sys::{Datum, Oid};

use super::shapes::{self, job, limit_start, permit, ready, scheduled};
use super::turns::{LookAtTaken, Taken};
use crate::pg::jsonb::Jsonb;
use crate::pg::row::Row;
use crate::pg::scan::{Key, Scan, Seen};
use crate::pg::table::{Deleted, Table};
use crate::pg::transaction;
use crate::store::held::{Held, Way};
use crate::store::permits::{self, PermitRow, Start};
use crate::store::queue::Queue;
use crate::store::rules::Rule;
use crate::store::spi::{Value, big, text};
use crate::store::turns::Turns;

/// A session remembers so many gates.
const MOST: usize = 10_000;

thread_local! {
    /// Of gates, a number below which no permit is left, and none will be: numbers ascend. A held
    /// snapshot keeps what is gone, and a count would walk over it each time. A transaction that
    /// has deleted permits itself may bring them back.
    static FLOORS: RefCell<(Oid, HashMap<i64, i64>)> =
        RefCell::new((Oid::INVALID, HashMap::new()));
}

/// The jobs that run, by their gates.
pub struct Running {
    table: Table,
    seen: Seen,
}

impl Running {
    pub fn open() -> Running {
        let table = Table::open_as_it_is_to_read(&shapes::PERMIT);
        FLOORS.with_borrow_mut(|(of, floors)| {
            if *of != shapes::PERMIT.name.oid() || floors.len() > MOST {
                (*of, *floors) = (shapes::PERMIT.name.oid(), HashMap::new());
            }
        });
        Running { table, seen: Seen::dirty() }
    }

    pub fn look(&self) -> LookAtRunning<'_> {
        LookAtRunning(self.table.scan(&shapes::PERMIT.key, &self.seen, 2))
    }
}

pub struct LookAtRunning<'a>(Scan<'a>);

impl LookAtRunning<'_> {
    /// How many jobs run under a gate, up to so many.
    pub fn count(&mut self, gate: i64, most: usize) -> usize {
        let LookAtRunning(scan) = self;
        let floor = FLOORS.with_borrow(|(_, floors)| floors.get(&gate).copied());
        scan.find(&[Key::big(1, gate), Key::big_from(2, floor.unwrap_or(i64::MIN))]);
        let mut count = 0;
        while count < most
            && let Some(row) = scan.next()
        {
            pgrx::check_for_interrupts!();
            if count == 0 && !permits::has_freed() {
                let first = row.big(permit::N).expect("it is not null");
                FLOORS.with_borrow_mut(|(_, floors)| floors.insert(gate, first));
            }
            count += 1;
        }
        count
    }
}

/// The number and the time of the latest start under a gate.
pub fn latest_start(gate: i64) -> Option<(i64, i64)> {
    let table = Table::open_as_it_is_to_read(&shapes::LIMIT_START);
    let seen = Seen::dirty();
    let mut scan = table.scan(&shapes::LIMIT_START.key, &seen, 1).backward();
    scan.first(&[Key::big(1, gate)]).map(|row| {
        let number = row.big(limit_start::N).expect("it is not null");
        (number, row.big(limit_start::AT).expect("it is not null"))
    })
}

/// The first start under a gate between these numbers that was made after a time. Later starts have
/// higher numbers.
pub fn first_start_after(gate: i64, from: i64, to: i64, at: i64) -> Option<(i64, i64)> {
    let table = Table::open_as_it_is_to_read(&shapes::LIMIT_START);
    let seen = Seen::dirty();
    let mut scan = table.scan(&shapes::LIMIT_START.key, &seen, 2);
    let mut first_from = |number| {
        let row = scan.first(&[Key::big(1, gate), Key::big_from(2, number)])?;
        row.big(limit_start::N).zip(row.big(limit_start::AT))
    };
    let (mut low, mut high, mut found) = (from, to, None);
    while low <= high {
        let middle = low + (high - low) / 2;
        match first_from(middle) {
            Some((number, made_at)) if made_at <= at => low = number + 1,
            // Those before it may be after the time, too.
            other => (found, high) = (other.or(found), middle - 1),
        }
    }
    found
}

/// Writes permits and starts; `None`: use statements.
pub fn write(permits: &[PermitRow], starts: &[Start]) -> Option<()> {
    let table = Table::open(&shapes::PERMIT)?;
    let of_starts = super::open_if(!starts.is_empty(), &shapes::LIMIT_START)?;
    table.insert(permits.iter().map(|row| {
        table.row_of(&[
            (permit::GATE, big(row.gate)),
            (permit::N, big(row.n)),
            (permit::JOB_ID, big(row.job_id)),
            (permit::NAME, text(row.name)),
            (permit::KEY, row.key.and_then(text)),
        ])
    }));
    if let Some(table) = of_starts {
        table.insert(starts.iter().map(|row| {
            table.row_of(&[
                (limit_start::GATE, big(row.gate)),
                (limit_start::N, big(row.n)),
                (limit_start::AT, big(row.at)),
                (limit_start::NAME, text(row.name)),
                (limit_start::KEY, row.key.map(|key| Jsonb::from_text(key).datum())),
            ])
        }));
    }
    Some(())
}

/// Deletes permits, each by its gate and number; `None`: use a statement.
pub fn delete(permits: &[(i64, i64)]) -> Option<()> {
    let table = Table::open(&shapes::PERMIT)?;
    transaction::make_visible();
    let seen = Seen::now();
    let mut scan = table.scan(&shapes::PERMIT.key, &seen, 2);
    for (gate, n) in permits {
        pgrx::check_for_interrupts!();
        let row = scan.first(&[Key::big(1, *gate), Key::big(2, *n)]);
        if let Some(tid) = row.map(|row| row.tid()) {
            let deleted = table.delete(tid, true);
            deleted.fail_to_serialize();
            debug_assert!(deleted == Deleted::Done);
        }
    }
    Some(())
}

/// Has jobs held; `None`: use statements.
pub fn hold(held: &[Held]) -> Option<()> {
    let table = Table::open(&shapes::SCHEDULED)?;
    let state = table.label(scheduled::STATE, "available");
    table.insert(held.iter().map(|one| {
        table.row_of(&[
            (scheduled::JOB_ID, big(one.job_id)),
            (scheduled::DUE_AT, big(i64::MAX)),
            (scheduled::EXPIRES_AT, one.expires_at.and_then(big)),
            (scheduled::ATTEMPT, Some(one.attempt.into())),
            (scheduled::STATE, Some(state)),
            (scheduled::QUEUE, one.queue.arg()),
            (scheduled::GATE, big(one.gate)),
            (scheduled::SEQ, big(one.seq)),
            (scheduled::SCHEDULED_AT, one.scheduled_at.and_then(big)),
            (scheduled::AVAILABLE_AT, one.available_at.and_then(big)),
            (scheduled::PRIORITY, Some(one.priority.into())),
            (scheduled::KIND, text(&one.kind)),
            (scheduled::LIMIT_NAME, text(&one.name)),
            (scheduled::LIMIT_KEY, one.key.as_deref().map(|key| Jsonb::from_text(key).datum())),
        ])
    }));
    transaction::make_visible();
    Some(())
}

/// Those of some gates that may hold jobs; `None`: use statements.
pub fn holding(gates: impl Iterator<Item = i64>) -> Option<Vec<i64>> {
    let table = Table::open_to_read(&shapes::SCHEDULED, &shapes::SCHEDULED_HELD)?;
    let seen = Seen::dirty();
    let mut scan = table.scan(&shapes::SCHEDULED_HELD, &seen, 1);
    Some(gates.filter(|gate| scan.first(&[Key::big(1, *gate)]).is_some()).collect())
}

/// Has the first jobs that a gate holds back to their lanes, up to so many of each queue and kind,
/// and of each queue no more than have room beside those in its lanes; their lanes and positions,
/// and whether an order gave them those. `way` is asked of what holds them. `None`: use statements.
pub fn promote<'a>(
    gate: i64,
    most: usize,
    way: impl FnOnce(&str, Option<Jsonb>) -> Way<'a>,
) -> Option<(Vec<Promoted>, bool)> {
    let held = Table::open(&shapes::SCHEDULED)?;
    let lanes = Table::open(&shapes::READY)?;
    let jobs = Table::open_to_read(&shapes::JOB, &shapes::JOB.key)?;
    let index = &shapes::SCHEDULED_HELD;
    transaction::make_visible();
    // Whatever the transaction sees: what others have handed on is passed over.
    let seen = Seen::latest();
    let (mut promoted, mut rows) = (Vec::new(), Vec::new());
    let mut scan = held.scan(index, &seen, 1);
    let Some(first) = scan.first(&[Key::big(1, gate)]) else {
        return Some((promoted, false));
    };
    let key = first.datum(scheduled::LIMIT_KEY).map(Jsonb::from_datum);
    let way = way(first.str(scheduled::LIMIT_NAME)?, key);
    let is_strict = way.order.is_some_and(|order| order.is_strict);
    let mut of_jobs = jobs.scan(&shapes::JOB.key, &seen, 1);
    // A strict order does not tell priorities apart.
    let mut priority_of = |row: &Row| match is_strict {
        true => of_jobs.first(&[Key::big(1, row.big(scheduled::JOB_ID)?)])?.small(job::PRIORITY),
        false => row.small(scheduled::PRIORITY),
    };
    // Read while its scan lives.
    let last_class = held
        .scan(index, &seen, 1)
        .backward()
        .first(&[Key::big(1, gate)])
        .as_ref()
        .and_then(class_of)?;
    let mut class = class_of(&first)?;
    let mut next = Some(first);
    for _ in 0..MOST_CLASSES {
        let queue = Queue::named(&class.0);
        // The lane is counted before the room, so that a job that starts in between counts twice
        // rather than not at all.
        let in_lanes = in_lanes_of(&lanes, gate, &class.0, way.enough);
        let mut free = way.room().saturating_sub(in_lanes);
        free = if free < way.least { 0 } else { free.min(most) };
        let mut turns = None;
        while free > 0
            && let Some(row) = next.take()
            && class_of(&row).as_ref() == Some(&class)
        {
            pgrx::check_for_interrupts!();
            let lane = priority_of(&row).zip(position_of(&row));
            let is_taken = lane.is_some() && held.delete(row.tid(), false) == Deleted::Done;
            if !is_taken && is_strict {
                // Nobody is passed over.
                break;
            }
            if let Some((priority, seq)) = lane.filter(|_| is_taken) {
                free -= 1;
                let turns = turns.get_or_insert_with(|| way.turns(gate, &queue, priority));
                let seq = turns.as_mut().map_or(seq, Turns::next);
                promoted.push((queue.clone(), (priority, seq)));
                rows.push(lanes.row_of(&[
                    (ready::SEQ, big(seq)),
                    (ready::JOB_ID, row.datum(scheduled::JOB_ID)),
                    (ready::SCHEDULED_AT, row.datum(scheduled::SCHEDULED_AT)),
                    (ready::AVAILABLE_AT, row.datum(scheduled::AVAILABLE_AT)),
                    (ready::EXPIRES_AT, row.datum(scheduled::EXPIRES_AT)),
                    (ready::ATTEMPT, row.datum(scheduled::ATTEMPT)),
                    (ready::PRIORITY, Some(priority.into())),
                    (ready::QUEUE, row.datum(scheduled::QUEUE)),
                    (ready::GATE, big(gate)),
                ]));
            }
            next = scan.next();
        }
        if class == last_class {
            break;
        }
        // The next class: another kind of the queue, else another queue.
        let (of_queue, kind) = (text_of(&class.0), text_of(&class.1));
        drop(scan);
        scan = held.scan(index, &seen, 3);
        let keys = [Key::big(1, gate), Key::text(2, of_queue), Key::text_above(3, kind)];
        next = scan.first(&keys);
        if next.is_none() {
            drop(scan);
            scan = held.scan(index, &seen, 2);
            next = scan.first(&[Key::big(1, gate), Key::text_above(2, of_queue)]);
        }
        match next.as_ref().and_then(class_of) {
            Some(found) => class = found,
            None => break,
        }
    }
    drop(scan);
    drop(of_jobs);
    drop(seen);
    lanes.insert(rows);
    transaction::make_visible();
    Some((promoted, way.order.is_some()))
}

/// The position of a held job in its lane. A turn that it had is over.
fn position_of(row: &Row) -> Option<i64> {
    row.big(scheduled::SEQ).filter(|seq| *seq >= 0).or(row.big(scheduled::JOB_ID))
}

/// A queue, and a job's lane and position in it.
type Promoted = (Queue, (i16, i64));

/// More queues and kinds at a gate than these are left to maintenance.
const MOST_CLASSES: usize = 16;

/// The queue and the kind of a held job.
fn class_of(row: &Row) -> Option<(String, String)> {
    row.text(scheduled::QUEUE).zip(row.text(scheduled::KIND))
}

pub fn keys_of(gate: i64, queue: &Queue, kind: &str) -> [Key; 3] {
    [Key::big(1, gate), Key::text(2, text_of(queue.name())), Key::text(3, text_of(kind))]
}

fn text_of(value: &str) -> Datum {
    text(value).expect("it is not null")
}

/// How many jobs of a gate are in the lanes of a queue, up to so many.
fn in_lanes_of(lanes: &Table, gate: i64, queue: &str, most: usize) -> usize {
    let seen = Seen::dirty();
    let mut scan = lanes.scan(&shapes::READY_GATE, &seen, 1);
    scan.find(&[Key::big(1, gate)]);
    let (mut count, mut looked_at) = (0, 0);
    while looked_at < MOST_LOOKED_AT
        && count < most
        && let Some(row) = scan.next()
    {
        looked_at += 1;
        count += usize::from(row.str(ready::QUEUE) == Some(queue));
    }
    count
}

/// More jobs in a lane than these are not counted.
const MOST_LOOKED_AT: usize = 200;

/// The jobs that wait, by their gates.
pub struct Waiting {
    held: Table,
    lanes: Table,
    /// Where there are strict orders.
    taken: Option<Taken>,
    seen: Seen,
}

impl Waiting {
    /// `None`: use statements.
    pub fn open(rules: &[Rule]) -> Option<Waiting> {
        let held = Table::open_to_read(&shapes::SCHEDULED, &shapes::SCHEDULED_HELD)?;
        let lanes = Table::open_to_read(&shapes::READY, &shapes::READY_GATE)?;
        let taken = rules.iter().any(Rule::is_strict).then(Taken::open);
        Some(Waiting { held, lanes, taken, seen: Seen::dirty() })
    }

    pub fn look(&self) -> LookAtWaiting<'_> {
        LookAtWaiting {
            held: self.held.scan(&shapes::SCHEDULED_HELD, &self.seen, 3),
            lanes: self.lanes.scan(&shapes::READY_GATE, &self.seen, 1),
            taken: self.taken.as_ref().map(Taken::look),
        }
    }
}

pub struct LookAtWaiting<'a> {
    held: Scan<'a>,
    lanes: Scan<'a>,
    taken: Option<LookAtTaken<'a>>,
}

impl LookAtWaiting<'_> {
    /// The best priority of the jobs of a queue and kind that are held at a gate, if there are any.
    pub fn first_held(&mut self, gate: i64, queue: &Queue, kind: &str) -> Option<i16> {
        self.held.first(&keys_of(gate, queue, kind))?.small(scheduled::PRIORITY)
    }

    /// How many jobs of a gate are in a lane, or have the turn, up to so many.
    pub fn in_lane(&mut self, gate: i64, most: usize, has_turns: bool) -> usize {
        let taken = self.taken.as_mut().filter(|_| has_turns);
        if taken.is_some_and(|taken| taken.is_taken(gate, 0)) {
            return most;
        }
        self.lanes.find(&[Key::big(1, gate)]);
        let mut count = 0;
        while count < most && self.lanes.next().is_some() {
            count += 1;
        }
        count
    }
}
