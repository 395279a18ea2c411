//! Claims: which jobs were inserted under a key. The primary key of `unique_claim` is
//! what decides between rivals, at every isolation level.

use std::collections::{BTreeMap, BTreeSet};

use jobs_core::key::Key;
use jobs_core::state::{State, States};
use pgrx::IntoDatum;
use pgrx::pg_sys::{self, Datum, Oid};

use super::spi::{Arg, Plan, Tuples, text};
use super::types::*;
use crate::pg::{array, dirty};

/// A job that was inserted under a key and still exists.
#[derive(Clone, Debug)]
pub struct Holder {
    /// its id
    pub id: i64,
    /// where it is now
    pub state: State,
    /// its queue
    pub queue: String,
    /// when it was inserted
    pub created_at: i64,
    /// when it is or was due
    pub scheduled_at: i64,
    /// when it became final
    pub finalized_at: Option<i64>,
}

/// The jobs under a key; `None` if the key has no claim. Takes no lock.
pub fn look(key: Key) -> Option<Vec<Holder>> {
    // Most keys are new: the small question first, before the join over all places.
    if IS_CLAIMED.execute(&[bytes(key)]) == 0 {
        return None;
    }
    LOOK_ONE.run(&[bytes(key)], |rows| {
        (!rows.is_empty()).then(|| {
            (0..rows.len())
                .filter_map(|row| holder(rows, row))
                .collect()
        })
    })
}

/// The jobs under each key that has a claim. Takes no lock.
pub fn look_many(keys: &[Key]) -> BTreeMap<Key, Vec<Holder>> {
    let mut found: BTreeMap<Key, Vec<Holder>> = BTreeMap::new();
    LOOK_MANY.run(&[Some(key_array(keys))], |rows| {
        for row in 0..rows.len() {
            let ord = rows.big(row, 1).expect("ordinality") as usize;
            found
                .entry(keys[ord - 1])
                .or_default()
                .extend(holder(rows, row));
        }
    });
    found
}

/// For each key in the order given: inserts a claim held by the job beside it, or,
/// where there is one already, locks it. Waits for rivals. The keys that were
/// inserted. All sessions give keys in ascending order, so that they cannot deadlock.
pub fn claim_or_lock(claims: &[(Key, i64)]) -> BTreeSet<Key> {
    let (keys, ids) = columns(claims);
    CLAIM_OR_LOCK.run(&[Some(keys), Some(ids)], |rows| {
        (0..rows.len())
            .map(|row| {
                Key::from_bytes(&rows.bytes(row, 1).expect("keys are not null"))
                    .expect("keys have 32 bytes")
            })
            .collect()
    })
}

/// Whether somebody else is at work on a key right now: its claim is locked, or is being
/// inserted or deleted by a transaction that is still open. Call it in a subtransaction
/// that is rolled back: it locks what it finds free.
pub fn is_contended(key: Key) -> bool {
    let value = bytes(key);
    let (table, index) = CLAIM_TABLE.run(&[], |rows| {
        let oid = |column| Oid::from(rows.datum(0, column).expect("they exist").value() as u32);
        (oid(1), oid(2))
    });
    dirty::is_in_progress(table, index, value.expect("keys are not null"))
        || IS_CLAIMED.execute(&[value]) > LOCK_FREE.execute(&[value])
}

/// Sets the lists of keys that the caller has locked, a pair a job, and puts other jobs
/// aside. Always writes the claim, so that a rival with an older snapshot gets 40001.
pub fn set_holders(listed: &[(Key, i64)], aside: &[(Key, i64)]) {
    if !listed.is_empty() {
        let (keys, ids) = columns(listed);
        for plan in [&SET_HOLDERS, &LISTED_AGAIN, &RETURNED] {
            plan.execute(&[Some(keys), Some(ids)]);
        }
    }
    if !aside.is_empty() {
        let (keys, ids) = columns(aside);
        for plan in [&PUT_ASIDE, &RETURNED] {
            plan.execute(&[Some(keys), Some(ids)]);
        }
    }
}

/// Of the jobs under a key that were put aside, in each of these final states those of the
/// latest insertion, end and schedule: if none of them counts, no other one does.
/// The caller has locked the key.
pub fn look_aside(key: Key, states: States) -> Vec<Holder> {
    let names: Vec<Arg> = states.iter().map(|state| text(state.as_str())).collect();
    LOOK_ASIDE.run(&[bytes(key), Some(array::build(TEXT, &names))], |rows| {
        (0..rows.len())
            .filter_map(|row| holder(rows, row))
            .collect()
    })
}

