//! Retry policies: what is read, what is refused, how it is shown, and the delays that follow.

use jobs_core::Invalid;
use jobs_core::retry::{self, Attempts, Backoff, Delay, Retry, Strategy, Tried};
use serde_json::{Value, json};

use crate::duration;
use crate::support::{refusal, rows};

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const DAY: i64 = 1440 * MINUTE;
const THOUSAND_YEARS: i64 = 365_000 * DAY;

fn parse(value: &Value) -> Result<Retry, Invalid> {
    retry::parse(value, &duration::read)
}

fn policy(value: Value) -> Retry {
    parse(&value).unwrap_or_else(|invalid| panic!("{value}: {invalid:?}"))
}

fn backoff(value: Value) -> Backoff {
    match policy(value.clone()).delay {
        Delay::Backoff(backoff) => backoff,
        other => panic!("{value}: {other:?}"),
    }
}

/// The refusal of this policy: message and hint.
fn refused(value: Value) -> (String, Option<String>) {
    refusal(&parse(&value).expect_err(&value.to_string()))
}

/// The delay after the attempt failed, each failure before having left an error.
fn delay(policy: &Retry, attempt: u32, unit_random: f64) -> i64 {
    let tried = Tried { attempt, errors_before: attempt - 1, max_attempts: 20 };
    policy.delay_micros(tried, unit_random)
}

/// The delays after the first attempts failed, in seconds, in the middle of the jitter.
fn delays<const N: usize>(value: Value) -> [f64; N] {
    let policy = policy(value);
    std::array::from_fn(|before| delay(&policy, before as u32 + 1, 0.5) as f64 / 1e6)
}

#[test]
fn names_are_other_queues() {
    for (name, delay) in
        [("river", Delay::River), ("oban", Delay::Oban), ("faktory", Delay::Faktory)]
    {
        let named = policy(json!(name));
        assert_eq!(named.delay, delay);
        assert_eq!(policy(json!({ "strategy": name })), named);
    }
    assert_eq!(Retry::default(), policy(json!("river")));
}

#[test]
fn the_formulas_of_other_queues_have_no_figures() {
    for figure in ["initial", "coefficient", "max", "jitter"] {
        let (message, hint) = refused(json!({ "strategy": "oban", figure: 1 }));
        assert_eq!(message, format!("retry.{figure} cannot be combined with strategy \"oban\""));
        assert_eq!(hint, Some(format!("Omit retry.{figure}.")));
    }
    let more = json!({ "strategy": "river", "non_retryable": ["a"], "after_lease": 10 });
    assert!(policy(more.clone()).gives_up_on(Some("a")));
    assert_eq!(
        policy(more).to_json(),
        json!({ "strategy": "river", "non_retryable": ["a"], "after_lease": "PT10S" })
    );
}

#[test]
fn a_lost_lease_may_have_a_delay_of_its_own() {
    let after = |value: Value| policy(value).after_lease;
    assert_eq!(after(json!("river")), None);
    assert_eq!(after(json!({ "after_lease": null })), None);
    for (value, micros) in [
        (json!({ "after_lease": 0 }), 0),
        (json!({ "after_lease": "PT0S" }), 0),
        (json!({ "after_lease": "15 minutes" }), 15 * MINUTE),
        (json!({ "strategy": "faktory", "after_lease": 1.5 }), 1_500_000),
        (json!({ "strategy": "linear", "max": 5, "after_lease": "PT1H" }), 60 * MINUTE),
        (json!({ "ojs": {}, "after_lease": "P365000D" }), THOUSAND_YEARS),
    ] {
        assert_eq!(after(value.clone()), Some(micros), "{value}");
    }
    for [value, message] in rows(
        r#"
            -1 | retry.after_lease -1 is too short
            "P365001D" | retry.after_lease "P365001D" is too long
            "1 month" | retry.after_lease "1 month" has no fixed length
            true | retry.after_lease must not be true
            "soon" | retry.after_lease "soon" is not a duration
        "#,
    ) {
        let value: Value = serde_json::from_str(value).expect(value);
        assert_eq!(refused(json!({ "after_lease": value })).0, message);
    }
}

mod ojs {
    use super::*;

    fn ojs(value: Value) -> Value {
        json!({ "ojs": value })
    }

    #[test]
    fn what_is_left_out_is_as_the_specification_has_it() {
        let read = policy(ojs(json!({})));
        assert_eq!(read.attempts, Attempts::Default(3));
        assert_eq!(read.attempts.default(), Some(3));
        assert_eq!(read.to_json(), policy(json!({})).to_json());
        let same = json!({
            "max_attempts": null, "initial_interval": "PT1S", "backoff_coefficient": 2.0, "max_interval": "PT5M",
            "jitter": true, "non_retryable_errors": [], "on_exhaustion": "discard", "backoff_strategy": "exponential",
        });
        assert_eq!(policy(ojs(same)), read);
    }

