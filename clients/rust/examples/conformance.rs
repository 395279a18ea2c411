//! The driver of the conformance suite: clients/conformance/README.md says what it does.

use std::fmt;
use std::process::exit;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use postgres_jobs::{
    AfterInsert, Blocking, ClientError, Error, Handling, Inserted, Job, Middleware, NewJob,
    Options, Producer, Queue, Want, Worker, cancel, snooze, testing, wait_for,
};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls};

/// When `rollback_later` is.
const LATER: Duration = Duration::from_secs(7);

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

/// The longest where it is -1.
fn limit(value: &Value) -> Duration {
    Duration::try_from_secs_f64(value.as_f64().expect("seconds")).unwrap_or(Duration::MAX)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// The connection of the operation `testing`.
static IN_TEST: OnceLock<Client> = OnceLock::new();

fn in_test() -> &'static Client {
    IN_TEST.get().expect("the operation testing")
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
                    let why = job.cancelled_because().map(|why| format!("{why:?}"));
                    let why = why.unwrap_or_default().to_lowercase();
                    print(&json!({ "event": "cancelled", "job": job.id, "why": why }));
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
            "discard" => return Err(Error::new(text(value)).discard()),
            "retry_in" => return Err(Error::new("later").retry_in(seconds(value))),
            "progress" => job.progress(value).await?,
            "sql" => {
                connect()
                    .await?
                    .batch_execute(value.as_str().expect("a statement"))
                    .await?
            }
            "sql_in_test" => in_test().batch_execute(text(value)).await?,
            "complete_in_test" => job.complete(in_test(), value).await?,
            "in_transaction" => {
                let then = action["then"].as_str().expect("then");
                return in_transaction(&job, value.as_str().expect("a statement"), then).await;
            }
            "exit_process" => exit(value.as_i64().expect("a code") as i32),
            other => return Err(Error::new(format!("there is no action {other}")).discard()),
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
        "long" => Output::raw(format!("[{}0]", "0,".repeat(17_000_000))),
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
        "rollback" | "rollback_later" => {
            if then == "rollback_later" {
                tokio::time::sleep(LATER).await;
            }
            transaction.rollback().await?;
            return Err(Error::new("rolled back"));
        }
        "commit_and_fail" => {
            transaction.commit().await?;
            return Err(Error::new("after the commit"));
        }
        "commit_and_exit" => {
            transaction.commit().await?;
            exit(9);
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
        print(&json!({ "event": "middleware", "around": "insert", "kind": job.kind }));
        job.meta.insert("middleware".into(), true.into());
        None
    }

    fn work(&self, job: Job<()>, handling: Handling) -> Handling {
        print(&json!({ "event": "middleware", "around": "work", "kind": job.kind }));
        handling
    }
}

