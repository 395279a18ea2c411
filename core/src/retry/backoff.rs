//! A delay by a strategy of Open Job Spec's.

use serde_json::{Map, Value, json};

use super::{Delay, NAMES, bounded, length};
use crate::Invalid;
use crate::given::{Given, meaning, word_for, wrong_type};
use crate::interval::{Interval, LONGEST_MICROS, ReadInterval};

/// How the delay grows, n being the attempt that failed: the first delay is always `initial`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// `initial` * `coefficient`^(n - 1).
    Exponential,
    /// `initial` * n.
    Linear,
    /// `initial`.
    Constant,
    /// `initial` * n^`coefficient`.
    Polynomial,
}

/// A strategy with its figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// How the delay grows.
    pub strategy: Strategy,
    /// The first delay, in microseconds: longer than nothing.
    pub initial: i64,
    /// How fast an exponential or polynomial delay grows; others do not look at it.
    pub coefficient: f64,
    /// What no delay is longer than, in microseconds: no shorter than the first one.
    pub max: i64,
    /// The part of the delay, from 0 to 1, by which it varies either way.
    pub jitter: f64,
}

const FIELDS: [&str; 8] =
    ["strategy", "initial", "coefficient", "max", "jitter", "non_retryable", "after_lease", "ojs"];
/// Those that do not stand beside `ojs`.
pub(super) const OWN_FIELDS: [&str; 6] =
    ["strategy", "initial", "coefficient", "max", "jitter", "non_retryable"];
/// Those that say more of a strategy, not of another queue's formula.
const FIGURES: [&str; 4] = ["initial", "coefficient", "max", "jitter"];
/// Open Job Spec's names of what is called otherwise or given elsewhere, and what is meant.
const OJS_FIELDS: [(&str, &str); 6] = [
    ("backoff_strategy", "Did you mean \"strategy\"?"),
    ("initial_interval", "Did you mean \"initial\"?"),
    ("backoff_coefficient", "Did you mean \"coefficient\"?"),
    ("max_interval", "Did you mean \"max\"?"),
    ("non_retryable_errors", "Did you mean \"non_retryable\"?"),
    ("max_attempts", "Give max_attempts outside of retry."),
];

pub(super) const STRATEGIES: [(&str, Strategy); 4] = [
    ("exponential", Strategy::Exponential),
    ("linear", Strategy::Linear),
    ("constant", Strategy::Constant),
    ("polynomial", Strategy::Polynomial),
];

pub(super) const DEFAULT_INITIAL: Interval = Interval::of_micros(1_000_000);
pub(super) const DEFAULT_COEFFICIENT: f64 = 2.0;
pub(super) const DEFAULT_MAX: Interval = Interval::of_micros(300_000_000);
/// What `true` means: a factor in [0.5, 1.5).
pub(super) const DEFAULT_JITTER: f64 = 0.5;

/// Below 1 delays would become shorter; beyond 1000, whatever it was meant to be, it was not a
/// coefficient.
pub(super) const COEFFICIENTS: std::ops::RangeInclusive<f64> = 1.0..=1000.0;

impl Strategy {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        word_for(self, &STRATEGIES)
    }
}

/// The fields of the object, which are known.
pub(super) fn given(object: &Map<String, Value>) -> Result<Given<'_>, Invalid> {
    match OJS_FIELDS.iter().find(|(field, _)| object.contains_key(*field)) {
        Some((field, hint)) => Err(Invalid::unknown("retry", "field", field, &FIELDS).hint(*hint)),
        None => Given::new("retry", "field", object, &FIELDS),
    }
}

