//! Fetching jobs.

use jobs_core::text::nfc;
use pgrx::prelude::*;

use crate::cell;
use crate::check;
use crate::error::{Result, or_raise};
use crate::pg::array::Array;
use crate::pg::reply::Rows;
use crate::pg::{server, time};
use crate::store::fetch::{self, Fetch};
use crate::store::queue::Queue;
use crate::transition::start::{self, AtLeast};

#[pg_extern(sql = false)]
fn fetch(
    queue: Option<&str>,
    max_jobs: Option<i32>,
    worker: Option<&str>,
    lease: Option<pgrx::datum::Interval>,
    kinds: Option<Array>,
    min_jobs: Option<i32>,
    linger: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    or_raise(|| {
        let queue = check::queue(queue)?;
        start(&[queue], max_jobs, worker, lease, kinds, min_jobs, linger, fcinfo)
    })
}

#[pg_extern(sql = false)]
fn fetch_any(
    queues: Option<Array>,
    max_jobs: Option<i32>,
    worker: Option<&str>,
    lease: Option<pgrx::datum::Interval>,
    kinds: Option<Array>,
    min_jobs: Option<i32>,
    linger: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    or_raise(|| {
        let queues = check::queues(queues)?;
        start(&queues, max_jobs, worker, lease, kinds, min_jobs, linger, fcinfo)
    })
}

fn start(
    queues: &[Queue],
    max_jobs: Option<i32>,
    worker: Option<&str>,
    lease: Option<pgrx::datum::Interval>,
    kinds: Option<Array>,
    min_jobs: Option<i32>,
    linger: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Result<Rows> {
    check::writable()?;
    let wanted = check::max_jobs(max_jobs)?;
    let lease = check::lease(lease)?;
    let kinds = kinds.map(|kinds| check::texts("kinds", kinds)).transpose()?;
    let kinds: Option<Vec<String>> =
        kinds.map(|kinds| kinds.iter().map(|kind| nfc(kind).into_owned()).collect());
    let least = check::min_jobs(min_jobs, wanted)?;
    let linger = check::duration("linger", linger)?;
    let least = (least > 1).then_some(AtLeast { jobs: least, linger });
    // Whatever name it is, the worker can be given a command by it.
    let worker = match worker.filter(|worker| !worker.is_empty()) {
        Some(worker) => check::name("worker", Some(worker))?.into_owned(),
        None => session_name(),
    };
    cell::own_queues(queues)?;
    let fetch = Fetch { now: time::now(), worker: &worker, lease, kinds: kinds.as_deref() };
    let mut rows = Rows::new(fcinfo);
    rows.expect(fetch::FETCHED_JOB);
    start::attempts(queues, &fetch, wanted, least, &mut rows);
    Ok(rows)
}

/// The session's application_name, else its process id.
fn session_name() -> String {
    match server::application_name() {
        name if name.is_empty() => server::process().to_string(),
        name => name,
    }
}
