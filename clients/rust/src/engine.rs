//! The shared state of a running worker, and how it runs a job.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use serde::Deserialize;
use tokio::select;
use tokio::sync::{Mutex, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::error::Ended;
use crate::job::{JobInfo, Reason, log_of};
use crate::link::{Link, PATIENCE, back_off};
use crate::worker::Hook;
use crate::{ClientError, Error, Handling, Worker};

macro_rules! log_failure {
    ($level:ident, $job:expr, $error:expr, $said:literal) => {{
        let details = $error.details();
        let (r#type, trace) = (details["type"].as_str(), details["trace"].as_str());
        log_of!($level, $job, max_attempts = $job.max_attempts, r#type, error = %$error, trace, $said);
    }};
}

/// The shared state of a running worker.
pub(crate) struct Engine {
    pub(crate) worker: Worker,
    pub(crate) state: watch::Sender<State>,
    /// The connection that sends results.
    pub(crate) link: Arc<Mutex<Link>>,
    /// One fetch at a time: each counts the places that are free.
    pub(crate) turn: Mutex<()>,
}

/// The stage and the jobs of a worker.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    /// Jobs whose handlers have not been started, in the order of the fetch.
    pub(crate) waiting: Vec<Arc<JobInfo>>,
    /// Kinds with a concurrency of which there may be more jobs.
    pub(crate) abundant: HashSet<String>,
    /// How many fetches there were.
    pub(crate) fetches: usize,
    /// Jobs whose handlers run, by token.
    pub(crate) running: HashMap<i64, Arc<JobInfo>>,
    /// Results that the server does not have, by the tokens of their jobs.
    pub(crate) unsent: HashMap<i64, Finish>,
    /// Whether the latest call failed. Waiting results then hold their places.
    pub(crate) is_stuck: bool,
    /// The error that ended the worker.
    pub(crate) fault: Option<ClientError>,
}

/// The stage of a worker. `run`, `quiet` and `stop` are commands of operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The database does not know the worker yet.
    #[default]
    Start,
    Run,
    /// Fetches nothing until told to run again.
    Quiet,
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
    /// Takes the result of a job, unless it has one. Returns the failure, for the log.
    pub(crate) fn settle(&mut self, job: &Arc<JobInfo>, ended: &Ended) -> Option<Error> {
        if job.is_settled.swap(true, SeqCst) {
            return None;
        }
        let finish = Finish::new(job, ended);
        let failure = finish.failure.clone();
        self.unsent.insert(job.token, finish);
        failure
    }

    /// Releases the waiting jobs that have been cancelled, or all.
    pub(crate) fn release_waiting(&mut self, all: bool) {
        let is_released = |job: &mut Arc<JobInfo>| all || job.reason.get().is_some();
        let released: Vec<_> = self.waiting.extract_if(.., is_released).collect();
        for job in released {
            self.settle(&job, &Err(Error::release()));
        }
    }

    /// The jobs that count for the concurrency, and those that wait.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<JobInfo>> {
        self.places().chain(&self.waiting)
    }

    /// The jobs that count for the concurrency.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Arc<JobInfo>> {
        let kept = self.unsent.iter().filter(|(token, result)| {
            (self.is_stuck || result.failures > 0) && !self.running.contains_key(token)
        });
        let kept = kept.map(|(_, result)| &result.job);
        self.running.values().chain(kept)
    }
}

impl Engine {
    pub(crate) fn new(worker: Worker) -> Arc<Self> {
        Arc::new(Self {
            state: watch::Sender::default(),
            turn: Mutex::default(),
            link: Arc::new(Mutex::new(worker.link(PATIENCE))),
            worker,
        })
    }

    /// Locks the state. Calls that may block, such as logging, come later.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut done = None;
        self.state.send_modify(|state| done = Some(change(state)));
        done.expect("it is called")
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

    /// Enters a stage, and returns the one before. The only way back is from quiet to run.
    pub(crate) fn enter(&self, stage: Stage) -> Stage {
        self.change(|state| {
            if stage <= state.stage && (state.stage, stage) != (Stage::Quiet, Stage::Run) {
                return stage;
            }
            // The waits for them get shorter now.
            let waiting = state.unsent.values_mut();
            waiting.for_each(|result| result.due = result.due.min(Instant::now()));
            let before = std::mem::replace(&mut state.stage, stage);
            state.release_waiting(stage > Stage::Run);
            before
        })
    }

