//! Cron's fields: which times of a clock they match.
//!
//! Times here are what a clock shows, whatever its time zone: in microseconds as if it were UTC.

use chrono::{DateTime, NaiveDateTime};
use croner::parser::{CronParser, Seconds, Year};

use super::field::{ALL, FIELDS};
use crate::Invalid;
use crate::error::quoted;

const MICROS_PER_SECOND: i64 = 1_000_000;
/// From 1970-01-01, where the calendar library counts time from, to 2000-01-01.
const UNIX_TO_POSTGRES_EPOCH: i64 = 946_684_800 * MICROS_PER_SECOND;

const HOURS_PER_DAY: usize = 24;
/// The most days that each month can have.
const LONGEST_MONTHS: [u16; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A schedule in cron's fields.
#[derive(Clone, Debug)]
pub(super) struct Cron(croner::Cron);

impl Cron {
    /// Reads the fields of the schedule `text`, and refuses those that no day ever matches.
    pub fn parse(fields: [&str; FIELDS.len()], text: &str) -> Result<Self, Invalid> {
        let mut numbers = Vec::new();
        for (field, given) in FIELDS.iter().zip(fields) {
            numbers.push(field.read(given, text)?);
        }
        let [_, _, day, _, weekday] = fields;
        // Cron's own rule for two day fields: a star anywhere in one is no restriction that the
        // other could be an alternative to.
        let both_days = day.contains(ALL) || weekday.contains(ALL);
        let cron = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .dom_and_dow(both_days)
            .build()
            .parse(&numbers.join(" "))
            .map_err(|_| {
                Invalid::new(
                    "cron",
                    format!("cron {} is not a schedule", quoted(text)),
                    super::rule(),
                )
            })?;

        let days = cron.pattern.days.values();
        let some_month_has_one = cron.pattern.months.values().into_iter().any(|month| {
            let last = LONGEST_MONTHS[usize::from(month) - 1];
            days.iter().any(|day| *day <= last)
        });
        if both_days && !some_month_has_one {
            return Err(Invalid::new(
                "cron",
                format!("cron {} never comes", quoted(text)),
                "At least one of its months has at least one of its days.",
            ));
        }
        Ok(Self(cron))
    }

    /// Whether it is for every hour of its days.
    pub fn is_every_hour(&self) -> bool {
        self.0.pattern.hours.values().len() == HOURS_PER_DAY
    }

    /// The first match after a time.
    pub fn next(&self, after: i64) -> Option<i64> {
        // Matches are whole minutes, so the fraction of a second can go.
        let time = self.0.find_next_occurrence(&calendar(after)?, false);
        time.ok().map(micros)
    }

    /// The latest match that is not after a time.
    pub fn previous_or_at(&self, at: i64) -> Option<i64> {
        let time = self.0.find_previous_occurrence(&calendar(at)?, true);
        time.ok().map(micros)
    }
}

fn calendar(time: i64) -> Option<NaiveDateTime> {
    let time = time.checked_add(UNIX_TO_POSTGRES_EPOCH)?;
    DateTime::from_timestamp_micros(time).map(|time| time.naive_utc())
}

fn micros(time: NaiveDateTime) -> i64 {
    time.and_utc().timestamp_micros() - UNIX_TO_POSTGRES_EPOCH
}
