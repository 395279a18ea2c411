//! How long final jobs are kept: settings that change, jobs that move, locks in the way, and what a
//! pass costs.

use std::time::{Duration, Instant};

use jobs_tests::{
    Client, Cluster, SOON, blocked, comes_true, count, history_is_written, insert, is, number,
    poll_until, quiet, returns, run, scalar, seconds, state, with, workers, workers_become,
};

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
    run(db, "select jobs.insert('k', queue => 'short'); select jobs.complete(id, token) from jobs.fetch('short')").await;
    comes_true(db, "count(*) = 0 from jobs.jobs where queue = 'short'").await;
}

#[tokio::test]
async fn a_final_job_that_gets_a_queue_where_it_is_kept_for_less_time_is_pruned() {
    let (_cluster, db) =
        with("moved", &[("jobs.interval", "50ms"), ("max_prepared_transactions", "2")]).await;
    run(&db, "select jobs.configure_queue('short', retention_completed => '0.1 s')").await;
    for (begin, commit) in
        [("begin", "commit"), ("begin", "prepare transaction 'moved'; commit prepared 'moved'")]
    {
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
        .without_visits()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "0.1s")
        .start();
    let db = cluster.database("rests").await;
    run(&db, "select count(jobs.configure_queue('q' || n, retention_completed => (n || ' hours')::interval)) from generate_series(1, 100) n;
         select count(jobs.insert('k', queue => 'q' || n)) from generate_series(1, 100) n;
         select jobs.insert('k');
         select count(jobs.complete(f.id, f.token)) from generate_series(1, 100) n, jobs.fetch('q' || n) f;
         select jobs.complete(id, token) from jobs.fetch()").await;
    comes_true(&db, "count(*) = 100 from jobs.jobs").await;
    // What becomes final after them is still pruned in time.
    run(&db, "select jobs.insert('k'); select jobs.complete(id, token) from jobs.fetch()").await;
    comes_true(&db, "count(*) = 100 from jobs.jobs").await;
    history_is_written(&db).await;
    // It is there for five seconds without work, and then goes, and nobody sends for another one.
    poll_until("the worker goes", SOON, async || workers(&db, "rests").await == 0).await;
    for _ in 0..200 {
        assert_eq!(workers(&db, "rests").await, 0, "it comes back for nothing");
        seconds(0.02).await;
    }
}

/// Jobs of this queue become final, in a transaction of their own or as part of one.
fn completed(queue: &str, jobs: usize) -> String {
    format!("select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{jobs}]), queue => '{queue}');
         select count(jobs.complete(id, token)) from jobs.fetch('{queue}', {jobs})")
}

/// How many jobs of each queue are final, in the order of their names.
async fn left(db: &Client) -> String {
    let sql = "select coalesce(string_agg(queue || ' ' || n, ', ' order by queue), '') from (
                 select j.queue, count(*) as n from jobs.finished f join jobs.job j on j.id = f.job_id group by j.queue) q";
    scalar(db, sql).await
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
    let (_cluster, db) = with("names", &[("jobs.interval", "50ms"), ("autovacuum", "off")]).await;
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
    comes_true(&db, "count(*) = 9000 from jobs.finished where kept_until > now()").await;
    let read = async || {
        (entries_read(&db, "finished_by_age").await, entries_read(&db, "finished_kept").await)
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
    run(&db, "begin; set local enable_seqscan = off; set local enable_bitmapscan = off;
         select count(*) from jobs.finished where state = 'completed' and not is_kept and finalized_at > '-infinity';
         commit").await;
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
    // counted: 10,000 entries, the oftener the longer the passes take.
    assert!(by_age < 5 * NAMES, "{by_age} entries in twenty passes or so");
    assert!(kept < 3000, "{kept} entries in twenty passes or so");
    assert_eq!(count(&db, "jobs.finished").await, NAMES + 9000);
}

#[tokio::test]
async fn a_retention_that_is_changed_counts_for_jobs_that_are_final_already() {
    let (cluster, db) = quiet("changed").await;
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
        comes_true(&db, "current_setting('jobs.retention_completed') in ('0', '0s')").await;
        configured("'c', retention_completed => '1 day'").await;
        assert_eq!(left(&db).await, "c 3");
        configured("'c'").await;
        assert_eq!(left(&db).await, "");
        cluster.set("jobs.retention_completed", "1d");
        cluster.reload();
        comes_true(&db, "current_setting('jobs.retention_completed') = '1d'").await;
    }
    assert_eq!(count(&db, "jobs.retention_change").await, 0);
}

#[tokio::test]
async fn a_setting_that_is_changed_counts_for_jobs_that_are_final_already() {
    let (cluster, db) = with("reloaded", &[("jobs.interval", "50ms")]).await;
    run(&db, &completed("a", 3)).await;
    poll_until("the worker goes", SOON, async || workers(&db, "reloaded").await == 0).await;
    cluster.set("jobs.retention_completed", "1s");
    cluster.reload();
    run(&db, &completed("b", 1)).await;
    comes_true(&db, "count(*) = 0 from jobs.finished").await;
}

#[tokio::test]
async fn who_is_just_completing_jobs_when_a_retention_is_changed_leaves_none_behind() {
    let (cluster, db) =
        with("racing", &[("jobs.enabled", "off"), ("max_prepared_transactions", "2")]).await;
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
            run(&db, "select jobs.configure_queue('q', retention_completed => '0')").await;
            run(&db, "select jobs.maintain()").await;
            run(&db, "select jobs.maintain()").await;
            run(&other, if is_prepared { "commit prepared 'racing'" } else { "commit" }).await;
            assert_eq!(left(&db).await, format!("q {jobs}"), "{case}");
            run(&db, "select jobs.maintain()").await;
            assert_eq!(left(&db).await, "", "{case}");
            // By a snapshot that does not show the change.
            run(&db, "select jobs.configure_queue('q', retention_completed => '-1 s'); select jobs.maintain()").await;
            run(&other, &format!("begin isolation level {level}; select * from public.snapshot"))
                .await;
            run(&db, "select jobs.configure_queue('q', retention_completed => '0')").await;
            run(&db, "select jobs.maintain()").await;
            run(&other, &completed("q", jobs)).await;
            run(&other, "commit").await;
            run(&db, "select jobs.maintain()").await;
            assert_eq!(left(&db).await, "", "{case}, with an old snapshot");
        }
    }
    // Of one that a session has locked it is noted later.
    run(&db, "select jobs.configure_queue('q', retention_completed => '-1 s')").await;
    run(&db, &completed("q", 5)).await;
    run(&db, "select jobs.maintain()").await;
    let older = cluster.connect("racing").await;
    run(&older, "begin; select pg_current_xact_id()").await;
    run(&db, "select jobs.configure_queue('q', retention_completed => '0')").await;
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
    assert_eq!(count(&db, "jobs.retention_change").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn however_short_a_retention_is_no_job_is_left_behind() {
    let (cluster, db) = with("short", &[("jobs.interval", "20ms")]).await;
    run(&db, "select jobs.configure_queue('q', retention_completed => '1 ms')").await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        let session = cluster.connect("short").await;
        workers.push(tokio::spawn(async move {
            for n in 0..200 {
                run(
                    &session,
                    &format!("begin; {}; select pg_sleep(0.00{})", completed("q", 1), n % 10),
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
    let (cluster, db) =
        with("locked", &[("jobs.interval", "50ms"), ("jobs.retention_completed", "0.1s")]).await;
    // With a trigger the table is not written directly.
    run(&db, "create function public.see() returns trigger language plpgsql as $$ begin return null; end $$;
         create trigger see after delete on jobs.finished for each row execute function public.see();
         select jobs.pause_maintenance();
         select count(jobs.insert('k')) from generate_series(1, 5);
         select count(jobs.complete(id, token)) from jobs.fetch('default', 5)").await;
    let locker = cluster.connect("locked").await;
    run(&locker, "begin; select from jobs.finished where job_id in (2, 4) for update").await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "count(*) = 2 from jobs.job").await;
    run(&locker, "commit").await;
    comes_true(&db, "count(*) = 0 from jobs.job").await;
}

/// Workers that came to a database within a while.
async fn workers_come(db: &Client, within: Duration) -> bool {
    let begun = Instant::now();
    let condition = "count(*) > 0 from pg_stat_activity where backend_type = 'jobs worker' and datname = current_database()";
    while begun.elapsed() < within {
        if is(db, condition).await {
            return true;
        }
        seconds(0.02).await;
    }
    false
}

#[tokio::test]
async fn jobs_that_are_kept_longer_are_not_looked_at_for_ever() {
    let cluster = Cluster::builder()
        .without_visits()
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
    assert!(!workers_come(&db, Duration::from_secs(8)).await, "it comes back for nothing");
    // What finishes later is pruned in time.
    complete("mail").await;
    complete("mail").await;
    comes_true(&db, &left("audit,hour")).await;
    // What is set anew takes effect on what was passed over.
    run(&db, "select jobs.configure_queue('audit', retention_completed => '0.1 s')").await;
    comes_true(&db, &left("hour")).await;
    run(&db, "select jobs.configure_queue('hour')").await;
    comes_true(&db, "count(*) = 0 from jobs.jobs").await;
}

#[tokio::test]
async fn rounds_of_a_backlog_do_not_each_walk_over_what_is_kept_on() {
    const KEPT: i64 = 2000;
    const BACKLOG: i64 = 1000;
    let (_cluster, db) = with(
        "backlog",
        &[("autovacuum", "off"), ("jobs.batch_size", "100"), ("jobs.retention_completed", "1s")],
    )
    .await;
    run(&db, "select jobs.pause_maintenance()").await;
    // Those that their own window keeps became final before all others. No two did so in one
    // moment.
    run(&db, &format!("select count(jobs.insert('k', to_jsonb(n), unique_opts => '{{\"by_args\": true, \"window\": \"30 days\"}}')) from generate_series(1, {KEPT}) n;
             select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[{BACKLOG}]));
             select count(jobs.complete(id, token)) from jobs.fetch('default', {KEPT} + {BACKLOG});
             update jobs.finished set finalized_at = now() + job_id * interval '1 us'")).await;
    seconds(1.2).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, &format!("count(*) = {KEPT} from jobs.finished")).await;
    workers_become(&db, "backlog", 0).await;
    let walked =
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'finished_by_age'";
    let walked = number(&db, walked).await;
    assert!(walked >= KEPT + BACKLOG, "control: they are counted: {walked}");
    // Each a few times: when it is dealt with, and until its entry is known to be dead.
    assert!(walked < 5 * (KEPT + BACKLOG), "{walked} entries in thirty rounds");
}

#[tokio::test]
async fn what_is_busy_is_passed_over_and_pruned_once_it_is_not() {
    let (cluster, db) =
        with("busy", &[("jobs.interval", "50ms"), ("jobs.retention_completed", "1s")]).await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(&db, "select jobs.configure_queue('kept', retention_completed => '-1 second');
         select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 2000) n), '{\"by_args\": true}', queue => 'old');
         select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[300]), queue => 'kept')").await;
    let complete = |queue: &str, jobs: i32| {
        format!("with f as materialized (select id, token from jobs.fetch('{queue}', {jobs}))
             select count(*) from jobs.complete_many(array(select id from f), array(select token from f))")
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
    run(&locker, "begin; select from jobs.finished f join jobs.job j on j.id = f.job_id where j.queue = 'old' and f.job_id % 7 = 0 for update of f").await;
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
    assert_eq!(count(&db, "jobs.job").await, 300);
    assert_eq!(number(&db, &format!("select {}", finished("kept"))).await, 300);
}

#[tokio::test]
async fn a_job_that_gets_a_queue_where_it_is_kept_while_it_is_pruned_is_kept() {
    let cluster = Cluster::builder()
        .set("jobs.enabled", "off")
        .set("jobs.retention_completed", "3s")
        // Statements skip what is locked, and so never wait.
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
        number(&pruner, "select rows from jobs.maintain() where task = 'prune'").await
    });
    blocked(&db, 1).await;
    run(&updater, "commit").await;
    run(&locker, "commit").await;
    assert_eq!(pruning.await.expect("the pruner"), 300);
    let left = "select count(*) from jobs.jobs where kind = 'last' and queue = 'kept' and state = 'completed'";
    assert_eq!(number(&db, left).await, 1);
    assert_eq!(count(&db, "jobs.job").await, 1);
}

#[tokio::test]
async fn pruning_waits_for_nobody_who_has_an_answer_locked() {
    let (cluster, db) =
        with("answers", &[("jobs.enabled", "off"), ("jobs.retention_completed", "1s")]).await;
    let id = insert(&db, "'k'").await;
    run(&db, "select jobs.release(id, token) from jobs.fetch()").await;
    run(&db, "select jobs.complete(id, token) from jobs.fetch()").await;
    assert_eq!(count(&db, "jobs.answer").await, 1);
    let locker = cluster.connect("answers").await;
    run(&locker, "begin; delete from jobs.answer").await;
    seconds(1.2).await;
    returns(&db, "select jobs.maintain()").await;
    assert_eq!(state(&db, id).await, None);
    assert!(is(&db, "count(*) = 0 from jobs.check()").await);
    // No session can ask for it any more; its age gets it.
    run(&locker, "rollback").await;
    run(&db, "update jobs.answer set at = at - interval '2 hours'; select jobs.maintain()").await;
    assert_eq!(count(&db, "jobs.answer").await, 0);
}

#[tokio::test]
async fn what_begins_and_ends_in_one_transaction_while_others_are_pruned_is_pruned_in_time() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "1s")
        // Statements skip what is locked, and so never wait.
        .set("jobs.direct_access", "on")
        .start();
    let db = cluster.database("late").await;
    run(&db, "select jobs.pause_maintenance()").await;
    // More than are looked at together.
    run(&db, "select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[300]), queue => 'early')").await;
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
    comes_true(&db, "count(*) > 0 from pg_stat_activity where backend_type = 'jobs worker' and datname = 'late' and wait_event_type = 'Lock'").await;
    run(&late, "commit").await;
    run(&locker, "rollback").await;
    comes_true(&db, "count(*) = 0 from jobs.finished").await;
    assert_eq!(state(&db, id).await, None);
}

#[tokio::test]
async fn what_its_own_uniqueness_keeps_is_pruned_when_that_ends() {
    let (_cluster, db) =
        with("kept", &[("jobs.interval", "50ms"), ("jobs.retention_completed", "0")]).await;
    let window = 6.0;
    run(&db, &format!("select jobs.insert('unique', unique_opts => '{{\"by_kind\": true, \"window\": {window}}}');
             select jobs.complete(id, token) from jobs.fetch()")).await;
    let created: String =
        scalar(&db, "select created_at::text from jobs.jobs where kind = 'unique'").await;
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
