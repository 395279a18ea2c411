//! A process that gets no more memory, at limits all along the way of a transaction and of each
//! task of the background worker: it ends a statement, a round or itself, and never the server.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use jobs_tests::{Client, Cluster, SOON, comes_true, number, run, seconds, sqlstate, text};

use crate::memory::{limit, limit_if_alive, pid_of};

/// Limits are so many bytes apart, up to 14 MB.
const STEP: u64 = 250_000;
const STEPS: RangeInclusive<u64> = 0..=56;

/// A server that must not be started anew. Its shared memory, which counts as a process' own as far
/// as it was touched, is small.
struct Server {
    cluster: Cluster,
    db: Client,
    started: String,
}

const STARTED: &str = "select pg_postmaster_start_time()::text";

impl Server {
    async fn start(settings: &[(&str, &str)]) -> Server {
        let mut builder = Cluster::builder()
            .set("shared_buffers", "16MB")
            .set("autovacuum", "off")
            .allow(u32::MAX, "53200 .*(FATAL|ERROR):  out of memory")
            .allow(u32::MAX, "57P01 jobs.*FATAL:  terminating");
        for (name, value) in settings {
            builder = builder.set(name, value);
        }
        let cluster = builder.start();
        let db = cluster.database("memory").await;
        let started = text(&db, STARTED).await;
        Server { cluster, db, started }
    }

    /// No other session was ended.
    async fn goes_on(&self) {
        assert_eq!(text(&self.db, STARTED).await, self.started);
        let log = self.cluster.log();
        assert!(!log.contains("PANIC"), "{log}");
        assert!(!log.contains("terminated by signal"), "{log}");
    }
}

