//! The native form: what is read, what is refused, and how it is shown.

use jobs_core::interval::Interval;
use jobs_core::policy::{
    self, Field, Fields, Hold, HoldUntil, OnConflict, Policy, Replace, Window, WindowFrom,
};
use jobs_core::state::{State, States};
use serde_json::{Value, json};

use crate::duration;

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
    let invalid = parse(&value).expect_err(&value.to_string());
    assert!(invalid.detail.ends_with('.'), "{invalid:?}");
    assert!(!invalid.message.ends_with('.'), "{invalid:?}");
    // What it is about is named in it.
    assert!(invalid.message.contains(invalid.name()), "{invalid:?}");
    assert!(
        invalid
            .hint
            .as_ref()
            .is_none_or(|hint| hint.ends_with(['.', '?'])),
        "{invalid:?}"
    );
    (invalid.message, invalid.hint)
}

/// These members of the policy as it is shown.
fn shown(value: Value, members: &[&str]) -> Value {
    let json = policy(value).to_json();
    members.iter().map(|member| json[member].clone()).collect()
}

const ALL_BUT_CANCELLED_AND_DISCARDED: [&str; 6] = [
    "available",
    "scheduled",
    "pending",
    "running",
    "retryable",
    "completed",
];

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
    assert_eq!(
        policy.by_state,
        States::of(&[State::Available, State::Running])
    );
    let month = Interval {
        months: 1,
        days: 0,
        micros: 0,
    };
    assert_eq!(
        policy.window,
        Some(Window {
            length: Interval::of_micros(90_500_000),
            from: WindowFrom::ScheduledAt
        })
    );
    assert_eq!(
        policy.hold,
        Some(Hold {
            length: month,
            until: HoldUntil::Start
        })
    );
    assert_eq!(
        policy.on_conflict,
        OnConflict::Replace(Replace {
            except_schedule: true,
            reject_final: false
        })
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
    assert_eq!(
        shown(json!({ "by_state": ["running"] }), &["by_kind"]),
        json!([true])
    );
}

#[test]
fn modifiers_alone_are_refused() {
    for (value, field) in [
        (json!({ "exclude_kind": true }), "exclude_kind"),
        (json!({ "window": 60 }), "window"),
        (
            json!({ "window": 60, "window_from": "created_at" }),
            "window",
        ),
        (json!({ "hold_for": 60 }), "hold_for"),
        (json!({ "hold_for": 60, "hold_until": "start" }), "hold_for"),
        (
            json!({ "on_conflict": "skip", "by_args": false }),
            "on_conflict",
        ),
        (
            json!({ "on_conflict": { "update": { "*": ["args"] } } }),
            "on_conflict",
        ),
        (json!({ "wait": true }), "wait"),
        (json!({ "wait": false, "by_kind": null }), "wait"),
    ] {
        assert_eq!(
            refused(value).0,
            format!("{field} alone makes no job unique")
        );
    }
}

