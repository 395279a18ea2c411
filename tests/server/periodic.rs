//! Periodic jobs: one job a tick, whoever looks, whatever happens to the server.

use jobs_tests::{
    Client, Cluster, Mode, SOON, blocked, comes_true, number, poll_until, quiet, row_of, rows_of,
    run, scalar, seconds, sqlstate, text, with,
};

/// What the task did; panics if it failed.
async fn maintain(db: &Client) -> i64 {
    let row = row_of(db, "select rows, error from jobs.maintain() where task = 'periodic'").await;
    assert_eq!(row.get::<_, Option<String>>(1), None);
    row.get(0)
}

/// Time travel: all definitions and all ticks of jobs were so many hours longer ago, so that what
/// is every hour is due once more.
async fn hours_pass(db: &Client, hours: u32) {
    let passed = format!("interval '{hours} hours'");
    run(
        db,
        &format!(
            "begin;
             update jobs.periodic_schedule set defined_at = defined_at - {passed},
               next_run_at = next_run_at - {passed}, last_run_at = last_run_at - {passed};
             update jobs.job set scheduled_at = scheduled_at - {passed};
             commit"
        ),
    )
    .await;
}

/// Definitions that are due, or were put off since another session was at work on their key.
const DUE: &str = "select count(*) from jobs.periodic where next_run_at <= clock_timestamp() or last_error is not null";

/// Jobs of a kind.
async fn count(db: &Client, kind: &str) -> i64 {
    number(db, &format!("select count(*) from jobs.jobs where kind = '{kind}'")).await
}

/// Sessions that do maintenance over and over, until they are dropped.
async fn schedulers(cluster: &Cluster, database: &str, count: usize) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let db = cluster.connect(database).await;
        tasks.spawn(async move {
            loop {
                maintain(&db).await;
            }
        });
    }
    tasks
}

#[tokio::test]
async fn many_schedulers_insert_one_job_a_tick() {
    const ROUNDS: i64 = 60;
    let (cluster, db) = quiet("many").await;
    run(
        &db,
        r#"select jobs.schedule('plain ' || n, 'every 1 hour', 'plain ' || n) from generate_series(1, 4) n;
           select jobs.schedule('unique ' || n, '0 * * * *', 'unique ' || n, time_zone => 'Asia/Kathmandu',
             unique_opts => '{"by_kind": true, "on_conflict": "replace"}') from generate_series(1, 4) n"#,
    )
    .await;
    let mut schedulers = schedulers(&cluster, "many", 4).await;
    for _ in 0..ROUNDS {
        hours_pass(&db, 1).await;
        poll_until("all ticks are dealt with", SOON, async || number(&db, DUE).await == 0).await;
        assert!(schedulers.try_join_next().is_none(), "a scheduler failed");
    }
    schedulers.shutdown().await;
    let kinds = rows_of(
        &db,
        "select kind, count(*), count(distinct scheduled_at) from jobs.jobs group by kind",
    )
    .await;
    assert_eq!(kinds.len(), 8);
    for row in kinds {
        let (kind, jobs, ticks): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        assert_eq!(jobs, ticks, "{kind}: one job a tick");
        // An hour of the clock may begin meanwhile.
        assert!((ROUNDS..=ROUNDS + 1).contains(&jobs), "{kind}: {jobs}");
    }
    assert_eq!(
        number(
            &db,
            "select count(*) from jobs.jobs where kind ~ '^unique' and state <> 'cancelled'"
        )
        .await,
        4,
        "each replaces the one before"
    );
    assert_eq!(
        number(
            &db,
            "select count(*) from jobs.periodic where last_error is not null or last_skipped"
        )
        .await,
        0
    );
}

