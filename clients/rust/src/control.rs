//! The connection on which a worker says that it is there, renews leases, and hears of commands and
//! cancels.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::Result;
use crate::engine::{Engine, Stage};
use crate::executor::query;
use crate::job::JobInfo;
use crate::link::Link;
use crate::worker::names;

const BEAT: &str = "
select to_json(jobs.worker_beat(
    $1::jsonb->>0, string_to_array($1::jsonb->>1, e'\n'), ($1::jsonb->2)::int,
    jsonb_build_object('library', 'postgres-jobs for Rust', 'version', $1::jsonb->3)
        || ($1::jsonb->4)))::text";
const HEARTBEATS: &str = "
select coalesce(cancel_requested::text, 'null') from jobs.heartbeat_many(
    translate($1::jsonb->>0, '[]', '{}')::bigint[], translate($1::jsonb->>1, '[]', '{}')::bigint[])";
const WAIT: &str = "
call jobs.wait_any('{}', worker => $1::jsonb->>0,
    timeout => make_interval(secs => ($1::jsonb->1)::float8))";

/// Beats until it is ended, or the worker's first beat is refused.
pub(crate) async fn run(engine: Arc<Engine>) {
    let mut link = engine.worker.link();
    let options = &engine.worker.options;
    let pace = (options.lease / 3).min(Duration::from_secs(10));
    loop {
        match beat(&engine, &mut link).await {
            Ok(()) => link.wait(WAIT, (&options.name, pace.as_secs_f64())).await,
            Err(error) if link.passes(&error) || engine.stage() > Stage::Start => {
                link.pause(&error).await;
            }
            Err(error) => {
                engine.change(|state| state.refused = Some(error));
                return engine.enter(Stage::Stop);
            }
        }
    }
}

async fn beat(engine: &Engine, link: &mut Link) -> Result<()> {
    let options = &engine.worker.options;
    let concurrency = options.concurrency.min(i32::MAX as usize);
    let (queues, version) = (names(&options.queues), env!("CARGO_PKG_VERSION"));
    let of = (&options.name, queues, concurrency, version, &options.info);
    for stage in query(link, BEAT, of).await? {
        engine.enter(stage);
    }
    let jobs: Vec<Arc<JobInfo>> = {
        let state = engine.state.borrow();
        let running = state.running.values();
        let running = running.filter(|job| !job.is_settled.load(SeqCst));
        let unsent = state.unsent.values().map(|result| &result.job);
        running.chain(unsent).cloned().collect()
    };
    let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    let tokens: Vec<i64> = jobs.iter().map(|job| job.token).collect();
    if !jobs.is_empty() {
        let heard = query(link, HEARTBEATS, (ids, tokens)).await?;
        for (job, is_cancelled) in jobs.iter().zip(heard) {
            job.hear(is_cancelled);
        }
    }
    Ok(())
}
