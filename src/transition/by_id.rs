//! Calls by id: what each does to a job where it was seen. `None` means that it has moved since.

use jobs_core::state::State;
use pgrx::check_for_interrupts;

use crate::cell;
use crate::error::{Error, Result};
use crate::pg::{time, transaction};
use crate::settings;
use crate::store::changes::{self, Changes};
use crate::store::moves::{self, Answer, Move, To};
use crate::store::place::{self, Place, TakenRow};
use crate::store::{effects, erase};

/// What a call made of a job, or why it is refused.
type Done = Option<Result<State>>;

/// Returns true for states that `jobs.cancel` changes.
pub fn can_be_cancelled(state: State) -> bool {
    !state.is_final()
}

/// Cancels a job, a running one at once only by force.
pub fn cancel(place: &Place, reason: Option<&str>, force: bool) -> Done {
    if place.state == State::Running && !force {
        let is_asked = place.request_cancel(time::now(), reason);
        return is_asked.then_some(Ok(State::Running));
    }
    forced(place, reason, None).then_some(Ok(State::Cancelled))
}

/// Cancels a job at once, and releases the hold that it has until then. Returns false if the job
/// has moved.
pub(super) fn forced(place: &Place, reason: Option<&str>, hold_ends_at: Option<i64>) -> bool {
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
    let one =
        Move { releases: hold_ends_at, ..Move::new(place.id, row, To::Finished(State::Cancelled)) };
    moves::put(&[one], now);
    true
}

/// Returns true for states that `jobs.retry` changes.
pub fn can_be_retried(state: State) -> bool {
    !matches!(state, State::Available | State::Running)
}

/// Makes a job available, with one more attempt if it has none left.
pub fn retry(place: &Place, reset: bool) -> Done {
    let mut row = place.take()?;
    let now = time::now();
    // The row that told its worker's repeated call what happened is gone; every other end left
    // another one.
    let token = row.token.take();
    let answer = token.filter(|_| place.state == State::Completed);
    if reset {
        row.attempt = 0;
    }
    changes::grant_attempt(place.id, row.attempt);
    row.scheduled_at = Some(now);
    let one = Move {
        answer: answer.map(|token| Answer { token, state: place.state, scheduled_at: None }),
        returns_under: place.unique_key.filter(|_| place.state.is_final()),
        ..Move::new(place.id, row, To::Ready)
    };
    moves::put(&[one], now);
    Some(Ok(State::Available))
}

/// Makes a pending job wait for its time, or available.
pub fn activate(place: &Place) -> Done {
    if place.state != State::Pending {
        let rule = "Only a pending job can be activated.";
        let error = Error::wrong_state(place.id, place.state, "activate", rule);
        return Some(Err(match can_be_retried(place.state) {
            true => error.hint("Use jobs.retry to make it available."),
            false => error,
        }));
    }
    let row = place.take()?;
    let due_at = changes::scheduled_at(place.id).unwrap_or_else(time::now);
    Some(Ok(put_due(place.id, due_at, row)))
}

/// Returns true for states that `jobs.delete` accepts.
pub fn can_be_deleted(state: State) -> bool {
    state != State::Running
}

/// Deletes a job; the state that it had.
pub fn delete(place: &Place) -> Done {
    if !can_be_deleted(place.state) {
        let rule = "A running job cannot be deleted.";
        let error = Error::wrong_state(place.id, place.state, "delete", rule);
        let hint = "Cancel it first, with force => true if its worker is gone.";
        return Some(Err(error.hint(hint)));
    }
    let row = place.take()?;
    erase::one(place, &row);
    Some(Ok(place.state))
}

fn can_be_updated(state: State) -> bool {
    !state.is_final() && state != State::Running
}

/// Changes a job that waits.
pub fn update(place: &Place, changes: &Changes) -> Done {
    if !can_be_updated(place.state) {
        let rule = "Only a pending, scheduled, available or retryable job can be updated.";
        let error = Error::wrong_state(place.id, place.state, "update", rule);
        return Some(Err(error.hint(match place.state {
            State::Running => "Cancel it and insert another job.",
            _ => "Use jobs.retry to make it available again.",
        })));
    }
    requeued(place, changes).transpose()
}

/// Returns true if [`update`] changes the job or refuses to.
pub fn differs(place: &Place, changes: &Changes) -> bool {
    let goes_to_the_end = place.state == State::Available && changes.lane();
    !can_be_updated(place.state) || goes_to_the_end || !changes::says(place.id, changes)
}

/// Changes a job's row. What it carries is then to be no longer than that of a new job, and it is
/// still to live here.
pub(super) fn rewrite(id: i64, to: &Changes) -> Result<()> {
    cell::own_changed(id, to)?;
    let most = settings::max_payload();
    match changes::rewrite(id, to, most) {
        Some(length) => Err(Error::too_long("args and meta", length, most)),
        None => Ok(()),
    }
}

/// Changes a job that waits, and says what state it is in then; `None` if it is not there any
/// more. It is taken out and put in again: a fetch must get all of the new values or none, and
/// where it waits depends on them.
pub(super) fn requeued(place: &Place, changes: &Changes) -> Result<Option<State>> {
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
