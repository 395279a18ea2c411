//! Takes the SHA-256 of every file under a directory through the queue: how to write a producer and
//! a worker.
//!
//! ```text
//! DATABASE_URL="host=127.0.0.1 user=postgres dbname=jobs" checksum DIRECTORY
//! ./dev run DIRECTORY                          the same, with a server of its own
//! ```
//!
//! Four producers list the directory at the same time and insert a job for each file they meet. The
//! jobs are unique by path, so three of four inserts are duplicates and each file is hashed once.
//! Four workers take the jobs. A file that cannot be read fails and is tried again, at most three
//! times. One worker is killed while it holds jobs: its lease runs out, the background worker gives
//! the jobs back, the others do them.
//!
//! Everything is plain SQL; a driver in any other language would send the same statements.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

const PRODUCERS: usize = 4;
const WORKERS: usize = 4;

// -------------------------------------------------------------------------------------------------
// Producer
// -------------------------------------------------------------------------------------------------

/// Inserts one job per file. Returns how many were new and how many existed already.
async fn producer(db: Client, queue: String, files: Vec<PathBuf>) -> Result<(u64, u64)> {
    // Unique by path within this queue, whatever has become of the other job: a file that was done
    // or given up is not done again in this run. (Left out, by_state means all but cancelled and
    // discarded.)
    let unique = json!({
        "by_args": ["path"],
        "by_queue": true,
        "by_state": ["available", "scheduled", "pending", "running", "retryable", "completed", "cancelled", "discarded"],
    });
    let insert = db
        .prepare(
            "select id, unique_skipped_as_duplicate
               from jobs.insert(kind => 'checksum', args => $1, unique_opts => $2, queue => $3, max_attempts => 3)",
        )
        .await?;

    let (mut inserted, mut skipped) = (0, 0);
    for file in files {
        // JSON is Unicode, a path is any bytes.
        let Some(path) = file.to_str() else { continue };
        let job = db
            .query_one(&insert, &[&json!({ "path": path }), &unique, &queue])
            .await?;
        // Either way `id` is the job for this file: the new one, or the one that another producer
        // inserted.
        if job.get("unique_skipped_as_duplicate") {
            skipped += 1
        } else {
            inserted += 1
        }
    }
    Ok((inserted, skipped))
}

// -------------------------------------------------------------------------------------------------
// Worker
// -------------------------------------------------------------------------------------------------

/// Fetches, works, finishes; until `stop` is set. With `holding` it says so once when it has jobs,
/// and then does nothing more.
async fn worker(
    db: Client,
    queue: String,
    name: String,
    lease: &str,
    stop: watch::Receiver<bool>,
    mut holding: Option<oneshot::Sender<()>>,
) -> Result<()> {
    // The lease is how long the server waits for a sign of life before it gives our jobs to
    // somebody else. A worker whose jobs take longer calls jobs.heartbeat(id, token) from time to
    // time.
    let fetch = db
        .prepare(
            "select id, token, args
               from jobs.fetch(queue => $1, max_jobs => 10, worker => $2, lease => $3::text::interval)",
        )
        .await?;
    // The token says that the job is still ours. Had our lease run out, these calls would be
    // refused (SQLSTATE 55000), and whoever has the job now would not be disturbed.
    let complete = db
        .prepare("select jobs.complete(id => $1, token => $2, output => $3)")
        .await?;
    let fail = db
        .prepare(
            "select * from jobs.fail(id => $1, token => $2, error => $3, retry_in => '500 ms')",
        )
        .await?;

    while !*stop.borrow() {
        let jobs = db.query(&fetch, &[&queue, &name, &lease]).await?;
        if jobs.is_empty() {
            // Nothing to do now. `CALL jobs.wait(queue => ..)` would return as soon as there is.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        if let Some(holding) = holding.take() {
            let _ = holding.send(());
            std::future::pending::<()>().await; // until this task is killed
        }
        for job in jobs {
            let (id, token, args): (i64, i64, Value) =
                (job.get("id"), job.get("token"), job.get("args"));
            // Work is done between two transactions, not inside one: nothing in the database waits
            // for it. A panic is an error like any other: no job may end a worker.
            let work = tokio::task::spawn_blocking(move || -> Result<String> {
                let path = args["path"].as_str().context("a job without a path")?;
                Ok(sha256(Path::new(path))?)
            });
            let finished = match work.await.unwrap_or_else(|panic| Err(panic.into())) {
                Ok(digest) => {
                    let output = json!({ "sha256": digest });
                    db.execute(&complete, &[&id, &token, &output]).await
                }
                // The job is tried again in half a second, or discarded when this was its third
                // attempt.
                Err(error) => {
                    // No text of the database has a NUL.
                    let error = error.to_string().replace('\0', " ");
                    db.execute(&fail, &[&id, &token, &error]).await
                }
            };
            if let Err(error) = finished
                && error.code() != Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE)
            {
                return Err(error.into());
            }
        }
    }
    Ok(())
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path)?, &mut hash)?;
    Ok(format!("{:x}", hash.finalize()))
}

// -------------------------------------------------------------------------------------------------
// Both together
// -------------------------------------------------------------------------------------------------