    #[test]
    fn every_field_is_read() {
        let value = ojs(json!({
            "max_attempts": 10, "initial_interval": "PT0.5S", "backoff_coefficient": 4, "max_interval": "PT1H",
            "jitter": false, "non_retryable_errors": ["auth.*"], "on_exhaustion": "dead_letter", "backoff_strategy": "polynomial",
        }));
        let read = policy(value.clone());
        assert_eq!(read.attempts, Attempts::Given(10));
        assert_eq!(read.attempts.default(), None);
        assert!(read.gives_up_on(Some("auth.forbidden")));
        assert_eq!(delays(value), [0.5, 8.0, 40.5, 128.0, 312.5, 648.0, 1200.5]);
        for (strategy, expected) in [
            ("none", [5.0, 5.0, 5.0]),
            ("linear", [5.0, 10.0, 15.0]),
            ("exponential", [5.0, 10.0, 20.0]),
            ("polynomial", [5.0, 20.0, 45.0]),
        ] {
            let value = json!({ "initial_interval": "PT5S", "backoff_strategy": strategy });
            assert_eq!(delays(ojs(value)), expected, "{strategy}");
        }
    }

    #[test]
    fn no_delay_is_longer_than_the_longest_the_first_one_too() {
        let value = ojs(json!({ "initial_interval": "PT10M" }));
        assert_eq!(delays(value), [300.0, 300.0]);
    }

    #[test]
    fn no_attempts_are_one() {
        let attempts = |count: Value| policy(ojs(json!({ "max_attempts": count }))).attempts;
        assert_eq!(attempts(json!(0)), Attempts::Given(1));
        assert_eq!(attempts(json!(1)), Attempts::Given(1));
        assert_eq!(attempts(json!(i32::MAX)), Attempts::Given(i32::MAX));
        assert_eq!(attempts(json!(5.0)), Attempts::Given(5));
    }

    #[test]
    fn jitter_is_half_either_way() {
        let policy = policy(ojs(json!({ "initial_interval": "PT10S" })));
        assert_eq!(delay(&policy, 1, 0.0), 5 * SECOND);
        assert_eq!(delay(&policy, 1, 0.75), 12_500_000);
    }

    #[test]
    fn only_after_lease_stands_beside_it() {
        for field in ["strategy", "initial", "coefficient", "max", "jitter", "non_retryable"] {
            assert_eq!(
                refused(json!({ "ojs": {}, field: ["x"] })).0,
                format!("retry.ojs and retry.{field} cannot be combined")
            );
        }
        for value in [json!(true), json!("x"), json!([]), json!(3)] {
            assert!(refused(ojs(value)).0.starts_with("retry.ojs must not be "));
        }
    }

    #[test]
    fn what_the_specification_does_not_have_is_refused() {
        for [field, value, message] in rows(
            r#"
                max_attempts | -1 | retry.ojs.max_attempts -1 is out of range
                max_attempts | 2.5 | retry.ojs.max_attempts 2.5 is not a whole number
                max_attempts | "3" | retry.ojs.max_attempts must not be a string
                max_attempts | 3000000000.0 | retry.ojs.max_attempts 3000000000.0 is out of range
                initial_interval | 1 | retry.ojs.initial_interval 1 is not an ISO 8601 duration
                initial_interval | "1 s" | retry.ojs.initial_interval "1 s" is not an ISO 8601 duration
                initial_interval | "PT0S" | retry.ojs.initial_interval "PT0S" is too short
                max_interval | "P1M" | retry.ojs.max_interval "P1M" has no fixed length
                backoff_coefficient | 0.5 | retry.ojs.backoff_coefficient 0.5 is out of range
                jitter | 0.5 | retry.ojs.jitter must not be a number
                non_retryable_errors | "auth" | retry.ojs.non_retryable_errors must not be a string
                non_retryable_errors | ["*"] | "*" of retry.ojs.non_retryable_errors matches no error type
                on_exhaustion | "keep" | retry.ojs.on_exhaustion "keep" is not known
                backoff_strategy | "constant" | retry.ojs.backoff_strategy "constant" is not known
            "#,
        ) {
            let value: Value = serde_json::from_str(value).expect(value);
            assert_eq!(refused(ojs(json!({ field: value }))).0, message);
        }
        assert_eq!(
            refused(ojs(json!({ "initial": "PT1S" }))).0,
            "field \"initial\" of retry.ojs is not known"
        );
        assert_eq!(
            refused(ojs(json!({ "max_atempts": 3 }))).1.as_deref(),
            Some("Did you mean \"max_attempts\"?")
        );
    }
}

