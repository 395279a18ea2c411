//! Cron's fields: which times of a clock they match.
//!
//! Times here are what a clock shows, whatever its time zone: in microseconds as if it were UTC.

use chrono::{DateTime, NaiveDateTime};
use croner::parser::{CronParser, Seconds, Year};

use super::field::{ALL, FIELDS, Fix, Refused};
use super::write;
use crate::Invalid;
use crate::error::quoted;

const MICROS_PER_SECOND: i64 = 1_000_000;
/// From 1970-01-01, where the calendar library counts time from, to 2000-01-01.
const UNIX_TO_POSTGRES_EPOCH: i64 = 946_684_800 * MICROS_PER_SECOND;

const HOURS_PER_DAY: usize = 24;

/// A schedule in cron's fields.
#[derive(Clone, Debug)]
pub(super) struct Cron(croner::Cron);

impl Cron {
    /// Reads the fields of the schedule `text`, and refuses those that no day ever matches.
    pub fn parse(fields: [&str; FIELDS.len()], text: &str) -> Result<Self, Invalid> {
        let numbers = match numbers(fields) {
            Ok(numbers) => numbers,
            Err((at, refused)) => {
                let invalid = refused.invalid.clone();
                return Err(match hint(fields, at, *refused) {
                    Some(hint) => invalid.hint(hint),
                    None => invalid,
                });
            }
        };
        let [_, _, day, _, weekday] = fields;
        // Cron's own rule for two day fields: a star anywhere in one is no restriction that the
        // other could be an alternative to.
        let both_days = day.contains(ALL) || weekday.contains(ALL);
        let cron = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .dom_and_dow(both_days)
            .build()
            .parse(&numbers)
            .map_err(|_| {
                Invalid::new(
                    "cron",
                    format!("cron {} is not a schedule", quoted(text)),
                    super::rule(),
                )
            })?;
        let cron = Self(cron);
        // The calendar repeats itself after 400 years, and the search takes longer.
        if cron.next(0).is_none() {
            return Err(Invalid::new(
                "cron",
                format!("cron {} never occurs", quoted(text)),
                "At least one of its months must have at least one of its days.",
            ));
        }
        Ok(cron)
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

/// The fields as the library takes them; or the place of the field that is refused, and why.
fn numbers(fields: [&str; FIELDS.len()]) -> Result<String, (usize, Box<Refused>)> {
    let text = fields.join(" ");
    let mut numbers = Vec::new();
    for (at, (field, given)) in FIELDS.iter().zip(fields).enumerate() {
        numbers.push(field.read(given, &text).map_err(|refused| (at, refused))?);
    }
    Ok(numbers.join(" "))
}

/// What to write instead of a refused item of the field at a place: a schedule that is taken.
fn hint(fields: [&str; FIELDS.len()], at: usize, refused: Refused) -> Option<String> {
    let written = match refused.fix {
        Fix::Hint(hint) => return Some(hint),
        Fix::Unknown => return None,
        Fix::Every(step) => match (at, fields) {
            (0, [_, ALL, ALL, ALL, ALL]) => return Some(write(&format!("every {step} minutes"))),
            (1, ["0", _, ALL, ALL, ALL]) => return Some(write(&format!("every {step} hours"))),
            _ => return None,
        },
        Fix::Schedule(schedule) => schedule,
        Fix::Item(item) => {
            let replaced = fields[at]
                .split(',')
                .map(|given| if given == refused.item { &item } else { given })
                .collect::<Vec<_>>()
                .join(",");
            let mut fields = fields;
            fields[at] = &replaced;
            fields.join(" ")
        }
    };
    let fields: Vec<_> = written.split(' ').collect();
    let is_taken = numbers(fields.try_into().ok()?).is_ok();
    is_taken.then(|| write(&written))
}

fn calendar(time: i64) -> Option<NaiveDateTime> {
    let time = time.checked_add(UNIX_TO_POSTGRES_EPOCH)?;
    DateTime::from_timestamp_micros(time).map(|time| time.naive_utc())
}

fn micros(time: NaiveDateTime) -> i64 {
    time.and_utc().timestamp_micros() - UNIX_TO_POSTGRES_EPOCH
}
