//! How long the cases last, and the lines that docs/reliability.md is made of.

use std::fmt::Display;
use std::time::Duration;

/// How long each case puts the server under load: `JOBS_RELIABILITY_SECONDS`.
pub fn duration() -> Duration {
    Duration::from_secs(variable("JOBS_RELIABILITY_SECONDS", 4))
}

/// A number from the environment.
pub fn variable(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name} is no number")),
        Err(_) => default,
    }
}

/// A line for the report; underscores of the key are shown as spaces.
pub fn figure(case: &str, key: &str, value: impl Display) {
    println!("figure: {case} {key} {value}");
}

/// The middle and the longest one of some times, for a line of the report.
pub fn middle_and_longest(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort();
    match sorted.last() {
        None => "none".into(),
        Some(longest) => format!(
            "{:.2} s, at most {:.2} s",
            sorted[sorted.len() / 2].as_secs_f64(),
            longest.as_secs_f64()
        ),
    }
}
