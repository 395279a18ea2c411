//! Retry policies: how long a failed job waits for its next try, and which errors are not tried
//! again.
//!
//! A policy is one of the formulas of other queues, by name, a strategy of Open Job Spec's with
//! figures of one's own, or Open Job Spec's own `RetryPolicy`.

use serde_json::{Map, Value, json};

use crate::Invalid;
use crate::error::quoted;
use crate::given::{Given, meaning, together, wrong_type};
use crate::interval::{self, Interval, LONGEST_MICROS, LONGEST_YEARS, ReadInterval};
use crate::json;

mod backoff;
mod error_types;
mod named;
mod ojs;

pub use backoff::{Backoff, Strategy};
pub use error_types::ErrorTypes;

/// What a job's `retry` asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retry {
    /// How long the job waits for its next try.
    pub delay: Delay,
    /// Errors after which the job is not tried again.
    pub non_retryable: ErrorTypes,
    /// How long it waits instead where the lease of its worker ran out, in microseconds.
    pub after_lease: Option<i64>,
    /// What it says of `max_attempts`.
    pub attempts: Attempts,
}

/// A formula for delays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Delay {
    /// River's: (errors before this one + 1)^4 seconds, ± 10 %.
    #[default]
    River,
    /// Oban's: 15 + 2^n seconds, plus up to 10 %. n is the attempt; above 20 attempts, it is the
    /// attempt / `max_attempts` * 20.
    Oban,
    /// Faktory's: n^4 + 15 + rand(30) (n + 1) seconds, n being the failures before this one.
    Faktory,
    /// A strategy with its figures.
    Backoff(Backoff),
}

/// How often a job is tried, as far as its retry policy says that: Open Job Spec's does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attempts {
    /// Nothing.
    #[default]
    Unsaid,
    /// So often, unless the job says otherwise.
    Default(i32),
    /// So often.
    Given(i32),
}

impl Attempts {
    /// The policy's default number of attempts, if it has one.
    pub fn default(self) -> Option<i32> {
        match self {
            Attempts::Default(count) => Some(count),
            Attempts::Unsaid | Attempts::Given(_) => None,
        }
    }
}

/// How often a job has been tried when an attempt fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The attempt that failed; the first one is 1. Snoozes and releases do not count, and a reset
    /// begins again.
    pub attempt: u32,
    /// The errors that were recorded before this one. A reset keeps them.
    pub errors_before: u32,
    /// How often the job is tried at most.
    pub max_attempts: u32,
}

const NAMES: [(&str, Delay); 3] =
    [("river", Delay::River), ("oban", Delay::Oban), ("faktory", Delay::Faktory)];
const RULE: &str = "retry must be \"river\", \"oban\", \"faktory\" or an object such as {\"strategy\": \"exponential\", \"initial\": 1, \"max\": \"PT5M\"}.";

/// Reads a policy; durations in text go through `read`.
///
/// Null is refused here: what is left out means the kind's policy, which the caller knows.
pub fn parse(value: &Value, read: ReadInterval) -> Result<Retry, Invalid> {
    match value {
        Value::String(name) => match meaning(name, &NAMES) {
            Some(delay) => Ok(Retry { delay, ..Retry::default() }),
            None => {
                let invalid =
                    Invalid::new("retry", format!("retry {} is not known", quoted(name)), RULE);
                Err(match meaning(name, &backoff::STRATEGIES) {
                    Some(_) => invalid.hint(format!("Write {{\"strategy\": \"{name}\"}}.")),
                    None => invalid.did_you_mean(name, &NAMES.map(|(name, _)| name)),
                })
            }
        },
        Value::Object(object) => of_object(object, read),
        Value::Bool(false) => {
            Err(wrong_type("retry", value, RULE).hint("Set max_attempts to 1 for no retries."))
        }
        Value::Number(_) => Err(wrong_type("retry", value, RULE)
            .hint("Use max_attempts to set the number of attempts.")),
        other => Err(wrong_type("retry", other, RULE)),
    }
}

