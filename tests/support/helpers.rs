//! Small things that many tests need.

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio_postgres::Client;

/// How long a test waits for what the background worker is woken for: less than the minute after which it comes anyway.
pub const SOON: Duration = Duration::from_secs(45);

/// The Postgres with an extension that can be told to have faults (`src/fault.rs`).
pub fn with_faults() -> PathBuf {
    let path = std::env::var("JOBS_FAULTS_PG_CONFIG");
    path.expect("JOBS_FAULTS_PG_CONFIG is not set: run this through ./dev test server:FILE")
        .into()
}

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

/// A job's state; `None` if it is gone.
pub async fn state(db: &Client, id: i64) -> Option<String> {
    db.query_opt("select state::text from jobs.jobs where id = $1", &[&id])
        .await
        .unwrap()
        .map(|row| row.get(0))
}

/// Inserts a job with these arguments, as SQL has them; its id.
pub async fn insert(db: &Client, arguments: &str) -> i64 {
    db.query_one(&format!("select id from jobs.insert({arguments})"), &[])
        .await
        .unwrap()
        .get(0)
}

/// The one number that a statement returns.
pub async fn number(db: &Client, sql: &str) -> i64 {
    db.query_one(sql, &[]).await.unwrap().get(0)
}

/// Processes that maintain a database: connected to it, under the worker's name.
pub async fn workers(db: &Client, database: &str) -> i64 {
    number(
        db,
        &format!(
            "select count(*) from pg_stat_activity where backend_type = 'jobs worker' and datname = '{database}'"
        ),
    )
    .await
}

/// Waits until so many clients wait for a lock.
pub async fn blocked(db: &Client, count: i64) {
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and backend_type = 'client backend'";
    poll_until(
        &format!("{count} clients wait"),
        Duration::from_secs(120),
        async || number(db, waiting).await == count,
    )
    .await;
}

/// Waits until a job has this state.
pub async fn becomes(db: &Client, id: i64, wanted: &str) {
    poll_until(&format!("job {id} is {wanted}"), SOON, async || {
        state(db, id).await.as_deref() == Some(wanted)
    })
    .await;
}

/// Waits until so many processes maintain a database.
pub async fn workers_become(db: &Client, database: &str, count: i64) {
    poll_until(
        &format!("{count} workers in {database}"),
        SOON,
        async || workers(db, database).await == count,
    )
    .await;
}

/// Many jobs that are due at once: a pass that takes a while.
pub async fn flood(db: &Client, jobs: i64) {
    db.execute(
        "select count(*) from jobs.insert_batch('flood', array(select jsonb_build_object('n', n) from generate_series(1, $1::bigint) n),
           scheduled_at => clock_timestamp() + '1.5 seconds')",
        &[&jobs],
    )
    .await
    .unwrap();
}

/// Runs a command that wants a database for itself. Postgres gives others five seconds to leave, then it fails.
pub async fn promptly(postgres: &Client, sql: &str) {
    postgres.batch_execute(sql).await.expect(sql);
}
