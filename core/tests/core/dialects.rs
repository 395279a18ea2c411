//! Other systems' options, each compared with the native policy that says the same.

use jobs_core::Invalid;
use jobs_core::policy::{self, Policy};
use serde_json::{Value, json};

use crate::duration;
use crate::support::{refusal, rows};

fn parse(value: &Value) -> Result<Option<Policy>, Invalid> {
    policy::parse(value, &duration::read)
}

fn shown(value: &Value) -> Value {
    parse(value)
        .unwrap_or_else(|invalid| panic!("{value}: {invalid:?}"))
        .expect("they make the job unique")
        .to_json()
}

/// Compares options with native ones, in which `expected` overrides what is shown: what only a
/// dialect can ask for has no native options.
#[track_caller]
fn same(dialect: Value, native: Value, expected: Value) {
    let mut native = shown(&native);
    for (member, value) in expected.as_object().unwrap() {
        native[member] = value.clone();
    }
    assert_eq!(shown(&dialect), native, "{dialect}");
}

#[track_caller]
fn translated(dialect: Value, native: Value) {
    same(dialect, native, json!({}));
}

#[track_caller]
fn refused(value: Value, message: &str, hint: Option<&str>) {
    let said = refusal(&parse(&value).expect_err(&value.to_string()));
    assert_eq!(said.0, message);
    if let Some(hint) = hint {
        assert_eq!(said.1, Some(format!("Did you mean \"{hint}\"?")));
    }
}

/// Refusals of a dialect, a line each: its options, the message, and the word of the hint.
#[track_caller]
fn all_refused(dialect: &str, table: &str) {
    for [options, message, hint] in rows(table) {
        let options: Value = serde_json::from_str(options).expect(options);
        let hint = (!hint.is_empty()).then_some(hint);
        refused(json!({ dialect: options }), message, hint);
    }
}

/// Adds a member to an object.
fn with(mut object: Value, member: &str, value: Value) -> Value {
    object[member] = value;
    object
}

mod beside_a_dialect {
    use super::*;

    #[test]
    fn on_conflict_and_wait_may_stand() {
        for (dialect, default) in [
            (json!({ "oban": true }), "skip"),
            (json!({ "oban": {} }), "skip"),
            (json!({ "faktory": { "unique_for": 60 } }), "skip"),
            (json!({ "ojs": {} }), "reject"),
        ] {
            assert_eq!(shown(&dialect)["on_conflict"], default);
            assert_eq!(shown(&dialect)["wait"], true);
            for on_conflict in [
                json!("skip"),
                json!("reject"),
                json!("replace"),
                json!("replace_except_schedule"),
                json!({ "update": { "running": ["args"] } }),
            ] {
                let options = with(dialect.clone(), "on_conflict", on_conflict.clone());
                assert_eq!(shown(&options)["on_conflict"], on_conflict);
            }
            assert_eq!(shown(&with(dialect.clone(), "wait", json!(false)))["wait"], false);
            refused(
                with(dialect.clone(), "on_conflict", json!("ignore")),
                "on_conflict \"ignore\" is not known",
                None,
            );
            refused(with(dialect, "wait", json!(1)), "wait must not be a number", None);
        }
    }

    #[test]
    fn nothing_else_may_stand() {
        for (name, options) in [("oban", json!(true)), ("faktory", json!({})), ("ojs", json!({}))] {
            for (other, value) in [
                ("by_args", json!(true)),
                ("by_kind", json!(true)),
                ("by_state", json!(["running"])),
                ("key", json!("k")),
                ("exclude_kind", json!(true)),
                ("window", json!(60)),
                ("hold_until", json!("start")),
            ] {
                refused(
                    json!({ name: options, other: value }),
                    &format!("{name} and {other} cannot be combined"),
                    None,
                );
            }
        }
        refused(json!({ "oban": true, "ojs": {} }), "oban and ojs cannot be combined", None);
        refused(json!({ "faktory": {}, "ojs": {} }), "faktory and ojs cannot be combined", None);
        // What counts as left out does not stand there.
        shown(&json!({ "oban": true, "ojs": null, "by_args": false, "faktory": false }));
        shown(&json!({ "oban": null, "by_args": true }));
    }

    #[test]
    fn two_ways_out_of_a_conflict_are_refused() {
        refused(
            json!({ "oban": { "replace": ["args"] }, "on_conflict": "skip" }),
            "on_conflict and oban.replace cannot be combined",
            None,
        );
        refused(
            json!({ "ojs": { "on_conflict": "reject" }, "on_conflict": "skip" }),
            "on_conflict and ojs.on_conflict cannot be combined",
            None,
        );
    }
}

