//! Claims: which jobs were inserted under a key. The primary key of `unique_claim` is
//! what decides between rivals, at every isolation level.

use std::collections::BTreeSet;

use jobs_core::key::Key;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{IntoDatum, PgSqlErrorCode};

use super::direct::claims::{FoundClaim, look_dirtily};
pub use super::direct::claims::{can_claim_or_lock_directly, claim_or_lock_directly};
use super::direct::{self, shapes};
use super::notes::{self, Note, NoteKind};
use super::spi::{Arg, big, column, plans};
use super::types::*;
use crate::pg::{lock, memory, subxact, time, transaction};

/// A job in the list of a key.
#[derive(Clone)]
pub struct ListedHolder {
    pub key: Key,
    pub id: i64,
    /// Until when it holds the key by itself.
    pub hold_ends_at: Option<i64>,
}

/// Inserts a claim with the job beside the key, or, where there is one already, locks it, in the
/// order given. Waits for rivals. All sessions give keys in ascending order, so that they cannot
/// deadlock. `is_taken` says by a place among them which keys are known to have a claim; `fresh` is
/// told which were inserted.
pub fn claim_or_lock(
    claims: &[ListedHolder],
    is_taken: impl Fn(usize) -> bool,
    mut fresh: impl FnMut(usize),
) {
    // From the first on that a session is just inserting or deleting, in order, by a statement,
    // which waits for that.
    let mut done = claim_or_lock_directly(claims, is_taken, true, &mut fresh);
    memory::in_parts(&claims[done..], |some| {
        despite_rebuilt_index(|| {
            CLAIM_OR_LOCK.run(&columns(some), |rows| {
                for row in 0..rows.len() {
                    let key: Key = rows.given(row, "key");
                    let index = some.binary_search_by_key(&key, |claim| claim.key);
                    fresh(done + index.expect("it was given"));
                }
            });
        });
        done += some.len();
    });
}

/// Runs a statement that inserts claims. While their index is rebuilt (`REINDEX CONCURRENTLY`),
/// it may find a rival in the one of two indexes that it does not look for rivals in, which is an
/// error. Where a new snapshot can show that rival, it is tried again.
pub fn despite_rebuilt_index<T>(mut insert: impl FnMut() -> T) -> T {
    const MOST_TRIES: usize = 100;
    if transaction::is_read_committed() && direct::claims::have_more_indexes() {
        for _ in 0..MOST_TRIES {
            pgrx::check_for_interrupts!();
            if !subxact::has_room() {
                break;
            }
            match subxact::attempt(&mut insert) {
                Ok(done) => return done,
                Err(error) if is_rival(&error) => {}
                Err(error) => subxact::rethrow(*error),
            }
        }
    }
    insert()
}

fn is_rival(error: &CaughtError) -> bool {
    let (code, _) = subxact::describe(error);
    code == PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE
}

/// New lists of keys that the caller has locked, and the jobs that are folded for what is listed.
#[derive(Default)]
pub struct Lists {
    pub(super) listed: Vec<ListedHolder>,
    pub(super) folded: Vec<(Key, i64)>,
    superfluous: Vec<Note>,
}

impl Lists {
    /// Adds a job to the list of its key.
    pub fn list(&mut self, job: ListedHolder) {
        self.listed.push(job);
    }

    pub fn fold(&mut self, key: Key, id: i64) {
        self.folded.push((key, id));
    }

    /// Drops notes that the list is made from. Of all others none: they may have come since.
    pub fn drop_notes(&mut self, key: Key, notes: &[(NoteKind, i64)]) {
        let notes = notes.iter().map(|&(kind, seq)| Note { key, kind, seq });
        self.superfluous.extend(notes);
    }

    /// Writes them. Always writes the claims, so that a rival with an older snapshot gets 40001.
    pub fn write(mut self) {
        self.listed.sort_unstable_by_key(|job| (job.key, job.id));
        if !self.listed.is_empty() && direct::claims::write(&self).is_none() {
            self.write_by_statement();
        }
        notes::delete(&self.superfluous);
    }

