//! The end of an attempt that did not complete: what becomes of the job. Used by the
//! worker's own calls and by the rescue of expired leases, which must not differ.

use jobs_core::interval::Interval;
use jobs_core::retry;
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use crate::pg::time;
use crate::store::place::{self, Failure, Stopped};

/// What is told of a failed attempt.
pub struct Told<'a> {
    /// the caller's token; `None`: its worker did not say so itself
    pub token: Option<i64>,
    /// the error's text
    pub error: &'a str,
    /// its type, code, trace, ..
    pub details: Option<Datum>,
    /// `None`: the job's policy
    pub retry_in: Option<Interval>,
    /// whether to try again at all
    pub retryable: bool,
}

/// Puts a job whose attempt failed where it belongs; its state and when it is due again.
pub fn failed(id: i64, mut stopped: Stopped, told: &Told, now: i64) -> (State, Option<i64>) {
    let exhausted = stopped.luggage.attempt >= stopped.max_attempts;
    let (state, due_at) = if stopped.luggage.cancel_requested_at.is_some() {
        (State::Cancelled, None)
    } else if exhausted || !told.retryable {
        (State::Discarded, None)
    } else {
        let due_at = match told.retry_in {
            Some(delay) => time::add(now, delay),
            None => now.saturating_add(retry::river_delay_micros(
                stopped.errors.try_into().unwrap_or(u32::MAX),
                unit_random(),
            )),
        };
        if due_at <= now {
            (State::Available, Some(now))
        } else {
            (State::Retryable, Some(due_at))
        }
    };
    place::note_error(
        id,
        &Failure {
            at: now,
            attempt: stopped.luggage.attempt,
            token: told.token,
            state,
            scheduled_at: due_at,
            error: told.error,
            details: told.details,
        },
    );
    match (state, due_at) {
        (State::Retryable, Some(due_at)) => {
            place::put_scheduled(id, state, due_at, &stopped.luggage)
        }
        (State::Available, due_at) => {
            stopped.luggage.scheduled_at = due_at;
            place::put_ready(id, &stopped.luggage);
        }
        _ => {
            stopped.luggage.token = told.token;
            place::put_finished(id, state, now, &stopped.luggage);
        }
    }
    (state, due_at)
}

/// Puts back a job whose attempt does not count: until `due_at`, or available at once.
pub fn given_back(
    id: i64,
    token: i64,
    mut stopped: Stopped,
    now: i64,
    due_at: Option<i64>,
) -> (State, Option<i64>) {
    if stopped.luggage.cancel_requested_at.is_some() {
        stopped.luggage.token = Some(token);
        place::put_finished(id, State::Cancelled, now, &stopped.luggage);
        return (State::Cancelled, None);
    }
    stopped.luggage.attempt -= 1;
    let state = match due_at {
        Some(due_at) => {
            place::put_scheduled(id, State::Scheduled, due_at, &stopped.luggage);
            State::Scheduled
        }
        None => {
            place::put_ready(id, &stopped.luggage);
            State::Available
        }
    };
    place::note_answer(id, token, now, state, due_at);
    (state, due_at)
}

/// A random number in [0, 1), for jitter.
fn unit_random() -> f64 {
    let mut bytes = [0u8; 8];
    // SAFETY: fills exactly the buffer; without random numbers there is no jitter, which is no harm.
    unsafe { pgrx::pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) };
    (u64::from_ne_bytes(bytes) >> 11) as f64 / (1u64 << 53) as f64
}
