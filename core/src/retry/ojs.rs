//! Open Job Spec's `RetryPolicy`.

use serde_json::Value;

use super::backoff::{
    COEFFICIENTS, DEFAULT_COEFFICIENT, DEFAULT_INITIAL, DEFAULT_JITTER, DEFAULT_MAX,
};
use super::{Attempts, Backoff, Delay, Retry, Strategy, length, non_retryable};
use crate::Invalid;
use crate::given::Given;
use crate::interval::{ReadInterval, iso_8601_only};

const NAME: &str = "retry.ojs";

const FIELDS: [&str; 8] = [
    "max_attempts",
    "initial_interval",
    "backoff_coefficient",
    "max_interval",
    "jitter",
    "non_retryable_errors",
    "on_exhaustion",
    "backoff_strategy",
];

const STRATEGIES: [(&str, Strategy); 4] = [
    ("none", Strategy::Constant),
    ("linear", Strategy::Linear),
    ("exponential", Strategy::Exponential),
    ("polynomial", Strategy::Polynomial),
];

/// A job that is given up is `discarded` either way, is kept for a while and can be retried by
/// hand.
const ON_EXHAUSTION: [(&str, ()); 2] = [("discard", ()), ("dead_letter", ())];

const DEFAULT_ATTEMPTS: i32 = 3;

/// Reads the policy; what is left out is as the specification has it.
pub(super) fn parse(value: &Value, read: ReadInterval) -> Result<Retry, Invalid> {
    const RULE: &str = "retry.ojs must be an object such as {\"max_attempts\": 5, \"initial_interval\": \"PT1S\"}.";
    let given = Given::of(NAME, value, &FIELDS, RULE)?;
    given.word("on_exhaustion", &ON_EXHAUSTION)?;
    let strategy = given.word("backoff_strategy", &STRATEGIES)?;
    let duration = |field| {
        iso_8601_only(&given, field)?;
        length(&given, field, 1, read)
    };
    let initial = duration("initial_interval")?.unwrap_or(DEFAULT_INITIAL.micros);
    let max = duration("max_interval")?.unwrap_or(DEFAULT_MAX.micros);
    let jitter = match given.bool("jitter")? {
        Some(false) => 0.0,
        Some(true) | None => DEFAULT_JITTER,
    };
    Ok(Retry {
        delay: Delay::Backoff(Backoff {
            strategy: strategy.unwrap_or(Strategy::Exponential),
            // No delay is longer, the first one too.
            initial: initial.min(max),
            coefficient: given
                .number("backoff_coefficient", COEFFICIENTS)?
                .unwrap_or(DEFAULT_COEFFICIENT),
            max,
            jitter,
        }),
        non_retryable: non_retryable(&given, "non_retryable_errors")?,
        after_lease: None,
        attempts: attempts(&given)?,
    })
}

/// All tries, the first one too; none means none after that.
fn attempts(given: &Given) -> Result<Attempts, Invalid> {
    const FIELD: &str = "max_attempts";
    let most = f64::from(i32::MAX);
    match given.number(FIELD, 0.0..=most)? {
        None => Ok(Attempts::Default(DEFAULT_ATTEMPTS)),
        Some(count) if count.fract() == 0.0 => Ok(Attempts::Given((count as i32).max(1))),
        Some(count) => Err(Invalid::new(
            &given.path(FIELD),
            format!("{} {count} is not a whole number", given.path(FIELD)),
            format!("{} must be a whole number.", given.path(FIELD)),
        )),
    }
}
