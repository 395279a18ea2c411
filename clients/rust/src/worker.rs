//! A worker before it runs: its options and its handlers.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Mutex;
use tokio_postgres::Config;

use crate::error::Ended;
use crate::handler::Limits;
use crate::kind::Declared;
use crate::link::Link;
use crate::options::{as_kept, require};
use crate::{Error, Handler, Handling, Job, JobInfo, Kind, Middleware, Options, Periodic, Result};

/// A handler of any args type, and its options.
struct Registered {
    handle: Box<dyn Fn(Vec<Job<()>>) -> Vec<Handling> + Send + Sync>,
    limits: Limits,
}

/// Is told of failures.
pub(crate) type Hook = Box<dyn Fn(&JobInfo, &Error) + Send + Sync>;

/// Fetches jobs and runs their handlers.
///
/// A worker needs a tokio runtime, and uses three connections for any number of jobs.
pub struct Worker {
    pub(crate) config: Config,
    pub(crate) options: Options,
    handlers: BTreeMap<String, Arc<Registered>>,
    /// The handler of every other kind.
    otherwise: Option<Arc<Registered>>,
    middleware: Vec<Arc<dyn Middleware>>,
    pub(crate) on_error: Option<Hook>,
    pub(crate) on_discarded: Option<Hook>,
    pub(crate) kinds: Vec<Declared>,
    pub(crate) periodic: Vec<Periodic>,
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
            handlers: BTreeMap::new(),
            otherwise: None,
            middleware: Vec::new(),
            on_error: None,
            on_discarded: None,
            kinds: Vec::new(),
            periodic: Vec::new(),
            fit: Ok(()),
        })
    }

    /// Sets the handler of a kind: an `async fn`, a [`Blocking`](crate::Blocking) one, or a
    /// [`Batch`](crate::Batch). Its result is the job's output. An error or a panic fails the
    /// attempt.
    ///
    /// Args that do not fit its type fail the attempt with type `invalid_args`. A second handler of
    /// a kind is an error at the start.
    pub fn kind<A>(self, kind: &str, handler: impl Handler<A>) -> Self {
        let limits = handler.limits();
        self.register(Some(as_kept(kind)), handler, limits)
    }

    /// Sets the handler of the [`Kind`] that the args define. The timeout of the kind is that of
    /// the handler, unless it has one.
    pub fn handle<A: Kind>(mut self, handler: impl Handler<A>) -> Self {
        let (kind, options) = (A::NAME, A::options());
        let mut limits = handler.limits();
        limits.timeout = limits.timeout.or(options.timeout);
        self.kinds.push(Declared { kind, options });
        self.register(Some(as_kept(kind)), handler, limits)
    }

    /// Sets the handler of every other kind. Without it, only kinds with a handler are fetched.
    pub fn otherwise<A>(self, handler: impl Handler<A>) -> Self {
        let limits = handler.limits();
        self.register(None, handler, limits)
    }

    fn register<A>(
        mut self,
        kind: Option<String>,
        handler: impl Handler<A>,
        limits: Limits,
    ) -> Self {
        let is_named = kind.as_deref() != Some("");
        let shown = kind.as_ref().map_or("every other kind".into(), |kind| format!("kind {kind}"));
        let handler = Arc::new(handler);
        let handle = Box::new(move |jobs| handler.clone().handle(jobs));
        let registered = Arc::new(Registered { handle, limits });
        let before = match kind {
            Some(kind) => self.handlers.insert(kind, registered),
            None => self.otherwise.replace(registered),
        };
        let check = || {
            require(is_named, "a kind must not be empty")?;
            require(before.is_none(), format!("{shown} already has a handler"))?;
            let is_positive = limits.timeout != Some(Duration::ZERO);
            require(is_positive, format!("the timeout of {shown} must be positive, not 0 s"))?;
            let has_place = limits.concurrency != Some(0);
            require(has_place, format!("the concurrency of {shown} must be at least 1, not 0"))?;
            let has_size = limits.batch.is_none_or(|(size, _)| size > 0);
            require(has_size, format!("the size of {shown} must be at least 1, not 0"))
        };
        self.fit = self.fit.and_then(|()| check());
        self
    }

    /// Adds middleware around every handler. The first added is outermost.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Sets a function that is called after each failed attempt, also after a timeout or an invalid
    /// output. It must not block. A panic in it is logged.
    pub fn on_error(mut self, hook: impl Fn(&JobInfo, &Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Box::new(hook));
        self
    }

    /// Sets a function that is called when the failure of an attempt has discarded the job. It must
    /// not block. A panic in it is logged.
    pub fn on_discarded(mut self, hook: impl Fn(&JobInfo, &Error) + Send + Sync + 'static) -> Self {
        self.on_discarded = Some(Box::new(hook));
        self
    }

    /// Declares a periodic job, which [`Worker::sync`] writes into the database.
    pub fn periodic(mut self, periodic: Periodic) -> Self {
        self.periodic.push(periodic);
        self
    }

    fn handler(&self, kind: &str) -> Option<&Arc<Registered>> {
        self.handlers.get(kind).or(self.otherwise.as_ref())
    }

    /// The options of the handler of a kind.
    pub(crate) fn limits(&self, kind: &str) -> Limits {
        self.handler(kind).map_or_else(Limits::default, |handler| handler.limits)
    }

    /// Runs the handler of jobs, each within the middleware. A panic becomes an error.
    pub(crate) fn handlings(
        &self,
        jobs: &[Arc<JobInfo>],
        link: Option<&Arc<Mutex<Link>>>,
    ) -> Vec<Handling> {
        let handler = self.handler(&jobs[0].kind).cloned();
        let handler = handler.expect("only kinds with a handler are fetched");
        let job = |info: &Arc<JobInfo>| Job { args: (), info: info.clone(), link: link.cloned() };
        let jobs: Vec<_> = jobs.iter().map(job).collect();
        let handlings = (handler.handle)(jobs.clone());
        let around = |(job, handling): (Job<()>, _)| {
            let middleware = self.middleware.clone();
            safe(async move {
                let around = |inner, one: &Arc<dyn Middleware>| one.work(job.clone(), inner);
                middleware.iter().rev().fold(safe(handling), around).await
            })
        };
        jobs.into_iter().zip(handlings).map(around).collect()
    }

    /// The kinds of each fetch, one per line: those with a concurrency by themselves. A lone line
    /// end means all.
    pub(crate) fn fetches(&self) -> Vec<String> {
        let is_limited = |kind: &String| self.handlers[kind].limits.concurrency.is_some();
        let (mut fetches, shared): (Vec<_>, Vec<_>) =
            self.handlers.keys().cloned().partition(is_limited);
        match self.otherwise {
            Some(_) => fetches.push("\n".into()),
            None if shared.is_empty() => {}
            None => fetches.push(shared.join("\n")),
        }
        fetches
    }

    /// Fails if the worker cannot start.
    pub(crate) fn check(&mut self) -> Result<()> {
        std::mem::replace(&mut self.fit, Ok(()))?;
        let has_handlers = !self.handlers.is_empty() || self.otherwise.is_some();
        require(has_handlers, "the worker has no handlers")?;
        let is_limited = self.handlers.values().any(|handler| handler.limits.concurrency.is_some());
        require(
            !is_limited || self.otherwise.is_none(),
            "a kind has a concurrency only in a worker without a handler of every other kind",
        )
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

/// Names the user, detects a dead peer within a minute and shows the worker's name, unless
/// configured otherwise.
fn watchful(given: &Config, name: &str) -> Config {
    let (seconds, mut config) = (Duration::from_secs, given.clone());
    let user = || whoami::username().ok();
    if let Some(user) = given.get_user().map(Into::into).or_else(user) {
        config.user(user);
    }
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
