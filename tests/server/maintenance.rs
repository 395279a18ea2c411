//! Maintenance as operators see it: what the background worker writes down, what it does about what
//! fails, that it can be paused, and what jobs.health() says of other sessions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jobs_tests::{
    Client, Cluster, LEVELS, Mode, SOON, becomes, blocked, comes_true, count, insert, is, number,
    poll_until, promptly, quiet, returns, run, scalar, seconds, sqlstate, state, text, texts, with,
    worker_goes_on,
};

/// Refuses what the trigger is for.
const REFUSE: &str = "create or replace function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$";

/// How many log lines say that a task failed.
fn failures(cluster: &Cluster) -> usize {
    cluster.log().matches("maintenance task").count()
}

#[tokio::test]
async fn runs_are_written_down_only_where_there_was_something_to_do() {
    let (_cluster, db) = with("ledger", &[]).await;
    run(&db, "select jobs.insert('x', scheduled_at => clock_timestamp() + '0.2 s')").await;
    comes_true(
        &db,
        "(rows_total, failures) = (1, 0) from jobs.maintenance where task = 'schedule'",
    )
    .await;
    // The others have run, and found nothing: that is known, but not written.
    comes_true(&db, "bool_and(last_run_at > clock_timestamp() - interval '1 minute' and rows = 0 and duration >= '0') from jobs.maintenance where task <> 'schedule'").await;
    assert!(is(&db, "count(last_run_at) = 1 from jobs.maintenance_task").await);
    // Nor are later runs of the task itself, as long as nothing is due.
    let written = "xmin::text from jobs.maintenance_task where task = 'schedule'";
    let before = text(&db, &format!("select {written}")).await;
    run(&db, "select jobs.installed()").await;
    comes_true(&db, "rows = 0 and rows_total = 1 from jobs.maintenance where task = 'schedule'")
        .await;
    assert_eq!(before, text(&db, &format!("select {written}")).await);
    // In shared memory is the latest run of each task that found nothing; by now schedule has had
    // one as well.
    assert!(
        is(&db, "count(*) = (select count(*) from jobs.maintenance_task) from jobs.idle_runs()")
            .await
    );
}

