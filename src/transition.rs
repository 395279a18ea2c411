//! Moves of a job that several callers make: what becomes of it when an attempt did not
//! complete (the worker's own calls and the rescue of expired leases must not differ),
//! and how it is cancelled and changed by id.

use jobs_core::history::Event;
use jobs_core::interval::Interval;
use jobs_core::policy::{Field, Fields};
use jobs_core::retry::{Retry, Tried};
use jobs_core::state::State;
use jobs_core::verdict::Verdict;
use pgrx::check_for_interrupts;

use crate::error::{Error, Result};
use crate::pg::jsonb::Jsonb;
use crate::pg::{server, time, transaction};
use crate::shmem::announce;
use crate::shmem::commit::{self, Work};
use crate::store::job::NewJob;
use crate::store::look::Holder;
use crate::store::place::{self, Changes, ErrorRow, Place, TakenRow};
use crate::store::{history, notes};

/// An attempt that failed, as whoever noticed says it.
pub struct FailedAttempt<'a> {
    /// the caller's token; `None`: its worker did not say so itself
    pub token: Option<i64>,
    /// the error's text
    pub error: &'a str,
    /// its type, code, trace, ..
    pub details: Option<Jsonb>,
    /// `None`: the job's policy
    pub retry_in: Option<Interval>,
    /// nobody failed: the lease of its worker ran out
    pub lease_lost: bool,
    /// whether to try again at all
    pub retryable: bool,
}

/// Puts a job whose attempt failed where it belongs; its state and when it is due again.
pub fn failed(
    id: i64,
    mut row: TakenRow,
    failed: &FailedAttempt,
    now: i64,
) -> (State, Option<i64>) {
    history::attempt_ended(id, &row, Event::Failed, now);
    let tries = place::tries(id);
    let exhausted = row.attempt >= tries.max_attempts;
    let hopeless = !failed.retryable || is_given_up(&tries.retry, failed.details);
    let (state, due_at) = if row.cancel_requested_at.is_some() {
        (State::Cancelled, None)
    } else if exhausted || hopeless {
        (State::Discarded, None)
    } else {
        let tried = Tried {
            attempt: row.attempt.try_into().unwrap_or(1),
            errors_before: tries.errors.try_into().unwrap_or(u32::MAX),
        };
        let after_lease = tries.retry.after_lease.filter(|_| failed.lease_lost);
        let by_policy =
            || after_lease.unwrap_or_else(|| tries.retry.delay_micros(tried, unit_random()));
        let due_at = match failed.retry_in {
            Some(delay) => time::add(now, delay),
            None => now.saturating_add(by_policy()),
        };
        if due_at <= now {
            (State::Available, Some(now))
        } else {
            (State::Retryable, Some(due_at))
        }
    };
    place::note_error(
        id,
        &ErrorRow {
            at: now,
            attempt: row.attempt,
            token: failed.token,
            state,
            scheduled_at: due_at,
            worker: row.worker.as_deref(),
            error: failed.error,
            details: failed.details.map(Jsonb::datum),
        },
    );
    match (state, due_at) {
        (State::Retryable, Some(due_at)) => put_scheduled(id, state, due_at, &row),
        (State::Available, due_at) => {
            row.scheduled_at = due_at;
            put_ready(id, &row);
        }
        _ => {
            row.token = failed.token;
            place::put_finished(id, state, now, &row);
            let event = match state {
                State::Cancelled => Event::Cancelled,
                _ => Event::Discarded,
            };
            history::became(id, &row, event, now);
        }
    }
    (state, due_at)
}

/// Whether a policy does not try again after an error of the type that its details say.
fn is_given_up(policy: &Retry, details: Option<Jsonb>) -> bool {
    // Details may be long: only who asks for their type has them taken apart.
    let details = details.filter(|_| !policy.non_retryable.is_empty());
    let Some(mut members) = details.and_then(Jsonb::members) else {
        return false;
    };
    let error_type = members.find(|(name, _)| *name == "type");
    policy.gives_up_on(error_type.and_then(|(_, value)| value.as_str()))
}

