//! What the conformance suite cannot see. It needs no database.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::error::Ending;
use crate::handler::Handler;
use crate::job::{Attempt, JobInfo};
use crate::*;

/// Answers every insert, and keeps what it was asked.
struct Database(Arc<Mutex<Vec<Value>>>);

impl Executor for Database {
    async fn rows(&mut self, _: &'static str, asked: &[&str]) -> Result<Vec<String>, ClientError> {
        self.0
            .lock()
            .unwrap()
            .push(serde_json::from_str(asked[0]).unwrap());
        let inserted = r#"{"id": 7, "state": "available", "unique_skipped_as_duplicate": false}"#;
        Ok(vec![inserted.into()])
    }
}

async fn inserted_by(producer: &Producer, job: NewJob) -> Value {
    let asked = Arc::default();
    producer
        .insert(Database(Arc::clone(&asked)), job)
        .await
        .unwrap();
    asked.lock().unwrap()[0][0].take()
}

fn attempt(number: i32, args: Value, meta: Value) -> Arc<Attempt> {
    let job: JobInfo = serde_json::from_value(json!({
        "id": 7, "token": 8, "kind": "k", "queue": "q", "args": args, "meta": meta, "tags": [],
        "priority": 1, "attempt": number, "max_attempts": 25, "created_at": 0.5,
        "scheduled_at": 0, "attempted_at": 1, "left": null,
    }))
    .unwrap();
    Attempt::new(job, None, mpsc::unbounded_channel().0)
}

/// What is sent of an error, without the stack that RUST_BACKTRACE puts before the causes.
fn ending(error: impl Into<Error>) -> Value {
    let mut ending = serde_json::to_value(Ending::from(error.into())).unwrap();
    if let Some(details) = ending.get_mut("details").and_then(Value::as_object_mut)
        && let Some(trace) = details.remove("trace")
        && let Some((_, causes)) = trace.as_str().unwrap().split_once("caused by: ")
    {
        details.insert("trace".into(), causes.into());
    }
    ending
}

#[tokio::test]
async fn every_option_is_written() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(86_400_000_000 + 3_661_000_001);
    let job = NewJob::new("k", [1])
        .queue("q")
        .priority(2)
        .scheduled_at(at)
        .max_attempts(3)
        .tags(["t"])
        .meta("m", 1)
        .timeout(None)
        .retry("oban")
        .pending()
        .unique_opts(Unique {
            by_args: Some(By::ALL),
            ..Unique::default()
        });
    let written = json!({
        "kind": "k", "args": [1], "queue": "q", "priority": 2, "max_attempts": 3, "tags": ["t"],
        "scheduled_at": "J2440589 01:01:01.000001+00", "meta": { "m": 1 }, "timeout": -1.0,
        "retry": "oban", "pending": true, "unique_opts": { "by_args": true },
    });
    assert_eq!(inserted_by(&Producer::new(), job).await, written);
}

#[tokio::test]
async fn args_without_json_are_refused() {
    let job = NewJob::new("k", std::collections::HashMap::from([(vec![1], 1)]));
    let refused = insert(Database(Arc::default()), job).await.unwrap_err();
    assert!(
        refused.to_string().contains("key must be a string"),
        "{refused}"
    );
}

#[test]
fn an_error_keeps_its_type_and_causes() {
    let error = std::io::Error::other("no such picture");
    let failed = ending(ClientError::from(error));
    assert_eq!(failed["error"], "no such picture");
    assert_eq!(failed["retryable"], true);
    assert_eq!(
        failed["details"]["type"],
        "postgres_jobs::error::ClientError"
    );
    assert_eq!(failed["details"]["trace"], "no such picture\n");
}

#[test]
fn endings_are_written() {
    let second = Duration::from_secs(1);
    assert_eq!(
        ending(snooze(second)),
        json!({ "do": "snooze", "delay": 1.0 })
    );
    assert_eq!(
        ending(cancel("a\0")),
        json!({ "do": "cancel", "reason": "a\u{fffd}" })
    );
    let failed =
        json!({ "do": "fail", "error": "e", "details": { "type": "t" }, "retryable": false });
    assert_eq!(ending(discard("e").typed("t")), failed);
    assert_eq!(ending(retry_in(second, "e"))["retry_in"], 1.0);
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
        "on_conflict": { "update": { "*": ["priority"] } }, "wait": false,
    });
    let unique: Unique = serde_json::from_value(options.clone()).unwrap();
    assert_eq!(serde_json::to_value(&unique).unwrap(), options);
    assert!(serde_json::from_value::<Unique>(json!({ "by_arg": true })).is_err());
}

#[tokio::test]
async fn args_of_another_type_fail_the_attempt() {
    let handler = Handler::new(async |job: Job<u8>| Ok::<_, Error>(job.args));
    let fits = handler
        .start(attempt(1, json!(7), json!({})), &[])
        .await
        .unwrap();
    assert_eq!(fits.get(), "7");
    let refused = ending(
        handler
            .start(attempt(1, json!(-7), json!({})), &[])
            .await
            .unwrap_err(),
    );
    assert_eq!(refused["details"]["type"], "invalid_args");
}

struct Named(&'static str, Arc<Mutex<Vec<String>>>);

impl Middleware for Named {
    fn insert(&self, _: &mut NewJob) -> Option<AfterInsert> {
        self.say("before");
        let (name, said) = (self.0, self.1.clone());
        Some(Box::new(move |inserted| {
            said.lock()
                .unwrap()
                .push(format!("{name} after {:?}", inserted.id))
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
    let producer = Producer::new()
        .middleware(Named("a", said.clone()))
        .middleware(Named("b", said.clone()));
    inserted_by(&producer, NewJob::new("k", 1)).await;
    let order = ["a before", "b before", "b after Some(7)", "a after Some(7)"];
    assert_eq!(std::mem::take(&mut *said.lock().unwrap()), order);
}

#[cfg(feature = "opentelemetry")]
#[tokio::test]
async fn spans_belong_together() {
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};

    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    opentelemetry::global::set_tracer_provider(provider);
    let job = inserted_by(
        &Producer::new().middleware(OpenTelemetry),
        NewJob::new("k", 1),
    )
    .await;
    let handler = Handler::new(async |_: Job<Value>| Err::<(), _>(Error::new("no").typed("t")));
    let middleware: [Arc<dyn Middleware>; 1] = [Arc::new(OpenTelemetry)];
    for number in [1, 2] {
        let attempt = attempt(number, json!({}), job["meta"].clone());
        handler.start(attempt, &middleware).await.unwrap_err();
    }
    let [sent, first, second] = &exporter.get_finished_spans().unwrap()[..] else {
        panic!("three spans")
    };
    assert_eq!((&*sent.name, &*first.name), ("insert default", "work q"));
    assert_eq!(first.span_context.trace_id(), sent.span_context.trace_id());
    assert_eq!(first.parent_span_id, sent.span_context.span_id());
    assert_ne!(second.span_context.trace_id(), sent.span_context.trace_id());
    assert_eq!(
        second.links.links[0].span_context.span_id(),
        sent.span_context.span_id()
    );
    assert!(
        first
            .attributes
            .iter()
            .any(|one| one.key.as_str() == "error.type" && one.value.as_str() == "t")
    );
}