#[test]
fn other_names_are_refused_with_the_nearest() {
    let hint = |name: &str| {
        let (message, hint) = refused(json!(name));
        assert_eq!(message, format!("retry \"{name}\" is not known"));
        hint
    };
    assert_eq!(hint("rivr").as_deref(), Some("Did you mean \"river\"?"));
    assert_eq!(hint("Oban").as_deref(), Some("Did you mean \"oban\"?"));
    assert_eq!(hint("factory").as_deref(), Some("Did you mean \"faktory\"?"));
    assert_eq!(hint("linear").as_deref(), Some("Write {\"strategy\": \"linear\"}."));
    assert_eq!(hint("sidekiq"), None);
    assert_eq!(hint(""), None);
}

#[test]
fn what_is_no_policy_is_refused() {
    for (value, message) in [
        (json!(null), "retry must not be null"),
        (json!(true), "retry must not be true"),
        (json!(["river"]), "retry must not be an array"),
    ] {
        assert_eq!(refused(value), (message.into(), None));
    }
    assert_eq!(
        refused(json!(false)),
        ("retry must not be false".into(), Some("Set max_attempts to 1 for no retries.".into()))
    );
    assert_eq!(
        refused(json!(5)),
        (
            "retry must not be a number".into(),
            Some("Use max_attempts to set the number of attempts.".into())
        )
    );
}

#[test]
fn what_is_left_out_is_as_open_job_spec_has_it() {
    let filled_in = json!({
        "strategy": "exponential", "initial": "PT1S", "coefficient": 2.0, "max": "PT5M",
        "jitter": 0.5, "non_retryable": [],
    });
    for value in [
        json!({}),
        json!({ "strategy": "exponential" }),
        json!({ "strategy": null, "initial": null, "coefficient": false, "max": false, "jitter": null, "non_retryable": null }),
        json!({ "jitter": true, "non_retryable": [] }),
    ] {
        assert_eq!(policy(value).to_json(), filled_in);
    }
}

#[test]
fn every_field_is_read() {
    let read = backoff(json!({
        "strategy": "polynomial", "initial": 1.5, "coefficient": 4, "max": "15 minutes",
        "jitter": 0.25, "non_retryable": ["card_declined", "auth.*"],
    }));
    assert_eq!(read.strategy, Strategy::Polynomial);
    assert_eq!(read.initial, 1_500_000);
    assert_eq!(read.coefficient, 4.0);
    assert_eq!(read.max, 15 * MINUTE);
    assert_eq!(read.jitter, 0.25);
    let listed = policy(json!({ "non_retryable": ["card_declined", "auth.*"] }));
    assert_eq!(listed.non_retryable.entries(), ["card_declined", "auth.*"]);
    assert_eq!(backoff(json!({ "jitter": false })).jitter, 0.0);
    assert_eq!(backoff(json!({ "jitter": 0 })).jitter, 0.0);
    assert_eq!(backoff(json!({ "jitter": 1 })).jitter, 1.0);
    assert_eq!(backoff(json!({ "max": "P7D", "initial": "PT12H" })).max, 7 * DAY);
}

#[test]
fn shown_without_what_the_strategy_does_not_look_at() {
    for strategy in ["linear", "constant"] {
        let shown = policy(json!({ "strategy": strategy, "coefficient": 3 })).to_json();
        assert_eq!(shown["strategy"], strategy);
        assert_eq!(shown.get("coefficient"), None);
    }
    assert_eq!(policy(json!("oban")).to_json(), json!("oban"));
}

#[test]
fn unknown_fields_are_refused_with_the_nearest() {
    for (field, hint) in [
        ("initail", Some("Did you mean \"initial\"?")),
        ("Max", Some("Did you mean \"max\"?")),
        ("initial_interval", Some("Did you mean \"initial\"?")),
        ("backoff_coefficient", Some("Did you mean \"coefficient\"?")),
        ("max_interval", Some("Did you mean \"max\"?")),
        ("non_retryable_errors", Some("Did you mean \"non_retryable\"?")),
        ("backoff_strategy", Some("Did you mean \"strategy\"?")),
        ("max_attempts", Some("Give max_attempts outside of retry.")),
        ("on_exhaustion", None),
    ] {
        assert_eq!(
            refused(json!({ field: null })),
            (format!("field \"{field}\" of retry is not known"), hint.map(Into::into))
        );
    }
}

