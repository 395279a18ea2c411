//! Durations, as Postgres keeps them.

use std::fmt;

use serde_json::Value;

use crate::Invalid;
use crate::error::{quoted, shown};
use crate::given::Given;
use crate::json;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400_000_000;
/// How long Postgres takes a month to be where it compares intervals.
const DAYS_PER_MONTH: i128 = 30;

/// No duration that leads into the future is longer, in years of 365 days: from any clock of our
/// time on, it ends at a timestamp that Postgres can hold.
pub(crate) const LONGEST_YEARS: i64 = 1000;
/// The longest interval in microseconds.
pub(crate) const LONGEST_MICROS: i64 = LONGEST_YEARS * 365 * MICROS_PER_DAY;

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
    /// A duration of fixed length.
    pub const fn of_micros(micros: i64) -> Self {
        Self { months: 0, days: 0, micros }
    }

    /// The length in microseconds as Postgres compares intervals: a month is 30 days, a day 24
    /// hours.
    pub fn approximate_micros(self) -> i128 {
        self.parts().iter().sum()
    }

    /// Whether it is longer than nothing, as Postgres compares intervals.
    pub fn is_positive(self) -> bool {
        self.approximate_micros() > 0
    }

    /// Whether a calendar can add it to a time, or take it away. Postgres does so with one part
    /// after the other, months first: huge parts of different signs lead out of all time, however
    /// short they are together.
    pub fn fits_a_calendar(self) -> bool {
        let parts = self.parts();
        let is_mixed = parts.iter().any(|part| *part < 0) && parts.iter().any(|part| *part > 0);
        let longest = u128::from(LONGEST_MICROS.unsigned_abs());
        !is_mixed || parts.iter().all(|part| part.unsigned_abs() <= longest)
    }

    /// Months, days and the rest in microseconds.
    fn parts(self) -> [i128; 3] {
        let day = i128::from(MICROS_PER_DAY);
        [
            i128::from(self.months) * DAYS_PER_MONTH * day,
            i128::from(self.days) * day,
            self.micros.into(),
        ]
    }

    /// The length in microseconds, a day being 24 hours; nothing if it has months, whose length
    /// differs, or does not fit.
    pub fn fixed_micros(self) -> Option<i64> {
        if self.months != 0 {
            return None;
        }
        i64::from(self.days).checked_mul(MICROS_PER_DAY)?.checked_add(self.micros)
    }
}

/// In ISO 8601, with a sign before each part that has one, as Postgres writes it with
/// `IntervalStyle` `iso_8601`: `P1Y2M3DT4H5M6.5S`.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |f: &mut fmt::Formatter<'_>, number: i64, unit: char| match number {
            0 => Ok(()),
            number => write!(f, "{number}{unit}"),
        };
        f.write_str("P")?;
        part(f, (self.months / 12).into(), 'Y')?;
        part(f, (self.months % 12).into(), 'M')?;
        part(f, self.days.into(), 'D')?;
        let seconds = self.micros / MICROS_PER_SECOND;
        let fraction = (self.micros % MICROS_PER_SECOND).unsigned_abs();
        if self.micros != 0 {
            f.write_str("T")?;
            part(f, seconds / 3600, 'H')?;
            part(f, seconds / 60 % 60, 'M')?;
        } else if (self.months, self.days) == (0, 0) {
            return f.write_str("T0S");
        }
        if fraction == 0 {
            return part(f, seconds % 60, 'S');
        }
        let sign = if self.micros < 0 { "-" } else { "" };
        let digits = format!("{fraction:06}");
        let digits = digits.trim_end_matches('0');
        write!(f, "{sign}{}.{digits}S", (seconds % 60).abs())
    }
}

/// What is wrong with a duration that does not fit a calendar.
pub const PARTS_RULE: &str = "If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.";

/// Reads a duration from JSON: a number of seconds, rounded to microseconds, or text. `field` is
/// its name in messages.
pub fn from_json(value: &Value, field: &str, read: ReadInterval) -> Result<Interval, Invalid> {
    match value {
        Value::Number(seconds) => seconds.as_f64().and_then(from_seconds).ok_or_else(|| {
            Invalid::new(
                field,
                format!("{field} {} is out of range", shown(&seconds.to_string())),
                "A duration must be at most 9223372036854 seconds.",
            )
        }),
        Value::String(text) => from_text(text, read).ok_or_else(|| {
            Invalid::new(field, format!("{field} {} is not a duration", quoted(text)), RULE)
                .hint(EXAMPLE)
        }),
        other => {
            Err(Invalid::new(field, format!("{field} must not be {}", json::what(other)), RULE)
                .hint(EXAMPLE))
        }
    }
}

const RULE: &str = "A duration must be a number of seconds, an ISO 8601 duration, or a Postgres interval with units.";
const EXAMPLE: &str = "Write 900, \"PT15M\" or \"15 minutes\".";

