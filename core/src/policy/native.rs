//! The native form of a policy, in River's names.

use serde_json::Value;

use super::{
    COMMON, HOLD_UNTIL, Hold, HoldUntil, OnConflict, Part, Policy, WINDOW_FROM, Window, WindowFrom,
};
use crate::Invalid;
use crate::given::{Given, together, wrong_type};
use crate::interval::{self, ReadInterval};
use crate::json;
use crate::paths::Paths;
use crate::state::{State, States};

/// The fields of which at least one is needed: they say what the key or a duplicate is.
const IDENTITY: [&str; 7] =
    ["by_kind", "by_args", "by_meta", "by_queue", "by_period", "by_state", "key"];
/// The fields that only change what the others mean, beside the [`COMMON`] ones.
const MODIFIERS: [&str; 5] = ["exclude_kind", "window", "window_from", "hold_for", "hold_until"];

/// The fields of the native form that dialects do not have.
pub(super) fn fields() -> Vec<&'static str> {
    [&IDENTITY[..], &MODIFIERS].concat()
}

const SHORTEST_PERIOD_MICROS: i64 = 1_000_000;

/// Reads the fields but for the [`COMMON`] ones; nothing if there are none at all. `on_conflict` is
/// what stands among them.
pub(super) fn parse(
    given: &Given,
    on_conflict: Option<OnConflict>,
    read: ReadInterval,
) -> Result<Option<Policy>, Invalid> {
    let key = key(given)?;
    let policy = Policy {
        by_args: by_args(given)?,
        by_meta: by_meta(given)?,
        by_queue: given.flag("by_queue")?,
        by_period: by_period(given, read)?,
        by_state: by_state(given)?,
        exclude_kind: given.flag("exclude_kind")?,
        key,
        window: window(given, read)?,
        hold: hold(given, read)?,
        on_conflict: on_conflict.unwrap_or(OnConflict::Skip),
        ..Policy::default()
    };
    given.flag("by_kind")?;

    if given.first_of(&IDENTITY).is_some() {
        return Ok(Some(policy));
    }
    match given.first_of(&MODIFIERS).or(given.first_of(&COMMON)) {
        None => Ok(None),
        Some(modifier) => Err(Invalid::new(
            modifier,
            format!("{modifier} alone does not make a job unique"),
            format!("It requires one of {}.", IDENTITY.join(", ")),
        )
        .hint("Add \"by_args\": true for one job per kind and args, or \"by_kind\": true for one per kind.")),
    }
}

pub(crate) fn by_args(given: &Given) -> Result<Part, Invalid> {
    const RULE: &str = "by_args must be true for all args, or a list of paths such as [\"user_id\", \"address.city\"].";
    match given.get("by_args") {
        Some(Value::Bool(true)) => Ok(Part::All),
        _ => paths(given, "by_args", RULE),
    }
}

pub(crate) fn by_meta(given: &Given) -> Result<Part, Invalid> {
    const RULE: &str =
        "by_meta must be a list of paths such as [\"tenant_id\"]; true is not allowed.";
    paths(given, "by_meta", RULE)
}

fn paths(given: &Given, field: &str, rule: &str) -> Result<Part, Invalid> {
    given.not_empty(&[field])?;
    match given.strings(field, rule)? {
        None => Ok(Part::None),
        Some(list) => Ok(Part::Paths(Paths::parse(&list, field)?)),
    }
}

fn by_period(given: &Given, read: ReadInterval) -> Result<Option<i64>, Invalid> {
    let Some(value) = given.get("by_period") else {
        return Ok(None);
    };
    let length = interval::from_json(value, "by_period", read)?;
    let Some(micros) = length.fixed_micros() else {
        if length.months == 0 {
            return Err(Invalid::new(
                "by_period",
                format!("by_period {} is out of range", json::shown(value)),
                "A period must be at most 106751991 days.",
            ));
        }
        return Err(Invalid::new(
            "by_period",
            format!("by_period {} has no fixed length", json::shown(value)),
            "A period must have a fixed length; months and years vary in length.",
        )
        .hint("Write it in days, such as \"30 days\"."));
    };
    if micros < SHORTEST_PERIOD_MICROS {
        return Err(Invalid::new(
            "by_period",
            format!("by_period {} is too short", json::shown(value)),
            "A period must be at least one second.",
        ));
    }
    Ok(Some(micros))
}

/// No state at all is enough where the job holds its key by itself.
fn by_state(given: &Given) -> Result<States, Invalid> {
    if given.get("hold_for").is_none() {
        given.not_empty(&["by_state"])?;
    }
    let states =
        given.words("by_state", "state", &State::ALL.map(|state| (state.as_str(), state)))?;
    Ok(states.map_or(States::DEFAULT_UNIQUE, |states| States::of(&states)))
}

fn key(given: &Given) -> Result<Option<String>, Invalid> {
    const RULE: &str = "key must be a string that is not empty.";
    let key = match given.get("key") {
        None => return Ok(None),
        Some(Value::String(key)) if key.is_empty() => {
            return Err(Invalid::new("key", "key must not be empty", RULE));
        }
        Some(Value::String(key)) => key,
        Some(other) => return Err(wrong_type("key", other, RULE)),
    };
    match given.first_of(&["by_args", "by_meta", "by_period"]) {
        None => Ok(Some(key.clone())),
        Some(other) => Err(together("key", other, "A key replaces args, meta and period.")
            .hint(format!("Omit one of them, or make the value of {other} part of the key."))),
    }
}

fn window(given: &Given, read: ReadInterval) -> Result<Option<Window>, Invalid> {
    given.only_with("window_from", "window")?;
    let from = given.word("window_from", &WINDOW_FROM)?;
    Ok(given
        .duration("window", read)?
        .map(|length| Window { length, from: from.unwrap_or(WindowFrom::CreatedAt) }))
}

fn hold(given: &Given, read: ReadInterval) -> Result<Option<Hold>, Invalid> {
    given.only_with("hold_until", "hold_for")?;
    let until = given.word("hold_until", &HOLD_UNTIL)?;
    Ok(given
        .duration("hold_for", read)?
        .map(|length| Hold { length, until: until.unwrap_or(HoldUntil::Success) }))
}
