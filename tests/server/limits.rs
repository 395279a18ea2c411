//! Limits by key, step by step. `keyed.rs` has what happens when all goes on at once.

use jobs_tests::{
    Client, Cluster, Mode, SOON, Stopping, blocked, count, is, number, poll_until, quiet, run,
    sqlstate, texts, with,
};

/// Three jobs of one key, of which one may run.
const ONE_OF_THREE: &str = r#"
    select jobs.define_limit('one', by => '{"by_args": ["t"]}', concurrency => 1);
    select jobs.insert('k', '{"t": 1}') from generate_series(1, 3)"#;
const START: &str = "select id from jobs.fetch(max_jobs => 10)";
const COMPLETE: &str = "select jobs.complete(id, token) from jobs.jobs where state = 'running'";

#[tokio::test]
async fn the_end_of_an_attempt_hands_its_place_on() {
    let (_cluster, db) = quiet("limits").await;
    run(&db, ONE_OF_THREE).await;
    for _ in 0..3 {
        assert_eq!(started(&db).await, 1);
        assert_eq!(started(&db).await, 0);
        run(&db, &format!("begin; {COMPLETE}; rollback")).await;
        assert_eq!(started(&db).await, 0);
        run(&db, COMPLETE).await;
    }
    assert_eq!(count(&db, "jobs.jobs where state = 'completed'").await, 3);
}

#[tokio::test]
async fn control_an_end_that_keeps_its_place_leaves_jobs_behind() {
    let cluster = Cluster::builder().faults("keep_places").set("jobs.enabled", "off").start();
    let db = cluster.database("limits").await;
    run(&db, ONE_OF_THREE).await;
    assert_eq!(started(&db).await, 1);
    run(&db, COMPLETE).await;
    assert_eq!(started(&db).await, 0);
    run(&db, "select jobs.maintain()").await;
    assert_eq!(started(&db).await, 1);
}

