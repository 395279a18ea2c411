//! One of cron's fields.
//!
//! It is checked here, so that a refusal can say which field it is and what to write instead. The
//! library that finds the ticks takes more than this: names in any field, empty places in lists,
//! other extensions of cron. It gets to see numbers, `L`, `W` and `#` only.

use std::str::FromStr;

use crate::Invalid;
use crate::error::{nearest, quoted};

/// A field: what it is called and what stands in it.
pub(super) struct Field {
    name: &'static str,
    /// The lowest and the highest number.
    from: u16,
    to: u16,
    /// Names of the numbers from the lowest one on.
    names: &'static [&'static str],
    /// Whether it is one of the day fields.
    days: Days,
}

#[derive(Clone, Copy)]
enum Days {
    No,
    OfMonth,
    OfWeek,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The five fields in order.
pub(super) const FIELDS: [Field; 5] = [
    Field { name: "minute", from: 0, to: 59, names: &[], days: Days::No },
    Field { name: "hour", from: 0, to: 23, names: &[], days: Days::No },
    Field { name: "day of month", from: 1, to: 31, names: &[], days: Days::OfMonth },
    Field { name: "month", from: 1, to: 12, names: &MONTHS, days: Days::No },
    Field { name: "day of week", from: 0, to: 7, names: &WEEKDAYS, days: Days::OfWeek },
];

/// Every number.
pub(super) const ALL: &str = "*";

/// The last day of a month, and its last day from Monday to Friday.
const LAST: &str = "L";
const LAST_WORKDAY: &str = "LW";

/// What to write instead of an item that is refused, if anything can be said.
pub(super) enum Fix {
    /// This item.
    Item(String),
    /// This schedule.
    Schedule(String),
    /// `every` with this number of the field's unit, where the other fields allow it.
    Every(u16),
    /// Something else, as a sentence.
    Hint(String),
    /// Nothing.
    Unknown,
}

/// A refused item: where it is, what is wrong, and what to write.
pub(super) struct Refused {
    pub item: String,
    pub invalid: Invalid,
    pub fix: Fix,
}

impl Field {
    /// Reads the field's text in the schedule `whole`; in numbers, and [`ALL`] wherever that is in
    /// the list.
    pub fn read(&self, text: &str, whole: &str) -> Result<String, Box<Refused>> {
        let refused = |item: &str, fix| {
            Box::new(Refused { item: item.to_string(), invalid: self.refused(item, whole), fix })
        };
        let read = |item| self.item(item, whole).map_err(|fix| refused(item, fix));
        let items = text.split(',').map(read).collect::<Result<Vec<_>, _>>()?;
        let has = |wanted: &str| items.iter().any(|item| item == wanted);
        if has(LAST) && has(LAST_WORKDAY) {
            let hint = "L and LW cannot be in the same list.".to_string();
            return Err(refused(text, Fix::Hint(hint)));
        }
        Ok(if has(ALL) { ALL.to_string() } else { items.join(",") })
    }

    fn refused(&self, item: &str, whole: &str) -> Invalid {
        let Self { name, from, to, .. } = self;
        let names = match self.names {
            [first, .., last] => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        let more = match self.days {
            Days::OfMonth => {
                " L is the last day, 15W the day from Monday to Friday nearest to the 15th, LW the last one."
            }
            Days::OfWeek => " 5L is the last Friday of the month, 1#2 the second Monday.",
            Days::No => "",
        };
        Invalid::new(
            "cron",
            format!("{name} {} of cron {} is not valid", quoted(item), quoted(whole)),
            format!(
                "The {name} must be {from} to {to}{names}, a range (1-5), a step (*/2, 1-5/2), a list of these (1,3,7-9), or * for all.{more}"
            ),
        )
    }

    /// An element of the list; what to do about it where it is wrong.
    fn item(&self, item: &str, whole: &str) -> Result<String, Fix> {
        if let Some(day) = self.day_by_its_month(item)? {
            return Ok(day);
        }
        let (range, step) = match item.split_once('/') {
            None => (item, None),
            Some((range, step)) => (range, Some(step)),
        };
        let number = |word| match word {
            "?" => Err(Fix::Schedule(whole.replace('?', ALL))),
            word => self.number(word),
        };
        let numbers = match range.split_once('-') {
            None if range == ALL => ALL.to_string(),
            None => number(range)?.to_string(),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                // A week may also end with Sunday.
                let sunday = self.to == 7 && last == 0 && first > 0;
                let last = if sunday { 7 } else { last };
                if first > last {
                    let (highest, from) = (self.highest(), self.from);
                    return Err(match step {
                        None => Fix::Item(format!("{first}-{highest},{from}-{last}")),
                        Some(_) => Fix::Unknown,
                    });
                }
                format!("{first}-{last}")
            }
        };
        let Some(step) = step else {
            return Ok(numbers);
        };
        if numbers.bytes().all(|byte| byte.is_ascii_digit()) {
            let range = format!("{numbers}-{}/{step}", self.highest());
            return Err(Fix::Item(range));
        }
        let step = digits(step).ok_or(Fix::Unknown)?;
        match step {
            0 => Err(Fix::Unknown),
            step if step > self.highest() => Err(Fix::Every(step)),
            step => Ok(format!("{numbers}/{step}")),
        }
    }

    /// A day that depends on its month: `L`, `LW` and `15W` of the day of month, `5L` and `1#2` of
    /// the day of week.
    fn day_by_its_month(&self, item: &str) -> Result<Option<String>, Fix> {
        let upper = item.to_ascii_uppercase();
        let day = match self.days {
            Days::OfMonth if upper == LAST || upper == LAST_WORKDAY => upper,
            Days::OfMonth => match upper.strip_suffix('W') {
                Some(day) => format!("{}W", self.number(day)?),
                None => return Ok(None),
            },
            Days::OfWeek => match (upper.split_once('#'), upper.strip_suffix('L')) {
                (Some((day, nth @ ("1" | "2" | "3" | "4" | "5"))), _) => {
                    format!("{}#{nth}", self.number(day)? % 7)
                }
                (None, Some(day)) if !day.is_empty() => format!("{}L", self.number(day)? % 7),
                _ => return Ok(None),
            },
            Days::No => return Ok(None),
        };
        Ok(Some(day))
    }

    /// The number that a digit or a name stands for.
    fn number(&self, word: &str) -> Result<u16, Fix> {
        if let Some(number) = digits(word) {
            return match (self.from..=self.to).contains(&number) {
                true => Ok(number),
                false => Err(Fix::Unknown),
            };
        }
        match (self.from..).zip(self.names).find(|(_, name)| name.eq_ignore_ascii_case(word)) {
            Some((number, _)) => Ok(number),
            None => Err(match self.name_like(word) {
                Some(name) => Fix::Hint(format!("Did you mean \"{name}\"?")),
                None => Fix::Unknown,
            }),
        }
    }

    /// The name that a word is a misspelling of, or short for: `sunday`.
    fn name_like(&self, word: &str) -> Option<&'static str> {
        let lower = word.to_ascii_lowercase();
        let short = self.names.iter().find(|name| lower.starts_with(**name));
        short.copied().or_else(|| nearest(word, self.names))
    }

    /// The highest number that is no other name of the lowest.
    fn highest(&self) -> u16 {
        if self.to == 7 { 6 } else { self.to }
    }
}

/// A number in digits alone: no sign.
fn digits(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| u16::from_str(text).ok()).flatten()
}
