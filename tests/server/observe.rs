//! What operators look at: jobs.health(), the counts of queues, and all of it on a standby.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jobs_tests::{
    Client, Cluster, SOON, comes_true, insert, is, poll_until, quiet, row_of, rows_of, run, scalar,
    seconds, sqlstate, text, texts, with,
};

async fn findings(db: &Client, arguments: &str, finding: &str) -> Vec<(String, String)> {
    let sql = format!("select severity, message from jobs.health({arguments}) where finding = $1");
    let rows = db.query(&sql, &[&finding]).await.expect(&sql);
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn health_says_who_keeps_an_old_snapshot() {
    let (cluster, db) = quiet("health").await;
    let arguments = "old_snapshot => '0.4 seconds'";
    assert_eq!(findings(&db, arguments, "old_snapshot").await, []);
    let reporter =
        cluster.connect_with(cluster.config().dbname("health").application_name("report")).await;
    run(&reporter, "begin isolation level repeatable read; select 1").await;
    let pid: i32 = scalar(&reporter, "select pg_backend_pid()").await;
    let writer = cluster.connect("health").await;
    run(&writer, "begin; select jobs.insert('x'); prepare transaction 'in doubt'").await;
    // One in another database keeps nothing here.
    let elsewhere = cluster.connect("postgres").await;
    run(&elsewhere, "begin isolation level repeatable read; select 1").await;
    seconds(0.6).await;
    let mut found = findings(&db, arguments, "old_snapshot").await;
    found.sort();
    assert_eq!(found.len(), 2, "{found:?}");
    let (severity, message) = &found[0];
    assert_eq!(severity, "warning");
    assert!(message.contains(&format!("process {pid} ")), "{message}");
    assert!(message.contains("user postgres, report, idle in transaction"), "{message}");
    assert!(found[1].1.contains("transaction 'in doubt' of user postgres"), "{found:?}");
    assert_eq!(findings(&db, "", "old_snapshot").await, []);
    assert_eq!(findings(&db, "old_snapshot => null", "old_snapshot").await, []);
    seconds(0.5).await;
    let found = findings(&db, "old_snapshot => '0.05 seconds'", "old_snapshot").await;
    assert!(found.iter().all(|(severity, _)| severity == "critical"), "{found:?}");
    run(&reporter, "commit").await;
    run(&writer, "rollback prepared 'in doubt'").await;
    assert_eq!(findings(&db, arguments, "old_snapshot").await, []);
}

#[tokio::test]
async fn health_says_who_waits_for_whose_unique_key() {
    let (cluster, db) = quiet("waits").await;
    let insert = "select jobs.insert('x', unique_opts => '{\"by_kind\": true}')";
    let batch = "select jobs.insert_batch('x', array['{}'::jsonb], '{\"by_kind\": true}')";
    let holder =
        cluster.connect_with(cluster.config().dbname("waits").application_name("holder")).await;
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
        assert!(found[0].1.starts_with(&format!("process {pid} ")), "{found:?}");
        assert!(
            found[0].1.contains(&format!(" for a unique key of process {holder_pid} ")),
            "{found:?}"
        );
        assert_eq!(findings(&db, "lock_wait => '1 hour'", "lock_wait").await, []);
        run(&holder, "rollback").await;
        waiting.await.unwrap().unwrap();
        assert_eq!(findings(&db, arguments, "lock_wait").await, []);
        run(&db, "select jobs.cancel(id), jobs.delete(id) from jobs.jobs").await;
    }
    // A session that waits for something else is not meant.
    run(&holder, "begin; select pg_advisory_xact_lock(7)").await;
    let waiter = cluster.connect("waits").await;
    let waiting =
        tokio::spawn(async move { waiter.batch_execute("select pg_advisory_xact_lock(7)").await });
    comes_true(&db, "count(*) = 1 from pg_locks where not granted").await;
    seconds(0.3).await;
    assert_eq!(findings(&db, "lock_wait => '0.1 seconds'", "lock_wait").await, []);
    run(&holder, "rollback").await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn health_says_that_nobody_maintains_the_database() {
    let (cluster, db) = quiet("nobody").await;
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
    let settings = texts(&db, "select name from jobs.settings order by 1").await;

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
    let there = texts(&other, "select name from jobs.settings order by 1").await;
    assert_eq!(there, settings);
}

/// Every task has run, the last one so many minutes ago.
async fn maintained(db: &Client, minutes: i32) {
    let moved = format!("last_run_at = clock_timestamp() - interval '{minutes} minutes'");
    run(db, &format!("select jobs.maintain(); update jobs.maintenance_task set {moved}")).await;
}

#[tokio::test]
async fn health_says_that_the_launcher_does_not_run() {
    // The server's own launcher of logical replication takes the only process.
    let (_cluster, db) = with("starved", &[("max_worker_processes", "1")]).await;
    let found = async || findings(&db, "", "worker_not_running").await;
    let message = "the launcher of the background worker is not running";
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
    let (_cluster, db) = with("starved", &[("max_worker_processes", "2")]).await;
    let found = async || findings(&db, "", "worker_not_running").await;
    let message = "the background worker has not visited this database for 5 minutes";
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
    // Without any fetch so far, the oldest job has waited for one.
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
    let (cluster, db) = quiet("seen").await;
    run(&db, "create role clerk login; select jobs.grant_viewer('clerk');
         select jobs.insert('x', '{\"secret\": 1}', meta => '{\"secret\": 2}', unique_opts => '{\"by_args\": true}');
         select jobs.insert('y', '{\"secret\": 3}', queue => 'q');
         select jobs.complete(id, token, '{\"secret\": 4}') from jobs.fetch('q');
         select jobs.insert('z', '{\"secret\": 5}', queue => 'r');
         select jobs.heartbeat(id, token, progress => '{\"secret\": 6}') from jobs.fetch('r');
         select jobs.schedule('s', '@daily', 't', '{\"secret\": 7}', meta => '{\"secret\": 8}')").await;
    let standby = cluster.standby();
    let replica = standby.connect("seen").await;
    comes_true(&replica, "count(*) = 1 from jobs.periodic").await;
    let shown = "select string_agg(t::text, ' ') from (
        select row_to_json(v)::text from jobs.jobs v union all select row_to_json(v)::text from jobs.queues v
        union all select row_to_json(v)::text from jobs.workers v union all select row_to_json(v)::text from jobs.errors v
        union all select row_to_json(v)::text from jobs.unique_claims v union all select row_to_json(v)::text from jobs.periodic v
        union all select row_to_json(v)::text from jobs.maintenance v union all select row_to_json(v)::text from jobs.settings v
        union all select row_to_json(v)::text from jobs.health() v union all select row_to_json(v)::text from jobs.metrics() v) t";
    let all = text(&replica, shown).await;
    assert_eq!(all.matches("secret").count(), 8, "control: the owner sees it");
    run(&replica, "set role clerk").await;
    let seen = text(&replica, shown).await;
    assert!(!seen.contains("secret"), "{seen}");
    assert!(is(&replica, "count(*) = 3 from jobs.jobs where args is null").await);
}

#[tokio::test]
async fn what_operators_look_at_is_the_same_on_a_standby() {
    let (cluster, db) = quiet("looked").await;
    run(&db, "select jobs.define_kind('k', queue => 'q'), jobs.worker_beat('w', '{q}', 1), jobs.quiet_worker('w', 'deploy');
         insert into jobs.history_bucket (at, queue, kind, counts) select date_trunc('minute', now()) - interval '5 minutes', 'past', 'k', '{0,1}'").await;
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
        assert_eq!(sqlstate(replica.batch_execute(call).await), "25006", "{call}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_counted_at_one_moment() {
    const JOBS: i64 = 2000;
    let (cluster, db) = with("moment", &[]).await;
    run(&db, &format!("select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{JOBS}]), queue => 'q')")).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut movers = Vec::new();
    for _ in 0..4 {
        let (mover, done) = (cluster.connect("moment").await, done.clone());
        movers.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let rows = rows_of(&mover, "select id, token from jobs.fetch('q', 200)").await;
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
        let row = row_of(&db, sql).await;
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
async fn a_database_without_jobs_is_a_healthy_one() {
    let (_cluster, db) = with("fresh", &[]).await;
    assert!(is(&db, "count(*) = 0 from jobs.health()").await);
    // jobs.health() allows five minutes without a visit from the server's start on, which cannot be
    // put back. The regular visits are seen, so that it is not to find anything after those either.
    comes_true(&db, "count(*) > 0 from jobs.maintenance where last_run_at > clock_timestamp() - interval '1 minute'").await;
    assert!(is(&db, "not is_called from jobs.job_seq").await);
    assert!(is(&db, "count(*) = 0 from jobs.health()").await);
}

#[tokio::test]
async fn metrics_name_the_limits_that_hold_most_and_sum_the_others() {
    let options = [("jobs.enabled", "off"), ("jobs.metrics_max_series", "1000")];
    let (_cluster, db) = with("metrics", &options).await;
    run(&db, "select jobs.define_limit('limit ' || n, kinds => array['k' || n], concurrency => 1) from generate_series(1, 600) n;
         select jobs.insert('k' || n) from (select * from generate_series(1, 600) union all select * from generate_series(1, 600) union all select 600) k(n);
         select jobs.fetch(max_jobs => 1000)").await;
    let metrics = |what: &str| format!("{what} from jobs.metrics() where ");
    assert!(is(&db, &(metrics("count(*) <= 1000") + "labels ?| '{limit,queue}'")).await);
    for (metric, all, most) in [("held", 601, 2), ("running", 600, 1)] {
        let values = metrics(&format!(
            "(sum(value), max(value) filter (where labels ->> 'limit' = 'limit 600'), bool_or(labels ->> 'limit' = '(others)')) = ({all}, {most}, true)"
        ));
        assert!(is(&db, &format!("{values} metric = 'jobs_limit_{metric}'")).await, "{metric}");
    }
}