#[tokio::test]
async fn a_change_counts_what_runs_and_applies_from_its_commit() {
    let (_cluster, db) = quiet("limits").await;
    run(&db, r#"select jobs.insert('k', '{"t": 1}') from generate_series(1, 4)"#).await;
    let held = "select count(*) from jobs.fetch(max_jobs => 1)";
    assert_eq!(number(&db, held).await, 1);
    let define = r#"select jobs.define_limit('t', by => '{"by_args": ["t"]}', concurrency => 2)"#;
    run(&db, define).await;
    assert_eq!(started(&db).await, 1);
    assert_eq!(texts(&db, "select running || '/' || held from jobs.limits").await, ["2/2"]);
    run(&db, r#"select jobs.override_limit('t', '1', concurrency => 3), jobs.maintain()"#).await;
    assert_eq!(started(&db).await, 1);
    run(&db, "select jobs.drop_limit('t'), jobs.maintain()").await;
    assert_eq!(started(&db).await, 1);
    assert_eq!(count(&db, "jobs.permit").await, 0);
    run(&db, COMPLETE).await;
    assert_eq!(count(&db, "jobs.check()").await, 0);
}

#[tokio::test]
async fn permits_outlive_a_crash_with_their_jobs() {
    let (cluster, db) = quiet("limits").await;
    run(&db, ONE_OF_THREE).await;
    assert_eq!(started(&db).await, 1);
    cluster.restart(Mode::Immediate);
    let db = cluster.connect("limits").await;
    assert_eq!(started(&db).await, 0);
    assert!(is(&db, "count(*) = 0 from jobs.check()").await);
    run(&db, COMPLETE).await;
    assert_eq!(started(&db).await, 1);
}

/// Maintenance has looked at the room, and a job starts before it looks at the lane.
#[tokio::test]
async fn maintenance_has_no_job_fetched_in_the_place_of_one_that_has_just_started() {
    let cluster = Cluster::quiet();
    for (n, one) in [
        "define_limit('one', concurrency => 1)",
        "define_limit('one', rate => 1, rate_period => '1 hour')",
        r#"order_queue('default', by => '{"by_args": ["t"]}', strict => true)"#,
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("limits{n}");
        let (db, other) = (cluster.database(&name).await, cluster.connect(&name).await);
        run(&db, &format!("select jobs.{one}; select jobs.insert('k') from generate_series(1, 3)"))
            .await;
        let fetching = cluster.connect(&name).await;
        run(&fetching, "begin; lock table jobs.scheduled in share mode").await;
        let fetch = async {
            blocked(&db, 1).await;
            run(&fetching, "select jobs.fetch(); commit").await;
        };
        tokio::join!(run(&other, "select jobs.maintain()"), fetch);
        assert_eq!(count(&db, "jobs.ready").await, 0, "{one}");
        assert_eq!(count(&db, "jobs.scheduled").await, 2, "{one}");
    }
}

/// How many jobs a fetch starts.
async fn started(db: &Client) -> usize {
    db.query(START, &[]).await.unwrap().len()
}

#[tokio::test]
async fn a_place_that_a_rollback_takes_back_is_not_given_twice() {
    let (_cluster, db) = quiet("limits").await;
    let two = r#"select jobs.define_limit('two', by => '{"by_args": ["t"]}', concurrency => 2);
        select jobs.insert('k', '{"t": 1}') from generate_series(1, 4)"#;
    run(&db, two).await;
    assert_eq!(started(&db).await, 2);
    let first = "select jobs.complete(id, token) from (select * from jobs.jobs where state = 'running' order by id limit 1) j";
    run(&db, &format!("begin; {first}; {START}; rollback")).await;
    assert_eq!(started(&db).await, 0);
    run(&db, &format!("begin; savepoint s; {first}; {START}; rollback to s; commit")).await;
    assert_eq!(started(&db).await, 0);
    assert_eq!(count(&db, "jobs.running").await, 2);
}

#[tokio::test]
async fn a_limit_defined_with_an_old_snapshot_misses_nothing() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("limits").await, cluster.connect("limits").await);
    run(&db, "select jobs.insert('k') from generate_series(1, 2)").await;
    run(&other, "begin isolation level repeatable read; select 1").await;
    assert_eq!(count(&db, "jobs.fetch()").await, 1);
    let define = other.batch_execute("select jobs.define_limit('one', concurrency => 1)").await;
    assert_eq!(sqlstate(define), "40001");
    run(&other, "rollback; select jobs.define_limit('one', concurrency => 1)").await;
    assert_eq!(started(&db).await, 0);
    run(&db, COMPLETE).await;
    assert_eq!(started(&db).await, 1);
}

#[tokio::test]
async fn a_saturated_key_holds_up_no_other_under_a_second_limit() {
    let (_cluster, db) = quiet("limits").await;
    run(
        &db,
        r#"select jobs.define_limit('all', concurrency => 1), jobs.define_limit('tenant', by => '{"by_args": ["t"]}', concurrency => 1);
        select jobs.insert('k', '{"t": "first"}'); select jobs.fetch();
        select jobs.insert('k', '{"t": "x"}') from generate_series(1, 30); select jobs.insert('k', '{"t": "y"}');
        select jobs.pause_limit('tenant', '"x"')"#,
    )
    .await;
    assert_eq!(started(&db).await, 0);
    run(&db, COMPLETE).await;
    assert_eq!(texts(&db, "select args->>'t' from jobs.fetch()").await, ["y"]);
}

#[tokio::test]
async fn jobs_that_a_limit_no_longer_covers_are_let_go() {
    let (_cluster, db) = quiet("limits").await;
    run(
        &db,
        "select jobs.define_limit('one', concurrency => 1);
         select jobs.insert('a', queue => 'a') from generate_series(1, 2);
         select jobs.insert('b', queue => 'b') from generate_series(1, 2);
         select jobs.pause_limit('one'); select jobs.fetch_any('{a,b}', 10);
         select jobs.define_limit('one', queues => '{a}', concurrency => 1), jobs.maintain()",
    )
    .await;
    assert_eq!(count(&db, "jobs.fetch('b', 10)").await, 2);
    assert_eq!(count(&db, "jobs.fetch('a', 10)").await, 0);
}

