//! A job to insert, once or periodically, the definition of its kind, and the result of its insert.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::executor::json;
use crate::unique::seconds;
use crate::{State, Unique};

/// A job to insert. None and empty values mean the kind's default (`jobs.define_kind`), else the
/// server's.
///
/// ```
/// # use postgres_jobs::NewJob;
/// # fn job() -> Result<NewJob, serde_json::Error> {
/// let job = NewJob {
///     queue: Some("mail".into()),
///     ..NewJob::new("email.send", serde_json::json!({ "to": "ada@example.com" }))?
/// };
/// # Ok(job)
/// # }
/// ```
#[derive(Clone, Debug, Default, Serialize)]
pub struct NewJob {
    /// Its kind.
    pub kind: String,
    /// Its args.
    pub args: Box<RawValue>,
    /// Its queue. Default: `default`.
    pub queue: Option<String>,
    /// Lower numbers are fetched first. Default: 1.
    pub priority: Option<i32>,
    /// When it is due. Default: now.
    pub scheduled_at: Option<DateTime<Utc>>,
    /// When it is discarded unless it was fetched. Default: never.
    pub expires_at: Option<DateTime<Utc>>,
    /// The maximum number of attempts. Default: 25.
    pub max_attempts: Option<i32>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Metadata.
    pub meta: Map<String, Value>,
    /// The timeout of an attempt, or [`Duration::MAX`] for no limit. Default: 1 minute.
    #[serde(with = "seconds")]
    pub timeout: Option<Duration>,
    /// The retry policy, as in `jobs.insert`. Default: `"river"`.
    pub retry: Option<Value>,
    /// Whether it waits for `jobs.activate`.
    pub pending: bool,
    /// What makes it unique, and what happens to a duplicate.
    pub unique_opts: Option<Unique>,
}

impl NewJob {
    /// A job of this kind with these args and defaults otherwise.
    ///
    /// # Errors
    /// The args have no JSON form.
    pub fn new(kind: &str, args: impl Serialize) -> serde_json::Result<Self> {
        Ok(Self { kind: kind.into(), args: json(&args)?, ..Self::default() })
    }

    /// A job with these args, and the defaults of their [`Kind`].
    ///
    /// # Errors
    /// The args have no JSON form.
    pub fn of<K: Kind>(args: &K) -> serde_json::Result<Self> {
        let KindOptions { queue, priority, max_attempts, timeout, retry, unique_opts } =
            K::options();
        let job = Self::new(K::NAME, args)?;
        Ok(Self { queue, priority, max_attempts, timeout, retry, unique_opts, ..job })
    }
}

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

/// A periodic job.
///
/// ```
/// # use postgres_jobs::{NewJob, Periodic};
/// # fn periodic() -> Result<Periodic, serde_json::Error> {
/// let nightly = Periodic {
///     time_zone: Some("Europe/Berlin".into()),
///     ..Periodic::new("nightly", "0 3 * * *", NewJob::new("report", ())?)
/// };
/// # Ok(nightly)
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Periodic {
    /// Its name.
    pub name: String,
    /// Its schedule, as in `jobs.schedule`.
    pub cron: String,
    /// The job of each tick. Its times and `pending` have no effect.
    pub job: NewJob,
    /// The time zone of the schedule. Default: UTC.
    pub time_zone: Option<String>,
    /// What happens to ticks that were missed: `once`, the default, or `skip`.
    pub missed: Option<String>,
}

impl Periodic {
    /// A periodic job with defaults otherwise.
    pub fn new(name: &str, cron: &str, job: NewJob) -> Self {
        let (name, cron) = (name.into(), cron.into());
        Self { name, cron, job, time_zone: None, missed: None }
    }
}

/// The result of an insert.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Inserted {
    /// The id of the new job, or of the existing one; none if [`Unique::wait`] is false and another
    /// transaction is inserting it, or in an outbox.
    pub id: Option<i64>,
    /// The state of that job.
    pub state: Option<State>,
    /// Whether nothing was inserted because the job is a duplicate.
    #[serde(rename = "unique_skipped_as_duplicate")]
    pub is_duplicate: bool,
    /// The newest of the jobs that it replaced.
    pub replaced_id: Option<i64>,
}
