//! The maintenance tasks, in the order in which they run. A task works in rounds of bounded size;
//! who runs it says what a round is wrapped in: the worker takes a transaction each,
//! `jobs.maintain()` a subtransaction. A round that fails is done once more thing by thing, so that
//! a single job that cannot be handled stops neither the others nor another task.

mod claims_task;
mod clock;
mod expire_task;
mod limits_task;
mod periodic_task;
mod prune_task;
mod rescue_task;
mod schedule_task;
mod statistics_task;

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use jobs_core::key::Key;

use crate::pg::memory::Scratch;
use crate::pg::subxact;
use crate::shmem::{databases, entries, leases};
use crate::store::{self, due};
use crate::unique;

pub struct Task {
    /// As `jobs.maintain()` shows it.
    pub name: &'static str,
    /// Runs one round over at most `limit` rows, and skips `but`.
    run: fn(limit: i64, but: &[Thing]) -> Round,
    /// Handles things one by one, for when `run` failed.
    singly: Option<Singly>,
}

/// How a task is done thing by thing.
struct Singly {
    /// Finds at most `limit` things to do, and skips `but`.
    find: fn(limit: i64, but: &[Thing]) -> Vec<Thing>,
    /// Does one of them. Returns whether there was something to do.
    handle: fn(&Thing) -> bool,
}

/// What a task can fail at without failing at others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    Job(i64),
    Key(Key),
    Periodic(String),
}

impl Thing {
    fn jobs(things: &[Thing]) -> Vec<i64> {
        let id = |thing: &Thing| match thing {
            Thing::Job(id) => Some(*id),
            _ => None,
        };
        things.iter().filter_map(id).collect()
    }

    fn keys(things: &[Thing]) -> Vec<Key> {
        let key = |thing: &Thing| match thing {
            Thing::Key(key) => Some(*key),
            _ => None,
        };
        things.iter().filter_map(key).collect()
    }

    fn periodic(things: &[Thing]) -> Vec<&str> {
        let mut names = Vec::new();
        for thing in things {
            if let Thing::Periodic(name) = thing {
                names.push(name.as_str());
            }
        }
        names
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thing::Job(id) => write!(f, "job {id}"),
            // Not the key itself: it is derived from args, and this is logged.
            Thing::Key(_) => f.write_str("a key noted in jobs.unique_note"),
            Thing::Periodic(name) => write!(f, "periodic job {name:?}"),
        }
    }
}

/// All of them, in the order in which they run.
pub const ALL: [&Task; 8] = [
    &schedule_task::TASK,
    &limits_task::TASK,
    &periodic_task::TASK,
    &expire_task::TASK,
    &rescue_task::TASK,
    &prune_task::TASK,
    &claims_task::TASK,
    &statistics_task::TASK,
];

const _: () = assert!(ALL.len() == databases::TASKS, "each has its latest run in shared memory");

#[derive(Debug, Default)]
pub struct Round {
    pub rows: usize,
    pub more: bool,
    /// Things that failed, and why.
    failed: Vec<(Thing, String)>,
}

impl Round {
    fn of(rows: usize, limit: i64) -> Round {
        Round { rows, more: rows >= limit as usize, failed: Vec::new() }
    }
}

pub struct Turn {
    pub rows: usize,
    pub more: bool,
    pub errors: Vec<String>,
    /// How many things are skipped, because the task failed at them before.
    pub passed_over: usize,
    /// The task fails as a whole, not only at single things.
    pub is_stuck: bool,
}