/// A job by the names of the parameters of jobs.insert.
fn new_job(given: &Value) -> Anything<NewJob> {
    let given = given.as_object().expect("a job");
    let args = given.get("args").unwrap_or(&Value::Null);
    let mut job = NewJob::new(text(&given["kind"]), args)?;
    for (name, value) in given {
        let (value, number) = (value.clone(), value.as_i64().map(|number| number as i32));
        match name.as_str() {
            "kind" | "args" => {}
            "queue" => job.queue = serde_json::from_value(value)?,
            "priority" => job.priority = number,
            "scheduled_at" => job.scheduled_at = serde_json::from_value(value)?,
            "expires_at" => job.expires_at = serde_json::from_value(value)?,
            "max_attempts" => job.max_attempts = number,
            "tags" => job.tags = serde_json::from_value(value)?,
            "meta" => job.meta = serde_json::from_value(value)?,
            "timeout" => job.timeout = Some(limit(&value)),
            "retry" => job.retry = Some(value),
            "pending" => job.pending = value == true,
            "unique_opts" => job.unique_opts = serde_json::from_value(value)?,
            other => return Err(format!("there is no option {other}").into()),
        }
    }
    Ok(job)
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
            let transaction = client.transaction().await?;
            let inserted = match producer.insert(&transaction, new_job(&flat(op))?).await {
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
            let jobs: Anything<Vec<NewJob>> = array(&op["jobs"]).iter().map(new_job).collect();
            Ok(match producer.insert_many(&client, jobs?).await {
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
                .map(|one| json!({ "id": one.id, "state": one.state, "output": one.output::<Value>().ok(), "error": one.error }))
                .collect();
            Ok(json!({ "event": "results", "results": results }))
        }
        Some("check") => {
            let made = worker(&op["worker"], false);
            let error = match made {
                Ok(worker) => match worker.start() {
                    Ok(handle) => handle.stop_and_cancel().await.err(),
                    Err(error) => Some(error),
                },
                Err(error) => Some(error),
            };
            let error = error.map(|error| error.to_string());
            Ok(json!({ "event": "checked", "error": error }))
        }
        Some("testing") => {
            // Handlers reach it until the driver ends.
            if IN_TEST.get().is_none() {
                let _ = IN_TEST.set(client);
            }
            let worker = worker(&op["worker"], !producer.middleware.is_empty())?;
            in_test().batch_execute("begin").await?;
            let mut results = Vec::new();
            for step in array(&op["steps"]) {
                let result = testing_step(step, producer, &worker).await;
                results.push(result.unwrap_or_else(|error| json!({ "error": error.to_string() })));
            }
            in_test().batch_execute("rollback").await?;
            Ok(json!({ "event": "tested", "results": results }))
        }
        op => Err(format!("there is no op {op:?}").into()),
    }
}

async fn testing_step(step: &Value, producer: &Producer, worker: &Worker) -> Anything<Value> {
    let one = step.as_object().and_then(|one| one.iter().next());
    let (name, value) = one.expect("a step");
    Ok(match name.as_str() {
        "insert" => {
            let job = new_job(&flat(value))?;
            json!(producer.insert(in_test(), job).await?.id)
        }
        "sql" => {
            let is_query = text(value).starts_with("select");
            let rows = format!("select to_jsonb(r) from ({}) r", text(value));
            let mut lists = Vec::new();
            if !is_query {
                in_test().batch_execute(text(value)).await?;
                return Ok(json!(lists));
            }
            // Objects keep the order of the columns nowhere but in the statement's description.
            let names = in_test().prepare(text(value)).await?;
            for row in in_test().query(&rows, &[]).await? {
                let row: Value = row.get(0);
                let columns = names.columns().iter();
                lists.push(
                    columns
                        .map(|one| row[one.name()].clone())
                        .collect::<Value>(),
                );
            }
            json!(lists)
        }
        "assert_inserted" => {
            let (kind, args) = (text(&value["kind"]), &value["args"]);
            let job = testing::assert_inserted(in_test(), kind, args).await?;
            json!({ "id": job.id, "kind": job.kind, "queue": job.queue, "state": job.state, "args": job.args })
        }
        "advance" => {
            testing::advance(in_test(), seconds(value)).await?;
            Value::Null
        }
        _ => {
            let attempts = testing::work_all(in_test(), worker).await?;
            let attempts = attempts.iter().map(|one| {
                json!({ "id": one.id, "kind": one.kind, "state": one.state, "output": one.output, "error": one.error })
            });
            attempts.collect()
        }
    })
}

// -------------------------------------------------------------------------------------------------
// The program
// -------------------------------------------------------------------------------------------------

fn worker(given: &Value, has_middleware: bool) -> Result<Worker, ClientError> {
    let mut options = Options::default();
    let queue = |name: &str, weight| Queue {
        name: name.into(),
        weight,
    };
    for (name, value) in given.as_object().expect("options") {
        match name.as_str() {
            "queues" => {
                options.queues = match value {
                    Value::Object(weights) => weights
                        .iter()
                        .map(|(name, weight)| queue(name, weight.as_f64().expect("a weight")))
                        .collect(),
                    names => array(names).iter().map(|name| text(name).into()).collect(),
                }
            }
            "concurrency" => options.concurrency = value.as_u64().expect("a number") as usize,
            "timeout" => options.timeout = Some(limit(value)),
            "lease" => options.lease = seconds(value),
            "grace" => options.grace = seconds(value),
            "name" => options.name = text(value).into(),
            "info" => options.info = value.as_object().expect("an object").clone(),
            "prepare" => options.prepare = value == true,
            _ => {}
        }
    }
    let default = json!({ "run": {} });
    let kinds = given.get("kinds").unwrap_or(&default);
    let kinds = kinds.as_object().expect("kinds");
    for (kind, of_kind) in kinds {
        if let Some(timeout) = of_kind.get("timeout") {
            options.kind_timeouts.insert(kind.clone(), limit(timeout));
        }
    }
    let config: tokio_postgres::Config = url().parse()?;
    // The suite's pooler in transaction mode, which gives each statement another session.
    options.prepare &= config.get_dbname() != Some("transaction");
    let mut worker = Worker::new(config, options)?;
    for (kind, of_kind) in kinds {
        worker = match of_kind["blocking"].as_bool() {
            Some(true) => worker.kind(kind, Blocking(run_blocking)),
            _ => worker.kind(kind, run),
        };
    }
    if let Some(again) = given.get("again") {
        worker = worker.kind(text(again), run);
    }
    if given["otherwise"] == true {
        worker = worker.otherwise(run);
    }
    if has_middleware {
        worker = worker.middleware(Printing);
    }
    Ok(worker)
}

/// Does what stdin says until it ends; what is for the worker goes on to `stops`.
async fn operations(argument: Value, stops: mpsc::UnboundedSender<String>) -> Anything<()> {
    let mut producer = Producer::default();
    if argument["middleware"] == true {
        producer.middleware.push(Arc::new(Printing));
    }
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
    let made = worker(&argument["worker"], argument["middleware"] == true);
    let handle = match made.and_then(Worker::start) {
        Ok(handle) => handle,
        Err(error) => {
            print(&json!({ "event": "unfit", "error": error.to_string() }));
            exit(2);
        }
    };
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
