//! Queues with a bound (`max_waiting`) and many producers: never more jobs wait than the bound and
//! the transactions that were open allow, and what fits is let in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jobs_tests::{Builder, Client, Cluster, LEVELS, blocked_until, number, run, seconds, sqlstate};
use rand::Rng;

/// A cluster whose background worker leaves everything to the tests.
fn cluster() -> Cluster {
    start(Cluster::builder())
}

fn start(builder: Builder) -> Cluster {
    builder.set("jobs.enabled", "off").set("max_prepared_transactions", 5).start()
}

async fn waiting(db: &Client) -> i64 {
    let sql = "select (select count(*) from jobs.ready where queue = 'q') + (select count(*) from jobs.scheduled where queue = 'q')";
    number(db, sql).await
}

async fn bound(db: &Client, bound: i64) {
    let sql = format!("select jobs.configure_queue('q', max_waiting => {bound})");
    run(db, &sql).await;
}

/// Inserts so many jobs; the SQLSTATE.
async fn insert(client: &Client, count: i64) -> String {
    let sql = format!(
        "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{count}]), queue => 'q')"
    );
    sqlstate(client.batch_execute(&sql).await)
}

const FULL: &str = "54000";
const DONE: &str = "00000";

/// A producer inserts at most so many jobs in a transaction.
const EACH: i64 = 5;
const PRODUCERS: i64 = 16;
const BOUND: i64 = 60;

/// Inserts in every way until it is told to stop; how many jobs it has committed, and how often it
/// was refused.
async fn produce(client: Client, stop: Arc<AtomicBool>) -> (i64, i64) {
    let (mut committed, mut refused) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let (level, commits, steps) = {
            let mut rng = rand::rng();
            let steps: Vec<(i64, usize)> = (0..rng.random_range(1..=3))
                .map(|_| (rng.random_range(1..=EACH), rng.random_range(0..4)))
                .collect();
            (LEVELS[rng.random_range(0..3)], rng.random_bool(0.8), steps)
        };
        let begin = format!("begin isolation level {level}");
        run(&client, &begin).await;
        let mut inserted = 0;
        for (count, how) in steps {
            let count = count.min(EACH - inserted);
            if count == 0 {
                break;
            }
            let queue = "queue => 'q'";
            let sql = match how {
                0 => format!(
                    "select count(*) from generate_series(1, {count}) n, lateral jobs.insert('k', to_jsonb(n), {queue})"
                ),
                1 => format!(
                    "select jobs.insert_batch('k', array_fill('1'::jsonb, array[{count}]), {queue})"
                ),
                2 => format!(
                    "select jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'k', 'queue', 'q', 'scheduled_at', now() + interval '1 hour')) from generate_series(1, {count})))"
                ),
                _ => format!(
                    "select jobs.insert_batch('u', array(select to_jsonb(gen_random_uuid()) from generate_series(1, {count})), '{{\"by_args\": true}}', {queue})"
                ),
            };
            run(&client, "savepoint s").await;
            match sqlstate(client.batch_execute(&sql).await).as_str() {
                DONE => inserted += count,
                FULL => {
                    refused += 1;
                    run(&client, "rollback to s").await;
                }
                "40001" => {
                    inserted = -1;
                    break;
                }
                other => panic!("{sql}: {other}"),
            }
        }
        if inserted < 0 || !commits {
            run(&client, "rollback").await;
        } else if sqlstate(client.batch_execute("commit").await) == DONE {
            committed += inserted;
        }
    }
    (committed, refused)
}

