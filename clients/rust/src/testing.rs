//! Helpers for tests of producers and handlers. All but [`job`] work in a transaction that the test
//! rolls back. They open no connection.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::Finish;
use crate::executor::{json, query};
use crate::finish::FINISH;
use crate::job::{JobInfo, readable};
use crate::options::names;
use crate::{ClientError, Error, Executor, Job, Result, State, Worker, fetch};

/// Why a test fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The database refused a statement.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The args have no JSON form, or a value of the database has another type than expected.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// There is no such job.
    #[error("no job of kind \"{kind}\" has args {args}; the newest of that kind have:\n{others}")]
    NotInserted {
        /// The expected kind.
        kind: String,
        /// The args that the job must have at least.
        args: Value,
        /// The args of the newest 10 jobs of that kind.
        others: Value,
    },
    /// Jobs are still due after 1,000 attempts.
    #[error("jobs are still due after 1,000 attempts")]
    Endless,
}

/// An inserted job.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct InsertedJob {
    pub id: i64,
    pub kind: String,
    pub queue: String,
    pub state: State,
    #[serde(deserialize_with = "readable")]
    pub args: Value,
}

/// An attempt made by [`work_all`], and the job after it.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Attempted {
    /// The job's id.
    pub id: i64,
    /// Its kind.
    pub kind: String,
    /// Its state after the attempt.
    pub state: State,
    /// Its output; none if it is too deep, or has a number that a [`Value`] cannot represent.
    #[serde(deserialize_with = "readable")]
    pub output: Option<Value>,
    /// The error of the latest failed attempt.
    pub error: Option<String>,
}

/// A job outside a database, to call a handler with. The JSON object has the members that matter,
/// by the names of [`JobInfo`]; `args` have the handler's type.
///
/// ```
/// # use postgres_jobs::{Error, Job, testing};
/// # use serde_json::json;
/// async fn double(job: Job<i64>) -> Result<i64, Error> {
///     Ok(job.args * 2)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let doubled = double(testing::job(json!({ "args": 21, "attempt": 2 }))?).await;
/// assert_eq!(doubled.ok(), Some(42));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The args or another member have the wrong type.
pub fn job<A: DeserializeOwned>(members: Value) -> serde_json::Result<Job<A>> {
    let mut all = serde_json::json!({
        "id": 0, "token": 0, "kind": "", "queue": "default", "args": {}, "meta": {}, "tags": [],
        "priority": 1, "attempt": 1, "max_attempts": 25, "deadline": null,
    });
    for at in ["created_at", "scheduled_at", "attempted_at"] {
        all[at] = "1970-01-01T00:00:00Z".into();
    }
    if let (Value::Object(all), Value::Object(members)) = (&mut all, members) {
        all.extend(members);
    }
    let info: JobInfo = serde_json::from_str(&all.to_string())?;
    Ok(Job { args: serde_json::from_str(info.raw_args.get())?, info: Arc::new(info), link: None })
}

/// A connection that the test and its handlers share.
#[cfg(feature = "sqlx")]
impl Executor for Arc<tokio::sync::Mutex<sqlx::PgConnection>> {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Result<Vec<String>> {
        (&mut *self.lock().await).rows(sql, of).await
    }
}

/// Adds to errors which rights the role lacks.
struct Hinted<E>(E);

impl<E: Executor> Executor for Hinted<E> {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Result<Vec<String>> {
        let rows = self.0.rows(sql, of).await;
        rows.map_err(|error| error.hinted("grant_application('ROLE')"))
    }
}

/// Returns the newest job of the kind with at least these args.
///
/// # Errors
/// There is none. The error has the args of the newest 10 jobs of the kind.
pub async fn assert_inserted(
    executor: impl Executor,
    kind: &str,
    args: impl Serialize + Send,
) -> Result<InsertedJob, TestError> {
    let mut executor = Hinted(executor);
    let args = json(&args)?;
    let found: Vec<InsertedJob> = query(&mut executor, INSERTED, &[kind, args.get()]).await?;
    if let Some(job) = found.into_iter().next() {
        return Ok(job);
    }
    let others = executor.rows(OTHERS, &[kind]).await?;
    let value = |json: &str| serde_json::from_str(json).unwrap_or_default();
    let others = others.iter().map(|args| value(args)).collect();
    Err(TestError::NotInserted { kind: kind.into(), args: value(args.get()), others })
}

