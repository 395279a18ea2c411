//! Maintenance as operators see it: what the background worker writes down, what it does about what
//! fails, that it can be paused, and what jobs.health() says of other sessions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jobs_tests::{
    Client, Cluster, SOON, blocked, comes_true, history_is_written, insert, is, number, poll_until,
    promptly, run, scalar, seconds, sqlstate, state, texts, workers_become,
};

/// One transaction, also where it is several statements: none of them is seen before all are done.
async fn becomes_available(db: &Client, id: i64) {
    jobs_tests::becomes(db, id, "available").await;
}

/// A call that waits for nobody returns; one that does not is ended.
async fn returns(db: &Client, sql: &str) {
    run(db, "set statement_timeout = '60s'").await;
    run(db, sql).await;
    run(db, "reset statement_timeout").await;
}

/// A job of a queue of its own, due in half a second, is available in time: the worker goes on.
async fn worker_goes_on(db: &Client) {
    let id = insert(
        db,
        "'witness', queue => 'witness', scheduled_at => clock_timestamp() + '0.5 s'",
    )
    .await;
    becomes_available(db, id).await;
}

/// Refuses what the trigger is for.
const REFUSE: &str = "create or replace function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$";

/// How many log lines say that a task failed.
fn failures(cluster: &Cluster) -> usize {
    cluster.log().matches("maintenance task").count()
}

#[tokio::test]
async fn runs_are_written_down_only_where_there_was_something_to_do() {
    let cluster = Cluster::start();
    let db = cluster.database("ledger").await;
    run(
        &db,
        "select jobs.insert('x', scheduled_at => clock_timestamp() + '0.2 s')",
    )
    .await;
    comes_true(
        &db,
        "(rows_total, failures) = (1, 0) from jobs.maintenance where task = 'schedule'",
    )
    .await;
    // The others have run, and found nothing: that is known, but not written.
    comes_true(
        &db,
        "bool_and(last_run_at > clock_timestamp() - interval '1 minute' and rows = 0 and duration >= '0') from jobs.maintenance where task <> 'schedule'",
    )
    .await;
    assert!(is(&db, "count(last_run_at) = 1 from jobs.maintenance_task").await);
    // Nor are later runs of the task itself, as long as nothing is due.
    let written = "xmin::text from jobs.maintenance_task where task = 'schedule'";
    let before: String = scalar(&db, &format!("select {written}")).await;
    run(&db, "select jobs.installed()").await;
    comes_true(
        &db,
        "rows = 0 and rows_total = 1 from jobs.maintenance where task = 'schedule'",
    )
    .await;
    assert_eq!(
        before,
        scalar::<String>(&db, &format!("select {written}")).await
    );
    // In shared memory is the latest run of each task that found nothing; by now schedule has had
    // one as well.
    assert!(
        is(
            &db,
            "count(*) = (select count(*) from jobs.maintenance_task) from jobs.idle_runs()"
        )
        .await
    );
}

#[tokio::test]
async fn a_job_that_cannot_be_handled_stops_no_other() {
    let cluster = Cluster::builder().set("jobs.interval", "20ms").start();
    let db = cluster.database("poison").await;
    run(
        &db,
        "create function refuse() returns trigger language plpgsql as $$ begin
           if new.job_id = 3 then raise exception 'refused'; end if; return new; end $$;
         create trigger refuse before insert on jobs.ready for each row when (new.seq <> new.job_id) execute function refuse();
         select jobs.insert_batch('k', array_fill('1'::jsonb, array[5]), scheduled_at => clock_timestamp() + '0.3 s')",
    )
    .await;
    comes_true(&db, "count(*) = 4 from jobs.jobs where state = 'available'").await;
    comes_true(
        &db,
        "failures >= 1 and last_error = 'job 3: refused' from jobs.maintenance where task = 'schedule'",
    )
    .await;
    // What becomes due later does not wait for it either, nor do other tasks.
    run(
        &db,
        "select jobs.insert('later', scheduled_at => clock_timestamp() + '0.2 s');
         select jobs.insert('late', expires_at => clock_timestamp() + '0.2 s', queue => 'other')",
    )
    .await;
    comes_true(&db, "count(*) = 5 from jobs.jobs where state = 'available'").await;
    comes_true(&db, "count(*) = 1 from jobs.jobs where state = 'discarded'").await;
    assert!(
        is(
            &db,
            "count(*) = 1 from jobs.health() where finding = 'maintenance_failing'"
        )
        .await
    );
    // It is left alone for a minute, not tried with every pass.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(failures(&cluster) <= 2, "{}", cluster.log());
}

#[tokio::test]
async fn a_task_that_fails_stops_no_other_and_is_tried_again() {
    let cluster = Cluster::builder().set("jobs.interval", "20ms").start();
    let db = cluster.database("broken").await;
    run(
        &db,
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
         create trigger refuse before delete on jobs.answer for each statement execute function refuse();
         select jobs.insert('due', scheduled_at => clock_timestamp() + '0.3 s')",
    )
    .await;
    comes_true(&db, "count(*) = 1 from jobs.jobs where state = 'available'").await;
    comes_true(
        &db,
        "failures >= 2 and last_error = 'refused' and failures_total >= failures from jobs.maintenance where task = 'prune'",
    )
    .await;
    assert!(
        is(
            &db,
            "sum(failures) = 0 from jobs.maintenance where task <> 'prune'"
        )
        .await
    );
    // Less and less often.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let tries: i32 = scalar(
        &db,
        "select failures from jobs.maintenance where task = 'prune'",
    )
    .await;
    assert!((2..=6).contains(&tries), "{tries}");
    run(&db, "drop trigger refuse on jobs.answer").await;
    comes_true(
        &db,
        "failures = 0 and last_error = 'refused' from jobs.maintenance where task = 'prune'",
    )
    .await;
    assert!(is(&db, "count(*) = 0 from jobs.health()").await);
}

#[tokio::test]
async fn long_tables_are_counted_by_the_worker() {
    let cluster = Cluster::builder().set("jobs.interval", "20ms").start();
    let db = cluster.database("long").await;
    run(
        &db,
        "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[60000]), queue => 'a');
         select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[70000]), queue => 'b', priority => 5);
         select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[20000]), queue => 'b', scheduled_at => '2999-01-01 00:00Z')",
    )
    .await;
    comes_true(
        &db,
        "(count(*), sum(available), sum(scheduled), bool_and(counted_at is not null)) = (2, 130000, 20000, true) from jobs.queues",
    )
    .await;
    assert!(
        is(
            &db,
            "(available, scheduled, running, estimated) = (70000, 20000, 0, '{available,scheduled,pending,retryable}'::jobs.state[]) from jobs.queues where queue = 'b'"
        )
        .await
    );
    // The numbers of changes come from the server's statistics, which sessions hand in when they
    // like: once they have.
    let handed_in = "select pg_stat_force_next_flush()";
    let an_hour_ago = "update jobs.kept_count set counted_at = counted_at - interval '1 hour'";
    poll_until("what was inserted is in the statistics", SOON, async || {
        run(&db, handed_in).await;
        run(&db, an_hour_ago).await;
        run(&db, "select jobs.maintain()").await;
        is(
            &db,
            "count(*) = 2 and bool_and(k.changes = t.n_tup_ins + t.n_tup_del)
               from jobs.kept_count k join pg_stat_user_tables t on t.schemaname = 'jobs' and t.relname = k.place where k.counted_at is not null",
        )
        .await
    })
    .await;
    // While nothing changes it is not counted again, however long ago it was, neither by the worker
    // nor by hand.
    let worker_has_counted = "count(*) = 0 from pg_stat_activity where backend_type = 'jobs worker' and state = 'active'";
    comes_true(&db, worker_has_counted).await;
    run(&db, an_hour_ago).await;
    let counted = "select string_agg(k::text, ' ' order by place) from jobs.kept_count k where counted_at is not null";
    let before: String = scalar(&db, counted).await;
    run(&db, "select jobs.installed()").await;
    seconds(1.0).await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(before, scalar::<String>(&db, counted).await);
    // When something has changed, it is: only that table.
    run(
        &db,
        "select jobs.insert('k', queue => 'a', scheduled_at => '2999-01-01 00:00Z')",
    )
    .await;
    run(&db, handed_in).await;
    poll_until("it is counted again", SOON, async || {
        run(&db, "select jobs.maintain()").await;
        is(
            &db,
            "(available, scheduled) = (60000, 1) from jobs.queues where queue = 'a'",
        )
        .await
    })
    .await;
    let recounted = "array_agg(place) = '{scheduled}' from jobs.kept_count where counted_at > clock_timestamp() - interval '1 minute'";
    assert!(is(&db, recounted).await);
    // But not at once.
    comes_true(&db, worker_has_counted).await;
    let before: String = scalar(&db, counted).await;
    run(
        &db,
        "select jobs.insert('k', queue => 'a', scheduled_at => '2999-01-01 00:00Z')",
    )
    .await;
    run(&db, handed_in).await;
    seconds(1.0).await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(before, scalar::<String>(&db, counted).await);
}

