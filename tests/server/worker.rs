//! The background worker: what it does by itself, and that it is in nobody's way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use jobs_tests::{
    Client, Cluster, Mode, SOON, becomes, comes_true, count, flood, history_is_written, insert, is,
    number, poll_until, promptly, quiet, rows_of, run, scalar, seconds, state, text, with,
    worker_goes_on, workers, workers_become,
};

#[tokio::test]
async fn schedules_rescues_expires_and_prunes() {
    let (_cluster, db) = with(
        "tasks",
        &[
            ("jobs.interval", "50ms"),
            ("jobs.retention_completed", "4s"),
            ("jobs.retention_cancelled", "-1"),
        ],
    )
    .await;

    let scheduled =
        insert(&db, "'scheduled', queue => 'later', scheduled_at => clock_timestamp() + '0.3 s'")
            .await;
    let expiring =
        insert(&db, "'expiring', queue => 'never', expires_at => clock_timestamp() + '0.3 s'")
            .await;
    let cancelled = insert(&db, "'cancelled', queue => 'never'").await;
    run(&db, &format!("select jobs.cancel({cancelled})")).await;
    let unique = insert(&db, "'unique', unique_opts => '{\"by_kind\": true}'").await;
    let held = insert(&db, "'held', max_attempts => 1").await;
    let rows =
        rows_of(&db, "select id, token from jobs.fetch(max_jobs => 2, lease => '4 s')").await;
    assert_eq!(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>(), [unique, held]);
    db.execute("select jobs.complete($1, $2)", &[&unique, &rows[0].get::<_, i64>(1)])
        .await
        .unwrap();
    assert_eq!(count(&db, "jobs.unique_claim").await, 1);

    becomes(&db, scheduled, "available").await;
    becomes(&db, expiring, "discarded").await;
    becomes(&db, held, "discarded").await;
    poll_until("it is pruned", SOON, async || state(&db, unique).await.is_none()).await;
    assert_eq!(count(&db, "jobs.unique_claim").await, 0, "its claim goes with it");
    assert_eq!(state(&db, cancelled).await.unwrap(), "cancelled", "-1 keeps for ever");

    let errors = rows_of(
        &db,
        "select job_id, attempt, error, details->>'type' from jobs.errors order by job_id",
    )
    .await;
    let of = |id: i64| errors.iter().find(|row| row.get::<_, i64>(0) == id).expect("an error");
    assert_eq!(of(expiring).get::<_, String>(2), "expired");
    assert_eq!(of(held).get::<_, String>(3), "lease_expired");
    assert_eq!(of(held).get::<_, i32>(1), 1);
}

#[tokio::test]
async fn timeout_and_lost_lease_are_told_apart() {
    let (_cluster, db) = with("timeouts", &[("jobs.interval", "50ms")]).await;
    let retry = r#"retry => '{"strategy": "constant", "initial": "PT1H"}'"#;
    let slow = insert(&db, &format!("'slow', timeout => '0.3 s', {retry}")).await;
    let token = number(&db, "select token from jobs.fetch(lease => '1 h')").await;
    becomes(&db, slow, "retryable").await;
    let kind = text(&db, "select details->>'type' from jobs.errors").await;
    assert_eq!(kind, "timeout");
    let late = db.execute("select jobs.complete($1, $2)", &[&slow, &token]).await.unwrap_err();
    let late = late.as_db_error().unwrap();
    assert_eq!((late.code().code(), late.detail()), ("55000", Some("lease_lost")));
}