#[tokio::test]
async fn a_job_that_cannot_be_handled_stops_no_other() {
    let (cluster, db) = with("poison", &[("jobs.interval", "20ms")]).await;
    run(&db, "create function refuse() returns trigger language plpgsql as $$ begin
           if new.job_id = 3 then raise exception 'refused'; end if; return new; end $$;
         create trigger refuse before insert on jobs.ready for each row when (new.seq <> new.job_id) execute function refuse();
         select jobs.insert_batch('k', array_fill('1'::jsonb, array[5]), scheduled_at => clock_timestamp() + '0.3 s')").await;
    comes_true(&db, "count(*) = 4 from jobs.jobs where state = 'available'").await;
    comes_true(&db, "failures >= 1 and last_error = 'job 3: refused' from jobs.maintenance where task = 'schedule'").await;
    // What becomes due later does not wait for it either, nor do other tasks.
    run(
        &db,
        "select jobs.insert('later', scheduled_at => clock_timestamp() + '0.2 s');
         select jobs.insert('late', expires_at => clock_timestamp() + '0.2 s', queue => 'other')",
    )
    .await;
    comes_true(&db, "count(*) = 5 from jobs.jobs where state = 'available'").await;
    comes_true(&db, "count(*) = 1 from jobs.jobs where state = 'discarded'").await;
    assert!(is(&db, "count(*) = 1 from jobs.health() where finding = 'maintenance_failing'").await);
    // It is left alone for a minute, not tried with every pass.
    seconds(3.0).await;
    assert!(failures(&cluster) <= 2, "{}", cluster.log());
}

#[tokio::test]
async fn a_task_that_fails_stops_no_other_and_is_tried_again() {
    let (_cluster, db) = with("broken", &[("jobs.interval", "20ms")]).await;
    run(&db, "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
         create trigger refuse before delete on jobs.answer for each statement execute function refuse();
         select jobs.insert('due', scheduled_at => clock_timestamp() + '0.3 s')").await;
    comes_true(&db, "count(*) = 1 from jobs.jobs where state = 'available'").await;
    comes_true(&db, "failures >= 2 and last_error = 'refused' and failures_total >= failures from jobs.maintenance where task = 'prune'").await;
    assert!(is(&db, "sum(failures) = 0 from jobs.maintenance where task <> 'prune'").await);
    // Less and less often.
    seconds(5.0).await;
    let tries: i32 =
        scalar(&db, "select failures from jobs.maintenance where task = 'prune'").await;
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
    let (_cluster, db) = with("long", &[("jobs.interval", "20ms")]).await;
    run(&db, "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[60000]), queue => 'a');
         select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[70000]), queue => 'b', priority => 5);
         select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[20000]), queue => 'b', scheduled_at => '2999-01-01 00:00Z')").await;
    comes_true(&db, "(count(*), sum(available), sum(scheduled), bool_and(counted_at is not null)) = (2, 130000, 20000, true) from jobs.queues").await;
    assert!(is(&db, "(available, scheduled, running, estimated) = (70000, 20000, 0, '{available,scheduled,pending,retryable}'::jobs.state[]) from jobs.queues where queue = 'b'").await);
    // The numbers of changes come from the server's statistics, which sessions hand in when they
    // like: once they have.
    let handed_in = "select pg_stat_force_next_flush()";
    let an_hour_ago = "update jobs.kept_count set counted_at = counted_at - interval '1 hour'";
    poll_until("what was inserted is in the statistics", SOON, async || {
        run(&db, handed_in).await;
        run(&db, an_hour_ago).await;
        run(&db, "select jobs.maintain()").await;
        is(&db, "count(*) = 2 and bool_and(k.changes = t.n_tup_ins + t.n_tup_del)
               from jobs.kept_count k join pg_stat_user_tables t on t.schemaname = 'jobs' and t.relname = k.place where k.counted_at is not null").await
    })
    .await;
    // While nothing changes it is not counted again, however long ago it was, neither by the worker
    // nor by hand.
    let worker_has_counted = "count(*) = 0 from pg_stat_activity where backend_type = 'jobs worker' and state = 'active'";
    comes_true(&db, worker_has_counted).await;
    run(&db, an_hour_ago).await;
    let counted = "select string_agg(k::text, ' ' order by place) from jobs.kept_count k where counted_at is not null";
    let before = text(&db, counted).await;
    run(&db, "select jobs.installed()").await;
    seconds(1.0).await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(before, text(&db, counted).await);
    // When something has changed, it is: only that table.
    run(&db, "select jobs.insert('k', queue => 'a', scheduled_at => '2999-01-01 00:00Z')").await;
    run(&db, handed_in).await;
    poll_until("it is counted again", SOON, async || {
        run(&db, "select jobs.maintain()").await;
        is(&db, "(available, scheduled) = (60000, 1) from jobs.queues where queue = 'a'").await
    })
    .await;
    let recounted = "array_agg(place) = '{scheduled}' from jobs.kept_count where counted_at > clock_timestamp() - interval '1 minute'";
    assert!(is(&db, recounted).await);
    // But not at once.
    comes_true(&db, worker_has_counted).await;
    let before = text(&db, counted).await;
    run(&db, "select jobs.insert('k', queue => 'a', scheduled_at => '2999-01-01 00:00Z')").await;
    run(&db, handed_in).await;
    seconds(1.0).await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(before, text(&db, counted).await);
}

