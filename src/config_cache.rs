//! What operators say of kinds, queues and workers, as this session remembers it: every insert and
//! every fetch asks, and hardly ever has anything changed.
//!
//! A change invalidates the relation cache of its table, which the server tells every session of at
//! its commit; then this forgets everything. Under REPEATABLE READ nothing is remembered: what an
//! old snapshot shows is not what the next transaction is to see. A serializable transaction
//! remembers what it has read itself, and only that: the server is to know what its result depends
//! on.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use jobs_core::state::State;
use pgrx::pg_sys::{self, Oid};

use crate::pg::{invalidation, transaction, versions};
use crate::settings::Retention;
use crate::store::committed;
use crate::store::config::{self, Kind, Queue};
use crate::store::workers::{self, Order};

/// More names than this are not remembered: somebody makes them up.
const MOST: usize = 10_000;

#[derive(Default)]
struct Remembered {
    /// the serializable transaction that has read all of it, if one has
    reader: Option<u32>,
    tables: Option<[Oid; 3]>,
    kinds: HashMap<String, Option<Rc<Kind>>>,
    queues: HashMap<String, Option<Rc<Queue>>>,
    /// of all workers, under no name: workers make up names, and hardly any is told something
    orders: HashMap<String, Option<Rc<Orders>>>,
}

type Orders = HashMap<String, Order>;

thread_local! {
    static REMEMBERED: RefCell<Remembered> = RefCell::new(Remembered::default());
    /// How often everything was forgotten.
    static FORGOTTEN: Cell<u64> = const { Cell::new(0) };
}

/// The defaults of a kind.
pub fn kind(name: &str) -> Option<Rc<Kind>> {
    look_up(name, |r| &mut r.kinds, config::kind)
}

/// What is set of a queue.
pub fn queue(name: &str) -> Option<Rc<Queue>> {
    look_up(name, |r| &mut r.queues, config::queue)
}

/// What a worker is told, if it is.
pub fn order(worker: &str) -> Option<Order> {
    let orders = look_up("", |r| &mut r.orders, |_| Some(workers::orders()))?;
    orders.get(worker).copied()
}

/// How long final jobs of a queue are kept, in microseconds; `None`: for ever.
pub fn retention(queue_name: &str, state: State, system: Retention) -> Option<i64> {
    let of_queue = queue(queue_name).and_then(|queue| queue.retention(state));
    of_queue.unwrap_or_else(|| system.of(state))
}

fn look_up<T>(
    name: &str,
    map: impl Fn(&mut Remembered) -> &mut HashMap<String, Option<Rc<T>>>,
    read: impl Fn(&str) -> Option<T>,
) -> Option<Rc<T>> {
    invalidation::listen(relation_changed);
    invalidation::accept();
    let reader = transaction::is_serializable().then(versions::local_transaction);
    if REMEMBERED.with_borrow(|r| r.reader) != reader {
        forget();
    }
    if let Some(known) = REMEMBERED.with_borrow_mut(|r| map(r).get(name).cloned()) {
        return known;
    }
    let tables = config::tables();
    let before = FORGOTTEN.get();
    let found = read(name).map(Rc::new);
    let may_remember = transaction::is_read_committed() || reader.is_some();
    if may_remember && FORGOTTEN.get() == before {
        REMEMBERED.with_borrow_mut(|r| {
            r.reader = reader;
            r.tables = Some(tables);
            let map = map(r);
            if map.len() >= MOST {
                map.clear();
            }
            map.insert(name.to_string(), found.clone());
        });
    }
    found
}

/// Tells all sessions, once this transaction commits, that something has changed.
pub fn changed() {
    // Also for what comes later in the same statement.
    forget();
    committed::forget();
    for table in config::tables() {
        invalidation::changed(table);
    }
}

/// Forgets everything, so that what comes next is read.
fn forget() {
    FORGOTTEN.set(FORGOTTEN.get() + 1);
    REMEMBERED.with_borrow_mut(|r| *r = Remembered::default());
}

fn relation_changed(relation: Oid) {
    // In the middle of a look-up above nothing is borrowed: reading happens outside. But a session
    // that has run out of memory may end anywhere.
    let tables = REMEMBERED.with(|r| Some(r.try_borrow().ok()?.tables));
    let Some(tables) = tables else {
        return;
    };
    if relation == pg_sys::InvalidOid || tables.is_none_or(|tables| tables.contains(&relation)) {
        forget();
    }
}
