//! Claiming jobs: out of `ready`, into `running`.

use jobs_core::interval::Interval;
use pgrx::pg_sys::Datum;

use super::claims;
use super::limits;
use super::spi::{Arg, Plan, Tuples, text};
use super::types::*;
use crate::pg::array;
use crate::pg::time;

/// Who fetches, and how.
pub struct Fetch<'a> {
    /// the clock
    pub now: i64,
    /// the holder's name
    pub worker: &'a str,
    /// `None`: the job's timeout, else 1 hour
    pub lease: Option<Interval>,
    /// `None`: all
    pub kinds: Option<&'a [String]>,
}

/// What a fetch may take of a queue with limits.
pub struct Room<'a> {
    /// a slot for each job that may run; `None`: there is no limit
    pub slots: Option<&'a [i64]>,
    /// a start for each job that may start, and the time until each may be made again
    pub starts: Option<(&'a [i64], Interval)>,
}

/// Claims up to as many jobs of a queue as there are tokens, and gives back the keys that
/// they held until their start. Hands the rows to `read`: the columns of `jobs.fetch`, and
/// one more.
pub fn claim<T>(
    queue: &str,
    fetch: &Fetch,
    tokens: &[i64],
    room: &Room,
    read: impl FnOnce(&Tuples) -> T,
) -> T {
    const HOLD_ENDS_AT: i32 = 16;
    let token_array: Vec<Arg> = tokens
        .iter()
        .map(|token| Some(Datum::from(*token)))
        .collect();
    let mut args = vec![
        text(queue),
        Some(Datum::from(fetch.now)),
        Some(Datum::from(tokens.len() as i64)),
        Some(array::build(INT8, &token_array)),
        fetch.lease.map(time::interval_datum),
        text(fetch.worker),
        room.slots.map(|slots| {
            let slots: Vec<Arg> = slots.iter().map(|slot| Some(Datum::from(*slot))).collect();
            array::build(INT8, &slots)
        }),
    ];
    let plan = match fetch.kinds {
        None => &CLAIM,
        Some(kinds) => {
            let kinds: Vec<Arg> = kinds.iter().map(|kind| text(kind)).collect();
            args.push(Some(array::build(TEXT, &kinds)));
            &CLAIM_KINDS
        }
    };
    let (answer, ids, held) = plan.run(&args, |rows| {
        let ids: Vec<i64> = (0..rows.len()).filter_map(|row| rows.big(row, 1)).collect();
        let held: Vec<(i64, i64)> = (0..rows.len())
            .filter_map(|row| Some((ids[row], rows.big(row, HOLD_ENDS_AT)?)))
            .collect();
        (read(rows), ids, held)
    });
    claims::release_holds(&held);
    if let Some(slots) = room.slots {
        limits::occupy(slots, &ids);
    }
    if let Some((starts, period)) = room.starts {
        limits::start(&starts[..ids.len()], fetch.now, period);
    }
    answer
}

/// Whether a queue has jobs that are due but not yet ready.
pub fn has_due(queue: &str, now: i64) -> bool {
    HAS_DUE.execute(&[text(queue), Some(Datum::from(now))]) > 0
}

/// Makes up to `limit` due jobs of a queue available, but not these, in the order in which they were due; how many.
pub fn promote_due(queue: &str, now: i64, limit: i64, but: &[i64]) -> usize {
    let but: Vec<Arg> = but.iter().map(|id| Some(Datum::from(*id))).collect();
    PROMOTE_DUE.execute(&[
        text(queue),
        Some(Datum::from(now)),
        Some(Datum::from(limit)),
        Some(array::build(INT8, &but)),
    ])
}

