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
    /// The queues, which share the places by their weights. Places that a queue does not use go to
    /// the others. Default: `default`.
    pub queues: Vec<Queue>,
    /// The maximum number of handlers that run at once. Default: 10.
    pub concurrency: usize,
    /// How long a handler may run, unless its kind has a timeout. Default: no limit but the job's.
    pub timeout: Option<Duration>,
    /// How long handlers of these kinds may run; [`Duration::MAX`] is no limit but the job's.
    pub kind_timeouts: HashMap<String, Duration>,
    /// How long a job stays with a dead worker before it is rescued. Default: 30 s. Leases are
    /// renewed every third of it.
    pub lease: Duration,
    /// How long handlers may go on after a stop. Default: 10 s.
    pub grace: Duration,
    /// The worker's name in `jobs.workers`. Default: `HOST:PID:RANDOM`.
    pub name: String,
    /// Shown in `jobs.workers`. The library adds its name and version.
    pub info: Map<String, Value>,
    /// Whether the worker's statements are prepared. Default: true. Set it to false for a pooler in
    /// transaction mode, such as PgBouncer.
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

/// A queue of a worker and its share of the places.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Its share of the places, relative to the weights of the others.
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
        require(
            !self.queues.is_empty(),
            "queues must name at least one queue",
        )?;
        let mut names = HashSet::new();
        for Queue { name, weight } in &self.queues {
            let is_weight = weight.is_finite() && *weight > 0.0;
            require(
                names.insert(name),
                format!("queues must name each queue once, not {name} twice"),
            )?;
            let fault =
                format!("the weight of queue {name} must be a positive number, not {weight}");
            require(is_weight, fault)?;
        }
        require(
            self.concurrency > 0,
            "concurrency must be at least 1, not 0",
        )?;
        require(!self.lease.is_zero(), "lease must be positive, not 0 s")?;
        let has_time = self.timeout != Some(Duration::ZERO);
        require(has_time, "timeout must be positive, not 0 s")?;
        for (kind, timeout) in &self.kind_timeouts {
            let fault = format!("the timeout of kind {kind} must be positive, not 0 s");
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

/// Starts a handler of any args type.
type Start = Arc<dyn Fn(Job<()>) -> Handling + Send + Sync>;

/// Fetches jobs and runs their handlers.
///
/// A worker needs a tokio runtime, and uses three connections for any number of jobs.
pub struct Worker {
    pub(crate) config: Config,
    pub(crate) options: Options,
    /// By kind. None is the handler of every other kind.
    handlers: HashMap<Option<String>, Start>,
    middleware: Vec<Arc<dyn Middleware>>,
    /// Whether the worker can start.
    fit: Result<()>,
}

impl Worker {
    /// Makes a worker for the configured database. The configuration can be a parsed URL.
    ///
    /// # Errors
    /// An option is invalid.
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

    /// Sets the handler of a kind: an `async fn`, or a [`Blocking`](crate::Blocking) one. Its
    /// result is the job's output. An error or a panic fails the attempt.
    ///
    /// Args that do not fit its type fail the attempt with type `invalid_args`. A second handler of
    /// a kind is an error at the start.
    pub fn kind<A>(self, kind: &str, handler: impl Handler<A>) -> Self {
        self.register(Some(as_kept(kind)), Arc::new(handler))
    }

    /// Sets the handler of every other kind. Without it, only kinds with a handler are fetched.
    pub fn otherwise<A>(self, handler: impl Handler<A>) -> Self {
        self.register(None, Arc::new(handler))
    }

    fn register<A>(mut self, kind: Option<String>, handler: Arc<impl Handler<A>>) -> Self {
        let shown = kind
            .as_ref()
            .map_or("every other kind".into(), |kind| format!("kind {kind}"));
        let handle = Arc::new(move |job| handler.clone().handle(job));
        let is_first = self.handlers.insert(kind, handle).is_none();
        let fit = require(is_first, format!("{shown} already has a handler"));
        self.fit = self.fit.and(fit);
        self
    }

    /// Adds middleware around every handler. The first added is outermost.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Runs the handler of a job within the middleware. A panic becomes an error.
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

    /// The kinds to fetch, one per line. A lone line end means all.
    pub(crate) fn kinds(&self) -> String {
        let kinds: Option<Vec<&str>> = self.handlers.keys().map(Option::as_deref).collect();
        kinds.map_or("\n".into(), |kinds| kinds.join("\n"))
    }

    /// Fails if the worker cannot start.
    pub(crate) fn check(&mut self) -> Result<()> {
        std::mem::replace(&mut self.fit, Ok(()))?;
        require(!self.handlers.is_empty(), "the worker has no handlers")?;
        for kind in self.options.kind_timeouts.keys() {
            let has = |kind| self.handlers.contains_key(&kind);
            let fault = format!("kind_timeouts names {kind}, which has no handler");
            require(has(None) || has(Some(kind.clone())), fault)?;
        }
        Ok(())
    }

    /// A connection of the worker.
    pub(crate) fn link(&self, patience: Duration) -> Link {
        Link::new(&self.config, self.options.prepare, patience)
    }
}

/// Turns a panic into an error: of a handler, so that middleware sees it, or of middleware.
fn safe(handling: impl Future<Output = Ended> + Send + 'static) -> Handling {
    let ended = AssertUnwindSafe(handling).catch_unwind();
    Box::pin(ended.map(|ended| ended.unwrap_or_else(|panic| Err(Error::panic(panic)))))
}

/// A name as the database stores it.
fn as_kept(name: &str) -> String {
    name.nfc().collect()
}

/// The names of queues, one per line.
pub(crate) fn names<'a>(queues: impl IntoIterator<Item = &'a Queue>) -> String {
    let names = queues.into_iter().map(|queue| &*queue.name);
    names.collect::<Vec<_>>().join("\n")
}

/// Detects a dead peer within a minute and shows the worker's name, unless configured otherwise.
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
