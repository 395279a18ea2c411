//! Ticks at multiples of a duration.

use crate::Invalid;
use crate::error::quoted;
use crate::interval::{LONGEST_MICROS, LONGEST_YEARS, ReadInterval};
use crate::period;

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
                "After \"every\" comes a duration of fixed length, at least one second and at most {LONGEST_YEARS} years; months and years differ in length."
            )
        };
        let refused = |what: &str, hint: &str| {
            Err(Invalid::new("cron", format!("cron {} {what}", quoted(text)), rule()).hint(hint))
        };
        let Some(interval) = read(duration) else {
            return refused(
                "has no duration",
                "Write \"every 90 seconds\" or \"every PT1H\".",
            );
        };
        match interval.fixed_micros() {
            None => refused(
                "has no fixed length",
                "Write it in days, such as \"every 30 days\", or as fields such as \"0 0 1 * *\" for the first of each month.",
            ),
            Some(duration) if duration < SHORTEST_MICROS => {
                refused("comes too often", "Write at least \"every 1 second\".")
            }
            Some(duration) if duration > LONGEST_MICROS => Err(Invalid::new(
                "cron",
                format!("cron {} comes too seldom", quoted(text)),
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
