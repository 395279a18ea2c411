//! Tables that are written without statements, and what somebody has attached to them: it is
//! honoured, what is not ready is left out, and `jobs.health()` names what makes calls slower, with
//! the command that takes it away.

use std::collections::BTreeSet;

use jobs_tests::{
    Client, Cluster, SOON, comes_true, count, number, poll_until, quiet, rows, run, sqlstate, text,
};

/// One transaction, also where it is several statements.
/// A job's life.
const LIFE: &str = "select jobs.insert('k', '1', '{\"by_args\": true}', queue => 'q');
    select jobs.insert('k', '1', '{\"by_args\": true}', queue => 'q');
    select jobs.insert('k', '2', queue => 'q', scheduled_at => '2999-01-01 00:00Z');
    select jobs.insert('k', '3', queue => 'q');
    select jobs.insert('k', '4', queue => 'q');
    select jobs.complete(id, token) from jobs.fetch('q', 1);
    select jobs.fail_many(array_agg(id), array_agg(token), array_agg('x'::text), retry_in => '1 day') from jobs.fetch('q', 1)";

/// The statements that a session has planned for that: none of those that go the slower way, where
/// nothing is attached.
async fn planned(cluster: &Cluster) -> BTreeSet<String> {
    planned_in(cluster, "direct").await
}

async fn planned_in(cluster: &Cluster, database: &str) -> BTreeSet<String> {
    let db = cluster.connect(database).await;
    run(&db, LIFE).await;
    let plans = "select ident from pg_backend_memory_contexts where name = 'CachedPlanSource' and ident ~ 'jobs\\.'";
    let rows = db.query(plans, &[]).await.expect(plans);
    rows.iter().map(|row| row.get(0)).collect()
}

