//! The shared state of a running worker, and how it runs jobs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use serde::Deserialize;
use tokio::select;
use tokio::sync::{Mutex, watch};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::cells::{Seen, agree};
use crate::error::{Ended, safe};
use crate::job::{JobInfo, Key, Reason};
use crate::link::{Link, PATIENCE, back_off};
use crate::options::{Queue, names};
use crate::report::Report;
use crate::{ClientError, Error, Handling, Result, Worker};

/// The shared state of a running worker.
pub(crate) struct Engine {
    pub(crate) worker: Worker,
    pub(crate) state: watch::Sender<State>,
    /// The connections that send results, one for each cell.
    pub(crate) links: Vec<Arc<Mutex<Link>>>,
}

/// The stage and the jobs of a worker.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    pub(crate) cells: Vec<Cell>,
    /// Jobs whose handlers have not been started, in the order of the fetch.
    pub(crate) waiting: Vec<Arc<JobInfo>>,
    /// Jobs whose handlers run, and when they time out.
    pub(crate) running: HashMap<Key, (Arc<JobInfo>, Option<Instant>)>,
    /// Results that the server does not have.
    pub(crate) unsent: HashMap<Key, Finish>,
    /// The error that ended the worker.
    pub(crate) fault: Option<ClientError>,
    /// What is to be told.
    pub(crate) reports: Vec<Report>,
}

/// What a worker knows of a cell.
#[derive(Default)]
pub(crate) struct Cell {
    seen: Option<Seen>,
    /// Whether it knows the worker.
    pub(crate) is_known: bool,
    pub(crate) command: Command,
    /// The worker's queues that live there.
    pub(crate) queues: Vec<Queue>,
    /// Whether it fetches once there is room.
    pub(crate) is_idle: bool,
    /// The kinds that a fetch under way asks for, and how many jobs.
    pub(crate) asked: Option<(String, usize)>,
    /// Kinds with a concurrency of which there may be more jobs.
    pub(crate) abundant: HashSet<String>,
    /// Whether the latest call failed. Waiting results then hold their places.
    pub(crate) is_stuck: bool,
}

impl Cell {
    /// Whether jobs may be fetched from it.
    pub(crate) fn fetches(&self) -> bool {
        self.is_known && self.command == Command::Run && !self.queues.is_empty()
    }
}

/// A command of an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    #[default]
    Run,
    /// Fetch nothing until told to run again.
    Quiet,
    Stop,
}

/// The stage of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(crate) enum Stage {
    /// No database knows the worker yet.
    #[default]
    Start,
    Run,
    /// Fetches nothing, and ends when its handlers have ended.
    Stop,
    /// Handlers have the grace period to end.
    Grace,
    /// Handlers are cancelled.
    Cancel,
    /// Handlers are no longer waited for, only results.
    End,
    /// Nothing is waited for.
    Over,
}

/// A result that the server does not have.
pub(crate) struct Finish {
    pub(crate) job: Arc<JobInfo>,
    /// An element of `jobs.finish_many`.
    pub(crate) json: String,
    /// When to send it.
    pub(crate) due: Instant,
    /// How often the server refused this result alone.
    pub(crate) failures: u32,
    /// Whether the server refused a whole call with this result.
    pub(crate) is_alone: bool,
    /// The error of a failed attempt.
    pub(crate) failure: Option<Error>,
}

impl Finish {
    pub(crate) fn new(job: &Arc<JobInfo>, ended: &Ended) -> Self {
        let ending = match ended {
            Ok(output) if output.get() == "null" => r#"{"do":"complete"}"#.into(),
            Ok(output) => format!(r#"{{"do":"complete","output":{output}}}"#),
            Err(error) => error.0.to_string(),
        };
        let (id, token) = (job.id, job.token);
        Self {
            json: format!(r#"{{"id":{id},"token":{token},{}"#, &ending[1..]),
            job: job.clone(),
            due: Instant::now(),
            failures: 0,
            is_alone: false,
            failure: ended.as_ref().err().filter(|error| error.0["do"] == "fail").cloned(),
        }
    }

    pub(crate) fn put_off(&mut self) {
        self.due = Instant::now() + back_off(self.failures);
        self.failures += 1;
    }
}

impl State {
    /// Takes the result of a job, unless it has one.
    pub(crate) fn settle(&mut self, job: &Arc<JobInfo>, ended: &Ended) {
        if !job.is_settled.swap(true, SeqCst) {
            let finish = Finish::new(job, ended);
            let failure = finish.failure.clone();
            self.reports.extend(failure.map(|failure| Report::Failed(job.clone(), failure)));
            self.unsent.insert(job.key(), finish);
        }
    }

    /// Releases the waiting jobs of which this is so, and those that are not to start. Returns
    /// their number.
    pub(crate) fn release_waiting(&mut self, mut is_so: impl FnMut(&JobInfo) -> bool) -> usize {
        let Self { stage, cells, waiting, .. } = self;
        let starts =
            |job: &JobInfo| *stage <= Stage::Run && cells[job.cell].command == Command::Run;
        let released = waiting.extract_if(.., |job| !starts(job) || is_so(job));
        let released: Vec<_> = released.collect();
        released.iter().for_each(|job| self.settle(job, &Err(Error::release())));
        released.len()
    }

    /// The jobs whose handlers run.
    pub(crate) fn attended(&self) -> impl Iterator<Item = &Arc<JobInfo>> {
        self.running.values().map(|(job, _)| job)
    }

    /// The jobs that count for the concurrency.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Arc<JobInfo>> {
        let kept = self.unsent.iter().filter(|(key, result)| {
            (self.cells[key.0].is_stuck || result.failures > 0) && !self.running.contains_key(key)
        });
        self.attended().chain(kept.map(|(_, result)| &result.job))
    }

    /// The results that a cell does not have.
    pub(crate) fn unsent_of(&self, cell: usize) -> impl Iterator<Item = (&Key, &Finish)> {
        self.unsent.iter().filter(move |(key, _)| key.0 == cell)
    }

    /// The jobs that count for the concurrency, and those that wait.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<JobInfo>> {
        self.places().chain(&self.waiting)
    }
}