#[tokio::test]
async fn of_very_many_queues_maintenance_keeps_what_is_asked_for() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("many").await;
    const QUEUES: i64 = 10_100;
    run(
        &db,
        &format!(
            "select count(jobs.insert('kind ' || n, queue => case n when 1 then '(others)' else 'queue ' || n end)) from generate_series(1, {QUEUES}) n;
             update jobs.job set created_at = created_at - interval '1 hour';
             select pg_stat_force_next_flush()"
        ),
    )
    .await;
    // Those that were not counted yet show as far as they are looked at.
    assert!(is(&db, "count(*) = 10000 from jobs.queues").await);
    let maintained = async |what: &str| {
        poll_until(what, SOON, async || {
            run(&db, "select jobs.maintain()").await;
            is(&db, what).await
        })
        .await;
    };
    maintained(&format!(
        "(count(*), sum(available)) = ({QUEUES}, {QUEUES}) from jobs.queues"
    ))
    .await;
    let one = "(available, running, estimated, counted_at is not null) = (1, 0, enum_range(null::jobs.state), true) and now() - oldest_available_at > '59 minutes'
        from jobs.queues where queue = 'queue 77'";
    assert!(is(&db, one).await);
    // One finding for all of them.
    let findings = "select finding from jobs.health() where finding in ('oldest_available', 'no_worker') and message ~ '^at least 1000 queues have .*; the worst: .*queue' order by 1";
    assert_eq!(
        texts(&db, findings).await,
        ["no_worker", "oldest_available"]
    );
    // By name as far as there is room, and nothing is left out of the sums.
    let metrics = |what: &str| format!("{what} from jobs.metrics() where ");
    let named = metrics("count(*) between 40000 and 50500") + "metric <> ''";
    assert!(is(&db, &named).await);
    let jobs = metrics(&format!(
        "sum(value) = {QUEUES} and bool_or(labels ->> 'queue' = '(others)')"
    ));
    for metric in ["jobs_queue_jobs", "jobs_kind_inserted_total"] {
        assert!(
            is(&db, &format!("{jobs} metric = '{metric}'")).await,
            "{metric}"
        );
    }
    let series = metrics("count(*) = count(distinct (metric, labels))") + "true";
    assert!(is(&db, &series).await);
    let unmeasured = metrics("count(*) = 0") + "metric ~ '^jobs_(wait|run)_seconds'";
    assert!(is(&db, &unmeasured).await);
    assert!(is(&db, "count(*) = 1001 from jobs.top()").await);
    // A queue has one row, whatever states its jobs are in, and only as long as it has jobs.
    run(
        &db,
        "select jobs.insert('later', queue => 'queue 77', scheduled_at => '2999-01-01 00:00Z'); select jobs.fetch('queue 77');
         select count(jobs.cancel(id)) from jobs.jobs where queue = 'queue 78';
         delete from jobs.ready where queue = 'queue 79'; delete from jobs.job where queue = 'queue 79'; select pg_stat_force_next_flush();
         update jobs.kept_count set counted_at = counted_at - interval '1 hour'",
    )
    .await;
    maintained(
        "array_agg((queue, available, scheduled, running, cancelled, oldest_available_at is null)::text order by queue)
         = '{\"(\\\"queue 77\\\",0,1,1,0,t)\",\"(\\\"queue 78\\\",0,0,0,1,t)\"}' from jobs.queues where queue in ('queue 77', 'queue 78', 'queue 79')",
    )
    .await;
    assert!(
        is(
            &db,
            &format!("count(*) = {QUEUES} - 1 from jobs.kept_queue")
        )
        .await
    );
    // Few again: they are counted right then.
    run(
        &db,
        "delete from jobs.ready where queue <> 'queue 77'; delete from jobs.finished; delete from jobs.job where queue <> 'queue 77'; select pg_stat_force_next_flush();
         update jobs.kept_count set counted_at = counted_at - interval '1 hour'",
    )
    .await;
    maintained("count(*) = 0 from jobs.kept_queue").await;
    assert!(
        is(
            &db,
            "count(*) = 1 and min(queue) = 'queue 77' from jobs.queues"
        )
        .await
    );
}

#[tokio::test]
async fn paused_it_does_nothing_and_resumed_it_goes_on_at_once() {
    let cluster = Cluster::start();
    let db = cluster.database("paused").await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(
        &db,
        "select jobs.insert('x', scheduled_at => clock_timestamp() + '0.1 s')",
    )
    .await;
    seconds(2.0).await;
    assert!(is(&db, "state = 'scheduled' from jobs.jobs").await);
    assert!(
        is(
            &db,
            "count(*) = 1 from jobs.health() where finding = 'maintenance_paused'"
        )
        .await
    );
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "state = 'available' from jobs.jobs").await;
    // Also over a crash.
    run(&db, "select jobs.pause_maintenance()").await;
    drop(db);
    cluster.restart(jobs_tests::Mode::Immediate);
    let db = cluster.connect("paused").await;
    run(
        &db,
        "select jobs.insert('y', scheduled_at => clock_timestamp() + '0.1 s')",
    )
    .await;
    seconds(2.0).await;
    assert!(is(&db, "count(*) = 1 from jobs.jobs where state = 'scheduled'").await);
}

async fn findings(db: &Client, arguments: &str, finding: &str) -> Vec<(String, String)> {
    let sql = format!("select severity, message from jobs.health({arguments}) where finding = $1");
    let rows = db.query(&sql, &[&finding]).await.expect(&sql);
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn health_says_who_keeps_an_old_snapshot() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("health").await;
    let arguments = "old_snapshot => '0.4 seconds'";
    assert_eq!(findings(&db, arguments, "old_snapshot").await, []);
    let reporter = cluster
        .connect_with(cluster.config().dbname("health").application_name("report"))
        .await;
    run(&reporter, "begin isolation level repeatable read; select 1").await;
    let pid: i32 = scalar(&reporter, "select pg_backend_pid()").await;
    let writer = cluster.connect("health").await;
    run(
        &writer,
        "begin; select jobs.insert('x'); prepare transaction 'in doubt'",
    )
    .await;
    // One in another database keeps nothing here.
    let elsewhere = cluster.connect("postgres").await;
    run(
        &elsewhere,
        "begin isolation level repeatable read; select 1",
    )
    .await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut found = findings(&db, arguments, "old_snapshot").await;
    found.sort();
    assert_eq!(found.len(), 2, "{found:?}");
    let (severity, message) = &found[0];
    assert_eq!(severity, "warning");
    assert!(message.contains(&format!("process {pid} ")), "{message}");
    assert!(
        message.contains("user postgres, report, idle in transaction"),
        "{message}"
    );
    assert!(
        found[1]
            .1
            .contains("transaction 'in doubt' of user postgres"),
        "{found:?}"
    );
    assert_eq!(findings(&db, "", "old_snapshot").await, []);
    assert_eq!(
        findings(&db, "old_snapshot => null", "old_snapshot").await,
        []
    );
    tokio::time::sleep(Duration::from_millis(500)).await;
    let found = findings(&db, "old_snapshot => '0.05 seconds'", "old_snapshot").await;
    assert!(
        found.iter().all(|(severity, _)| severity == "critical"),
        "{found:?}"
    );
    run(&reporter, "commit").await;
    run(&writer, "rollback prepared 'in doubt'").await;
    assert_eq!(findings(&db, arguments, "old_snapshot").await, []);
}

