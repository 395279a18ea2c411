//! What the maintenance tasks look for and clear away. Every statement takes a bounded
//! number of rows, skips what somebody else has locked, and leaves rows alone whose job
//! is not there: while a dump is being restored it may yet come.

use std::collections::{BTreeSet, HashSet};

use jobs_core::key::Key;
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::claims::{self, key_array};
use super::shapes::{self, claim, finished, job, ready, running, scheduled};
use super::spi::{Arg, Plan, bigs, text, texts};
use super::types::*;
use super::{fetch, lanes};
use crate::fault::{self, Fault};
use crate::pg::nearby::Nearby;
use crate::pg::table::{self, Deleted, Name, Row, Scan, Seen, Shape, Table, Tid};
use crate::pg::time;
use crate::worker::leases;

/// Queues that have due jobs, as far as they may be left from their floors on.
pub fn queues_with_due_from_floor(now: i64) -> Vec<String> {
    let Some(mut queues) = lanes::scheduled_queues() else {
        return queues_with_due(now);
    };
    queues.retain(|queue| fetch::has_due(queue, now));
    queues
}

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
    // Planned while hardly any job expires, the statements read all that waits.
    let is_due = |first: Option<Option<i64>>| first.is_none_or(|at| at.is_some_and(|at| at <= now));
    [
        (&EXPIRE_READY, first_ready_to_expire as fn() -> _),
        (&EXPIRE_SCHEDULED, first_scheduled_to_expire),
    ]
    .into_iter()
    .filter(|(_, first)| is_due(first()))
    .map(|(plan, _)| plan.execute(&[big(now), big(limit), bigs(but), Some(details)]))
    .sum()
}

/// When the first available job expires; `None`: use a statement.
fn first_ready_to_expire() -> Option<Option<i64>> {
    first_along(&shapes::READY, &shapes::READY_EXPIRES, ready::EXPIRES_AT)
}

/// When the first waiting job expires; `None`: use a statement.
fn first_scheduled_to_expire() -> Option<Option<i64>> {
    let index = &shapes::SCHEDULED_EXPIRES;
    first_along(&shapes::SCHEDULED, index, scheduled::EXPIRES_AT)
}

