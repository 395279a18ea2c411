//! Turns in strict orders, and positions in fair ones, without statements.

use super::shapes::{self, ready, scheduled, turn};
use crate::fault::{self, Fault};
use crate::pg::row::{NewRow, Row};
use crate::pg::scan::{Key, Scan, Seen};
use crate::pg::table::Table;
use crate::pg::transaction;
use crate::shmem::floors::Lane;
use crate::store::lanes;
use crate::store::permits::Gate;
use crate::store::queue::Queue;
use crate::store::spi::{Value, big, text};
use crate::store::turns::Turn;

/// The turns that are taken.
pub struct Taken {
    table: Table,
    seen: Seen,
}

impl Taken {
    pub fn open() -> Taken {
        Taken { table: Table::open_as_it_is_to_read(&shapes::TURN), seen: Seen::dirty() }
    }

    pub fn look(&self) -> LookAtTaken<'_> {
        LookAtTaken(self.table.scan(&shapes::TURN.key, &self.seen, 1))
    }
}

pub struct LookAtTaken<'a>(Scan<'a>);

impl LookAtTaken<'_> {
    /// Whether another job than this one has the turn at a gate, be it of a transaction that is
    /// still open, which no statement can see. So this has no gate.
    pub fn is_taken(&mut self, gate: i64, but: i64) -> bool {
        let LookAtTaken(scan) = self;
        scan.find(&[Key::big(1, gate)]);
        if fault::is_on(Fault::TurnTwice) {
            return false;
        }
        while let Some(row) = scan.next() {
            if row.big(turn::JOB_ID) != Some(but) {
                return true;
            }
        }
        false
    }
}

/// The turns that jobs have; `None`: use a statement.
pub fn of(ids: &[i64]) -> Option<Vec<Turn>> {
    let table = Table::open_to_read(&shapes::TURN, &shapes::TURN_JOB)?;
    transaction::make_visible();
    let seen = Seen::latest();
    let mut scan = table.scan(&shapes::TURN_JOB, &seen, 1);
    let mut found = Vec::new();
    for id in ids {
        scan.find(&[Key::big(1, *id)]);
        while let Some(row) = scan.next() {
            let gate = row.big(turn::GATE).expect("it is not null");
            let is_blocked = row.bool(turn::IS_BLOCKED).expect("it is not null");
            let queue = row.text(turn::QUEUE).expect("it is not null");
            found.push(Turn { gate, job_id: *id, is_blocked, queue });
        }
    }
    Some(found)
}

/// Gives jobs the turn at their gates; `None`: use a statement.
pub fn give(turns: &[(&Gate, i64)], queue: &Queue) -> Option<()> {
    let table = Table::open(&shapes::TURN)?;
    table.insert(turns.iter().map(|(gate, job_id)| {
        table.row_of(&[
            (turn::GATE, big(gate.id)),
            (turn::JOB_ID, big(*job_id)),
            (turn::IS_BLOCKED, Some(false.into())),
            (turn::QUEUE, text(queue.name())),
            (turn::KEY, text(gate.key.as_deref().unwrap_or("{}"))),
        ])
    }));
    transaction::make_visible();
    Some(())
}

/// Takes turns from jobs; `None`: use a statement.
pub fn end(turns: &[Turn]) -> Option<()> {
    take(turns, |_, _| None)
}

/// Has discarded jobs block their keys; `None`: use a statement.
pub fn block(turns: &[Turn]) -> Option<()> {
    take(turns, |table, row| {
        Some(table.row_of(&[
            (turn::GATE, row.datum(turn::GATE)),
            (turn::JOB_ID, row.datum(turn::JOB_ID)),
            (turn::IS_BLOCKED, Some(true.into())),
            (turn::QUEUE, row.datum(turn::QUEUE)),
            (turn::KEY, row.datum(turn::KEY)),
        ]))
    })
}

