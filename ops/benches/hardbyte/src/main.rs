//! Produces and works on jobs as the harness's environment says, and prints its samples. The
//! protocol is that of CONTRIBUTING_ADAPTERS.md there.

mod environment;
mod producer;
mod samples;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use chrono::Utc;
use postgres_jobs::{Error, Job, Options, Worker};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

use environment::Environment;
use samples::Samples;

/// The queue and the kind of every job.
const QUEUE: &str = "bench";

#[derive(Deserialize)]
struct Args {
    seq: u64,
    created_us: i64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let environment = Arc::new(Environment::read());
    let samples = Arc::new(Samples::default());
    samples::describe(&environment);
    tokio::spawn(samples::sample(environment.clone(), samples.clone()));
    tokio::spawn(producer::measure_depth(environment.clone(), samples.clone()));
    tokio::spawn(producer::produce(environment.clone(), samples.clone()));
    let options = Options { concurrency: environment.workers, ..Options::queues([QUEUE]) };
    let worker = Worker::new(environment.url.parse()?, options)?;
    let handler = move |job: Job<Value>| work(job, environment.clone(), samples.clone());
    // Until SIGTERM, then until what runs has ended.
    worker.kind(QUEUE, handler).run().await?;
    Ok(())
}

async fn work(
    job: Job<Value>,
    environment: Arc<Environment>,
    samples: Arc<Samples>,
) -> Result<(), Error> {
    // Until the next look, so that the producer need not wait for that.
    samples.depth.fetch_sub(1, Relaxed);
    let args = Args::deserialize(&job.args)?;
    let waited = job.attempted_at - job.created_at;
    samples.claim.record(waited.num_microseconds());
    samples.subscriber.record(Some(Utc::now().timestamp_micros() - args.created_us));
    sleep(Duration::from_millis(environment.work_ms)).await;
    let is_to_fail = environment.fail_first.is_some_and(|every| args.seq.is_multiple_of(every));
    if is_to_fail && job.attempt == 1 {
        return Err(Error::new("fails at first").retry_in(Duration::ZERO));
    }
    samples.end_to_end.record(Some(Utc::now().timestamp_micros() - args.created_us));
    samples.completed.fetch_add(1, Relaxed);
    Ok(())
}
