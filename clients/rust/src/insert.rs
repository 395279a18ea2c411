//! Inserting jobs, and waiting for what becomes of them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::connection::{array, json};
use crate::middleware::AfterInsert;
use crate::{ClientError, Executor, Middleware, Unique};

/// A job to be inserted. What is not said of it, its kind says (`jobs.define_kind`), or else the
/// database's defaults.
#[derive(Clone, Debug, Serialize)]
pub struct NewJob {
    kind: String,
    args: Option<Box<RawValue>>,
    #[serde(skip)]
    refused: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    meta: Map<String, Value>,
    #[serde(flatten)]
    options: Map<String, Value>,
}

impl NewJob {
    /// A job of this kind with these args, for the queue `default`.
    pub fn new(kind: impl Into<String>, args: impl Serialize) -> Self {
        let job = Self {
            kind: kind.into(),
            args: None,
            refused: None,
            meta: Map::new(),
            options: Map::new(),
        };
        job.args(args)
    }

    /// These args instead of the others.
    pub fn args(mut self, args: impl Serialize) -> Self {
        (self.args, self.refused) = match json(&args) {
            Ok(args) => (Some(args), None),
            Err(error) => (None, Some(format!("the args have no JSON: {error}"))),
        };
        self
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its queue, if it was said.
    pub fn queue_name(&self) -> Option<&str> {
        self.options.get("queue")?.as_str()
    }

    /// What is said of it beside the args, for middleware to add to.
    pub fn meta_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.meta
    }

    /// A member of its meta, what is said of it beside the args.
    pub fn meta(mut self, member: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(member.into(), value.into());
        self
    }

    /// The queue; the default is `default`.
    pub fn queue(self, queue: &str) -> Self {
        self.option("queue", queue)
    }

    /// The lower number is fetched first; the default is 1.
    pub fn priority(self, priority: i32) -> Self {
        self.option("priority", priority)
    }

    /// When it is to run; the default is at once.
    pub fn scheduled_at(self, time: SystemTime) -> Self {
        self.option("scheduled_at", timestamp(time))
    }

    /// When it is too late for it to begin; the default is never.
    pub fn expires_at(self, time: SystemTime) -> Self {
        self.option("expires_at", timestamp(time))
    }

    /// How many attempts there can be; the default is 25.
    pub fn max_attempts(self, attempts: i32) -> Self {
        self.option("max_attempts", attempts)
    }

    /// Its tags.
    pub fn tags<S: Into<String>>(self, tags: impl IntoIterator<Item = S>) -> Self {
        self.option(
            "tags",
            tags.into_iter().map(Into::into).collect::<Vec<String>>(),
        )
    }

    /// How long an attempt may run, none for no limit; the default is a minute.
    pub fn timeout(self, timeout: impl Into<Option<Duration>>) -> Self {
        self.option(
            "timeout",
            timeout.into().map_or(-1.0, |timeout| timeout.as_secs_f64()),
        )
    }

    /// How long it waits after a failure, as `jobs.insert` has it; the default is `"river"`.
    pub fn retry(self, policy: impl Into<Value>) -> Self {
        self.option("retry", policy)
    }

    /// It waits until somebody calls `jobs.activate`.
    pub fn pending(self) -> Self {
        self.option("pending", true)
    }

    /// What makes it unique, and what becomes of a duplicate.
    pub fn unique_opts(self, unique: Unique) -> Self {
        let unique = serde_json::to_value(unique).expect("the options are JSON");
        self.option("unique_opts", unique)
    }

