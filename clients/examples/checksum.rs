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

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use postgres_jobs::{Blocking, By, Error, Job, NewJob, Options, State, Unique, Worker, insert};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

const PRODUCERS: usize = 4;
const WORKERS: usize = 4;

/// The args of a job.
#[derive(Serialize, Deserialize)]
struct File {
    path: String,
}

/// Its output.
#[derive(Serialize)]
struct Checksum {
    sha256: String,
}

// -------------------------------------------------------------------------------------------------
// Producer
// -------------------------------------------------------------------------------------------------

/// Inserts one job per file. Returns how many were new and how many existed already.
async fn producer(db: Client, queue: String, files: Vec<PathBuf>) -> Result<(u64, u64)> {
    // Unique by path within this queue, whatever has become of the other job: a file that was done
    // or given up is not done again in this run.
    let unique = Unique {
        by_args: Some(By::Paths(vec!["path".into()])),
        by_queue: true,
        by_state: Some(vec![
            State::Available,
            State::Scheduled,
            State::Pending,
            State::Running,
            State::Retryable,
            State::Completed,
            State::Cancelled,
            State::Discarded,
        ]),
        ..Unique::default()
    };
    let (mut inserted, mut skipped) = (0, 0);
    for file in files {
        // JSON is Unicode, a path is any bytes.
        let Some(path) = file.to_str().map(str::to_string) else {
            continue;
        };
        let job = NewJob {
            queue: Some(queue.clone()),
            max_attempts: Some(3),
            unique_opts: Some(unique.clone()),
            ..NewJob::new("checksum", File { path })?
        };
        match insert(&db, job).await?.is_duplicate {
            true => skipped += 1,
            false => inserted += 1,
        }
    }
    Ok((inserted, skipped))
}

// -------------------------------------------------------------------------------------------------
// Worker
// -------------------------------------------------------------------------------------------------

/// The handler: reading a file blocks. An error fails the attempt. It is tried again in half a
/// second, or the job is discarded if this was its third attempt.
fn checksum(job: Job<File>) -> Result<Checksum, Error> {
    let digest = sha256(Path::new(&job.args.path));
    let sha256 = digest.map_err(|error| Error::from(error).retry_in(Duration::from_millis(500)))?;
    Ok(Checksum { sha256 })
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path)?, &mut hash)?;
    Ok(format!("{:x}", hash.finalize()))
}

fn worker(queue: &str, name: &str, lease: Duration) -> Result<Worker> {
    let options =
        Options { queues: vec![queue.into()], name: name.into(), lease, ..Options::default() };
    Ok(Worker::new(url().parse()?, options)?)
}

/// Starts a worker that does nothing with its jobs, and ends it while it holds some. As in a real
/// crash its connections are simply gone.
fn worker_that_dies(queue: &str) -> Result<()> {
    let (holds, mut held) = mpsc::channel(1);
    let handler = move |_: Job<File>| {
        let holds = holds.clone();
        async move {
            let _ = holds.try_send(());
            std::future::pending::<Result<(), Error>>().await
        }
    };
    let runtime = tokio::runtime::Runtime::new()?;
    // The lease is short, because we want to see the rescue soon.
    let lease = Duration::from_secs(1);
    let worker = worker(queue, "checksum worker that is killed", lease)?;
    let worker = worker.kind("checksum", handler);
    runtime.block_on(async {
        worker.start()?;
        // In an empty directory there are no jobs to hold.
        let _ = tokio::time::timeout(Duration::from_secs(5), held.recv()).await;
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

// -------------------------------------------------------------------------------------------------
// Both together
// -------------------------------------------------------------------------------------------------

#[tokio::main]
async fn main() -> Result<()> {
    let directory = std::env::args().nth(1).context("usage: checksum DIRECTORY")?;
    let directory = std::fs::canonicalize(&directory).with_context(|| directory.clone())?;
    let started = Instant::now();
    let db = connect("checksum report").await?;
    // Each run has a queue of its own, so that a second one hashes everything again and shares no
    // number with the first.
    let queue: String = db
        .query_one("select to_char(clock_timestamp(), '\"checksum_\"YYYYMMDD_HH24MISS_MS')", &[])
        .await?
        .get(0);

    let mut producers = JoinSet::new();
    for n in 0..PRODUCERS {
        let db = connect(&format!("checksum producer {n}")).await?;
        producers.spawn(producer(db, queue.clone(), list(&directory, n)));
    }

    // The others begin when it has held jobs, or they might leave it none.
    let victims = queue.clone();
    tokio::task::spawn_blocking(move || worker_that_dies(&victims)).await??;
    let mut workers = Vec::new();
    for n in 1..WORKERS {
        let name = format!("checksum worker {n}");
        let worker = worker(&queue, &name, Duration::from_secs(30))?;
        workers.push(worker.kind("checksum", Blocking(checksum)).start()?);
    }

    let bar = ProgressBar::new(0)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} files, {msg}")?);
    let (mut inserted, mut skipped) = (0, 0);
    loop {
        while let Some(counts) = producers.try_join_next() {
            let (new, old) = counts??;
            inserted += new;
            skipped += old;
        }
        let (all, done) = progress(&db, &queue).await?;
        bar.set_length(all);
        bar.set_position(done);
        bar.set_message(if producers.is_empty() { "all listed" } else { "still listing" });
        if producers.is_empty() && all == done {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bar.finish();
    for worker in workers {
        worker.stop().await?;
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

fn url() -> String {
    std::env::var("DATABASE_URL").unwrap_or("host=127.0.0.1 user=postgres dbname=jobs".into())
}

async fn connect(name: &str) -> Result<Client> {
    let mut config: tokio_postgres::Config = url().parse().context("DATABASE_URL")?;
    let (client, connection) =
        config.application_name(name).connect(NoTls).await.context("connecting")?;
    tokio::spawn(connection);
    Ok(client)
}
