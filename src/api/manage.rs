//! Section 4 of the contract: cancel, retry and delete, by id and without a token.

use jobs_core::state::State;
use pgrx::prelude::*;

use super::check;
use crate::error::{Error, OrRaise, Result};
use crate::pg::answer::StateAnswer;
use crate::pg::time;
use crate::store::claims;
use crate::store::place::{self, Place};
use crate::transition;
use crate::worker::wake;

/// Cancels a job. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn cancel(id: Option<i64>, reason: Option<&str>, force: Option<bool>) -> StateAnswer {
    let force = force.unwrap_or(false);
    manage(id, |place| {
        if place.state.is_final() {
            return Some(Ok(place.state));
        }
        if place.state == State::Running && !force {
            return place
                .request_cancel(time::now(), reason)
                .then_some(Ok(State::Running));
        }
        transition::cancelled(place, reason).then_some(Ok(State::Cancelled))
    })
}

/// Makes a job available again. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn retry(id: Option<i64>, reset: Option<bool>) -> StateAnswer {
    let reset = reset.unwrap_or(false);
    manage(id, |place| {
        if matches!(place.state, State::Available | State::Running) {
            return Some(Ok(place.state));
        }
        let mut luggage = place.take()?;
        let now = time::now();
        if let Some(token) = luggage.token.take() {
            // The row that told its worker's repeated call what happened is gone.
            place::note_answer(place.id, token, now, place.state, None);
        }
        if reset {
            luggage.attempt = 0;
        }
        if luggage.attempt >= place.max_attempts {
            place::grant_attempt(place.id);
        }
        luggage.scheduled_at = Some(now);
        place::put_ready(place.id, &luggage);
        if let Some(key) = place.unique_key.filter(|_| place.state.is_final()) {
            claims::come_back(key, place.id, now);
        }
        Some(Ok(State::Available))
    })
}

/// Deletes a job. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn delete(id: Option<i64>) -> StateAnswer {
    manage(id, |place| {
        if place.state == State::Running {
            return Some(Err(Error::wrong_state(place.id, place.state, "delete")
                .hint("Cancel it first, with force => true if its worker is gone.")));
        }
        place.take()?;
        place::erase(place.id);
        if let Some(key) = place.unique_key {
            claims::note_orphan(key, time::now());
        }
        Some(Ok(place.state))
    })
}

/// Does something to a job wherever it is by now.
fn manage(id: Option<i64>, act: impl Fn(&Place) -> Option<Result<State>>) -> StateAnswer {
    let run = || {
        check::writable()?;
        let id = check::given("id", id)?;
        transition::chase(id, act)?.unwrap_or_else(|| Err(Error::unknown_job(id)))
    };
    wake::at_commit();
    StateAnswer(run().or_raise())
}
