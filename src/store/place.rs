//! Where a job is, how it is taken out of there, and how it is put elsewhere. The
//! state of a job is the table its row lives in; these are the moves that the rarer
//! transitions are made of. The two hot ones are one statement each, in `fetch` and `finish`.

use std::collections::BTreeSet;

use jobs_core::key::Key;
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::columns::columns;
use super::config::Options;
use super::finish::{self, Attempt, Then, Wait};
use super::spi::{Arg, Plan, Tuples, big, bigs, text, texts};
use super::types::*;
use super::{effects, retention};
use crate::pg::jsonb::{self, Jsonb};
use crate::pg::time;
use crate::pg::transaction;
use crate::shmem::leases;

/// A job as one snapshot shows it.
#[derive(Clone)]
pub struct Place {
    pub id: i64,
    /// the table that its row is in
    pub state: State,
    /// available: its position in the lane
    pub seq: Option<i64>,
    /// available: the lane
    queue: String,
    priority: i16,
    /// running: the current token; final: the one that finished it
    pub token: Option<i64>,
    /// what it was inserted as unique under
    pub unique_key: Option<Key>,
    /// running: whether its worker was asked to stop
    pub is_asked_to_stop: bool,
    /// and why
    cancel_reason: Option<String>,
}

/// The row of a job that was taken out of where it was: what the next one is to say, too.
#[derive(Clone, Debug, Default)]
pub struct TakenRow {
    pub attempt: i32,
    /// when it was due, where that differs from its first schedule
    pub scheduled_at: Option<i64>,
    /// when it became available, where that was later than due and inserted
    pub available_at: Option<i64>,
    /// when the last try began
    pub attempted_at: Option<i64>,
    pub worker: Option<String>,
    /// when somebody asked to cancel it
    pub cancel_requested_at: Option<i64>,
    /// and why
    pub cancel_reason: Option<String>,
    /// the token that finished it
    pub token: Option<i64>,
    /// running: the number in the history of its queue and kind, ..
    pub history_key: Option<i32>,
    /// .. and the queue, where the job has another one by now
    pub queue: Option<String>,
}

impl TakenRow {
    /// Reads what a statement says of it.
    pub(super) fn read(rows: &Tuples, row: usize) -> TakenRow {
        TakenRow {
            attempt: rows.given(row, "attempt"),
            scheduled_at: rows.find(row, "scheduled_at"),
            available_at: rows.find(row, "available_at"),
            attempted_at: rows.find(row, "attempted_at"),
            worker: rows.find(row, "worker"),
            cancel_requested_at: rows.find(row, "cancel_requested_at"),
            cancel_reason: rows.find(row, "cancel_reason"),
            token: rows.find(row, "token"),
            history_key: rows.find(row, "history_key"),
            queue: rows.find(row, "queue"),
        }
    }
}

/// Finds a job; `None` if there is none of this id.
pub fn locate(id: i64) -> Option<Place> {
    let found = LOCATE.first(&[big(id)], |rows| Place {
        id,
        state: rows.given(0, "state"),
        seq: rows.get(0, "seq"),
        queue: rows.given(0, "queue"),
        priority: rows.given(0, "priority"),
        token: rows.get(0, "token"),
        unique_key: rows.get(0, "unique_key"),
        is_asked_to_stop: rows.given(0, "is_asked_to_stop"),
        cancel_reason: rows.get(0, "cancel_reason"),
    });
    // A row of job that is in no place at all is no job: nothing could ever take it.
    found.filter(|place| place.state != State::Available || place.seq.is_some())
}

impl Place {
    /// Whether it runs, and this is its current token.
    pub fn is_held_with(&self, token: i64) -> bool {
        self.state == State::Running && self.token == Some(token)
    }

    /// Takes the job out of where it was seen; `None` if it has moved since. Waits for
    /// whoever is moving it.
    pub fn take(&self) -> Option<TakenRow> {
        let plan = match self.state {
            State::Running => {
                let (id, token, then) = (self.id, self.token?, Then::Taken);
                let attempt = Attempt { id, token, then };
                let mut ended = finish::end(&[attempt], Wait::ForAll);
                return ended.taken.pop().map(|(_, row)| row);
            }
            State::Available => &TAKE_READY,
            State::Scheduled | State::Pending | State::Retryable => &TAKE_SCHEDULED,
            State::Completed | State::Cancelled | State::Discarded => &TAKE_FINISHED,
        };
        let row = plan.first(&self.row(), |rows| TakenRow::read(rows, 0))?;
        if self.state.is_final() {
            fail_if_changed(&[self.id]);
        }
        Some(row)
    }

