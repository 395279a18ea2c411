//! The driver of the conformance suite: clients/conformance/README.md says what it does.

use std::fmt;
use std::process::exit;
use std::time::{Duration, Instant, SystemTime};

use postgres_jobs::{
    AfterInsert, ClientError, Error, Executor, Handling, Inserted, Job, Middleware, NewJob,
    Producer, Queue, Want, Worker, cancel, discard, retry_in, snooze, testing, wait_for,
};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls};

type Anything<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn print(event: &Value) {
    println!("{event}");
}

fn url() -> String {
    std::env::var("DATABASE_URL").expect("DATABASE_URL")
}

async fn connect() -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs_f64(value.as_f64().expect("seconds"))
}

/// None where it is -1.
fn limit(value: &Value) -> Option<Duration> {
    value
        .as_f64()
        .filter(|seconds| *seconds >= 0.0)
        .map(Duration::from_secs_f64)
}

// -------------------------------------------------------------------------------------------------
// The handler
// -------------------------------------------------------------------------------------------------

/// What a handler returns: JSON, or what is none.
enum Output {
    Json(Box<RawValue>),
    NoJson,
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(json) => json.serialize(serializer),
            Self::NoJson => Err(serde::ser::Error::custom("it has no JSON")),
        }
    }
}

impl Output {
    fn raw(text: String) -> Self {
        Self::Json(RawValue::from_string(text).expect("JSON"))
    }
}

/// An error that fails when it is shown.
#[derive(Debug)]
struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("it cannot be shown")
    }
}

impl std::error::Error for Broken {}

async fn run(job: Job<Value>) -> Result<Output, Error> {
    interpret(job, |time| {
        tokio::task::block_in_place(|| std::thread::sleep(time))
    })
    .await
}

fn run_blocking(job: Job<Value>) -> Result<Output, Error> {
    tokio::runtime::Handle::current().block_on(interpret(job, std::thread::sleep))
}

async fn interpret(job: Job<Value>, sleep_on: impl Fn(Duration)) -> Result<Output, Error> {
    let which = if job.attempt == 1 { "first" } else { "later" };
    let actions = job
        .args
        .get("do")
        .or_else(|| job.args.get(which))
        .and_then(Value::as_array);
    for action in actions.unwrap_or(&Vec::new()) {
        let (name, value) = action
            .as_object()
            .and_then(|one| one.iter().next())
            .expect("an action");
        // Names are in the order of the alphabet: in_transaction comes before then.
        match name.as_str() {
            "say" => print(
                &json!({ "event": "said", "job": job.id, "attempt": job.attempt, "say": value }),
            ),
            "describe" => describe(&job),
            "sleep" => {
                let slept = job
                    .cancellation()
                    .run_until_cancelled(tokio::time::sleep(seconds(value)));
                if slept.await.is_none() {
                    print(&json!({ "event": "cancelled", "job": job.id }));
                    return Err(Error::new("cancelled"));
                }
            }
            "sleep_on" => sleep_on(seconds(value)),
            "return" => return Ok(Output::raw(value.to_string())),
            "return_bad" => return Ok(bad_output(value.as_str().expect("a name"))),
            "fail" => return Err(Error::new(value.as_str().expect("a text"))),
            "fail_badly" => return Err(bad_error(value.as_str().expect("a name"))),
            "snooze" => return Err(snooze(seconds(value))),
            "cancel" => return Err(cancel(value.as_str().expect("a reason"))),
            "discard" => return Err(discard(value.as_str().expect("a text"))),
            "retry_in" => return Err(retry_in(seconds(value), "later")),
            "progress" => job.progress(value).await?,
            "sql" => {
                connect()
                    .await?
                    .batch_execute(value.as_str().expect("a statement"))
                    .await?
            }
            "in_transaction" => {
                let then = action["then"].as_str().expect("then");
                return in_transaction(&job, value.as_str().expect("a statement"), then).await;
            }
            "exit_process" => exit(value.as_i64().expect("a code") as i32),
            other => return Err(discard(format!("there is no action {other}"))),
        }
    }
    Ok(Output::raw("null".into()))
}

