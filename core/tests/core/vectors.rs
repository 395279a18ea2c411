//! The published vectors: for each, the canonical text and the key, byte for byte. They are what
//! holds with programs that compute keys themselves, and with keys that are stored already.

use jobs_core::key::{Key, Parts, canonical};
use jobs_core::policy;
use serde_json::{Value, json};

use crate::support::{self, Listed};

fn vectors() -> Vec<Value> {
    serde_json::from_str(include_str!("vectors/unique_keys.json")).unwrap()
}

/// Microseconds since 2000-01-01 of a time such as `2026-02-12T15:21:00+00:00`, by counting days.
fn micros(time: &str) -> i64 {
    assert!(time.ends_with("+00:00"), "{time}");
    let number = |range: std::ops::Range<usize>| time[range].parse::<i64>().unwrap();
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = |month| match month {
        2 => 28 + i64::from(leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let days = (2000..year).map(|year| 365 + i64::from(leap(year))).sum::<i64>()
        + (1..month).map(days_of_month).sum::<i64>()
        + day
        - 1;
    (((days * 24 + number(11..13)) * 60 + number(14..16)) * 60 + number(17..19)) * 1_000_000
}

/// What differs between a vector and what is computed from its input.
fn difference(vector: &Value) -> Option<String> {
    let text = |field: &str| vector[field].as_str().unwrap();
    let policy = policy::parse(&vector["unique_opts"], &|_| None).unwrap().unwrap();
    let parts = Parts {
        kind: text("kind"),
        queue: text("queue"),
        at_micros: vector["scheduled_at"].as_str().map_or(0, micros),
    };
    let args: Value = serde_json::from_str(text("args")).unwrap();
    let meta = if vector["meta"].is_null() { json!({}) } else { vector["meta"].clone() };
    let canonical =
        canonical(&policy, &parts, || Listed::from(&args), || Listed::from(&meta)).unwrap();
    let key = Key::of(&canonical).hex();
    (canonical != text("canonical") || key != text("unique_key")).then(|| {
        format!("{}: {canonical} with key {key}, expected {}", text("name"), text("canonical"))
    })
}

#[test]
fn every_vector_is_met() {
    let vectors = vectors();
    assert!(vectors.len() >= 25);
    let differences: Vec<_> = vectors.iter().filter_map(difference).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The canonical text is JSON, and its own canonical text.
#[test]
fn canonical_text_is_canonical() {
    for vector in vectors() {
        let text = vector["canonical"].as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(support::canonical(Listed::from(&value), None).unwrap(), text);
    }
}

/// The control of [`every_vector_is_met`]: a vector with anything in it changed is noticed.
#[test]
fn a_changed_vector_is_noticed() {
    let changed = |name: &str, field: &str, value: Value| {
        let mut vector = vectors().into_iter().find(|vector| vector["name"] == name).expect(name);
        assert_eq!(difference(&vector), None);
        vector[field] = value;
        difference(&vector).is_some()
    };
    assert!(changed("all args", "kind", json!("reconcile_accounts")));
    assert!(changed("all args", "args", json!("{\"account_id\":2}")));
    assert!(changed("all args", "canonical", json!("{}")));
    assert!(changed("all args", "unique_key", json!("0".repeat(64))));
    assert!(changed("all args", "unique_opts", json!({ "by_kind": true })));
    assert!(changed("queue", "queue", json!("low_priority")));
    assert!(changed("meta paths", "meta", json!({ "tenant_id": "other" })));
    assert!(changed("15 minutes", "scheduled_at", json!("2026-02-12T15:30:00+00:00")));
    // And what does not belong to the key is not.
    assert!(!changed("all args", "queue", json!("low_priority")));
    assert!(!changed("meta paths", "meta", json!({ "tenant_id": "acme", "trace": "y" })));
    assert!(!changed("15 minutes", "scheduled_at", json!("2026-02-12T15:29:59+00:00")));
}
