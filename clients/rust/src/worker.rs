//! A worker: its options, and how it starts and stops.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;

#[cfg(doc)]
use crate::Job;
use crate::connection::{array, random};
use crate::error::Ending;
use crate::handler::{AsyncHandler, BlockingHandler, GIVE_UP, Handler};
use crate::job::{Attempt, Request};
use crate::{ClientError, Middleware, control, fetch, finish};

/// A worker: fetches jobs, runs their handlers, and says what became of them.
///
/// It needs a runtime of tokio, and has three connections, however many jobs it runs.
pub struct Worker {
    pub(crate) config: Result<Config, tokio_postgres::Error>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) lease: Duration,
    grace: Duration,
    pub(crate) name: String,
    pub(crate) info: Map<String, Value>,
    pub(crate) kinds: HashMap<String, Arc<Handler>>,
    pub(crate) otherwise: Option<Arc<Handler>>,
    pub(crate) timeouts: HashMap<String, Option<Duration>>,
    pub(crate) middleware: Vec<Arc<dyn Middleware>>,
}

impl Worker {
    /// A worker for the database at this URL, or as this text of keys and values says.
    pub fn new(url: impl AsRef<str>) -> Self {
        Self::of(url.as_ref().parse())
    }

    /// A worker for the database that this configuration says.
    pub fn with_config(config: Config) -> Self {
        Self::of(Ok(config))
    }

    fn of(config: Result<Config, tokio_postgres::Error>) -> Self {
        let host = whoami::hostname().unwrap_or_else(|_| "localhost".into());
        Self {
            config,
            queues: vec!["default".into()],
            concurrency: 10,
            timeout: None,
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            name: format!("{host}:{}:{:08x}", std::process::id(), random() as u32),
            info: Map::new(),
            kinds: HashMap::new(),
            otherwise: None,
            timeouts: HashMap::new(),
            middleware: Vec::new(),
        }
    }

    /// The queues; the default is `default` alone. Several share the places alike, or by weights as
    /// in `[("mail", 3), ("default", 1)]`. What one does not use the others may.
    pub fn queues<Q: Into<Queue>>(mut self, queues: impl IntoIterator<Item = Q>) -> Self {
        self.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// The most handlers that run at a time; the default is 10.
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self {
            concurrency,
            ..self
        }
    }

    /// How long a handler may run, if its kind does not say; by default only the job's own timeout
    /// counts.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }

    /// How long a handler of this kind may run; none: as long as the job's own timeout lets it.
    pub fn kind_timeout(mut self, kind: &str, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeouts.insert(kind.into(), timeout.into());
        self
    }

    /// How long a dead worker goes unnoticed; the default is 30 seconds. Leases are renewed each
    /// third of it.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// How long handlers may go on after a stop; the default is 10 seconds.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// The worker's name in `jobs.workers`; the default is `HOST:PID:RANDOM`.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// A member of what `jobs.workers` shows in `info`, such as `version`.
    pub fn info(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.info.insert(member.into(), value.into());
        self
    }

    /// The handler of a kind of job, an `async fn`. What it returns is the job's output. An error
    /// or a panic fails the attempt.
    ///
    /// Args that are not of its type fail the attempt, with type `invalid_args`.
    pub fn kind<A>(mut self, kind: &str, handler: impl AsyncHandler<A>) -> Self
    where
        A: DeserializeOwned + Send + 'static,
    {
        self.kinds.insert(kind.into(), Handler::new(handler));
        self
    }

    /// The handler of a kind of job that blocks: it runs in a thread of its own, which nothing can
    /// end. So it looks at [`Job::cancellation`] now and then.
    pub fn kind_blocking<A>(mut self, kind: &str, handler: impl BlockingHandler<A>) -> Self
    where
        A: DeserializeOwned + Send + 'static,
    {
        self.kinds.insert(kind.into(), Handler::blocking(handler));
        self
    }

    /// The handler of every other kind. Without one, only kinds that have a handler are fetched.
    pub fn otherwise<A>(mut self, handler: impl AsyncHandler<A>) -> Self
    where
        A: DeserializeOwned + Send + 'static,
    {
        self.otherwise = Some(Handler::new(handler));
        self
    }

