//! What would say that a job was lost or doubled does say so.

use std::time::Instant;

use jobs_tests::{Cluster, rng, run};

use jobs_tests::journal::{Fate, Pruning, differences, rivals};
use jobs_tests::load::{DATABASE, Load};

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn control_what_is_lost_or_doubled_is_found() {
    let cluster = Cluster::start();
    cluster.allow_violations();
    let db = cluster.database(DATABASE).await;
    let load = Load::begin_in(&db, &cluster, &mut rng(), 1, 1).await;
    load.resumed_since(Instant::now()).await;
    let mut ended = load.end(&db, Pruning::Nothing).await;
    ended.assert_right(&db, "control").await;
    // A job that its worker completed, and that is not replaced.
    let id = *ended.journal.completed.iter().next().unwrap();
    let journal = &mut ended.journal;
    for (doctor, says, undo) in [
        (
            "insert into public.done select * from public.done where job_id = $1",
            "was done 2 times",
            "delete from public.done where job_id = $1 and ctid = (select max(ctid) from public.done where job_id = $1)",
        ),
        (
            "create table public.aside as select * from public.done; delete from public.done where job_id = $1",
            "and was done 0 times",
            "insert into public.done select * from public.aside where job_id = $1",
        ),
        (
            "create table public.job as select * from jobs.job where id = $1; delete from jobs.job where id = $1",
            "is lost",
            "insert into jobs.job select * from public.job",
        ),
        (
            "insert into public.own values (-1)",
            "a row of its producer's: true, and a job: false",
            "delete from public.own where n = -1",
        ),
    ] {
        journal.wanted.insert(-1, Fate::Refused);
        run(&db, &doctor.replace("$1", &id.to_string())).await;
        let found = differences(&db, journal, Pruning::Nothing).await;
        assert!(found.iter().any(|one| one.contains(says)), "{says}: {found:?}");
        run(&db, &undo.replace("$1", &id.to_string())).await;
        assert_eq!(differences(&db, journal, Pruning::Nothing).await, [""; 0], "{undo}");
    }
    let row = db.query_one("select min((args->>'n')::bigint) from jobs.jobs", &[]).await.unwrap();
    let n: i64 = row.get(0);
    assert!(journal.with_own.insert(n));
    let found = differences(&db, journal, Pruning::Nothing).await;
    assert!(
        found.iter().any(|one| one.contains("producer's: false, and a job: true")),
        "{found:?}"
    );
    journal.with_own.remove(&n);
    // What was rolled back, and what nobody wanted.
    run(&db, r#"select jobs.insert('load', '{"n": -1}')"#).await;
    let found = differences(&db, journal, Pruning::Nothing).await;
    assert!(found.iter().any(|one| one.contains("Some(Refused)")), "{found:?}");
    // A second one under a key that lets in one at a time.
    assert_eq!(rivals(&db).await, [""; 0]);
    run(
        &db,
        r#"select jobs.insert('load', '{"alone": "x"}'), jobs.insert('load', '{"alone": "x"}')"#,
    )
    .await;
    assert_eq!(rivals(&db).await, ["key x has 2 jobs at once"]);
}
