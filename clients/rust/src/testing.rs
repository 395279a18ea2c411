//! Helpers for tests of programs that insert jobs. All of them work in a transaction of the test,
//! which it rolls back. They open no connection.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::attempt::Attempt;
use crate::error::{Ending, shown};
use crate::finish::Finish;
use crate::insert::parsed;
use crate::job::JobInfo;
use crate::{ClientError, Error, Executor, Result, State, Worker};

/// Why a test fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The database refuses something.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The args have no JSON, or what the database has is of another type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// There is no such job.
    #[error("no job {kind} has args {args}; jobs of that kind have {others}")]
    NotInserted {
        /// The kind that it was to have.
        kind: String,
        /// The args that it was to have at least.
        args: Value,
        /// The args of the newest 10 jobs of that kind.
        others: Value,
    },
    /// A job comes again and again.
    #[error("after 1,000 attempts there is still a job that is due")]
    Endless,
}

/// A job that was inserted.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct InsertedJob {
    pub id: i64,
    pub kind: String,
    pub queue: String,
    pub state: State,
    pub args: Value,
}

/// What an attempt left.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Attempted {
    /// The job's id.
    pub id: i64,
    /// Its kind.
    pub kind: String,
    /// Its state then.
    pub state: State,
    /// What its handler returned.
    pub output: Option<Value>,
    /// The text of its latest failed attempt.
    pub error: Option<String>,
}

/// The newest job of this kind that has at least these args.
///
/// # Errors
/// There is none. The text says which jobs of that kind there are.
pub async fn assert_inserted(
    mut executor: impl Executor,
    kind: &str,
    args: impl Serialize + Send,
) -> std::result::Result<InsertedJob, TestError> {
    let args = serde_json::to_value(args)?;
    let found = executor.rows(INSERTED, &[kind, &args.to_string()]).await?;
    if let Some(job) = parsed(found)?.pop() {
        return Ok(job);
    }
    let others = executor.rows(OTHERS, &[kind]).await?;
    let others = serde_json::from_str(&others.concat())?;
    let kind = kind.into();
    Err(TestError::NotInserted { kind, args, others })
}

/// Runs what is due in the worker's queues, one job after another, with its handlers and its
/// middleware, until nothing is. Returns an entry for each attempt, in their order.
///
/// What a handler did in the transaction stays if it returned. Else it is undone, and the failure
/// is stored. Timeouts, leases and heartbeats play no part.
///
/// # Errors
/// After 1,000 attempts there is more, or the database refuses something.
pub async fn work_all(
    mut executor: impl Executor,
    worker: &Worker,
) -> std::result::Result<Vec<Attempted>, TestError> {
    let (queues, kinds) = (
        json!(worker.queues()).to_string(),
        json!(worker.kinds()).to_string(),
    );
    let of = [&*queues, &kinds, &worker.options.name];
    let mut attempted = Vec::new();
    while let Some(job) = parsed::<JobInfo>(executor.rows(FETCH, &of).await?)?.pop() {
        if attempted.len() == 1_000 {
            return Err(TestError::Endless);
        }
        let (id, kind) = (job.id.to_string(), job.kind.clone());
        executor.rows("savepoint postgres_jobs", &[]).await?;
        work(&mut executor, worker, job).await?;
        executor
            .rows("release savepoint postgres_jobs", &[])
            .await?;
        attempted.extend(parsed::<Attempted>(
            executor.rows(LEFT, &[&id, &kind]).await?,
        )?);
    }
    Ok(attempted)
}

async fn work(executor: &mut impl Executor, worker: &Worker, job: JobInfo) -> Result<()> {
    let attempt = Attempt::new(job, None, None);
    let handler = worker.handler(&attempt.job.kind);
    let mut ending = match handler.run(worker, &attempt).await {
        Ok(_) if attempt.state().is_in_transaction => return Ok(()),
        result => Ending::from(result),
    };
    loop {
        let is_done = matches!(ending, Ending::Complete { .. });
        if !is_done {
            let undo = "rollback to savepoint postgres_jobs";
            executor.rows(undo, &[]).await?;
        }
        let result = serde_json::to_string(&[Finish::new(attempt.clone(), ending)])?;
        match executor.rows(FINISH, &[&result]).await {
            // An output that the database does not take.
            Err(error) if is_done => ending = Error::new(shown(&error)).typed("invalid_output").0,
            finished => return finished.map(drop),
        }
    }
}

/// Lets this much time pass: jobs that are to run later run that much earlier.
///
/// # Errors
/// The database refuses it.
pub async fn advance(mut executor: impl Executor, time: Duration) -> Result<()> {
    let time = format!("{} s", time.as_secs_f64());
    executor.rows(ADVANCE, &[&time]).await.map(drop)
}

const INSERTED: &str = "
select to_json(j)::text from (
    select id, kind, queue, state, args from jobs.jobs
        where kind = $1 and args @> $2::text::jsonb order by id desc limit 1) j";
const OTHERS: &str = "
select coalesce(jsonb_agg(args), '[]')::text from (
    select args from jobs.jobs where kind = $1 order by id desc limit 10) j";
const FETCH: &str = "
select to_json(f)::text from jobs.fetch_any(
    array(select jsonb_array_elements_text($1::text::jsonb)), lease => '1 h', worker => $3,
    kinds => (select array_agg(kind) from jsonb_array_elements_text(nullif($2, 'null')::jsonb) kind)) f";
const FINISH: &str = "select done::text from jobs.finish_many($1::text::jsonb)";
const LEFT: &str = "
select to_json(r)::text from (
    select id, $2 as kind, state, output, error from jobs.results(array[$1::text::bigint])) r";
const ADVANCE: &str = "
select jobs.update(id, scheduled_at => scheduled_at - $1::text::interval)::text
    from jobs.jobs where state in ('scheduled', 'retryable')";