mod oban {
    use super::*;

    /// Worker, queue and args; all but cancelled and discarded.
    fn defaults() -> Value {
        json!({ "by_args": true, "by_queue": true })
    }

    #[test]
    fn true_is_the_defaults_without_end() {
        translated(json!({ "oban": true }), defaults());
        assert!(parse(&json!({ "oban": false })).unwrap().is_none());
    }

    #[test]
    fn everything_has_a_default() {
        let minute = with(defaults(), "window", json!(60));
        translated(json!({ "oban": {} }), minute.clone());
        translated(
            json!({ "oban": { "period": null, "fields": null, "keys": [], "states": null, "timestamp": null, "replace": null } }),
            minute.clone(),
        );
        translated(
            json!({ "oban": {
                "period": 60, "fields": ["worker", "queue", "args"], "keys": [], "states": "successful", "timestamp": "inserted_at",
            } }),
            minute,
        );
    }

    #[test]
    fn periods() {
        for (period, window) in [
            (json!("infinity"), json!(null)),
            (json!(120), json!("PT2M")),
            (json!(0.5), json!("PT0.5S")),
            (json!([1, "second"]), json!("PT1S")),
            (json!([90, "seconds"]), json!("PT1M30S")),
            (json!([1, "minute"]), json!("PT1M")),
            (json!([2, "minutes"]), json!("PT2M")),
            (json!([1, "hour"]), json!("PT1H")),
            (json!([3, "hours"]), json!("PT3H")),
            (json!([1, "day"]), json!("PT24H")),
            (json!([2, "days"]), json!("PT48H")),
            (json!([1, "week"]), json!("PT168H")),
            (json!([2, "weeks"]), json!("PT336H")),
            (json!([1, "month"]), json!("PT720H")),
            (json!([2, "months"]), json!("PT1440H")),
        ] {
            assert_eq!(shown(&json!({ "oban": { "period": period } }))["window"], window);
        }
    }

    #[test]
    fn what_is_no_period_is_refused() {
        for period in [
            json!("15 minutes"),
            json!("PT15M"),
            json!("Infinity"),
            json!([]),
            json!([2]),
            json!([2, "fortnights"]),
            json!([2, "minutess"]),
            json!([2, "s"]),
            json!(["2", "minutes"]),
            json!([2, "minutes", "hours"]),
            json!(["minutes", 2]),
            json!(true),
            json!({}),
            json!(1e13),
            json!([1e13, "weeks"]),
        ] {
            refused(
                json!({ "oban": { "period": period } }),
                &format!("oban.period {period} is not a period"),
                None,
            );
        }
        for period in [json!(0), json!(-1), json!([0, "minutes"]), json!([-2, "days"])] {
            refused(
                json!({ "oban": { "period": period } }),
                &format!("oban.period {period} is too short"),
                None,
            );
        }
    }

    #[test]
    fn fields_and_keys() {
        let infinite = |fields: Value, keys: Value| json!({ "oban": { "period": "infinity", "fields": fields, "keys": keys } });
        translated(infinite(json!(["worker"]), json!([])), json!({ "by_kind": true }));
        translated(
            infinite(json!(["queue"]), json!(null)),
            json!({ "by_queue": true, "exclude_kind": true }),
        );
        translated(
            infinite(json!(["args"]), json!(null)),
            json!({ "by_args": true, "exclude_kind": true }),
        );
        // Top-level members, by their names as they stand.
        // Which may all be absent.
        same(
            infinite(json!(["worker", "args"]), json!(["url", "a.b"])),
            json!({ "by_args": ["url", "a\\.b"] }),
            json!({ "args_optional": true }),
        );
        same(
            infinite(json!(["worker", "args", "meta", "queue"]), json!(["id"])),
            json!({ "by_args": ["id"], "by_meta": ["id"], "by_queue": true }),
            json!({ "args_optional": true, "meta_optional": true }),
        );
        same(
            infinite(json!(["meta"]), json!(["slug"])),
            json!({ "by_meta": ["slug"], "exclude_kind": true }),
            json!({ "meta_optional": true }),
        );
        same(
            json!({ "oban": { "keys": ["url"] } }),
            json!({ "by_args": ["url"], "by_queue": true, "window": 60 }),
            json!({ "args_optional": true }),
        );
        // All of meta, which the native form does not have.
        same(
            infinite(json!(["worker", "meta"]), json!([])),
            json!({ "by_kind": true }),
            json!({ "by_kind": false, "by_meta": true }),
        );
    }

