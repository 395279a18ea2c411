//! Small things that many tests need.

use std::ffi::OsStr;
use std::future::Future;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Client, Row};

use crate::{Builder, Cluster};

/// The isolation levels.
pub const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// How long a test waits for what the background worker is woken for: less than the minute after
/// which it comes anyway.
pub const SOON: Duration = Duration::from_secs(45);

/// Waits until `condition` is true, looking every 20 ms; panics with `what` when `timeout` has
/// passed. A look counts for a second at most: a virtual machine may have stood still meanwhile.
pub async fn poll_until<F, Fut>(what: &str, timeout: Duration, mut condition: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let mut waited = Duration::ZERO;
    loop {
        let look = Instant::now();
        if condition().await {
            return;
        }
        assert!(waited < timeout, "after {timeout:?} still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        waited += look.elapsed().min(Duration::from_secs(1));
    }
}

/// A random generator whose seed is printed, so that the output of a failed test says how to repeat
/// it: `JOBS_SEED=<seed> ./dev test server:<file>`.
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

/// A cluster whose background worker does nothing, and a database with the extension.
pub async fn quiet(database: &str) -> (Cluster, Client) {
    with(database, &[("jobs.enabled", "off")]).await
}

/// A cluster with these settings, and a database with the extension.
pub async fn with(database: &str, settings: &[(&str, &str)]) -> (Cluster, Client) {
    let set = |builder: Builder, (name, value): &(&str, &str)| builder.set(name, value);
    let cluster = settings.iter().fold(Cluster::builder(), set).start();
    let db = cluster.database(database).await;
    (cluster, db)
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
    number(db, &format!("select id from jobs.insert({arguments})")).await
}

/// Runs statements.
pub async fn run(db: &Client, sql: &str) {
    let ran = db.batch_execute(sql).await;
    ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// A call that waits for nobody returns; one that does not is ended.
pub async fn returns(db: &Client, sql: &str) {
    run(db, "set statement_timeout = '60s'").await;
    run(db, sql).await;
    run(db, "reset statement_timeout").await;
}

/// The one row that a statement returns.
pub async fn row_of(db: &Client, sql: &str) -> Row {
    let row = db.query_one(sql, &[]).await;
    row.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

/// The rows that a statement returns.
pub async fn rows_of(db: &Client, sql: &str) -> Vec<Row> {
    let rows = db.query(sql, &[]).await;
    rows.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

/// The one value that a statement returns.
pub async fn scalar<T: for<'a> FromSql<'a>>(db: &Client, sql: &str) -> T {
    row_of(db, sql).await.get(0)
}

/// The one number that a statement returns.
pub async fn number(db: &Client, sql: &str) -> i64 {
    scalar(db, sql).await
}

/// How many rows there are: what comes behind FROM.
pub async fn count(db: &Client, from: &str) -> i64 {
    number(db, &format!("select count(*) from {from}")).await
}

/// The one text that a statement returns.
pub async fn text(db: &Client, sql: &str) -> String {
    scalar(db, sql).await
}

/// The texts that a statement returns, a row each.
pub async fn texts(db: &Client, sql: &str) -> Vec<String> {
    rows_of(db, sql).await.iter().map(|row| row.get(0)).collect()
}

/// Whether this is so: what comes behind SELECT, a boolean.
pub async fn is(db: &Client, condition: &str) -> bool {
    scalar(db, &format!("select {condition}")).await
}

/// Waits until this is so.
pub async fn comes_true(db: &Client, condition: &str) {
    poll_until(condition, SOON, async || is(db, condition).await).await;
}

/// Waits until the worker has written the minutes in which something happened: it comes back for
/// that when they are over, whatever else it has to do.
pub async fn history_is_written(db: &Client) {
    const MINUTES: &str = "count(*) > 0 and count(*) = (select count(distinct (at, queue, kind)) from jobs.history_bucket)
       from jobs.history()";
    poll_until("its minutes are written", 4 * SOON, async || is(db, MINUTES).await).await;
}

/// Sleeps.
pub async fn seconds(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

/// A session of a role, in a database.
pub async fn as_role(cluster: &Cluster, role: &str, database: &str) -> Client {
    let mut config = cluster.config();
    cluster.connect_with(config.user(role).dbname(database)).await
}

/// Processes that maintain a database: connected to it, under the worker's name.
pub async fn workers(db: &Client, database: &str) -> i64 {
    let process = "pg_stat_activity where backend_type = 'jobs worker'";
    count(db, &format!("{process} and datname = '{database}'")).await
}

/// Waits until so many clients wait for a lock.
pub async fn blocked(db: &Client, count: i64) {
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and backend_type = 'client backend'";
    poll_until(&format!("{count} clients wait"), Duration::from_secs(120), async || {
        number(db, waiting).await == count
    })
    .await;
}

/// What a call returns that waits for another session until this runs there.
pub async fn blocked_until<T>(
    db: &Client,
    waiting: impl Future<Output = T>,
    holder: &Client,
    end: &str,
) -> T {
    let end = async {
        blocked(db, 1).await;
        run(holder, end).await;
    };
    tokio::join!(waiting, end).0
}

/// Waits until a job has this state.
pub async fn becomes(db: &Client, id: i64, wanted: &str) {
    poll_until(&format!("job {id} is {wanted}"), SOON, async || {
        state(db, id).await.as_deref() == Some(wanted)
    })
    .await;
}

/// The background worker does its work: a job that is due in a moment becomes available.
pub async fn worker_goes_on(db: &Client) {
    let due = "'due', queue => 'due', scheduled_at => clock_timestamp() + '0.2 s'";
    becomes(db, insert(db, due).await, "available").await;
}

/// Waits until so many processes maintain a database.
pub async fn workers_become(db: &Client, database: &str, count: i64) {
    poll_until(&format!("{count} workers in {database}"), SOON, async || {
        workers(db, database).await == count
    })
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

/// Runs a command that wants a database for itself. Postgres gives others five seconds to leave,
/// then it fails.
pub async fn promptly(postgres: &Client, sql: &str) {
    postgres.batch_execute(sql).await.expect(sql);
}

/// Makes work for every task of maintenance.
pub async fn work_for_every_task(db: &Client) {
    run(db, "select jobs.insert('due', queue => 'due', scheduled_at => clock_timestamp() + '0.2 s');
         select jobs.insert('expiring', queue => 'expiring', expires_at => clock_timestamp() + '0.2 s');
         select jobs.insert('lost', queue => 'lost', max_attempts => 1);
         select jobs.fetch('lost', lease => '0.2 s');
         select jobs.configure_queue('pruned', retention_completed => '0.1 s');
         select jobs.insert('pruned', queue => 'pruned', unique_opts => '{\"by_kind\": true}');
         select jobs.complete(id, token) from jobs.fetch('pruned');
         select jobs.schedule('ticks', 'every 1 second', 'tick', queue => 'ticks')").await;
}

/// Waits until all of it was done; no task has failed.
pub async fn every_task_worked(db: &Client) {
    for done in [
        "count(*) = 1 from jobs.jobs where kind = 'due' and state = 'available'",
        "count(*) = 1 from jobs.jobs where kind = 'expiring' and state = 'discarded'",
        "count(*) = 1 from jobs.jobs where kind = 'lost' and state = 'discarded'",
        "count(*) = 0 from jobs.jobs where kind = 'pruned'",
        "count(*) >= 2 from jobs.jobs where kind = 'tick'",
    ] {
        comes_true(db, done).await;
    }
    let failures = "select coalesce(sum(failures_total), 0)::bigint from jobs.maintenance";
    assert_eq!(number(db, failures).await, 0);
}

/// The rows of a table in text, a line each: what stands between bars.
pub fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| {
        let columns: Vec<&str> = line.split(" | ").map(str::trim).collect();
        columns.try_into().unwrap_or_else(|_| panic!("it has other columns: {line}"))
    })
}

/// Moves a cell to a standby of its server, by ops/move-cells or another one.
pub async fn move_cell(script: impl AsRef<OsStr>, old: &Cluster, new: &Cluster, database: &str) {
    let said = mover(script, old, new, database).output().await.unwrap();
    assert!(said.status.success(), "{said:?}");
}

/// The command that moves a cell to a standby of its server, and that ends by signals which tests
/// under nohup ignore.
pub fn mover(
    script: impl AsRef<OsStr>,
    old: &Cluster,
    new: &Cluster,
    database: &str,
) -> tokio::process::Command {
    let path = std::env::var("PATH").unwrap();
    let mut command = tokio::process::Command::new("env");
    command.env("PATH", format!("{}:{path}", old.postgres().bindir.display()));
    command.arg("--default-signal").arg(script).args([&old.place(), &new.place(), database]);
    command
}
