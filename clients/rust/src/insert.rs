//! Inserts jobs and waits for them.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::executor::{json, query};
use crate::{AfterInsert, ClientError, Executor, Inserted, Middleware, NewJob, Result, State};

/// Inserts a job as part of the caller's transaction.
///
/// # Errors
/// The database refuses the insert.
pub async fn insert(executor: impl Executor, job: NewJob) -> Result<Inserted> {
    Producer::default().insert(executor, job).await
}

/// Inserts all of the jobs in one statement, or none, as part of the caller's transaction. Returns
/// their results in order.
///
/// # Errors
/// The database refuses one of them.
pub async fn insert_many(executor: impl Executor, jobs: Vec<NewJob>) -> Result<Vec<Inserted>> {
    Producer::default().insert_many(executor, jobs).await
}

/// Inserts jobs with middleware around each insert.
#[derive(Clone, Default)]
pub struct Producer {
    /// Middleware around every insert, the first outermost.
    pub middleware: Vec<Arc<dyn Middleware>>,
}

impl Producer {
    /// [`insert`] with the middleware.
    ///
    /// # Errors
    /// Those of [`insert`].
    pub async fn insert(&self, executor: impl Executor, job: NewJob) -> Result<Inserted> {
        Ok(self.insert_many(executor, vec![job]).await?.swap_remove(0))
    }

    /// [`insert_many`] with the middleware.
    ///
    /// # Errors
    /// Those of [`insert_many`].
    pub async fn insert_many(
        &self,
        mut executor: impl Executor,
        mut jobs: Vec<NewJob>,
    ) -> Result<Vec<Inserted>> {
        let before =
            |job: &mut NewJob| self.middleware.iter().filter_map(|one| one.insert(job)).collect();
        let after: Vec<Vec<AfterInsert>> = jobs.iter_mut().map(before).collect();
        let inserted = async { query(&mut executor, INSERT, &[json(&jobs)?.get()]).await };
        let inserted: Result<Vec<Inserted>> = inserted.await.map_err(hinted);
        for (number, after) in after.into_iter().enumerate() {
            let inserted = inserted.as_ref().map(|inserted| &inserted[number]);
            after.into_iter().rev().for_each(|after| after(inserted));
        }
        inserted
    }
}

pub(crate) fn hinted(error: ClientError) -> ClientError {
    error.hinted("grant_producer('ROLE')")
}

pub(crate) const INSERT: &str =
    "select to_json(i)::text from jobs.insert_many($1::jsonb) i order by ord";

/// Whether to wait for all jobs or for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Until all of the jobs are over.
    All,
    /// Until any of the jobs is over.
    Any,
}

/// The state and result of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobResult {
    /// The id.
    pub id: i64,
    /// The current state, or none if the job does not exist.
    pub state: Option<State>,
    /// The output as stored in the database, with all digits of every number.
    #[serde(rename = "output")]
    pub raw_output: Option<Box<RawValue>>,
    /// The error of the latest failed attempt.
    pub error: Option<String>,
}

impl JobResult {
    /// The output. No output is read as null.
    ///
    /// # Errors
    /// The output has another type, or is deeper than serde can read.
    pub fn output<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.raw_output.as_ref().map_or("null", |output| output.get()))
    }
}

/// Waits until the jobs are completed, cancelled, discarded or deleted, for `timeout` at most.
/// Returns their states and results in the order of the ids.
///
/// It needs a connection in autocommit, which it occupies.
///
/// # Errors
/// The database refuses the call: in a transaction (25001), or with more than 10,000 ids.
pub async fn wait_for(
    mut executor: impl Executor,
    ids: &[i64],
    timeout: Duration,
    want: Want,
) -> Result<Vec<JobResult>> {
    let (ids, timeout) = (format!("{ids:?}"), timeout.as_secs_f64().to_string());
    let want = if want == Want::All { "all" } else { "any" };
    executor.rows(WAIT_FOR, &[&ids, &timeout, want]).await.map_err(hinted)?;
    query(&mut executor, RESULTS, &[&ids]).await.map_err(hinted)
}

const WAIT_FOR: &str = "
call jobs.wait_for(translate($1, '[]', '{}')::bigint[],
    timeout => make_interval(secs => $2::float8), want => $3)";
const RESULTS: &str = "
select to_json(r)::text from jobs.results(translate($1, '[]', '{}')::bigint[]) r order by ord";