#[tokio::test]
async fn health_says_who_waits_for_whose_unique_key() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("waits").await;
    let insert = "select jobs.insert('x', unique_opts => '{\"by_kind\": true}')";
    let batch = "select jobs.insert_batch('x', array['{}'::jsonb], '{\"by_kind\": true}')";
    let holder = cluster
        .connect_with(cluster.config().dbname("waits").application_name("holder"))
        .await;
    let holder_pid: i32 = scalar(&holder, "select pg_backend_pid()").await;
    for waits_by in [insert, batch] {
        run(&holder, &format!("begin; {insert}")).await;
        let waiter = cluster.connect("waits").await;
        let pid: i32 = scalar(&waiter, "select pg_backend_pid()").await;
        let waiting = tokio::spawn(async move { waiter.batch_execute(waits_by).await });
        let arguments = "lock_wait => '0.1 seconds'";
        poll_until("somebody is seen waiting", SOON, async || {
            !findings(&db, arguments, "lock_wait").await.is_empty()
        })
        .await;
        let found = findings(&db, arguments, "lock_wait").await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "warning");
        assert!(
            found[0].1.starts_with(&format!("process {pid} ")),
            "{found:?}"
        );
        assert!(
            found[0].1.contains(&format!(
                "in a transaction that inserts unique jobs, for process {holder_pid} "
            )),
            "{found:?}"
        );
        assert_eq!(
            findings(&db, "lock_wait => '1 hour'", "lock_wait").await,
            []
        );
        run(&holder, "rollback").await;
        waiting.await.unwrap().unwrap();
        assert_eq!(findings(&db, arguments, "lock_wait").await, []);
        run(
            &db,
            "select jobs.cancel(id), jobs.delete(id) from jobs.jobs",
        )
        .await;
    }
    // Somebody who waits for something else is not meant.
    run(&holder, "begin; select pg_advisory_xact_lock(7)").await;
    let waiter = cluster.connect("waits").await;
    let waiting = tokio::spawn(async move {
        waiter
            .batch_execute("select pg_advisory_xact_lock(7)")
            .await
    });
    comes_true(&db, "count(*) = 1 from pg_locks where not granted").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        findings(&db, "lock_wait => '0.1 seconds'", "lock_wait").await,
        []
    );
    run(&holder, "rollback").await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn health_says_that_nobody_maintains_the_database() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("nobody").await;
    let only = async |part: &str| {
        let found = findings(&db, "", "worker_not_running").await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "critical");
        assert!(found[0].1.contains(part), "{found:?}");
    };
    only("jobs.enabled").await;
    cluster.set("jobs.enabled", "on");
    cluster.set("jobs.databases", "other");
    cluster.reload();
    comes_true(&db, "current_setting('jobs.databases') = 'other'").await;
    only("jobs.databases").await;
    cluster.set("jobs.databases", "");
    cluster.reload();
    comes_true(&db, "count(*) = 0 from jobs.health()").await;
    assert!(is(&db, "jobs.is_preloaded()").await);

    let cluster = Cluster::builder().without_preload().start();
    let db = cluster.database("alone").await;
    let found = findings(&db, "", "worker_not_running").await;
    assert!(found[0].1.contains("not preloaded"), "{found:?}");
    run(&db, "select jobs.maintain()").await;
    assert_eq!(findings(&db, "", "worker_not_running").await, []);
    assert!(is(&db, "not jobs.is_preloaded()").await);
    assert!(is(&db, "count(*) = 0 from jobs.idle_runs()").await);
    // The settings are there as well.
    let other = cluster.connect("alone").await;
    assert!(is(&other, "count(*) = 14 from jobs.settings").await);
}

/// Every task has run, the last one so many minutes ago.
async fn maintained(db: &Client, minutes: i32) {
    let moved = format!("last_run_at = clock_timestamp() - interval '{minutes} minutes'");
    run(
        db,
        &format!("select jobs.maintain(); update jobs.maintenance_task set {moved}"),
    )
    .await;
}

#[tokio::test]
async fn health_says_that_the_launcher_does_not_run() {
    // The server's own launcher of logical replication takes the only process.
    let cluster = Cluster::builder().set("max_worker_processes", 1).start();
    let db = cluster.database("starved").await;
    let found = async || findings(&db, "", "worker_not_running").await;
    let message = "the launcher of the background worker does not run";
    let critical = [("critical".to_string(), message.to_string())];
    assert_eq!(found().await, critical);
    maintained(&db, 9).await;
    assert_eq!(found().await, []);
    maintained(&db, 11).await;
    assert_eq!(found().await, critical);
}

#[tokio::test]
async fn health_says_that_no_worker_comes() {
    // The other process is the launcher's.
    let cluster = Cluster::builder().set("max_worker_processes", 2).start();
    let db = cluster.database("starved").await;
    let found = async || findings(&db, "", "worker_not_running").await;
    let message = "no background worker has come to this database for 5 minutes";
    let critical = [("critical".to_string(), message.to_string())];
    let launcher = "count(*) = 1 from pg_stat_activity where backend_type = 'jobs launcher'";
    comes_true(&db, launcher).await;
    // The server began so many minutes ago.
    let real = "alter function pg_catalog.pg_postmaster_start_time() rename to really_started";
    run(&db, real).await;
    let started = async |minutes: i32| {
        let sql = format!(
            "create or replace function pg_catalog.pg_postmaster_start_time() returns timestamptz
             language sql as $$ select clock_timestamp() - interval '{minutes} minutes' $$"
        );
        run(&db, &sql).await;
    };
    started(60).await;
    assert_eq!(found().await, [], "nothing is there to be maintained");
    maintained(&db, 4).await;
    assert_eq!(found().await, []);
    maintained(&db, 6).await;
    assert_eq!(found().await, critical);
    started(4).await;
    assert_eq!(found().await, [], "it may still come");
    // Where none has ever come, the oldest job has waited for it.
    started(60).await;
    insert(&db, "'x'").await;
    run(&db, "update jobs.maintenance_task set last_run_at = null").await;
    for (minutes, expected) in [(4, &[][..]), (6, &critical)] {
        let moved = format!("created_at = clock_timestamp() - interval '{minutes} minutes'");
        run(&db, &format!("update jobs.job set {moved}")).await;
        assert_eq!(found().await, expected);
    }
}

