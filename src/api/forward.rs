//! Jobs of an outbox in another database, which `pgjobs forward` carries over.

use pgrx::datum::{TimestampWithTimeZone, Uuid};
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::produce_insert;
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::array::{self, Array};
use crate::pg::jsonb::Jsonb;
use crate::pg::time;
use crate::store::forwarded::{self, Outbox};

#[pg_extern(sql = false)]
fn forward(
    source: Option<Uuid>,
    keys: Option<Array>,
    jobs: Option<Jsonb>,
    deleted: Option<Array>,
) -> i64 {
    or_raise(|| {
        check::writable()?;
        let source = check::given("source", source)?;
        let keys = check::given("keys", keys)?;
        let count = elements("keys", keys)?;
        let (expected, jobs) = produce_insert::elements(jobs)?;
        if count != expected {
            let message = format!("keys and jobs differ in length: {count} and {expected}");
            return Err(Error::invalid("keys", message, "Each job must have a key."));
        }
        let now = time::now();
        if let Some(deleted) = deleted {
            elements("deleted", deleted)?;
            forwarded::deleted(source, deleted, now);
        }
        let new = forwarded::take(source, keys, count, now);
        let mut places = new.iter().map(|place| *place as usize - 1).peekable();
        let jobs = jobs.enumerate().filter(|(index, _)| places.next_if_eq(index).is_some());
        produce_insert::insert_elements(new.len(), jobs)?;
        Ok(new.len() as i64)
    })
}

/// How many keys there are, none of them null.
fn elements(parameter: &str, keys: Array) -> Result<usize> {
    let keys = array::elements(keys, pg_sys::UUIDOID);
    match keys.iter().all(Option::is_some) {
        true => Ok(keys.len()),
        false => Err(Error::null_element(parameter)),
    }
}

#[pg_extern(sql = false)]
fn forwarded_open(source: Option<Uuid>) -> SetOfIterator<'static, Uuid> {
    or_raise(|| {
        let source = check::given("source", source)?;
        Ok(SetOfIterator::new(forwarded::open(source)))
    })
}

#[pg_extern(sql = false)]
fn forward_report(
    source: Option<Uuid>,
    address: Option<&str>,
    waiting: Option<i64>,
    oldest_at: Option<TimestampWithTimeZone>,
    refused: Option<i64>,
) {
    or_raise(|| {
        check::writable()?;
        forwarded::report(&Outbox {
            source: check::given("source", source)?,
            address: check::address("address", address)?.to_string(),
            seen_at: time::now(),
            waiting: rows("waiting", waiting)?,
            oldest_at: oldest_at.map(|at| check::finite("oldest_at", at.into())).transpose()?,
            refused: rows("refused", refused)?,
        });
        Ok(())
    })
}

/// A number of rows.
fn rows(parameter: &str, value: Option<i64>) -> Result<i64> {
    let value = check::given(parameter, value)?;
    if value >= 0 {
        return Ok(value);
    }
    let message = format!("{parameter} {value} is negative");
    Err(Error::invalid(parameter, message, format!("{parameter} must be 0 or more.")))
}
