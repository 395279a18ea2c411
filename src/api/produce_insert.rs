//! `jobs.insert`, `jobs.insert_many`, `jobs.insert_batch`.

use std::collections::HashMap;

use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::parameters::{Element, Parameters, given};
use crate::check;
use crate::error::{Result, or_raise};
use crate::options::Checked;
use crate::pg::array::{self, Array};
use crate::pg::jsonb::Jsonb;
use crate::pg::memory::{self, Scratch};
use crate::pg::reply::{Cell, Record, Rows};
use crate::pg::role::{as_definer, called};
use crate::store::job::NewJob;
use crate::unique::{self, Candidate, Outcome};

#[pg_extern(sql = false)]
fn insert(
    kind: Option<&str>,
    args: Option<Jsonb>,
    unique_opts: Option<Jsonb>,
    queue: Option<&str>,
    priority: Option<i32>,
    scheduled_at: Option<TimestampWithTimeZone>,
    max_attempts: Option<i32>,
    tags: Option<Array>,
    meta: Option<Jsonb>,
    timeout: Option<pgrx::datum::Interval>,
    retry: Option<Jsonb>,
    expires_at: Option<TimestampWithTimeZone>,
    pending: Option<bool>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Record {
    let run = || {
        check::writable()?;
        let kind = &*check::name("kind", kind)?;
        let args = check::given("args", args)?;
        let given = given! {
            unique_opts, queue, priority, scheduled_at, max_attempts, tags, meta, timeout, retry,
            expires_at, pending
        };
        let candidate = given?.checked(kind)?.candidate(args)?;
        let outcome = unique::insert_one(&candidate)?;
        Ok(Record(row(0, &[candidate], &[outcome])))
    };
    or_raise(|| as_definer(called(fcinfo), run))
}

#[pg_extern(sql = false)]
fn insert_many(jobs: Option<Jsonb>, fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    or_raise(|| {
        check::writable()?;
        let (count, elements) = elements(jobs)?;
        Ok(insert_elements(count, elements.enumerate())?.rows(fcinfo))
    })
}

/// The elements of `jobs`, and how many.
pub(super) fn elements(jobs: Option<Jsonb>) -> Result<(usize, impl Iterator<Item = Jsonb>)> {
    let jobs = check::given("jobs", jobs)?;
    jobs.elements().ok_or_else(|| {
        let rule = "jobs must be an array with an object for each job.";
        check::wrong_type("jobs", "jobs", jobs, rule).hint("Use jobs.insert for a single job.")
    })
}

/// Inserts a job for each of these elements, which come with their indexes.
pub(super) fn insert_elements(
    count: usize,
    elements: impl Iterator<Item = (usize, Jsonb)>,
) -> Result<Inserted> {
    let mut parser = Parser::default();
    insert_all(count, elements, |element| parser.candidate(element))
}

#[pg_extern(sql = false)]
fn insert_batch(
    kind: Option<&str>,
    args: Option<Array>,
    unique_opts: Option<Jsonb>,
    queue: Option<&str>,
    priority: Option<i32>,
    scheduled_at: Option<TimestampWithTimeZone>,
    max_attempts: Option<i32>,
    tags: Option<Array>,
    meta: Option<Jsonb>,
    timeout: Option<pgrx::datum::Interval>,
    retry: Option<Jsonb>,
    expires_at: Option<TimestampWithTimeZone>,
    pending: Option<bool>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    or_raise(|| {
        check::writable()?;
        let kind = &*check::name("kind", kind)?;
        let elements = array::elements(check::given("args", args)?, pg_sys::JSONBOID);
        let given = given! {
            unique_opts, queue, priority, scheduled_at, max_attempts, tags, meta, timeout, retry,
            expires_at, pending
        };
        let checked = given?.checked(kind)?;
        let elements = elements.into_iter();
        let args = elements.map(|element| element.map(Jsonb::from_datum));
        let candidate = |args| checked.candidate(check::given("args", args)?);
        Ok(insert_all(args.len(), args.enumerate(), candidate)?.rows(fcinfo))
    })
}

/// Inserts a job for each element; an error names the element by its index, from 1. What it takes
/// to read one is freed before the next.
fn insert_all<T>(
    count: usize,
    elements: impl Iterator<Item = (usize, T)>,
    mut candidate: impl FnMut(T) -> Result<Candidate>,
) -> Result<Inserted> {
    let mut candidates = memory::room(count)?;
    let scratch = Scratch::new();
    for (index, element) in elements {
        pgrx::check_for_interrupts!();
        let candidate = scratch.within(|| candidate(element));
        candidates.push(candidate.map_err(|error| error.at(index + 1))?);
    }
    let outcomes = unique::insert_many(&candidates)?;
    Ok(Inserted { candidates, outcomes })
}

/// The outcome of each of many jobs.
pub(super) struct Inserted {
    candidates: Vec<Candidate>,
    outcomes: Vec<Outcome>,
}

impl Inserted {
    fn rows(&self, fcinfo: pg_sys::FunctionCallInfo) -> Rows {
        let mut rows = Rows::new(fcinfo);
        for index in 0..self.outcomes.len() {
            let mut cells = vec![Cell::Int(index as i32 + 1)];
            cells.extend(row(index, &self.candidates, &self.outcomes));
            rows.push(cells);
        }
        rows
    }
}

fn row(index: usize, candidates: &[Candidate], outcomes: &[Outcome]) -> Vec<Cell> {
    let new = |id: i64, job: &NewJob| {
        vec![
            Cell::Big(id),
            Cell::State(job.state),
            Cell::Bool(false),
            Cell::Null,
            Cell::Text(job.common.queue.name().to_string()),
            Cell::At(job.created_at),
            Cell::At(job.scheduled_at()),
        ]
    };
    let duplicate = || {
        let mut cells = vec![Cell::Null; 7];
        cells[2] = Cell::Bool(true);
        cells
    };
    match &outcomes[index] {
        Outcome::Inserted(id) => new(*id, &candidates[index].job),
        Outcome::Existing(holder) | Outcome::Updated(holder) => {
            let mut cells = duplicate();
            cells[0] = Cell::Big(holder.id);
            if let Some(job) = &holder.job {
                cells[1] = Cell::State(job.state);
                cells[4] = Cell::Text(job.queue.name().to_string());
                cells[5] = Cell::At(job.created_at);
                cells[6] = Cell::At(job.scheduled_at);
            }
            cells
        }
        Outcome::Replaced(replacement) => {
            let mut cells = new(replacement.id, &candidates[index].job);
            cells[1] = Cell::State(replacement.state);
            cells[3] = Cell::Big(replacement.replaced);
            cells[6] = Cell::At(replacement.scheduled_at);
            cells
        }
        Outcome::Earlier(earlier) => {
            let mut cells = row(*earlier, candidates, outcomes);
            cells[2] = Cell::Bool(true);
            cells
        }
        Outcome::Busy => duplicate(),
    }
}

/// Reads elements of `insert_many`. Mostly they differ in their args only: the others' fields are
/// then read and checked once.
#[derive(Default)]
struct Parser {
    /// Fields already read, by their whole content.
    known: HashMap<Vec<u8>, Checked>,
    fields: Vec<u8>,
}

impl Parser {
    /// Other elements than these each have fields of their own.
    const MOST: usize = 1000;

    fn candidate(&mut self, element: Jsonb) -> Result<Candidate> {
        let mut args = None;
        self.fields.clear();
        for (name, value) in Element::fields(element)? {
            if name == "args" {
                args = Some(value);
                continue;
            }
            let (kind, content) = value.identity();
            for part in [name.as_bytes(), content] {
                self.fields.extend_from_slice(&part.len().to_ne_bytes());
                self.fields.extend_from_slice(part);
            }
            self.fields.push(kind);
        }
        let args = args.unwrap_or_else(Jsonb::empty_object);
        if let Some(checked) = self.known.get(&self.fields) {
            return checked.candidate(args);
        }
        let element = Element::parse(element)?;
        let checked = element.options.checked(&element.kind)?;
        if self.known.len() >= Parser::MOST {
            self.known.clear();
        }
        let candidate = checked.candidate(args)?;
        self.known.insert(self.fields.clone(), checked);
        Ok(candidate)
    }
}
