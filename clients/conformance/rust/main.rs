//! The driver of the conformance suite: clients/conformance/README.md says what it does.

use std::collections::HashMap;
use std::fmt;
use std::process::exit;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant};

use postgres_jobs::{
    AfterInsert, Batch, Blocking, Cells, ClientError, Error, Handler, Handling, Inserted, Job,
    JobInfo, Kind, KindOptions, Middleware, NewJob, Options, Periodic, Producer, Queue, Want,
    Worker, cancel, snooze, testing, wait_for,
};
use serde::{Deserialize, Serialize, Serializer};
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
    NaN,
    NoJson,
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(json) => json.serialize(serializer),
            Self::NaN => f64::NAN.serialize(serializer),
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

async fn run<A: Args>(job: Job<A>) -> Result<Output, Error> {
    interpret(job, |time| tokio::task::block_in_place(|| std::thread::sleep(time))).await
}

fn run_blocking<A: Args>(job: Job<A>) -> Result<Output, Error> {
    tokio::runtime::Handle::current().block_on(interpret(job, std::thread::sleep))
}

async fn interpret<A: Args>(job: Job<A>, sleep_on: impl Fn(Duration)) -> Result<Output, Error> {
    for action in &actions(&job) {
        let (name, value) =
            action.as_object().and_then(|one| one.iter().next()).expect("an action");
        // Names are in the order of the alphabet: in_transaction comes before then.
        match name.as_str() {
            "say" => print(
                &json!({ "event": "said", "job": job.id, "attempt": job.attempt, "say": value }),
            ),
            "describe" => describe(&job),
            "sleep" => {
                let slept =
                    job.cancellation().run_until_cancelled(tokio::time::sleep(seconds(value)));
                if slept.await.is_none() {
                    let why = job.cancelled_because().map(|why| format!("{why:?}"));
                    let why = why.unwrap_or_default().to_lowercase();
                    print(&json!({ "event": "cancelled", "job": job.id, "why": why }));
                    return Err(Error::new("cancelled"));
                }
            }
            "block" => {
                print(&json!({ "event": "impossible" }));
                return Ok(Output::raw("null".into()));
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
            "sql" => connect().await?.batch_execute(value.as_str().expect("a statement")).await?,
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

fn describe<A: Args>(job: &Job<A>) {
    let described = json!({
        "id": job.id, "kind": job.kind, "queue": job.queue, "attempt": job.attempt,
        "max_attempts": job.max_attempts, "priority": job.priority, "args": job.args.value(),
        "meta": job.meta, "tags": job.tags,
    });
    let left = job.deadline.map(|at| at.duration_since(Instant::now()).as_secs_f64());
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
        "nan" => Output::NaN,
        // Ownership has no cycles.
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

async fn in_transaction<A: Args>(
    job: &Job<A>,
    statement: &str,
    then: &str,
) -> Result<Output, Error> {
    let mut client = connect().await?;
    let transaction = client.transaction().await?;
    transaction.batch_execute(statement).await?;
    job.complete(&transaction, json!({ "in": "transaction" })).await?;
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

/// The actions of this attempt.
fn actions<A: Args>(job: &Job<A>) -> Vec<Value> {
    let (args, which) = (job.args.value(), if job.attempt == 1 { "first" } else { "later" });
    let actions = args.get("do").or_else(|| args.get(which)).and_then(Value::as_array);
    actions.cloned().unwrap_or_default()
}

async fn run_batch<A: Args + Clone>(jobs: Vec<Job<A>>) -> Result<(), Error> {
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    print(&json!({ "event": "batch", "jobs": ids }));
    for job in &jobs {
        let actions = actions(job);
        let named = |name| actions.iter().find_map(|action| action.get(name));
        if let Some(why) = named("raise") {
            return Err(Error::new(text(why)));
        }
        if named("leave").is_some() {
            continue;
        }
        match run(job.clone()).await {
            Err(error) if job.cancelled_because().is_some() => return Err(error),
            ended => job.end(ended),
        }
    }
    Ok(())
}

// -------------------------------------------------------------------------------------------------
// Kinds
// -------------------------------------------------------------------------------------------------

static DEFAULTS: LazyLock<Mutex<HashMap<String, KindOptions>>> = LazyLock::new(Mutex::default);

/// Remembers the defaults of kinds, for their definitions.
fn define(kinds: &Value) {
    for (kind, of_kind) in kinds.as_object().into_iter().flatten() {
        if let Some(defaults) = of_kind.get("defaults") {
            let defaults = serde_json::from_value(defaults.clone()).expect("defaults");
            DEFAULTS.lock().unwrap().insert(kind.clone(), defaults);
        }
    }
}

macro_rules! kinds {
    ($($type:ident $name:literal),*) => {$(
        #[derive(Clone, Serialize, Deserialize)]
        #[serde(transparent)]
        struct $type(Value);

        impl Args for $type {
            fn value(&self) -> &Value {
                &self.0
            }
        }

        impl Kind for $type {
            const NAME: &str = $name;

            fn options() -> KindOptions {
                DEFAULTS.lock().unwrap().get($name).cloned().unwrap_or_default()
            }
        }
    )*};
}

kinds! { One "one", Two "two" }

/// The args of a handler.
trait Args: Send + Sync + 'static {
    fn value(&self) -> &Value;
}

impl Args for Value {
    fn value(&self) -> &Value {
        self
    }
}

/// Sets a handler with its options: for a definition, if it has defaults.
fn register(worker: Worker, kind: &str, of_kind: &Value) -> Worker {
    macro_rules! set {
        ($args:ty, $set:expr) => {{
            macro_rules! with {
                ($handler:expr) => {{
                    let concurrency = of_kind["concurrency"].as_u64().map(|number| number as usize);
                    let handler = $handler.timeout(of_kind.get("timeout").map(limit));
                    $set(handler.concurrency(concurrency))
                }};
            }
            let batch = &of_kind["batch"];
            if batch.is_object() {
                let size = batch["size"].as_u64().expect("a size") as usize;
                let linger = batch.get("linger").map(seconds).unwrap_or_default();
                with!(Batch::new(run_batch::<$args>).size(size).linger(linger))
            } else if of_kind["blocking"] == true {
                with!(Blocking(run_blocking::<$args>))
            } else {
                with!(run::<$args>)
            }
        }};
    }
    match (kind, of_kind.get("defaults")) {
        ("one", Some(_)) => set!(One, |handler| worker.handle(handler)),
        ("two", Some(_)) => set!(Two, |handler| worker.handle(handler)),
        _ => set!(Value, |handler| worker.kind(kind, handler)),
    }
}

/// A job by the definition of its kind.
fn new_job_of_kind(kind: &str, args: Value) -> Anything<NewJob> {
    Ok(match kind {
        "one" => NewJob::of(&One(args))?,
        "two" => NewJob::of(&Two(args))?,
        kind => return Err(format!("there is no kind {kind}").into()),
    })
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
    let (kind, args) = (text(&given["kind"]), given.get("args").unwrap_or(&Value::Null));
    let mut job = match given.get("of_kind") {
        Some(_) => new_job_of_kind(kind, args.clone())?,
        None => NewJob::new(kind, args)?,
    };
    for (name, value) in given {
        let (value, number) = (value.clone(), value.as_i64().map(|number| number as i32));
        match name.as_str() {
            "kind" | "args" | "of_kind" => {}
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
    if step["op"] == "insert_of_kind" {
        job.insert("of_kind".into(), true.into());
    }
    job.into()
}

fn shown(inserted: &Inserted) -> Value {
    json!({ "id": inserted.id, "state": inserted.state, "duplicate": inserted.is_duplicate })
}

fn inserted_event(inserted: &[Inserted], is_many: bool) -> Value {
    let jobs: Vec<_> = inserted.iter().map(shown).collect();
    if is_many {
        return json!({ "event": "inserted_many", "jobs": jobs });
    }
    let mut event = jobs[0].clone();
    event["event"] = "inserted".into();
    event
}

fn refused(error: ClientError) -> Value {
    json!({ "event": "refused", "code": error.code(), "error": error.to_string() })
}

/// All databases of the case.
fn configs() -> Result<Vec<tokio_postgres::Config>, tokio_postgres::Error> {
    let urls = std::env::var("CELL_URLS").unwrap_or_default();
    urls.split_whitespace().map(str::parse).collect()
}

static CELLS: LazyLock<Cells> = LazyLock::new(|| Cells::new(configs().expect("URLs")));

async fn operate(op: &Value, producer: &Producer) -> Anything<Value> {
    if op["cells"] == true {
        let is_many = op["op"] == "insert_many";
        let jobs: Anything<Vec<_>> = if is_many {
            array(&op["jobs"]).iter().map(new_job).collect()
        } else {
            Ok(vec![new_job(&flat(op))?])
        };
        return Ok(match producer.insert_many(&*CELLS, jobs?).await {
            Ok(inserted) => inserted_event(&inserted, is_many),
            Err(error) => refused(error),
        });
    }
    let mut client = connect().await?;
    match op["op"].as_str() {
        Some("insert" | "insert_of_kind") => {
            let transaction = client.transaction().await?;
            let inserted = match producer.insert(&transaction, new_job(&flat(op))?).await {
                Ok(inserted) => inserted,
                Err(error) => return Ok(refused(error)),
            };
            match op["then"].as_str() {
                Some("rollback") => transaction.rollback().await?,
                _ => transaction.commit().await?,
            }
            Ok(inserted_event(&[inserted], false))
        }
        Some("insert_many") => {
            let jobs: Anything<Vec<NewJob>> = array(&op["jobs"]).iter().map(new_job).collect();
            Ok(match producer.insert_many(&client, jobs?).await {
                Ok(inserted) => inserted_event(&inserted, true),
                Err(error) => refused(error),
            })
        }
        Some("wait_for") => {
            let ids: Vec<i64> = serde_json::from_value(op["ids"].clone())?;
            let want = if op["want"] == "any" { Want::Any } else { Want::All };
            let results = match wait_for(&client, &ids, seconds(&op["timeout"]), want).await {
                Ok(results) => results,
                Err(error) => return Ok(refused(error)),
            };
            let results: Vec<_> = results
                .iter()
                .map(|one| json!({ "id": one.id, "state": one.state, "output": one.output::<Value>().ok(), "error": one.error }))
                .collect();
            Ok(json!({ "event": "results", "results": results }))
        }
        Some("sync") => {
            let transaction = client.transaction().await?;
            let changes = match worker(&op["worker"], &Value::Null)?.sync(&transaction).await {
                Ok(changes) => changes,
                Err(error) => return Ok(refused(error)),
            };
            match op["then"].as_str() {
                Some("rollback") => transaction.rollback().await?,
                _ => transaction.commit().await?,
            }
            let changes: Vec<_> =
                changes.into_iter().map(|one| [one.object, one.name, one.outcome]).collect();
            Ok(json!({ "event": "synced", "changes": changes }))
        }
        Some("check") => {
            let made = worker(&op["worker"], &Value::Null);
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
            let has_middleware = !producer.middleware.is_empty();
            let worker = worker(&op["worker"], &json!({ "middleware": has_middleware }))?;
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
                lists.push(columns.map(|one| row[one.name()].clone()).collect::<Value>());
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

/// A worker with these options and, of the driver's argument, middleware and hooks.
fn worker(given: &Value, argument: &Value) -> Result<Worker, ClientError> {
    let mut options = Options::default();
    let queue = |name: &str, weight| Queue { name: name.into(), weight };
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
            "prefetch" => options.prefetch = value.as_u64().expect("a number") as usize,
            "name" => options.name = text(value).into(),
            "info" => options.info = value.as_object().expect("an object").clone(),
            "prepare" => options.prepare = value == true,
            _ => {}
        }
    }
    let default = json!({ "run": {} });
    let kinds = given.get("kinds").unwrap_or(&default);
    define(kinds);
    let kinds = kinds.as_object().expect("kinds");
    let config: tokio_postgres::Config = url().parse()?;
    // The suite's pooler in transaction mode, which gives each statement another session.
    options.prepare &= config.get_dbname() != Some("transaction");
    let mut worker = match given["cells"] == true {
        true => Worker::in_cells(configs()?, options)?,
        false => Worker::new(config, options)?,
    };
    for (kind, of_kind) in kinds {
        worker = register(worker, kind, of_kind);
    }
    for periodic in given["periodic"].as_array().into_iter().flatten() {
        let job = NewJob::new(text(&periodic["kind"]), &periodic["args"])?;
        let time_zone = periodic["time_zone"].as_str().map(String::from);
        let new = Periodic::new(text(&periodic["name"]), text(&periodic["cron"]), job);
        worker = worker.periodic(Periodic { time_zone, ..new });
    }
    if let Some(again) = given.get("again") {
        worker = worker.kind(text(again), run::<Value>);
    }
    if given["otherwise"] == true {
        worker = worker.otherwise(run::<Value>);
    }
    if argument["middleware"] == true {
        worker = worker.middleware(Printing);
    }
    let hooks = argument["hooks"].clone();
    if hooks.is_null() {
        return Ok(worker);
    }
    let hook = |hook: &'static str| {
        let fails = hooks == "raise";
        move |job: &JobInfo, error: &Error| {
            let error = error.to_string();
            print(&json!({ "event": "hook", "hook": hook, "job": job.id, "error": error }));
            if fails {
                panic!("the hook {hook} fails");
            }
        }
    };
    Ok(worker.on_error(hook("error")).on_discarded(hook("discarded")))
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
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let argument: Value = serde_json::from_str(&std::env::args().nth(1).expect("an argument"))?;
    define(&argument["kinds"]);
    let (stops, mut stop) = mpsc::unbounded_channel();
    let operations = tokio::spawn(operations(argument.clone(), stops));
    if argument.get("worker").is_none() {
        return operations.await?;
    }
    let made = worker(&argument["worker"], &argument);
    let handle = match made.and_then(Worker::start) {
        Ok(handle) => handle,
        Err(error) => {
            print(&json!({ "event": "unfit", "error": error.to_string() }));
            exit(2);
        }
    };
    let ready = handle.ready();
    let ready = async {
        ready.await;
        print(&json!({ "event": "ready" }));
    };
    let ended = if argument["in_program"] == true {
        tokio::spawn(ready);
        let ended = handle.ended();
        tokio::select! {
            stop = stop.recv() => match stop.as_deref() {
                Some("stop") => handle.stop().await,
                _ => handle.stop_and_cancel().await,
            },
            () = ended => handle.wait().await,
        }
    } else {
        // It hears signals before it is ready.
        tokio::join!(handle.until_signal(), ready).0
    };
    match &ended {
        Ok(()) => print(&json!({ "event": "stopped" })),
        Err(error) => print(&json!({ "event": "failed", "error": error.to_string() })),
    }
    // A handler that blocks would keep the runtime from ending.
    exit(ended.is_err().into())
}
