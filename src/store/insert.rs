//! New jobs: the row of `job`, the row of `ready` or `scheduled`, and, for a key that
//! nobody holds, the claim.

use jobs_core::state::State;
use pgrx::pg_sys::Oid;

use super::direct::{self, shapes};
use super::job::{NewJob, job, row};
use super::spi::{Arg, Plan, big, plans, text};
use super::types::*;
use super::{bounds, claims, effects};
use crate::error::Result;
use crate::pg::memory::Scratch;
use crate::pg::name;

/// Takes an id; later ones are higher.
pub fn id() -> i64 {
    name::next_value(&shapes::JOB_SEQ)
}

/// Inserts one job, if its queue has room for it; its id.
pub fn one(job: &NewJob) -> Result<i64> {
    bounds::admit(std::iter::once(job))?;
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
    bounds::admit(jobs.iter().map(|(_, job)| *job))?;
    write(jobs);
    Ok(())
}

fn write(jobs: &[(i64, &NewJob)]) {
    direct::insert::many(jobs).unwrap_or_else(|| many_by_statement(jobs));
    effects::inserted(jobs);
}

/// Inserts one unique job together with its claim, if nobody has that key and its queue has room
/// for it; its id.
pub fn one_claiming(job: &NewJob) -> Result<Option<i64>> {
    bounds::admit(std::iter::once(job))?;
    let id = id();
    let is_first =
        direct::insert::one_claiming(id, job).unwrap_or_else(|| one_claiming_by_statement(id, job));
    Ok(is_first.then(|| {
        effects::inserted(&[(id, job)]);
        id
    }))
}

fn one_claiming_by_statement(id: i64, job: &NewJob) -> bool {
    claims::despite_rebuilt_index(|| {
        plan(job, [&CLAIMING_READY, &CLAIMING_SCHEDULED]).execute(&args(id, job)) > 0
    })
}

fn many_by_statement(jobs: &[(i64, &NewJob)]) {
    let scratch = Scratch::new();
    for (id, job) in jobs {
        pgrx::check_for_interrupts!();
        scratch.within(|| plan(job, [&ONE_READY, &ONE_SCHEDULED]).execute(&args(*id, job)));
    }
}

/// Whether the job is put into `ready` or into `scheduled`.
fn plan<'a>(job: &NewJob, [ready, scheduled]: [&'a Plan; 2]) -> &'a Plan {
    match job.state {
        State::Available => ready,
        _ => scheduled,
    }
}

/// The parameters of all statements: the row of `job`, and what only a job that waits needs.
const COUNT: usize = job::COUNT + 2;
const DUE_AT: usize = job::COUNT + 1;
const STATE: usize = job::COUNT + 2;

const TYPES: [Oid; COUNT] = {
    let mut types = [AT; COUNT];
    types.split_at_mut(job::COUNT).0.copy_from_slice(job::TYPES);
    types[STATE - 1] = TEXT;
    types
};

fn args(id: i64, job: &NewJob) -> [Arg; COUNT] {
    let mut args = [None; COUNT];
    args[..job::COUNT].copy_from_slice(&row(job, id));
    args[DUE_AT - 1] = big(job.due_at());
    args[STATE - 1] = text(job.state.as_str());
    args
}

plans! {
    ONE_READY[&TYPES] => insert("", INTO_READY);
    ONE_SCHEDULED[&TYPES] => insert("", &into_scheduled());
    CLAIMING_READY[&TYPES] => insert(&claim(), INTO_READY);
    CLAIMING_SCHEDULED[&TYPES] => insert(&claim(), &into_scheduled());
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

const INTO_READY: &str =
    "INSERT INTO jobs.ready (seq, job_id, expires_at, attempt, priority, queue)
    SELECT id, id, expires_at, 0, priority, queue FROM j";

fn into_scheduled() -> String {
    format!(
        "INSERT INTO jobs.scheduled (job_id, due_at, expires_at, attempt, state, queue)
         SELECT id, ${DUE_AT}, expires_at, 0, ${STATE}::jobs.state, queue FROM j"
    )
}
