//! Claims that no job needs any more. What another session has locked is skipped.

use std::collections::{BTreeSet, HashSet};

use jobs_core::key::Key;

use super::claims::key_args;
use super::prune::Old;
use super::spi::{Plan, big, plans};
use super::types::*;
use super::{direct, notes};
use crate::fault::{self, Fault};
use crate::pg::{time, transaction};

/// Claims that were locked, and those that could not be, because a session is at work on
/// them. A key in neither has no claim.
#[derive(Default)]
pub struct Claims {
    /// Locked until the end of the transaction.
    pub locked: BTreeSet<Key>,
    /// Locked by other transactions.
    pub busy: BTreeSet<Key>,
}

/// Locks the claims of these keys that no session is at work on.
pub fn lock_claims(keys: &BTreeSet<Key>) -> Claims {
    let mut claims = Claims::default();
    if keys.is_empty() {
        return claims;
    }
    if fault::is_on(Fault::ReapInOneStatement) {
        claims.locked = keys.clone();
        return claims;
    }
    let list: Vec<Key> = keys.iter().copied().collect();
    let read =
        |plan: &Plan| -> BTreeSet<Key> { plan.values(&[key_args(&list)]).into_iter().collect() };
    claims.locked = read(&LOCK_CLAIMS);
    if claims.locked.len() < keys.len() {
        let existing = read(&EXISTING_CLAIMS);
        claims.busy = existing.difference(&claims.locked).copied().collect();
    }
    claims
}

/// Deletes the claims of these keys that list no other jobs than those that are going, and no hold,
/// where no note names a job; the keys that were not dealt with, and those that a session is at
/// work on. No look for other jobs is needed: a session that adds one to the list of a key writes
/// the claim's row, and it is this row that is looked at and deleted.
pub fn delete_claims_of(
    keys: BTreeSet<Key>,
    going: &HashSet<i64>,
) -> (BTreeSet<Key>, BTreeSet<Key>) {
    if fault::is_on(Fault::ReapInOneStatement) || !transaction::is_read_committed() {
        return (keys, BTreeSet::new());
    }
    direct::reap::delete_claims(&keys, going).unwrap_or((keys, BTreeSet::new()))
}

/// Deletes those claims under which neither a job nor a hold is left. Those that have a hold left
/// are orphaned from its end on. The caller has locked all of them.
///
/// The look is a statement of its own, after the locking: it has a snapshot in which everything is
/// visible that the lock waited out. In one statement with the locking it would look with the older
/// snapshot, and the claim of a live job would be deleted.
pub fn reap_claims(keys: &BTreeSet<Key>, now: i64) {
    if keys.is_empty() {
        return;
    }
    let list: Vec<Key> = keys.iter().copied().collect();
    let (mut free, mut held) = (Vec::new(), Vec::new());
    WITHOUT_JOB.run(&[key_args(&list), big(now)], |rows| {
        for row in 0..rows.len() {
            let key: Key = rows.given(row, "key");
            match rows.get(row, "ends_at") {
                None => free.push(key),
                Some(ends_at) => held.push((key, ends_at)),
            }
        }
    });
    notes::orphaned(held);
    if !free.is_empty() {
        DELETE_CLAIMS.execute(&[key_args(&free)]);
        // The jobs that they name are gone by now.
        notes::delete_of_keys(&free);
    }
}

/// Deletes the claims that no job needs any more now that these are deleted. Where a session is at
/// work on one, a note is left, so that no claim is ever left without anyone to delete it.
pub(super) fn clear_claims(erased: &[Old]) {
    let keys: BTreeSet<Key> = erased.iter().filter_map(|job| job.key).collect();
    if keys.is_empty() {
        return;
    }
    let gone: HashSet<i64> = erased.iter().map(|job| job.id).collect();
    let (keys, busy) = delete_claims_of(keys, &gone);
    let locks = lock_claims(&keys);
    let now = time::now();
    notes::orphaned(busy.union(&locks.busy).map(|key| (*key, now)));
    let locked: Vec<(Key, i64)> = erased
        .iter()
        .filter_map(|job| Some((job.key?, job.id)))
        .filter(|(key, _)| locks.locked.contains(key))
        .collect();
    notes::delete_of_jobs(&locked);
    reap_claims(&locks.locked, now);
}

plans! {
    LOCK_CLAIMS(BYTEAS) =
        "SELECT c.key FROM jobs.unique_claim c WHERE c.key = ANY ($1) ORDER BY c.key FOR UPDATE SKIP LOCKED";
    EXISTING_CLAIMS(BYTEAS) = "SELECT c.key FROM jobs.unique_claim c WHERE c.key = ANY ($1)";
    // When the last hold on a key ends; null: there is none.
    WITHOUT_JOB(BYTEAS, AT) =
        "SELECT c.key, (SELECT max(u.ends_at) FROM unnest(c.jobs, c.hold_ends_at) AS u(id, ends_at)
                         WHERE u.ends_at > $2
                           AND NOT EXISTS (SELECT FROM jobs.unique_note n
                                            WHERE n.key = c.key AND n.kind = 'h' AND n.seq = u.id)) AS ends_at
           FROM jobs.unique_claim c
          WHERE c.key = ANY ($1)
            AND NOT EXISTS (SELECT FROM unnest(c.jobs) AS u(id) JOIN jobs.job j ON j.id = u.id)
            AND NOT EXISTS (SELECT FROM jobs.unique_note n JOIN jobs.job j ON j.id = n.job_id
                             WHERE n.key = c.key AND n.kind IN ('f', 'r'))";
    DELETE_CLAIMS(BYTEAS) = "DELETE FROM jobs.unique_claim WHERE key = ANY ($1)";
}