/// The worker of a database in which nothing is due for long has gone: it must be called back for a
/// lease that is made shorter.
#[tokio::test]
async fn a_lease_that_a_heartbeat_makes_shorter_is_rescued_in_time() {
    let cluster = Cluster::builder().without_visits().start();
    let db = cluster.database("shorter").await;
    for heartbeat in [
        "select jobs.heartbeat(id, token, lease => '50 ms') from jobs.jobs where id = ",
        "select jobs.heartbeat_many(array[id], array[token], lease => '50 ms') from jobs.jobs where id = ",
    ] {
        let id = insert(&db, "'k', timeout => '-1', max_attempts => 1").await;
        let fetched = number(&db, "select id from jobs.fetch(lease => '1 hour')").await;
        assert_eq!(fetched, id);
        workers_become(&db, "shorter", 1).await;
        workers_become(&db, "shorter", 0).await;
        run(&db, &format!("{heartbeat}{id}")).await;
        becomes(&db, id, "discarded").await;
    }
}

/// A job that runs with a lease of a moment, and that is over once it is rescued.
async fn running(db: &Client) -> i64 {
    let id = insert(db, "'k', timeout => '-1', max_attempts => 1").await;
    let fetched = number(db, "select id from jobs.fetch(lease => '10 ms')").await;
    assert_eq!(fetched, id);
    id
}

/// A job whose lease is over, and that `holder` has locked in a transaction that stays open. Its
/// worker has sent a heartbeat with this lease since.
async fn locked_and_alive(db: &Client, holder: &Client, lease: &str) -> i64 {
    run(db, "select jobs.pause_maintenance()").await;
    let id = running(db).await;
    run(holder, &format!("begin; select jobs.cancel({id})")).await;
    let beat = format!(
        "select from jobs.jobs, jobs.heartbeat(id, token, lease => '{lease}') where id = {id}"
    );
    run(db, &beat).await;
    run(db, "select jobs.resume_maintenance()").await;
    id
}

#[tokio::test]
async fn an_open_transaction_takes_its_job_from_nobody_and_delays_no_rescue() {
    // An hour: nothing comes merely because an interval is over.
    let cluster = Cluster::builder().set("jobs.interval", "1h").without_visits().start();
    let db = cluster.database("open").await;
    let holder = cluster.connect("open").await;
    let goes_on = async |id| {
        let goes_on = format!("lease_expires_at > now() from jobs.jobs where id = {id}");
        is(&db, &goes_on).await
    };

    let id = locked_and_alive(&db, &holder, "1 hour").await;
    becomes(&db, running(&db).await, "discarded").await;
    assert!(!goes_on(id).await, "nobody can write it");
    run(&holder, "rollback").await;
    becomes(&db, running(&db).await, "discarded").await;
    assert!(goes_on(id).await);

    // A worker of which nothing more is heard.
    let id = locked_and_alive(&db, &holder, "300 ms").await;
    becomes(&db, running(&db).await, "discarded").await;
    assert_eq!(state(&db, id).await.as_deref(), Some("running"));
    let due = insert(&db, "'k', scheduled_at => clock_timestamp() + '1.5 s'").await;
    becomes(&db, due, "available").await;
    // Nothing else has the background worker look again.
    history_is_written(&db).await;
    run(&holder, "rollback").await;
    becomes(&db, id, "discarded").await;
}

