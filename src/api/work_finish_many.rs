//! What a worker says of many jobs that it holds, in one call: never all or nothing.

use std::time::{Duration, Instant};

use jobs_core::Invalid;
use jobs_core::error::quoted;
use pgrx::pg_sys::{self, Datum};
use pgrx::prelude::*;

use super::parameters::{boolean, duration, fields, string, whole};
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::fault::{self, Fault};
use crate::pg::array::{self, Array};
use crate::pg::jsonb::Jsonb;
use crate::pg::reply::{Cell, Rows};
use crate::pg::{memory, server, time};
use crate::store::finish::{self, Wait};
use crate::store::place::{self, Place};
use crate::transition::attempt::{self, By, Ending, Failure, Finishing, Outcome};

/// How long results of [`finish_many`] wait for others to let go of their jobs, all together: the
/// leases of the other jobs continue, but their deadlines come nearer. At most half of a
/// `statement_timeout`, which would undo the whole call.
const PATIENCE: Duration = Duration::from_secs(1);

#[pg_extern(sql = false)]
fn complete_many(
    ids: Option<Array>,
    tokens: Option<Array>,
    outputs: Option<Array>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    or_raise(|| {
        let pairs = pairs(ids, tokens)?;
        let outputs = jsonbs(["outputs", "output", "an output or null"], outputs, pairs.len())?;
        let said = pairs
            .iter()
            .enumerate()
            .map(|(n, &(id, token))| Finishing {
                id,
                token,
                ending: Ending::Complete(outputs.get(n).copied().flatten()),
            })
            .collect::<Vec<_>>();
        end_all(&said, Wait::ForAll, fcinfo, |_, said, outcome| {
            let (state, done) = match outcome {
                Outcome::Ended(became) => (Some(became.state), true),
                // What has become of the job since.
                Outcome::Before(_) => (place::locate(said.id).map(|place| place.state), true),
                Outcome::Stale { place, .. } | Outcome::Locked { place } => {
                    (place.map(|place| place.state), false)
                }
            };
            vec![Cell::Big(said.id), state.into(), Cell::Bool(done)]
        })
    })
}

#[pg_extern(sql = false)]
fn fail_many(
    ids: Option<Array>,
    tokens: Option<Array>,
    errors: Option<Array>,
    details: Option<Array>,
    retry_in: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    or_raise(|| {
        let pairs = pairs(ids, tokens)?;
        let errors = check::texts("errors", check::given("errors", errors)?)?;
        same_length("errors", "an error", errors.len(), pairs.len())?;
        let details = jsonbs(["details", "details", "details or null"], details, pairs.len())?;
        let retry_in = check::duration("retry_in", retry_in)?;
        let said = pairs
            .iter()
            .zip(&errors)
            .enumerate()
            .map(|(n, (&(id, token), error))| Finishing {
                id,
                token,
                ending: Ending::Fail(Failure {
                    error,
                    details: details.get(n).copied().flatten(),
                    retry_in,
                    retryable: true,
                    by: By::Worker,
                }),
            })
            .collect::<Vec<_>>();
        end_all(&said, Wait::ForAll, fcinfo, |_, said, outcome| {
            let [state, scheduled_at, done, _] = cells_of(outcome);
            vec![Cell::Big(said.id), state, scheduled_at, done]
        })
    })
}

#[pg_extern(sql = false)]
fn finish_many(results: Option<Jsonb>, fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    or_raise(|| {
        check::writable()?;
        let results = check::given("results", results)?;
        let (count, elements) = results.elements().ok_or_else(|| {
            let rule = "results must be an array with an object for each job.";
            check::wrong_type("results", "results", results, rule)
        })?;
        check::not_too_many("results", count)?;
        let mut said = memory::room(count)?;
        for (index, element) in elements.enumerate() {
            said.push(read(element).map_err(|error| error.at(index + 1))?);
        }
        let patience = match fault::is_on(Fault::Patient) {
            true => PATIENCE * 3600,
            false => PATIENCE,
        };
        let patience = server::statement_timeout().map_or(patience, |all| patience.min(all / 2));
        let wait = Wait::Until(Instant::now() + patience);
        end_all(&said, wait, fcinfo, |n, said, outcome| {
            let mut cells = vec![Cell::Int(n as i32 + 1), Cell::Big(said.id)];
            cells.extend(cells_of(outcome));
            cells
        })
    })
}

