//! What the maintenance tasks look for and clear away. Every statement takes a bounded
//! number of rows, skips what somebody else has locked, and leaves rows alone whose job
//! is not there: while a dump is being restored it may yet come.

use std::collections::{BTreeSet, HashSet};

use jobs_core::key::Key;
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::claims::{self, key_array};
use super::shapes;
use super::spi::{Arg, Plan, Tuples, bigs, text};
use super::types::*;
use crate::fault::{self, Fault};
use crate::pg::array;
use crate::pg::table::{self, Deleted, Seen, Shape, Table};

/// Queues that have due jobs.
pub fn queues_with_due(now: i64) -> Vec<String> {
    QUEUES_WITH_DUE.run(&[big(now)], |rows| {
        (0..rows.len())
            .filter_map(|row| rows.text(row, 1))
            .collect()
    })
}

/// Jobs of a queue that are due, but not these.
pub fn due(queue: &str, now: i64, limit: i64, but: &[i64]) -> Vec<i64> {
    ids(&DUE, &[text(queue), big(now), big(limit), bigs(but)])
}

/// Discards available and waiting jobs whose `expires_at` has passed, but not these; how many.
pub fn expire(now: i64, limit: i64, details: Datum, but: &[i64]) -> usize {
    [&EXPIRE_READY, &EXPIRE_SCHEDULED]
        .into_iter()
        .map(|plan| plan.execute(&[big(now), big(limit), bigs(but), Some(details)]))
        .sum()
}

/// Those jobs, but not these.
pub fn expired(now: i64, limit: i64, but: &[i64]) -> Vec<i64> {
    [&EXPIRED_READY, &EXPIRED_SCHEDULED]
        .into_iter()
        .flat_map(|plan| ids(plan, &[big(now), big(limit), bigs(but)]))
        .collect()
}

/// A lease that ran out, locked.
pub struct Expired {
    /// the job
    pub id: i64,
    /// its current token
    pub token: i64,
    /// whether the attempt's time is over, not just its lease
    pub timed_out: bool,
}

/// Whose leases are meant.
pub enum Leases<'a> {
    /// this job's
    Of(i64),
    /// those of all jobs but these
    But(&'a [i64]),
}

/// Leases that ran out, oldest ids first.
pub fn expired_leases(now: i64, limit: i64, leases: &Leases) -> Vec<Expired> {
    let (plan, whose) = match leases {
        Leases::Of(id) => (&EXPIRED_LEASE_OF, big(*id)),
        Leases::But(ids) => (&EXPIRED_LEASES, bigs(ids)),
    };
    plan.run(&[big(now), big(limit), whose], |rows| {
        (0..rows.len())
            .map(|row| Expired {
                id: rows.big(row, 1).expect("id"),
                token: rows.big(row, 2).expect("token"),
                timed_out: rows.bool(row, 3).expect("flag"),
            })
            .collect()
    })
}

