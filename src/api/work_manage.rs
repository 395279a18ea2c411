//! What can be done to jobs without holding them, by id or by a filter.

use jobs_core::state::State;
use jobs_core::text::nfc;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use super::parameters::{Parameters, given};
use crate::cell;
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::array::Array;
use crate::pg::jsonb::Jsonb;
use crate::pg::reply::StateReply;
use crate::pg::time;
use crate::shmem::commit::{self, Work};
use crate::store::audit;
use crate::store::changes::Changes;
use crate::store::find::{self, Filter};
use crate::store::place::Place;
use crate::transition::by_id;

#[pg_extern(sql = false)]
fn cancel(
    id: Option<i64>,
    reason: Option<&str>,
    force: Option<bool>,
    fcinfo: FunctionCallInfo,
) -> StateReply {
    let force = force.unwrap_or(false);
    let changes = |place: &Place| {
        by_id::can_be_cancelled(place.state) && (force || !place.is_asked_to_stop_for(reason))
    };
    let act = |place: &Place| by_id::cancel(place, reason, force);
    manage(id, reason, fcinfo, changes, act)
}

#[pg_extern(sql = false)]
fn retry(
    id: Option<i64>,
    reset: Option<bool>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> StateReply {
    let reset = reset.unwrap_or(false);
    let changes = |place: &Place| by_id::can_be_retried(place.state);
    let act = |place: &Place| by_id::retry(place, reset);
    manage(id, reason, fcinfo, changes, act)
}

#[pg_extern(sql = false)]
fn activate(id: Option<i64>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> StateReply {
    manage(id, reason, fcinfo, |_| true, by_id::activate)
}

#[pg_extern(sql = false)]
fn delete(id: Option<i64>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> StateReply {
    manage(id, reason, fcinfo, |_| true, by_id::delete)
}

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
) -> StateReply {
    let run = || {
        let given = given! {
            queue, priority, scheduled_at, max_attempts, tags, meta, timeout, retry, expires_at
        };
        given?.valid()
    };
    let (options, _) = or_raise(run);
    let changes = Changes { args, options, ..Changes::default() };
    let differs = |place: &Place| by_id::differs(place, &changes);
    let act = |place: &Place| by_id::update(place, &changes);
    manage(id, reason, fcinfo, differs, act)
}

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
    let act = |place: &Place| by_id::cancel(place, reason, false);
    manage_many(reason, fcinfo, filter, by_id::can_be_cancelled, act)
}

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
    let failed = Failed { error_like, after: failed_after.map(i64::from) };
    let filter = || filter(queue, kind, states, tag, older_than, max_jobs, Some(failed));
    let act = |place: &Place| by_id::retry(place, reset);
    manage_many(reason, fcinfo, filter, by_id::can_be_retried, act)
}

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
    manage_many(reason, fcinfo, filter, by_id::can_be_deleted, by_id::delete)
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
            "At least one filter is required.",
        )
        .hint("To select all jobs, list all states."));
    }
    let states = match states {
        Some(states) => check::states("states", states)?,
        // A filter by errors means jobs that did not recover from them.
        None => {
            State::ALL.into_iter().filter(|state| !by_error || *state != State::Completed).collect()
        }
    };
    let older_than = check::duration("older_than", older_than)?;
    if let Some(queue) = queue {
        cell::own_queue(&nfc(queue))?;
    }
    Ok(Filter {
        queue: queue.map(nfc),
        kind: kind.map(nfc),
        states,
        tag,
        // Nothing is older than time.
        created_before: older_than.map(|age| time::ago(time::now(), age).unwrap_or(i64::MIN)),
        error_like: error_like.map(check::pattern).transpose()?,
        failed_after: after.map(|at| check::finite("failed_after", at)).transpose()?,
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
    act: impl Fn(&Place) -> Option<Result<State>>,
) -> i64 {
    or_raise(|| {
        check::managing(reason)?;
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
                    act(place).map(|done| done.map(|_| true))
                } else {
                    Some(Ok(false))
                }
            };
            done += i64::from(by_id::chase(id, act)?.transpose()? == Some(true));
        }
        if done > 0 {
            audit::note(fcinfo, Some(done));
        }
        Ok(done)
    })
}

/// Does something to a job wherever it is by now, if that changes anything.
fn manage(
    id: Option<i64>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
    changes: impl Fn(&Place) -> bool,
    act: impl Fn(&Place) -> Option<Result<State>>,
) -> StateReply {
    let run = || {
        check::managing(reason)?;
        let id = check::given("id", id)?;
        let act = |place: &Place| match changes(place) {
            true => act(place).map(|done| (done, true)),
            false => Some((Ok(place.state), false)),
        };
        let done = by_id::chase(id, act)?;
        let (state, is_changed) = done.ok_or_else(|| Error::unknown_job(id))?;
        let state = state?;
        if is_changed {
            audit::note(fcinfo, Some(1));
        }
        Ok(state)
    };
    commit::wake_worker(Work::MayBeDue);
    StateReply(or_raise(run))
}
