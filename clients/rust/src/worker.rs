//! A worker before it runs: its options and its handlers.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio_postgres::Config;
use unicode_normalization::UnicodeNormalization;

use crate::handler::Ended;
use crate::link::{Link, random};
use crate::{ClientError, Error, Handler, Handling, Job, JobInfo, Middleware, Result};

/// The options of a worker.
///
/// ```
/// # use postgres_jobs::Options;
/// let options = Options {
///     concurrency: 20,
///     ..Options::queues(["mail"])
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
    /// The defaults, with these queues.
    pub fn queues<Q: Into<Queue>>(queues: impl IntoIterator<Item = Q>) -> Self {
        let queues = queues.into_iter().map(Into::into).collect();
        Self {
            queues,
            ..Self::default()
        }
    }

    fn check(&self) -> Result<()> {
        require(!self.queues.is_empty(), "queues is empty")?;
        let mut names = HashSet::new();
        for Queue { name, weight } in &self.queues {
            let is_weight = weight.is_finite() && *weight > 0.0;
            require(names.insert(name), format!("queues has {name} twice"))?;
            let fault = format!("queues has {name} with weight {weight}: not a positive number");
            require(is_weight, fault)?;
        }
        require(self.concurrency > 0, "concurrency is 0: not at least 1")?;
        require(!self.lease.is_zero(), "lease is 0 s: not positive")?;
        let has_time = self.timeout != Some(Duration::ZERO);
        require(has_time, "timeout is 0 s: not positive")?;
        for (kind, timeout) in &self.kind_timeouts {
            let fault = format!("kind_timeouts has {kind} with 0 s: not positive");
            require(!timeout.is_zero(), fault)?;
        }
        Ok(())
    }
}

/// Refuses what no worker can have.
fn require(is_right: bool, fault: impl Into<String>) -> Result<()> {
    let fault = || ClientError::Option(fault.into());
    is_right.then_some(()).ok_or_else(fault)
}

/// Starts a handler, whatever type its args have.
type Start = Arc<dyn Fn(Job<()>) -> Handling + Send + Sync>;

/// A worker: fetches jobs, runs their handlers, and says what became of them.
///
/// It needs a runtime of tokio, and has three connections, however many jobs it runs.
pub struct Worker {
    pub(crate) config: Config,
    pub(crate) options: Options,
    /// By kind; none: of every other kind.
    handlers: HashMap<Option<String>, Start>,
    middleware: Vec<Arc<dyn Middleware>>,
    /// Whether it can start.
    fit: Result<()>,
}

impl Worker {
    /// A worker for the database that the configuration says, which can be the `parse()` of a URL.
    ///
    /// # Errors
    /// An option is one that no worker can have.
    pub fn new(config: Config, mut options: Options) -> Result<Self> {
        for queue in &mut options.queues {
            queue.name = as_kept(&queue.name);
        }
        options.check()?;
        Ok(Self {
            config: watchful(&config, &options.name),
            options,
            handlers: HashMap::new(),
            middleware: Vec::new(),
            fit: Ok(()),
        })
    }

    /// The handler of a kind of job: an `async fn`, or a [`Blocking`](crate::Blocking) one. What it
    /// returns is the job's output. An error or a panic fails the attempt.
    ///
    /// Args that are not of its type fail the attempt, with type `invalid_args`. A kind that has a
    /// handler already is an error at the start.
    pub fn kind<A>(self, kind: &str, handler: impl Handler<A>) -> Self {
        self.register(Some(as_kept(kind)), Arc::new(handler))
    }

    /// The handler of every other kind. Without one, only kinds that have a handler are fetched.
    pub fn otherwise<A>(self, handler: impl Handler<A>) -> Self {
        self.register(None, Arc::new(handler))
    }

    fn register<A>(mut self, kind: Option<String>, handler: Arc<impl Handler<A>>) -> Self {
        let shown = kind.clone().unwrap_or("otherwise".into());
        let handle = Arc::new(move |job| handler.clone().handle(job));
        let is_first = self.handlers.insert(kind, handle).is_none();
        let fit = require(is_first, format!("kind {shown} has two handlers"));
        self.fit = self.fit.and(fit);
        self
    }

    /// Something around every handler. What is added first is outermost.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// The handler of a job at work, with its middleware around it. A panic is an error.
    pub(crate) fn handling(&self, info: Arc<JobInfo>, link: Option<Arc<Mutex<Link>>>) -> Handling {
        let args = ();
        let job = Job { args, info, link };
        let handler = self.handlers.get(&Some(job.kind.clone()));
        let handler = handler.or(self.handlers.get(&None)).cloned();
        let middleware = self.middleware.clone();
        safe(async move {
            let handler = handler.expect("only kinds with a handler are fetched");
            let around = |inner, one: &Arc<dyn Middleware>| one.work(job.clone(), inner);
            let middleware = middleware.iter().rev();
            middleware.fold(safe(handler(job.clone())), around).await
        })
    }

    /// The kinds that it fetches, each a line; a line's end alone: all of them.
    pub(crate) fn kinds(&self) -> String {
        let kinds: Option<Vec<&str>> = self.handlers.keys().map(Option::as_deref).collect();
        kinds.map_or("\n".into(), |kinds| kinds.join("\n"))
    }

    /// Refuses what cannot start.
    pub(crate) fn check(&mut self) -> Result<()> {
        std::mem::replace(&mut self.fit, Ok(()))?;
        require(!self.handlers.is_empty(), "the worker has no handler")?;
        for kind in self.options.kind_timeouts.keys() {
            let has = |kind| self.handlers.contains_key(&kind);
            let fault = format!("kind_timeouts has {kind}, which has no handler");
            require(has(None) || has(Some(kind.clone())), fault)?;
        }
        Ok(())
    }

    /// A connection of the worker.
    pub(crate) fn link(&self, patience: Duration) -> Link {
        Link::new(&self.config, self.options.prepare, patience)
    }
}

/// Makes an error of a panic: of a handler's, which middleware is to see, or of middleware's own.
fn safe(handling: impl Future<Output = Ended> + Send + 'static) -> Handling {
    let ended = AssertUnwindSafe(handling).catch_unwind();
    Box::pin(ended.map(|ended| ended.unwrap_or_else(|panic| Err(Error::panic(panic)))))
}

/// A name as the database keeps it.
fn as_kept(name: &str) -> String {
    name.nfc().collect()
}

/// The names of queues, each a line.
pub(crate) fn names<'a>(queues: impl IntoIterator<Item = &'a Queue>) -> String {
    let names = queues.into_iter().map(|queue| &*queue.name);
    names.collect::<Vec<_>>().join("\n")
}

/// Finds out within a minute that nobody is at the other end, and shows the worker's name, unless
/// the configuration says otherwise.
fn watchful(given: &Config, name: &str) -> Config {
    let (seconds, mut config) = (Duration::from_secs, given.clone());
    config.application_name(given.get_application_name().unwrap_or(name));
    config.connect_timeout(given.get_connect_timeout().copied().unwrap_or(seconds(10)));
    config.tcp_user_timeout(given.get_tcp_user_timeout().copied().unwrap_or(seconds(30)));
    if given.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(seconds(30));
    }
    config.keepalives_interval(given.get_keepalives_interval().unwrap_or(seconds(10)));
    config.keepalives_retries(given.get_keepalives_retries().unwrap_or(3));
    config
}
