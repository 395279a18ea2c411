//! `CALL jobs.wait`: it returns when there is a job, soon, and meanwhile it is in nobody's way.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jobs_tests::{
    Builder, Client, Cluster, LEVELS, Mode, SOON, comes_true, count, number, poll_until, quiet,
    rng, rows_of, run, scalar, seconds, sqlstate, text, with,
};
use rand::Rng;
use tokio::task::JoinHandle;
use tokio_postgres::{Error, NoTls};

/// A server on which sessions that wait do not look by themselves: what returns was woken, or the
/// next job of the queue was due.
pub fn without_looks() -> Builder {
    Cluster::builder().faults("no_looks")
}

/// A server on which only commits can wake: there are no looks and no background worker.
pub fn only_commits() -> Cluster {
    without_looks().set("jobs.enabled", "off").start()
}

/// A session that waits, until it is told to have returned.
pub struct Waiter {
    pub pid: i32,
    task: JoinHandle<(Result<u64, Error>, Instant, Client)>,
}

impl Waiter {
    /// Calls, and returns when the session sleeps.
    pub async fn start(db: &Client, client: Client, call: &str) -> Waiter {
        let pid: i32 = scalar(&client, "select pg_backend_pid()").await;
        let call = call.to_string();
        let waiter = Waiter {
            pid,
            task: tokio::spawn(async move {
                let outcome = client.execute(&call, &[]).await;
                (outcome, Instant::now(), client)
            }),
        };
        poll_until("it sleeps", SOON, async || waiter.sleeps(db).await).await;
        waiter
    }

    pub async fn sleeps(&self, db: &Client) -> bool {
        db.query_one(
            "select exists (select from pg_stat_activity where pid = $1 and state = 'active' and wait_event_type = 'Extension')",
            &[&self.pid],
        )
        .await
        .unwrap()
        .get(0)
    }

    /// How long after `begun` it returned.
    pub async fn returned(self, begun: Instant) -> (Duration, Client) {
        let (outcome, at, client) = self.ended().await;
        outcome.unwrap();
        (at.saturating_duration_since(begun), client)
    }

    async fn failed(self) -> String {
        sqlstate(self.ended().await.0)
    }

    async fn ended(self) -> (Result<u64, Error>, Instant, Client) {
        let ended = tokio::time::timeout(SOON, self.task).await;
        ended.expect("it ends").unwrap()
    }
}

/// How long a session that waits takes to return after a statement made a job available.
pub async fn woken_by(db: &Client, client: Client, queue: &str, sql: &str) -> (Duration, Client) {
    let waiter = Waiter::start(db, client, &format!("call jobs.wait('{queue}', '1 h')")).await;
    let begun = Instant::now();
    run(db, sql).await;
    waiter.returned(begun).await
}

/// How long a statement takes that is to return.
pub async fn timed(db: &Client, sql: &str) -> Duration {
    let begun = Instant::now();
    let ran = tokio::time::timeout(SOON, run(db, sql)).await;
    ran.unwrap_or_else(|_| panic!("it does not return: {sql}"));
    begun.elapsed()
}

