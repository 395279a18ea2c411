//! Finishing jobs, and saying that one is still being worked on.

use std::collections::{BTreeMap, BTreeSet};

use jobs_core::history::Event;
use jobs_core::interval::Interval;
use jobs_core::state::State;

use super::fetch::DEFAULT_LEASE;
use super::history::{self, Ended};
use super::spi::{Arg, Plan, Tuples, big, bigs};
use super::types::*;
use super::{direct, limits, notes, retention};
use crate::pg::jsonb::Jsonb;
use crate::pg::time;
use crate::shmem::{announce, leases};

/// Completes a job; whether the token was current.
pub fn complete(id: i64, token: i64, now: i64, output: Option<Jsonb>) -> bool {
    !completed(&BTreeSet::from([(id, token)]), now, output).is_empty()
}

/// Completes the jobs whose tokens are current; their ids and tokens. Pairs come sorted
/// by id, so that every session locks in that order.
pub fn complete_many(pairs: &BTreeSet<(i64, i64)>, now: i64) -> BTreeSet<(i64, i64)> {
    completed(pairs, now, None)
}

/// What completing jobs gives back.
#[derive(Default)]
pub(super) struct Completed {
    /// ids and tokens
    pub pairs: BTreeSet<(i64, i64)>,
    /// keys that jobs held until then, by the jobs and the ends of their holds
    pub held: Vec<(i64, i64)>,
    /// slots of queues with limits
    pub slots: Vec<i64>,
    /// what is counted of them
    pub ended: Vec<Ended>,
}

fn completed(
    pairs: &BTreeSet<(i64, i64)>,
    now: i64,
    output: Option<Jsonb>,
) -> BTreeSet<(i64, i64)> {
    let completed = direct::finish::complete(pairs, now, output)
        .unwrap_or_else(|| complete_by_statement(pairs, now, output));
    completed
        .pairs
        .iter()
        .for_each(|(id, _)| announce::over(*id));
    limits::free(&completed.slots);
    notes::release_holds(&completed.held);
    history::all_ended(completed.ended, Event::Completed, now);
    completed.pairs
}

fn complete_by_statement(
    pairs: &BTreeSet<(i64, i64)>,
    now: i64,
    output: Option<Jsonb>,
) -> Completed {
    let (ids, tokens) = columns(pairs);
    let args = [ids, tokens, big(now), output.map(Jsonb::datum)];
    let completed = COMPLETE_MANY.run(&args, |rows| {
        let mut completed = Completed::default();
        for row in 0..rows.len() {
            let id = rows.big(row, 1).expect("id");
            completed
                .pairs
                .insert((id, rows.big(row, 2).expect("token")));
            completed
                .held
                .extend(rows.big(row, 3).map(|ends_at| (id, ends_at)));
            completed.slots.extend(rows.big(row, 4));
            completed.ended.push(Ended {
                id,
                key: rows.int(row, 5),
                queue: rows.text(row, 6),
                began_at: rows.big(row, 7),
            });
        }
        completed
    });
    let ids = completed.pairs.iter().map(|(id, _)| *id);
    retention::keep(ids, State::Completed, now);
    completed
}

/// A lease after a heartbeat.
pub struct Lease {
    /// until when
    pub expires_at: i64,
    /// end of the attempt's time
    pub deadline_at: Option<i64>,
    /// somebody asked to cancel the job
    pub cancel_requested: bool,
}

/// Renews a lease; `None` if the token is not current or the deadline is over.
pub fn heartbeat(
    id: i64,
    token: i64,
    now: i64,
    lease: Option<Interval>,
    progress: Option<Jsonb>,
) -> Option<Lease> {
    let args = [
        big(id),
        big(token),
        big(now),
        lease.map(time::interval_datum),
        big(time::add(now, DEFAULT_LEASE)),
        progress.map(Jsonb::datum),
    ];
    HEARTBEAT.first(&args, |rows| read_lease(rows, 0))
}

