//! What can be done to jobs without holding them, by id or by a filter.

use jobs_core::state::State;
use jobs_core::text::nfc;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use super::parameters::{Parameters, given};
use crate::check;
use crate::error::{Error, Result, answer};
use crate::pg::answer::StateAnswer;
use crate::pg::array::Array;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;
use crate::shmem::commit::{self, Work};
use crate::store::audit;
use crate::store::find::{self, Filter};
use crate::store::moves::{self, Answer, Move, To};
use crate::store::place::{self, Changes, Place};
use crate::transition;

/// Cancels a job. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn cancel(
    id: Option<i64>,
    reason: Option<&str>,
    force: Option<bool>,
    fcinfo: FunctionCallInfo,
) -> StateAnswer {
    let force = force.unwrap_or(false);
    let changes = |place: &Place| {
        can_be_cancelled(place.state) && (force || !place.is_asked_to_stop_for(reason))
    };
    let act = |place: &Place| cancel_at(place, reason, force).map(Ok);
    manage(id, reason, fcinfo, changes, act)
}

fn can_be_cancelled(state: State) -> bool {
    !state.is_final()
}

fn cancel_at(place: &Place, reason: Option<&str>, force: bool) -> Option<State> {
    if place.state == State::Running && !force {
        let is_asked = place.request_cancel(time::now(), reason);
        return is_asked.then_some(State::Running);
    }
    transition::cancelled(place, reason, None).then_some(State::Cancelled)
}

/// Makes a job available again. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn retry(
    id: Option<i64>,
    reset: Option<bool>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> StateAnswer {
    let reset = reset.unwrap_or(false);
    let act = |place: &Place| retry_at(place, reset).map(Ok);
    manage(id, reason, fcinfo, |place| can_be_retried(place.state), act)
}

fn can_be_retried(state: State) -> bool {
    !matches!(state, State::Available | State::Running)
}

fn retry_at(place: &Place, reset: bool) -> Option<State> {
    let mut row = place.take()?;
    let now = time::now();
    // The row that told its worker's repeated call what happened is gone; every other end left
    // another one.
    let token = row.token.take();
    let answer = token.filter(|_| place.state == State::Completed);
    if reset {
        row.attempt = 0;
    }
    place::grant_attempt(place.id, row.attempt);
    row.scheduled_at = Some(now);
    let one = Move {
        answer: answer.map(|token| Answer {
            token,
            state: place.state,
            scheduled_at: None,
        }),
        returns_under: place.unique_key.filter(|_| place.state.is_final()),
        ..Move::new(place.id, row, To::Ready)
    };
    moves::put(&[one], now);
    Some(State::Available)
}

/// Makes a pending job available, or scheduled. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn activate(id: Option<i64>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> StateAnswer {
    let act = |place: &Place| match place.state {
        State::Pending => transition::activated(place).map(Ok),
        state => {
            let rule = "Only a pending job can be activated.";
            let error = Error::wrong_state(place.id, state, "activate", rule);
            Some(Err(match can_be_retried(state) {
                true => error.hint("jobs.retry makes it available."),
                false => error,
            }))
        }
    };
    manage(id, reason, fcinfo, |_| true, act)
}

/// Deletes a job. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn delete(id: Option<i64>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> StateAnswer {
    let act = |place: &Place| {
        if place.state == State::Running {
            let rule = "A running job cannot be deleted.";
            let error = Error::wrong_state(place.id, place.state, "delete", rule);
            let hint = "Cancel it first, with force => true if its worker is gone.";
            return Some(Err(error.hint(hint)));
        }
        delete_at(place).map(Ok)
    };
    manage(id, reason, fcinfo, |_| true, act)
}

fn delete_at(place: &Place) -> Option<State> {
    place.take()?;
    place::erase(place);
    Some(place.state)
}

