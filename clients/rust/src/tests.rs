//! What the conformance suite cannot see. It needs no database.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_postgres::Config;

use crate::engine::{Command, Engine, Stage};
use crate::link::PATIENCE;
use crate::*;

mod server;

/// Answers every insert, and keeps what it was asked.
struct Database(Arc<Mutex<Vec<Value>>>);

impl Executor for Database {
    async fn rows(&mut self, _: &'static str, asked: &[&str]) -> Result<Vec<String>> {
        self.0.lock().unwrap().push(serde_json::from_str(asked[0]).unwrap());
        let inserted = r#"{"id": 7, "state": "available", "unique_skipped_as_duplicate": false}"#;
        Ok(vec![inserted.into()])
    }
}

async fn inserted_by(producer: &Producer, job: NewJob) -> Value {
    let asked = Arc::default();
    producer.insert(Database(Arc::clone(&asked)), job).await.unwrap();
    asked.lock().unwrap()[0][0].take()
}

/// Refuses every insert.
struct Refusal;

impl Executor for Refusal {
    async fn rows(&mut self, _: &'static str, _: &[&str]) -> Result<Vec<String>> {
        Err(std::io::Error::other("refused").into())
    }
}

fn job(members: Value) -> Arc<JobInfo> {
    testing::job::<Value>(members).unwrap().info
}

/// What is sent of an error, without the stack that RUST_BACKTRACE asks for, and without nulls.
fn ending(error: impl Into<Error>) -> Value {
    let mut ending = error.into().0;
    if let Some(details) = ending.get_mut("details").and_then(Value::as_object_mut) {
        details.remove("trace");
    }
    given(ending)
}

fn given(mut value: Value) -> Value {
    let members = value.as_object_mut().unwrap();
    members.retain(|_, value| !value.is_null() && *value != false);
    value
}

/// A worker of such options, or why there is none.
fn worker(options: Options) -> std::result::Result<Worker, String> {
    Worker::new("".parse().unwrap(), options).map_err(|error| error.to_string())
}

/// What runs a worker with this handler for the kind `k`.
fn engine<A>(config: Config, handler: impl Handler<A>) -> Arc<Engine> {
    let options = Options { prepare: false, ..Options::default() };
    let worker = Worker::new(config, options).unwrap().kind("k", handler);
    let engine = Engine::new(worker);
    engine.see(0, Default::default()).unwrap();
    engine.obey(0, Command::Run);
    engine
}

#[tokio::test]
async fn every_option_is_written() {
    let job = NewJob {
        queue: Some("q".into()),
        priority: Some(2),
        scheduled_at: chrono::DateTime::from_timestamp_micros(90_061_000_001),
        max_attempts: Some(3),
        tags: vec!["t".into()],
        meta: json!({ "m": 1 }).as_object().unwrap().clone(),
        timeout: Some(Duration::MAX),
        retry: Some("oban".into()),
        pending: true,
        unique_opts: Some(Unique {
            by_args: Some(By::ALL),
            by_period: Some(Duration::from_secs(60)),
            ..Unique::default()
        }),
        ..NewJob::new("k", [1]).unwrap()
    };
    let mut written = given(inserted_by(&Producer::default(), job).await);
    written["unique_opts"] = given(written["unique_opts"].take());
    let expected = json!({
        "kind": "k", "args": [1], "queue": "q", "priority": 2, "max_attempts": 3, "tags": ["t"],
        "scheduled_at": "1970-01-02T01:01:01.000001Z", "meta": { "m": 1 }, "timeout": -1.0,
        "retry": "oban", "pending": true, "unique_opts": { "by_args": true, "by_period": 60.0 },
    });
    assert_eq!(written, expected);
}

/// Has the result of a job.
struct Results(String);

impl Executor for Results {
    async fn rows(&mut self, _: &'static str, _: &[&str]) -> Result<Vec<String>> {
        Ok(vec![self.0.clone()])
    }
}

