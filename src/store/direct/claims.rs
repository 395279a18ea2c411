//! Claims, taken and written without statements.

use jobs_core::key::Key;

use super::shapes;
use crate::pg::row::NewRow;
use crate::pg::scan::{self, Seen};
use crate::pg::table::Table;
use crate::pg::{memory, subxact, transaction};
use crate::store::claims::{self, ListedHolder, Lists, key_arg};
use crate::store::notes::NoteKind;
use crate::store::spi::{big, bigs};

/// Claims or locks as [`claims::claim_or_lock`] does, as far as that takes no statement: up to the
/// first key that a session is just inserting or deleting. How many, from the first on. With `wait`
/// it waits for the session that has locked one.
pub fn claim_or_lock_directly(
    claims: &[ListedHolder],
    is_taken: impl Fn(usize) -> bool,
    wait: bool,
    mut fresh: impl FnMut(usize),
) -> usize {
    let Some(table) = (!claims.is_empty()).then(open).flatten() else {
        return 0;
    };
    let mut done = claim_together(&table, claims, |index| !is_taken(index));
    (0..done).for_each(&mut fresh);
    let mut claim_or_lock = |index: usize, claim: &ListedHolder| {
        pgrx::check_for_interrupts!();
        let mut insert = |look: bool| {
            let inserts = (!look || is_free(&table, claim.key))
                && table.insert_unless_taken(new_row(&table, claim));
            if inserts {
                fresh(index);
            }
            inserts
        };
        let lock = || {
            transaction::is_read_committed()
                && table.lock(&shapes::UNIQUE_CLAIM.key, &[key_is(claim.key)], wait)
        };
        match is_taken(index) {
            // A call that does not wait may come often, and leaves a dead row each time that a
            // rival is there.
            false => insert(!wait) || lock(),
            // Unless that session has ended.
            true => lock() || insert(true),
        }
    };
    let mut is_stopped = false;
    memory::in_parts(&claims[done..], |some| {
        for claim in some {
            is_stopped = is_stopped || !claim_or_lock(done, claim);
            if is_stopped {
                return;
            }
            done += 1;
        }
    });
    transaction::make_visible();
    done
}

/// Whether [`claim_or_lock_directly`] can do both; otherwise it can at most insert.
pub fn can_claim_or_lock_directly() -> bool {
    transaction::is_read_committed() && open().is_some()
}

/// From so many new keys on it pays to begin a subtransaction.
const WORTH_A_SUBTRANSACTION: usize = 32;

/// Inserts claims, up to the first whose key is known to have one; how many. Never waits.
///
/// An insertion that can be undone by itself takes a lock and a second record of WAL. These can
/// only be undone all together: that is done if a rival has come since it was looked for
/// claims, and is what this returns none for.
fn claim_together(table: &Table, claims: &[ListedHolder], is_new: impl Fn(usize) -> bool) -> usize {
    let new = (0..claims.len()).take_while(|index| is_new(*index)).count();
    if new < WORTH_A_SUBTRANSACTION || !subxact::has_room() {
        return 0;
    }
    let rows = claims[..new].iter().map(|claim| new_row(table, claim));
    let all = subxact::kept_if(|all| *all, || table.insert_if_new(rows));
    if all { new } else { 0 }
}

/// A claim, whatever snapshots show.
#[derive(PartialEq, Eq)]
pub enum FoundClaim {
    /// There is no claim.
    Nothing,
    /// A committed claim, locked or not.
    Row,
    /// A claim that an open transaction has inserted or deleted.
    InProgress,
}

/// Looks whether a key has a claim, be it of a transaction that is still open, which no statement
/// can. So this has no gate.
pub fn look_dirtily(key: Key) -> FoundClaim {
    let table = Table::open_as_it_is_to_read(&shapes::UNIQUE_CLAIM);
    let seen = Seen::dirty();
    let mut scan = table.scan(&shapes::UNIQUE_CLAIM.key, &seen, 1);
    scan.find(&[key_is(key)]);
    let mut found = FoundClaim::Nothing;
    while let Some(row) = scan.next() {
        if row.is_in_progress {
            return FoundClaim::InProgress;
        }
        found = FoundClaim::Row;
    }
    found
}

/// Whether no claim has this key, be it of a transaction that is still open.
fn is_free(table: &Table, key: Key) -> bool {
    let seen = Seen::dirty();
    let mut scan = table.scan(&shapes::UNIQUE_CLAIM.key, &seen, 1);
    scan.first(&[key_is(key)]).is_none()
}

/// Inserts one claim; whether the key had none.
pub fn claim_if_new(claim: &ListedHolder) -> Option<bool> {
    let table = open()?;
    Some(table.insert_unless_taken(new_row(&table, claim)))
}

/// Whether claims have another index than their own: theirs may be being rebuilt. This has no gate.
pub fn have_more_indexes() -> bool {
    Table::has_more_indexes(&shapes::UNIQUE_CLAIM)
}

/// The table of claims, to write to it without a statement. A serializable transaction is better
/// off with a statement, which looks for a rival and waits for it before it writes: writing first,
/// it fails although the rival may be rolled back.
fn open() -> Option<Table> {
    let is_serializable = transaction::is_serializable();
    (!is_serializable).then(|| Table::open(&shapes::UNIQUE_CLAIM)).flatten()
}

fn new_row(table: &Table, claim: &ListedHolder) -> NewRow {
    row(table, std::slice::from_ref(claim))
}

/// The claim of a key that lists these jobs, with the ends of their holds.
fn row(table: &Table, jobs: &[ListedHolder]) -> NewRow {
    let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    let some_hold = jobs.iter().any(|job| job.hold_ends_at.is_some());
    let hold_ends_at = some_hold.then(|| claims::hold_ends(jobs)).flatten();
    table.row(&[key_arg(jobs[0].key), bigs(&ids), hold_ends_at])
}

