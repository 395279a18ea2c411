//! A worker without one of its parts, and one that is dropped, in the database at DATABASE_URL,
//! which has the extension. Without one there is nothing to see.

use std::io::{Result, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use postgres_jobs::{Error, Job, NewJob, Options, Reason, Worker, connect, insert_many};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// A log that panics once: in the task that beats, when that hears that a job is lost.
struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> Result<usize> {
        let is_heard = String::from_utf8_lossy(line).contains("job lost");
        if is_heard && !HAS_PANICKED.swap(true, SeqCst) {
            panic!("the log is full");
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_worker_that_cannot_beat_ends_and_releases_its_jobs() {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        return;
    };
    tracing_subscriber::fmt().with_writer(|| Log).init();
    let client = connect(&url.parse().unwrap()).await.unwrap();
    let queue = format!("panic {}", std::process::id());
    let job = || NewJob { queue: Some(queue.clone()), ..NewJob::new("k", ()).unwrap() };
    let ids = insert_many(&client, vec![job(), job()]).await.unwrap();
    let ids: Vec<i64> = ids.iter().map(|inserted| inserted.id.unwrap()).collect();
    let (starts, mut started) = mpsc::unbounded_channel();
    let (ends, mut ended) = mpsc::unbounded_channel();
    let options = Options {
        queues: vec![queue.as_str().into()],
        lease: Duration::from_secs(9),
        ..Options::default()
    };
    let worker = Worker::new(url.parse().unwrap(), options).unwrap();
    let worker = worker.kind("k", move |job: Job<Value>| {
        let (starts, ends) = (starts.clone(), ends.clone());
        async move {
            starts.send(job.id).unwrap();
            job.cancellation().cancelled().await;
            ends.send(job.cancelled_because()).unwrap();
            Err::<(), _>(Error::new("cancelled"))
        }
    });
    let running = worker.start().unwrap();
    for _ in &ids {
        started.recv().await.unwrap();
    }
    let cancel = "select jobs.cancel($1, force => true)";
    client.execute(cancel, &[&ids[0]]).await.unwrap();
    let ended_by_itself = timeout(Duration::from_secs(60), running.wait()).await;
    let why = ended_by_itself.unwrap().unwrap_err();
    assert!(HAS_PANICKED.load(SeqCst));
    assert!(why.to_string().contains("the log is full"), "{why}");
    for why in [Reason::Lost, Reason::Stopping] {
        assert_eq!(ended.recv().await, Some(Some(why)));
    }
    let states = "
        select array_agg(state::text || attempt order by id) from jobs.jobs where id = any($1)";
    let states = client.query_one(states, &[&ids]).await.unwrap();
    let states: Vec<String> = states.get(0);
    assert_eq!(states, ["cancelled1", "available0"]);
}

#[tokio::test]
async fn a_run_that_is_dropped_releases_its_jobs() {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        return;
    };
    let client = connect(&url.parse().unwrap()).await.unwrap();
    let queue = format!("dropped {}", std::process::id());
    let job = NewJob { queue: Some(queue.clone()), ..NewJob::new("k", ()).unwrap() };
    let id = insert_many(&client, vec![job]).await.unwrap()[0].id.unwrap();
    let (starts, mut started) = mpsc::unbounded_channel();
    let options = Options { lease: Duration::from_secs(600), ..Options::queues([&*queue]) };
    let worker = Worker::new(url.parse().unwrap(), options).unwrap();
    let worker = worker.kind("k", move |job: Job<Value>| {
        starts.send(job.attempt).unwrap();
        std::future::pending::<std::result::Result<(), Error>>()
    });
    tokio::select! {
        ended = worker.run() => panic!("{ended:?}"),
        attempt = started.recv() => assert_eq!(attempt, Some(1)),
    }
    let is_released = "
        select exists (select from jobs.jobs where id = $1 and state = 'available' and attempt = 0)";
    let released = async {
        while !client.query_one(is_released, &[&id]).await.unwrap().get::<_, bool>(0) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), released).await.unwrap();
}