/// Says that a final job comes back: from now on it counts under its key also if it had
/// been put aside. Never waits, whoever has locked the claim.
pub fn come_back(key: Key, id: i64) {
    COME_BACK.execute(&[bytes(key), Some(Datum::from(id))]);
}

/// Forgets jobs that are being deleted, wherever they stand beside the lists.
pub fn forget(pairs: &[(Key, i64)]) {
    if !pairs.is_empty() {
        let (keys, ids) = columns(pairs);
        for plan in [&LISTED_AGAIN, &RETURNED] {
            plan.execute(&[Some(keys), Some(ids)]);
        }
    }
}

/// Notes that a key lost a job, for maintenance to look whether the claim can go.
pub fn note_orphan(key: Key) {
    NOTE_ORPHAN.execute(&[bytes(key)]);
}

/// Takes the transaction-level advisory lock; whether it was free. Waits only with `wait`.
pub fn advisory_lock(id: i64, wait: bool) -> bool {
    let call = |function: u32| unsafe {
        pg_sys::OidFunctionCall1Coll(
            pg_sys::Oid::from(function),
            pg_sys::InvalidOid,
            Datum::from(id),
        )
    };
    let free = call(pg_sys::F_PG_TRY_ADVISORY_XACT_LOCK_INT8).value() != 0;
    if !free && wait {
        call(pg_sys::F_PG_ADVISORY_XACT_LOCK_INT8);
    }
    free
}

fn bytes(key: Key) -> Arg {
    key.0.as_slice().into_datum()
}

/// An array of keys as a parameter.
pub(super) fn key_array(keys: &[Key]) -> Datum {
    array::build(
        BYTEA,
        &keys.iter().map(|key| bytes(*key)).collect::<Vec<_>>(),
    )
}

fn columns(pairs: &[(Key, i64)]) -> (Datum, Datum) {
    let keys: Vec<Arg> = pairs.iter().map(|(key, _)| bytes(*key)).collect();
    let ids: Vec<Arg> = pairs.iter().map(|(_, id)| Some(Datum::from(*id))).collect();
    (array::build(BYTEA, &keys), array::build(INT8, &ids))
}

/// A claim without any job left gives one row of nulls; a job in no place has no state.
fn holder(rows: &Tuples, row: usize) -> Option<Holder> {
    Some(Holder {
        id: rows.big(row, 2)?,
        state: rows.state(row, 3)?,
        queue: rows.text(row, 4)?,
        created_at: rows.big(row, 5)?,
        scheduled_at: rows.big(row, 6)?,
        finalized_at: rows.big(row, 7),
    })
}

// One snapshot sees a job in exactly one place. One that is in no place at all is not
// there: its job row is left from something that went wrong, and it holds nothing.
macro_rules! holder_places {
    () => {
        "LEFT JOIN jobs.running r ON r.job_id = j.id
             LEFT JOIN jobs.scheduled s ON s.job_id = j.id
             LEFT JOIN jobs.finished f ON f.job_id = j.id
             LEFT JOIN jobs.ready a ON a.queue = j.queue AND a.priority = j.priority AND a.seq = j.id
             LEFT JOIN jobs.ready b ON b.job_id = j.id AND b.seq <> b.job_id"
    };
}
macro_rules! holder_columns {
    () => {
        "j.id,
                  CASE WHEN r.job_id IS NOT NULL THEN 'running'
                       WHEN COALESCE(a.seq, b.seq) IS NOT NULL THEN 'available'
                       ELSE COALESCE(s.state::text, f.state::text) END AS state,
                  j.queue, j.created_at,
                  COALESCE(NULLIF(s.due_at, 'infinity'), r.scheduled_at, f.scheduled_at, b.scheduled_at,
                           j.scheduled_at, j.created_at) AS scheduled_at,
                  f.finalized_at"
    };
}
macro_rules! holders {
    () => {
        concat!(
            "LEFT JOIN LATERAL (
               SELECT ", holder_columns!(), "
                 FROM (SELECT unnest(c.jobs)
                        UNION ALL
                       SELECT t.job_id FROM jobs.unique_return t WHERE t.key = c.key AND t.job_id <> ALL (c.jobs)) AS u(id)
                 JOIN jobs.job j ON j.id = u.id ", holder_places!(), ") h ON true"
        )
    };
}
macro_rules! look_columns {
    () => {
        ", h.id, h.state, h.queue, h.created_at, h.scheduled_at, h.finalized_at FROM "
    };
}

