//! Helpers for tests of programs that insert jobs. All of them work in a transaction of the test,
//! which it rolls back.

use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;

use crate::connection::array;
use crate::fetch::FETCH;
use crate::finish::FINISH;
use crate::insert::{JobResult, RESULTS, parsed};
use crate::job::{Attempt, Finish, JobInfo};
use crate::{ClientError, Error, Executor, State, Worker};

/// Panics unless there is a job of this kind with at least these args.
///
/// # Panics
/// If there is none, or the database cannot say.
pub async fn assert_inserted(executor: impl Executor, kind: &str, args: impl Serialize + Send) {
    let args = serde_json::to_value(args).expect("args that are JSON");
    let is_there = is_inserted(executor, kind, &args).await;
    assert!(
        is_there.expect("an answer of the database"),
        "no job {kind} with args {args}"
    );
}

/// Whether there is a job of this kind with at least these args.
///
/// # Errors
/// The database cannot say, or the args have no JSON.
pub async fn is_inserted(
    mut executor: impl Executor,
    kind: &str,
    args: impl Serialize + Send,
) -> Result<bool, ClientError> {
    let args = serde_json::to_string(&args)?;
    Ok(parsed(executor.rows(IS_INSERTED, &[kind, &args]).await?)?.contains(&true))
}

/// Runs inline what is due in the worker's queues, with its handlers, until there is no more.
/// Returns the jobs that ran, in this order: id, kind, and state by now.
///
/// # Errors
/// The database refuses something, also an output that it cannot store.
pub async fn work_all(
    mut executor: impl Executor,
    worker: &Worker,
) -> Result<Vec<(i64, String, State)>, ClientError> {
    let queues = array(worker.queues.iter().map(|queue| &queue.name));
    let kinds = worker.fetched_kinds();
    let mut ran: Vec<(i64, String)> = Vec::new();
    loop {
        let fetched = executor
            .rows(FETCH, &[&queues, "1", &worker.name, "1 h", &kinds])
            .await?;
        let Some(job) = parsed::<JobInfo>(fetched)?.pop() else {
            break;
        };
        if !ran.iter().any(|(id, _)| *id == job.id) {
            ran.push((job.id, job.kind.clone()));
        }
        let (id, token) = (job.id, job.token);
        let attempt = Attempt::new(job, None, mpsc::unbounded_channel().0);
        let handler = worker
            .handler(&attempt.job.kind)
            .expect("kinds that have a handler");
        let handling = tokio::spawn(handler.start(attempt.clone(), &worker.middleware)).await;
        let ending = match handling.unwrap_or_else(|error| Err(Error::panic(error.into_panic()))) {
            Ok(_) if attempt.is_in_transaction() => continue,
            result => result.into(),
        };
        let results = serde_json::to_string(&[Finish { id, token, ending }])?;
        executor.rows(FINISH, &[&results]).await?;
    }
    let ids = array(ran.iter().map(|(id, _)| id));
    let results: Vec<JobResult> = parsed(executor.rows(RESULTS, &[&ids]).await?)?;
    let states = results.into_iter().filter_map(|result| result.state);
    Ok(ran
        .into_iter()
        .zip(states)
        .map(|((id, kind), state)| (id, kind, state))
        .collect())
}

/// Lets this much time pass: jobs that are to run later run that much earlier.
///
/// # Errors
/// The database refuses it.
pub async fn advance(mut executor: impl Executor, time: Duration) -> Result<(), ClientError> {
    let time = format!("{} s", time.as_secs_f64());
    executor.rows(ADVANCE, &[&time]).await.map(drop)
}

const IS_INSERTED: &str = "select to_json(exists (select from jobs.jobs where kind = $1 and args @> $2::text::jsonb))::text";
const ADVANCE: &str = "
select jobs.update(id, scheduled_at => scheduled_at - $1::text::interval)::text
    from jobs.jobs where state in ('scheduled', 'retryable')";