#[tokio::test]
async fn a_program_gets_results_whatever_their_outputs_are() {
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    for (output, is_read) in [(&*deep, false), ("1e999", false), ("[1]", true), ("null", true)] {
        let row =
            format!(r#"{{"id": 7, "state": "completed", "output": {output}, "error": null}}"#);
        let results = wait_for(Results(row), &[7], Duration::ZERO, Want::All).await;
        let result = results.unwrap().remove(0);
        assert_eq!(result.state, Some(crate::State::Completed), "{output}");
        let raw = result.raw_output.as_ref().map_or("null", |raw| raw.get());
        assert_eq!(raw, output);
        let read = result.output::<Option<Vec<i64>>>();
        assert_eq!(read.is_ok(), is_read, "{output}: {read:?}");
    }
}

#[test]
fn a_cancelled_handler_has_given_up_if_it_ends_with_an_error_of_its_own() {
    let error = || Error::new("no");
    for (error, is_plain) in [
        (error(), true),
        (error().typed("invalid_output"), false),
        (error().discard(), false),
        (error().retry_in(Duration::ZERO), false),
        (snooze(Duration::ZERO), false),
    ] {
        assert_eq!(error.is_plain(), is_plain, "{error:?}");
    }
}

#[test]
fn args_without_json_are_refused() {
    let refused = NewJob::new("k", std::collections::HashMap::from([(vec![1], 1)])).unwrap_err();
    assert!(refused.to_string().contains("key must be a string"), "{refused}");
}

#[test]
fn an_error_keeps_its_type_and_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("no picture")]
    struct NoPicture(#[source] std::io::Error);

    let failed = ending(NoPicture(std::io::Error::other("no such file")));
    assert_eq!(failed["error"], "no picture: no such file");
    assert_eq!(failed["retryable"], true);
    let type_name = failed["details"]["type"].as_str().unwrap();
    assert!(type_name.ends_with("::NoPicture"), "{type_name}");
}

#[test]
fn endings_are_written() {
    let second = Duration::from_secs(1);
    assert_eq!(ending(snooze(second)), json!({ "do": "snooze", "delay": 1.0 }));
    assert_eq!(ending(cancel("a\0")), json!({ "do": "cancel", "reason": "a\u{fffd}" }));
    let failed = json!({ "do": "fail", "error": "e", "details": { "type": "t" } });
    assert_eq!(ending(Error::new("e").discard().typed("t")), failed);
    assert_eq!(ending(Error::new("e").retry_in(second))["retry_in"], 1.0);
    let longest = 1000.0 * 360.0 * 86_400.0;
    assert_eq!(ending(Error::new("e").retry_in(Duration::MAX))["retry_in"], longest);
    assert_eq!(ending(snooze(Duration::MAX))["delay"], longest);
    assert_eq!(
        ending(Error::new("")),
        json!({
            "do": "fail", "error": "Error", "details": { "type": "Error" }, "retryable": true,
        })
    );
}

#[test]
fn unique_options_are_written_and_read() {
    let options = json!({
        "by_args": ["a.b"], "by_period": 60.0, "by_state": ["available"],
        "on_conflict": { "update": { "*": ["priority"] } }, "window": 0.5,
    });
    let unique: Unique = serde_json::from_value(options.clone()).unwrap();
    assert_eq!(given(serde_json::to_value(&unique).unwrap()), options);
    assert!(serde_json::from_value::<Unique>(json!({ "by_arg": true })).is_err());
}