static IS_CLAIMED: Plan = Plan::new("SELECT FROM jobs.unique_claim c WHERE c.key = $1", &[BYTEA]);
static LOCK_FREE: Plan = Plan::new(
    "SELECT FROM jobs.unique_claim c WHERE c.key = $1 FOR UPDATE SKIP LOCKED",
    &[BYTEA],
);
static CLAIM_TABLE: Plan = Plan::new(
    "SELECT 'jobs.unique_claim'::regclass::oid, 'jobs.unique_claim_pkey'::regclass::oid",
    &[],
);
static LOOK_ONE: Plan = Plan::new(
    concat!(
        "SELECT 1::bigint",
        look_columns!(),
        "jobs.unique_claim c ",
        holders!(),
        " WHERE c.key = $1"
    ),
    &[BYTEA],
);
static LOOK_MANY: Plan = Plan::new(
    concat!(
        "SELECT k.ord",
        look_columns!(),
        "unnest($1) WITH ORDINALITY AS k(key, ord)
         JOIN jobs.unique_claim c ON c.key = k.key ",
        holders!()
    ),
    &[BYTEAS],
);

// An update that its WHERE forbids locks the taken row and writes no new version.
static CLAIM_OR_LOCK: Plan = Plan::new(
    "INSERT INTO jobs.unique_claim AS c (key, jobs)
     SELECT n.key, ARRAY[n.id] FROM unnest($1, $2) AS n(key, id)
     ON CONFLICT (key) DO UPDATE SET jobs = c.jobs WHERE false
     RETURNING c.key",
    &[BYTEAS, INT8S],
);

static SET_HOLDERS: Plan = Plan::new(
    "UPDATE jobs.unique_claim c SET jobs = n.jobs
       FROM (SELECT u.key, array_agg(u.id ORDER BY u.id) AS jobs FROM unnest($1, $2) AS u(key, id) GROUP BY u.key) n
      WHERE c.key = n.key",
    &[BYTEAS, INT8S],
);

static LOOK_ASIDE: Plan = Plan::new(
    concat!(
        "SELECT h.*
           FROM (SELECT 1::bigint, ",
        holder_columns!(),
        ", row_number() OVER (PARTITION BY f.state ORDER BY j.id DESC) AS by_age,
              row_number() OVER (PARTITION BY f.state ORDER BY f.finalized_at DESC) AS by_end,
              row_number() OVER (PARTITION BY f.state ORDER BY COALESCE(f.scheduled_at, j.scheduled_at, j.created_at) DESC) AS by_schedule
                   FROM jobs.unique_folded u JOIN jobs.job j ON j.id = u.job_id ",
        holder_places!(),
        "         WHERE u.key = $1 AND f.state::text = ANY ($2)) h
          WHERE 1 IN (h.by_age, h.by_end, h.by_schedule)"
    ),
    &[BYTEA, TEXTS],
);
static PUT_ASIDE: Plan = Plan::new(
    "INSERT INTO jobs.unique_folded (key, job_id) SELECT n.key, n.id FROM unnest($1, $2) AS n(key, id) ON CONFLICT DO NOTHING",
    &[BYTEAS, INT8S],
);
static LISTED_AGAIN: Plan = Plan::new(
    "DELETE FROM jobs.unique_folded u USING unnest($1, $2) AS n(key, id) WHERE u.key = n.key AND u.job_id = n.id",
    &[BYTEAS, INT8S],
);
static COME_BACK: Plan = Plan::new(
    "INSERT INTO jobs.unique_return (key, job_id) VALUES ($1, $2)",
    &[BYTEA, INT8],
);
static RETURNED: Plan = Plan::new(
    "DELETE FROM jobs.unique_return u USING unnest($1, $2) AS n(key, id) WHERE u.key = n.key AND u.job_id = n.id",
    &[BYTEAS, INT8S],
);

static NOTE_ORPHAN: Plan = Plan::new("INSERT INTO jobs.unique_orphan (key) VALUES ($1)", &[BYTEA]);