/// Reads the delay. What is left out is as Open Job Spec has it: exponential from a second to
/// five minutes, doubling, with jitter. A constant delay needs no bound.
pub(super) fn parse(given: &Given, read: ReadInterval) -> Result<Delay, Invalid> {
    let name = given.get("strategy").and_then(Value::as_str);
    if let Some(named) = name.and_then(|name| meaning(name, &NAMES)) {
        return match given.first_of(&FIGURES) {
            None => Ok(named),
            Some(figure) => Err(Invalid::new(
                &given.path(figure),
                format!(
                    "{} cannot be combined with strategy \"{}\"",
                    given.path(figure),
                    name.unwrap_or_default()
                ),
                format!(
                    "The strategies {} are fixed formulas; the others take {}.",
                    NAMES.map(|(name, _)| name).join(", "),
                    FIGURES.join(", ")
                ),
            )
            .hint(format!("Omit {}.", given.path(figure)))),
        };
    }
    let strategy = given.word("strategy", &STRATEGIES).map_err(|invalid| match name {
        Some("none") => invalid.hint("Did you mean \"constant\"?"),
        _ => invalid,
    })?;
    let initial = length(given, "initial", 1, read)?.unwrap_or(DEFAULT_INITIAL.micros);
    let default_max = match strategy {
        Some(Strategy::Constant) => LONGEST_MICROS,
        _ => DEFAULT_MAX.micros,
    };
    let max = length(given, "max", 1, read)?.unwrap_or(default_max);
    if max < initial {
        return Err(Invalid::new(
            "retry.initial",
            format!(
                "retry.initial {} is longer than retry.max {}",
                Interval::of_micros(initial),
                Interval::of_micros(max)
            ),
            format!(
                "retry.initial must be at most retry.max; they default to {DEFAULT_INITIAL} and {DEFAULT_MAX}."
            ),
        )
        .hint("Set both."));
    }
    Ok(Delay::Backoff(Backoff {
        strategy: strategy.unwrap_or(Strategy::Exponential),
        initial,
        coefficient: given.number("coefficient", COEFFICIENTS)?.unwrap_or(DEFAULT_COEFFICIENT),
        max,
        jitter: jitter(given)?,
    }))
}

/// False says something here: no jitter at all, where leaving it out means true.
fn jitter(given: &Given) -> Result<f64, Invalid> {
    match given.get("jitter") {
        None | Some(Value::Bool(true)) => Ok(DEFAULT_JITTER),
        Some(Value::Bool(false)) => Ok(0.0),
        Some(Value::Number(_)) => Ok(given.number("jitter", 0.0..=1.0)?.unwrap_or(DEFAULT_JITTER)),
        Some(other) => Err(wrong_type(
            &given.path("jitter"),
            other,
            "retry.jitter must be true, false, or a number between 0 and 1: the fraction by which the delay varies in either direction.",
        )),
    }
}

impl Backoff {
    /// The delay after this attempt failed, in microseconds. `max` bounds it before and after the
    /// jitter.
    pub(super) fn delay_micros(&self, attempt: u32, unit_random: f64) -> i64 {
        let n = f64::from(attempt.max(1));
        let factor = match self.strategy {
            Strategy::Exponential => self.coefficient.powf(n - 1.0),
            Strategy::Linear => n,
            Strategy::Constant => 1.0,
            Strategy::Polynomial => n.powf(self.coefficient),
        };
        // An infinite factor is bounded as well.
        let delay = (self.initial as f64 * factor).min(self.max as f64);
        let jitter = 1.0 + self.jitter * (2.0 * unit_random - 1.0);
        bounded((delay * jitter).round()).min(self.max)
    }

    /// As [`super::parse`] reads it, without what the strategy does not look at.
    pub(super) fn to_json(self) -> Value {
        let duration = |micros| Interval::of_micros(micros).to_string();
        let mut json = json!({
            "strategy": self.strategy.as_str(),
            "initial": duration(self.initial),
            "jitter": self.jitter,
        });
        if self.strategy != Strategy::Constant || self.max < LONGEST_MICROS {
            json["max"] = json!(duration(self.max));
        }
        if let Strategy::Exponential | Strategy::Polynomial = self.strategy {
            json["coefficient"] = json!(self.coefficient);
        }
        json
    }
}
