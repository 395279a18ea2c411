//! Several cells, each with a forwarder of its own. Another one chooses the cell of each row, and
//! the outbox remembers it before any cell gets the row: what a cell has taken is sent to no other
//! cell, wherever its queue lives by then.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::fault::Fault;

/// What the forwarders of a program know of each other.
pub(super) struct Cells {
    /// Of the cells that were reached, by their places, the numbers, and whether the outbox knows
    /// what they have taken.
    numbers: Mutex<BTreeMap<usize, (i32, bool)>>,
    /// A place for each --to. Wakes the forwarder.
    wakes: Vec<Arc<Notify>>,
    /// Rows that were sent on from one cell to another, and were neither taken nor refused since.
    sent_on: Mutex<HashSet<i64>>,
    /// With --once: every row has a cell.
    pub(super) is_aimed: AtomicBool,
    /// With --once: a forwarder has failed.
    pub(super) is_lost: AtomicBool,
    /// Whether a row was sent on from one cell to another.
    pub(super) is_moved: AtomicBool,
}

impl Cells {
    pub(super) fn new(count: usize) -> Arc<Self> {
        let wakes = (0..count).map(|_| Arc::new(Notify::new())).collect();
        let (numbers, sent_on, is_aimed, is_lost, is_moved) = Default::default();
        Arc::new(Self { numbers, wakes, sent_on, is_aimed, is_lost, is_moved })
    }

    /// With --once, forwarders run again if a row was sent on to a cell whose forwarder had ended.
    pub(super) fn begin(&self) {
        self.is_aimed.store(false, Relaxed);
        self.is_moved.store(false, Relaxed);
    }

    pub(super) fn wake(&self, place: usize) -> Arc<Notify> {
        self.wakes[place].clone()
    }

    /// Has the forwarders look for rows.
    pub(super) fn wake_all(&self) {
        self.wakes.iter().for_each(|wake| wake.notify_one());
    }

    /// Notes the number of a cell. Refuses a second database of the same number.
    pub(super) fn meet(&self, place: usize, cell: i32) -> Result<(), Fault> {
        let mut numbers = self.numbers.lock().expect("numbers");
        if numbers.iter().any(|(other, (number, _))| *other != place && *number == cell) {
            let message = format!("another database is cell {cell}, too");
            return Err(Fault::wrong(message, "Give each cell one --to."));
        }
        numbers.entry(place).or_default().0 = cell;
        Ok(())
    }

    /// The outbox knows what the cell has taken.
    pub(super) fn has_told(&self, place: usize) {
        self.numbers.lock().expect("numbers").entry(place).or_default().1 = true;
    }

    pub(super) fn have_all_told(&self) -> bool {
        let numbers = self.numbers.lock().expect("numbers");
        numbers.values().filter(|(_, has_told)| *has_told).count() == self.wakes.len()
    }

    /// Whether rows can be sent there, now or once the databases are reached whose numbers are not
    /// known yet.
    pub(super) fn has(&self, cell: i32) -> bool {
        let numbers = self.numbers.lock().expect("numbers");
        numbers.len() < self.wakes.len() || numbers.values().any(|(number, _)| *number == cell)
    }

    /// Whether a row that a cell refuses is sent on: once.
    pub(super) fn sends_on(&self, row: i64) -> bool {
        self.sent_on.lock().expect("rows").insert(row)
    }

    /// Rows were taken or refused.
    pub(super) fn forget(&self, rows: impl Iterator<Item = i64>) {
        let mut sent_on = self.sent_on.lock().expect("rows");
        rows.for_each(|row| {
            sent_on.remove(&row);
        });
    }

    pub(super) fn is(flag: &AtomicBool) -> bool {
        flag.load(Relaxed)
    }

    pub(super) fn set(flag: &AtomicBool) {
        flag.store(true, Relaxed);
    }
}
