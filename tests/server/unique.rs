//! Uniqueness against what once broke it, or could: each test names the case.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jobs_tests::{
    Client, Cluster, LEVELS, blocked, blocked_until, count, number, poll_until, quiet, row_of,
    rows_of, run, scalar, seconds, sqlstate, text, with,
};

/// Inserts a job of a kind that is unique by its kind: its id, and whether that was a duplicate.
async fn insert(db: &Client, kind: &str, by_state: &str) -> (i64, bool) {
    let row = db
        .query_one(
            "select id, unique_skipped_as_duplicate
               from jobs.insert($1, unique_opts => jsonb_build_object('by_state', $2::text::jsonb))",
            &[&kind, &by_state],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

async fn complete(db: &Client, id: i64) {
    let row = row_of(db, "select id, token from jobs.fetch(max_jobs => 1)").await;
    assert_eq!(row.get::<_, i64>(0), id);
    db.execute("select jobs.complete($1, $2)", &[&id, &row.get::<_, i64>(1)]).await.unwrap();
}

#[tokio::test]
async fn a_retry_while_the_key_is_locked_waits_for_nobody_and_is_known_after_a_rollback() {
    let (cluster, db) = quiet("locked").await;
    let rival = cluster.connect("locked").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let (id, _) = insert(&db, "k", r#"["available"]"#).await;
        complete(&db, id).await;
        ids.push(id);
    }
    for isolation in ["read committed", "repeatable read"] {
        run(&rival, "begin").await;
        assert!(!insert(&rival, "k", r#"["available"]"#).await.1);
        run(&db, &format!("begin isolation level {isolation}; set lock_timeout = '60s'")).await;
        assert_eq!(
            sqlstate(db.execute("select jobs.retry($1)", &[&ids[0]]).await),
            "00000",
            "a retry never fails because of a key"
        );
        run(&db, "commit").await;
        run(&rival, "rollback").await;
        assert_eq!(insert(&db, "k", r#"["available"]"#).await, (ids[0], true));
        complete(&db, ids[0]).await;
    }
}

#[tokio::test]
async fn a_reaper_does_not_touch_a_claim_that_it_has_not_locked() {
    let (cluster, db) = quiet("reaper").await;
    let (old, _) = insert(&db, "k", r#"["available"]"#).await;
    complete(&db, old).await;
    // However it came to that: the job is past its retention, and has no claim.
    run(&db, "delete from jobs.unique_claim; update jobs.finished set finalized_at = now() - interval '2 days'").await;
    let holder = cluster.connect("reaper").await;
    run(&holder, &format!("begin; select from jobs.job where id = {old} for update")).await;
    let maintainer = cluster.connect("reaper").await;
    let maintaining =
        tokio::spawn(async move { maintainer.batch_execute("select jobs.maintain()").await });
    blocked(&db, 1).await;
    // Between its look and its reaping the key gets a claim, and a rival holds it.
    let (gone, _) = insert(&db, "k", r#"["available"]"#).await;
    db.execute("select jobs.delete($1)", &[&gone]).await.unwrap();
    let rival = cluster.connect("reaper").await;
    run(&rival, "begin").await;
    let (winner, skipped) = insert(&rival, "k", r#"["available"]"#).await;
    assert!(!skipped);
    run(&holder, "commit").await;
    maintaining.await.unwrap().unwrap();
    run(&rival, "commit").await;
    assert_eq!(insert(&db, "k", r#"["available"]"#).await, (winner, true));
}

/// Two kinds, in the order of their keys.
async fn kinds_by_key(db: &Client) -> [String; 2] {
    let rows = rows_of(db, "select k from unnest(array['a', 'b']) k order by jobs.unique_key(k, unique_opts => '{\"by_kind\": true}')").await;
    [rows[0].get(0), rows[1].get(0)]
}

/// A job of a batch that is unique by its kind.
fn element(kind: &str, wait: bool) -> String {
    format!(r#"{{"kind": "{kind}", "unique_opts": {{"by_kind": true, "wait": {wait}}}}}"#)
}

/// A claim that takes a statement, in a transaction that has used up its subtransactions: who comes
/// between the look for rivals and that statement is not waited for either. A trigger makes room
/// for one.
#[tokio::test]
async fn batches_do_not_deadlock_where_there_is_no_room_for_subtransactions() {
    let (cluster, db) = quiet("no_room").await;
    let [first, second] = kinds_by_key(&db).await;
    run(&db, &format!("create function public.stop() returns trigger language plpgsql as $$
             begin
               if current_setting('test.stop', true) = 'on'
                 and new.key = decode(jobs.unique_key('{first}', unique_opts => '{{\"by_kind\": true}}'), 'hex') then
                 perform pg_advisory_xact_lock(7);
               end if;
               return new;
             end $$;
             create trigger stop before insert on jobs.unique_claim for each row execute function public.stop();
             select pg_advisory_lock(7)")).await;
    let full = cluster.connect("no_room").await;
    run(
        &full,
        r#"begin; set local test.stop = on;
           select count(jobs.insert('u', to_jsonb(n), '{"by_args": true, "wait": false}')) from generate_series(1, 60) n"#,
    )
    .await;
    let rival = cluster.connect("no_room").await;
    let waits = format!(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and pid = {}",
        scalar::<i32>(&rival, "select pg_backend_pid()").await
    );
    let batch = |wait: bool| {
        let (first, second) = (element(&first, wait), element(&second, true));
        format!("select jobs.insert_many('[{first}, {second}]')")
    };
    let sql = batch(false);
    let full = tokio::spawn(async move { (sqlstate(full.batch_execute(&sql).await), full) });
    blocked(&db, 1).await;
    let sql = batch(true);
    let rival = tokio::spawn(async move { sqlstate(rival.batch_execute(&sql).await) });
    let soon = Duration::from_secs(120);
    poll_until("the rival waits", soon, async || number(&db, &waits).await == 1).await;
    run(&db, "select pg_advisory_unlock(7)").await;
    let (outcome, full) = full.await.unwrap();
    assert_eq!(outcome, "00000");
    run(&full, "commit").await;
    assert_eq!(rival.await.unwrap(), "00000");
    let kinds = "select count(*) from jobs.jobs where kind in ('a', 'b')";
    assert_eq!(number(&db, kinds).await, 2);
}

#[tokio::test]
async fn a_key_that_never_conflicts_is_linear_in_a_batch_and_can_be_cancelled() {
    let (_cluster, db) = quiet("many").await;
    let batch = |n: u32| {
        format!("select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, {n}) n),
               '{{\"by_kind\": true, \"by_state\": [\"running\"]}}')")
    };
    let begun = std::time::Instant::now();
    assert_eq!(number(&db, &batch(20_000)).await, 20_000);
    let a_tenth = begun.elapsed();
    run(&db, "set statement_timeout = '100ms'").await;
    // The machine may stand still meanwhile, but not each time.
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let begun = std::time::Instant::now();
        assert_eq!(sqlstate(db.batch_execute(&batch(200_000)).await), "57014");
        least = least.min(begun.elapsed());
    }
    assert!(least < 5 * a_tenth, "{least:?}, and {a_tenth:?} for a tenth of it");
}

#[tokio::test]
async fn rows_whose_job_is_not_there_are_left_alone() {
    // As while a dump is being restored, table by table.
    let cluster = Cluster::quiet();
    cluster.allow_violations();
    let db = cluster.database("restored").await;
    let (key, _) = insert(&db, "k", r#"["completed"]"#).await;
    run(&db, &format!("select jobs.insert('later', scheduled_at => clock_timestamp() + '0.1 s'),
                jobs.insert('expiring', queue => 'other', expires_at => clock_timestamp() + '0.1 s'),
                jobs.insert('running', queue => 'run');
         select jobs.fetch('run', lease => '0.1 s');
         select jobs.cancel({key});
         update jobs.finished set finalized_at = now() - interval '9 days';
         create table aside as select * from jobs.job; delete from jobs.job;
         select pg_sleep(0.3)")).await;
    assert_eq!(number(&db, "select sum(rows)::bigint from jobs.maintain()").await, 0);
    run(&db, "insert into jobs.job select * from aside").await;
    assert_eq!(
        number(&db, "select sum(rows)::bigint from jobs.maintain()").await,
        4,
        "control: with their jobs they are dealt with"
    );
    // A job in no place holds no key.
    run(&db, "insert into jobs.job select * from aside on conflict do nothing").await;
    assert!(!insert(&db, "k", r#"["available"]"#).await.1);
}

#[tokio::test]
async fn a_database_in_another_encoding_is_refused() {
    let cluster = Cluster::quiet();
    let db = cluster.connect("postgres").await;
    run(&db, "create database latin encoding 'LATIN1' locale 'C' template template0").await;
    let latin = cluster.connect("latin").await;
    assert_eq!(sqlstate(latin.batch_execute("create extension jobs").await), "0A000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sampler_never_sees_neither_or_both_of_a_replacement() {
    let (cluster, db) = quiet("replace").await;
    let policy = r#"'{"by_kind": true, "on_conflict": "replace"}'"#;
    let insert = format!("select replaced_id from jobs.insert('k', unique_opts => {policy})");
    run(&db, &insert).await;
    let mut tasks = Vec::new();
    let is_enough = Arc::new(AtomicBool::new(false));
    for session in 0..6 {
        let client = cluster.connect("replace").await;
        let (insert, is_enough) = (insert.clone(), is_enough.clone());
        tasks.push(tokio::spawn(async move {
            let mut replaced = Vec::new();
            for round in 0.. {
                if round >= 60 && is_enough.load(Ordering::Relaxed) {
                    break;
                }
                // Some are rolled back, and some of what is replaced is running.
                if session == 0 {
                    run(&client, "select jobs.fetch()").await;
                }
                run(&client, "begin").await;
                let id: Option<i64> = scalar(&client, &insert).await;
                if round % 5 == 4 {
                    run(&client, "rollback").await;
                } else {
                    run(&client, "commit").await;
                    replaced.extend(id);
                }
            }
            replaced
        }));
    }
    let mut samples = 0;
    while !tasks.iter().all(|task| task.is_finished()) {
        let live: i64 =
            scalar(&db, "select count(*) from jobs.jobs where finalized_at is null").await;
        assert_eq!(live, 1, "neither or both");
        samples += 1;
        is_enough.store(samples > 50, Ordering::Relaxed);
    }
    let mut replaced = Vec::new();
    for task in tasks {
        replaced.extend(task.await.unwrap());
    }
    let all = replaced.len();
    replaced.sort_unstable();
    replaced.dedup();
    assert_eq!(replaced.len(), all, "each job is replaced once");
    assert_eq!(count(&db, "jobs.jobs where state = 'cancelled'").await, all as i64);
}

#[tokio::test]
async fn a_replacement_chases_what_moves() {
    let (cluster, db) = quiet("chase").await;
    let worker = cluster.connect("chase").await;
    let policy = r#"{"by_kind": true, "on_conflict": "replace"}"#;
    // It is being fetched: once it runs it is cancelled at once. It is being completed:
    // then only a final job conflicts, and the new one is skipped.
    for (step, replaces) in [
        ("select jobs.fetch()", true),
        ("select jobs.complete(id, token) from jobs.jobs where state = 'running'", false),
    ] {
        let kind = if replaces { "fetched" } else { "completed" };
        let first = number(&db, &format!("select id from jobs.insert('{kind}')")).await;
        run(&db, &format!("select jobs.delete({first})")).await;
        let first = number(
            &db,
            &format!("select id from jobs.insert('{kind}', unique_opts => '{policy}')"),
        )
        .await;
        if !replaces {
            run(&db, "select jobs.fetch()").await;
        }
        run(&worker, &format!("begin; {step}")).await;
        let other = cluster.connect("chase").await;
        let sql = format!(
            "select replaced_id, unique_skipped_as_duplicate, id from jobs.insert('{kind}', unique_opts => '{policy}')"
        );
        let row = blocked_until(&db, row_of(&other, &sql), &worker, "commit").await;
        let answer: (Option<i64>, bool) = (row.get(0), row.get(1));
        if replaces {
            assert_eq!(answer, (Some(first), false));
            run(&db, &format!("select jobs.cancel({})", row.get::<_, i64>(2))).await;
        } else {
            assert_eq!((answer, row.get::<_, i64>(2)), ((None, true), first));
        }
    }
}

#[tokio::test]
async fn an_update_meets_a_job_on_its_way() {
    let (cluster, db) = quiet("moving").await;
    let (other, updater) = (cluster.connect("moving").await, cluster.connect("moving").await);
    let update = |fields: &str| {
        format!(
            "select id, unique_skipped_as_duplicate from jobs.insert('k', '\"new\"', '{{\"by_kind\": true, \"on_conflict\": {{\"update\": {fields}}}}}', 'q2')"
        )
    };
    // It is being released while another queue is to be written for it: as it waits by then the
    // update does not touch it.
    let (id, _) = insert(&db, "k", r#"["available", "running"]"#).await;
    run(&other, "select jobs.fetch()").await;
    run(&other, "begin").await;
    run(&other, "select jobs.release(id, token) from jobs.jobs where state = 'running'").await;
    let sql = update(r#"{"running": ["queue"]}"#);
    blocked_until(&db, run(&updater, &sql), &other, "commit").await;
    let queue = format!("select queue from jobs.jobs where id = {id} and state = 'available'");
    assert_eq!(text(&db, &queue).await, "default");
    assert_eq!(text(&db, &format!("select jobs.cancel({id})::text")).await, "cancelled");
    // It is being fetched while new args are written for it: its worker gets the old ones,
    // and as it runs by then the update does not touch it.
    let (id, _) = insert(&db, "k", r#"["available", "running"]"#).await;
    run(&other, "begin").await;
    let fetched = number(&other, "select id from jobs.fetch()").await;
    assert_eq!(fetched, id);
    let sql = update(r#"{"available": ["args"]}"#);
    blocked_until(&db, run(&updater, &sql), &other, "commit").await;
    let args = format!("select args::text from jobs.jobs where id = {id}");
    assert_eq!(text(&db, &args).await, "{}");
}

#[tokio::test]
async fn a_batch_of_replacements_and_complete_many_take_jobs_in_one_order() {
    let (cluster, db) = quiet("lock_order").await;
    let job = |n: i32| {
        format!(
            r#"{{"kind": "k", "args": {n}, "unique_opts": {{"by_args": true, "on_conflict": "replace"}}}}"#
        )
    };
    for n in 1..=2 {
        run(&db, &format!("select jobs.insert_many('[{}]')", job(n))).await;
    }
    run(&db, "create table held as select id, token from jobs.fetch(max_jobs => 2)").await;
    // A session has the first job; a completion of both waits for it, then a batch that
    // replaces the second one first.
    let blocker = cluster.connect("lock_order").await;
    run(&blocker, "begin").await;
    let sql = "select jobs.heartbeat(min(id), min(token)) from held where id = (select min(id) from held)";
    run(&blocker, sql).await;
    let mut tasks = Vec::new();
    for (count, sql) in [
        "select jobs.complete_many(array_agg(id order by id), array_agg(token order by id)) from held"
            .to_string(),
        format!("select jobs.insert_many('[{}, {}]')", job(2), job(1)),
    ]
    .into_iter()
    .enumerate()
    {
        let client = cluster.connect("lock_order").await;
        tasks.push(tokio::spawn(async move {
            sqlstate(client.batch_execute(&sql).await)
        }));
        blocked(&db, count as i64 + 1).await;
    }
    run(&blocker, "rollback").await;
    for task in tasks {
        assert_eq!(task.await.unwrap(), "00000");
    }
    assert_eq!(count(&db, "jobs.jobs where state = 'completed'").await, 2);
}

/// A claim under which nothing is left is gone after maintenance, with all notes on it.
async fn assert_reaped(db: &Client) {
    run(db, "select jobs.delete(id) from jobs.jobs; select jobs.maintain()").await;
    for table in ["claim", "note"] {
        let left = format!("select count(*) from jobs.unique_{table}");
        assert_eq!(number(db, &left).await, 0, "{table}");
    }
}

const AVAILABLE: &str = r#"["available"]"#;

/// Inserts a job that nothing stops but a held key, and cancels it.
async fn cancelled(db: &Client) -> i64 {
    let (id, skipped) = insert(db, "k", AVAILABLE).await;
    assert!(!skipped);
    run(db, &format!("select jobs.cancel({id})")).await;
    id
}

/// A session in a transaction whose snapshot shows the job, which is deleted by now, and its claim.
async fn old_snapshot_of_a_deleted_job(
    cluster: &Cluster,
    name: &str,
    level: &str,
    id: i64,
) -> Client {
    let old = cluster.connect(name).await;
    run(&old, &format!("begin isolation level {level}; select count(*) from jobs.job")).await;
    let sql = format!("select jobs.cancel({id}); select jobs.delete({id}); select jobs.maintain()");
    let other = cluster.connect(name).await;
    run(&other, &sql).await;
    old
}

/// Calls `meanwhile` while an insert of a scheduled job has looked at its key and not yet written.
async fn between_look_and_write(cluster: &Cluster, db: &Client, database: &str, meanwhile: &str) {
    let blocker = cluster.connect(database).await;
    run(&blocker, "begin; lock table jobs.scheduled in share mode").await;
    let inserter = cluster.connect(database).await;
    let sql = format!(
        r#"select jobs.insert('k', unique_opts => '{{"by_state": {AVAILABLE}}}', scheduled_at => '2999-01-01Z')"#
    );
    let meanwhile = async {
        blocked(db, 1).await;
        run(db, meanwhile).await;
        run(&blocker, "commit").await;
    };
    tokio::join!(run(&inserter, &sql), meanwhile);
}

#[tokio::test]
async fn a_job_that_comes_back_while_another_one_is_inserted_is_known() {
    let cluster = Cluster::quiet();
    // It is in the list and is folded by that insert; or what it was folded for returns.
    let db = cluster.database("listed").await;
    let first = cancelled(&db).await;
    cancelled(&db).await;
    between_look_and_write(&cluster, &db, "listed", &format!("select jobs.retry({first})")).await;
    assert_eq!(insert(&db, "k", AVAILABLE).await, (first, true));
    assert_reaped(&db).await;

    let db = cluster.database("covering").await;
    let first = cancelled(&db).await;
    let second = cancelled(&db).await;
    let third = cancelled(&db).await;
    let retry = format!("select jobs.retry({second}), jobs.retry({third})");
    between_look_and_write(&cluster, &db, "covering", &retry).await;
    assert_eq!(
        insert(&db, "k", r#"["cancelled"]"#).await,
        (first, true),
        "the one that it covered counts again"
    );
    assert_reaped(&db).await;
}

#[tokio::test]
async fn a_job_that_is_deleted_while_another_one_is_inserted_leaves_nothing() {
    let (cluster, db) = quiet("between").await;
    let first = cancelled(&db).await;
    cancelled(&db).await;
    let delete = format!("select jobs.delete({first})");
    between_look_and_write(&cluster, &db, "between", &delete).await;
    assert_reaped(&db).await;

    // By an old snapshot it is still there.
    let first = cancelled(&db).await;
    cancelled(&db).await;
    let old = old_snapshot_of_a_deleted_job(&cluster, "between", "repeatable read", first).await;
    assert!(!insert(&old, "k", AVAILABLE).await.1);
    run(&old, "commit").await;
    assert_reaped(&db).await;
}

#[tokio::test]
async fn an_old_snapshot_with_a_claim_that_is_gone_shows_ones_own_too() {
    let (cluster, db) = quiet("old").await;
    for level in ["repeatable read", "serializable"] {
        let (gone, _) = insert(&db, "k", AVAILABLE).await;
        let old = old_snapshot_of_a_deleted_job(&cluster, "old", level, gone).await;
        let (own, skipped) = insert(&old, "k", r#"["running"]"#).await;
        assert!(!skipped, "by the old snapshot job {gone} is available");
        let reply = insert(&old, "k", AVAILABLE).await;
        assert_eq!(reply, (own, true), "the latest of both jobs, {level}");
        run(&old, "rollback").await;
    }
}

#[tokio::test]
async fn a_batch_of_an_old_snapshot_goes_by_the_claims_that_this_shows() {
    let (cluster, db) = quiet("old").await;
    let batch = async |client: &Client, args: &str, state: &str| -> Vec<(i64, bool)> {
        let sql = format!(
            r#"select id, unique_skipped_as_duplicate
                 from jobs.insert_batch('k', '{args}', '{{"by_args": true, "by_state": ["{state}"]}}') order by ord"#
        );
        let rows = rows_of(client, &sql).await;
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    for level in ["repeatable read", "serializable"] {
        let gone = batch(&db, "{1}", "available").await[0].0;
        let old = old_snapshot_of_a_deleted_job(&cluster, "old", level, gone).await;
        assert_eq!(count(&db, "jobs.unique_claim").await, 0);
        let reply = batch(&old, "{1,2}", "available").await;
        assert_eq!(reply[0], (gone, true), "{level}: by its snapshot it is there");
        assert!(!reply[1].1, "{level}");
        let own = batch(&old, "{1,3}", "running").await;
        assert!(own.iter().all(|(_, skipped)| !skipped), "{level}");
        let reply = batch(&old, "{1,3}", "available").await;
        let latest: Vec<(i64, bool)> = own.iter().map(|(id, _)| (*id, true)).collect();
        assert_eq!(reply, latest, "{level}");
        run(&old, "rollback").await;
    }
}

#[tokio::test]
async fn a_batch_that_does_not_wait_touches_no_job_of_a_busy_key() {
    let (cluster, db) = quiet("busy").await;
    let policy = |more: &str| {
        format!(
            r#"'{{"by_args": true, "by_state": ["available", "running"], "on_conflict": "replace"{more}}}'"#
        )
    };
    let batch = |more: &str| {
        format!(
            "select count(id) from jobs.insert_batch('k', array['1', '2', '3']::jsonb[], {})",
            policy(more)
        )
    };
    assert_eq!(number(&db, &batch("")).await, 3);
    run(&db, "select jobs.fetch(max_jobs => 3)").await;
    let rival = cluster.connect("busy").await;
    run(&rival, &format!("begin; select jobs.insert('k', '1', {})", policy(""))).await;
    run(&db, "set statement_timeout = '60s'").await;
    assert_eq!(number(&db, &batch(r#", "wait": false"#)).await, 2);
    run(&rival, "rollback").await;
}

#[tokio::test]
async fn a_deletion_waits_for_no_insert_and_no_insert_waits_for_it() {
    let (cluster, db) = quiet("deletion").await;
    let other = cluster.connect("deletion").await;
    for client in [&db, &other] {
        run(client, "set statement_timeout = '60s'").await;
    }
    // It returned once, and is cancelled again.
    let first = cancelled(&db).await;
    run(&db, &format!("select jobs.retry({first})")).await;
    run(&db, &format!("select jobs.cancel({first})")).await;
    run(&other, &format!("begin; select jobs.delete({first})")).await;
    let (second, skipped) = insert(&db, "k", AVAILABLE).await;
    assert!(!skipped);
    assert_eq!(insert(&other, "k", AVAILABLE).await, (second, true));
    run(&other, "commit").await;

    // The other way round.
    run(&db, &format!("select jobs.cancel({second})")).await;
    run(&db, &format!("select jobs.retry({second})")).await;
    run(&db, &format!("select jobs.cancel({second})")).await;
    run(&db, "begin").await;
    assert!(!insert(&db, "k", AVAILABLE).await.1);
    run(&other, &format!("select jobs.delete({second})")).await;
    run(&db, "commit").await;
    assert_reaped(&db).await;
}

#[tokio::test]
async fn what_conflicts_no_more_after_a_wait_is_neither_replaced_nor_updated() {
    let (cluster, db) = quiet("aba").await;
    let (worker, other) = (cluster.connect("aba").await, cluster.connect("aba").await);
    // It leaves and comes back to the same state, and has released its hold.
    for (kind, on_conflict) in
        [("replace", r#""replace""#), ("update", r#"{"update": {"*": ["args"]}}"#)]
    {
        let insert = |more: &str| {
            format!(
                r#"select id, unique_skipped_as_duplicate, replaced_id from jobs.insert('{kind}', '1', '{{"by_kind": true, "by_state": ["pending"], {more}}}', '{kind}')"#
            )
        };
        let held = insert(r#""hold_for": 3600, "hold_until": "start""#);
        let first = number(&db, &held).await;
        run(&worker, &format!(
                "begin; create temp table f_{kind} as select id, token from jobs.fetch('{kind}'); select jobs.release(id, token) from f_{kind}"
            )).await;
        let sql = insert(&format!(r#""on_conflict": {on_conflict}"#));
        let row = blocked_until(&db, row_of(&other, &sql), &worker, "commit").await;
        let answer: (i64, bool, Option<i64>) = (row.get(0), row.get(1), row.get(2));
        assert!(answer.0 > first && !answer.1 && answer.2.is_none(), "{kind}: {answer:?}");
    }
    // It is put off, and its new schedule is what is taken over.
    let insert = |at: &str| {
        format!(
            r#"select id, state::text, scheduled_at > clock_timestamp() + interval '50 minutes' from jobs.insert('s', '1', '{{"by_state": ["scheduled"], "on_conflict": "replace_except_schedule"}}', 's', scheduled_at => {at})"#
        )
    };
    let _ = number(&db, &insert("clock_timestamp() + interval '0.1 s'")).await;
    seconds(0.2).await;
    run(&worker, "begin; create temp table f as select id, token from jobs.fetch('s'); select jobs.snooze(id, token, '1 hour') from f").await;
    let row = blocked_until(&db, row_of(&other, &insert("null")), &worker, "commit").await;
    let answer: (String, bool) = (row.get(1), row.get(2));
    assert_eq!(answer, ("scheduled".into(), true));
}

#[tokio::test]
async fn an_update_of_a_running_job_does_not_deadlock_with_its_worker() {
    let (cluster, db) = quiet("alive").await;
    // Its place says another schedule than its row: it was retried once.
    let policy =
        r#"'{"by_kind": true, "on_conflict": {"update": {"running": ["scheduled_at", "args"]}}}'"#;
    run(
        &db,
        &format!(
            "select jobs.retry(id) from jobs.insert('k', unique_opts => {policy}), jobs.cancel(id);
         create table held as select id, token from jobs.fetch()"
        ),
    )
    .await;
    let worker = cluster.connect("alive").await;
    run(&worker, "begin; select jobs.heartbeat(id, token) from held").await;
    let other = cluster.connect("alive").await;
    let sql = format!("select jobs.insert('k', '2', {policy}, scheduled_at => '2001-01-01Z')");
    let complete = "select jobs.complete(id, token) from held; commit";
    blocked_until(&db, run(&other, &sql), &worker, complete).await;
}

/// A job that runs or is final, and a call that makes it wait again.
const COMEBACKS: [(&str, &str, &str); 6] = [
    ("running", "jobs.fail(id, token, 'e', '0')", "available"),
    ("running", "jobs.fail(id, token, 'e', '1 hour')", "retryable"),
    ("running", "jobs.snooze(id, token, '1 hour')", "scheduled"),
    ("running", "jobs.release(id, token)", "available"),
    ("completed", "jobs.retry(id)", "available"),
    ("completed", "jobs.retry_many(kind => 'k')", "available"),
];

/// Inserts a job that gives these fields to what it is a duplicate of.
fn update_by_insert(fields: &str, values: &str) -> String {
    let states = r#"["available", "running", "completed", "discarded"]"#;
    format!(
        r#"select jobs.insert('k', unique_opts => '{{"by_state": {states}, "on_conflict": {{"update": {{"*": {fields}}}}}}}', {values})"#
    )
}

/// Begins a job, and brings it to a state; `held` has its id and token.
async fn begun(db: &Client, state: &str, max_attempts: i32) {
    let end = match state {
        "completed" => "select jobs.complete(id, token) from held",
        "discarded" => "select jobs.fail(id, token, 'e') from held",
        _ => "",
    };
    let values = format!("max_attempts => {max_attempts}");
    let insert = update_by_insert(r#"["tags"]"#, &values);
    run(db, &format!("drop table if exists held; {insert}; create table held as select id, token from jobs.fetch(); {end}")).await;
}

/// Calls what waits for an update of its job that is under way; the snapshot is from before. What
/// the call is told.
async fn overtaken_by_an_update(
    cluster: &Cluster,
    db: &Client,
    level: &str,
    update: &str,
    call: &str,
) -> String {
    let (updater, mover) = (cluster.connect("overtaken").await, cluster.connect("overtaken").await);
    run(&mover, &format!("begin isolation level {level}; select count(*) from jobs.jobs")).await;
    run(&updater, &format!("begin; {update}")).await;
    let sql = format!("select {call} from held; commit");
    sqlstate(blocked_until(db, mover.batch_execute(&sql), &updater, "commit").await)
}

#[tokio::test]
async fn a_job_comes_back_with_what_it_was_updated_to_or_not_at_all() {
    let (cluster, db) = quiet("overtaken").await;
    let update = update_by_insert(r#"["queue", "priority"]"#, "queue => 'q2', priority => 1");
    for level in LEVELS {
        for (before, call, after) in COMEBACKS {
            begun(&db, before, 25).await;
            let reply = overtaken_by_an_update(&cluster, &db, level, &update, call).await;
            let state = text(&db, "select state::text from jobs.jobs join jobs.job j using (id) where j.queue = 'q2' and j.priority = 1").await;
            let violated = count(&db, "jobs.check()").await;
            let expected = match level {
                "read committed" => ("00000", after),
                _ => ("40001", before),
            };
            assert_eq!(
                ((reply.as_str(), state.as_str()), violated),
                (expected, 0),
                "{level}: {call}"
            );
            run(&db, "select jobs.cancel(id, force => true), jobs.delete(id) from jobs.jobs").await;
        }
    }
}

#[tokio::test]
async fn a_rescue_that_an_update_overtakes_leaves_the_job_to_the_next_one() {
    let (cluster, db) = quiet("overtaken").await;
    let update = update_by_insert(r#"["queue"]"#, "queue => 'q2'");
    begun(&db, "running", 25).await;
    run(&db, "update jobs.running set lease_expires_at = now() - interval '1 second'").await;
    let old = cluster.connect("overtaken").await;
    run(&old, "begin isolation level repeatable read; select count(*) from jobs.jobs").await;
    run(&db, &update).await;
    let errors = count(&old, "jobs.maintain() where task = 'rescue' and error is not null").await;
    run(&old, "commit").await;
    assert_eq!(errors, 1);
    // While it runs it is shown in the queue that it was fetched from.
    let state = "select state::text from jobs.jobs join jobs.job j using (id) where j.queue = 'q2'";
    assert_eq!(text(&db, state).await, "running");
    run(&db, "select jobs.maintain()").await;
    assert_eq!(text(&db, state).await, "retryable");
}

#[tokio::test]
async fn how_often_a_job_is_tried_is_what_it_was_updated_to_while_it_ran() {
    let (cluster, db) = quiet("overtaken").await;
    let update =
        |max: i32| update_by_insert(r#"["max_attempts"]"#, &format!("max_attempts => {max}"));
    for (before, call, max, new_max, after) in [
        ("running", "jobs.fail(id, token, 'e')", 1, 5, ("retryable", 5)),
        ("running", "jobs.fail(id, token, 'e')", 5, 1, ("discarded", 1)),
        // It has a try left by then, and is given none.
        ("discarded", "jobs.retry(id)", 1, 5, ("available", 5)),
        ("completed", "jobs.retry(id)", 5, 1, ("available", 2)),
    ] {
        begun(&db, before, max).await;
        let reply =
            overtaken_by_an_update(&cluster, &db, "read committed", &update(new_max), call).await;
        let row = row_of(&db, "select state::text, max_attempts from jobs.jobs").await;
        let found = (row.get::<_, &str>(0), row.get::<_, i32>(1));
        assert_eq!((reply.as_str(), found), ("00000", after), "{before}: {call}");
        run(&db, "select jobs.cancel(id, force => true), jobs.delete(id) from jobs.jobs").await;
    }
}

#[tokio::test]
async fn an_insert_does_not_wait_for_maintenance_that_clears_notes_away() {
    let (cluster, db) = quiet("notes").await;
    let insert = r#"select id, unique_skipped_as_duplicate from jobs.insert('k', unique_opts => '{"by_state": [], "hold_for": 3600, "hold_until": "start", "wait": false}')"#;
    let _ = number(&db, insert).await;
    run(
        &db,
        "select jobs.fetch(); update jobs.unique_note set due_at = due_at - interval '2 hours'",
    )
    .await;
    let other = cluster.connect("notes").await;
    run(&other, "begin; select jobs.maintain()").await;
    run(&db, "set statement_timeout = '60s'").await;
    let row = db.query_one(insert, &[]).await.unwrap();
    assert!(!row.get::<_, bool>(1));
    run(&other, "commit").await;
}

/// The pages that one cycle looks at in which a job is inserted under the same key, fetched and
/// completed.
async fn pages_of_a_cycle(db: &Client) -> i64 {
    let mut pages = 0;
    for call in [
        r#"jobs.insert('k', unique_opts => '{"by_state": ["available", "running"]}')"#,
        "jobs.fetch(max_jobs => 1) as f, jobs.complete(f.id, f.token)",
    ] {
        let sql = format!("explain (analyze, buffers, format json) select * from {call}");
        let plan: serde_json::Value = scalar(db, &sql).await;
        let plan = &plan[0]["Plan"];
        assert_eq!(plan["Actual Rows"].as_f64(), Some(1.0), "{call}"); // an integer before 18
        for blocks in ["Shared Hit Blocks", "Shared Read Blocks"] {
            pages += plan[blocks].as_i64().unwrap();
        }
    }
    pages
}

#[tokio::test]
async fn a_key_used_over_and_over_under_a_held_snapshot_costs_no_more_each_time() {
    const CYCLES: usize = 3000;
    let (cluster, db) = with("over", &[("jobs.enabled", "off"), ("autovacuum", "off")]).await;
    let holder = cluster.connect("over").await;
    run(&holder, "begin isolation level repeatable read; select count(*) from jobs.job").await;
    let mut pages = Vec::new();
    for _ in 0..CYCLES {
        pages.push(pages_of_a_cycle(&db).await);
    }
    let most = |pages: &[i64]| *pages.iter().max().unwrap();
    let (first, last) = (most(&pages[20..200]), most(&pages[CYCLES - 200..]));
    println!("{first} pages at first, {last} at the end");
    assert!(last < 2 * first, "{first} pages at first, {last} at the end");
}

/// A batch that replaces locks what waits before what runs: what a worker fetches meanwhile it
/// would lock out of order. The new version of a claim is written before the old one, where vacuum
/// has made room.
#[tokio::test]
async fn a_claim_moves_to_an_earlier_page() {
    let (_cluster, db) = quiet("back").await;
    run(
        &db,
        r#"select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 300) n), '{"by_args": true}');
           select count(jobs.delete(c.jobs[1])) from jobs.unique_claim c where ctid < '(1,0)';
           select jobs.maintain()"#,
    )
    .await;
    run(&db, "vacuum jobs.unique_claim").await;
    let insert = |by_state: &str| {
        format!(
            r#"select count(*) filter (where not i.unique_skipped_as_duplicate)
                 from (select args from jobs.jobs where kind = 'k' order by id desc limit 200) j,
                      jobs.insert('k', j.args, '{{"by_args": true, "by_state": ["{by_state}"]}}') i"#
        )
    };
    let early = "select count(*) from jobs.unique_claim where ctid < '(1,0)'";
    assert_eq!(number(&db, early).await, 0);
    // Until the other pages are full of versions that are still needed. Later the first one is,
    // too.
    run(&db, "begin").await;
    let mut most = 0;
    for _ in 0..5 {
        assert_eq!(number(&db, &insert("running")).await, 200);
        most = most.max(number(&db, early).await);
    }
    assert_ne!(most, 0, "some claims were moved there");
    run(&db, "commit").await;
    assert_eq!(number(&db, &insert("available")).await, 0);
}

#[tokio::test]
async fn a_batch_that_replaces_and_a_worker_with_many_jobs_do_not_deadlock() {
    let (cluster, db) = quiet("order").await;
    // Heartbeats never wait.
    for (finish, waiting) in [("jobs.complete_many", 2), ("jobs.heartbeat_many", 1)] {
        let [locker, batch, worker] = [
            cluster.connect("order").await,
            cluster.connect("order").await,
            cluster.connect("order").await,
        ];
        // In the order of their ids: one that waits, and two that run.
        run(
            &db,
            r#"select jobs.delete_many(kind => 'k');
               select jobs.cancel(id, force => true) from jobs.jobs where state = 'running';
               select jobs.insert('k', to_jsonb(q), '{"by_args": true}', queue => q) from unnest(array['b', 'a', 'c']) q;
               create table if not exists public.mine (id bigint, token bigint); truncate public.mine;
               insert into public.mine select id, token from jobs.fetch('a'); select jobs.fetch('c')"#,
        )
        .await;
        run(&locker, "begin; select from jobs.running r join jobs.job j on j.id = r.job_id where j.queue = 'c' for update of r").await;
        // Has locked what it replaces but the last one.
        let batch = tokio::spawn(async move {
            let replace = r#"select count(*) from jobs.insert_batch('k', array['"a"', '"b"', '"c"']::jsonb[], '{"by_args": true, "by_state": ["available", "running"], "on_conflict": "replace"}')"#;
            sqlstate(batch.query_one(replace, &[]).await)
        });
        blocked(&db, 1).await;
        run(&db, "insert into public.mine select id, token from jobs.fetch('b')").await;
        let worker = tokio::spawn(async move {
            let mine = format!(
                "select count(*) from {finish}(array(select id from public.mine), array(select token from public.mine))"
            );
            sqlstate(worker.query_one(&mine, &[]).await)
        });
        blocked(&db, waiting).await;
        run(&locker, "commit").await;
        let ended = (batch.await.expect("batch"), worker.await.expect("worker"));
        assert_eq!(ended, ("00000".into(), "00000".into()), "{finish}");
    }
}

/// Sessions insert under two keys and do what they got, at each isolation level, while the worker
/// prunes what is completed at once: how many jobs each kind got.
async fn inserted_while_pruned(
    cluster: &Cluster,
    database: &str,
    options: &'static str,
) -> Vec<i64> {
    let db = cluster.database(database).await;
    run(&db, "create table public.got (kind text);
         select jobs.configure_queue('default', retention_completed => '0', retention_discarded => '0')").await;
    let mut sessions = Vec::new();
    for level in ["read committed", "repeatable read", "serializable", "read committed"] {
        let session = cluster.connect(database).await;
        sessions.push(tokio::spawn(async move {
            run(&session, &format!(
                    "set default_transaction_isolation = '{level}'"
                )).await;
            for n in 0..60 {
                let insert = format!("with i as materialized (select kind, i.unique_skipped_as_duplicate as skipped
                                               from unnest(array['a', 'b']) kind, jobs.insert(kind, unique_opts => '{options}') i)
                     insert into public.got select kind from i where not skipped");
                let finish = if n % 3 == 0 {
                    "select jobs.fail(id, token, 'x', retryable => false) from jobs.fetch()"
                } else {
                    "select jobs.complete(id, token) from jobs.fetch()"
                };
                for statement in [insert.as_str(), finish] {
                    let code = sqlstate(session.batch_execute(statement).await);
                    assert!(["00000", "40001", "40P01"].contains(&code.as_str()), "{code}");
                }
            }
        }));
    }
    for session in sessions {
        session.await.unwrap();
    }
    poll_until("all is pruned or kept", Duration::from_secs(180), async || {
        run(&db, "select jobs.complete(id, token) from jobs.fetch(max_jobs => 10); select jobs.maintain()").await;
        count(&db, "jobs.ready").await == 0
    })
    .await;
    let counts = "select count(*) from public.got group by kind order by kind";
    let rows = db.query(counts, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn what_is_unique_for_a_time_stays_so_however_soon_it_is_pruned() {
    let cluster = Cluster::builder().set("jobs.interval", "10ms").start();
    let once = [1, 1];
    for (n, options) in [
        r#"{"by_kind": true, "window": "1 day", "by_state": ["available", "running", "completed", "discarded"]}"#,
        r#"{"by_period": "100000 days", "by_state": ["available", "running", "completed", "discarded"]}"#,
    ]
    .into_iter()
    .enumerate()
    {
        let database = format!("kept{n}");
        assert_eq!(inserted_while_pruned(&cluster, &database, options).await, once, "{options}");
        let db = cluster.connect(&database).await;
        assert_eq!(count(&db, "jobs.finished").await, 2);
    }
    // Control: with nothing that lasts, a completed job makes room at once.
    let options =
        r#"{"by_kind": true, "by_state": ["available", "running", "completed", "discarded"]}"#;
    let counts = inserted_while_pruned(&cluster, "control", options).await;
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
}

/// Inserts that race for the same keys while the index of claims is rebuilt over and over, each at
/// its isolation level: they succeed, or are to be tried again, and no error has a key.
#[tokio::test(flavor = "multi_thread")]
async fn no_error_has_a_key_while_the_index_of_claims_is_rebuilt() {
    const REBUILDS: i64 = 12;
    let (cluster, db) =
        with("rebuilt", &[("jobs.enabled", "off"), ("jobs.direct_access", "off")]).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut sessions = Vec::new();
    for level in LEVELS.repeat(2) {
        let session = cluster.connect("rebuilt").await;
        let level_is = format!("set default_transaction_isolation = '{level}'");
        run(&session, &level_is).await;
        let is_over = is_over.clone();
        sessions.push(tokio::spawn(async move {
            let mut key = 0;
            while !is_over.load(Ordering::Relaxed) {
                key += 1;
                let insert = format!("select jobs.insert('k', '{{\"n\": {key}}}', '{{\"by_args\": true}}') from generate_series(1, 3)");
                let Err(error) = session.batch_execute(&insert).await else {
                    continue;
                };
                let error = error.as_db_error().expect("the server answers");
                assert_eq!(error.code().code(), "40001", "{level}: {error:?}");
                assert_ne!(level, "read committed", "{error:?}");
                let detail = error.detail().unwrap_or_default();
                assert!(!detail.contains("(key)="), "{level}: {error:?}");
            }
        }));
    }
    for _ in 0..REBUILDS {
        run(&db, "reindex table concurrently jobs.unique_claim").await;
    }
    is_over.store(true, Ordering::Relaxed);
    for session in sessions {
        session.await.unwrap();
    }
    assert_eq!(count(&db, "jobs.check()").await, 0);
}
