//! The canonical text of a key under other systems' options.

mod duration;
mod support;

use jobs_core::Invalid;
use jobs_core::key::{self, Parts};
use jobs_core::policy;
use serde_json::{Value, json};
use support::Listed;

const PARTS: Parts = Parts {
    kind: "email.send",
    queue: "notifications",
    at_micros: 0,
};

fn canonical(options: Value, args: &Value, meta: &Value) -> Result<String, Invalid> {
    let policy = policy::parse(&options, &duration::read).unwrap().unwrap();
    let text = key::canonical(
        &policy,
        &PARTS,
        || Listed::from(args),
        || Listed::from(meta),
    )?;
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        support::canonical(Listed::from(&value), None).unwrap(),
        text
    );
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
        assert_eq!(
            canonical(options.clone(), &args, &meta).unwrap(),
            expected,
            "{options}"
        );
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
        (
            json!({ "nested": { "a": 1, "user_id": 42 }, "a": 1 }),
            "user_id",
        ),
        (json!([]), "a"),
        (json!([[{ "a": 1, "user_id": 42 }]]), "a"),
        (json!(["a", { "a": 1, "user_id": 42 }]), "a"),
        (json!([{ "a": 1 }, { "user_id": 42 }]), "user_id"),
        (json!("a"), "a"),
        (json!(7), "a"),
        (json!(null), "a"),
    ] {
        let invalid = canonical(options(), &args, &json!({})).expect_err(&args.to_string());
        assert_eq!(
            invalid.message,
            format!("args do not have the member \"{absent}\"")
        );
    }
    // Null is there.
    canonical(
        options(),
        &json!({ "a": null, "user_id": null }),
        &json!({}),
    )
    .unwrap();
    // The other forms leave out what is absent.
    for options in [
        json!({ "by_args": ["a"] }),
        json!({ "oban": { "keys": ["a"], "fields": ["worker", "args"] } }),
    ] {
        assert_eq!(
            canonical(options, &json!([]), &json!({})).unwrap(),
            r#"{"args":{},"type":"email.send"}"#
        );
    }
}
