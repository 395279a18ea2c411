//! What the parts of a running worker share, and how a job is attended to.

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

/// What the parts of a running worker share.
pub(crate) struct Engine {
    pub(crate) worker: Worker,
    pub(crate) state: watch::Sender<State>,
    /// The connection that says what became of jobs.
    pub(crate) link: Arc<Mutex<Link>>,
}

/// What a worker does and has at a moment.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    /// Jobs whose handlers run, by their tokens.
    pub(crate) running: HashMap<i64, Arc<JobInfo>>,
    /// Results that the server does not have, by the tokens of their jobs.
    pub(crate) unsent: HashMap<i64, Finish>,
    /// The latest call has failed: results that wait hold their places.
    pub(crate) is_stuck: bool,
    /// Why the worker had to end.
    pub(crate) fault: Option<ClientError>,
}

/// What a worker is to do. `run`, `quiet` and `stop` are what operators can say.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The database does not know of it yet.
    #[default]
    Start,
    Run,
    /// It fetches no more, until it is to run again.
    Quiet,
    /// It fetches no more, and ends when its handlers have ended.
    Stop,
    /// They have the grace period to do so.
    Grace,
    /// They are cancelled.
    Cancel,
    /// None is waited for any more; what is left are results.
    End,
}

/// A result that the server does not have.
pub(crate) struct Finish {
    pub(crate) job: Arc<JobInfo>,
    /// As `jobs.finish_many` has it.
    pub(crate) json: String,
    /// When it is to be sent.
    pub(crate) due: Instant,
    /// How often the server could not take it, though it took others.
    pub(crate) failures: u32,
    /// It was in a call that the server has refused as a whole.
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
    /// Takes what became of a job, unless that has been said. Returns the failure, for the log.
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

    /// Nobody else gets at the state meanwhile: what may block, such as a log, comes later.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut done = None;
        self.state.send_modify(|state| done = Some(change(state)));
        done.expect("it is called")
    }

    pub(crate) async fn until(&self, is_so: impl FnMut(&State) -> bool) {
        // A guard of the state is not to be held.
        drop(self.state.subscribe().wait_for(is_so).await);
    }

    /// Does something, unless it is still under way when the worker comes to this stage.
    pub(crate) async fn before<T>(&self, stage: Stage, work: impl Future<Output = T>) -> Option<T> {
        select! {
            biased;
            () = self.until(|state| state.stage >= stage) => None,
            done = work => Some(done),
        }
    }

    /// Waits for as long as this grows: what handlers do at the same time counts as one.
    pub(crate) async fn gather(&self, count: impl Fn(&State) -> usize) {
        let mut known = 0;
        while count(&self.state.borrow()) > known {
            known = count(&self.state.borrow());
            yield_now().await;
        }
    }

    /// Goes on to a stage, and returns the one before. There is a way back only from quiet to run.
    pub(crate) fn enter(&self, stage: Stage) -> Stage {
        self.change(|state| {
            if stage <= state.stage && (state.stage, stage) != (Stage::Quiet, Stage::Run) {
                return stage;
            }
            // Whoever waits for them waits for less time now.
            let waiting = state.unsent.values_mut();
            waiting.for_each(|result| result.due = result.due.min(Instant::now()));
            std::mem::replace(&mut state.stage, stage)
        })
    }

    /// Ends the worker, and releases its jobs.
    pub(crate) fn fail(&self, fault: ClientError) {
        self.change(|state| state.fault = Some(fault));
        self.enter(Stage::Cancel);
    }

    /// Runs a part of the worker. It cannot do without: without beats its jobs would be lost, and
    /// without results never end. So a panic ends the worker.
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
        // Of one that was dropped the transaction may be in its commit, and has the row.
        let is_dropped = |error: &Error| error.0["do"] == "release";
        let is_told = job.is_completed() && ended.as_ref().err().is_none_or(is_dropped);
        let ended = match ended {
            Err(_) if job.reason.get() == Some(&Reason::Timeout) => Err(Error::timeout()),
            // Where somebody cancelled the job, this cancels it.
            Err(error) if job.reason.get().is_some() && error.is_plain() => Err(Error::release()),
            ended => ended,
        };
        let failure = self.change(|state| {
            state.running.remove(&job.token);
            (!is_told).then(|| state.settle(&job, &ended)).flatten()
        });
        failure.inspect(|error| warn_of!(job, %error, "an attempt has failed"));
    }

    /// Ends an attempt at its timeout.
    async fn time_out(self: Arc<Self>, job: Arc<JobInfo>) {
        let options = &self.worker.options;
        let own = options.kind_timeouts.get(&job.kind).copied();
        let own = own.or(options.timeout);
        let limit = job.time_left().into_iter().chain(own).min();
        // Not with the handler, which may keep its thread to itself.
        sleep(limit.unwrap_or(Duration::MAX)).await;
        // In its transaction it still has the row, and the call would wait for that.
        while job.is_completed() {
            sleep(Duration::from_secs(1)).await;
        }
        let ended = Err(Error::timeout());
        let failure = self.change(|state| state.settle(&job, &ended));
        job.cancel(Reason::Timeout);
        failure.inspect(|error| warn_of!(job, %error, "an attempt has failed"));
    }
}
