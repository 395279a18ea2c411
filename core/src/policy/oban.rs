//! Oban's `unique` options, with its `replace`.

use serde_json::Value;

use super::on_conflict::{Field, Fields, OnConflict, Updates, either, updates};
use super::{Part, Policy, Window, WindowFrom};
use crate::Invalid;
use crate::given::{Given, not_positive, wrong_type};
use crate::interval::{self, Interval};
use crate::json;
use crate::paths::Paths;
use crate::state::{State, States};

const OPTIONS: [&str; 6] = ["period", "fields", "keys", "states", "timestamp", "replace"];

/// What a job can be compared by.
const FIELDS: [(&str, Field); 4] = [
    ("worker", Field::Kind),
    ("queue", Field::Queue),
    ("args", Field::Args),
    ("meta", Field::Meta),
];
const DEFAULT_FIELDS: [Field; 3] = [Field::Kind, Field::Queue, Field::Args];

const STATES: [(&str, State); 8] = [
    ("available", State::Available),
    ("scheduled", State::Scheduled),
    ("suspended", State::Pending),
    ("executing", State::Running),
    ("retryable", State::Retryable),
    ("completed", State::Completed),
    ("cancelled", State::Cancelled),
    ("discarded", State::Discarded),
];

const SUCCESSFUL: States = States::DEFAULT_UNIQUE;
const GROUPS: [(&str, States); 4] = [
    ("all", States::of(&State::ALL)),
    (
        "incomplete",
        States::of(&[
            State::Available,
            State::Scheduled,
            State::Pending,
            State::Running,
            State::Retryable,
        ]),
    ),
    ("scheduled", States::of(&[State::Scheduled])),
    ("successful", SUCCESSFUL),
];

const TIMESTAMPS: [(&str, WindowFrom); 2] =
    [("inserted_at", WindowFrom::CreatedAt), ("scheduled_at", WindowFrom::ScheduledAt)];

const REPLACEABLE: [(&str, Field); 8] = [
    ("args", Field::Args),
    ("max_attempts", Field::MaxAttempts),
    ("meta", Field::Meta),
    ("priority", Field::Priority),
    ("queue", Field::Queue),
    ("scheduled_at", Field::ScheduledAt),
    ("tags", Field::Tags),
    ("worker", Field::Kind),
];

const DEFAULT_PERIOD: Interval = Interval::of_micros(60_000_000);

/// Units of a period in seconds. A month has 30 days there.
const UNITS: [(&str, f64); 6] = [
    ("second", 1.0),
    ("minute", 60.0),
    ("hour", 3_600.0),
    ("day", 86_400.0),
    ("week", 604_800.0),
    ("month", 2_592_000.0),
];

/// Reads the options: an object, or true for the defaults with a period without end. `on_conflict`
/// is what stands beside them.
pub(super) fn parse(value: &Value, on_conflict: Option<OnConflict>) -> Result<Policy, Invalid> {
    let object = match value {
        Value::Bool(true) => {
            return Ok(Policy {
                by_state: SUCCESSFUL,
                on_conflict: on_conflict.unwrap_or(OnConflict::Skip),
                ..compared_by(&DEFAULT_FIELDS, None)
            });
        }
        Value::Object(object) => object,
        other => {
            return Err(wrong_type(
                "oban",
                other,
                "oban must be true, or an object with Oban's unique options.",
            ));
        }
    };
    let given = Given::new("oban", "field", object, &OPTIONS)?;
    given.not_empty(&["fields", "states", "replace"])?;
    let fields = given.words("fields", "field", &FIELDS)?;
    let fields = fields.as_deref().unwrap_or(&DEFAULT_FIELDS);
    let from = given.word("timestamp", &TIMESTAMPS)?;
    Ok(Policy {
        by_state: states(&given)?,
        window: period(&given)?
            .map(|length| Window { length, from: from.unwrap_or(WindowFrom::CreatedAt) }),
        on_conflict: either(on_conflict, replace(&given)?, "oban.replace")?
            .unwrap_or(OnConflict::Skip),
        ..compared_by(fields, keys(&given, fields)?.as_ref())
    })
}

