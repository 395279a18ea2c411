//! Changes of a job's rows that leave it where it is.

use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::columns::columns;
use super::config::Options;
use super::place::Place;
use super::spi::{Arg, Plan, Tuples, big, plans, text, texts};
use super::types::*;
use super::{effects, retention};
use crate::pg::jsonb::{self, Jsonb};
use crate::pg::time;
use crate::shmem::leases;

/// What is to change of a job; `None` leaves a value as it is.
#[derive(Clone, Default)]
pub struct Changes<'a> {
    pub kind: Option<&'a str>,
    pub args: Option<Jsonb>,
    pub options: Options,
}

impl Changes<'_> {
    /// Whether an available job has to go to another lane.
    pub fn lane(&self) -> bool {
        self.options.queue.is_some() || self.options.priority.is_some()
    }
}

columns! {
    /// The columns of `job` that can change, after its id, and the parameters of statements about
    /// them.
    changed {
        ID: INT8 not null = big(id),
        KIND: TEXT = to.kind.and_then(text),
        ARGS: JSONB = to.args.map(Jsonb::datum),
        QUEUE: TEXT = to.options.queue.as_deref().and_then(text),
        PRIORITY: INT2 = to.options.priority.map(Datum::from),
        MAX_ATTEMPTS: INT4 = to.options.max_attempts.map(Datum::from),
        META: JSONB = to.options.meta.map(Jsonb::datum),
        TAGS: TEXTS = to.options.tags.as_deref().and_then(texts),
        SCHEDULED_AT: AT = to.options.scheduled_at.map(Datum::from),
        TIMEOUT: SPAN = to.options.timeout.map(time::interval_datum),
        RETRY: JSONB = to.options.retry.map(Jsonb::datum),
        EXPIRES_AT: AT = to.options.expires_at.map(Datum::from),
    }
    fn changes(to: &Changes, id: i64);
}

/// Changes a job's row. Returns the length that the text of args and meta has then, if one of them
/// was changed and it is above `most`.
pub fn rewrite(id: i64, changes: &Changes, most: u64) -> Option<u64> {
    let args = self::changes(changes, id);
    REWRITE.first(&args, |rows| {
        if changes.args.is_none() && changes.options.meta.is_none() {
            return None;
        }
        let carried = ["args", "meta"].map(|part| rows.raw(0, part).map(Jsonb::from_datum));
        jsonb::length_above(most, &carried)
    })?
}

/// Whether a job that waits is as these changes would leave it.
pub fn says(id: i64, changes: &Changes) -> bool {
    SAYS.execute(&self::changes(changes, id)) > 0
}

/// One more try for a job that has none left after so many.
pub fn grant_attempt(id: i64, attempts: i32) {
    GRANT_ATTEMPT.execute(&[big(id), Some(Datum::from(attempts))]);
}

/// When a job that was taken was to be due, as given. Read after the take: a reschedule requeues
/// the job.
pub fn scheduled_at(id: i64) -> Option<i64> {
    SCHEDULED_AT.value(&[big(id)])
}

impl Place {
    /// Makes a running or final job that was due at another time than its row says go by its row.
    pub fn forget_schedule(&self) {
        if self.state == State::Running {
            rewrite_running(&FORGET_SCHEDULE_RUNNING, &[big(self.id)]);
        } else {
            FORGET_SCHEDULE_FINISHED.execute(&[big(self.id)]);
        }
    }

    /// Keeps a final job as its queue says now. Its row is locked.
    pub fn keep_anew(&self) {
        retention::keep_anew(self.id, self.state);
    }

    /// Has a running job count for the queue that it was fetched from, whatever its row will say.
    /// Its row is locked.
    pub fn keep_queue(&self) {
        rewrite_running(&KEEP_QUEUE, &[big(self.id)]);
    }

    /// Asks the worker of a running job to stop; whether the job still is where it was seen and
    /// no other session has asked for the same.
    pub fn request_cancel(&self, at: i64, reason: Option<&str>) -> bool {
        let token = self.token.map(Datum::from);
        let args = [big(self.id), token, big(at), reason.and_then(text)];
        let asked = |rows: &Tuples| {
            leases::noted(rows.given(0, "lease_expires_at"));
            rows.get(0, "worker")
        };
        let worker: Option<String> = REQUEST_CANCEL.first(&args, asked).flatten();
        if let Some(worker) = &worker {
            effects::asked_to_stop(self.id, worker);
        }
        worker.is_some()
    }
}

/// Writes the row of a running job anew. The statement returns when the lease ends.
fn rewrite_running(plan: &Plan, args: &[Arg]) {
    plan.value(args).into_iter().for_each(leases::noted);
}

// The columns, and what they become: as they are, where a parameter is null.
fn new_values() -> (String, String) {
    let columns = changed::NAMES[1..].iter().map(|name| name.to_lowercase());
    let columns: Vec<String> = columns.collect();
    let value = |(n, column)| format!("COALESCE(${n}, {column})");
    let values: Vec<String> = (2..).zip(&columns).map(value).collect();
    (columns.join(", "), values.join(", "))
}

plans! {
    FORGET_SCHEDULE_RUNNING(INT8) =
        "UPDATE jobs.running SET scheduled_at = NULL WHERE job_id = $1 AND scheduled_at IS NOT NULL RETURNING lease_expires_at";
    FORGET_SCHEDULE_FINISHED(INT8) =
        "UPDATE jobs.finished SET scheduled_at = NULL WHERE job_id = $1 AND scheduled_at IS NOT NULL";
    KEEP_QUEUE(INT8) =
        "UPDATE jobs.running r SET queue = j.queue FROM jobs.job j WHERE r.job_id = $1 AND j.id = r.job_id AND r.queue IS NULL
         RETURNING r.lease_expires_at";
    REQUEST_CANCEL(INT8, INT8, AT, TEXT) =
        "UPDATE jobs.running SET cancel_requested_at = COALESCE(cancel_requested_at, $3), cancel_reason = COALESCE($4, cancel_reason)
          WHERE job_id = $1 AND token = $2
            AND (cancel_requested_at IS NULL OR cancel_reason IS DISTINCT FROM COALESCE($4, cancel_reason))
         RETURNING lease_expires_at, worker";
    REWRITE[changed::TYPES] =
        "UPDATE jobs.job SET ({columns}) = ROW ({values}) WHERE id = $1 RETURNING args, meta",
        columns = new_values().0,
        values = new_values().1;
    // A schedule that it was given also takes the place of the one that it waits for now.
    SAYS[changed::TYPES] =
        "SELECT FROM jobs.job
          WHERE id = $1 AND record_image_eq(ROW ({columns}), ROW ({values}))
            AND (${at} IS NULL OR EXISTS (
              SELECT FROM jobs.scheduled s
               WHERE s.job_id = id AND (s.state = 'pending' OR s.state = 'scheduled' AND s.due_at = ${at})))",
        columns = new_values().0,
        values = new_values().1,
        at = changed::SCHEDULED_AT;
    GRANT_ATTEMPT(INT8, INT4) =
        "UPDATE jobs.job SET max_attempts = LEAST(max_attempts, 2147483646) + 1 WHERE id = $1 AND max_attempts <= $2";
    SCHEDULED_AT(INT8) = "SELECT scheduled_at FROM jobs.job WHERE id = $1";
}
