//! The job that a handler gets.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use chrono::serde::ts_microseconds;
use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::executor::json;
use crate::{Error, Executor, Result};

/// A job that is being worked on, with args of the handler's type.
///
/// Everything else that is known of it is in [`JobInfo`], as which it can be used: `job.id`.
#[derive(Clone)]
pub struct Job<A> {
    /// The args.
    pub args: A,
    pub(crate) info: Arc<JobInfo>,
    /// What stores its progress; none in a test.
    pub(crate) engine: Option<Arc<Engine>>,
}

/// What the database says of a job that is being worked on.
#[derive(Debug, Deserialize)]
#[non_exhaustive]
pub struct JobInfo {
    /// The id.
    pub id: i64,
    pub(crate) token: i64,
    /// The kind, which says what handler it has.
    pub kind: String,
    /// The queue that it was fetched from.
    pub queue: String,
    /// The args as they are in the database: every number has all of its digits.
    #[serde(rename = "args")]
    pub raw_args: Box<RawValue>,
    /// What the producer and its middleware say of the job beside the args; null if it is too deep,
    /// or has a number that a [`Value`] cannot hold.
    #[serde(deserialize_with = "value")]
    pub meta: Value,
    /// The tags.
    pub tags: Vec<String>,
    /// The lower number is fetched first.
    pub priority: i32,
    /// The number of this attempt, from 1.
    pub attempt: i32,
    /// How many attempts there can be.
    pub max_attempts: i32,
    /// When it was inserted.
    #[serde(with = "ts_microseconds")]
    pub created_at: DateTime<Utc>,
    /// When it was to run.
    #[serde(with = "ts_microseconds")]
    pub scheduled_at: DateTime<Utc>,
    /// When this attempt began.
    #[serde(with = "ts_microseconds")]
    pub attempted_at: DateTime<Utc>,
    /// When the server takes the job away, by the clock of this machine; none: never.
    #[serde(deserialize_with = "deadline")]
    pub deadline: Option<Instant>,
    #[serde(skip)]
    pub(crate) cancellation: CancellationToken,
    /// Whether its timeout has passed.
    #[serde(skip)]
    pub(crate) is_late: AtomicBool,
    /// Whether there is nothing more to tell: it was told, or the job is somebody else's.
    #[serde(skip)]
    pub(crate) is_settled: AtomicBool,
    /// Whether the handler has completed it in a transaction, which may not be committed yet.
    #[serde(skip)]
    pub(crate) is_completed: AtomicBool,
}

/// Jobs, in the order of the members of [`JobInfo`]: of queues, each a line; how many; a worker's
/// name; seconds of lease; of kinds, each a line, or null. An array is much cheaper than an object.
pub(crate) const FETCH: &str = "
select json_build_array(
        id, token, kind, queue, args, meta, tags, priority, attempt, max_attempts,
        (date_part('epoch', created_at) * 1e6)::bigint,
        (date_part('epoch', scheduled_at) * 1e6)::bigint,
        (date_part('epoch', attempted_at) * 1e6)::bigint,
        date_part('epoch', deadline_at - clock_timestamp()))::text
    from jobs.fetch_any(string_to_array($1::jsonb->>0, e'\n'), ($1::jsonb->1)::int,
        worker => $1::jsonb->>2, lease => make_interval(secs => ($1::jsonb->3)::float8),
        kinds => string_to_array($1::jsonb->>4, e'\n'))";
const COMPLETE: &str = "
select jobs.complete(($1::jsonb->0)::bigint, ($1::jsonb->1)::bigint,
    nullif($1::jsonb->2, 'null'))::text";

fn value<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Value, D::Error> {
    let value = Box::<RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(value.get()).unwrap_or_default())
}

/// The time that is so many seconds from now.
fn deadline<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Instant>, D::Error> {
    let left = Option::<f64>::deserialize(from)?;
    let left = left.map(|left| Duration::try_from_secs_f64(left).unwrap_or_default());
    Ok(left.and_then(|left| Instant::now().checked_add(left)))
}

impl JobInfo {
    pub(crate) fn is_completed(&self) -> bool {
        self.is_completed.load(SeqCst)
    }

    /// How long its handler may run, so that it is over before the server ends the attempt.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let left = self.deadline?.saturating_duration_since(Instant::now());
        Some(left - (left / 20).min(Duration::from_secs(1)))
    }

    /// Takes the answer to a heartbeat, whether the job is to be cancelled. None: it is lost,
    /// unless it was told meanwhile.
    pub(crate) fn hear(&self, is_cancelled: Option<bool>) {
        let is_meant = || is_cancelled.unwrap_or_else(|| !self.is_settled.swap(true, SeqCst));
        if !self.is_completed() && is_meant() {
            let is_lost = is_cancelled.is_none();
            tracing::warn!(id = self.id, kind = self.kind, is_lost, "handler cancelled");
            self.cancellation.cancel();
        }
    }
}

impl<A> Deref for Job<A> {
    type Target = JobInfo;

    fn deref(&self) -> &JobInfo {
        &self.info
    }
}

impl<A> Job<A> {
    /// The job with args of the handler's type.
    pub(crate) fn typed<B: DeserializeOwned>(self) -> std::result::Result<Job<B>, Error> {
        let args = serde_json::from_str(self.raw_args.get());
        Ok(Job {
            args: args.map_err(|error| Error::from(error).typed("invalid_args"))?,
            info: self.info,
            engine: self.engine,
        })
    }

    /// Is cancelled when the handler is to stop: at its timeout, when somebody cancels the job,
    /// when the worker stops, or when the job is lost to another worker.
    ///
    /// An async handler that has not ended a second later is dropped at its `await`.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.info.cancellation
    }

    /// Stores how far the job is, for all to see in `jobs.jobs`, and renews its lease.
    ///
    /// # Errors
    /// The value has no JSON that the database takes, or the job is lost.
    pub async fn progress(&self, value: impl Serialize) -> Result<()> {
        let of = json(&(self.id, self.token, value))?;
        // Without a worker, as in a test, nobody looks at progress.
        if let Some(engine) = &self.engine {
            engine.progress(self, &of).await?;
        }
        Ok(())
    }

    /// Completes the job within a transaction of the handler: with it, or not at all.
    ///
    /// If the handler then returns a value, the worker sends nothing more. Commit before that.
    ///
    /// # Errors
    /// The job is lost, or the output has no JSON that the database takes.
    pub async fn complete(&self, mut tx: impl Executor, output: impl Serialize) -> Result<()> {
        let of = json(&(self.id, self.token, output))?;
        // From now on: no heartbeat may take the job for lost once this is committed.
        self.is_completed.store(true, SeqCst);
        let completed = tx.rows(COMPLETE, &[of.get()]).await;
        self.is_completed.store(completed.is_ok(), SeqCst);
        completed.map(drop)
    }
}
