//! Where jobs go that were taken out of where they were, one or many at once.

use std::borrow::Cow;

use jobs_core::key::Key;
use jobs_core::retry::{self, Retry};
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::effects::{Arrived, Spot};
use super::history::Over;
use super::place::TakenRow;
use super::spi::{Tuples, big, column, plans, text};
use super::types::*;
use super::{direct, effects, retention};
use crate::pg::jsonb::Jsonb;
use crate::pg::time;

/// What decides whether a job is tried again.
pub struct Tries {
    pub max_attempts: i32,
    pub errors: i64,
    pub retry: Retry,
}

/// How often jobs that were taken are tried; `None`: there is no such job. Read after they were:
/// who takes one may have waited for an update.
pub fn tries(ids: &[i64]) -> Vec<Option<Tries>> {
    direct::moves::tries(ids).unwrap_or_else(|| {
        let read = |id: &i64| {
            TRIES.first(&[big(*id)], |rows| Tries {
                max_attempts: rows.given(0, "max_attempts"),
                errors: rows.given(0, "errors"),
                retry: read_retry(rows.raw(0, "retry")),
            })
        };
        ids.iter().map(read).collect()
    })
}

/// A stored policy was valid when it was stored.
pub(super) fn read_retry(stored: Option<Datum>) -> Retry {
    let value = stored.and_then(|stored| Jsonb::from_datum(stored).to_value("retry").ok());
    value.and_then(|value| retry::parse(&value, &time::read_interval).ok()).unwrap_or_default()
}

/// A job that was taken, and where it goes.
pub struct Move {
    pub id: i64,
    pub row: TakenRow,
    pub to: To,
    /// The call that gave the job back, where no other table will tell.
    pub answer: Option<Answer>,
    /// Its attempt failed.
    pub has_failed: bool,
    /// The key that it counts under again, since it was final.
    pub returns_under: Option<Key>,
    /// When its hold would have ended, if the move releases it.
    pub releases: Option<i64>,
}

impl Move {
    /// A move without further effects.
    pub fn new(id: i64, row: TakenRow, to: To) -> Move {
        Move { id, row, to, answer: None, has_failed: false, returns_under: None, releases: None }
    }

    /// What the history counts.
    pub(super) fn over(&self, at: i64) -> Over<'_> {
        Over {
            id: self.id,
            key: self.row.history_key,
            queue: self.row.queue.as_deref(),
            began_at: self.row.attempted_at,
            ended_at: at,
        }
    }
}

/// Where a job goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// Available, at the end of its lane.
    Ready,
    /// It is available at its earlier place in its lane.
    Back(i64),
    /// Scheduled, retryable or pending, until then.
    Scheduled(State, i64),
    /// Final.
    Finished(State),
}

impl To {
    pub fn waits(self) -> bool {
        !matches!(self, To::Finished(_))
    }

    pub fn state(self) -> State {
        match self {
            To::Ready | To::Back(_) => State::Available,
            To::Scheduled(state, _) | To::Finished(state) => state,
        }
    }
}

/// What a token did that gave a job back.
#[derive(Clone, Copy)]
pub struct Answer {
    pub token: i64,
    pub state: State,
    /// The end of a snooze, also where the job was cancelled instead.
    pub scheduled_at: Option<i64>,
}

/// Puts jobs where they go, in this order. Jobs that became final did so at that time.
pub fn put(moves: &[Move], at: i64) {
    let waiting = direct::moves::put(moves, at).unwrap_or_else(|| {
        let put = |one: &Move| {
            pgrx::check_for_interrupts!();
            put_by_statements(one, at)
        };
        moves.iter().filter_map(put).collect()
    });
    effects::moved(moves, &waiting, at);
}

/// Puts one job where it goes; a final one became so at that time.
pub fn put_one(id: i64, row: TakenRow, to: To, at: i64) {
    put(&[Move::new(id, row, to)], at);
}

fn put_by_statements(one: &Move, at: i64) -> Option<Arrived> {
    let arrived = match one.to {
        To::Ready => put_ready(one, None),
        To::Back(seq) => put_ready(one, Some(seq)),
        To::Scheduled(state, due_at) => put_scheduled(one, state, due_at),
        To::Finished(state) => {
            put_finished(one, state, at);
            None
        }
    };
    if let Some(answer) = one.answer {
        NOTE_ANSWER.execute(&[
            big(one.id),
            big(answer.token),
            big(at),
            answer.scheduled_at.and_then(big),
            text(answer.state.as_str()),
        ]);
    }
    arrived
}

/// At its earlier place in the lane, or at the end.
fn put_ready(one: &Move, back_to: Option<i64>) -> Option<Arrived> {
    let args = [
        big(one.id),
        Some(Datum::from(one.row.attempt)),
        one.row.scheduled_at.and_then(big),
        one.row.available_at.and_then(big),
        back_to.and_then(big),
    ];
    let read = |rows: &Tuples| {
        let (priority, seq) = (rows.get(0, "priority")?, rows.get(0, "seq")?);
        let spot = match back_to {
            None => Spot::Ready { priority, seq },
            Some(_) => Spot::Back { priority, seq },
        };
        Some((rows.get(0, "queue")?, spot))
    };
    PUT_READY.first(&args, read).flatten()
}

