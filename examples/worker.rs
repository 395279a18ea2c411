//! A complete worker in Rust: fetches in batches, keeps its leases, and stops gracefully.
//!
//! ```text
//! DATABASE_URL=postgresql://postgres@localhost/jobs worker [QUEUE]
//! ```
//!
//! LEASE, CONCURRENCY and GRACE (seconds) set it up. Its handlers write a row into a table of ours:
//!
//! ```sql
//! create table done (job_id bigint, attempt int, worker text);
//! ```
//!
//! docs/workers.md says why it does what it does. A worker that loses its database ends with an
//! error; whoever supervises it starts it again, and the jobs that it held come back when their
//! leases run out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, GenericClient, NoTls, Row};

// -------------------------------------------------------------------------------------------------
// What the jobs do
// -------------------------------------------------------------------------------------------------

struct Job {
    id: i64,
    token: i64,
    attempt: i32,
    kind: String,
    args: Value,
}

/// What becomes of a job whose handler failed.
struct Failed {
    error: String,
    kind: &'static str,
    retryable: bool,
}

/// Does the work. It is dropped at an `await` when it is to stop; what blocks belongs into
/// `spawn_blocking`.
async fn handle(job: Arc<Job>) -> Result<Value, Failed> {
    match job.kind.as_str() {
        "ok" => {}
        "fail_once" if job.attempt == 1 => {
            return Err(Failed {
                error: "the first attempt always fails".into(),
                kind: "unlucky",
                retryable: true,
            });
        }
        "fail_once" => {}
        // Such as a bug would do it: none of it may end the worker.
        "bad_error" => {
            return Err(Failed {
                error: format!("no text of the database: \0 {}", "x".repeat(100_000)),
                kind: "bad",
                retryable: true,
            });
        }
        "bad_output" => return Ok(json!("no JSON of the database: \0")),
        "broken" => panic!("broken"),
        // Whose rows the database refuses.
        "refused" | "not_found" => {}
        "slow" => {
            let seconds = job.args["seconds"].as_f64().unwrap_or(1.0);
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await
        }
        // Until somebody cancels the job, or the worker stops.
        "endless" => std::future::pending().await,
        // Another attempt would not change that.
        kind => {
            return Err(Failed {
                error: format!("there is no handler for {kind}"),
                kind: "unknown_kind",
                retryable: false,
            });
        }
    }
    Ok(json!({ "attempt": job.attempt }))
}

// -------------------------------------------------------------------------------------------------
// The worker
// -------------------------------------------------------------------------------------------------

struct Worker {
    queue: String,
    name: String,
    lease: Duration,
    /// Heartbeats and results. One transaction at a time.
    finishing: tokio::sync::Mutex<Client>,
    /// The jobs that we hold, by id.
    held: Mutex<HashMap<i64, Held>>,
    concurrency: i32,
    /// The command of operators: run; quiet: fetch no more; stop: end as well, once what runs is
    /// done.
    command: Mutex<String>,
}

struct Held {
    token: i64,
    /// Dropping it stops the handler.
    stop: Option<oneshot::Sender<()>>,
}