#[test]
fn a_field_about_another_is_refused_without_it() {
    for (value, message) in [
        (
            json!({ "by_args": true, "window_from": "created_at" }),
            "window_from needs window beside it",
        ),
        (
            json!({ "by_args": true, "window_from": "created_at", "window": false }),
            "window_from needs window beside it",
        ),
        (
            json!({ "by_args": true, "hold_until": "success", "window": 1 }),
            "hold_until needs hold_for beside it",
        ),
    ] {
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
    assert_eq!(
        policy(json!({ "by_args": true, "hold_for": 60 })).by_state,
        States::DEFAULT_UNIQUE
    );
}

#[test]
fn every_state_can_count() {
    let all = State::ALL.map(State::as_str);
    assert_eq!(
        policy(json!({ "by_state": all })).by_state,
        States::of(&State::ALL)
    );
    for state in State::ALL {
        assert_eq!(
            policy(json!({ "by_state": [state.as_str()] })).by_state,
            States::of(&[state])
        );
    }
}

#[test]
fn unknown_words_are_refused_with_the_nearest() {
    for (value, message, hint) in [
        (
            json!({ "by_arg": true }),
            "field \"by_arg\" of unique_opts is not known",
            Some("by_args"),
        ),
        (
            json!({ "hold_fro": 1 }),
            "field \"hold_fro\" of unique_opts is not known",
            Some("hold_for"),
        ),
        (
            json!({ "priority": null }),
            "field \"priority\" of unique_opts is not known",
            None,
        ),
        (
            json!({ "by_state": ["runing"] }),
            "state \"runing\" of by_state is not known",
            Some("running"),
        ),
        (
            json!({ "by_state": ["executing"] }),
            "state \"executing\" of by_state is not known",
            None,
        ),
        (
            json!({ "by_kind": true, "window": 1, "window_from": "schedule_at" }),
            "window_from \"schedule_at\" is not known",
            Some("scheduled_at"),
        ),
        (
            json!({ "by_kind": true, "hold_for": 1, "hold_until": "Start" }),
            "hold_until \"Start\" is not known",
            Some("start"),
        ),
        (
            json!({ "by_kind": true, "on_conflict": "rejct" }),
            "on_conflict \"rejct\" is not known",
            Some("reject"),
        ),
        (
            json!({ "by_kind": true, "on_conflict": "" }),
            "on_conflict \"\" is not known",
            None,
        ),
        (
            json!({ "by_kind": true, "on_conflict": "update" }),
            "on_conflict \"update\" is not known",
            None,
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "skip": 1 } }),
            "field \"skip\" of on_conflict is not known",
            None,
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "update": { "runing": ["args"] } } }),
            "state \"runing\" of on_conflict.update is not known",
            Some("running"),
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "update": { "*": ["tag"] } } }),
            "field \"tag\" of on_conflict.update.* is not known",
            Some("tags"),
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "update": { "running": ["timeout"] } } }),
            "field \"timeout\" of on_conflict.update.running is not known",
            None,
        ),
    ] {
        let hint = hint.map(|word| format!("Did you mean \"{word}\"?"));
        assert_eq!(refused(value), (message.to_string(), hint));
    }
}

#[test]
fn wrong_types_are_refused() {
    for (value, message) in [
        (json!(null), "unique_opts must not be null"),
        (json!(true), "unique_opts must not be true"),
        (json!(["by_args"]), "unique_opts must not be an array"),
        (json!({ "by_kind": 1 }), "by_kind must not be a number"),
        (json!({ "by_kind": [] }), "by_kind must not be an array"),
        (
            json!({ "by_queue": "true" }),
            "by_queue must not be a string",
        ),
        (
            json!({ "by_args": "user_id" }),
            "by_args must not be a string",
        ),
        (json!({ "by_args": {} }), "by_args must not be an object"),
        (
            json!({ "by_args": ["a", 1] }),
            "an element of by_args must not be a number",
        ),
        (
            json!({ "by_args": [null] }),
            "an element of by_args must not be null",
        ),
        (json!({ "by_meta": true }), "by_meta must not be true"),
        (
            json!({ "by_meta": [["a"]] }),
            "an element of by_meta must not be an array",
        ),
        (
            json!({ "by_state": "running" }),
            "by_state must not be a string",
        ),
        (json!({ "by_state": true }), "by_state must not be true"),
        (json!({ "by_period": true }), "by_period must not be true"),
        (
            json!({ "by_period": [2, "minutes"] }),
            "by_period must not be an array",
        ),
        (
            json!({ "exclude_kind": "yes" }),
            "exclude_kind must not be a string",
        ),
        (json!({ "key": true }), "key must not be true"),
        (json!({ "key": 7 }), "key must not be a number"),
        (
            json!({ "by_kind": true, "wait": 0 }),
            "wait must not be a number",
        ),
        (
            json!({ "by_kind": true, "window": true }),
            "window must not be true",
        ),
        (
            json!({ "by_kind": true, "window": 1, "window_from": true }),
            "window_from must not be true",
        ),
        (
            json!({ "by_kind": true, "hold_for": {} }),
            "hold_for must not be an object",
        ),
        (
            json!({ "by_kind": true, "hold_for": 1, "hold_until": 1 }),
            "hold_until must not be a number",
        ),
        (
            json!({ "by_kind": true, "on_conflict": true }),
            "on_conflict must not be true",
        ),
        (
            json!({ "by_kind": true, "on_conflict": ["skip"] }),
            "on_conflict must not be an array",
        ),
        (
            json!({ "by_kind": true, "on_conflict": {} }),
            "on_conflict.update must not be null",
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "update": ["args"] } }),
            "on_conflict.update must not be an array",
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "update": { "*": "args" } } }),
            "on_conflict.update.* must not be a string",
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "update": { "running": [1] } } }),
            "an element of on_conflict.update.running must not be a number",
        ),
        (json!({ "oban": 1 }), "oban must not be a number"),
        (json!({ "faktory": true }), "faktory must not be true"),
        (json!({ "ojs": true }), "ojs must not be true"),
    ] {
        assert_eq!(refused(value).0, message);
    }
}