/// Writes new lists, and folds jobs; `None`: use statements.
pub fn write(lists: &Lists) -> Option<()> {
    // An older snapshot may show a claim that is gone by now.
    let table = open().filter(|_| transaction::is_read_committed())?;
    let notes = Table::open(&shapes::UNIQUE_NOTE)?;
    transaction::make_visible();
    let seen = Seen::now();
    claims::in_parts(&lists.listed, |some| {
        let mut scan = table.scan(&shapes::UNIQUE_CLAIM.key, &seen, 1).backward();
        for jobs in some.chunk_by(|a, b| a.key == b.key) {
            pgrx::check_for_interrupts!();
            if let Some(found) = scan.first(&[key_is(jobs[0].key)]) {
                table.update(&found, row(&table, jobs), &shapes::UNIQUE_CLAIM.key);
            }
        }
        drop(scan);
        let mut scan = notes.scan(&shapes::UNIQUE_NOTE.key, &seen, 3);
        for job in some {
            pgrx::check_for_interrupts!();
            let kind = scan::Key::char(2, NoteKind::Folded as u8);
            if let Some(found) = scan.first(&[key_is(job.key), kind, scan::Key::big(3, job.id)]) {
                notes.delete(found.tid(), true);
            }
        }
    });
    drop(seen);
    memory::in_parts(&lists.folded, |some| {
        for (key, id) in some {
            pgrx::check_for_interrupts!();
            let (kind, id) = (NoteKind::Folded.datum(), big(*id));
            let note = notes.row(&[key_arg(*key), Some(kind), id, id, None]);
            notes.insert_unless_taken(note);
        }
    });
    transaction::make_visible();
    Some(())
}

/// The condition on the first column of an index that it is this key.
pub fn key_is(key: Key) -> scan::Key {
    scan::Key::bytes(1, key_arg(key).expect("keys are not null"))
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::super::look;
    use super::*;

    /// Tests run at the same time, so that each has keys of its own.
    fn claims(test: u8, count: u16) -> Vec<ListedHolder> {
        (0..count).map(|n| claim(test, n)).collect()
    }

    fn claim(test: u8, n: u16) -> ListedHolder {
        let mut key = Key([test; 32]);
        key.0[..2].copy_from_slice(&n.to_be_bytes());
        ListedHolder { key, id: n.into(), hold_ends_at: None }
    }

    fn count(what: &str) -> i64 {
        Spi::get_one(&format!("SELECT count(*) FROM jobs.unique_claim WHERE {what}"))
            .expect("count")
            .expect("count")
    }

    #[pg_test]
    fn rows_of_which_one_is_taken_are_all_taken_back() {
        let table = Table::open(&shapes::UNIQUE_CLAIM).expect("it is as it was made");
        let insert = |claims: &[ListedHolder]| {
            let rows = claims.iter().map(|claim| new_row(&table, claim));
            subxact::kept_if(|all| *all, || table.insert_if_new(rows))
        };
        let all = claims(1, 300);
        // Behind the rows that are written at once, and among them.
        for taken in [280, 3] {
            assert!(insert(&[claim(1, taken)]));
            assert!(!insert(&all));
            transaction::make_visible();
            assert_eq!(count(&format!("jobs[1] = {taken}")), 1);
            assert_eq!(count("jobs[1] NOT IN (3, 280)"), 0);
        }
        for some in [&all[..3], &all[4..280], &all[281..]] {
            assert!(insert(some), "nobody is in the way");
        }
        transaction::make_visible();
        assert_eq!(count("true"), 300);
    }

    #[pg_test]
    fn claims_are_inserted_together_up_to_the_first_that_is_taken() {
        let all = claims(2, 600);
        let claim = |claims: &[ListedHolder], is_taken: &dyn Fn(&Key) -> bool| {
            let mut fresh = 0;
            let is_taken = |index: usize| is_taken(&claims[index].key);
            let done = claim_or_lock_directly(claims, is_taken, true, |_| fresh += 1);
            (done, fresh)
        };
        assert_eq!(claim(&all[500..510], &|_| false), (10, 10));
        let is_known = |key: &Key| all[500..510].iter().any(|claim| claim.key == *key);
        assert_eq!(claim(&all, &is_known), (600, 590));
        assert_eq!(count("true"), 600);
        let in_subtransaction = "xmin <> pg_current_xact_id()::xid";
        assert_eq!(count(in_subtransaction), 500);
        // Of one of these the look knew nothing: one by one.
        let all = claims(3, 300);
        assert_eq!(claim(&all[200..201], &|_| false), (1, 1));
        assert_eq!(claim(&all, &|_| false), (300, 299));
        assert_eq!(count("true"), 900);
        assert_eq!(count(in_subtransaction), 500);
    }

    #[pg_test]
    fn a_key_whose_claim_is_gone_is_free() {
        let all = claims(4, 4);
        let keys: Vec<Key> = all.iter().map(|claim| claim.key).collect();
        assert_eq!(claim_or_lock_directly(&all[..3], |_| false, true, |_| ()), 3);
        Spi::run("DELETE FROM jobs.unique_claim WHERE jobs[1] = 1").expect("delete");
        assert_eq!(look::claimed(&keys), Some(vec![keys[0], keys[2]]));
        // As if they had all been known to have one.
        let mut fresh = Vec::new();
        let done = claim_or_lock_directly(&all, |_| true, false, |index| fresh.push(index));
        assert_eq!((done, fresh), (4, vec![1, 3]));
        assert_eq!(look::claimed(&keys), Some(keys));
    }
}