    /// Returns the error of a call, unless it ends the worker: with a hint, before any call on the
    /// connection has succeeded.
    pub(crate) fn fatal(&self, has_worked: bool, error: ClientError) -> Option<ClientError> {
        let role = self.worker.config.get_user().unwrap_or("ROLE").replace('\'', "''");
        match error.hinted(&format!("grant_worker('{role}')")) {
            ClientError::Hinted { error, .. } if has_worked => Some(*error),
            error @ (ClientError::Hinted { .. } | ClientError::Extension(_)) => {
                self.fail(error);
                None
            }
            error => Some(error),
        }
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
            if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
                let text = Error::panic(panic).to_string();
                engine.fail(std::io::Error::other(text).into());
            }
        }))
    }

    /// Starts jobs as their places and batches get free or full, until the worker ends.
    pub(crate) async fn start_waiting(self: Arc<Self>) {
        let mut changes = self.state.subscribe();
        loop {
            changes.mark_unchanged();
            let wait = self.start().map_or(Duration::MAX, |due| due - Instant::now());
            let _ = timeout(wait, changes.changed()).await;
        }
    }

    /// Starts the waiting jobs that have a place. Returns when a batch will start that is not full.
    pub(crate) fn start(self: &Arc<Self>) -> Option<Instant> {
        if self.state.borrow().waiting.is_empty() {
            return None;
        }
        let (mut batches, mut due) = (Vec::new(), None);
        self.state.send_if_modified(|state| {
            let free = self.free(state).min(state.waiting.len());
            let (mut open, mut rest) =
                (BTreeMap::<_, (Vec<_>, _)>::new(), state.waiting.split_off(free));
            for job in state.waiting.drain(..) {
                let limits = self.worker.limits(&job.kind);
                let most = limits.concurrency.unwrap_or(usize::MAX);
                let most = most.min(self.worker.options.concurrency);
                let (size, linger) = limits.batch.unwrap_or((1, Duration::ZERO));
                let (batch, _) =
                    open.entry(job.kind.clone()).or_insert_with(|| (Vec::new(), linger));
                batch.push(job);
                if batch.len() >= size.min(most) {
                    batches.push(std::mem::take(batch));
                }
            }
            for (batch, linger) in open.into_values().filter(|(batch, _)| !batch.is_empty()) {
                let at = batch[0].came.checked_add(linger);
                if at.is_some_and(|at| at <= Instant::now()) {
                    batches.push(batch);
                } else {
                    due = due.into_iter().chain(at).min();
                    state.waiting.extend(batch);
                }
            }
            state.waiting.append(&mut rest);
            state.waiting.sort_by_key(|job| job.came);
            for job in batches.iter().flatten() {
                state.running.insert(job.token, job.clone());
            }
            !batches.is_empty()
        });
        for attending in batches.into_iter().flat_map(|batch| self.attend(batch)) {
            self.part(attending).detach();
        }
        due
    }

    /// How many more handlers may start.
    fn free(&self, state: &State) -> usize {
        self.worker.options.concurrency.saturating_sub(state.places().count())
    }

    /// Runs the handler of jobs, whose timeout is the earliest of them.
    pub(crate) fn attend(
        self: &Arc<Self>,
        jobs: Vec<Arc<JobInfo>>,
    ) -> Vec<impl Future<Output = ()> + Send + 'static + use<>> {
        let own = self.worker.limits(&jobs[0].kind).timeout.or(self.worker.options.timeout);
        let left = jobs.iter().filter_map(|job| job.time_left());
        let limit = left.chain(own).min().unwrap_or(Duration::MAX);
        let handlings = self.worker.handlings(&jobs, Some(&self.link));
        let timing = Arc::new(self.part(self.clone().time_out(jobs.clone(), limit)));
        let each = jobs.into_iter().zip(handlings);
        each.map(|(job, handling)| self.clone().attend_one(job, handling, timing.clone())).collect()
    }

    async fn attend_one(
        self: Arc<Self>,
        job: Arc<JobInfo>,
        handling: Handling,
        _timing: Arc<AbortOnDropHandle<()>>,
    ) {
        let span = tracing::info_span!("job", id = job.id, kind = job.kind, attempt = job.attempt);
        let ended = handling.instrument(span).await;
        // The transaction of a dropped handler may be committing, and has the row locked.
        let is_dropped = |error: &Error| error.0["do"] == "release";
        let is_told = job.is_completed() && ended.as_ref().err().is_none_or(is_dropped);
        let ended = match ended {
            Err(_) if job.reason.get() == Some(&Reason::Timeout) => Err(Error::timeout()),
            // If a cancel was requested, the release cancels the job.
            Err(error) if job.reason.get().is_some() && error.is_plain() => Err(Error::release()),
            ended => ended,
        };
        let failure = self.change(|state| {
            state.running.remove(&job.token);
            (!is_told).then(|| state.settle(&job, &ended)).flatten()
        });
        failure.inspect(|error| self.report_failure(&job, error));
    }

    /// Ends attempts at their timeout.
    async fn time_out(self: Arc<Self>, mut jobs: Vec<Arc<JobInfo>>, limit: Duration) {
        // Separate from the handler, which may block its thread.
        sleep(limit).await;
        while !jobs.is_empty() {
            // The transaction of a completed one still has the row locked, and the call would wait.
            let late = jobs.extract_if(.., |job| !job.is_completed()).collect::<Vec<_>>();
            let ended = Err(Error::timeout());
            let failures: Vec<_> =
                self.change(|state| late.iter().map(|job| state.settle(job, &ended)).collect());
            late.iter().for_each(|job| job.cancel(Reason::Timeout));
            for (job, failure) in late.iter().zip(failures) {
                failure.inspect(|error| self.report_failure(job, error));
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    pub(crate) fn report_failure(&self, job: &JobInfo, error: &Error) {
        log_failure!(warn, job, error, "attempt failed");
        call(&self.worker.on_error, job, error);
    }

    pub(crate) fn report_discard(&self, job: &JobInfo, error: &Error) {
        log_failure!(error, job, error, "job discarded");
        call(&self.worker.on_discarded, job, error);
    }
}

/// Calls a hook, whose panic ends nothing.
fn call(hook: &Option<Hook>, job: &JobInfo, error: &Error) {
    let Some(hook) = hook else { return };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(job, error))) {
        log_of!(error, job, error = %Error::panic(panic), "hook failed");
    }
}
