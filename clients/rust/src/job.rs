//! The job that a handler gets.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use scopeguard::{ScopeGuard, guard};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Mutex, SetOnce};
use tokio_postgres::Row;
use tokio_postgres::types::Json;
use tokio_util::sync::CancellationToken;

use crate::error::Ended;
use crate::executor::{json, query};
use crate::link::Link;
use crate::{Error, Executor, Result};

/// A running job, with args of the handler's type.
///
/// It dereferences to [`JobInfo`], which has its other fields: `job.id`.
#[derive(Clone)]
pub struct Job<A> {
    /// The args.
    pub args: A,
    pub(crate) info: Arc<JobInfo>,
    /// Stores its progress; none in a test.
    pub(crate) link: Option<Arc<Mutex<Link>>>,
}

/// The fields of a running job.
#[derive(Debug, Deserialize)]
#[non_exhaustive]
pub struct JobInfo {
    /// The id.
    pub id: i64,
    pub(crate) token: i64,
    /// The number of the cell that it was fetched from, among those of the worker.
    #[serde(skip)]
    pub(crate) cell: usize,
    /// The kind, which selects the handler.
    pub kind: String,
    /// The queue that it was fetched from.
    pub queue: String,
    /// The args as stored in the database, with all digits of every number.
    #[serde(rename = "args")]
    pub raw_args: Box<RawValue>,
    /// Metadata; null if it is too deep, or has a number that a [`Value`] cannot represent.
    #[serde(deserialize_with = "readable")]
    pub meta: Value,
    /// The tags.
    pub tags: Vec<String>,
    /// Lower numbers are fetched first.
    pub priority: i32,
    /// The number of this attempt, from 1.
    pub attempt: i32,
    /// The maximum number of attempts.
    pub max_attempts: i32,
    /// When it was inserted.
    pub created_at: DateTime<Utc>,
    /// When it was due.
    pub scheduled_at: DateTime<Utc>,
    /// When this attempt started.
    pub attempted_at: DateTime<Utc>,
    /// When the server ends the attempt, by this machine's clock; none if it has no limit.
    #[serde(deserialize_with = "deadline")]
    pub deadline: Option<Instant>,
    #[serde(skip)]
    pub(crate) cancellation: CancellationToken,
    #[serde(skip)]
    pub(crate) reason: OnceLock<Reason>,
    /// Whether nothing more is sent: the result is sent, or the job is lost.
    #[serde(skip)]
    pub(crate) is_settled: AtomicBool,
    /// Whether the handler has completed the job in a transaction, which may still be open.
    #[serde(skip)]
    pub(crate) is_completed: AtomicBool,
    /// How the handler of a batch has ended it.
    #[serde(skip)]
    pub(crate) ended: SetOnce<Ended>,
    /// When the worker got it.
    #[serde(skip, default = "Instant::now")]
    pub(crate) came: Instant,
}

/// A cell and a token.
pub(crate) type Key = (usize, i64);

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

/// Why a handler was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The attempt exceeded its timeout and has failed.
    Timeout,
    /// The job was cancelled.
    Cancelled,
    /// The worker is stopping and releases the job.
    Stopping,
    /// The job was lost: another worker owns it, or it no longer exists.
    Lost,
}

const PROGRESS: &str = "
select cancel_requested::text from jobs.heartbeat($1::bigint, $2::bigint, progress => $3::jsonb)";
const COMPLETE: &str = "
select jobs.complete($1::bigint, $2::bigint, nullif($3::jsonb, 'null'))::text";

fn deadline<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Instant>, D::Error> {
    Option::deserialize(from).map(in_seconds)
}

/// A value, or null if it is too deep, or has a number that it cannot represent.
pub(crate) fn readable<'de, T: DeserializeOwned + Default, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    let json = Box::<RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(json.get()).unwrap_or_default())
}

/// The time this many seconds from now, or none beyond the clock's range.
fn in_seconds(left: Option<f64>) -> Option<Instant> {
    Instant::now().checked_add(Duration::try_from_secs_f64(left?.max(0.0)).ok()?)
}

/// Logs something about a job.
macro_rules! log_of {
    ($level:ident, $job:expr, $($said:tt)+) => {
        tracing::$level!(job = $job.id, kind = $job.kind, attempt = $job.attempt, $($said)+)
    };
}
pub(crate) use log_of;

/// What a handler has returned, as JSON.
pub(crate) fn output<T: Serialize>(result: Result<T, Error>) -> Ended {
    json(&result?).map_err(|error| Error::from(error).typed("invalid_output"))
}