// The rows are locked before they are deleted, so their ctids stay true; a deleted row
// is nobody else's. Numbered in the order of the lane, each takes its token by number.
// Everything is computed once, before the lease is inserted: joining what the insert
// returns would compare every row with every other.
macro_rules! claim {
    ($filter:literal) => {
        concat!(
            "WITH picked AS MATERIALIZED (
               DELETE FROM jobs.ready
                WHERE ctid = ANY (ARRAY(
                  SELECT r.ctid FROM jobs.ready r
                   WHERE r.queue = $1 AND (r.expires_at IS NULL OR r.expires_at > $2)",
            $filter,
            "      ORDER BY r.priority, r.seq LIMIT $3 FOR UPDATE SKIP LOCKED))
               RETURNING seq, job_id, scheduled_at, attempt + 1 AS attempt),
             job AS (
               SELECT row_number() OVER (ORDER BY j.priority, p.seq) AS n, p.attempt, p.scheduled_at AS rescheduled_at, j.*,
                      CASE WHEN j.hold_ends_at > $2 THEN j.hold_until END AS holds_until,
                      $2 + CASE WHEN j.timeout IS NULL THEN '1 minute' WHEN j.timeout > '0' THEN j.timeout END AS deadline_at
                 FROM picked p JOIN jobs.job j ON j.id = p.job_id),
             lease AS MATERIALIZED (
               SELECT j.*, $4[n] AS token,
                      LEAST(CASE WHEN $5 IS NOT NULL THEN $2 + $5 ELSE COALESCE(deadline_at, $2 + '1 hour') END, deadline_at)
                        AS lease_expires_at
                 FROM job j),
             started AS (
               INSERT INTO jobs.running (job_id, token, attempted_at, lease_expires_at, deadline_at, scheduled_at, hold_ends_at, slot, attempt, lease, worker)
               SELECT id, token, $2, lease_expires_at, deadline_at, rescheduled_at,
                      CASE WHEN holds_until = 'success' THEN hold_ends_at END, $7[n], attempt, $5, $6 FROM lease)
             SELECT id, token, attempt, kind, args, COALESCE(meta, '{}'), queue, priority::integer,
                    COALESCE(tags, '{}'), max_attempts, created_at,
                    COALESCE(rescheduled_at, scheduled_at, created_at), $2, lease_expires_at, deadline_at,
                    CASE WHEN holds_until = 'start' THEN hold_ends_at END
               FROM lease ORDER BY n"
        )
    };
}

static CLAIM: Plan = Plan::new(claim!(""), &[TEXT, AT, INT8, INT8S, SPAN, TEXT, INT8S]);
static CLAIM_KINDS: Plan = Plan::new(
    claim!(" AND (SELECT k.kind FROM jobs.job k WHERE k.id = r.job_id) = ANY ($8)"),
    &[TEXT, AT, INT8, INT8S, SPAN, TEXT, INT8S, TEXTS],
);

static HAS_DUE: Plan = Plan::new(
    "SELECT 1 FROM jobs.scheduled WHERE queue = $1 AND due_at <= $2 LIMIT 1",
    &[TEXT, AT],
);

static PROMOTE_DUE: Plan = Plan::new(
    "WITH due AS MATERIALIZED (
       DELETE FROM jobs.scheduled
        WHERE ctid = ANY (ARRAY(
          SELECT s.ctid FROM jobs.scheduled s WHERE s.queue = $1 AND s.due_at <= $2 AND s.job_id <> ALL ($4)
              AND EXISTS (SELECT FROM jobs.job j WHERE j.id = s.job_id)
           ORDER BY s.due_at LIMIT $3 FOR UPDATE SKIP LOCKED))
       RETURNING job_id, due_at, expires_at, attempt, queue)
     INSERT INTO jobs.ready (seq, job_id, scheduled_at, expires_at, attempt, priority, queue)
     SELECT nextval('jobs.job_seq'), o.job_id, o.rescheduled_at, o.expires_at, o.attempt, o.priority, o.queue
       FROM (SELECT d.*, j.priority, NULLIF(d.due_at, j.scheduled_at) AS rescheduled_at
               FROM due d JOIN jobs.job j ON j.id = d.job_id ORDER BY d.due_at, d.job_id) o",
    &[TEXT, AT, INT8, INT8S],
);