    #[test]
    fn states() {
        for [states, native] in rows(
            r#"
                "all" | [ "available", "scheduled", "pending", "running", "retryable", "completed", "cancelled", "discarded" ]
                "incomplete" | ["available", "scheduled", "pending", "running", "retryable"]
                "scheduled" | ["scheduled"]
                "successful" | [ "available", "scheduled", "pending", "running", "retryable", "completed" ]
                ["executing"] | ["running"]
                ["suspended"] | ["pending"]
                ["scheduled"] | ["scheduled"]
                [ "discarded", "cancelled", "completed", "retryable", "executing", "suspended", "scheduled", "available" ] | [ "available", "scheduled", "pending", "running", "retryable", "completed", "cancelled", "discarded" ]
            "#,
        ) {
            let states: Value = serde_json::from_str(states).expect(states);
            let native: Value = serde_json::from_str(native).expect(native);
            let options = json!({ "oban": { "states": states } });
            assert_eq!(shown(&options)["by_state"], native);
        }
    }

    #[test]
    fn the_period_counts_from_a_timestamp() {
        for (timestamp, from) in [("inserted_at", "created_at"), ("scheduled_at", "scheduled_at")] {
            translated(
                json!({ "oban": { "timestamp": timestamp } }),
                json!({ "by_args": true, "by_queue": true, "window": 60, "window_from": from }),
            );
            // Of an endless period it says nothing.
            translated(
                json!({ "oban": { "timestamp": timestamp, "period": "infinity" } }),
                defaults(),
            );
        }
    }

    #[test]
    fn replace_is_an_update() {
        for [replace, update] in rows(
            r#"
                [ "args", "max_attempts", "meta", "priority", "queue", "scheduled_at", "tags", "worker" ] | { "*": ["args", "kind", "max_attempts", "meta", "priority", "queue", "scheduled_at", "tags"] }
                ["worker"] | { "*": ["kind"] }
                { "executing": ["args"], "suspended": ["worker", "tags"], "completed": ["meta"] } | { "running": ["args"], "pending": ["kind", "tags"], "completed": ["meta"] }
            "#,
        ) {
            let replace: Value = serde_json::from_str(replace).expect(replace);
            let update: Value = serde_json::from_str(update).expect(update);
            let native = json!({ "by_args": true, "by_queue": true, "window": 60, "on_conflict": { "update": update } });
            translated(json!({ "oban": { "replace": replace } }), native);
        }
    }

    #[test]
    fn what_oban_does_not_know_is_refused() {
        all_refused(
            "oban",
            r#"
                { "perod": 1 } | field "perod" of oban is not known | period
                { "on_conflict": "skip" } | field "on_conflict" of oban is not known
                { "fields": ["workr"] } | field "workr" of oban.fields is not known | worker
                { "fields": ["kind"] } | field "kind" of oban.fields is not known
                { "fields": [] } | oban.fields must not be an empty list
                { "fields": "args" } | oban.fields must not be a string
                { "keys": "url" } | oban.keys must not be a string
                { "keys": [1] } | an element of oban.keys must not be a number
                { "keys": [""] } | path "" of oban.keys has an empty name
                { "fields": ["worker", "queue"], "keys": ["url"] } | oban.keys requires args or meta in oban.fields
                { "states": "succesful" } | oban.states "succesful" is not known | successful
                { "states": "running" } | oban.states "running" is not known
                { "states": ["executin"] } | state "executin" of oban.states is not known | executing
                { "states": ["pending"] } | state "pending" of oban.states is not known
                { "states": ["incomplete"] } | state "incomplete" of oban.states is not known
                { "states": [] } | oban.states must not be an empty list
                { "states": 1 } | oban.states must not be a number
                { "timestamp": "created_at" } | oban.timestamp "created_at" is not known
                { "timestamp": "insertd_at" } | oban.timestamp "insertd_at" is not known | inserted_at
                { "replace": [] } | oban.replace must not be an empty list
                { "replace": {} } | oban.replace must not be empty
                { "replace": ["kind"] } | field "kind" of oban.replace is not known
                { "replace": { "*": ["args"] } } | state "*" of oban.replace is not known
                { "replace": { "executing": [] } } | oban.replace.executing must not be an empty list
                { "replace": { "running": ["args"] } } | state "running" of oban.replace is not known
                { "replace": "args" } | oban.replace must not be a string
            "#,
        );
    }
}

mod faktory {
    use super::*;