#[pg_extern(sql = false)]
fn heartbeat_many(
    ids: Option<Array>,
    tokens: Option<Array>,
    lease: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    or_raise(|| {
        let pairs = pairs(ids, tokens)?;
        let lease = check::lease(lease)?;
        let distinct = pairs.iter().copied().collect();
        let told = finish::heartbeats(&distinct, time::now(), lease, None);
        let mut rows = Rows::new(fcinfo);
        for pair in pairs {
            let mut cells = vec![Cell::Big(pair.0), Cell::Null, Cell::Null, Cell::Null];
            if let Some(lease) = told.get(&pair) {
                cells[1] = Cell::At(lease.expires_at);
                cells[2] = lease.deadline_at.map_or(Cell::Null, Cell::At);
                cells[3] = Cell::Bool(lease.cancel_requested);
            }
            rows.push(cells);
        }
        Ok(rows)
    })
}

/// Ends attempts; a row for each, by its number from 0.
fn end_all(
    said: &[Finishing],
    wait: Wait,
    fcinfo: pg_sys::FunctionCallInfo,
    row: impl Fn(usize, &Finishing, Outcome) -> Vec<Cell>,
) -> Result<Rows> {
    let mut rows = Rows::new(fcinfo);
    for (n, (said, outcome)) in said.iter().zip(attempt::end_each(said, wait)).enumerate() {
        rows.push(row(n, said, outcome));
    }
    Ok(rows)
}

/// Of an attempt that was to end: the job's state, when it can run again, whether this call has
/// ended it, now or before, and why not.
fn cells_of(outcome: Outcome) -> [Cell; 4] {
    match outcome {
        Outcome::Ended(became) | Outcome::Before(became) => [
            Cell::State(became.state),
            became.scheduled_at.map_or(Cell::Null, Cell::At),
            Cell::Bool(true),
            Cell::Null,
        ],
        Outcome::Stale { used, place } => {
            let reason = match (&used, &place) {
                (Some(_), _) => "already_finished",
                (None, Some(_)) => "lease_lost",
                (None, None) => "unknown",
            };
            not_done(place, reason)
        }
        Outcome::Locked { place } => not_done(place, "locked"),
    }
}

fn not_done(place: Option<Place>, reason: &str) -> [Cell; 4] {
    let state = place.map(|place| place.state);
    let reason = Cell::Text(reason.into());
    [state.into(), Cell::Null, Cell::Bool(false), reason]
}

/// What every call for many jobs begins with: their ids and tokens.
fn pairs(ids: Option<Array>, tokens: Option<Array>) -> Result<Vec<(i64, i64)>> {
    check::writable()?;
    let ids = check::ids(ids)?;
    let tokens = check::bigs("tokens", tokens)?;
    same_length("tokens", "a token", tokens.len(), ids.len())?;
    Ok(ids.into_iter().zip(tokens).collect())
}

/// The elements of a jsonb array that may be null, as may be the array, which is as long as `ids`;
/// of a null one none. Named are the array, an element, and what is for each id.
fn jsonbs(
    [parameter, part, what]: [&str; 3],
    array: Option<Array>,
    ids: usize,
) -> Result<Vec<Option<Jsonb>>> {
    let Some(array) = array else {
        return Ok(Vec::new());
    };
    let elements = array::elements(array, pg_sys::JSONBOID);
    same_length(parameter, what, elements.len(), ids)?;
    let value = |(n, element): (usize, Option<Datum>)| {
        let value = check::payload(part, element.map(Jsonb::from_datum));
        value.map_err(|error| error.at(n + 1))
    };
    elements.into_iter().enumerate().map(value).collect()
}

