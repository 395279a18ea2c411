//! Where a job is, and how it is locked or taken out of there. The state of a job is the table that
//! its row is in.

use std::collections::BTreeSet;

use jobs_core::key::Key;
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::finish::{self, Attempt, Then, Wait};
use super::spi::{Arg, Row, Tuples, big, bigs, plans, rows, text};
use super::types::*;
use crate::pg::transaction;

rows! {
    /// A job as one snapshot shows it.
    #[derive(Clone)]
    pub struct Place {
        pub id: i64,
        /// The table that its row is in.
        pub state: State,
        /// Of an available job, its position in the lane.
        pub seq: Option<i64>,
        /// Whether a limit holds it back.
        pub is_held: bool,
        /// Of an available job, the lane.
        pub queue: String,
        pub priority: i16,
        /// The current token of a running job; the last token of a final one.
        pub token: Option<i64>,
        /// The key that it was inserted under.
        pub unique_key: Option<Key>,
        /// Whether the worker of a running job was asked to stop.
        pub is_asked_to_stop: bool,
        pub cancel_reason: Option<String>,
    }
}

/// The row of a job that was taken out of where it was: what the next one is to say, too.
#[derive(Clone, Debug, Default)]
pub struct TakenRow {
    pub attempt: i32,
    /// When it was due, where that differs from its first schedule.
    pub scheduled_at: Option<i64>,
    /// When it became available, where that was later than due and inserted.
    pub available_at: Option<i64>,
    /// When the last attempt began.
    pub attempted_at: Option<i64>,
    pub worker: Option<String>,
    /// When a call asked to cancel it.
    pub cancel_requested_at: Option<i64>,
    /// The reason of that call.
    pub cancel_reason: Option<String>,
    /// The token that finished it.
    pub token: Option<i64>,
    /// Of a running job, the number of its queue and kind in the history.
    pub history_key: Option<i32>,
    /// Of a running job, the queue that it was fetched from, where its row has another one by now.
    pub queue: Option<String>,
    /// Of a job that was in a lane, the gate that it counted for there.
    pub gate: Option<i64>,
}

impl Row for TakenRow {
    fn read(rows: &Tuples, row: usize) -> TakenRow {
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
            gate: rows.find(row, "gate"),
        }
    }
}

/// Finds a job; `None` if there is none of this id.
pub fn locate(id: i64) -> Option<Place> {
    let found: Option<Place> = LOCATE.row(&[big(id)]);
    // A row of job that is in no place at all is no job: nothing could ever take it.
    found.filter(|place| place.state != State::Available || place.seq.is_some())
}

impl Place {
    /// Whether it runs, and this is its current token.
    pub fn is_held_with(&self, token: i64) -> bool {
        self.state == State::Running && self.token == Some(token)
    }

    /// Takes the job out of where it was seen; `None` if it has moved since. Waits for
    /// the session that is moving it.
    pub fn take(&self) -> Option<TakenRow> {
        let plan = match self.state {
            State::Running => {
                let (id, token, then) = (self.id, self.token?, Then::Taken);
                let attempt = Attempt { id, token, then };
                let mut ended = finish::end(&[attempt], Wait::ForAll);
                return ended.taken.pop().map(|(_, row)| row);
            }
            State::Available if self.is_held => &TAKE_HELD,
            State::Available => &TAKE_READY,
            State::Scheduled | State::Pending | State::Retryable => &TAKE_SCHEDULED,
            State::Completed | State::Cancelled | State::Discarded => &TAKE_FINISHED,
        };
        let row = plan.row::<TakenRow>(&self.row())?;
        if self.state.is_final() {
            fail_if_changed(&[self.id]);
        }
        Some(row)
    }

    /// What its row is found by, as it was seen: the parameters of statements that take or lock it.
    fn row(&self) -> Vec<Arg> {
        match self.state {
            State::Available if !self.is_held => {
                let seq = self.seq.map(Datum::from);
                vec![text(&self.queue), Some(Datum::from(self.priority)), seq, big(self.id)]
            }
            State::Running => vec![big(self.id), self.token.map(Datum::from)],
            state => vec![big(self.id), text(state.as_str())],
        }
    }

    /// Locks a job where it was seen; whether it still is there. Shared, a running or final job can
    /// still be changed where it is (by a heartbeat), but not moved.
    pub fn lock(&self, shared: bool) -> bool {
        let plan = match (self.state, shared) {
            (State::Available, _) if !self.is_held => &LOCK_READY,
            (State::Available | State::Scheduled | State::Pending | State::Retryable, _) => {
                &LOCK_SCHEDULED
            }
            (State::Running, true) => &LOCK_RUNNING_SHARED,
            (State::Running, false) => &LOCK_RUNNING,
            (_, true) => &LOCK_FINISHED_SHARED,
            (_, false) => &LOCK_FINISHED,
        };
        plan.execute(&self.row()) > 0
    }

    /// Whether the worker of a running job was asked to stop, for this reason if one is given.
    pub fn is_asked_to_stop_for(&self, reason: Option<&str>) -> bool {
        self.is_asked_to_stop && (reason.is_none() || self.cancel_reason.as_deref() == reason)
    }
}