/// Puts back a job whose attempt does not count: until `due_at`, or available at once.
pub fn given_back(
    id: i64,
    token: i64,
    mut row: TakenRow,
    now: i64,
    due_at: Option<i64>,
) -> (State, Option<i64>) {
    if row.cancel_requested_at.is_some() {
        row.token = Some(token);
        place::put_finished(id, State::Cancelled, now, &row);
        history::attempt_ended(id, &row, Event::Cancelled, now);
        // Its time tells a snooze from a release.
        place::note_answer(id, token, now, State::Cancelled, due_at);
        return (State::Cancelled, None);
    }
    row.attempt -= 1;
    let state = match due_at {
        Some(due_at) => {
            put_scheduled(id, State::Scheduled, due_at, &row);
            State::Scheduled
        }
        None => {
            put_ready(id, &row);
            State::Available
        }
    };
    place::note_answer(id, token, now, state, due_at);
    (state, due_at)
}

/// Cancels a job where it was seen, a running one at once; whether it was still there.
pub fn cancelled(place: &Place, reason: Option<&str>) -> bool {
    let Some(mut row) = place.take() else {
        return false;
    };
    if let Some(worker) = &row.worker {
        // It was running: its worker is told, too.
        announce::cancelled(place.id, worker);
    }
    let now = time::now();
    row.cancel_requested_at.get_or_insert(now);
    row.cancel_reason = reason.map(str::to_string).or(row.cancel_reason);
    place::put_finished(place.id, State::Cancelled, now, &row);
    history::attempt_ended(place.id, &row, Event::Cancelled, now);
    true
}

/// Locks a job that an insert is to replace or update, so that nobody else moves it; `None` if it
/// is in another state by now.
pub fn locked(holder: &Holder, verdict: &Verdict) -> Result<Option<Place>> {
    // Values of a job's own row do not keep its worker from saying that it is alive.
    let is_shared = |place: &Place| match verdict {
        Verdict::Update { fields, .. } => {
            let keeps_queue = place.state == State::Running && fields.contains(Field::Queue);
            !fields.contains(Field::ScheduledAt) && !keeps_queue
        }
        _ => false,
    };
    let locked = chase(holder.id, |place| {
        if holder.state() != Some(place.state) {
            return Some(None);
        }
        place.lock(is_shared(place)).then(|| Some(place.clone()))
    })?;
    Ok(locked.flatten())
}

/// The values of a new job that an existing one takes.
fn taken(fields: Fields, new: &NewJob) -> Changes<'_> {
    let common = &*new.common;
    let takes = |field| fields.contains(field);
    Changes {
        kind: takes(Field::Kind).then_some(common.kind.as_str()),
        args: takes(Field::Args).then_some(new.args),
        queue: takes(Field::Queue).then_some(common.queue.as_str()),
        priority: takes(Field::Priority).then_some(common.priority),
        max_attempts: takes(Field::MaxAttempts).then_some(common.max_attempts),
        meta: takes(Field::Meta).then_some(common.meta),
        tags: takes(Field::Tags).then(|| common.tags.clone()),
        scheduled_at: takes(Field::ScheduledAt).then(|| new.scheduled_at()),
        ..Changes::default()
    }
}

/// Gives a job that is locked values of a new one.
pub fn updated(place: &Place, fields: Fields, new: &NewJob) {
    // It may be due earlier, or be kept for less time.
    commit::wake_worker(Work::MayBeDue);
    let changes = &taken(fields, new);
    if !place.state.is_final() && place.state != State::Running {
        requeued(place, changes);
        return;
    }
    if place.state == State::Running && changes.queue.is_some() {
        place.keep_queue();
    }
    place::rewrite(place.id, changes);
    if place.state.is_final() && (changes.queue.is_some() || changes.scheduled_at.is_some()) {
        place.keep_anew();
    }
    if changes.scheduled_at.is_some() {
        place.forget_schedule();
        // A final job may have been what others under its key were folded for, by its schedule.
        if let Some(key) = place.unique_key.filter(|_| place.state.is_final()) {
            notes::returned(key, place.id, time::now());
        }
    }
}

