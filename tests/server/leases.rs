//! Attempts whose leases run out are failed in time, also where reading the table of leases takes
//! so long that the worker does not read it each time.

use std::time::{Duration, Instant};

use jobs_tests::{
    Client, Cluster, SOON, count, insert, number, poll_until, quiet, run, scalar, seconds, state,
};

/// A job that runs with this lease.
async fn running(db: &Client, lease: &str) -> i64 {
    // Once rescued it is over, so that it is not fetched again.
    let id = insert(db, "'k', queue => 'q', max_attempts => 1").await;
    let fetch = format!("select id from jobs.fetch('q', 1, lease => '{lease}')");
    let fetched = number(db, &fetch).await;
    assert_eq!(fetched, id);
    id
}

/// Waits for a job to be failed for its worker.
async fn is_rescued(db: &Client, id: i64, within: Duration) {
    poll_until(&format!("job {id} is rescued"), within, async || {
        state(db, id).await.as_deref() != Some("running")
    })
    .await;
}

/// How often the table of leases has been read from its beginning to its end.
async fn readings(db: &Client) -> i64 {
    let counted = "select seq_scan from pg_stat_user_tables where relid = 'jobs.running'::regclass";
    scalar(db, counted).await
}

/// A database whose table of leases has two million dead rows, which a session keeps there.
async fn with_dead_rows(cluster: &Cluster) -> (Client, Client) {
    let db = cluster.database("dead").await;
    let holder = cluster.connect("dead").await;
    run(&holder, "begin isolation level repeatable read; select count(*) from jobs.job").await;
    run(
        &db,
        "insert into jobs.running (job_id, token, attempted_at, lease_expires_at, attempt, worker)
         select -n, 0, now(), 'infinity', 1, 'w' from generate_series(1, 2000000) n",
    )
    .await;
    run(&db, "delete from jobs.running where job_id < 0").await;
    (db, holder)
}

#[tokio::test]
async fn a_lease_that_runs_out_is_noticed_without_reading_all_leases_each_time() {
    let cluster = Cluster::builder().set("autovacuum", "off").set("jobs.interval", "200ms").start();
    let (db, _holder) = with_dead_rows(&cluster).await;
    // The worker cannot be faster than its readings, on a machine where one takes long.
    let begun = Instant::now();
    run(&db, "select count(*) from jobs.running").await;
    let soon = SOON.max(begun.elapsed() * 10);

    let short = running(&db, "300 ms").await;
    is_rescued(&db, short, soon).await;

    // Renewed to end sooner than it would have.
    let renewed = running(&db, "1 hour").await;
    let heartbeat = format!(
        "select jobs.heartbeat({renewed}, token, lease => '300 ms') from jobs.running where job_id = {renewed}"
    );
    run(&db, &heartbeat).await;
    is_rescued(&db, renewed, soon).await;

    // Of a transaction that commits when the lease is over.
    let late = cluster.connect("dead").await;
    run(&late, "begin").await;
    let open = running(&late, "300 ms").await;
    seconds(2.0).await;
    run(&late, "commit").await;
    is_rescued(&db, open, soon).await;

    // A manual change of the lease wakes no process.
    let by_hand = running(&db, "1 hour").await;
    run(
        &db,
        &format!(
            "update jobs.running set lease_expires_at = clock_timestamp() where job_id = {by_hand}"
        ),
    )
    .await;
    // The next read of the leases finds the change.
    let next = running(&db, "100 ms").await;
    is_rescued(&db, next, soon).await;
    is_rescued(&db, by_hand, soon).await;

    // Control: the worker makes 20 passes, and reads the table in far fewer of them. (Statistics
    // are up to a second late.)
    seconds(1.5).await;
    let before = readings(&db).await;
    for _ in 0..20 {
        let due = "'due soon', queue => 'other', scheduled_at => clock_timestamp() + '50 ms'";
        let due = insert(&db, due).await;
        poll_until("a pass", soon, async || state(&db, due).await.as_deref() == Some("available"))
            .await;
    }
    seconds(1.5).await;
    let read = readings(&db).await - before;
    assert!(read <= 12, "{read} readings of all leases in 20 passes");
    assert!(readings(&db).await > 0, "readings are counted");
}

#[tokio::test]
async fn what_jobs_maintain_finds_does_not_depend_on_what_is_known() {
    let (_cluster, db) = quiet("by_hand").await;
    let id = running(&db, "1 hour").await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(state(&db, id).await.as_deref(), Some("running"));
    run(&db, "update jobs.running set lease_expires_at = clock_timestamp()").await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(state(&db, id).await.as_deref(), Some("discarded"));
}

/// Jobs whose leases are over, and that `holder` has locked in a transaction that stays open.
async fn many_locked(db: &Client, holder: &Client, jobs: i64) {
    let insert = format!(
        "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{jobs}]), timeout => '-1 second')"
    );
    run(db, &insert).await;
    while count(db, "jobs.fetch(max_jobs => 1000, lease => '1 microsecond')").await > 0 {}
    run(holder, "begin").await;
    assert_eq!(number(holder, "select jobs.cancel_many(kind => 'k')").await, jobs);
}

/// All running jobs send a heartbeat.
fn beat(lease: &str) -> String {
    format!(
        "select count(*) from (select array_agg(job_id) as ids, array_agg(token) as tokens from jobs.running) r, jobs.heartbeat_many(ids, tokens, '{lease}')"
    )
}

#[tokio::test]
async fn a_heartbeat_that_was_answered_counts_however_many_jobs_are_locked() {
    const MANY: i64 = 6000;
    let running = "select count(*) from jobs.running";
    for builder in
        [Cluster::builder().set("jobs.enabled", "off"), Cluster::builder().without_preload()]
    {
        let cluster = builder.start();
        let db = cluster.database("locked").await;
        let holder = cluster.connect("locked").await;
        many_locked(&db, &holder, MANY).await;
        assert_eq!(number(&db, &beat("1 second")).await, MANY);
        assert_eq!(number(&db, &beat("1 hour")).await, MANY);
        run(&holder, "rollback").await;
        run(&db, "select jobs.maintain()").await;
        assert_eq!(number(&db, running).await, MANY, "the rescue takes none");
        assert_eq!(count(&db, "jobs.heartbeat_note").await, 0);
        assert_eq!(number(&db, &beat("1 hour")).await, MANY);
        assert_eq!(count(&db, "jobs.heartbeat_note").await, 0, "what is not locked needs no note");
    }
}

#[tokio::test]
async fn of_several_heartbeats_for_a_locked_job_the_latest_that_committed_counts() {
    let (cluster, db) = quiet("locked").await;
    let holder = cluster.connect("locked").await;
    many_locked(&db, &holder, 3).await;
    run(&db, &beat("1 hour")).await;
    run(&db, &format!("begin; {}; rollback", beat("1 microsecond"))).await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(count(&db, "jobs.heartbeat_note").await, 3, "nobody can write them yet");
    run(&db, "select jobs.heartbeat(job_id, token, '1 microsecond') from jobs.running limit 1")
        .await;
    run(&holder, "rollback").await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(count(&db, "jobs.running").await, 2);
    assert_eq!(count(&db, "jobs.heartbeat_note").await, 0);
}
