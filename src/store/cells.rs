//! Cells: what this database is among them, and in which of them queues live. What is read here
//! sessions remember ([`super::config_cache`]).

use std::collections::HashMap;
use std::rc::Rc;

use jobs_core::dimension::Dimension;

use super::direct::shapes;
use super::spi::{self, Snapshot, Tuples, big, column, plans, rows, text};
use super::types::*;
use super::{config_cache, run_log};
use crate::pg::jsonb::{Jsonb, OwnedJsonb};
use crate::pg::name::Name;
use crate::pg::{lock, server};

/// The cell that this database is.
pub struct Here {
    pub cell: i32,
    /// It takes no writes: it was retired, or is a copy of the database that was the cell.
    pub is_retired: bool,
    pub moved_to: Option<String>,
    placements: HashMap<String, Rc<Placement>>,
}

/// Where the jobs of a queue live.
#[derive(PartialEq)]
pub struct Placement {
    /// Of a queue that is spread: what decides among the cells.
    pub by: Option<Dimension>,
    pub cells: Vec<i32>,
}

/// What decides where jobs of a queue live. A job that was judged by it is only written while it
/// holds.
#[derive(Clone)]
pub struct Law {
    pub here: Rc<Here>,
    /// `None`: they live nowhere.
    pub placement: Option<Rc<Placement>>,
}

impl Law {
    /// Whether jobs of the queue live here: all, or of one that is spread some.
    pub fn is_own(&self) -> bool {
        self.placement.as_ref().is_some_and(|placement| placement.cells.contains(&self.here.cell))
    }
}

impl PartialEq for Law {
    fn eq(&self, other: &Law) -> bool {
        self.here.cell == other.here.cell
            && self.here.is_retired == other.here.is_retired
            && self.placement == other.placement
    }
}

/// The queue that stands for all that are named nowhere.
pub const OTHERS: &str = "*";

impl Here {
    /// The queues that are spread, and by what.
    pub fn spread(&self) -> impl Iterator<Item = (&str, &Dimension)> {
        let all = self.placements.iter();
        all.filter_map(|(queue, placement)| Some((queue.as_str(), placement.by.as_ref()?)))
    }

    /// Where the jobs of a queue live; `None`: nowhere.
    pub fn placement(&self, queue: &str) -> Option<Rc<Placement>> {
        self.placements.get(queue).or_else(|| self.placements.get(OTHERS)).cloned()
    }
}

/// What decides where jobs of a queue live; `None`: here, since the database has no number.
pub fn law(queue: &str) -> Option<Law> {
    let here = config_cache::here()?;
    let placement = here.placement(queue);
    Some(Law { here, placement })
}

/// The law cannot change until this transaction ends: a change waits for transactions
/// that write jobs, and they wait for it.
pub fn keep_law() {
    lock::to_write(shapes::JOB.name.oid());
}

/// This cell cannot be retired until this transaction ends: that waits for transactions that write,
/// and they wait for it.
pub fn keep_cell() {
    lock::to_write(CELL.oid());
}

static CELL: Name = Name::new(c"cell");
static PLACEMENT: Name = Name::new(c"placement");

pub(super) fn tables() -> [&'static Name; 2] {
    [&CELL, &PLACEMENT]
}

/// The cell that this database is; `None`: it has no number.
pub(super) fn here(seen: Snapshot) -> Option<Here> {
    // The previous version's tables have none.
    if CELL.oid() == pgrx::pg_sys::InvalidOid {
        return None;
    }
    let own = |rows: &Tuples| Here {
        cell: rows.given(0, "cell"),
        is_retired: rows.given(0, "is_retired"),
        moved_to: rows.get(0, "moved_to"),
        placements: HashMap::new(),
    };
    let here =
        HERE.first_as_of(seen, &[big(server::system()), big(server::database_number())], own)?;
    let placements = PLACEMENTS
        .list_as_of(seen, &[], |rows, row| Some((rows.given(row, "queue"), placement(rows, row))));
    Some(Here { placements: placements.into_iter().collect(), ..here })
}

fn placement(rows: &Tuples, row: usize) -> Rc<Placement> {
    let by: Option<OwnedJsonb> = rows.get(row, "by");
    let by = by.map(|by| {
        let by = by.get().to_value("by").ok();
        let by = by.and_then(|by| Dimension::parse(&by).ok());
        by.expect("jobs.placement has what jobs.spread_queue has read")
    });
    let cells: Vec<i64> = rows.given(row, "cells");
    Rc::new(Placement { by, cells: cells.into_iter().map(|cell| cell as i32).collect() })
}

/// Where to find a cell.
pub fn address(cell: i32) -> Option<String> {
    ADDRESS.value(&[number(cell)])
}

pub fn identity(cell: i32) -> Option<String> {
    IDENTITY.value(&[number(cell)])
}