#[tokio::test]
async fn a_viewer_sees_everything_but_payload_on_a_standby() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("seen").await;
    run(
        &db,
        "create role clerk login; select jobs.grant_viewer('clerk');
         select jobs.insert('x', '{\"secret\": 1}', meta => '{\"secret\": 2}', unique_opts => '{\"by_args\": true}');
         select jobs.insert('y', '{\"secret\": 3}', queue => 'q');
         select jobs.complete(id, token, '{\"secret\": 4}') from jobs.fetch('q');
         select jobs.insert('z', '{\"secret\": 5}', queue => 'r');
         select jobs.heartbeat(id, token, progress => '{\"secret\": 6}') from jobs.fetch('r');
         select jobs.schedule('s', '@daily', 't', '{\"secret\": 7}', meta => '{\"secret\": 8}')",
    )
    .await;
    let standby = cluster.standby();
    let replica = standby.connect("seen").await;
    poll_until("it is there", SOON, async || {
        is(&replica, "count(*) = 1 from jobs.periodic").await
    })
    .await;
    let shown = "select string_agg(t::text, ' ') from (
        select row_to_json(v)::text from jobs.jobs v union all select row_to_json(v)::text from jobs.queues v
        union all select row_to_json(v)::text from jobs.workers v union all select row_to_json(v)::text from jobs.errors v
        union all select row_to_json(v)::text from jobs.unique_claims v union all select row_to_json(v)::text from jobs.periodic v
        union all select row_to_json(v)::text from jobs.maintenance v union all select row_to_json(v)::text from jobs.settings v
        union all select row_to_json(v)::text from jobs.health() v union all select row_to_json(v)::text from jobs.metrics() v) t";
    let all: String = scalar(&replica, shown).await;
    assert_eq!(
        all.matches("secret").count(),
        8,
        "control: the owner sees it"
    );
    run(&replica, "set role clerk").await;
    let seen: String = scalar(&replica, shown).await;
    assert!(!seen.contains("secret"), "{seen}");
    assert!(is(&replica, "count(*) = 3 from jobs.jobs where args is null").await);
}

#[tokio::test]
async fn what_operators_look_at_is_the_same_on_a_standby() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("looked").await;
    run(
        &db,
        "select jobs.define_kind('k', queue => 'q'), jobs.worker_beat('w', '{q}', 1), jobs.quiet_worker('w', 'deploy');
         insert into jobs.history_bucket (at, queue, kind, counts) select date_trunc('minute', now()) - interval '5 minutes', 'past', 'k', '{0,1}'",
    )
    .await;
    let id = insert(&db, "'k'").await;
    let standby = cluster.standby();
    let replica = standby.connect("looked").await;
    comes_true(&replica, "count(*) = 1 from jobs.jobs").await;
    for look in [
        format!("jobs.explain({id})"),
        format!("jobs.results('{{{id}}}')"),
        format!("jobs.show({id})"),
        "jobs.history('past')".into(),
        "jobs.audit".into(),
        "jobs.kinds".into(),
        "(select worker, command, commanded_by, command_reason, commanded_at, last_seen_at, queues from jobs.workers)"
            .into(),
    ] {
        let look = format!("select to_json(t)::text from {look} t order by 1");
        let there = texts(&db, &look).await;
        assert!(!there.is_empty(), "{look}");
        assert_eq!(texts(&replica, &look).await, there, "{look}");
    }
    for call in [
        "select jobs.worker_beat('w', '{q}', 1)",
        "select jobs.quiet_worker('v')",
        "select jobs.define_kind('l')",
    ] {
        assert_eq!(
            sqlstate(replica.batch_execute(call).await),
            "25006",
            "{call}"
        );
    }
}

/// Workers that came to a database within a while.
async fn workers_come(db: &Client, within: Duration) -> bool {
    let begun = Instant::now();
    let condition = "count(*) > 0 from pg_stat_activity where backend_type = 'jobs worker' and datname = current_database()";
    while begun.elapsed() < within {
        if is(db, condition).await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

#[tokio::test]
async fn jobs_that_are_kept_longer_are_not_looked_at_for_ever() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "1s")
        .start();
    let db = cluster.database("kept").await;
    let complete = async |queue: &str| {
        let sql = format!(
            "select jobs.insert('k', queue => '{queue}'); select jobs.complete(id, token) from jobs.fetch('{queue}')"
        );
        run(&db, &sql).await;
    };
    run(
        &db,
        "select jobs.configure_queue('audit', retention_completed => '-1 second');
         select jobs.configure_queue('hour', retention_completed => '1 hour')",
    )
    .await;
    for queue in ["audit", "hour", "mail"] {
        complete(queue).await;
    }
    let left =
        |queues: &str| format!("array_agg(queue order by queue) = '{{{queues}}}' from jobs.jobs");
    comes_true(&db, &left("audit,hour")).await;
    history_is_written(&db).await;
    // With nothing left to do the worker goes, and nobody sends for another one.
    poll_until("the worker goes", SOON, async || {
        !workers_come(&db, Duration::ZERO).await
            && is(&db, "count(*) = 0 from pg_stat_activity where backend_type = 'jobs worker' and datname = 'kept'").await
    })
    .await;
    assert!(
        !workers_come(&db, Duration::from_secs(8)).await,
        "it comes back for nothing"
    );
    // What finishes later is pruned in time.
    complete("mail").await;
    complete("mail").await;
    comes_true(&db, &left("audit,hour")).await;
    // What is set anew takes effect on what was passed over.
    run(
        &db,
        "select jobs.configure_queue('audit', retention_completed => '0.1 s')",
    )
    .await;
    comes_true(&db, &left("hour")).await;
    run(&db, "select jobs.configure_queue('hour')").await;
    comes_true(&db, "count(*) = 0 from jobs.jobs").await;
}

#[tokio::test]
async fn rounds_of_a_backlog_do_not_each_walk_over_what_is_kept_on() {
    const KEPT: i64 = 2000;
    const BACKLOG: i64 = 1000;
    let cluster = Cluster::builder()
        .set("jobs.batch_size", 100)
        .set("jobs.retention_completed", "1s")
        .start();
    let db = cluster.database("backlog").await;
    run(&db, "select jobs.pause_maintenance()").await;
    // Those that their own window keeps became final before all others. No two did so in one
    // moment.
    run(
        &db,
        &format!(
            "select count(jobs.insert('k', to_jsonb(n), unique_opts => '{{\"by_args\": true, \"window\": \"30 days\"}}')) from generate_series(1, {KEPT}) n;
             select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[{BACKLOG}]));
             select count(jobs.complete(id, token)) from jobs.fetch('default', {KEPT} + {BACKLOG});
             update jobs.finished set finalized_at = now() + job_id * interval '1 us'"
        ),
    )
    .await;
    seconds(1.2).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, &format!("count(*) = {KEPT} from jobs.finished")).await;
    workers_become(&db, "backlog", 0).await;
    let walked =
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'finished_by_age'";
    let walked = number(&db, walked).await;
    assert!(
        walked >= KEPT + BACKLOG,
        "control: they are counted: {walked}"
    );
    // Each a few times: when it is dealt with, and until its entry is known to be dead.
    assert!(
        walked < 5 * (KEPT + BACKLOG),
        "{walked} entries in thirty rounds"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_counted_at_one_moment() {
    const JOBS: i64 = 2000;
    let cluster = Cluster::start();
    let db = cluster.database("moment").await;
    run(
        &db,
        &format!("select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{JOBS}]), queue => 'q')"),
    )
    .await;
    let done = Arc::new(AtomicBool::new(false));
    let mut movers = Vec::new();
    for _ in 0..4 {
        let (mover, done) = (cluster.connect("moment").await, done.clone());
        movers.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let rows = mover
                    .query("select id, token from jobs.fetch('q', 200)", &[])
                    .await
                    .unwrap();
                let column = |n| rows.iter().map(|row| row.get(n)).collect::<Vec<i64>>();
                let back = "select jobs.release(id, token) from unnest($1::bigint[], $2::bigint[]) t(id, token)";
                mover.query(back, &[&column(0), &column(1)]).await.unwrap();
            }
        }));
    }
    let sql = "select available, running, (available + scheduled + pending + running + retryable + completed + cancelled + discarded), estimated = '{}'
                 from jobs.queues where queue = 'q'";
    comes_true(&db, "running > 0 from jobs.queues where queue = 'q'").await;
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for _ in 0..200 {
        let row = db.query_one(sql, &[]).await.unwrap();
        let (available, running, all): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        assert!(row.get::<_, bool>(3), "all of it is exact");
        seen.insert(running);
        if all != JOBS {
            wrong.push((available, running, all));
        }
    }
    done.store(true, Ordering::Relaxed);
    for mover in movers {
        mover.await.unwrap();
    }
    assert!(seen.len() > 2, "control: they move meanwhile: {seen:?}");
    assert!(wrong.is_empty(), "available, running, all: {wrong:?}");
}