    /// As [`Worker::otherwise`], of a handler that blocks.
    pub fn otherwise_blocking<A>(mut self, handler: impl BlockingHandler<A>) -> Self
    where
        A: DeserializeOwned + Send + 'static,
    {
        self.otherwise = Some(Handler::blocking(handler));
        self
    }

    /// Something around every handler. What is added first is outermost.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// The kinds that it fetches, as a text that Postgres reads as an array; all if that is empty.
    pub(crate) fn fetched_kinds(&self) -> String {
        if self.otherwise.is_some() {
            String::new()
        } else {
            array(self.kinds.keys())
        }
    }

    pub(crate) fn handler(&self, kind: &str) -> Option<&Arc<Handler>> {
        self.kinds.get(kind).or(self.otherwise.as_ref())
    }

    /// Runs until SIGTERM or SIGINT, and stops as [`Handle::stop`] does, at a second signal as
    /// [`Handle::stop_and_cancel`]. An operator's command `stop` ends it as well.
    ///
    /// # Errors
    /// The options make no worker, or results could not be sent.
    pub async fn run(self) -> Result<(), ClientError> {
        self.start()?.until_signal().await
    }

    /// Runs in the background, with signals left to the program.
    ///
    /// # Errors
    /// The options make no worker. A database that cannot be reached is tried again.
    pub fn start(mut self) -> Result<Handle, ClientError> {
        let config = watchful(self.config?, &self.name);
        if self.kinds.is_empty() && self.otherwise.is_none() {
            return Err(ClientError::text("a worker needs a handler"));
        }
        if self.queues.is_empty() || self.concurrency == 0 || self.lease.is_zero() {
            return Err(ClientError::text(
                "a worker needs a queue, a place and a lease",
            ));
        }
        self.config = Ok(config);
        let about = [
            ("library", "postgres-jobs for Rust"),
            ("version", env!("CARGO_PKG_VERSION")),
        ];
        for (name, value) in about {
            self.info.entry(name).or_insert(value.into());
        }
        let (requests, received) = mpsc::unbounded_channel();
        let core = Arc::new(Core {
            worker: self,
            running: watch::Sender::default(),
            command: watch::Sender::default(),
            stop: CancellationToken::new(),
            stop_and_cancel: CancellationToken::new(),
            is_draining: CancellationToken::new(),
            is_over: CancellationToken::new(),
            requests,
            unsent: AtomicUsize::new(0),
        });
        let task = tokio::spawn(supervise(core.clone(), received));
        Ok(Handle { core, task })
    }
}

/// A queue of a worker, and its share of the places.
pub struct Queue {
    pub(crate) name: String,
    pub(crate) weight: f64,
}

impl From<&str> for Queue {
    fn from(name: &str) -> Self {
        (name, 1).into()
    }
}

impl<S: Into<String>> From<(S, u32)> for Queue {
    fn from((name, weight): (S, u32)) -> Self {
        let (name, weight) = (name.into(), weight.max(1).into());
        Self { name, weight }
    }
}

/// A worker that runs. It goes on if this is dropped.
pub struct Handle {
    core: Arc<Core>,
    task: JoinHandle<Result<(), ClientError>>,
}

impl Handle {
    /// Waits until the database knows of the worker.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut command = self.core.command.subscribe();
        async move { drop(command.wait_for(Option::is_some).await) }
    }

    /// Fetches no more, and gives handlers the grace period. Those that still run are cancelled,
    /// and their jobs released: another worker gets them, and the attempt does not count.
    ///
    /// # Errors
    /// Results could not be sent. Their jobs run again when their leases have run out.
    pub async fn stop(self) -> Result<(), ClientError> {
        self.core.stop.cancel();
        self.wait().await
    }

    /// Cancels all handlers at once, and ends when they have ended.
    ///
    /// # Errors
    /// As of [`Handle::stop`].
    pub async fn stop_and_cancel(self) -> Result<(), ClientError> {
        self.core.stop_and_cancel.cancel();
        self.stop().await
    }

    /// Waits until the worker has ended, as an operator's command `stop` makes it.
    ///
    /// # Errors
    /// As of [`Handle::stop`].
    pub async fn wait(self) -> Result<(), ClientError> {
        self.task.await?
    }

    /// Stops at SIGTERM or SIGINT, as [`Worker::run`] says.
    ///
    /// # Errors
    /// As of [`Handle::stop`].
    pub async fn until_signal(self) -> Result<(), ClientError> {
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
    /// Attempts by their tokens, each in a place until its handler has ended.
    pub(crate) running: watch::Sender<HashMap<i64, Arc<Attempt>>>,
    /// The command of operators; none before the first beat.
    pub(crate) command: watch::Sender<Option<Command>>,
    stop: CancellationToken,
    stop_and_cancel: CancellationToken,
    /// No more is fetched.
    pub(crate) is_draining: CancellationToken,
    /// Nothing runs any more.
    pub(crate) is_over: CancellationToken,
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) unsent: AtomicUsize,
}

