//! Workers that say that they are there, and what operators tell them: whoever fetches by a name
//! goes by what was committed before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use jobs_tests::{
    Client, Cluster, Mode, SOON, count, number, poll_until, quiet, run, sqlstate, text,
};

/// What the sessions of one worker have in common.
#[derive(Default)]
struct Shared {
    /// The command to stop fetching is committed.
    is_quiet: AtomicBool,
    is_over: AtomicBool,
    fetched: AtomicI64,
}

/// Fetches by a name until it is over. What was begun after the command gets nothing.
async fn fetch(client: Client, worker: &'static str, shared: Arc<Shared>) {
    let sql = format!(
        "select count(jobs.release(id, token)) from jobs.fetch('q', 3, worker => '{worker}')"
    );
    while !shared.is_over.load(Ordering::SeqCst) {
        let is_quiet = shared.is_quiet.load(Ordering::SeqCst);
        let count = number(&client, &sql).await;
        assert!(!is_quiet || count == 0, "a quiet worker fetched {count}");
        shared.fetched.fetch_add(count, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
}

/// Waits until so many jobs were fetched.
async fn fetched(shared: &Shared, count: i64) {
    poll_until("jobs are fetched", SOON, async || shared.fetched.load(Ordering::SeqCst) >= count)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fetch_that_begins_after_it_gets_anything() {
    for cluster in [Cluster::quiet(), Cluster::builder().without_preload().start()] {
        let db = cluster.database("quiet").await;
        run(&db, "select jobs.insert_batch('k', array_fill('1'::jsonb, '{200}'), queue => 'q')")
            .await;
        for how in ["quiet_worker", "stop_worker"] {
            let workers: [(&str, Arc<Shared>); 2] = [("a", Arc::default()), ("b", Arc::default())];
            let mut tasks = Vec::new();
            for (name, shared) in &workers {
                for _ in 0..4 {
                    let client = cluster.connect("quiet").await;
                    tasks.push(tokio::spawn(fetch(client, name, shared.clone())));
                }
            }
            let [(_, a), (_, b)] = &workers;
            // They remember by now that no session has a command.
            fetched(a, 20).await;
            run(&db, &format!("select jobs.{how}('a')")).await;
            a.is_quiet.store(true, Ordering::SeqCst);
            // The other one goes on.
            fetched(b, b.fetched.load(Ordering::SeqCst) + 50).await;
            for shared in [a, b] {
                shared.is_over.store(true, Ordering::SeqCst);
            }
            for task in tasks {
                task.await.unwrap();
            }
            let again = "select count(jobs.release(id, token)) from jobs.fetch('q', worker => 'a')";
            assert_eq!(number(&db, again).await, 0);
            run(&db, "select jobs.resume_worker('a')").await;
            assert_eq!(number(&db, again).await, 1, "it goes on");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_beat_at_once_and_each_is_seen() {
    let (cluster, db) = quiet("beats").await;
    let mut tasks = Vec::new();
    for session in 0..8 {
        let client = cluster.connect("beats").await;
        tasks.push(tokio::spawn(async move {
            for n in 0..50 {
                // One of its own, and one that all of them say something else of.
                for worker in [format!("w{session}-{n}"), "all".into()] {
                    let sql =
                        format!("select jobs.worker_beat('{worker}', '{{q{session}}}', {n} + 1)");
                    assert_eq!(text(&client, &sql).await, "run");
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let seen = "select count(*) from jobs.workers where status = 'idle'";
    assert_eq!(number(&db, seen).await, 8 * 50 + 1);
    // Under REPEATABLE READ another one's beat is a conflict, as with any other row.
    let other = cluster.connect("beats").await;
    run(&other, "begin isolation level repeatable read; select count(*) from jobs.worker").await;
    run(&db, "select jobs.worker_beat('all', '{}', 1000)").await;
    let beat = other.batch_execute("select jobs.worker_beat('all', '{}', 1001)");
    assert_eq!(sqlstate(beat.await), "40001");
}

#[tokio::test]
async fn a_command_outlives_a_restart() {
    let (cluster, db) = quiet("restart").await;
    run(&db, "select jobs.stop_worker('a', 'broken')").await;
    run(&db, "select jobs.insert('k')").await;
    cluster.stop(Mode::Fast);
    cluster.start_again();
    let db = cluster.connect("restart").await;
    assert_eq!(count(&db, "jobs.fetch(worker => 'a')").await, 0);
    assert_eq!(text(&db, "select jobs.worker_beat('a', '{default}', 1)").await, "stop");
    assert_eq!(count(&db, "jobs.fetch(worker => 'b')").await, 1);
}
