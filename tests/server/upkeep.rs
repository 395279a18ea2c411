//! What a pass of maintenance costs, however many queues there are, and that it ends when it is to.

use jobs_tests::{
    Client, Cluster, SOON, blocked, comes_true, history_is_written, insert, is, number, poll_until,
    run, seconds, state, workers,
};

/// One transaction, also where it is several statements.
/// Whoever makes a job available that was not so at once waits while `public.gate` has a row.
const GATE: &str = "create table public.gate (closed boolean);
    create function public.wait_at_gate() returns trigger language plpgsql as $$ begin
      while exists (select from public.gate) loop perform pg_sleep(0.01); end loop; return null; end $$;
    create trigger gate after insert on jobs.ready for each row when (new.seq <> new.job_id) execute function public.wait_at_gate();
    insert into public.gate values (true)";

#[tokio::test]
async fn nothing_is_maintained_once_it_is_paused() {
    let cluster = Cluster::builder().set("jobs.interval", "50ms").start();
    let db = cluster.database("paused").await;
    run(&db, GATE).await;
    let first = insert(&db, "'k', scheduled_at => clock_timestamp() + '0.1 s'").await;
    comes_true(
        &db,
        "count(*) = 1 from pg_stat_activity where backend_type = 'jobs worker' and wait_event = 'PgSleep'",
    )
    .await;
    // A round is under way.
    let pauser = cluster.connect("paused").await;
    let pausing =
        tokio::spawn(async move { run(&pauser, "select jobs.pause_maintenance()").await });
    poll_until("it is paused, or waits", SOON, async || {
        let waits = "count(*) = 1 from pg_locks where not granted";
        pausing.is_finished() || is(&db, waits).await
    })
    .await;
    assert!(!pausing.is_finished(), "a round is still under way");
    run(&db, "delete from public.gate").await;
    pausing.await.expect("the pauser");
    assert_eq!(state(&db, first).await.as_deref(), Some("available"));
    let second = insert(&db, "'k', scheduled_at => clock_timestamp() + '0.1 s'").await;
    seconds(1.5).await;
    assert_eq!(state(&db, second).await.as_deref(), Some("scheduled"));
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "count(*) = 2 from jobs.jobs where state = 'available'").await;
}

#[tokio::test]
async fn nothing_is_maintained_by_hand_once_it_is_paused() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("by_hand").await;
    let other = cluster.connect("by_hand").await;
    let pause = "select jobs.pause_maintenance()";
    let refused = |why: &str| {
        format!(
            "count(*) = (select count(*) from jobs.maintenance_task) and bool_and(rows = 0 and error like '{why}%') from jobs.maintain()"
        )
    };
    // What is to be committed yet would be so after it was paused.
    run(
        &other,
        "begin; select jobs.insert('k'); select jobs.maintain()",
    )
    .await;
    let pauser = cluster.connect("by_hand").await;
    let pausing = tokio::spawn(async move {
        run(&pauser, pause).await;
        pauser
    });
    blocked(&db, 1).await;
    run(&other, "commit").await;
    let pauser = pausing.await.expect("the pauser");
    assert!(is(&db, &refused("maintenance was paused by")).await);
    // It ends at once for who began before it did.
    for level in ["read committed", "repeatable read", "serializable"] {
        run(&db, "select jobs.resume_maintenance()").await;
        run(
            &other,
            &format!("begin isolation level {level}; select count(*) from jobs.job"),
        )
        .await;
        let due = insert(&db, "'k', scheduled_at => clock_timestamp() + '0.05 s'").await;
        seconds(0.1).await;
        run(&db, pause).await;
        assert!(
            is(&other, &refused("maintenance was paused by")).await,
            "{level}"
        );
        run(&other, "commit").await;
        assert_eq!(
            state(&db, due).await.as_deref(),
            Some("scheduled"),
            "{level}"
        );
    }
    // Nobody waits for who is about to pause it.
    run(&db, "select jobs.resume_maintenance()").await;
    run(&pauser, &format!("begin; {pause}")).await;
    run(&db, "set statement_timeout = '60s'").await;
    assert!(is(&db, &refused("maintenance is being paused")).await);
    run(&pauser, "rollback").await;
    assert!(
        is(
            &db,
            "bool_and(error is null) and sum(rows) = 3 from jobs.maintain()"
        )
        .await
    );
    // Who has paused it himself is no exception, nor is he in his own way.
    run(&db, &format!("begin; {pause}")).await;
    assert!(is(&db, &refused("maintenance was paused by")).await);
    run(&db, "select jobs.resume_maintenance()").await;
    assert!(is(&db, "bool_and(error is null) from jobs.maintain()").await);
    run(&db, "commit").await;
}