#[tokio::test]
async fn what_is_busy_and_what_fails_together_keep_nobody_running_in_circles() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "1s")
        .start();
    let db = cluster.database("circles").await;
    run(&db, REFUSE).await;
    run(
        &db,
        "create trigger refuse before delete on jobs.answer for each row execute function public.refuse()",
    )
    .await;
    let old = insert(&db, "'k', unique_opts => '{\"by_kind\": true}'").await;
    run(&db, "select jobs.complete(id, token) from jobs.fetch()").await;
    // The claim is busy before the job is past its retention.
    let holder = cluster.connect("circles").await;
    run(
        &holder,
        "begin; select jobs.insert('k', unique_opts => '{\"by_kind\": true, \"by_state\": [\"available\", \"pending\", \"running\", \"scheduled\", \"retryable\"]}')",
    )
    .await;
    run(
        &db,
        "insert into jobs.answer (job_id, token, at, state) values (1, 1, now() - interval '2 hours', 'available')",
    )
    .await;
    run(&db, "select jobs.installed()").await;
    seconds(2.0).await;
    let worker = "select max(pid)::bigint from pg_stat_activity where backend_type = 'jobs worker' and datname = 'circles'";
    worker_goes_on(&db).await;
    let failed = "select failures_total from jobs.maintenance where task = 'prune'";
    let warnings = || {
        let log = cluster.log();
        let lines = log.lines();
        lines
            .filter(|line| line.contains(" jobs worker ") && line.contains("WARNING"))
            .count()
    };
    let (failed_before, logged_before) = (number(&db, failed).await, warnings());
    let pid = number(&db, worker).await as u32;
    let cpu = cluster.cpu_of(pid);
    seconds(3.0).await;
    let used = cluster.cpu_of(pid) - cpu;
    seconds(2.0).await;
    let (failed, logged) = (number(&db, failed).await, warnings());
    assert!(used < Duration::from_millis(500), "{used:?} in 3 s");
    assert!(failed > 0 && logged > 0, "control: it fails");
    assert!(
        failed - failed_before <= 10,
        "{failed_before}, then {failed}"
    );
    assert!(
        logged - logged_before <= 20,
        "{logged_before}, then {logged}"
    );
    worker_goes_on(&db).await;
    let by_hand = cluster.connect("circles").await;
    returns(&by_hand, "select jobs.maintain()").await;
    assert_eq!(state(&db, old).await.as_deref(), Some("completed"));
    // With both out of the way it is done; what the worker has failed at, it leaves alone for a
    // minute.
    run(&holder, "rollback").await;
    run(&db, "drop trigger refuse on jobs.answer").await;
    poll_until("it is done by hand", SOON, async || {
        run(&by_hand, "select jobs.maintain()").await;
        is(
            &db,
            "not exists (select from jobs.answer) and not exists (select from jobs.finished)",
        )
        .await
    })
    .await;
}

#[tokio::test]
async fn what_is_busy_is_passed_over_and_pruned_once_it_is_not() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "1s")
        .start();
    let db = cluster.database("busy").await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(
        &db,
        "select jobs.configure_queue('kept', retention_completed => '-1 second');
         select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 2000) n), '{\"by_args\": true}', queue => 'old');
         select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[300]), queue => 'kept')",
    )
    .await;
    let complete = |queue: &str, jobs: i32| {
        format!(
            "with f as materialized (select id, token from jobs.fetch('{queue}', {jobs}))
             select count(*) from jobs.complete_many(array(select id from f), array(select token from f))"
        )
    };
    // Among the others in the order in which they became final.
    let (completing, locker) = (cluster.connect("busy").await, cluster.connect("busy").await);
    for n in 0..20 {
        run(&db, &complete("old", if n == 0 { 90 } else { 100 })).await;
        run(&db, &complete("kept", 15)).await;
        if n == 7 {
            run(&completing, "begin").await;
            run(&completing, &complete("old", 10)).await;
        }
    }
    run(
        &locker,
        "begin; select from jobs.finished f join jobs.job j on j.id = f.job_id where j.queue = 'old' and f.job_id % 7 = 0 for update of f",
    )
    .await;
    // Until the retention is over.
    seconds(1.2).await;
    let finished = |queue: &str| {
        format!(
            "count(*) from jobs.finished f join jobs.job j on j.id = f.job_id where j.queue = '{queue}'"
        )
    };
    let old = number(&db, &format!("select {}", finished("old"))).await;
    assert_eq!(old, 1990, "all but those that are just completed");
    let locked = format!("select {} and f.job_id % 7 = 0", finished("old"));
    let locked = number(&db, &locked).await;
    assert!(locked > 250, "control: {locked} are locked");
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, &format!("(select {}) = {locked}", finished("old"))).await;
    let claims = "select count(*) from jobs.unique_claim";
    assert_eq!(number(&db, claims).await, locked + 10);
    run(&completing, "commit").await;
    run(&locker, "rollback").await;
    comes_true(&db, &format!("(select {}) = 0", finished("old"))).await;
    comes_true(&db, "count(*) = 0 from jobs.unique_claim").await;
    assert_eq!(number(&db, "select count(*) from jobs.job").await, 300);
    assert_eq!(
        number(&db, &format!("select {}", finished("kept"))).await,
        300
    );
}

#[tokio::test]
async fn a_job_that_gets_a_queue_where_it_is_kept_while_it_is_pruned_is_kept() {
    let cluster = Cluster::builder()
        .set("jobs.enabled", "off")
        .set("jobs.retention_completed", "3s")
        // Statements skip what is locked, and so wait for nobody.
        .set("jobs.direct_access", "on")
        .start();
    let db = cluster.database("kept").await;
    let update = |queue: &str| {
        format!(
            "select jobs.insert('last', queue => '{queue}', unique_opts => '{{\"by_state\": [\"completed\"], \"on_conflict\": {{\"update\": {{\"completed\": [\"queue\"]}}}}}}')"
        )
    };
    // The last one of more than are deleted at a time; a row of the first of these is locked.
    run(
        &db,
        &format!(
            "select jobs.configure_queue('kept', retention_completed => '1 day');
             select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[300]), queue => 'old'); {};
             select jobs.complete(id, token) from jobs.fetch('old', 301)",
            update("old")
        ),
    )
    .await;
    let (locker, pruner) = (cluster.connect("kept").await, cluster.connect("kept").await);
    let updater = cluster.connect("kept").await;
    run(&updater, &format!("begin; {}", update("kept"))).await;
    // Until the retention is over.
    seconds(3.1).await;
    run(
        &locker,
        "begin; select from jobs.job where id = (select min(id) from jobs.job) for update",
    )
    .await;
    let pruning = tokio::spawn(async move {
        number(
            &pruner,
            "select rows from jobs.maintain() where task = 'prune'",
        )
        .await
    });
    blocked(&db, 1).await;
    run(&updater, "commit").await;
    run(&locker, "commit").await;
    assert_eq!(pruning.await.expect("the pruner"), 300);
    let left = "select count(*) from jobs.jobs where kind = 'last' and queue = 'kept' and state = 'completed'";
    assert_eq!(number(&db, left).await, 1);
    assert_eq!(number(&db, "select count(*) from jobs.job").await, 1);
}