fn number(cell: i32) -> spi::Arg {
    Some(cell.into())
}

/// The ids of a cell.
fn ids(cell: i32) -> (i64, i64) {
    let first = i64::from(cell) << 43;
    (first + 1, first + (1 << 43) - 1)
}

/// An id of another cell than this one that a job has, or that this cell has given out under
/// another number.
pub fn foreign_id(cell: i32) -> Option<i64> {
    let (first, last) = ids(cell);
    FOREIGN_ID.value_as_of(Snapshot::Latest, &[big(first), big(last)])
}

/// Makes this database a cell of this number, with a new identity unless it has one.
pub fn set_number(cell: i32) {
    FORGET_NUMBER.execute(&[number(cell)]);
    SET_NUMBER.execute(&[number(cell), big(server::system()), big(server::database_number())]);
    keep_ids(cell);
}

/// Has new ids begin with the number of the cell.
fn keep_ids(cell: i32) {
    let (first, last) = ids(cell);
    let is_within = IS_WITHIN.value(&[big(first), big(last)]) == Some(true);
    let restart = if is_within { "" } else { " RESTART" };
    spi::run_text(&format!(
        "ALTER SEQUENCE jobs.job_seq MINVALUE {first} MAXVALUE {last} START {first}{restart}"
    ));
}

/// Says where a cell is, and which identity it has, if that is given; whether that is new.
pub fn set_address(cell: i32, address: &str, identity: Option<&str>) -> bool {
    SET_ADDRESS.execute(&[number(cell), text(address), identity.and_then(text)]) > 0
}

/// Retires this cell, once no transaction writes in it; whether that changed anything.
pub fn retire(now: i64, moved_to: &str) -> bool {
    LOCK_CELL.execute(&[]);
    RETIRE.execute(&[big(now), text(moved_to)]) > 0
}

/// Takes writes again. A copy gets an identity of its own.
pub fn reinstate(cell: i32) {
    REINSTATE.execute(&[big(server::system()), big(server::database_number())]);
    keep_ids(cell);
}

/// Whether this is a copy of the database that was the cell.
pub fn is_copy() -> bool {
    IS_COPY.value(&[big(server::system()), big(server::database_number())]) == Some(true)
}

/// Only this transaction changes placements, and once it writes jobs no other does.
pub fn change_law() {
    for plan in [&LOCK_PLACEMENTS, &LOCK_JOBS] {
        plan.execute(&[]);
    }
}

/// Says where a queue lives; whether it lived elsewhere.
pub fn place(queue: &str, by: Option<&str>, cells: &[i32]) -> bool {
    let cells = column(INT4, cells, |cell| number(*cell));
    let by = by.map(|by| Jsonb::from_text(by).datum());
    PLACE.execute(&[text(queue), by, cells]) > 0
}

/// Says no more where a queue lives; whether anything said so.
pub fn unplace(queue: &str) -> bool {
    UNPLACE.execute(&[text(queue)]) > 0
}

/// Whether a queue has a concurrency or rate.
pub fn is_limited(queue: &str) -> bool {
    IS_LIMITED.value_as_of(Snapshot::Latest, &[text(queue)]) == Some(true)
}

/// How many jobs of a queue are here; `None`: of those that are named nowhere.
pub fn count_jobs(queue: Option<&str>) -> i64 {
    let count = match queue {
        Some(queue) => COUNT.value_as_of(Snapshot::Latest, &[text(queue)]),
        None => COUNT_UNNAMED.value_as_of(Snapshot::Latest, &[]),
    };
    count.unwrap_or(0)
}

rows! {
    /// What decides where a job lives.
    pub struct Subject {
        pub id: i64,
        pub queue: String,
        pub args: Jsonb,
        pub meta: Option<Jsonb>,
    }
}

/// Jobs of a queue with higher ids, up to so many.
pub fn jobs_behind(queue: &str, id: i64, limit: i64) -> Vec<Subject> {
    JOBS_BEHIND.rows_as_of(Snapshot::Latest, &[text(queue), big(id), big(limit)])
}

pub fn job(id: i64) -> Option<Subject> {
    JOB.row(&[big(id)])
}

/// Why nothing is maintained here, if that is because the cell is retired. Otherwise it can be
/// retired only once this transaction has ended.
pub(super) fn hindrance() -> Option<run_log::Hindrance> {
    // The previous version's tables have none.
    if CELL.oid() != pgrx::pg_sys::InvalidOid && !lock::try_to_lock_rows(CELL.oid()) {
        let why = "the cell is being retired".into();
        return Some(run_log::Hindrance { why, is_passing: true });
    }
    // Not as the session remembers it: the restore of a dump tells no session.
    let is_retired = here(Snapshot::Latest).is_some_and(|here| here.is_retired);
    is_retired.then(|| run_log::Hindrance {
        why: "the cell is retired; jobs.reinstate_cell() has it take writes again".into(),
        is_passing: false,
    })
}