/// Refuses an array that is not as long as `ids`; `what` is what it has for each of them.
fn same_length(parameter: &str, what: &str, length: usize, ids: usize) -> Result<()> {
    if length == ids {
        return Ok(());
    }
    // Of two that must be there either may be wrong.
    let about = match parameter {
        "tokens" => "ids",
        other => other,
    };
    Err(Error::invalid(
        about,
        format!("ids has {ids} elements, but {parameter} has {length}"),
        format!("ids and {parameter} must have the same length: {what} for each id."),
    ))
}

/// What each call that ends an attempt has beside id and token.
const CALLS: [(&str, &[&str]); 5] = [
    ("complete", &["output"]),
    ("fail", &["error", "details", "retry_in", "retryable"]),
    ("snooze", &["delay"]),
    ("release", &[]),
    ("cancel", &["reason"]),
];

fn read(element: Jsonb) -> Result<Finishing<'static>> {
    const FIELDS: [&str; 10] = [
        "id",
        "token",
        "do",
        "output",
        "error",
        "details",
        "retry_in",
        "retryable",
        "delay",
        "reason",
    ];
    pgrx::check_for_interrupts!();
    let mut values = [None; FIELDS.len()];
    let rule = "Each element must be an object with id, token, do, and what that call takes.";
    for (name, value) in fields("results", element, rule)? {
        let Some(n) = FIELDS.iter().position(|field| *field == name) else {
            return Err(Invalid::unknown("results", "field", name, &FIELDS).into());
        };
        // JSON null is a value of an output, and leaves every other field out.
        values[n] = Some(value).filter(|value| name == "output" || !value.is_null());
    }
    let [id, token, call, output, error, details, retry_in, retryable, delay, reason] = values;
    let call = check::given("do", call.map(|call| string("do", call)).transpose()?)?;
    let takes = takes(call)?;
    for (name, value) in FIELDS[3..].iter().zip(&values[3..]) {
        if value.is_some() && !takes.contains(name) {
            return Err(misplaced(name, call, takes));
        }
    }
    let number = |name, value: Option<Jsonb>| {
        let number = value.map(|value| whole(name, value)).transpose()?;
        check::given(name, number)
    };
    let (id, token) = (number("id", id)?, number("token", token)?);
    let span = |name, value: Option<Jsonb>| {
        let read = |value| check::not_negative(name, duration(name, value)?);
        value.map(read).transpose()
    };
    let ending = match call {
        "complete" => Ending::Complete(check::payload("output", output)?),
        "fail" => Ending::Fail(Failure {
            error: check::given("error", error.map(|error| string("error", error)).transpose()?)?,
            details: check::payload("details", details)?,
            retry_in: span("retry_in", retry_in)?,
            retryable: retryable.map_or(Ok(true), |flag| boolean("retryable", flag))?,
            by: By::Worker,
        }),
        "snooze" => Ending::Snooze(check::given("delay", span("delay", delay)?)?),
        "cancel" => {
            let reason = reason.map(|reason| string("reason", reason)).transpose()?;
            Ending::Cancel(check::reason(reason)?)
        }
        _ => Ending::Release,
    };
    Ok(Finishing { id, token, ending })
}

/// What a call that ends an attempt has beside id and token.
fn takes(call: &str) -> Result<&'static [&'static str]> {
    if let Some((_, takes)) = CALLS.iter().find(|(known, _)| *known == call) {
        return Ok(takes);
    }
    let known = CALLS.map(|(known, _)| known);
    let rule = "do must be complete, fail, snooze, release or cancel.";
    let invalid = Invalid::new("do", format!("do {} is not known", quoted(call)), rule);
    Err(invalid.did_you_mean(call, &known).into())
}

/// Something that goes with another call.
fn misplaced(name: &str, call: &str, takes: &[&str]) -> Error {
    let rule = match takes {
        [] => format!("{call} takes only id, token and do."),
        _ => format!("{call} takes id, token, do, {}.", takes.join(", ")),
    };
    let message = format!("{name} cannot be used with do {}", quoted(call));
    Error::invalid(name, message, rule)
}