/// The column's value in the first row along an index.
fn first_along(shape: &'static Shape, index: &Name, column: i32) -> Option<Option<i64>> {
    let table = Table::open_to_read(shape, index)?;
    table::make_visible();
    let seen = lanes::seen();
    let mut scan = table.scan(index, &seen, 0);
    scan.find(&[]);
    Some(scan.next().and_then(|row| row.big(column)))
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
pub fn expired_leases(now: i64, limit: i64, whose: &Leases) -> Vec<Expired> {
    let (plan, whose) = match whose {
        Leases::Of(id) => (&EXPIRED_LEASES_OF, bigs(&[*id])),
        Leases::But(but) => match find_expired(now, limit, but) {
            Some(ids) if ids.is_empty() => return Vec::new(),
            Some(ids) => (&EXPIRED_LEASES_OF, bigs(&ids)),
            None => (&EXPIRED_LEASES, bigs(but)),
        },
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

/// Jobs whose leases ran out, but not these; `None`: use a statement.
fn find_expired(now: i64, limit: i64, but: &[i64]) -> Option<Vec<i64>> {
    if leases::none_before().is_some_and(|until| until > now) {
        return Some(Vec::new());
    }
    let but: HashSet<i64> = but.iter().copied().collect();
    let mut expired = Vec::new();
    read_leases(|found, id, ends_at, is_in_progress| {
        if ends_at > now {
            found.first = found.first.min(ends_at);
            return;
        }
        // Also somebody may have it locked.
        found.has_stuck = true;
        if !is_in_progress && !but.contains(&id) {
            expired.push(id);
        }
        if expired.len() as i64 > limit {
            // The next round deals with more of them.
            found.first = now;
        }
    })?;
    expired.sort_unstable();
    Some(expired)
}

/// When the first lease ends; `None`: use a statement.
fn first_lease() -> Option<Option<i64>> {
    let now = time::now();
    let found = read_leases(|found, _, ends_at, is_in_progress| {
        if is_in_progress && ends_at <= now {
            found.has_stuck = true;
        } else {
            found.first = found.first.min(ends_at);
        }
    })?;
    Some(Some(found.first).filter(|at| *at != leases::NEVER))
}

/// Reads `running`: hands over each job, the end of its lease, and whether somebody is just writing that, to be added to what is
/// found. `None`: use a statement.
fn read_leases(mut add: impl FnMut(&mut leases::Found, i64, i64, bool)) -> Option<leases::Found> {
    let table = Table::open_to_read(&shapes::RUNNING, &shapes::RUNNING.key)?;
    table::make_visible();
    Some(leases::read_with(|found| {
        table.for_each(&lanes::seen(), |row| {
            let id = row.big(running::JOB_ID).expect("it is not null");
            let ends_at = row.big(running::LEASE_EXPIRES_AT).expect("it is not null");
            add(found, id, ends_at, row.is_in_progress);
        });
    }))
}

/// Which queues' jobs are meant.
#[derive(Hash)]
pub enum Queues<'a> {
    /// this one's
    One(&'a str),
    /// all others'
    AllBut(&'a [String]),
}

impl Queues<'_> {
    /// Whether a job is meant, whose queue this tells. It is not asked where that makes no difference.
    fn include(&self, queue: impl FnOnce() -> String) -> bool {
        match self {
            Queues::One(one) => queue() == *one,
            Queues::AllBut(others) => others.is_empty() || !others.contains(&queue()),
        }
    }
}

/// A final job that goes.
pub struct Old {
    /// its id
    pub id: i64,
    /// the key that it was inserted under
    pub key: Option<Key>,
}

/// Final jobs past their retention, from the oldest on.
#[derive(Default)]
pub struct PastRetention {
    /// those that can go
    pub jobs: Vec<Old>,
    /// when the first one became final that could not be deleted just now: somebody has it locked, or it comes or goes with
    /// a transaction that is still open
    pub first_busy: Option<i64>,
    /// when the latest of all became final
    pub latest: i64,
}

impl PastRetention {
    /// One that became final then could not be deleted just now.
    fn note_busy(&mut self, finalized_at: i64) {
        let first = self.first_busy.get_or_insert(finalized_at);
        *first = finalized_at.min(*first);
    }
}

/// Up to so many final jobs of a state that became so after `since` and before `horizon`, but not these: locked.
pub fn past_retention(
    queues: &Queues,
    state: State,
    since: i64,
    horizon: i64,
    limit: i64,
    but: &[i64],
) -> PastRetention {
    let (plan, queues) = match queues {
        Queues::One(queue) => (&PAST_RETENTION_OF_ONE, text(queue)),
        Queues::AllBut(queues) => (&PAST_RETENTION, texts(queues)),
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
        let old = |row| Old {
            id: rows.big(row, 1).expect("id"),
            key: rows.bytes(row, 2).and_then(|bytes| Key::from_bytes(&bytes)),
        };
        let last = rows.len().checked_sub(1);
        PastRetention {
            jobs: (0..rows.len()).map(old).collect(),
            first_busy: None,
            latest: last.and_then(|last| rows.big(last, 3)).unwrap_or(horizon),
        }
    })
}

/// So many rows are looked for, then deleted: each of these finds its code in the processor's caches.
const TOGETHER: usize = 256;

/// The same, and deletes them with all that belongs to them but their claims. `None`: use statements.
pub fn erase_past_retention(
    queues: &Queues,
    state: State,
    since: i64,
    horizon: i64,
    limit: i64,
    but: &[i64],
) -> Option<PastRetention> {
    if !table::is_read_committed() {
        return None;
    }
    let finished =
        Table::open(&shapes::FINISHED).filter(|table| table.has(&shapes::FINISHED_BY_AGE))?;
    let jobs = Table::open(&shapes::JOB)?;
    table::make_visible();
    let (dirty, seen) = (Seen::dirty(), Seen::now());
    let mut scan = finished.scan(&shapes::FINISHED_BY_AGE, &dirty, 3);
    let read_job = |row: &Row| {
        let is_meant = queues.include(|| row.text(job::QUEUE).expect("it is not null"));
        let key = row.bytes(job::UNIQUE_KEY).and_then(Key::from_bytes);
        let id = row.big(job::ID).expect("it is not null");
        Some((id, (is_meant, key, row.tid())))
    };
    let mut nearby = Nearby::new(&jobs, &shapes::JOB.key, &seen, read_job);
    let mut unseen = jobs.scan(&shapes::JOB.key, &dirty, 1);
    scan.find(&[
        table::Key::label(1, finished.label(finished::STATE, state.as_str())),
        table::Key::at_from(2, since.saturating_add(1)),
        table::Key::at_to(2, horizon),
    ]);
    let mut erased = PastRetention::default();
    let mut left = Vec::new();
    let mut most = TOGETHER.min(limit as usize);
    while most > 0 {
        let found = next_final(&mut scan, but, most, &mut erased);
        let is_over = found.len() < most;
        let with_job: Vec<_> = found
            .into_iter()
            .filter_map(|(id, finalized_at, row)| {
                pgrx::check_for_interrupts!();
                let key = || table::Key::big(1, id);
                let Some((is_meant, key, job)) = nearby.take(&id, key) else {
                    // It may have come, together with its end, after the rows were begun to be looked at.
                    unseen.find(&[key()]);
                    if unseen.next().is_some() {
                        erased.note_busy(finalized_at);
                    }
                    return None;
                };
                is_meant.then_some((Old { id, key }, finalized_at, row, job))
            })
            .collect();
        let rows = with_job.iter().map(|(_, _, row, _)| *row).collect();
        let deleted = finished.delete_each(rows, false);
        let mut job_rows = Vec::with_capacity(with_job.len());
        let first_new = erased.jobs.len();
        for ((old, finalized_at, _, job), deleted) in with_job.into_iter().zip(deleted) {
            erased.latest = finalized_at;
            if deleted == Deleted::Done {
                erased.jobs.push(old);
                job_rows.push(job);
            } else {
                erased.note_busy(finalized_at);
            }
        }
        let deleted = jobs.delete_each(job_rows, true);
        for (old, deleted) in erased.jobs[first_new..].iter().zip(deleted) {
            if deleted != Deleted::Done {
                left.push(old.id);
            }
        }
        // A scan that is at its end would begin anew.
        most = match is_over {
            true => 0,
            false => TOGETHER.min(limit as usize - erased.jobs.len()),
        };
    }
    drop((scan, nearby, unseen));
    drop(seen);
    table::make_visible();
    if !left.is_empty() {
        ERASE_JOBS.execute(&[bigs(&left)]);
    }
    erase_notes(&erased.jobs.iter().map(|job| job.id).collect::<Vec<_>>());
    Some(erased)
}

/// The next final jobs of a scan, but not these, with when they became final and where that stands; notes those that come
/// or go with a transaction that is still open.
fn next_final(
    scan: &mut Scan,
    but: &[i64],
    most: usize,
    erased: &mut PastRetention,
) -> Vec<(i64, i64, Tid)> {
    let mut found = Vec::with_capacity(most);
    while found.len() < most
        && let Some(row) = scan.next()
    {
        pgrx::check_for_interrupts!();
        let id = row.big(finished::JOB_ID).expect("it is not null");
        let finalized_at = row.big(finished::FINALIZED_AT).expect("it is not null");
        if but.contains(&id) {
            continue;
        }
        if row.is_in_progress {
            erased.note_busy(finalized_at);
        } else {
            found.push((id, finalized_at, row.tid()));
        }
    }
    found
}

/// Deletes final jobs with all that belongs to them but their claims. The caller has locked them.
pub fn erase_finished(jobs: &[Old]) {
    if jobs.is_empty() {
        return;
    }
    let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    for plan in [&ERASE_FINISHED, &ERASE_JOBS] {
        plan.execute(&[bigs(&ids)]);
    }
    erase_notes(&ids);
}

/// Deletes what was noted of jobs.
fn erase_notes(ids: &[i64]) {
    if ids.is_empty() {
        return;
    }
    for (plan, shape) in [
        (&ERASE_ERRORS, &shapes::ERROR),
        (&ERASE_ANSWERS, &shapes::ANSWER),
    ] {
        let table = Table::open_to_read(shape, &shape.key);
        if table.is_none_or(|table| !table.is_empty(&shape.key)) {
            plan.execute(&[bigs(ids)]);
        }
    }
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
    if fault::is_on(Fault::ReapInOneStatement) || !table::is_read_committed() {
        return (keys, BTreeSet::new());
    }
    delete_claims(&keys, going).unwrap_or((keys, BTreeSet::new()))
}

/// What is to become of a claim whose jobs are going.
enum Going {
    /// somebody is at work on it
    Busy,
    /// it lists other jobs, or a hold
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
    let mut nearby = Nearby::new(claims, &shapes::UNIQUE_CLAIM.key, &seen, read);
    let claim = |key: &Key| {
        pgrx::check_for_interrupts!();
        Some((*key, nearby.take(key, || claims::key_is(*key))?))
    };
    keys.iter().filter_map(claim).collect()
}

/// Without a statement; `None` if some table is not as it was made.
fn delete_claims(
    keys: &BTreeSet<Key>,
    going: &HashSet<i64>,
) -> Option<(BTreeSet<Key>, BTreeSet<Key>)> {
    let claims = Table::open(&shapes::UNIQUE_CLAIM)?;
    let aside = Table::open_to_read(&shapes::UNIQUE_FOLDED, &shapes::UNIQUE_FOLDED.key)?;
    let returns = Table::open_to_read(&shapes::UNIQUE_RETURN, &shapes::UNIQUE_RETURN.key)?;
    table::make_visible();
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
    for together in superfluous.chunks(TOGETHER) {
        pgrx::check_for_interrupts!();
        let rows = together.iter().map(|(_, row)| *row).collect();
        for ((key, _), deleted) in together.iter().zip(claims.delete_each(rows, false)) {
            if deleted != Deleted::Done {
                busy.insert(*key);
            }
        }
    }
    drop(beside);
    table::make_visible();
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

/// When the first job of a state became final after `since`.
pub fn oldest_final(state: State, since: i64) -> Option<i64> {
    OLDEST_FINAL.run(&[text(state.as_str()), big(since)], |rows| rows.big(0, 1))
}

/// When something will be due next for maintenance, but for final jobs. What is only to be cleared away can
/// wait for the next pass.
pub fn next_due() -> Option<i64> {
    let next = |plan: &Plan| plan.run(&[], |rows| rows.big(0, 1));
    let lease = match leases::none_before() {
        Some(at) => Some(at),
        None => first_lease().unwrap_or_else(|| next(&NEXT_LEASE)),
    };
    let scheduled = next_scheduled().unwrap_or_else(|| next(&NEXT_SCHEDULED));
    let expires = [
        first_ready_to_expire().unwrap_or_else(|| next(&NEXT_READY_EXPIRES)),
        first_scheduled_to_expire().unwrap_or_else(|| next(&NEXT_SCHEDULED_EXPIRES)),
    ];
    [lease, scheduled, next(&NEXT_PERIODIC)]
        .into_iter()
        .chain(expires)
        .flatten()
        .min()
}

/// When the first scheduled job is due; `None`: use a statement.
fn next_scheduled() -> Option<Option<i64>> {
    let mut next = None;
    for queue in lanes::scheduled_queues()? {
        next = next.into_iter().chain(lanes::first_due(&queue)?).min();
    }
    Some(next)
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
static EXPIRED_LEASES_OF: Plan = Plan::new(expired_leases!("= ANY ($3)"), &[AT, INT8, INT8S]);

macro_rules! past_retention {
    ($queues:literal) => {
        concat!(
            "SELECT f.job_id, j.unique_key, f.finalized_at
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

static NEXT_SCHEDULED: Plan = Plan::new(
    concat!(
        scheduled_queues!(),
        "SELECT min((SELECT s.due_at FROM jobs.scheduled s WHERE s.queue = q.queue ORDER BY s.due_at LIMIT 1))
           FROM q WHERE q.queue IS NOT NULL"
    ),
    &[],
);
static NEXT_LEASE: Plan = Plan::new("SELECT min(lease_expires_at) FROM jobs.running", &[]);
static NEXT_READY_EXPIRES: Plan = Plan::new(
    "SELECT min(expires_at) FROM jobs.ready WHERE expires_at IS NOT NULL",
    &[],
);
static NEXT_SCHEDULED_EXPIRES: Plan = Plan::new(
    "SELECT min(expires_at) FROM jobs.scheduled WHERE expires_at IS NOT NULL",
    &[],
);
static NEXT_PERIODIC: Plan = Plan::new("SELECT min(next_run_at) FROM jobs.periodic_schedule", &[]);
static OLDEST_FINAL: Plan = Plan::new(
    "SELECT min(f.finalized_at) FROM jobs.finished f WHERE f.state = $1::jobs.state AND f.finalized_at > $2",
    &[TEXT, AT],
);