impl Engine {
    pub(crate) fn new(worker: Worker) -> Arc<Self> {
        let link = |cell| Arc::new(Mutex::new(worker.link(cell, PATIENCE)));
        let links: Vec<_> = (0..worker.configs.len()).map(link).collect();
        let cells = links.iter().map(|_| Cell::default()).collect();
        Arc::new(Self {
            state: watch::Sender::new(State { cells, ..State::default() }),
            links,
            worker,
        })
    }

    /// Changes the state.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut done = None;
        self.change_if(|state| {
            done = Some(change(state));
            true
        });
        done.expect("it is called")
    }

    /// Changes the state if the function returns true. Reports what follows once the state is not
    /// locked.
    fn change_if(&self, change: impl FnOnce(&mut State) -> bool) {
        let mut reports = Vec::new();
        self.state.send_if_modified(|state| {
            let is_changed = change(state);
            reports = std::mem::take(&mut state.reports);
            is_changed
        });
        reports.into_iter().for_each(|report| self.worker.report(report));
    }

    pub(crate) fn stage(&self) -> Stage {
        self.state.borrow().stage
    }

    pub(crate) async fn until(&self, is_so: impl FnMut(&State) -> bool) {
        // The state must not stay locked.
        drop(self.state.subscribe().wait_for(is_so).await);
    }

    /// Runs work, and abandons it when the worker reaches this stage.
    pub(crate) async fn before<T>(&self, stage: Stage, work: impl Future<Output = T>) -> Option<T> {
        select! {
            biased;
            () = self.until(|state| state.stage >= stage) => None,
            done = work => Some(done),
        }
    }

    /// Waits while this grows, so that what handlers do at the same time counts as one.
    pub(crate) async fn gather(&self, count: impl Fn(&State) -> usize) {
        let mut known = 0;
        while count(&self.state.borrow()) > known {
            known = count(&self.state.borrow());
            yield_now().await;
        }
    }

    /// Enters a stage, unless it is in a later one.
    pub(crate) fn enter(&self, stage: Stage) {
        self.change(|state| {
            if stage <= state.stage {
                return;
            }
            state.stage = stage;
            // The waits for them get shorter now.
            for result in state.unsent.values_mut() {
                result.due = result.due.min(Instant::now());
                result.failures = result.failures.min(1);
            }
            state.release_waiting(|_| false);
        });
    }

    /// Obeys a command in a cell, and returns the one before.
    pub(crate) fn obey(&self, cell: usize, command: Command) -> Command {
        if command == Command::Stop {
            self.enter(Stage::Stop);
        }
        self.change(|state| {
            let here = &mut state.cells[cell];
            here.is_known = true;
            let before = std::mem::replace(&mut here.command, command);
            state.release_waiting(|_| false);
            before
        })
    }

    /// Notes which of the worker's queues live in a cell. The first time it fails if the databases
    /// of the worker disagree.
    pub(crate) fn see(&self, cell: usize, seen: Seen) -> Result<()> {
        let queues = self.worker.options.queues.iter();
        let queues = queues.filter(|queue| seen.has(&queue.name)).cloned().collect();
        self.change(|state| {
            state.cells[cell].queues = queues;
            match state.cells[cell].seen.replace(seen) {
                Some(_) => Ok(()),
                None => agree(state.cells.iter().filter_map(|cell| cell.seen.as_ref())),
            }
        })
    }

    /// The names of the worker's queues that live in a cell, one per line.
    pub(crate) fn queues(&self, cell: usize) -> String {
        names(&self.state.borrow().cells[cell].queues)
    }

    /// Adds a hint to the error of a call, if it has one.
    pub(crate) fn hinted(&self, cell: usize, error: ClientError) -> ClientError {
        let role = self.worker.configs[cell].get_user().unwrap_or("ROLE").replace('\'', "''");
        error.hinted(&format!("grant_worker('{role}')"))
    }

    /// Ends the worker and releases its jobs.
    pub(crate) fn fail(&self, fault: ClientError) {
        self.change(|state| state.fault = Some(fault));
        self.enter(Stage::Cancel);
    }

    /// Runs a part of the worker. A panic ends the worker: without beats its jobs would be lost,
    /// and without results they would never end.
    pub(crate) fn part(
        self: &Arc<Self>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> AbortOnDropHandle<()> {
        let engine = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            if let Err(panic) = safe(work.map(Ok)).await {
                engine.fail(std::io::Error::other(panic.to_string()).into());
            }
        }))
    }

    /// Runs a part of the worker in each cell.
    pub(crate) fn parts<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(Arc<Self>, usize) -> F,
    ) -> Vec<AbortOnDropHandle<()>> {
        (0..self.links.len()).map(|cell| self.part(work(self.clone(), cell))).collect()
    }

    /// Starts jobs and ends attempts at their timeout, until the worker ends. It is separate from
    /// handlers, which may block their threads.
    pub(crate) async fn keep_time(self: Arc<Self>) {
        let mut changes = self.state.subscribe();
        loop {
            changes.mark_unchanged();
            let wait = self.tick().map_or(Duration::MAX, |due| due - Instant::now());
            let _ = timeout(wait, changes.changed()).await;
        }
    }

    /// Starts the jobs that have a place, ends attempts at their timeout, and releases jobs that
    /// have waited too long. Returns when to do so next.
    fn tick(self: &Arc<Self>) -> Option<Instant> {
        let (mut batches, mut due) = (Vec::new(), None);
        self.change_if(|state| {
            let now = Instant::now();
            let mut is_over = |until: Option<Instant>| {
                due = due.into_iter().chain(until.filter(|until| *until > now)).min();
                until.is_some_and(|until| until <= now)
            };
            batches = self.next_batches(state, &mut is_over);
            let expired = state.release_waiting(|job| is_over(job.until()));
            let running = state.running.values().filter(|(job, until)| {
                // The transaction of a completed one has the row locked, and the call would wait.
                let later = job.is_completed().then(|| now + Duration::from_secs(1));
                !job.is_settled() && is_over(later.or(*until))
            });
            let late: Vec<_> = running.map(|(job, _)| job.clone()).collect();
            for job in &late {
                state.settle(job, &Err(Error::timeout()));
                job.cancel(Reason::Timeout);
            }
            expired > 0 || !batches.is_empty() || !late.is_empty()
        });
        for batch in batches {
            let handlings = self.worker.handlings(&batch, &self.links);
            for (job, handling) in batch.into_iter().zip(handlings) {
                self.part(self.clone().attend(job, handling)).detach();
            }
        }
        due
    }

    /// Takes the jobs whose handlers start now, by batch.
    fn next_batches(
        &self,
        state: &mut State,
        is_over: &mut impl FnMut(Option<Instant>) -> bool,
    ) -> Vec<Vec<Arc<JobInfo>>> {
        let places = self.worker.options.concurrency;
        let free = places.saturating_sub(state.places().count()).min(state.waiting.len());
        let mut kinds = BTreeMap::<_, Vec<_>>::new();
        for job in state.waiting.drain(..free) {
            kinds.entry(job.kind.clone()).or_default().push(job);
        }
        let mut batches = Vec::new();
        for (kind, jobs) in kinds {
            let handler = self.worker.handler(&kind);
            let size = handler.size.min(handler.concurrency.unwrap_or(places)).min(places);
            for batch in jobs.chunks(size) {
                if batch.len() == size || is_over(batch[0].came.checked_add(handler.linger)) {
                    batches.push(batch.to_vec());
                } else {
                    state.waiting.extend_from_slice(batch);
                }
            }
        }
        state.waiting.sort_by_key(|job| job.came);
        for batch in &batches {
            // The timeout of a batch is the earliest of its jobs.
            let own = self.worker.handler(&batch[0].kind).timeout;
            let own = own.or(self.worker.options.timeout);
            let own = own.and_then(|own| Instant::now().checked_add(own));
            let until = batch.iter().filter_map(|job| job.until()).chain(own).min();
            state.running.extend(batch.iter().map(|job| (job.key(), (job.clone(), until))));
        }
        batches
    }

    /// Runs the handler of a job.
    async fn attend(self: Arc<Self>, job: Arc<JobInfo>, handling: Handling) {
        let span = tracing::info_span!("job", id = job.id, kind = job.kind, attempt = job.attempt);
        let ended = handling.instrument(span).await;
        // The transaction of a dropped handler may be committing, and has the row locked.
        let is_told = job.is_completed() && ended.as_ref().err().is_none_or(Error::is_release);
        let ended = match ended {
            Err(_) if job.reason.get() == Some(&Reason::Timeout) => Err(Error::timeout()),
            // If a cancel was requested, the release cancels the job.
            Err(error) if job.reason.get().is_some() && error.is_plain() => Err(Error::release()),
            ended => ended,
        };
        self.change(|state| {
            state.running.remove(&job.key());
            if !is_told {
                state.settle(&job, &ended);
            }
        });
    }
}