    #[test]
    fn a_job_holds_its_key() {
        for [options, until] in rows(
            r#"
                { "unique_for": 600.0 } | success
                { "unique_for": 600, "unique_until": null } | success
                { "unique_for": 600, "unique_until": "success" } | success
                { "unique_for": 600, "unique_until": "start" } | start
            "#,
        ) {
            let options: Value = serde_json::from_str(options).expect(options);
            translated(
                json!({ "faktory": options }),
                json!({
                    "by_args": true, "by_queue": true, "by_state": [], "hold_for": "PT10M", "hold_until": until, "on_conflict": "skip",
                }),
            );
        }
    }

    #[test]
    fn nothing_to_be_unique_for_is_not_unique() {
        for value in [
            json!({ "faktory": {} }),
            json!({ "faktory": { "unique_for": null } }),
            json!({ "faktory": { "unique_for": null, "unique_until": "start" } }),
            json!({ "faktory": {}, "on_conflict": "reject", "wait": false }),
        ] {
            assert!(parse(&value).unwrap().is_none(), "{value}");
        }
    }

    #[test]
    fn what_faktory_does_not_know_is_refused() {
        all_refused(
            "faktory",
            r#"
                { "unique_fro": 1 } | field "unique_fro" of faktory is not known | unique_for
                { "unique_for": "10 minutes" } | faktory.unique_for must not be a string
                { "unique_for": true } | faktory.unique_for must not be true
                { "unique_for": 0 } | faktory.unique_for 0 is too short
                { "unique_for": -1.5 } | faktory.unique_for -1.5 is too short
                { "unique_for": 1, "unique_until": "sucess" } | faktory.unique_until "sucess" is not known | success
                { "unique_for": 1, "unique_until": true } | faktory.unique_until must not be true
            "#,
        );
    }
}

mod ojs {
    use super::*;

    const UNFINISHED: [&str; 5] = ["available", "scheduled", "pending", "running", "retryable"];

    fn native(fields: Value) -> Value {
        let defaults = with(fields, "on_conflict", json!("reject"));
        with(defaults, "by_state", json!(UNFINISHED))
    }

    #[test]
    fn everything_has_a_default() {
        let expected = native(json!({ "by_kind": true }));
        for options in [
            json!({}),
            json!({ "keys": ["type"] }),
            json!({ "keys": [] }),
            json!({
                "keys": ["type"], "args_keys": [], "meta_keys": [], "period": null,
                "states": ["available", "active", "scheduled", "retryable", "pending"], "on_conflict": "reject",
            }),
            json!({ "keys": null, "args_keys": null, "meta_keys": null, "states": null, "on_conflict": null }),
        ] {
            translated(json!({ "ojs": options }), expected.clone());
        }
    }

    #[test]
    fn keys() {
        for (options, fields) in [
            // The type is there also when it is not asked for.
            (json!({ "keys": ["queue"] }), json!({ "by_queue": true })),
            (json!({ "keys": ["args"] }), json!({ "by_args": true })),
            (json!({ "keys": ["args"], "args_keys": null }), json!({ "by_args": true })),
            (json!({ "keys": ["args"], "args_keys": [] }), json!({ "by_args": true })),
        ] {
            translated(json!({ "ojs": options }), native(fields));
        }
        same(
            json!({ "ojs": { "keys": ["type", "queue", "args", "meta"], "meta_keys": ["tenant_id", "a.b"] } }),
            native(json!({ "by_queue": true, "by_args": true, "by_meta": ["tenant_id", "a\\.b"] })),
            json!({ "meta_optional": true }),
        );
    }

    #[test]
    fn keys_of_what_is_not_compared_say_nothing() {
        for options in [
            json!({ "args_keys": ["user_id"] }),
            json!({ "keys": [], "args_keys": ["user_id"], "meta_keys": ["a"] }),
            json!({ "keys": ["type"], "meta_keys": ["tenant_id", ""] }),
        ] {
            translated(json!({ "ojs": options }), native(json!({ "by_kind": true })));
        }
        translated(
            json!({ "ojs": { "keys": ["args"], "meta_keys": ["a"] } }),
            native(json!({ "by_args": true })),
        );
    }

    #[test]
    fn args_keys_are_required() {
        same(
            json!({ "ojs": { "keys": ["type", "args"], "args_keys": ["user_id", "a.b"] } }),
            native(json!({ "by_args": ["user_id", "a\\.b"] })),
            json!({ "args_required": true }),
        );
    }

    #[test]
    fn states() {
        for [states, expected] in rows(
            r#"
                ["active"] | ["running"]
                [ "scheduled", "available", "pending", "active", "completed", "retryable", "cancelled", "discarded" ] | [ "available", "scheduled", "pending", "running", "retryable", "completed", "cancelled", "discarded" ]
            "#,
        ) {
            let states: Value = serde_json::from_str(states).expect(states);
            let expected: Value = serde_json::from_str(expected).expect(expected);
            assert_eq!(shown(&json!({ "ojs": { "states": states } }))["by_state"], expected);
        }
    }

