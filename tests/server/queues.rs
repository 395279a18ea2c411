//! Queues that are paused or limited, with many workers: never more than the limit, whoever fetches
//! and however jobs end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use jobs_tests::{
    Client, LEVELS, SOON, count, number, poll_until, quiet, row_of, rows_of, run, scalar, seconds,
    sqlstate, text,
};
use rand::Rng;

async fn fill(db: &Client, queue: &str, count: i32) {
    let sql = format!(
        "select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, {count}) n), queue => '{queue}', timeout => '-1 second')"
    );
    assert_eq!(number(db, &sql).await, i64::from(count));
}

/// Fetches and ends jobs in every way, at every isolation level, until nothing is left; how many it
/// completed.
async fn work(client: Client, level: &'static str, most: i32) -> i64 {
    let mut completed = 0;
    let mut empty = 0;
    while empty < 300 {
        let (batch, how, rolls_back) = {
            let mut rng = rand::rng();
            (rng.random_range(1..=most), rng.random_range(0..8), rng.random_bool(0.15))
        };
        let begin = format!("begin isolation level {level}");
        run(&client, &begin).await;
        let sql = format!("select id, token from jobs.fetch('q', {batch})");
        let rows = match client.query(&sql, &[]).await {
            Ok(rows) => rows,
            Err(error) => {
                assert_eq!(sqlstate::<()>(Err(error)), "40001");
                run(&client, "rollback").await;
                continue;
            }
        };
        let end = if rolls_back { "rollback" } else { "commit" };
        if let Err(error) = client.batch_execute(end).await {
            assert_eq!(sqlstate::<()>(Err(error)), "40001");
            continue;
        }
        if rows.is_empty() {
            empty += 1;
            seconds(0.001).await;
            continue;
        }
        if rolls_back {
            continue;
        }
        empty = 0;
        for row in rows {
            let (id, token): (i64, i64) = (row.get(0), row.get(1));
            let call = match how {
                0 => format!("jobs.release({id}, {token})::text"),
                1 => format!("(jobs.fail({id}, {token}, 'x', '0')).state::text"),
                2 => format!("(jobs.snooze({id}, {token}, '0')).state::text"),
                3 => format!("jobs.cancel({id}, force => true)::text"),
                _ => format!("jobs.complete({id}, {token})::text"),
            };
            let state = text(&client, &format!("select {call}")).await;
            completed += i64::from(state == "completed");
        }
    }
    completed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_jobs_of_a_queue_run_than_its_limit() {
    let (cluster, db) = quiet("concurrency").await;
    run(&db, "select jobs.configure_queue('q', concurrency => 5)").await;
    fill(&db, "q", 1500).await;
    let mut tasks = Vec::new();
    for n in 0..8 {
        let level = LEVELS[n % 3];
        let client = cluster.connect("concurrency").await;
        tasks.push(tokio::spawn(work(client, level, 1 + n as i32)));
    }
    let (mut most, mut samples) = (0, 0);
    while !tasks.iter().all(|task| task.is_finished()) {
        let running = count(&db, "jobs.running").await;
        assert!(running <= 5, "{running} run");
        most = most.max(running);
        samples += 1;
    }
    assert!(samples > 50, "only {samples} samples");
    assert!(most >= 4, "control: the limit was hardly reached: {most}");
    let mut completed = 0;
    for task in tasks {
        completed += task.await.unwrap();
    }
    assert!(completed > 500, "only {completed} completed");
    let row = row_of(&db, "select count(*) filter (where state = 'completed'), count(*) filter (where finalized_at is null),
                    (select count(*) from jobs.queue_slot where job_id is not null), (select count(*) from jobs.queue_slot)
               from jobs.jobs").await;
    let counts: [i64; 4] = std::array::from_fn(|n| row.get(n));
    assert_eq!(counts, [completed, 0, 0, 5], "all ended, all slots free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_lowered_while_jobs_end_is_kept_to() {
    let (cluster, db) = quiet("lowered").await;
    run(&db, "select jobs.configure_queue('q', concurrency => 20)").await;
    fill(&db, "q", 200).await;
    run(&db, "create table held as select id, token from jobs.fetch('q', 100)").await;
    run(&db, "select jobs.configure_queue('q', concurrency => 4)").await;
    // Ten sessions finish two each at a time, and fetch.
    let mut tasks = Vec::new();
    for n in 0..10 {
        let client = cluster.connect("lowered").await;
        tasks.push(tokio::spawn(async move {
            let sql = format!("select count(jobs.complete(id, token)) from (select * from held order by id offset {} limit 2) h", 2 * n);
            run(&client, &sql).await;
            count(&client, "jobs.fetch('q', 100)").await
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let running = count(&db, "jobs.running").await;
    assert!(running <= 4, "{running} run");
    run(&db, "select count(*) from jobs.fetch('q', 100)").await;
    assert_eq!(count(&db, "jobs.running").await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_jobs_of_a_queue_start_in_any_period_than_its_rate() {
    const RATE: usize = 7;
    let (cluster, db) = quiet("rate").await;
    run(
        &db,
        &format!(
            "select jobs.configure_queue('q', rate => {RATE}, rate_period => '300 milliseconds')"
        ),
    )
    .await;
    fill(&db, "q", 1000).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for n in 0..6 {
        let client = cluster.connect("rate").await;
        let stop = stop.clone();
        let level = ["read committed", "repeatable read"][n % 2];
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let begin = format!("begin isolation level {level}");
                run(&client, &begin).await;
                let fetched = client.execute("select from jobs.fetch('q', 3)", &[]).await;
                let failed = fetched.is_err();
                if failed {
                    assert_eq!(sqlstate(fetched), "40001");
                }
                let end = if failed { "rollback" } else { "commit" };
                run(&client, end).await;
                seconds(0.002).await;
            }
        }));
    }
    seconds(4.0).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let starts: Vec<i64> = rows_of(
        &db,
        "select (extract(epoch from attempted_at) * 1000000)::bigint from jobs.running order by 1",
    )
    .await
    .iter()
    .map(|row| row.get(0))
    .collect();
    // Of 4 seconds: 13 periods and the first burst, less what polling loses.
    assert!(starts.len() > 5 * RATE, "control: only {} started", starts.len());
    for window in starts.windows(RATE + 1) {
        let length = window[RATE] - window[0];
        assert!(length >= 300_000, "{} started within {length} us", RATE + 1);
    }
}

/// Settings are removed, set, paused and resumed by several at once: the row of the queue comes
/// and goes, no call fails for that, and no limit is left of what was removed last.
#[tokio::test]
async fn a_queue_is_set_and_reset_by_several_at_once() {
    let (cluster, db) = quiet("reset").await;
    fill(&db, "q", 400).await;
    let mut programs = tokio::task::JoinSet::new();
    for n in 0..4 {
        let program = cluster.connect("reset").await;
        programs.spawn(async move {
            for round in 0..60 {
                let call = match (round + n) % 5 {
                    0 => "select jobs.configure_queue('q', concurrency => 3, rate => 50, rate_period => '1 ms')",
                    1 | 3 => "select jobs.reset_queue('q')",
                    2 => "select jobs.pause_queue('q'); select jobs.resume_queue('q')",
                    _ => "select jobs.complete(id, token) from jobs.fetch('q', 2)",
                };
                run(&program, call).await;
            }
        });
    }
    programs.join_all().await;
    run(&db, "select jobs.resume_queue('q'); select jobs.reset_queue('q')").await;
    assert_eq!(count(&db, "jobs.queue where resumed_at is null").await, 0);
    assert_eq!(count(&db, "jobs.check()").await, 0);
    let left = count(&db, "jobs.jobs where state = 'available'").await;
    assert_eq!(count(&db, "jobs.fetch('q', 1000)").await, left);
}

#[tokio::test]
async fn a_pause_and_a_definition_are_known_to_every_session_from_its_next_call_on() {
    let (cluster, db) = quiet("known").await;
    let other = cluster.connect("known").await;
    let fetched = async |client: &Client| -> i64 {
        scalar(client, "select count(*) from jobs.fetch('q')").await
    };
    fill(&db, "q", 20).await;
    assert_eq!(fetched(&other).await, 1);
    for round in 0..5 {
        run(&db, "select jobs.pause_queue('q')").await;
        assert_eq!(fetched(&other).await, 0, "paused, {round}");
        run(&db, "select jobs.resume_queue('q')").await;
        assert_eq!(fetched(&other).await, 1, "resumed, {round}");
    }
    // Also within a transaction that has everything locked already; at a commit, not before.
    run(&other, "begin").await;
    assert_eq!(fetched(&other).await, 1);
    run(&db, "begin; select jobs.pause_queue('q')").await;
    assert_eq!(fetched(&other).await, 1);
    run(&db, "commit").await;
    assert_eq!(fetched(&other).await, 0);
    run(&other, "commit").await;
    // An old snapshot remembers nothing for later transactions.
    run(&db, "select jobs.resume_queue('q')").await;
    run(&other, "begin isolation level repeatable read; select count(*) from jobs.job").await;
    run(&db, "select jobs.pause_queue('q')").await;
    run(&other, "select jobs.fetch('q'); commit").await;
    assert_eq!(fetched(&other).await, 0);
    // Kinds likewise.
    let queue = async |client: &Client| -> String {
        scalar(client, "select queue from jobs.insert('mail')").await
    };
    assert_eq!(queue(&other).await, "default");
    run(&db, "select jobs.define_kind('mail', 'mails')").await;
    assert_eq!(queue(&other).await, "mails");
}

#[tokio::test]
async fn a_limited_queue_with_many_waiting_jobs_is_not_slower() {
    let (_cluster, db) = quiet("many").await;
    for queue in ["limited", "free"] {
        fill(&db, queue, 60_000).await;
    }
    run(&db, "select jobs.configure_queue('limited', concurrency => 2); analyze").await;
    // Ten rounds of one after the other, so that a busy machine is busy for both.
    let mut spent: [Vec<Duration>; 2] = Default::default();
    for _ in 0..10 {
        for (n, queue) in ["limited", "free"].into_iter().enumerate() {
            let begun = Instant::now();
            let sql = format!(
                "select count(jobs.complete(f.id, f.token)) from generate_series(1, 20) n, lateral jobs.fetch('{queue}', 1 + 0 * n) f"
            );
            assert_eq!(number(&db, &sql).await, 20);
            spent[n].push(begun.elapsed());
        }
    }
    // Medians: a pause of the machine falls into one round only.
    let [limited, free] = spent.map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64()
    });
    let ratio = limited / free;
    println!("a limited fetch takes {ratio:.2} times as long as one without a limit");
    // A scan of what waits would take a hundred times as long.
    assert!(ratio < 10.0, "{ratio}");
    // A full one says so at once, however much waits.
    run(&db, "select jobs.fetch('limited', 2)").await;
    let none = count(&db, "jobs.fetch_any('{limited,free}', 3)").await;
    assert_eq!(none, 3, "and does not keep other queues");
}

#[tokio::test]
async fn a_limit_outlives_a_crash() {
    let (cluster, db) = quiet("crash").await;
    run(&db, "select jobs.configure_queue('q', concurrency => 2)").await;
    fill(&db, "q", 5).await;
    let fetch = "select count(*) from jobs.fetch('q', 5, lease => '1 second')";
    assert_eq!(number(&db, fetch).await, 2);
    drop(db);
    cluster.kill9();
    cluster.start_again();
    let db = cluster.connect("crash").await;
    assert_eq!(number(&db, fetch).await, 0);
    let rescued = AtomicI64::new(0);
    poll_until("both are rescued", SOON, async || {
        let sql = "select rows from jobs.maintain() where task = 'rescue'";
        rescued.fetch_add(scalar(&db, sql).await, Ordering::Relaxed) >= 0
            && rescued.load(Ordering::Relaxed) == 2
    })
    .await;
    assert_eq!(number(&db, fetch).await, 2);
}
