//! Turns and weights of the keys in a queue's order.

use std::collections::HashMap;

use serde_json::Value;

use crate::Invalid;
use crate::canonical::{Listed, Writer, write};
use crate::error::{quoted, shown};
use crate::given::wrong_type;
use crate::limit::By;

/// The length of a round of virtual time, in which a key of weight 1 has one turn.
const ROUND: f64 = (1 << 24) as f64;
/// The minimum and maximum weight.
const WEIGHTS: (f64, f64) = (0.001, 1000.0);

/// The first turn. Turns are negative positions, so none equals the id of a job.
pub const FIRST_TURN: i64 = i64::MIN / 2;

/// The first turn of a key at or after a position. The turns of a key are evenly spaced, closer for
/// a greater weight, and its number offsets them from the turns of other keys. Other keys that come
/// or go do not move them.
pub fn turn(key: i64, weight: f64, from: i64) -> i64 {
    let step = (ROUND / weight) as i64;
    let own = key.rem_euclid(step);
    let past = from.saturating_sub(own).rem_euclid(step);
    match past {
        0 => from,
        past => from.saturating_add(step - past),
    }
    .clamp(FIRST_TURN, -1)
}

/// The weights of keys, by canonical text. A key that is not listed has weight 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights(HashMap<String, f64>);

impl Weights {
    /// Reads `{"acme": 3}`. A member is named by the value of a key with one path, or by the JSON
    /// of the key.
    pub fn parse(weights: &Value, by: &By) -> Result<Weights, Invalid> {
        let rule = || {
            let (least, most) = WEIGHTS;
            format!("A weight must be a number between {least} and {most}.")
        };
        let Value::Object(members) = weights else {
            let rule = "weights must be an object of keys and numbers, such as {\"acme\": 3}.";
            return Err(wrong_type("weights", weights, rule));
        };
        let mut read = HashMap::new();
        for (name, weight) in members {
            let refused = |message: String| Invalid::new("weights", message, rule());
            let Value::Number(number) = weight else {
                return Err(refused(format!("weight of key {} must be a number", quoted(name))));
            };
            let range = WEIGHTS.0..=WEIGHTS.1;
            let Some(weight) = number.as_f64().filter(|weight| range.contains(weight)) else {
                let number = shown(&number.to_string());
                let message = format!("weight {number} of key {} is out of range", quoted(name));
                return Err(refused(message));
            };
            let as_json = serde_json::from_str(name).ok().filter(|json: &Value| !json.is_string());
            let mut keys = as_json.into_iter().chain([Value::from(name.as_str())]);
            let texts: Vec<String> = keys.by_ref().filter_map(|key| by.given(&key).ok()).collect();
            if texts.is_empty() {
                let message = format!("key {} of weights does not fit by", quoted(name));
                return Err(Invalid::new(
                    "weights",
                    message,
                    by.given(&Value::Null).map_or_else(|invalid| invalid.detail, |_| rule()),
                ));
            }
            read.extend(texts.into_iter().map(|text| (text, weight)));
        }
        let mut out = Writer::new();
        write(&mut Listed::from(weights), None, &mut out).map_err(|flaw| flaw.of("weights"))?;
        Ok(Weights(read))
    }

