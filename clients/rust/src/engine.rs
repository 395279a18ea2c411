//! The shared state of a running worker, and how it runs a job.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use serde::Deserialize;
use tokio::select;
use tokio::sync::{Mutex, watch};
use tokio::task::yield_now;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::handler::Ended;
use crate::job::{JobInfo, Reason, warn_of};
use crate::link::{Link, PATIENCE, back_off};
use crate::{ClientError, Error, Worker};

/// The shared state of a running worker.
pub(crate) struct Engine {
    pub(crate) worker: Worker,
    pub(crate) state: watch::Sender<State>,
    /// The connection that sends results.
    pub(crate) link: Arc<Mutex<Link>>,
}

/// The stage and the jobs of a worker.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) stage: Stage,
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
        }
    }

    pub(crate) fn put_off(&mut self) {
        self.due = Instant::now() + back_off(self.failures);
        self.failures += 1;
    }
}

impl State {
    /// Takes the result of a job, unless it has one. Returns the failure, for the log.
    pub(crate) fn settle<'a>(&mut self, job: &Arc<JobInfo>, ended: &'a Ended) -> Option<&'a Error> {
        if job.is_settled.swap(true, SeqCst) {
            return None;
        }
        self.unsent.insert(job.token, Finish::new(job, ended));
        ended.as_ref().err().filter(|error| error.0["do"] == "fail")
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
            std::mem::replace(&mut state.stage, stage)
        })
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

    /// Runs the handler of a job.
    pub(crate) async fn attend(self: Arc<Self>, job: Arc<JobInfo>) {
        let _timing = self.part(self.clone().time_out(job.clone()));
        let span = tracing::info_span!("job", id = job.id, kind = job.kind, attempt = job.attempt);
        let handling = self.worker.handling(job.clone(), Some(self.link.clone()));
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
        failure.inspect(|error| warn_of!(job, %error, "attempt failed"));
    }

    /// Ends an attempt at its timeout.
    async fn time_out(self: Arc<Self>, job: Arc<JobInfo>) {
        let options = &self.worker.options;
        let own = options.kind_timeouts.get(&job.kind).copied();
        let own = own.or(options.timeout);
        let limit = job.time_left().into_iter().chain(own).min();
        // Separate from the handler, which may block its thread.
        sleep(limit.unwrap_or(Duration::MAX)).await;
        // Its transaction still has the row locked, and the call would wait.
        while job.is_completed() {
            sleep(Duration::from_secs(1)).await;
        }
        let ended = Err(Error::timeout());
        let failure = self.change(|state| state.settle(&job, &ended));
        job.cancel(Reason::Timeout);
        failure.inspect(|error| warn_of!(job, %error, "attempt failed"));
    }
}