    fn write_by_statement(&mut self) {
        in_parts(&self.listed, |some| {
            SET_LISTS.execute(&columns(some));
        });
        let listed = self.listed.iter().map(|job| Note {
            key: job.key,
            kind: NoteKind::Folded,
            seq: job.id,
        });
        self.superfluous.extend(listed);
        notes::fold(&self.folded);
        if !transaction::is_read_committed() {
            // An older snapshot may have shown them after they were deleted, and after what that
            // left was cleared away.
            let keys: BTreeSet<Key> = self.folded.iter().map(|(key, _)| *key).collect();
            let now = time::now();
            notes::orphaned(keys.into_iter().map(|key| (key, now)));
        }
    }
}

/// Does some work for jobs that are in the order of their keys, in parts, all of a key together.
pub(super) fn in_parts(jobs: &[ListedHolder], work: impl FnMut(&[ListedHolder])) {
    memory::in_whole_parts(jobs, |a, b| a.key == b.key, work);
}

/// Whether another session is at work on a key right now: its claim is locked, or is being
/// inserted or deleted by a transaction that is still open. Call it in a subtransaction
/// that is rolled back: it locks what it finds free.
pub fn is_contended(key: Key) -> bool {
    look_dirtily(key) == FoundClaim::InProgress
        || IS_CLAIMED.execute(&[key_arg(key)]) > LOCK_FREE.execute(&[key_arg(key)])
}

/// Whether a key has a claim that the transaction's snapshot does not show.
pub fn is_unseen(key: Key) -> bool {
    !transaction::is_read_committed()
        && look_dirtily(key) == FoundClaim::Row
        && IS_CLAIMED.execute(&[key_arg(key)]) == 0
}

/// Takes the lock on the table that every writer of claims takes.
pub fn let_write() {
    lock::to_write(shapes::UNIQUE_CLAIM.name.oid());
}

pub(super) fn key_arg(key: Key) -> Arg {
    key.0.as_slice().into_datum()
}

pub(super) fn key_args(keys: &[Key]) -> Arg {
    column(BYTEA, keys, |key| key_arg(*key))
}

fn columns(listed: &[ListedHolder]) -> [Arg; 3] {
    [
        column(BYTEA, listed, |job| key_arg(job.key)),
        column(INT8, listed, |job| big(job.id)),
        hold_ends(listed),
    ]
}

/// The ends of the holds of jobs.
pub(super) fn hold_ends(listed: &[ListedHolder]) -> Arg {
    column(AT, listed, |job| job.hold_ends_at.and_then(big))
}

plans! {
    IS_CLAIMED(BYTEA) = "SELECT FROM jobs.unique_claim c WHERE c.key = $1";
    LOCK_FREE(BYTEA) = "SELECT FROM jobs.unique_claim c WHERE c.key = $1 FOR UPDATE SKIP LOCKED";
    // An update that its WHERE forbids locks the taken row and writes no new version.
    CLAIM_OR_LOCK(BYTEAS, INT8S, ATS) =
        "INSERT INTO jobs.unique_claim AS c (key, jobs, hold_ends_at)
         SELECT n.key, ARRAY[n.id], CASE WHEN n.hold_ends_at IS NOT NULL THEN ARRAY[n.hold_ends_at] END
           FROM unnest($1, $2, $3) AS n(key, id, hold_ends_at)
         ON CONFLICT (key) DO UPDATE SET jobs = c.jobs WHERE false
         RETURNING c.key";
    SET_LISTS(BYTEAS, INT8S, ATS) =
        "UPDATE jobs.unique_claim c SET jobs = n.jobs, hold_ends_at = n.hold_ends_at
           FROM (SELECT u.key, array_agg(u.id ORDER BY u.id) AS jobs,
                        CASE WHEN count(u.hold_ends_at) > 0 THEN array_agg(u.hold_ends_at ORDER BY u.id) END AS hold_ends_at
                   FROM unnest($1, $2, $3) AS u(key, id, hold_ends_at) GROUP BY u.key) n
          WHERE c.key = n.key";
}
