//! The native form: what is read, what is refused, and how it is shown.

use jobs_core::interval::Interval;
use jobs_core::policy::{
    self, Field, Fields, Hold, HoldUntil, OnConflict, Policy, Replace, Window, WindowFrom,
};
use jobs_core::state::{State, States};
use serde_json::{Value, json};

use crate::duration;
use crate::support::{refusal, rows};

fn parse(value: &Value) -> Result<Option<Policy>, jobs_core::Invalid> {
    policy::parse(value, &duration::read)
}

fn policy(value: Value) -> Policy {
    parse(&value)
        .unwrap_or_else(|invalid| panic!("{value}: {invalid:?}"))
        .expect("they make the job unique")
}

/// The refusal of these options: message and hint.
fn refused(value: Value) -> (String, Option<String>) {
    refusal(&parse(&value).expect_err(&value.to_string()))
}

/// These members of the policy as it is shown.
fn shown(value: Value, members: &[&str]) -> Value {
    let json = policy(value).to_json();
    members.iter().map(|member| json[member].clone()).collect()
}

const ALL_BUT_CANCELLED_AND_DISCARDED: [&str; 6] =
    ["available", "scheduled", "pending", "running", "retryable", "completed"];

#[test]
fn nothing_left_is_not_unique() {
    for value in [
        json!({}),
        json!({ "by_args": false, "by_queue": null, "key": false }),
        json!({ "exclude_kind": false, "on_conflict": null, "wait": null }),
        json!({ "window": null, "hold_for": false, "window_from": null, "hold_until": false }),
        json!({ "oban": null, "faktory": false, "ojs": null }),
    ] {
        assert!(parse(&value).unwrap().is_none(), "{value}");
    }
}

#[test]
fn what_is_left_out_is_filled_in() {
    assert_eq!(
        policy(json!({ "by_kind": true })).to_json(),
        json!({
            "by_kind": true, "by_args": false, "by_meta": false, "by_queue": false, "by_period": null,
            "by_state": ALL_BUT_CANCELLED_AND_DISCARDED, "exclude_kind": false, "key": null,
            "window": null, "window_from": null, "hold_for": null, "hold_until": null,
            "on_conflict": "skip", "wait": true,
        })
    );
    assert_eq!(
        shown(
            json!({ "by_args": true, "window": 60, "hold_for": 60 }),
            &["window_from", "hold_until"]
        ),
        json!(["created_at", "success"])
    );
}

#[test]
fn every_field_is_read() {
    let options = json!({
        "by_kind": true, "by_args": ["n", "a\\.b.c", "n"], "by_meta": ["tenant_id"], "by_queue": true,
        "by_period": "15 minutes", "by_state": ["running", "available", "running"], "exclude_kind": true,
        "window": 90.5, "window_from": "scheduled_at", "hold_for": "1 month", "hold_until": "start",
        "on_conflict": "replace_except_schedule", "wait": false,
    });
    let policy = policy(options);
    assert!(policy.by_queue && policy.exclude_kind && !policy.wait);
    assert_eq!(policy.by_period, Some(900_000_000));
    assert_eq!(policy.by_state, States::of(&[State::Available, State::Running]));
    let month = Interval { months: 1, days: 0, micros: 0 };
    assert_eq!(
        policy.window,
        Some(Window { length: Interval::of_micros(90_500_000), from: WindowFrom::ScheduledAt })
    );
    assert_eq!(policy.hold, Some(Hold { length: month, until: HoldUntil::Start }));
    assert_eq!(
        policy.on_conflict,
        OnConflict::Replace(Replace { except_schedule: true, reject_final: false })
    );
    let shown = json!({
        "by_kind": false, "by_args": ["a\\.b.c", "n"], "by_meta": ["tenant_id"], "by_queue": true,
        "by_period": "PT15M", "by_state": ["available", "running"], "exclude_kind": true, "key": null,
        "window": "PT1M30.5S", "window_from": "scheduled_at", "hold_for": "P1M", "hold_until": "start",
        "on_conflict": "replace_except_schedule", "wait": false,
    });
    assert_eq!(policy.to_json(), shown);
    assert_eq!(parse(&shown).unwrap().unwrap().to_json(), shown);
}