    /// What its row is found by, as it was seen: the parameters of statements that take or lock it.
    fn row(&self) -> Vec<Arg> {
        match self.state {
            State::Available => vec![
                text(&self.queue),
                Some(Datum::from(self.priority)),
                self.seq.map(Datum::from),
            ],
            State::Running => vec![big(self.id), self.token.map(Datum::from)],
            state => vec![big(self.id), text(state.as_str())],
        }
    }

    /// Locks a job where it was seen; whether it still is there. Shared, a running or final job can
    /// still be changed where it is (by a heartbeat), but not moved.
    pub fn lock(&self, shared: bool) -> bool {
        let plan = match (self.state, shared) {
            (State::Available, _) => &LOCK_READY,
            (State::Scheduled | State::Pending | State::Retryable, _) => &LOCK_SCHEDULED,
            (State::Running, true) => &LOCK_RUNNING_SHARED,
            (State::Running, false) => &LOCK_RUNNING,
            (_, true) => &LOCK_FINISHED_SHARED,
            (_, false) => &LOCK_FINISHED,
        };
        plan.execute(&self.row()) > 0
    }

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

    /// Whether the worker of a running job was asked to stop, for this reason if one is given.
    pub fn is_asked_to_stop_for(&self, reason: Option<&str>) -> bool {
        self.is_asked_to_stop && (reason.is_none() || self.cancel_reason.as_deref() == reason)
    }

