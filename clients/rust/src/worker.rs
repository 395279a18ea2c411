//! A worker before it runs: its options and its handlers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::Config;

use crate::error::safe;
use crate::handler::Registered;
use crate::link::Link;
use crate::options::{as_kept, require, require_name};
use crate::{
    Error, Handler, Handling, Job, JobInfo, Kind, KindOptions, Middleware, Options, Periodic,
    Result,
};

/// The kind of the handler of every other kind.
const OTHERS: &str = "";

/// Is told of failures.
pub(crate) type Hook = Box<dyn Fn(&JobInfo, &Error) + Send + Sync>;

/// Fetches jobs and runs their handlers.
///
/// A worker needs a tokio runtime, and uses three connections for any number of jobs.
pub struct Worker {
    /// One for each cell.
    pub(crate) configs: Vec<Config>,
    pub(crate) options: Options,
    handlers: BTreeMap<String, Registered>,
    middleware: Vec<Arc<dyn Middleware>>,
    pub(crate) on_error: Option<Hook>,
    pub(crate) on_discarded: Option<Hook>,
    pub(crate) kinds: Vec<(&'static str, KindOptions)>,
    pub(crate) periodic: Vec<Periodic>,
    /// Whether the worker can start.
    fit: Result<()>,
}

impl Worker {
    /// Makes a worker for the configured database. The configuration can be a parsed URL.
    ///
    /// # Errors
    /// An option is invalid.
    pub fn new(config: Config, options: Options) -> Result<Self> {
        Self::in_cells([config], options)
    }

    /// Makes a worker for the configured databases, which are cells. It shares its places between
    /// them.
    ///
    /// # Errors
    /// An option is invalid, or there is no configuration.
    pub fn in_cells(
        configs: impl IntoIterator<Item = Config>,
        mut options: Options,
    ) -> Result<Self> {
        for queue in &mut options.queues {
            queue.name = as_kept(&queue.name);
        }
        options.check()?;
        let watchful = |config| watchful(&config, &options.name);
        let configs: Vec<_> = configs.into_iter().map(watchful).collect();
        require(!configs.is_empty(), "a worker must have at least one database")?;
        Ok(Self {
            configs,
            options,
            handlers: BTreeMap::new(),
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
        self.register(Some(kind), handler.limited().0)
    }

    /// Sets the handler of the [`Kind`] that the args define. The timeout of the kind is that of
    /// the handler, unless it has one.
    pub fn handle<A: Kind>(mut self, handler: impl Handler<A>) -> Self {
        let (mut handler, options) = (handler.limited().0, A::options());
        handler.timeout = handler.timeout.or(options.timeout);
        self.kinds.push((A::NAME, options));
        self.register(Some(A::NAME), handler)
    }

    /// Sets the handler of every other kind. Without it, only kinds with a handler are fetched.
    pub fn otherwise<A>(self, handler: impl Handler<A>) -> Self {
        self.register(None, handler.limited().0)
    }

    fn register(mut self, kind: Option<&str>, handler: Registered) -> Self {
        let shown = kind.map_or("every other kind".into(), |kind| format!("kind {kind}"));
        let Registered { timeout, concurrency, size, .. } = handler;
        let before = self.handlers.insert(as_kept(kind.unwrap_or(OTHERS)), handler);
        self.fit = self.fit.and_then(|()| {
            if let Some(kind) = kind {
                require_name("a kind", kind)?;
            }
            require(before.is_none(), format!("{shown} already has a handler"))?;
            let has_time = timeout != Some(Duration::ZERO);
            require(has_time, format!("the timeout of {shown} must be positive, not 0 s"))?;
            let has_place = concurrency != Some(0);
            require(has_place, format!("the concurrency of {shown} must be at least 1, not 0"))?;
            require(size > 0, format!("the size of {shown} must be at least 1, not 0"))
        });
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

    /// The handler of a kind.
    pub(crate) fn handler(&self, kind: &str) -> &Registered {
        let handler = self.handlers.get(kind).or_else(|| self.handlers.get(OTHERS));
        handler.expect("only kinds with a handler are fetched")
    }

    /// How many jobs of these kinds the worker runs at once, if they are one with a concurrency.
    pub(crate) fn limit(&self, kinds: &str) -> Option<usize> {
        self.handlers.get(kinds)?.concurrency
    }

    /// Runs the handler of jobs, each within the middleware. A panic becomes an error: of a
    /// handler, so that middleware sees it, or of middleware.
    pub(crate) fn handlings(
        &self,
        jobs: &[Arc<JobInfo>],
        links: &[Arc<Mutex<Link>>],
    ) -> Vec<Handling> {
        let handler = self.handler(&jobs[0].kind);
        let link = |info: &JobInfo| links.get(info.cell).cloned();
        let job = |info: &Arc<JobInfo>| Job { args: (), info: info.clone(), link: link(info) };
        let jobs: Vec<_> = jobs.iter().map(job).collect();
        let around = |(job, handling): (Job<()>, _)| {
            let middleware = self.middleware.clone();
            let handling: Handling = Box::pin(safe(handling));
            let around = async move {
                middleware
                    .iter()
                    .rev()
                    .fold(handling, |inner, one| one.work(job.clone(), inner))
                    .await
            };
            Box::pin(safe(around)) as Handling
        };
        jobs.iter().cloned().zip((handler.handle)(jobs.clone())).map(around).collect()
    }

    /// The kinds of each fetch, one per line: those with a concurrency by themselves. A lone line
    /// end means all.
    pub(crate) fn fetches(&self) -> Vec<String> {
        let is_limited = |kind: &String| self.limit(kind).is_some();
        let (mut fetches, shared): (Vec<_>, Vec<_>) =
            self.handlers.keys().cloned().partition(is_limited);
        if self.handlers.contains_key(OTHERS) {
            fetches.push("\n".into());
        } else if !shared.is_empty() {
            fetches.push(shared.join("\n"));
        }
        fetches
    }

    /// Fails if the worker cannot start.
    pub(crate) fn check(&mut self) -> Result<()> {
        std::mem::replace(&mut self.fit, Ok(()))?;
        require(!self.handlers.is_empty(), "the worker has no handlers")?;
        let is_limited = self.handlers.keys().any(|kind| self.limit(kind).is_some());
        require(
            !is_limited || !self.handlers.contains_key(OTHERS),
            "a kind has a concurrency only in a worker without a handler of every other kind",
        )
    }

    /// A connection of the worker to a cell.
    pub(crate) fn link(&self, cell: usize, patience: Duration) -> Link {
        Link::new(self.configs[cell].clone(), self.options.prepare, patience)
    }
}

/// Names the user, detects a dead peer within a minute and shows the worker's name, unless
/// configured otherwise.
pub(crate) fn watchful(given: &Config, name: &str) -> Config {
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