/// Changes a job that waits, and says what state it is in then; `None` if it is not there any
/// more. It is taken out and put in again: a fetch must get all of the new values or none, and
/// where it waits depends on them.
pub fn requeued(place: &Place, changes: &Changes) -> Option<State> {
    let row = place.take()?;
    let id = place.id;
    place::rewrite(id, changes);
    match (place.state, changes.scheduled_at) {
        (State::Pending, _) => put_scheduled(id, State::Pending, i64::MAX, &row),
        (_, Some(at)) => return Some(put_due(id, at, row)),
        (State::Available, None) if changes.lane() => put_ready(id, &row),
        (State::Available, None) => place::put_back(place, &row),
        (state, None) => {
            let due_at = row.scheduled_at.unwrap_or_else(time::now);
            put_scheduled(id, state, due_at, &row);
        }
    }
    Some(place.state)
}

/// Makes a pending job wait for its time, or available; `None` if it is not there any more.
pub fn activated(place: &Place) -> Option<State> {
    let row = place.take()?;
    let due_at = place::scheduled_at(place.id).unwrap_or_else(time::now);
    Some(put_due(place.id, due_at, row))
}

/// Makes a job available whose time has come, if it waits for that; whether it did.
pub fn became_due(place: &Place) -> bool {
    if !matches!(place.state, State::Scheduled | State::Retryable) {
        return false;
    }
    let Some(row) = place.take() else {
        return false;
    };
    put_ready(place.id, &row);
    true
}

/// Discards a job that was not begun in time; whether it could still be.
pub fn expired(place: &Place, now: i64) -> bool {
    if place.state.is_final() || place.state == State::Running {
        return false;
    }
    let Some(row) = place.take() else {
        return false;
    };
    place::note_error(
        place.id,
        &ErrorRow {
            at: now,
            attempt: row.attempt,
            token: None,
            state: State::Discarded,
            scheduled_at: None,
            worker: None,
            error: "expired",
            details: Some(place::details_of_type("expired").datum()),
        },
    );
    place::put_finished(place.id, State::Discarded, now, &row);
    history::became(place.id, &row, Event::Discarded, now);
    true
}

/// Makes a job that was taken out wait until it is due, or available if it is.
fn put_due(id: i64, due_at: i64, mut row: TakenRow) -> State {
    if due_at > time::now() {
        put_scheduled(id, State::Scheduled, due_at, &row);
        return State::Scheduled;
    }
    row.scheduled_at = Some(due_at);
    put_ready(id, &row);
    State::Available
}

/// Makes a job available, and remembers to tell who waits for it.
pub fn put_ready(id: i64, row: &TakenRow) {
    if let Some(queue) = place::put_ready(id, row) {
        announce::available(&queue);
    }
}

/// Makes a job wait, and remembers to tell who may have to get up earlier for it.
fn put_scheduled(id: i64, state: State, due_at: i64, row: &TakenRow) {
    if let Some(queue) = place::put_scheduled(id, state, due_at, row) {
        announce::waits(&queue);
    }
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
        // One snapshot would show the same place for ever.
        if !transaction::is_read_committed() {
            return Err(Error::serialization(id));
        }
    }
}

/// A random number in [0, 1), for jitter.
fn unit_random() -> f64 {
    let mut bytes = [0u8; 8];
    // Without random numbers there is no jitter, which is no harm.
    server::random(&mut bytes);
    (u64::from_ne_bytes(bytes) >> 11) as f64 / (1u64 << 53) as f64
}