#[tokio::test]
async fn the_worker_and_other_schedulers_insert_each_second_once() {
    let (cluster, db) = with("seconds", &[("jobs.interval", "50ms")]).await;
    run(
        &db,
        "select jobs.schedule(n::text, 'every 1 second', n::text) from generate_series(1, 3) n",
    )
    .await;
    let schedulers = schedulers(&cluster, "seconds", 2).await;
    seconds(6.0).await;
    let least = "select min(jobs) from (select count(*) filter (where kind = n::text) as jobs from generate_series(1, 3) n left join jobs.jobs on true group by n) k";
    poll_until("each kind has its jobs", SOON, async || number(&db, least).await >= 3).await;
    drop(schedulers);
    let rows = rows_of(&db, "select kind, count(*), count(distinct scheduled_at), bool_and(scheduled_at = date_trunc('second', scheduled_at)),
                    extract(epoch from max(scheduled_at) - min(scheduled_at))::bigint + 1
               from jobs.jobs group by kind").await;
    assert_eq!(rows.len(), 3);
    for row in rows {
        let (jobs, ticks, seconds): (i64, i64, i64) = (row.get(1), row.get(2), row.get(4));
        assert_eq!(jobs, ticks, "one job a tick");
        assert!(row.get::<_, bool>(3), "ticks are whole seconds");
        // A tick is left out where nobody looked for a second: not often, however busy the machine.
        assert!(jobs >= 3 && jobs <= seconds, "{jobs} in {seconds} s");
    }
}

#[tokio::test]
async fn the_worker_comes_back_for_a_tick() {
    let (_cluster, db) = with("back", &[]).await;
    // Longer than a worker without work stays.
    run(&db, "select jobs.schedule('rare', 'every 8 seconds', 'rare')").await;
    comes_true(&db, "count(*) = 2 from jobs.jobs where kind = 'rare'").await;
    let late = number(
        &db,
        "select max(extract(epoch from created_at - scheduled_at))::bigint from jobs.jobs",
    )
    .await;
    assert!(late < 4, "{late} seconds late");
    run(&db, "select jobs.unschedule('rare')").await;
}

#[tokio::test]
async fn a_crash_before_the_commit_leaves_the_tick_and_after_it_does_not_repeat_it() {
    let (cluster, db) = quiet("crash").await;
    run(&db, "select jobs.schedule('c', 'every 1 hour', 'c')").await;
    hours_pass(&db, 3).await;
    run(&db, "begin").await;
    assert_eq!(maintain(&db).await, 1);
    cluster.kill9();
    cluster.start_again();

    let db = cluster.connect("crash").await;
    assert_eq!(count(&db, "c").await, 0, "it was not committed");
    assert_eq!(maintain(&db).await, 1);
    cluster.kill9();
    cluster.start_again();

    let db = cluster.connect("crash").await;
    assert_eq!(count(&db, "c").await, 1, "it was committed");
    assert_eq!(maintain(&db).await, 0);
    // So it is over an ordinary restart, with what is due meanwhile.
    hours_pass(&db, 5).await;
    cluster.set("jobs.enabled", "on");
    cluster.restart(Mode::Fast);
    let db = cluster.connect("crash").await;
    poll_until("the worker has dealt with it", SOON, async || number(&db, DUE).await == 0).await;
    assert_eq!(count(&db, "c").await, 2, "the latest tick only");
    assert_eq!(number(&db, "select count(distinct scheduled_at) from jobs.jobs").await, 2);
}

#[tokio::test]
async fn a_failover_goes_on_where_the_primary_was() {
    let (cluster, db) = quiet("failover").await;
    run(&db, "select jobs.schedule('f', 'every 1 hour', 'f')").await;
    hours_pass(&db, 1).await;
    assert_eq!(maintain(&db).await, 1);
    let standby = cluster.standby();
    let there = standby.connect("failover").await;
    for call in ["select jobs.schedule('f', '@daily', 'f')", "select jobs.unschedule('f')"] {
        assert_eq!(sqlstate(there.execute(call, &[]).await), "25006", "{call}");
    }
    hours_pass(&db, 1).await;
    poll_until("the standby shows what the primary has", SOON, async || {
        number(&there, DUE).await == 1
    })
    .await;
    drop(db);
    cluster.stop(Mode::Immediate);
    standby.promote();
    assert_eq!(maintain(&there).await, 1);
    assert_eq!(maintain(&there).await, 0);
    assert_eq!(count(&there, "f").await, 2);
    assert_eq!(number(&there, "select count(distinct scheduled_at) from jobs.jobs").await, 2);
}

const UNIQUE: &str = r#"unique_opts => '{"by_kind": true}'"#;

#[tokio::test]
async fn a_key_that_is_being_inserted_keeps_nobody_waiting() {
    let (cluster, db) = with("busy", &[("jobs.enabled", "off"), ("jobs.batch_size", "2")]).await;
    let other = cluster.connect("busy").await;
    // More of them than a round looks at, and before the others.
    for n in 1..=3 {
        run(
            &db,
            &format!(
                "select jobs.schedule('busy {n}', 'every 1 hour', 'busy', {UNIQUE}, args => '{n}')"
            ),
        )
        .await;
    }
    run(
        &db,
        "select jobs.schedule('free ' || n, 'every 1 hour', 'free') from generate_series(1, 5) n",
    )
    .await;
    hours_pass(&db, 1).await;
    run(&other, &format!("begin; select jobs.insert('busy', {UNIQUE})")).await;
    run(&db, "set lock_timeout = '60s'").await;
    assert_eq!(maintain(&db).await, 8);
    assert_eq!(count(&db, "free").await, 5);
    let pending = "select count(*) from jobs.periodic where kind = 'busy' and last_error ~ 'another transaction' and last_run_at is null";
    assert_eq!(number(&db, pending).await, 3);
    let soon = "select count(*) from jobs.periodic where kind = 'busy' and next_run_at < clock_timestamp() + interval '2 seconds'";
    assert_eq!(number(&db, soon).await, 3, "it is tried again");

    // After a rollback one of them inserts, and the others are its duplicates.
    run(&other, "rollback").await;
    poll_until("they are dealt with", SOON, async || {
        maintain(&db).await;
        number(&db, DUE).await == 0 && number(&db, pending).await == 0
    })
    .await;
    assert_eq!(count(&db, "busy").await, 1);
    let row = row_of(&db, "select count(*) filter (where last_skipped), count(distinct last_job_id), count(last_error) from jobs.periodic where kind = 'busy'").await;
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), (2, 1, 0));
}

