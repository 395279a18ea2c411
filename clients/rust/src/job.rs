//! The job that a handler gets.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio_postgres::Row;
use tokio_postgres::types::Json;
use tokio_util::sync::CancellationToken;

use crate::attempt::Attempt;
use crate::{Error, Executor, Result};

/// A job that is being worked on, with args of the handler's type.
///
/// Everything else that is known of it is in [`JobInfo`], as which it can be used: `job.id`.
#[derive(Clone)]
pub struct Job<A> {
    /// The args.
    pub args: A,
    attempt: Arc<Attempt>,
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
    pub created_at: DateTime<Utc>,
    /// When it was to run.
    pub scheduled_at: DateTime<Utc>,
    /// When this attempt began.
    pub attempted_at: DateTime<Utc>,
    /// When the server takes the job away, by the clock of this machine; none: never.
    #[serde(skip)]
    pub deadline: Option<Instant>,
}

impl JobInfo {
    /// A row of `jobs.fetch_any`, which has the seconds to the deadline as `left`.
    pub(crate) fn of(row: &Row) -> std::result::Result<Self, tokio_postgres::Error> {
        let (Json(raw_args), Json(meta)) = (row.try_get("args")?, row.try_get("meta")?);
        let (meta, left): (Box<RawValue>, Option<f64>) = (meta, row.try_get("left")?);
        let left = left.map(|left| Duration::try_from_secs_f64(left).unwrap_or_default());
        Ok(Self {
            id: row.try_get("id")?,
            token: row.try_get("token")?,
            kind: row.try_get("kind")?,
            queue: row.try_get("queue")?,
            raw_args,
            meta: serde_json::from_str(meta.get()).unwrap_or_default(),
            tags: row.try_get("tags")?,
            priority: row.try_get("priority")?,
            attempt: row.try_get("attempt")?,
            max_attempts: row.try_get("max_attempts")?,
            created_at: row.try_get("created_at")?,
            scheduled_at: row.try_get("scheduled_at")?,
            attempted_at: row.try_get("attempted_at")?,
            deadline: left.and_then(|left| Instant::now().checked_add(left)),
        })
    }
}

impl<A> Deref for Job<A> {
    type Target = JobInfo;

    fn deref(&self) -> &JobInfo {
        &self.attempt.job
    }
}

impl<A> Job<A> {
    pub(crate) fn new(args: A, attempt: Arc<Attempt>) -> Self {
        Self { args, attempt }
    }

    /// The job with args of the handler's type.
    pub(crate) fn typed<B: DeserializeOwned>(self) -> std::result::Result<Job<B>, Error> {
        match serde_json::from_str(self.raw_args.get()) {
            Ok(args) => Ok(Job::new(args, self.attempt)),
            Err(error) => Err(Error::from(error).typed("invalid_args")),
        }
    }

    /// Is cancelled when the handler is to stop: at its timeout, when somebody cancels the job,
    /// when the worker stops, or when the job is lost to another worker.
    ///
    /// An async handler that has not ended a second later is dropped at its `await`.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.attempt.cancellation
    }

    /// Stores how far the job is, for all to see in `jobs.jobs`, and renews its lease.
    ///
    /// # Errors
    /// The value has no JSON that the database takes, or the job is lost.
    pub async fn progress(&self, value: impl Serialize) -> Result<()> {
        let value = json(&value)?;
        // Without a worker, as in a test, nobody looks at progress.
        if let Some(finisher) = &self.attempt.finisher {
            finisher.progress(&self.attempt, value.get()).await?;
        }
        Ok(())
    }

    /// Completes the job within a transaction of the handler: with it, or not at all.
    ///
    /// If the handler then returns a value, the worker sends nothing more. Commit before that.
    ///
    /// # Errors
    /// The job is lost, or the output has no JSON that the database takes.
    pub async fn complete(
        &self,
        mut transaction: impl Executor,
        output: impl Serialize,
    ) -> Result<()> {
        let output = json(&output)?;
        let (id, token) = (self.id.to_string(), self.token.to_string());
        // From now on: no heartbeat may take the job for lost once this is committed.
        self.attempt.state().is_in_transaction = true;
        let of = [&*id, &token, output.get()];
        let completed = transaction.rows(COMPLETE, &of).await;
        self.attempt.state().is_in_transaction = completed.is_ok();
        completed.map(drop)
    }
}

const COMPLETE: &str = "
select jobs.complete($1::text::bigint, $2::text::bigint,
    nullif($3::text::jsonb, 'null'))::text";

/// A value as JSON. No jsonb holds more than this, and what is longer than a message to the server
/// can be would cost the connection.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<Box<RawValue>> {
    let json = to_raw_value(value)?;
    match json.get().len() {
        ..0x1000_0000 => Ok(json),
        length => Err(serde::ser::Error::custom(format!(
            "its JSON has {length} bytes"
        ))),
    }
}
