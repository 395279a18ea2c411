//! What the harness asks for.

use std::env::var;
use std::fs::read_to_string;
use std::str::FromStr;

/// The harness's variables, with its defaults.
pub struct Environment {
    pub url: String,
    /// The rate of jobs a second, unless the producer keeps the queue at `depth`, or obeys the
    /// tokens on standard input.
    pub rate: f64,
    pub rate_file: Option<String>,
    pub depth: Option<i64>,
    pub is_paced: bool,
    pub batch: usize,
    pub batch_ms: u64,
    pub workers: usize,
    pub payload: usize,
    pub work_ms: u64,
    pub fail_first: Option<u64>,
    pub max_attempts: Option<i32>,
    pub sample_s: u64,
    pub instance: i64,
}

impl Environment {
    pub fn read() -> Self {
        let is_depth = var("PRODUCER_MODE").is_ok_and(|mode| mode == "depth-target");
        Self {
            url: var("DATABASE_URL").unwrap_or_default(),
            rate: number("PRODUCER_RATE", 800.0),
            rate_file: var("PRODUCER_RATE_CONTROL_FILE").ok(),
            depth: is_depth.then(|| number("TARGET_DEPTH", 1000)),
            is_paced: !is_depth && var("PRODUCER_PACING").is_ok_and(|pacing| pacing == "harness"),
            batch: number("PRODUCER_BATCH_MAX", 128),
            batch_ms: number("PRODUCER_BATCH_MS", 25),
            workers: number("WORKER_COUNT", 32),
            payload: number("JOB_PAYLOAD_BYTES", 256),
            work_ms: number("JOB_WORK_MS", 1),
            fail_first: given("JOB_FAIL_FIRST_MOD").filter(|&every| every > 0),
            max_attempts: given("JOB_MAX_ATTEMPTS"),
            sample_s: number("SAMPLE_EVERY_S", 5),
            instance: number("BENCH_INSTANCE_ID", 0),
        }
    }

    /// The rate now: a file can change it.
    pub fn rate(&self) -> f64 {
        let text = self.rate_file.as_ref().and_then(|file| read_to_string(file).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(self.rate)
    }
}

fn given<T: FromStr>(name: &str) -> Option<T> {
    var(name).ok()?.parse().ok()
}

fn number<T: FromStr>(name: &str, default: T) -> T {
    given(name).unwrap_or(default)
}