#[tokio::test]
async fn a_policy_that_does_not_wait_skips_the_tick() {
    let (cluster, db) = quiet("nowait").await;
    let other = cluster.connect("nowait").await;
    run(
        &db,
        r#"select jobs.schedule('n', 'every 1 hour', 'k', unique_opts => '{"by_kind": true, "wait": false}')"#,
    )
    .await;
    hours_pass(&db, 1).await;
    run(&other, &format!("begin; select jobs.insert('k', {UNIQUE})")).await;
    assert_eq!(maintain(&db).await, 1);
    assert!(scalar::<bool>(&db, "select last_skipped and last_job_id is null and last_error is null and last_run_at is not null from jobs.periodic").await);
    run(&other, "rollback").await;
    assert_eq!(maintain(&db).await, 0);
    assert_eq!(count(&db, "k").await, 0);
}

#[tokio::test]
async fn whoever_replaces_a_definition_waits_for_the_scheduler_that_has_it() {
    let (cluster, db) = quiet("replace").await;
    for (end, committed) in [("commit", true), ("rollback", false)] {
        let scheduler = cluster.connect("replace").await;
        let program = cluster.connect("replace").await;
        run(&db, "select jobs.unschedule('r'); select jobs.delete_many(queue => 'default'); select jobs.schedule('r', 'every 1 hour', 'old')").await;
        hours_pass(&db, 1).await;
        run(&scheduler, "begin").await;
        assert_eq!(maintain(&scheduler).await, 1);
        let replacing = tokio::spawn(async move {
            text(&program, "select ((jobs.schedule('r', 'every 2 hours', 'new')).next_run_at > clock_timestamp())::text").await
        });
        blocked(&db, 1).await;
        // Others pass it over meanwhile.
        assert_eq!(maintain(&db).await, 0);
        run(&scheduler, end).await;
        assert_eq!(replacing.await.unwrap(), "true");
        assert_eq!(count(&db, "old").await, 1, "whoever it was, {committed}: the tick has its job");
        assert_eq!(maintain(&db).await, 0);
        assert_eq!(count(&db, "new").await, 0);
        assert_eq!(
            text(&db, "select kind || ' ' || cron from jobs.periodic").await,
            "new every 2 hours"
        );
    }
}

#[tokio::test]
async fn programs_that_define_the_same_at_once_define_it_once() {
    let (cluster, db) = quiet("start").await;
    run(&db, "select jobs.schedule('s', 'every 1 hour', 's')").await;
    hours_pass(&db, 2).await;
    let mut programs = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let program = cluster.connect("start").await;
        programs.spawn(async move {
            for _ in 0..10 {
                run(&program, "select jobs.schedule('s', 'every 1 hour', 's')").await;
                maintain(&program).await;
            }
        });
    }
    programs.join_all().await;
    assert_eq!(number(&db, "select count(*) from jobs.periodic").await, 1);
    let jobs = count(&db, "s").await;
    let ticks = number(&db, "select count(distinct scheduled_at) from jobs.jobs").await;
    assert_eq!(jobs, ticks);
    assert!((1..=2).contains(&jobs), "the tick that was missed: {jobs}");
}

