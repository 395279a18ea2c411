//! `CALL jobs.wait_any`: several queues, and what is asked of a worker.

use std::time::{Duration, Instant};

use jobs_tests::{Cluster, Stopping, count, number, quiet, run, seconds, text};

use crate::wait::{Waiter, only_commits, timed};

const CALL: &str = "call jobs.wait_any('{q1,q2,q3}', '1 h', 'w')";

#[tokio::test]
async fn a_job_of_any_of_the_queues_wakes() {
    let cluster = only_commits();
    let db = cluster.database("queues").await;
    let mut client = cluster.connect("queues").await;
    // More than eight are told with less certainty.
    let many: Vec<String> = (0..50).map(|n| format!("q{n}")).collect();
    let many = format!("call jobs.wait_any('{{{}}}', '1 h')", many.join(","));
    for call in [CALL, &many, "call jobs.wait_any('{q1,q1,q2,q3}', '1 h')"] {
        for statement in [
            "select jobs.insert('k', queue => 'q1')",
            "select jobs.insert('k', queue => 'q3')",
            "select jobs.insert('k', queue => 'q2', scheduled_at => clock_timestamp() + '100 ms')",
            "select jobs.pause_queue('q2'); select jobs.insert('k', queue => 'q2'); select jobs.resume_queue('q2')",
        ] {
            let waiter = Waiter::start(&db, client, call).await;
            run(&db, statement).await;
            (_, client) = waiter.returned(Instant::now()).await;
            let fetched = "select count(*) from jobs.fetch_any('{q1,q2,q3}', 10)";
            assert_eq!(number(&client, fetched).await, 1, "{call}: {statement}");
        }
    }
}

#[tokio::test]
async fn a_command_wakes() {
    let cluster = only_commits();
    let db = cluster.database("commands").await;
    let mut client = cluster.connect("commands").await;
    let fetched = "select jobs.insert('k', queue => 'q9', timeout => '-1 s'); select jobs.fetch('q9', worker => 'w')";
    for (before, statement) in [
        (fetched, "select jobs.cancel(id) from jobs.jobs where state = 'running'"),
        (fetched, "select jobs.cancel(id, force => true) from jobs.jobs where state = 'running'"),
        (fetched, "select jobs.cancel_many('q9')"),
        ("", "select jobs.quiet_worker('w')"),
        ("", "select jobs.stop_worker('w', 'now')"),
        ("", "select jobs.resume_worker('w')"),
    ] {
        run(&db, before).await;
        println!("{statement}");
        let waiter = Waiter::start(&db, client, CALL).await;
        run(&db, statement).await;
        (_, client) = waiter.returned(Instant::now()).await;
        // The next call reports commands that arrive between calls.
        let again = "select jobs.resume_worker('w'); select jobs.stop_worker('w')";
        run(&db, again).await;
        timed(&client, CALL).await;
        run(&db, "select jobs.resume_worker('w')").await;
        timed(&client, CALL).await;
        if statement.contains("quiet") || statement.contains("stop") {
            run(&db, statement).await;
            timed(&client, CALL).await;
        }
        // Each command is reported once.
        let waited = timed(&client, "call jobs.wait_any('{q1}', '300 ms', 'w')").await;
        assert!(waited >= Duration::from_millis(300), "{waited:?}");
    }
}

/// A worker beats on another connection than the one that waits: what wakes that one is known to
/// every session by then.
#[tokio::test]
async fn who_is_woken_finds_all_sessions_told() {
    const BEAT: &str = "select jobs.worker_beat('w', '{q1}', 1)";
    const QUIET: &str = "select jobs.quiet_worker('w')";
    let cluster = only_commits();
    let db = cluster.database("all").await;
    let beats = cluster.connect("all").await;
    assert_eq!(text(&beats, BEAT).await, "run");
    let waiter = Waiter::start(&db, cluster.connect("all").await, CALL).await;
    let operator = cluster.connect("all").await;
    let stopping = Stopping::begin(operator, "stop_at_commit", QUIET.into()).await;
    stopping.has_stopped().await;
    // It has committed. Who waits may return now, if others know already.
    seconds(0.3).await;
    if !waiter.sleeps(&db).await {
        assert_eq!(text(&beats, BEAT).await, "quiet");
    }
    stopping.go_on().await;
    waiter.returned(Instant::now()).await;
    assert_eq!(text(&beats, BEAT).await, "quiet");
}

#[tokio::test]
async fn a_command_for_others_does_not_wake_and_a_quiet_worker_gets_no_jobs() {
    let (cluster, db) = quiet("others").await;
    run(&db, "select jobs.quiet_worker('w')").await;
    let (begun, call) = (Instant::now(), "call jobs.wait_any('{q1,q2}', '4 s', 'w')");
    let waiter = Waiter::start(&db, cluster.connect("others").await, call).await;
    run(&db, "select jobs.insert('k', queue => 'q1')").await;
    run(&db, "select jobs.insert('k', queue => 'q9'); select jobs.fetch('q9', worker => 'v'); select jobs.cancel(2)").await;
    run(&db, "select jobs.quiet_worker('v')").await;
    run(&db, "begin; select jobs.resume_worker('w'); rollback").await;
    let (waited, client) = waiter.returned(begun).await;
    assert!(waited >= Duration::from_secs(4), "{waited:?}");
    // Once it may fetch again it is woken.
    let waiter = Waiter::start(&db, client, "call jobs.wait_any('{q1}', '1 h', 'w')").await;
    run(&db, "select jobs.resume_worker('w')").await;
    let (_, client) = waiter.returned(Instant::now()).await;
    timed(&client, "call jobs.wait_any('{q1}', '1 h', 'w')").await;
}

#[tokio::test]
async fn jobs_that_cannot_be_had_make_no_busy_loop() {
    let (cluster, db) = quiet("locked").await;
    let holder = cluster.connect("locked").await;
    run(&db, "select jobs.insert('k', queue => 'q1'), jobs.insert('k', queue => 'q2')").await;
    run(&holder, "begin; select jobs.fetch('q1'); select jobs.fetch('q2')").await;
    let begun = Instant::now();
    for _ in 0..11 {
        run(&db, "call jobs.wait_any('{q1,q2}', '10 s')").await;
        let fetched = "select count(*) from jobs.fetch_any('{q1,q2}')";
        assert_eq!(number(&db, fetched).await, 0);
    }
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(1), "{waited:?}");
}

#[tokio::test]
async fn without_preload_a_command_is_found() {
    let cluster = Cluster::builder().without_preload().start();
    let db = cluster.database("plain").await;
    let mut client = cluster.connect("plain").await;
    run(&db, "select jobs.insert('k', queue => 'q9'); select jobs.fetch('q9', worker => 'w')")
        .await;
    for statement in [
        "select jobs.cancel(1)",
        "select jobs.quiet_worker('w')",
        "select jobs.resume_worker('w')",
        "select jobs.insert('k', queue => 'q3')",
    ] {
        let waiter = Waiter::start(&db, client, CALL).await;
        run(&db, statement).await;
        (_, client) = waiter.returned(Instant::now()).await;
    }
    assert_eq!(count(&client, "jobs.fetch_any('{q1,q3}')").await, 1);
}