#[test]
fn unknown_strategies_are_refused_with_the_nearest() {
    for (strategy, hint) in [
        ("exponentail", Some("Did you mean \"exponential\"?")),
        ("none", Some("Did you mean \"constant\"?")),
        ("sidekiq", None),
    ] {
        assert_eq!(
            refused(json!({ "strategy": strategy })),
            (format!("retry.strategy \"{strategy}\" is not known"), hint.map(Into::into))
        );
    }
}

#[test]
fn wrong_types_are_refused() {
    for [value, message] in rows(
        r#"
            { "strategy": 1 } | retry.strategy must not be a number
            { "initial": true } | retry.initial must not be true
            { "initial": [1] } | retry.initial must not be an array
            { "max": {} } | retry.max must not be an object
            { "coefficient": "2" } | retry.coefficient must not be a string
            { "coefficient": true } | retry.coefficient must not be true
            { "jitter": "full" } | retry.jitter must not be a string
            { "non_retryable": "a" } | retry.non_retryable must not be a string
            { "non_retryable": ["a", null] } | an element of retry.non_retryable must not be null
            { "non_retryable": ["a", ""] } | an element of retry.non_retryable must not be empty
            { "non_retryable": ["*"] } | "*" of retry.non_retryable matches no error type
        "#,
    ) {
        let value: Value = serde_json::from_str(value).expect(value);
        assert_eq!(refused(value).0, message);
    }
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    for [value, message] in rows(
        r#"
            { "initial": 0 } | retry.initial 0 is too short
            { "initial": -1 } | retry.initial -1 is too short
            { "initial": "-1 day" } | retry.initial "-1 day" is too short
            { "max": "PT0S" } | retry.max "PT0S" is too short
            { "max": "P365001D" } | retry.max "P365001D" is too long
            { "max": "soon" } | retry.max "soon" is not a duration
            { "max": "1 month" } | retry.max "1 month" has no fixed length
        "#,
    ) {
        let value: Value = serde_json::from_str(value).expect(value);
        assert_eq!(refused(value).0, message);
    }
    assert_eq!(backoff(json!({ "max": "P365000D" })).max, THOUSAND_YEARS);
}