#[test]
fn each_identity_is_enough() {
    for value in [
        json!({ "by_kind": true }),
        json!({ "by_args": true }),
        json!({ "by_args": ["user_id"] }),
        json!({ "by_meta": ["a"] }),
        json!({ "by_queue": true }),
        json!({ "by_period": 1 }),
        json!({ "by_state": ["running"] }),
        json!({ "key": "k", "by_kind": true, "exclude_kind": true, "wait": true, "by_state": ["running"] }),
    ] {
        policy(value);
    }
    // by_state alone means one job of this kind.
    assert_eq!(shown(json!({ "by_state": ["running"] }), &["by_kind"]), json!([true]));
}

#[test]
fn modifiers_alone_are_refused() {
    for [value, field] in rows(
        r#"
            { "exclude_kind": true } | exclude_kind
            { "window": 60 } | window
            { "window": 60, "window_from": "created_at" } | window
            { "hold_for": 60 } | hold_for
            { "hold_for": 60, "hold_until": "start" } | hold_for
            { "on_conflict": "skip", "by_args": false } | on_conflict
            { "on_conflict": { "update": { "*": ["args"] } } } | on_conflict
            { "wait": true } | wait
            { "wait": false, "by_kind": null } | wait
        "#,
    ) {
        let value: Value = serde_json::from_str(value).expect(value);
        assert_eq!(refused(value).0, format!("{field} alone does not make a job unique"));
    }
}

#[test]
fn a_field_about_another_is_refused_without_it() {
    for [value, message] in rows(
        r#"
            { "by_args": true, "window_from": "created_at" } | window_from requires window
            { "by_args": true, "window_from": "created_at", "window": false } | window_from requires window
            { "by_args": true, "hold_until": "success", "window": 1 } | hold_until requires hold_for
        "#,
    ) {
        let value = serde_json::from_str(value).expect(value);
        assert_eq!(refused(value).0, message);
    }
}

#[test]
fn no_state_is_enough_only_with_a_hold() {
    assert_eq!(
        refused(json!({ "by_args": true, "by_state": [] })).0,
        "by_state must not be an empty list"
    );
    assert_eq!(
        refused(json!({ "by_args": true, "by_state": [], "window": 60 })).0,
        "by_state must not be an empty list"
    );
    for value in [
        json!({ "by_args": true, "by_state": [], "hold_for": 60 }),
        json!({ "by_state": [], "hold_for": 60 }),
    ] {
        assert!(policy(value).by_state.is_empty());
    }
    // A hold does not change which states count otherwise.
    assert_eq!(policy(json!({ "by_args": true, "hold_for": 60 })).by_state, States::DEFAULT_UNIQUE);
}

#[test]
fn every_state_can_count() {
    let all = State::ALL.map(State::as_str);
    assert_eq!(policy(json!({ "by_state": all })).by_state, States::of(&State::ALL));
    for state in State::ALL {
        assert_eq!(policy(json!({ "by_state": [state.as_str()] })).by_state, States::of(&[state]));
    }
}

#[test]
fn unknown_words_are_refused_with_the_nearest() {
    for [value, message, hint] in rows(
        r#"
            { "by_arg": true } | field "by_arg" of unique_opts is not known | by_args
            { "hold_fro": 1 } | field "hold_fro" of unique_opts is not known | hold_for
            { "priority": null } | field "priority" of unique_opts is not known
            { "by_state": ["runing"] } | state "runing" of by_state is not known | running
            { "by_state": ["executing"] } | state "executing" of by_state is not known
            { "by_kind": true, "window": 1, "window_from": "schedule_at" } | window_from "schedule_at" is not known | scheduled_at
            { "by_kind": true, "hold_for": 1, "hold_until": "Start" } | hold_until "Start" is not known | start
            { "by_kind": true, "on_conflict": "rejct" } | on_conflict "rejct" is not known | reject
            { "by_kind": true, "on_conflict": "" } | on_conflict "" is not known
            { "by_kind": true, "on_conflict": "update" } | on_conflict "update" is not known
            { "by_kind": true, "on_conflict": { "skip": 1 } } | field "skip" of on_conflict is not known
            { "by_kind": true, "on_conflict": { "update": { "runing": ["args"] } } } | state "runing" of on_conflict.update is not known | running
            { "by_kind": true, "on_conflict": { "update": { "*": ["tag"] } } } | field "tag" of on_conflict.update.* is not known | tags
            { "by_kind": true, "on_conflict": { "update": { "running": ["timeout"] } } } | field "timeout" of on_conflict.update.running is not known
        "#,
    ) {
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        let value: Value = serde_json::from_str(value).expect(value);
        let hint = hint.map(|word| format!("Did you mean \"{word}\"?"));
        assert_eq!(refused(value), (message.to_string(), hint));
    }
}

