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
use crate::store::config::options;

/// A type of options.
pub trait Given: Sized {
    type Parameter<'a>;

    /// From the parameter of this name.
    fn of(name: &str, given: Self::Parameter<'_>) -> Result<Self>;

    fn of_field(name: &str, value: Jsonb) -> Result<Self>;
}

macro_rules! given_as {
    ($($type:ty: $parameter:ty, $of:expr, $of_field:expr;)*) => {$(
        impl Given for $type {
            type Parameter<'a> = $parameter;

            fn of(name: &str, given: Self::Parameter<'_>) -> Result<$type> {
                $of(name, given)
            }

            fn of_field(name: &str, value: Jsonb) -> Result<$type> {
                $of_field(name, value)
            }
        }
    )*};
}
given_as! {
    Jsonb: Jsonb, |_, given| Ok(given), |_, value| Ok(value);
    String: &'a str, |_, given| Ok(nfc(given).into_owned()), |name, value| Ok(nfc(string(name, value)?).into_owned());
    i16: i32, |_, given| check::priority(given), |name, value| check::priority(whole(name, value)?);
    i32: i32, |_, given| Ok(given), whole;
    i64: TimestampWithTimeZone, |_, given| Ok(i64::from(given)), timestamp;
    Vec<String>: Array, check::texts, strings;
    Interval: pgrx::datum::Interval, |_, given| Ok(check::interval(given)), duration;
    bool: bool, |_, given| Ok(given), boolean;
}

macro_rules! as_parameters {
    ($($option:ident: $type:ty,)*) => {
        /// The parameters of which functions have some or all.
        #[allow(missing_docs)]
        #[derive(Default)]
        pub struct Parameters<'a> {
            $(pub $option: Option<<$type as Given>::Parameter<'a>>,)*
        }

        impl Parameters<'_> {
            pub fn options(self) -> Result<Options> {
                let Parameters { $($option,)* } = self;
                $(let $option = $option.map(|given| Given::of(stringify!($option), given));)*
                Ok(Options { $($option: $option.transpose()?,)* })
            }
        }

        /// The fields of an element: the parameters of `jobs.insert`.
        const FIELDS: &[&str] = &["kind", "args", $(stringify!($option)),*];

        fn read(name: &str, value: Jsonb, to: &mut Options) -> Result<()> {
            match name {
                $(stringify!($option) => to.$option = Some(Given::of_field(name, value)?),)*
                _ => return Err(Invalid::unknown("jobs", "field", name, FIELDS).into()),
            }
            Ok(())
        }
    };
}
options!(as_parameters);

/// The options that are parameters of these names.
macro_rules! given {
    ($($option:ident),*) => {{
        #[allow(clippy::needless_update)]
        let given = Parameters { $($option,)* ..Parameters::default() };
        given.options()
    }};
}
pub(super) use given;

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
    pub kind: String,
    pub options: Options,
}

impl Element {
    pub fn fields(element: Jsonb) -> Result<impl Iterator<Item = (&'static str, Jsonb)>> {
        let rule = "Each element must be an object with the parameters of jobs.insert.";
        fields("jobs", element, rule)
    }

    pub fn parse(element: Jsonb) -> Result<Element> {
        let mut kind = None;
        let mut options = Options::default();
        for (name, value) in Element::fields(element)? {
            match name {
                "args" => {}
                // JSON null is a value of args, and leaves every other field out.
                _ if value.is_null() && FIELDS.contains(&name) => {}
                "kind" => kind = Some(string(name, value)?),
                _ => read(name, value, &mut options)?,
            }
        }
        let kind = check::name("kind", kind)?.into_owned();
        Ok(Element { kind, options })
    }
}

fn wrong_type(field: &str, value: Jsonb, rule: &str) -> Error {
    check::wrong_type(field, field, value, format!("{field} must be {rule}."))
}

/// A string, as long as the document lives.
pub fn string(field: &str, value: Jsonb) -> Result<&'static str> {
    value.as_str().ok_or_else(|| wrong_type(field, value, "a string"))
}

/// A duration, which may be negative.
pub fn duration(field: &str, value: Jsonb) -> Result<Interval> {
    let value = value.to_value(field)?;
    Ok(interval::from_json(&value, field, &time::read_interval)?)
}

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
        Error::invalid(field, message, format!("{field} must be {kind}."))
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
                check::wrong_type(field, &what, element, format!("{field} must be {rule}."))
            })
        })
        .collect()
}

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
        let rule = format!("{field} must be a finite timestamp.");
        Error::invalid(field, message, rule).hint("Use ISO 8601, for example 2026-02-12T15:21:00Z.")
    })
}
