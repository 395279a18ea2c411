//! Fetches begin where the last ones ended. Nothing that can be fetched is ever below that,
//! whatever was under way while it was found out, and a held snapshot, under which nothing is
//! vacuumed, does not make fetches slower.

use jobs_tests::{
    Builder, Client, Cluster, Mode, SOON, comes_true, count, number, poll_until, rng, rows_of, run,
    scalar, seconds, sqlstate, text,
};
use rand::Rng;

/// A cluster whose background worker leaves everything to the tests, and which vacuums nothing.
fn quiet() -> Cluster {
    start(Cluster::builder())
}

fn start(builder: Builder) -> Cluster {
    let builder = builder.set("jobs.enabled", "off").set("autovacuum", "off");
    builder.set("max_prepared_transactions", 5).start()
}

/// A cluster without shared memory, which vacuums nothing.
fn unshared() -> Cluster {
    let builder = Cluster::builder().without_preload();
    builder.set("autovacuum", "off").start()
}

/// A session with a snapshot from now on.
async fn holder(cluster: &Cluster, database: &str) -> Client {
    let client = cluster.connect(database).await;
    run(&client, "begin isolation level repeatable read; select 1").await;
    client
}

/// Jobs that are inserted, fetched and completed, all of which stay as dead rows, in a few fetches
/// each.
async fn go_on(db: &Client, rounds: usize) {
    for _ in 0..rounds {
        run(
            db,
            "select from jobs.insert_batch('k', array_fill('1'::jsonb, array[2000]), queue => 'q')",
        )
        .await;
        for _ in 0..4 {
            run(db, "with f as materialized (select id, token from jobs.fetch('q', 500) where kind = 'k') select jobs.complete_many(array(select id from f), array(select token from f))").await;
        }
    }
}

/// The pages that a fetch of one job looks at.
async fn pages(db: &Client) -> i64 {
    run(db, "select jobs.insert('one', queue => 'q')").await;
    let plan: serde_json::Value =
        scalar(db, "explain (analyze, buffers, format json) select * from jobs.fetch('q', 1)")
            .await;
    let plan = &plan[0]["Plan"];
    plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap()
}

/// The pages of `ready` and `scheduled` that a session has looked at so far.
async fn pages_so_far(db: &Client) -> i64 {
    run(db, "select pg_stat_force_next_flush()").await;
    let sum = "select sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint
        from pg_statio_user_tables where schemaname = 'jobs' and relname in ('ready', 'scheduled')";
    number(db, sum).await
}

/// The fewest pages that a call of `jobs.wait` looks at after 40,000 jobs under a held snapshot, a
/// fifth of which were due later. Now and then one looks at all.
async fn pages_of_a_wait_after_many(cluster: &Cluster) -> i64 {
    let db = cluster.database("held").await;
    let _holder = holder(cluster, "held").await;
    go_on(&db, 16).await;
    run(&db, "select from jobs.insert_batch('k', array_fill('1'::jsonb, array[8000]), queue => 'q', scheduled_at => clock_timestamp() + '0.5 s')").await;
    run(&db, "select pg_sleep(0.6)").await;
    comes_true(&db, "count(*) = 0 from jobs.fetch('q', 10000)").await;
    let mut fewest = i64::MAX;
    for _ in 0..10 {
        let before = pages_so_far(&db).await;
        run(&db, "call jobs.wait('q', '50 ms')").await;
        fewest = fewest.min(pages_so_far(&db).await - before);
    }
    println!("{fewest} pages");
    fewest
}

/// Jobs that one fetch gets: those of kind `kept`.
async fn kept(db: &Client) -> i64 {
    count(db, "jobs.fetch('q', 10) where kind = 'kept'").await
}

/// The pages that a fetch of one job looks at after 40,000 others under a held snapshot.
async fn pages_after_many(cluster: &Cluster) -> i64 {
    let db = cluster.database("held").await;
    let holder = holder(cluster, "held").await;
    go_on(&db, 20).await;
    // The first fetches of one job find the end; each before had taken hundreds.
    for _ in 0..3 {
        pages(&db).await;
    }
    let looked_at = pages(&db).await;
    println!("{looked_at} pages");
    drop(holder);
    looked_at
}