/// A commit is seen before other sessions are told of the limit that it defined.
#[tokio::test]
async fn jobs_of_a_limit_that_maintenance_does_not_know_yet_stay_held() {
    let cluster = Cluster::builder().faults("").set("jobs.enabled", "off").start();
    let db = cluster.database("limits").await;
    run(&db, "select jobs.insert('other'); select jobs.maintain()").await;
    let other = cluster.connect("limits").await;
    let defining = Stopping::begin(other, "stop_at_commit", ONE_OF_THREE.into()).await;
    defining.has_stopped().await;
    run(&db, "select jobs.maintain()").await;
    defining.go_on().await;
    assert_eq!(texts(&db, "select held::text from jobs.limits").await, ["2"]);
}

#[tokio::test]
async fn a_change_between_two_looks_at_a_part_of_the_keys_reaches_all_of_them() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").set("jobs.batch_size", 1).start();
    let db = cluster.database("limits").await;
    run(
        &db,
        r#"select jobs.define_limit('t', by => '{"by_args": ["t"]}', concurrency => 1), jobs.pause_limit('t');
        select jobs.insert('k', jsonb_build_object('t', n)) from generate_series(1, 3) n; select jobs.fetch(max_jobs => 10)"#,
    )
    .await;
    let maintain = "select jobs.maintain()";
    // All keys, and the first one again.
    for _ in 0..5 {
        run(&db, maintain).await;
    }
    run(&db, r#"select jobs.define_limit('t', by => '{"by_args": ["t"]}', kinds => '{other}', concurrency => 1)"#).await;
    for _ in 0..5 {
        run(&db, maintain).await;
    }
    assert_eq!(count(&db, "jobs.fetch(max_jobs => 10)").await, 3);
}

/// Starts that are forgotten beside a fetch of the same transaction are still seen by others.
#[tokio::test]
async fn a_start_is_numbered_behind_those_that_its_transaction_has_forgotten() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("limits").await, cluster.connect("limits").await);
    run(
        &db,
        "select jobs.define_limit('two', rate => 2, rate_period => '1 hour');
         select jobs.insert('k') from generate_series(1, 2);
         select jobs.fetch(max_jobs => 2);
         update jobs.limit_start set at = at - interval '2 hours';
         select jobs.insert('k') from generate_series(1, 2)",
    )
    .await;
    run(&db, "begin; select jobs.maintain(); select jobs.fetch()").await;
    assert_eq!(started(&other).await, 1);
    run(&db, "commit; select jobs.insert('k'), jobs.maintain()").await;
    assert_eq!(started(&other).await, 0);
}