/// What ends a job of a batch: a `Result<T, Error>` or an [`Error`].
pub trait Ending {
    #[doc(hidden)]
    fn ended(self) -> Ended;
}

impl<T: Serialize> Ending for Result<T, Error> {
    fn ended(self) -> Ended {
        output(self)
    }
}

impl Ending for Error {
    fn ended(self) -> Ended {
        Err(self)
    }
}

impl JobInfo {
    /// Reads a row of a cell with columns in the order of the fields.
    pub(crate) fn of(row: &Row, cell: usize) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            token: row.try_get(1)?,
            cell,
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
            ended: SetOnce::new(),
            came: Instant::now(),
        })
    }

    /// What distinguishes its attempt.
    pub(crate) fn key(&self) -> Key {
        (self.cell, self.token)
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.is_completed.load(SeqCst)
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(SeqCst)
    }

    /// When to end the attempt, so that the server need not.
    pub(crate) fn until(&self) -> Option<Instant> {
        let whole = self.deadline?.saturating_duration_since(self.came);
        self.came.checked_add(whole - (whole / 20).min(Duration::from_secs(1)))
    }

    /// Takes the answer to a heartbeat: whether the job is cancelled. None means that it is lost,
    /// unless its result was sent meanwhile.
    pub(crate) fn hear(&self, is_cancelled: Option<bool>) {
        match is_cancelled {
            _ if self.is_completed() => {}
            Some(true) => self.cancel(Reason::Cancelled),
            None if !self.is_settled.swap(true, SeqCst) => {
                self.cancel(Reason::Lost);
                log_of!(warn, self, "job lost");
            }
            _ => {}
        }
    }

    /// Ends a job of a batch. The first end counts.
    pub(crate) fn end(&self, ended: Ended) {
        let _ = self.ended.set(ended);
    }

    /// Cancels the handler. The first reason counts.
    pub(crate) fn cancel(&self, reason: Reason) {
        let _ = self.reason.set(reason);
        self.cancellation.cancel();
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

    /// Cancelled when the handler must stop: on timeout, cancel, stop of the worker, or a lost job.
    ///
    /// An async handler that has not ended a second later is dropped at its `await`.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.info.cancellation
    }

    /// Why the handler was cancelled, if it was.
    pub fn cancelled_because(&self) -> Option<Reason> {
        self.info.reason.get().copied()
    }

    /// Ends a job of a [`Batch`](crate::Batch): by a `Result<T, Error>`, such as `Ok(1)`, or
    /// by an [`Error`], such as that of [`snooze`](crate::snooze).
    ///
    /// Only the first end counts. Other handlers end their jobs by returning.
    pub fn end(&self, ending: impl Ending) {
        self.info.end(ending.ended());
    }

    /// Stores progress, any JSON, which `jobs.jobs` shows, and renews the lease.
    ///
    /// # Errors
    /// The value cannot be stored as JSON, or the job is lost.
    pub async fn progress(&self, value: impl Serialize) -> Result<()> {
        let value = json(&value)?;
        // Without a worker, as in a test, progress is not stored.
        let Some(link) = &self.link else {
            return Ok(());
        };
        let (id, token) = (self.id.to_string(), self.token.to_string());
        let mut link = link.lock().await;
        let heard = loop {
            match query(&mut *link, PROGRESS, &[&id, &token, value.get()]).await {
                Err(error) if link.passes(&error) => link.pause("heartbeat", &error).await,
                heard => break heard,
            }
        };
        if heard.is_ok() {
            link.failures = 0;
        }
        drop(link);
        if (heard.as_ref()).is_err_and(|error| error.is(&["55000", "P0002"])) {
            self.hear(None);
        }
        heard?.into_iter().for_each(|heard| self.hear(heard));
        Ok(())
    }

    /// Completes the job within a transaction of the handler, so that its writes and the completion
    /// are atomic. Commit before the handler returns: the worker then sends nothing more.
    ///
    /// # Errors
    /// The job is lost, or the output cannot be stored as JSON.
    pub async fn complete(&self, mut tx: impl Executor, output: impl Serialize) -> Result<()> {
        let (id, token, output) = (self.id.to_string(), self.token.to_string(), json(&output)?);
        // Set before the call: no heartbeat may take the job for lost once this is committed.
        self.is_completed.store(true, SeqCst);
        let unless_done =
            guard(&self.is_completed, |is_completed| is_completed.store(false, SeqCst));
        let completed = tx.rows(COMPLETE, &[&id, &token, output.get()]).await;
        completed.map_err(|error| error.hinted("grant_worker('ROLE')"))?;
        ScopeGuard::into_inner(unless_done);
        Ok(())
    }
}
