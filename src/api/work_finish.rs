//! What a worker says of a job that it holds. Of many at once: `work_finish_many.rs`.

use std::collections::BTreeSet;

use pgrx::prelude::*;

use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::jsonb::Jsonb;
use crate::pg::reply::{Cell, Record, StateReply};
use crate::pg::time;
use crate::store::finish;
use crate::store::place::{self, Place};
use crate::store::used::{self, Used};
use crate::transition::attempt::{self, Became, By, Ending, Failure, Finishing, Outcome};

#[pg_extern(sql = false)]
fn complete(id: Option<i64>, token: Option<i64>, output: Option<Jsonb>) -> StateReply {
    let ending = || check::payload("output", output).map(Ending::Complete);
    let run = || end(id, token, ending);
    StateReply(or_raise(run).state)
}

#[pg_extern(sql = false)]
fn fail(
    id: Option<i64>,
    token: Option<i64>,
    error: Option<&str>,
    retry_in: Option<pgrx::datum::Interval>,
    retryable: Option<bool>,
    details: Option<Jsonb>,
) -> Record {
    let ending = || {
        Ok(Ending::Fail(Failure {
            error: check::given("error", error)?,
            details: check::payload("details", details)?,
            retry_in: check::duration("retry_in", retry_in)?,
            retryable: retryable.unwrap_or(true),
            by: By::Worker,
        }))
    };
    state_and_time(|| end(id, token, ending))
}

#[pg_extern(sql = false)]
fn snooze(id: Option<i64>, token: Option<i64>, delay: Option<pgrx::datum::Interval>) -> Record {
    let ending = || {
        let delay = check::interval(check::given("delay", delay)?);
        check::not_negative("delay", delay).map(Ending::Snooze)
    };
    state_and_time(|| end(id, token, ending))
}

#[pg_extern(sql = false)]
fn release(id: Option<i64>, token: Option<i64>) -> StateReply {
    StateReply(or_raise(|| end(id, token, || Ok(Ending::Release))).state)
}

#[pg_extern(sql = false)]
fn heartbeat(
    id: Option<i64>,
    token: Option<i64>,
    lease: Option<pgrx::datum::Interval>,
    progress: Option<Jsonb>,
) -> Record {
    or_raise(|| {
        let (id, token) = held(id, token)?;
        let lease = check::lease(lease)?;
        check::payload("progress", progress)?;
        let told = finish::heartbeats(&BTreeSet::from([(id, token)]), time::now(), lease, progress);
        if let Some(lease) = told.get(&(id, token)) {
            return Ok(Record(vec![
                Cell::At(lease.expires_at),
                lease.deadline_at.map_or(Cell::Null, Cell::At),
                Cell::Bool(lease.cancel_requested),
            ]));
        }
        let place = place::locate(id);
        let is_held = |place: &Place| place.is_held_with(token);
        Err(if place.as_ref().is_some_and(is_held) {
            Error::deadline_exceeded(id)
        } else {
            let used = used::by(id, token);
            refusal(id, token, "renew the lease of", used, place)
        })
    })
}

fn end<'a>(
    id: Option<i64>,
    token: Option<i64>,
    ending: impl FnOnce() -> Result<Ending<'a>>,
) -> Result<Became> {
    let (id, token) = held(id, token)?;
    let ending = ending()?;
    match attempt::end_one(&Finishing { id, token, ending }) {
        Outcome::Ended(became) | Outcome::Before(became) => Ok(became),
        Outcome::Stale { used, place } => Err(refusal(id, token, ending.call(), used, place)),
        Outcome::Locked { .. } => unreachable!("who has it locked is waited for"),
    }
}

/// What every call of a worker begins with.
fn held(id: Option<i64>, token: Option<i64>) -> Result<(i64, i64)> {
    check::writable()?;
    Ok((check::given("id", id)?, check::given("token", token)?))
}

/// Why a call is refused whose token is not current: what has used it, and where the job is.
fn refusal(
    id: i64,
    token: i64,
    operation: &str,
    used: Option<Used>,
    place: Option<Place>,
) -> Error {
    if let Some(used) = used {
        return Error::already_finished(id, operation, used.call.as_deref(), used.state);
    }
    let error = match place {
        None => Error::unknown_job(id),
        Some(place) => {
            let held_by =
                place::worker_of(id).map(|(worker, since)| (worker, time::show_at(since)));
            Error::lease_lost(id, operation, place.state, held_by)
        }
    };
    // The token of a job, and the number of one: the other way round they fit.
    let is_held = |place: Place| place.token == Some(id);
    let is_swapped = place::locate(token).is_some_and(is_held) || used::by(token, id).is_some();
    if is_swapped {
        error.hint(format!("The arguments are swapped: {id} is the token of job {token}."))
    } else {
        error
    }
}

fn state_and_time(run: impl FnOnce() -> Result<Became>) -> Record {
    let became = or_raise(run);
    Record(vec![Cell::State(became.state), became.scheduled_at.map_or(Cell::Null, Cell::At)])
}
