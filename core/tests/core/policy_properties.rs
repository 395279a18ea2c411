//! What holds for all options, valid or not.

use jobs_core::interval::Interval;
use jobs_core::policy::{self, OnConflict, Part, Policy, Replace};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use crate::duration;
use crate::policy_words::{FIELDS, WORDS};
use crate::support::{any_json, any_scalar};

/// Options that are valid, every field at least once among them.
fn valid() -> Vec<Value> {
    vec![
        json!({ "by_kind": true }),
        json!({ "by_args": true, "by_queue": true, "by_period": 900, "wait": false }),
        json!({ "by_args": ["a", "b.c"], "by_meta": ["d"], "by_state": ["running", "completed"], "exclude_kind": true }),
        json!({ "key": "k", "window": "PT15M", "window_from": "scheduled_at", "on_conflict": "reject" }),
        json!({ "by_args": true, "by_state": [], "hold_for": "1 month", "hold_until": "start", "on_conflict": "replace" }),
        json!({ "by_kind": true, "on_conflict": { "update": { "*": ["args", "meta"], "running": ["priority"] } } }),
        json!({ "oban": true, "wait": false }),
        json!({ "oban": { "period": [2, "minutes"], "fields": ["worker", "args"], "keys": ["url"], "states": "all",
            "timestamp": "scheduled_at", "replace": ["args", "worker"] } }),
        json!({ "oban": { "period": "infinity", "fields": ["meta"], "states": ["executing"], "replace": { "executing": ["tags"] } } }),
        json!({ "faktory": { "unique_for": 600, "unique_until": "start" }, "on_conflict": "replace_except_schedule" }),
        json!({ "ojs": { "keys": ["type", "queue", "args", "meta"], "args_keys": ["a"], "meta_keys": ["b"], "period": "P7D",
            "states": ["active", "completed"], "on_conflict": "replace" } }),
        json!({ "ojs": {}, "on_conflict": "skip" }),
    ]
}

/// Any JSON, biased to what options may look like.
fn any_options() -> impl Strategy<Value = Value> {
    any_json(&WORDS, &FIELDS)
}

/// A change of options: of what it finds there at a place that is chosen by an index.
#[derive(Clone, Debug)]
enum Change {
    /// Puts this there instead.
    Set(Index, Value),
    /// Takes a member or an element away.
    Remove(Index),
    /// Puts a member or an element in, if there can be any.
    Add(Index, &'static str, Value),
}

fn any_change() -> impl Strategy<Value = Change> {
    let value = || prop_oneof![3 => any_scalar(&WORDS).boxed(), 1 => any_options().boxed()];
    prop_oneof![
        (any::<Index>(), value()).prop_map(|(index, value)| Change::Set(index, value)),
        any::<Index>().prop_map(Change::Remove),
        (any::<Index>(), select(&FIELDS[..]), value())
            .prop_map(|(index, field, value)| Change::Add(index, field, value)),
    ]
}

/// Every place in a value, the value itself first.
fn places<'a>(value: &'a mut Value, count: &mut usize, wanted: usize) -> Option<&'a mut Value> {
    if *count == wanted {
        return Some(value);
    }
    *count += 1;
    match value {
        Value::Array(elements) => {
            elements.iter_mut().find_map(|element| places(element, count, wanted))
        }
        Value::Object(members) => {
            members.values_mut().find_map(|member| places(member, count, wanted))
        }
        _ => None,
    }
}

fn apply(change: Change, value: &mut Value) {
    let (Change::Set(index, _) | Change::Remove(index) | Change::Add(index, ..)) = &change;
    let mut count = 0;
    places(value, &mut count, usize::MAX);
    let place = places(value, &mut 0, index.index(count)).expect("it is one of them");
    match (change, place) {
        (Change::Set(_, new), place) => *place = new,
        (Change::Remove(index), Value::Array(elements)) if !elements.is_empty() => {
            elements.remove(index.index(elements.len()));
        }
        (Change::Remove(index), Value::Object(members)) if !members.is_empty() => {
            let member = members.keys().nth(index.index(members.len())).cloned();
            members.remove(&member.expect("it is one of them"));
        }
        (Change::Add(_, _, new), Value::Array(elements)) => elements.push(new),
        (Change::Add(_, field, new), Value::Object(members)) => {
            members.insert(field.to_string(), new);
        }
        _ => {}
    }
}

/// Whether only a dialect can ask for it.
fn beyond_native(policy: &Policy) -> bool {
    let reject_final =
        matches!(policy.on_conflict, OnConflict::Replace(Replace { reject_final: true, .. }));
    matches!(policy.by_meta, Part::All)
        || matches!(policy.by_args, Part::Members(_) | Part::Optional(_))
        || matches!(policy.by_meta, Part::Optional(_))
        || reject_final
}

/// What every policy that was read is like.
fn check(policy: &Policy) -> Result<(), TestCaseError> {
    prop_assert!(policy.hold.is_some() || !policy.by_state.is_empty());
    prop_assert!(policy.by_period.is_none_or(|micros| micros >= 1_000_000));
    prop_assert!(policy.window.is_none_or(|window| window.length.is_positive()));
    prop_assert!(policy.hold.is_none_or(|hold| hold.length.is_positive()));
    if let OnConflict::Update(updates) = policy.on_conflict {
        let states = jobs_core::state::State::ALL;
        prop_assert!(states.into_iter().any(|state| !updates.of(state).is_empty()));
    }
    let shown = policy.to_json();
    match policy::parse(&shown, &duration::read) {
        Ok(again) => {
            prop_assert!(!beyond_native(policy), "{}", shown);
            prop_assert_eq!(again.map(|policy| policy.to_json()), Some(shown));
        }
        Err(invalid) => prop_assert!(beyond_native(policy), "{:?}: {}", invalid, shown),
    }
    Ok(())
}

#[test]
fn the_valid_ones_are_valid() {
    for value in valid() {
        let policy = policy::parse(&value, &duration::read);
        check(&policy.unwrap().expect("they make the job unique")).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_options_are_read_or_refused(value in any_options()) {
        if let Ok(Some(policy)) = policy::parse(&value, &duration::read) {
            check(&policy)?;
        }
    }

    #[test]
    fn changed_options_are_read_or_refused(
        value in select(valid()),
        changes in prop::collection::vec(any_change(), 1..4),
        months in -1..2, days in -1..2, micros: i64,
    ) {
        let mut value = value;
        for change in changes {
            apply(change, &mut value);
        }
        if let Ok(Some(policy)) = policy::parse(&value, &duration::read) {
            check(&policy)?;
        }
        // Also where the server reads any text as any duration.
        let interval = Interval { months, days, micros };
        if let Ok(Some(policy)) = policy::parse(&value, &|_| Some(interval)) {
            check(&policy)?;
        }
    }
}