/// Changes a job that waits. See the COMMENT in sql/50_work.sql.
#[allow(clippy::too_many_arguments)]
#[pg_extern(sql = false)]
fn update(
    id: Option<i64>,
    args: Option<Jsonb>,
    queue: Option<&str>,
    priority: Option<i32>,
    scheduled_at: Option<TimestampWithTimeZone>,
    max_attempts: Option<i32>,
    tags: Option<Array>,
    meta: Option<Jsonb>,
    timeout: Option<pgrx::datum::Interval>,
    retry: Option<Jsonb>,
    expires_at: Option<TimestampWithTimeZone>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> StateAnswer {
    let run = || {
        let given = given! {
            queue, priority, scheduled_at, max_attempts, tags, meta, timeout, retry, expires_at
        };
        given?.valid()
    };
    let (options, _) = answer(run);
    let changes = Changes {
        args,
        options,
        ..Changes::default()
    };
    let is_fixed = |state: State| state.is_final() || state == State::Running;
    let act = |place: &Place| {
        if is_fixed(place.state) {
            let rule =
                "Only a job that waits can be changed: pending, scheduled, available or retryable.";
            let error = Error::wrong_state(place.id, place.state, "update", rule);
            return Some(Err(error.hint(match place.state {
                State::Running => "Cancel it, and insert another one.",
                _ => "jobs.retry has it wait again.",
            })));
        }
        transition::requeued(place, &changes).transpose()
    };
    let differs = |place: &Place| {
        let goes_to_the_end = place.state == State::Available && changes.lane();
        is_fixed(place.state) || goes_to_the_end || !place::says(place.id, &changes)
    };
    manage(id, reason, fcinfo, differs, act)
}

/// Cancels many jobs. See the COMMENT in sql/50_work.sql.
#[allow(clippy::too_many_arguments)]
#[pg_extern(sql = false)]
fn cancel_many(
    queue: Option<&str>,
    kind: Option<&str>,
    states: Option<Array>,
    tag: Option<&str>,
    older_than: Option<pgrx::datum::Interval>,
    max_jobs: Option<i32>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> i64 {
    let filter = || {
        Ok(Filter {
            // So that the next call finds others.
            with_cancel_requested: false,
            ..filter(queue, kind, states, tag, older_than, max_jobs, None)?
        })
    };
    let act = |place: &Place| cancel_at(place, reason, false);
    manage_many(reason, fcinfo, filter, can_be_cancelled, act)
}

/// Makes many jobs available again. See the COMMENT in sql/50_work.sql.
#[allow(clippy::too_many_arguments)]
#[pg_extern(sql = false)]
fn retry_many(
    queue: Option<&str>,
    kind: Option<&str>,
    states: Option<Array>,
    tag: Option<&str>,
    older_than: Option<pgrx::datum::Interval>,
    max_jobs: Option<i32>,
    reset: Option<bool>,
    error_like: Option<&str>,
    failed_after: Option<TimestampWithTimeZone>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> i64 {
    let reset = reset.unwrap_or(false);
    let failed = Failed {
        error_like,
        after: failed_after.map(i64::from),
    };
    let filter = || filter(queue, kind, states, tag, older_than, max_jobs, Some(failed));
    let act = |place: &Place| retry_at(place, reset);
    manage_many(reason, fcinfo, filter, can_be_retried, act)
}

/// Deletes many jobs. See the COMMENT in sql/50_work.sql.
#[allow(clippy::too_many_arguments)]
#[pg_extern(sql = false)]
fn delete_many(
    queue: Option<&str>,
    kind: Option<&str>,
    states: Option<Array>,
    tag: Option<&str>,
    older_than: Option<pgrx::datum::Interval>,
    max_jobs: Option<i32>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> i64 {
    let filter = || filter(queue, kind, states, tag, older_than, max_jobs, None);
    let can = |state| state != State::Running;
    manage_many(reason, fcinfo, filter, can, delete_at)
}

/// What the latest error of a job is.
#[derive(Clone, Copy, Default)]
struct Failed<'a> {
    error_like: Option<&'a str>,
    after: Option<i64>,
}

/// Which jobs are meant, in whatever state; `failed`: also by their errors.
fn filter<'a>(
    queue: Option<&'a str>,
    kind: Option<&'a str>,
    states: Option<Array>,
    tag: Option<&'a str>,
    older_than: Option<pgrx::datum::Interval>,
    max_jobs: Option<i32>,
    failed: Option<Failed<'a>>,
) -> Result<Filter<'a>> {
    let Failed { error_like, after } = failed.unwrap_or_default();
    let by_error = error_like.is_some() || after.is_some();
    let by_text = [queue, kind, tag];
    if by_text.iter().all(Option::is_none) && states.is_none() && older_than.is_none() && !by_error
    {
        let filters = match failed {
            None => "queue, kind, states, tag and older_than",
            Some(_) => "queue, kind, states, tag, older_than, error_like and failed_after",
        };
        return Err(Error::invalid(
            "queue",
            format!("{filters} must not all be null"),
            format!("One of {filters} says which jobs are meant."),
        )
        .hint("For all jobs give all states."));
    }
    let states = match states {
        Some(states) => check::states("states", states)?,
        // Who asks for errors means jobs that did not get over them.
        None => State::ALL
            .into_iter()
            .filter(|state| !by_error || *state != State::Completed)
            .collect(),
    };
    let older_than = check::duration("older_than", older_than)?;
    Ok(Filter {
        queue: queue.map(nfc),
        kind: kind.map(nfc),
        states,
        tag,
        // Nothing is older than time.
        created_before: older_than.map(|age| time::ago(time::now(), age).unwrap_or(i64::MIN)),
        error_like: error_like.map(check::pattern).transpose()?,
        failed_after: after
            .map(|at| check::finite("failed_after", at))
            .transpose()?,
        with_cancel_requested: true,
        max_jobs: check::max_jobs(max_jobs)?,
    })
}

/// Does something to the jobs that a filter finds, as if one by one, oldest first; to how many.
fn manage_many<'a>(
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
    filter: impl FnOnce() -> Result<Filter<'a>>,
    can: impl Fn(State) -> bool,
    act: impl Fn(&Place) -> Option<State>,
) -> i64 {
    let run = || {
        check::writable()?;
        check::reason(reason)?;
        let mut filter = filter()?;
        filter.states.retain(|state| can(*state));
        commit::wake_worker(Work::MayBeDue);
        let mut done = 0;
        for id in find::jobs(&filter) {
            let act = |place: &Place| {
                // It may have moved since it was found, or was asked to stop.
                if filter.states.contains(&place.state)
                    && (filter.with_cancel_requested || !place.is_asked_to_stop)
                {
                    act(place).map(|_| true)
                } else {
                    Some(false)
                }
            };
            done += i64::from(transition::chase(id, act)? == Some(true));
        }
        if done > 0 {
            audit::note(fcinfo, Some(done));
        }
        Ok(done)
    };
    answer(run)
}

/// Does something to a job wherever it is by now, if that changes anything.
fn manage(
    id: Option<i64>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
    changes: impl Fn(&Place) -> bool,
    act: impl Fn(&Place) -> Option<Result<State>>,
) -> StateAnswer {
    let run = || {
        check::writable()?;
        check::reason(reason)?;
        let id = check::given("id", id)?;
        let act = |place: &Place| match changes(place) {
            true => act(place).map(|done| (done, true)),
            false => Some((Ok(place.state), false)),
        };
        let done = transition::chase(id, act)?;
        let (state, is_changed) = done.ok_or_else(|| Error::unknown_job(id))?;
        let state = state?;
        if is_changed {
            audit::note(fcinfo, Some(1));
        }
        Ok(state)
    };
    commit::wake_worker(Work::MayBeDue);
    StateAnswer(answer(run))
}