#[tokio::test]
async fn a_transaction_of_maintenance_handles_no_more_rows_than_the_batch_size_in_all_queues() {
    let cluster = Cluster::builder()
        .set("jobs.batch_size", 60)
        .set("jobs.retention_completed", "1s")
        .set("jobs.retention_discarded", "1s")
        .start();
    let db = cluster.database("batches").await;
    run(&db, "select jobs.pause_maintenance()").await;
    // 50 queues, one of which has most of the jobs; half of all expires before it is due.
    run(
        &db,
        "select count(jobs.insert('k', queue => 'q' || least(n, 50), scheduled_at => clock_timestamp() + '3 s')) from generate_series(1, 400) n;
         select count(jobs.insert('k', queue => 'never', expires_at => clock_timestamp() + '3 s')) from generate_series(1, 100);
         select count(jobs.insert('k', queue => 'never', scheduled_at => '2999-01-01Z', expires_at => clock_timestamp() + '3 s')) from generate_series(1, 100);
         select count(jobs.configure_queue('own' || n, retention_completed => '1 s')) from generate_series(1, 20) n;
         select count(jobs.insert('k', queue => 'own' || n)) from generate_series(1, 20) n, generate_series(1, 10);
         select count(jobs.insert('k', queue => 'default')) from generate_series(1, 100);
         select count(jobs.complete(f.id, f.token)) from unnest(array(select distinct queue from jobs.jobs where state = 'available' and queue <> 'never')) q, jobs.fetch(q, 100) f",
    )
    .await;
    assert_eq!(number(&db, "select count(*) from jobs.finished").await, 300);
    for (table, event) in [("ready", "insert"), ("finished", "insert or delete")] {
        log_rows(&db, table, event, "tg_table_name || ' ' || tg_op").await;
    }
    seconds(3.1).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "count(*) = 1100 from public.log").await;
    for (what, rows) in [
        ("ready INSERT", 400),
        ("finished INSERT", 200),
        ("finished DELETE", 500),
    ] {
        let of = format!("from public.log where what = '{what}'");
        assert_eq!(number(&db, &format!("select count(*) {of}")).await, rows);
        let most = format!("select max(n) from (select count(*) n {of} group by xid) t");
        let most = number(&db, &most).await;
        assert!(most <= 60, "{what}: {most} rows in one transaction");
    }
}

/// Notes from now on in which transactions rows of a table come or go: in `public.log`, in their
/// order. Jobs that are to come later are due seconds after they are inserted: on a machine that
/// stands still for a moment a shorter time may be over by then.
async fn log_rows(db: &Client, table: &str, event: &str, what: &str) {
    run(
        db,
        &format!(
            "create table if not exists public.log (n serial, what text, xid xid8 default pg_current_xact_id());
             create or replace function public.log() returns trigger language plpgsql as $$ begin
               insert into public.log (what) select {what} from (select coalesce(new, old) row) t; return null; end $$;
             create trigger log after {event} on jobs.{table} for each row execute function public.log()"
        ),
    )
    .await;
}

/// How many rows of a kind the first transactions of the log have, how many all rows together.
async fn in_the_first(db: &Client, transactions: i32, what: &str) -> (i64, i64) {
    let sql = format!(
        "select count(*) filter (where what = '{what}'), count(*) from public.log
          where xid in (select xid from public.log group by xid order by min(n) limit {transactions})"
    );
    let row = db.query_one(&sql, &[]).await.expect(&sql);
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn queues_share_what_a_transaction_of_maintenance_handles() {
    let cluster = Cluster::builder().set("jobs.batch_size", 60).start();
    let db = cluster.database("shares").await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(
        &db,
        "select count(jobs.insert('k', queue => 'a', scheduled_at => clock_timestamp() + '3 s')) from generate_series(1, 600);
         select count(jobs.insert('k', queue => 'b', scheduled_at => clock_timestamp() + '3 s')) from generate_series(1, 10)",
    )
    .await;
    log_rows(&db, "ready", "insert", "(row).queue").await;
    seconds(3.1).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "count(*) = 610 from public.log").await;
    // What b does not need of its half is not lost.
    assert_eq!(in_the_first(&db, 1, "b").await, (10, 60));
}

#[tokio::test]
async fn where_more_queues_have_due_jobs_than_fit_a_transaction_each_gets_its_turn() {
    for direct_access in ["on", "off"] {
        let cluster = Cluster::builder()
            .set("jobs.batch_size", 5)
            .set("jobs.direct_access", direct_access)
            .start();
        let db = cluster.database("turns").await;
        run(&db, "select jobs.pause_maintenance()").await;
        run(
            &db,
            "select count(jobs.insert('k', queue => 'q' || q, scheduled_at => clock_timestamp() + '3 s')) from generate_series(1, 8) q, generate_series(1, 20)",
        )
        .await;
        log_rows(&db, "ready", "insert", "(row).queue").await;
        seconds(3.1).await;
        run(&db, "select jobs.resume_maintenance()").await;
        comes_true(&db, "count(*) = 160 from public.log").await;
        // Another queue is first in each; the eighth is among the first five of the fourth at the
        // latest.
        for queue in 1..=8 {
            let (reached, all) = in_the_first(&db, 4, &format!("q{queue}")).await;
            assert!(reached > 0, "q{queue}, direct access {direct_access}");
            assert_eq!(all, 20);
        }
    }
}

#[tokio::test]
async fn neither_answers_nor_other_states_keep_final_jobs_from_being_pruned() {
    let cluster = Cluster::builder()
        .set("jobs.batch_size", 60)
        .set("jobs.retention_completed", "1s")
        .set("jobs.retention_discarded", "1s")
        .start();
    let db = cluster.database("states").await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(
        &db,
        "select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[600]), queue => 'c');
         select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[5]), queue => 'd');
         select count(jobs.complete(id, token)) from jobs.fetch('c', 600);
         select count(jobs.fail(id, token, 'e', retryable => false)) from jobs.fetch('d', 5);
         insert into jobs.answer (job_id, token, at, state) select n, n, now() - interval '2 hours', 'available' from generate_series(1000001, 1000600) n",
    )
    .await;
    log_rows(&db, "finished", "delete", "(row).state").await;
    log_rows(&db, "answer", "delete", "(row).state").await;
    seconds(1.2).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "count(*) = 1205 from public.log").await;
    // Another state is first in each.
    assert_eq!(in_the_first(&db, 3, "discarded").await, (5, 180));
    // Answers have half of it.
    assert_eq!(in_the_first(&db, 3, "available").await, (90, 180));
}

#[tokio::test]
async fn a_job_that_cannot_be_handled_keeps_no_queue_waiting() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.batch_size", 500)
        .start();
    let db = cluster.database("queues").await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(&db, REFUSE).await;
    let poisoned = insert(
        &db,
        "'k', queue => 'z', scheduled_at => clock_timestamp() + '0.1 s'",
    )
    .await;
    run(
        &db,
        &format!(
            "create trigger refuse before insert on jobs.ready for each row when (new.job_id = {poisoned}) execute function public.refuse();
             select count(jobs.insert('k', queue => 'a', scheduled_at => clock_timestamp() + '0.1 s')) from generate_series(1, 1000);
             select count(jobs.insert('k', queue => 'm', scheduled_at => clock_timestamp() + '0.1 s')) from generate_series(1, 5)"
        ),
    )
    .await;
    seconds(0.2).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(
        &db,
        "count(*) = 5 from jobs.jobs where queue = 'm' and state = 'available'",
    )
    .await;
    comes_true(&db, &format!(
            "count(*) = 1 from jobs.maintenance where task = 'schedule' and last_error = 'job {poisoned}: refused'"
        ),
    )
    .await;
    comes_true(
        &db,
        "count(*) = 1000 from jobs.jobs where queue = 'a' and state = 'available'",
    )
    .await;
}

#[tokio::test]
async fn a_final_job_that_cannot_be_pruned_keeps_no_other_state_waiting() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "1s")
        .set("jobs.retention_discarded", "1s")
        .start();
    let db = cluster.database("unprunable").await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(&db, REFUSE).await;
    let poisoned = insert(&db, "'k', queue => 'd', max_attempts => 1").await;
    run(
        &db,
        &format!(
            "select jobs.fail(id, token, 'e') from jobs.fetch('d');
             select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[1000]), queue => 'c');
             select count(jobs.complete(id, token)) from jobs.fetch('c', 1000);
             create trigger refuse before delete on jobs.finished for each row when (old.job_id = {poisoned}) execute function public.refuse()"
        ),
    )
    .await;
    seconds(1.2).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, &format!(
            "count(*) = 1 from jobs.maintenance where task = 'prune' and last_error = 'job {poisoned}: refused'"
        ),
    )
    .await;
    comes_true(&db, "count(*) = 1 from jobs.finished").await;
}

