//! What a session that waits for jobs looks at.

use pgrx::pg_sys::Datum;

use super::spi::{Plan, text};
use super::types::*;

/// A queue as one snapshot shows it.
#[derive(Default)]
pub struct Look {
    /// what a fetch would take first, to tell it from others: a position in the lane, or a
    /// due job's id below 0; `None`: there is nothing
    pub head: Option<i64>,
    /// when else there will be something
    pub due_at: Option<i64>,
}

/// Looks at a queue.
pub fn look(queue: &str, now: i64) -> Look {
    LOOK.run(&[text(queue), Some(Datum::from(now))], |rows| {
        let due = rows.big(0, 2).zip(rows.big(0, 3));
        Look {
            head: rows
                .big(0, 1)
                .or(due.filter(|(at, _)| *at <= now).map(|(_, id)| -id)),
            due_at: due.map(|(at, _)| at).filter(|at| *at > now),
        }
    })
}

static LOOK: Plan = Plan::new(
    "SELECT r.seq, s.due_at, s.job_id
       FROM (SELECT) one
       LEFT JOIN LATERAL (
         SELECT r.seq FROM jobs.ready r
          WHERE r.queue = $1 AND (r.expires_at IS NULL OR r.expires_at > $2)
          ORDER BY r.priority, r.seq LIMIT 1) r ON true
       LEFT JOIN LATERAL (
         SELECT s.due_at, s.job_id FROM jobs.scheduled s WHERE s.queue = $1
          ORDER BY s.due_at LIMIT 1) s ON true",
    &[TEXT, AT],
);
