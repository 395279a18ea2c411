//! The options of a worker.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization;

use crate::error::LONGEST_DURATION;
use crate::link::random;
use crate::{ClientError, Result};

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
    /// How long a handler may run, unless it has a timeout of its own. Default: no limit but the
    /// job's.
    pub timeout: Option<Duration>,
    /// How long a job stays with a dead worker before it is rescued. Default: 30 s. Leases are
    /// renewed every third of it.
    pub lease: Duration,
    /// How long handlers may run after a stop. Default: 10 s.
    pub grace: Duration,
    /// How many more jobs than it has free places the worker fetches. They wait in the worker, and
    /// start as places get free. Default: 0.
    pub prefetch: usize,
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
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            prefetch: 0,
            name: format!("{host:.80}:{}:{:08x}", std::process::id(), random() as u32),
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
        Self { name: name.into(), weight: 1.0 }
    }
}

impl Options {
    /// The defaults, with these queues.
    pub fn queues<Q: Into<Queue>>(queues: impl IntoIterator<Item = Q>) -> Self {
        let queues = queues.into_iter().map(Into::into).collect();
        Self { queues, ..Self::default() }
    }

    /// The maximum number of jobs that the worker has, running and waiting.
    pub(crate) fn most(&self) -> usize {
        self.concurrency.saturating_add(self.prefetch)
    }

    pub(crate) fn check(&self) -> Result<()> {
        require(!self.queues.is_empty(), "queues must name at least one queue")?;
        require_name("the name of a worker", &self.name)?;
        let mut names = HashSet::new();
        for Queue { name, weight } in &self.queues {
            require_name("an element of queues", name)?;
            let fault = format!("queues must name each queue once, not {name} twice");
            require(names.insert(name), fault)?;
            let fault =
                format!("the weight of queue {name} must be a positive number, not {weight}");
            require(weight.is_finite() && *weight > 0.0, fault)?;
        }
        require(self.concurrency > 0, "concurrency must be at least 1, not 0")?;
        let is_right = (Duration::from_micros(1)..=LONGEST_DURATION).contains(&self.lease);
        let fault = format!("lease must be between 1 µs and 1000 years, not {:?}", self.lease);
        require(is_right, fault)?;
        require(self.timeout != Some(Duration::ZERO), "timeout must be positive, not 0 s")
    }
}

/// Refuses what no worker can have.
pub(crate) fn require(is_right: bool, fault: impl Into<String>) -> Result<()> {
    if is_right { Ok(()) } else { Err(ClientError::Option(fault.into())) }
}

/// Refuses a name that the database refuses.
pub(crate) fn require_name(what: &str, name: &str) -> Result<()> {
    let name = as_kept(name);
    let has_length = (1..=127).contains(&name.chars().count());
    let rule = "must have 1 to 127 characters and no control characters";
    let fault = format!("{what} {rule}, not {name:?}");
    require(has_length && !name.chars().any(char::is_control), fault)
}

/// A name as the database stores it.
pub(crate) fn as_kept(name: &str) -> String {
    name.nfc().collect()
}

/// The names of queues, one per line.
pub(crate) fn names<'a>(queues: impl IntoIterator<Item = &'a Queue>) -> String {
    let names = queues.into_iter().map(|queue| &*queue.name);
    names.collect::<Vec<_>>().join("\n")
}
