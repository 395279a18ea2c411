//! What is set of queues, as it is committed now, whatever the transaction's snapshot and level:
//! for what may miss no change. Sessions remember it, and are told of a change before its locks are
//! released.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use pgrx::pg_sys::{self, Oid};

use super::config;
use super::spi::{Arg, Plan, Snapshot, Tuples, text};
use super::types::*;
use crate::pg::{invalidation, transaction};

/// More names than this are not remembered: somebody makes them up.
const MOST: usize = 10_000;

/// What is set of a queue.
#[derive(Clone, Copy, Default)]
pub struct Queue {
    /// how long final jobs of each state are kept; the inner `None`: for ever
    pub retention: [Option<Option<i64>>; 3],
    /// how many jobs may wait
    pub max_waiting: Option<i64>,
}

/// What hardly any queue has.
#[derive(Clone, Copy)]
pub enum Rare {
    /// a retention of its own
    Retention,
    /// a bound on the jobs that wait
    Bound,
}

#[derive(Default)]
struct Known {
    table: Option<Oid>,
    /// whether some queue has it
    some: [Option<bool>; 2],
    queues: HashMap<String, Queue>,
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::new(Known::default());
    /// How often everything was forgotten.
    static FORGOTTEN: Cell<u64> = const { Cell::new(0) };
}

/// Whether some queue has this.
pub fn some(what: Rare) -> bool {
    let n = what as usize;
    look_up(
        |known| known.some[n],
        || ask(&SOME[n], &[], |rows| !rows.is_empty()),
        |known, some| known.some[n] = Some(some),
    )
}

/// What is set of a queue.
pub fn queue(name: &str) -> Queue {
    look_up(
        |known| known.queues.get(name).copied(),
        || ask(&QUEUE, &[text(name)], read),
        |known, queue| {
            if known.queues.len() >= MOST {
                known.queues.clear();
            }
            known.queues.insert(name.to_string(), queue);
        },
    )
}

fn read(rows: &Tuples) -> Queue {
    match rows.is_empty() {
        true => Queue::default(),
        false => Queue {
            retention: [1, 2, 3].map(|n| config::kept(rows, n)),
            max_waiting: rows.int(0, 4).map(i64::from),
        },
    }
}

/// What is known, or else is read.
fn look_up<T: Copy>(
    known: impl Fn(&Known) -> Option<T>,
    read: impl FnOnce() -> T,
    remember: impl FnOnce(&mut Known, T),
) -> T {
    invalidation::listen(relation_changed);
    invalidation::accept();
    if let Some(known) = KNOWN.with_borrow(known) {
        return known;
    }
    let before = FORGOTTEN.get();
    let table = config::tables()[1];
    let found = read();
    if FORGOTTEN.get() == before {
        KNOWN.with_borrow_mut(|known| {
            known.table = Some(table);
            remember(known, found);
        });
    }
    found
}

/// What is committed now, whatever the transaction's level.
pub fn ask<T>(plan: &Plan, args: &[Arg], read: impl FnOnce(&Tuples) -> T) -> T {
    transaction::with_latest_snapshot(|| plan.run_as_of(Snapshot::Callers, args, read))
}

/// How often this session has forgotten what it knew: what was made of it is good until then.
pub fn forgotten() -> u64 {
    FORGOTTEN.get()
}

/// Forgets everything.
pub fn forget() {
    FORGOTTEN.set(FORGOTTEN.get() + 1);
    KNOWN.with_borrow_mut(|known| *known = Known::default());
}

fn relation_changed(relation: Oid) {
    // While something is read nothing is borrowed. But a session that has run out of memory may end
    // anywhere.
    let table = KNOWN.with(|known| Some(known.try_borrow().ok()?.table));
    let Some(table) = table else {
        return;
    };
    if relation == pg_sys::InvalidOid || table.is_none_or(|table| table == relation) {
        forget();
    }
}

// By `Rare`.
static SOME: [Plan; 2] = [
    Plan::new(
        "SELECT FROM jobs.queue q
          WHERE COALESCE(q.retention_completed, q.retention_cancelled, q.retention_discarded) IS NOT NULL LIMIT 1",
        &[],
    ),
    Plan::new(
        "SELECT FROM jobs.queue q WHERE q.max_waiting IS NOT NULL LIMIT 1",
        &[],
    ),
];
static QUEUE: Plan = Plan::new(
    "SELECT q.retention_completed, q.retention_cancelled, q.retention_discarded, q.max_waiting FROM jobs.queue q WHERE q.queue = $1",
    &[TEXT],
);