fn of_object(object: &Map<String, Value>, read: ReadInterval) -> Result<Retry, Invalid> {
    let given = backoff::given(object)?;
    let mut retry = match given.get("ojs") {
        Some(policy) => {
            if let Some(other) = given.first_of(&backoff::OWN_FIELDS) {
                return Err(together(
                    "retry.ojs",
                    &given.path(other),
                    "retry.ojs can be combined only with after_lease.",
                ));
            }
            ojs::parse(policy, read)?
        }
        None => Retry {
            delay: backoff::parse(&given, read)?,
            non_retryable: non_retryable(&given, "non_retryable")?,
            ..Retry::default()
        },
    };
    retry.after_lease = length(&given, "after_lease", 0, read)?;
    Ok(retry)
}

/// Errors after which a job is not tried again.
fn non_retryable(given: &Given, field: &str) -> Result<ErrorTypes, Invalid> {
    let path = given.path(field);
    let rule =
        format!("{path} must be a list of error types such as [\"card_declined\", \"auth.*\"].");
    ErrorTypes::parse(given.strings(field, &rule)?.unwrap_or_default(), &path)
}

/// A duration of fixed length, no shorter than this, in microseconds.
fn length(
    given: &Given,
    field: &str,
    shortest: i64,
    read: ReadInterval,
) -> Result<Option<i64>, Invalid> {
    let Some(value) = given.get(field) else {
        return Ok(None);
    };
    let path = given.path(field);
    let bound = if shortest > 0 { "longer than 0 and at most" } else { "between 0 and" };
    let rule = format!(
        "{path} must have a fixed length {bound} {LONGEST_YEARS} years; months and years vary in length."
    );
    match interval::from_json(value, &path, read)?.fixed_micros() {
        None => Err(Invalid::new(
            &path,
            format!("{path} {} has no fixed length", json::shown(value)),
            rule,
        )
        .hint("Write it in days, such as \"30 days\".")),
        Some(micros) if micros < shortest => {
            Err(Invalid::new(&path, format!("{path} {} is too short", json::shown(value)), rule))
        }
        Some(micros) if micros > LONGEST_MICROS => {
            Err(Invalid::new(&path, format!("{path} {} is too long", json::shown(value)), rule))
        }
        Some(micros) => Ok(Some(micros)),
    }
}

impl Retry {
    /// How long the job waits for its next try, in microseconds: never negative, and never longer
    /// than 1000 years.
    ///
    /// `unit_random` is a random number in [0, 1), so that jobs that failed together do not come
    /// back together.
    pub fn delay_micros(&self, tried: Tried, unit_random: f64) -> i64 {
        match &self.delay {
            Delay::River => micros(named::river(tried.errors_before, unit_random)),
            Delay::Oban => micros(named::oban(tried.attempt, tried.max_attempts, unit_random)),
            Delay::Faktory => micros(named::faktory(tried.errors_before, unit_random)),
            Delay::Backoff(backoff) => backoff.delay_micros(tried.attempt, unit_random),
        }
    }

    /// Whether a job that failed with an error of this type is not tried again, however many
    /// attempts it has left. An error without a type always is.
    pub fn gives_up_on(&self, error_type: Option<&str>) -> bool {
        error_type.is_some_and(|error_type| self.non_retryable.contains(error_type))
    }

    /// The policy in the native form with what was left out filled in, durations in ISO 8601.
    /// [`parse`] reads it as the same policy, but for its [`Attempts`].
    pub fn to_json(&self) -> Value {
        let named = NAMES.into_iter().find(|(_, delay)| *delay == self.delay);
        let name = named.map(|(name, _)| name);
        let mut json = match (&self.delay, name) {
            (Delay::Backoff(backoff), _) => backoff.to_json(),
            (_, Some(name)) => json!({ "strategy": name }),
            (_, None) => unreachable!("the others have names"),
        };
        json["non_retryable"] = json!(self.non_retryable.entries());
        if let Some(micros) = self.after_lease {
            json["after_lease"] = json!(Interval::of_micros(micros).to_string());
        }
        match name {
            Some(name) if self.non_retryable.is_empty() && self.after_lease.is_none() => {
                json!(name)
            }
            _ => json,
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