#[tokio::test]
async fn a_pause_stops_ticks_beside_schedulers_and_none_of_it_is_made_up_for() {
    let (cluster, db) = with("pause", &[("jobs.interval", "50ms")]).await;
    run(&db, "select jobs.schedule('p', 'every 1 second', 'p')").await;
    let schedulers = schedulers(&cluster, "pause", 2).await;
    comes_true(&db, "count(*) > 0 from jobs.jobs where kind = 'p'").await;
    run(&db, "select jobs.pause_periodic('p')").await;
    let before = count(&db, "p").await;
    seconds(3.0).await;
    assert_eq!(count(&db, "p").await, before, "a tick in the pause");
    run(&db, "create table pause as select paused_at, clock_timestamp() as resumed_at from jobs.periodic;
         select jobs.resume_periodic('p')").await;
    poll_until("it ticks again", SOON, async || count(&db, "p").await > before).await;
    drop(schedulers);
    let made_up = "select count(*) from jobs.jobs, pause where scheduled_at > paused_at and scheduled_at <= resumed_at";
    assert_eq!(number(&db, made_up).await, 0);
}

#[tokio::test]
async fn programs_that_run_it_at_once_get_the_job_that_its_unique_options_allow() {
    let (cluster, db) = quiet("now").await;
    run(&db, r#"select jobs.schedule('u', '@yearly', 'u', unique_opts => '{"by_kind": true}')"#)
        .await;
    let mut programs = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let program = cluster.connect("now").await;
        programs.spawn(async move { number(&program, "select jobs.run_periodic('u')").await });
    }
    let ids = programs.join_all().await;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(count(&db, "u").await, 1);
    assert_eq!(
        number(&db, "select count(*) from jobs.audit where action = 'run_periodic'").await,
        1,
        "who found the job there has changed nothing"
    );
}

#[tokio::test]
async fn under_serializable_a_definition_that_changed_is_refused() {
    let (cluster, db) = quiet("strict").await;
    run(&db, "select jobs.schedule('s', 'every 1 hour', 's')").await;
    let mut hours = 1;
    for level in ["repeatable read", "serializable"] {
        for call in [
            "select jobs.schedule('s', '@daily', 's')",
            "select jobs.pause_periodic('s')",
            "select jobs.resume_periodic('s')",
            "select jobs.unschedule('s')",
        ] {
            let other = cluster.connect("strict").await;
            run(
                &other,
                &format!("begin isolation level {level}; select count(*) from jobs.periodic"),
            )
            .await;
            hours += 1;
            run(&db, &format!("select jobs.schedule('s', 'every {hours} hours', 's')")).await;
            assert_eq!(sqlstate(other.execute(call, &[]).await), "40001", "{call}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_takes_definitions_along_and_a_restore_is_not_disturbed() {
    let (cluster, db) = quiet("before").await;
    run(
        &db,
        r#"select jobs.schedule('one', '0 * * * *', 'one', '{"x": 1}', 'Europe/Berlin', '{"by_kind": true}', 'q', 2, 3, '{t}', '{"m": 1}', '5 minutes', '"river"');
           select jobs.schedule('two', '30 2 * * *', 'two', time_zone => 'America/New_York');
           select jobs.schedule('three', 'every 1 hour', 'three')"#,
    )
    .await;
    hours_pass(&db, 1).await;
    maintain(&db).await;
    run(
        &db,
        "select count(*) from jobs.insert_batch('many', array_fill('1'::jsonb, array[20000]))",
    )
    .await;
    // Due in the copy, where somebody does maintenance while it is being restored.
    hours_pass(&db, 3).await;
    let file = cluster.directory().join("dump");
    let program = |program: &str, args: &[&str]| {
        let output = cluster.bin(program).args(args).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
    };
    let file = file.to_str().unwrap();
    program("pg_dump", &["-Fc", "-f", file, "before"]);

    let whole = "select string_agg(to_jsonb(p)::text, ',' order by name) from jobs.periodic p";
    program("createdb", &["still"]);
    program("pg_restore", &["-e", "-d", "still", file]);
    let still = cluster.connect("still").await;
    assert_eq!(text(&still, whole).await, text(&db, whole).await);

    program("createdb", &["awake"]);
    let db = cluster.connect("awake").await;
    let maintenance = tokio::spawn(async move {
        // There is no such function at first.
        while !db.is_closed() {
            let _ = db.execute("select jobs.maintain()", &[]).await;
        }
    });
    program("pg_restore", &["-e", "-d", "awake", file]);
    let db = cluster.connect("awake").await;
    poll_until("what is due is dealt with", SOON, async || number(&db, DUE).await == 0).await;
    maintenance.abort();
    assert_eq!(count(&db, "one").await, 1, "unique");
    assert_eq!(count(&db, "three").await, 2, "the tick before, and one more");
    let reply = "select string_agg(concat_ws(' ', name, last_skipped, last_job_id > 20000, last_error), ', ' order by name)
                  from jobs.periodic where name <> 'two'";
    assert_eq!(text(&db, reply).await, "one t f, three f t");
    assert_eq!(count(&db, "many").await, 20000);
}
