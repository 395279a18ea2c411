//! The options of a job as callers give them: as parameters of a function, or as the fields of an
//! element of `jobs.insert_many`. However they come, `src/options.rs` checks them.

use std::str::FromStr;

use jobs_core::Invalid;
use jobs_core::canonical::{Event, Events};
use jobs_core::error::{quoted, shown};
use jobs_core::interval::{self, Interval};
use jobs_core::text::nfc;
use pgrx::datum::TimestampWithTimeZone;

use crate::check;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::pg::array::Array;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;

/// The parameters of which functions have some or all.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Parameters<'a> {
    pub unique_opts: Option<Jsonb>,
    pub queue: Option<&'a str>,
    pub priority: Option<i32>,
    pub scheduled_at: Option<TimestampWithTimeZone>,
    pub max_attempts: Option<i32>,
    pub tags: Option<Array>,
    pub meta: Option<Jsonb>,
    pub timeout: Option<pgrx::datum::Interval>,
    pub retry: Option<Jsonb>,
    pub expires_at: Option<TimestampWithTimeZone>,
    pub pending: Option<bool>,
}

impl Parameters<'_> {
    /// Reads them.
    pub fn options(self) -> Result<Options> {
        Ok(Options {
            unique: self.unique_opts,
            queue: self.queue.map(|queue| nfc(queue).into_owned()),
            priority: self.priority.map(check::priority).transpose()?,
            scheduled_at: self.scheduled_at.map(i64::from),
            max_attempts: self.max_attempts,
            tags: self
                .tags
                .map(|tags| check::texts("tags", tags))
                .transpose()?,
            meta: self.meta,
            timeout: self.timeout.map(check::interval),
            retry: self.retry,
            expires_at: self.expires_at.map(i64::from),
            pending: self.pending.unwrap_or(false),
        })
    }
}

/// The fields of an element of a JSON array that is a parameter, as they are.
pub fn fields(
    parameter: &str,
    element: Jsonb,
    rule: &str,
) -> Result<impl Iterator<Item = (&'static str, Jsonb)>> {
    element.members().ok_or_else(|| {
        let what = format!("an element of {parameter}");
        check::wrong_type(parameter, &what, element, rule)
    })
}

/// One element of `insert_many`, but for its args.
pub struct Element {
    /// what to do
    pub kind: String,
    /// the rest
    pub options: Options,
}

impl Element {
    /// The fields of an element: the parameters of `jobs.insert`.
    const FIELDS: [&'static str; 13] = [
        "kind",
        "args",
        "unique_opts",
        "queue",
        "priority",
        "scheduled_at",
        "max_attempts",
        "tags",
        "meta",
        "timeout",
        "retry",
        "expires_at",
        "pending",
    ];

    /// Its fields, as they are.
    pub fn fields(element: Jsonb) -> Result<impl Iterator<Item = (&'static str, Jsonb)>> {
        let rule = "Each element is an object with the parameters of jobs.insert.";
        fields("jobs", element, rule)
    }

    /// Reads its fields.
    pub fn parse(element: Jsonb) -> Result<Element> {
        let mut kind = None;
        let mut options = Options::default();
        for (name, value) in Element::fields(element)? {
            match name {
                "args" => {}
                // JSON null is a value of args, and leaves every other field out.
                _ if value.is_null() && Self::FIELDS.contains(&name) => {}
                "kind" => kind = Some(string(name, value)?),
                "unique_opts" => options.unique = Some(value),
                "queue" => options.queue = Some(nfc(string(name, value)?).into_owned()),
                "priority" => options.priority = Some(check::priority(whole(name, value)?)?),
                "scheduled_at" => options.scheduled_at = Some(timestamp(name, value)?),
                "max_attempts" => options.max_attempts = Some(whole(name, value)?),
                "tags" => options.tags = Some(strings(name, value)?),
                "meta" => options.meta = Some(value),
                "timeout" => options.timeout = Some(duration(name, value)?),
                "retry" => options.retry = Some(value),
                "expires_at" => options.expires_at = Some(timestamp(name, value)?),
                "pending" => options.pending = boolean(name, value)?,
                _ => return Err(Invalid::unknown("jobs", "field", name, &Self::FIELDS).into()),
            }
        }
        let kind = check::name("kind", kind)?.into_owned();
        Ok(Element { kind, options })
    }
}

fn wrong_type(field: &str, value: Jsonb, rule: &str) -> Error {
    check::wrong_type(field, field, value, format!("{field} is {rule}."))
}

/// A string, as long as the document lives.
pub fn string(field: &str, value: Jsonb) -> Result<&'static str> {
    value
        .as_str()
        .ok_or_else(|| wrong_type(field, value, "a string"))
}

/// A duration, which may be negative.
pub fn duration(field: &str, value: Jsonb) -> Result<Interval> {
    let value = value.to_value(field)?;
    Ok(interval::from_json(&value, field, &time::read_interval)?)
}

/// A whole number that fits its type.
pub fn whole<T: FromStr>(field: &str, value: Jsonb) -> Result<T> {
    let mut events = value.events();
    let Event::Number(digits) = events.next() else {
        return Err(wrong_type(field, value, "a whole number"));
    };
    // 5 and 5.0 are one JSON number.
    let whole: &str = match digits.split_once('.') {
        Some((whole, part)) if part.bytes().all(|digit| digit == b'0') => whole,
        _ => &digits,
    };
    whole.parse().map_err(|_| {
        let kind = format!("a whole number of {} bits", 8 * size_of::<T>());
        let message = format!("{field} {} is not {kind}", shown(&digits));
        Error::invalid(field, message, format!("{field} is {kind}."))
    })
}

fn strings(field: &str, value: Jsonb) -> Result<Vec<String>> {
    let rule = "an array of strings";
    let elements = value.elements();
    let (_, elements) = elements.ok_or_else(|| wrong_type(field, value, rule))?;
    elements
        .map(|element| {
            let text = element.as_str().map(str::to_string);
            text.ok_or_else(|| {
                let what = format!("an element of {field}");
                check::wrong_type(field, &what, element, format!("{field} is {rule}."))
            })
        })
        .collect()
}

/// True or false.
pub fn boolean(field: &str, value: Jsonb) -> Result<bool> {
    match value.events().next() {
        Event::Bool(flag) => Ok(flag),
        _ => Err(wrong_type(field, value, "true or false")),
    }
}

fn timestamp(field: &str, value: Jsonb) -> Result<i64> {
    let text = value.as_str();
    let text = text.ok_or_else(|| wrong_type(field, value, "a timestamp as a string"))?;
    time::read_timestamp(text).ok_or_else(|| {
        let message = format!("{field} {} is not a timestamp", quoted(text));
        let rule = format!("{field} is a finite time as Postgres reads it.");
        Error::invalid(field, message, rule).hint("Use ISO 8601, for example 2026-02-12T15:21:00Z.")
    })
}