/// Runs the due jobs of the worker's queues, one after another, with its handlers and middleware,
/// until none is left. Returns an entry per attempt, in order.
///
/// The writes of a handler stay if it returned a value; otherwise they are rolled back, and the
/// failure is stored. Timeouts, leases and heartbeats have no effect.
///
/// # Errors
/// Jobs are still due after 1,000 attempts, or the database refuses a statement.
pub async fn work_all(
    executor: impl Executor,
    worker: &Worker,
) -> Result<Vec<Attempted>, TestError> {
    let mut executor = Hinted(executor);
    // All kinds have one concurrency here: one.
    let kinds = worker.fetches().join("\n");
    let of = worker.asking(names(&worker.options.queues), 1, &kinds);
    let of = of.each_ref().map(String::as_str);
    let mut attempted = Vec::new();
    // Refused outside a transaction, before a job is taken.
    executor.rows("savepoint postgres_jobs", &[]).await?;
    executor.rows("release savepoint postgres_jobs", &[]).await?;
    while let Some(job) = query::<JobInfo>(&mut executor, &FETCH, &of).await?.pop() {
        if attempted.len() == 1_000 {
            return Err(TestError::Endless);
        }
        let (id, kind) = (job.id.to_string(), job.kind.clone());
        executor.rows("savepoint postgres_jobs", &[]).await?;
        work(&mut executor, worker, job).await?;
        executor.rows("release savepoint postgres_jobs", &[]).await?;
        attempted.extend(query::<Attempted>(&mut executor, LEFT, &[&id, &kind]).await?);
    }
    Ok(attempted)
}

async fn work(executor: &mut impl Executor, worker: &Worker, job: JobInfo) -> Result<()> {
    let info = Arc::new(job);
    let mut handlings = worker.handlings(std::slice::from_ref(&info), &[]);
    let mut ended = handlings.swap_remove(0).await;
    if ended.is_ok() && info.is_completed() {
        return Ok(());
    }
    loop {
        if ended.is_err() {
            let undo = "rollback to savepoint postgres_jobs";
            executor.rows(undo, &[]).await?;
        }
        let results = format!("[{}]", Finish::new(&info, &ended).json);
        match executor.rows(FINISH, &[&results]).await {
            // An output that the database cannot store.
            Err(error) if ended.is_ok() => {
                ended = Err(Error::new(error.to_string()).typed("invalid_output"));
            }
            finished => return finished.map(drop),
        }
    }
}

/// Makes every scheduled and retryable job due that much earlier.
///
/// # Errors
/// The database refuses the update.
pub async fn advance(executor: impl Executor, time: Duration) -> Result<()> {
    let time = time.as_secs_f64().to_string();
    Hinted(executor).rows(ADVANCE, &[&time]).await.map(drop)
}

static FETCH: LazyLock<String> =
    LazyLock::new(|| format!("select to_json(f)::text from ({}) f", fetch::FETCH));
const INSERTED: &str = "
select to_json(j)::text from (
    select id, kind, queue, state, args from jobs.jobs
        where kind = $1 and args @> $2::jsonb order by id desc limit 1) j";
const OTHERS: &str = "
select args::text from jobs.jobs where kind = $1 order by id desc limit 10";
const LEFT: &str = "
select to_json(r)::text from (
    select id, $2 as kind, state, output, error from jobs.results(array[$1::bigint])) r";
const ADVANCE: &str = "
select jobs.update(id, scheduled_at => scheduled_at - make_interval(secs => $1::float8))::text
    from jobs.jobs where state in ('scheduled', 'retryable')";