/// Fetches and completes, a few at a time.
async fn work(client: Client, stop: Arc<AtomicBool>) -> i64 {
    let mut completed = 0;
    while !stop.load(Ordering::Relaxed) {
        let sql = "select count(jobs.complete(id, token)) from jobs.fetch('q', 4)";
        completed += number(&client, sql).await;
        seconds(0.005).await;
    }
    completed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_jobs_wait_than_the_bound_and_open_transactions_allow() {
    let cluster = cluster();
    let db = cluster.database("producers").await;
    bound(&db, BOUND).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut producers = Vec::new();
    for _ in 0..PRODUCERS {
        let client = cluster.connect("producers").await;
        producers.push(tokio::spawn(produce(client, stop.clone())));
    }
    let worker = tokio::spawn(work(cluster.connect("producers").await, stop.clone()));
    let mut most = 0;
    // Long enough that it was full often: each sample is a statement.
    for _ in 0..400 {
        let waiting = waiting(&db).await;
        assert!(waiting <= BOUND + PRODUCERS * EACH, "{waiting} wait");
        most = most.max(waiting);
        seconds(0.005).await;
    }
    stop.store(true, Ordering::Relaxed);
    let (mut committed, mut refused) = (0, 0);
    for producer in producers {
        let (jobs, times) = producer.await.unwrap();
        committed += jobs;
        refused += times;
    }
    let completed = worker.await.unwrap();
    assert_eq!(waiting(&db).await, committed - completed, "none is lost");
    assert!(most >= BOUND - EACH, "control: it was hardly full: {most}");
    assert!(refused > 0, "control: nothing was refused");
    // At rest: whatever was refused or rolled back, exactly the bound fits, whoever inserts.
    run(&db, "select jobs.delete_many(queue => 'q', max_jobs => 10000)").await;
    assert_eq!(waiting(&db).await, 0);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(cluster.connect("producers").await);
    }
    for n in 0..BOUND {
        let client = &clients[n as usize % clients.len()];
        assert_eq!(insert(client, 1).await, DONE, "job {n}");
    }
    for client in &clients {
        assert_eq!(insert(client, 1).await, FULL);
    }
    assert_eq!(waiting(&db).await, BOUND);
    // What sessions know of each other is gone after a crash, the jobs are not.
    drop((db, clients));
    cluster.kill9();
    cluster.start_again();
    let db = cluster.connect("producers").await;
    assert_eq!(insert(&db, 1).await, FULL);
    run(&db, "select jobs.cancel_many(queue => 'q', max_jobs => 1)").await;
    assert_eq!(insert(&db, 1).await, DONE);
    assert_eq!(insert(&db, 1).await, FULL);
}

/// Jobs that others were inserting while a session counted, and committed then: how many wait once
/// that session has inserted as many as it is let.
async fn late_commits(cluster: &Cluster, database: &str) -> i64 {
    let db = cluster.database(database).await;
    bound(&db, 20).await;
    let (other, prepared) = (cluster.connect(database).await, cluster.connect(database).await);
    run(&other, "begin").await;
    assert_eq!(insert(&other, 6).await, DONE);
    run(&prepared, "begin").await;
    assert_eq!(insert(&prepared, 5).await, DONE);
    run(&prepared, "prepare transaction 'late'").await;
    // It counts only now.
    assert_eq!(insert(&db, 1).await, DONE);
    run(&other, "commit").await;
    run(&prepared, "commit prepared 'late'").await;
    for _ in 0..40 {
        if insert(&db, 1).await != DONE {
            break;
        }
    }
    waiting(&db).await
}

#[tokio::test]
async fn what_commits_after_a_session_has_counted_is_counted() {
    let cluster = cluster();
    assert_eq!(late_commits(&cluster, "late").await, 20);
    // While they are open, others' jobs do not count.
    let db = cluster.database("open").await;
    bound(&db, 4).await;
    let other = cluster.connect("open").await;
    run(&other, "begin").await;
    assert_eq!(insert(&other, 4).await, DONE);
    assert_eq!(insert(&db, 4).await, DONE);
    assert_eq!(insert(&db, 1).await, FULL);
    run(&other, "commit").await;
    assert_eq!(waiting(&db).await, 8);
    // Nor do those that a session is just taking make room before they are taken.
    run(&db, "select jobs.cancel_many(queue => 'q', max_jobs => 4)").await;
    run(&other, "begin; select jobs.fetch('q', 2)").await;
    assert_eq!(insert(&db, 1).await, FULL);
    run(&other, "commit").await;
    assert_eq!(insert(&db, 2).await, DONE);
    assert_eq!(insert(&db, 1).await, FULL);
}

#[tokio::test]
async fn control_who_does_not_count_what_others_are_inserting_lets_too_many_in() {
    let right = start(Cluster::builder().faults(""));
    assert_eq!(late_commits(&right, "late").await, 20, "without the fault");
    let wrong = start(Cluster::builder().faults("count_committed"));
    assert!(late_commits(&wrong, "late").await > 20);
}

