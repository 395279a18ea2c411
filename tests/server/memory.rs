//! What a session takes for many jobs at once, and what happens when there is no more memory to be
//! had.

use std::fs;

use jobs_tests::{Client, Cluster, number, run, sqlstate};

/// Jobs at once.
const MANY: usize = 100_000;

/// A server whose shared memory, which counts as a session's as far as it was touched, is small.
fn server() -> Cluster {
    Cluster::builder()
        .set("shared_buffers", "16MB")
        .set("jobs.enabled", "off")
        .set("autovacuum", "off")
        .start()
}

pub async fn pid_of(db: &Client) -> i32 {
    let pid = db.query_one("select pg_backend_pid()", &[]).await;
    pid.unwrap().get(0)
}

/// A line of what Linux says of a process, in bytes.
pub fn memory_of(pid: i32, what: &str) -> u64 {
    memory_if_alive(pid, what).expect("the process is alive")
}

fn memory_if_alive(pid: i32, what: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // One that has ended has none, as long as the server has not taken notice.
    let line = status.lines().find(|line| line.starts_with(what))?;
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    Some(kilobytes.parse::<u64>().unwrap() * 1024)
}

/// Bytes an element by which a session's memory has grown at most while it ran a statement, of
/// which it had run a small one before.
async fn growth(cluster: &Cluster, statement: impl Fn(usize) -> String) -> u64 {
    let db = cluster.connect("memory").await;
    let pid = pid_of(&db).await;
    run(&db, &statement(100)).await;
    let before = memory_of(pid, "VmHWM");
    run(&db, &statement(MANY)).await;
    let grown = memory_of(pid, "VmHWM") - before;
    let left = memory_of(pid, "RssAnon");
    println!("{} bytes, {left} left: {}", grown / MANY as u64, statement(1));
    grown / MANY as u64
}

/// The least that sessions grow by, of three at most: one that grows by less than `enough` will do.
/// Now and then malloc keeps more, or a session touches shared memory that no session has touched
/// yet.
async fn least_growth(
    cluster: &Cluster,
    statement: impl Fn(usize) -> String + Copy,
    enough: u64,
) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..3 {
        least = least.min(growth(cluster, statement).await);
        if least < enough {
            break;
        }
    }
    least
}

const UNIQUE: &str = r#"{"by_args": true}"#;

