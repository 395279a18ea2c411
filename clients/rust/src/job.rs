//! The job that a handler gets.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::Json;
use tokio_util::sync::CancellationToken;

use crate::executor::{json, query};
use crate::link::Link;
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
    pub(crate) link: Option<Arc<Mutex<Link>>>,
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
    #[serde(deserialize_with = "deadline")]
    pub deadline: Option<Instant>,
    #[serde(skip)]
    pub(crate) cancellation: CancellationToken,
    #[serde(skip)]
    pub(crate) reason: OnceLock<Reason>,
    /// Whether there is nothing more to tell: it was told, or the job is somebody else's.
    #[serde(skip)]
    pub(crate) is_settled: AtomicBool,
    /// Whether the handler has completed it in a transaction, which may not be committed yet.
    #[serde(skip)]
    pub(crate) is_completed: AtomicBool,
}

/// The state of a job. The last three are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum State {
    Available,
    Scheduled,
    Pending,
    Running,
    Retryable,
    Completed,
    Cancelled,
    Discarded,
}

/// Why a handler is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The attempt has exceeded its timeout, and has failed.
    Timeout,
    /// Somebody has cancelled the job.
    Cancelled,
    /// The worker stops, and releases the job.
    Stopping,
    /// The job is no longer this worker's.
    Lost,
}

const PROGRESS: &str = "
select cancel_requested::text from jobs.heartbeat($1::bigint, $2::bigint, progress => $3::jsonb)";
const COMPLETE: &str = "
select jobs.complete($1::bigint, $2::bigint, nullif($3::jsonb, 'null'))::text";

fn deadline<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Instant>, D::Error> {
    Option::deserialize(from).map(in_seconds)
}

/// The time that is so many seconds from now; none if no clock gets there.
fn in_seconds(left: Option<f64>) -> Option<Instant> {
    Instant::now().checked_add(Duration::try_from_secs_f64(left?.max(0.0)).ok()?)
}

/// A warning about a job.
macro_rules! warn_of {
    ($job:expr, $($said:tt)+) => {
        tracing::warn!(job = $job.id, kind = $job.kind, attempt = $job.attempt, $($said)+)
    };
}
pub(crate) use warn_of;

impl JobInfo {
    /// A row, whose columns are in the order of the members.
    pub(crate) fn of(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            token: row.try_get(1)?,
            kind: row.try_get(2)?,
            queue: row.try_get(3)?,
            raw_args: row.try_get::<_, Json<_>>(4)?.0,
            meta: row.try_get(5).map_or(Value::Null, |Json(meta)| meta),
            tags: row.try_get(6)?,
            priority: row.try_get(7)?,
            attempt: row.try_get(8)?,
            max_attempts: row.try_get(9)?,
            created_at: row.try_get(10)?,
            scheduled_at: row.try_get(11)?,
            attempted_at: row.try_get(12)?,
            deadline: in_seconds(row.try_get(13)?),
            cancellation: CancellationToken::new(),
            reason: OnceLock::new(),
            is_settled: AtomicBool::new(false),
            is_completed: AtomicBool::new(false),
        })
    }

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
        match is_cancelled {
            _ if self.is_completed() => {}
            Some(true) => self.cancel(Reason::Cancelled),
            None if !self.is_settled.swap(true, SeqCst) => {
                self.cancel(Reason::Lost);
                warn_of!(self, "a job was lost");
            }
            _ => {}
        }
    }

    /// Cancels the handler. The first reason counts.
    pub(crate) fn cancel(&self, reason: Reason) {
        let _ = self.reason.set(reason);
        self.cancellation.cancel();
    }
}

/// Takes it back when it is dropped.
struct Uncomplete<'a>(&'a AtomicBool);

impl Drop for Uncomplete<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
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
    pub(crate) fn typed<B: DeserializeOwned>(self) -> Result<Job<B>, Error> {
        let args = serde_json::from_str(self.raw_args.get());
        let args = args.map_err(|error| Error::from(error).typed("invalid_args"))?;
        let Job { info, link, .. } = self;
        Ok(Job { args, info, link })
    }

    /// Is cancelled when the handler is to stop: at its timeout, when somebody cancels the job,
    /// when the worker stops, or when the job is lost to another worker.
    ///
    /// An async handler that has not ended a second later is dropped at its `await`.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.info.cancellation
    }

    /// Why the handler is cancelled, once it is.
    pub fn cancelled_because(&self) -> Option<Reason> {
        self.info.reason.get().copied()
    }

    /// Stores how far the job is, for all to see in `jobs.jobs`, and renews its lease.
    ///
    /// # Errors
    /// The value has no JSON that the database takes, or the job is lost.
    pub async fn progress(&self, value: impl Serialize) -> Result<()> {
        let value = json(&value)?;
        // Without a worker, as in a test, nobody looks at progress.
        let Some(link) = &self.link else {
            return Ok(());
        };
        let (id, token) = (self.id.to_string(), self.token.to_string());
        let mut link = link.lock().await;
        let heard = loop {
            match query(&mut *link, PROGRESS, &[&id, &token, value.get()]).await {
                Err(error) if link.passes(&error) => link.pause(&error).await,
                heard => break heard,
            }
        };
        drop(link);
        if (heard.as_ref()).is_err_and(|error| error.is(&["55000", "P0002"])) {
            self.hear(None);
        }
        heard?.into_iter().for_each(|heard| self.hear(heard));
        Ok(())
    }

    /// Completes the job within a transaction of the handler: with it, or not at all.
    ///
    /// If the handler then returns a value, the worker sends nothing more. Commit before that.
    ///
    /// # Errors
    /// The job is lost, or the output has no JSON that the database takes.
    pub async fn complete(&self, mut tx: impl Executor, output: impl Serialize) -> Result<()> {
        let (id, token, output) = (self.id.to_string(), self.token.to_string(), json(&output)?);
        // From now on: no heartbeat may take the job for lost once this is committed.
        self.is_completed.store(true, SeqCst);
        let unless_done = Uncomplete(&self.is_completed);
        tx.rows(COMPLETE, &[&id, &token, output.get()]).await?;
        std::mem::forget(unless_done);
        Ok(())
    }
}
