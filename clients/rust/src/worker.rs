//! A worker before it runs: its options and its handlers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_postgres::Config;

use crate::handler::{Handler, Registered};
use crate::link::{Link, random};
use crate::{ClientError, Handle, Middleware, Result};

/// The options of a worker.
///
/// ```
/// # use postgres_jobs::Options;
/// let options = Options {
///     queues: vec!["mail".into()],
///     concurrency: 20,
///     ..Options::default()
/// };
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The queues; the default is `default` alone. Several share the places by their weights. What
    /// one does not use the others may.
    pub queues: Vec<Queue>,
    /// The most handlers that run at a time; the default is 10.
    pub concurrency: usize,
    /// How long a handler may run, if its kind does not say; by default only the job's own timeout
    /// counts.
    pub timeout: Option<Duration>,
    /// How long handlers of these kinds may run; [`Duration::MAX`] is as long as the job's own
    /// timeout lets them.
    pub kind_timeouts: HashMap<String, Duration>,
    /// How long a dead worker goes unnoticed; the default is 30 seconds. Leases are renewed each
    /// third of it.
    pub lease: Duration,
    /// How long handlers may go on after a stop; the default is 10 seconds.
    pub grace: Duration,
    /// The worker's name in `jobs.workers`; the default is `HOST:PID:RANDOM`.
    pub name: String,
    /// What `jobs.workers` shows in `info`; the library adds its name and version.
    pub info: Map<String, Value>,
    /// Whether the worker's statements are prepared; the default is true. A pooler that gives each
    /// transaction another session, as PgBouncer does in transaction mode, wants false.
    pub prepare: bool,
}

impl Default for Options {
    fn default() -> Self {
        let host = whoami::hostname().unwrap_or_else(|_| "localhost".into());
        Self {
            queues: vec!["default".into()],
            concurrency: 10,
            timeout: None,
            kind_timeouts: HashMap::new(),
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            name: format!("{host}:{}:{:08x}", std::process::id(), random() as u32),
            info: Map::new(),
            prepare: true,
        }
    }
}

/// A queue of a worker, and its share of the places.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Its share of the places, beside the weights of the others.
    pub weight: f64,
}

impl From<&str> for Queue {
    /// A queue of weight 1.
    fn from(name: &str) -> Self {
        let (name, weight) = (name.into(), 1.0);
        Self { name, weight }
    }
}

impl Options {
    /// What no worker can have.
    fn check(&self) -> Result<()> {
        let mut names = HashSet::new();
        let twice = self.queues.iter().find(|queue| !names.insert(&queue.name));
        let weightless = |queue: &&Queue| !queue.weight.is_finite() || queue.weight <= 0.0;
        let mut timeouts = self.kind_timeouts.iter();
        let fault = if self.queues.is_empty() {
            "queues is empty".into()
        } else if let Some(Queue { name, .. }) = twice {
            format!("queues has {name} twice")
        } else if let Some(Queue { name, weight }) = self.queues.iter().find(weightless) {
            format!("queues has {name} with weight {weight}")
        } else if self.concurrency == 0 {
            "concurrency is 0".into()
        } else if self.lease.is_zero() {
            "lease is 0 s".into()
        } else if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            "timeout is 0 s".into()
        } else if let Some((kind, _)) = timeouts.find(|(_, timeout)| timeout.is_zero()) {
            format!("kind_timeouts has {kind} with 0 s")
        } else {
            return Ok(());
        };
        Err(ClientError::Option(fault))
    }
}

/// A worker: fetches jobs, runs their handlers, and says what became of them.
///
/// It needs a runtime of tokio, and has three connections, however many jobs it runs.
pub struct Worker {
    pub(crate) config: Config,
    pub(crate) options: Options,
    pub(crate) handlers: HashMap<String, Registered>,
    pub(crate) otherwise: Option<Registered>,
    pub(crate) middleware: Vec<Arc<dyn Middleware>>,
    /// A kind that has been given a second handler.
    twice: Option<String>,
}

impl Worker {
    /// A worker for the database that the configuration says, which can be the `parse()` of a URL.
    ///
    /// # Errors
    /// An option is one that no worker can have.
    pub fn new(config: Config, mut options: Options) -> Result<Self> {
        options.check()?;
        let info = &mut options.info;
        info.entry("library")
            .or_insert("postgres-jobs for Rust".into());
        info.entry("version")
            .or_insert(env!("CARGO_PKG_VERSION").into());
        Ok(Self {
            config: watchful(config, &options.name),
            options,
            handlers: HashMap::new(),
            otherwise: None,
            middleware: Vec::new(),
            twice: None,
        })
    }

    /// The handler of a kind of job: an `async fn`, or a [`Blocking`](crate::Blocking) one. What it
    /// returns is the job's output. An error or a panic fails the attempt.
    ///
    /// Args that are not of its type fail the attempt, with type `invalid_args`. A kind that has a
    /// handler already is an error at the start.
    pub fn kind<A>(mut self, kind: &str, handler: impl Handler<A>) -> Self {
        let other = self.handlers.insert(kind.into(), Registered::new(handler));
        self.twice = self.twice.or(other.map(|_| kind.into()));
        self
    }

    /// The handler of every other kind. Without one, only kinds that have a handler are fetched.
    pub fn otherwise<A>(mut self, handler: impl Handler<A>) -> Self {
        let other = self.otherwise.replace(Registered::new(handler));
        self.twice = self.twice.or(other.map(|_| "otherwise".into()));
        self
    }

    /// Something around every handler. What is added first is outermost.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// The handler of a job that was fetched.
    pub(crate) fn handler(&self, kind: &str) -> &Registered {
        let handler = self.handlers.get(kind).or(self.otherwise.as_ref());
        handler.expect("only kinds with a handler are fetched")
    }

    pub(crate) fn link(&self) -> Link {
        Link::new(&self.config, self.options.prepare)
    }

    /// The names of its queues.
    pub(crate) fn queues(&self) -> Vec<&str> {
        let queues = self.options.queues.iter();
        queues.map(|queue| &*queue.name).collect()
    }

    /// The kinds that it fetches; none: all of them.
    pub(crate) fn kinds(&self) -> Option<Vec<&str>> {
        let kinds = self.handlers.keys().map(|kind| &**kind);
        self.otherwise.is_none().then(|| kinds.collect())
    }

    /// Runs until SIGTERM or SIGINT, and stops as [`Handle::stop`] does, at a second signal as
    /// [`Handle::stop_and_cancel`]. An operator's command `stop` ends it as well.
    ///
    /// # Errors
    /// As of [`Worker::start`] and [`Handle::wait`].
    pub async fn run(self) -> Result<()> {
        self.start()?.until_signal().await
    }

    /// Runs in the background, with signals left to the program.
    ///
    /// # Errors
    /// It has no handler, or two for a kind. A database that cannot be reached is tried again.
    pub fn start(self) -> Result<Handle> {
        if let Some(kind) = self.twice {
            return Err(ClientError::Option(format!("kind {kind} has two handlers")));
        }
        if self.handlers.is_empty() && self.otherwise.is_none() {
            return Err(ClientError::Option("the worker has no handler".into()));
        }
        Ok(Handle::start(self))
    }
}

/// Finds out within a minute that nobody is at the other end, and shows the worker's name.
fn watchful(mut config: Config, name: &str) -> Config {
    let second = Duration::from_secs(1);
    if config.get_application_name().is_none() {
        config.application_name(name);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(10 * second);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(30 * second);
    }
    config
        .keepalives_idle(30 * second)
        .keepalives_interval(10 * second)
        .keepalives_retries(3);
    config
}