#[tokio::main]
async fn main() -> Result<()> {
    let directory = std::env::args()
        .nth(1)
        .context("usage: checksum DIRECTORY")?;
    let directory = std::fs::canonicalize(&directory).with_context(|| directory.clone())?;
    let started = Instant::now();
    let db = connect("checksum report").await?;
    // Each run has a queue of its own, so that a second one hashes everything again and shares no
    // number with the first.
    let queue: String = db
        .query_one(
            "select to_char(clock_timestamp(), '\"checksum_\"YYYYMMDD_HH24MISS_MS')",
            &[],
        )
        .await?
        .get(0);

    let mut producers = JoinSet::new();
    for n in 0..PRODUCERS {
        let db = connect(&format!("checksum producer {n}")).await?;
        producers.spawn(producer(db, queue.clone(), list(&directory, n)));
    }

    let (stop, stopped) = watch::channel(false);
    // The first worker has a shorter lease, because we kill it and want to see the rescue soon. As
    // in a real crash its connection is simply gone, and it has finished none of the jobs that it
    // holds.
    let (holding, holds) = oneshot::channel();
    let name = "checksum worker that is killed".to_string();
    let victim = tokio::spawn(worker(
        connect(&name).await?,
        queue.clone(),
        name,
        "1 second",
        stopped.clone(),
        Some(holding),
    ));
    // The others begin when it holds jobs, or they might leave it none. In an empty directory there
    // are none to hold.
    let _ = tokio::time::timeout(Duration::from_secs(5), holds).await;
    victim.abort();
    let mut workers = JoinSet::new();
    for n in 1..WORKERS {
        let name = format!("checksum worker {n}");
        workers.spawn(worker(
            connect(&name).await?,
            queue.clone(),
            name,
            "30 seconds",
            stopped.clone(),
            None,
        ));
    }

    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
        "{bar:40} {pos}/{len} files, {msg}",
    )?);
    let (mut inserted, mut skipped) = (0, 0);
    loop {
        while let Some(counts) = producers.try_join_next() {
            let (new, old) = counts??;
            inserted += new;
            skipped += old;
        }
        if let Some(ended) = workers.try_join_next() {
            ended??; // workers do not end by themselves, so this is an error
        }
        let (all, done) = progress(&db, &queue).await?;
        bar.set_length(all);
        bar.set_position(done);
        bar.set_message(if producers.is_empty() {
            "all listed"
        } else {
            "still listing"
        });
        if producers.is_empty() && all == done {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bar.finish();
    stop.send(true)?;
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    report(&db, &queue, inserted, skipped, started.elapsed()).await
}

/// All files, and links, which may lead nowhere; each producer goes through them in another order.
fn list(directory: &Path, n: usize) -> Vec<PathBuf> {
    let entries = walkdir::WalkDir::new(directory)
        .sort_by_file_name()
        .into_iter()
        .filter_map(|entry| entry.ok());
    let mut files: Vec<_> = entries
        .filter(|entry| {
            entry.file_type().is_file() || entry.path_is_symlink() && !entry.path().is_dir()
        })
        .map(|entry| entry.into_path())
        .collect();
    if n % 2 == 1 {
        files.reverse();
    }
    let half = files.len() / 2;
    files.rotate_left(if n >= 2 { half } else { 0 });
    files
}

/// How many jobs there are and how many of them are final.
async fn progress(db: &Client, queue: &str) -> Result<(u64, u64)> {
    let row = db
        .query_one(
            "select count(*), count(finalized_at) from jobs.jobs where queue = $1",
            &[&queue],
        )
        .await?;
    Ok((row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64))
}

/// What happened, from the queue's own records.
async fn report(
    db: &Client,
    queue: &str,
    inserted: u64,
    skipped: u64,
    time: Duration,
) -> Result<()> {
    let row = db
        .query_one(
            "select count(*) filter (where state = 'completed'),
                    count(*) filter (where attempt > 1),
                    (select count(distinct e.job_id) from jobs.errors e join jobs.jobs j on j.id = e.job_id
                      where j.queue = $1 and e.details->>'type' = 'lease_expired'),
                    count(*) filter (where state = 'discarded')
               from jobs.jobs where queue = $1",
            &[&queue],
        )
        .await?;
    let (completed, retried, rescued, discarded): (i64, i64, i64, i64) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    let seconds = time.as_secs_f64();
    println!();
    println!("inserted                 {inserted:>9}");
    println!("skipped as duplicates    {skipped:>9}");
    println!("completed                {completed:>9}");
    println!("retried                  {retried:>9}");
    println!("  rescued from the dead  {rescued:>9}");
    println!("discarded (unreadable)   {discarded:>9}");
    println!(
        "jobs/s                   {:>9.0}   ({seconds:.1} s in all)",
        completed as f64 / seconds
    );
    println!();
    println!("The jobs of this run, until they are pruned:");
    println!("  select id, state, attempt, args->>'path' as path, output->>'sha256' as sha256");
    println!("    from jobs.jobs where queue = '{queue}';");
    Ok(())
}

async fn connect(name: &str) -> Result<Client> {
    let url =
        std::env::var("DATABASE_URL").unwrap_or("host=127.0.0.1 user=postgres dbname=jobs".into());
    let mut config: tokio_postgres::Config = url.parse().context("DATABASE_URL")?;
    let (client, connection) = config
        .application_name(name)
        .connect(NoTls)
        .await
        .context("connecting")?;
    // The connection ends with its client: a worker that is killed takes it along.
    tokio::spawn(connection);
    Ok(client)
}