    #[test]
    fn the_period_counts_from_creation() {
        for (period, window) in [
            ("PT1H", "PT1H"),
            ("P7D", "P7D"),
            ("P1Y2M", "P1Y2M"),
            ("P3W4DT5H6M7.5S", "P25DT5H6M7.5S"),
        ] {
            translated(
                json!({ "ojs": { "period": period } }),
                native(json!({ "by_kind": true, "window": window, "window_from": "created_at" })),
            );
        }
    }

    #[test]
    fn only_iso_8601_is_a_period() {
        for period in [
            json!(3600),
            json!("15 minutes"),
            json!("1 month"),
            json!(""),
            json!("P"),
            json!("PT"),
            json!("pt1h"),
            json!("P 1 day"),
            json!("P1H"),
            json!("P1"),
            json!("PT15"),
            json!("P1DT"),
            json!("PTT1S"),
            json!("P1Y1Y"),
            json!("P1M2Y"),
            json!("PT1S1M"),
            json!("PT1.2.3S"),
            json!("PT.S"),
            json!("-PT1H"),
            json!("P-1D"),
            json!("PT1H "),
            json!(true),
            json!([1, "hour"]),
        ] {
            refused(
                json!({ "ojs": { "period": period } }),
                &format!("ojs.period {period} is not an ISO 8601 duration"),
                None,
            );
        }
        refused(json!({ "ojs": { "period": "PT0S" } }), "ojs.period \"PT0S\" is too short", None);
    }

    #[test]
    fn a_replacement_of_final_jobs_is_rejected() {
        let rejects = |value: &Value| shown(value).get("final_conflict").cloned();
        for (word, native) in [
            ("ignore", "skip"),
            ("reject", "reject"),
            ("replace", "replace"),
            ("replace_except_schedule", "replace_except_schedule"),
        ] {
            let options = json!({ "ojs": { "on_conflict": word } });
            assert_eq!(shown(&options)["on_conflict"], native);
            let beside = json!({ "ojs": {}, "on_conflict": native });
            for options in [options, beside] {
                let expected = native.starts_with("replace").then(|| json!("reject"));
                assert_eq!(rejects(&options), expected);
            }
            assert_eq!(rejects(&json!({ "oban": true, "on_conflict": native })), None);
        }
    }

    #[test]
    fn what_open_job_spec_does_not_know_is_refused() {
        all_refused(
            "ojs",
            r#"
                { "key": ["type"] } | field "key" of ojs is not known | keys
                { "keys": ["argz"] } | dimension "argz" of ojs.keys is not known | args
                { "keys": ["Type"] } | dimension "Type" of ojs.keys is not known | type
                { "keys": ["kind"] } | dimension "kind" of ojs.keys is not known
                { "keys": "args" } | ojs.keys must not be a string
                { "keys": ["meta"] } | meta in ojs.keys requires ojs.meta_keys
                { "keys": ["meta"], "meta_keys": [] } | meta in ojs.keys requires ojs.meta_keys
                { "keys": ["meta"], "meta_keys": null } | meta in ojs.keys requires ojs.meta_keys
                { "keys": ["meta"], "meta_keys": [""] } | path "" of ojs.meta_keys has an empty name
                { "keys": ["args"], "args_keys": [""] } | path "" of ojs.args_keys has an empty name
                { "keys": ["args"], "args_keys": [1] } | an element of ojs.args_keys must not be a number
                { "keys": ["args"], "args_keys": "id" } | ojs.args_keys must not be a string
                { "args_keys": [1] } | an element of ojs.args_keys must not be a number
                { "keys": ["type", "args", "type"] } | "type" is listed twice in ojs.keys
                { "keys": ["args"], "args_keys": ["a", "b", "a"] } | "a" is listed twice in ojs.args_keys
                { "meta_keys": ["a", "a"] } | "a" is listed twice in ojs.meta_keys
                { "states": ["active", "active"] } | "active" is listed twice in ojs.states
                { "states": ["activ"] } | state "activ" of ojs.states is not known | active
                { "states": ["running"] } | state "running" of ojs.states is not known
                { "states": [] } | ojs.states must not be an empty list
                { "states": "active" } | ojs.states must not be a string
                { "on_conflict": "skip" } | ojs.on_conflict "skip" is not known
                { "on_conflict": "ignor" } | ojs.on_conflict "ignor" is not known | ignore
                { "on_conflict": { "update": { "*": ["args"] } } } | ojs.on_conflict must not be an object
            "#,
        );
    }
}