#[tokio::test]
async fn a_fetch_under_a_held_snapshot_walks_over_little() {
    let looked_at = pages_after_many(&quiet()).await;
    assert!(looked_at < 100, "{looked_at} pages for one job");
}

#[tokio::test]
async fn a_wait_under_a_held_snapshot_walks_over_little() {
    let looked_at = pages_of_a_wait_after_many(&quiet()).await;
    assert!(looked_at < 100, "{looked_at} pages for a look");
}

/// Nothing comes in below a floor, in practice. A serializable transaction goes by what it has
/// found anywhere all the same.
#[tokio::test]
async fn a_serializable_fetch_that_found_nothing_is_known_to_have_looked_everywhere() {
    let cluster = quiet();
    let db = cluster.database("serializable").await;
    let _holder = holder(&cluster, "serializable").await;
    run(&db, "create table switch as select false as is_on").await;
    let id = number(&db, "select nextval('jobs.job_seq')").await;
    go_on(&db, 20).await;
    // Due ones as well, which are dead by then, too.
    run(&db, "select from jobs.insert_batch('k', array_fill('1'::jsonb, array[5000]), queue => 'q', scheduled_at => clock_timestamp() + '1 s')").await;
    run(&db, "select pg_sleep(1.5)").await;
    let all = "select count(*) from jobs.fetch('q', 10000)";
    poll_until("all are fetched", SOON, async || number(&db, all).await == 0).await;
    for _ in 0..3 {
        pages(&db).await;
    }
    let other = cluster.connect("serializable").await;
    for rows in [
        format!(
            "insert into jobs.ready (seq, job_id, attempt, priority, queue) values ({id}, {id}, 0, 1, 'q')"
        ),
        format!(
            "insert into jobs.scheduled (job_id, due_at, attempt, state, queue) values ({id}, '2000-01-01 00:00Z', 0, 'scheduled', 'q')"
        ),
    ] {
        run(&db, "begin isolation level serializable").await;
        assert_eq!(number(&db, all).await, 0);
        run(&other, "begin isolation level serializable").await;
        run(&other, "select is_on from switch").await;
        run(&db, "update switch set is_on = true").await;
        run(&other, &format!("insert into jobs.job (id, kind, args, queue, priority, max_attempts, created_at) values ({id}, 'k', '{{}}', 'q', 1, 1, now()); {rows}"))
            .await;
        run(&db, "commit").await;
        assert_eq!(sqlstate(other.batch_execute("commit").await), "40001", "{rows}");
        run(&db, "update switch set is_on = false").await;
    }
}

#[tokio::test]
async fn control_without_shared_memory_it_walks_over_everything() {
    let looked_at = pages_after_many(&unshared()).await;
    assert!(looked_at > 200, "{looked_at} pages for one job");
}

#[tokio::test]
async fn control_without_shared_memory_a_wait_walks_over_everything() {
    let looked_at = pages_of_a_wait_after_many(&unshared()).await;
    assert!(looked_at > 200, "{looked_at} pages for a look");
}

/// A job that another session inserts, and commits only after fetches have passed its place;
/// whether it is the first to be had then.
async fn a_late_commit(cluster: &Cluster, statements: &[&str], end: &str) -> i64 {
    let db = cluster.database("late").await;
    let holder = holder(cluster, "late").await;
    let late = cluster.connect("late").await;
    go_on(&db, 1).await;
    for statement in statements {
        run(&late, statement).await;
    }
    go_on(&db, 3).await;
    run(&late, end).await;
    run(&db, "select from jobs.insert_batch('k', array_fill('1'::jsonb, array[50]), queue => 'q')")
        .await;
    let found = kept(&db).await;
    drop(holder);
    found
}

const INSERT: [&str; 1] = ["begin; select jobs.insert('kept', queue => 'q')"];

#[tokio::test]
async fn what_is_committed_late_comes_first() {
    assert_eq!(a_late_commit(&quiet(), &INSERT, "commit").await, 1);
}

#[tokio::test]
async fn what_is_prepared_and_committed_late_comes_first() {
    let prepare = [INSERT[0], "prepare transaction 'p'"];
    assert_eq!(a_late_commit(&quiet(), &prepare, "commit prepared 'p'").await, 1);
}

