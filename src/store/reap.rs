//! Claims that no job needs any more, and what stands beside claims. What somebody else has locked is skipped.

use std::collections::{BTreeSet, HashSet};

use jobs_core::key::Key;

use super::claims::{self, key_array};
use super::direct::shapes::{self, claim};
use super::spi::{Arg, Plan, big};
use super::types::*;
use crate::fault::{self, Fault};
use crate::pg::page_lookup::PageLookup;
use crate::pg::row::{Row, Tid};
use crate::pg::scan::Seen;
use crate::pg::table::{self, Deleted, Table};
use crate::pg::transaction;

/// Claims that were locked, and those that could not be, because somebody is at work on
/// them. A key in neither has no claim.
#[derive(Default)]
pub struct Claims {
    /// locked until the end of the transaction
    pub locked: BTreeSet<Key>,
    /// somebody else's
    pub busy: BTreeSet<Key>,
}

/// Locks the claims of these keys that nobody is at work on.
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
    let read = |plan: &Plan| -> BTreeSet<Key> {
        plan.run(&[Some(key_array(&list))], |rows| {
            let key = |row| Key::from_bytes(&rows.bytes(row, 1)?);
            (0..rows.len()).filter_map(key).collect()
        })
    };
    claims.locked = read(&LOCK_CLAIMS);
    if claims.locked.len() < keys.len() {
        let existing = read(&EXISTING_CLAIMS);
        claims.busy = existing.difference(&claims.locked).copied().collect();
    }
    claims
}

/// Deletes the claims of these keys that list no other jobs than those that are going, and no hold, where nothing stands
/// beside them; the keys that were not dealt with, and those that somebody is at work on. No look for other jobs is needed:
/// whoever adds one to the list of a key writes the claim's row, and it is this row that is looked at and deleted.
pub fn delete_claims_of(
    keys: BTreeSet<Key>,
    going: &HashSet<i64>,
) -> (BTreeSet<Key>, BTreeSet<Key>) {
    if fault::is_on(Fault::ReapInOneStatement) || !transaction::is_read_committed() {
        return (keys, BTreeSet::new());
    }
    delete_claims(&keys, going).unwrap_or((keys, BTreeSet::new()))
}

/// What is to become of a claim whose jobs are going.
enum Going {
    /// somebody is at work on it
    Busy,
    /// it lists other jobs, or a hold; or that is not certain
    Needed,
    /// nothing in it is left; where it is
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
        let now = lookup.take(key, || claims::key_is(*key));
        // Of an update that commits right now, neither version may be met: a snapshot is to tell.
        (*key, now.unwrap_or(Going::Needed))
    };
    keys.iter().map(claim).collect()
}

/// Without a statement; `None` if some table is not as it was made.
fn delete_claims(
    keys: &BTreeSet<Key>,
    going: &HashSet<i64>,
) -> Option<(BTreeSet<Key>, BTreeSet<Key>)> {
    let claims = Table::open(&shapes::UNIQUE_CLAIM)?;
    let aside = Table::open_to_read(&shapes::UNIQUE_FOLDED, &shapes::UNIQUE_FOLDED.key)?;
    let returns = Table::open_to_read(&shapes::UNIQUE_RETURN, &shapes::UNIQUE_RETURN.key)?;
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
    // What stands beside them is looked at after the claims were: who puts a job aside changes the claim, which is then not
    // deleted; and a job that comes back is listed, so that it is not going, or was put aside.
    let nothing_beside =
        aside.is_empty(&shapes::UNIQUE_FOLDED.key) && returns.is_empty(&shapes::UNIQUE_RETURN.key);
    let seen = [Seen::dirty(), Seen::dirty()];
    let mut beside = [
        aside.scan(&shapes::UNIQUE_FOLDED.key, &seen[0], 1),
        returns.scan(&shapes::UNIQUE_RETURN.key, &seen[1], 1),
    ];
    superfluous.retain(|(key, _)| {
        pgrx::check_for_interrupts!();
        let is_beside = !nothing_beside
            && beside.iter_mut().any(|scan| {
                scan.find(&[claims::key_is(*key)]);
                scan.next().is_some()
            });
        if is_beside {
            rest.insert(*key);
        }
        !is_beside
    });
    for together in superfluous.chunks(table::TOGETHER) {
        pgrx::check_for_interrupts!();
        let rows = together.iter().map(|(_, row)| *row).collect();
        for ((key, _), deleted) in together.iter().zip(claims.delete_each(rows, false)) {
            if deleted != Deleted::Done {
                busy.insert(*key);
            }
        }
    }
    drop(beside);
    transaction::make_visible();
    Some((rest, busy))
}

