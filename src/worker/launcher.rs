//! The launcher: knows the databases, and starts a worker where there is work.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, DynamicBackgroundWorker,
};
use pgrx::pg_sys::panic::{CaughtError, ErrorReport};
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::process;
use crate::fault::{self, Fault};
use crate::pg::{server, subxact, time};
use crate::settings;
use crate::shmem::{databases, entries};

/// How often the list of databases is looked at: a copy of a database with the
/// extension tells no process.
const LIST: Duration = Duration::from_secs(10);
/// How often a database with the extension is visited unasked, for what
/// causes no wake-up: a changed setting, rows that a subscription brings.
const VISIT: Duration = Duration::from_secs(60);
/// How often a database without a place, which cannot ask, is visited.
const VISIT_BEYOND: Duration = Duration::from_secs(5);
/// The least time between such visits.
const PACE: Duration = Duration::from_millis(100);
/// How often a database without the extension is visited.
const VISIT_OTHERS: Duration = Duration::from_secs(600);
/// Workers of one database do not begin more often: one that fails, or finds another session in
/// its way, ends at once, and what it was started for is still to be done.
const AGAIN: Duration = Duration::from_secs(1);

/// That there are too few processes is said again once it has not been so for this long.
const QUIET: Duration = Duration::from_secs(60);

/// Registers the launcher, at the server's start.
pub fn register() {
    BackgroundWorkerBuilder::new("jobs launcher")
        .set_library("jobs")
        .set_function("jobs_launcher_main")
        .set_restart_time(Some(Duration::from_secs(5)))
        .enable_spi_access()
        .load();
}

/// What the launcher knows of a database.
struct Known {
    worker: Option<DynamicBackgroundWorker>,
    visited: Option<Instant>,
}

pub fn main() {
    process::begin();
    BackgroundWorker::connect_worker_to_spi(None, None);
    process::apply_settings();
    databases::attend_as_launcher();
    let mut known: HashMap<Oid, Known> = HashMap::new();
    let (mut starved, mut beyond_visited) = (None, None);
    loop {
        let pause = if settings::ENABLED.get() {
            round(&mut known, &mut starved, &mut beyond_visited)
        } else {
            LIST
        };
        process::sleep(pause);
    }
}

/// Looks at every database once; how long until the next look.
fn round(
    known: &mut HashMap<Oid, Known>,
    starved: &mut Option<Instant>,
    beyond_visited: &mut Option<Instant>,
) -> Duration {
    let Some(all) = databases() else {
        return Duration::from_secs(1);
    };
    entries::keep_only(&all.iter().map(|(oid, _)| *oid).collect::<Vec<_>>());
    let open = all.into_iter().filter_map(|(oid, name)| Some((oid, name?)));
    let mut databases: Vec<(Oid, String)> = open.collect();
    let oids: Vec<Oid> = databases.iter().map(|(oid, _)| *oid).collect();
    known.retain(|oid, _| oids.contains(oid));
    databases::keep_only(&oids);
    let beyond = databases::beyond();
    // Where there are not enough processes for all, those come first that waited longest.
    databases.sort_by_key(|(oid, _)| known.get(oid).and_then(|state| state.visited));
    let mut pause = LIST;
    let mut refused = false;
    for (oid, name) in databases {
        if !settings::covers(&name) {
            continue;
        }
        let state = known.entry(oid).or_insert(Known { worker: None, visited: None });
        let place = databases::known(oid);
        let is_attended = place.is_some_and(|place| place.is_attended());
        if is_attended || state.worker.as_ref().is_some_and(is_running) {
            continue;
        }
        state.worker = None;
        let now = time::now();
        let due = place.map_or(databases::NEVER, |place| place.next_due());
        let is_beyond = place.is_none() && beyond.contains(&oid);
        let every = match place {
            _ if fault::is_on(Fault::NoVisits) => Duration::MAX,
            Some(_) => VISIT,
            None if is_beyond => VISIT_BEYOND,
            None => VISIT_OTHERS,
        };
        let mut until_visit = rest_of(every, state.visited);
        if is_beyond {
            until_visit = until_visit.max(rest_of(PACE, *beyond_visited));
        }
        let asked = place.is_some_and(|place| place.is_asked_for()) || due <= now;
        let rest = rest_of(AGAIN, state.visited);
        if asked && !rest.is_zero() {
            pause = pause.min(rest);
        } else if asked || until_visit.is_zero() {
            match start(oid, &name) {
                Start::Started(worker) => {
                    state.worker = Some(worker);
                    state.visited = Some(Instant::now());
                    if is_beyond {
                        *beyond_visited = state.visited;
                    }
                }
                Start::Locked => pause = pause.min(Duration::from_secs(1)),
                Start::Refused => refused = true,
            }
        } else {
            let until_due = due.saturating_sub(now).max(0) as u64;
            pause = pause.min(Duration::from_micros(until_due)).min(until_visit);
        }
    }
    // Who takes turns with too few processes is refused one now and then for ever.
    if refused && starved.is_none_or(|at| at.elapsed() >= QUIET) {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            "jobs: could not start a background worker, will retry",
            "jobs",
        )
        .set_hint("Raise max_worker_processes.")
        .report(PgLogLevel::LOG);
    }
    if refused {
        *starved = Some(Instant::now());
    }
    databases::set_crowded(refused);
    if refused { pause.min(Duration::from_secs(1)) } else { pause }
}

/// What is left of a time since then; nothing, where that never was.
fn rest_of(time: Duration, since: Option<Instant>) -> Duration {
    since.map_or(Duration::ZERO, |since| time.saturating_sub(since.elapsed()))
}

fn is_running(worker: &DynamicBackgroundWorker) -> bool {
    !matches!(
        worker.pid(),
        Err(BackgroundWorkerStatus::Stopped | BackgroundWorkerStatus::PostmasterDied)
    )
}

enum Start {
    Started(DynamicBackgroundWorker),
    /// Another session is dropping, renaming or copying the database.
    Locked,
    /// No process is left.
    Refused,
}

fn start(database: Oid, name: &str) -> Start {
    if !process::transaction(|| process::database_is_free(database)).unwrap_or(false) {
        return Start::Locked;
    }
    BackgroundWorkerBuilder::new("jobs worker")
        .set_library("jobs")
        .set_function("jobs_database_main")
        .set_argument(Some(pg_sys::Datum::from(database.to_u32())))
        .set_extra(name)
        .set_notify_pid(server::process())
        .set_restart_time(None)
        .enable_spi_access()
        .load_dynamic()
        .map_or(Start::Refused, Start::Started)
}

/// All databases, and the names of those that a worker may be in; `None` if they could not be read.
fn databases() -> Option<Vec<(Oid, Option<String>)>> {
    process::transaction(process::databases).map_err(complain).ok()
}

/// Without the databases no worker is started. Said once in a while.
fn complain(error: Box<CaughtError>) {
    thread_local! {
        static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if LAST.get().is_none_or(|at| at.elapsed() >= QUIET) {
        LAST.set(Some(Instant::now()));
        let (code, message) = subxact::describe(&error);
        ErrorReport::new(
            code,
            format!("jobs: could not read the databases, will retry: {message}"),
            "jobs",
        )
        .report(PgLogLevel::WARNING);
    }
}