/// What others put into the queue since is known, so that not each insert counts: whether a jobs
/// was put back, came due, or was moved there.
#[tokio::test]
async fn what_is_put_there_otherwise_is_known() {
    let cluster = cluster();
    let db = cluster.database("put").await;
    let other = cluster.connect("put").await;
    for (put, made) in [
        (
            "select jobs.update(id, queue => 'q') from jobs.jobs where queue = 'p'",
            "select jobs.insert_batch('k', array_fill('1'::jsonb, array[7]), queue => 'p')",
        ),
        (
            "select jobs.fail(id, token, 'e', '1 hour') from held",
            "select jobs.insert_batch('k', array_fill('1'::jsonb, array[7]), queue => 'q'); create table held as select id, token from jobs.fetch('q', 7)",
        ),
        (
            "select jobs.retry(id) from jobs.jobs where state = 'cancelled'",
            "select jobs.insert_batch('k', array_fill('1'::jsonb, array[7]), queue => 'q'); select jobs.cancel_many(queue => 'q')",
        ),
    ] {
        run(&db, "drop table if exists held; select jobs.cancel(job_id, force => true) from jobs.running; select jobs.delete_many(queue => 'q'); select jobs.configure_queue('q')").await;
        run(&db, made).await;
        bound(&db, 10).await;
        // It remembers that there is room for nine more.
        assert_eq!(insert(&db, 1).await, DONE, "{put}");
        run(&other, put).await;
        assert_eq!(waiting(&db).await, 8, "{put}");
        assert_eq!(insert(&db, 3).await, FULL, "{put}");
        assert_eq!(insert(&db, 2).await, DONE, "{put}");
        assert_eq!(insert(&db, 1).await, FULL, "{put}");
    }
}

/// Far from the bound an insert does not read what waits.
#[tokio::test]
async fn far_from_the_bound_nothing_is_counted() {
    let cluster = cluster();
    let db = cluster.database("far").await;
    bound(&db, 10_000).await;
    assert_eq!(insert(&db, 2000).await, DONE);
    let read = "select pg_stat_force_next_flush(); select 1";
    let rows = async || {
        run(&db, read).await;
        number(&db, "select pg_stat_get_tuples_fetched('jobs.ready_pkey'::regclass) + pg_stat_get_tuples_fetched('jobs.ready'::regclass)").await
    };
    let before = rows().await;
    run(&db, "select count(*) from generate_series(1, 500) n, lateral jobs.insert('k', to_jsonb(n), queue => 'q')").await;
    let once = rows().await - before;
    // Counted now and then, however slow the machine is: not with each of the inserts.
    assert!(once < 500 * 2000 / 4, "{once} rows were read");
    // Near it each does.
    bound(&db, 2501).await;
    let before = rows().await;
    run(&db, "do $$ begin for n in 1 .. 20 loop begin perform jobs.insert_batch('k', '{1,2}', queue => 'q'); exception when program_limit_exceeded then end; end loop; end $$").await;
    let near = rows().await - before;
    assert!(near >= 20 * 2000, "control: only {near} rows were read");
}