#[test]
fn wrong_types_are_refused() {
    for [value, message] in rows(
        r#"
            null | unique_opts must not be null
            true | unique_opts must not be true
            ["by_args"] | unique_opts must not be an array
            { "by_kind": 1 } | by_kind must not be a number
            { "by_kind": [] } | by_kind must not be an array
            { "by_queue": "true" } | by_queue must not be a string
            { "by_args": "user_id" } | by_args must not be a string
            { "by_args": {} } | by_args must not be an object
            { "by_args": ["a", 1] } | an element of by_args must not be a number
            { "by_args": [null] } | an element of by_args must not be null
            { "by_meta": true } | by_meta must not be true
            { "by_meta": [["a"]] } | an element of by_meta must not be an array
            { "by_state": "running" } | by_state must not be a string
            { "by_state": true } | by_state must not be true
            { "by_period": true } | by_period must not be true
            { "by_period": [2, "minutes"] } | by_period must not be an array
            { "exclude_kind": "yes" } | exclude_kind must not be a string
            { "key": true } | key must not be true
            { "key": 7 } | key must not be a number
            { "by_kind": true, "wait": 0 } | wait must not be a number
            { "by_kind": true, "window": true } | window must not be true
            { "by_kind": true, "window": 1, "window_from": true } | window_from must not be true
            { "by_kind": true, "hold_for": {} } | hold_for must not be an object
            { "by_kind": true, "hold_for": 1, "hold_until": 1 } | hold_until must not be a number
            { "by_kind": true, "on_conflict": true } | on_conflict must not be true
            { "by_kind": true, "on_conflict": ["skip"] } | on_conflict must not be an array
            { "by_kind": true, "on_conflict": {} } | on_conflict.update must not be null
            { "by_kind": true, "on_conflict": { "update": ["args"] } } | on_conflict.update must not be an array
            { "by_kind": true, "on_conflict": { "update": { "*": "args" } } } | on_conflict.update.* must not be a string
            { "by_kind": true, "on_conflict": { "update": { "running": [1] } } } | an element of on_conflict.update.running must not be a number
            { "oban": 1 } | oban must not be a number
            { "faktory": true } | faktory must not be true
            { "ojs": true } | ojs must not be true
        "#,
    ) {
        let value = serde_json::from_str(value).expect(value);
        assert_eq!(refused(value).0, message);
    }
}

#[test]
fn values_out_of_range_are_refused() {
    for [value, message] in rows(
        r#"
            { "by_args": [] } | by_args must not be an empty list
            { "by_meta": [] } | by_meta must not be an empty list
            { "by_args": ["a..b"] } | path "a..b" of by_args has an empty name
            { "by_period": 0 } | by_period 0 is too short
            { "by_period": 0.999999 } | by_period 0.999999 is too short
            { "by_period": "-1 day" } | by_period "-1 day" is too short
            { "by_period": "1 month" } | by_period "1 month" has no fixed length
            { "by_period": "P1Y" } | by_period "P1Y" has no fixed length
            { "by_period": "weekly" } | by_period "weekly" is not a duration
            { "key": "" } | key must not be empty
            { "by_kind": true, "on_conflict": { "update": {} } } | on_conflict.update must not be empty
            { "by_kind": true, "on_conflict": { "update": { "*": null } } } | on_conflict.update must not be empty
            { "by_kind": true, "on_conflict": { "update": { "running": [] } } } | on_conflict.update.running must not be an empty list
            { "by_kind": true, "on_conflict": { "update": { "*": [], "running": ["args"] } } } | on_conflict.update.* must not be an empty list
        "#,
    ) {
        let value = serde_json::from_str(value).expect(value);
        assert_eq!(refused(value).0, message);
    }
    for field in ["window", "hold_for"] {
        for (length, message) in [
            (json!(0), "0 is too short"),
            (json!(-1), "-1 is too short"),
            (json!(0.000_000_1), "1e-7 is too short"),
            (json!("-1 day"), "\"-1 day\" is too short"),
            (json!("1 month -30 days"), "\"1 month -30 days\" is too short"),
            (json!("PT0S"), "\"PT0S\" is too short"),
            (json!("soon"), "\"soon\" is not a duration"),
        ] {
            let message = format!("{field} {message}");
            assert_eq!(refused(json!({ "by_kind": true, field: length })).0, message);
        }
    }
}