/// Deletes those claims under which neither a job nor a hold is left. Those that
/// have a hold left are noted for when it runs out. The caller has locked all of them.
///
/// It has to be a statement of its own, after the locking: it looks with a snapshot in
/// which everything is visible that the lock waited out. In one statement with the
/// locking it would look with the older snapshot and delete the claim of a live job.
pub fn reap_claims(keys: &BTreeSet<Key>, now: i64) {
    if keys.is_empty() {
        return;
    }
    let list: Vec<Key> = keys.iter().copied().collect();
    let args = [Some(key_array(&list)), big(now)];
    NOTE_HELD.execute(&args);
    let (mut reaped, mut jobs) = (Vec::new(), Vec::new());
    REAP_CLAIMS.run(&args, |rows| {
        for row in 0..rows.len() {
            reaped.extend(Key::from_bytes(
                &rows.bytes(row, 1).expect("keys are not null"),
            ));
            jobs.extend(rows.big(row, 2));
        }
    });
    // With a claim goes what stands beside it: of jobs that are gone by now.
    let reaped = Some(key_array(&reaped));
    for plan in [&FORGET_ASIDE, &FORGET_RETURNS] {
        plan.execute(&[reaped]);
    }
    claims::forget_releases(&jobs);
}

/// Deletes what stands beside claims and is of no use: of jobs that are gone, and more than one
/// note that a job came back. The caller has locked all of them.
pub fn tidy_claims(keys: &BTreeSet<Key>) {
    let list: Vec<Key> = keys.iter().copied().collect();
    for plan in [&TIDY_ASIDE, &TIDY_RETURNS] {
        plan.execute(&[Some(key_array(&list))]);
    }
}

/// Keys that maintenance was to look at by now, but not these, a key a note; the notes are taken away.
pub fn take_orphans(now: i64, limit: i64, but: &[Key]) -> Vec<Key> {
    keys(&TAKE_ORPHANS, &[big(now), big(limit), Some(key_array(but))])
}

/// Those keys, but not these.
pub fn orphans(now: i64, limit: i64, but: &[Key]) -> Vec<Key> {
    keys(&ORPHANS, &[big(now), big(limit), Some(key_array(but))])
}

/// The same for one key: as often as there was a note.
pub fn take_notes_of(now: i64, key: Key) -> Vec<Key> {
    keys(&TAKE_NOTES_OF, &[big(now), Some(key_array(&[key]))])
}

/// Deletes what tells that holds were given back which would have run out before `horizon`; how many.
pub fn forget_releases(horizon: i64, limit: i64) -> usize {
    FORGET_RELEASES.execute(&[big(horizon), big(limit)])
}

fn keys(plan: &Plan, args: &[Arg]) -> Vec<Key> {
    plan.run(args, |rows| {
        (0..rows.len())
            .filter_map(|row| Key::from_bytes(&rows.bytes(row, 1)?))
            .collect()
    })
}