/// A key is free when an insert first looks, and a rival commits before it has counted: then it is
/// still a duplicate, though the queue is full by now.
#[tokio::test]
async fn a_duplicate_of_who_has_filled_the_queue_is_one() {
    const RIVALS: [&str; 2] = [
        "select count(*) from jobs.insert_batch('k', '{1}', '{\"by_args\": true}', queue => 'q')",
        // It has no more room for locks on keys.
        "select count(*) from generate_series(1, 16) n, lateral jobs.insert('other', to_jsonb(n), '{\"by_args\": true}', queue => 'p');
         select count(*) from jobs.insert('k', '1', '{\"by_args\": true}', queue => 'q')",
    ];
    const SINGLE: &str =
        "select count(*) from jobs.insert('k', '1', '{\"by_args\": true, \"on_conflict\": CONFLICT}', queue => 'q')
          where unique_skipped_as_duplicate or replaced_id is not null";
    const BATCH: &str =
        "select count(*) from jobs.insert_batch('k', '{1,1}', '{\"by_args\": true, \"on_conflict\": CONFLICT}', queue => 'q')
          where unique_skipped_as_duplicate or replaced_id is not null";
    const SKIP: &str = "\"skip\"";
    let cluster = cluster();
    let db = cluster.database("rivals").await;
    let (rival, late) = (cluster.connect("rivals").await, cluster.connect("rivals").await);
    bound(&db, 1).await;
    let cases = [
        (SINGLE, SKIP, "read committed", Ok(1)),
        (SINGLE, "\"replace\"", "read committed", Ok(1)),
        (SINGLE, "{\"update\": {\"*\": [\"priority\"]}}", "read committed", Ok(1)),
        (SINGLE, "\"reject\"", "read committed", Err("23505")),
        (SINGLE, SKIP, "repeatable read", Err("40001")),
        (BATCH, SKIP, "read committed", Ok(2)),
        (BATCH, "\"replace\"", "read committed", Ok(2)),
    ];
    for (sql, conflict, level, wanted) in cases {
        for inserted in RIVALS {
            run(&rival, "begin").await;
            run(&rival, inserted).await;
            // Where the other one counts it waits.
            run(&rival, "lock table jobs.scheduled in access exclusive mode").await;
            let begin = format!("begin isolation level {level}; select from jobs.unique_claim");
            run(&late, &begin).await;
            let sql = sql.replace("CONFLICT", conflict);
            let inserting = late.query_one(&sql, &[]);
            let answer = blocked_until(&db, inserting, &rival, "commit").await;
            let answer = answer.map(|row| row.get::<_, i64>(0));
            match wanted {
                Ok(count) => assert_eq!(answer.expect(&sql), count, "{sql} {inserted}"),
                Err(code) => assert_eq!(sqlstate(answer), code, "{sql} {inserted}"),
            }
            run(&late, "commit").await;
            assert_eq!(waiting(&db).await, 1, "{sql} {inserted}");
            // Control: it is full for others.
            assert_eq!(insert(&db, 1).await, FULL, "{sql} {inserted}");
            run(&db, "select jobs.cancel_many(states => enum_range(null::jobs.state)); select jobs.delete_many(states => enum_range(null::jobs.state))").await;
        }
    }
}

/// Without shared memory no session knows what others put there: each insert counts.
#[tokio::test]
async fn without_preload_each_insert_counts() {
    let cluster = Cluster::builder().without_preload().start();
    let db = cluster.database("alone").await;
    let other = cluster.connect("alone").await;
    // It remembers that there is no bound.
    assert_eq!(insert(&other, 1).await, DONE);
    bound(&db, 5).await;
    assert_eq!(insert(&other, 2).await, DONE);
    assert_eq!(insert(&db, 3).await, FULL);
    assert_eq!(insert(&db, 2).await, DONE);
    assert_eq!(insert(&other, 1).await, FULL);
    assert_eq!(waiting(&db).await, 5);
    // What is fetched, cancelled or rolled back makes room; what is put back takes it.
    run(&db, "create table held as select id, token from jobs.fetch('q', 2)").await;
    run(&db, "begin").await;
    assert_eq!(insert(&db, 2).await, DONE);
    run(&db, "rollback").await;
    assert_eq!(insert(&other, 1).await, DONE);
    run(&db, "select jobs.fail(id, token, 'e', '1 hour') from held").await;
    assert_eq!(insert(&other, 1).await, FULL);
    run(&db, "select jobs.cancel_many('q', max_jobs => 2)").await;
    assert_eq!(insert(&other, 1).await, DONE);
    assert_eq!(insert(&db, 1).await, FULL);
    // What others are just inserting counts once it is committed.
    run(&db, "select jobs.cancel_many('q', max_jobs => 2)").await;
    run(&other, "begin").await;
    assert_eq!(insert(&other, 2).await, DONE);
    assert_eq!(insert(&db, 1).await, DONE);
    run(&other, "commit").await;
    assert_eq!(waiting(&db).await, 6);
    assert_eq!(insert(&db, 1).await, FULL);
    run(&db, "select jobs.reset_queue('q')").await;
    assert_eq!(insert(&other, 10).await, DONE);
}
