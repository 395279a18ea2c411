//! What a session that waits for jobs looks at.

use pgrx::pg_sys::Datum;

use super::direct;
use super::queue::Queue;
use super::spi::{Value, bigs, plans};
use super::types::*;

/// What a queue has for a fetch.
#[derive(Default)]
pub struct Look {
    /// Identifies what a fetch would take first: a position in the lane, or a due job's id below 0.
    /// `None` when a fetch would find nothing.
    pub head: Option<i64>,
    /// When the next job is due.
    pub due_at: Option<i64>,
}

pub fn look(queue: &Queue, now: i64) -> Look {
    let (ready, scheduled) =
        direct::wait::first(queue, now).unwrap_or_else(|| first_by_statement(queue, now));
    let is_due = |(at, _): &(i64, i64)| *at <= now;
    Look {
        head: ready.or(scheduled.filter(is_due).map(|(_, id)| -id)),
        due_at: scheduled.map(|(at, _)| at).filter(|at| *at > now),
    }
}

/// The position of a queue's first available job, and the time and id of its first scheduled one.
pub type First = (Option<i64>, Option<(i64, i64)>);

fn first_by_statement(queue: &Queue, now: i64) -> First {
    FIRST.run(&[queue.arg(), Some(Datum::from(now))], |rows| {
        let at_and_id = rows.get(0, "due_at").zip(rows.get(0, "job_id"));
        (rows.get(0, "seq"), at_and_id)
    })
}

/// Those of some jobs that are not over: each that is there and not final, in order.
pub fn not_over(ids: &[i64]) -> Vec<i64> {
    NOT_OVER.values(&[bigs(ids)])
}

plans! {
    // By their keys, whatever the planner thinks of how many there are.
    NOT_OVER(INT8S) =
        "SELECT n.id FROM unnest($1) WITH ORDINALITY AS n(id, ord)
          WHERE (SELECT f.job_id FROM jobs.finished f WHERE f.job_id = n.id) IS NULL
            AND (SELECT j.id FROM jobs.job j WHERE j.id = n.id) IS NOT NULL ORDER BY n.ord";
    FIRST(TEXT, AT) =
        "SELECT r.seq, s.due_at, s.job_id
           FROM (SELECT) one
           LEFT JOIN LATERAL (
             SELECT r.seq FROM jobs.ready r
              WHERE r.queue = $1 AND (r.expires_at IS NULL OR r.expires_at > $2)
              ORDER BY r.priority, r.seq LIMIT 1) r ON true
           LEFT JOIN LATERAL (
             SELECT s.due_at, s.job_id FROM jobs.scheduled s WHERE s.queue = $1
              ORDER BY s.due_at LIMIT 1) s ON true";
}
