//! What the worker remembers of its tasks' runs until it writes it down: at once when one failed,
//! else once a second at most, and never that there was nothing to do, so that an idle database
//! writes no WAL. And what stands in the way of maintenance, as it looked a moment ago.

use std::time::{Duration, Instant};

use crate::maintenance::{self, Turn};
use crate::pg::time;
use crate::shmem::databases::{self, Place};
use crate::store::run_log::{self, Run, Standing};

/// How often it is written, and looked at what stands in the way.
const EVERY: Duration = Duration::from_secs(1);
/// A task that failed as a whole is tried again after a second, then after twice as long each time,
/// up to this.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

pub struct Journal {
    place: Option<&'static Place>,
    entries: [Entry; maintenance::ALL.len()],
    written: Option<Instant>,
    /// Written without waiting for the interval.
    is_urgent: bool,
    looked: Option<(Instant, Looked)>,
}

#[derive(Default)]
struct Entry {
    /// Its runs that are not written down yet, as one.
    run: Option<Run>,
    /// How often it failed as a whole, and when it is tried again.
    stuck: Option<(u32, Instant)>,
}

/// What was found when it was looked at.
pub struct Looked {
    standing: Standing,
    has_begun: bool,
}

/// Looks what stands in the way of maintenance.
pub fn look() -> Looked {
    Looked { standing: run_log::standing(), has_begun: run_log::has_begun() }
}

pub fn write(runs: &[(usize, Run)]) {
    for (task, run) in runs {
        run_log::note(maintenance::ALL[*task].name, run);
    }
}

impl Journal {
    pub fn new(place: Option<&'static Place>) -> Journal {
        Journal {
            place,
            entries: Default::default(),
            written: None,
            is_urgent: false,
            looked: None,
        }
    }

    /// Whether it is to be looked at again what stands in the way: what did a moment ago may be
    /// gone, and who took it away has woken the worker for that.
    pub fn is_to_look(&self) -> bool {
        let is_old = |(at, _): &(Instant, Looked)| at.elapsed() >= EVERY;
        !self.allows_maintenance() || self.looked.as_ref().is_none_or(is_old)
    }

    /// Remembers what was found.
    pub fn take(&mut self, looked: Looked) {
        self.looked = Some((Instant::now(), looked));
    }

    /// Notes that there was nothing to do for any task, because no job was ever inserted.
    pub fn note_visit(&self) {
        let is_new = |(_, looked): &(_, Looked)| !looked.has_begun;
        if self.looked.as_ref().is_some_and(is_new) {
            (0..maintenance::ALL.len()).for_each(|task| self.note_idle_run(task, time::now(), 0));
        }
    }

    /// Of a database without a place only the time is noted, for all tasks.
    fn note_idle_run(&self, task: usize, at: i64, duration: i64) {
        match self.place {
            Some(place) => place.note_idle_run(task, at, duration),
            None => databases::note_visit(at),
        }
    }

    /// Whether anything is to be done at all.
    pub fn allows_maintenance(&self) -> bool {
        let allows =
            |(_, looked): &(_, Looked)| looked.has_begun && looked.standing.hindrance.is_none();
        self.looked.as_ref().is_some_and(allows)
    }

    /// Whether no session will say so when there is something to be done again.
    pub fn is_hindered_in_passing(&self) -> bool {
        let looked = self.looked.as_ref().map(|(_, looked)| looked);
        let hindrance = looked.and_then(|looked| looked.standing.hindrance.as_ref());
        hindrance.is_some_and(|hindrance| hindrance.is_passing)
    }

    /// Whether a task is not one that has failed just now.
    pub fn is_to_try(&self, task: usize) -> bool {
        let stuck = self.entries[task].stuck;
        stuck.is_none_or(|(_, again)| Instant::now() >= again)
    }

    /// How long until a task is to be tried again; `None`: there is none.
    pub fn until_retry(&self) -> Option<Duration> {
        let stuck = self.entries.iter().filter_map(|entry| entry.stuck);
        let pauses = stuck.map(|(_, again)| again.saturating_duration_since(Instant::now()));
        pauses.min()
    }

    /// Nothing is to be tried again: maintenance is to do nothing at all.
    pub fn forget_stuck(&mut self) {
        for entry in &mut self.entries {
            entry.stuck = None;
        }
    }

    /// Notes a turn of a task, which ended at `at` and took so many microseconds.
    pub fn note(&mut self, task: usize, turn: &Turn, at: i64, duration: i64) {
        let entry = &mut self.entries[task];
        entry.stuck = turn.is_stuck.then(|| {
            // Where it makes progress, if slowly, it continues soon.
            let before = entry.stuck.filter(|_| turn.rows == 0);
            let failures = before.map_or(0, |(failures, _)| failures + 1);
            let pause = Duration::from_secs(1 << failures.min(16)).min(LONGEST_BACKOFF);
            (failures, Instant::now() + pause)
        });
        let failures = turn.errors.len() as i64;
        let is_clean = failures == 0 && turn.passed_over == 0;
        let name = maintenance::ALL[task].name;
        let was_failing = self.looked.as_ref().is_some_and(|(_, looked)| {
            let failing = &looked.standing.failing;
            failing.iter().any(|failing| failing == name)
        });
        let is_over = was_failing && is_clean;
        if turn.rows == 0 && failures == 0 && !is_over {
            return self.note_idle_run(task, at, duration);
        }
        let earlier = entry.run.take().unwrap_or_default();
        entry.run = Some(Run {
            at,
            duration: earlier.duration + duration,
            rows: earlier.rows + turn.rows as i64,
            failures: earlier.failures + failures,
            is_clean,
            error: turn.errors.last().cloned().or(earlier.error),
        });
        if failures > 0 || is_over {
            // What was found about failing tasks is not true any more.
            self.looked = None;
            self.is_urgent = true;
        }
    }

    /// What is to be written down now, before the worker leaves all of it.
    pub fn take_runs(&mut self, leaving: bool) -> Vec<(usize, Run)> {
        let is_due = self.written.is_none_or(|at| at.elapsed() >= EVERY);
        if !(is_due || self.is_urgent || leaving) {
            return Vec::new();
        }
        let entries = self.entries.iter_mut().enumerate();
        let runs: Vec<(usize, Run)> =
            entries.filter_map(|(task, entry)| Some((task, entry.run.take()?))).collect();
        if !runs.is_empty() {
            self.written = Some(Instant::now());
            self.is_urgent = false;
        }
        runs
    }
}