/// Makes a job final in a queue where it is kept, and waits until the worker has looked at it.
async fn kept_and_passed_over(db: &Client, key: &str) {
    run(
        db,
        &format!(
            "select jobs.insert('k', '\"{key}\"', '{{\"by_args\": true}}', queue => 'long');
             select jobs.complete(id, token) from jobs.fetch('long')"
        ),
    )
    .await;
    // Of the same retention, and final later.
    run(
        db,
        "select jobs.insert('k', queue => 'short'); select jobs.complete(id, token) from jobs.fetch('short')",
    )
    .await;
    comes_true(db, "count(*) = 0 from jobs.jobs where queue = 'short'").await;
}

#[tokio::test]
async fn a_final_job_that_gets_a_queue_where_it_is_kept_for_less_time_is_pruned() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("max_prepared_transactions", 2)
        .start();
    let db = cluster.database("moved").await;
    run(
        &db,
        "select jobs.configure_queue('short', retention_completed => '0.1 s')",
    )
    .await;
    for (begin, commit) in [
        ("begin", "commit"),
        (
            "begin",
            "prepare transaction 'moved'; commit prepared 'moved'",
        ),
    ] {
        kept_and_passed_over(&db, "a").await;
        run(
            &db,
            &format!(r#"{begin}; select jobs.insert('k', '"a"', '{{"by_args": true, "on_conflict": {{"update": {{"completed": ["queue"]}}}}}}', queue => 'short')"#),
        )
        .await;
        for statement in commit.split("; ") {
            run(&db, statement).await;
        }
        comes_true(&db, "count(*) = 0 from jobs.jobs").await;
    }
}

#[tokio::test]
async fn with_many_queues_that_have_a_retention_of_their_own_the_worker_rests() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "0.1s")
        .start();
    let db = cluster.database("rests").await;
    run(
        &db,
        "select count(jobs.configure_queue('q' || n, retention_completed => (n || ' hours')::interval)) from generate_series(1, 100) n;
         select count(jobs.insert('k', queue => 'q' || n)) from generate_series(1, 100) n;
         select jobs.insert('k');
         select count(jobs.complete(f.id, f.token)) from generate_series(1, 100) n, jobs.fetch('q' || n) f;
         select jobs.complete(id, token) from jobs.fetch()",
    )
    .await;
    comes_true(&db, "count(*) = 100 from jobs.jobs").await;
    // What becomes final after them is still pruned in time.
    run(
        &db,
        "select jobs.insert('k'); select jobs.complete(id, token) from jobs.fetch()",
    )
    .await;
    comes_true(&db, "count(*) = 100 from jobs.jobs").await;
    history_is_written(&db).await;
    // It is there for five seconds without work, and then goes, and nobody sends for another one.
    poll_until("the worker goes", SOON, async || {
        workers(&db, "rests").await == 0
    })
    .await;
    for _ in 0..200 {
        assert_eq!(workers(&db, "rests").await, 0, "it comes back for nothing");
        seconds(0.02).await;
    }
}

