//! A process that stops while it has one of the locks in shared memory holds up nobody, and what
//! others wanted to do under it is not lost. The build with faults stops itself there.

use std::future::Future;

use jobs_tests::{Cluster, Listener, SOON, Stopping, blocked, count, number, poll_until, run};

/// A cluster whose background worker leaves everything to the tests, and which vacuums nothing.
fn quiet() -> Cluster {
    Cluster::builder().faults("").set("jobs.enabled", "off").set("autovacuum", "off").start()
}

/// What nobody may hold up.
async fn promptly<T>(what: &str, done: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(SOON, done).await;
    done.unwrap_or_else(|_| panic!("{what} waits for a process that does not run"))
}

/// Under such a lock, and at the end of a transaction, nothing is allocated: in builds with debug
/// assertions whoever does ends the server. The other tests are run with such a build, too.
#[tokio::test]
async fn control_what_is_allocated_where_nothing_may_fail_is_found() {
    for fault in ["allocate_under_lock", "allocate_at_commit"] {
        let cluster = quiet();
        let db = cluster.database("allocates").await;
        run(&db, "select jobs.insert('k', queue => 'q')").await;
        cluster.allow(2, "PANIC: jobs asked for|was terminated by signal 6");
        cluster.allow(u32::MAX, "57P0[23] .*FATAL: ");
        let fetch = format!("set jobs.fault = '{fault}'; {FETCH}");
        assert!(db.batch_execute(&fetch).await.is_err(), "{fault}");
        let log = cluster.log();
        assert!(log.contains("PANIC: jobs asked for 4 bytes"), "{fault}");
        // Not merely that it takes a connection: it may do so before it has seen the crash.
        poll_until("the server is back", SOON, async || {
            let is_ready = "database system is ready to accept connections";
            cluster.log().matches(is_ready).count() > 1
        })
        .await;
    }
}

const FETCH: &str = "select from jobs.fetch('q', 1)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_at_the_floors_of_a_queue_holds_up_nobody() {
    let cluster = quiet();
    let db = cluster.database("floors").await;
    run(&db, "select jobs.insert_batch('k', array_fill('1'::jsonb, array[20]), queue => 'q')")
        .await;
    run(&db, FETCH).await;
    let session = cluster.connect("floors").await;
    let stopping = Stopping::begin(session, "stop_under_lock", FETCH.into()).await;
    stopping.has_stopped().await;
    for _ in 0..3 {
        promptly("a fetch", run(&db, FETCH)).await;
    }
    promptly("an insert", run(&db, "select jobs.insert('k', queue => 'q')")).await;
    stopping.go_on().await;
    assert_eq!(count(&db, "jobs.fetch('q', 100)").await, 16);
}

/// Two batches take their ids and wait for rivals. When they go on, the floor is above their jobs.
/// The later one lowers it to its own jobs and stops there. Whether those of the earlier one are
/// found at once, before and after that one goes on.
async fn a_floor_that_is_to_be_lowered(fault: &str) -> (i64, i64) {
    let cluster = quiet();
    let db = cluster.database("late").await;
    let rivals = [cluster.connect("late").await, cluster.connect("late").await];
    const OPTIONS: &str = r#"{"by_args": true, "by_state": ["available"]}"#;
    for (key, rival) in rivals.iter().enumerate() {
        let insert = format!("select jobs.insert('b', '{key}', '{OPTIONS}', queue => 'other')");
        run(rival, &format!("begin; {insert}")).await;
    }
    let batch = |key: usize, kind: &str| {
        let waits = format!(
            r#"{{"kind": "b", "args": {key}, "unique_opts": {OPTIONS}, "queue": "other"}}"#
        );
        let job = format!(r#"{{"kind": "{kind}", "queue": "q"}}"#);
        format!("select jobs.insert_many('[{waits}, {job}, {job}]')")
    };
    let (session, sql) = (cluster.connect("late").await, batch(0, "kept"));
    let earlier = tokio::spawn(async move { run(&session, &sql).await });
    blocked(&db, 1).await;
    let session = cluster.connect("late").await;
    let later = Stopping::begin(session, fault, batch(1, "later")).await;
    blocked(&db, 2).await;
    // Dead rows, over which the floor is raised.
    for _ in 0..4 {
        run(
            &db,
            "select from jobs.insert_batch('k', array_fill('1'::jsonb, array[2000]), queue => 'q')",
        )
        .await;
        for _ in 0..4 {
            run(&db, "select from jobs.fetch('q', 500)").await;
        }
    }
    run(&db, "select from jobs.insert_batch('k', array_fill('1'::jsonb, array[50]), queue => 'q')")
        .await;
    run(&rivals[1], "rollback").await;
    later.has_stopped().await;
    run(&rivals[0], "rollback").await;
    promptly("the batch", earlier).await.unwrap();
    let kept = "select count(*) from jobs.fetch('q', 1) where kind = 'kept'";
    let meanwhile = promptly("a fetch", number(&db, kept)).await;
    later.go_on().await;
    (meanwhile, number(&db, kept).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_is_lowered_also_if_somebody_has_stopped_at_it() {
    assert_eq!(a_floor_that_is_to_be_lowered("stop_under_lock").await, (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_who_trusts_its_floors_after_that_is_found() {
    assert_eq!(a_floor_that_is_to_be_lowered("stop_and_trust").await, (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_at_what_is_to_be_notified_holds_up_nobody() {
    let cluster = Cluster::builder().faults("").start();
    let db = cluster.database("notify").await;
    let mut listener = Listener::new(&cluster, "notify").await;
    let mut hear = async |queue: &str| {
        let wanted = format!("{{\"queue\":\"{queue}\"}}");
        let heard = async { while listener.next().await.replace(' ', "") != wanted {} };
        promptly("a notification", heard).await;
    };
    run(&db, "select jobs.insert('k', queue => 'before')").await;
    hear("before").await;
    let (session, insert) =
        (cluster.connect("notify").await, "select jobs.insert('k', queue => 'stopped')");
    let stopping = Stopping::begin(session, "stop_under_lock", insert.into()).await;
    stopping.has_stopped().await;
    promptly("an insert", run(&db, "select jobs.insert('k', queue => 'behind')")).await;
    hear("behind").await;
    stopping.go_on().await;
    run(&db, "select jobs.insert('k', queue => 'after')").await;
    hear("after").await;
}
