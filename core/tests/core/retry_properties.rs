//! What holds for all retry policies, valid or not.

use jobs_core::interval::Interval;
use jobs_core::retry::{self, Delay, Retry, Tried};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::duration;
use crate::support::any_json;

const THOUSAND_YEARS: i64 = 365_000 * 86_400_000_000;

const WORDS: [&str; 20] = [
    "",
    "*",
    ".*",
    "a",
    "a.*",
    "river",
    "oban",
    "faktory",
    "exponential",
    "linear",
    "constant",
    "polynomial",
    "none",
    "PT0S",
    "PT1S",
    "P7D",
    "P1M",
    "15 minutes",
    "1 month",
    "-1 day",
];

const FIELDS: [&str; 17] = [
    "ojs",
    "after_lease",
    "max_attempts",
    "initial_interval",
    "backoff_coefficient",
    "non_retryable_errors",
    "on_exhaustion",
    "backoff_strategy",
    "discard",
    "strategy",
    "initial",
    "coefficient",
    "max",
    "jitter",
    "non_retryable",
    "max_interval",
    "",
];

/// Policies that are valid: named ones, and strategies with any figures.
fn any_policy() -> impl Strategy<Value = Value> {
    let named = select(vec![json!("river"), json!("oban"), json!("faktory")]);
    let strategy = select(vec!["exponential", "linear", "constant", "polynomial"]);
    let lengths = (1_i64..=THOUSAND_YEARS / 1_000_000, 1_i64..=THOUSAND_YEARS / 1_000_000);
    let jitter =
        prop_oneof![any::<bool>().prop_map(Value::from), (0.0..=1.0).prop_map(Value::from)];
    let own = (strategy, lengths, 1.0..=1000.0, jitter).prop_map(
        |(strategy, (one, other), coefficient, jitter)| {
            json!({
                "strategy": strategy, "initial": one.min(other), "max": one.max(other),
                "coefficient": coefficient, "jitter": jitter, "non_retryable": ["a", "b.*"],
            })
        },
    );
    let ojs = (strategy_of_ojs(), 1_i64..=3_000_000, 1_i64..=3_000_000, 1.0..=1000.0, any::<bool>(), 0..5).prop_map(
        |(strategy, initial, max, coefficient, jitter, attempts)| {
            json!({
                "ojs": {
                    "backoff_strategy": strategy, "initial_interval": format!("PT{initial}S"), "max_interval": format!("PT{max}S"),
                    "backoff_coefficient": coefficient, "jitter": jitter, "max_attempts": attempts, "non_retryable_errors": ["a", "b.*"],
                },
                "after_lease": attempts,
            })
        },
    );
    prop_oneof![1 => named, 4 => own, 4 => ojs]
}

fn strategy_of_ojs() -> impl Strategy<Value = &'static str> {
    select(vec!["none", "linear", "exponential", "polynomial"])
}

fn any_tried() -> impl Strategy<Value = Tried> {
    let count = || prop_oneof![0..30_u32, any::<u32>()];
    (count(), count(), count()).prop_map(|(attempt, errors_before, max_attempts)| Tried {
        attempt,
        errors_before,
        max_attempts,
    })
}

/// The most that a policy ever waits.
fn longest(policy: &Retry) -> i64 {
    match &policy.delay {
        Delay::Backoff(backoff) => backoff.max,
        _ => THOUSAND_YEARS,
    }
}

fn check(policy: &Retry, tried: Tried, unit_random: f64) -> Result<(), TestCaseError> {
    let delay = policy.delay_micros(tried, unit_random);
    prop_assert!((0..=longest(policy)).contains(&delay), "{}", delay);
    let shown = policy.to_json();
    let again = retry::parse(&shown, &duration::read).map(|policy| policy.to_json());
    prop_assert_eq!(again, Ok(shown));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_is_read_or_refused(
        value in any_json(&WORDS, &FIELDS), tried in any_tried(), unit_random in 0.0..1.0,
        months in -1..2, days in -1..2, micros: i64,
    ) {
        if let Ok(policy) = retry::parse(&value, &duration::read) {
            check(&policy, tried, unit_random)?;
        }
        // Also where the server reads any text as any duration.
        let interval = Interval { months, days, micros };
        if let Ok(policy) = retry::parse(&value, &|_| Some(interval)) {
            check(&policy, tried, unit_random)?;
        }
    }

    #[test]
    fn delays_are_bounded(value in any_policy(), tried in any_tried(), unit_random in 0.0..1.0) {
        let policy = retry::parse(&value, &duration::read);
        prop_assert!(policy.is_ok(), "{:?}", policy);
        check(&policy.unwrap(), tried, unit_random)?;
    }

    #[test]
    fn the_next_delay_is_no_shorter(value in any_policy(), tried in any_tried(), unit_random in 0.0..1.0) {
        let policy = retry::parse(&value, &duration::read).unwrap();
        let next = Tried {
            attempt: tried.attempt.saturating_add(1),
            errors_before: tried.errors_before.saturating_add(1),
            ..tried
        };
        prop_assert!(policy.delay_micros(tried, unit_random) <= policy.delay_micros(next, unit_random));
    }

    #[test]
    fn more_of_the_random_number_waits_no_shorter(value in any_policy(), tried in any_tried(), one in 0.0..1.0, other in 0.0..1.0) {
        let policy = retry::parse(&value, &duration::read).unwrap();
        let (less, more) = if one < other { (one, other) } else { (other, one) };
        prop_assert!(policy.delay_micros(tried, less) <= policy.delay_micros(tried, more));
    }
}
