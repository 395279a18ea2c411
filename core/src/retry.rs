//! Retry policies: how long a failed job waits for its next try, and which errors are not tried
//! again.
//!
//! A policy is one of the formulas of other queues, by name, or a strategy of Open Job Spec's with
//! figures of one's own.

use serde_json::{Value, json};

use crate::Invalid;
use crate::error::quoted;
use crate::given::wrong_type;
use crate::interval::{LONGEST_MICROS, ReadInterval};

mod backoff;
mod error_types;
mod named;

pub use backoff::{Backoff, Strategy};
pub use error_types::ErrorTypes;

/// What a job's `retry` asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Retry {
    /// River's: (errors before this one + 1)^4 seconds, ± 10 %.
    #[default]
    River,
    /// Oban's: 15 + 2^attempt seconds, plus up to 10 %.
    Oban,
    /// Faktory's: n^4 + 15 + rand(30) (n + 1) seconds, n being the failures before this one.
    Faktory,
    /// A strategy with its figures.
    Backoff(Backoff),
}

/// How often a job has been tried when an attempt fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The attempt that failed; the first one is 1. Snoozes and releases do not count, and a reset
    /// begins again.
    pub attempt: u32,
    /// The errors that were recorded before this one. A reset keeps them.
    pub errors_before: u32,
}

const NAMES: [&str; 3] = ["river", "oban", "faktory"];
const RULE: &str = "retry is \"river\", \"oban\", \"faktory\" or an object such as {\"strategy\": \"exponential\", \"initial\": 1, \"max\": \"PT5M\"}.";

/// Reads a policy; durations in text go through `read`.
///
/// Null is refused here: what is left out means the kind's policy, which the caller knows.
pub fn parse(value: &Value, read: ReadInterval) -> Result<Retry, Invalid> {
    match value {
        Value::String(name) => by_name(name),
        Value::Object(object) => backoff::parse(object, read).map(Retry::Backoff),
        Value::Bool(false) => Err(wrong_type("retry", value, RULE)
            .hint("Set max_attempts to 1 if the job is not to be tried again.")),
        Value::Number(_) => Err(wrong_type("retry", value, RULE)
            .hint("How many times a job may be tried is max_attempts.")),
        other => Err(wrong_type("retry", other, RULE)),
    }
}

fn by_name(name: &str) -> Result<Retry, Invalid> {
    match name {
        "river" => Ok(Retry::River),
        "oban" => Ok(Retry::Oban),
        "faktory" => Ok(Retry::Faktory),
        _ => {
            let invalid = Invalid::new(
                "retry",
                format!("retry {} is not known", quoted(name)),
                RULE,
            );
            Err(match Strategy::by_name(name) {
                Some(_) => invalid.hint(format!("Write {{\"strategy\": \"{name}\"}}.")),
                None => invalid.did_you_mean(name, &NAMES),
            })
        }
    }
}

impl Retry {
    /// How long the job waits for its next try, in microseconds: never negative, and never longer
    /// than 1000 years.
    ///
    /// `unit_random` is a random number in [0, 1), so that jobs that failed together do not come
    /// back together.
    pub fn delay_micros(&self, tried: Tried, unit_random: f64) -> i64 {
        match self {
            Retry::River => micros(named::river(tried.errors_before, unit_random)),
            Retry::Oban => micros(named::oban(tried.attempt, unit_random)),
            Retry::Faktory => micros(named::faktory(tried.errors_before, unit_random)),
            Retry::Backoff(backoff) => backoff.delay_micros(tried.attempt, unit_random),
        }
    }

    /// Whether a job that failed with an error of this type is not tried again, however many
    /// attempts it has left. An error without a type always is.
    pub fn gives_up_on(&self, error_type: Option<&str>) -> bool {
        match (self, error_type) {
            (Retry::Backoff(backoff), Some(error_type)) => {
                backoff.non_retryable.contains(error_type)
            }
            _ => false,
        }
    }

    /// The policy with what was left out filled in, durations in ISO 8601. [`parse`] reads it as
    /// the same policy.
    pub fn to_json(&self) -> Value {
        match self {
            Retry::River => json!("river"),
            Retry::Oban => json!("oban"),
            Retry::Faktory => json!("faktory"),
            Retry::Backoff(backoff) => backoff.to_json(),
        }
    }
}

/// Seconds as microseconds, within the bounds of a delay.
fn micros(seconds: f64) -> i64 {
    bounded((seconds * 1e6).round())
}

/// A float becomes the nearest integer that fits, so what overflowed is the longest.
fn bounded(micros: f64) -> i64 {
    (micros as i64).clamp(0, LONGEST_MICROS)
}
