//! Periodic jobs.

use jobs_core::Invalid;
use jobs_core::error::quoted;
use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use super::parameters::{Parameters, given};
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::array::Array;
use crate::pg::jsonb::Jsonb;
use crate::pg::reply::{Cell, Record};
use crate::pg::{role, time};
use crate::shmem::commit::{self, Work};
use crate::store::periodic_schedule::{self as store, Definition, Missed, Periodic};
use crate::store::{audit, cells};
use crate::ticks::{self, Ticks};

#[pg_extern(sql = false)]
fn schedule(
    name: Option<&str>,
    cron: Option<&str>,
    kind: Option<&str>,
    args: Option<Jsonb>,
    time_zone: Option<&str>,
    unique_opts: Option<Jsonb>,
    queue: Option<&str>,
    priority: Option<i32>,
    max_attempts: Option<i32>,
    tags: Option<Array>,
    meta: Option<Jsonb>,
    timeout: Option<pgrx::datum::Interval>,
    retry: Option<Jsonb>,
    missed: Option<&str>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> Record {
    or_raise(|| {
        check::managing(reason)?;
        let name = &*check::name("name", name)?;
        let cron = check::given("cron", cron)?;
        let kind = &*check::name("kind", kind)?;
        let args = check::given("args", args)?;
        let ticks = Ticks::of(cron, check::given("time_zone", time_zone)?)?;
        let given = given! {
            unique_opts, queue, priority, max_attempts, tags, meta, timeout, retry
        };
        let definition = Definition {
            name: name.to_string(),
            cron: cron.to_string(),
            time_zone: ticks.time_zone(),
            kind: kind.to_string(),
            args,
            missed: read_missed(check::given("missed", missed)?)?,
            options: given?,
        };
        // What an insert would refuse is refused now.
        cells::keep_law();
        definition.options.clone().checked(kind)?.candidate(args)?.own()?;
        let (outcome, next) = define(&definition, &ticks);
        if outcome != UNCHANGED {
            audit::note(fcinfo, None);
            commit::wake_worker(Work::MayBeDue);
        }
        Ok(Record(vec![Cell::Text(outcome.into()), next.map_or(Cell::Null, Cell::At)]))
    })
}

fn read_missed(word: &str) -> Result<Missed> {
    Missed::of(word).ok_or_else(|| {
        let message = format!("missed {} is not known", quoted(word));
        let invalid = Invalid::new("missed", message, "missed must be \"once\" or \"skip\".");
        invalid.did_you_mean(word, &Missed::WORDS).into()
    })
}

const UNCHANGED: &str = "unchanged";

/// Puts the definition in the place of the one before; what that came to, and its next tick.
fn define(definition: &Definition, ticks: &Ticks) -> (&'static str, Option<i64>) {
    let before = store::lock(&definition.name);
    // From here on, since the lock may have taken a while.
    let now = time::now();
    let next = match &before {
        Some(before) if before.is_paused => None,
        before => next_tick(ticks, before.as_ref(), now),
    };
    let Some(before) = before else {
        store::put(definition, now, next);
        return ("created", next);
    };
    if store::says(&before, definition) {
        return (UNCHANGED, next);
    }
    if before.next_run_at.is_some_and(|at| at <= now) {
        // A tick that has passed is not lost because a program that begins defines it again.
        ticks::run(&before, now);
    }
    store::put(definition, now, next);
    ("changed", next)
}

/// The first tick from now on. A clock that was put back repeats none.
fn next_tick(ticks: &Ticks, before: Option<&Periodic>, now: i64) -> Option<i64> {
    let done = before.and_then(|before| before.last_run_at);
    ticks.next(now.max(done.unwrap_or(now)))
}

#[pg_extern(sql = false)]
fn pause_periodic(name: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| {
        check::managing(reason)?;
        let name = &*check::name("name", name)?;
        let before = known(name, store::lock(name))?;
        if !before.is_paused {
            store::pause(name, time::now(), &role::caller(), reason);
            audit::note(fcinfo, None);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn resume_periodic(name: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| {
        check::managing(reason)?;
        let name = &*check::name("name", name)?;
        let before = known(name, store::lock(name))?;
        if before.is_paused {
            let ticks = Ticks::of(&before.definition.cron, &before.definition.time_zone)?;
            store::resume(name, next_tick(&ticks, Some(&before), time::now()));
            audit::note(fcinfo, None);
            commit::wake_worker(Work::MayBeDue);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn run_periodic(name: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> Option<i64> {
    or_raise(|| {
        check::managing(reason)?;
        let name = &*check::name("name", name)?;
        let (job, has_changed) = ticks::insert_now(known(name, store::find(name))?)?;
        if has_changed {
            audit::note(fcinfo, Some(1));
        }
        Ok(job)
    })
}

fn known<T>(name: &str, found: Option<T>) -> Result<T> {
    found.ok_or_else(|| Error::unknown_periodic(name, &store::names()))
}

#[pg_extern(sql = false)]
fn unschedule(name: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> bool {
    or_raise(|| {
        check::managing(reason)?;
        let removed = store::remove(&check::name("name", name)?);
        if removed {
            audit::note(fcinfo, None);
        }
        commit::wake_worker(Work::MayBeDue);
        Ok(removed)
    })
}
