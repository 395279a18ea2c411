//! In which cell a job of a spread queue lives.

use jobs_core::dimension::{Dimension, hash};
use jobs_core::policy;
use serde_json::{Value, json};

use crate::support::Listed;

/// What SQL and the libraries compute alike: `by`, the text of `args` or `meta`, and the canonical
/// text of the value there and its hash, null where it is absent.
fn vectors() -> Vec<Value> {
    serde_json::from_str(include_str!("vectors/dimensions.json")).unwrap()
}

/// What differs between a vector and what is computed from its input.
fn difference(vector: &Value) -> Option<String> {
    let by = Dimension::parse(&vector["by"]).unwrap();
    let given = vector["args"].as_str().or(vector["meta"].as_str()).unwrap();
    let value: Value = serde_json::from_str(given).unwrap();
    let text = by.text(|| Listed::from(&value)).ok();
    let number = text.as_deref().map(|text| hash(text).to_string());
    let is_met = text.as_deref() == vector["text"].as_str()
        && number.as_deref() == vector["hash"].as_str()
        && by.is_of_meta() == vector["meta"].is_string();
    (!is_met).then(|| format!("{vector}: {text:?}, {number:?}"))
}

#[test]
fn every_vector_is_met() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 1000);
    let differences: Vec<_> = vectors.iter().filter_map(difference).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn a_vector_with_another_hash_is_reported() {
    let mut vector = vectors().swap_remove(0);
    assert_eq!(difference(&vector), None);
    vector["hash"] = json!("1");
    assert!(difference(&vector).is_some());
}

#[test]
fn a_policy_contains_a_path_by_itself_or_by_one_that_leads_there() {
    let contains = |by: Value, options: Value| {
        let policy = policy::parse(&options, &|_| None).unwrap().unwrap();
        Dimension::parse(&by).unwrap().is_part_of(&policy)
    };
    let by = || json!({ "by_args": ["customer.id"] });
    for options in [
        json!({ "by_args": true }),
        json!({ "by_args": ["customer.id"] }),
        json!({ "by_args": ["x", "customer"] }),
        json!({ "oban": true }),
        json!({ "oban": { "keys": ["customer"] } }),
        json!({ "faktory": { "unique_for": 60 } }),
        json!({ "ojs": { "keys": ["type", "args"], "args_keys": ["customer"] } }),
    ] {
        assert!(contains(by(), options.clone()), "{options}");
    }
    for options in [
        json!({ "by_kind": true }),
        json!({ "by_args": ["customer.id.x"] }),
        json!({ "by_args": ["customer.ids"] }),
        json!({ "by_meta": ["customer.id"] }),
        json!({ "key": "customer.id" }),
        json!({ "ojs": {} }),
    ] {
        assert!(!contains(by(), options.clone()), "{options}");
    }
    let by = json!({ "by_meta": ["tenant"] });
    assert!(contains(by.clone(), json!({ "by_meta": ["tenant"] })));
    assert!(!contains(by, json!({ "by_args": true })));
}

#[test]
fn what_is_missing_is_said() {
    let by = Dimension::parse(&json!({ "by_args": ["customer.id"] })).unwrap();
    let value = json!({ "custmer": { "id": 1 } });
    let refused = by.text(|| Listed::from(&value)).unwrap_err();
    assert_eq!(refused.message, "by_args path \"customer.id\" matches nothing in args");
    assert_eq!(
        refused.detail,
        "Every job of a spread queue must have the path by which it is spread."
    );
    assert_eq!(refused.hint.as_deref(), Some("Did you mean \"custmer.id\"?"));
    let missing = by.missing();
    assert_eq!(missing.name(), "unique_opts");
    assert_eq!(missing.message, "unique_opts do not contain by_args [\"customer.id\"]");
    assert_eq!(missing.hint.as_deref(), Some("Add \"by_args\": [\"customer.id\"]."));
}

#[test]
fn a_dimension_is_one_path() {
    for by in [
        json!({ "by_args": ["a\\.b.c"] }),
        json!({ "by_meta": ["tenant"] }),
        json!({ "by_args": null, "by_meta": ["tenant"] }),
    ] {
        let read = Dimension::parse(&by).unwrap();
        assert_eq!(Dimension::parse(&read.to_json()), Ok(read));
    }
    for (by, message) in [
        (json!(["tenant"]), "by must not be an array"),
        (json!({}), "by names no path"),
        (json!({ "by_args": [] }), "by names no path"),
        (json!({ "by_args": ["a", "b"] }), "by names several paths"),
        (json!({ "by_args": ["a"], "by_meta": ["b"] }), "by names paths of args and of meta"),
        (json!({ "by_args": true }), "by.by_args must not be true"),
        (json!({ "by_queue": true }), "field \"by_queue\" of by is not known"),
        (json!({ "by_args": ["a..b"] }), "path \"a..b\" of by_args has an empty name"),
    ] {
        assert_eq!(Dimension::parse(&by).unwrap_err().message, message, "{by}");
    }
}
