//! Notifications on channel `jobs`, and what they are about where that is not known exactly.

use super::spi::{Arg, Plan, text};
use super::types::*;
use crate::pg::array;

/// Queues that have available jobs.
pub fn available_queues() -> Vec<String> {
    AVAILABLE_QUEUES.run(&[], |rows| {
        (0..rows.len())
            .filter_map(|row| rows.text(row, 1))
            .collect()
    })
}

/// Running jobs that somebody asked to cancel.
pub fn cancel_requests() -> Vec<i64> {
    CANCEL_REQUESTS.run(&[], |rows| {
        (0..rows.len()).filter_map(|row| rows.big(row, 1)).collect()
    })
}

/// Sends notifications when this transaction commits; each payload once. Whoever else is
/// notifying has the lock for so long as its commit takes: it is not waited for long. Our own
/// commit is a short one: with nothing but notifications it does not wait for the disk.
pub fn send(payloads: &[String]) {
    let payloads: Vec<Arg> = payloads.iter().map(|payload| text(payload)).collect();
    BRIEFLY.execute(&[]);
    SEND.execute(&[Some(array::build(TEXT, &payloads))]);
}

static AVAILABLE_QUEUES: Plan = Plan::new(
    "WITH RECURSIVE q AS (
       (SELECT queue FROM jobs.ready ORDER BY queue LIMIT 1)
       UNION ALL
       SELECT (SELECT r.queue FROM jobs.ready r WHERE r.queue > q.queue ORDER BY r.queue LIMIT 1)
         FROM q WHERE q.queue IS NOT NULL)
     SELECT q.queue FROM q WHERE q.queue IS NOT NULL",
    &[],
);
static CANCEL_REQUESTS: Plan = Plan::new(
    "SELECT r.job_id FROM jobs.running r WHERE r.cancel_requested_at IS NOT NULL",
    &[],
);
static BRIEFLY: Plan = Plan::new("SELECT set_config('lock_timeout', '1s', true)", &[]);
static SEND: Plan = Plan::new(
    "SELECT pg_notify('jobs', payload) FROM unnest($1) payload",
    &[TEXTS],
);