/// Reads a duration in text, strictly. The server's own reader skips brackets, and takes `9:00` for
/// nine hours. So the text must be ISO 8601, a number alone, which is seconds, or an `interval` as
/// Postgres writes it: numbers with units, optionally followed by a clock with seconds, as in
/// `1 day 02:00:00`.
pub(crate) fn from_text(text: &str, read: ReadInterval) -> Option<Interval> {
    let text = text.trim();
    let is_strict = match text.strip_prefix('P') {
        Some(_) => is_iso_8601(&text.replace(['-', '+'], "")),
        None => is_decimal(text.trim_start_matches(['-', '+'])) || is_in_words(text),
    };
    is_strict.then(|| read(text)).flatten()
}

/// Whether the text is numbers with their units, as `interval` is written with each
/// `IntervalStyle` but `sql_standard`: `1 year -02:30:00`, `@ 5 mins ago`.
fn is_in_words(text: &str) -> bool {
    let text = text.strip_prefix('@').unwrap_or(text);
    let lower = text.trim().to_ascii_lowercase();
    let mut rest = lower.strip_suffix(" ago").unwrap_or(&lower).trim_end();
    let mut has_any = false;
    while !rest.is_empty() {
        let unsigned = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        if is_clock(unsigned) {
            return true;
        }
        let is_number = |char: char| char.is_ascii_digit() || char == '.';
        let behind = unsigned.trim_start_matches(is_number);
        let number = &unsigned[..unsigned.len() - behind.len()];
        let behind = behind.trim_start();
        let unit = behind.trim_start_matches(|char: char| char.is_ascii_alphabetic());
        if !is_decimal(number) || unit.len() == behind.len() {
            return false;
        }
        has_any = true;
        rest = unit.trim_start();
    }
    has_any
}

/// Whether the text is hours, minutes and seconds: `02:00:00`, `100:59:59.5`.
fn is_clock(text: &str) -> bool {
    let parts: Vec<_> = text.split(':').collect();
    let is_whole = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match parts.as_slice() {
        [hours, minutes, seconds] => is_whole(hours) && is_whole(minutes) && is_decimal(seconds),
        _ => false,
    }
}

/// Whether the text is a number: digits with at most one point among them.
fn is_decimal(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && text.bytes().filter(|byte| *byte == b'.').count() <= 1
}

/// So many seconds, rounded to microseconds; nothing if they do not fit.
pub fn from_seconds(seconds: f64) -> Option<Interval> {
    let micros = (seconds * MICROS_PER_SECOND as f64).round();
    // The bounds are powers of two and so exact as doubles; the upper one is the first that does
    // not fit.
    let fits = (i64::MIN as f64..-(i64::MIN as f64)).contains(&micros);
    fits.then_some(Interval::of_micros(micros as i64))
}

/// Refuses a field that is a duration in another form than ISO 8601, of which the reader of
/// durations takes more.
pub(crate) fn iso_8601_only(given: &Given, field: &str) -> Result<(), Invalid> {
    match given.get(field) {
        Some(Value::String(text)) if is_iso_8601(text) => Ok(()),
        None => Ok(()),
        Some(other) => {
            let path = given.path(field);
            Err(Invalid::new(
                &path,
                format!("{path} {} is not an ISO 8601 duration", json::shown(other)),
                format!("{path} must be an ISO 8601 duration."),
            )
            .hint("Write \"PT15M\"."))
        }
    }
}

/// Whether the text is an ISO 8601 duration: numbers with their units, each unit at most once and
/// in order, those of the clock behind a T.
fn is_iso_8601(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('P') else {
        return false;
    };
    match rest.split_once('T') {
        None => has_units(rest, "YMWD"),
        Some((date, clock)) => {
            (date.is_empty() || has_units(date, "YMWD")) && has_units(clock, "HMS")
        }
    }
}