#[test]
fn values_out_of_range_are_refused() {
    for (value, message) in [
        (
            json!({ "by_args": [] }),
            "by_args must not be an empty list",
        ),
        (
            json!({ "by_meta": [] }),
            "by_meta must not be an empty list",
        ),
        (
            json!({ "by_args": ["a..b"] }),
            "path \"a..b\" of by_args has an empty name",
        ),
        (json!({ "by_period": 0 }), "by_period 0 is too short"),
        (
            json!({ "by_period": 0.999_999 }),
            "by_period 0.999999 is too short",
        ),
        (
            json!({ "by_period": "-1 day" }),
            "by_period \"-1 day\" is too short",
        ),
        (
            json!({ "by_period": "1 month" }),
            "by_period \"1 month\" has no fixed length",
        ),
        (
            json!({ "by_period": "P1Y" }),
            "by_period \"P1Y\" has no fixed length",
        ),
        (
            json!({ "by_period": "weekly" }),
            "by_period \"weekly\" is not a duration",
        ),
        (json!({ "key": "" }), "key must not be empty"),
        (
            json!({ "by_kind": true, "on_conflict": { "update": {} } }),
            "on_conflict.update must not be empty",
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "update": { "*": null } } }),
            "on_conflict.update must not be empty",
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "update": { "running": [] } } }),
            "on_conflict.update.running must not be an empty list",
        ),
        (
            json!({ "by_kind": true, "on_conflict": { "update": { "*": [], "running": ["args"] } } }),
            "on_conflict.update.* must not be an empty list",
        ),
    ] {
        assert_eq!(refused(value).0, message);
    }
    for field in ["window", "hold_for"] {
        for (length, message) in [
            (json!(0), "0 is too short"),
            (json!(-1), "-1 is too short"),
            (json!(0.000_000_1), "1e-7 is too short"),
            (json!("-1 day"), "\"-1 day\" is too short"),
            (
                json!("1 month -30 days"),
                "\"1 month -30 days\" is too short",
            ),
            (json!("PT0S"), "\"PT0S\" is too short"),
            (json!("soon"), "\"soon\" is not a duration"),
        ] {
            let message = format!("{field} {message}");
            assert_eq!(
                refused(json!({ "by_kind": true, field: length })).0,
                message
            );
        }
    }
}

#[test]
fn durations_are_seconds_iso_8601_or_postgres_text() {
    for length in [
        json!(900),
        json!(900.0),
        json!("PT15M"),
        json!("15 minutes"),
    ] {
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
fn a_key_stands_alone() {
    assert_eq!(
        policy(json!({ "key": "monthly" })).key.as_deref(),
        Some("monthly")
    );
    for (other, value) in [
        ("by_args", json!(true)),
        ("by_meta", json!(["a"])),
        ("by_queue", json!(true)),
        ("by_period", json!(60)),
    ] {
        assert_eq!(
            refused(json!({ "key": "k", other: value })).0,
            format!("key and {other} must not stand together")
        );
    }
    policy(json!({ "key": "k", "by_args": false, "by_queue": null }));
    policy(json!({ "key": "k", "window": 60, "hold_for": 60, "by_state": ["running"] }));
}

#[test]
fn each_way_out_of_a_conflict_is_read_and_shown() {
    let replace = |except_schedule| {
        OnConflict::Replace(Replace {
            except_schedule,
            reject_final: false,
        })
    };
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
            let expected: &[Field] = if other == state {
                &[Field::Args, Field::Tags]
            } else {
                &[]
            };
            assert_eq!(update[other as usize], fields(expected));
        }
    }
    // A state that is named has its own list.
    let update = updated(json!({ "*": ["args", "meta"], "running": ["priority"] }));
    for state in State::ALL {
        let expected: &[Field] = if state == State::Running {
            &[Field::Priority]
        } else {
            &[Field::Args, Field::Meta]
        };
        assert_eq!(update[state as usize], fields(expected));
    }
}

#[test]
fn an_update_is_shown_as_it_is_read() {
    let every: Vec<_> = State::ALL.map(|state| (state.as_str(), ["args"])).into();
    for (update, shown) in [
        (
            json!({ "*": ["tags", "args"] }),
            json!({ "*": ["args", "tags"] }),
        ),
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
