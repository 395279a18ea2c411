//! Limits by key.

use jobs_core::error::quoted;
use jobs_core::limit::{By, gate};
use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use super::{changed, configure};
use crate::cell;
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::array::Array;
use crate::pg::jsonb::{Jsonb, OwnedJsonb};
use crate::pg::{role, time};
use crate::store::rules::{self as store, Key, Limit, Setting};
use crate::store::{cells, config_cache, permits};

/// What stops jobs from starting, as a limit of 0 would.
const PAUSE: &str = "jobs.pause_limit";

#[pg_extern(sql = false)]
fn define_limit(
    name: Option<&str>,
    by: Option<Jsonb>,
    queues: Option<Array>,
    kinds: Option<Array>,
    concurrency: Option<i32>,
    rate: Option<i32>,
    rate_period: Option<pgrx::datum::Interval>,
    per_cell: Option<bool>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let name = &*check::name("name", name)?;
        if name.contains('/') {
            let message = format!("name {} contains a slash", quoted(name));
            let rule = "Names with a slash are those of queues' own limits, queue/NAME.";
            return Err(Error::invalid("name", message, rule));
        }
        let by = by.filter(|by| !by.is_null());
        let by = by.map(|by| Ok::<_, Error>(By::parse(&by.to_value("by")?)?)).transpose()?;
        let queues = several("queues", "queue", queues)?;
        let kinds = several("kinds", "kind", kinds)?;
        let setting = configure::setting(concurrency, rate, rate_period, PAUSE)?;
        if setting == Setting::default() {
            let rule = "A limit must have a concurrency, a rate with its rate_period, or both.";
            return Err(Error::invalid("concurrency", "the limit limits nothing", rule));
        }
        let (rate, rate_period) = setting.rate.unzip();
        let by = by.map(|by| Jsonb::from_text(&by.to_json().to_string()));
        let limit = Limit {
            by: by.map(OwnedJsonb::new),
            queues,
            kinds,
            concurrency: setting.concurrency,
            rate,
            rate_period,
            per_cell: Some(check::given("per_cell", per_cell)?),
            ..Limit::default()
        };
        cells::keep_law();
        if store::define(name, &limit) {
            covers_others(fcinfo);
            cell::spans_none(name)?;
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn override_limit(
    name: Option<&str>,
    key: Option<Jsonb>,
    concurrency: Option<i32>,
    rate: Option<i32>,
    rate_period: Option<pgrx::datum::Interval>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let name = &*check::name("name", name)?;
        let key = check::given("key", key)?;
        let setting = configure::setting(concurrency, rate, rate_period, PAUSE)?;
        let key = key_of(name, &known(name)?, key)?;
        let setting = (setting != Setting::default()).then_some(&setting);
        if store::set_key(name, &key, setting) {
            changed(fcinfo);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn pause_limit(
    name: Option<&str>,
    key: Option<Jsonb>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let name = &*check::name("name", name)?;
        let limit = known(name)?;
        let key = key.map(|key| key_of(name, &limit, key)).transpose()?;
        if store::pause(name, key.as_ref(), time::now(), &role::caller(), reason) {
            changed(fcinfo);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn resume_limit(
    name: Option<&str>,
    key: Option<Jsonb>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let name = &*check::name("name", name)?;
        let limit = known(name)?;
        let key = key.map(|key| key_of(name, &limit, key)).transpose()?;
        if store::resume(name, key.as_ref()) {
            changed(fcinfo);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn drop_limit(name: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> bool {
    or_raise(|| {
        check::managing(reason)?;
        let name = &*check::name("name", name)?;
        let is_dropped = lock(name).is_some() && store::drop(name);
        if is_dropped {
            covers_others(fcinfo);
        }
        Ok(is_dropped)
    })
}

/// Has everything go by limits that cover other jobs than before, and notes who did it.
fn covers_others(fcinfo: FunctionCallInfo) {
    permits::rules_changed();
    changed(fcinfo);
}

/// The names in a list, sorted and each once; one at least.
fn several(parameter: &str, noun: &str, list: Option<Array>) -> Result<Option<Vec<String>>> {
    let Some(list) = list else {
        return Ok(None);
    };
    let mut names = check::names(parameter, noun, list)?;
    names.sort();
    names.dedup();
    if names.is_empty() {
        let rule = format!("{parameter} must name one {noun} at least, or be null for all.");
        return Err(Error::invalid(parameter, format!("{parameter} must not be empty"), rule));
    }
    Ok(Some(names))
}

/// A limit, locked against changes until this transaction ends.
fn known(name: &str) -> Result<Limit> {
    let known = || {
        let rules = config_cache::rules();
        let limits = rules.iter().filter(|rule| rule.order.is_none());
        limits.map(|rule| rule.name.clone()).collect::<Vec<_>>()
    };
    lock(name).ok_or_else(|| Error::unknown_limit(name, &known()))
}

/// A limit and no order, likewise.
fn lock(name: &str) -> Option<Limit> {
    store::lock(name).filter(|limit| limit.is_strict.is_none())
}

/// A key of a limit, as it was given.
fn key_of(name: &str, limit: &Limit, key: Jsonb) -> Result<Key> {
    let Some(by) = limit.by() else {
        let message = format!("limit {} has no keys", quoted(name));
        let rule = "A limit without by counts all of its jobs together.";
        return Err(Error::invalid("key", message, rule));
    };
    let text = by.given(&key.to_value("key")?)?;
    Ok(Key { gate: gate(name, &text), text })
}