/// What runs or is final may have got other values where it is, by an insert that updates it. Who
/// takes it waits for that, and then has to go by the new values: a snapshot that does not show
/// them fails to serialize.
pub(super) fn fail_if_changed(ids: &[i64]) {
    if !transaction::is_read_committed() {
        LOCK_JOBS.execute(&[bigs(ids)]);
    }
}

/// Locks those of these jobs that wait against fetches.
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

/// Which worker holds a running job, and since when.
pub fn worker_of(id: i64) -> Option<(String, i64)> {
    let held = |rows: &Tuples| rows.get(0, "worker").zip(rows.get(0, "attempted_at"));
    WORKER_OF.first(&[big(id)], held).flatten()
}

// The row of a job j that says where it is: a or b of ready, r of running, s of scheduled, f of
// finished.
pub(super) const JOINED_TO_ITS_ROW: &str =
    "LEFT JOIN jobs.ready a ON a.queue = j.queue AND a.priority = j.priority AND a.seq = j.id
     LEFT JOIN jobs.ready b ON b.job_id = j.id AND b.seq <> b.job_id
     LEFT JOIN jobs.running r ON r.job_id = j.id
     LEFT JOIN jobs.scheduled s ON s.job_id = j.id
     LEFT JOIN jobs.finished f ON f.job_id = j.id";

plans! {
    LOCATE(INT8) =
        "SELECT j.id, CASE WHEN r.job_id IS NOT NULL THEN 'running'
                 ELSE COALESCE(s.state::text, f.state::text, 'available') END AS state,
            COALESCE(a.seq, b.seq, (to_jsonb(s) ->> 'seq')::bigint) AS seq, s.state IS NOT DISTINCT FROM 'available' AS is_held, COALESCE(b.queue, j.queue) AS queue, COALESCE(b.priority, j.priority) AS priority,
            COALESCE(r.token, f.token) AS token, j.unique_key, r.cancel_requested_at IS NOT NULL AS is_asked_to_stop, r.cancel_reason
       FROM jobs.job j {JOINED_TO_ITS_ROW} WHERE j.id = $1";
    TAKE_READY(TEXT, INT2, INT8, INT8) =
        "DELETE FROM jobs.ready r WHERE queue = $1 AND priority = $2 AND seq = $3 AND job_id = $4
         RETURNING attempt, scheduled_at, available_at, (to_jsonb(r) ->> 'gate')::bigint AS gate";
    TAKE_SCHEDULED(INT8, TEXT) =
        "DELETE FROM jobs.scheduled WHERE job_id = $1 AND state = $2::jobs.state
         RETURNING attempt, NULLIF(due_at, 'infinity') AS scheduled_at";
    TAKE_HELD(INT8, TEXT) =
        "DELETE FROM jobs.scheduled WHERE job_id = $1 AND state = $2::jobs.state
         RETURNING attempt, scheduled_at, available_at";
    TAKE_FINISHED(INT8, TEXT) =
        "DELETE FROM jobs.finished WHERE job_id = $1 AND state = $2::jobs.state
         RETURNING attempt, scheduled_at, token";
    WORKER_OF(INT8) = "SELECT worker, attempted_at FROM jobs.running WHERE job_id = $1";
    LOCK_JOBS(INT8S) = "SELECT FROM jobs.job WHERE id = ANY ($1) FOR SHARE";
    LOCK_RUNNING_SHARED(INT8, INT8) =
        "SELECT FROM jobs.running WHERE job_id = $1 AND token = $2 FOR KEY SHARE";
    LOCK_FINISHED(INT8, TEXT) =
        "SELECT FROM jobs.finished WHERE job_id = $1 AND state = $2::jobs.state FOR UPDATE";
    LOCK_READY(TEXT, INT2, INT8, INT8) =
        "SELECT FROM jobs.ready WHERE queue = $1 AND priority = $2 AND seq = $3 AND job_id = $4 FOR UPDATE";
    LOCK_SCHEDULED(INT8, TEXT) =
        "SELECT FROM jobs.scheduled WHERE job_id = $1 AND state = $2::jobs.state FOR UPDATE";
    LOCK_RUNNING(INT8, INT8) =
        "SELECT FROM jobs.running WHERE job_id = $1 AND token = $2 FOR UPDATE";
    LOCK_ALL_READY(INT8S) =
        "SELECT FROM unnest($1) AS n(id) JOIN jobs.job j ON j.id = n.id
           JOIN jobs.ready r ON r.queue = j.queue AND r.priority = j.priority AND r.seq = j.id FOR UPDATE OF r";
    LOCK_ALL_REQUEUED(INT8S) =
        "SELECT FROM unnest($1) AS n(id) JOIN jobs.ready r ON r.job_id = n.id AND r.seq <> r.job_id FOR UPDATE OF r";
    LOCK_ALL_SCHEDULED(INT8S) =
        "SELECT FROM unnest($1) AS n(id) JOIN jobs.scheduled s ON s.job_id = n.id FOR UPDATE OF s";
    LOCK_ALL_RUNNING(INT8S) =
        "SELECT FROM jobs.running WHERE job_id = ANY ($1) ORDER BY job_id FOR UPDATE";
    LOCK_FINISHED_SHARED(INT8, TEXT) =
        "SELECT FROM jobs.finished WHERE job_id = $1 AND state = $2::jobs.state FOR KEY SHARE";
}
