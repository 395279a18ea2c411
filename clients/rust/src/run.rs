//! A worker that runs: how it starts and stops.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Duration, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::attempt::{Attempt, GIVE_UP, State, Told};
use crate::error::Ending;
use crate::finish::{Finish, Finisher};
use crate::handler::Ended;
use crate::{ClientError, Result, Worker, control, fetch, finish};

/// How long a worker that ends tries to send the last results.
const SEND_WITHIN: Duration = Duration::from_secs(10);

/// A worker that runs. It goes on if this is dropped.
pub struct Handle {
    core: Arc<Core>,
    task: JoinHandle<Result<()>>,
}

impl Handle {
    pub(crate) fn start(worker: Worker) -> Self {
        let (results, received) = mpsc::unbounded_channel();
        let finisher = Arc::new(Finisher::new(worker.link(), results));
        let core = Arc::new(Core {
            worker,
            held: watch::Sender::default(),
            command: watch::Sender::default(),
            stop: CancellationToken::new(),
            stop_and_cancel: CancellationToken::new(),
            is_draining: CancellationToken::new(),
            is_idle: CancellationToken::new(),
            finisher,
        });
        let task = tokio::spawn(supervise(core.clone(), received));
        Self { core, task }
    }

    /// Waits until the database knows of the worker, or the worker has ended.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut command = self.core.command.subscribe();
        let ended = self.core.is_idle.clone();
        async move {
            let known = command.wait_for(Option::is_some);
            drop(ended.run_until_cancelled(known).await);
        }
    }

    /// Fetches no more, and gives handlers the grace period. Those that still run are cancelled,
    /// and their jobs released: another worker gets them, and the attempt does not count.
    ///
    /// # Errors
    /// As of [`Handle::wait`].
    pub async fn stop(self) -> Result<()> {
        self.core.stop.cancel();
        self.wait().await
    }

    /// Cancels all handlers at once, and ends when they have ended.
    ///
    /// # Errors
    /// As of [`Handle::wait`].
    pub async fn stop_and_cancel(self) -> Result<()> {
        self.core.stop_and_cancel.cancel();
        self.stop().await
    }

    /// Waits until the worker has ended, as an operator's command `stop` makes it.
    ///
    /// # Errors
    /// Results could not be sent: their jobs run again when their leases have run out. Or the
    /// database refused the worker when it started.
    pub async fn wait(self) -> Result<()> {
        self.task.await.map_err(|_| ClientError::Ended)?
    }

    /// Stops at SIGTERM or SIGINT, as [`Worker::run`] says.
    ///
    /// # Errors
    /// As of [`Handle::wait`].
    pub async fn until_signal(self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let core = self.core.clone();
        let signals = tokio::spawn(async move {
            for asked in [&core.stop, &core.stop_and_cancel] {
                select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
                asked.cancel();
            }
        });
        let ended = self.wait().await;
        signals.abort();
        ended
    }
}

/// What the parts of a running worker share.
pub(crate) struct Core {
    pub(crate) worker: Worker,
    /// Attempts by their tokens, until their handlers have ended and the server has their results.
    pub(crate) held: watch::Sender<Attempts>,
    /// The command of operators; none before the first beat.
    pub(crate) command: watch::Sender<Option<Command>>,
    stop: CancellationToken,
    stop_and_cancel: CancellationToken,
    /// No more is fetched.
    pub(crate) is_draining: CancellationToken,
    /// No handler runs any more.
    pub(crate) is_idle: CancellationToken,
    pub(crate) finisher: Arc<Finisher>,
}

/// Attempts of a worker by their tokens.
pub(crate) type Attempts = HashMap<i64, Held>;

/// An attempt of a worker.
pub(crate) struct Held {
    pub(crate) attempt: Arc<Attempt>,
    /// Ends the handler, but for one that blocks.
    pub(crate) task: Option<AbortHandle>,
}

/// What `jobs.worker_beat` answers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Command {
    Run,
    Quiet,
    Stop,
}

impl Core {
    /// The attempts that are such.
    pub(crate) fn attempts(&self, are: impl Fn(&State) -> bool) -> Vec<Arc<Attempt>> {
        let held = self.held.borrow();
        let attempts = held.values().map(|held| &held.attempt);
        let attempts = attempts.filter(|attempt| are(&attempt.state()));
        attempts.cloned().collect()
    }

