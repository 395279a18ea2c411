//! New jobs: the row of `job`, the row of `ready` or `scheduled`, and, for a free
//! key, the claim.

use std::rc::Rc;

use jobs_core::state::State;
use pgrx::pg_sys::Oid;

use super::direct::{self, shapes};
use super::held::OnInsert;
use super::job::{NewJob, job, row};
use super::spi::{Arg, Plan, big, plans, text};
use super::types::*;
use super::{bounds, cells, claims, effects};
use crate::error::{Error, Result};
use crate::pg::memory::Scratch;
use crate::pg::name;

/// Takes an id; later ones are higher.
pub fn id() -> i64 {
    name::next_value(&shapes::JOB_SEQ)
}

/// Inserts one job, if its queue has room for it; its id.
pub fn one(job: &NewJob) -> Result<i64> {
    admit(std::iter::once(job))?;
    let id = id();
    write(&[(id, job)]);
    Ok(id)
}

/// Inserts jobs under ids that were taken for them, if their queues have room for all.
pub fn many(jobs: &[(i64, &NewJob)]) -> Result<()> {
    // A batch of nothing but duplicates takes no lock of the tables.
    if jobs.is_empty() {
        return Ok(());
    }
    admit(jobs.iter().map(|(_, job)| *job))?;
    write(jobs);
    Ok(())
}

/// Refuses jobs if it has changed since where they live, or if their queues have no room for all.
fn admit<'a>(jobs: impl Iterator<Item = &'a NewJob> + Clone) -> Result<()> {
    cells::keep_law();
    let mut judged = None;
    for job in jobs.clone() {
        let common = Rc::as_ptr(&job.common);
        if judged.replace(common) != Some(common)
            && cells::law(job.common.queue.name()) != job.common.law
        {
            return Err(Error::moved_cells());
        }
    }
    bounds::admit(jobs)
}

fn write(jobs: &[(i64, &NewJob)]) {
    let held = OnInsert::of(jobs);
    direct::insert::many(jobs, &held).unwrap_or_else(|| many_by_statement(jobs, &held));
    held.hold(jobs);
    effects::inserted(jobs, &held);
}

/// Inserts one unique job together with its claim, if that key is free and its queue has room
/// for it; its id.
pub fn one_claiming(job: &NewJob) -> Result<Option<i64>> {
    admit(std::iter::once(job))?;
    let id = id();
    let jobs = &[(id, job)];
    let held = OnInsert::of(jobs);
    let is_first = direct::insert::one_claiming(id, job, &held)
        .unwrap_or_else(|| one_claiming_by_statement(id, job, &held));
    Ok(is_first.then(|| {
        held.hold(jobs);
        effects::inserted(jobs, &held);
        id
    }))
}

fn one_claiming_by_statement(id: i64, job: &NewJob, held: &OnInsert) -> bool {
    let plans = [&CLAIMING_READY, &CLAIMING_LIMITED, &CLAIMING_SCHEDULED, &CLAIMING_HELD];
    claims::despite_rebuilt_index(|| plan(job, held, 0, plans).execute(&args(id, job, held, 0)) > 0)
}

fn many_by_statement(jobs: &[(i64, &NewJob)], held: &OnInsert) {
    let scratch = Scratch::new();
    for (n, (id, job)) in jobs.iter().enumerate() {
        pgrx::check_for_interrupts!();
        let plan = plan(job, held, n, [&ONE_READY, &ONE_LIMITED, &ONE_SCHEDULED, &ONE_HELD]);
        scratch.within(|| plan.execute(&args(*id, job, held, n)));
    }
}

/// Whether the job is put into `ready` or `scheduled`, or is held.
fn plan<'a>(
    job: &NewJob,
    held: &OnInsert,
    n: usize,
    [ready, limited, scheduled, alone]: [&'a Plan; 4],
) -> &'a Plan {
    match job.state {
        State::Available if held.is_held(n) => alone,
        State::Available if held.gate(n).is_some() => limited,
        State::Available => ready,
        _ => scheduled,
    }
}

/// The parameters of all statements: the row of `job`, and what only a job that waits needs.
const COUNT: usize = job::COUNT + 4;
const DUE_AT: usize = job::COUNT + 1;
const STATE: usize = job::COUNT + 2;
const GATE: usize = job::COUNT + 3;
const SEQ: usize = job::COUNT + 4;

const TYPES: [Oid; COUNT] = {
    let mut types = [AT; COUNT];
    types.split_at_mut(job::COUNT).0.copy_from_slice(job::TYPES);
    types[STATE - 1] = TEXT;
    types[GATE - 1] = INT8;
    types[SEQ - 1] = INT8;
    types
};

fn args(id: i64, job: &NewJob, held: &OnInsert, n: usize) -> [Arg; COUNT] {
    let mut args = [None; COUNT];
    args[..job::COUNT].copy_from_slice(&row(job, id));
    args[DUE_AT - 1] = big(job.due_at());
    args[STATE - 1] = text(job.state.as_str());
    args[GATE - 1] = held.gate(n).and_then(big);
    args[SEQ - 1] = big(held.seq(n, id));
    args
}

plans! {
    ONE_READY[&TYPES] => insert("", &into_ready("", ""));
    ONE_LIMITED[&TYPES] => insert("", &limited());
    ONE_SCHEDULED[&TYPES] => insert("", &into_scheduled());
    ONE_HELD[&TYPES] => insert("", ALONE);
    CLAIMING_READY[&TYPES] => insert(&claim(), &into_ready("", ""));
    CLAIMING_LIMITED[&TYPES] => insert(&claim(), &limited());
    CLAIMING_SCHEDULED[&TYPES] => insert(&claim(), &into_scheduled());
    CLAIMING_HELD[&TYPES] => insert(&claim(), ALONE);
}

fn insert(claim: &str, into: &str) -> String {
    let (columns, values) = (job::list(), job::parameters());
    let from_claim = if claim.is_empty() { "" } else { "FROM c" };
    format!(
        "WITH {claim} j AS (INSERT INTO jobs.job ({columns}) SELECT {values} {from_claim}
                            RETURNING id, expires_at, priority, queue) {into}"
    )
}

// The claim comes first: if the key is taken, nothing else is written.
fn claim() -> String {
    let (id, key, hold) = (job::ID, job::UNIQUE_KEY, job::HOLD_ENDS_AT);
    format!(
        "c AS (INSERT INTO jobs.unique_claim (key, jobs, hold_ends_at)
               VALUES (${key}, ARRAY[${id}], CASE WHEN ${hold} IS NOT NULL THEN ARRAY[${hold}] END)
               ON CONFLICT (key) DO NOTHING RETURNING key),"
    )
}

fn into_ready(column: &str, value: &str) -> String {
    format!(
        "INSERT INTO jobs.ready (seq, job_id, expires_at, attempt, priority, queue{column})
         SELECT ${SEQ}, id, expires_at, 0, priority, queue{value} FROM j"
    )
}

// The previous version's table has no gate.
fn limited() -> String {
    into_ready(", gate", &format!(", ${GATE}::bigint"))
}

// The job's other row is written next.
const ALONE: &str = "SELECT FROM j";

fn into_scheduled() -> String {
    format!(
        "INSERT INTO jobs.scheduled (job_id, due_at, expires_at, attempt, state, queue)
         SELECT id, ${DUE_AT}, expires_at, 0, ${STATE}::jobs.state, queue FROM j"
    )
}
