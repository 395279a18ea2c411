//! Schedules of periodic jobs: when their ticks are.
//!
//! A schedule is one of
//!
//! * five fields of cron: minute, hour, day of month, month, day of week. Each is `*`, a number, a
//!   range, a step over `*` or a range, or a list of these; months and days of the week have names,
//!   too, and Sunday is 0 or 7. The day of month also takes `L`, the last day, `15W`, the day from
//!   Monday to Friday nearest to the 15th in its month, and `LW`; the day of week `5L`, the last
//!   Friday, and `1#2`, the second Monday. Where both day fields are restricted, a day that either
//!   has will do; a field with `*` in it, `*/2` too, is not restricted in this sense, and then a
//!   day must be in both, as cron has it.
//! * `@hourly`, `@daily` or `@midnight`, `@weekly`, `@monthly`, `@yearly` or `@annually`.
//! * `every` and a duration of fixed length, such as `every 90 seconds`: the multiples of it since
//!   0001-01-01 00:00 UTC, as for [`crate::period`], so that they do not depend on when the
//!   schedule was made or looked at, nor on a time zone.
//!
//! # Changes of the clock
//!
//! Cron's fields say what a clock on the wall shows in some time zone. Where the clock is put
//! forward, it skips times, and where it is put back, it shows times twice. A schedule that says
//! which hours it means has each of its ticks once: a skipped one at the first moment after the
//! change, where several that were skipped are one; a repeated one the first time. A schedule of
//! every hour means the time that passes: it continues through a repeated hour, and nothing is made
//! up for a skipped one. So `30 2 * * *` is once a day, and `*/15 * * * *` every quarter of an
//! hour, whatever happens to the clock.

use crate::Invalid;
use crate::error::{nearest, quoted};
use crate::interval::ReadInterval;

mod cron;
mod every;
mod field;
mod wall_clock;
mod zone;
pub mod zone_name;

use cron::Cron;
use every::Every;
pub use zone::Zone;

/// When the ticks of a periodic job are.
#[derive(Clone, Debug)]
pub struct Schedule(Ticks);

#[derive(Clone, Debug)]
enum Ticks {
    Cron(Box<Cron>),
    Every(Every),
}

/// Schedules with a name, and what they are in cron's fields.
const NAMED: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

const EVERY: &str = "every";
/// No longer schedule is suggested.
const LONGEST_HINT: usize = 100;
const FIELDS: usize = field::FIELDS.len();

/// Reads a schedule; upper and lower case are the same. The duration after `every` goes through
/// `read`.
pub fn parse(text: &str, read: ReadInterval) -> Result<Schedule, Invalid> {
    let fields: Vec<_> = text.split_whitespace().collect();
    let ticks = match fields.as_slice() {
        [name] if name.starts_with('@') => Ticks::Cron(Box::new(named(name)?)),
        [every, ..] if every.eq_ignore_ascii_case(EVERY) => {
            Ticks::Every(Every::parse(text.trim()[EVERY.len()..].trim(), text, read)?)
        }
        fields => match <[&str; FIELDS]>::try_from(fields) {
            Ok(fields) => Ticks::Cron(Box::new(Cron::parse(fields, text)?)),
            Err(_) => return Err(no_schedule(text, fields, read)),
        },
    };
    Ok(Schedule(ticks))
}

fn named(name: &str) -> Result<Cron, Invalid> {
    match NAMED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, fields)) => {
            let fields: Vec<_> = fields.split(' ').collect();
            Cron::parse(fields.try_into().expect("they are five"), name)
        }
        None => {
            Err(Invalid::new("cron", format!("cron {} is not a schedule", quoted(name)), rule())
                .did_you_mean(name, &names()))
        }
    }
}

/// The refusal of what has none of the forms.
fn no_schedule(text: &str, fields: &[&str], read: ReadInterval) -> Invalid {
    let message = match fields.len() {
        0 => "cron must not be empty".to_string(),
        1 => format!("cron {} is not a schedule", quoted(text)),
        count => format!("cron {} has {count} fields instead of {FIELDS}", quoted(text)),
    };
    let invalid = Invalid::new("cron", message, rule());
    match fields {
        [] => invalid,
        [word] if nearest(word, &names()).is_some() => invalid.did_you_mean(word, &names()),
        _ => match hint(text.trim(), fields, read) {
            Some(hint) => invalid.hint(hint),
            None => invalid,
        },
    }
}