/// How often an index of this table was searched.
async fn searches(db: &Client, table: &str) -> i64 {
    run(db, "select pg_stat_force_next_flush()").await;
    let counted = "select sum(idx_scan)::bigint from pg_stat_user_indexes where relid = ('jobs.' || $1)::regclass";
    db.query_one(counted, &[&table])
        .await
        .expect(counted)
        .get(0)
}

#[tokio::test]
async fn queues_of_which_nothing_is_due_cost_nothing() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "200ms")
        .set("autovacuum", "off")
        .start();
    let db = cluster.database("names").await;
    run(
        &db,
        "select count(*) from jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'k', 'queue', 'q' || n, 'scheduled_at', '2999-01-01 00:00Z')) from generate_series(1, 10000) n))",
    )
    .await;
    let pass = async || {
        let due = insert(
            &db,
            "'k', queue => 'due', scheduled_at => clock_timestamp() + '50 ms'",
        )
        .await;
        poll_until("a pass", SOON, async || {
            state(&db, due).await.as_deref() == Some("available")
        })
        .await;
    };
    // The worker tells its statistics at the end of a pass, if a second has gone by since.
    poll_until("control: searches are counted", SOON, async || {
        pass().await;
        searches(&db, "scheduled").await > 0
    })
    .await;
    let before = searches(&db, "scheduled").await;
    for _ in 0..10 {
        pass().await;
    }
    seconds(1.5).await;
    let searched = searches(&db, "scheduled").await - before;
    assert!(searched < 2000, "{searched} searches in ten passes or so");
    // By hand, too.
    let before = searches(&db, "scheduled").await;
    run(&db, "select jobs.maintain()").await;
    let searched = searches(&db, "scheduled").await - before;
    assert!(searched < 100, "{searched} searches");
}

/// Jobs of this queue become final, in a transaction of their own or as part of one.
fn completed(queue: &str, jobs: usize) -> String {
    format!(
        "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{jobs}]), queue => '{queue}');
         select count(jobs.complete(id, token)) from jobs.fetch('{queue}', {jobs})"
    )
}

/// How many jobs of each queue are final, in the order of their names.
async fn left(db: &Client) -> String {
    let sql = "select coalesce(string_agg(queue || ' ' || n, ', ' order by queue), '') from (
                 select j.queue, count(*) as n from jobs.finished f join jobs.job j on j.id = f.job_id group by j.queue) q";
    db.query_one(sql, &[]).await.expect(sql).get(0)
}

/// How many entries of an index were looked at, and how often it was searched.
async fn entries_read(db: &Client, index: &str) -> i64 {
    run(db, "select pg_stat_force_next_flush()").await;
    let read = "select idx_tup_read + idx_scan from pg_stat_user_indexes where indexrelname = $1";
    db.query_one(read, &[&index]).await.expect(read).get(0)
}