fn describe(job: &Job<Value>) {
    let described = json!({
        "id": job.id, "kind": job.kind, "queue": job.queue, "attempt": job.attempt,
        "max_attempts": job.max_attempts, "priority": job.priority, "args": job.args,
        "meta": job.meta, "tags": job.tags,
    });
    let left = job
        .deadline
        .map(|at| at.duration_since(Instant::now()).as_secs_f64());
    print(&json!({ "event": "described", "job": described, "left": left }));
}

fn bad_output(name: &str) -> Output {
    match name {
        "nul" => Output::raw(r#""\u0000""#.into()),
        "surrogate" => Output::raw(r#""\ud800""#.into()),
        "deep" => Output::raw("[".repeat(100_000) + &"]".repeat(100_000)),
        "other" => Output::NoJson,
        "huge" => Output::raw(format!("\"{}\"", "x".repeat(300_000_000))),
        // Ownership has no cycles, and what is not a number is written as null.
        _ => {
            print(&json!({ "event": "impossible" }));
            Output::raw("null".into())
        }
    }
}

fn bad_error(name: &str) -> Error {
    match name {
        "nul" => Error::new("a \0 in it"),
        "huge" => Error::new("x".repeat(100_000_000)),
        "empty" => Error::new(""),
        "nothing" => std::panic::panic_any(7),
        "exit" => panic!("it ends its thread"),
        "broken" => Error::from(Broken),
        // A String is UTF-8.
        _ => {
            print(&json!({ "event": "impossible" }));
            Error::new("ordinary")
        }
    }
}

async fn in_transaction(job: &Job<Value>, statement: &str, then: &str) -> Result<Output, Error> {
    let mut client = connect().await?;
    let transaction = client.transaction().await?;
    transaction.batch_execute(statement).await?;
    job.complete(&transaction, json!({ "in": "transaction" }))
        .await?;
    match then {
        "commit" => transaction.commit().await?,
        "rollback" => {
            transaction.rollback().await?;
            return Err(Error::new("rolled back"));
        }
        "commit_and_fail" => {
            transaction.commit().await?;
            return Err(Error::new("after the commit"));
        }
        _ => exit(9),
    }
    Ok(Output::raw(json!({ "in": "handler" }).to_string()))
}

// -------------------------------------------------------------------------------------------------
// Producing
// -------------------------------------------------------------------------------------------------

struct Printing;

impl Middleware for Printing {
    fn insert(&self, job: &mut NewJob) -> Option<AfterInsert> {
        print(&json!({ "event": "middleware", "around": "insert", "kind": job.kind() }));
        job.meta_mut().insert("middleware".into(), true.into());
        None
    }

    fn work(&self, job: Job<()>, handling: Handling) -> Handling {
        print(&json!({ "event": "middleware", "around": "work", "kind": job.kind }));
        handling
    }
}

/// A job by the names of the parameters of jobs.insert.
async fn new_job(client: &Client, options: &Value) -> Anything<NewJob> {
    let none = Map::new();
    let args = options.get("args").unwrap_or(&Value::Null);
    let mut job = NewJob::new(options["kind"].as_str().expect("a kind"), args);
    for (name, value) in options.as_object().unwrap_or(&none) {
        job = match name.as_str() {
            "kind" | "args" => job,
            "queue" => job.queue(value.as_str().expect("a queue")),
            "priority" => job.priority(serde_json::from_value(value.clone())?),
            "scheduled_at" => job.scheduled_at(time(client, value).await?),
            "expires_at" => job.expires_at(time(client, value).await?),
            "max_attempts" => job.max_attempts(serde_json::from_value(value.clone())?),
            "tags" => job.tags(serde_json::from_value::<Vec<String>>(value.clone())?),
            "meta" => {
                let meta = value.as_object().unwrap_or(&none).clone();
                meta.into_iter()
                    .fold(job, |job, (member, value)| job.meta(member, value))
            }
            "timeout" => job.timeout(limit(value)),
            "retry" => job.retry(value.clone()),
            "pending" if *value == true => job.pending(),
            "pending" => job,
            "unique_opts" => job.unique_opts(serde_json::from_value(value.clone())?),
            other => return Err(format!("there is no option {other}").into()),
        };
    }
    Ok(job)
}

async fn time(client: &Client, text: &Value) -> Anything<SystemTime> {
    let row = client
        .query_one("select $1::text::timestamptz", &[&text.as_str()])
        .await?;
    Ok(row.get(0))
}

/// The options beside kind and args.
fn flat(step: &Value) -> Value {
    let mut job = step["options"].as_object().cloned().unwrap_or_default();
    job.insert("kind".into(), step["kind"].clone());
    job.insert("args".into(), step["args"].clone());
    job.into()
}

fn shown(inserted: &Inserted) -> Value {
    json!({ "id": inserted.id, "state": inserted.state, "duplicate": inserted.is_duplicate })
}

fn refused(error: ClientError) -> Value {
    json!({ "event": "refused", "code": error.code(), "message": error.to_string() })
}

async fn operate(op: &Value, producer: &Producer) -> Anything<Value> {
    let mut client = connect().await?;
    match op["op"].as_str() {
        Some("insert") => {
            let job = new_job(&client, &flat(op)).await?;
            let transaction = client.transaction().await?;
            let inserted = match producer.insert(&transaction, job).await {
                Ok(inserted) => inserted,
                Err(error) => return Ok(refused(error)),
            };
            match op["then"].as_str() {
                Some("rollback") => transaction.rollback().await?,
                _ => transaction.commit().await?,
            }
            let mut event = shown(&inserted);
            event["event"] = "inserted".into();
            Ok(event)
        }
        Some("insert_many") => {
            let mut jobs = Vec::new();
            for job in op["jobs"].as_array().expect("jobs") {
                jobs.push(new_job(&client, job).await?);
            }
            Ok(match producer.insert_many(&client, jobs).await {
                Ok(inserted) => {
                    let jobs: Vec<_> = inserted.iter().map(shown).collect();
                    json!({ "event": "inserted_many", "jobs": jobs })
                }
                Err(error) => refused(error),
            })
        }
        Some("wait_for") => {
            let ids: Vec<i64> = serde_json::from_value(op["ids"].clone())?;
            let want = if op["want"] == "any" {
                Want::Any
            } else {
                Want::All
            };
            let results = wait_for(&client, &ids, seconds(&op["timeout"]), want).await?;
            let results: Vec<_> = results
                .iter()
                .map(|one| json!({ "id": one.id, "state": one.state, "output": one.output, "error": one.error }))
                .collect();
            Ok(json!({ "event": "results", "results": results }))
        }
        Some("testing") => {
            let mut results = Vec::new();
            let worker = Worker::new(url()).kind("run", run);
            // Times are read outside of the transaction.
            let reader = connect().await?;
            let transaction = client.transaction().await?;
            for step in op["steps"].as_array().expect("steps") {
                let (name, value) = step
                    .as_object()
                    .and_then(|one| one.iter().next())
                    .expect("a step");
                results.push(match name.as_str() {
                    "insert" => {
                        let job = new_job(&reader, &flat(value)).await?;
                        json!(producer.insert(&transaction, job).await?.id)
                    }
                    "assert_inserted" => {
                        let kind = value["kind"].as_str().expect("a kind");
                        json!(testing::is_inserted(&transaction, kind, &value["args"]).await?)
                    }
                    "advance" => {
                        testing::advance(&transaction, seconds(value)).await?;
                        Value::Null
                    }
                    _ => work_all(&transaction, &worker).await?,
                });
            }
            transaction.rollback().await?;
            Ok(json!({ "event": "tested", "results": results }))
        }
        op => Err(format!("there is no op {op:?}").into()),
    }
}

async fn work_all(executor: impl Executor, worker: &Worker) -> Result<Value, ClientError> {
    let ran = testing::work_all(executor, worker).await?;
    Ok(ran
        .into_iter()
        .map(|(_, kind, state)| json!([kind, state]))
        .collect())
}

// -------------------------------------------------------------------------------------------------
// The program
// -------------------------------------------------------------------------------------------------

fn worker(argument: &Value) -> Worker {
    let mut worker = Worker::new(url());
    let options = &argument["worker"];
    for (name, value) in options.as_object().expect("options") {
        worker = match name.as_str() {
            "queues" => match value {
                Value::Object(weights) => worker.queues(weights.iter().map(|(name, weight)| {
                    (name.as_str(), weight.as_u64().expect("a weight") as u32)
                })),
                names => worker.queues(
                    names
                        .as_array()
                        .expect("names")
                        .iter()
                        .map(|name| Queue::from(name.as_str().expect("a name"))),
                ),
            },
            "concurrency" => worker.concurrency(value.as_u64().expect("a number") as usize),
            "timeout" => match limit(value) {
                Some(timeout) => worker.timeout(timeout),
                None => worker,
            },
            "lease" => worker.lease(seconds(value)),
            "grace" => worker.grace(seconds(value)),
            "name" => worker.name(value.as_str().expect("a name")),
            "info" => {
                let info = value.as_object().expect("an object").clone();
                info.into_iter().fold(worker, |worker, (member, value)| {
                    worker.info(&member, value)
                })
            }
            _ => worker,
        };
    }
    let default = json!({ "run": {} });
    let kinds = options.get("kinds").unwrap_or(&default);
    for (kind, options) in kinds.as_object().expect("kinds") {
        worker = match options["blocking"].as_bool() {
            Some(true) => worker.kind_blocking(kind, run_blocking),
            _ => worker.kind(kind, run),
        };
        if let Some(timeout) = options.get("timeout") {
            worker = worker.kind_timeout(kind, limit(timeout));
        }
    }
    if options["otherwise"] == true {
        worker = worker.otherwise(run);
    }
    if argument["middleware"] == true {
        worker = worker.middleware(Printing);
    }
    worker
}

/// Does what stdin says until it ends; what is for the worker goes on to `stops`.
async fn operations(argument: Value, stops: mpsc::UnboundedSender<String>) -> Anything<()> {
    let producer = match argument["middleware"] == true {
        true => Producer::new().middleware(Printing),
        false => Producer::new(),
    };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let op: Value = serde_json::from_str(&line)?;
        if let Some(stop @ ("stop" | "stop_and_cancel")) = op["op"].as_str() {
            stops.send(stop.into())?;
        } else {
            let result = operate(&op, &producer).await;
            print(
                &result.unwrap_or_else(
                    |error| json!({ "event": "failed", "error": error.to_string() }),
                ),
            );
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Anything<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let argument: Value = serde_json::from_str(&std::env::args().nth(1).expect("an argument"))?;
    let (stops, mut stop) = mpsc::unbounded_channel();
    let operations = tokio::spawn(operations(argument.clone(), stops));
    if argument.get("worker").is_none() {
        return operations.await?;
    }
    let handle = worker(&argument).start()?;
    let ready = handle.ready();
    tokio::spawn(async {
        ready.await;
        print(&json!({ "event": "ready" }));
    });
    let ended = match argument["in_program"] == true {
        true => match stop.recv().await.as_deref() {
            Some("stop") => handle.stop().await,
            _ => handle.stop_and_cancel().await,
        },
        false => handle.until_signal().await,
    };
    print(&json!({ "event": "stopped" }));
    // A handler that blocks would keep the runtime from ending.
    exit(ended.is_err().into())
}
