//! The definition of a kind, for producers and workers.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Unique;
use crate::unique::seconds;

/// Args that define their kind: its name and its defaults.
///
/// ```
/// # use postgres_jobs::{Error, Job, Kind, KindOptions, NewJob, Worker};
/// # use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail {
///     to: String,
/// }
///
/// impl Kind for SendEmail {
///     const NAME: &str = "email.send";
///
///     fn options() -> KindOptions {
///         KindOptions { queue: Some("mail".into()), ..KindOptions::default() }
///     }
/// }
///
/// async fn send(job: Job<SendEmail>) -> Result<(), Error> {
///     println!("mail to {}", job.args.to);
///     Ok(())
/// }
///
/// # fn job(worker: Worker) -> Result<NewJob, serde_json::Error> {
/// let worker = worker.handle(send);
/// let job = NewJob::of(&SendEmail { to: "ada@example.com".into() })?;
/// # Ok(job)
/// # }
/// ```
pub trait Kind: Serialize + DeserializeOwned + Send + 'static {
    /// The name of the kind.
    const NAME: &str;

    /// The defaults of its jobs, which travel with each insert.
    fn options() -> KindOptions {
        KindOptions::default()
    }
}

/// The defaults of a kind. None means the default in the database (`jobs.define_kind`), else the
/// server's.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KindOptions {
    /// The queue.
    pub queue: Option<String>,
    /// Lower numbers are fetched first.
    pub priority: Option<i32>,
    /// The maximum number of attempts.
    pub max_attempts: Option<i32>,
    /// The timeout of an attempt and of the handler, or [`Duration::MAX`] for no limit.
    #[serde(with = "seconds")]
    pub timeout: Option<Duration>,
    /// The retry policy, as in `jobs.insert`.
    pub retry: Option<Value>,
    /// What makes a job unique.
    pub unique_opts: Option<Unique>,
}

/// A kind and its defaults, as [`Worker::sync`](crate::Worker::sync) writes them.
#[derive(Serialize)]
pub(crate) struct Declared {
    pub(crate) kind: &'static str,
    #[serde(flatten)]
    pub(crate) options: KindOptions,
}