#[test]
fn wrong_options_are_named() {
    let wrong = |options| worker(options).err().unwrap();
    let queue = |name: &str, weight| Queue { name: name.into(), weight };
    let options = Options { queues: vec![queue("a", 1.0), queue("b", -2.5)], ..Options::default() };
    let fault = "the weight of queue b must be a positive number, not -2.5";
    assert_eq!(wrong(options), fault);
    let rule = "must have 1 to 127 characters and no control characters";
    for name in ["", "a\nb", "a\0", &"a".repeat(128)] {
        assert_eq!(
            wrong(Options::queues([name])),
            format!("an element of queues {rule}, not {name:?}")
        );
        let options = Options { name: name.into(), ..Options::default() };
        assert_eq!(wrong(options), format!("the name of a worker {rule}, not {name:?}"));
        let kind = worker(Options::default()).unwrap().kind(name, nothing).start();
        assert_eq!(kind.err().unwrap().to_string(), format!("a kind {rule}, not {name:?}"));
    }
    for lease in [Duration::from_nanos(999), Duration::MAX] {
        let fault = wrong(Options { lease, ..Options::default() });
        assert!(fault.starts_with("lease must be between 1 µs and 1000 years"), "{fault}");
    }
    let options = Options { queues: vec!["a".into(), "a".into()], ..Options::default() };
    assert_eq!(wrong(options), "queues must name each queue once, not a twice");
    let timed = nothing.timeout(Duration::ZERO);
    let worker_of_it = worker(Options::default()).unwrap().kind("k", timed);
    let fault = worker_of_it.start().err().unwrap().to_string();
    assert_eq!(fault, "the timeout of kind k must be positive, not 0 s");
    // So an error that `main` returns is shown.
    let fault = ClientError::Option("lease must be positive, not 0 s".into());
    assert_eq!(format!("{fault:?}"), "lease must be positive, not 0 s");
    let twice = worker(Options::default())
        .unwrap()
        .kind("k", async |_: Job<Value>| Ok(()))
        .kind("k", Blocking(|_: Job<Value>| Ok(())))
        .start();
    assert_eq!(twice.err().unwrap().to_string(), "kind k already has a handler");
    let limited = worker(Options::default()).unwrap().otherwise(nothing.concurrency(2)).start();
    let fault = "a kind has a concurrency only in a worker without a handler of every other kind";
    assert_eq!(limited.err().unwrap().to_string(), fault);
}

#[tokio::test]
async fn a_run_that_is_dropped_stops_the_worker() {
    let (_listener, config) = server::silent().await;
    let engine = engine(config, nothing);
    let task = tokio::spawn(engine.clone().serve());
    let running = Handle { engine: engine.clone(), task }.until_signal();
    timeout(Duration::from_millis(100), running).await.unwrap_err();
    let ended = engine.until(|state| state.stage == Stage::Over);
    timeout(PATIENCE / 2, ended).await.unwrap();
}

#[test]
fn what_is_no_number_is_refused() {
    #[derive(serde::Serialize)]
    struct Mean {
        of: Option<u8>,
        value: f64,
    }

    for (value, is_right) in [(0.5, true), (f64::NAN, false), (f64::INFINITY, false)] {
        let job = NewJob::new("k", [Some(Mean { of: None, value }), None]);
        assert_eq!(job.is_ok(), is_right, "{value}: {job:?}");
    }
}

#[test]
fn what_the_configuration_says_of_connections_stands() {
    let said = |config: &str| {
        let worker = Worker::new(config.parse().unwrap(), Options::default());
        let config = worker.unwrap().configs.remove(0);
        let idle = config.get_keepalives_idle().as_secs();
        let interval = config.get_keepalives_interval().unwrap().as_secs();
        (idle, interval, config.get_keepalives_retries())
    };
    assert_eq!(said(""), (30, 10, Some(3)));
    let config = "keepalives_idle=4 keepalives_interval=5 keepalives_retries=6";
    assert_eq!(said(config), (4, 5, Some(6)));
}

#[tokio::test]
async fn args_of_another_type_fail_the_attempt() {
    let handler = async |job: Job<u8>| Ok(job.args);
    let worker = worker(Options::default()).unwrap().kind("k", handler);
    let fits = handled(&worker, job(json!({ "kind": "k", "args": 7 }))).await;
    assert_eq!(fits.unwrap().get(), "7");
    let refused = handled(&worker, job(json!({ "kind": "k", "args": -7 }))).await;
    let refused = ending(refused.unwrap_err());
    assert_eq!(refused["details"]["type"], "invalid_args");
}

#[test]
fn a_result_whose_job_is_locked_is_kept_with_its_place() {
    let engine = engine(Default::default(), nothing);
    for token in [1, 2, 3] {
        let job = job(json!({ "id": 10 * token, "token": token }));
        engine.change(|state| state.settle(&job, &Err(Error::release())));
    }
    let refused = [(1, Some("locked".into())), (2, Some("lease_lost".into()))];
    engine.take(&[(0, 1), (0, 2), (0, 3)], refused.into());
    let places = || engine.state.borrow().places().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(places(), [10]);
    assert!(engine.state.borrow().unsent[&(0, 1)].due > std::time::Instant::now());
    assert_eq!(engine.state.borrow().unsent.len(), 1);
    engine.take(&[(0, 1)], [].into());
    assert!(places().is_empty());
}

