//! Finishing jobs, and saying that one is still being worked on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jobs_core::interval::Interval;
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::fetch::DEFAULT_LEASE;
use super::history::Over;
use super::permits::Permit;
use super::place::{self, TakenRow};
use super::spi::{Arg, Row, Tuples, big, bigs, column, plans};
use super::types::*;
use super::{direct, effects, retention};
use crate::pg::jsonb::Jsonb;
use crate::pg::{server, time};
use crate::shmem::leases;

/// An attempt that is to end, if its token is current.
#[derive(Clone, Copy)]
pub struct Attempt {
    pub id: i64,
    pub token: i64,
    /// What becomes of the job.
    pub then: Then,
}

/// What becomes of a job whose attempt ends.
#[derive(Clone, Copy)]
pub enum Then {
    /// It is completed, with this output.
    Completed(Option<Jsonb>),
    /// It is taken out of `running`, and the caller puts it where it goes.
    Taken,
}

/// How long to wait for jobs that others have locked.
#[derive(Clone, Copy)]
pub enum Wait {
    /// As long as it takes.
    ForAll,
    /// Until then: jobs that are still locked are left.
    Until(Instant),
}

impl Wait {
    /// Whether to lock only what is free, and to look again for as long as there is time.
    pub(super) fn has_end(self) -> bool {
        matches!(self, Wait::Until(_))
    }
}

/// Pauses between two looks whether others still have a job locked.
pub(super) struct Pauses {
    wait: Wait,
    next: Duration,
}

impl Pauses {
    /// Most locks are held for less.
    const FIRST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(32);

    pub(super) fn of(wait: Wait) -> Pauses {
        let next = Pauses::FIRST;
        Pauses { wait, next }
    }

    /// Pauses, unless the time is over; whether to look once more.
    pub(super) fn once_more(&mut self) -> bool {
        let Wait::Until(end) = self.wait else {
            return false;
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        server::wait_for_latch(self.next.min(left));
        pgrx::check_for_interrupts!();
        self.next = (self.next * 2).min(Pauses::LONGEST);
        true
    }
}

/// The attempts that have ended, by their places among those that were to.
#[derive(Default)]
pub struct Ended {
    pub completed: Vec<Completed>,
    pub taken: Vec<(usize, TakenRow)>,
    /// Attempts left alone, since other transactions have their jobs locked.
    pub locked: Vec<usize>,
    /// Slots of queues with limits.
    pub(super) slots: Vec<i64>,
    /// Permits of limits by key.
    pub(super) permits: Vec<Permit>,
}

/// An attempt that has completed its job.
pub struct Completed {
    /// Its place among the attempts.
    pub n: usize,
    pub(super) id: i64,
    pub(super) history_key: Option<i32>,
    /// The queue it was fetched from, if the job has another by now.
    pub(super) queue: Option<String>,
    pub(super) began_at: Option<i64>,
    pub(super) ended_at: i64,
    /// When the job's hold on its key would have ended.
    pub(super) hold_ends_at: Option<i64>,
}

impl Completed {
    /// What the history counts.
    pub(super) fn over(&self) -> Over<'_> {
        Over {
            id: self.id,
            key: self.history_key,
            queue: self.queue.as_deref(),
            began_at: self.began_at,
            ended_at: self.ended_at,
        }
    }
}

/// Ends attempts whose tokens are current. They come sorted by id and token, so that every session
/// locks in that order, and none comes twice.
///
/// A job that was waited for is completed after the wait: who had it may have asked to cancel it.
pub fn end(attempts: &[Attempt], wait: Wait) -> Ended {
    let ended =
        direct::finish::end(attempts, wait).unwrap_or_else(|| end_by_statement(attempts, wait));
    if !ended.taken.is_empty() {
        let taken = ended.taken.iter().map(|(n, _)| attempts[*n].id);
        place::fail_if_changed(&taken.collect::<Vec<_>>());
    }
    effects::ended(&ended);
    ended
}

