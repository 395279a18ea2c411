//! Jobs whose time has come: they become available, or expire.

use jobs_core::state::State;
use pgrx::PgSqlErrorCode as Code;

use crate::pg::{subxact, time};
use crate::store::effects::Told;
use crate::store::lanes::{self, Reach};
use crate::store::moves::{self, ErrorRow, To};
use crate::store::place::{self, Place};
use crate::store::queue::Queue;
use crate::store::{due, fetch};

/// Makes due jobs available; how many. Where that fails because of one of them, the others can be
/// fetched all the same.
pub fn promote(queue: &Queue, now: i64, most: usize, told: Told) -> usize {
    let from = lanes::scheduled_from(queue, Reach::FromFloor);
    let promote = || fetch::promote_due(queue, from, now, most as i64, &[], told);
    if !subxact::has_room() {
        return promote();
    }
    subxact::attempt(promote).unwrap_or_else(|error| match subxact::describe(&error).0 {
        Code::ERRCODE_QUERY_CANCELED
        | Code::ERRCODE_T_R_SERIALIZATION_FAILURE
        | Code::ERRCODE_T_R_DEADLOCK_DETECTED => subxact::rethrow(*error),
        _ => promote_singly(queue, now),
    })
}

/// Makes the first due jobs of a queue ready one by one, apart from those that fail. What fails is
/// for maintenance to tell.
fn promote_singly(queue: &Queue, now: i64) -> usize {
    const MOST: i64 = 60;
    let due = due::scheduled(queue, now, MOST, &[]);
    let promote = |id: &i64| {
        let place = place::locate(*id);
        usize::from(place.is_some_and(|place| became_due(&place)))
    };
    subxact::attempt_each(&due, &promote, &mut |_, _, _| {})
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
        details: Some(moves::details_of_type("expired")),
    }]);
    moves::put_one(place.id, row, To::Finished(State::Discarded), now);
    true
}