    /// The weight of a key.
    pub fn of(&self, key: &str) -> f64 {
        self.0.get(key).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn by(value: Value) -> By {
        By::parse(&value).expect("by")
    }

    /// The keys that start, as long as all of them have jobs waiting.
    fn starts(keys: &[(i64, f64)], count: usize) -> Vec<usize> {
        let mut next: Vec<i64> = keys.iter().map(|(key, w)| turn(*key, *w, FIRST_TURN)).collect();
        let mut started = Vec::new();
        for _ in 0..count {
            let first = (0..keys.len()).min_by_key(|n| (next[*n], *n)).expect("a key");
            next[first] = turn(keys[first].0, keys[first].1, next[first] + 1);
            started.push(first);
        }
        started
    }

    #[test]
    fn keys_of_the_same_weight_take_turns() {
        let keys: Vec<(i64, f64)> =
            (0..100i64).map(|n| ((n % 13).wrapping_mul(i64::MAX / 7) - n, 1.0)).collect();
        let started = starts(&keys, 1000);
        let first = &started[..100];
        assert!(started.chunks(100).all(|round| round == first));
        let mut sorted = first.to_vec();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
    }

    #[test]
    fn starts_are_shared_by_weight() {
        let weights = [1.0, 1.0, 3.0, 2.5, 0.5];
        let keys = [3_333_333, -70_007, 12_345_678_901, 998_877, 5_000_001];
        let keys: Vec<_> = keys.into_iter().zip(weights).collect();
        let started = starts(&keys, 10_000);
        for (n, weight) in weights.into_iter().enumerate() {
            let share = started.iter().filter(|key| **key == n).count() as f64;
            let expected = 10_000.0 * weight / 8.0;
            assert!((share - expected).abs() <= 2.0, "{n}: {share} of {expected}");
        }
    }

    /// docs/order.md has these figures.
    #[test]
    fn a_heavy_key_among_many_waits_its_share_on_average() {
        let longest = (0..20).map(|set| {
            let key = |n: i32| crate::limit::gate(&format!("order/{set}"), &n.to_string());
            let keys: Vec<_> =
                (0..=100).map(|n| (key(n), if n == 0 { 3.0 } else { 1.0 })).collect();
            let started = starts(&keys, 10_300);
            let places: Vec<usize> = (0..started.len()).filter(|n| started[*n] == 0).collect();
            assert!((299..=301).contains(&places.len()), "{}", places.len());
            places.windows(2).map(|pair| pair[1] - pair[0]).max().expect("it starts")
        });
        assert!((36..50).contains(&longest.max().expect("a set")));
    }

    #[test]
    fn a_turn_is_at_or_after_a_position() {
        for (key, weight) in [(0, 1.0), (-1, 1.0), (i64::MIN, 1000.0), (i64::MAX, 0.001)] {
            let mut at = FIRST_TURN;
            for _ in 0..10 {
                let next = turn(key, weight, at);
                assert!(next >= at && next - at < (ROUND / weight) as i64);
                assert_eq!(turn(key, weight, next), next);
                at = next + 1;
            }
        }
        assert_eq!(turn(5, 1.0, -1), -1, "the last one is shared");
    }

    #[test]
    fn weights_name_keys() {
        let tenant = by(json!({"by_args": ["t"]}));
        let weights = json!({"acme": 3, "7": 2, "{\"args\":{}}": 0.5});
        let weights = Weights::parse(&weights, &tenant).unwrap();
        for (key, weight) in [
            (r#"{"args":{"t":"acme"}}"#, 3.0),
            (r#"{"args":{"t":"7"}}"#, 2.0),
            (r#"{"args":{"t":7}}"#, 2.0),
            (r#"{"args":{}}"#, 0.5),
            (r#"{"args":{"t":"other"}}"#, 1.0),
        ] {
            assert_eq!(weights.of(key), weight, "{key}");
        }
        let two = by(json!({"by_args": ["t"], "by_kind": true}));
        let key = r#"{"args":{"t":1},"type":"k"}"#;
        assert_eq!(Weights::parse(&json!({key: 4}), &two).unwrap().of(key), 4.0);
    }

    #[test]
    fn weights_that_say_nothing_are_refused() {
        let tenant = by(json!({"by_args": ["t"]}));
        let two = by(json!({"by_args": ["t"], "by_kind": true}));
        for (weights, by, message) in [
            (json!([]), &tenant, "weights must not be an array"),
            (json!({"a": "3"}), &tenant, "weight of key \"a\" must be a number"),
            (json!({"a": 0}), &tenant, "weight 0 of key \"a\" is out of range"),
            (json!({"a": 1001}), &tenant, "weight 1001 of key \"a\" is out of range"),
            (json!({"acme": 3}), &two, "key \"acme\" of weights does not fit by"),
            (
                json!({"e\u{301}": 1, "\u{e9}": 2}),
                &tenant,
                "two members of one object in weights are named \"\u{e9}\" in Unicode normal form C",
            ),
        ] {
            assert_eq!(Weights::parse(&weights, by).unwrap_err().message, message);
        }
    }
}
