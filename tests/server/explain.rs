//! `jobs.explain` beside whatever changes: what it says is so in one snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use jobs_tests::{Client, SOON, count, insert, quiet, run, texts};

/// Runs statements again and again until it is told to stop, each a transaction.
fn repeat(
    client: Client,
    statements: &'static [&'static str],
    stop: Arc<AtomicBool>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            for sql in statements {
                run(&client, sql).await;
            }
        }
    })
}

/// What it says of a job, while that goes on, in many looks: as many as it takes to hear so many
/// different answers. The reasons that hold at once are joined.
async fn said(db: &Client, id: i64, different: usize) -> BTreeSet<String> {
    let sql = format!("select reason from jobs.explain({id}) where reason <> 'no worker'");
    let (mut said, begun) = (BTreeSet::new(), Instant::now());
    let mut looks = 0;
    while looks < 600 || said.len() < different && begun.elapsed() < SOON {
        said.insert(texts(db, &sql).await.join(", "));
        looks += 1;
    }
    said
}

fn set(reasons: &[&str]) -> BTreeSet<String> {
    reasons.iter().map(|reason| reason.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_says_is_so_in_one_snapshot() {
    let (cluster, db) = quiet("explain").await;
    // A queue that is at any moment either paused or full, and never both.
    run(&db, "select jobs.configure_queue('q', concurrency => 1)").await;
    insert(&db, "'runs', queue => 'q', timeout => '-1 second'").await;
    run(&db, "select jobs.fetch('q', lease => '1 day')").await;
    let waits = insert(&db, "'waits', queue => 'q'").await;
    let stop = Arc::new(AtomicBool::new(false));
    let other = cluster.connect("explain").await;
    let changes = repeat(
        other,
        &[
            "begin; select jobs.pause_queue('q'); select jobs.release(id, token) from jobs.jobs where state = 'running'; commit",
            "begin; select jobs.resume_queue('q'); select jobs.fetch('q', kinds => '{runs}', lease => '1 day'); commit",
        ],
        stop.clone(),
    );
    let found = said(&db, waits, 2).await;
    stop.store(true, Ordering::Relaxed);
    changes.await.unwrap();
    assert_eq!(
        found,
        set(&["queue limit", "queue paused"]),
        "and both were seen, which is the control"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_moves_is_always_somewhere() {
    let (cluster, db) = quiet("moves").await;
    let id = insert(&db, "'moves', queue => 'q', timeout => '-1 second'").await;
    let stop = Arc::new(AtomicBool::new(false));
    let moves = repeat(
        cluster.connect("moves").await,
        &[
            "select jobs.fetch('q', kinds => '{moves}', lease => '1 day')",
            "select jobs.release(id, token) from jobs.jobs where state = 'running'",
            "select jobs.update(min(id), scheduled_at => now() + interval '1 hour') from jobs.jobs",
            "select jobs.retry(min(id)) from jobs.jobs",
        ],
        stop.clone(),
    );
    // One that comes and goes with the same commit as another one that stays in front.
    let pairs = repeat(
        cluster.connect("moves").await,
        &[
            "select jobs.insert_batch('pair', '{1,2}', queue => 'q', priority => 0)",
            "select jobs.cancel_many(kind => 'pair')",
            "select jobs.delete_many(kind => 'pair')",
        ],
        stop.clone(),
    );
    let found = said(&db, id, 3).await;
    stop.store(true, Ordering::Relaxed);
    moves.await.unwrap();
    pairs.await.unwrap();
    let one_of = set(&["running", "scheduled", "next", "behind 2 jobs"]);
    assert!(found.is_subset(&one_of), "{found:?}");
    assert!(found.len() >= 3, "control: hardly anything moved: {found:?}");
    assert!(count(&db, "jobs.check()").await == 0);
}

/// What the server has forgotten when it is started anew is told by the jobs.
#[tokio::test]
async fn who_fetched_last_is_known_after_a_restart() {
    let (cluster, db) = quiet("fetched").await;
    insert(&db, "'done', queue => 'q'").await;
    run(&db, "select jobs.complete(id, token) from jobs.fetch('q')").await;
    let id = insert(&db, "'waits', queue => 'q'").await;
    run(&db, "update jobs.finished set attempted_at = attempted_at - interval '10 minutes'").await;
    let why = format!(
        "select concat_ws(': ', reason, regexp_replace(detail, ' since .*', ' since ..')) from jobs.explain({id})"
    );
    let next = "next: the next fetch from queue \"q\" returns it";
    assert_eq!(texts(&db, &why).await, [next], "as shared memory knows");
    drop(db);
    cluster.kill9();
    cluster.start_again();
    let db = cluster.connect("fetched").await;
    let nobody = "no worker: no worker has fetched from queue \"q\" since ..";
    assert_eq!(texts(&db, &why).await, [nobody, next]);
}