#[tokio::test]
async fn final_jobs_that_stay_cost_nothing_however_many_queues_they_are_of() {
    const NAMES: i64 = 100_000;
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("autovacuum", "off")
        .start();
    let db = cluster.database("names").await;
    let complete_all = "select count(*) from (select array_agg(id) as ids, array_agg(token) as tokens from jobs.fetch('n', 10000)) f, jobs.complete_many(f.ids, f.tokens); ";
    // Jobs of many queues that go by the setting, some that their queue keeps, and some that their
    // uniqueness keeps for longer than their queue does.
    run(
        &db,
        &format!(
            "select jobs.pause_maintenance();
             select jobs.configure_queue('short', retention_completed => '1 ms'), jobs.configure_queue('long', retention_completed => '1 hour'), jobs.configure_queue('ever', retention_completed => '-1 s');
             select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{NAMES}]), queue => 'n');
             {}
             update jobs.job set queue = 'n' || id;
             {}; {};
             select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 3000) n), '{{\"by_args\": true, \"window\": \"1 day\"}}', queue => 'short');
             select count(jobs.complete(id, token)) from jobs.fetch('short', 3000)",
            complete_all.repeat(10),
            completed("long", 3000),
            completed("ever", 3000),
        ),
    )
    .await;
    run(&db, "select jobs.resume_maintenance()").await;
    let pass = async || {
        run(&db, &completed("short", 1)).await;
        comes_true(
            &db,
            "not exists (select from jobs.job where queue = 'short' and unique_key is null)",
        )
        .await;
    };
    // What was to be noted is, and what was configured is followed.
    comes_true(&db, "count(*) = 0 from jobs.retention_change").await;
    comes_true(
        &db,
        "count(*) = 9000 from jobs.finished where kept_until > now()",
    )
    .await;
    let read = async || {
        (
            entries_read(&db, "finished_by_age").await,
            entries_read(&db, "finished_kept").await,
        )
    };
    // The worker tells its statistics at the end of a pass, if a second has gone by since. It has
    // looked at all jobs of the queue "short" that are kept, and for the oldest ones of the others.
    poll_until("control: reads are counted", SOON, async || {
        pass().await;
        let (by_age, kept) = read().await;
        by_age > 0 && kept > 3000
    })
    .await;
    // This reads all of the others, and can be planned along no other index.
    run(
        &db,
        "begin; set local enable_seqscan = off; set local enable_bitmapscan = off;
         select count(*) from jobs.finished where state = 'completed' and not is_kept and finalized_at > '-infinity';
         commit",
    )
    .await;
    // All that was read by now is told once two passes have come after a second.
    let all_told = async || {
        seconds(1.5).await;
        pass().await;
        pass().await;
        read().await
    };
    let before = all_told().await;
    assert!(before.0 > NAMES, "control: entries are counted");
    for _ in 0..20 {
        pass().await;
    }
    let after = all_told().await;
    let (by_age, kept) = (after.0 - before.0, after.1 - before.1);
    // Once in a while it is also read whether the table is so long that its jobs are not to be
    // counted: 10,000 entries.
    assert!(by_age < NAMES, "{by_age} entries in twenty passes or so");
    assert!(kept < 3000, "{kept} entries in twenty passes or so");
    assert_eq!(
        number(&db, "select count(*) from jobs.finished").await,
        NAMES + 9000
    );
}

#[tokio::test]
async fn a_retention_that_is_changed_counts_for_jobs_that_are_final_already() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("changed").await;
    let configured = async |what: &str| {
        run(&db, &format!("select jobs.configure_queue({what})")).await;
        run(&db, "select jobs.maintain()").await;
    };
    let trigger = "create function public.see() returns trigger language plpgsql as $$ begin return null; end $$;
         create trigger see after insert or update or delete on jobs.finished for each row execute function public.see()";
    for by_statements in [false, true] {
        if by_statements {
            run(&db, trigger).await;
        }
        for queue in ["a", "b", "c"] {
            run(&db, &completed(queue, 3)).await;
        }
        run(&db, "select jobs.insert('k', queue => 'a'); select jobs.fail(id, token, 'e', retryable => false) from jobs.fetch('a')").await;
        // It gets one of its own, of which only one state is.
        configured("'a', retention_completed => '-1 s'").await;
        configured("'b', retention_completed => '1 hour'").await;
        assert_eq!(left(&db).await, "a 4, b 3, c 3");
        configured("'a', retention_completed => '0'").await;
        assert_eq!(left(&db).await, "a 1, b 3, c 3");
        configured("'a', retention_completed => '0', retention_discarded => '0'").await;
        assert_eq!(left(&db).await, "b 3, c 3");
        // It loses it again: the setting counts, also if it is changed.
        configured("'b', retention_completed => '-1 s'").await;
        configured("'b'").await;
        cluster.set("jobs.retention_completed", "0");
        cluster.reload();
        poll_until("the setting is read", SOON, async || {
            is(
                &db,
                "current_setting('jobs.retention_completed') in ('0', '0s')",
            )
            .await
        })
        .await;
        configured("'c', retention_completed => '1 day'").await;
        assert_eq!(left(&db).await, "c 3");
        configured("'c'").await;
        assert_eq!(left(&db).await, "");
        cluster.set("jobs.retention_completed", "1d");
        cluster.reload();
        poll_until("the setting is read", SOON, async || {
            is(&db, "current_setting('jobs.retention_completed') = '1d'").await
        })
        .await;
    }
    assert_eq!(
        number(&db, "select count(*) from jobs.retention_change").await,
        0
    );
}