#[test]
fn a_first_delay_beyond_the_longest_is_refused() {
    assert_eq!(
        refused(json!({ "initial": 10, "max": 9.5 })),
        ("retry.initial PT10S is longer than retry.max PT9.5S".into(), Some("Set both.".into()))
    );
    let of_default = parse(&json!({ "strategy": "linear", "initial": "PT1H" })).unwrap_err();
    assert_eq!(of_default.message, "retry.initial PT1H is longer than retry.max PT5M");
    assert!(of_default.detail.contains("default to PT1S and PT5M"));
    assert_eq!(backoff(json!({ "initial": 10, "max": 10 })).max, 10 * SECOND);
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    for (text, message) in [
        (r#"{"coefficient": 0.99}"#, "retry.coefficient 0.99 is out of range"),
        (r#"{"coefficient": -2}"#, "retry.coefficient -2 is out of range"),
        (r#"{"coefficient": 1001}"#, "retry.coefficient 1001 is out of range"),
        (r#"{"coefficient": 1e400}"#, "retry.coefficient 1e+400 is out of range"),
        (r#"{"jitter": 1.01}"#, "retry.jitter 1.01 is out of range"),
        (r#"{"jitter": -0.1}"#, "retry.jitter -0.1 is out of range"),
    ] {
        assert_eq!(refused(serde_json::from_str(text).unwrap()).0, message);
    }
    assert_eq!(
        parse(&json!({ "jitter": 2 })).unwrap_err().detail,
        "retry.jitter must be a number between 0 and 1."
    );
}

#[test]
fn exponential_delays_multiply_up_to_the_longest() {
    assert_eq!(
        delays(json!({ "strategy": "exponential" })),
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]
    );
    assert_eq!(
        delays(json!({ "initial": 0.5, "coefficient": 3, "max": 10 })),
        [0.5, 1.5, 4.5, 10.0]
    );
    assert_eq!(delays(json!({ "coefficient": 1 })), [1.0, 1.0, 1.0]);
}

#[test]
fn linear_delays_add_up_to_the_longest() {
    assert_eq!(
        delays(json!({ "strategy": "linear", "initial": 5, "max": 18, "coefficient": 7 })),
        [5.0, 10.0, 15.0, 18.0, 18.0]
    );
}

#[test]
fn constant_delays_stay() {
    assert_eq!(
        delays(json!({ "strategy": "constant", "initial": 5, "coefficient": 7 })),
        [5.0, 5.0, 5.0]
    );
}

#[test]
fn polynomial_delays_grow_by_the_power_of_the_attempt() {
    assert_eq!(
        delays(json!({ "strategy": "polynomial", "coefficient": 4 })),
        [1.0, 16.0, 81.0, 256.0, 300.0]
    );
    assert_eq!(
        delays(json!({ "strategy": "polynomial", "initial": 15, "coefficient": 4, "max": "PT1H" })),
        [15.0, 240.0, 1215.0, 3600.0]
    );
    assert_eq!(delays(json!({ "strategy": "polynomial", "initial": 2 })), [2.0, 8.0, 18.0, 32.0]);
}

#[test]
fn jitter_is_a_part_either_way() {
    let of = |jitter: Value, unit_random| {
        let policy =
            policy(json!({ "strategy": "constant", "initial": 10, "max": 100, "jitter": jitter }));
        delay(&policy, 1, unit_random)
    };
    assert_eq!(of(json!(true), 0.0), 5 * SECOND);
    assert_eq!(of(json!(true), 0.75), 12_500_000);
    assert_eq!(of(json!(0.2), 0.0), 8 * SECOND);
    assert_eq!(of(json!(0.2), 0.5), 10 * SECOND);
    assert_eq!(of(json!(0.2), 0.75), 11 * SECOND);
    assert_eq!(of(json!(1), 0.0), 0);
    assert_eq!(of(json!(1), 0.75), 15 * SECOND);
    for unit_random in [0.0, 0.3, 0.99] {
        assert_eq!(of(json!(false), unit_random), 10 * SECOND);
    }
}

#[test]
fn a_constant_delay_has_no_default_bound() {
    let hour = policy(json!({ "strategy": "constant", "initial": "PT1H" }));
    assert_eq!(delay(&hour, 7, 0.5), 60 * MINUTE);
    assert_eq!(delay(&hour, 1, 0.75), 75 * MINUTE);
    assert_eq!(hour.to_json().get("max"), None);
    let bounded = policy(json!({ "strategy": "constant", "initial": "PT1H", "max": "PT1H" }));
    assert_eq!(delay(&bounded, 1, 0.75), 60 * MINUTE);
    assert_eq!(bounded.to_json()["max"], "PT1H");
}

#[test]
fn jitter_does_not_go_beyond_the_longest() {
    let policy = policy(json!({ "strategy": "constant", "initial": 10, "max": 12 }));
    assert_eq!(delay(&policy, 1, 0.0), 5 * SECOND);
    assert_eq!(delay(&policy, 1, 0.6), 11 * SECOND);
    assert_eq!(delay(&policy, 1, 0.9), 12 * SECOND);
}

#[test]
fn river_and_faktory_count_errors_and_the_others_attempts() {
    let tried = Tried { attempt: 2, errors_before: 4, max_attempts: 25 };
    for (value, seconds) in [
        // 5^4, less 10 %
        (json!("river"), 562.5),
        // 4^4 + 15
        (json!("faktory"), 271.0),
        // 15 + 2^2
        (json!("oban"), 19.0),
        (json!({ "jitter": false }), 2.0),
    ] {
        let micros = policy(value.clone()).delay_micros(tried, 0.0);
        assert_eq!(micros as f64 / 1e6, seconds, "{value}");
    }
}

#[test]
fn no_delay_is_longer_than_a_thousand_years() {
    for policy in [
        policy(json!("oban")),
        policy(json!("faktory")),
        policy(json!({ "max": "P365000D" })),
        policy(json!({ "max": "P365000D", "strategy": "polynomial", "coefficient": 1000 })),
    ] {
        let tried = Tried { attempt: u32::MAX, errors_before: u32::MAX, max_attempts: 20 };
        assert_eq!(policy.delay_micros(tried, 0.99), THOUSAND_YEARS);
    }
}

#[test]
fn an_attempt_that_was_not_counted_waits_like_the_first() {
    let tried = Tried { attempt: 0, errors_before: 0, max_attempts: 25 };
    assert_eq!(policy(json!({ "jitter": false })).delay_micros(tried, 0.0), SECOND);
}

#[test]
fn only_listed_errors_are_given_up_on() {
    let listed = policy(json!({ "non_retryable": ["card_declined", "auth.*"] }));
    assert!(listed.gives_up_on(Some("card_declined")));
    assert!(listed.gives_up_on(Some("auth.forbidden")));
    assert!(!listed.gives_up_on(Some("auth")));
    assert!(!listed.gives_up_on(Some("timeout")));
    assert!(!listed.gives_up_on(None));
    assert!(!policy(json!("river")).gives_up_on(Some("card_declined")));
}