/// Things that a task failed at and leaves alone for a while.
#[derive(Default)]
pub struct PassedOver(HashMap<&'static str, Vec<(Thing, Instant)>>);

impl PassedOver {
    /// How long.
    const AGAIN: Duration = Duration::from_secs(60);
    /// How many of a task. With more of them it is not single things that are wrong.
    const MOST: usize = 10_000;

    fn of(&mut self, task: &Task) -> Vec<Thing> {
        let Some(things) = self.0.get_mut(task.name) else {
            return Vec::new();
        };
        things.retain(|(_, since)| since.elapsed() < Self::AGAIN);
        things.iter().map(|(thing, _)| thing.clone()).collect()
    }

    /// How long until one of them is to be tried again; `None`: there is none.
    pub fn until_retry(&self) -> Option<Duration> {
        let since = self.0.values().flatten().map(|(_, since)| since.elapsed());
        since.max().map(|longest| Self::AGAIN.saturating_sub(longest))
    }

    /// Whether there was room.
    fn add(&mut self, task: &Task, things: impl Iterator<Item = Thing>) -> bool {
        let known = self.0.entry(task.name).or_default();
        known.extend(things.map(|thing| (thing, Instant::now())));
        known.len() < Self::MOST
    }
}

/// What wraps a round: runs it so that nothing of it remains if it fails, and says why it did. The
/// outer error is the caller's own, to stop at once.
pub type Wrap<'a, E> =
    dyn FnMut(&mut dyn FnMut() -> Round) -> Result<Result<Round, String>, E> + 'a;

/// When something will be due next, after a pass that looked at what was due then.
pub fn next_due(looked_at: i64) -> Option<i64> {
    let others = [store::prune::next_due(), entries::next_due(), store::held::next_look(looked_at)];
    let others = others.into_iter().flatten();
    let others = others.map(|at| due::unless_looked_at(at, looked_at));
    due::next_due(looked_at).into_iter().chain(others).min()
}

/// One turn of a task: a round over at most so many rows, and if that fails, one thing by thing.
pub fn turn<E>(
    task: &Task,
    limit: i64,
    over: &mut PassedOver,
    wrap: &mut Wrap<E>,
) -> Result<Turn, E> {
    let but = over.of(task);
    let turn = |round: Round, errors, is_stuck| Turn {
        rows: round.rows,
        more: round.more,
        errors,
        passed_over: but.len(),
        is_stuck,
    };
    let error = match wrap(&mut || round(task, limit, &but))? {
        Ok(round) => return Ok(turn(round, Vec::new(), false)),
        Err(error) => error,
    };
    leases::doubt();
    let Some(singly) = &task.singly else {
        return Ok(turn(Round::default(), vec![error], true));
    };
    Ok(match wrap(&mut || one_by_one(singly, &but))? {
        Ok(mut round) => {
            let failed = std::mem::take(&mut round.failed);
            let errors: Vec<String> =
                failed.iter().map(|(thing, why)| format!("{thing}: {why}")).collect();
            if errors.is_empty() {
                // It was none of those, so it would fail again at once.
                round.more = false;
                return Ok(turn(round, vec![error], true));
            }
            let has_room = over.add(task, failed.into_iter().map(|(thing, _)| thing));
            round.more = has_room;
            turn(round, errors, !has_room)
        }
        Err(error) => turn(Round::default(), vec![error], true),
    })
}

/// One round of a task. What it allocates in the server's memory goes with it.
fn round(task: &Task, limit: i64, but: &[Thing]) -> Round {
    Scratch::new().within(|| (task.run)(limit, but))
}

/// Has another one be first in each round, so that none has to wait for those before it for ever.
fn rotate<T>(things: &mut [T], round: usize) {
    things.rotate_left(round % things.len().max(1));
}

/// Half of what a round may handle, for what shall not keep the rest waiting; of a single row,
/// every other time.
fn half(limit: i64, round: usize) -> i64 {
    (limit + (round % 2) as i64) / 2
}

/// How many things a transaction does apart from what fails.
const SINGLY: i64 = 60;

fn one_by_one(singly: &Singly, but: &[Thing]) -> Round {
    let mut things = (singly.find)(SINGLY, but);
    things.truncate(SINGLY as usize);
    let mut failed = Vec::new();
    let handle_each = || {
        subxact::attempt_each(
            &things,
            &|thing| usize::from((singly.handle)(thing)),
            &mut |thing, code, why| {
                if !subxact::is_passing(code) {
                    failed.push((thing.clone(), why));
                }
            },
        )
    };
    // Locked rows are skipped, as always.
    let rows = unique::no_wait(handle_each);
    Round { rows, more: false, failed }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::ALL;

    #[pg_test]
    fn every_task_has_its_row_and_is_described() {
        let read = |sql| Spi::get_one::<String>(sql).expect(sql).expect(sql);
        let mut names = ALL.map(|task| task.name);
        names.sort_unstable();
        let rows = "SELECT string_agg(task, ' ' ORDER BY task) FROM jobs.maintenance_task";
        assert_eq!(read(rows), names.join(" "));
        let comment = read("SELECT obj_description('jobs.maintain()'::regprocedure)");
        for name in names {
            assert!(comment.contains(&format!(" {name}")), "{name}: {comment}");
        }
    }
}
