//! What operators set of kinds and queues.

use jobs_core::interval::Interval;
use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use super::changed;
use super::parameters::{Parameters, given};
use crate::cell;
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::jsonb::{Jsonb, OwnedJsonb};
use crate::pg::{role, time};
use crate::store::config as store;
use crate::store::config::{FOR_EVER, Kind, QueueSettings};
use crate::store::queue::Queue;
use crate::store::rules::Setting;
use crate::store::{audit, config_cache, effects, limits, retention};
use crate::unique::policy;

/// The most that concurrency and rate can be: each is a row.
const MOST_SLOTS: i32 = 10_000;
const MOST_STARTS: i32 = 100_000;

/// What stops fetching from a queue.
const PAUSE: &str = "jobs.pause_queue";

#[pg_extern(sql = false)]
fn define_kind(
    kind: Option<&str>,
    queue: Option<&str>,
    priority: Option<i32>,
    max_attempts: Option<i32>,
    timeout: Option<pgrx::datum::Interval>,
    retry: Option<Jsonb>,
    unique_opts: Option<Jsonb>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let kind = &*check::name("kind", kind)?;
        let given = given! { queue, priority, max_attempts, timeout, retry, unique_opts };
        let (valid, attempts) = given?.valid()?;
        let policy = policy::parse(valid.unique_opts)?;
        cell::of_kind(valid.queue.as_deref(), policy.as_deref())?;
        let defaults = Kind {
            queue: valid.queue,
            priority: valid.priority,
            max_attempts: valid.max_attempts.or(attempts.default()),
            timeout: valid.timeout,
            retry: valid.retry.map(OwnedJsonb::new),
            unique_opts: valid.unique_opts.map(OwnedJsonb::new),
        };
        if store::set_kind(kind, &defaults) {
            config_cache::changed();
            audit::note(fcinfo, None);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn undefine_kind(kind: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> bool {
    or_raise(|| {
        check::managing(reason)?;
        let removed = store::remove_kind(&check::name("kind", kind)?);
        if removed {
            config_cache::changed();
            audit::note(fcinfo, None);
        }
        Ok(removed)
    })
}

#[pg_extern(sql = false)]
fn pause_queue(queue: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| {
        check::managing(reason)?;
        let queue = own(queue)?;
        if store::pause(queue.name(), time::now(), &role::caller(), reason) {
            changed(fcinfo);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn resume_queue(queue: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| {
        check::managing(reason)?;
        let queue = own(queue)?;
        if store::resume(queue.name(), time::now()) {
            effects::opened(&queue);
            changed(fcinfo);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn configure_queue(
    queue: Option<&str>,
    concurrency: Option<i32>,
    rate: Option<i32>,
    rate_period: Option<pgrx::datum::Interval>,
    retention_completed: Option<pgrx::datum::Interval>,
    retention_cancelled: Option<pgrx::datum::Interval>,
    retention_discarded: Option<pgrx::datum::Interval>,
    max_waiting: Option<i32>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let queue = check::queue(queue)?;
        let limits = setting(concurrency, rate, rate_period, PAUSE)?;
        let (rate, rate_period) = limits.rate.unzip();
        let settings = QueueSettings {
            concurrency: limits.concurrency,
            rate,
            rate_period,
            max_waiting: up_to("max_waiting", max_waiting, i32::MAX, PAUSE)?,
            retention_completed: retention("retention_completed", retention_completed)?,
            retention_cancelled: retention("retention_cancelled", retention_cancelled)?,
            retention_discarded: retention("retention_discarded", retention_discarded)?,
            ..QueueSettings::default()
        };
        if settings.concurrency.is_some() || settings.rate.is_some() {
            cell::not_spread(queue.name())?;
        }
        cell::keep_queue(queue.name())?;
        set(&queue, &settings, fcinfo);
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn reset_queue(queue: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> bool {
    or_raise(|| {
        check::managing(reason)?;
        let queue = own(queue)?;
        Ok(set(&queue, &QueueSettings::default(), fcinfo))
    })
}

/// A queue of which jobs live in this cell until this transaction ends.
fn own(queue: Option<&str>) -> Result<Queue> {
    let queue = check::queue(queue)?;
    cell::keep_queue(queue.name()).map(|()| queue)
}

/// Removes the settings and the pause of a queue that has no jobs here.
pub(super) fn forget(queue: &Queue) {
    let now = time::now();
    store::set_queue(queue.name(), &QueueSettings::default());
    limits::set_starts(queue, None, now);
    store::resume(queue.name(), now);
}

/// Sets a queue to what is given, and has everything go by that; whether it was set otherwise.
fn set(queue: &Queue, settings: &QueueSettings, fcinfo: FunctionCallInfo) -> bool {
    // First, so that one session at a time gives out slots.
    let Some(keeps_otherwise) = store::set_queue(queue.name(), settings) else {
        return false;
    };
    if keeps_otherwise {
        retention::note_change();
    }
    if settings.concurrency.is_some() {
        limits::set_slots(queue);
    }
    limits::set_starts(queue, settings.rate, time::now());
    effects::opened(queue);
    changed(fcinfo);
    true
}

/// What a limit allows; `pause` is what stops fetching, as a limit of 0 would.
pub(super) fn setting(
    concurrency: Option<i32>,
    rate: Option<i32>,
    period: Option<pgrx::datum::Interval>,
    pause: &str,
) -> Result<Setting> {
    let rate = match (rate, period) {
        (Some(_), None) => return Err(half_a_rate("rate", "rate_period")),
        (None, Some(_)) => return Err(half_a_rate("rate_period", "rate")),
        (rate, period) => rate.zip(period),
    };
    let concurrency = up_to("concurrency", concurrency, MOST_SLOTS, pause)?;
    let Some((rate, period)) = rate else {
        return Ok(Setting { concurrency, rate: None });
    };
    let rate = up_to("rate", Some(rate), MOST_STARTS, pause)?;
    let period = check::positive("rate_period", check::interval(period))?;
    Ok(Setting { concurrency, rate: rate.map(|rate| (rate, period)) })
}

fn half_a_rate(given: &str, other: &str) -> Error {
    let rule = "At most rate jobs start within any rate_period.";
    Error::invalid(given, format!("{given} requires {other}"), rule)
        .hint("Give both, or leave both out for no limit.")
}

fn up_to(parameter: &str, limit: Option<i32>, most: i32, pause: &str) -> Result<Option<i32>> {
    let Some(limit) = limit.filter(|limit| !(1..=most).contains(limit)) else {
        return Ok(limit);
    };
    let rule = format!("{parameter} must be between 1 and {most}, or null for no limit.");
    let error = Error::out_of_range(parameter, limit, rule);
    Err(match (limit, parameter) {
        (0, "concurrency" | "rate") => error.hint(format!("Use {pause} to stop fetching.")),
        _ => error,
    })
}

/// In microseconds; -1 second: for ever.
fn retention(parameter: &str, given: Option<pgrx::datum::Interval>) -> Result<Option<i64>> {
    let Some(given) = given.map(check::interval) else {
        return Ok(None);
    };
    if given == Interval::of_micros(-1_000_000) {
        return Ok(Some(FOR_EVER));
    }
    check::not_negative(parameter, given)
        .map(|kept| Some(kept.approximate_micros() as i64))
        .map_err(|error| error.hint("Use -1 second to keep jobs forever."))
}
