//! A job to be inserted, and what an insert has made of it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::executor::json;
use crate::unique::seconds;
use crate::{State, Unique};

/// A job to be inserted. What is none or empty its kind says (`jobs.define_kind`), or else the
/// database's defaults.
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
    /// Its queue; the default is `default`.
    pub queue: Option<String>,
    /// The lower number is fetched first; the default is 1.
    pub priority: Option<i32>,
    /// When it is to run; the default is at once.
    pub scheduled_at: Option<DateTime<Utc>>,
    /// When it is too late for it to begin; the default is never.
    pub expires_at: Option<DateTime<Utc>>,
    /// How many attempts there can be; the default is 25.
    pub max_attempts: Option<i32>,
    /// Its tags.
    pub tags: Vec<String>,
    /// What is said of it beside the args.
    pub meta: Map<String, Value>,
    /// How long an attempt may run, [`Duration::MAX`] for no limit; the default is a minute.
    #[serde(with = "seconds")]
    pub timeout: Option<Duration>,
    /// How long it waits after a failure, as `jobs.insert` has it; the default is `"river"`.
    pub retry: Option<Value>,
    /// Whether it waits until somebody calls `jobs.activate`.
    pub pending: bool,
    /// What makes it unique, and what becomes of a duplicate.
    pub unique_opts: Option<Unique>,
}

impl NewJob {
    /// A job of this kind with these args, and nothing else said of it.
    ///
    /// # Errors
    /// The args have no JSON.
    pub fn new(kind: &str, args: impl Serialize) -> serde_json::Result<Self> {
        let mut job = Self::default();
        (job.kind, job.args) = (kind.into(), json(&args)?);
        Ok(job)
    }
}

/// What an insert has made, or found.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Inserted {
    /// The job, or the one that it is a duplicate of; none if [`Unique::wait`] is false and
    /// somebody else is inserting it now.
    pub id: Option<i64>,
    /// The state of that job.
    pub state: Option<State>,
    /// Whether nothing was inserted, since there is such a job.
    #[serde(rename = "unique_skipped_as_duplicate")]
    pub is_duplicate: bool,
    /// The newest of the jobs that it replaces.
    pub replaced_id: Option<i64>,
}