#[tokio::test]
async fn what_a_rolled_back_fetch_had_comes_first() {
    let insert = "select jobs.insert('kept', queue => 'q')";
    let fetch = [insert, "begin; select jobs.fetch('q', 1)"];
    assert_eq!(a_late_commit(&quiet(), &fetch, "rollback").await, 1);
    // Also in a savepoint, after it had taken others.
    let fetch =
        [insert, "begin; savepoint s; select jobs.fetch('q', 1)", "select jobs.fetch('q', 5)"];
    assert_eq!(a_late_commit(&quiet(), &fetch, "rollback to s; commit").await, 1);
}

#[tokio::test]
async fn what_a_transaction_took_back_itself_comes_first() {
    let cluster = quiet();
    let db = cluster.database("own").await;
    let holder = holder(&cluster, "own").await;
    go_on(&db, 2).await;
    run(&db, "select jobs.insert('kept', queue => 'q')").await;
    let id = number(&db, "select id from jobs.jobs where kind = 'kept'").await;
    // It does not see the row that it has deleted; others do again, once it is rolled back.
    run(&db, &format!("begin; select jobs.cancel({id})")).await;
    for _ in 0..4 {
        run(&db, "select from jobs.fetch('q', 3)").await;
    }
    run(&db, "rollback").await;
    run(&db, "select from jobs.insert_batch('k', array_fill('1'::jsonb, array[50]), queue => 'q')")
        .await;
    assert_eq!(kept(&db).await, 1);
    drop(holder);
}

#[tokio::test]
async fn a_job_that_is_released_or_tried_again_is_found() {
    let cluster = quiet();
    let db = cluster.database("back").await;
    let holder = holder(&cluster, "back").await;
    for give_back in ["jobs.release(id, token)", "jobs.fail(id, token, 'e', retry_in => '0 s')"] {
        run(&db, "select jobs.insert('kept', queue => 'q')").await;
        run(&db, "create temp table f as select id, token from jobs.fetch('q', 1)").await;
        go_on(&db, 3).await;
        run(&db, &format!("select {give_back} from f; drop table f")).await;
        assert_eq!(kept(&db).await, 1, "{give_back}");
    }
    drop(holder);
}

#[tokio::test]
async fn a_higher_priority_is_found_at_once_below_and_above_known_lanes() {
    let cluster = quiet();
    let db = cluster.database("lanes").await;
    let holder = holder(&cluster, "lanes").await;
    go_on(&db, 3).await;
    for priority in [-32768, 0, 32767, 2, 1, -5] {
        run(&db, &format!("select jobs.insert('kept', queue => 'q', priority => {priority})"))
            .await;
        assert_eq!(kept(&db).await, 1, "{priority}");
        // More of them than there are floors for.
        for n in 0..12 {
            run(&db, &format!("select jobs.insert('kept', queue => 'q', priority => {})", 100 + n))
                .await;
        }
        assert_eq!(count(&db, "jobs.fetch('q', 100)").await, 12);
    }
    drop(holder);
}