impl Worker {
    /// Fetches and starts jobs until `stop`, then lets them end within the grace period and gives
    /// the rest back.
    async fn run(
        self: Arc<Self>,
        fetching: Client, // also waits for work, so nothing else can use it
        grace: Duration,
        mut stop: watch::Receiver<bool>,
    ) -> Result<()> {
        self.beat().await?;
        let mut beating = tokio::spawn(self.clone().beats());
        let mut tasks = JoinSet::new();
        let lease = format!("{} s", self.lease.as_secs_f64());
        while !*stop.borrow() && !self.is_commanded("stop") {
            while let Some(ended) = tasks.try_join_next() {
                ended??;
            }
            let free = self.concurrency - tasks.len() as i32;
            if free == 0 {
                tokio::select! {
                    Some(ended) = tasks.join_next() => ended??,
                    ended = &mut beating => ended??,
                    _ = stop.changed() => {}
                }
                continue;
            }
            // A statement of its own is a transaction of its own: the jobs are ours when it
            // returns.
            let jobs = match self.is_commanded("run") {
                true => fetching
                    .query(
                        "select id, token, attempt, kind, args
                           from jobs.fetch(queue => $1, max_jobs => $2, worker => $3, lease => $4::text::interval)",
                        &[&self.queue, &free, &self.name, &lease],
                    )
                    .await?,
                false => Vec::new(),
            };
            for job in &jobs {
                tasks.spawn(self.clone().work(job_of(job)));
            }
            if jobs.is_empty() {
                // Returns when there may be a job. A task that fails meanwhile is seen after it.
                tokio::select! {
                    waited = self.wait_for_work(&fetching) => waited?,
                    ended = &mut beating => ended??,
                    _ = stop.changed() => {}
                }
            }
        }
        fetching.cancel_token().cancel_query(NoTls).await?; // it may be waiting for work
        // Commanded to stop, we end once what runs is done. After a signal it may end within the
        // grace period. The beats go on meanwhile.
        while !*stop.borrow() && !tasks.is_empty() {
            tokio::select! {
                Some(ended) = tasks.join_next() => ended??,
                ended = &mut beating => ended??,
                _ = stop.changed() => {}
            }
        }
        let all = async {
            while tasks.join_next().await.transpose()?.transpose()?.is_some() {}
            Ok(())
        };
        if let Ok(ended) = tokio::time::timeout(grace, all).await {
            return ended;
        }
        for held in self.held.lock().unwrap().values_mut() {
            held.stop.take();
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// Returns also when we get another command, or one of our jobs is to stop. The beat says
    /// which.
    async fn wait_for_work(&self, fetching: &Client) -> Result<()> {
        let call = "call jobs.wait_any(queues => $1, worker => $2)";
        fetching
            .execute(call, &[&[&self.queue].as_slice(), &self.name])
            .await?;
        self.beat().await
    }

    /// Runs the handler of a job that we hold, and tells the queue what came of it.
    async fn work(self: Arc<Self>, job: Job) -> Result<()> {
        let (stop, stopped) = oneshot::channel();
        let held = Held {
            token: job.token,
            stop: Some(stop),
        };
        self.held.lock().unwrap().insert(job.id, held);
        let job = Arc::new(job);
        // A task of its own, so that a panic ends nothing else.
        let mut handler = tokio::spawn(handle(job.clone()));
        let finished = tokio::select! {
            outcome = &mut handler => self.tell(&job, outcome.unwrap_or_else(|error| Err(panicked(error)))).await,
            _ = stopped => {
                handler.abort();
                // The attempt does not count; the job becomes available for others, or cancelled if
                // that was the reason.
                self.release(&job).await
            }
        };
        self.held.lock().unwrap().remove(&job.id);
        Ok(finished?)
    }

    async fn tell(
        &self,
        job: &Job,
        outcome: Result<Value, Failed>,
    ) -> Result<(), tokio_postgres::Error> {
        let failed = match outcome {
            Ok(output) => match self.complete(job, output).await {
                // The database refused what the handler wrote, and said why.
                Err(error) if error.as_db_error().is_some() => Failed {
                    error: error
                        .as_db_error()
                        .map_or("", |error| error.message())
                        .into(),
                    kind: "database",
                    retryable: true,
                },
                completed => return completed,
            },
            Err(failed) => failed,
        };
        finish(
            &*self.finishing.lock().await,
            "select jobs.fail($1, $2, $3, retryable => $4, details => $5)",
            &[
                &job.id,
                &job.token,
                &storable(&failed.error),
                &failed.retryable,
                &json!({ "type": failed.kind }),
            ],
        )
        .await?;
        Ok(())
    }

    /// The row and the end of the job are one transaction: if the job is no longer ours, there is
    /// no row either.
    async fn complete(&self, job: &Job, output: Value) -> Result<(), tokio_postgres::Error> {
        let mut client = self.finishing.lock().await;
        let transaction = client.transaction().await?;
        transaction
            .execute(
                "insert into done values ($1, $2, $3)",
                &[&job.id, &job.attempt, &self.name],
            )
            .await?;
        let call = "select jobs.complete($1, $2, $3)";
        match finish(&transaction, call, &[&job.id, &job.token, &output]).await? {
            Finished::Done => transaction.commit().await,
            Finished::Lost => transaction.rollback().await,
        }
    }

    async fn release(&self, job: &Job) -> Result<(), tokio_postgres::Error> {
        let client = self.finishing.lock().await;
        let call = "select jobs.release($1, $2)";
        finish(&*client, call, &[&job.id, &job.token]).await?;
        Ok(())
    }

    /// Says that we are there, and hears our command; renews all leases in one statement.
    async fn beat(&self) -> Result<()> {
        let client = self.finishing.lock().await;
        let call = "select jobs.worker_beat($1, $2, $3)";
        let beat = client
            .query_one(
                call,
                &[&self.name, &[&self.queue].as_slice(), &self.concurrency],
            )
            .await?;
        *self.command.lock().unwrap() = beat.get(0);
        let (ids, tokens): (Vec<i64>, Vec<i64>) = self
            .held
            .lock()
            .unwrap()
            .iter()
            .map(|(id, held)| (*id, held.token))
            .unzip();
        let call = "select id, cancel_requested from jobs.heartbeat_many($1, $2)";
        let answers = client.query(call, &[&ids, &tokens]).await?;
        let mut held = self.held.lock().unwrap();
        for answer in answers {
            // null where the job is lost
            if answer.get::<_, Option<bool>>("cancel_requested") != Some(false)
                && let Some(held) = held.get_mut(&answer.get("id"))
            {
                held.stop.take();
            }
        }
        Ok(())
    }

    async fn beats(self: Arc<Self>) -> Result<()> {
        loop {
            // Often enough that two heartbeats may go missing.
            tokio::time::sleep((self.lease / 3).min(Duration::from_secs(30))).await;
            self.beat().await?;
        }
    }

    fn is_commanded(&self, command: &str) -> bool {
        *self.command.lock().unwrap() == command
    }
}

fn job_of(row: &Row) -> Job {
    Job {
        id: row.get("id"),
        token: row.get("token"),
        attempt: row.get("attempt"),
        kind: row.get("kind"),
        args: row.get("args"),
    }
}

/// What became of a finishing call.
enum Finished {
    Done,
    /// The job is no longer ours: our lease ran out, or it was cancelled by force, or deleted.
    /// Whoever has it now is not disturbed.
    Lost,
}

/// Makes a finishing call. What it refuses says something of the job; the same SQLSTATE from
/// another statement, that of a handler, says nothing of it.
async fn finish(
    client: &impl GenericClient,
    call: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Finished, tokio_postgres::Error> {
    let is_lost = |error: &tokio_postgres::Error| {
        let Some(error) = error.as_db_error() else {
            return false;
        };
        error.code() == &SqlState::NO_DATA_FOUND
            || error.code() == &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
                && matches!(error.detail(), Some("lease_lost" | "already_finished"))
    };
    match client.execute(call, values).await {
        Err(error) if is_lost(&error) => Ok(Finished::Lost),
        other => other.map(|_| Finished::Done),
    }
}

/// A handler that panicked has failed, like one that says so.
fn panicked(error: tokio::task::JoinError) -> Failed {
    let text = match error.try_into_panic() {
        Ok(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic
                .downcast_ref()
                .copied()
                .unwrap_or("no text")
                .to_string(),
        },
        Err(error) => error.to_string(),
    };
    Failed {
        error: format!("panicked: {text}"),
        kind: "panic",
        retryable: true,
    }
}

/// A text as the database can hold it: without NUL, and not endless.
fn storable(text: &str) -> String {
    text.chars().take(10_000).filter(|c| *c != '\0').collect()
}

// -------------------------------------------------------------------------------------------------
// The program
// -------------------------------------------------------------------------------------------------

#[tokio::main]
async fn main() -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let (mut term, mut int) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::spawn(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        stop.send(true)
    });
    let name = format!("rust worker {}", std::process::id());
    let concurrency = std::env::var("CONCURRENCY")
        .unwrap_or("4".into())
        .parse()
        .context("CONCURRENCY")?;
    if concurrency < 1 {
        bail!("CONCURRENCY is {concurrency}");
    }
    let worker = Arc::new(Worker {
        queue: std::env::args().nth(1).unwrap_or("default".into()),
        lease: seconds("LEASE", 30.0)?,
        finishing: tokio::sync::Mutex::new(connect(&name).await?),
        held: Mutex::default(),
        command: Mutex::default(),
        concurrency,
        name: name.clone(),
    });
    let fetching = connect(&name).await?;
    worker.run(fetching, seconds("GRACE", 10.0)?, stopped).await
}

fn seconds(variable: &str, default: f64) -> Result<Duration> {
    let seconds = std::env::var(variable).map_or(Ok(default), |text| text.parse());
    Ok(Duration::try_from_secs_f64(
        seconds.context(variable.to_owned())?,
    )?)
}

async fn connect(name: &str) -> Result<Client> {
    let url =
        std::env::var("DATABASE_URL").unwrap_or("postgresql://postgres@localhost/jobs".into());
    let mut config: tokio_postgres::Config = url.parse().context("DATABASE_URL")?;
    let (client, connection) = config
        .application_name(name)
        .connect(NoTls)
        .await
        .context("connecting")?;
    tokio::spawn(connection);
    Ok(client)
}