/// Whether the text is one or more numbers, each followed by one of the units, which come in order.
fn has_units(text: &str, units: &str) -> bool {
    let mut rest = text;
    let mut units = units.chars();
    while let Some(end) = rest.find(|char: char| !char.is_ascii_digit() && char != '.') {
        let (number, unit) = rest.split_at(end);
        let whole_and_part = number.split('.').collect::<Vec<_>>();
        let is_number =
            whole_and_part.len() <= 2 && whole_and_part.iter().all(|part| !part.is_empty());
        if !is_number || !units.any(|next| unit.starts_with(next)) {
            return false;
        }
        rest = &unit[1..];
    }
    rest.is_empty() && !text.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOUR: Interval = Interval::of_micros(3_600_000_000);

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
    fn text_is_read_strictly() {
        let is_read = |text: &str| from_text(text, &|_| Some(HOUR)).is_some();
        for text in [
            "15 minutes",
            "5m",
            "1h30m",
            "-1 day",
            "+1 day -2 hours",
            "1.5 hours",
            ".5 hours",
            "1 year 2 mons 3 days 04:05:06.789",
            "1 day -01:00:00",
            "00:05:00",
            "@ 1 hour 2 mins ago",
            "2 weeks ago",
            " 1 DAY ",
            "PT15M",
            "P1Y2M3DT4H5M6.7S",
            "P-1DT-2H",
            "7",
            "-1.5",
        ] {
            assert!(is_read(text), "{text}");
        }
        for text in [
            "",
            "ago",
            "@",
            "9:00",
            "09:00",
            "1 day 09:00",
            "1 day 9",
            "1-2",
            "(5 minutes)",
            "5 minutes)",
            "[5] minutes",
            "5 minutes, 3 seconds",
            "day",
            "1 day hour",
            "1..5 hours",
            ". hours",
            "09:00:00 1 day",
            "5 minutes!",
            "minus 5 minutes",
            "P",
            "PT",
            "P1D 09:00",
            "p1d",
        ] {
            assert!(!is_read(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for (text, message) in [
            ("1e400", "by_period 1e+400 is out of range"),
            ("-1e13", "by_period -1e+13 is out of range"),
            ("9223372036855", "by_period 9223372036855 is out of range"),
            ("true", "by_period must not be true"),
            ("null", "by_period must not be null"),
            ("[2, \"minutes\"]", "by_period must not be an array"),
            ("{}", "by_period must not be an object"),
        ] {
            let value = serde_json::from_str(text).unwrap();
            assert_eq!(from_json(&value, "by_period", &read).unwrap_err().message, message);
        }
    }

    #[test]
    fn positive_is_longer_than_nothing() {
        let positive = |months, days, micros| Interval { months, days, micros }.is_positive();
        assert!(!positive(0, 0, 0));
        for sign in [-1, 1] {
            assert_eq!(positive(sign, 0, 0), sign > 0);
            assert_eq!(positive(0, sign, 0), sign > 0);
            assert_eq!(positive(0, 0, sign.into()), sign > 0);
        }
        assert!(!positive(1, -30, 0));
        assert!(positive(1, -29, -86_399_999_999));
        assert!(!positive(0, 1, -86_400_000_000));
        assert!(positive(i32::MAX, i32::MAX, i64::MAX));
        assert!(!positive(i32::MIN, i32::MIN, i64::MIN));
    }

    #[test]
    fn a_calendar_takes_no_huge_parts_of_different_signs() {
        let fits = |months, days, micros| Interval { months, days, micros }.fits_a_calendar();
        assert!(fits(0, 0, 0));
        assert!(fits(1, -29, -3_600_000_000));
        assert!(fits(i32::MAX, i32::MAX, i64::MAX));
        assert!(fits(i32::MIN, i32::MIN, i64::MIN));
        assert!(fits(12_000, -359_999, 0));
        assert!(fits(-12_000, 365_000, 0));
        assert!(!fits(-12_000, 365_001, 0));
        assert!(!fits(-100_000, 3_000_100, 0));
        assert!(!fits(100_000, -2_999_900, 0));
        assert!(!fits(0, -1, i64::MAX));
        assert!(!fits(1, 0, i64::MIN));
    }

    #[test]
    fn text_is_iso_8601() {
        for (months, days, micros, text) in [
            (0, 0, 0, "PT0S"),
            (0, 0, 900_000_000, "PT15M"),
            (0, 0, 3_600_000_000, "PT1H"),
            (0, 7, 0, "P7D"),
            (1, 0, 0, "P1M"),
            (12, 0, 0, "P1Y"),
            (14, 3, 14_706_500_000, "P1Y2M3DT4H5M6.5S"),
            (0, 0, 1, "PT0.000001S"),
            (0, 0, -1, "PT-0.000001S"),
            (0, 0, -61_500_000, "PT-1M-1.5S"),
            (-14, -1, 30_000_000, "P-1Y-2M-1DT30S"),
            (0, 0, i64::MAX, "PT2562047788H54.775807S"),
            (0, 0, i64::MIN, "PT-2562047788H-54.775808S"),
        ] {
            let interval = Interval { months, days, micros };
            assert_eq!(interval.to_string(), text);
        }
    }

    #[test]
    fn only_days_and_less_have_a_fixed_length() {
        assert_eq!(HOUR.fixed_micros(), Some(3_600_000_000));
        assert_eq!(Interval { days: 7, ..HOUR }.fixed_micros(), Some(608_400_000_000));
        assert_eq!(Interval { days: -1, ..HOUR }.fixed_micros(), Some(-82_800_000_000));
        assert_eq!(Interval { months: 1, ..HOUR }.fixed_micros(), None);
        assert_eq!(Interval { months: 0, days: i32::MAX, micros: i64::MAX }.fixed_micros(), None);
    }
}
