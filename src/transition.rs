//! Moves of a job that several callers make: what becomes of it when an attempt did not
//! complete (the worker's own calls and the rescue of expired leases must not differ),
//! and how it is cancelled and changed by id.

use jobs_core::interval::Interval;
use jobs_core::policy::{Field, Fields};
use jobs_core::retry;
use jobs_core::state::State;
use jobs_core::verdict::Verdict;
use pgrx::pg_sys::Datum;
use pgrx::{check_for_interrupts, pg_sys};

use crate::error::{Error, Result};
use crate::pg::time;
use crate::store::claims::{self, Holder};
use crate::store::insert::NewJob;
use crate::store::place::{self, Failure, Place, Stopped};

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

/// Cancels a job where it was seen, a running one at once; whether it was still there.
pub fn cancelled(place: &Place, reason: Option<&str>) -> bool {
    let Some(mut luggage) = place.take() else {
        return false;
    };
    let now = time::now();
    luggage.cancel_requested_at.get_or_insert(now);
    luggage.cancel_reason = reason.map(str::to_string).or(luggage.cancel_reason);
    place::put_finished(place.id, State::Cancelled, now, &luggage);
    true
}

/// Locks a job that an insert is to replace or update, so that nobody else moves it; `None` if it
/// is in another state by now.
pub fn locked(holder: &Holder, verdict: &Verdict) -> Result<Option<Place>> {
    // Values of a job's own row do not keep its worker from saying that it is alive.
    let shared = match verdict {
        Verdict::Update { fields, .. } => !fields.contains(Field::ScheduledAt),
        _ => false,
    };
    let locked = chase(holder.id, |place| {
        if holder.state() != Some(place.state) {
            return Some(None);
        }
        place.lock(shared).then(|| Some(place.clone()))
    })?;
    Ok(locked.flatten())
}

/// Gives a job that is locked values of a new one.
pub fn updated(place: &Place, fields: Fields, new: &NewJob) {
    if !place.state.is_final() && place.state != State::Running {
        requeued(place, fields, new);
        return;
    }
    place::rewrite(place.id, fields, new);
    if fields.contains(Field::ScheduledAt) {
        place.forget_schedule();
        // A final job may have been what others under its key were put aside for, by its schedule.
        if let Some(key) = place.unique_key.filter(|_| place.state.is_final()) {
            claims::come_back(key, place.id, time::now());
        }
    }
}

/// Changes a job that waits; whether it was still there. It is taken out and put in again: a
/// fetch must get all of the new values or none, and where it waits depends on them.
fn requeued(place: &Place, fields: Fields, new: &NewJob) -> bool {
    let Some(mut luggage) = place.take() else {
        return false;
    };
    let id = place.id;
    let lane = [Field::Queue, Field::Priority];
    let stays = !lane.into_iter().any(|field| fields.contains(field));
    place::rewrite(id, fields, new);
    let now = time::now();
    let reschedule = fields
        .contains(Field::ScheduledAt)
        .then(|| new.scheduled_at());
    match (place.state, reschedule) {
        (State::Pending, _) => place::put_scheduled(id, State::Pending, i64::MAX, &luggage),
        (_, Some(at)) if at > now => place::put_scheduled(id, State::Scheduled, at, &luggage),
        (State::Available, None) if stays => place::put_back(place, &luggage),
        (State::Available, None) => place::put_ready(id, &luggage),
        (_, Some(at)) => {
            luggage.scheduled_at = Some(at);
            place::put_ready(id, &luggage);
        }
        (state, None) => {
            let due_at = luggage.scheduled_at.unwrap_or(now);
            place::put_scheduled(id, state, due_at, &luggage);
        }
    }
    true
}

/// Acts on a job where it is seen, and when it has moved meanwhile (`None`) looks again, until
/// it is caught, or is not there at all (then that is the answer: `None`).
pub fn chase<T>(id: i64, act: impl Fn(&Place) -> Option<T>) -> Result<Option<T>> {
    loop {
        check_for_interrupts!();
        let Some(place) = place::locate(id) else {
            return Ok(None);
        };
        if let Some(done) = act(&place) {
            return Ok(Some(done));
        }
        // SAFETY: reads a variable. One snapshot would show the same place for ever.
        if unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ as i32 {
            return Err(Error::serialization(id));
        }
    }
}

/// A random number in [0, 1), for jitter.
fn unit_random() -> f64 {
    let mut bytes = [0u8; 8];
    // SAFETY: fills exactly the buffer; without random numbers there is no jitter, which is no harm.
    unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) };
    (u64::from_ne_bytes(bytes) >> 11) as f64 / (1u64 << 53) as f64
}