#[tokio::test]
async fn pruning_waits_for_nobody_who_has_an_answer_locked() {
    let cluster = Cluster::builder()
        .set("jobs.enabled", "off")
        .set("jobs.retention_completed", "1s")
        .start();
    let db = cluster.database("answers").await;
    let id = insert(&db, "'k'").await;
    run(&db, "select jobs.release(id, token) from jobs.fetch()").await;
    run(&db, "select jobs.complete(id, token) from jobs.fetch()").await;
    assert_eq!(number(&db, "select count(*) from jobs.answer").await, 1);
    let locker = cluster.connect("answers").await;
    run(&locker, "begin; delete from jobs.answer").await;
    seconds(1.2).await;
    returns(&db, "select jobs.maintain()").await;
    assert_eq!(state(&db, id).await, None);
    assert!(is(&db, "count(*) = 0 from jobs.check()").await);
    // Nobody can ask for it any more; its age gets it.
    run(&locker, "rollback").await;
    run(
        &db,
        "update jobs.answer set at = at - interval '2 hours'; select jobs.maintain()",
    )
    .await;
    assert_eq!(number(&db, "select count(*) from jobs.answer").await, 0);
}

#[tokio::test]
async fn keys_that_somebody_is_at_work_on_keep_nothing_else_from_being_cleared_away() {
    let cluster = Cluster::builder()
        .set("jobs.enabled", "off")
        .set("jobs.batch_size", 5)
        .start();
    let db = cluster.database("busy_keys").await;
    run(
        &db,
        "select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 20) n), '{\"by_args\": true}');
         insert into jobs.unique_note (key, kind, seq, due_at) select key, 'o', nextval('jobs.job_seq'), now() from jobs.unique_claim;
         insert into jobs.unique_note (key, kind, seq, job_id, due_at) select sha256('\\x'), 'h', n, n, now() from generate_series(1000001, 1000020) n",
    )
    .await;
    let locker = cluster.connect("busy_keys").await;
    run(&locker, "begin; select from jobs.unique_claim for update").await;
    for _ in 0..20 {
        returns(&db, "select jobs.maintain()").await;
    }
    assert_eq!(
        number(
            &db,
            "select count(*) from jobs.unique_note where kind = 'h'"
        )
        .await,
        0
    );
    assert_eq!(
        number(
            &db,
            "select count(*) from jobs.unique_note where kind = 'o'"
        )
        .await,
        20
    );
    run(&locker, "rollback").await;
    returns(&db, "select jobs.maintain()").await;
    assert_eq!(
        number(
            &db,
            "select count(*) from jobs.unique_note where kind = 'o'"
        )
        .await,
        0
    );
}

#[tokio::test]
async fn what_begins_and_ends_in_one_transaction_while_others_are_pruned_is_pruned_in_time() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "1s")
        // Statements skip what is locked, and so wait for nobody.
        .set("jobs.direct_access", "on")
        .start();
    let db = cluster.database("late").await;
    run(&db, "select jobs.pause_maintenance()").await;
    // More than are looked at together.
    run(
        &db,
        "select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[300]), queue => 'early')",
    )
    .await;
    let complete =
        |queue: &str| format!("select jobs.complete(id, token) from jobs.fetch('{queue}', 300)");
    run(&db, &complete("early")).await;
    let late = cluster.connect("late").await;
    run(&late, "begin").await;
    let id = insert(&late, "'k', queue => 'late'").await;
    run(&late, &complete("late")).await;
    let locker = cluster.connect("late").await;
    run(
        &locker,
        "begin; select from jobs.job where id = (select min(id) from jobs.job) for update",
    )
    .await;
    // Until the retention is over.
    seconds(1.2).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(
        &db,
        "count(*) > 0 from pg_stat_activity where backend_type = 'jobs worker' and datname = 'late' and wait_event_type = 'Lock'",
    )
    .await;
    run(&late, "commit").await;
    run(&locker, "rollback").await;
    comes_true(&db, "count(*) = 0 from jobs.finished").await;
    assert_eq!(state(&db, id).await, None);
}

/// Jobs that are past their retention by the time that somebody has locked their table, and keeps
/// it.
async fn locked_past_retention(cluster: &Cluster, db: &Client, database: &str) -> Client {
    run(
        db,
        "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[30]), queue => 'old')",
    )
    .await;
    let locker = cluster.connect(database).await;
    run(
        db,
        "select jobs.complete(id, token) from jobs.fetch('old', 30)",
    )
    .await;
    run(&locker, "begin; lock table jobs.finished in share mode").await;
    let left = "select count(*) from jobs.finished";
    assert_eq!(
        number(db, left).await,
        30,
        "none was pruned before the lock"
    );
    // Until the retention is over, and a little more.
    seconds(6.5).await;
    assert_eq!(number(db, left).await, 30, "nor under it");
    locker
}

#[tokio::test]
async fn a_locked_table_delays_only_what_needs_it() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "5s")
        .start();
    let db = cluster.database("locked").await;
    let locker = locked_past_retention(&cluster, &db, "locked").await;
    worker_goes_on(&db).await;
    // Again, wherever it was by now.
    seconds(1.0).await;
    worker_goes_on(&db).await;
    run(&locker, "commit").await;
    // None of them is something that a task has failed at and leaves alone.
    comes_true(&db, "count(*) = 0 from jobs.finished").await;
}

#[tokio::test]
async fn who_keeps_others_from_writing_claims_delays_only_unique_jobs() {
    let cluster = Cluster::builder().set("jobs.interval", "50ms").start();
    let db = cluster.database("claims").await;
    // With a key of its own each second.
    run(
        &db,
        "select jobs.schedule('tick', 'every 1 second', 'tick', unique_opts => '{\"by_period\": 1}')",
    )
    .await;
    comes_true(&db, "count(*) > 0 from jobs.jobs where kind = 'tick'").await;
    // As CREATE INDEX does.
    let locker = cluster.connect("claims").await;
    run(&locker, "begin; lock table jobs.unique_claim in share mode").await;
    let ticks = number(&db, "select count(*) from jobs.jobs where kind = 'tick'").await;
    seconds(2.5).await;
    worker_goes_on(&db).await;
    seconds(1.0).await;
    worker_goes_on(&db).await;
    let of = "from jobs.jobs where kind = 'tick'";
    assert_eq!(number(&db, &format!("select count(*) {of}")).await, ticks);
    run(&locker, "commit").await;
    comes_true(&db, &format!("count(*) > {ticks} {of}")).await;
}

#[tokio::test]
async fn who_is_cancelled_while_a_run_is_written_down_ends_at_once() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("cancelled").await;
    run(&db, "select from jobs.maintain()").await;
    let locker = cluster.connect("cancelled").await;
    run(
        &locker,
        "begin; lock table jobs.maintenance_task in exclusive mode",
    )
    .await;
    run(&db, "set statement_timeout = '1s'").await;
    let maintained = tokio::time::timeout(SOON, db.batch_execute("select from jobs.maintain()"));
    let maintained = maintained.await.expect("it ends");
    assert_eq!(sqlstate(maintained), "57014");
    run(&locker, "rollback").await;
    run(&db, "select from jobs.maintain()").await;
}

#[tokio::test]
async fn a_locked_table_keeps_nobody_from_dropping_the_database() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "5s")
        .start();
    let postgres = cluster.connect("postgres").await;
    let db = cluster.database("dropped").await;
    let locker = locked_past_retention(&cluster, &db, "dropped").await;
    drop(locker);
    drop(db);
    let sessions = "count(*) = 0 from pg_stat_activity where datname = 'dropped' and backend_type = 'client backend'";
    comes_true(&postgres, sessions).await;
    promptly(&postgres, "drop database dropped").await;
}