/// What to write instead: a schedule that is taken and means the same.
fn hint(text: &str, fields: &[&str], read: ReadInterval) -> Option<String> {
    let is_taken = |text: &str| text.len() <= LONGEST_HINT && parse(text, read).is_ok();
    if let Some((cron, zone)) = with_zone(fields).filter(|(cron, _)| is_taken(cron)) {
        return Some(format!("Write \"{cron}\" with time_zone => '{zone}'."));
    }
    let as_duration = every::in_units(text, read);
    if let Some(duration) = as_duration.filter(|duration| duration.months != 0) {
        return Some(every::of_months(duration));
    }
    let candidate = match fields {
        [every, duration @ ..] if every.eq_ignore_ascii_case("@every") => {
            format!("every {}", duration.join(" "))
        }
        _ if as_duration.is_some() => format!("every {text}"),
        [minutes] if minutes.starts_with("*/") => format!("{minutes} * * * *"),
        [_, _, _, _, _, _] | [_, _, _, _, _, _, _] => without_seconds(fields),
        _ => return None,
    };
    if is_taken(&candidate) {
        return Some(write(&candidate));
    }
    (fields.len() > FIELDS).then(|| {
        "Omit the fields for seconds and years. For more than once a minute, write \"every 10 seconds\".".to_string()
    })
}

/// The hint to write a schedule.
fn write(schedule: &str) -> String {
    format!("Write \"{schedule}\".")
}

/// The schedule and the time zone of text that has both, as `CRON_TZ=Europe/Berlin 0 9 * * *` or
/// `0 9 * * * Europe/Berlin`.
fn with_zone<'a>(fields: &[&'a str]) -> Option<(String, &'a str)> {
    let [first, middle @ .., last] = fields else {
        return None;
    };
    let is_zone = |text: &str| {
        let is_named = text.contains('/') || text.eq_ignore_ascii_case("UTC");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte);
        is_named
            && text.starts_with(|char: char| char.is_ascii_alphabetic())
            && text.bytes().all(is_plain)
    };
    let prefixed = first
        .split_once('=')
        .filter(|(name, _)| ["CRON_TZ", "TZ"].contains(&name.to_ascii_uppercase().as_str()))
        .map(|(_, zone)| (fields[1..].join(" "), zone));
    let behind = || ([&[*first], middle].concat().join(" "), *last);
    let found = prefixed.unwrap_or_else(behind);
    Some(found).filter(|(_, zone)| is_zone(zone))
}

/// Six or seven fields as a schedule without the seconds before them and the years behind them; or
/// empty.
fn without_seconds(fields: &[&str]) -> String {
    let days = |field: &&str| {
        if *field == "?" { "*".to_string() } else { (*field).to_string() }
    };
    match fields {
        [before @ .., "*" | "?"] if before.len() > FIELDS => without_seconds(before),
        // A question mark is for one of the days, and so says where they are.
        [_, _, "?", _, _, "*"] | [_, _, _, _, "?", "*"] => {
            let fields: Vec<_> = fields[..FIELDS].iter().map(days).collect();
            fields.join(" ")
        }
        ["*", "*", "*", "*", "*", "*"] => "every 1 second".to_string(),
        [seconds, "*", "*", "*", "*", "*"] if seconds.starts_with("*/") => {
            let step = seconds[2..].parse().unwrap_or(0);
            // Other steps begin anew with each minute.
            match (1..60).contains(&step) && 60 % step == 0 {
                true => format!("every {step} seconds"),
                false => String::new(),
            }
        }
        ["0" | "00", fields @ ..] if fields.len() == FIELDS => {
            let fields: Vec<_> = fields.iter().map(days).collect();
            fields.join(" ")
        }
        _ => String::new(),
    }
}

fn names() -> [&'static str; NAMED.len()] {
    NAMED.map(|(name, _)| name)
}

fn rule() -> String {
    format!(
        "A schedule must have five fields (minute, hour, day of month, month, day of week), or be one of {}, or be \"every\" and a duration.",
        names().join(", ")
    )
}

impl Schedule {
    /// Whether its ticks are multiples of a duration, in no time zone.
    pub fn is_every(&self) -> bool {
        matches!(self.0, Ticks::Every(_))
    }

    /// The first tick after a moment, both in microseconds since 2000-01-01 00:00 UTC. There is
    /// none where time ends; for the fields of cron, that is about the year 5000.
    pub fn next(&self, after: i64, zone: Zone) -> Option<i64> {
        match &self.0 {
            Ticks::Cron(cron) => wall_clock::next(cron, after, zone),
            Ticks::Every(every) => every.next(after),
        }
    }

    /// The latest tick that is not after a moment: of those that were missed, the only one that is
    /// made up for. There is none where time begins; for the fields of cron, that is the year 1.
    pub fn previous_or_at(&self, at: i64, zone: Zone) -> Option<i64> {
        match &self.0 {
            Ticks::Cron(cron) => wall_clock::previous_or_at(cron, at, zone),
            Ticks::Every(every) => every.previous_or_at(at),
        }
    }
}