/// One job for each value of these fields, of which args and meta may be reduced to some members.
fn compared_by(fields: &[Field], keys: Option<&Paths>) -> Policy {
    let part = |dimension| match (fields.contains(&dimension), keys) {
        (false, _) => Part::None,
        (true, None) => Part::All,
        (true, Some(keys)) => Part::Optional(keys.clone()),
    };
    Policy {
        by_args: part(Field::Args),
        by_meta: part(Field::Meta),
        by_queue: fields.contains(&Field::Queue),
        exclude_kind: !fields.contains(&Field::Kind),
        ..Policy::default()
    }
}

/// An empty list is Oban's default and means that all members count.
fn keys(given: &Given, fields: &[Field]) -> Result<Option<Paths>, Invalid> {
    const RULE: &str = "oban.keys must be a list of top-level members of args and meta.";
    let keys = given.strings("keys", RULE)?.unwrap_or_default();
    if keys.is_empty() {
        return Ok(None);
    }
    if fields.contains(&Field::Args) || fields.contains(&Field::Meta) {
        return Paths::of_members(&keys, "oban.keys").map(Some);
    }
    Err(Invalid::new(
        "oban.keys",
        "oban.keys requires args or meta in oban.fields",
        "oban.keys selects the members of args and meta to compare.",
    )
    .hint("Add \"args\" or \"meta\" to oban.fields, or omit oban.keys."))
}

fn states(given: &Given) -> Result<States, Invalid> {
    if let Some(Value::String(_)) = given.get("states") {
        return Ok(given.word("states", &GROUPS)?.unwrap_or(SUCCESSFUL));
    }
    let states = given.words("states", "state", &STATES)?;
    Ok(states.map_or(SUCCESSFUL, |states| States::of(&states)))
}

/// The window; nothing if it has no end.
fn period(given: &Given) -> Result<Option<Interval>, Invalid> {
    let seconds = match given.get("period") {
        None => return Ok(Some(DEFAULT_PERIOD)),
        Some(Value::String(word)) if word == "infinity" => return Ok(None),
        Some(Value::Number(seconds)) => seconds.as_f64(),
        Some(Value::Array(pair)) => match pair.as_slice() {
            [Value::Number(number), Value::String(unit)] => {
                let unit =
                    UNITS.iter().find(|(name, _)| unit.strip_suffix('s').unwrap_or(unit) == *name);
                number.as_f64().zip(unit).map(|(number, (_, seconds))| number * seconds)
            }
            _ => None,
        },
        Some(_) => None,
    };
    let value = given.get("period").unwrap_or(&Value::Null);
    match seconds.and_then(interval::from_seconds) {
        Some(length) if length.is_positive() => Ok(Some(length)),
        Some(_) => Err(not_positive("oban.period", value)
            .hint("Write \"infinity\" for none; the default is one minute.")),
        None => Err(Invalid::new(
            "oban.period",
            format!("oban.period {} is not a period", json::shown(value)),
            "oban.period must be a number of seconds, \"infinity\", or a list of a number and a unit from seconds to months.",
        )
        .hint("Write 120, [2, \"minutes\"] or \"infinity\".")),
    }
}

fn replace(given: &Given) -> Result<Option<OnConflict>, Invalid> {
    if let Some(Value::Object(by_state)) = given.get("replace") {
        let states = STATES.map(|(word, _)| word);
        let given = Given::new("oban.replace", "state", by_state, &states)?;
        return updates(&given, &STATES, &REPLACEABLE).map(Some);
    }
    let fields = given.words("replace", "field", &REPLACEABLE)?;
    Ok(fields.map(|fields| OnConflict::Update(Updates::in_every_state(Fields::from_iter(fields)))))
}
