//! What is measured, and printed for the harness.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::environment::Environment;

/// Seconds that a percentile is of.
const WINDOW: u64 = 30;

#[derive(Default)]
pub struct Samples {
    pub enqueued: AtomicU64,
    pub completed: AtomicU64,
    pub depth: AtomicI64,
    pub running: AtomicI64,
    pub target_rate: AtomicI64,
    /// From the insert to the fetch, by the server's clock.
    pub claim: Times,
    /// From the insert's call to the start of the handler.
    pub subscriber: Times,
    /// From the insert's call to the end of the handler.
    pub end_to_end: Times,
    /// Of a call that inserts.
    pub producer: Times,
}

/// Durations in microseconds, of the window: a histogram for each sample.
#[derive(Default)]
pub struct Times(Mutex<VecDeque<Histogram<u64>>>);

impl Times {
    pub fn record(&self, microseconds: Option<i64>) {
        let value = microseconds.unwrap_or(i64::MAX).max(1) as u64;
        let mut parts = self.0.lock().expect("no panic holds it");
        if let Some(part) = parts.back_mut() {
            part.saturating_record(value);
        }
    }

    /// The percentiles of the window in milliseconds. Begins a new part.
    fn percentiles(&self, parts_kept: usize) -> [f64; 3] {
        let mut parts = self.0.lock().expect("no panic holds it");
        let mut all = histogram();
        parts.iter().for_each(|part| all += part);
        parts.push_back(histogram());
        while parts.len() > parts_kept {
            parts.pop_front();
        }
        [0.5, 0.95, 0.99].map(|share| all.value_at_quantile(share) as f64 / 1000.0)
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are right")
}

/// Prints what the harness needs to know before the first sample.
pub fn describe(environment: &Environment) {
    let manifest: Value =
        serde_json::from_str(include_str!("../adapter.json")).expect("it is JSON");
    print(
        environment,
        json!({
            "kind": "descriptor",
            "system": manifest["system"],
            "event_tables": manifest["event_tables"],
            "extensions": manifest["extensions"],
            "version": env!("CARGO_PKG_VERSION"),
            "schema_version": env!("CARGO_PKG_VERSION"),
            "db_name": manifest["db_name"],
            "started_at": now(),
        }),
    );
}

/// Prints samples, at multiples of their interval.
pub async fn sample(environment: Arc<Environment>, samples: Arc<Samples>) {
    let every = environment.sample_s;
    let into = Utc::now().timestamp_millis() as u64 % (every * 1000);
    let parts_kept = (WINDOW / every).max(1) as usize;
    let mut next = Instant::now() + Duration::from_millis(every * 1000 - into);
    let (mut enqueued, mut completed) = (0, 0);
    let times = [
        ("claim", &samples.claim),
        ("subscriber", &samples.subscriber),
        ("end_to_end", &samples.end_to_end),
        ("producer", &samples.producer),
    ];
    for (_, times) in times {
        times.percentiles(parts_kept); // begins the first part
    }
    loop {
        sleep_until(next).await;
        next += Duration::from_secs(every);
        let all = (samples.enqueued.load(Relaxed), samples.completed.load(Relaxed));
        let per_second = |count: u64| count as f64 / every as f64;
        let emit = |metric: &str, value: f64, window: u64| {
            print(
                &environment,
                json!({
                    "t": now(), "system": "jobs", "kind": "adapter", "subject_kind": "adapter",
                    "subject": "", "metric": metric, "value": value, "window_s": window,
                }),
            );
        };
        emit("enqueue_rate", per_second(all.0 - enqueued), every);
        emit("completion_rate", per_second(all.1 - completed), every);
        (enqueued, completed) = all;
        for (name, times) in times {
            for (percentile, value) in
                ["p50", "p95", "p99"].iter().zip(times.percentiles(parts_kept))
            {
                emit(&format!("{name}_{percentile}_ms"), value, WINDOW);
            }
        }
        if environment.instance == 0 {
            emit("queue_depth", samples.depth.load(Relaxed) as f64, 0);
            emit("running_depth", samples.running.load(Relaxed) as f64, 0);
            emit("producer_target_rate", samples.target_rate.load(Relaxed) as f64, 0);
        }
    }
}

fn print(environment: &Environment, mut record: Value) {
    record["instance_id"] = environment.instance.into();
    println!("{record}");
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}