#[tokio::test]
async fn returns_at_the_commit() {
    let cluster = only_commits();
    let db = cluster.database("latency").await;
    let mut client = cluster.connect("latency").await;
    let mut latencies = Vec::new();
    for _ in 0..50 {
        let latency;
        (latency, client) =
            woken_by(&db, client, "q", "select jobs.insert('k', queue => 'q')").await;
        latencies.push(latency);
        assert_eq!(count(&client, "jobs.fetch('q')").await, 1);
    }
    latencies.sort();
    println!("median {:?}, longest {:?}", latencies[25], latencies[49]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_commit_is_missed_whenever_it_comes() {
    let cluster = only_commits();
    drop(cluster.database("races").await);
    let mut rng = rng();
    let mut pairs = Vec::new();
    for pair in 0..6 {
        let producer = cluster.connect("races").await;
        let consumer = cluster.connect("races").await;
        let delays: Vec<(u64, u64)> =
            (0..400).map(|_| (rng.random_range(0..1500), rng.random_range(0..1500))).collect();
        pairs.push(tokio::spawn(async move {
            let insert = format!("select jobs.insert('k', queue => 'q{pair}')");
            let wait = format!("call jobs.wait('q{pair}', '1 h')");
            let fetch = format!("select count(*) from jobs.fetch('q{pair}')");
            let mut longest = Duration::ZERO;
            for (before_insert, before_wait) in delays {
                let produce = async {
                    // Its commit is anywhere from before the call to within its sleep.
                    spin(Duration::from_micros(before_insert)).await;
                    run(&producer, &insert).await;
                    Instant::now()
                };
                let consume = async {
                    spin(Duration::from_micros(before_wait)).await;
                    loop {
                        timed(&consumer, &wait).await;
                        if number(&consumer, &fetch).await == 1 {
                            return Instant::now();
                        }
                    }
                };
                let (committed, fetched) = tokio::join!(produce, consume);
                let took = fetched.saturating_duration_since(committed);
                longest = longest.max(took);
            }
            longest
        }));
    }
    for pair in pairs {
        let longest = pair.await.unwrap();
        println!("longest {longest:?}");
    }
}

/// Sleeps for less than a millisecond, too.
async fn spin(delay: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < delay {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_producers_and_workers_of_one_queue_lose_nothing() {
    let cluster = only_commits();
    let db = cluster.database("crowd").await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for _ in 0..8 {
        let (client, is_over) = (cluster.connect("crowd").await, is_over.clone());
        workers.push(tokio::spawn(async move {
            let mut done = 0;
            loop {
                let sql = "select count(jobs.complete(id, token)) from jobs.fetch(max_jobs => 3)";
                let fetched = number(&client, sql).await;
                done += fetched;
                if is_over.load(Ordering::SeqCst) {
                    return done;
                } else if fetched == 0 {
                    run(&client, "call jobs.wait(timeout => '1 h')").await;
                }
            }
        }));
    }
    let mut producers = Vec::new();
    for _ in 0..6 {
        let client = cluster.connect("crowd").await;
        producers.push(tokio::spawn(async move {
            for _ in 0..250 {
                run(&client, "select jobs.insert('k')").await;
            }
        }));
    }
    for producer in producers {
        producer.await.unwrap();
    }
    comes_true(&db, "count(*) = 1500 from jobs.finished").await;
    is_over.store(true, Ordering::SeqCst);
    let mut done = 0;
    for worker in workers {
        // Whoever sleeps is woken to see it.
        poll_until("it ends", SOON, async || {
            run(&db, "select jobs.insert('last')").await;
            worker.is_finished()
        })
        .await;
        done += worker.await.unwrap();
    }
    assert!(done >= 1500, "{done}");
}

#[tokio::test]
async fn whatever_makes_a_job_available_wakes() {
    let cluster = only_commits();
    let db = cluster.database("ways").await;
    let mut client = cluster.connect("ways").await;
    let running = "select jobs.insert('k', queue => 'q'); select jobs.fetch('q')";
    let finish = |call: &str| format!("select {call} from jobs.jobs where state = 'running'");
    let full = "select jobs.configure_queue('q', concurrency => 1); select jobs.insert_batch('k', '{1,2}', queue => 'q'); select jobs.fetch('q')";
    let latest = |call: &str| format!("select {call} from (select max(id) as id from jobs.job) j");
    let unique = |policy: &str| {
        format!(
            "select jobs.insert('u', queue => 'q', unique_opts => '{{\"by_kind\": true, {policy}}}')"
        )
    };
    for (before, statement) in [
        ("", "select jobs.insert('k', queue => 'q')".into()),
        ("", "select jobs.insert_batch('k', '{1,2}', queue => 'q')".into()),
        ("", r#"select jobs.insert_many('[{"kind": "k", "queue": "other"}, {"kind": "k", "queue": "q"}]')"#.into()),
        ("", "begin; select jobs.insert('k', queue => 'q'); savepoint s; select jobs.insert('k'); rollback to s; commit".into()),
        ("", "select jobs.insert('k', queue => 'q', scheduled_at => clock_timestamp() + '100 ms')".into()),
        (running, finish("jobs.release(id, token)")),
        (running, finish("jobs.fail(id, token, 'x', '0')")),
        (running, finish("jobs.fail_many(array[id], array[token], '{x}', retry_in => '100 ms')")),
        (running, finish(r#"jobs.finish_many(jsonb_build_array('{"do": "release"}' || jsonb_build_object('id', id, 'token', token)))"#)),
        (full, finish(r#"jobs.finish_many(jsonb_build_array('{"do": "fail", "error": "x"}' || jsonb_build_object('id', id, 'token', token)))"#)),
        (running, finish("jobs.fail(id, token, 'x', '100 ms')")),
        (running, finish("jobs.snooze(id, token, '100 ms')")),
        (running, format!("{}; {}", finish("jobs.complete(id, token)"), latest("jobs.retry(id)"))),
        (full, finish("jobs.complete(id, token)")),
        (full, finish("jobs.complete_many(array[id], array[token])")),
        (full, finish("jobs.cancel(id, force => true)")),
        (full, "select jobs.configure_queue('q', concurrency => 2)".into()),
        ("select jobs.pause_queue('q'); select jobs.insert('k', queue => 'q')", "select jobs.resume_queue('q')".into()),
        ("select jobs.insert('k', queue => 'q', pending => true)", latest("jobs.activate(id)")),
        ("select jobs.insert('k', queue => 'q', scheduled_at => clock_timestamp() + '1 h')", latest("jobs.retry(id)")),
        ("select jobs.insert('k', queue => 'q', scheduled_at => clock_timestamp() + '1 h')", latest("jobs.update(id, scheduled_at => clock_timestamp())")),
        ("select jobs.insert('k', queue => 'other')", latest("jobs.update(id, queue => 'q')")),
        ("select jobs.insert('k', queue => 'q', pending => true)", "select jobs.retry_many('q')".into()),
        (&unique(r#""by_state": ["pending"]"#).replace("queue =>", "pending => true, queue =>"), unique(r#""by_state": ["pending"], "on_conflict": "replace""#)),
        ("select jobs.insert('u', queue => 'other', unique_opts => '{\"by_kind\": true}')", unique(r#""on_conflict": {"update": {"available": ["queue"]}}"#)),
        ("begin; select jobs.insert('k', queue => 'q'); select jobs.fetch('q', lease => '1 us'); commit", "select jobs.maintain(); select jobs.retry_many('q', states => '{retryable}')".into()),
        ("", (0..100).map(|n| format!("select jobs.insert('k', queue => 'q{n}');")).collect::<String>() + "select jobs.insert('k', queue => 'q')"),
    ] {
        run(&db, before).await;
        println!("{statement}");
        (_, client) = woken_by(&db, client, "q", &format!("begin; {statement}; commit")).await;
        assert_ne!(count(&client, "jobs.fetch('q', 10)").await, 0, "{statement}");
        run(&db, "drop extension jobs; create extension jobs").await;
    }
}

#[tokio::test]
async fn what_is_not_for_it_does_not_wake() {
    let (cluster, db) = quiet("others").await;
    let other = cluster.database("another").await;
    let call = "call jobs.wait('q', '4 s')";
    let begun = Instant::now();
    let waiter = Waiter::start(&db, cluster.connect("others").await, call).await;
    run(&db, "begin; select jobs.insert('k', queue => 'q'); rollback").await;
    run(&db, "select jobs.insert('k', queue => 'p')").await;
    run(&db, "select jobs.insert('k', queue => 'q', pending => true)").await;
    run(&db, "select jobs.insert('k', queue => 'q', scheduled_at => clock_timestamp() + '1 h')")
        .await;
    run(
        &db,
        "select jobs.insert('k', queue => 'q', expires_at => clock_timestamp() - interval '1 s')",
    )
    .await;
    run(&other, "select jobs.insert('k', queue => 'q')").await;
    let (waited, _) = waiter.returned(begun).await;
    assert!(waited >= Duration::from_secs(4), "{waited:?}");
}

#[tokio::test]
async fn returns_when_a_job_is_due_without_the_worker() {
    let cluster = only_commits();
    let db = cluster.database("due").await;
    run(&db, "select jobs.insert('k', scheduled_at => clock_timestamp() + '1300 ms')").await;
    timed(&db, "call jobs.wait(timeout => '1 h')").await;
    assert_eq!(count(&db, "jobs.fetch()").await, 1);
}

#[tokio::test]
async fn what_the_worker_makes_available_wakes() {
    let cluster = without_looks().set("jobs.interval", "50 ms").start();
    let db = cluster.database("rescued").await;
    run(&db, "select jobs.insert('k'); select jobs.fetch(lease => '1 s')").await;
    // Its first retry is 0.9 to 1.1 s after the rescue.
    timed(&db, "call jobs.wait(timeout => '1 h')").await;
    // The worker may be in the middle of making it available: then there is nothing to be had for a
    // moment.
    let mut fetched = Vec::new();
    while fetched.is_empty() {
        timed(&db, "call jobs.wait(timeout => '1 h')").await;
        fetched = rows_of(&db, "select attempt from jobs.fetch()").await;
    }
    let attempt: i32 = fetched[0].get(0);
    assert_eq!(attempt, 2);
}

#[tokio::test]
async fn holds_nothing_while_it_waits() {
    let (cluster, db) = quiet("nothing").await;
    run(&db, "select jobs.insert('k', queue => 'other')").await;
    for isolation in LEVELS {
        let client = cluster.connect("nothing").await;
        run(&client, &format!("set default_transaction_isolation = '{isolation}'")).await;
        run(
            &client,
            "set default_transaction_deferrable = on; set default_transaction_read_only = on",
        )
        .await;
        let waiter = Waiter::start(&db, client, "call jobs.wait('q', '1 h')").await;
        // For longer than it takes to look again. A look itself has all of this for a moment.
        let mut held = 0;
        for _ in 0..150 {
            held += count(&db, &format!(
                    "pg_stat_activity a left join pg_locks l on l.pid = a.pid and l.locktype <> 'virtualxid'
                      where a.pid = {} and (a.backend_xmin is not null or a.backend_xid is not null or l.pid is not null)",
                    waiter.pid
                ))
            .await
            .min(1);
            seconds(0.01).await;
        }
        assert!(held <= 75, "{isolation}: {held} of 150 times");
        run(&db, "select jobs.insert('k', queue => 'q')").await;
        waiter.returned(Instant::now()).await;
        run(&db, "select jobs.fetch('q')").await;
    }
}

#[tokio::test]
async fn is_in_nobodys_way() {
    let (cluster, db) = quiet("busy").await;
    drop(cluster.database("other").await);
    let waiter =
        Waiter::start(&db, cluster.connect("busy").await, "call jobs.wait('q', '1 h')").await;
    for sql in [
        "create database copy template other",
        "drop database copy",
        "alter database other rename to renamed",
        "drop database renamed",
        "create index concurrently on jobs.job (kind)",
        "vacuum full jobs.ready",
        "alter table jobs.ready add column x int",
        "drop extension jobs",
    ] {
        // What wants the database for itself fails unless others have left within five seconds.
        timed(&db, sql).await;
    }
    // The schema, or the first table where the end of the DROP comes between the two.
    let gone = waiter.failed().await;
    assert!(["3F000", "42P01"].contains(&gone.as_str()), "{gone}");
    // Who drops the database by force ends it.
    let postgres = cluster.connect("postgres").await;
    run(&db, "create extension jobs").await;
    let waiter =
        Waiter::start(&db, cluster.connect("busy").await, "call jobs.wait('q', '1 h')").await;
    cluster.allow(2, "57P01 client backend busy.*FATAL:  terminating connection");
    drop(db);
    run(&postgres, "drop database busy with (force)").await;
    assert_eq!(waiter.failed().await, "57P01");
}

#[tokio::test]
async fn ends_when_it_is_told_to() {
    let (cluster, db) = quiet("ends").await;
    let connect = || cluster.connect("ends");

    let waiter = Waiter::start(&db, connect().await, "call jobs.wait('q', '1 h')").await;
    run(&db, &format!("select pg_cancel_backend({})", waiter.pid)).await;
    assert_eq!(waiter.failed().await, "57014");

    let client = connect().await;
    run(&client, "set statement_timeout = '1300 ms'").await;
    let begun = Instant::now();
    assert_eq!(sqlstate(client.execute("call jobs.wait('q', '1 h')", &[]).await), "57014");
    assert!(begun.elapsed() > Duration::from_millis(1200));

    cluster.allow(1, "57P01 client backend ends.*FATAL:  terminating connection");
    let waiter = Waiter::start(&db, connect().await, "call jobs.wait('q', '1 h')").await;
    run(&db, &format!("select pg_terminate_backend({})", waiter.pid)).await;
    assert_eq!(waiter.failed().await, "57P01");

    // Its client goes away without a word.
    let config = cluster.config().dbname("ends").clone();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let waiter = Waiter::start(&db, client, "call jobs.wait('q', '1 h')").await;
    connection.abort();
    let still_there = format!("select count(*) from pg_stat_activity where pid = {}", waiter.pid);
    poll_until("its session ends", SOON, async || number(&db, &still_there).await == 0).await;

    let waiter = Waiter::start(&db, connect().await, "call jobs.wait('q', '1 h')").await;
    // Fails unless all sessions end within a minute.
    cluster.stop(Mode::Fast);
    assert_eq!(waiter.failed().await, "57P01");
}

#[tokio::test]
async fn ends_with_its_postmaster() {
    let (cluster, db) = quiet("orphan").await;
    let waiter =
        Waiter::start(&db, cluster.connect("orphan").await, "call jobs.wait('q', '1 h')").await;
    cluster.kill9();
    assert_ne!(waiter.failed().await, "00000");
    cluster.start_again();
}

#[tokio::test]
async fn a_crash_of_another_session_leaves_no_waiters_behind() {
    let (cluster, db) = quiet("crash").await;
    let waiter =
        Waiter::start(&db, cluster.connect("crash").await, "call jobs.wait('q', '1 h')").await;
    let victim: i32 = scalar(&db, "select pg_backend_pid()").await;
    cluster.kill9_backend(victim);
    assert_ne!(waiter.failed().await, "00000");
    cluster.allow(u32::MAX, "57P0[23] .*(because of crash|the database system is )");
    poll_until("it is up again", SOON, async || {
        cluster.config().dbname("crash").connect(NoTls).await.is_ok()
    })
    .await;
    let db = cluster.connect("crash").await;
    let client = cluster.connect("crash").await;
    woken_by(&db, client, "q", "select jobs.insert('k', queue => 'q')").await;
}

#[tokio::test]
async fn the_timeout_counts() {
    let (_cluster, db) = quiet("timeouts").await;
    timed(&db, "call jobs.wait('q', '0')").await;
    for milliseconds in [1, 30, 300, 1200] {
        let waited = timed(&db, &format!("call jobs.wait('q', '{milliseconds} ms')")).await;
        let asked = Duration::from_millis(milliseconds);
        assert!(waited >= asked, "{asked:?}: {waited:?}");
    }
    // A job that is there is not waited for.
    run(&db, "select jobs.insert('k', queue => 'q')").await;
    timed(&db, "call jobs.wait('q', '1 year')").await;
}

#[tokio::test]
async fn is_refused_inside_a_transaction() {
    let (_cluster, db) = quiet("blocks").await;
    run(&db, "create table written (n int)").await;
    run(&db, "create function f() returns void language plpgsql as 'begin call jobs.wait(); end'")
        .await;
    run(&db, "create procedure definer() language plpgsql security definer as 'begin call jobs.wait(); end'").await;
    run(&db, "create procedure path() language plpgsql set search_path = pg_catalog as 'begin call jobs.wait(); end'").await;
    for sql in [
        "begin; call jobs.wait()",
        "select 1; call jobs.wait()",
        "insert into written values (1); call jobs.wait()",
        "begin; do 'begin call jobs.wait(); end'",
        "select f()",
        "call definer()",
        "call path()",
        "do 'begin call jobs.wait(); exception when division_by_zero then null; end'",
        // It would commit what its caller has not committed yet.
        "do 'begin insert into written values (1); call jobs.wait(); end'",
    ] {
        let error = db.batch_execute(sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "25001", "{sql}: {error}");
        assert!(error.hint().unwrap().contains("autocommit"), "{error:?}");
        run(&db, "rollback").await;
    }
    assert_eq!(count(&db, "written").await, 0);
}

#[tokio::test]
async fn a_procedure_may_wait_between_its_transactions() {
    let (cluster, db) = quiet("procedures").await;
    run(
        &db,
        "create table done (id bigint);
         create procedure work(jobs int) language plpgsql as $$
         declare job record; queue text;
         begin
           while (select count(*) from done) < jobs loop
             for queue in values ('q'), ('q') loop  -- an open cursor
               call jobs.wait(queue, '1 h');
               for job in select * from jobs.fetch(queue) loop
                 perform jobs.complete(job.id, job.token);
                 insert into done values (job.id);
               end loop;
               commit;
             end loop;
           end loop;
         end $$",
    )
    .await;
    let waiter = Waiter::start(&db, cluster.connect("procedures").await, "call work(3)").await;
    for _ in 0..4 {
        run(&db, "select jobs.insert('k', queue => 'q')").await;
    }
    waiter.returned(Instant::now()).await;
    assert_eq!(count(&db, "done").await, 4);
    // What comes after a wait has the isolation that the session asked for.
    run(&db, "create table seen (level text)").await;
    run(&db, "set default_transaction_isolation = 'serializable'").await;
    run(&db, "do 'begin call jobs.wait(timeout => ''10 ms''); insert into seen select current_setting(''transaction_isolation''); end'").await;
    let level = text(&db, "select level from seen").await;
    assert_eq!(level, "serializable");
}

#[tokio::test]
async fn works_from_every_kind_of_client() {
    let (cluster, db) = quiet("clients").await;
    run(&db, "select jobs.insert('k')").await;
    // The simple protocol; the extended one, unprepared and prepared, with parameters and without.
    run(&db, "call jobs.wait()").await;
    run(&db, "call jobs.wait(timeout => '1 s')").await;
    run(&db, "call jobs.wait(queue => 'default', timeout => interval '1 s')").await;
    let statement = db.prepare("call jobs.wait($1, make_interval(secs => $2))").await.unwrap();
    for _ in 0..3 {
        assert_eq!(db.execute(&statement, &[&"default", &0.2f64]).await.unwrap(), 0);
    }
    assert_eq!(rows_of(&db, "call jobs.wait()").await.len(), 0);
    // psql, which is in autocommit unless told otherwise.
    let psql = |setting: &str| -> Command {
        let mut psql = cluster.bin("psql");
        psql.args(["-X", "-q", "-d", "clients", "-v", setting, "-v", "VERBOSITY=verbose"]);
        psql.args(["-c", "call jobs.wait()"]);
        psql
    };
    let on = psql("AUTOCOMMIT=on").output().unwrap();
    assert!(on.status.success() && on.stderr.is_empty(), "{on:?}");
    let off = psql("AUTOCOMMIT=off").output().unwrap();
    assert!(String::from_utf8_lossy(&off.stderr).contains("25001"), "{off:?}");
}

#[tokio::test]
async fn nothing_but_execute_is_needed_and_nobody_can_change_what_it_does() {
    let (cluster, db) = quiet("rights").await;
    run(&db, "create role worker login;
         create schema evil;
         create function evil.eq(text, text) returns boolean language plpgsql as 'begin raise exception ''evil''; end';
         create function evil.gt(timestamptz, timestamptz) returns boolean language plpgsql as 'begin raise exception ''evil''; end';
         create operator evil.= (function = evil.eq, leftarg = text, rightarg = text);
         create operator evil.> (function = evil.gt, leftarg = timestamptz, rightarg = timestamptz);
         grant usage on schema evil to worker;
         grant usage on schema jobs to worker").await;
    let mut config = cluster.config();
    let worker = cluster.connect_with(config.dbname("rights").user("worker")).await;
    assert_eq!(sqlstate(worker.batch_execute("call jobs.wait()").await), "42501");
    run(&db, "grant execute on procedure jobs.wait to worker").await;
    run(&worker, "set search_path = evil, pg_catalog; create temp table ready (); create temp table scheduled ()").await;
    let (_, worker) = woken_by(
        &db,
        worker,
        "q",
        "select jobs.insert('k', queue => 'q', expires_at => clock_timestamp() + '1 h')",
    )
    .await;
    assert_eq!(
        sqlstate(worker.batch_execute("select from jobs.ready").await),
        "42501",
        "it is itself again"
    );
    let role = text(&worker, "select current_user::text").await;
    assert_eq!(role, "worker");
}

#[tokio::test]
async fn seats_are_given_back_on_every_way_out() {
    let cluster =
        without_looks().set("jobs.enabled", "off").set("jobs.fault", "no_looks,few_seats").start();
    let db = cluster.database("seats").await;
    // More than there are: 32. Whoever gets none is not woken.
    let client = cluster.connect("seats").await;
    run(&client, "set statement_timeout = '1 ms'").await;
    for _ in 0..100 {
        let _ = client.batch_execute("call jobs.wait('q', '10 s')").await;
    }
    cluster.allow(u32::MAX, "57P01 client backend seats.*FATAL:  terminating connection");
    for _ in 0..100 {
        let client = cluster.connect("seats").await;
        let pid: i32 = scalar(&client, "select pg_backend_pid()").await;
        let terminate = async {
            run(&db, &format!("select pg_sleep(0.003), pg_terminate_backend({pid})")).await;
        };
        let (outcome, ()) =
            tokio::join!(client.batch_execute("call jobs.wait('q', '10 s')"), terminate);
        // The client may see that the connection is closed before it reads why.
        let outcome = sqlstate(outcome);
        assert!(["57P01", "connection closed"].contains(&&*outcome), "{outcome}");
    }
    run(&client, "reset statement_timeout").await;
    let mut client = client;
    for _ in 0..3 {
        (_, client) = woken_by(&db, client, "q", "select jobs.insert('k', queue => 'q')").await;
        run(&client, "select jobs.fetch('q')").await;
    }
}

#[tokio::test]
async fn an_operator_of_a_caller_does_not_run_with_the_rights_of_the_extension() {
    let (cluster, db) = with("evil", &[]).await;
    run(&db, "create role evil; grant usage on schema jobs to evil; grant execute on procedure jobs.wait to evil;
         create schema evil authorization evil; create table public.log (who text); grant insert on public.log to public;
         select jobs.pause_queue('paused'), jobs.configure_queue('limited', 1, 1, '1 second')").await;
    let evil = cluster.connect("evil").await;
    run(&evil, "set role evil;
         create function evil.eq(text, text) returns boolean language plpgsql as
           $$ begin insert into public.log values (current_user); return $1 operator(pg_catalog.=) $2; end $$;
         create operator evil.= (leftarg = text, rightarg = text, function = evil.eq);
         set search_path = evil, pg_catalog").await;
    for queue in ["paused", "limited", "neither"] {
        run(&evil, &format!("call jobs.wait('{queue}', '0.1 s')")).await;
    }
    let log = rows_of(&db, "select who from public.log").await;
    assert!(log.is_empty(), "{log:?}");
    // Its own search_path is what it was.
    let path = text(&evil, "show search_path").await;
    assert_eq!(path, "evil, pg_catalog");
}

#[tokio::test]
async fn whoever_gets_no_seat_looks_now_and_then() {
    let cluster = Cluster::builder().faults("few_seats").set("jobs.enabled", "off").start();
    let db = cluster.database("crowded").await;
    let calls = [
        "call jobs.wait('q', '1 h')",
        "call jobs.wait_any('{p,q}', '1 h', 'w')",
        "call jobs.wait_for('{1}', '1 h')",
    ];
    run(&db, "select jobs.insert('k', queue => 'other')").await;
    let mut waiters = Vec::new();
    for n in 0..60 {
        let client = cluster.connect("crowded").await;
        waiters.push(tokio::spawn(async move {
            run(&client, calls[n % calls.len()]).await;
        }));
    }
    let asleep = "select count(*) from pg_stat_activity where wait_event_type = 'Extension' and query like 'call%'";
    poll_until("all sleep", SOON, async || number(&db, asleep).await >= 55).await;
    run(&db, "begin; select jobs.insert('k', queue => 'q'); select jobs.cancel(1); commit").await;
    for waiter in waiters {
        let woken = tokio::time::timeout(SOON, waiter).await;
        woken.expect("whoever waits is told").unwrap();
    }
}

#[tokio::test]
async fn a_job_that_cannot_be_had_does_not_make_a_busy_loop() {
    let (cluster, db) = quiet("locked").await;
    let holder = cluster.connect("locked").await;
    for queue in ["p", "q"] {
        run(&db, &format!("select jobs.insert('k', queue => '{queue}')")).await;
    }
    run(&holder, "begin; select jobs.fetch('p'), jobs.fetch('q')").await;
    // At once, then after 0.1 s, 0.2, 0.4, 0.8, and each second.
    let begun = Instant::now();
    for _ in 0..7 {
        run(&db, "call jobs.wait('q', '10 s')").await;
        assert_eq!(count(&db, "jobs.fetch('q')").await, 0);
    }
    let waited = begun.elapsed();
    assert!(waited > Duration::from_millis(3500), "{waited:?}");
    // Several workers may have one session in turns, behind a pooler.
    run(&db, "call jobs.wait('p', '10 s')").await;
    let begun = Instant::now();
    for queue in ["{p}", "{}", "{q}", "{p}", "{p,q}"] {
        let call = format!("call jobs.wait_any('{queue}', '200 ms')");
        run(&db, &call).await;
    }
    let waited = begun.elapsed();
    assert!(waited > Duration::from_millis(900), "{waited:?}");
    // Behind it another one comes: that is new. It waits too shortly to be seen asleep.
    let wait = run(&db, "call jobs.wait('q', '10 s')");
    let insert = cluster.connect("locked").await;
    let insert = async {
        seconds(0.03).await;
        run(&insert, "select jobs.insert('k', queue => 'q')").await;
    };
    tokio::join!(wait, insert);
    assert_eq!(count(&db, "jobs.fetch('q')").await, 1);
}

#[tokio::test]
async fn what_wakes_nobody_is_found() {
    let cluster = Cluster::quiet();
    cluster.allow_violations(); // a row of another sequence
    let db = cluster.database("silent").await;
    run(&db, "begin; select jobs.insert('k', queue => 'q'); prepare transaction 'p'").await;
    let client = cluster.connect("silent").await;
    let (_, client) = woken_by(&db, client, "q", "commit prepared 'p'").await;
    run(&client, "select jobs.fetch('q')").await;
    // A job that was written without any function, as when a dump is restored.
    let row = "insert into jobs.job (id, created_at, max_attempts, priority, kind, queue, args) values (1000, now(), 1, 1, 'k', 'q', '1');
               insert into jobs.ready (seq, job_id, attempt, priority, queue) values (1000, 1000, 0, 1, 'q')";
    woken_by(&db, client, "q", row).await;
    // Control: where sessions do not look by themselves it is not.
    let cluster = only_commits();
    cluster.allow_violations();
    let db = cluster.database("silent").await;
    let (begun, call) = (Instant::now(), "call jobs.wait('q', '4 s')");
    let waiter = Waiter::start(&db, cluster.connect("silent").await, call).await;
    run(&db, row).await;
    let (waited, _) = waiter.returned(begun).await;
    assert!(waited >= Duration::from_secs(4), "{waited:?}");
}

#[tokio::test]
async fn without_preload_it_looks_now_and_then() {
    let cluster = Cluster::builder().without_preload().start();
    let db = cluster.database("plain").await;
    let mut client = cluster.connect("plain").await;
    for _ in 0..5 {
        (_, client) = woken_by(&db, client, "q", "select jobs.insert('k', queue => 'q')").await;
        run(&client, "select jobs.fetch('q')").await;
    }
    let waited = timed(&client, "call jobs.wait('q', '250 ms')").await;
    assert!(waited >= Duration::from_millis(250), "{waited:?}");
    assert_eq!(sqlstate(client.batch_execute("begin; call jobs.wait()").await), "25001");
}

#[tokio::test]
async fn is_refused_on_a_standby() {
    let cluster = Cluster::quiet();
    drop(cluster.database("replicated").await);
    let standby = cluster.standby();
    let replica = standby.connect("replicated").await;
    assert_eq!(sqlstate(replica.batch_execute("call jobs.wait()").await), "25006");
    cluster.stop(Mode::Fast);
    standby.promote();
    run(&replica, "select jobs.insert('k')").await;
    run(&replica, "call jobs.wait()").await;
}