/// A transaction has jobs locked that are due, and stays open. The worker overlooks nothing else
/// that becomes due, and looks again about once a second.
async fn locked_jobs_hide_nothing(direct_access: &str) {
    let cluster = Cluster::builder()
        .set("autovacuum", "off")
        .set("jobs.direct_access", direct_access)
        .set("jobs.interval", "1h")
        .without_visits()
        .start();
    let db = cluster.database("locked").await;
    let holder = cluster.connect("locked").await;
    // To read the leases takes a while, with dead rows that a snapshot keeps.
    let keeper = cluster.connect("locked").await;
    run(&keeper, "begin isolation level repeatable read; select count(*) from jobs.job").await;
    run(
        &db,
        "insert into jobs.running (job_id, token, attempted_at, lease_expires_at, attempt, worker)
         select -n, 0, now(), 'infinity', 1, 'w' from generate_series(1, 50000) n;
         delete from jobs.running where job_id < 0",
    )
    .await;
    // Commits keep the worker there, and wake it for nothing that is due: else it would leave, and
    // come back to look.
    let (over, client) = (Arc::new(AtomicBool::new(false)), cluster.connect("locked").await);
    let is_over = over.clone();
    let others = tokio::spawn(async move {
        while !is_over.load(Ordering::Relaxed) {
            run(&client, "select jobs.insert('other', queue => 'others')").await;
            seconds(0.2).await;
        }
    });
    let soon = "clock_timestamp() + '1 s'";
    run(&db, "select jobs.pause_maintenance()").await;
    let lost = running(&db).await;
    let late = insert(&db, &format!("'late', scheduled_at => {soon}")).await;
    let expiring = insert(&db, &format!("'expiring', expires_at => {soon}")).await;
    let locked = format!("unnest('{{{lost}, {late}, {expiring}}}'::bigint[])");
    run(&holder, &format!("begin; select jobs.cancel(id) from {locked} id")).await;
    // These come when the others are due already.
    let times = [3, 6].map(|n| format!("clock_timestamp() + '{n} s'"));
    let mut due = Vec::new();
    for at in &times {
        due.push(insert(&db, &format!("'due', scheduled_at => {at}")).await);
    }
    let leased = insert(&db, "'leased', timeout => '-1', max_attempts => 1").await;
    let fetched =
        number(&db, "select id from jobs.fetch(lease => '4 s', kinds => '{leased}')").await;
    assert_eq!(fetched, leased);
    run(&db, "select jobs.resume_maintenance()").await;
    becomes(&db, due[0], "available").await;
    let (before, begun) = (passes(&db).await, Instant::now());
    becomes(&db, leased, "discarded").await;
    becomes(&db, due[1], "available").await;
    // Statistics are up to a second late.
    seconds(3.0).await;
    let (passes, took) = (passes(&db).await - before, begun.elapsed());
    assert!(passes > 0, "control: they are counted");
    let most = 2 * took.as_secs() as i64 + 6;
    assert!(passes <= most, "{direct_access}: {passes} passes in {took:?}");
    assert_eq!(state(&db, lost).await.as_deref(), Some("running"));
    run(&holder, "rollback").await;
    becomes(&db, lost, "discarded").await;
    becomes(&db, late, "available").await;
    becomes(&db, expiring, "discarded").await;
    over.store(true, Ordering::Relaxed);
    others.await.expect("others insert");
}

#[tokio::test]
async fn locked_jobs_hide_nothing_directly() {
    locked_jobs_hide_nothing("on").await;
}

#[tokio::test]
async fn locked_jobs_hide_nothing_by_statement() {
    locked_jobs_hide_nothing("off").await;
}

#[tokio::test]
async fn what_becomes_due_all_the_time_is_dealt_with_together() {
    let (_cluster, db) = with("stream", &[]).await;
    workers_become(&db, "stream", 0).await;
    let before = passes(&db).await;
    let begun = Instant::now();
    run(&db, "select count(jobs.insert('x', scheduled_at => clock_timestamp() + '1 s' + n * interval '1 ms')) from generate_series(1, 3000) n").await;
    comes_true(&db, "count(*) = 0 from jobs.scheduled").await;
    let took = begun.elapsed().as_millis() as i64;
    // It hands in its statistics when it goes.
    workers_become(&db, "stream", 0).await;
    let passes = passes(&db).await - before;
    assert!(passes > 0, "control: they are counted");
    assert!(passes <= took / 50 + 10, "{passes} in {took} ms");
}

