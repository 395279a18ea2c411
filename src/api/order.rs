//! The order of queues by key.

use jobs_core::error::quoted;
use jobs_core::limit::By;
use jobs_core::order::Weights;
use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;
use serde_json::Value;

use super::changed;
use crate::cell;
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::jsonb::{Jsonb, OwnedJsonb};
use crate::store::queue::Queue;
use crate::store::rules::{self, Limit};
use crate::store::{audit, config_cache, turns};

const CONTINUE: &str = "continue";
const BLOCK: &str = "block";

#[pg_extern(sql = false)]
fn order_queue(
    queue: Option<&str>,
    by: Option<Jsonb>,
    strict: Option<bool>,
    on_discard: Option<&str>,
    fair: Option<bool>,
    weights: Option<Jsonb>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let queue = check::queue(queue)?;
        let by = by.filter(|by| !by.is_null()).map(|by| by.to_value("by")).transpose()?;
        let strict = check::given("strict", strict)?;
        let fair = check::given("fair", fair)?;
        let on_discard = check::given("on_discard", on_discard)?;
        if ![CONTINUE, BLOCK].contains(&on_discard) {
            let message = format!("on_discard {} is not known", quoted(on_discard));
            return Err(Error::invalid(
                "on_discard",
                message,
                "on_discard must be \"continue\" or \"block\".",
            ));
        }
        let weights = weights.filter(|weights| !weights.is_null());
        let weights = weights.map(|weights| weights.to_value("weights")).transpose()?;
        let name = rules::order_of(queue.name());
        let order = order(queue.name(), by, strict, on_discard, fair, weights)?;
        cell::keep_queue(queue.name())?;
        let before = rules::lock(&name);
        if before == order {
            return Ok(());
        }
        let keeps_turns = match (&before, &order) {
            (Some(before), Some(order)) => before.by == order.by && strict,
            _ => false,
        };
        match &order {
            Some(order) => rules::define(&name, order),
            None => rules::drop(&name),
        };
        turns::order_changed(&queue, keeps_turns, keeps_turns && on_discard == BLOCK);
        changed(fcinfo);
        cell::spans_none(&name)
    })
}

/// The order to store; `None` removes the order of the queue.
fn order(
    queue: &str,
    by: Option<Value>,
    strict: bool,
    on_discard: &str,
    fair: bool,
    weights: Option<Value>,
) -> Result<Option<Limit>> {
    let Some(by) = by else {
        if strict || fair || weights.is_some() || on_discard == BLOCK {
            let rule = "An order requires by, such as {\"by_args\": [\"tenant\"]}.";
            return Err(Error::invalid(
                "by",
                "by must not be null if the order has other settings",
                rule,
            )
            .hint("To remove the order, pass only the queue and by => null."));
        }
        return Ok(None);
    };
    let by = By::of_order(&by)?;
    let refused = |parameter, message: &str, rule| Err(Error::invalid(parameter, message, rule));
    if !strict && !fair {
        let rule = "An order must be strict, fair, or both.";
        return refused("strict", "strict and fair must not both be false", rule);
    }
    if on_discard == BLOCK && !strict {
        let rule = "Only a strict order can block a key.";
        return refused("on_discard", "on_discard block requires strict", rule);
    }
    if let Some(weights) = &weights {
        if !fair {
            return refused("weights", "weights requires fair", "Only a fair order has weights.");
        }
        Weights::parse(weights, &by)?;
    }
    let stored = |json: &Value| OwnedJsonb::new(Jsonb::from_text(&json.to_string()));
    Ok(Some(Limit {
        by: Some(stored(&by.to_json())),
        queues: Some(vec![queue.to_string()]),
        per_cell: Some(false),
        is_strict: Some(strict),
        is_fair: Some(fair),
        on_discard: Some(on_discard.to_string()),
        weights: weights.as_ref().map(stored),
        ..Limit::default()
    }))
}

/// Removes the order of a queue that has no jobs here.
pub(super) fn forget(queue: &Queue) {
    if rules::drop(&rules::order_of(queue.name())) {
        turns::order_changed(queue, false, false);
    }
}

#[pg_extern(sql = false)]
fn unblock(
    queue: Option<&str>,
    key: Option<Jsonb>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> Option<i64> {
    or_raise(|| {
        check::managing(reason)?;
        let queue = check::queue(queue)?;
        let key = check::given("key", key)?.to_value("key")?;
        cell::keep_queue(queue.name())?;
        let (rules, name) = (config_cache::rules(), rules::order_of(queue.name()));
        let Some(rule) = rules.iter().find(|rule| rule.name == name) else {
            return Ok(None);
        };
        let by = rule.by.as_ref().expect("an order has keys");
        let unblocked = turns::unblock(rule.gate(&by.given(&key)?, 0));
        if unblocked.is_some() {
            audit::note(fcinfo, None);
        }
        Ok(unblocked)
    })
}

/// The canonical text of a job's key in an order.
#[pg_extern(sql = false)]
fn order_key(
    by: Option<Jsonb>,
    queue: Option<&str>,
    kind: Option<&str>,
    args: Option<Jsonb>,
    meta: Option<Jsonb>,
) -> Option<String> {
    or_raise(|| {
        let (Some(by), Some(queue), Some(kind)) = (by, queue, kind) else {
            return Ok(None);
        };
        let by = By::parse(&by.to_value("by")?)?;
        let events = |json: Option<Jsonb>| json.unwrap_or(Jsonb::empty_object()).events();
        let key = by.key(kind, queue, || events(args), || events(meta));
        Ok(key.ok())
    })
}

/// The weight of a key in an order.
#[pg_extern(sql = false)]
fn order_weight(by: Option<Jsonb>, weights: Option<Jsonb>, key: Option<Jsonb>) -> f64 {
    or_raise(|| {
        let (Some(by), Some(weights), Some(key)) = (by, weights, key) else {
            return Ok(1.0);
        };
        let by = By::parse(&by.to_value("by")?)?;
        let weights = Weights::parse(&weights.to_value("weights")?, &by)?;
        // A key that cannot be given has no weight of its own.
        let key = key.to_value("key").ok().and_then(|key| by.given(&key).ok());
        Ok(key.map_or(1.0, |key| weights.of(&key)))
    })
}
