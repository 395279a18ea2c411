//! Reads one job.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::console::json::LARGEST;
use crate::console::problem::Problem;
use crate::console::visit::Visit;
use crate::times;

#[derive(Deserialize)]
pub(crate) struct Job {
    pub(crate) id: i64,
    pub(crate) state: String,
    pub(crate) queue: String,
    pub(crate) kind: String,
    pub(crate) priority: i32,
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    pub(crate) tags: Vec<String>,
    pub(crate) created_at: DateTime<Utc>,
    #[serde(deserialize_with = "times::bounded")]
    pub(crate) scheduled_at: DateTime<Utc>,
    pub(crate) attempted_at: Option<DateTime<Utc>>,
    pub(crate) finalized_at: Option<DateTime<Utc>>,
    #[serde(deserialize_with = "times::bounded_option")]
    pub(crate) expires_at: Option<DateTime<Utc>>,
    /// In seconds; negative means none.
    pub(crate) timeout: f64,
    pub(crate) lease_expires_at: Option<DateTime<Utc>>,
    pub(crate) deadline_at: Option<DateTime<Utc>>,
    pub(crate) cancel_requested_at: Option<DateTime<Utc>>,
    pub(crate) cancel_reason: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) retry: String,
    pub(super) unique_key: Option<String>,
    pub(super) args: Option<Carried>,
    pub(super) meta: Option<Carried>,
    pub(super) progress: Option<Carried>,
    pub(super) output: Option<Carried>,
}

/// A JSON text and its size. A text that is too large to show is not read.
#[derive(Deserialize)]
pub(super) struct Carried {
    pub(super) size: usize,
    pub(super) text: Option<String>,
}

macro_rules! carried {
    ($name:literal) => {
        concat!(
            ", (select jsonb_build_object('size', octet_length(t), 'text', case when octet_length(t) <= $2 then t end)
                  from (select ", $name, "::text as t) c where t is not null) as ", $name
        )
    };
}
const JOB: &str = concat!(
    "select id, state, queue, kind, priority, attempt, max_attempts, tags, created_at, scheduled_at,
      attempted_at, finalized_at, expires_at, extract(epoch from timeout)::float8 as timeout,
      lease_expires_at, deadline_at, cancel_requested_at, cancel_reason, worker, retry::text,
      unique_key",
    carried!("args"),
    carried!("meta"),
    carried!("progress"),
    carried!("output"),
    " from jobs.jobs where id = $1"
);

/// The job as it is now.
pub(crate) async fn look(visit: &Visit, id: i64) -> Result<Job, Problem> {
    let job = visit.row(JOB, &[&id, &LARGEST]).await?;
    job.ok_or_else(|| Problem::not_found(&format!("Job {id}")))
}

impl Job {
    /// Whether it is completed, cancelled or discarded.
    pub(crate) fn is_final(&self) -> bool {
        self.finalized_at.is_some()
    }

    pub(crate) fn waits(&self) -> bool {
        !self.is_final() && self.state != "running"
    }
}
