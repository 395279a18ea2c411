//! The connection on which a worker sends beats, renews leases, and receives commands and cancels.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::Result;
use crate::engine::{Engine, Stage};
use crate::executor::{json, query};
use crate::job::JobInfo;
use crate::link::Link;
use crate::worker::names;

const BEAT: &str = "
select to_json(jobs.worker_beat($1, string_to_array($2, e'\n'), $3::int,
    jsonb_build_object('library', 'postgres-jobs for Rust', 'version', $4) || $5::jsonb))::text";
// A call takes at most 10,000 jobs.
const HEARTBEATS: &str = "
select coalesce(cancel_requested::text, 'null')
from (select translate($1, '[]', '{}')::bigint[] as ids, translate($2, '[]', '{}')::bigint[] as tokens) held,
    generate_series(1, cardinality(ids), 10000) n, jobs.heartbeat_many(ids[n:n + 9999], tokens[n:n + 9999])";
const WAIT: &str = "
call jobs.wait_any('{}', worker => $1, timeout => make_interval(secs => $2::float8))";

/// Beats until the worker ends, or its first beat is refused.
pub(crate) async fn run(engine: Arc<Engine>) {
    let options = &engine.worker.options;
    let pace = (options.lease / 3).min(Duration::from_secs(10));
    // So that another connection can renew the leases before they expire.
    let mut link = engine.worker.link(pace + Duration::from_secs(5));
    let pace = pace.as_secs_f64().to_string();
    loop {
        match beat(&engine, &mut link).await {
            Ok(()) => link.wait(WAIT, &[&options.name, &pace]).await,
            Err(error) if link.passes(&error) || engine.state.borrow().stage > Stage::Start => {
                link.pause(&error).await;
            }
            Err(error) => return engine.fail(error),
        }
    }
}

async fn beat(engine: &Engine, link: &mut Link) -> Result<()> {
    let options = &engine.worker.options;
    let concurrency = options.concurrency.min(i32::MAX as usize).to_string();
    let (queues, info) = (names(&options.queues), json(&options.info)?);
    let version = env!("CARGO_PKG_VERSION");
    let of = [&*options.name, &queues, &concurrency, version, info.get()];
    for stage in query(link, BEAT, &of).await? {
        let before = engine.enter(stage);
        if before != stage && before != Stage::Start {
            tracing::info!(command = ?stage, "operator command received");
        }
    }
    let jobs: Vec<Arc<JobInfo>> = {
        let state = engine.state.borrow();
        let running = state.running.values();
        let running = running.filter(|job| !job.is_settled.load(SeqCst));
        let unsent = state.unsent.values().map(|result| &result.job);
        running.chain(unsent).cloned().collect()
    };
    if !jobs.is_empty() {
        let (ids, tokens): (Vec<_>, Vec<_>) = jobs.iter().map(|job| (job.id, job.token)).unzip();
        let of = [&*format!("{ids:?}"), &format!("{tokens:?}")];
        let heard = query(link, HEARTBEATS, &of).await?;
        for (job, is_cancelled) in jobs.iter().zip(heard) {
            job.hear(is_cancelled);
        }
    }
    Ok(())
}
