//! Open Job Spec's `UniquePolicy`.

use serde_json::Value;

use super::on_conflict::{Field, OJS_WORDS, OnConflict, either};
use super::{Part, Policy, Window, WindowFrom};
use crate::Invalid;
use crate::given::Given;
use crate::interval::{Interval, ReadInterval, iso_8601_only};
use crate::paths::Paths;
use crate::state::{State, States};

const FIELDS: [&str; 6] = ["keys", "args_keys", "meta_keys", "period", "states", "on_conflict"];

/// What a job can be compared by. The type always counts, asked for or not.
const DIMENSIONS: [(&str, Field); 4] =
    [("type", Field::Kind), ("queue", Field::Queue), ("args", Field::Args), ("meta", Field::Meta)];

const STATES: [(&str, State); 8] = [
    ("available", State::Available),
    ("active", State::Running),
    ("scheduled", State::Scheduled),
    ("retryable", State::Retryable),
    ("pending", State::Pending),
    ("completed", State::Completed),
    ("cancelled", State::Cancelled),
    ("discarded", State::Discarded),
];

const DEFAULT_STATES: States = States::of(&[
    State::Available,
    State::Running,
    State::Scheduled,
    State::Retryable,
    State::Pending,
]);

/// Reads the policy. The type is always part of the key. `on_conflict` is what stands beside it.
pub(super) fn parse(
    value: &Value,
    on_conflict: Option<OnConflict>,
    read: ReadInterval,
) -> Result<Policy, Invalid> {
    const RULE: &str = "ojs must be an object such as {\"keys\": [\"type\", \"args\"]}.";
    let given = Given::of("ojs", value, &FIELDS, RULE)?;
    given.not_empty(&["states"])?;
    given.not_twice(&["keys", "args_keys", "meta_keys", "states"])?;
    let keys = given.words("keys", "dimension", &DIMENSIONS)?;
    let keys = keys.unwrap_or_default();
    let states = given.words("states", "state", &STATES)?;
    let own = given.word("on_conflict", &OJS_WORDS)?;
    Ok(Policy {
        by_args: by_args(&given, &keys)?,
        by_meta: by_meta(&given, &keys)?,
        by_queue: keys.contains(&Field::Queue),
        by_state: states.map_or(DEFAULT_STATES, |states| States::of(&states)),
        window: period(&given, read)?.map(|length| Window { length, from: WindowFrom::CreatedAt }),
        on_conflict: either(on_conflict, own, "ojs.on_conflict")?
            .unwrap_or(OnConflict::Reject)
            .rejecting_final(),
        ..Policy::default()
    })
}

/// No keys mean all args.
fn by_args(given: &Given, dimensions: &[Field]) -> Result<Part, Invalid> {
    let members = members(given, "args_keys", "args", Field::Args, dimensions)?;
    Ok(match members {
        Some(members) => Part::Members(members),
        None if dimensions.contains(&Field::Args) => Part::All,
        None => Part::None,
    })
}

/// All of meta is never meant: it has what differs from job to job.
fn by_meta(given: &Given, dimensions: &[Field]) -> Result<Part, Invalid> {
    match members(given, "meta_keys", "meta", Field::Meta, dimensions)? {
        Some(members) => Ok(Part::Optional(members)),
        None if dimensions.contains(&Field::Meta) => Err(Invalid::new(
            "ojs.keys",
            "meta in ojs.keys requires ojs.meta_keys",
            "ojs.meta_keys lists the members of meta that make a job unique.",
        )
        .hint("Add \"meta_keys\", such as [\"tenant_id\"].")),
        None => Ok(Part::None),
    }
}

/// The top-level members in the list `field`; nothing if there are none, or if they are members of
/// what is not compared.
fn members(
    given: &Given,
    field: &str,
    word: &str,
    dimension: Field,
    dimensions: &[Field],
) -> Result<Option<Paths>, Invalid> {
    let path = given.path(field);
    let rule = format!("{path} must be a list of top-level members of {word}.");
    let names = given.strings(field, &rule)?.unwrap_or_default();
    if names.is_empty() || !dimensions.contains(&dimension) {
        return Ok(None);
    }
    Paths::of_members(&names, &path).map(Some)
}

/// ISO 8601 only.
fn period(given: &Given, read: ReadInterval) -> Result<Option<Interval>, Invalid> {
    iso_8601_only(given, "period")?;
    given.duration("period", read)
}
