//! Checks that several functions share: what a value must be, and what is said when it is not.

use std::borrow::Cow;

use jobs_core::error::{quoted, shown};
use jobs_core::interval::{Interval, PARTS_RULE};
use jobs_core::retry::{self, Attempts};
use jobs_core::state::State;
use jobs_core::text::nfc;
use pgrx::pg_sys::{self, Datum};

use crate::cell;
use crate::error::{Error, Result};
use crate::pg::array::{self, Array};
use crate::pg::jsonb::{self, Jsonb};
use crate::pg::{extension, role, server, time, transaction};
use crate::settings;
use crate::store::queue::Queue;

/// How many jobs or queues one call may name.
const MOST_JOBS: usize = 10_000;
/// The longest kind or queue, in characters.
const LONGEST_NAME: usize = 127;
/// The longest address of a database, in characters.
const LONGEST_ADDRESS: usize = 1000;
/// The longest reason, in characters.
const LONGEST_REASON: usize = 2000;

pub fn writable() -> Result<()> {
    writable_if_retired()?;
    cell::keep_serving()
}

/// Also in a cell that is retired, for what says that it is.
pub fn writable_if_retired() -> Result<()> {
    primary()?;
    refuse_if(transaction::is_read_only(), || Error::read_only(false))
}

pub fn primary() -> Result<()> {
    refuse_if(server::is_standby(), || Error::read_only(true))
}

/// Refuses a role without the rights of the extension's owner, whatever it has been granted.
pub fn owner(operation: &str) -> Result<()> {
    let is_owner = extension::is_owned_by(role::current());
    refuse_if(!is_owner, || Error::not_owner(operation))
}

/// Refuses a database in which text is not UTF-8: keys are of UTF-8, and pgrx' strings are.
pub fn encoding() -> Result<()> {
    let error = || {
        Error::unsupported(
            "jobs requires a database with encoding UTF8",
            "Create the database with ENCODING 'UTF8' TEMPLATE template0.",
        )
    };
    refuse_if(!server::is_utf8(), error)
}

fn refuse_if(is_wrong: bool, error: impl FnOnce() -> Error) -> Result<()> {
    if is_wrong { Err(error()) } else { Ok(()) }
}

pub fn given<T>(parameter: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::null(parameter))
}

/// The name of a kind, queue, worker or periodic job, in Unicode normal form C: names that look the
/// same are the same.
pub fn name<'a>(parameter: &str, value: Option<&'a str>) -> Result<Cow<'a, str>> {
    named(parameter, parameter, parameter, given(parameter, value)?)
}

/// The names in a list, none of them null; `noun` is what has each.
pub fn names(parameter: &str, noun: &str, values: Array) -> Result<Vec<String>> {
    let values = texts(parameter, values)?;
    not_too_many(parameter, values.len())?;
    let what = format!("an element of {parameter}");
    let name = |value: String| Ok(named(parameter, &what, noun, &value)?.into_owned());
    values.into_iter().map(name).collect()
}

pub fn queue(name: Option<&str>) -> Result<Queue> {
    Ok(Queue::named(&self::name("queue", name)?))
}

pub fn queues(names: Option<Array>) -> Result<Vec<Queue>> {
    let names = self::names("queues", "queue", given("queues", names)?)?;
    Ok(names.iter().map(|name| Queue::named(name)).collect())
}

/// Where a database is found: whatever programs make of it.
pub fn address<'a>(parameter: &str, value: Option<&'a str>) -> Result<&'a str> {
    let value = given(parameter, value)?;
    let length = value.chars().count();
    let is_wrong = !(1..=LONGEST_ADDRESS).contains(&length) || value.chars().any(char::is_control);
    let rule = format!(
        "{parameter} must have 1 to {LONGEST_ADDRESS} characters and no control characters."
    );
    let message = || format!("{parameter} {} is not an address", quoted(value));
    refuse_if(is_wrong, || Error::invalid(parameter, message(), rule)).map(|()| value)
}

/// `what` is what it is called in messages.
fn named<'a>(parameter: &str, what: &str, noun: &str, value: &'a str) -> Result<Cow<'a, str>> {
    let value = nfc(value);
    let length = value.chars().count();
    let message = if length == 0 {
        format!("{what} must not be empty")
    } else if length > LONGEST_NAME {
        format!("{what} {} is too long: {length} characters", quoted(&value))
    } else if value.chars().any(char::is_control) {
        format!("{what} {:?} contains a control character", shown(&value))
    } else {
        return Ok(value);
    };
    let rule =
        format!("A {noun} must have 1 to {LONGEST_NAME} characters and no control characters.");
    Err(Error::invalid(parameter, message, rule))
}

