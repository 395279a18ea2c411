//! Notifications on channel `jobs`, and what they are about where that is not known exactly.

use super::due::queues_of;
use super::spi::{Plan, texts};
use super::types::*;

/// Queues that have available jobs.
pub fn available_queues() -> Vec<String> {
    AVAILABLE_QUEUES.values(&[])
}

/// Running jobs that somebody asked to cancel.
pub fn cancel_requests() -> Vec<i64> {
    CANCEL_REQUESTS.values(&[])
}

/// Sends notifications when this transaction commits; each payload once. Whoever else is
/// notifying has the lock for so long as its commit takes: it is not waited for long. Our own
/// commit is a short one: with nothing but notifications it does not wait for the disk.
pub fn send(payloads: &[String]) {
    BRIEFLY.execute(&[]);
    SEND.execute(&[texts(payloads)]);
}

static AVAILABLE_QUEUES: Plan = Plan::new(
    concat!(
        queues_of!("jobs.ready"),
        "SELECT q.queue FROM q WHERE q.queue IS NOT NULL"
    ),
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
