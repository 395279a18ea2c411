//! Ticks at multiples of a duration.

use crate::Invalid;
use crate::error::quoted;
use crate::interval::{Interval, LONGEST_MICROS, LONGEST_YEARS, ReadInterval, from_text};
use crate::period;

use super::write;

const SHORTEST_MICROS: i64 = 1_000_000;

/// The ticks of `every`: the multiples of a duration since 0001-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Every {
    /// In microseconds, at least a second.
    duration: i64,
}

impl Every {
    /// Reads the duration that follows the word in the schedule `text`.
    pub fn parse(duration: &str, text: &str, read: ReadInterval) -> Result<Self, Invalid> {
        let rule = || {
            format!(
                "The duration after \"every\" must have a fixed length between one second and {LONGEST_YEARS} years; months and years vary in length."
            )
        };
        let refused = |what: &str, hint: &str| {
            Err(Invalid::new("cron", format!("cron {} {what}", quoted(text)), rule()).hint(hint))
        };
        // With a clock in it, it is rather a time of the day; without a unit, it may be any.
        let interval = in_units(duration, read).filter(|_| !duration.contains(':'));
        let Some(interval) = interval else {
            return refused("has no duration", &hint(duration, read));
        };
        match interval.fixed_micros() {
            None => refused("has no fixed length", &of_months(interval)),
            Some(duration) if duration < SHORTEST_MICROS => {
                refused("is too frequent", "Write at least \"every 1 second\".")
            }
            Some(duration) if duration > LONGEST_MICROS => Err(Invalid::new(
                "cron",
                format!("cron {} is too infrequent", quoted(text)),
                rule(),
            )),
            Some(duration) => Ok(Self { duration }),
        }
    }

    /// The first tick after a moment, where time does not end before.
    pub fn next(self, after: i64) -> Option<i64> {
        let latest = period::rounded_down(after, self.duration);
        (latest + i128::from(self.duration)).try_into().ok()
    }

    /// The latest tick that is not after a moment, where time begins before.
    pub fn previous_or_at(self, at: i64) -> Option<i64> {
        period::rounded_down(at, self.duration).try_into().ok()
    }
}

/// Reads a duration that says its units.
pub(super) fn in_units(text: &str, read: ReadInterval) -> Option<Interval> {
    let has_unit = text.contains(|char: char| char.is_ascii_alphabetic() || char == ':');
    from_text(text, read).filter(|_| has_unit)
}

/// What to write instead of what is no duration.
fn hint(duration: &str, read: ReadInterval) -> String {
    let bare = duration.trim_matches(['(', ')', '[', ']', '"', '\'']);
    let one = format!("1 {duration}");
    let likely = [bare, &one].into_iter().find_map(|text| in_units(text, read));
    match (time_of_day(duration), likely) {
        (Some((hour, minute)), _) => format!(
            "Write \"{minute} {hour} * * *\" for {hour:02}:{minute:02} of each day. A duration needs units, as in \"every 9 hours\"."
        ),
        (None, Some(interval)) if interval.months != 0 => of_months(interval),
        (None, Some(interval)) if is_possible(interval) => write(&format!("every {interval}")),
        _ => "Write \"every 90 seconds\" or \"every PT1H\".".to_string(),
    }
}

fn is_possible(interval: Interval) -> bool {
    let possible = SHORTEST_MICROS..=LONGEST_MICROS;
    interval.fixed_micros().is_some_and(|micros| possible.contains(&micros))
}

/// The hour and minute of `9:00`, alone or behind `day`, `1 day` or `at`; only behind these also of
/// `09:00:00`, which alone is a duration.
fn time_of_day(text: &str) -> Option<(u8, u8)> {
    let lower = text.to_ascii_lowercase();
    let mut words: Vec<_> = lower.split_whitespace().collect();
    let (hour, minute) = words.pop()?.split_once(':')?;
    let minute = match words.is_empty() {
        true => minute,
        false => minute.strip_suffix(":00").unwrap_or(minute),
    };
    let is_daily = words.iter().all(|word| ["1", "day", "at"].contains(word));
    let number = |text: &str, limit: u8| text.parse().ok().filter(|number| *number < limit);
    let (hour, minute) = (number(hour, 24)?, number(minute, 60)?);
    is_daily.then_some((hour, minute))
}

/// What to write instead of a duration with months.
pub(super) fn of_months(interval: Interval) -> String {
    let Interval { months, days, micros } = interval;
    match (months, (days, micros) == (0, 0)) {
        (1, true) => "Write \"@monthly\" for the first of each month, or \"every 30 days\".".into(),
        (12, true) => "Write \"@yearly\" for the first of each year, or \"every 365 days\".".into(),
        (2 | 3 | 4 | 6, true) => write(&format!("0 0 1 */{months} *")),
        _ => "Write it in days, such as \"every 30 days\".".into(),
    }
}
