//! A running worker: its start and its stop.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use scopeguard::guard;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::{Engine, Stage};
use crate::handler::GIVE_UP;
use crate::job::{Reason, log_of};
use crate::{ClientError, Error, Result, Worker, control, fetch, finish};

impl Worker {
    /// Runs until SIGTERM or SIGINT, then stops as [`Handle::stop`] does. A second signal acts as
    /// [`Handle::stop_and_cancel`]. An operator's command `stop` ends the worker as well.
    ///
    /// If the future is dropped, the worker stops as with [`Handle::stop_and_cancel`].
    ///
    /// # Errors
    /// Those of [`Worker::start`] and [`Handle::wait`].
    pub async fn run(self) -> Result<()> {
        self.start()?.until_signal().await
    }

    /// Runs in the background. Installs no signal handlers.
    ///
    /// # Errors
    /// The worker has no handler, two for a kind, or one with an invalid option. If the database
    /// cannot be reached, the worker keeps trying.
    pub fn start(mut self) -> Result<Handle> {
        self.check()?;
        let engine = Engine::new(self);
        let task = tokio::spawn(engine.clone().serve());
        Ok(Handle { engine, task })
    }
}

/// A running worker. It keeps running if the handle is dropped.
pub struct Handle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) task: JoinHandle<Result<()>>,
}

impl Handle {
    /// Waits until the database knows the worker, or the worker has ended.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let engine = self.engine.clone();
        async move { engine.until(|state| state.stage > Stage::Start).await }
    }

    /// Waits until the worker has ended, as does [`Handle::wait`], which also says how.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let engine = self.engine.clone();
        async move { engine.until(|state| state.stage == Stage::Over).await }
    }

    /// Stops fetching and gives handlers the grace period. Then it cancels them and releases their
    /// jobs: another worker gets them, and the attempt does not count.
    ///
    /// # Errors
    /// Those of [`Handle::wait`].
    pub async fn stop(self) -> Result<()> {
        self.engine.enter(Stage::Grace);
        self.wait().await
    }

    /// Stops without a grace period.
    ///
    /// # Errors
    /// Those of [`Handle::wait`].
    pub async fn stop_and_cancel(self) -> Result<()> {
        self.engine.enter(Stage::Cancel);
        self.wait().await
    }

    /// Waits until the worker has stopped, also by an operator's command.
    ///
    /// # Errors
    /// Results could not be sent: their jobs run again once their leases expire. Or the worker
    /// could not start, since the database, the role or the extension is not the right one; or a
    /// part of it panicked.
    pub async fn wait(self) -> Result<()> {
        self.task.await.map_err(std::io::Error::other)?
    }

    /// Stops at SIGTERM or SIGINT, or if the future is dropped, as [`Worker::run`] does.
    ///
    /// # Errors
    /// Those of [`Handle::wait`].
    pub async fn until_signal(self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let engine = self.engine.clone();
        let signals = async move {
            for stage in [Stage::Grace, Stage::Cancel] {
                select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
                engine.enter(stage);
            }
        };
        let _signals = AbortOnDropHandle::new(tokio::spawn(signals));
        let _stop = guard(self.engine.clone(), |engine| engine.enter(Stage::Cancel));
        self.wait().await
    }
}

/// How long a stopping worker tries to send the last results.
const SEND_WITHIN: Duration = Duration::from_secs(10);
const LEAVE: &str = "select jobs.worker_leave($1)::text";

impl Engine {
    /// Works until the worker is stopped.
    pub(crate) async fn serve(self: Arc<Self>) -> Result<()> {
        let options = &self.worker.options;
        let control = self.parts(control::run);
        let finishing = self.parts(finish::run);
        let starting = self.part(self.clone().keep_time());
        // It ends when the worker stops. The jobs of a late fetch are ours.
        let fetching = join_all(self.parts(fetch::run)).map(drop).shared();
        let idle = async || {
            fetching.clone().await;
            self.until(|state| state.running.is_empty()).await;
        };
        // An operator's command has no grace period. A signal has one, also after a command.
        let late = async {
            self.until(|state| state.stage >= Stage::Grace).await;
            self.before(Stage::Cancel, sleep(options.grace)).await;
        };
        select! { () = idle() => {}, () = late => {} }
        self.enter(Stage::Cancel);
        let running = || self.state.borrow().attended().cloned().collect::<Vec<_>>();
        for job in running() {
            job.cancel(Reason::Stopping);
        }
        let _ = timeout(GIVE_UP + Duration::from_millis(200), idle()).await;
        for job in running() {
            // A job that is completed in a transaction is locked by it.
            if !job.is_completed() {
                self.change(|state| state.settle(&job, &Err(Error::release())));
            }
            log_of!(warn, job, "handler did not stop");
        }
        self.enter(Stage::End);
        let all_sent = async {
            fetching.clone().await;
            self.until(|state| state.unsent.is_empty()).await;
        };
        let _ = timeout(SEND_WITHIN, all_sent).await;
        drop((finishing, starting));
        self.enter(Stage::Over);
        let leaving = self.links.iter().zip(control).map(async |(link, control)| {
            // A late beat would make it known again.
            let _ = control.await;
            let _ = link.lock().await.run(LEAVE, &[&options.name]).await;
        });
        let _ = timeout(Duration::from_secs(1), join_all(leaving)).await;
        let (fault, unsent) = self.change(|state| (state.fault.take(), state.unsent.len()));
        if let Some(fault) = &fault {
            tracing::error!(error = %fault.to_string().replace('\n', " "), "worker failed");
        }
        if unsent > 0 {
            tracing::error!(results = unsent, "results could not be sent");
        }
        tracing::info!(worker = options.name, "worker stopped");
        let unsent = (unsent > 0).then_some(ClientError::Unsent(unsent));
        fault.or(unsent).map_or(Ok(()), Err)
    }
}