#[tokio::test]
async fn a_held_job_counts_under_its_unique_key() {
    let (_cluster, db) = quiet("limits").await;
    run(&db, "select jobs.define_limit('one', concurrency => 1); select jobs.insert('first')")
        .await;
    for access in ["on", "off"] {
        run(&db, &format!("set jobs.direct_access = {access}")).await;
        let insert = |on_conflict: &str| {
            format!(
                r#"select state || ' ' || unique_skipped_as_duplicate from jobs.insert('k', unique_opts => '{{"by_kind": true, "on_conflict": {on_conflict}}}')"#
            )
        };
        assert_eq!(texts(&db, &insert(r#""skip""#)).await, ["available false"]);
        assert_eq!(texts(&db, &insert(r#""skip""#)).await, ["available true"]);
        let update = insert(r#"{"update": {"available": ["priority"]}}"#);
        assert_eq!(texts(&db, &update).await, ["available true"]);
        assert_eq!(texts(&db, &insert(r#""replace""#)).await, ["available false"]);
        let both = "jobs.jobs where kind = 'k' and state in ('available', 'cancelled')";
        assert_eq!(count(&db, both).await, 2);
        run(&db, "select jobs.delete(id) from jobs.jobs where kind = 'k'").await;
    }
}

#[tokio::test]
async fn a_fetch_with_an_old_snapshot_loses_no_job_that_its_transaction_has_promoted() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("limits").await, cluster.connect("limits").await);
    for (n, access) in ["on", "off"].into_iter().enumerate() {
        run(&other, &format!("set jobs.direct_access = {access}")).await;
        let limit =
            format!("select jobs.define_limit('one', queues => '{{q{n}}}', concurrency => 1)");
        run(&db, &limit).await;
        let insert = format!("select jobs.insert('k', queue => 'q{n}')");
        run(&db, &insert).await;
        run(&db, &format!("select jobs.fetch('q{n}')")).await;
        run(&other, "begin isolation level repeatable read; select count(*) from jobs.job").await;
        run(&db, &format!("{insert}; select jobs.fetch('q{n}')")).await;
        let both = format!("{COMPLETE}; select jobs.fetch('q{n}')");
        let both = other.batch_execute(&both).await;
        // Without direct access it has seen nothing to promote.
        assert_eq!(sqlstate(both), if access == "on" { "40001" } else { "00000" });
        run(&other, "commit").await;
        assert_eq!(count(&db, "jobs.check()").await, 0);
    }
}

/// The first of two jobs leaves the lane, so the second one goes back to it, in the same call.
#[tokio::test]
async fn jobs_of_which_one_takes_the_place_of_the_other_are_replaced_and_updated_together() {
    let (_cluster, db) = quiet("limits").await;
    run(&db, "select jobs.define_limit('one', concurrency => 1)").await;
    for access in ["on", "off"] {
        run(&db, &format!("set jobs.direct_access = {access}")).await;
        for (on_conflict, left) in
            [(r#""replace""#, 2), (r#"{"update": {"available": ["queue"]}}"#, 0)]
        {
            let both = |on_conflict: &str, queue: &str| {
                format!(
                    r#"select state || ' ' || unique_skipped_as_duplicate from jobs.insert_batch('k', array['{{"n": 1}}', '{{"n": 2}}']::jsonb[], '{{"by_args": true, "on_conflict": {on_conflict}}}', queue => '{queue}')"#
                )
            };
            let skipped = (left == 0).to_string();
            assert_eq!(texts(&db, &both(r#""skip""#, "q")).await, ["available false"; 2]);
            let changed = texts(&db, &both(on_conflict, "r")).await;
            assert_eq!(changed, [format!("available {skipped}"), format!("available {skipped}")]);
            assert_eq!(count(&db, "jobs.jobs where state = 'cancelled'").await, left);
            assert_eq!(count(&db, "jobs.jobs where queue = 'r' and state = 'available'").await, 2);
            assert_eq!(count(&db, "jobs.check()").await, 0);
            assert_eq!(number(&db, "select count(*) from jobs.fetch('r', 2)").await, 1);
            run(&db, "select jobs.cancel(id, force => true), jobs.delete(id) from jobs.jobs").await;
        }
    }
}

/// The worker looks for room once a second, but earlier where a rate has some.
#[tokio::test]
async fn jobs_under_a_rate_per_moment_start_as_soon_as_it_has_room() {
    let (_cluster, db) = with("moment", &[("jobs.enabled", "on")]).await;
    run(&db, "select jobs.define_limit('moment', rate => 1, rate_period => '100 ms')").await;
    let gaps = "(select attempted_at - lag(attempted_at) over (order by attempted_at) as gap from jobs.jobs) s";
    let latest = "(select attempted_at - lag(attempted_at) over (order by attempted_at) as gap
        from (select attempted_at from jobs.jobs order by id desc limit 10) j) s";
    // On a machine that is busy for a moment they start later.
    poll_until("they start soon", SOON, async || {
        run(&db, "select jobs.insert('k') from generate_series(1, 10)").await;
        while count(&db, "jobs.job").await > count(&db, "jobs.jobs where attempt > 0").await {
            started(&db).await;
        }
        let usual = "percentile_cont(0.5) within group (order by gap)";
        is(&db, &format!("{usual} < '500 ms' from {latest}")).await
    })
    .await;
    assert_eq!(count(&db, &format!("{gaps} where gap < '100 ms'")).await, 0);
}