/// What `jobs.health()` says of the tables, and what to do about it.
async fn changed(db: &Client) -> Vec<(String, String)> {
    let found = "select message, regexp_replace(hint, '^It runs .* (DROP )', '\\1') from jobs.health() where finding in ('table_changed', 'foreign_trigger')";
    let rows = db.query(found, &[]).await.expect(found);
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn what_makes_calls_slower_is_named_with_what_takes_it_away() {
    let (cluster, db) = quiet("direct").await;
    run(&db, "create function public.see() returns trigger language plpgsql as $$ begin return null; end $$").await;
    let plain = planned(&cluster).await;
    assert_eq!(changed(&db).await, []);
    // What is done, what is said of it, and whether a job's life is slower then: not where only
    // maintenance looks along the index.
    for [change, said, speed] in rows(
        r#"
        create trigger "My trigger" after insert on jobs.ready for each row execute function public.see() | trigger "My trigger" on jobs.ready calls public.see() | slower
        create trigger off after insert on jobs.job for each row execute function public.see(); alter table jobs.job disable trigger off | trigger off on jobs.job calls public.see() | slower
        create rule nothing as on insert to jobs.job do also nothing | rule nothing on jobs.job | slower
        alter table jobs.finished add column note text | jobs.finished has column note | slower
        alter table jobs.finished add column note text not null default 'x' | jobs.finished has column note | slower
        alter table jobs.finished add constraint checked check (attempt > -1) | jobs.finished has constraint checked | slower
        alter table jobs.running alter column worker set default 'w' | jobs.running has a default for column worker | slower
        alter table jobs.running enable row level security | jobs.running has row-level security | slower
        create index "Next" on jobs.job ((id + 1)) | jobs.job has index "Next" | slower
        create index by_hash on jobs.job using hash (id) | jobs.job has index by_hash | slower
        create index partly on jobs.job (id) where id > 5 | jobs.job has index partly | slower
        drop index jobs.ready_expires; create index ready_expires on jobs.ready (expires_at) where expires_at is null | jobs.ready has index ready_expires | slower
        alter table jobs.ready drop constraint ready_pkey | jobs.ready lacks its index ready_pkey | slower
        alter table jobs.error add column note text | jobs.error has column note | slower
        drop index jobs.error_by_job | jobs.error lacks its index error_by_job | slower
        drop index jobs.finished_by_age | jobs.finished lacks its index finished_by_age | as fast
        drop index jobs.ready_requeued; create index ready_requeued on jobs.ready (seq) where seq <> job_id | jobs.ready lacks its index ready_requeued | as fast
        drop index jobs.ready_expires; create index ready_expires on jobs.ready (expires_at) | jobs.ready lacks its index ready_expires | as fast
        drop index jobs.scheduled_next; create index scheduled_next on jobs.scheduled (due_at desc) | jobs.scheduled lacks its index scheduled_next | as fast
        drop index jobs.scheduled_due; create index scheduled_due on jobs.scheduled (queue text_pattern_ops, due_at) | jobs.scheduled lacks its index scheduled_due | slower
        "#,
    ) {
        run(&db, change).await;
        let found = changed(&db).await;
        assert!(found.iter().any(|(what, _)| what.contains(said)), "{change}: {found:?}");
        // Each is told once, as attached or as changed.
        if change.starts_with("create trigger") || change.starts_with("create rule") {
            assert_eq!(found.len(), 1, "{change}: {found:?}");
        }
        assert_eq!(planned(&cluster).await != plain, speed == "slower", "{change}");
        // What it says to do helps.
        for (_, mend) in found {
            run(&db, &mend).await;
        }
        assert_eq!(changed(&db).await, [], "{change}");
        assert_eq!(planned(&cluster).await, plain, "{change}");
    }
    // Indexes of columns alone cost what they cost, as for any table.
    run(&db, "create index by_kind on jobs.job (kind, created_at desc); create index expiring on jobs.job (expires_at) where expires_at is not null").await;
    assert_eq!(changed(&db).await, []);
    assert_eq!(planned(&cluster).await, plain);
    let all = count(&db, "jobs.job").await;
    assert!(all > 30, "{all}");
    assert_eq!(along_index(&db, "kind, created_at desc").await, all);
    run(&db, "set enable_seqscan = off; set enable_bitmapscan = off").await;
    let expiring = "select count(*) from jobs.job where expires_at is not null";
    assert_eq!(number(&db, expiring).await, 0);
}

#[tokio::test]
async fn with_direct_access_off_everything_goes_by_statements() {
    let (cluster, db) = quiet("direct").await;
    let directly = planned(&cluster).await;
    cluster.set("jobs.direct_access", "off");
    cluster.reload();
    let is_off = async || {
        let db = cluster.connect("direct").await;
        let show = "select current_setting('jobs.direct_access')";
        text(&db, show).await == "off"
    };
    poll_until("it is off", SOON, is_off).await;
    // Where the key is free again.
    cluster.database("statements").await;
    let by_statements = planned_in(&cluster, "statements").await;
    for done in [
        "INSERT INTO jobs.job ",
        "INSERT INTO jobs.unique_claim ",
        "INSERT INTO jobs.ready ",
        "INSERT INTO jobs.scheduled ",
        "DELETE FROM jobs.ready",
        "DELETE FROM jobs.running ",
        "INSERT INTO jobs.finished ",
    ] {
        let is_in = |plans: &BTreeSet<String>| plans.iter().any(|plan| plan.contains(done));
        assert!(!is_in(&directly), "{done}: {directly:?}");
        assert!(is_in(&by_statements), "{done}: {by_statements:?}");
    }
    assert_eq!(changed(&db).await, []);
    // It is for who looks for what is wrong: nobody else sees it or can set it.
    let shown = "select count(*) from pg_settings where name = 'jobs.direct_access'";
    assert_eq!(number(&db, shown).await, 0);
    run(&db, "set jobs.direct_access = on; create role anybody; set role anybody").await;
    assert_eq!(sqlstate(db.batch_execute("set jobs.direct_access = off").await), "42501");
}

/// How many jobs an index has that is in this order.
async fn along_index(db: &Client, order: &str) -> i64 {
    run(db, "set enable_seqscan = off; set enable_sort = off").await;
    let sql = format!(
        "select count(*) from (select kind from jobs.job order by {order} limit 1000000) t"
    );
    let found = number(db, &sql).await;
    run(db, "reset enable_seqscan; reset enable_sort").await;
    found
}

/// Begins to make an index, and is cancelled while it waits: before any row is entered, or before
/// all that were there are.
async fn left_behind(cluster: &Cluster, db: &Client, table: &str, on: &str, is_ready: bool) {
    let [first, second, maker] = [
        cluster.connect("direct").await,
        cluster.connect("direct").await,
        cluster.connect("direct").await,
    ];
    let lock = format!("begin; lock table jobs.{table} in row exclusive mode");
    run(&first, &lock).await;
    let pid = number(&maker, "select pg_backend_pid()::bigint").await;
    let make = format!("create index concurrently left_behind on jobs.{table} {on}");
    let making = tokio::spawn(async move { sqlstate(maker.batch_execute(&make).await) });
    let waits = format!("select count(*) from pg_locks where pid = {pid} and not granted");
    poll_until("it waits", SOON, async || number(db, &waits).await == 1).await;
    if is_ready {
        run(&second, &lock).await;
        run(&first, "commit").await;
        let ready = format!(
            "select count(*) from pg_index where indexrelid = 'jobs.left_behind'::regclass and indisready and {pid} in (select pid from pg_locks where not granted)"
        );
        poll_until("it is ready", SOON, async || number(db, &ready).await == 1).await;
    }
    // It is not left behind as long as somebody is at it.
    assert_eq!(changed(db).await, []);
    run(db, &format!("select pg_cancel_backend({pid})")).await;
    assert_eq!(making.await.expect("the maker"), "57014");
    // An error is told before the transaction is undone, with its locks.
    comes_true(db, &format!("not exists (select from pg_locks where pid = {pid})")).await;
    let left = "select count(*) from pg_index where indexrelid = 'jobs.left_behind'::regclass and not indisvalid";
    assert_eq!(number(db, left).await, 1);
}

#[tokio::test]
async fn an_index_that_was_left_behind_unfinished_costs_no_more_than_it_does_by_statements() {
    let (cluster, db) = quiet("direct").await;
    let plain = planned(&cluster).await;
    for (on, is_ready) in [
        ("(kind)", false),
        // Nothing is entered into it, so it makes no difference of what it is.
        ("((id + 1))", false),
        ("(kind) where id > 5", false),
        ("(kind)", true),
    ] {
        left_behind(&cluster, &db, "job", on, is_ready).await;
        assert_eq!(planned(&cluster).await, plain, "{on}");
        let [(what, mend)] = &changed(&db).await[..] else {
            panic!("{on}: it is one finding");
        };
        assert!(what.contains("jobs.left_behind of table jobs.job is invalid"), "{what}");
        if is_ready {
            // All that came since then is in it.
            run(&db, LIFE).await;
            let all = count(&db, "jobs.job").await;
            run(&db, "update pg_index set indisvalid = true where indexrelid = 'jobs.left_behind'::regclass").await;
            assert_eq!(along_index(&db, "kind").await, all);
            run(&db, "update pg_index set indisvalid = false where indexrelid = 'jobs.left_behind'::regclass").await;
        }
        let (drop, reindex) = mend.split_once("; or, to keep it: ").expect(mend);
        if is_ready {
            run(&db, reindex).await;
            assert_eq!(changed(&db).await, []);
        }
        run(&db, drop).await;
        assert_eq!(changed(&db).await, []);
    }
}

/// An index that nothing is entered into yet would lack a row whose new version has no entry of its
/// own.
#[tokio::test]
async fn rows_are_not_updated_in_place_where_an_unfinished_index_has_what_changes() {
    let (cluster, db) = quiet("direct").await;
    let in_place = async || {
        run(&db, "select pg_stat_force_next_flush()").await;
        number(&db, "select n_tup_hot_upd from pg_stat_user_tables where relid = 'jobs.unique_claim'::regclass").await
    };
    let take_over = r#"select jobs.delete(id) from jobs.insert('k', '3', '{"by_args": true, "window": 1}'); select jobs.insert('k', '3', '{"by_args": true, "window": 1}'); select pg_sleep(1.1); select jobs.insert('k', '3', '{"by_args": true, "window": 1}')"#;
    run(&db, take_over).await;
    let before = in_place().await;
    run(&db, take_over).await;
    assert!(in_place().await > before, "control: otherwise they are");
    left_behind(&cluster, &db, "unique_claim", "using gin (jobs)", false).await;
    let before = in_place().await;
    run(&db, take_over).await;
    assert_eq!(in_place().await, before);
    run(&db, "drop index jobs.left_behind").await;
    left_behind(&cluster, &db, "unique_claim", "using brin ((jobs[1]))", false).await;
    run(&db, take_over).await;
    run(&db, "drop index jobs.left_behind; set enable_seqscan = off").await;
    // Each key is found once.
    let keys = "select count(*) - count(distinct key) from jobs.unique_claim where key >= ''";
    assert_eq!(number(&db, keys).await, 0);
}

/// It is no error, so there is memory.
#[tokio::test]
async fn a_warning_with_the_code_of_out_of_memory_ends_no_session() {
    let (_cluster, db) = quiet("direct").await;
    run(&db, "create function public.warn() returns trigger language plpgsql as $$
           begin for n in 1..3 loop raise warning 'low' using errcode = '53200'; end loop; return null; end $$;
         create trigger warn after insert on jobs.ready for each row execute function public.warn();
         select jobs.insert('k')").await;
    assert_eq!(count(&db, "jobs.ready").await, 1);
}
