//! Notifications on channel `jobs`, and what they are about where that is not known exactly.

use super::due::queues_of;
use super::spi::{plans, texts};
use super::types::*;

/// Queues that have available jobs.
pub fn available_queues() -> Vec<String> {
    AVAILABLE_QUEUES.values(&[])
}

/// Running jobs with a cancel request.
pub fn cancel_requests() -> Vec<i64> {
    CANCEL_REQUESTS.values(&[])
}

/// Sends notifications when this transaction commits; each payload once. Another session that is
/// notifying has the lock for so long as its commit takes: it is not waited for long. Our own
/// commit is a short one: with nothing but notifications it does not wait for the disk.
pub fn send(payloads: &[String]) {
    BRIEFLY.execute(&[]);
    SEND.execute(&[texts(payloads)]);
}

plans! {
    AVAILABLE_QUEUES() =
        "{queues_of}SELECT q.queue FROM q WHERE q.queue IS NOT NULL",
        queues_of = queues_of("jobs.ready");
    CANCEL_REQUESTS() =
        "SELECT r.job_id FROM jobs.running r WHERE r.cancel_requested_at IS NOT NULL";
    BRIEFLY() = "SELECT set_config('lock_timeout', '1s', true)";
    SEND(TEXTS) = "SELECT pg_notify('jobs', payload) FROM unnest($1) payload";
}