#[tokio::test]
async fn jobs_that_never_become_due_have_nobody_look_for_what_is_due() {
    let (_cluster, db) = with("looks", &[]).await;
    workers_become(&db, "looks", 0).await;
    let looks = async |insert: &str| {
        let before = looks(&db).await;
        for _ in 0..100 {
            run(&db, insert).await;
            seconds(0.02).await;
        }
        workers_become(&db, "looks", 0).await;
        let (looks, passes) = looks(&db).await;
        (looks - before.0, passes - before.1)
    };
    let (more, passes) = looks("select jobs.insert('x')").await;
    assert!(passes > 0, "control: they are counted");
    assert!(more <= passes, "{more} looks, {passes} passes");
    let expiring = "select jobs.insert('x', expires_at => clock_timestamp() + '1 h')";
    let (more, passes) = looks(expiring).await;
    assert!(more > passes, "control: {more} looks, {passes} passes");
}

/// How often workers looked for what is due next, and how many passes they made: each of both looks
/// at what expires.
async fn looks(db: &Client) -> (i64, i64) {
    let expires = "select idx_scan from pg_stat_user_indexes where indexrelname = 'ready_expires'";
    let passes = passes(db).await;
    (number(db, expires).await - passes, passes)
}

#[tokio::test]
async fn a_duplicate_wakes_nobody() {
    let cluster = Cluster::builder().without_visits().start();
    let db = cluster.database("twice").await;
    let unique = "'x', unique_opts => '{\"by_kind\": true}'";
    let id = insert(&db, unique).await;
    workers_become(&db, "twice", 1).await;
    history_is_written(&db).await;
    workers_become(&db, "twice", 0).await;
    assert_eq!(insert(&db, unique).await, id);
    seconds(1.0).await;
    assert_eq!(workers(&db, "twice").await, 0);
    insert(&db, "'x'").await;
    workers_become(&db, "twice", 1).await;
}

#[tokio::test]
async fn a_duplicate_that_has_a_job_due_earlier_wakes_the_worker() {
    let cluster = Cluster::builder().without_visits().start();
    let db = cluster.database("earlier").await;
    let policy = r#"{"by_kind": true, "on_conflict": {"update": {"scheduled": ["scheduled_at"]}}}"#;
    let due_in = |time| {
        format!("'x', unique_opts => '{policy}', scheduled_at => clock_timestamp() + '{time}'")
    };
    let id = insert(&db, &due_in("1 h")).await;
    workers_become(&db, "earlier", 1).await;
    workers_become(&db, "earlier", 0).await;
    assert_eq!(insert(&db, &due_in("0.5 s")).await, id);
    becomes(&db, id, "available").await;
}

/// Passes of workers so far: each looks once for claims to look at, and plans have no sequential
/// scans.
async fn passes(db: &Client) -> i64 {
    number(db, "select idx_scan from pg_stat_user_indexes where indexrelname = 'unique_note_due'")
        .await
}

#[tokio::test]
async fn does_not_block_drop_database() {
    let cluster =
        Cluster::builder().set("jobs.batch_size", 500).set("jobs.interval", "10ms").start();
    let postgres = cluster.connect("postgres").await;
    // Idle: connected, but nothing to do.
    let db = cluster.database("idle").await;
    insert(&db, "'x'").await;
    workers_become(&postgres, "idle", 1).await;
    drop(db);
    drop_database(&postgres, "idle").await;
    // Busy: in the middle of passing over a crowd of jobs.
    let db = cluster.database("busy").await;
    flood(&db, 100_000).await;
    comes_true(&db, "count(*) > 0 from jobs.ready").await;
    assert!(count(&db, "jobs.scheduled").await > 0, "still busy");
    drop(db);
    drop_database(&postgres, "busy").await;
}

/// DROP DATABASE gives others 5 seconds to go.
async fn drop_database(postgres: &Client, name: &str) {
    promptly(postgres, &format!("drop database {name}")).await;
    seconds(0.3).await;
    assert_eq!(workers(postgres, name).await, 0);
}

