//! Small things that many tests need.

use std::future::Future;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

/// Waits until `condition` is true, looking every 20 ms; panics with `what` when `timeout` has passed.
pub async fn poll_until<F, Fut>(what: &str, timeout: Duration, mut condition: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let start = Instant::now();
    while !condition().await {
        assert!(
            start.elapsed() < timeout,
            "after {timeout:?} still not: {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A random generator whose seed is printed, so that the output of a failed test says how to repeat it:
/// `JOBS_SEED=<seed> ./dev test server:<file>`.
pub fn rng() -> StdRng {
    let seed = match std::env::var("JOBS_SEED") {
        Ok(seed) => seed.parse().expect("JOBS_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("JOBS_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// The SQLSTATE of a failed statement, or the text of an error that has none (a lost connection).
pub fn sqlstate<T>(result: Result<T, tokio_postgres::Error>) -> String {
    match result {
        Ok(_) => "00000".into(),
        Err(error) => match error.code() {
            Some(code) => code.code().into(),
            None => error.to_string(),
        },
    }
}