struct Named(&'static str, Arc<Mutex<Vec<String>>>);

impl Middleware for Named {
    fn insert(&self, _: &mut NewJob) -> Option<AfterInsert> {
        self.say("before");
        let (name, said) = (self.0, self.1.clone());
        Some(Box::new(move |inserted| {
            let inserted = inserted.map_err(ToString::to_string);
            let after = format!("{name} after {:?}", inserted.map(|inserted| inserted.id));
            said.lock().unwrap().push(after);
        }))
    }

    fn work(&self, _: Job<()>, handling: Handling) -> Handling {
        self.say("around");
        handling
    }
}

impl Named {
    fn say(&self, what: &str) {
        self.1.lock().unwrap().push(format!("{} {what}", self.0));
    }
}

#[tokio::test]
async fn what_is_added_first_is_outermost() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let middleware = ["a", "b"].map(|name| Arc::new(Named(name, said.clone())) as _);
    let producer = Producer { middleware: middleware.into() };
    inserted_by(&producer, NewJob::new("k", 1).unwrap()).await;
    let said_after = |after: &str| {
        let order = ["a before", "b before"].map(String::from);
        let after = ["b", "a"].map(|name| format!("{name} after {after}"));
        assert_eq!(std::mem::take(&mut *said.lock().unwrap()), [order, after].concat());
    };
    said_after("Ok(Some(7))");
    let job = NewJob::new("k", 1).unwrap();
    producer.insert(Refusal, job).await.unwrap_err();
    said_after(r#"Err("refused")"#);
}

#[test]
fn a_deadline_that_no_clock_reaches_is_none() {
    for (left, has_passed) in [(1e20, None), (-1e20, Some(true))] {
        let job = job(json!({ "deadline": left }));
        let until = job.until();
        assert_eq!(until.map(|until| until <= std::time::Instant::now()), has_passed, "{left}");
    }
}

/// How the worker's handler ends a job.
async fn handled(worker: &Worker, job: Arc<JobInfo>) -> Result<Box<RawValue>, Error> {
    worker.handlings(&[job], &[]).remove(0).await
}

/// Runs a job that was fetched, until its handler has ended.
async fn attend(engine: &Arc<Engine>, job: Arc<JobInfo>) {
    let _starting = engine.part(engine.clone().keep_time());
    engine.change(|state| state.waiting.push(job));
    engine.until(|state| state.waiting.is_empty() && state.running.is_empty()).await;
}

async fn nothing(_: Job<Value>) -> std::result::Result<(), Error> {
    Ok(())
}

/// A log that notes how many results there are, where others can see that while it is written.
struct Log(Arc<Engine>, Lines);

type Lines = Arc<Mutex<Vec<(String, Option<usize>)>>>;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let (counts, counted) = std::sync::mpsc::channel();
        let engine = self.0.clone();
        std::thread::spawn(move || counts.send(engine.state.borrow().unsent.len()));
        let counted = counted.recv_timeout(Duration::from_secs(10)).ok();
        let text = String::from_utf8_lossy(line).into_owned();
        self.1.lock().unwrap().push((text, counted));
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn logs_say_which_job_it_is_and_keep_nobody_from_the_state() {
    let engine = engine(Default::default(), async |job: Job<Value>| {
        if job.deadline.is_some() {
            job.cancellation().cancelled().await;
        }
        Err::<(), _>(if job.args == "snooze" { snooze(Duration::ZERO) } else { Error::new("no") })
    });
    let lines = Lines::default();
    let log = (engine.clone(), Arc::clone(&lines));
    let logger = tracing_subscriber::fmt().with_writer(move || Log(log.0.clone(), log.1.clone()));
    let logger = logger.without_time().with_target(false).finish();
    let _logger = tracing::subscriber::set_default(logger);
    let of = |token, other: Value| {
        let mut members = json!({ "id": 7, "token": token, "kind": "k", "attempt": 2 });
        members.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        job(members)
    };
    of(1, json!({})).hear(Some(true));
    of(1, json!({})).hear(None);
    attend(&engine, of(1, json!({ "args": "snooze" }))).await;
    attend(&engine, of(2, json!({}))).await;
    attend(&engine, of(3, json!({ "deadline": 0 }))).await;
    let error = std::io::Error::other("refused").into();
    engine.refuse(&[(0, 2)], &error);
    engine.refuse(&[(0, 2)], &error);
    engine.take(&[(0, 1), (0, 2), (0, 3)], [(2, Some("lease_lost".into()))].into());
    let job = r#"job=7 kind="k" attempt=2"#;
    let late = "the attempt ran longer than its timeout";
    let wanted = [
        (format!(" WARN job lost {job}"), Some(0)),
        (format!(" WARN attempt failed {job} max_attempts=25 type=\"Error\" error=no"), Some(2)),
        (
            format!(" WARN attempt failed {job} max_attempts=25 type=\"timeout\" error={late}"),
            Some(3),
        ),
        (format!(" WARN result refused, retrying {job} error=refused"), Some(3)),
        (format!(" WARN job lost, result discarded {job} reason=\"lease_lost\""), Some(0)),
    ];
    let lines = lines.lock().unwrap();
    // With RUST_BACKTRACE errors have a trace.
    let without = |text: &str| text.split(" trace=").next().unwrap().trim_end().to_string();
    let lines: Vec<_> = lines.iter().map(|(text, count)| (without(text), *count)).collect();
    assert_eq!(lines, wanted);
}

#[tokio::test]
async fn a_worker_fetches_again_as_soon_as_a_wait_has_ended() {
    let (asks, mut asked) = mpsc::unbounded_channel();
    let config = server::start(move |statement| {
        asks.send(statement).unwrap();
        std::future::ready(Ok(()))
    });
    let engine = engine(config.await, nothing);
    engine.enter(Stage::Run);
    let _fetching = engine.part(fetch::run(engine.clone(), 0));
    let many = async {
        for _ in 0..100 {
            for name in ["jobs.fetch_any", "jobs.wait_any"] {
                let statement = asked.recv().await.unwrap();
                assert!(statement.contains(name), "{statement}");
            }
        }
    };
    // Pauses between them would be longer by far.
    timeout(Duration::from_secs(60), many).await.unwrap();
}

#[tokio::test]
async fn pauses_grow_although_other_calls_succeed() {
    for (fails, code) in [("jobs.worker_beat", "25006"), ("jobs.wait_any", "42501")] {
        let config = server::start(move |statement| {
            let answer = if statement.contains(fails) { Err((code, "no")) } else { Ok(()) };
            std::future::ready(answer)
        });
        let engine = engine(config.await, nothing);
        let lines = Lines::default();
        let log = (engine.clone(), Arc::clone(&lines));
        let logger =
            tracing_subscriber::fmt().with_writer(move || Log(log.0.clone(), log.1.clone()));
        let logger = logger.with_ansi(false).finish();
        let _logger = tracing::subscriber::set_default(logger);
        let _beating = engine.part(control::run(engine.clone(), 0));
        while lines.lock().unwrap().len() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let third = lines.lock().unwrap()[2].0.clone();
        let pause = third.split_once("pause=").and_then(|(_, pause)| pause.split_once("ms"));
        let pause: f64 = pause.unwrap().0.parse().unwrap();
        assert!(pause > 250.0, "{third}");
    }
}

#[tokio::test]
async fn a_connection_that_can_never_work_ends_the_worker() {
    let (listener, refused) = server::silent().await;
    let _refusing = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let error = b"E\0\0\0\x17SFATAL\0C42704\0Mno\0\0";
        stream.write_all(error).await.unwrap();
        (stream, listener)
    });
    let mut configs = vec![(refused, "FATAL: no")];
    for (config, fault) in [("", "hostaddr are missing"), ("host=a,b port=1,2,3", "of ports")] {
        configs.push((config.parse().unwrap(), fault));
    }
    for (config, fault) in configs {
        let worker = Worker::new(config, Options::default()).unwrap().kind("k", nothing);
        let ended = timeout(PATIENCE / 2, worker.run()).await;
        let error = ended.expect("it ends").unwrap_err().to_string();
        assert!(error.contains(fault), "{error}");
    }
}