plans! {
    HERE(INT8, INT8) =
        "SELECT c.cell, c.moved_to,
                c.retired_at IS NOT NULL OR (c.system_identifier, c.database_id) IS DISTINCT FROM ($1, $2) AS is_retired
           FROM jobs.cell c WHERE c.is_self";
    PLACEMENTS() = "SELECT p.queue, p.by, p.cells::bigint[] AS cells FROM jobs.placement p";
    ADDRESS(INT4) = "SELECT c.address FROM jobs.cell c WHERE c.cell = $1";
    IDENTITY(INT4) = "SELECT c.identity::text FROM jobs.cell c WHERE c.cell = $1";
    FOREIGN_ID(INT8, INT8) =
        "SELECT f.id FROM (
           (SELECT j.id FROM jobs.job j WHERE j.id < $1 LIMIT 1)
           UNION ALL
           (SELECT j.id FROM jobs.job j WHERE j.id > $2 LIMIT 1)
           UNION ALL
           SELECT s.last_value FROM jobs.job_seq s
            WHERE s.is_called AND s.last_value NOT BETWEEN $1 AND $2 AND EXISTS (SELECT FROM jobs.cell c WHERE c.is_self)) f LIMIT 1";
    FORGET_NUMBER(INT4) = "DELETE FROM jobs.cell c WHERE c.is_self AND c.cell <> $1";
    SET_NUMBER(INT4, INT8, INT8) =
        "INSERT INTO jobs.cell (cell, is_self, identity, system_identifier, database_id) VALUES ($1, true, gen_random_uuid(), $2, $3)
         ON CONFLICT (cell) DO UPDATE
            SET is_self = true, identity = excluded.identity, system_identifier = $2, database_id = $3";
    IS_WITHIN(INT8, INT8) = "SELECT s.last_value BETWEEN $1 AND $2 FROM jobs.job_seq s";
    SET_ADDRESS(INT4, TEXT, TEXT) =
        "INSERT INTO jobs.cell AS c (cell, is_self, identity, address) VALUES ($1, false, $3::uuid, $2)
         ON CONFLICT (cell) DO UPDATE SET address = $2, identity = COALESCE($3::uuid, c.identity)
          WHERE (c.address, c.identity) IS DISTINCT FROM ($2, COALESCE($3::uuid, c.identity))";
    RETIRE(AT, TEXT) =
        "UPDATE jobs.cell c SET retired_at = COALESCE(c.retired_at, $1), moved_to = $2
          WHERE c.is_self AND (c.retired_at IS NULL OR c.moved_to IS DISTINCT FROM $2)";
    REINSTATE(INT8, INT8) =
        "UPDATE jobs.cell c
            SET retired_at = NULL, moved_to = NULL, system_identifier = $1, database_id = $2,
                identity = CASE WHEN (c.system_identifier, c.database_id) IS DISTINCT FROM ($1, $2) THEN gen_random_uuid() ELSE c.identity END
          WHERE c.is_self";
    IS_COPY(INT8, INT8) =
        "SELECT (c.system_identifier, c.database_id) IS DISTINCT FROM ($1, $2) FROM jobs.cell c WHERE c.is_self";
    LOCK_PLACEMENTS() = "LOCK TABLE jobs.placement IN SHARE ROW EXCLUSIVE MODE";
    // Reading continues.
    LOCK_CELL() = "LOCK TABLE jobs.cell IN EXCLUSIVE MODE";
    LOCK_JOBS() = "LOCK TABLE jobs.job IN SHARE MODE";
    PLACE(TEXT, JSONB, INT4S) =
        "INSERT INTO jobs.placement AS p (queue, by, cells) VALUES ($1, $2, $3)
         ON CONFLICT (queue) DO UPDATE SET by = $2, cells = $3 WHERE (p.by, p.cells) IS DISTINCT FROM ($2, $3)";
    UNPLACE(TEXT) = "DELETE FROM jobs.placement WHERE queue = $1";
    IS_LIMITED(TEXT) =
        "SELECT q.concurrency IS NOT NULL OR q.rate IS NOT NULL FROM jobs.queue q WHERE q.queue = $1";
    COUNT(TEXT) = "SELECT count(*) FROM jobs.job j WHERE j.queue = $1";
    COUNT_UNNAMED() =
        "SELECT count(*) FROM jobs.job j WHERE NOT EXISTS (SELECT FROM jobs.placement p WHERE p.queue = j.queue)";
    JOBS_BEHIND(TEXT, INT8, INT8) =
        "SELECT j.id, j.queue, j.args, j.meta FROM jobs.job j WHERE j.queue = $1 AND j.id > $2 ORDER BY j.id LIMIT $3";
    JOB(INT8) = "SELECT j.id, j.queue, j.args, j.meta FROM jobs.job j WHERE j.id = $1";
}