/// Names of databases are in the encoding of the database in which they were given.
#[tokio::test]
async fn a_database_whose_name_is_not_in_utf_8_is_in_nobodys_way() {
    let cluster = Cluster::start();
    let postgres = cluster.connect("postgres").await;
    promptly(&postgres, "create database latin encoding 'LATIN1' locale 'C' template template0")
        .await;
    let latin = cluster.connect("latin").await;
    promptly(&latin, "create database \"café\"").await;
    let name = "select count(*) from pg_database where datname like 'caf%' and octet_length(datname::text) = 4";
    assert_eq!(number(&latin, name).await, 1, "its last letter is one byte");
    let db = cluster.database("other").await;
    worker_goes_on(&db).await;
    promptly(&latin, "drop database \"café\"").await;
}

#[tokio::test]
async fn survives_drop_and_create_extension() {
    let (cluster, db) = with("churn", &[("jobs.interval", "10ms")]).await;
    for round in 0..15 {
        flood(&db, 200).await;
        let id =
            insert(&db, "'x', queue => 'own', scheduled_at => clock_timestamp() + '0.05 s'").await;
        if round % 3 == 0 {
            becomes(&db, id, "available").await;
        }
        // In one transaction, and in two: then a look for the extension may find what is gone a
        // moment later.
        let anew = match round % 2 {
            0 => "drop extension jobs; create extension jobs",
            _ => "begin; drop extension jobs; commit; create extension jobs",
        };
        run(&db, anew).await;
    }
    worker_goes_on(&db).await;
    assert!(!cluster.log().contains("maintenance failed"), "{}", cluster.log());
}

