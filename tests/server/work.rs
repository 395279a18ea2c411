//! Working jobs: together with the worker's own rows, and when the worker dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use jobs_tests::{
    Client, Cluster, LEVELS, Mode, SOON, blocked, blocked_until, count, number, poll_until, quiet,
    rows_of, run, scalar, seconds, sqlstate, text, with,
};

async fn fetch(db: &Client, more: &str) -> Option<(i64, i64, i32)> {
    let sql = format!("select id, token, attempt from jobs.fetch({more})");
    let row = db.query_opt(&sql, &[]).await.unwrap();
    row.map(|row| (row.get(0), row.get(1), row.get(2)))
}

/// Fetches a job that is to come back.
async fn fetch_soon(db: &Client, more: &str) -> (i64, i64, i32) {
    let begun = Instant::now();
    loop {
        if let Some(job) = fetch(db, more).await {
            return job;
        }
        assert!(begun.elapsed() < SOON, "nothing comes back");
        seconds(0.02).await;
    }
}

/// A database in which the calls go to the tables themselves, then by statements, since something
/// is attached to them.
async fn directly_and_by_statements(db: &Client, mut check: impl AsyncFnMut(&str)) {
    check("directly").await;
    run(db, "create function public.nothing() returns trigger language plpgsql as $$ begin return coalesce(new, old); end $$;
         create trigger nothing before insert or update or delete on jobs.ready for each row execute function public.nothing()").await;
    check("by statements").await;
}

#[tokio::test]
async fn a_fetch_takes_what_its_own_transaction_has_locked() {
    let (_cluster, db) = quiet("own").await;
    run(&db, "select jobs.insert('k')").await;
    let ways = [
        "select from jobs.ready for update",
        "select from jobs.ready for no key update",
        "select from jobs.ready for share",
        "select from jobs.ready for key share",
        "select from jobs.job for update",
        "savepoint a; select from jobs.ready for update",
        "savepoint a; select from jobs.ready for update; release a",
        "savepoint a; select from jobs.ready for update; rollback to a",
        "select from jobs.ready for key share; savepoint a; select from jobs.ready for update",
        "savepoint a; select from jobs.ready for update; release a; select from jobs.ready for key share; savepoint b",
        "update jobs.ready set attempt = attempt",
        "select jobs.update(id, priority => 2) from jobs.jobs",
        "select jobs.retry(id) from jobs.jobs",
        "select jobs.cancel(id) from jobs.jobs; select jobs.retry(id) from jobs.jobs",
        "savepoint a; select jobs.fetch(); rollback to a",
        "select jobs.delete(id) from jobs.jobs; select jobs.insert('k', pending => true); select jobs.activate(id) from jobs.jobs",
    ];
    directly_and_by_statements(&db, async |how| {
        for level in LEVELS {
            for way in ways {
                run(&db, &format!("begin isolation level {level}; {way}")).await;
                assert!(fetch(&db, "").await.is_some(), "{how}, {level}: {way}");
                assert_eq!(fetch(&db, "").await, None, "{how}, {level}: {way}");
                run(&db, "rollback").await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_fetch_leaves_what_others_have_locked_also_beside_its_own_transaction() {
    let (cluster, db) = quiet("beside").await;
    let other = cluster.connect("beside").await;
    run(&db, "select jobs.insert('k')").await;
    directly_and_by_statements(&db, async |how| {
        for level in LEVELS {
            for end in ["commit", "rollback"] {
                let lock = "select from jobs.ready for key share";
                // Both have it locked, in either order.
                for first_is_own in [true, false] {
                    let what = format!("{how}, {level}, {end}, {first_is_own}");
                    if !first_is_own {
                        run(&other, &format!("begin; {lock}")).await;
                    }
                    run(&db, &format!("begin isolation level {level}; {lock}")).await;
                    if first_is_own {
                        run(&other, &format!("begin; {lock}")).await;
                    }
                    assert_eq!(fetch(&db, "").await, None, "{what}");
                    run(&other, end).await;
                    assert!(fetch(&db, "").await.is_some(), "{what}");
                    run(&db, "rollback").await;
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn vacuum_does_not_shorten_what_jobs_pass_through() {
    // For that it would lock the table, and every fetch out.
    let (cluster, db) = with("vacuum", &[("jobs.enabled", "off"), ("autovacuum", "off")]).await;
    run(&db, "select from jobs.insert_batch('k', array_fill('{}'::jsonb, array[3000]));
         select from jobs.insert_batch('k', array_fill('{}'::jsonb, array[3000]), scheduled_at => now() + '1 day');
         select from (select jobs.complete(id, token) from jobs.fetch(max_jobs => 10000)) x;
         select from (select jobs.cancel(id) from jobs.jobs where state = 'scheduled') x").await;
    let reader = cluster.connect("vacuum").await;
    for table in ["ready", "scheduled", "running"] {
        let size = format!("select pg_relation_size('jobs.{table}')");
        let before = number(&db, &size).await;
        run(&db, &format!("vacuum jobs.{table}")).await;
        assert_eq!(number(&reader, &size).await, before, "{table}");
        assert!(before > 100_000, "{table}: {before}");
    }
}

#[tokio::test]
async fn a_job_that_kills_its_worker_each_time_is_discarded_after_its_attempts() {
    // The worker of the database rescues: no other session does anything for the job.
    let cluster = Cluster::builder().set("jobs.interval", "50 ms").start();
    cluster.allow(10, "57P01 client backend ");
    let db = cluster.database("poison").await;
    let id = number(&db, "select id from jobs.insert('poison', max_attempts => 3, retry => '{\"strategy\": \"constant\", \"initial\": 0.01, \"jitter\": false}')").await;
    for attempt in 1..=3 {
        let worker = cluster.connect("poison").await;
        let fetched = fetch_soon(&worker, "lease => '200 ms'").await;
        assert_eq!((fetched.0, fetched.2), (id, attempt));
        let pid: i32 = scalar(&worker, "select pg_backend_pid()").await;
        let killed: bool = scalar(&db, &format!("select pg_terminate_backend({pid})")).await;
        assert!(killed);
    }
    let sql = format!("select state::text from jobs.jobs where id = {id}");
    poll_until("it is discarded", SOON, async || text(&db, &sql).await == "discarded").await;
    let errors: i64 =
        scalar(&db, "select count(*) from jobs.errors where details ->> 'type' = 'lease_expired'")
            .await;
    assert_eq!(errors, 3);
    seconds(0.5).await;
    assert_eq!(fetch(&db, "").await, None, "it never comes back");
}

#[tokio::test]
async fn a_job_is_completed_together_with_what_its_worker_wrote_or_not_at_all() {
    let (cluster, db) = quiet("together").await;
    run(&db, "create table result (job bigint primary key, what text)").await;
    let both = async |id: i64| -> (String, i64) {
        (
            scalar(&db, &format!("select state::text from jobs.jobs where id = {id}")).await,
            scalar(&db, &format!("select count(*) from result where job = {id}")).await,
        )
    };
    for (end, expected) in
        [("rollback", ("running".to_string(), 0)), ("commit", ("completed".to_string(), 1))]
    {
        let worker = cluster.connect("together").await;
        run(&worker, "select jobs.insert('k')").await;
        let (id, token, _) = fetch(&worker, "").await.unwrap();
        run(&worker, &format!(
                "begin; insert into result values ({id}, 'x'); select jobs.complete({id}, {token}, '{{\"rows\": 1}}'); {end}"
            )).await;
        assert_eq!(both(id).await, expected, "{end}");
        if end == "rollback" {
            // Its worker still holds it, and may try again.
            run(&worker, &format!("select jobs.fail({id}, {token}, 'x', retryable => false)"))
                .await;
        }
    }
    let output: String =
        scalar(&db, "select output::text from jobs.jobs where state = 'completed'").await;
    assert_eq!(output, "{\"rows\": 1}");
    // A savepoint that is rolled back takes the completion back, and the job can be failed instead.
    run(&db, "select jobs.insert('k')").await;
    let (id, token, _) = fetch(&db, "").await.unwrap();
    run(&db, &format!("begin; savepoint a; insert into result values ({id}, 'x'); select jobs.complete({id}, {token}); rollback to a;
         select jobs.fail({id}, {token}, 'second thoughts', retryable => false); commit")).await;
    assert_eq!(both(id).await, ("discarded".into(), 0));
}

#[tokio::test]
async fn what_a_crash_interrupts_is_done_again() {
    let (cluster, db) = with("crash", &[("jobs.interval", "50 ms")]).await;
    run(
        &db,
        "create table done (job bigint, attempt int);
         select jobs.insert('k', retry => '{\"strategy\": \"constant\", \"initial\": 0.01}')",
    )
    .await;
    let (id, token, _) = fetch(&db, "lease => '5 seconds'").await.unwrap();
    // It has done its work, and the server dies before the commit.
    run(
        &db,
        &format!("begin; insert into done values ({id}, 1); select jobs.complete({id}, {token})"),
    )
    .await;
    cluster.kill9();
    cluster.start_again();
    let db = cluster.connect("crash").await;
    let (again, new_token, attempt) = fetch_soon(&db, "").await;
    assert_eq!((again, attempt), (id, 2));
    assert_ne!(new_token, token);
    // The one that was thought dead comes back and is told so.
    let late = db.batch_execute(&format!("select jobs.complete({id}, {token})")).await;
    assert_eq!(sqlstate(late), "55000");
    run(&db, &format!("begin; insert into done values ({id}, 2); select jobs.complete({id}, {new_token}); commit")).await;
    assert_eq!(count(&db, "done").await, 1);
    cluster.stop(Mode::Fast);
}

/// While an index is built anew beside the old one, its name goes over to the new one at some
/// moment.
#[tokio::test(flavor = "multi_thread")]
async fn who_rebuilds_indexes_disturbs_nobody() {
    let (cluster, db) = quiet("rebuilt").await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut sessions = Vec::new();
    for n in 0..6 {
        let worker = cluster.connect("rebuilt").await;
        let is_over = is_over.clone();
        sessions.push(tokio::spawn(async move {
            let mut cycles = 0;
            while !is_over.load(Ordering::Relaxed) {
                cycles += 1;
                let insert = format!("select jobs.insert('k', '{{\"n\": {}}}', '{{\"by_args\": true}}') from generate_series(1, 3)", n * 1_000_000 + cycles);
                run(&worker, &insert).await;
                let complete = "select jobs.complete(id, token) from jobs.fetch('default', 2)";
                run(&worker, complete).await;
            }
            cycles
        }));
    }
    for _ in 0..8 {
        for table in ["job", "ready", "running", "finished", "unique_claim"] {
            let sql = format!("reindex table concurrently jobs.{table}");
            run(&db, &sql).await;
        }
        let maintain = "select 1 / (error is null)::int from jobs.maintain()";
        run(&db, maintain).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut cycles = 0;
    for session in sessions {
        cycles += session.await.expect("no call failed");
    }
    let jobs = count(&db, "jobs.jobs").await;
    assert_eq!(jobs, cycles);
    assert_eq!(count(&db, "jobs.check()").await, 0);
}

/// Makes a call whose write to a table waits, has `meanwhile` happen, and then lets it go on; what
/// it answers.
async fn overtaken(
    cluster: &Cluster,
    name: &str,
    table: &str,
    call: &str,
    meanwhile: &str,
) -> String {
    let (blocker, caller) = (cluster.connect(name).await, cluster.connect(name).await);
    let lock = format!("begin; lock table {table} in share mode");
    run(&blocker, &lock).await;
    let sql = format!("select ({call})::text");
    let calling = tokio::spawn(async move { text(&caller, &sql).await });
    blocked(&cluster.connect(name).await, 1).await;
    run(&blocker, meanwhile).await;
    run(&blocker, "commit").await;
    calling.await.unwrap()
}

#[tokio::test]
async fn who_is_overtaken_by_a_change_goes_by_the_job_as_it_is_then() {
    let (cluster, db) = quiet("overtaken").await;
    let job = "select id from jobs.insert('k', pending => true, scheduled_at => '2900-01-01Z')";
    let id = number(&db, job).await;
    let update = format!("select jobs.update({id}, scheduled_at => '2901-01-01Z')");
    let activate = format!("jobs.activate({id})");
    let reply = overtaken(&cluster, "overtaken", "jobs.scheduled", &activate, &update).await;
    assert_eq!(reply, "scheduled");
    let due = format!("select due_at = '2901-01-01Z' from jobs.scheduled where job_id = {id}");
    assert!(scalar::<bool>(&db, &due).await, "it is due when it was updated to be");
    let done = "select id from jobs.insert('done')";
    run(&db, done).await;
    let (id, token, _) = fetch(&db, "").await.unwrap();
    run(&db, &format!("select jobs.complete({id}, {token})")).await;
    let again = format!(
        "select jobs.retry({id}); select jobs.fail(id, token, 'e', retryable => false) from jobs.fetch()"
    );
    let delete = "jobs.delete_many(kind => 'done', states => array['completed']::jobs.state[])";
    let reply = overtaken(&cluster, "overtaken", "jobs.finished", delete, &again).await;
    assert_eq!(reply, "0");
    let state = format!("select state::text from jobs.jobs where id = {id}");
    assert_eq!(text(&db, &state).await, "discarded");
}

/// The token is of a fetch that commits while another one of the jobs is waited for.
#[tokio::test]
async fn complete_many_goes_by_the_tokens_that_are_current_when_it_answers() {
    let (cluster, db) = quiet("late").await;
    let (worker, other) = (cluster.connect("late").await, cluster.connect("late").await);
    directly_and_by_statements(&db, async |way| {
        let insert = "select count(*) from jobs.insert_batch('k', array['1', '2']::jsonb[])";
        run(&db, insert).await;
        let (first, its_token, _) = fetch(&worker, "").await.unwrap();
        let complete = format!("begin; select jobs.complete({first}, {its_token})");
        run(&worker, &complete).await;
        let (second, token, _) = fetch(&worker, "").await.unwrap();
        let complete = format!("select id, state::text, done from jobs.complete_many('{{{first}, {second}}}', '{{{its_token}, {token}}}')");
        let rows = blocked_until(&db, rows_of(&other, &complete), &worker, "commit").await;
        let answers: Vec<(i64, &str, bool)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        let completed = [(first, "completed", true), (second, "completed", true)];
        assert_eq!(answers, completed, "{way}");
    })
    .await;
}

/// JSON of 9,000 numbers, 1.2 GB as text, which no row that is sent can hold.
const POISON: &str = "('[' || repeat('1e131071,', 8999) || '1]')::jsonb";

/// The kinds that a fetch returns.
async fn kinds(db: &Client, call: &str) -> Vec<String> {
    let sql = format!("select kind, args::text, meta::text from {call}");
    let rows = rows_of(db, &sql).await;
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_job_that_cannot_be_returned_stops_no_other() {
    let (_cluster, db) = quiet("poison").await;
    let calls = [
        "jobs.fetch(max_jobs => 10)",
        "jobs.fetch(max_jobs => 1)",
        "jobs.fetch(max_jobs => 10, kinds => '{good, bad}')",
        "jobs.fetch_any('{default}', max_jobs => 10)",
        "jobs.fetch_any('{limited}', max_jobs => 10)",
        "jobs.fetch(max_jobs => 10, min_jobs => 2, linger => '0')",
    ];
    run(&db, "select jobs.configure_queue('limited', concurrency => 1)").await;
    directly_and_by_statements(&db, async |how| {
        for level in LEVELS {
            for call in calls {
                for part in ["args", "meta"] {
                    let what = format!("{how}, {level}, {part}: {call}");
                    let queue = if call.contains("limited") { "limited" } else { "default" };
                    let bad = number(&db, &format!("select id from jobs.insert('bad', queue => '{queue}')")).await;
                    run(&db, &format!("select jobs.insert('good', queue => '{queue}');
                         update jobs.job set {part} = {POISON} where id = {bad}")).await;
                    run(&db, &format!("begin isolation level {level}")).await;
                    assert_eq!(kinds(&db, call).await, ["good"], "{what}");
                    run(&db, "commit").await;
                    let said = format!("select j.state || ' ' || j.attempt || ' ' || (e.details ->> 'type') || ' ' || regexp_replace(e.error, '[0-9]+', 'n')
                           from jobs.jobs j join jobs.errors e on e.job_id = j.id where j.id = {bad}");
                    assert_eq!(text(&db, &said).await, "discarded 1 too_long the job cannot be fetched: its args, meta and tags have n bytes of text, and at most 805306368 can be returned", "{what}");
                    let shown = text(&db, &format!("select jobs.show({bad})")).await;
                    assert!(shown.contains(&format!("{part} (too long to be shown)")), "{shown}");
                    assert!(shown.contains("discarded"), "{shown}");
                    run(&db, "select from jobs.health(); select jobs.complete(id, token) from jobs.jobs where state = 'running'").await;
                }
            }
        }
    })
    .await;
    assert_eq!(count(&db, "jobs.check()").await, 0);
}

#[tokio::test]
async fn a_lower_limit_refuses_new_jobs_and_keeps_those_that_are_there() {
    let (cluster, db) = quiet("payload").await;
    let args = |length| format!("to_jsonb(repeat('x', {length}))");
    run(&db, &format!("select jobs.insert('long', {})", args(1023))).await;
    cluster.set("jobs.max_payload", "1kB");
    cluster.reload();
    poll_until("the lower limit", SOON, async || {
        let key = format!("select jobs.unique_key('k', {}, '{{}}')", args(1023));
        sqlstate(db.batch_execute(&key).await) == "54000"
    })
    .await;
    run(&db, &format!("select jobs.insert('short', {})", args(1022))).await;
    let taken = kinds(&db, "jobs.fetch(max_jobs => 2)").await;
    assert_eq!(taken, ["long", "short"]);
}
