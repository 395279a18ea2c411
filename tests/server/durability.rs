//! Crashes: what was committed is there afterwards, with its state, its token and its key; what was
//! not is gone.

use jobs_tests::{
    Client, Cluster, Mode, SOON, count, poll_until, row_of, rows_of, run, sqlstate, with,
};
use tokio_postgres::NoTls;

const POLICY: &str = "'{\"by_args\": true}'";

/// Inserts a unique job; its id, and whether it was skipped.
async fn insert(db: &Client, n: i32) -> (i64, bool) {
    let row = db
        .query_one(
            &format!("select id, unique_skipped_as_duplicate from jobs.insert('k', jsonb_build_object('n', $1::integer), {POLICY})"),
            &[&n],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

async fn state(db: &Client, id: i64) -> Option<String> {
    let row =
        db.query_opt("select state::text from jobs.jobs where id = $1", &[&id]).await.unwrap();
    row.map(|row| row.get(0))
}

async fn fetch(db: &Client) -> (i64, i64) {
    let row = row_of(db, "select id, token from jobs.fetch()").await;
    (row.get(0), row.get(1))
}

async fn complete(db: &Client, id: i64, token: i64) -> Result<String, tokio_postgres::Error> {
    let row = db.query_one("select jobs.complete($1, $2)::text", &[&id, &token]).await?;
    Ok(row.get(0))
}

async fn pid(db: &Client) -> i32 {
    let row = db.query_one("select pg_backend_pid()", &[]).await;
    row.unwrap().get(0)
}

/// Nothing is half there.
async fn assert_whole(db: &Client) {
    assert_eq!(count(db, "jobs.check()").await, 0);
}

#[tokio::test]
async fn committed_jobs_survive_a_crash() {
    committed_jobs_survive(|cluster| cluster.restart(Mode::Immediate)).await;
}

#[tokio::test]
async fn committed_jobs_survive_the_end_of_the_postmaster() {
    committed_jobs_survive(|cluster| {
        cluster.kill9();
        cluster.start_again();
    })
    .await;
}

async fn committed_jobs_survive(crash: fn(&Cluster)) {
    let (cluster, db) = with("crash", &[]).await;
    // One of each: completed, running, completed but not committed, fetched but not committed,
    // available.
    let mut jobs = Vec::new();
    for n in 1..=5 {
        jobs.push(insert(&db, n).await.0);
    }
    let finished = fetch(&db).await;
    assert_eq!(complete(&db, finished.0, finished.1).await.unwrap(), "completed");
    let running = fetch(&db).await;
    let finishing = fetch(&db).await;
    let open = cluster.connect("crash").await;
    run(&open, "begin").await;
    assert_eq!(complete(&open, finishing.0, finishing.1).await.unwrap(), "completed");
    let fetching = fetch(&open).await;
    let (uncommitted, skipped) = insert(&open, 6).await;
    assert!(!skipped);
    let batch = cluster.connect("crash").await;
    run(&batch, "begin").await;
    rows_of(&batch, &format!("select * from jobs.insert_batch('k', array(select jsonb_build_object('n', n) from generate_series(7, 500) n), {POLICY})")).await;
    assert_eq!([finished.0, running.0, finishing.0, fetching.0], jobs[..4]);

    crash(&cluster);

    let db = cluster.connect("crash").await;
    let states = rows_of(&db, "select id, state::text from jobs.jobs order by id").await;
    let states: Vec<(i64, &str)> = states.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(
        states,
        [
            (jobs[0], "completed"),
            (jobs[1], "running"),
            (jobs[2], "running"),
            (jobs[3], "available"),
            (jobs[4], "available"),
        ]
    );
    assert_eq!(state(&db, uncommitted).await, None);
    assert_whole(&db).await;

    // The tokens are those from before; what was not committed did not happen, and is done again.
    for (id, token) in [running, finishing] {
        assert_eq!(sqlstate(complete(&db, id, token + 1).await), "55000");
        assert_eq!(complete(&db, id, token).await.unwrap(), "completed");
    }
    assert_eq!(complete(&db, finished.0, finished.1).await.unwrap(), "completed");
    assert_eq!(sqlstate(complete(&db, fetching.0, fetching.1).await), "55000");
    let again = fetch(&db).await;
    assert_eq!(again.0, fetching.0);
    assert_ne!(again.1, fetching.1);

    // Keys that were held still are, the others are free.
    for n in 1..=5 {
        assert_eq!(insert(&db, n).await, (jobs[n as usize - 1], true));
    }
    for n in [6, 7, 500] {
        let (id, skipped) = insert(&db, n).await;
        assert!(!skipped);
        assert!(!jobs.contains(&id));
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_killed_session_frees_its_keys() {
    let cluster = Cluster::start();
    // Whoever connects while the server recovers is turned away.
    cluster.allow(u32::MAX, "57P03 .* FATAL: +the database system is");
    let db = cluster.database("killed").await;
    let (held, _) = insert(&db, 1).await;
    let running = fetch(&db).await;
    assert_eq!(running.0, held);

    let victim = cluster.connect("killed").await;
    run(&victim, "begin").await;
    let (lost, skipped) = insert(&victim, 2).await;
    assert!(!skipped);
    let victim_pid = pid(&victim).await;
    // A session waits for it when it dies.
    let waiter = cluster.connect("killed").await;
    let waiter_pid = pid(&waiter).await;
    let waiting = tokio::spawn(async move {
        waiter
            .query_one(&format!("select id from jobs.insert('k', '{{\"n\": 2}}', {POLICY})"), &[])
            .await
            .map(|_| ())
    });
    poll_until("the waiter waits", SOON, || async {
        let row = db
            .query_one("select $1 = any (pg_blocking_pids($2))", &[&victim_pid, &waiter_pid])
            .await
            .unwrap();
        row.get(0)
    })
    .await;

    cluster.kill9_backend(victim_pid);
    assert!(waiting.await.unwrap().is_err(), "all sessions end");
    poll_until("the server is back", SOON, || async {
        let config = cluster.config().dbname("killed").clone();
        config.connect(NoTls).await.is_ok()
    })
    .await;

    let db = cluster.connect("killed").await;
    assert_eq!(state(&db, lost).await, None);
    assert_eq!(state(&db, held).await.as_deref(), Some("running"));
    assert_whole(&db).await;
    let (again, skipped) = insert(&db, 2).await;
    assert!(!skipped);
    assert_eq!(insert(&db, 2).await, (again, true));
    assert_eq!(insert(&db, 1).await, (held, true));
    assert_eq!(complete(&db, running.0, running.1).await.unwrap(), "completed");
    assert_whole(&db).await;
}
