//! The canonical text of a key under other systems' options.

use jobs_core::Invalid;
use jobs_core::key::{self, Parts};
use jobs_core::policy;
use serde_json::{Value, json};

use crate::duration;
use crate::support::{self, Listed};

const PARTS: Parts = Parts { kind: "email.send", queue: "notifications", at_micros: 0 };

fn canonical(options: Value, args: &Value, meta: &Value) -> Result<String, Invalid> {
    let policy = policy::parse(&options, &duration::read).unwrap().unwrap();
    let text = key::canonical(&policy, &PARTS, || Listed::from(args), || Listed::from(meta))?;
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(support::canonical(Listed::from(&value), None).unwrap(), text);
    Ok(text)
}

#[test]
fn dimensions_make_the_key() {
    let args = json!({ "user_id": 42, "template": "welcome", "a.b": 1, "a": { "b": 2 } });
    let meta = json!({ "tenant_id": "acme", "trace_id": "x" });
    for (options, expected) in [
        (
            json!({ "oban": true }),
            r#"{"args":{"a":{"b":2},"a.b":1,"template":"welcome","user_id":42},"queue":"notifications","type":"email.send"}"#,
        ),
        (
            json!({ "oban": { "keys": ["user_id", "tenant_id", "a.b"], "fields": ["worker", "args", "meta"] } }),
            r#"{"args":{"a.b":1,"user_id":42},"meta":{"tenant_id":"acme"},"type":"email.send"}"#,
        ),
        (
            json!({ "oban": { "fields": ["meta"] } }),
            r#"{"meta":{"tenant_id":"acme","trace_id":"x"}}"#,
        ),
        (
            json!({ "faktory": { "unique_for": 60 } }),
            r#"{"args":{"a":{"b":2},"a.b":1,"template":"welcome","user_id":42},"queue":"notifications","type":"email.send"}"#,
        ),
        (json!({ "ojs": {} }), r#"{"type":"email.send"}"#),
        (
            json!({ "ojs": { "keys": ["queue"] } }),
            r#"{"queue":"notifications","type":"email.send"}"#,
        ),
        // The example of the specification, 4.3.
        (
            json!({ "ojs": { "keys": ["type", "queue", "args"], "args_keys": ["user_id"] } }),
            r#"{"args":{"user_id":42},"queue":"notifications","type":"email.send"}"#,
        ),
        (
            json!({ "ojs": { "keys": ["args"], "args_keys": ["a.b", "a"] } }),
            r#"{"args":{"a":{"b":2},"a.b":1},"type":"email.send"}"#,
        ),
        // A member that meta does not have is left out.
        (
            json!({ "ojs": { "keys": ["meta"], "meta_keys": ["tenant_id", "shard"] } }),
            r#"{"meta":{"tenant_id":"acme"},"type":"email.send"}"#,
        ),
        (
            json!({ "ojs": { "keys": ["meta"], "meta_keys": ["shard"] } }),
            r#"{"meta":{},"type":"email.send"}"#,
        ),
    ] {
        assert_eq!(canonical(options.clone(), &args, &meta).unwrap(), expected, "{options}");
    }
}

#[test]
fn ojs_looks_into_the_first_element_of_an_array() {
    let options = || json!({ "ojs": { "keys": ["args"], "args_keys": ["user_id"] } });
    for args in [
        json!({ "user_id": 42, "n": 1 }),
        json!([{ "user_id": 42 }]),
        json!([{ "n": 1, "user_id": 42 }, { "user_id": 43 }, 7]),
    ] {
        assert_eq!(
            canonical(options(), &args, &json!({})).unwrap(),
            r#"{"args":{"user_id":42},"type":"email.send"}"#
        );
    }
    // Without args_keys an array is itself.
    let whole = json!({ "ojs": { "keys": ["args"] } });
    assert_eq!(
        canonical(whole, &json!([{ "user_id": 42 }]), &json!({})).unwrap(),
        r#"{"args":[{"user_id":42}],"type":"email.send"}"#
    );
}

#[test]
fn args_keys_that_args_does_not_have_are_refused() {
    let options = || json!({ "ojs": { "keys": ["args"], "args_keys": ["a", "user_id"] } });
    for (args, absent) in [
        (json!({}), "a"),
        (json!({ "a": 1, "userId": 42 }), "user_id"),
        (json!({ "user_id": 42 }), "a"),
        (json!({ "nested": { "a": 1, "user_id": 42 }, "a": 1 }), "user_id"),
        (json!([]), "a"),
        (json!([[{ "a": 1, "user_id": 42 }]]), "a"),
        (json!(["a", { "a": 1, "user_id": 42 }]), "a"),
        (json!([{ "a": 1 }, { "user_id": 42 }]), "user_id"),
        (json!("a"), "a"),
        (json!(7), "a"),
        (json!(null), "a"),
    ] {
        let invalid = canonical(options(), &args, &json!({})).expect_err(&args.to_string());
        assert_eq!(invalid.message, format!("member \"{absent}\" is missing from args"));
    }
    // Null is there.
    canonical(options(), &json!({ "a": null, "user_id": null }), &json!({})).unwrap();
    // Oban's keys are left out where they are absent, all of them too.
    let options = json!({ "oban": { "keys": ["a"], "fields": ["worker", "args"] } });
    assert_eq!(
        canonical(options, &json!([]), &json!({})).unwrap(),
        r#"{"args":{},"type":"email.send"}"#
    );
}

fn refused(options: Value, args: Value, meta: Value) -> Invalid {
    let shown = format!("{options} of {args} and {meta}");
    canonical(options, &args, &meta).expect_err(&shown)
}

#[test]
fn paths_that_name_nothing_are_refused() {
    for (paths, args) in [
        (json!(["a"]), json!({})),
        (json!(["a"]), json!({ "b": { "a": 1 } })),
        (json!(["a", "b.c"]), json!({ "b": {}, "c": 1 })),
        (json!(["a.b"]), json!({ "a": 1 })),
        (json!(["a.b"]), json!({ "a": [{ "b": 1 }] })),
        (json!(["a.b.c"]), json!({ "a": { "b": null } })),
        (json!(["a"]), json!([{ "a": 1 }])),
        (json!(["a"]), json!("a")),
        (json!(["a"]), json!(7)),
        (json!(["a"]), json!(null)),
    ] {
        let by_args = refused(json!({ "by_args": paths }), args.clone(), json!({}));
        assert_eq!(by_args.detail, "At least one path must exist in args.");
        let by_meta = refused(json!({ "by_meta": paths, "by_args": true }), json!({}), args);
        assert!(by_meta.message.ends_with(" nothing in meta"), "{by_meta}");
    }
    // One that is there is enough, and null is there.
    for args in
        [json!({ "a": null }), json!({ "b": { "c": {} }, "x": 1 }), json!({ "a": [], "b": 1 })]
    {
        canonical(json!({ "by_args": ["a", "b.c"] }), &args, &json!({})).unwrap();
    }
}

#[test]
fn what_paths_name_nothing_is_said_in_words() {
    let message = |paths: Value| refused(json!({ "by_args": paths }), json!({}), json!({})).message;
    assert_eq!(message(json!(["a"])), r#"by_args path "a" matches nothing in args"#);
    assert_eq!(message(json!(["b.c", "a"])), r#"by_args paths "b.c", "a" match nothing in args"#);
    assert_eq!(
        message(json!(["d", r"a\.b", "c", "b"])),
        r#"by_args paths "d", "a\.b", "c", .. match nothing in args"#
    );
    let long = message(json!(["x".repeat(10_000_000)]));
    assert!(long.len() < 200, "{long}");
}

#[test]
fn the_nearest_member_at_the_same_depth_is_asked_for() {
    let hint = |options: Value, args: Value| refused(options, args, json!({})).hint;
    let by_args = |path: &str, args: Value| hint(json!({ "by_args": [path] }), args);
    let user = || json!({ "user_id": 42, "userid2": 1, "Address": { "city": "Oslo", "zip": 1 } });
    for (path, meant) in [
        ("userid", Some("user_id")),
        ("User_ID", Some("user_id")),
        ("address.city", Some("Address.city")),
        ("Address.ctiy", Some("Address.city")),
        ("Adress.city.part", Some("Address.city.part")),
        // Not at that depth, or not near.
        ("city", None),
        ("Address.user_id", None),
        ("Address.city.zip", None),
        ("tenant", None),
        ("x", None),
    ] {
        let expected = meant.map(|meant| format!("Did you mean \"{meant}\"?"));
        assert_eq!(by_args(path, user()), expected, "{path}");
    }
    assert_eq!(
        by_args(r"user\.name", json!({ "user.nam": 1 })).as_deref(),
        Some(r#"Did you mean "user\.nam"?"#)
    );
    // The nearest of several, and the first path that has one.
    assert_eq!(
        hint(
            json!({ "by_args": ["account", "user_id"] }),
            json!({ "xuser_idx": 1, "user_ids": 2, "other": 3 })
        )
        .as_deref(),
        Some("Did you mean \"user_ids\"?")
    );
    // Also for Open Job Spec's members, in the first element of an array.
    assert_eq!(
        hint(
            json!({ "ojs": { "keys": ["args"], "args_keys": ["n", "userid"] } }),
            json!([{ "user_id": 1, "n": 2 }])
        )
        .as_deref(),
        Some("Did you mean \"user_id\"?")
    );
    // The member that the message names is the one that the hint is about.
    assert_eq!(
        hint(
            json!({ "ojs": { "keys": ["args"], "args_keys": ["tenant", "user_id"] } }),
            json!({ "userid": 1 })
        ),
        None
    );
}

#[test]
fn args_that_were_encoded_twice_are_told_so() {
    let hint = |options: Value, args: Value| refused(options, args, json!({})).hint;
    let twice = |what: &str| {
        format!("{what} is a JSON string that contains an object. Pass the object itself.")
    };
    let encoded = json!(r#" {"user_id": 42}"#);
    for options in [
        json!({ "by_args": ["user_id"] }),
        json!({ "ojs": { "keys": ["args"], "args_keys": ["user_id"] } }),
    ] {
        assert_eq!(hint(options, encoded.clone()), Some(twice("args")));
    }
    assert_eq!(
        hint(json!({ "by_args": ["a.b", "a.c"] }), json!({ "a": encoded })),
        Some(twice("\"a\""))
    );
    for other in ["", "{", "{}x", "[1]", "user_id", "1"] {
        assert_eq!(hint(json!({ "by_args": ["user_id"] }), json!(other)), None);
    }
}