    /// Asks the worker of a running job to stop; whether the job still is where it was seen and
    /// nobody else has asked for the same.
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

/// What runs or is final may have got other values where it is, by an insert that updates it. Who
/// takes it waits for that, and then has to go by the new values: a snapshot that does not show
/// them fails to serialize.
pub(super) fn fail_if_changed(ids: &[i64]) {
    if !transaction::is_read_committed() {
        LOCK_JOBS.execute(&[bigs(ids)]);
    }
}

/// When a job that was taken was to be due, as given. Read after it was, for who changes that puts
/// it where it is found again.
pub fn scheduled_at(id: i64) -> Option<i64> {
    SCHEDULED_AT.value(&[big(id)])
}

/// Locks those of these jobs that wait, so that nobody fetches them.
pub fn lock_waiting(ids: &BTreeSet<i64>) {
    let ids: Vec<i64> = ids.iter().copied().collect();
    for plan in [&LOCK_ALL_READY, &LOCK_ALL_REQUEUED, &LOCK_ALL_SCHEDULED] {
        plan.execute(&[bigs(&ids)]);
    }
}

/// Locks those of these jobs that are running, in the order of their ids.
pub fn lock_running(ids: &BTreeSet<i64>) {
    if !ids.is_empty() {
        let ids: Vec<i64> = ids.iter().copied().collect();
        LOCK_ALL_RUNNING.execute(&[bigs(&ids)]);
    }
}

/// Details that say nothing but the error's type.
pub fn details_of_type(name: &str) -> Jsonb {
    Jsonb::from_text(&format!("{{\"type\": \"{name}\"}}"))
}

/// A token that a finishing call has used.
pub struct Used {
    /// which call; `None`: one that gave the job back, too long ago to tell which
    pub call: Option<String>,
    pub state: State,
    /// and when it was to be due again
    pub scheduled_at: Option<i64>,
}

impl Used {
    /// Whether it may have been this call.
    pub fn may_be(&self, call: &str) -> bool {
        match &self.call {
            Some(used) => used == call,
            None => matches!(call, "snooze" | "release"),
        }
    }
}

/// Which worker holds a running job, and since when.
pub fn holder(id: i64) -> Option<(String, i64)> {
    let held = |rows: &Tuples| rows.get(0, "worker").zip(rows.get(0, "attempted_at"));
    HOLDER.first(&[big(id)], held).flatten()
}

/// What a finishing call made of a job with this token, if one did.
pub fn used(id: i64, token: i64) -> Option<Used> {
    USED.first(&[big(id), big(token)], |rows| Used {
        call: rows.get(0, "call"),
        state: rows.given(0, "state"),
        scheduled_at: rows.get(0, "scheduled_at"),
    })
}

/// What is to change of a job; `None`: it stays as it is.
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

/// Deletes what is left of a job that was taken out of its place.
pub fn erase(place: &Place) {
    for plan in [&ERASE_JOB, &ERASE_ERRORS, &ERASE_ANSWERS] {
        plan.execute(&[big(place.id)]);
    }
    effects::deleted(place.id, place.unique_key);
}

// The row of a job j that says where it is: a or b of ready, r of running, s of scheduled, f of
// finished.
macro_rules! joined_to_its_row {
    () => {
        "LEFT JOIN jobs.ready a ON a.queue = j.queue AND a.priority = j.priority AND a.seq = j.id
         LEFT JOIN jobs.ready b ON b.job_id = j.id AND b.seq <> b.job_id
         LEFT JOIN jobs.running r ON r.job_id = j.id
         LEFT JOIN jobs.scheduled s ON s.job_id = j.id
         LEFT JOIN jobs.finished f ON f.job_id = j.id"
    };
}
pub(super) use joined_to_its_row;

static LOCATE: Plan = Plan::new(
    concat!(
        "SELECT CASE WHEN r.job_id IS NOT NULL THEN 'running'
                 ELSE COALESCE(s.state::text, f.state::text, 'available') END AS state,
            COALESCE(a.seq, b.seq) AS seq, COALESCE(b.queue, j.queue) AS queue, COALESCE(b.priority, j.priority) AS priority,
            COALESCE(r.token, f.token) AS token, j.unique_key, r.cancel_requested_at IS NOT NULL AS is_asked_to_stop, r.cancel_reason
       FROM jobs.job j ",
        joined_to_its_row!(),
        " WHERE j.id = $1"
    ),
    &[INT8],
);

static TAKE_READY: Plan = Plan::new(
    "DELETE FROM jobs.ready WHERE queue = $1 AND priority = $2 AND seq = $3
     RETURNING attempt, scheduled_at, available_at",
    &[TEXT, INT2, INT8],
);
static TAKE_SCHEDULED: Plan = Plan::new(
    "DELETE FROM jobs.scheduled WHERE job_id = $1 AND state = $2::jobs.state
     RETURNING attempt, NULLIF(due_at, 'infinity') AS scheduled_at",
    &[INT8, TEXT],
);
static TAKE_FINISHED: Plan = Plan::new(
    "DELETE FROM jobs.finished WHERE job_id = $1 AND state = $2::jobs.state
     RETURNING attempt, scheduled_at, token",
    &[INT8, TEXT],
);
static HOLDER: Plan = Plan::new(
    "SELECT worker, attempted_at FROM jobs.running WHERE job_id = $1",
    &[INT8],
);
static LOCK_JOBS: Plan = Plan::new(
    "SELECT FROM jobs.job WHERE id = ANY ($1) FOR SHARE",
    &[INT8S],
);
static SCHEDULED_AT: Plan = Plan::new("SELECT scheduled_at FROM jobs.job WHERE id = $1", &[INT8]);
static LOCK_RUNNING_SHARED: Plan = Plan::new(
    "SELECT FROM jobs.running WHERE job_id = $1 AND token = $2 FOR KEY SHARE",
    &[INT8, INT8],
);
static LOCK_FINISHED: Plan = Plan::new(
    "SELECT FROM jobs.finished WHERE job_id = $1 AND state = $2::jobs.state FOR UPDATE",
    &[INT8, TEXT],
);
static LOCK_READY: Plan = Plan::new(
    "SELECT FROM jobs.ready WHERE queue = $1 AND priority = $2 AND seq = $3 FOR UPDATE",
    &[TEXT, INT2, INT8],
);
static LOCK_SCHEDULED: Plan = Plan::new(
    "SELECT FROM jobs.scheduled WHERE job_id = $1 AND state = $2::jobs.state FOR UPDATE",
    &[INT8, TEXT],
);
static LOCK_RUNNING: Plan = Plan::new(
    "SELECT FROM jobs.running WHERE job_id = $1 AND token = $2 FOR UPDATE",
    &[INT8, INT8],
);
static LOCK_ALL_READY: Plan = Plan::new(
    "SELECT FROM unnest($1) AS n(id) JOIN jobs.job j ON j.id = n.id
       JOIN jobs.ready r ON r.queue = j.queue AND r.priority = j.priority AND r.seq = j.id FOR UPDATE OF r",
    &[INT8S],
);
static LOCK_ALL_REQUEUED: Plan = Plan::new(
    "SELECT FROM unnest($1) AS n(id) JOIN jobs.ready r ON r.job_id = n.id AND r.seq <> r.job_id FOR UPDATE OF r",
    &[INT8S],
);
static LOCK_ALL_SCHEDULED: Plan = Plan::new(
    "SELECT FROM unnest($1) AS n(id) JOIN jobs.scheduled s ON s.job_id = n.id FOR UPDATE OF s",
    &[INT8S],
);
static LOCK_ALL_RUNNING: Plan = Plan::new(
    "SELECT FROM jobs.running WHERE job_id = ANY ($1) ORDER BY job_id FOR UPDATE",
    &[INT8S],
);
static LOCK_FINISHED_SHARED: Plan = Plan::new(
    "SELECT FROM jobs.finished WHERE job_id = $1 AND state = $2::jobs.state FOR KEY SHARE",
    &[INT8, TEXT],
);
static FORGET_SCHEDULE_RUNNING: Plan = Plan::new(
    "UPDATE jobs.running SET scheduled_at = NULL WHERE job_id = $1 AND scheduled_at IS NOT NULL RETURNING lease_expires_at",
    &[INT8],
);
static FORGET_SCHEDULE_FINISHED: Plan = Plan::new(
    "UPDATE jobs.finished SET scheduled_at = NULL WHERE job_id = $1 AND scheduled_at IS NOT NULL",
    &[INT8],
);
static KEEP_QUEUE: Plan = Plan::new(
    "UPDATE jobs.running r SET queue = j.queue FROM jobs.job j WHERE r.job_id = $1 AND j.id = r.job_id AND r.queue IS NULL
     RETURNING r.lease_expires_at",
    &[INT8],
);
static REQUEST_CANCEL: Plan = Plan::new(
    "UPDATE jobs.running SET cancel_requested_at = COALESCE(cancel_requested_at, $3), cancel_reason = COALESCE($4, cancel_reason)
      WHERE job_id = $1 AND token = $2
        AND (cancel_requested_at IS NULL OR cancel_reason IS DISTINCT FROM COALESCE($4, cancel_reason))
     RETURNING lease_expires_at, worker",
    &[INT8, INT8, AT, TEXT],
);

// Which call it was stands nowhere by itself: a failed attempt left an error, a job given back an
// answer, one that was completed the state. An answer with a time is a snooze's; it tells of a
// cancelled job as well, which has none.
static USED: Plan = Plan::new(
    "SELECT u.call, u.state, u.scheduled_at FROM (
       SELECT 'fail' AS call, e.state::text, e.scheduled_at FROM jobs.error e WHERE e.job_id = $1 AND e.token = $2
       UNION ALL
       SELECT CASE WHEN a.state = 'completed' THEN 'complete' WHEN a.scheduled_at IS NULL THEN 'release' ELSE 'snooze' END,
              a.state::text, CASE WHEN a.state = 'scheduled' THEN a.scheduled_at END
         FROM jobs.answer a WHERE a.job_id = $1 AND a.token = $2
       UNION ALL
       SELECT CASE WHEN f.state = 'completed' THEN 'complete' END, f.state::text, NULL
         FROM jobs.finished f WHERE f.job_id = $1 AND f.token = $2) u
      ORDER BY u.call LIMIT 1",
    &[INT8, INT8],
);