pub fn priority(value: i32) -> Result<i16> {
    let rule = "priority must be between -32768 and 32767; lower numbers run first.";
    value.try_into().map_err(|_| Error::out_of_range("priority", value, rule))
}

pub fn max_attempts(value: i32) -> Result<i32> {
    let rule = "max_attempts must be at least 1; it includes the first attempt.";
    let error = || Error::invalid("max_attempts", format!("max_attempts {value} is too low"), rule);
    refuse_if(value < 1, error).map(|()| value)
}

/// How long an attempt may run; -1 second (normalised from any way to write it): no limit.
pub fn timeout(value: Interval) -> Result<Interval> {
    if value == Interval::of_micros(-1_000_000) {
        Ok(value)
    } else {
        positive("timeout", value).map_err(|error| error.hint("Use -1 second for no limit."))
    }
}

pub fn not_negative(parameter: &str, value: Interval) -> Result<Interval> {
    bounded(parameter, value, 0, "between 0 and")
}

pub fn positive(parameter: &str, value: Interval) -> Result<Interval> {
    bounded(parameter, value, 1, "longer than 0 and at most")
}

pub fn lease(value: Option<pgrx::datum::Interval>) -> Result<Option<Interval>> {
    let lease = value.map(|value| positive("lease", interval(value)));
    lease.transpose()
}

pub fn duration(parameter: &str, value: Option<pgrx::datum::Interval>) -> Result<Option<Interval>> {
    let duration = value.map(|value| not_negative(parameter, interval(value)));
    duration.transpose()
}

/// From now on, no duration may lead past the end of time: a job that could never be
/// fetched would be in the way of others.
const LONGEST_YEARS: i128 = 1000;
const MICROS_PER_DAY: i128 = 86_400_000_000;

fn bounded(parameter: &str, value: Interval, least: i128, rule: &str) -> Result<Interval> {
    let is_in_range =
        (least..=LONGEST_YEARS * 12 * 30 * MICROS_PER_DAY).contains(&value.approximate_micros());
    if is_in_range && value.fits_a_calendar() {
        return Ok(value);
    }
    let rule = match is_in_range {
        true => PARTS_RULE.to_string(),
        false => format!("{parameter} must be {rule} {LONGEST_YEARS} years."),
    };
    Err(Error::out_of_range(parameter, format!("{:?}", time::show(value)), rule))
}

pub fn finite(parameter: &str, value: i64) -> Result<i64> {
    if time::is_finite(value) {
        return Ok(value);
    }
    let sign = if value < 0 { "-" } else { "" };
    let rule = format!("{parameter} must be finite.");
    Err(Error::out_of_range(parameter, format!("{sign}infinity"), rule))
}

/// A pattern of LIKE for errors.
pub fn pattern(value: &str) -> Result<&str> {
    let backslashes = value.len() - value.trim_end_matches('\\').len();
    let error = || {
        Error::invalid(
            "error_like",
            format!("error_like {} ends with a backslash", quoted(value)),
            "error_like is a LIKE pattern, in which a backslash escapes the next character.",
        )
        .hint("Write two backslashes to match one.")
    };
    refuse_if(backslashes % 2 == 1, error).map(|()| value)
}

/// What every call that manages something begins with.
pub fn managing(reason: Option<&str>) -> Result<()> {
    writable()?;
    self::reason(reason).map(|_| ())
}

pub fn reason(value: Option<&str>) -> Result<Option<&str>> {
    let length = value.map_or(0, |reason| reason.chars().count());
    refuse_if(length > LONGEST_REASON, || {
        let reason = quoted(value.unwrap_or_default());
        let message = format!("reason {reason} is too long: {length} characters");
        let rule = format!("A reason must have at most {LONGEST_REASON} characters.");
        Error::invalid("reason", message, rule)
    })
    .map(|()| value)
}

/// Args and meta of one job.
pub fn args_and_meta(args: Option<Jsonb>, meta: Option<Jsonb>) -> Result<()> {
    not_too_long("args and meta", &[args, meta])
}

/// What is kept of a job or a worker: output, progress, ..
pub fn payload(part: &str, value: Option<Jsonb>) -> Result<Option<Jsonb>> {
    not_too_long(part, &[value]).map(|()| value)
}

fn not_too_long(part: &str, values: &[Option<Jsonb>]) -> Result<()> {
    let most = settings::max_payload();
    match jsonb::length_above(most, values) {
        Some(length) => Err(Error::too_long(part, length, most)),
        None => Ok(()),
    }
}

pub fn tags(tags: Option<&[String]>) -> Result<()> {
    let length = tags.unwrap_or_default().iter().map(|tag| tag.len() as u64).sum();
    let most = settings::max_payload();
    refuse_if(length > most, || Error::too_long("tags", length, most))
}