#[tokio::test]
async fn every_host_has_its_turn_however_soon_a_call_is_to_be_answered() {
    // Its queue is full, so nobody else gets an answer.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let silent = silent.listen(0).unwrap();
    let silent_at = silent.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(one) = timeout(Duration::from_secs(1), TcpStream::connect(silent_at)).await {
        queue.push(one.unwrap());
    }
    let server = server::start(|_| std::future::ready(Ok(()))).await;
    let mut config = Config::new();
    for port in [silent_at.port(), server.get_ports()[0]] {
        config.host("127.0.0.1").port(port);
    }
    config.connect_timeout(Duration::from_secs(3));
    config.ssl_mode(server.get_ssl_mode()).user("anybody");
    let engine = engine(config, nothing);
    let mut link = engine.worker.link(0, Duration::from_secs(2));
    link.run("select", &[]).await.unwrap();
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_left_soon() {
    let (_listener, mut config) = server::silent().await;
    config.connect_timeout(Duration::from_secs(1));
    let engine = engine(config, nothing);
    let mut link = engine.worker.link(0, Duration::from_secs(2));
    let called = timeout(PATIENCE / 2, link.run("select", &[])).await;
    called.expect("it is left").unwrap_err();
}

#[tokio::test]
async fn a_worker_that_stops_waits_for_its_fetch() {
    let (asks, mut asked) = mpsc::unbounded_channel();
    let answer = Arc::new(Notify::new());
    let answered = answer.clone();
    let config = server::start(move |statement| {
        let (asks, answered) = (asks.clone(), answered.clone());
        async move {
            if statement.contains("jobs.fetch_any") {
                asks.send(()).unwrap();
                answered.notified().await;
            } else if statement.contains("jobs.wait_any") {
                std::future::pending().await
            }
            Ok(())
        }
    });
    let engine = engine(config.await, nothing);
    engine.enter(Stage::Run);
    let worker = tokio::spawn(engine.clone().serve());
    asked.recv().await.unwrap();
    engine.enter(Stage::Cancel);
    // By now it would have left handlers behind.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!worker.is_finished());
    answer.notify_one();
    worker.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_worker_that_stops_does_not_wait_for_a_connection() {
    let (server, config) = server::silent().await;
    let engine = engine(config, nothing);
    engine.enter(Stage::Run);
    let worker = tokio::spawn(engine.clone().serve());
    // That of its control, and that of its fetches.
    let _connections = [server.accept().await.unwrap(), server.accept().await.unwrap()];
    engine.enter(Stage::Stop);
    let ended = timeout(PATIENCE / 2, worker).await;
    ended.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn an_output_for_which_the_server_has_no_memory_fails_the_attempt() {
    for (message, last) in [
        ("invalid memory alloc request size 1073741824", r#""type":"invalid_output""#),
        // Every other internal error has that code as well.
        ("cache lookup failed for type 7", r#""do":"complete""#),
    ] {
        let (asks, mut asked) = mpsc::unbounded_channel();
        let config = server::start(move |statement| {
            asks.send(statement).unwrap();
            std::future::ready(Err(("XX000", message)))
        });
        let engine = engine(config.await, nothing);
        attend(&engine, job(json!({ "kind": "k" }))).await;
        let _finishing = engine.part(finish::run(engine.clone(), 0));
        for part in [r#""do":"complete""#, r#""do":"complete""#, last] {
            let statement = asked.recv().await.unwrap();
            assert!(statement.contains(part), "{message}: {statement}");
        }
    }
}

/// Refuses everything after a while.
struct Late(Duration);

impl Executor for Late {
    async fn rows(&mut self, sql: &'static str, asked: &[&str]) -> Result<Vec<String>> {
        tokio::time::sleep(self.0).await;
        Refusal.rows(sql, asked).await
    }
}

#[tokio::test]
async fn a_job_whose_completion_was_given_up_is_not_complete() {
    let engine = engine(Config::new(), async |job: Job<Value>| {
        let completing = job.complete(Late(Duration::MAX), ());
        timeout(Duration::ZERO, completing).await.unwrap_err();
        Ok("in another way")
    });
    let given = job(json!({ "token": 1, "kind": "k" }));
    attend(&engine, given).await;
    let result = &engine.state.borrow().unsent[&(0, 1)].json;
    assert!(result.contains("in another way"), "{result}");
}

#[tokio::test]
async fn a_timeout_comes_late_where_a_job_was_not_completed_after_all() {
    let engine = engine(Config::new(), async |job: Job<Value>| {
        let completing = job.complete(Late(Duration::from_millis(1_500)), ());
        completing.await.unwrap_err();
        job.cancellation().cancelled().await;
        Ok(())
    });
    let given = job(json!({ "token": 1, "kind": "k", "deadline": 0 }));
    let attending = attend(&engine, given);
    timeout(Duration::from_secs(60), attending).await.unwrap();
    let result = &engine.state.borrow().unsent[&(0, 1)].json;
    assert!(result.contains(r#""type":"timeout""#), "{result}");
}

/// Keeps what it sees of handlers.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Middleware for Seen {
    fn work(&self, _: Job<()>, handling: Handling) -> Handling {
        let seen = self.clone();
        Box::pin(async move {
            let ended = handling.await;
            let text = ended.as_ref().map_or_else(ToString::to_string, |_| "ok".into());
            seen.0.lock().unwrap().push(text);
            ended
        })
    }
}

#[tokio::test]
async fn middleware_sees_a_panic_as_an_error() {
    let seen = Seen::default();
    let worker = worker(Options::default()).unwrap().middleware(seen.clone());
    let worker = worker.kind("k", async |_: Job<Value>| -> std::result::Result<(), Error> {
        panic!("of the handler")
    });
    let ended = handled(&worker, job(json!({ "kind": "k" }))).await;
    assert_eq!(ending(ended.unwrap_err())["details"]["type"], "panic");
    assert_eq!(*seen.0.lock().unwrap(), ["of the handler"]);
}

#[tokio::test]
async fn a_batch_has_the_jobs_whose_args_fit() {
    let handler = async |jobs: Vec<Job<u8>>| {
        jobs[1].end(Ok(jobs[1].args));
        jobs[1].end(snooze(Duration::ZERO));
        assert!(jobs.len() > 2, "of the batch");
        Ok(())
    };
    let worker = worker(Options::default()).unwrap().kind("k", Batch::new(handler));
    let jobs = [1, -7, 2].map(|args| job(json!({ "kind": "k", "args": args })));
    let ended = join_all(worker.handlings(&jobs, &[])).await;
    let type_of = |number: usize| ended[number].as_ref().unwrap_err().details()["type"].clone();
    assert_eq!((type_of(0), type_of(1)), ("panic".into(), "invalid_args".into()));
    assert_eq!(ended[2].as_ref().unwrap().get(), "2");
}

/// Ends job 1 itself, holds up job 2, and lets job 3 come when it is cancelled.
struct Uneven;

impl Middleware for Uneven {
    fn work(&self, job: Job<()>, handling: Handling) -> Handling {
        Box::pin(async move {
            match job.id {
                1 => return Ok(Box::default()),
                2 => yield_now().await,
                3 => job.cancel(Reason::Stopping),
                _ => {}
            }
            handling.await
        })
    }
}

#[tokio::test]
async fn a_batch_starts_once_every_job_has_come_through_its_middleware() {
    let handler = async |jobs: Vec<Job<Value>>| {
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [2, 4]);
        Ok(())
    };
    let worker = worker(Options::default()).unwrap().kind("k", Batch::new(handler));
    let worker = worker.middleware(Uneven);
    let jobs = [1, 2, 3, 4].map(|id| job(json!({ "kind": "k", "id": id })));
    let mut ended = join_all(worker.handlings(&jobs, &[])).await;
    assert!(ended.remove(2).unwrap_err().is_release());
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

#[cfg(feature = "opentelemetry")]
#[tokio::test]
async fn spans_belong_together() {
    use ::opentelemetry::KeyValue;
    use ::opentelemetry::trace::{Status, Tracer};
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};

    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    ::opentelemetry::global::set_tracer_provider(provider);
    let producer = Producer { middleware: vec![Arc::new(OpenTelemetry)] };
    let inserted = inserted_by(&producer, NewJob::new("k", 1).unwrap()).await;
    let worker = worker(Options::default())
        .unwrap()
        .kind("k", async |_: Job<Value>| Err::<(), _>(Error::new("no").typed("t")))
        .middleware(OpenTelemetry);
    let meta = &inserted["meta"];
    for number in [1, 2] {
        let members = json!({ "kind": "k", "queue": "q", "attempt": number, "meta": meta });
        handled(&worker, job(members)).await.unwrap_err();
    }
    let [sent, first, second] = &exporter.get_finished_spans().unwrap()[..] else {
        panic!("three spans")
    };
    assert_eq!(sent.status, Status::Unset);
    assert_eq!(first.status, Status::error("no"));
    assert_eq!((&*sent.name, &*first.name), ("insert default", "work q"));
    assert_eq!(first.span_context.trace_id(), sent.span_context.trace_id());
    assert_eq!(first.parent_span_id, sent.span_context.span_id());
    assert_ne!(second.span_context.trace_id(), sent.span_context.trace_id());
    assert_eq!(second.links.links[0].span_context.span_id(), sent.span_context.span_id());
    assert!(
        first
            .attributes
            .iter()
            .any(|one| one.key.as_str() == "error.type" && one.value.as_str() == "t")
    );
    exporter.reset();
    let refused = producer.insert(Refusal, NewJob::new("k", 1).unwrap());
    refused.await.unwrap_err();
    let refused = exporter.get_finished_spans().unwrap().remove(0);
    assert_eq!(refused.status, Status::error("refused"));
    let error = KeyValue::new("error.type", "ClientError");
    assert!(refused.attributes.contains(&error), "{refused:?}");
    // They have failed if their attempts have: how a handler ends, why it was cancelled, its type.
    let cases = [
        ("k", None, "t"),
        ("invalid", None, "invalid_output"),
        ("done", None, ""),
        ("snooze", None, ""),
        ("k", Some(Reason::Timeout), "timeout"),
        ("done", Some(Reason::Timeout), "timeout"),
        ("snooze", Some(Reason::Timeout), "timeout"),
        ("endless", Some(Reason::Timeout), "timeout"),
        ("k", Some(Reason::Cancelled), ""),
        ("k", Some(Reason::Stopping), ""),
        ("k", Some(Reason::Lost), ""),
        ("discard", Some(Reason::Stopping), "t"),
        ("discard", Some(Reason::Lost), ""),
        ("retry", Some(Reason::Stopping), "t"),
        ("retry", Some(Reason::Lost), ""),
        ("invalid", Some(Reason::Lost), ""),
    ];
    let worker = worker
        .kind("done", nothing)
        .kind("snooze", async |_: Job<Value>| Err::<(), _>(snooze(Duration::ZERO)))
        .kind("discard", async |_: Job<Value>| Err::<(), _>(Error::new("no").typed("t").discard()))
        .kind("retry", async |_: Job<Value>| {
            Err::<(), _>(Error::new("no").typed("t").retry_in(Duration::ZERO))
        })
        .kind("invalid", async |_: Job<Value>| Ok(std::collections::HashMap::from([(vec![1], 1)])))
        .kind("endless", async |_: Job<Value>| {
            std::future::pending::<std::result::Result<(), Error>>().await
        });
    fn within() -> std::result::Result<(), Error> {
        ::opentelemetry::global::tracer("handler").start("within");
        Ok(())
    }
    let worker = worker
        .kind("blocking", Blocking(|_: Job<Value>| within()))
        .kind("batch", Batch::new(async |_: Vec<Job<Value>>| within()));
    for kind in ["blocking", "batch"] {
        exporter.reset();
        handled(&worker, job(json!({ "kind": kind }))).await.unwrap();
        let [inner, outer] = &exporter.get_finished_spans().unwrap()[..] else {
            panic!("two spans")
        };
        assert_eq!(inner.parent_span_id, outer.span_context.span_id(), "{kind}");
    }
    for (kind, reason, type_name) in cases {
        exporter.reset();
        let job = job(json!({ "kind": kind }));
        if let Some(reason) = reason {
            job.cancel(reason);
        }
        let _ = handled(&worker, job).await;
        let span = exporter.get_finished_spans().unwrap().remove(0);
        let mut attributes = span.attributes.iter();
        let error = attributes.find(|one| one.key.as_str() == "error.type");
        let error = error.map(|one| one.value.to_string());
        assert_eq!(error.unwrap_or_default(), type_name, "{kind} {reason:?}");
        let has_failed = matches!(span.status, Status::Error { .. });
        assert_eq!(has_failed, !type_name.is_empty(), "{kind} {reason:?}");
    }
}