// The columns, and what they become: as they are, where a parameter is null.
fn columns_and_values() -> (String, String) {
    let columns = changed::NAMES[1..].iter().map(|name| name.to_lowercase());
    let columns: Vec<String> = columns.collect();
    let value = |(n, column)| format!("COALESCE(${n}, {column})");
    let values: Vec<String> = (2..).zip(&columns).map(value).collect();
    (columns.join(", "), values.join(", "))
}
static REWRITE: Plan = Plan::built(
    || {
        let (columns, values) = columns_and_values();
        format!(
            "UPDATE jobs.job SET ({columns}) = ROW ({values}) WHERE id = $1 RETURNING args, meta"
        )
    },
    changed::TYPES,
);
// A schedule that it was given also takes the place of the one that it waits for now.
static SAYS: Plan = Plan::built(
    || {
        let (columns, values) = columns_and_values();
        let at = changed::SCHEDULED_AT;
        format!(
            "SELECT FROM jobs.job
              WHERE id = $1 AND record_image_eq(ROW ({columns}), ROW ({values}))
                AND (${at} IS NULL OR EXISTS (
                  SELECT FROM jobs.scheduled s
                   WHERE s.job_id = id AND (s.state = 'pending' OR s.state = 'scheduled' AND s.due_at = ${at})))"
        )
    },
    changed::TYPES,
);
static GRANT_ATTEMPT: Plan = Plan::new(
    "UPDATE jobs.job SET max_attempts = LEAST(max_attempts, 2147483646) + 1 WHERE id = $1 AND max_attempts <= $2",
    &[INT8, INT4],
);
static ERASE_JOB: Plan = Plan::new("DELETE FROM jobs.job WHERE id = $1", &[INT8]);
static ERASE_ERRORS: Plan = Plan::new("DELETE FROM jobs.error WHERE job_id = $1", &[INT8]);
static ERASE_ANSWERS: Plan = Plan::new("DELETE FROM jobs.answer WHERE job_id = $1", &[INT8]);