/// Which queues' jobs are meant.
#[derive(Hash)]
pub enum Queues<'a> {
    /// this one's
    One(&'a str),
    /// all others'
    AllBut(&'a [String]),
}

/// A final job that is to go.
pub struct Old {
    /// its id
    pub id: i64,
    /// the key that it was inserted under
    pub key: Option<Key>,
    /// when it became final
    pub finalized_at: i64,
    /// some attempt of it may have failed
    pub may_have_errors: bool,
}

/// Final jobs of a state that became so after `since` and before `horizon`, but not these, locked, oldest first.
pub fn past_retention(
    queues: &Queues,
    state: State,
    since: i64,
    horizon: i64,
    limit: i64,
    but: &[i64],
) -> Vec<Old> {
    let (plan, queues) = match queues {
        Queues::One(queue) => (&PAST_RETENTION_OF_ONE, text(queue)),
        Queues::AllBut(queues) => {
            let queues: Vec<Arg> = queues.iter().map(|queue| text(queue)).collect();
            (&PAST_RETENTION, Some(array::build(TEXT, &queues)))
        }
    };
    let args = [
        text(state.as_str()),
        big(horizon),
        big(limit),
        bigs(but),
        queues,
        big(since),
    ];
    plan.run(&args, |rows| {
        (0..rows.len())
            .map(|row| Old {
                id: rows.big(row, 1).expect("id"),
                key: rows.bytes(row, 2).and_then(|bytes| Key::from_bytes(&bytes)),
                finalized_at: rows.big(row, 3).expect("it is not null"),
                may_have_errors: rows.bool(row, 4).expect("it is not null"),
            })
            .collect()
    })
}

/// Deletes final jobs with all that belongs to them. The caller has locked them.
pub fn erase_finished(jobs: &[Old]) {
    let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    for (plan, shape) in [
        (&ERASE_FINISHED, &shapes::FINISHED),
        (&ERASE_JOBS, &shapes::JOB),
    ] {
        let left = erase_directly(shape, &ids).unwrap_or_else(|| ids.clone());
        if !left.is_empty() {
            plan.execute(&[bigs(&left)]);
        }
    }
    // A job that was completed at its first attempt has not failed.
    let failed: Vec<i64> = jobs
        .iter()
        .filter(|job| job.may_have_errors)
        .map(|job| job.id)
        .collect();
    if !failed.is_empty() {
        ERASE_ERRORS.execute(&[bigs(&failed)]);
    }
    ERASE_ANSWERS.execute(&[bigs(&ids)]);
}

/// Deletes the rows of these jobs without a statement; those that somebody has changed meanwhile. `None`: the table is not
/// as it was made.
fn erase_directly(shape: &'static Shape, ids: &[i64]) -> Option<Vec<i64>> {
    let table = Table::open(shape)?;
    table::make_visible();
    let seen = Seen::now();
    let mut scan = table.scan(&shape.key, &seen, 1);
    let mut left = Vec::new();
    for id in ids {
        pgrx::check_for_interrupts!();
        scan.find(&[table::Key::big(1, *id)]);
        if let Some(row) = scan.next() {
            let deleted = table.delete(&row, true);
            deleted.fail_to_serialize();
            left.extend((deleted == Deleted::Moved).then_some(*id));
        }
    }
    drop(scan);
    drop(seen);
    table::make_visible();
    Some(left)
}

/// Deletes remembered answers from before `horizon`; how many.
pub fn forget_answers(horizon: i64, limit: i64) -> usize {
    FORGET_ANSWERS.execute(&[big(horizon), big(limit)])
}

/// Claims that were locked, and those that could not be, because somebody is at work on
/// them. A key in neither has no claim.
#[derive(Default)]
pub struct Claims {
    /// locked until the end of the transaction
    pub locked: BTreeSet<Key>,
    /// somebody else's
    pub busy: BTreeSet<Key>,
    /// the jobs in the lists of those that were locked and list no hold
    lists: Vec<(Key, Vec<i64>)>,
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
    let key = |rows: &Tuples, row| Key::from_bytes(&rows.bytes(row, 1)?);
    LOCK_CLAIMS.run(&[Some(key_array(&list))], |rows| {
        for row in 0..rows.len() {
            let Some(key) = key(rows, row) else {
                continue;
            };
            claims.locked.insert(key);
            if let Some(jobs) = rows.bigs(row, 2) {
                claims.lists.push((key, jobs));
            }
        }
    });
    if claims.locked.len() < keys.len() {
        let existing: BTreeSet<Key> = EXISTING_CLAIMS.run(&[Some(key_array(&list))], |rows| {
            (0..rows.len()).filter_map(|row| key(rows, row)).collect()
        });
        claims.busy = existing.difference(&claims.locked).copied().collect();
    }
    claims
}

/// The same as [`reap_claims`] after some jobs have gone. Where a list has none but those, and nothing stands beside it,
/// nobody has to look for others: whoever adds a job to a list has its claim locked.
pub fn reap_claims_of(claims: &Claims, gone: &HashSet<i64>, now: i64) {
    let is_gone = |(_, jobs): &&(Key, Vec<i64>)| jobs.iter().all(|id| gone.contains(id));
    let empty: Vec<Key> = claims
        .lists
        .iter()
        .filter(is_gone)
        .map(|(key, _)| *key)
        .collect();
    let beside: BTreeSet<Key> = match empty.is_empty() {
        true => BTreeSet::new(),
        false => BESIDE_CLAIMS.run(&[Some(key_array(&empty))], |rows| {
            let key = |row| Key::from_bytes(&rows.bytes(row, 1)?);
            (0..rows.len()).filter_map(key).collect()
        }),
    };
    let alone: Vec<Key> = empty
        .into_iter()
        .filter(|key| !beside.contains(key))
        .collect();
    let mut rest = claims.locked.clone();
    if !alone.is_empty() {
        DELETE_CLAIMS.execute(&[Some(key_array(&alone))]);
        for key in &alone {
            rest.remove(key);
        }
    }
    reap_claims(&rest, now);
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

/// When the first job of a state became final after `since`.
pub fn oldest_final(state: State, since: i64) -> Option<i64> {
    OLDEST_FINAL.run(&[text(state.as_str()), big(since)], |rows| rows.big(0, 1))
}

/// When something will be due next for maintenance, but for final jobs. What is only to be cleared away can
/// wait for the next pass.
pub fn next_due() -> Option<i64> {
    NEXT_DUE.run(&[], |rows| rows.big(0, 1))
}

fn big(value: i64) -> Arg {
    Some(Datum::from(value))
}

fn ids(plan: &Plan, args: &[Arg]) -> Vec<i64> {
    plan.run(args, |rows| {
        (0..rows.len()).filter_map(|row| rows.big(row, 1)).collect()
    })
}

fn keys(plan: &Plan, args: &[Arg]) -> Vec<Key> {
    plan.run(args, |rows| {
        (0..rows.len())
            .filter_map(|row| Key::from_bytes(&rows.bytes(row, 1)?))
            .collect()
    })
}

// Walks from queue to queue along the index instead of reading all that waits.
macro_rules! scheduled_queues {
    () => {
        "WITH RECURSIVE q AS (
           (SELECT queue FROM jobs.scheduled ORDER BY queue LIMIT 1)
           UNION ALL
           SELECT (SELECT s.queue FROM jobs.scheduled s WHERE s.queue > q.queue ORDER BY s.queue LIMIT 1)
             FROM q WHERE q.queue IS NOT NULL) "
    };
}

static QUEUES_WITH_DUE: Plan = Plan::new(
    concat!(
        scheduled_queues!(),
        "SELECT q.queue FROM q WHERE q.queue IS NOT NULL
            AND EXISTS (SELECT FROM jobs.scheduled s WHERE s.queue = q.queue AND s.due_at <= $1)"
    ),
    &[AT],
);

static DUE: Plan = Plan::new(
    "SELECT s.job_id FROM jobs.scheduled s WHERE s.queue = $1 AND s.due_at <= $2 AND s.job_id <> ALL ($4)
        AND EXISTS (SELECT FROM jobs.job j WHERE j.id = s.job_id)
      ORDER BY s.due_at LIMIT $3 FOR UPDATE SKIP LOCKED",
    &[TEXT, AT, INT8, INT8S],
);

// Locked: what a column is of each.
macro_rules! expired {
    ($column:literal, $table:literal) => {
        concat!(
            "SELECT t.",
            $column,
            " FROM ",
            $table,
            " t WHERE t.expires_at <= $1 AND t.job_id <> ALL ($3)
                AND EXISTS (SELECT FROM jobs.job j WHERE j.id = t.job_id) LIMIT $2 FOR UPDATE SKIP LOCKED"
        )
    };
}
static EXPIRED_READY: Plan = Plan::new(expired!("job_id", "jobs.ready"), &[AT, INT8, INT8S]);
static EXPIRED_SCHEDULED: Plan =
    Plan::new(expired!("job_id", "jobs.scheduled"), &[AT, INT8, INT8S]);

macro_rules! expire {
    ($table:literal, $scheduled_at:literal) => {
        concat!(
            "WITH gone AS MATERIALIZED (
               DELETE FROM ",
            $table,
            "
                WHERE ctid = ANY (ARRAY(",
            expired!("ctid", $table),
            "))
               RETURNING job_id, attempt, ",
            $scheduled_at,
            " AS scheduled_at),
             outcome AS (
               INSERT INTO jobs.finished (job_id, finalized_at, state, attempt, scheduled_at)
               SELECT job_id, $1, 'discarded', attempt, scheduled_at FROM gone)
             INSERT INTO jobs.error (job_id, at, attempt, state, error, details)
             SELECT job_id, $1, attempt, 'discarded', 'expired', $4 FROM gone"
        )
    };
}
static EXPIRE_READY: Plan = Plan::new(
    expire!("jobs.ready", "scheduled_at"),
    &[AT, INT8, INT8S, JSONB],
);
static EXPIRE_SCHEDULED: Plan = Plan::new(
    expire!("jobs.scheduled", "NULLIF(due_at, 'infinity')"),
    &[AT, INT8, INT8S, JSONB],
);

macro_rules! expired_leases {
    ($whose:literal) => {
        concat!(
            "SELECT r.job_id, r.token, COALESCE(r.lease_expires_at >= r.deadline_at, false)
               FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
              WHERE r.lease_expires_at <= $1 AND r.job_id ",
            $whose,
            " ORDER BY r.job_id LIMIT $2 FOR UPDATE OF r SKIP LOCKED"
        )
    };
}
static EXPIRED_LEASES: Plan = Plan::new(expired_leases!("<> ALL ($3)"), &[AT, INT8, INT8S]);
static EXPIRED_LEASE_OF: Plan = Plan::new(expired_leases!("= $3"), &[AT, INT8, INT8]);

macro_rules! past_retention {
    ($queues:literal) => {
        concat!(
            "SELECT f.job_id, j.unique_key, f.finalized_at, f.attempt > 1 OR f.state <> 'completed'
               FROM jobs.finished f JOIN jobs.job j ON j.id = f.job_id
              WHERE f.state = $1::jobs.state AND f.finalized_at > $6 AND f.finalized_at <= $2 AND f.job_id <> ALL ($4) AND j.queue ",
            $queues,
            " ORDER BY f.finalized_at LIMIT $3 FOR UPDATE OF f SKIP LOCKED"
        )
    };
}
static PAST_RETENTION: Plan = Plan::new(
    past_retention!("<> ALL ($5)"),
    &[TEXT, AT, INT8, INT8S, TEXTS, AT],
);
static PAST_RETENTION_OF_ONE: Plan =
    Plan::new(past_retention!("= $5"), &[TEXT, AT, INT8, INT8S, TEXT, AT]);
static ERASE_FINISHED: Plan = Plan::new(
    "DELETE FROM jobs.finished WHERE job_id = ANY ($1)",
    &[INT8S],
);
static ERASE_JOBS: Plan = Plan::new("DELETE FROM jobs.job WHERE id = ANY ($1)", &[INT8S]);
static ERASE_ERRORS: Plan = Plan::new("DELETE FROM jobs.error WHERE job_id = ANY ($1)", &[INT8S]);
static ERASE_ANSWERS: Plan = Plan::new("DELETE FROM jobs.answer WHERE job_id = ANY ($1)", &[INT8S]);
static FORGET_ANSWERS: Plan = Plan::new(
    "DELETE FROM jobs.answer WHERE ctid = ANY (ARRAY(
       SELECT a.ctid FROM jobs.answer a WHERE a.at <= $1 ORDER BY a.at LIMIT $2 FOR UPDATE SKIP LOCKED))",
    &[AT, INT8],
);

static LOCK_CLAIMS: Plan = Plan::new(
    "SELECT c.key, CASE WHEN c.hold_ends_at IS NULL THEN c.jobs END
       FROM jobs.unique_claim c WHERE c.key = ANY ($1) ORDER BY c.key FOR UPDATE SKIP LOCKED",
    &[BYTEAS],
);
static BESIDE_CLAIMS: Plan = Plan::new(
    "SELECT u.key FROM jobs.unique_folded u WHERE u.key = ANY ($1)
     UNION ALL
     SELECT u.key FROM jobs.unique_return u WHERE u.key = ANY ($1)",
    &[BYTEAS],
);
static DELETE_CLAIMS: Plan = Plan::new(
    "DELETE FROM jobs.unique_claim WHERE key = ANY ($1)",
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

static NEXT_DUE: Plan = Plan::new(
    concat!(
        scheduled_queues!(),
        "SELECT LEAST(
           (SELECT min((SELECT s.due_at FROM jobs.scheduled s WHERE s.queue = q.queue ORDER BY s.due_at LIMIT 1))
              FROM q WHERE q.queue IS NOT NULL),
           (SELECT min(lease_expires_at) FROM jobs.running),
           (SELECT min(expires_at) FROM jobs.ready WHERE expires_at IS NOT NULL),
           (SELECT min(expires_at) FROM jobs.scheduled WHERE expires_at IS NOT NULL),
           (SELECT min(next_run_at) FROM jobs.periodic_schedule))"
    ),
    &[],
);
static OLDEST_FINAL: Plan = Plan::new(
    "SELECT min(f.finalized_at) FROM jobs.finished f WHERE f.state = $1::jobs.state AND f.finalized_at > $2",
    &[TEXT, AT],
);