#[tokio::test]
async fn an_open_transaction_that_has_maintained_holds_up_nobody() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.enabled", "off")
        .start();
    let db = cluster.database("open").await;
    run(
        &db,
        "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[20000]), queue => 'a');
         select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[20000]), queue => 'b', scheduled_at => '2999-01-01 00:00Z')",
    )
    .await;
    let holder = cluster.connect("open").await;
    run(&holder, "begin; select * from jobs.maintain()").await;
    assert!(
        is(
            &holder,
            "count(*) = 2 from jobs.kept_count where counted_at is not null"
        )
        .await,
        "control: it has counted"
    );
    assert!(
        is(
            &db,
            "count(*) = 0 from jobs.kept_count where counted_at is not null"
        )
        .await
    );
    returns(&db, "select * from jobs.maintain()").await;
    cluster.set("jobs.enabled", "on");
    cluster.reload();
    let first = insert(&db, "'first', scheduled_at => clock_timestamp() + '0.1 s'").await;
    becomes_available(&db, first).await;
    // A first pass has come to counting by now.
    seconds(1.0).await;
    worker_goes_on(&db).await;
    run(&holder, "commit").await;
}

#[tokio::test]
async fn a_due_job_that_cannot_be_handled_keeps_no_other_from_being_fetched() {
    for enabled in ["off", "on"] {
        let cluster = Cluster::builder()
            .set("jobs.interval", "50ms")
            .set("jobs.enabled", enabled)
            .start();
        let db = cluster.database("fetched").await;
        run(&db, REFUSE).await;
        for (queue, trigger) in [
            (
                "ready",
                "insert on jobs.ready for each row when (new.job_id = ",
            ),
            (
                "scheduled",
                "delete on jobs.scheduled for each row when (old.job_id = ",
            ),
        ] {
            let due = |kind: &str, at: &str| {
                format!("'{kind}', queue => '{queue}', scheduled_at => clock_timestamp() + '{at}'")
            };
            // The first one that is due.
            let poisoned = insert(&db, &due("poisoned", "4 s")).await;
            run(
                &db,
                &format!("create trigger refuse before {trigger}{poisoned}) execute function public.refuse()"),
            )
            .await;
            let mut others = BTreeSet::new();
            for _ in 0..4 {
                others.insert(insert(&db, &due("k", "4.1 s")).await);
            }
            seconds(4.5).await;
            let mut fetched = BTreeSet::new();
            let fetch = format!("select id from jobs.fetch('{queue}', 2)");
            let begun = Instant::now();
            while fetched.len() < others.len() && begun.elapsed() < SOON {
                let rows = db.query(&fetch, &[]).await;
                let rows =
                    rows.unwrap_or_else(|error| panic!("worker {enabled}, {queue}: {error:?}"));
                fetched.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
                seconds(0.02).await;
            }
            assert_eq!(fetched, others, "worker {enabled}, {queue}");
            assert_eq!(state(&db, poisoned).await.as_deref(), Some("scheduled"));
        }
    }
}

#[tokio::test]
async fn what_was_locked_is_looked_at_when_it_is_free() {
    // For a moment, and for longer than the worker waits for a lock.
    for held in [3.0, 12.0] {
        let cluster = Cluster::builder().set("jobs.interval", "50ms").start();
        let db = cluster.database("free").await;
        let id = insert(&db, "'x', scheduled_at => clock_timestamp() + '2 s'").await;
        // The worker knows of it, and comes to it while the table is locked.
        seconds(1.0).await;
        let locker = cluster.connect("free").await;
        run(
            &locker,
            "begin; lock table jobs.maintenance_pause in access exclusive mode",
        )
        .await;
        seconds(held).await;
        run(&locker, "commit").await;
        becomes_available(&db, id).await;
    }
}

#[tokio::test]
async fn a_database_without_jobs_is_a_healthy_one() {
    let cluster = Cluster::start();
    let db = cluster.database("fresh").await;
    assert!(is(&db, "count(*) = 0 from jobs.health()").await);
    // jobs.health() allows five minutes without a visit from the server's start on, which cannot be
    // put back. The regular visits are seen, so that it is not to find anything after those either.
    comes_true(
        &db,
        "count(*) > 0 from jobs.maintenance where last_run_at > clock_timestamp() - interval '1 minute'",
    )
    .await;
    assert!(is(&db, "not is_called from jobs.job_seq").await);
    assert!(is(&db, "count(*) = 0 from jobs.health()").await);
}

#[tokio::test]
async fn a_long_interval_delays_nothing_that_becomes_due() {
    let cluster = Cluster::builder().set("jobs.interval", "1h").start();
    let db = cluster.database("interval").await;
    // The first pass comes at once; after it the interval counts.
    insert(&db, "'first'").await;
    seconds(1.5).await;
    let id = insert(&db, "'x', scheduled_at => clock_timestamp() + '1.5 s'").await;
    becomes_available(&db, id).await;
    // The first job of a database in which the worker has been already, and had nothing to do.
    let db = cluster.database("new").await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(
        &db,
        "bool_and(last_run_at is not null) from jobs.maintenance",
    )
    .await;
    let id = insert(&db, "'x', scheduled_at => clock_timestamp() + '0.5 s'").await;
    becomes_available(&db, id).await;
}

#[tokio::test]
async fn a_shorter_interval_takes_effect_at_once() {
    let cluster = Cluster::builder().set("jobs.interval", "1h").start();
    let db = cluster.database("shorter").await;
    // A commit asks for a pass, which comes once the interval is over.
    let ask = async || {
        insert(&db, "'x', scheduled_at => clock_timestamp() + '1 day'").await;
    };
    let passed = async || {
        let at = "select coalesce((extract(epoch from max(last_run_at)) * 1000000)::bigint, 0) from jobs.maintenance";
        number(&db, at).await
    };
    poll_until("a pass", SOON, async || {
        ask().await;
        passed().await > 0
    })
    .await;
    // There is one as well each minute, by a regular visit.
    poll_until("control: the interval counts", SOON, async || {
        let before = passed().await;
        ask().await;
        seconds(1.0).await;
        passed().await == before
    })
    .await;
    cluster.set("jobs.interval", "100ms");
    cluster.reload();
    let passes = std::cell::RefCell::new(std::collections::BTreeSet::new());
    poll_until("one pass after the other", SOON, async || {
        ask().await;
        let latest = passed().await;
        passes.borrow_mut().insert(latest);
        passes.borrow().len() > 5
    })
    .await;
}

#[tokio::test]
async fn what_its_own_uniqueness_keeps_is_pruned_when_that_ends() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "0")
        .start();
    let db = cluster.database("kept").await;
    let window = 6.0;
    run(
        &db,
        &format!(
            "select jobs.insert('unique', unique_opts => '{{\"by_kind\": true, \"window\": {window}}}');
             select jobs.complete(id, token) from jobs.fetch()"
        ),
    )
    .await;
    let created: String = scalar(
        &db,
        "select created_at::text from jobs.jobs where kind = 'unique'",
    )
    .await;
    let is_over =
        format!("clock_timestamp() >= '{created}'::timestamptz + {window} * interval '1 s'");
    // The worker has gone past it by the time that what became final later is pruned.
    run(&db, "select jobs.insert('other')").await;
    run(&db, "select jobs.complete(id, token) from jobs.fetch()").await;
    comes_true(&db, "count(*) = 0 from jobs.jobs where kind = 'other'").await;
    let there = "(select count(*) = 1 from jobs.jobs where kind = 'unique')";
    assert!(is(&db, &format!("{there} or {is_over}")).await);
    comes_true(&db, &format!("not {there}")).await;
    assert!(is(&db, &is_over).await);
}
