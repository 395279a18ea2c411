//! Claims that no job needs any more, deleted together with the jobs that they list.

use std::collections::{BTreeSet, HashSet};

use jobs_core::key::Key;

use super::claims::key_is;
use super::shapes::{self, claim};
use crate::pg::page_lookup::PageLookup;
use crate::pg::row::{Row, Tid};
use crate::pg::scan::{Key as By, Seen};
use crate::pg::table::{Deleted, Table};
use crate::pg::transaction;
use crate::store::notes::NoteKind;

/// What is to become of a claim whose jobs are going.
enum Going {
    /// Another transaction is changing it.
    Busy,
    /// It lists other jobs or a hold, or may do so.
    Needed,
    /// Nothing in it is left; the place of its row.
    Superfluous(Tid),
}

/// The claims of these keys, as they are now.
fn look_at_claims(claims: &Table, keys: &BTreeSet<Key>, going: &HashSet<i64>) -> Vec<(Key, Going)> {
    let wanted: HashSet<Key> = keys.iter().copied().collect();
    let read = |row: &Row| {
        let key = row.bytes(claim::KEY).and_then(Key::from_bytes);
        let key = key.filter(|key| wanted.contains(key))?;
        let jobs = row.bigs(claim::JOBS).expect("it is not null");
        let has_hold = row.datum(claim::HOLD_ENDS_AT).is_some();
        // Of an update under way there may be two versions, both in progress.
        let now = match row.is_in_progress {
            true => Going::Busy,
            false if has_hold || !jobs.iter().all(|id| going.contains(id)) => Going::Needed,
            false => Going::Superfluous(row.tid()),
        };
        Some((key, now))
    };
    let seen = Seen::dirty();
    let mut lookup = PageLookup::new(claims, &shapes::UNIQUE_CLAIM.key, &seen, read);
    let claim = |key: &Key| {
        pgrx::check_for_interrupts!();
        let now = lookup.take(key, || key_is(*key));
        // Of an update that commits right now, neither version may be met: a snapshot is to tell.
        (*key, now.unwrap_or(Going::Needed))
    };
    keys.iter().map(claim).collect()
}

/// Deletes claims as [`super::super::reap::delete_claims_of`] does; `None` if some table is not as
/// it was made.
pub fn delete_claims(
    keys: &BTreeSet<Key>,
    going: &HashSet<i64>,
) -> Option<(BTreeSet<Key>, BTreeSet<Key>)> {
    let claims = Table::open(&shapes::UNIQUE_CLAIM)?;
    let index = &shapes::UNIQUE_NOTE.key;
    let notes = Table::open_to_read(&shapes::UNIQUE_NOTE, index)?;
    transaction::make_visible();
    let (mut rest, mut busy) = (BTreeSet::new(), BTreeSet::new());
    let mut superfluous = Vec::with_capacity(keys.len());
    for (key, claim) in look_at_claims(&claims, keys, going) {
        match claim {
            Going::Busy => drop(busy.insert(key)),
            Going::Needed => drop(rest.insert(key)),
            Going::Superfluous(tid) => superfluous.push((key, tid)),
        }
    }
    // The notes are looked at after the claims were: who folds a job changes the claim, which is
    // then not deleted; and a job that returns is listed, so that it is not going, or was folded.
    let seen = Seen::dirty();
    let mut scan = (!notes.is_empty(index)).then(|| notes.scan(index, &seen, 2));
    let mut is_noted = |key: Key, kind: NoteKind| {
        scan.as_mut()
            .is_some_and(|scan| scan.first(&[key_is(key), By::char(2, kind as u8)]).is_some())
    };
    superfluous.retain(|&(key, _)| {
        pgrx::check_for_interrupts!();
        let is_needed = is_noted(key, NoteKind::Folded) || is_noted(key, NoteKind::Returned);
        if is_needed {
            rest.insert(key);
        }
        !is_needed
    });
    drop(scan);
    for (key, claim) in superfluous {
        pgrx::check_for_interrupts!();
        if claims.delete_at(claim, false) != Deleted::Done {
            busy.insert(key);
        }
    }
    transaction::make_visible();
    Some((rest, busy))
}
