//! What must be true in every state.

use jobs_core::state::State as JobState;

use crate::database::{Database, FROZEN, Job, Note, Version, View};
use crate::explore::{Exploration, Protocol, maintained};
use crate::scenario::{Fault, Level, Op, Program, Scenario};
use crate::session::{Session, Step, Wait};
use crate::transaction::{State, Wrong};

/// What a worker does in a pass.
pub const MAINTENANCE: Program =
    &[(Level::ReadCommitted, &[Op::Prune]), (Level::ReadCommitted, &[Op::Claims])];

/// Whether a property is true in a state.
pub type Holds<P> = fn(&Exploration<P>, &<P as Protocol>::State) -> bool;

/// A property.
pub const NEVER_TWO: &str = "there are never two jobs that conflict";
/// A property.
pub const ANSWERS: &str = "every answer has its reason";
/// A property.
pub const ORDER: &str = "ids under a key are in the order of insertion";
/// A property.
pub const NOBODY_WAITS_FOR_EVER: &str = "nobody waits for ever";
/// A property.
pub const NO_JOB_IS_LOST: &str = "no job is lost to its claim";
/// A property.
pub const NO_CLAIM_WITHOUT_NEED: &str = "no claim stays without need for ever";
/// A property.
pub const NO_NOTE_OF_NO_USE: &str = "no note of no use stays for ever";
/// A property.
pub const SINGLES_WAIT_AT_THE_LOCK: &str =
    "single inserts wait for each other at the lock, before they write anything";

/// Each with its name.
pub const PROPERTIES: &[(&str, Holds<Scenario>)] = &[
    (NEVER_TWO, never_two),
    (ANSWERS, answers),
    (ORDER, |_, state| state.wrong != Some(Wrong::Order)),
    (NOBODY_WAITS_FOR_EVER, nobody_waits_for_ever),
    (NO_JOB_IS_LOST, no_job_is_lost),
    (NO_CLAIM_WITHOUT_NEED, no_claim_without_need),
    (NO_NOTE_OF_NO_USE, no_note_of_no_use),
    (SINGLES_WAIT_AT_THE_LOCK, singles_wait_at_the_lock),
];

/// What is committed.
fn committed(state: &State) -> View {
    View(state.database.committed)
}

/// No job is inserted while another one conflicts; and no two jobs that were never retried are
/// available under one key.
fn never_two(_: &Exploration<Scenario>, state: &State) -> bool {
    let view = committed(state);
    let jobs = state.database.jobs.iter().filter(|version| view.sees(version));
    let live = jobs
        .filter(|version| version.row.state == JobState::Available && !version.row.has_returned);
    let mut keys: Vec<_> = live.map(|version| version.row.key).collect();
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    keys.len() == all && state.wrong != Some(Wrong::Conflict)
}

fn answers(_: &Exploration<Scenario>, state: &State) -> bool {
    !matches!(state.wrong, Some(Wrong::Answer | Wrong::Busy))
}

/// Somebody can go on, if anybody is still there.
fn nobody_waits_for_ever(_: &Exploration<Scenario>, state: &State) -> bool {
    let mut left = state.sessions.iter().filter(|session| session.step != Step::Ended);
    match left.next() {
        None => true,
        Some(first) => first.wait.is_none() || left.any(|session| session.wait.is_none()),
    }
}

/// Every job that is committed is known to the claim of its key: it is in the list, or it was
/// folded; and if it is not final any more since then, that is noted.
fn no_job_is_lost(_: &Exploration<Scenario>, state: &State) -> bool {
    let view = committed(state);
    let database = &state.database;
    let is_known = |job: &Job| {
        let Some(at) = database.claim_seen(job.key, view) else {
            return false;
        };
        let is_noted = |version: &Version<Note>| match version.row {
            Note::Returned(_, id, _) => id == job.id && !job.state.is_final(),
            Note::Folded(_, id) => id == job.id && job.state.is_final(),
            Note::Orphaned(_) => false,
        };
        let mut notes = database.notes.iter().filter(|version| view.sees(version));
        database.claims[job.key.0 as usize][at].row.jobs.contains(&job.id) || notes.any(is_noted)
    };
    let mut jobs = database.jobs.iter().filter(|version| view.sees(version));
    jobs.all(|version| is_known(&version.row))
}

/// The state once everybody has ended and maintenance has nothing left to do.
fn at_rest(of: &Exploration<Scenario>, state: &State) -> Option<State> {
    let mut sessions = state.sessions.iter();
    let has_ended = |session: &Session| session.step == Step::Ended;
    sessions.all(has_ended).then(|| maintained(&of.scenario, state))
}

/// Then no claim is there that no job needs, and none is missing. And when the last jobs are
/// deleted, nothing is left at all.
fn no_claim_without_need(of: &Exploration<Scenario>, state: &State) -> bool {
    let Some(state) = at_rest(of, state) else {
        return true;
    };
    let database = &state.database;
    let claims_are_needed = (0..).zip(&database.claims).all(|(key, claims)| {
        let mut jobs = database.jobs.iter();
        claims.is_empty() || jobs.any(|job| job.row.key.0 == key)
    });
    claims_are_needed && no_job_is_lost(of, &state) && is_empty_without_jobs(&of.scenario, &state)
}

/// Then all notes name jobs that are there.
fn no_note_of_no_use(of: &Exploration<Scenario>, state: &State) -> bool {
    let Some(state) = at_rest(of, state) else {
        return true;
    };
    let database = &state.database;
    let exists = |id| database.jobs.iter().any(|job| job.row.id == id);
    let is_needed = |version: &Version<Note>| match version.row {
        Note::Folded(_, id) | Note::Returned(_, id, _) => exists(id),
        Note::Orphaned(_) => false,
    };
    database.notes.iter().all(is_needed)
}

fn is_empty_without_jobs(scenario: &Scenario, state: &State) -> bool {
    let mut state = state.clone();
    for job in std::mem::take(&mut state.database.jobs) {
        let note = Version::new(Note::Orphaned(job.row.key), FROZEN);
        if scenario.fault != Fault::DeleteWithoutNote {
            state.database.notes.push(note);
        }
    }
    maintained(scenario, &state).database == Database::default()
}

/// Where nothing but single inserts that wait go on: `pg_locks` shows who waits for whom, and who
/// waits has written nothing.
fn singles_wait_at_the_lock(of: &Exploration<Scenario>, state: &State) -> bool {
    let scenario = &of.scenario;
    let mut calls = scenario.programs.iter().flat_map(|program| program.iter());
    let is_single = |op: &Op| matches!(op, Op::Insert(new) if new.wait);
    if !scenario.lock || !calls.all(|(_, calls)| calls.iter().all(is_single)) {
        return true;
    }
    let waits_for_end = |wait: Option<Wait>| matches!(wait, Some(Wait::End(_)));
    !state.sessions.iter().any(|session| waits_for_end(session.wait))
}
