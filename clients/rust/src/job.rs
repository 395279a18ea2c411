//! The job that a handler gets.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::connection::json;
use crate::error::Ending;
use crate::{ClientError, Executor};

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
    #[serde(deserialize_with = "lenient")]
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
    #[serde(deserialize_with = "time")]
    pub created_at: SystemTime,
    /// When it was to run.
    #[serde(deserialize_with = "time")]
    pub scheduled_at: SystemTime,
    /// When this attempt began.
    #[serde(deserialize_with = "time")]
    pub attempted_at: SystemTime,
    /// When the server takes the job away, by the clock of this machine; none: never.
    #[serde(rename = "left", deserialize_with = "deadline")]
    pub deadline: Option<Instant>,
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
    pub async fn progress(&self, value: impl Serialize) -> Result<(), ClientError> {
        let value = json(&value)?;
        let (answer, answered) = oneshot::channel();
        let progress = Request::Progress {
            attempt: self.attempt.clone(),
            value,
            answer,
        };
        // Without a worker, as in a test, nobody looks at progress.
        if self.attempt.requests.send(progress).is_err() {
            return Ok(());
        }
        answered
            .await
            .unwrap_or_else(|_| Err(ClientError::text("the worker has ended")))
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
    ) -> Result<(), ClientError> {
        let output = json(&output)?;
        let (id, token) = (self.id.to_string(), self.token.to_string());
        // From now on the row is locked: no heartbeat may wait for it.
        self.attempt.is_in_transaction.store(true, SeqCst);
        let completed = transaction
            .rows(COMPLETE, &[&id, &token, output.get()])
            .await;
        self.attempt
            .is_in_transaction
            .store(completed.is_ok(), SeqCst);
        completed.map(drop)
    }
}

const COMPLETE: &str =
    "select jobs.complete($1::text::bigint, $2::text::bigint, $3::text::jsonb)::text";

/// An attempt at a job, from its fetch on.
pub(crate) struct Attempt {
    pub(crate) job: JobInfo,
    /// When the handler is cancelled.
    pub(crate) timeout: Option<Instant>,
    pub(crate) cancellation: CancellationToken,
    /// Whether the worker has said what became of it, or has nothing to say any more.
    is_over: AtomicBool,
    is_in_transaction: AtomicBool,
    requests: mpsc::UnboundedSender<Request>,
}

/// What the finishing connection is to do.
pub(crate) enum Request {
    Finish(Finish),
    Progress {
        attempt: Arc<Attempt>,
        value: Box<RawValue>,
        answer: oneshot::Sender<Result<(), ClientError>>,
    },
}

/// The end of an attempt, as `jobs.finish_many` has it.
#[derive(Serialize)]
pub(crate) struct Finish {
    pub(crate) id: i64,
    pub(crate) token: i64,
    #[serde(flatten)]
    pub(crate) ending: Ending,
}

impl Attempt {
    /// `timeout` is how long the handler may run, if the worker or the kind says so.
    pub(crate) fn new(
        job: JobInfo,
        timeout: Option<Duration>,
        requests: mpsc::UnboundedSender<Request>,
    ) -> Arc<Self> {
        let now = Instant::now();
        // Before the server does it, so that the error says what the handler was told.
        let early = |left: Duration| left - (left / 20).min(Duration::from_secs(1));
        let server = job
            .deadline
            .map(|at| now + early(at.saturating_duration_since(now)));
        let own = timeout.and_then(|timeout| now.checked_add(timeout));
        Arc::new(Self {
            timeout: server.into_iter().chain(own).min(),
            job,
            cancellation: CancellationToken::new(),
            is_over: AtomicBool::new(false),
            is_in_transaction: AtomicBool::new(false),
            requests,
        })
    }

    /// Says what became of the attempt, unless that has been said.
    pub(crate) fn finish(&self, ending: Ending) {
        if !self.is_over.swap(true, SeqCst) {
            let finish = Finish {
                id: self.job.id,
                token: self.job.token,
                ending,
            };
            // Nobody is there to send it once the worker has ended.
            let _ = self.requests.send(Request::Finish(finish));
        }
    }

    /// The job is somebody else's by now: the handler ends, and nothing is sent.
    pub(crate) fn lose(&self) {
        if !self.is_in_transaction() && !self.is_over.swap(true, SeqCst) {
            tracing::warn!(
                id = self.job.id,
                kind = self.job.kind,
                "job lost, cancelling its handler"
            );
            self.cancellation.cancel();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    /// Whether the handler has completed the job in a transaction, which may not be committed yet.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.is_in_transaction.load(SeqCst)
    }
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    let since = Duration::try_from_secs_f64(seconds.abs()).map_err(serde::de::Error::custom)?;
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if seconds < 0.0 {
        epoch.checked_sub(since)
    } else {
        epoch.checked_add(since)
    };
    Ok(time.unwrap_or(epoch))
}

fn deadline<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Instant>, D::Error> {
    let left = Option::<f64>::deserialize(deserializer)?;
    let left = left.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
    Ok(left.and_then(|left| Instant::now().checked_add(left)))
}

fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let text = Box::<RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(text.get()).unwrap_or_default())
}
