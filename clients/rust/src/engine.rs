//! A worker that runs: what its parts share, and how it begins and ends.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use serde::Deserialize;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::finish::Finish;
use crate::handler::{Ended, GIVE_UP};
use crate::job::{JobInfo, Reason, warn_of};
use crate::link::{Link, PATIENCE};
use crate::{ClientError, Error, Result, Worker, control, fetch, finish};

/// How long a worker that ends tries to send the last results.
const SEND_WITHIN: Duration = Duration::from_secs(10);

/// A worker that runs. It goes on if this is dropped.
pub struct Handle {
    engine: Arc<Engine>,
    task: JoinHandle<Result<()>>,
}

impl Handle {
    pub(crate) fn start(worker: Worker) -> Self {
        let engine = Arc::new(Engine {
            state: watch::Sender::default(),
            link: Mutex::new(Link::new(&worker, PATIENCE)),
            worker,
        });
        let task = tokio::spawn(engine.clone().serve());
        Self { engine, task }
    }

    /// Waits until the database knows of the worker, or the worker has ended.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let engine = self.engine.clone();
        async move { engine.until(|state| state.stage > Stage::Start).await }
    }

    /// Fetches no more, and gives handlers the grace period. Those that still run are cancelled,
    /// and their jobs released: another worker gets them, and the attempt does not count.
    ///
    /// # Errors
    /// As of [`Handle::wait`].
    pub async fn stop(self) -> Result<()> {
        self.engine.enter(Stage::Leave);
        self.wait().await
    }

    /// Cancels all handlers at once, and ends when they have ended.
    ///
    /// # Errors
    /// As of [`Handle::wait`].
    pub async fn stop_and_cancel(self) -> Result<()> {
        self.engine.enter(Stage::Cancel);
        self.wait().await
    }

    /// Waits until the worker has ended, as an operator's command `stop` makes it.
    ///
    /// # Errors
    /// Results could not be sent: their jobs run again when their leases have run out. Or the
    /// database refused the worker when it started, or a part of it has panicked.
    pub async fn wait(self) -> Result<()> {
        self.task.await.map_err(std::io::Error::other)?
    }

    /// Stops at SIGTERM or SIGINT, as [`Worker::run`] says.
    ///
    /// # Errors
    /// As of [`Handle::wait`].
    pub async fn until_signal(self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let engine = self.engine.clone();
        let signals = async move {
            for stage in [Stage::Leave, Stage::Cancel] {
                select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
                engine.enter(stage);
            }
        };
        let _signals = AbortOnDropHandle::new(tokio::spawn(signals));
        self.wait().await
    }
}

/// What the parts of a running worker share.
pub(crate) struct Engine {
    pub(crate) worker: Worker,
    pub(crate) state: watch::Sender<State>,
    /// The connection that says what became of jobs.
    pub(crate) link: Mutex<Link>,
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
    Leave,
    /// They are cancelled.
    Cancel,
    /// None is waited for any more; what is left are results.
    Idle,
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
        let handling = self.worker.handling(job.clone(), Some(self.clone()));
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

    /// Works until the worker is stopped.
    pub(crate) async fn serve(self: Arc<Self>) -> Result<()> {
        let options = &self.worker.options;
        tracing::info!(worker = options.name, "worker starts");
        let _control = self.part(control::run(self.clone()));
        let _finishing = self.part(finish::run(self.clone()));
        let fetching = self.part(fetch::run(self.clone()));
        let ending = async {
            // What it takes is ours, however late it comes.
            let _ = fetching.await;
            let is_over = |state: &State| state.running.is_empty() || state.stage == Stage::Idle;
            self.until(is_over).await;
            self.enter(Stage::Idle);
            let all_sent = self.until(|state| state.unsent.is_empty());
            let _ = timeout(SEND_WITHIN, all_sent).await;
        };
        let too_late = async {
            // An operator's command has no grace period. A signal has one, also after a command.
            self.until(|state| state.stage >= Stage::Leave).await;
            self.before(Stage::Cancel, sleep(options.grace)).await;
            let running = || -> Vec<_> { self.state.borrow().running.values().cloned().collect() };
            for job in running() {
                job.cancel(Reason::Stopping);
            }
            sleep(GIVE_UP + Duration::from_millis(200)).await;
            let left = running();
            self.change(|state| {
                // What is completed in a transaction of its handler is locked by that.
                for job in left.iter().filter(|job| !job.is_completed()) {
                    state.settle(job, &Err(Error::release()));
                }
            });
            for job in left {
                warn_of!(job, "handler does not stop, left behind");
            }
            self.enter(Stage::Idle);
            sleep(SEND_WITHIN).await;
        };
        select! { biased; () = ending => {}, () = too_late => {} }
        let (fault, unsent) = self.change(|state| (state.fault.take(), state.unsent.len()));
        if unsent > 0 {
            tracing::error!(results = unsent, "results could not be sent");
        }
        tracing::info!(worker = options.name, "worker has ended");
        let unsent = (unsent > 0).then_some(ClientError::Unsent(unsent));
        fault.or(unsent).map_or(Ok(()), Err)
    }
}
