//! One of cron's fields.
//!
//! It is checked here, so that a refusal can say which field it is and what to write instead. The
//! library that finds the ticks takes more than this: names in any field, empty places in lists,
//! extensions of cron that others read otherwise. It gets to see numbers only.

use std::str::FromStr;

use crate::Invalid;
use crate::error::{nearest, quoted, shown};

/// A field: what it is called and what stands in it.
pub(super) struct Field {
    name: &'static str,
    /// The lowest and the highest number.
    from: u16,
    to: u16,
    /// Names of the numbers from the lowest one on.
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const fn field(name: &'static str, from: u16, to: u16, names: &'static [&'static str]) -> Field {
    Field {
        name,
        from,
        to,
        names,
    }
}

/// The five fields in order.
pub(super) const FIELDS: [Field; 5] = [
    field("minute", 0, 59, &[]),
    field("hour", 0, 23, &[]),
    field("day of month", 1, 31, &[]),
    field("month", 1, 12, &MONTHS),
    field("day of week", 0, 7, &WEEKDAYS),
];

/// Every number.
pub(super) const ALL: &str = "*";

impl Field {
    /// Reads the field's text in the schedule `whole`; in numbers, and [`ALL`] wherever that is in
    /// the list.
    pub fn read(&self, text: &str, whole: &str) -> Result<String, Invalid> {
        let items = text
            .split(',')
            .map(|item| {
                self.item(item).map_err(|hint| {
                    let invalid = self.refused(item, whole);
                    match hint {
                        Some(hint) => invalid.hint(hint),
                        None => invalid,
                    }
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(if items.iter().any(|item| item == ALL) {
            ALL.to_string()
        } else {
            items.join(",")
        })
    }

    fn refused(&self, item: &str, whole: &str) -> Invalid {
        let Self { name, from, to, .. } = self;
        let names = match self.names {
            [first, .., last] => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        Invalid::new(
            "cron",
            format!(
                "{name} {} of cron {} is not valid",
                quoted(item),
                quoted(whole)
            ),
            format!(
                "The {name} is {from} to {to}{names}, a range (1-5), a step (*/2, 1-5/2), a list of these (1,3,7-9), or * for all."
            ),
        )
    }

    /// An element of the list; what to do about it, if anything can be said, where it is wrong.
    fn item(&self, item: &str) -> Result<String, Option<String>> {
        let (range, step) = match item.split_once('/') {
            None => (item, None),
            Some((range, step)) => (range, Some(step)),
        };
        let numbers = match range.split_once('-') {
            None if range == ALL => ALL.to_string(),
            None => self.number(range)?.to_string(),
            Some((first, last)) => {
                let (first, last) = (self.number(first)?, self.number(last)?);
                // A week may also end with Sunday.
                let sunday = self.to == 7 && last == 0 && first > 0;
                let last = if sunday { 7 } else { last };
                if first > last {
                    return Err(Some(
                        "A range goes upwards: write it as two, with a comma between.".to_string(),
                    ));
                }
                format!("{first}-{last}")
            }
        };
        let Some(step) = step else {
            return Ok(numbers);
        };
        if numbers.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Some(format!(
                "Write \"{numbers}-{}/{}\".",
                self.highest(),
                shown(step)
            )));
        }
        let step = digits(step).ok_or(None)?;
        if step == 0 || step > self.highest() {
            let hint = match self.name {
                "minute" if step > 0 => Some(format!("Write \"every {step} minutes\".")),
                "hour" if step > 0 => Some(format!("Write \"every {step} hours\".")),
                _ => None,
            };
            return Err(hint);
        }
        Ok(format!("{numbers}/{step}"))
    }

    /// The number that a digit or a name stands for.
    fn number(&self, word: &str) -> Result<u16, Option<String>> {
        if let Some(number) = digits(word) {
            return match (self.from..=self.to).contains(&number) {
                true => Ok(number),
                false => Err(None),
            };
        }
        match (self.from..)
            .zip(self.names)
            .find(|(_, name)| name.eq_ignore_ascii_case(word))
        {
            Some((number, _)) => Ok(number),
            None if word == "?" => Err(Some("Write \"*\".".to_string())),
            None => Err(self
                .name_like(word)
                .map(|name| format!("Did you mean \"{name}\"?"))),
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
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| u16::from_str(text).ok())
        .flatten()
}