/// Elements of `insert_many`, from this number on.
fn elements(first: usize, count: usize, options: &str) -> String {
    let numbers = first..first + count;
    let elements = numbers.map(|n| format!(r#"{{"kind": "m", "args": {n}{options}}}"#));
    elements.collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn many_jobs_take_little_more_than_it_takes_to_read_them() {
    let cluster = server();
    drop(cluster.database("memory").await);
    for options in ["", &format!(r#", "unique_opts": {UNIQUE}"#)] {
        let read = |count| {
            let elements = elements(0, count, options);
            format!("select jsonb_array_length('[{elements}]')")
        };
        let to_read = growth(&cluster, read).await;
        let insert = |count| {
            let elements = elements(0, count, options);
            format!("select count(*) from jobs.insert_many('[{elements}]')")
        };
        for what in ["new", "once more"] {
            let grown = growth(&cluster, insert).await;
            assert!(grown < to_read + 600, "{what}, {options:?}: {grown}, {to_read} to read it");
        }
    }
}

#[tokio::test]
async fn a_batch_takes_700_bytes_a_job_at_most() {
    let cluster = server();
    drop(cluster.database("memory").await);
    for options in ["null", &format!("'{UNIQUE}'")] {
        let insert = |count| {
            format!(
                "select count(*) from jobs.insert_batch('b', array(select to_jsonb(n) from generate_series(1, {count}) n), {options})"
            )
        };
        for what in ["new", "once more"] {
            let grown = growth(&cluster, insert).await;
            assert!(grown < 700, "{what}, {options}: {grown}");
        }
    }
}

/// Of each the transaction keeps what it counts, and shared memory has no room for so many.
#[tokio::test]
async fn a_queue_and_kind_take_300_bytes_at_most_until_the_commit() {
    let cluster = server();
    drop(cluster.database("memory").await);
    let insert = |of: &'static str| {
        move |count| {
            format!(
                "begin; select count(jobs.insert({of})) from generate_series(1, {count}) n; commit"
            )
        }
    };
    let one = least_growth(&cluster, insert("'kind'"), 1).await;
    for of in ["'kind' || n", "'kind', queue => 'queue' || n"] {
        let grown = least_growth(&cluster, insert(of), one + 300).await;
        assert!(grown < one + 300, "{of}: {grown}, and {one} of one kind");
    }
}

/// What a job has none of is one `{}` for all of them.
#[tokio::test]
async fn an_empty_meta_takes_no_memory_of_its_own() {
    let cluster = server();
    drop(cluster.database("memory").await);
    let insert = |meta: &'static str| {
        move |count| {
            format!(
                "select count(*) from jobs.insert_batch('b', array_fill('1'::jsonb, array[{count}]){meta})"
            )
        }
    };
    // The shared buffers that a session touches count, too, and are more as the table grows.
    let mut with_none = 0;
    for _ in 0..4 {
        with_none = with_none.max(growth(&cluster, insert("")).await);
    }
    let most = with_none + 16;
    let with_empty = least_growth(&cluster, insert(", meta => '{}'"), most).await;
    assert!(with_empty < most, "{with_empty}, {with_none}");
    let args = |count| {
        let args = vec![r#"{"kind": "b"}"#; count].join(", ");
        format!("select count(*) from jobs.insert_many('[{args}]')")
    };
    let read = |count| {
        let args = vec![r#"{"kind": "b"}"#; count].join(", ");
        format!("select jsonb_array_length('[{args}]')")
    };
    let to_read = growth(&cluster, read).await;
    let most = to_read + with_none + 16;
    let to_insert = least_growth(&cluster, args, most).await;
    assert!(to_insert < most, "{to_insert}, {to_read} to read it, {with_none} of a batch");
}

#[tokio::test]
async fn what_a_batch_took_is_given_back() {
    let cluster = server();
    let db = cluster.database("memory").await;
    let pid = pid_of(&db).await;
    const MANY: usize = 20_000;
    let insert = format!("begin;
         select count(*) from jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'b', 'args', n, 'unique_opts', '{UNIQUE}'::jsonb)) from generate_series(1, {MANY}) n));
         select count(*) from jobs.insert_batch('b', array(select to_jsonb(n) from generate_series(1, {MANY}) n), '{UNIQUE}');
         rollback; begin;
         select count(*) from jobs.insert_batch('b', array(select to_jsonb(n) from generate_series(1, {MANY}) n), '{UNIQUE}');
         rollback");
    let contexts = "select sum(total_bytes)::bigint from pg_backend_memory_contexts";
    let (mut of_server, mut of_process) = (Vec::new(), Vec::new());
    for _ in 0..21 {
        run(&db, &insert).await;
        of_server.push(number(&db, contexts).await);
        of_process.push(memory_of(pid, "RssAnon"));
    }
    println!("{of_process:?}");
    // Of more than a million jobs since, not one byte each.
    let [first, .., last] = of_server[..] else {
        unreachable!("it has 21");
    };
    assert!(last < first + (1 << 20), "{of_server:?}");
    // Not six bytes each of what malloc has: that keeps some megabytes for a while at times.
    let first = of_process[..3].iter().max().unwrap();
    let last = of_process[18..].iter().min().unwrap();
    assert!(*last < first + (6 << 20), "{of_process:?}");
}

/// A process gets no more memory from now on than so much.
///
/// That stands for a machine on which there is no more to be had (`vm.overcommit_memory = 2`): in
/// both cases mmap and brk fail with ENOMEM, so malloc returns null, and nothing here can tell why.
pub fn limit(cluster: &Cluster, pid: i32, more: u64) {
    assert!(limit_if_alive(cluster, pid, more), "prlimit");
}

/// Limits a process that may have ended; whether it had not.
pub fn limit_if_alive(cluster: &Cluster, pid: i32, more: u64) -> bool {
    let Some(size) = memory_if_alive(pid, "VmSize") else {
        return false;
    };
    // As the user whose process it is.
    let mut prlimit = cluster.bin("/usr/bin/prlimit");
    prlimit.args(["--pid", &pid.to_string(), &format!("--as={}:", size + more)]);
    prlimit.status().unwrap().success()
}

/// A server on which memory may run out, and a session that must not notice.
pub struct Watched {
    pub cluster: Cluster,
    other: Client,
    before: (i32, String, u32),
}

impl Watched {
    async fn new() -> Watched {
        let cluster = server();
        cluster.allow(u32::MAX, "53200 client backend.*FATAL:  out of memory");
        let other = cluster.database("memory").await;
        run(&other, "begin; select jobs.insert('kept')").await;
        let before = Watched::seen(&cluster, &other).await;
        Watched { cluster, other, before }
    }

    async fn seen(cluster: &Cluster, other: &Client) -> (i32, String, u32) {
        let started = other.query_one("select pg_postmaster_start_time()::text", &[]);
        let started = started.await.unwrap().get(0);
        (pid_of(other).await, started, cluster.postmaster())
    }

    /// What becomes of a statement in a session that gets no more memory than that: a SQLSTATE, and
    /// whether the session has outlived it.
    async fn becomes(&self, before: &str, statement: &str, more: u64) -> (String, bool) {
        let db = self.cluster.connect("memory").await;
        run(&db, "select jobs.unique_key('k', unique_opts => '{\"by_kind\": true}')").await;
        run(&db, before).await;
        limit(&self.cluster, pid_of(&db).await, more);
        let state = sqlstate(db.batch_execute(statement).await);
        let lives = db.batch_execute("rollback").await.is_ok();
        (state, lives)
    }

    async fn nothing_happened(self) {
        let after = Watched::seen(&self.cluster, &self.other).await;
        assert_eq!(after, self.before);
        run(&self.other, "commit").await;
        assert_eq!(number(&self.other, "select count(*) from jobs.jobs").await, 1);
        assert!(!self.cluster.log().contains("terminated by signal"));
    }
}

#[tokio::test]
async fn a_session_without_memory_fails_wherever_it_is_and_nobody_notices() {
    let watched = Watched::new().await;
    run(
        &watched.cluster.connect("memory").await,
        "create table given as select n, to_jsonb(n) as args from generate_series(1, 30000) n;
         create table document as select jsonb_agg(jsonb_build_object('kind', 'm', 'args', args)) as jobs from given;
         create table documents as select array_agg(args) as args from given",
    )
    .await;
    let statements = [
        "select count(*) from jobs.insert_many((select jobs from document))",
        "select count(*) from jobs.insert_batch('b', (select args from documents), '{\"by_args\": true}')",
        "select count(*) from jobs.insert_batch('b', (select args from documents), '{\"by_args\": true, \"wait\": false}')",
    ];
    let claims = "begin; select jobs.insert('b', '1', '{\"by_args\": true}'); select jobs.insert('b', '30000', '{\"by_args\": true}')";
    let mut failed = 0;
    for statement in statements {
        for step in 0..24 {
            let (state, lives) = watched.becomes(claims, statement, step * (1 << 19)).await;
            println!("{step}: {state}, {lives}: {statement}");
            assert!(["00000", "53200"].contains(&state.as_str()), "{state}");
            failed += u32::from(state == "53200");
        }
    }
    assert!(failed >= 30, "{failed}");
    watched.nothing_happened().await;
}

/// Functions that copy little of what they are given may want memory all the same.
#[tokio::test]
async fn any_function_without_memory_fails_and_nobody_notices() {
    let watched = Watched::new().await;
    run(
        &watched.cluster.connect("memory").await,
        "create table large as select jsonb_build_object('a', repeat('x', 2000000)) as v;
         select count(jobs.insert('k', queue => 'q')) from generate_series(1, 2000)",
    )
    .await;
    let mut failed = 0;
    for statement in [
        "select jobs.update(2, args => (select v from large))",
        "select jobs.snooze(id, token, '1 s') from jobs.fetch('q', 1000)",
        "select jobs.cancel_many(queue => 'q')",
        "select jobs.retry_many(queue => 'q', states => '{scheduled, cancelled}')",
        "select count(*) from jobs.metrics()",
        "select count(*) from jobs.health()",
        "select jobs.schedule('s', 'every 1 hour', 'k', (select v from large))",
    ] {
        for step in 0..8 {
            let (state, lives) = watched.becomes("begin", statement, step << 18).await;
            println!("{step}: {state}, {lives}: {statement}");
            assert!(["00000", "53200"].contains(&state.as_str()), "{state}");
            failed += u32::from(state == "53200");
        }
    }
    assert!(failed >= 10, "{failed}");
    run(&watched.cluster.connect("memory").await, "select jobs.delete_many(queue => 'q')").await;
    watched.nothing_happened().await;
}

/// What a fetch copies is as large as the args that were inserted.
#[tokio::test]
async fn a_fetch_of_large_args_without_memory_fails_and_nobody_notices() {
    let watched = Watched::new().await;
    run(
        &watched.cluster.connect("memory").await,
        "select count(*) from jobs.insert_batch('b', array(
           select to_jsonb((select string_agg(md5(n::text || m), '') from generate_series(1, 58) m)) from generate_series(1, 10000) n), queue => 'large')",
    )
    .await;
    let fetch = "select count(args) from jobs.fetch('large', 10000)";
    let mut failed = 0;
    for step in 0..16 {
        let (state, lives) = watched.becomes("begin", fetch, step << 20).await;
        println!("{step}: {state}, {lives}");
        assert!(["00000", "53200"].contains(&state.as_str()), "{state}");
        failed += u32::from(state == "53200");
    }
    assert!(failed >= 1, "{failed}");
    run(&watched.cluster.connect("memory").await, "select jobs.delete_many(queue => 'large')")
        .await;
    watched.nothing_happened().await;
}

/// What Rust code asks for in the middle of something ends the session, and only that.
#[tokio::test]
async fn a_session_whose_rust_code_gets_no_memory_ends_alone() {
    let watched = Watched::new().await;
    let key = "select jobs.unique_key('k', (select v from large), '{\"by_args\": true}')";
    run(
        &watched.cluster.connect("memory").await,
        "create table large as select to_jsonb(repeat('x', 60000000)) as v",
    )
    .await;
    assert_eq!(watched.becomes("begin", key, 1 << 30).await, ("00000".into(), true));
    assert_eq!(watched.becomes("begin", key, 100 << 20).await, ("53200".into(), false));
    watched.nothing_happened().await;
}