/// Deletes rows, and inserts others in their place.
fn take(turns: &[Turn], instead: impl Fn(&Table, &Row) -> Option<NewRow>) -> Option<()> {
    let table = Table::open(&shapes::TURN)?;
    let seen = Seen::latest();
    let mut scan = table.scan(&shapes::TURN.key, &seen, 2);
    let mut new = Vec::new();
    for one in turns {
        let row = scan.first(&[Key::big(1, one.gate), Key::big(2, one.job_id)]);
        if let Some(row) = row {
            new.extend(instead(&table, &row));
            table.delete(row.tid(), true).fail_to_serialize();
        }
    }
    drop(scan);
    drop(seen);
    transaction::make_visible();
    table.insert(new);
    transaction::make_visible();
    Some(())
}

/// The places of jobs that wait.
pub struct Places {
    lanes: Table,
    held: Table,
    seen: Seen,
}

impl Places {
    /// `None`: use statements.
    pub fn open() -> Option<Places> {
        let lanes = Table::open_to_read(&shapes::READY, &shapes::READY_GATE)?;
        let held = Table::open_to_read(&shapes::SCHEDULED, &shapes::SCHEDULED_HELD)?;
        transaction::make_visible();
        Some(Places { lanes, held, seen: Seen::latest() })
    }

    pub fn look(&self) -> LookAtPlaces<'_> {
        LookAtPlaces {
            lanes: self.lanes.scan(&shapes::READY_GATE, &self.seen, 2),
            held: self.held.scan(&shapes::SCHEDULED_HELD, &self.seen, 4),
        }
    }
}

pub struct LookAtPlaces<'a> {
    lanes: Scan<'a>,
    held: Scan<'a>,
}

impl LookAtPlaces<'_> {
    /// Whether another job of a gate comes before one in its lane, or is held before it.
    pub fn is_behind(&mut self, gate: i64, queue: &Queue, seq: i64, id: i64) -> bool {
        self.lanes.find(&[Key::big(1, gate), Key::big_to(2, seq)]);
        while let Some(row) = self.lanes.next() {
            if row.big(ready::SEQ).zip(row.big(ready::JOB_ID)) < Some((seq, id)) {
                return true;
            }
        }
        let [gate, queue, kind] = super::permits::keys_of(gate, queue, "");
        let first = self.held.first(&[gate, queue, kind, Key::small(4, 0)]);
        // The position of a turn says nothing of when the job became available.
        first.is_some_and(|row| seq >= 0 && row.big(scheduled::SEQ) < Some(seq))
    }
}

/// The last turn of a gate's jobs in their lane; `None`: use a statement.
pub fn last(gate: i64) -> Option<Option<i64>> {
    let table = Table::open_to_read(&shapes::READY, &shapes::READY_GATE)?;
    let seen = Seen::dirty();
    let mut scan = table.scan(&shapes::READY_GATE, &seen, 2).backward();
    let last = scan.first(&[Key::big(1, gate), Key::big_to(2, -1)]);
    Some(last.and_then(|row| row.big(ready::SEQ)))
}

/// The first turn in a lane that waits, or where others were taken; `None`: use a statement.
pub fn present(queue: &Queue, priority: i16) -> Option<Option<i64>> {
    let table = Table::open_to_read(&shapes::READY, &shapes::READY.key)?;
    let floors = lanes::ready(queue).known_floors();
    let lane = Lane::Ready(priority);
    let floor = floors.as_ref().map_or(i64::MIN, |floors| floors.of(lane));
    let seen = Seen::dirty();
    let mut scan = table.scan(&shapes::READY.key, &seen, 4);
    let first = scan.first(&[
        Key::text(1, queue.arg()?),
        Key::small(2, priority),
        Key::big_from(3, floor),
        Key::big_to(3, -1),
    ]);
    let first = first.and_then(|row| row.big(ready::SEQ));
    Some(first.or_else(|| floors.map(|floors| floors.end(lane)).filter(|end| *end < 0)))
}