#[tokio::test]
async fn a_setting_that_is_changed_counts_for_jobs_that_are_final_already() {
    let cluster = Cluster::builder().set("jobs.interval", "50ms").start();
    let db = cluster.database("reloaded").await;
    run(&db, &completed("a", 3)).await;
    poll_until("the worker goes", SOON, async || {
        workers(&db, "reloaded").await == 0
    })
    .await;
    cluster.set("jobs.retention_completed", "1s");
    cluster.reload();
    run(&db, &completed("b", 1)).await;
    comes_true(&db, "count(*) = 0 from jobs.finished").await;
}

#[tokio::test]
async fn who_is_just_completing_jobs_when_a_retention_is_changed_leaves_none_behind() {
    let cluster = Cluster::builder()
        .set("jobs.enabled", "off")
        .set("max_prepared_transactions", 2)
        .start();
    let db = cluster.database("racing").await;
    let other = cluster.connect("racing").await;
    run(&db, "create table public.snapshot (n integer)").await;
    for (level, is_prepared) in [
        ("read committed", false),
        ("repeatable read", false),
        ("serializable", false),
        ("read committed", true),
    ] {
        for jobs in [1, 3] {
            let case = format!("{level}, {is_prepared}, {jobs}");
            // Kept for ever, by what is known when they become final.
            run(&db, "select jobs.configure_queue('q', retention_completed => '-1 s'); select jobs.maintain()").await;
            run(
                &other,
                &format!(
                    "begin isolation level {level}; select * from public.snapshot; {}",
                    completed("q", jobs)
                ),
            )
            .await;
            if is_prepared {
                run(&other, "prepare transaction 'racing'").await;
            }
            run(
                &db,
                "select jobs.configure_queue('q', retention_completed => '0')",
            )
            .await;
            run(&db, "select jobs.maintain()").await;
            run(&db, "select jobs.maintain()").await;
            run(
                &other,
                if is_prepared {
                    "commit prepared 'racing'"
                } else {
                    "commit"
                },
            )
            .await;
            assert_eq!(left(&db).await, format!("q {jobs}"), "{case}");
            run(&db, "select jobs.maintain()").await;
            assert_eq!(left(&db).await, "", "{case}");
            // By a snapshot that does not show the change.
            run(&db, "select jobs.configure_queue('q', retention_completed => '-1 s'); select jobs.maintain()").await;
            run(
                &other,
                &format!("begin isolation level {level}; select * from public.snapshot"),
            )
            .await;
            run(
                &db,
                "select jobs.configure_queue('q', retention_completed => '0')",
            )
            .await;
            run(&db, "select jobs.maintain()").await;
            run(&other, &completed("q", jobs)).await;
            run(&other, "commit").await;
            run(&db, "select jobs.maintain()").await;
            assert_eq!(left(&db).await, "", "{case}, with an old snapshot");
        }
    }
    // Of one that somebody has locked it is noted later.
    run(
        &db,
        "select jobs.configure_queue('q', retention_completed => '-1 s')",
    )
    .await;
    run(&db, &completed("q", 5)).await;
    run(&db, "select jobs.maintain()").await;
    let older = cluster.connect("racing").await;
    run(&older, "begin; select pg_current_xact_id()").await;
    run(
        &db,
        "select jobs.configure_queue('q', retention_completed => '0')",
    )
    .await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(left(&db).await, "q 5", "who is older is waited for");
    run(&other, "begin; select from jobs.finished where job_id = (select min(job_id) + 2 from jobs.finished) for update").await;
    run(&older, "commit").await;
    run(&db, "select jobs.maintain()").await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(left(&db).await, "q 1");
    run(&other, "commit").await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(left(&db).await, "");
    assert_eq!(
        number(&db, "select count(*) from jobs.retention_change").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn however_short_a_retention_is_no_job_is_left_behind() {
    let cluster = Cluster::builder().set("jobs.interval", "20ms").start();
    let db = cluster.database("short").await;
    run(
        &db,
        "select jobs.configure_queue('q', retention_completed => '1 ms')",
    )
    .await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        let session = cluster.connect("short").await;
        workers.push(tokio::spawn(async move {
            for n in 0..200 {
                run(
                    &session,
                    &format!(
                        "begin; {}; select pg_sleep(0.00{})",
                        completed("q", 1),
                        n % 10
                    ),
                )
                .await;
                run(&session, "commit").await;
            }
        }));
    }
    for worker in workers {
        worker.await.expect("a worker");
    }
    comes_true(&db, "count(*) = 0 from jobs.finished").await;
}

#[tokio::test]
async fn what_was_locked_is_pruned_in_time_also_by_statements() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "0.1s")
        .start();
    let db = cluster.database("locked").await;
    // With a trigger the table is not written directly.
    run(
        &db,
        "create function public.see() returns trigger language plpgsql as $$ begin return null; end $$;
         create trigger see after delete on jobs.finished for each row execute function public.see();
         select jobs.pause_maintenance();
         select count(jobs.insert('k')) from generate_series(1, 5);
         select count(jobs.complete(id, token)) from jobs.fetch('default', 5)",
    )
    .await;
    let locker = cluster.connect("locked").await;
    run(
        &locker,
        "begin; select from jobs.finished where job_id in (2, 4) for update",
    )
    .await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "count(*) = 2 from jobs.job").await;
    run(&locker, "commit").await;
    comes_true(&db, "count(*) = 0 from jobs.job").await;
}

