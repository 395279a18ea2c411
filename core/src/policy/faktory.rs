//! Faktory's `unique_for` and `unique_until`.

use serde_json::Value;

use super::{HOLD_UNTIL, Hold, HoldUntil, OnConflict, Part, Policy};
use crate::Invalid;
use crate::given::{Given, wrong_type};
use crate::state::States;

/// Reads the options; nothing without `unique_for`, which means not unique.
///
/// What counts is the key that the job holds by itself, whatever its state. `on_conflict` is what
/// stands beside the options.
pub(super) fn parse(
    value: &Value,
    on_conflict: Option<OnConflict>,
) -> Result<Option<Policy>, Invalid> {
    const RULE: &str = "faktory must be an object such as {\"unique_for\": 600}.";
    let given = Given::of("faktory", value, &["unique_for", "unique_until"], RULE)?;
    let until = given.word("unique_until", &HOLD_UNTIL)?;
    if let Some(value) = given.get("unique_for").filter(|value| !value.is_number()) {
        return Err(wrong_type(
            "faktory.unique_for",
            value,
            "faktory.unique_for must be a number of seconds.",
        ));
    }
    let length = given.duration("unique_for", &|_| None)?;
    Ok(length.map(|length| Policy {
        by_args: Part::All,
        by_queue: true,
        by_state: States::empty(),
        hold: Some(Hold { length, until: until.unwrap_or(HoldUntil::Success) }),
        on_conflict: on_conflict.unwrap_or(OnConflict::Skip),
        ..Policy::default()
    }))
}
