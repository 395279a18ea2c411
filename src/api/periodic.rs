//! Periodic jobs.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use super::parameters::Parameters;
use crate::check;
use crate::error::answer;
use crate::pg::array::Array;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;
use crate::shmem::commit::{self, Work};
use crate::store::audit;
use crate::store::periodic_schedule::{self as store, Definition};
use crate::ticks::{self, Ticks};

/// Defines a periodic job. See the COMMENT in sql/56_periodic.sql.
#[allow(clippy::too_many_arguments)]
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
    _reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> Option<TimestampWithTimeZone> {
    let run = || {
        check::writable()?;
        let name = check::name("name", name)?;
        let cron = check::given("cron", cron)?;
        let kind = check::name("kind", kind)?;
        let args = check::given("args", args)?;
        let ticks = Ticks::of(cron, check::given("time_zone", time_zone)?)?;
        let given = Parameters {
            unique_opts,
            queue,
            priority,
            max_attempts,
            tags,
            meta,
            timeout,
            retry,
            ..Parameters::default()
        };
        let definition = Definition {
            name: name.to_string(),
            cron: cron.to_string(),
            time_zone: ticks.time_zone(),
            kind: kind.to_string(),
            args,
            options: given.options()?,
        };
        // What an insert would refuse is refused now.
        definition.options.clone().checked(kind)?.candidate(args)?;
        let next = define(&definition, &ticks);
        audit::note(fcinfo, None);
        commit::wake_worker(Work::MayBeDue);
        Ok(next)
    };
    answer(run).map(|at| {
        TimestampWithTimeZone::try_from(at).expect("a tick is a time that the server can hold")
    })
}

/// Puts the definition in the place of the one before; its next tick.
fn define(definition: &Definition, ticks: &Ticks) -> Option<i64> {
    let before = store::lock(&definition.name);
    // From here on, since the lock may have taken a while.
    let now = time::now();
    if let Some(before) = &before
        && before.next_run_at.is_some_and(|at| at <= now)
    {
        // A tick that has passed is not lost because a program that begins defines it again.
        ticks::run(before, now);
    }
    // A clock that was put back repeats no tick.
    let done = before.and_then(|before| before.last_run_at);
    let next = ticks.next(now.max(done.unwrap_or(now)));
    store::put(definition, now, next);
    next
}

/// Ends a periodic job. See the COMMENT in sql/56_periodic.sql.
#[pg_extern(sql = false)]
fn unschedule(name: Option<&str>, _reason: Option<&str>, fcinfo: FunctionCallInfo) -> bool {
    let run = || {
        check::writable()?;
        let removed = store::remove(check::name("name", name)?);
        if removed {
            audit::note(fcinfo, None);
        }
        commit::wake_worker(Work::MayBeDue);
        Ok(removed)
    };
    answer(run)
}