static LOCK_CLAIMS: Plan = Plan::new(
    "SELECT c.key FROM jobs.unique_claim c WHERE c.key = ANY ($1) ORDER BY c.key FOR UPDATE SKIP LOCKED",
    &[BYTEAS],
);
static EXISTING_CLAIMS: Plan = Plan::new(
    "SELECT c.key FROM jobs.unique_claim c WHERE c.key = ANY ($1)",
    &[BYTEAS],
);
macro_rules! without_job {
    () => {
        " FROM jobs.unique_claim c
           CROSS JOIN LATERAL (
             SELECT max(u.ends_at) AS ends_at FROM unnest(c.jobs, c.hold_ends_at) AS u(id, ends_at)
              WHERE u.ends_at > $2 AND NOT EXISTS (SELECT FROM jobs.unique_hold_release r WHERE r.job_id = u.id)) hold
          WHERE c.key = ANY ($1)
            AND NOT EXISTS (SELECT FROM unnest(c.jobs) AS u(id) JOIN jobs.job j ON j.id = u.id)
            AND NOT EXISTS (SELECT FROM jobs.unique_folded u JOIN jobs.job j ON j.id = u.job_id WHERE u.key = c.key)
            AND NOT EXISTS (SELECT FROM jobs.unique_return u JOIN jobs.job j ON j.id = u.job_id WHERE u.key = c.key)"
    };
}
static NOTE_HELD: Plan = Plan::new(
    concat!(
        "INSERT INTO jobs.unique_orphan (key, due_at) SELECT c.key, hold.ends_at",
        without_job!(),
        " AND hold.ends_at IS NOT NULL"
    ),
    &[BYTEAS, AT],
);
static REAP_CLAIMS: Plan = Plan::new(
    concat!(
        "WITH reaped AS (DELETE FROM jobs.unique_claim WHERE key IN (SELECT c.key",
        without_job!(),
        " AND hold.ends_at IS NULL) RETURNING key, jobs)
         SELECT key, unnest(jobs) FROM reaped"
    ),
    &[BYTEAS, AT],
);
static FORGET_ASIDE: Plan = Plan::new(
    "DELETE FROM jobs.unique_folded WHERE key = ANY ($1)",
    &[BYTEAS],
);
static FORGET_RETURNS: Plan = Plan::new(
    "DELETE FROM jobs.unique_return WHERE key = ANY ($1)",
    &[BYTEAS],
);
static TIDY_ASIDE: Plan = Plan::new(
    "DELETE FROM jobs.unique_folded u WHERE u.key = ANY ($1) AND NOT EXISTS (SELECT FROM jobs.job j WHERE j.id = u.job_id)",
    &[BYTEAS],
);
static TIDY_RETURNS: Plan = Plan::new(
    "WITH notes AS MATERIALIZED (
       SELECT u.key, u.seq, row_number() OVER (PARTITION BY u.key, u.job_id ORDER BY u.seq DESC) > 1
                OR NOT EXISTS (SELECT FROM jobs.job j WHERE j.id = u.job_id) AS superfluous
         FROM jobs.unique_return u WHERE u.key = ANY ($1))
     DELETE FROM jobs.unique_return u USING notes n WHERE n.superfluous AND u.key = n.key AND u.seq = n.seq",
    &[BYTEAS],
);
macro_rules! orphans {
    ($column:literal) => {
        concat!(
            "SELECT o.",
            $column,
            " FROM jobs.unique_orphan o WHERE o.due_at <= $1 AND o.key <> ALL ($3) ORDER BY o.due_at LIMIT $2 FOR UPDATE SKIP LOCKED"
        )
    };
}
static ORPHANS: Plan = Plan::new(orphans!("key"), &[AT, INT8, BYTEAS]);
static TAKE_ORPHANS: Plan = Plan::new(
    concat!(
        "DELETE FROM jobs.unique_orphan WHERE ctid = ANY (ARRAY(",
        orphans!("ctid"),
        ")) RETURNING key"
    ),
    &[AT, INT8, BYTEAS],
);
static TAKE_NOTES_OF: Plan = Plan::new(
    "DELETE FROM jobs.unique_orphan WHERE ctid = ANY (ARRAY(
       SELECT o.ctid FROM jobs.unique_orphan o WHERE o.due_at <= $1 AND o.key = ANY ($2) FOR UPDATE SKIP LOCKED))
     RETURNING key",
    &[AT, BYTEAS],
);
static FORGET_RELEASES: Plan = Plan::new(
    "DELETE FROM jobs.unique_hold_release WHERE ctid = ANY (ARRAY(
       SELECT r.ctid FROM jobs.unique_hold_release r WHERE r.hold_ends_at <= $1 ORDER BY r.hold_ends_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
    &[AT, INT8],
);
