//! Jobs of outboxes in other databases: which of their keys were taken, and how the outboxes are.

use pgrx::IntoDatum;
use pgrx::datum::Uuid;
use pgrx::pg_sys::InvalidOid;

use super::columns::delete_some;
use super::spi::{Arg, big, plans, rows, text};
use super::types::*;
use crate::pg::array::Array;
use crate::pg::name::Name;

/// Takes those of so many keys that were never taken. Returns their places, from 1, in order; of a
/// key that is given twice the first.
pub fn take(source: Uuid, keys: Array, count: usize, now: i64) -> Vec<i64> {
    let new: Vec<i64> = TAKE.values(&[source.into_datum(), array(keys), big(now)]);
    if new.len() < count {
        REOPEN.execute(&[array(keys)]);
    }
    new
}

/// Writes down that an outbox has deleted the rows of these keys.
pub fn deleted(source: Uuid, keys: Array, now: i64) {
    DELETED.execute(&[source.into_datum(), array(keys), big(now)]);
}

/// The keys of an outbox that may still have the rows.
pub fn open(source: Uuid) -> Vec<Uuid> {
    OPEN.values(&[source.into_datum()])
}

/// Forgets keys whose rows were deleted by then; how many.
pub fn forget(deleted_by: i64, limit: i64) -> usize {
    if are_here() { FORGET.execute(&[big(deleted_by), big(limit)]) } else { 0 }
}

/// Writes down how an outbox is.
pub fn report(outbox: &Outbox) {
    let Outbox { source, address, seen_at, waiting, oldest_at, refused } = outbox;
    REPORT.execute(&[
        source.into_datum(),
        text(address),
        big(*seen_at),
        big(*waiting),
        oldest_at.and_then(big),
        big(*refused),
    ]);
}

/// Forgets outboxes that were not reported since then; how many.
pub fn forget_outboxes(seen_by: i64, limit: i64) -> usize {
    if are_here() { FORGET_OUTBOXES.execute(&[big(seen_by), big(limit)]) } else { 0 }
}

/// The outboxes that were reported, the one seen last first.
pub fn outboxes() -> Vec<Outbox> {
    if are_here() { OUTBOXES.rows(&[]) } else { Vec::new() }
}

static FORWARDER: Name = Name::new(c"forwarder");

/// Whether the tables are there: the previous version's script makes none.
pub fn are_here() -> bool {
    FORWARDER.oid() != InvalidOid
}

rows! {
    /// An outbox in another database, as reported last.
    pub struct Outbox {
        pub source: Uuid,
        pub address: String,
        pub seen_at: i64,
        /// How many of its rows wait.
        pub waiting: i64,
        /// When the oldest of them was inserted.
        pub oldest_at: Option<i64>,
        /// How many were refused.
        pub refused: i64,
    }
}

fn array(keys: Array) -> Arg {
    Some(keys.datum())
}

plans! {
    // In the order of the keys: two calls with the same ones wait for each other, never both.
    TAKE(UUID, UUIDS, AT) =
        "WITH new AS (
           INSERT INTO jobs.forwarded (key, source, taken_at)
           SELECT k.key, $1, $3 FROM unnest($2) AS k(key) ORDER BY k.key
           ON CONFLICT (key) DO NOTHING RETURNING key)
         SELECT min(k.n) FROM unnest($2) WITH ORDINALITY AS k(key, n) JOIN new ON new.key = k.key
          GROUP BY k.key ORDER BY 1";
    // Of an outbox that was restored, and has rows again that it had deleted.
    REOPEN(UUIDS) =
        "UPDATE jobs.forwarded f SET deleted_at = NULL FROM (SELECT k.key FROM unnest($1) AS k(key) ORDER BY k.key) k
          WHERE f.key = k.key AND f.deleted_at IS NOT NULL";
    DELETED(UUID, UUIDS, AT) =
        "UPDATE jobs.forwarded f SET deleted_at = $3 FROM (SELECT k.key FROM unnest($2) AS k(key) ORDER BY k.key) k
          WHERE f.key = k.key AND f.source = $1 AND f.deleted_at IS NULL";
    OPEN(UUID) = "SELECT f.key FROM jobs.forwarded f WHERE f.deleted_at IS NULL AND f.source = $1";
    FORGET(AT, INT8) => delete_some("forwarded", "t.deleted_at <= $1 ORDER BY t.deleted_at");
    REPORT(UUID, TEXT, AT, INT8, AT, INT8) =
        "INSERT INTO jobs.forwarder (source, address, seen_at, waiting, oldest_at, refused) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (source) DO UPDATE
            SET address = excluded.address, seen_at = excluded.seen_at, waiting = excluded.waiting, oldest_at = excluded.oldest_at, refused = excluded.refused";
    FORGET_OUTBOXES(AT, INT8) => delete_some("forwarder", "t.seen_at <= $1");
    OUTBOXES() =
        "SELECT f.source, f.address, f.seen_at, f.waiting, f.oldest_at, f.refused FROM jobs.forwarder f ORDER BY f.seen_at DESC";
}