/// Whether the server has all the subtransactions of this session's transaction at hand, so that
/// others need not look them up, and how many that are. Told from Postgres 16 on.
async fn subtransactions(db: &Client, session: &Client) -> Option<(i32, bool)> {
    if number(db, "select current_setting('server_version_num')::bigint").await < 160_000 {
        return None;
    }
    let pid = number(session, "select pg_backend_pid()::bigint").await;
    let told = format!(
        "select s.subxact_count, s.subxact_overflowed from pg_stat_get_backend_idset() b, pg_stat_get_backend_subxact(b) s where pg_stat_get_backend_pid(b) = {pid}"
    );
    let row = db.query_one(&told, &[]).await.expect(&told);
    Some((row.get(0), row.get(1)))
}

/// Batches that do not wait, under keys of which others are at work on some: under READ COMMITTED
/// all of a transaction keep few, above that each may keep one (docs/uniqueness.md).
#[tokio::test]
async fn a_batch_that_does_not_wait_keeps_one_subtransaction_at_most() {
    const BATCHES: i32 = 100;
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = cluster.database("batches").await;
    let session = cluster.connect("batches").await;
    let options = r#"{"by_args": true, "by_state": ["running"], "wait": false}"#;
    let batch = |n: i32| {
        format!(
            "select count(*) from jobs.insert_batch('u', array(select to_jsonb(n) from generate_series({n} * 10, {n} * 10 + 9) n), '{options}')"
        )
    };
    let all: Vec<String> = (0..BATCHES).map(batch).collect();
    let all = all.join("; ");
    for level in ["read committed", "repeatable read", "serializable"] {
        // Each key is taken, and one of each batch is being worked on.
        run(&db, &all).await;
        let rival = cluster.connect("batches").await;
        let busy = format!(
            r#"begin; select count(jobs.insert('u', to_jsonb(n * 10), '{options}')) from generate_series(0, {BATCHES} - 1) n"#
        );
        run(&rival, &busy).await;
        run(&session, &format!("begin isolation level {level}")).await;
        run(&session, &all).await;
        if let Some((count, has_more)) = subtransactions(&db, &session).await {
            println!("{level}: {count}, more: {has_more}");
            match level {
                "read committed" => assert!(!has_more && count <= 48, "{count}"),
                _ => assert!(
                    has_more,
                    "{level}: {count}: then docs/uniqueness.md is wrong"
                ),
            }
        }
        run(&session, "commit").await;
        run(&rival, "rollback").await;
        let inserted = "select count(*) from jobs.job";
        assert_eq!(number(&db, inserted).await, 1900, "{level}");
        run(&db, "select jobs.delete_many(kind => 'u')").await;
    }
}