/// A batch takes its ids, waits for a rival under one key, and takes later ids for what another
/// rival came before: its jobs are not in the order of their ids then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_ids_are_not_in_order_is_found_whole() {
    let cluster = quiet();
    let db = cluster.database("order").await;
    let holder = holder(&cluster, "order").await;
    go_on(&db, 1).await;
    const OPTIONS: &str = r#"{"by_args": true, "by_state": ["available"]}"#;
    // Keys are claimed in their order.
    let keys = format!(
        "select n from generate_series(1, 2) n order by jobs.unique_key('b', to_jsonb(n), '{OPTIONS}') limit 1"
    );
    let first: i32 = scalar(&db, &keys).await;
    let second = 3 - first;
    let rival = cluster.connect("order").await;
    run(
        &rival,
        &format!("begin; select jobs.insert('b', '{first}', '{OPTIONS}', queue => 'other')"),
    )
    .await;
    let batch = cluster.connect("order").await;
    let element =
        |n: i32| format!(r#"{{"kind": "b", "args": {n}, "unique_opts": {OPTIONS}, "queue": "q"}}"#);
    let jobs =
        format!(r#"[{}, {}, {{"kind": "kept", "queue": "q"}}]"#, element(second), element(first));
    let inserts =
        tokio::spawn(
            async move { run(&batch, &format!("select jobs.insert_many('{jobs}')")).await },
        );
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'insert_many'";
    poll_until("the batch waits", SOON, async || number(&db, waits).await == 1).await;
    run(&db, &format!("select jobs.insert('b', '{second}', '{OPTIONS}', queue => 'other', scheduled_at => '2999-01-01')")).await;
    go_on(&db, 3).await;
    run(&rival, "rollback").await;
    inserts.await.unwrap();
    run(&db, "select from jobs.insert_batch('k', array_fill('1'::jsonb, array[50]), queue => 'q')")
        .await;
    let order = "select count(*) from jobs.jobs a join jobs.jobs b on b.kind = 'kept' and a.kind = 'b' and a.queue = 'q' and a.id > b.id";
    assert_eq!(number(&db, order).await, 1, "this is what it is about");
    assert_eq!(kept(&db).await, 1);
    drop(holder);
}

/// Who wants few jobs looks near to those that were taken before, and then at the others.
#[tokio::test]
async fn jobs_that_are_far_apart_come_in_their_order() {
    let cluster = quiet();
    let db = cluster.database("apart").await;
    // Jobs of another queue lie between them: none, a few, and thousands.
    let mut ids: Vec<i64> = Vec::new();
    for between in [0, 1, 16, 17, 18, 19, 100, 0, 5000, 64, 0, 0, 500] {
        run(&db, &format!("select from jobs.insert_batch('k', array_fill('1'::jsonb, array[{between}]), queue => 'other')")).await;
        ids.push(number(&db, "select id from jobs.insert('k', queue => 'q')").await);
    }
    let mut ids = ids.into_iter();
    for most in [1, 1, 2, 3, 1, 4, 1, 1] {
        let expected: Vec<i64> = ids.by_ref().take(most).collect();
        let fetch = format!(
            "select array_agg(id order by ordinality) from jobs.fetch('q', {most}) with ordinality"
        );
        let got: Option<Vec<i64>> = scalar(&db, &fetch).await;
        assert_eq!(got.unwrap_or_default(), expected, "of {most}");
    }
    assert_eq!(ids.next(), None);
}

#[tokio::test]
async fn rows_that_come_without_the_extension_knowing_are_found_after_a_moment() {
    let cluster = quiet();
    let db = cluster.database("copied").await;
    let holder = holder(&cluster, "copied").await;
    run(&db, "select jobs.insert('kept', queue => 'q')").await;
    run(&db, "create table saved as select * from jobs.ready; delete from jobs.ready").await;
    go_on(&db, 4).await;
    run(&db, "insert into jobs.ready select * from saved").await;
    poll_until("the job is found", SOON, async || kept(&db).await == 1).await;
    // Also where each fetch finds something else.
    run(&db, "delete from jobs.running").await;
    go_on(&db, 4).await;
    let with_another = async || {
        run(&db, "select jobs.insert('other', queue => 'q')").await;
        kept(&db).await
    };
    with_another().await;
    run(&db, "insert into jobs.ready select * from saved").await;
    poll_until("the job is found", SOON, async || with_another().await == 1).await;
    drop(holder);
}

#[tokio::test]
async fn after_a_crash_everything_is_found() {
    let cluster = quiet();
    let db = cluster.database("crash").await;
    go_on(&db, 3).await;
    run(&db, "select jobs.insert('kept', queue => 'q')").await;
    cluster.stop(Mode::Immediate);
    cluster.start_again();
    let db = cluster.connect("crash").await;
    assert_eq!(kept(&db).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_commit_and_roll_back_at_random_lose_nothing() {
    let cluster = quiet();
    let db = cluster.database("random").await;
    let holder = holder(&cluster, "random").await;
    let seed: u64 = rng().random();
    let mut sessions = Vec::new();
    for session in 0..6u64 {
        let client = cluster.connect("random").await;
        let mut rng = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed ^ session);
        sessions.push(tokio::spawn(async move {
            let (mut inserted, mut completed) = (0i64, 0i64);
            for _ in 0..250 {
                let end = if rng.random_bool(0.3) { "rollback" } else { "commit" };
                let (count, priority) = (rng.random_range(1..40), rng.random_range(1..4));
                run(&client, "begin").await;
                let done = match rng.random_range(0..3) {
                    0 => {
                        let sql = format!("select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{count}]), queue => 'q', priority => {priority})");
                        (number(&client, &sql).await, 0)
                    }
                    1 => {
                        let sql = format!("with f as materialized (select id, token from jobs.fetch('q', {count})) select count(*) from jobs.complete_many(array(select id from f), array(select token from f)) where done");
                        (0, number(&client, &sql).await)
                    }
                    _ => {
                        let sql = format!("with f as materialized (select id, token from jobs.fetch('q', {count})) select count(jobs.release(id, token)) from f");
                        number(&client, &sql).await;
                        (0, 0)
                    }
                };
                if rng.random_bool(0.1) {
                    seconds(0.02).await;
                }
                run(&client, end).await;
                if end == "commit" {
                    inserted += done.0;
                    completed += done.1;
                }
            }
            (inserted, completed)
        }));
    }
    let (mut inserted, mut completed) = (0, 0);
    for session in sessions {
        let (more, done) = session.await.unwrap();
        inserted += more;
        completed += done;
    }
    // At once, not only after a look without floors.
    let left = count(&db, "jobs.fetch('q', 10000)").await;
    assert_eq!((completed + left, count(&db, "jobs.ready").await), (inserted, 0), "seed {seed}");
    drop(holder);
}

#[tokio::test]
async fn control_a_floor_that_is_raised_blindly_is_found() {
    for (fault, found) in [("", 1), ("raise_blindly", 0)] {
        let cluster = start(Cluster::builder().faults(fault));
        assert_eq!(a_late_commit(&cluster, &INSERT, "commit").await, found, "{fault}");
    }
}

/// A trigger is honoured: then statements do what is otherwise done without, with the same answers.
#[tokio::test]
async fn what_is_attached_to_a_table_is_honoured() {
    let cluster = quiet();
    let db = cluster.database("attached").await;
    run(&db, "create table seen (what text); create function see() returns trigger language plpgsql as $$ begin insert into public.seen values (tg_table_name || ' ' || tg_op); return null; end $$").await;
    let life = "select concat_ws(' ', i.state, f.attempt, f.kind, f.args, f.tags, jobs.complete(f.id, f.token), (select concat_ws(' ', u.unique_skipped_as_duplicate, u.state) from jobs.insert('k', '1', '{\"by_args\": true}', queue => 'q') u))
        from jobs.insert('k', '1', '{\"by_args\": true}', queue => 'q', tags => '{a}') i, lateral (select * from jobs.fetch('q', (i.id - i.id + 1)::int)) f";
    let plain = text(&db, life).await;
    assert_eq!(count(&db, "seen").await, 0);
    run(&db, "select jobs.delete(id) from jobs.jobs; select from jobs.maintain()").await;
    for table in ["job", "ready", "running", "finished", "unique_claim"] {
        run(&db, &format!("create trigger see after insert or delete on jobs.{table} for each row execute function see()")).await;
    }
    let watched = text(&db, life).await;
    assert_eq!(watched, plain);
    assert_eq!(plain, "available 1 k 1 {a} completed t completed");
    let seen: Vec<String> = rows_of(&db, "select what from seen order by what")
        .await
        .iter()
        .map(|row| row.get(0))
        .collect();
    let expected = [
        "finished INSERT",
        "job INSERT",
        "ready DELETE",
        "ready INSERT",
        "running DELETE",
        "running INSERT",
        "unique_claim INSERT",
    ];
    assert_eq!(seen, expected);
}

/// Commits do not wake the worker each: it comes by itself a moment later.
#[tokio::test]
async fn many_commits_wake_the_worker_a_few_times() {
    let cluster = Cluster::start();
    let db = cluster.database("awake").await;
    run(&db, "select jobs.insert('k')").await;
    let pid = "select pid::bigint from pg_stat_activity where backend_type = 'jobs worker'";
    poll_until("there is a worker", SOON, async || db.query_opt(pid, &[]).await.unwrap().is_some())
        .await;
    let pid = number(&db, pid).await;
    let switches = || {
        let status =
            std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the worker runs");
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap()
    };
    let (before, begun) = (switches(), std::time::Instant::now());
    for _ in 0..2000 {
        run(&db, "select jobs.insert('k')").await;
    }
    let (woken, tenths) = (switches() - before, begun.elapsed().as_millis() as i64 / 100 + 1);
    // 20 times a second, and what it does then may wait a few times itself.
    assert!(woken < 100 + tenths * 20, "{woken} times in {tenths} tenths of a second");
}
