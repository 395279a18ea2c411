//! Where jobs go whose attempts ended, many at once: [`super::finish`] takes them out of `running`.

use std::borrow::Cow;

use jobs_core::retry::{self, Retry};
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::direct;
use super::place::{self, TakenRow};
use super::spi::{Plan, big, column, text};
use super::types::*;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;

/// What decides whether a job is tried again.
pub struct Tries {
    /// all tries
    pub max_attempts: i32,
    /// how many errors it has
    pub errors: i64,
    /// how it is retried
    pub retry: Retry,
}

/// How often jobs that were taken are tried; `None`: there is no such job. Read after they were:
/// who takes one may have waited for an update.
pub fn tries(ids: &[i64]) -> Vec<Option<Tries>> {
    direct::moves::tries(ids).unwrap_or_else(|| {
        let read = |id: &i64| {
            TRIES.first(&[big(*id)], |rows| Tries {
                max_attempts: rows.int(0, 1).expect("max_attempts"),
                errors: rows.big(0, 2).expect("count"),
                retry: read_retry(rows.datum(0, 3)),
            })
        };
        ids.iter().map(read).collect()
    })
}

/// A stored policy was valid when it was stored.
pub(super) fn read_retry(stored: Option<Datum>) -> Retry {
    let value = stored.and_then(|stored| Jsonb::from_datum(stored).to_value("retry").ok());
    value
        .and_then(|value| retry::parse(&value, &time::read_interval).ok())
        .unwrap_or_default()
}

/// A job that was taken, and where it goes.
pub struct Move {
    /// the job
    pub id: i64,
    /// what it said where it was
    pub row: TakenRow,
    /// where it goes
    pub to: To,
    /// which call gave the job back, where nothing else will tell
    pub answer: Option<Answer>,
}

/// Where a job goes.
#[derive(Clone, Copy)]
pub enum To {
    /// it is available, at the end of its lane
    Ready,
    /// it waits, as scheduled or retryable, until then
    Scheduled(State, i64),
    /// it is final
    Finished(State),
}

impl To {
    /// The state that it has there.
    pub fn state(self) -> State {
        match self {
            To::Ready => State::Available,
            To::Scheduled(state, _) | To::Finished(state) => state,
        }
    }
}

/// What a token did that gave a job back.
#[derive(Clone, Copy)]
pub struct Answer {
    /// the token
    pub token: i64,
    /// what the job became
    pub state: State,
    /// until when a snooze put it off, also where it was cancelled instead
    pub scheduled_at: Option<i64>,
}

/// Puts jobs where they go, in this order. What became final did so at that time.
pub fn put(moves: &[Move], at: i64) {
    direct::moves::put(moves, at).unwrap_or_else(|| {
        for one in moves {
            pgrx::check_for_interrupts!();
            put_by_statements(one, at);
        }
    });
}

fn put_by_statements(one: &Move, at: i64) {
    match one.to {
        To::Ready => place::put_ready(one.id, &one.row),
        To::Scheduled(state, due_at) => place::put_scheduled(one.id, state, due_at, &one.row),
        To::Finished(state) => place::put_finished(one.id, state, at, &one.row),
    }
    if let Some(answer) = one.answer {
        place::note_answer(one.id, answer.token, at, answer.state, answer.scheduled_at);
    }
}

/// A row of `error`: one failed attempt.
pub struct ErrorRow<'a> {
    /// of which job
    pub job_id: i64,
    /// when
    pub at: i64,
    /// which attempt
    pub attempt: i32,
    /// the fail call's token; `None`: its worker did not say so itself
    pub token: Option<i64>,
    /// what became of the job
    pub state: State,
    /// and when it is due again
    pub scheduled_at: Option<i64>,
    /// whose attempt it was; `None`: nobody's
    pub worker: Option<String>,
    /// the error's text
    pub error: &'a str,
    /// type, code, trace, ..
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

static TRIES: Plan = Plan::new(
    "SELECT j.max_attempts, (SELECT count(*) FROM jobs.error e WHERE e.job_id = j.id), j.retry FROM jobs.job j WHERE j.id = $1",
    &[INT8],
);
static NOTE_ERRORS: Plan = Plan::new(
    "INSERT INTO jobs.error (job_id, at, token, scheduled_at, attempt, state, worker, error, details)
     SELECT e.job_id, e.at, e.token, e.scheduled_at, e.attempt, e.state::jobs.state, e.worker, e.error, e.details
       FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
         AS e(job_id, at, token, scheduled_at, attempt, state, worker, error, details)",
    &[INT8S, ATS, INT8S, ATS, INT4S, TEXTS, TEXTS, TEXTS, JSONBS],
);