#[tokio::test]
async fn stops_at_once_while_busy() {
    let (cluster, db) = with("busy", &[("jobs.batch_size", "1000000")]).await;
    flood(&db, 200_000).await;
    // One statement that takes seconds: pg_stat_activity shows the worker in it.
    comes_true(&db, "count(*) = 1 from pg_stat_activity where backend_type = 'jobs worker' and datname = 'busy'
                and state = 'active' and query = 'schedule' and clock_timestamp() - xact_start > '50 ms'").await;
    cluster.set("jobs.enabled", "off");
    cluster.restart(Mode::Fast);
    let db = cluster.connect("busy").await;
    let ready = "select count(*) from jobs.ready";
    assert_eq!(number(&db, ready).await, 0, "it did not wait for its end");
    cluster.set("jobs.enabled", "on");
    cluster.reload();
    poll_until("all are ready", 2 * SOON, async || number(&db, ready).await == 200_000).await;
}

#[tokio::test]
async fn is_started_again_after_being_terminated() {
    let (cluster, db) = with("again", &[]).await;
    cluster.allow(2, "57P01 jobs (worker|launcher) .*FATAL:  terminating background worker");
    insert(&db, "'x'").await;
    workers_become(&db, "again", 1).await;
    let ended = count(&db, "(select pg_terminate_backend(pid) from pg_stat_activity where backend_type like 'jobs %') t").await;
    assert_eq!(ended, 2);
    worker_goes_on(&db).await;
}

/// A reload while the launcher begins does not reach it. Here no session reloads: only a launcher
/// that reads the configuration itself knows what it says.
#[tokio::test]
async fn the_launcher_begins_with_what_the_configuration_says() {
    let (cluster, db) = quiet("unheard").await;
    cluster.allow(1, "57P01 jobs launcher .*FATAL:  terminating background worker");
    let id = insert(&db, "'x', scheduled_at => clock_timestamp() + '0.1 s'").await;
    run(&db, "alter system set jobs.enabled = on").await;
    let launcher = "select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'jobs launcher') t";
    assert_eq!(number(&db, launcher).await, 1);
    becomes(&db, id, "available").await;
}

#[tokio::test]
async fn a_terminated_worker_is_woken_again_at_once() {
    let (cluster, db) = with("woken", &[]).await;
    cluster.allow(1, "57P01 jobs worker .*FATAL:  terminating background worker");
    insert(&db, "'x'").await;
    workers_become(&db, "woken", 1).await;
    run(
        &db,
        "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'jobs worker'",
    )
    .await;
    workers_become(&db, "woken", 0).await;
    insert(&db, "'x'").await;
    workers_become(&db, "woken", 1).await;
}

#[tokio::test]
async fn cancelling_an_idle_process_does_nothing() {
    let (_cluster, db) = with("cancelled", &[]).await;
    insert(&db, "'x'").await;
    workers_become(&db, "cancelled", 1).await;
    let pids = "select array_agg(pid order by pid)::text from pg_stat_activity where backend_type like 'jobs %'";
    let before = text(&db, pids).await;
    run(
        &db,
        "select pg_cancel_backend(pid) from pg_stat_activity where backend_type like 'jobs %'",
    )
    .await;
    seconds(0.5).await;
    let after = text(&db, pids).await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn ends_with_its_postmaster() {
    let (cluster, db) = with("orphans", &[]).await;
    insert(&db, "'x'").await;
    workers_become(&db, "orphans", 1).await;
    cluster.kill9();
    cluster.start_again();
    let db = cluster.connect("orphans").await;
    insert(&db, "'x'").await;
    workers_become(&db, "orphans", 1).await;
}

#[tokio::test]
async fn is_switched_off_while_it_has_work() {
    let (cluster, db) =
        with("busy", &[("jobs.batch_size", "100"), ("jobs.interval", "10ms")]).await;
    flood(&db, 50_000).await;
    comes_true(&db, "count(*) > 0 from jobs.ready").await;
    cluster.set("jobs.enabled", "off");
    cluster.reload();
    workers_become(&db, "busy", 0).await;
    assert!(count(&db, "jobs.scheduled").await > 0, "it stopped half-way");
}

#[tokio::test]
async fn databases_that_are_dropped_by_force_leave_room() {
    let cluster = Cluster::start();
    let postgres = cluster.connect("postgres").await;
    cluster.allow(
        u32::MAX,
        "57P01 (jobs worker|autovacuum worker|client backend churn[0-9]+).*FATAL:  terminating",
    );
    cluster.allow(u32::MAX, "3D000 jobs worker .*FATAL:  database .* does not exist");
    // More than there are slots in shared memory.
    let template = cluster.database("pattern").await;
    drop(template);
    for n in 0..260 {
        let name = format!("churn{n}");
        let copy = format!("create database {name} template pattern strategy file_copy");
        run(&postgres, &copy).await;
        let db = cluster.connect(&name).await;
        run(&db, "select jobs.installed()").await;
        drop(db);
        run(&postgres, &format!("drop database {name} with (force)")).await;
    }
    let db = cluster.database("last").await;
    worker_goes_on(&db).await;
}

#[tokio::test]
async fn idles_on_a_standby_and_works_after_promotion() {
    let (cluster, db) = quiet("failover").await;
    let id = insert(&db, "'x', scheduled_at => clock_timestamp() + '2 s'").await;
    let standby = cluster.standby();
    standby.set("jobs.enabled", "on");
    standby.reload();
    let replica = standby.connect("failover").await;
    poll_until("as asserted", SOON, async || state(&replica, id).await.is_some()).await;
    seconds(3.0).await;
    assert_eq!(state(&replica, id).await.unwrap(), "scheduled");
    assert_eq!(count(&replica, "pg_stat_activity where backend_type like 'jobs %'").await, 0);
    for call in [
        "select jobs.insert('x')",
        "select jobs.fetch()",
        "select jobs.cancel(1)",
        "select jobs.complete(1, 1)",
        "select jobs.maintain()",
    ] {
        assert_eq!(jobs_tests::sqlstate(replica.batch_execute(call).await), "25006", "{call}");
    }
    let key: String =
        scalar(&replica, "select jobs.unique_key('x', unique_opts => '{\"by_kind\": true}')").await;
    assert_eq!(key.len(), 64, "reading works on a standby");
    assert_eq!(number(&replica, "select scheduled from jobs.queues").await, 1);
    cluster.stop(Mode::Fast);
    standby.promote();
    becomes(&replica, id, "available").await;
}
