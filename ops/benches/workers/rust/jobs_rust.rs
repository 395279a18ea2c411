//! Our library in Rust.

use std::env::{args, var};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postgres_jobs::{Error, Job, Options, Worker};
use serde_json::{Value, json};

static FIRST: OnceLock<f64> = OnceLock::new();
static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let command = args().nth(1).unwrap_or_default();
    let values: Vec<u64> = args().skip(2).filter_map(|arg| arg.parse().ok()).collect();
    let options = Options {
        queues: vec!["bench".into()],
        concurrency: values[0] as usize,
        prefetch: var("PREFETCH").map_or(0, |jobs| jobs.parse().unwrap_or(0)),
        ..Options::default()
    };
    let worker = Worker::new(var("DATABASE_URL")?.parse()?, options)?;
    let worker = if command == "listen" {
        worker.kind("bench", async |_: Job<Value>| listen())
    } else if command == "cancel" {
        worker.kind("bench", cancelled)
    } else {
        LEFT.store(values[2], Relaxed);
        let sleep = Duration::from_millis(values[1]);
        worker.kind("bench", move |_: Job<Value>| work(sleep))
    };
    Ok(worker.run().await?)
}

/// Says when a handler starts.
fn listen() -> Result<(), Error> {
    println!("{}", json!({ "started": now() }));
    Ok(())
}

/// Says when a handler starts, and when it is cancelled.
async fn cancelled(job: Job<Value>) -> Result<(), Error> {
    listen()?;
    job.cancellation().cancelled().await;
    println!("{}", json!({ "cancelled": now() }));
    Err(Error::new("cancelled"))
}

/// Works on a job, and says when the first one began and the last one ended.
async fn work(sleep: Duration) -> Result<(), Error> {
    let first = *FIRST.get_or_init(now);
    if !sleep.is_zero() {
        tokio::time::sleep(sleep).await;
    }
    if LEFT.fetch_sub(1, Relaxed) == 1 {
        println!("{}", json!({ "first": first, "last": now() }));
    }
    Ok(())
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