fn end_by_statement(attempts: &[Attempt], wait: Wait) -> Ended {
    let (ours, locked) = match wait.has_end() {
        true => lock(attempts, wait),
        false => ((0..attempts.len()).collect(), Vec::new()),
    };
    let args = [
        column(INT8, &ours, |n| big(attempts[*n].id)),
        column(INT8, &ours, |n| big(attempts[*n].token)),
        column(JSONB, &ours, |n| match attempts[*n].then {
            Then::Completed(output) => output.map(Jsonb::datum),
            Then::Taken => None,
        }),
        column(BOOL, &ours, |n| Some(Datum::from(matches!(attempts[*n].then, Then::Completed(_))))),
    ];
    let mut ended = END.run(&args, |rows| {
        let mut ended = Ended::default();
        for row in 0..rows.len() {
            let n = ours[rows.given::<i64>(row, "n") as usize - 1];
            ended.slots.extend(rows.get::<i64>(row, "slot"));
            let permit = rows.get(row, "permit").zip(rows.get(row, "gates"));
            ended.permits.extend(permit.map(|(n, gates)| Permit { n, gates }));
            if matches!(attempts[n].then, Then::Taken) {
                ended.taken.push((n, TakenRow::read(rows, row)));
                continue;
            }
            ended.completed.push(Completed {
                n,
                id: attempts[n].id,
                history_key: rows.get(row, "history_key"),
                queue: rows.get(row, "queue"),
                began_at: rows.get(row, "attempted_at"),
                ended_at: rows.given(row, "ended_at"),
                hold_ends_at: rows.get(row, "hold_ends_at"),
            });
        }
        ended
    });
    ended.locked = locked;
    let finalized = ended.completed.iter().map(|one| (one.id, one.ended_at));
    retention::keep(finalized, State::Completed);
    ended
}

/// Locks the leases of attempts whose tokens are current: those that were free in time, by their
/// places among the attempts, and those that another session still has locked. One by one: a
/// statement for all would lock those after one that is not free.
fn lock(attempts: &[Attempt], wait: Wait) -> (Vec<usize>, Vec<usize>) {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for (n, attempt) in attempts.iter().enumerate() {
        pgrx::check_for_interrupts!();
        let args = [big(attempt.id), big(attempt.token)];
        let mut pauses = Pauses::of(wait);
        loop {
            if LOCK.execute(&args) > 0 {
                ours.push(n);
                break;
            }
            if CURRENT.execute(&args) == 0 {
                break;
            }
            if !pauses.once_more() {
                others.push(n);
                break;
            }
        }
    }
    (ours, others)
}

/// A lease after a heartbeat.
pub struct Lease {
    pub expires_at: i64,
    pub deadline_at: Option<i64>,
    pub cancel_requested: bool,
}

/// Renews the leases of the jobs whose tokens are current and whose deadlines are not over; what
/// they are then, by ids and tokens. Never waits: of a job that another session has locked the
/// row stays as it is, and the rescue finds a note.
pub fn heartbeats(
    pairs: &BTreeSet<(i64, i64)>,
    now: i64,
    lease: Option<Interval>,
    progress: Option<Jsonb>,
) -> BTreeMap<(i64, i64), Lease> {
    let lease = lease.map(time::interval_datum);
    let default = big(time::add(now, DEFAULT_LEASE));
    let renewed = {
        let (ids, tokens) = columns_of(pairs);
        let args = [ids, tokens, big(now), lease, default, progress.map(Jsonb::datum)];
        RENEW.list(&args, |rows, row| {
            let (pair, lease) = read_lease(rows, row)?;
            leases::noted(lease.expires_at);
            Some((pair, lease))
        })
    };
    let mut told: BTreeMap<_, _> = renewed.into_iter().collect();
    if told.len() < pairs.len() {
        // With a snapshot of its own, at READ COMMITTED: who had one locked may have moved it.
        let others = pairs.iter().filter(|pair| !told.contains_key(pair));
        let (ids, tokens) = columns_of(&others.copied().collect());
        let args = [ids, tokens, big(now), lease, default];
        told.extend(NOTE_LOCKED.list(&args, read_lease));
    }
    told
}

/// Jobs and their tokens, as parameters.
fn columns_of(pairs: &BTreeSet<(i64, i64)>) -> (Arg, Arg) {
    let (ids, tokens): (Vec<i64>, Vec<i64>) = pairs.iter().copied().unzip();
    (bigs(&ids), bigs(&tokens))
}

