//! Finishing jobs, and saying that one is still being worked on.

use std::collections::{BTreeMap, BTreeSet};

use jobs_core::interval::Interval;
use pgrx::pg_sys::Datum;

use super::claims;
use super::limits;
use super::spi::{Arg, Plan, Tuples};
use super::types::*;
use crate::pg::array;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;

/// Completes a job; whether the token was current.
pub fn complete(id: i64, token: i64, now: i64, output: Option<Jsonb>) -> bool {
    let args = [
        Some(Datum::from(id)),
        Some(Datum::from(token)),
        Some(Datum::from(now)),
        output.map(Jsonb::datum),
    ];
    !completed(&COMPLETE, &args).is_empty()
}

/// Completes jobs, and gives back the slots that they took and the keys that they held until then;
/// their ids and tokens.
fn completed(plan: &Plan, args: &[Arg]) -> BTreeSet<(i64, i64)> {
    let (completed, held, slots) = plan.run(args, |rows| {
        let mut completed = BTreeSet::new();
        let (mut held, mut slots) = (Vec::new(), Vec::new());
        for row in 0..rows.len() {
            let id = rows.big(row, 1).expect("id");
            completed.insert((id, rows.big(row, 2).expect("token")));
            held.extend(rows.big(row, 3).map(|ends_at| (id, ends_at)));
            slots.extend(rows.big(row, 4));
        }
        (completed, held, slots)
    });
    limits::free(&slots);
    claims::release_holds(&held);
    completed
}

/// Completes the jobs whose tokens are current; their ids and tokens. Pairs come sorted
/// by id, so that every session locks in that order.
pub fn complete_many(pairs: &BTreeSet<(i64, i64)>, now: i64) -> BTreeSet<(i64, i64)> {
    let (ids, tokens) = columns(pairs);
    completed(&COMPLETE_MANY, &[ids, tokens, Some(Datum::from(now))])
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
    HEARTBEAT.run(
        &[
            Some(Datum::from(id)),
            Some(Datum::from(token)),
            Some(Datum::from(now)),
            lease.map(time::interval_datum),
            progress.map(Jsonb::datum),
        ],
        |rows| (!rows.is_empty()).then(|| read_lease(rows, 0)),
    )
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
        Some(Datum::from(now)),
        lease.map(time::interval_datum),
    ];
    HEARTBEAT_MANY.run(&args, |rows| {
        (0..rows.len())
            .map(|row| {
                let pair = (
                    rows.big(row, 4).expect("id"),
                    rows.big(row, 5).expect("token"),
                );
                (pair, read_lease(rows, row))
            })
            .collect()
    })
}

fn read_lease(rows: &Tuples, row: usize) -> Lease {
    Lease {
        expires_at: rows.big(row, 1).expect("lease"),
        deadline_at: rows.big(row, 2),
        cancel_requested: rows.bool(row, 3).expect("flag"),
    }
}

/// Ids and tokens, an array each.
fn columns(pairs: &BTreeSet<(i64, i64)>) -> (Arg, Arg) {
    let column = |value: fn(&(i64, i64)) -> i64| {
        let values: Vec<Arg> = pairs.iter().map(|p| Some(Datum::from(value(p)))).collect();
        Some(array::build(INT8, &values))
    };
    (column(|pair| pair.0), column(|pair| pair.1))
}

macro_rules! into_completed {
    ($output:literal) => {
        concat!(
            " RETURNING r.job_id, r.token, r.attempted_at, r.scheduled_at, r.cancel_requested_at, r.attempt, r.worker, r.cancel_reason,
                       r.hold_ends_at, r.slot),
             finished AS (
             INSERT INTO jobs.finished (job_id, finalized_at, token, attempted_at, scheduled_at, cancel_requested_at,
                                        attempt, state, worker, cancel_reason, output)
             SELECT job_id, $3, token, attempted_at, scheduled_at, cancel_requested_at,
                    attempt, 'completed', worker, cancel_reason, ",
            $output,
            " FROM done)
             SELECT job_id, token, CASE WHEN hold_ends_at > $3 THEN hold_ends_at END, slot FROM done"
        )
    };
}

static COMPLETE: Plan = Plan::new(
    concat!(
        "WITH done AS (DELETE FROM jobs.running r WHERE r.job_id = $1 AND r.token = $2",
        into_completed!("$4")
    ),
    &[INT8, INT8, AT, JSONB],
);
static COMPLETE_MANY: Plan = Plan::new(
    concat!(
        "WITH done AS (DELETE FROM jobs.running r USING unnest($1, $2) AS p(id, token) WHERE r.job_id = p.id AND r.token = p.token",
        into_completed!("NULL")
    ),
    &[INT8S, INT8S, AT],
);

// $3 is the clock, $4 the lease asked for now.
macro_rules! renewed_until {
    () => {
        "LEAST($3 + COALESCE($4, r.lease, CASE WHEN j.timeout IS NULL THEN '1 minute' WHEN j.timeout > '0' THEN j.timeout END, '1 hour'),
               r.deadline_at)"
    };
}
static HEARTBEAT: Plan = Plan::new(
    concat!(
        "UPDATE jobs.running r
            SET lease_expires_at = ",
        renewed_until!(),
        ", progress = COALESCE($5, r.progress)
           FROM jobs.job j
          WHERE r.job_id = $1 AND r.token = $2 AND j.id = r.job_id AND (r.deadline_at IS NULL OR r.deadline_at > $3)
         RETURNING r.lease_expires_at, r.deadline_at, r.cancel_requested_at IS NOT NULL"
    ),
    &[INT8, INT8, AT, SPAN, JSONB],
);
static HEARTBEAT_MANY: Plan = Plan::new(
    concat!(
        "UPDATE jobs.running r
            SET lease_expires_at = ",
        renewed_until!(),
        "  FROM unnest($1, $2) AS p(id, token), jobs.job j
          WHERE r.job_id = p.id AND r.token = p.token AND j.id = p.id AND (r.deadline_at IS NULL OR r.deadline_at > $3)
         RETURNING r.lease_expires_at, r.deadline_at, r.cancel_requested_at IS NOT NULL, r.job_id, r.token"
    ),
    &[INT8S, INT8S, AT, SPAN],
);