/// A JSON object; SQL null and JSON null both leave it out.
pub fn object(parameter: &str, value: Option<Jsonb>) -> Result<Option<Jsonb>> {
    match value.filter(|value| !value.is_null()) {
        Some(value) if !value.is_object() => {
            let rule = format!("{parameter} must be an object.");
            Err(wrong_type(parameter, parameter, value, rule))
        }
        value => Ok(value),
    }
}

/// What is said of a JSON value of another type than the rule has; `what` is what it is called.
pub fn wrong_type(parameter: &str, what: &str, value: Jsonb, rule: impl Into<String>) -> Error {
    let message = format!("{what} must not be {}", value.what());
    Error::invalid(parameter, message, rule)
}

/// A retry policy, as it was given, and what it says of `max_attempts`.
pub fn retry(value: Option<Jsonb>) -> Result<(Option<Jsonb>, Attempts)> {
    // A driver's JSON null is meant as left out, too.
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok((None, Attempts::Unsaid));
    };
    let policy = retry::parse(&value.to_value("retry")?, &time::read_interval)?;
    Ok((Some(value), policy.attempts))
}

/// `max_attempts`, as given beside a retry policy: one of them may say it.
pub fn attempts(max_attempts: Option<i32>, policy: Attempts) -> Result<Option<i32>> {
    let given = max_attempts.map(self::max_attempts).transpose()?;
    match (given, policy) {
        (Some(given), Attempts::Given(other)) if given != other => Err(Error::invalid(
            "max_attempts",
            format!("max_attempts {given} differs from retry.ojs.max_attempts {other}"),
            "Both set the job's number of attempts.",
        )
        .hint("Leave one of them out.")),
        (None, Attempts::Given(count)) => Ok(Some(count)),
        (given, _) => Ok(given),
    }
}

/// How many jobs one call may take.
pub fn max_jobs(value: Option<i32>) -> Result<usize> {
    count("max_jobs", value, MOST_JOBS, "")
}

/// How many jobs a fetch of up to so many is to get at least.
pub fn min_jobs(value: Option<i32>, max_jobs: usize) -> Result<usize> {
    count("min_jobs", value, max_jobs, "max_jobs, which is ")
}

fn count(parameter: &str, value: Option<i32>, most: usize, which: &str) -> Result<usize> {
    let value = given(parameter, value)?;
    let rule = || format!("{parameter} must be between 1 and {which}{most}.");
    let is_wrong = value < 1 || value as usize > most;
    refuse_if(is_wrong, || Error::out_of_range(parameter, value, rule())).map(|()| value as usize)
}

/// The strings of a text array, none of them null.
pub fn texts(parameter: &str, value: Array) -> Result<Vec<String>> {
    let elements = array::texts(value).into_iter();
    let text = |element: Option<String>| element.ok_or_else(|| Error::null_element(parameter));
    elements.map(text).collect()
}

/// The states of a jobs.state array, none of them null.
pub fn states(parameter: &str, value: Array) -> Result<Vec<State>> {
    let state = |label: Option<String>| {
        let label = label.ok_or_else(|| Error::null_element(parameter))?;
        // One may have been added to the type.
        State::from_str(&label).ok_or_else(|| {
            let message = format!("state {} of {parameter} is not known", quoted(&label));
            let states = State::ALL.map(State::as_str).join(", ");
            Error::invalid(parameter, message, format!("The states are {states}."))
        })
    };
    array::labels(value).into_iter().map(state).collect()
}

/// The numbers of a bigint array, none of them null.
pub fn bigs(parameter: &str, value: Option<Array>) -> Result<Vec<i64>> {
    let elements = array::elements(given(parameter, value)?, pg_sys::INT8OID).into_iter();
    let null = || Error::null_element(parameter);
    let big = |element: Option<Datum>| Ok(element.ok_or_else(null)?.value() as i64);
    elements.map(big).collect()
}

pub fn ids(value: Option<Array>) -> Result<Vec<i64>> {
    let ids = bigs("ids", value)?;
    not_too_many("ids", ids.len())?;
    Ok(ids)
}

pub fn not_too_many(parameter: &str, count: usize) -> Result<()> {
    let message = || format!("{parameter} has {count} elements");
    let rule = || format!("{parameter} must have at most {MOST_JOBS} elements.");
    refuse_if(count > MOST_JOBS, || Error::invalid(parameter, message(), rule()))
}

pub fn interval(value: pgrx::datum::Interval) -> Interval {
    Interval { months: value.months(), days: value.days(), micros: value.micros() }
}