    /// Runs the handler of an attempt. It has its place also if it is dropped before it begins.
    pub(crate) fn work(
        self: Arc<Self>,
        attempt: Arc<Attempt>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let place = Place {
            core: self.clone(),
            attempt: attempt.clone(),
            result: None,
        };
        async move {
            let (mut place, job) = (place, &attempt.job);
            let span =
                tracing::info_span!("job", id = job.id, kind = job.kind, attempt = job.attempt);
            let handler = self.worker.handler(&job.kind);
            place.result = Some(handler.run(&self.worker, &attempt).instrument(span).await);
        }
    }

    /// Takes that the server has results.
    pub(crate) fn told(&self, results: &[Finish]) {
        self.held.send_modify(|held| {
            for result in results {
                let mut state = result.attempt.state();
                state.result = Told::Over;
                if state.is_over() {
                    held.remove(&result.attempt.job.token);
                }
            }
        });
    }

    /// Ends handlers at their timeouts.
    async fn keep_time(&self) {
        loop {
            let looked = |held: &Held| held.attempt.look(held.task.as_ref());
            let next = self.held.borrow().values().filter_map(looked).min();
            let next = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            let _ = timeout_at(next.into(), self.finisher.look.notified()).await;
        }
    }
}

/// The place of a handler that runs.
struct Place {
    core: Arc<Core>,
    attempt: Arc<Attempt>,
    /// None where it is ended.
    result: Option<Ended>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let job = &self.attempt.job;
        if let Some(Err(error)) = &self.result {
            tracing::info!(id = job.id, kind = job.kind, %error, "handler ended");
        }
        self.attempt.end(self.result.take());
        self.core.held.send_modify(|held| {
            if self.attempt.state().is_over() {
                held.remove(&job.token);
            }
        });
    }
}

/// Runs a worker from its start to its end.
async fn supervise(core: Arc<Core>, results: mpsc::UnboundedReceiver<Finish>) -> Result<()> {
    tracing::info!(worker = core.worker.options.name, "worker starts");
    let timing = core.clone();
    let _timing = AbortOnDropHandle::new(tokio::spawn(async move { timing.keep_time().await }));
    let mut finishing = AbortOnDropHandle::new(tokio::spawn(finish::run(core.clone(), results)));
    let mut control = AbortOnDropHandle::new(tokio::spawn(control::run(core.clone())));
    let mut fetching = AbortOnDropHandle::new(tokio::spawn(fetch::run(core.clone())));
    let (mut command, mut held) = (core.command.subscribe(), core.held.subscribe());

    let mut refused = None;
    select! {
        () = core.stop.cancelled() => {}
        _ = command.wait_for(|command| *command == Some(Command::Stop)) => {}
        ended = &mut control => refused = ended.ok().and_then(Result::err),
    }
    core.is_draining.cancel();
    {
        let mut idle = std::pin::pin!(async {
            // A fetch under way is never abandoned: its jobs may be ours.
            let _ = (&mut fetching).await;
            let runs = |held: &Held| held.attempt.state().runs;
            let _ = held.wait_for(|held| !held.values().any(runs)).await;
        });
        // An operator's command has no grace period. A signal has one, also after a command.
        let leave = async {
            core.stop.cancelled().await;
            let grace = sleep(core.worker.options.grace);
            core.stop_and_cancel.run_until_cancelled(grace).await;
        };
        select! {
            biased;
            () = &mut idle => {}
            () = leave => {
                core.attempts(|state| state.runs).iter().for_each(|one| one.cancel());
                let _ = timeout(GIVE_UP + Duration::from_millis(200), idle).await;
            }
        }
    }
    drop(fetching);
    for attempt in core.attempts(|state| state.runs) {
        tracing::warn!(id = attempt.job.id, "handler does not stop, left behind");
        // What is completed in a transaction of its handler is locked by that.
        if !attempt.state().is_in_transaction {
            attempt.finish(Ending::Release {});
        }
    }
    core.is_idle.cancel();
    let _ = timeout(SEND_WITHIN, &mut finishing).await;
    tracing::info!(worker = core.worker.options.name, "worker has ended");
    match (refused, core.attempts(State::is_unsent).len()) {
        (Some(refused), _) => Err(refused),
        (None, 0) => Ok(()),
        (None, unsent) => Err(ClientError::Unsent(unsent)),
    }
}
