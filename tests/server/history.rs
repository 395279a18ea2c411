//! What `jobs.history` says is what rows say, whatever sessions do at the same time, roll back and
//! prepare; and nothing counts twice or is missed while it moves from memory into tables.

use std::time::{Duration, Instant};

use jobs_tests::{
    Builder, Client, Cluster, Mode, SOON, comes_true, count, history_is_written, is, number,
    poll_until, rng, run, scalar, seconds, text, texts, with, workers_become,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::memory::memory_of;

const LOAD: &str = include_str!("history/load.sql");

/// A server on which no session but the test works.
fn server() -> Builder {
    Cluster::builder().set("jobs.enabled", "off").set("max_prepared_transactions", 20)
}

async fn prepare(cluster: &Cluster) -> Client {
    let db = cluster.database("counted").await;
    run(&db, LOAD).await;
    db
}

/// One session that works, rolls back and prepares.
async fn work(cluster: &Cluster, number: u64, seed: u64) {
    let db = cluster.connect("counted").await;
    let mut rng = StdRng::seed_from_u64(seed + number);
    if number % 2 == 1 {
        run(&db, "set jobs.direct_access = off").await;
    }
    run(&db, &format!("select setseed({})", rng.random::<f64>())).await;
    for round in 0..60 {
        let name = format!("p{number}_{round}");
        let act = match rng.random_range(0..8) {
            0 => "begin; select act(); select act_or_not(); rollback".to_owned(),
            1 => "begin; select act(); savepoint s; select act_or_not(); rollback to s; select act(); release s; commit".to_owned(),
            2 => format!("begin; select act_or_not(); prepare transaction '{name}'; select act(); commit prepared '{name}'"),
            3 => format!("begin; select act_or_not(); prepare transaction '{name}'; select act(); rollback prepared '{name}'"),
            4 => "begin; select act(); do $$ begin raise 'no' using errcode = 'P0001'; end $$".to_owned(),
            _ => "select act_or_not()".to_owned(),
        };
        // Each of these is a transaction of its own, or a part of one.
        for statement in split(&act) {
            let done = db.batch_execute(statement).await;
            if let Err(error) = done {
                assert_eq!(error.code().map(|code| code.code()), Some("P0001"), "{error:?}");
                run(&db, "rollback").await;
            }
        }
    }
}

/// Statements, but for those in a body.
fn split(statements: &str) -> Vec<&str> {
    match statements.contains("$$") {
        true => vec!["begin", "select act()", "do $$ begin raise 'no'; end $$"],
        false => statements.split("; ").collect(),
    }
}

/// Many sessions at once, and somebody who looks after what is over.
async fn load(cluster: &Cluster, db: &Client) {
    let seed = u64::from(rng().random::<u32>());
    let work = |number| work(cluster, number, seed);
    let look = async {
        for _ in 0..10 {
            seconds(0.2).await;
            run(db, "select jobs.maintain()").await;
        }
    };
    tokio::join!(work(0), work(1), work(2), work(3), work(4), work(5), look);
    // What is due, such as leases that have run out, and what expires when it is tried again: later
    // nothing happens.
    run(
        db,
        "select jobs.unschedule('often'); select pg_sleep(0.01); select jobs.maintain();
         select jobs.retry(id) from jobs.jobs where state = 'retryable'; select jobs.maintain()",
    )
    .await;
}

async fn assert_nothing_wrong(db: &Client) {
    let wrong = texts(db, "select what from wrong()").await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

async fn assert_right(db: &Client) {
    assert_nothing_wrong(db).await;
    let all = "select count(*) from jobs.history() where inserted > 0 and started > 0 and completed > 0 and failed > 0 and discarded > 0 and cancelled > 0";
    assert!(number(db, all).await > 0, "all of it happened");
}

/// The sum of all counters, as jobs.metrics() has it.
async fn counted(db: &Client) -> f64 {
    scalar(db, "select coalesce(sum(value), 0) from jobs.metrics() where metric ~ '^jobs_(kind|wait|run)_'").await
}

/// Waits until the minute is over in which something was counted last.
async fn minute_is_over(db: &Client) {
    let left = "select extract(epoch from date_trunc('minute', clock_timestamp()) + interval '1 minute' - clock_timestamp())::float8";
    let left: f64 = scalar(db, left).await;
    tokio::time::sleep(Duration::from_secs_f64(left + 0.1)).await;
}

/// Everything that is counted, in one text.
const ALL: &str = "select string_agg(h::text, E'\\n' order by h.at, h.queue, h.kind) from jobs.history(since => '1 day') h";

#[tokio::test]
async fn what_is_counted_is_what_rows_say() {
    let cluster = server().start();
    let db = prepare(&cluster).await;
    load(&cluster, &db).await;
    assert_right(&db).await;
    let in_memory = "select count(*) from jobs.history_delta";
    println!("{} rows of deltas", number(&db, in_memory).await);

    // While it moves into tables it is as it was.
    let (before, counters) = (text(&db, ALL).await, counted(&db).await);
    minute_is_over(&db).await;
    let (begun, reader) = (Instant::now(), cluster.connect("counted").await);
    let read = async {
        while begun.elapsed() < Duration::from_secs(3) {
            assert_eq!(text(&reader, ALL).await, before);
            assert_eq!(counted(&reader).await, counters);
        }
    };
    let rows = "select count(*) from jobs.history_bucket";
    let write = async {
        // Who finds somebody at it does not wait for him, be it that he is prepared.
        let (other, written) = (cluster.connect("counted").await, number(&db, rows).await);
        run(&other, "begin; select jobs.maintain()").await;
        let maintained = db.batch_execute("select jobs.maintain()");
        let maintained = tokio::time::timeout(4 * SOON, maintained).await;
        maintained.expect("it does not wait").unwrap();
        run(&other, "prepare transaction 'maintained'").await;
        run(&db, "select jobs.maintain()").await;
        assert_eq!(number(&db, rows).await, written);
        run(&db, "rollback prepared 'maintained'").await;
        for _ in 0..5 {
            run(&db, "begin; select jobs.maintain(); rollback").await;
            run(&db, "begin; savepoint s; select jobs.maintain(); rollback to s; commit").await;
        }
        run(&db, "begin; select jobs.maintain(), jobs.maintain()").await;
        run(&db, "prepare transaction 'maintained'").await;
        run(&db, "commit prepared 'maintained'").await;
        run(&db, "select jobs.maintain()").await;
    };
    tokio::join!(read, write);
    assert!(number(&db, rows).await > 0);
    assert_eq!(number(&db, in_memory).await, 0);
    assert_right(&db).await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(text(&db, ALL).await, before);

    // The counters of a copy begin anew; so do all with the server, which the rest outlives.
    drop((db, reader));
    let postgres = cluster.connect("postgres").await;
    run(&postgres, "create database copied template counted").await;
    let copy = cluster.connect("copied").await;
    assert_eq!(counted(&copy).await, 0.0);
    drop((postgres, copy));
    cluster.restart(Mode::Immediate);
    let db = cluster.connect("counted").await;
    assert_eq!(text(&db, ALL).await, before);
    assert_eq!(counted(&db).await, 0.0);
    run(&db, "select jobs.insert('k', queue => 'new')").await;
    assert_eq!(counted(&db).await, 1.0);
    assert_nothing_wrong(&db).await;
}

#[tokio::test]
async fn without_shared_memory_it_is_the_same() {
    let cluster = server().without_preload().start();
    let db = prepare(&cluster).await;
    load(&cluster, &db).await;
    assert_right(&db).await;
    let (before, counters) = (text(&db, ALL).await, counted(&db).await);
    assert!(count(&db, "jobs.history_delta").await > 0);
    minute_is_over(&db).await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(count(&db, "jobs.history_delta").await, 0);
    assert_eq!(text(&db, ALL).await, before);
    assert_eq!(counted(&db).await, counters);
    drop(db);
    cluster.restart(Mode::Immediate);
    let db = cluster.connect("counted").await;
    assert_eq!(text(&db, ALL).await, before);
    assert_eq!(counted(&db).await, counters);
}

/// Control: what was rolled back would be noticed.
#[tokio::test]
async fn what_is_rolled_back_would_be_noticed() {
    let cluster = server().faults("count_rolled_back").start();
    let db = prepare(&cluster).await;
    for back in [
        "begin; select jobs.insert('k', queue => 'q'); rollback",
        "begin; savepoint s; select jobs.insert('k', queue => 'q'); rollback to s; commit",
    ] {
        assert_eq!(count(&db, "wrong()").await, 0);
        for statement in back.split("; ") {
            run(&db, statement).await;
        }
        assert_eq!(count(&db, "wrong()").await, 1, "{back}");
        run(&db, "drop extension jobs cascade; create extension jobs").await;
        run(&db, &format!("drop table attempt; drop function act, act_or_not, wrong; {LOAD}"))
            .await;
    }
}

#[tokio::test]
async fn what_shared_memory_has_no_room_for_counts_as_well() {
    let cluster = server().start();
    let db = prepare(&cluster).await;
    // More pairs than a database has entries, and names that fit into none.
    run(&db, "select jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'k' || n, 'queue', 'many')) from generate_series(1, 2500) n));
         select jobs.insert(repeat(U&'\\+01F600', 127), queue => repeat(U&'\\+01F601', 127)) from generate_series(1, 3)").await;
    assert!(count(&db, "jobs.history_delta").await > 400);
    assert_nothing_wrong(&db).await;
    assert_eq!(count(&db, "jobs.history() where inserted = 3").await, 1);
    // What such a transaction rolls back does not count.
    let before = text(&db, ALL).await;
    run(&db, "begin; select jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'l' || n)) from generate_series(1, 2500) n)); rollback").await;
    assert_eq!(text(&db, ALL).await, before);
    // What is of an extension that is not there any more is of no other.
    run(&db, "drop extension jobs cascade; create extension jobs").await;
    assert_eq!(count(&db, "jobs.history()").await, 0);
    run(&db, "select jobs.insert('k' || n, queue => 'many') from generate_series(1, 10) n").await;
    assert_eq!(count(&db, "jobs.history()").await, 10);
    assert_eq!(count(&db, "jobs.history_delta").await, 0);
}

#[tokio::test]
async fn a_database_that_nobody_maintains_leaves_room_for_others() {
    let cluster = server().start();
    for name in ["first", "second"] {
        let db = cluster.database(name).await;
        run(&db, "select jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'k' || n)) from generate_series(1, 5000) n))").await;
    }
    let db = cluster.database("third").await;
    run(&db, "select jobs.insert('k' || n) from generate_series(1, 20) n").await;
    assert_eq!(count(&db, "jobs.history()").await, 20);
    let deltas = "select count(*) from jobs.history_delta";
    assert_eq!(number(&db, deltas).await, 0);
}

#[tokio::test]
async fn a_database_that_is_closed_for_a_while_keeps_what_was_counted() {
    // The launcher may have begun to start a worker for it when it is closed.
    let closed = "55000 jobs worker : FATAL: +database .* is not currently accepting connections";
    let cluster = Cluster::builder().without_visits().allow(1, closed).start();
    let db = cluster.database("closed").await;
    run(&db, "select jobs.insert('k')").await;
    drop(db);
    let postgres = cluster.connect("postgres").await;
    let allow = async |whether: bool| {
        let allow = format!("alter database closed allow_connections {whether}");
        run(&postgres, &allow).await;
    };
    allow(false).await;
    workers_become(&postgres, "closed", 0).await;
    // The launcher, which starts the first worker of another database, has looked at all of them.
    let other = cluster.database("other").await;
    workers_become(&postgres, "other", 1).await;
    run(&other, "select jobs.insert('k')").await;
    allow(true).await;
    let db = cluster.connect("closed").await;
    assert_eq!(number(&db, "select sum(inserted)::bigint from jobs.history()").await, 1);
}

/// A week of many pairs is more than a session is to have in memory at once.
#[tokio::test]
async fn a_long_history_takes_little_memory() {
    let cluster = server().set("shared_buffers", "16MB").start();
    let db = cluster.database("long").await;
    run(&db, "insert into jobs.history_bucket (at, queue, kind, counts)
         select date_trunc('minute', now()) - m * interval '1 minute', 'q', 'k' || n, '{0,1,6,1000000,100,1}'
           from generate_series(1, 1440 * 3) m, generate_series(1, 50) n").await;
    for step in ["1 minute", "3 days"] {
        let history = format!(
            "select sum(inserted)::bigint from jobs.history(since => '10 days', step => '{step}')"
        );
        assert_eq!(number(&db, &history).await, 1440 * 3 * 50);
    }
    let pid = number(&db, "select pg_backend_pid()::bigint").await;
    let peak = memory_of(pid as i32, "VmHWM") >> 20;
    println!("{peak} MB");
    assert!(peak < 100, "{peak} MB");
}

/// The worker writes what is over by itself, and forgets what is old.
#[tokio::test]
async fn the_worker_writes_minutes_and_forgets_them() {
    let (_cluster, db) = with("kept", &[("jobs.retention_history", "1h")]).await;
    run(&db, "insert into jobs.history_bucket (at, queue, kind, counts)
         select date_trunc('minute', now()) - n * interval '1 minute', 'q', 'k', '{0,1}' from generate_series(55, 70) n;
         select jobs.insert('x', queue => 'r')").await;
    let kept = "select count(*) from jobs.history_bucket where queue = 'r'";
    poll_until("the minute is written", 4 * SOON, async || number(&db, kept).await == 1).await;
    let old = count(&db, "jobs.history_bucket where queue = 'q'").await;
    assert!((3..=7).contains(&old), "{old} of 16 minutes are left");
}

/// A commit that waits for a standby counts in its minute when it is done, and tells nobody of it.
/// So the worker comes back by itself.
#[tokio::test]
async fn a_minute_that_a_commit_holds_back_is_written_after_it() {
    let cluster = Cluster::builder()
        .without_visits()
        .set("synchronous_standby_names", "nobody")
        .set("synchronous_commit", "local")
        .start();
    let db = cluster.database("held").await;
    // All that comes before the minute is over is to be in one.
    if number(&db, "select extract(second from clock_timestamp())::bigint").await > 35 {
        minute_is_over(&db).await;
    }
    run(&db, "select jobs.insert('k', timeout => '-1 s')").await;
    workers_become(&db, "held", 1).await;
    workers_become(&db, "held", 0).await;
    let holder = cluster.connect("held").await;
    run(&holder, "set synchronous_commit = on").await;
    let held = tokio::spawn(async move {
        run(&holder, "select jobs.fetch(lease => '1 hour')").await;
    });
    let waits = "exists(select from pg_stat_activity where wait_event = 'SyncRep')";
    comes_true(&db, waits).await;
    let over = "select (date_trunc('minute', clock_timestamp()) + interval '1 minute')::text";
    let over = text(&db, over).await;
    let again = format!(
        "exists(select from jobs.maintenance
          where task = 'statistics' and last_run_at >= timestamptz '{over}' + interval '1 second')"
    );
    poll_until("the worker looks again", 4 * SOON, async || is(&db, &again).await).await;
    cluster.set("synchronous_standby_names", "");
    cluster.reload();
    held.await.unwrap();
    history_is_written(&db).await;
}

#[tokio::test]
async fn minutes_that_could_not_be_written_are_written_soon_after() {
    let refused = "jobs worker .*maintenance task statistics failed: .*not now";
    let cluster = Cluster::builder().without_visits().allow(100, refused).start();
    let db = cluster.database("refused").await;
    run(&db, "create function refuse() returns trigger language plpgsql as $$ begin raise 'not now'; end $$;
         create trigger refuse before insert on jobs.history_bucket for each row execute function refuse();
         select jobs.insert('k')").await;
    let has_failed =
        "exists(select from jobs.maintenance where task = 'statistics' and failures > 0)";
    poll_until("it was tried", 4 * SOON, async || is(&db, has_failed).await).await;
    run(&db, "drop trigger refuse on jobs.history_bucket").await;
    history_is_written(&db).await;
}
