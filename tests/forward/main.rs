//! The suite `forward`: `pgjobs forward` carries each row of an outbox (outbox/outbox.sql) to the
//! queue exactly once and in order, whoever is killed, crashes or is restored meanwhile.

mod cells;
mod exact;
mod program;
mod refused;

use std::process::{Output, Stdio};

use jobs_tests::{
    Builder, Client, Cluster, ROOT, comes_true, count, number, pgjobs, poll_until, run, texts,
};
use serde_json::Value;
use tokio::process::{Child, Command};

/// How long a test waits for what is carried over: reconnecting has pauses of ten seconds.
const LONG: std::time::Duration = std::time::Duration::from_secs(120);

/// The database `shop` with an outbox, and the database `queue` with the extension, on a server
/// each.
struct Pair {
    source: Cluster,
    queue: Cluster,
}

impl Pair {
    async fn start() -> Pair {
        let plain = Cluster::builder().without_preload();
        Self::of(plain, Cluster::builder().set("jobs.enabled", "off")).await
    }

    async fn of(source: Builder, queue: Builder) -> Pair {
        let (source, queue) = (source.start(), queue.start());
        source.psql("postgres", "create database shop");
        let outbox = std::fs::read_to_string(format!("{ROOT}/outbox/outbox.sql"));
        source.psql("shop", &outbox.expect("outbox.sql"));
        queue.database("queue").await;
        // Sessions of forwarders are ended, and others come while a server starts.
        source.allow(u32::MAX, "57P0[13] client backend shop: FATAL: ");
        queue.allow(u32::MAX, "57P03 client backend queue: FATAL: ");
        Pair { source, queue }
    }

    async fn outbox(&self) -> Client {
        self.source.connect("shop").await
    }

    async fn jobs(&self) -> Client {
        self.queue.connect("queue").await
    }

    fn from(&self) -> String {
        place(&[&self.source], "shop")
    }

    fn to(&self) -> String {
        place(&[&self.queue], "queue")
    }

    /// Runs until it is dropped or killed.
    fn forward(&self) -> Child {
        spawned(&["--from", &self.from(), "--to", &self.to()])
    }

    /// Runs until the outbox is empty; the exit code, and what it says.
    async fn once(&self) -> (i32, String) {
        said(&["--from", &self.from(), "--to", &self.to(), "--once"]).await
    }

    async fn status(&self) -> (i32, Value) {
        let output = spawned(&["--from", &self.from(), "--status", "--json"]);
        let output = output.wait_with_output().await.unwrap();
        let line = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code().unwrap_or(-1), line)
    }
}

/// A database of these servers as a connection string.
fn place(clusters: &[&Cluster], database: &str) -> String {
    let all = |one: fn(&Cluster) -> String| {
        clusters.iter().map(|cluster| one(cluster)).collect::<Vec<_>>().join(",")
    };
    let hosts = all(|cluster| cluster.directory().display().to_string());
    let ports = all(|cluster| cluster.port().to_string());
    format!(
        "host={hosts} port={ports} user=postgres dbname={database} target_session_attrs=read-write"
    )
}

fn spawned(arguments: &[&str]) -> Child {
    let mut command = Command::new(pgjobs().expect("the program"));
    command.arg("forward").args(arguments).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("pgjobs")
}

/// Runs to the end; the exit code, and what it prints.
async fn said(arguments: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = spawned(arguments).wait_with_output().await.unwrap();
    let text = [stdout, stderr].concat();
    (status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// Sends a signal.
fn signal(child: &Child, name: &str) {
    let pid = child.id().expect("it runs").to_string();
    let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.unwrap().success());
}

/// Inserts these numbers, each as the args of a job, in three queues.
async fn insert(outbox: &Client, from: i64, to: i64) {
    let insert = format!(
        "select jobs.insert('k', to_jsonb(n), queue => 'q' || n % 3) from generate_series({from}, {to}) n"
    );
    run(outbox, &insert).await;
}

/// Waits until the queue has so many different jobs.
async fn arrive(jobs: &Client, wanted: i64) {
    poll_until(&format!("{wanted} jobs arrive"), LONG, async || different(jobs).await >= wanted)
        .await;
}

async fn different(jobs: &Client) -> i64 {
    number(jobs, "select count(distinct args) from jobs.jobs").await
}

/// Every row was inserted once, and in order for each queue, and none is left.
async fn assert_exact(outbox: &Client, jobs: &Client, rows: i64) {
    assert_eq!(count(outbox, "jobs.outbox").await, 0);
    assert_eq!((count(jobs, "jobs.jobs").await, different(jobs).await), (rows, rows));
    assert_eq!(texts(jobs, UNORDERED).await, [""; 0]);
    let open = "jobs.forwarded where deleted_at is null";
    assert_eq!(count(jobs, open).await, 0, "the queue was told of every deletion");
    assert_eq!(count(jobs, "jobs.forwarded").await, rows);
}

/// Jobs that came after one of their queue that was inserted later. Writers insert ascending
/// numbers.
const UNORDERED: &str = "select format('%s in %s', args, queue) from (
    select j.queue, j.args, lag(j.args::bigint) over (partition by j.queue order by j.id) > j.args::bigint as is_late from jobs.jobs j) j where is_late";

/// A queue that forgets at once which keys it has taken: the control.
const FORGETFUL: &str = "
    create function forget() returns trigger language plpgsql as $$ begin delete from jobs.forwarded; return null; end $$;
    create trigger forget after insert on jobs.forwarded for each statement execute function forget()";

/// Has a forwarder stop between its insert at the queue and its delete at the source, as long as
/// a session has this lock.
const STOPS: &str = "
    create function stop() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock_shared(7); return null; end $$;
    create trigger stop before delete on jobs.outbox for each statement execute function stop();
    select pg_advisory_lock(7)";

/// A server does not notice that a client is gone while it waits for a lock.
async fn end_sessions(outbox: &Client) {
    let sessions = "pg_stat_activity where application_name = 'pgjobs forward' and datname = current_database()";
    run(outbox, &format!("select pg_terminate_backend(pid) from {sessions}")).await;
    comes_true(outbox, &format!("not exists (select from {sessions})")).await;
}
