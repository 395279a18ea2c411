//! What a worker says of the jobs that it holds.

use std::collections::BTreeSet;

use jobs_core::interval::Interval;
use jobs_core::state::State;
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::check;
use crate::error::{Error, Result, answer};
use crate::pg::answer::{Cell, Record, Rows, StateAnswer};
use crate::pg::array::Array;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;
use crate::shmem::commit::{self, Work};
use crate::store::finish;
use crate::store::place::{self, Used};
use crate::transition::{self, FailedAttempt};

/// Finishes a job. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn complete(id: Option<i64>, token: Option<i64>, output: Option<Jsonb>) -> StateAnswer {
    let run = || {
        let (id, token) = held(id, token)?;
        commit::wake_worker(Work::MayBeDue);
        if finish::complete(id, token, time::now(), output) {
            return Ok(State::Completed);
        }
        answered(id, token, "complete").map(|(state, _)| state)
    };
    StateAnswer(answer(run))
}

/// Finishes many jobs. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn complete_many(
    ids: Option<Array>,
    tokens: Option<Array>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    let run = || {
        let pairs = all_held(ids, tokens)?;
        let completed =
            finish::complete_many(&pairs.iter().copied().collect::<BTreeSet<_>>(), time::now());
        commit::wake_worker(Work::MayBeDue);
        let mut rows = Rows::new(fcinfo);
        for (id, token) in pairs {
            pgrx::check_for_interrupts!();
            let (state, done) = match completed.contains(&(id, token)) {
                true => (Some(State::Completed), true),
                false => completed_or_not(id, token),
            };
            rows.push(vec![Cell::Big(id), state.into(), Cell::Bool(done)]);
        }
        Ok(rows)
    };
    answer(run)
}

/// The state of a job that was not among those completed at first, and whether its token has
/// completed it. The token may be current by now: its fetch may have committed while others of the
/// jobs were waited for.
fn completed_or_not(id: i64, token: i64) -> (Option<State>, bool) {
    loop {
        pgrx::check_for_interrupts!();
        // Only complete and complete_many make a job completed.
        let used = place::used(id, token);
        let place = place::locate(id);
        if !place
            .as_ref()
            .is_some_and(|place| place.is_held_with(token))
        {
            let done = used.is_some_and(|used| used.state == State::Completed);
            return (place.map(|place| place.state), done);
        }
        if finish::complete(id, token, time::now(), None) {
            return (Some(State::Completed), true);
        }
    }
}

/// Records a failed attempt. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn fail(
    id: Option<i64>,
    token: Option<i64>,
    error: Option<&str>,
    retry_in: Option<pgrx::datum::Interval>,
    retryable: Option<bool>,
    details: Option<Jsonb>,
) -> Record {
    let run = || {
        let (id, token) = held(id, token)?;
        let failed = FailedAttempt {
            token: Some(token),
            error: check::given("error", error)?,
            details,
            retry_in: retry_in
                .map(|delay| check::not_negative("retry_in", check::interval(delay)))
                .transpose()?,
            lease_lost: false,
            retryable: retryable.unwrap_or(true),
        };
        commit::wake_worker(Work::MayBeDue);
        match place::take_running(id, token) {
            Some(row) => Ok(transition::failed(id, row, &failed, time::now())),
            None => answered(id, token, "fail"),
        }
    };
    state_and_time(run)
}

/// Gives a job back until later. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn snooze(id: Option<i64>, token: Option<i64>, delay: Option<pgrx::datum::Interval>) -> Record {
    let run = || {
        let held = held(id, token)?;
        let delay = check::not_negative("delay", check::interval(check::given("delay", delay)?))?;
        give_back(held, "snooze", Some(delay))
    };
    state_and_time(run)
}

/// Gives a job back at once. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn release(id: Option<i64>, token: Option<i64>) -> StateAnswer {
    let run = || {
        let held = held(id, token)?;
        give_back(held, "release", None)
    };
    StateAnswer(answer(run).0)
}

fn give_back(
    (id, token): (i64, i64),
    call: &str,
    delay: Option<Interval>,
) -> Result<(State, Option<i64>)> {
    commit::wake_worker(Work::MayBeDue);
    match place::take_running(id, token) {
        Some(row) => {
            // Not before: it may have waited for who asked to cancel the job.
            let now = time::now();
            let due_at = delay.map(|delay| time::add(now, delay));
            Ok(transition::given_back(id, token, row, now, due_at))
        }
        None => answered(id, token, call),
    }
}