/// Renews the leases of the jobs whose tokens are current and whose deadlines are not over, each
/// with its id. Pairs come sorted by id, so that every session locks in that order.
pub fn heartbeat_many(
    pairs: &BTreeSet<(i64, i64)>,
    now: i64,
    lease: Option<Interval>,
) -> BTreeMap<(i64, i64), Lease> {
    let (ids, tokens) = columns(pairs);
    let args = [
        ids,
        tokens,
        big(now),
        lease.map(time::interval_datum),
        big(time::add(now, DEFAULT_LEASE)),
    ];
    let renewed = HEARTBEAT_MANY.list(&args, |rows, row| {
        let pair = (rows.big(row, 4)?, rows.big(row, 5)?);
        Some((pair, read_lease(rows, row)))
    });
    renewed.into_iter().collect()
}

/// A lease that was renewed.
fn read_lease(rows: &Tuples, row: usize) -> Lease {
    let expires_at = rows.big(row, 1).expect("lease");
    leases::noted(expires_at);
    Lease {
        expires_at,
        deadline_at: rows.big(row, 2),
        cancel_requested: rows.bool(row, 3).expect("flag"),
    }
}

/// Ids and tokens, an array each.
fn columns(pairs: &BTreeSet<(i64, i64)>) -> (Arg, Arg) {
    let (ids, tokens): (Vec<i64>, Vec<i64>) = pairs.iter().copied().unzip();
    (bigs(&ids), bigs(&tokens))
}

static COMPLETE_MANY: Plan = Plan::new(
    "WITH done AS (
       DELETE FROM jobs.running r USING unnest($1, $2) AS p(id, token) WHERE r.job_id = p.id AND r.token = p.token
       RETURNING r.job_id, r.token, r.attempted_at, r.scheduled_at, r.cancel_requested_at, r.attempt, r.worker, r.cancel_reason,
                 r.hold_ends_at, r.slot, r.history_key, r.queue),
     finished AS (
       INSERT INTO jobs.finished (job_id, finalized_at, token, attempted_at, scheduled_at, cancel_requested_at,
                                  attempt, state, is_kept, worker, cancel_reason, output)
       SELECT job_id, $3, token, attempted_at, scheduled_at, cancel_requested_at,
              attempt, 'completed', false, worker, cancel_reason, $4 FROM done)
     SELECT job_id, token, CASE WHEN hold_ends_at > $3 THEN hold_ends_at END, slot, history_key, queue, attempted_at FROM done",
    &[INT8S, INT8S, AT, JSONB],
);

// $3 is the clock, $4 the lease asked for now, $5 when the default one would end. Where nobody
// asked for one it is the timeout, which ends no earlier than the deadline.
macro_rules! renewed_until {
    () => {
        "CASE WHEN COALESCE($4, r.lease) IS NULL THEN COALESCE(r.deadline_at, $5)
              ELSE LEAST(GREATEST($3, $3 + COALESCE($4, r.lease)), r.deadline_at) END"
    };
}
static HEARTBEAT: Plan = Plan::new(
    concat!(
        "UPDATE jobs.running r
            SET lease_expires_at = ",
        renewed_until!(),
        ", progress = COALESCE($6, r.progress)
          WHERE r.job_id = $1 AND r.token = $2 AND (r.deadline_at IS NULL OR r.deadline_at > $3)
         RETURNING r.lease_expires_at, r.deadline_at, r.cancel_requested_at IS NOT NULL"
    ),
    &[INT8, INT8, AT, SPAN, AT, JSONB],
);
static HEARTBEAT_MANY: Plan = Plan::new(
    concat!(
        "UPDATE jobs.running r
            SET lease_expires_at = ",
        renewed_until!(),
        "  FROM unnest($1, $2) AS p(id, token)
          WHERE r.job_id = p.id AND r.token = p.token AND (r.deadline_at IS NULL OR r.deadline_at > $3)
         RETURNING r.lease_expires_at, r.deadline_at, r.cancel_requested_at IS NOT NULL, r.job_id, r.token"
    ),
    &[INT8S, INT8S, AT, SPAN, AT],
);