#[test]
fn durations_are_seconds_iso_8601_or_postgres_text() {
    for length in [json!(900), json!(900.0), json!("PT15M"), json!("15 minutes")] {
        assert_eq!(
            shown(
                json!({ "by_period": length, "window": length, "hold_for": length }),
                &["by_period", "window", "hold_for"]
            ),
            json!(["PT15M", "PT15M", "PT15M"])
        );
    }
    // Only a period needs a fixed length.
    assert_eq!(
        shown(
            json!({ "by_kind": true, "window": "P1Y2M3DT0.000001S", "hold_for": "1 month" }),
            &["window", "hold_for"]
        ),
        json!(["P1Y2M3DT0.000001S", "P1M"])
    );
}

#[test]
fn a_key_stands_alone_but_for_the_queue() {
    assert_eq!(policy(json!({ "key": "monthly" })).key.as_deref(), Some("monthly"));
    for (other, value) in
        [("by_args", json!(true)), ("by_meta", json!(["a"])), ("by_period", json!(60))]
    {
        assert_eq!(
            refused(json!({ "key": "k", other: value })).0,
            format!("key and {other} cannot be combined")
        );
    }
    policy(json!({ "key": "k", "by_args": false, "by_queue": null }));
    assert!(policy(json!({ "key": "k", "by_queue": true })).by_queue);
    policy(json!({ "key": "k", "window": 60, "hold_for": 60, "by_state": ["running"] }));
}

#[test]
fn each_way_out_of_a_conflict_is_read_and_shown() {
    let replace =
        |except_schedule| OnConflict::Replace(Replace { except_schedule, reject_final: false });
    for (word, meaning) in [
        ("skip", OnConflict::Skip),
        ("reject", OnConflict::Reject),
        ("replace", replace(false)),
        ("replace_except_schedule", replace(true)),
    ] {
        let policy = policy(json!({ "by_kind": true, "on_conflict": word }));
        assert_eq!(policy.on_conflict, meaning);
        assert_eq!(policy.to_json()["on_conflict"], word);
        assert!(policy.to_json().get("final_conflict").is_none());
    }
}

/// What an update changes, by state.
fn updated(update: Value) -> Vec<Fields> {
    match policy(json!({ "by_kind": true, "on_conflict": { "update": update } })).on_conflict {
        OnConflict::Update(updates) => State::ALL.map(|state| updates.of(state)).into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_update_names_fields_by_state() {
    let fields = |fields: &[Field]| Fields::from_iter(fields.iter().copied());
    for (name, field) in [
        ("args", Field::Args),
        ("kind", Field::Kind),
        ("max_attempts", Field::MaxAttempts),
        ("meta", Field::Meta),
        ("priority", Field::Priority),
        ("queue", Field::Queue),
        ("scheduled_at", Field::ScheduledAt),
        ("tags", Field::Tags),
    ] {
        assert_eq!(updated(json!({ "*": [name] })), [fields(&[field]); 8]);
    }
    for state in State::ALL {
        let update = updated(json!({ state.as_str(): ["tags", "args", "tags"] }));
        for other in State::ALL {
            let expected: &[Field] = if other == state { &[Field::Args, Field::Tags] } else { &[] };
            assert_eq!(update[other as usize], fields(expected));
        }
    }
    // A state that is named has its own list.
    let update = updated(json!({ "*": ["args", "meta"], "running": ["priority"] }));
    for state in State::ALL {
        let expected: &[Field] =
            if state == State::Running { &[Field::Priority] } else { &[Field::Args, Field::Meta] };
        assert_eq!(update[state as usize], fields(expected));
    }
}

#[test]
fn an_update_is_shown_as_it_is_read() {
    let every: Vec<_> = State::ALL.map(|state| (state.as_str(), ["args"])).into();
    for (update, shown) in [
        (json!({ "*": ["tags", "args"] }), json!({ "*": ["args", "tags"] })),
        (
            json!({ "running": ["priority"], "available": ["args"] }),
            json!({ "available": ["args"], "running": ["priority"] }),
        ),
        (
            every
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
                .into_iter()
                .map(|(state, fields)| (state.to_string(), json!(fields)))
                .collect(),
            json!({ "*": ["args"] }),
        ),
    ] {
        let policy = policy(json!({ "by_kind": true, "on_conflict": { "update": update } }));
        assert_eq!(policy.to_json()["on_conflict"], json!({ "update": shown }));
    }
}