/// A sign of life. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn heartbeat(
    id: Option<i64>,
    token: Option<i64>,
    lease: Option<pgrx::datum::Interval>,
    progress: Option<Jsonb>,
) -> Record {
    let run = || {
        let (id, token) = held(id, token)?;
        let lease = check::lease(lease)?;
        let now = time::now();
        if let Some(lease) = finish::heartbeat(id, token, now, lease, progress) {
            return Ok(Record(vec![
                Cell::At(lease.expires_at),
                lease.deadline_at.map_or(Cell::Null, Cell::At),
                Cell::Bool(lease.cancel_requested),
            ]));
        }
        let is_held = place::locate(id).is_some_and(|place| place.is_held_with(token));
        Err(if is_held {
            Error::deadline_exceeded(id)
        } else {
            let used = place::used(id, token);
            refusal(id, token, "renew the lease of", used)
        })
    };
    answer(run)
}

/// Signs of life of many jobs. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn heartbeat_many(
    ids: Option<Array>,
    tokens: Option<Array>,
    lease: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    let run = || {
        let pairs = all_held(ids, tokens)?;
        let lease = check::lease(lease)?;
        let renewed = finish::heartbeat_many(&pairs.iter().copied().collect(), time::now(), lease);
        let mut rows = Rows::new(fcinfo);
        for pair in pairs {
            let mut cells = vec![Cell::Big(pair.0), Cell::Null, Cell::Null, Cell::Null];
            if let Some(lease) = renewed.get(&pair) {
                cells[1] = Cell::At(lease.expires_at);
                cells[2] = lease.deadline_at.map_or(Cell::Null, Cell::At);
                cells[3] = Cell::Bool(lease.cancel_requested);
            }
            rows.push(cells);
        }
        Ok(rows)
    };
    answer(run)
}

/// What every call of a worker for many jobs begins with.
fn all_held(ids: Option<Array>, tokens: Option<Array>) -> Result<Vec<(i64, i64)>> {
    check::writable()?;
    let ids = check::bigs("ids", ids)?;
    let tokens = check::bigs("tokens", tokens)?;
    if ids.len() == tokens.len() {
        Ok(ids.into_iter().zip(tokens).collect())
    } else {
        Err(Error::invalid(
            "ids",
            format!(
                "ids has {} elements, but tokens has {}",
                ids.len(),
                tokens.len()
            ),
            "ids and tokens are arrays of one length: a token for each id.",
        ))
    }
}

/// What every call of a worker begins with.
fn held(id: Option<i64>, token: Option<i64>) -> Result<(i64, i64)> {
    check::writable()?;
    Ok((check::given("id", id)?, check::given("token", token)?))
}

/// The answer of a finishing call whose token is not current: that of the first time, if it is the
/// same call, whatever its other arguments are: who has lost an answer may not know them any more.
fn answered(id: i64, token: i64, call: &str) -> Result<(State, Option<i64>)> {
    match place::used(id, token) {
        Some(used) if used.may_be(call) => Ok((used.state, used.scheduled_at)),
        used => Err(refusal(id, token, call, used)),
    }
}

/// Why a call is refused whose token is not current.
fn refusal(id: i64, token: i64, operation: &str, used: Option<Used>) -> Error {
    if let Some(used) = used {
        return Error::already_finished(id, operation, used.call.as_deref(), used.state);
    }
    let error = match place::locate(id) {
        None => Error::unknown_job(id),
        Some(place) => {
            let holder = place::holder(id).map(|(worker, since)| (worker, time::show_at(since)));
            Error::lease_lost(id, operation, place.state, holder)
        }
    };
    // The token of a job, and the number of one: the other way round they fit.
    let is_swapped = place::locate(token).is_some_and(|place| place.token == Some(id));
    if is_swapped {
        error.hint(format!(
            "id and token are in the wrong order: {id} is the token of job {token}."
        ))
    } else {
        error
    }
}

fn state_and_time(run: impl FnOnce() -> Result<(State, Option<i64>)>) -> Record {
    let (state, at) = answer(run);
    Record(vec![Cell::State(state), at.map_or(Cell::Null, Cell::At)])
}