fn put_scheduled(one: &Move, state: State, due_at: i64) -> Option<Arrived> {
    let args = [big(one.id), text(state.as_str()), big(due_at), Some(Datum::from(one.row.attempt))];
    Some((PUT_SCHEDULED.value(&args)?, Spot::Scheduled { due_at }))
}

fn put_finished(one: &Move, state: State, at: i64) {
    let row = &one.row;
    let kept_until = retention::kept_until(one.id, state, at);
    PUT_FINISHED.execute(&[
        big(one.id),
        text(state.as_str()),
        big(at),
        row.token.and_then(big),
        row.attempted_at.and_then(big),
        row.scheduled_at.and_then(big),
        row.cancel_requested_at.and_then(big),
        Some(Datum::from(row.attempt)),
        row.worker.as_deref().and_then(text),
        row.cancel_reason.as_deref().and_then(text),
        kept_until.and_then(big),
    ]);
}

/// A row of `error`: one failed attempt.
pub struct ErrorRow<'a> {
    pub job_id: i64,
    pub at: i64,
    pub attempt: i32,
    /// The token of the fail call. `None`: the server failed the attempt.
    pub token: Option<i64>,
    /// The state that the job got.
    pub state: State,
    /// When the job is due again.
    pub scheduled_at: Option<i64>,
    /// The worker of the attempt, if it had one.
    pub worker: Option<String>,
    pub error: &'a str,
    /// Type, code, trace and so on.
    pub details: Option<Jsonb>,
}

/// Appends failed attempts to the errors of their jobs.
pub fn note_errors(rows: &[ErrorRow]) {
    if rows.is_empty() {
        return;
    }
    NOTE_ERRORS.execute(&[
        column(INT8, rows, |row| big(row.job_id)),
        column(AT, rows, |row| big(row.at)),
        column(INT8, rows, |row| row.token.and_then(big)),
        column(AT, rows, |row| row.scheduled_at.and_then(big)),
        column(INT4, rows, |row| Some(Datum::from(row.attempt))),
        column(TEXT, rows, |row| text(row.state.as_str())),
        column(TEXT, rows, |row| row.worker.as_deref().and_then(text)),
        column(TEXT, rows, |row| text(&kept(row.error))),
        column(JSONB, rows, |row| row.details.map(Jsonb::datum)),
    ]);
}

/// Details that say nothing but the error's type.
pub fn details_of_type(name: &str) -> Jsonb {
    Jsonb::from_text(&format!("{{\"type\": \"{name}\"}}"))
}

/// What is kept of an error's text: its beginning, where it is too long. The end then says so.
fn kept(error: &str) -> Cow<'_, str> {
    const LONGEST: usize = 1_000_000;
    if error.len() <= LONGEST {
        return Cow::Borrowed(error);
    }
    let note = format!(" ... (cut: the error has {} bytes)", error.len());
    let beginning = &error[..error.floor_char_boundary(LONGEST - note.len())];
    Cow::Owned(format!("{beginning}{note}"))
}

plans! {
    TRIES(INT8) =
        "SELECT j.max_attempts, (SELECT count(*) FROM jobs.error e WHERE e.job_id = j.id) AS errors, j.retry FROM jobs.job j WHERE j.id = $1";
    NOTE_ERRORS(INT8S, ATS, INT8S, ATS, INT4S, TEXTS, TEXTS, TEXTS, JSONBS) =
        "INSERT INTO jobs.error (job_id, at, token, scheduled_at, attempt, state, worker, error, details)
         SELECT e.job_id, e.at, e.token, e.scheduled_at, e.attempt, e.state::jobs.state, e.worker, e.error, e.details
           FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
             AS e(job_id, at, token, scheduled_at, attempt, state, worker, error, details)";
    PUT_READY(INT8, INT4, AT, AT, INT8) =
        "INSERT INTO jobs.ready (seq, job_id, scheduled_at, available_at, expires_at, attempt, priority, queue)
         SELECT COALESCE($5, nextval('jobs.job_seq')), j.id, NULLIF($3, COALESCE(j.scheduled_at, j.created_at)), $4, j.expires_at, $2, j.priority, j.queue
           FROM jobs.job j WHERE j.id = $1 RETURNING queue, priority, seq";
    PUT_SCHEDULED(INT8, TEXT, AT, INT4) =
        "INSERT INTO jobs.scheduled (job_id, due_at, expires_at, attempt, state, queue)
         SELECT j.id, $3, j.expires_at, $4, $2::jobs.state, j.queue FROM jobs.job j WHERE j.id = $1 RETURNING queue";
    PUT_FINISHED(INT8, TEXT, AT, INT8, AT, AT, AT, INT4, TEXT, TEXT, AT) =
        "INSERT INTO jobs.finished (job_id, state, finalized_at, token, attempted_at, scheduled_at, cancel_requested_at,
                                    attempt, worker, cancel_reason, kept_until, is_kept)
         VALUES ($1, $2::jobs.state, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11 IS NOT NULL)";
    NOTE_ANSWER(INT8, INT8, AT, AT, TEXT) =
        "INSERT INTO jobs.answer (job_id, token, at, scheduled_at, state) VALUES ($1, $2, $3, $4, $5::jobs.state)
         ON CONFLICT DO NOTHING";
}