/// A lease, by its job and token.
fn read_lease(rows: &Tuples, row: usize) -> Option<((i64, i64), Lease)> {
    let lease = Lease {
        expires_at: rows.get(row, "lease_expires_at")?,
        deadline_at: rows.get(row, "deadline_at"),
        cancel_requested: rows.get(row, "cancel_requested")?,
    };
    Some(((rows.get(row, "job_id")?, rows.get(row, "token")?), lease))
}

const SELECT_HELD: &str = "SELECT FROM jobs.running WHERE job_id = $1 AND token = $2";

// $3 is the clock, $4 the lease asked for now, $5 when the default one would end. Where the caller
// asked for none it is the timeout, which ends no earlier than the deadline.
const RENEWED_UNTIL: &str =
    "CASE WHEN COALESCE($4, r.lease) IS NULL THEN COALESCE(r.deadline_at, $5)
          ELSE LEAST(GREATEST($3, $3 + COALESCE($4, r.lease)), r.deadline_at) END";

const FROM_HELD: &str =
    "FROM unnest($1, $2) AS p(id, token) JOIN jobs.running r ON r.job_id = p.id AND r.token = p.token
      WHERE r.deadline_at IS NULL OR r.deadline_at > $3";

const LEASE_COLUMNS: &str = "r.job_id, r.token, r.lease_expires_at, r.deadline_at, r.cancel_requested_at IS NOT NULL AS cancel_requested";

plans! {
    // The previous version's table has no permits.
    END(INT8S, INT8S, JSONBS, BOOLS) =
        "WITH done AS (
           DELETE FROM jobs.running r
            USING unnest($1, $2, $3, $4) WITH ORDINALITY AS p(id, token, output, completes, n)
            WHERE r.job_id = p.id AND r.token = p.token
              AND (p.completes OR EXISTS (SELECT FROM jobs.job j WHERE j.id = p.id))
           RETURNING r.job_id, r.token, r.attempted_at, r.scheduled_at, r.cancel_requested_at, r.attempt, r.worker, r.cancel_reason,
                     r.hold_ends_at, r.slot, (to_jsonb(r) ->> 'permit')::bigint AS permit,
                     ARRAY(SELECT g::bigint FROM jsonb_array_elements_text(NULLIF(to_jsonb(r) -> 'gates', 'null')) g) AS gates, r.history_key, r.queue, p.output, p.completes, p.n,
                     clock_timestamp() AS ended_at),
         finished AS (
           INSERT INTO jobs.finished (job_id, finalized_at, token, attempted_at, scheduled_at, cancel_requested_at,
                                      attempt, state, is_kept, worker, cancel_reason, output)
           SELECT job_id, ended_at, token, attempted_at, scheduled_at, cancel_requested_at,
                  attempt, 'completed', false, worker, cancel_reason, output FROM done WHERE completes)
         SELECT n, slot, permit, gates, hold_ends_at, attempt, scheduled_at, attempted_at, worker, cancel_requested_at, cancel_reason,
                history_key, queue, ended_at FROM done";
    CURRENT(INT8, INT8) => SELECT_HELD.into();
    LOCK(INT8, INT8) = "{SELECT_HELD} FOR UPDATE SKIP LOCKED";
    RENEW(INT8S, INT8S, AT, SPAN, AT, JSONB) =
        "WITH free AS (SELECT r.job_id {FROM_HELD} FOR NO KEY UPDATE OF r SKIP LOCKED)
         UPDATE jobs.running r SET lease_expires_at = {RENEWED_UNTIL}, progress = COALESCE($6, r.progress) FROM free WHERE r.job_id = free.job_id RETURNING {LEASE_COLUMNS}";
    NOTE_LOCKED(INT8S, INT8S, AT, SPAN, AT) =
        "WITH locked AS MATERIALIZED (SELECT {LEASE_COLUMNS}, {RENEWED_UNTIL} AS goes_on_until {FROM_HELD}),
         note AS (
           INSERT INTO jobs.heartbeat_note (job_id, token, lease_expires_at, at, goes_on_until)
           SELECT job_id, token, lease_expires_at, $3, goes_on_until FROM locked)
         SELECT job_id, token, lease_expires_at, deadline_at, cancel_requested FROM locked";
}
