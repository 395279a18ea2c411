//! Durations, as Postgres keeps them.

use serde_json::Value;

use crate::Invalid;
use crate::error::shown;
use crate::json;

const MICROS_PER_SECOND: f64 = 1e6;
const MICROS_PER_DAY: i64 = 86_400_000_000;

/// A duration with the three parts of Postgres' `interval`. Months and days have no fixed length in
/// a calendar, so they are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Whole months; a year is 12.
    pub months: i32,
    /// Whole days; a week is 7.
    pub days: i32,
    /// Microseconds; an hour and all that is shorter.
    pub micros: i64,
}

/// Reads a duration in text, ISO 8601 or as Postgres writes an `interval`; nothing if it is
/// neither.
///
/// In the database it is the server's own reader, so that text means here what it means in SQL.
pub type ReadInterval<'a> = &'a dyn Fn(&str) -> Option<Interval>;

impl Interval {
    /// The length in microseconds, a day being 24 hours; nothing if it has months, whose length
    /// differs, or does not fit.
    pub fn fixed_micros(self) -> Option<i64> {
        if self.months != 0 {
            return None;
        }
        i64::from(self.days)
            .checked_mul(MICROS_PER_DAY)?
            .checked_add(self.micros)
    }
}

/// Reads a duration from JSON: a number of seconds, rounded to microseconds, or text. `field` is
/// its name in messages.
pub fn from_json(value: &Value, field: &str, read: ReadInterval) -> Result<Interval, Invalid> {
    match value {
        Value::Number(seconds) => seconds.as_f64().and_then(from_seconds).ok_or_else(|| {
            Invalid::new(
                format!(
                    "{field} is {} seconds, which is out of range",
                    shown(&seconds.to_string())
                ),
                "A duration is at most 9223372036854 seconds.",
            )
        }),
        Value::String(text) => read(text).ok_or_else(|| {
            Invalid::new(format!("{field} \"{text}\" is not a duration"), RULE).hint(EXAMPLE)
        }),
        other => Err(Invalid::new(format!("{field} is {}", json::what(other)), RULE).hint(EXAMPLE)),
    }
}

const RULE: &str =
    "A duration is a number of seconds, an ISO 8601 duration or a Postgres interval.";
const EXAMPLE: &str = "Write 900, \"PT15M\" or \"15 minutes\".";

fn from_seconds(seconds: f64) -> Option<Interval> {
    let micros = (seconds * MICROS_PER_SECOND).round();
    // The bounds are powers of two and so exact as doubles; the upper one is the first that does
    // not fit.
    let fits = (i64::MIN as f64..-(i64::MIN as f64)).contains(&micros);
    fits.then_some(Interval {
        months: 0,
        days: 0,
        micros: micros as i64,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOUR: Interval = Interval {
        months: 0,
        days: 0,
        micros: 3_600_000_000,
    };

    fn read(text: &str) -> Option<Interval> {
        (text == "1 hour").then_some(HOUR)
    }

    fn micros(value: Value) -> i64 {
        from_json(&value, "by_period", &read).unwrap().micros
    }

    #[test]
    fn numbers_are_seconds() {
        assert_eq!(micros(json!(900)), 900_000_000);
        assert_eq!(micros(json!(-1)), -1_000_000);
        assert_eq!(micros(json!(600.0)), 600_000_000);
        assert_eq!(micros(json!(0.1)), 100_000);
        assert_eq!(micros(json!(9e12)), 9_000_000_000_000_000_000);
        assert_eq!(micros(json!(0.000_000_4)), 0);
        assert_eq!(micros(json!(0.000_000_6)), 1);
        assert_eq!(micros(serde_json::from_str("4.2e1").unwrap()), 42_000_000);
    }

    #[test]
    fn text_is_read_by_the_reader() {
        assert_eq!(from_json(&json!("1 hour"), "by_period", &read), Ok(HOUR));
        let invalid = from_json(&json!("soon"), "by_period", &read).unwrap_err();
        assert_eq!(invalid.message, "by_period \"soon\" is not a duration");
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for (text, message) in [
            (
                "1e400",
                "by_period is 1e+400 seconds, which is out of range",
            ),
            (
                "-1e13",
                "by_period is -1e+13 seconds, which is out of range",
            ),
            (
                "9223372036855",
                "by_period is 9223372036855 seconds, which is out of range",
            ),
            ("true", "by_period is true"),
            ("null", "by_period is null"),
            ("[2, \"minutes\"]", "by_period is an array"),
            ("{}", "by_period is an object"),
        ] {
            let value = serde_json::from_str(text).unwrap();
            assert_eq!(
                from_json(&value, "by_period", &read).unwrap_err().message,
                message
            );
        }
    }

    #[test]
    fn only_days_and_less_have_a_fixed_length() {
        assert_eq!(HOUR.fixed_micros(), Some(3_600_000_000));
        assert_eq!(
            Interval { days: 7, ..HOUR }.fixed_micros(),
            Some(608_400_000_000)
        );
        assert_eq!(
            Interval { days: -1, ..HOUR }.fixed_micros(),
            Some(-82_800_000_000)
        );
        assert_eq!(Interval { months: 1, ..HOUR }.fixed_micros(), None);
        assert_eq!(
            Interval {
                months: 0,
                days: i32::MAX,
                micros: i64::MAX
            }
            .fixed_micros(),
            None
        );
    }
}
