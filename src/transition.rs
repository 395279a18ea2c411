//! Moves of a job that several callers make: how it is cancelled and changed by id, and how it
//! becomes due. How attempts end is in [`attempt`](crate::attempt).

use jobs_core::policy::{Field, Fields};
use jobs_core::state::State;
use jobs_core::verdict::Verdict;
use pgrx::check_for_interrupts;

use crate::error::{Error, Result};
use crate::pg::jsonb::Jsonb;
use crate::pg::{time, transaction};
use crate::settings;
use crate::shmem::commit::{self, Work};
use crate::store::config::Options;
use crate::store::job::NewJob;
use crate::store::look::Holder;
use crate::store::moves::{self, ErrorRow, Move, To};
use crate::store::place::{self, Changes, Place, TakenRow};
use crate::store::{effects, notes};

/// Cancels a job where it was seen, a running one at once, and releases the hold that it has until
/// then. Returns false if the job has moved.
pub fn cancelled(place: &Place, reason: Option<&str>, hold_ends_at: Option<i64>) -> bool {
    let Some(mut row) = place.take() else {
        return false;
    };
    if let Some(worker) = &row.worker {
        // It was running: its worker is told, too.
        effects::asked_to_stop(place.id, worker);
    }
    let now = time::now();
    row.cancel_requested_at.get_or_insert(now);
    row.cancel_reason = reason.map(str::to_string).or(row.cancel_reason);
    let one = Move {
        releases: hold_ends_at,
        ..Move::new(place.id, row, To::Finished(State::Cancelled))
    };
    moves::put(&[one], now);
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
    let options = Options {
        queue: takes(Field::Queue).then(|| common.queue.clone()),
        priority: takes(Field::Priority).then_some(common.priority),
        max_attempts: takes(Field::MaxAttempts).then_some(common.max_attempts),
        meta: takes(Field::Meta).then(|| common.meta.unwrap_or_else(Jsonb::empty_object)),
        tags: takes(Field::Tags).then(|| common.tags.clone().unwrap_or_default()),
        scheduled_at: takes(Field::ScheduledAt).then(|| new.scheduled_at()),
        ..Options::default()
    };
    Changes {
        kind: takes(Field::Kind).then_some(common.kind.as_str()),
        args: takes(Field::Args).then_some(new.args),
        options,
    }
}

/// Gives a job that is locked values of a new one.
pub fn updated(place: &Place, fields: Fields, new: &NewJob) -> Result<()> {
    // It may be due earlier, or be kept for less time.
    commit::wake_worker(Work::MayBeDue);
    let changes = &taken(fields, new);
    if !place.state.is_final() && place.state != State::Running {
        return requeued(place, changes).map(|_| ());
    }
    if place.state == State::Running && changes.options.queue.is_some() {
        place.keep_queue();
    }
    rewrite(place.id, changes)?;
    if place.state.is_final()
        && (changes.options.queue.is_some() || changes.options.scheduled_at.is_some())
    {
        place.keep_anew();
    }
    if changes.options.scheduled_at.is_some() {
        place.forget_schedule();
        // A final job may have been what others under its key were folded for, by its schedule.
        if let Some(key) = place.unique_key.filter(|_| place.state.is_final()) {
            notes::returned(key, place.id, time::now());
        }
    }
    Ok(())
}

/// Changes a job's row. What it carries is then to be no longer than that of a new job.
fn rewrite(id: i64, changes: &Changes) -> Result<()> {
    let most = settings::max_payload();
    match place::rewrite(id, changes, most) {
        Some(length) => Err(Error::too_long("args and meta", length, most)),
        None => Ok(()),
    }
}

/// Changes a job that waits, and says what state it is in then; `None` if it is not there any
/// more. It is taken out and put in again: a fetch must get all of the new values or none, and
/// where it waits depends on them.
pub fn requeued(place: &Place, changes: &Changes) -> Result<Option<State>> {
    let Some(row) = place.take() else {
        return Ok(None);
    };
    rewrite(place.id, changes)?;
    let now = time::now();
    let to = match (place.state, changes.options.scheduled_at) {
        (State::Pending, _) => To::Scheduled(State::Pending, i64::MAX),
        (_, Some(at)) => return Ok(Some(put_due(place.id, at, row))),
        (State::Available, None) => match place.seq.filter(|_| !changes.lane()) {
            Some(seq) => To::Back(seq),
            None => To::Ready,
        },
        (state, None) => To::Scheduled(state, row.scheduled_at.unwrap_or(now)),
    };
    moves::put_one(place.id, row, to, now);
    Ok(Some(place.state))
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
    moves::put_one(place.id, row, To::Ready, time::now());
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
    moves::note_errors(&[ErrorRow {
        job_id: place.id,
        at: now,
        attempt: row.attempt,
        token: None,
        state: State::Discarded,
        scheduled_at: None,
        worker: None,
        error: "expired",
        details: Some(place::details_of_type("expired")),
    }]);
    moves::put_one(place.id, row, To::Finished(State::Discarded), now);
    true
}

/// Makes a job that was taken out wait until it is due, or available if it is.
fn put_due(id: i64, due_at: i64, mut row: TakenRow) -> State {
    let now = time::now();
    let to = match due_at > now {
        true => To::Scheduled(State::Scheduled, due_at),
        false => {
            (row.scheduled_at, row.available_at) = (Some(due_at), Some(now));
            To::Ready
        }
    };
    moves::put_one(id, row, to, now);
    to.state()
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