    fn option(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.options.insert(name.into(), value.into());
        self
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

/// Inserts a job, as part of the caller's transaction.
///
/// # Errors
/// The database refuses it, or the args have no JSON.
pub async fn insert(executor: impl Executor, job: NewJob) -> Result<Inserted, ClientError> {
    Producer::new().insert(executor, job).await
}

/// Inserts jobs in one statement, as part of the caller's transaction: all of them or none. The
/// results are in the order of the jobs.
///
/// # Errors
/// The database refuses one of them, or its args have no JSON.
pub async fn insert_many(
    executor: impl Executor,
    jobs: impl IntoIterator<Item = NewJob> + Send,
) -> Result<Vec<Inserted>, ClientError> {
    Producer::new()
        .insert_many(executor, jobs.into_iter().collect())
        .await
}

/// Inserts jobs with middleware around each insert.
#[derive(Clone, Default)]
pub struct Producer {
    middleware: Vec<Arc<dyn Middleware>>,
}

impl Producer {
    /// A producer without middleware.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something around every insert. What is added first is outermost.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// As [`insert`].
    ///
    /// # Errors
    /// As of [`insert`].
    pub async fn insert(
        &self,
        executor: impl Executor,
        job: NewJob,
    ) -> Result<Inserted, ClientError> {
        let inserted = self.around(executor, INSERT, vec![job]).await?.pop();
        inserted.ok_or_else(|| ClientError::text("the insert had no result"))
    }

    /// As [`insert_many`].
    ///
    /// # Errors
    /// As of [`insert_many`].
    pub async fn insert_many(
        &self,
        executor: impl Executor,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Inserted>, ClientError> {
        self.around(executor, INSERT_MANY, jobs).await
    }

    async fn around(
        &self,
        mut executor: impl Executor,
        statement: &'static str,
        mut jobs: Vec<NewJob>,
    ) -> Result<Vec<Inserted>, ClientError> {
        let mut after: Vec<Vec<AfterInsert>> = Vec::new();
        for job in &mut jobs {
            after.push(
                self.middleware
                    .iter()
                    .filter_map(|one| one.insert(job))
                    .collect(),
            );
            if let Some(refused) = job.refused.take() {
                return Err(ClientError::text(refused));
            }
        }
        let jobs = serde_json::to_string(&jobs)?;
        let inserted: Vec<Inserted> = parsed(executor.rows(statement, &[&jobs]).await?)?;
        for (inserted, after) in inserted.iter().zip(after) {
            after.into_iter().rev().for_each(|after| after(inserted));
        }
        Ok(inserted)
    }
}

// Its errors speak of one job, those of insert_many of one among several.
const INSERT: &str = "
select to_json(i)::text from (select $1::text::jsonb->0 as job) as given, jobs.insert(
    kind => job->>'kind',
    args => job->'args',
    unique_opts => job->'unique_opts',
    queue => job->>'queue',
    priority => (job->>'priority')::integer,
    scheduled_at => (job->>'scheduled_at')::timestamptz,
    max_attempts => (job->>'max_attempts')::integer,
    tags => (select array_agg(tag) from jsonb_array_elements_text(job->'tags') as tag),
    meta => job->'meta',
    timeout => (job->>'timeout' || ' s')::interval,
    retry => job->'retry',
    expires_at => (job->>'expires_at')::timestamptz,
    pending => coalesce((job->>'pending')::boolean, false)) as i";
const INSERT_MANY: &str =
    "select to_json(i)::text from jobs.insert_many($1::text::jsonb) i order by ord";

/// A time as Postgres reads it: the Julian day, and the time of day.
fn timestamp(time: SystemTime) -> String {
    let micros = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_micros() as i128,
        Err(error) => -(error.duration().as_micros() as i128),
    };
    let (day, micros) = (
        micros.div_euclid(86_400_000_000),
        micros.rem_euclid(86_400_000_000),
    );
    let seconds = micros / 1_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!(
        "J{} {hour:02}:{minute:02}:{second:02}.{:06}+00",
        day + 2_440_588,
        micros % 1_000_000
    )
}

pub(crate) fn parsed<T: for<'de> Deserialize<'de>>(
    rows: Vec<String>,
) -> Result<Vec<T>, ClientError> {
    rows.iter()
        .map(|row| Ok(serde_json::from_str(row)?))
        .collect()
}

/// What a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All of the jobs are over.
    All,
    /// One of the jobs is over.
    Any,
}

/// What became of a job.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct JobResult {
    /// The id.
    pub id: i64,
    /// Its state; none if there is no such job, or no more.
    pub state: Option<State>,
    /// What its handler returned.
    pub output: Option<Value>,
    /// The text of its latest failed attempt.
    pub error: Option<String>,
}

/// Waits until jobs are completed, cancelled, discarded or gone, for as long as `timeout` at most.
/// Returns what became of them, in the order of the ids, or how they stand.
///
/// It needs a connection in autocommit, which it occupies.
///
/// # Errors
/// The database refuses the call: in a transaction (25001), or for more than 10,000 ids.
pub async fn wait_for(
    mut executor: impl Executor,
    ids: &[i64],
    timeout: Duration,
    want: Want,
) -> Result<Vec<JobResult>, ClientError> {
    let ids = array(ids);
    let timeout = format!("{} s", timeout.as_secs_f64());
    let want = if want == Want::All { "all" } else { "any" };
    executor.rows(WAIT_FOR, &[&ids, &timeout, want]).await?;
    parsed(executor.rows(RESULTS, &[&ids]).await?)
}

const WAIT_FOR: &str =
    "call jobs.wait_for($1::text::bigint[], timeout => $2::text::interval, want => $3)";
pub(crate) const RESULTS: &str =
    "select to_json(r)::text from jobs.results($1::text::bigint[]) r order by ord";