/// Has the background process of this kind, in this session's database or in none, get no more
/// memory than that; its number.
async fn limit_process(cluster: &Cluster, db: &Client, kind: &str, more: u64) -> i32 {
    let pid = format!("select pid from pg_stat_activity
          where backend_type = 'jobs {kind}' and coalesce(datname, current_database()) = current_database()
          order by backend_start desc limit 1");
    let limited = async || {
        let found = db.query_opt(&pid, &[]).await.unwrap();
        let found = found.map(|row| row.get::<_, i32>(0));
        found.filter(|pid| limit_if_alive(cluster, *pid, more))
    };
    let begun = Instant::now();
    loop {
        // A worker stays for some seconds after that.
        run(db, "select jobs.insert('wakes', queue => 'wakes')").await;
        if let Some(pid) = limited().await {
            return pid;
        }
        assert!(begun.elapsed() < SOON, "there is no {kind}");
        seconds(0.1).await;
    }
}

/// Kinds of one transaction: more than shared memory has room to count, so the rest is written when
/// it ends.
const KINDS: i64 = 5000;

fn insert(queue: &str) -> String {
    format!("select jobs.insert('k' || g, queue => '{queue}') from generate_series(1, {KINDS}) g")
}

/// What becomes of the last of two statements of a transaction, in a session that gets no more
/// memory from then on than that: whether it succeeded. Without memory it fails, or the session
/// ends.
async fn succeeds(cluster: &Cluster, first: &str, last: &str, more: u64) -> bool {
    let db = cluster.connect("memory").await;
    run(&db, first).await;
    limit(cluster, pid_of(&db).await, more);
    let state = sqlstate(db.batch_execute(last).await);
    assert!(["00000", "53200"].contains(&state.as_str()), "{last}: {state}");
    state == "00000"
}

/// How many of the sweep's transactions failed.
async fn sweep(
    server: &Server,
    what: &str,
    first: fn(&str) -> String,
    last: fn(&str) -> String,
) -> usize {
    let mut failed = 0;
    for step in STEPS {
        let queue = format!("{what}-{step}");
        let done = succeeds(&server.cluster, &first(&queue), &last(&queue), step * STEP).await;
        if done && what == "prepare" {
            run(&server.db, &format!("commit prepared '{queue}'")).await;
        }
        let count = format!("select count(*) from jobs.job where queue = '{queue}'");
        let is_kept = done && what != "rollback";
        let wanted = if is_kept { KINDS } else { 0 };
        assert_eq!(number(&server.db, &count).await, wanted, "{queue}");
        failed += usize::from(!done);
    }
    let prepared = "select count(*) from pg_prepared_xacts";
    assert_eq!(number(&server.db, prepared).await, 0);
    server.goes_on().await;
    println!("{what}: {failed} failed");
    failed
}

const WITHOUT_WORKER: &[(&str, &str)] = &[("jobs.enabled", "off")];

#[tokio::test]
async fn a_commit_without_memory_fails_alone() {
    let server = Server::start(WITHOUT_WORKER).await;
    let begin = |queue: &str| format!("begin; {}", insert(queue));
    sweep(&server, "commit", begin, |_| "commit".into()).await;
}

#[tokio::test]
async fn to_prepare_without_memory_fails_alone() {
    let server = Server::start(WITHOUT_WORKER).await;
    let begin = |queue: &str| format!("begin; {}", insert(queue));
    let prepare = |queue: &str| format!("prepare transaction '{queue}'");
    sweep(&server, "prepare", begin, prepare).await;
}

#[tokio::test]
async fn an_insert_without_memory_fails_alone_and_is_rolled_back() {
    let server = Server::start(WITHOUT_WORKER).await;
    let insert = |queue: &str| format!("{}; rollback", insert(queue));
    assert!(sweep(&server, "rollback", |_| "begin".into(), insert).await > 0);
}

/// A commit that finds no memory at all when it writes what it has counted, with these faults.
async fn exhausted(faults: &str) -> (Cluster, String) {
    let cluster = Cluster::builder()
        .faults(faults)
        .set("shared_buffers", "16MB")
        .set("jobs.enabled", "off")
        .start();
    drop(cluster.database("memory").await);
    let db = cluster.connect("memory").await;
    run(&db, &format!("begin; {}", insert("control"))).await;
    limit(&cluster, pid_of(&db).await, 4 << 20);
    let state = sqlstate(db.batch_execute("commit").await);
    (cluster, state)
}

#[tokio::test]
async fn a_commit_without_any_memory_fails_alone() {
    let (cluster, state) = exhausted("exhaust").await;
    cluster.allow(u32::MAX, "53200 .*FATAL:  out of memory");
    assert_eq!(state, "53200");
    assert!(!cluster.log().contains("PANIC"));
}

/// Without the reserve the server ends.
#[tokio::test]
async fn control_a_server_without_the_reserve_is_started_anew() {
    let (cluster, _) = exhausted("exhaust,no_reserve").await;
    cluster.allow(u32::MAX, "client backend memory: PANIC: |terminated by signal 6");
    cluster.allow(u32::MAX, "XX000 client backend|57P0[23] .*FATAL: ");
    assert!(cluster.log().contains("client backend memory: PANIC: "));
}

/// Databases whose workers are tried at once.
const DATABASES: u64 = 4;
const LEASES: i64 = 10_000;
/// For so long a worker tries at most.
const TRIES: Duration = Duration::from_secs(3);

/// A worker that gets no more memory than that has leases to end and jobs to delete; whether it
/// does not get to the end. The next worker does it.
async fn fails(server: &Server, db: &Client, more: u64) -> bool {
    let left = "select count(*) from jobs.job where queue = 'q'";
    let worker = limit_process(&server.cluster, db, "worker", more).await;
    run(db, &format!("select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{LEASES}]), queue => 'q', max_attempts => 1);
             select count(*) from jobs.fetch('q', {LEASES}, lease => '1 ms')")).await;
    let runs = format!("select count(*) from pg_stat_activity where pid = {worker}");
    // What it cannot do it tries again and again, and perhaps has no memory to write that down.
    let tries = async {
        while number(db, &runs).await == 1 && number(db, left).await > 0 {
            seconds(0.05).await;
        }
    };
    let _ = tokio::time::timeout(TRIES, tries).await;
    let failed = number(db, left).await > 0;
    run(db, &format!("select pg_terminate_backend({worker})")).await;
    comes_true(db, "count(*) = 0 from jobs.job where queue = 'q'").await;
    failed
}

#[tokio::test]
async fn a_worker_without_memory_ends_alone() {
    let server = Server::start(&[
        ("jobs.interval", "10ms"),
        ("jobs.retention_discarded", "0"),
        ("max_worker_processes", "16"),
    ])
    .await;
    let sweep = async |database: u64| {
        let db = server.cluster.database(&format!("memory{database}")).await;
        let mut failed = 0;
        for step in STEPS.filter(|step| step % DATABASES == database) {
            failed += u32::from(fails(&server, &db, step * STEP).await);
        }
        failed
    };
    let failed = tokio::join!(sweep(0), sweep(1), sweep(2), sweep(3));
    println!("worker: {failed:?} failed");
    assert!(failed.0 > 0, "{failed:?}");
    server.goes_on().await;
}

/// The launcher is started again where it ends, and then starts workers as before.
#[tokio::test]
async fn a_launcher_without_memory_ends_alone() {
    let server = Server::start(&[("jobs.interval", "10ms")]).await;
    let db = &server.db;
    for step in STEPS {
        limit_process(&server.cluster, db, "launcher", step * STEP).await;
        run(db, "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'jobs worker';
             select jobs.insert('due', queue => 'due', scheduled_at => clock_timestamp() + '10 ms')").await;
        comes_true(db, "count(*) = 0 from jobs.scheduled").await;
    }
    server.goes_on().await;
}