#[tokio::test]
async fn of_very_many_queues_maintenance_keeps_what_is_asked_for() {
    let (_cluster, db) = quiet("many").await;
    const QUEUES: i64 = 10_100;
    run(&db, &format!("select count(jobs.insert('kind ' || n, queue => case n when 1 then '(others)' else 'queue ' || n end)) from generate_series(1, {QUEUES}) n;
             update jobs.job set created_at = created_at - interval '1 hour';
             select pg_stat_force_next_flush()")).await;
    // Those that were not counted yet show as far as they are looked at.
    assert!(is(&db, "count(*) = 10000 from jobs.queues").await);
    let maintained = async |what: &str| {
        poll_until(what, SOON, async || {
            run(&db, "select jobs.maintain()").await;
            is(&db, what).await
        })
        .await;
    };
    maintained(&format!("(count(*), sum(available)) = ({QUEUES}, {QUEUES}) from jobs.queues"))
        .await;
    let one = "(available, running, estimated, counted_at is not null) = (1, 0, enum_range(null::jobs.state), true) and now() - oldest_available_at > '59 minutes'
        from jobs.queues where queue = 'queue 77'";
    assert!(is(&db, one).await);
    // One finding for all of them.
    let findings = "select finding from jobs.health() where finding in ('oldest_available', 'no_worker') and message ~ '^at least 1,000 queues have .*; the worst: .*queue' order by 1";
    assert_eq!(texts(&db, findings).await, ["no_worker", "oldest_available"]);
    // By name as far as there is room, and nothing is left out of the sums.
    let metrics = |what: &str| format!("{what} from jobs.metrics() where ");
    let named = metrics("count(*) between 35000 and 50500") + "metric <> ''";
    assert!(is(&db, &named).await);
    let jobs =
        metrics(&format!("sum(value) = {QUEUES} and bool_or(labels ->> 'queue' = '(others)')"));
    for metric in ["jobs_queue_jobs", "jobs_kind_inserted_total"] {
        assert!(is(&db, &format!("{jobs} metric = '{metric}'")).await, "{metric}");
    }
    let series = metrics("count(*) = count(distinct (metric, labels))") + "true";
    assert!(is(&db, &series).await);
    let unmeasured = metrics("count(*) = 0") + "metric ~ '^jobs_(wait|run)_seconds'";
    assert!(is(&db, &unmeasured).await);
    assert!(is(&db, "count(*) = 1001 from jobs.top()").await);
    // A queue has one row, whatever states its jobs are in, and only as long as it has jobs.
    run(&db, "select jobs.insert('later', queue => 'queue 77', scheduled_at => '2999-01-01 00:00Z'); select jobs.fetch('queue 77');
         select count(jobs.cancel(id)) from jobs.jobs where queue = 'queue 78';
         delete from jobs.ready where queue = 'queue 79'; delete from jobs.job where queue = 'queue 79'; select pg_stat_force_next_flush();
         update jobs.kept_count set counted_at = counted_at - interval '1 hour'").await;
    maintained("array_agg((queue, available, scheduled, running, cancelled, oldest_available_at is null)::text order by queue)
         = '{\"(\\\"queue 77\\\",0,1,1,0,t)\",\"(\\\"queue 78\\\",0,0,0,1,t)\"}' from jobs.queues where queue in ('queue 77', 'queue 78', 'queue 79')").await;
    assert!(is(&db, &format!("count(*) = {QUEUES} - 1 from jobs.kept_queue")).await);
    // Few again: they are counted right then.
    run(&db, "delete from jobs.ready where queue <> 'queue 77'; delete from jobs.finished; delete from jobs.job where queue <> 'queue 77'; select pg_stat_force_next_flush();
         update jobs.kept_count set counted_at = counted_at - interval '1 hour'").await;
    maintained("count(*) = 0 from jobs.kept_queue").await;
    assert!(is(&db, "count(*) = 1 and min(queue) = 'queue 77' from jobs.queues").await);
}

#[tokio::test]
async fn what_is_busy_and_what_fails_together_keep_nobody_running_in_circles() {
    let (cluster, db) = with("circles", &[("jobs.interval", "50ms")]).await;
    run(&db, REFUSE).await;
    run(&db, "create trigger refuse before delete on jobs.answer for each row execute function public.refuse()").await;
    let old = insert(&db, "'k', unique_opts => '{\"by_kind\": true}'").await;
    run(&db, "select jobs.complete(id, token) from jobs.fetch()").await;
    // The claim is busy before the job is past its retention.
    let holder = cluster.connect("circles").await;
    run(&holder, "begin; select jobs.insert('k', unique_opts => '{\"by_kind\": true, \"by_state\": [\"available\", \"pending\", \"running\", \"scheduled\", \"retryable\"]}')").await;
    cluster.set("jobs.retention_completed", "1s");
    cluster.reload();
    run(&db, "insert into jobs.answer (job_id, token, at, state) values (1, 1, now() - interval '2 hours', 'available')").await;
    run(&db, "select jobs.installed()").await;
    seconds(2.0).await;
    let worker = "select max(pid)::bigint from pg_stat_activity where backend_type = 'jobs worker' and datname = 'circles'";
    worker_goes_on(&db).await;
    let failed = "select failures_total from jobs.maintenance where task = 'prune'";
    let warnings = || {
        let log = cluster.log();
        let lines = log.lines();
        lines.filter(|line| line.contains(" jobs worker ") && line.contains("WARNING")).count()
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
    assert!(failed - failed_before <= 10, "{failed_before}, then {failed}");
    assert!(logged - logged_before <= 20, "{logged_before}, then {logged}");
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
        is(&db, "not exists (select from jobs.answer) and not exists (select from jobs.finished)")
            .await
    })
    .await;
}

#[tokio::test]
async fn a_transaction_of_maintenance_handles_no_more_rows_than_the_batch_size_in_all_queues() {
    let (_cluster, db) = with(
        "batches",
        &[
            ("jobs.batch_size", "60"),
            ("jobs.retention_completed", "1s"),
            ("jobs.retention_discarded", "1s"),
        ],
    )
    .await;
    run(&db, "select jobs.pause_maintenance()").await;
    // 50 queues, one of which has most of the jobs; half of all expires before it is due.
    run(&db, "select count(jobs.insert('k', queue => 'q' || least(n, 50), scheduled_at => clock_timestamp() + '3 s')) from generate_series(1, 400) n;
         select count(jobs.insert('k', queue => 'never', expires_at => clock_timestamp() + '3 s')) from generate_series(1, 100);
         select count(jobs.insert('k', queue => 'never', scheduled_at => '2999-01-01Z', expires_at => clock_timestamp() + '3 s')) from generate_series(1, 100);
         select count(jobs.configure_queue('own' || n, retention_completed => '1 s')) from generate_series(1, 20) n;
         select count(jobs.insert('k', queue => 'own' || n)) from generate_series(1, 20) n, generate_series(1, 10);
         select count(jobs.insert('k', queue => 'default')) from generate_series(1, 100);
         select count(jobs.complete(f.id, f.token)) from unnest(array(select distinct queue from jobs.jobs where state = 'available' and queue <> 'never')) q, jobs.fetch(q, 100) f").await;
    assert_eq!(count(&db, "jobs.finished").await, 300);
    for (table, event) in [("ready", "insert"), ("finished", "insert or delete")] {
        log_rows(&db, table, event, "tg_table_name || ' ' || tg_op").await;
    }
    seconds(3.1).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "count(*) = 1100 from public.log").await;
    for (what, rows) in [("ready INSERT", 400), ("finished INSERT", 200), ("finished DELETE", 500)]
    {
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
    run(db, &format!("create table if not exists public.log (n serial, what text, xid xid8 default pg_current_xact_id());
             create or replace function public.log() returns trigger language plpgsql as $$ begin
               insert into public.log (what) select {what} from (select coalesce(new, old) row) t; return null; end $$;
             create trigger log after {event} on jobs.{table} for each row execute function public.log()")).await;
}

/// How many rows of a kind the first transactions of the log have, how many all rows together.
async fn in_the_first(db: &Client, transactions: i32, what: &str) -> (i64, i64) {
    let sql = format!("select count(*) filter (where what = '{what}'), count(*) from public.log
          where xid in (select xid from public.log group by xid order by min(n) limit {transactions})");
    let row = db.query_one(&sql, &[]).await.expect(&sql);
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn queues_share_what_a_transaction_of_maintenance_handles() {
    let (_cluster, db) = with("shares", &[("jobs.batch_size", "60")]).await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(&db, "select count(jobs.insert('k', queue => 'a', scheduled_at => clock_timestamp() + '3 s')) from generate_series(1, 600);
         select count(jobs.insert('k', queue => 'b', scheduled_at => clock_timestamp() + '3 s')) from generate_series(1, 10)").await;
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
        run(&db, "select count(jobs.insert('k', queue => 'q' || q, scheduled_at => clock_timestamp() + '3 s')) from generate_series(1, 8) q, generate_series(1, 20)").await;
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
    let (_cluster, db) = with(
        "states",
        &[
            ("jobs.batch_size", "60"),
            ("jobs.retention_completed", "1s"),
            ("jobs.retention_discarded", "1s"),
        ],
    )
    .await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(&db, "select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[600]), queue => 'c');
         select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[5]), queue => 'd');
         select count(jobs.complete(id, token)) from jobs.fetch('c', 600);
         select count(jobs.fail(id, token, 'e', retryable => false)) from jobs.fetch('d', 5);
         insert into jobs.answer (job_id, token, at, state) select n, n, now() - interval '2 hours', 'available' from generate_series(1000001, 1000600) n").await;
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
    let (_cluster, db) =
        with("queues", &[("jobs.interval", "50ms"), ("jobs.batch_size", "500")]).await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(&db, REFUSE).await;
    let poisoned =
        insert(&db, "'k', queue => 'z', scheduled_at => clock_timestamp() + '0.1 s'").await;
    run(&db, &format!("create trigger refuse before insert on jobs.ready for each row when (new.job_id = {poisoned}) execute function public.refuse();
             select count(jobs.insert('k', queue => 'a', scheduled_at => clock_timestamp() + '0.1 s')) from generate_series(1, 1000);
             select count(jobs.insert('k', queue => 'm', scheduled_at => clock_timestamp() + '0.1 s')) from generate_series(1, 5)")).await;
    seconds(0.2).await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "count(*) = 5 from jobs.jobs where queue = 'm' and state = 'available'").await;
    comes_true(&db, &format!(
            "count(*) = 1 from jobs.maintenance where task = 'schedule' and last_error = 'job {poisoned}: refused'"
        ),
    )
    .await;
    comes_true(&db, "count(*) = 1000 from jobs.jobs where queue = 'a' and state = 'available'")
        .await;
}

#[tokio::test]
async fn a_final_job_that_cannot_be_pruned_keeps_no_other_state_waiting() {
    let (_cluster, db) = with(
        "unprunable",
        &[
            ("jobs.interval", "50ms"),
            ("jobs.retention_completed", "1s"),
            ("jobs.retention_discarded", "1s"),
        ],
    )
    .await;
    run(&db, "select jobs.pause_maintenance()").await;
    run(&db, REFUSE).await;
    let poisoned = insert(&db, "'k', queue => 'd', max_attempts => 1").await;
    run(&db, &format!("select jobs.fail(id, token, 'e') from jobs.fetch('d');
             select count(*) from jobs.insert_batch('k', array_fill('0'::jsonb, array[1000]), queue => 'c');
             select count(jobs.complete(id, token)) from jobs.fetch('c', 1000);
             create trigger refuse before delete on jobs.finished for each row when (old.job_id = {poisoned}) execute function public.refuse()")).await;
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
async fn keys_that_somebody_is_at_work_on_keep_nothing_else_from_being_cleared_away() {
    let (cluster, db) =
        with("busy_keys", &[("jobs.enabled", "off"), ("jobs.batch_size", "5")]).await;
    run(&db, "select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 20) n), '{\"by_args\": true}');
         insert into jobs.unique_note (key, kind, seq, due_at) select key, 'o', nextval('jobs.job_seq'), now() from jobs.unique_claim;
         insert into jobs.unique_note (key, kind, seq, job_id, due_at) select sha256('\\x'), 'h', n, n, now() from generate_series(1000001, 1000020) n").await;
    let locker = cluster.connect("busy_keys").await;
    run(&locker, "begin; select from jobs.unique_claim for update").await;
    for _ in 0..20 {
        returns(&db, "select jobs.maintain()").await;
    }
    assert_eq!(count(&db, "jobs.unique_note where kind = 'h'").await, 0);
    assert_eq!(count(&db, "jobs.unique_note where kind = 'o'").await, 20);
    run(&locker, "rollback").await;
    returns(&db, "select jobs.maintain()").await;
    assert_eq!(count(&db, "jobs.unique_note where kind = 'o'").await, 0);
}

/// Jobs that are past their retention by the time that a session has locked their table, and keeps
/// it.
async fn locked_past_retention(cluster: &Cluster, db: &Client, database: &str) -> Client {
    run(db, "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[30]), queue => 'old')").await;
    let locker = cluster.connect(database).await;
    run(db, "select jobs.complete(id, token) from jobs.fetch('old', 30)").await;
    run(&locker, "begin; lock table jobs.finished in share mode").await;
    let left = "select count(*) from jobs.finished";
    assert_eq!(number(db, left).await, 30, "none was pruned before the lock");
    // Until the retention is over, and a little more.
    seconds(6.5).await;
    assert_eq!(number(db, left).await, 30, "nor under it");
    locker
}

#[tokio::test]
async fn a_locked_table_delays_only_what_needs_it() {
    let (cluster, db) =
        with("locked", &[("jobs.interval", "50ms"), ("jobs.retention_completed", "5s")]).await;
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
    let (cluster, db) = with("claims", &[("jobs.interval", "50ms")]).await;
    // With a key of its own each second.
    run(&db, "select jobs.schedule('tick', 'every 1 second', 'tick', unique_opts => '{\"by_period\": 1}')").await;
    comes_true(&db, "count(*) > 0 from jobs.jobs where kind = 'tick'").await;
    // As CREATE INDEX does.
    let locker = cluster.connect("claims").await;
    run(&locker, "begin; lock table jobs.unique_claim in share mode").await;
    let ticks = count(&db, "jobs.jobs where kind = 'tick'").await;
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
    let (cluster, db) = quiet("cancelled").await;
    run(&db, "select from jobs.maintain()").await;
    let locker = cluster.connect("cancelled").await;
    run(&locker, "begin; lock table jobs.maintenance_task in exclusive mode").await;
    run(&db, "set statement_timeout = '1s'").await;
    let maintained = tokio::time::timeout(SOON, db.batch_execute("select from jobs.maintain()"));
    let maintained = maintained.await.expect("it ends");
    assert_eq!(sqlstate(maintained), "57014");
    run(&locker, "rollback").await;
    run(&db, "reset statement_timeout").await;
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
    let (cluster, db) = with("open", &[("jobs.interval", "50ms"), ("jobs.enabled", "off")]).await;
    run(&db, "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[20000]), queue => 'a');
         select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[20000]), queue => 'b', scheduled_at => '2999-01-01 00:00Z')").await;
    let holder = cluster.connect("open").await;
    run(&holder, "begin; select * from jobs.maintain()").await;
    assert!(
        is(&holder, "count(*) = 2 from jobs.kept_count where counted_at is not null").await,
        "control: it has counted"
    );
    assert!(is(&db, "count(*) = 0 from jobs.kept_count where counted_at is not null").await);
    returns(&db, "select * from jobs.maintain()").await;
    cluster.set("jobs.enabled", "on");
    cluster.reload();
    let first = insert(&db, "'first', scheduled_at => clock_timestamp() + '0.1 s'").await;
    becomes(&db, first, "available").await;
    // A first pass has come to counting by now.
    seconds(1.0).await;
    worker_goes_on(&db).await;
    run(&holder, "commit").await;
}

#[tokio::test]
async fn a_due_job_that_cannot_be_handled_keeps_no_other_from_being_fetched() {
    for enabled in ["off", "on"] {
        let cluster =
            Cluster::builder().set("jobs.interval", "50ms").set("jobs.enabled", enabled).start();
        let db = cluster.database("fetched").await;
        run(&db, REFUSE).await;
        for (queue, trigger) in [
            ("ready", "insert on jobs.ready for each row when (new.job_id = "),
            ("scheduled", "delete on jobs.scheduled for each row when (old.job_id = "),
        ] {
            let due = |kind: &str, at: &str| {
                format!("'{kind}', queue => '{queue}', scheduled_at => clock_timestamp() + '{at}'")
            };
            // The first one that is due.
            let poisoned = insert(&db, &due("poisoned", "4 s")).await;
            run(&db, &format!("create trigger refuse before {trigger}{poisoned}) execute function public.refuse()")).await;
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
        let (cluster, db) = with("free", &[("jobs.interval", "50ms")]).await;
        let id = insert(&db, "'x', scheduled_at => clock_timestamp() + '2 s'").await;
        // The worker knows of it, and comes to it while the table is locked.
        seconds(1.0).await;
        let locker = cluster.connect("free").await;
        run(&locker, "begin; lock table jobs.maintenance_pause in access exclusive mode").await;
        seconds(held).await;
        run(&locker, "commit").await;
        becomes(&db, id, "available").await;
    }
}

#[tokio::test]
async fn a_long_interval_delays_nothing_that_becomes_due() {
    let (cluster, db) = with("interval", &[("jobs.interval", "1h")]).await;
    // The first pass comes at once; after it the interval counts.
    insert(&db, "'first'").await;
    seconds(1.5).await;
    let id = insert(&db, "'x', scheduled_at => clock_timestamp() + '1.5 s'").await;
    becomes(&db, id, "available").await;
    // The first job of a database in which the worker has been already, and had nothing to do.
    let db = cluster.database("new").await;
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "bool_and(last_run_at is not null) from jobs.maintenance").await;
    worker_goes_on(&db).await;
}

#[tokio::test]
async fn a_shorter_interval_takes_effect_at_once() {
    let (cluster, db) = with("shorter", &[("jobs.interval", "1h")]).await;
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

/// Whoever makes a job available that was not so at once waits while `public.gate` has a row.
const GATE: &str = "create table public.gate (closed boolean);

    create function public.wait_at_gate() returns trigger language plpgsql as $$ begin
      while exists (select from public.gate) loop perform pg_sleep(0.01); end loop; return null; end $$;
    create trigger gate after insert on jobs.ready for each row when (new.seq <> new.job_id) execute function public.wait_at_gate();
    insert into public.gate values (true)";

#[tokio::test]
async fn nothing_is_maintained_once_it_is_paused() {
    let (cluster, db) = with("paused", &[("jobs.interval", "50ms")]).await;
    run(&db, GATE).await;
    let first = insert(&db, "'k', scheduled_at => clock_timestamp() + '0.1 s'").await;
    comes_true(&db, "count(*) = 1 from pg_stat_activity where backend_type = 'jobs worker' and wait_event = 'PgSleep'").await;
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
    assert_eq!(count(&db, "jobs.health() where finding = 'maintenance_paused'").await, 1);
    run(&db, "select jobs.resume_maintenance()").await;
    comes_true(&db, "count(*) = 2 from jobs.jobs where state = 'available'").await;
    // Also over a crash.
    run(&db, "select jobs.pause_maintenance()").await;
    drop(db);
    cluster.restart(Mode::Immediate);
    let db = cluster.connect("paused").await;
    let third = insert(&db, "'k', scheduled_at => clock_timestamp() + '0.1 s'").await;
    seconds(2.0).await;
    assert_eq!(state(&db, third).await.as_deref(), Some("scheduled"));
}

#[tokio::test]
async fn nothing_is_maintained_by_hand_once_it_is_paused() {
    let (cluster, db) = quiet("by_hand").await;
    let other = cluster.connect("by_hand").await;
    let pause = "select jobs.pause_maintenance()";
    let refused = |why: &str| {
        format!(
            "count(*) = (select count(*) from jobs.maintenance_task) and bool_and(rows = 0 and error like '{why}%') from jobs.maintain()"
        )
    };
    // What is to be committed yet would be so after it was paused.
    run(&other, "begin; select jobs.insert('k'); select jobs.maintain()").await;
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
    for level in LEVELS {
        run(&db, "select jobs.resume_maintenance()").await;
        run(&other, &format!("begin isolation level {level}; select count(*) from jobs.job")).await;
        let due = insert(&db, "'k', scheduled_at => clock_timestamp() + '0.05 s'").await;
        seconds(0.1).await;
        run(&db, pause).await;
        assert!(is(&other, &refused("maintenance was paused by")).await, "{level}");
        run(&other, "commit").await;
        assert_eq!(state(&db, due).await.as_deref(), Some("scheduled"), "{level}");
    }
    // No session waits for who is about to pause it.
    run(&db, "select jobs.resume_maintenance()").await;
    run(&pauser, &format!("begin; {pause}")).await;
    run(&db, "set statement_timeout = '60s'").await;
    assert!(is(&db, &refused("maintenance is being paused")).await);
    run(&pauser, "rollback").await;
    assert!(is(&db, "bool_and(error is null) and sum(rows) = 3 from jobs.maintain()").await);
    // Who has paused it himself is no exception, nor is he in his own way.
    run(&db, &format!("begin; {pause}")).await;
    assert!(is(&db, &refused("maintenance was paused by")).await);
    run(&db, "select jobs.resume_maintenance()").await;
    assert!(is(&db, "bool_and(error is null) from jobs.maintain()").await);
    run(&db, "commit").await;
}

/// How often an index of this table was searched.
async fn searches(db: &Client, table: &str) -> i64 {
    run(db, "select pg_stat_force_next_flush()").await;
    let counted = "select sum(idx_scan)::bigint from pg_stat_user_indexes where relid = ('jobs.' || $1)::regclass";
    db.query_one(counted, &[&table]).await.expect(counted).get(0)
}

#[tokio::test]
async fn queues_of_which_nothing_is_due_cost_nothing() {
    let (_cluster, db) = with("names", &[("jobs.interval", "200ms"), ("autovacuum", "off")]).await;
    run(&db, "select count(*) from jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'k', 'queue', 'q' || n, 'scheduled_at', '2999-01-01 00:00Z')) from generate_series(1, 10000) n))").await;
    let pass = async || {
        let due =
            insert(&db, "'k', queue => 'due', scheduled_at => clock_timestamp() + '50 ms'").await;
        poll_until("a pass", SOON, async || state(&db, due).await.as_deref() == Some("available"))
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
    let (cluster, db) = quiet("batches").await;
    let session = cluster.connect("batches").await;
    let options = r#"{"by_args": true, "by_state": ["running"], "wait": false}"#;
    let batch = |n: i32| {
        format!(
            "select count(*) from jobs.insert_batch('u', array(select to_jsonb(n) from generate_series({n} * 10, {n} * 10 + 9) n), '{options}')"
        )
    };
    let all: Vec<String> = (0..BATCHES).map(batch).collect();
    let all = all.join("; ");
    for level in LEVELS {
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
                _ => assert!(has_more, "{level}: {count}: then docs/uniqueness.md is wrong"),
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
    let (cluster, db) = with("few", &[("jobs.enabled", "off"), ("jobs.batch_size", "40")]).await;
    let session = cluster.connect("few").await;
    let due = "select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 4000) n), queue => 'q', scheduled_at => clock_timestamp() + '0.1 s')";
    // Many rounds; then some in which every other job fails.
    run(&db, due).await;
    seconds(0.15).await;
    keeps_few(&db, &session, "read committed", "select jobs.maintain()").await;
    assert!(is(&db, "count(*) = 4000 from jobs.ready").await);
    run(&db, "create function public.refuse() returns trigger language plpgsql as $$ begin if new.job_id % 2 = 1 then raise 'refused'; end if; return new; end $$;
         create trigger refuse before insert on jobs.ready for each row when (new.seq <> new.job_id) execute function public.refuse()").await;
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
    for level in LEVELS {
        keeps_few(&db, &session, level, one).await;
        let rival = cluster.connect("few").await;
        run(&db, many).await;
        run(&rival, busy).await;
        keeps_few(&db, &session, level, many).await;
        run(&rival, "rollback").await;
        run(&db, "select jobs.delete_many(kind => 'u')").await;
    }
}