/// Runs it in a transaction, which then has few subtransactions.
async fn keeps_few(db: &Client, session: &Client, level: &str, sql: &str) {
    run(session, &format!("begin isolation level {level}")).await;
    run(session, sql).await;
    if let Some((count, has_more)) = subtransactions(db, session).await {
        assert!(!has_more && count <= 48, "{count}, {level}: {sql}");
    }
    run(session, "commit").await;
}

#[tokio::test]
async fn no_call_has_more_subtransactions_than_the_server_has_at_hand() {
    let cluster = Cluster::builder()
        .set("jobs.enabled", "off")
        .set("jobs.batch_size", 40)
        .start();
    let db = cluster.database("few").await;
    let session = cluster.connect("few").await;
    let due = "select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 4000) n), queue => 'q', scheduled_at => clock_timestamp() + '0.1 s')";
    // Many rounds; then some in which every other job fails.
    run(&db, due).await;
    seconds(0.15).await;
    keeps_few(&db, &session, "read committed", "select jobs.maintain()").await;
    assert!(is(&db, "count(*) = 4000 from jobs.ready").await);
    run(
        &db,
        "create function public.refuse() returns trigger language plpgsql as $$ begin if new.job_id % 2 = 1 then raise 'refused'; end if; return new; end $$;
         create trigger refuse before insert on jobs.ready for each row when (new.seq <> new.job_id) execute function public.refuse()",
    )
    .await;
    run(&db, "select count(jobs.complete(f.id, f.token)) from jobs.fetch('q', 4000) f; update jobs.finished set finalized_at = finalized_at - interval '100 days'").await;
    run(&db, due).await;
    seconds(0.15).await;
    keeps_few(&db, &session, "read committed", "select jobs.maintain()").await;
    // The other tasks had room, too.
    assert!(is(&db, "count(*) = 0 from jobs.finished").await);
    assert!(is(&db, "count(*) > 10 from jobs.ready").await);
    // Nor has who fetches what is due, job by job.
    let fetch = "do $$ begin for n in 1 .. 200 loop perform jobs.insert('k', queue => 'r', scheduled_at => clock_timestamp() + '1 ms'); perform pg_sleep(0.002); perform jobs.fetch('r'); end loop; end $$";
    run(&db, "drop trigger refuse on jobs.ready").await;
    keeps_few(&db, &session, "read committed", fetch).await;
    // Who does not wait for a key: in turn, and with others at work on some of them.
    let one = r#"select count(jobs.insert('u', to_jsonb(n), '{"by_args": true, "wait": false}')) from generate_series(1, 300) n"#;
    let busy = r#"begin; select count(jobs.insert('u', to_jsonb(1000 + n * 10), '{"by_args": true}')) from generate_series(0, 99) n"#;
    let many = r#"select count(*) from jobs.insert_batch('u', array(select to_jsonb(1000 + n) from generate_series(0, 999) n), '{"by_args": true, "by_state": ["running"], "wait": false}')"#;
    for level in ["read committed", "repeatable read", "serializable"] {
        keeps_few(&db, &session, level, one).await;
        let rival = cluster.connect("few").await;
        run(&db, many).await;
        run(&rival, busy).await;
        keeps_few(&db, &session, level, many).await;
        run(&rival, "rollback").await;
        run(&db, "select jobs.delete_many(kind => 'u')").await;
    }
}