/// What `jobs.worker_beat` answers.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    Run,
    Quiet,
    Stop,
}

impl Core {
    pub(crate) fn config(&self) -> &Config {
        self.worker.config.as_ref().expect("checked at the start")
    }

    pub(crate) fn attempts(&self) -> Vec<Arc<Attempt>> {
        self.running.borrow().values().cloned().collect()
    }
}

/// What handlers ask the finishing connection to do.
pub(crate) type Received = mpsc::UnboundedReceiver<Request>;

/// Runs a worker from its start to its end.
async fn supervise(core: Arc<Core>, received: Received) -> Result<(), ClientError> {
    tracing::info!(worker = core.worker.name, "worker starts");
    let given_up = CancellationToken::new();
    let mut finishing = tokio::spawn(finish::run(core.clone(), received, given_up.clone()));
    let mut control = tokio::spawn(control::run(core.clone()));
    let mut fetching = tokio::spawn(fetch::run(core.clone()));
    let mut command = core.command.subscribe();
    let mut running = core.running.subscribe();

    select! {
        () = core.stop.cancelled() => {}
        _ = command.wait_for(|command| *command == Some(Command::Stop)) => {}
    }
    core.is_draining.cancel();
    {
        let idle = async {
            // A fetch under way is never abandoned: its jobs may be ours.
            let _ = (&mut fetching).await;
            let _ = running.wait_for(HashMap::is_empty).await;
        };
        let mut idle = std::pin::pin!(idle);
        // An operator's command has no grace period. A signal has one, also after a command.
        let is_idle =
            select! { biased; () = &mut idle => true, () = core.stop.cancelled() => false };
        let is_idle = is_idle
            || select! {
                biased;
                () = &mut idle => true,
                () = core.stop_and_cancel.cancelled() => false,
                () = tokio::time::sleep(core.worker.grace) => false,
            };
        if !is_idle {
            core.attempts()
                .iter()
                .for_each(|one| one.cancellation.cancel());
            let _ = timeout(GIVE_UP + Duration::from_millis(200), idle).await;
        }
    }
    fetching.abort();
    // What is completed in a transaction of its handler is locked by that.
    for attempt in core.attempts() {
        tracing::warn!(id = attempt.job.id, "handler does not stop, left behind");
        if !attempt.is_in_transaction() {
            attempt.finish(Ending::Release {});
        }
    }
    core.is_over.cancel();
    let patience = core.worker.grace.max(SEND_WITHIN);
    if timeout(patience, &mut finishing).await.is_err() {
        given_up.cancel();
        // A call that waits for a lock in the server ends by nothing of ours.
        if timeout(GIVE_UP, &mut finishing).await.is_err() {
            finishing.abort();
            core.unsent.fetch_add(1, SeqCst);
        }
    }
    let _ = timeout(GIVE_UP, &mut control).await;
    control.abort();
    tracing::info!(worker = core.worker.name, "worker has ended");
    match core.unsent.load(SeqCst) {
        0 => Ok(()),
        unsent => Err(ClientError::text(format!("{unsent} results were not sent"))),
    }
}

/// How long a worker that ends tries to send the last results, at least.
const SEND_WITHIN: Duration = Duration::from_secs(5);

/// Finds out within a minute that nobody is at the other end, and shows the worker's name.
fn watchful(mut config: Config, name: &str) -> Config {
    if config.get_application_name().is_none() {
        config.application_name(name);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(10));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(30));
    }
    let second = Duration::from_secs(1);
    config
        .keepalives_idle(30 * second)
        .keepalives_interval(10 * second)
        .keepalives_retries(3);
    config
}
