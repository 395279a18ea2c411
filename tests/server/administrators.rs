//! What administrators do to a database around the extension: template databases, subscriptions,
//! tables that are rewritten or swapped, row security, and transaction ids that wrap around.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use jobs_tests::{
    Builder, Cluster, Mode, as_role, becomes, comes_true, insert, is, number, promptly, run,
    sqlstate, state, text, texts, with, workers,
};

fn idle() -> Builder {
    Cluster::builder().set("jobs.enabled", "off")
}

// --- template databases --------------------------------------------------------------------------

#[tokio::test]
async fn every_database_made_from_template1_has_a_queue_of_its_own() {
    let cluster = Cluster::builder().set("jobs.interval", "10ms").start();
    let postgres = cluster.connect("postgres").await;
    let template = cluster.connect("template1").await;
    run(&template, "create extension jobs; select jobs.schedule('tick', 'every 1 second', 'tick')")
        .await;
    let due = "'due', scheduled_at => clock_timestamp() + '0.1 s'";
    let in_template = insert(&template, due).await;
    drop(template);
    let mut databases = Vec::new();
    for name in ["one", "two"] {
        promptly(&postgres, &format!("create database {name}")).await;
        databases.push(cluster.connect(name).await);
    }
    for db in &databases {
        let own = insert(db, due).await;
        becomes(db, own, "available").await;
        becomes(db, in_template, "available").await;
        comes_true(db, "count(*) > 0 from jobs.jobs where kind = 'tick'").await;
    }
    assert_eq!(workers(&postgres, "template1").await, 0);
    let template = cluster.connect("template1").await;
    let waits = state(&template, in_template).await;
    assert_eq!(waits.as_deref(), Some("scheduled"));
}

/// Floors in shared memory go by the object id of a database.
#[tokio::test]
async fn jobs_are_found_in_a_database_with_the_object_id_of_one_that_was_dropped() {
    let cluster = idle().start();
    let postgres = cluster.connect("postgres").await;
    let pattern = cluster.database("pattern").await;
    let waits = insert(&pattern, "'waits', queue => 'q'").await;
    drop(pattern);
    let db = cluster.database("first").await;
    let work = "select jobs.insert_batch('k', array_fill('1'::jsonb, array[2000]), queue => 'q');
                select jobs.complete(id, token) from jobs.fetch('q', 2000);
                select jobs.fetch('q'); select jobs.fetch('q')";
    run(&db, work).await;
    let oid = "select oid::bigint from pg_database where datname = 'first'";
    let oid = number(&db, oid).await;
    drop(db);
    promptly(&postgres, "drop database first").await;
    let again = format!("create database second template pattern oid {oid}");
    promptly(&postgres, &again).await;
    let db = cluster.connect("second").await;
    let fetched = "(select count(*) from jobs.fetch('q')) = 1";
    comes_true(&db, fetched).await;
    assert_eq!(state(&db, waits).await.as_deref(), Some("running"));
}

// --- subscriptions -------------------------------------------------------------------------------

#[tokio::test]
async fn rows_that_a_subscription_brings_are_fetched_and_waited_for() {
    let cluster = idle().set("wal_level", "logical").start();
    let publisher = cluster.database("publisher").await;
    run(
        &publisher,
        "create publication part for table jobs.job, jobs.ready, jobs.scheduled, jobs.running",
    )
    .await;
    let slot = "select pg_create_logical_replication_slot('part', 'pgoutput')";
    run(&publisher, slot).await;
    let db = cluster.database("subscriber").await;
    // A floor far above what comes.
    run(
        &db,
        "select setval('jobs.job_seq', 1000000);
         select jobs.insert_batch('k', array_fill('1'::jsonb, array[2000]), queue => 'q');
         select jobs.complete(id, token) from jobs.fetch('q', 2000);
         select jobs.fetch('q'); select jobs.fetch('q')",
    )
    .await;
    let subscribe = format!("create subscription part connection 'host={} user=postgres dbname=publisher' publication part
           with (create_slot = false, slot_name = 'part', copy_data = false)", cluster.directory().display());
    run(&db, &subscribe).await;
    let waiter = cluster.connect("subscriber").await;
    let waits = tokio::spawn(async move { run(&waiter, "call jobs.wait('other', '1 h')").await });
    let sent = insert(&publisher, "'sent', queue => 'q'").await;
    comes_true(&db, &format!("exists (select from jobs.fetch('q') where id = {sent})")).await;
    insert(&publisher, "'waited for', queue => 'other'").await;
    waits.await.expect("it returned");
    let due =
        insert(&publisher, "'due', queue => 'q', scheduled_at => clock_timestamp() + '0.1 s'")
            .await;
    comes_true(&db, &format!("exists (select from jobs.fetch('q') where id = {due})")).await;
    insert(&publisher, "'lost', queue => 'lost'").await;
    run(&publisher, "select jobs.fetch('lost', lease => '0.1 s')").await;
    comes_true(&db, "exists (select from jobs.maintain() where task = 'rescue' and rows > 0)")
        .await;
    run(&publisher, "select jobs.complete(id, token) from jobs.fetch('other')").await;
    comes_true(&db, "count(*) = 0 from jobs.ready where queue = 'other'").await;
    comes_true(&db, "count(*) = 0 from jobs.running r join jobs.job j on j.id = r.job_id where j.queue = 'other'").await;
    // Its final state was not published.
    assert!(is(&db, "count(*) = 0 from jobs.jobs where queue = 'other'").await);
    assert!(is(&db, "exists (select from jobs.check() where invariant = 'one_place')").await);
    cluster.allow_violations();
    let ended = "logical replication (apply )?worker .*FATAL: +terminating";
    cluster.allow(u32::MAX, ended);
    run(&db, "alter subscription part disable").await;
    run(&db, "alter subscription part set (slot_name = none)").await;
    run(&db, "drop subscription part").await;
}

/// A filter by a column that deletes do not tell: Postgres then forbids the delete.
#[tokio::test]
async fn a_publication_that_forbids_deletes_is_obeyed() {
    let cluster = idle().set("wal_level", "logical").start();
    let db = cluster.database("filtered").await;
    let take = "select jobs.fetch('q')";
    run(&db, "select jobs.insert('k', queue => 'q')").await;
    run(&db, "create publication part for table jobs.ready where (expires_at is null)").await;
    for direct in ["on", "off"] {
        run(&db, &format!("set jobs.direct_access = {direct}")).await;
        assert_eq!(sqlstate(db.batch_execute(take).await), "42P10", "{direct}");
    }
    run(&db, "drop publication part").await;
    run(&db, take).await;
    // An update is forbidden likewise.
    let twice = r#"select jobs.insert('u', unique_opts => '{"by_kind": true, "window": 1}')"#;
    run(&db, twice).await;
    run(&db, "create publication part for table jobs.unique_claim where (jobs is null)").await;
    for direct in ["on", "off"] {
        run(&db, &format!("set jobs.direct_access = {direct}")).await;
        run(&db, "select pg_sleep(1.1)").await;
        assert_eq!(sqlstate(db.batch_execute(twice).await), "42P10", "{direct}");
    }
}

// --- transaction ids -----------------------------------------------------------------------------

#[tokio::test]
async fn jobs_outlive_the_wraparound_of_transaction_ids() {
    let cluster = idle().set("autovacuum", "off").start();
    let db = cluster.database("old").await;
    const UNIQUE: &str = r#"'u', unique_opts => '{"by_kind": true}', queue => 'u'"#;
    let first = insert(&db, UNIQUE).await;
    run(
        &db,
        "select jobs.insert_batch('k', array_fill('1'::jsonb, array[100]), queue => 'q');
         select jobs.configure_queue('q', retention_completed => '1 day')",
    )
    .await;
    run(&cluster.connect("postgres").await, "update pg_database set datallowconn = true").await;
    drop(db);
    // Whole files of the log of transactions. Each time the rows from before are older by a quarter
    // of what there is; in the end it has begun anew.
    for (round, (epoch, id)) in
        [(0, 1 << 30), (0, 2 << 30), (0, 3 << 30), (1, 1 << 20), (1, 1 << 30)]
            .into_iter()
            .enumerate()
    {
        cluster.stop(Mode::Fast);
        let mut reset = cluster.bin("pg_resetwal");
        reset.args(["-e", &epoch.to_string(), "-x", &u32::to_string(&id), "-D"]);
        succeeds(reset.arg(cluster.data()));
        cluster.start_again();
        let db = cluster.connect("old").await;
        let now = "select pg_current_xact_id()::text::bigint";
        assert!(number(&db, now).await >= (epoch << 32) + i64::from(id));
        assert_eq!(insert(&db, UNIQUE).await, first, "a duplicate");
        let fresh =
            format!(r#"'round {round}', unique_opts => '{{"by_kind": true}}', queue => 'q'"#);
        let new = insert(&db, &fresh).await;
        assert_eq!(insert(&db, &fresh).await, new);
        let done =
            "select count(*) from (select jobs.complete(id, token) from jobs.fetch('q', 10)) done";
        assert_eq!(number(&db, done).await, 10);
        let failed = "select count(*) from jobs.maintain() where error is not null";
        assert_eq!(number(&db, failed).await, 0);
        let left = "select count(*) from jobs.jobs where state = 'available' and queue = 'q'";
        assert_eq!(number(&db, left).await, 100 - 9 * (round as i64 + 1));
        assert_eq!(cluster.violations(), "");
        succeeds(cluster.bin("vacuumdb").args(["--all", "--freeze", "--quiet"]));
    }
    let db = cluster.connect("old").await;
    run(&db, &format!("select jobs.delete({first})")).await;
    assert!(insert(&db, UNIQUE).await > first);
}

fn succeeds(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

// --- tables that are rewritten -------------------------------------------------------------------

/// Gives a table other files, as pg_repack and pg_squeeze do: the rows are copied into another
/// table, then the files of both tables and of their indexes are swapped in the catalog.
const SWAP: &str = "
create procedure public.swap(t regclass) language plpgsql as $$
begin
  execute format('lock table %s in access exclusive mode', t);
  execute format('create table public.swapped (like %s including all)', t);
  execute format('insert into public.swapped select * from %s', t);
  with pair (a, b) as (
    select t::oid, 'public.swapped'::regclass::oid
    union all
    select i.indexrelid, o.indexrelid from pg_index i join pg_index o
      on substring(pg_get_indexdef(i.indexrelid) from ' USING .*') = substring(pg_get_indexdef(o.indexrelid) from ' USING .*')
     where i.indrelid = t and o.indrelid = 'public.swapped'::regclass),
  both_ways as (select a, b from pair union all select b, a from pair)
  update pg_class c set relfilenode = o.relfilenode, reltoastrelid = o.reltoastrelid, relpages = o.relpages, reltuples = o.reltuples,
         relfrozenxid = o.relfrozenxid, relminmxid = o.relminmxid
    from both_ways, pg_class o where c.oid = both_ways.a and o.oid = both_ways.b;
  update pg_depend d set refobjid = c.oid
    from pg_class c where c.oid in (t, 'public.swapped'::regclass) and d.classid = 'pg_class'::regclass and d.objid = c.reltoastrelid
     and d.refclassid = 'pg_class'::regclass and d.refobjid <> c.oid;
end $$;
";

#[tokio::test]
async fn tables_are_rewritten_and_swapped_under_sessions_at_work() {
    let (cluster, db) = with("rewritten", &[("jobs.interval", "10ms")]).await;
    run(&db, SWAP).await;
    // One that is kept out of line.
    let long = insert(&db, "'long', (select to_jsonb(string_agg(sha256(n::text::bytea)::text, '')) from generate_series(1, 1000) n), queue => 'long'").await;
    let args = format!("select md5(args::text) from jobs.jobs where id = {long}");
    let before = text(&db, &args).await;
    let is_over = AtomicBool::new(false);
    let work = async |n: i32| {
        let session = cluster.connect("rewritten").await;
        let mut done = 0;
        while !is_over.load(Ordering::Relaxed) {
            let one = format!(
                r#"select jobs.insert('k', '{n}', '{{"by_args": true}}', queue => 'q{n}');
                   select jobs.insert('k', '{n}', '{{"by_args": true}}', queue => 'q{n}');
                   select jobs.insert('later', queue => 'q{n}', scheduled_at => clock_timestamp() + '10 ms')"#
            );
            run(&session, &one).await;
            let taken =
                format!("select count(jobs.complete(id, token)) from jobs.fetch('q{n}', 2)");
            done += number(&session, &taken).await;
        }
        done
    };
    let rewrite = async || {
        let tables = "select c.oid::regclass::text from pg_class c where c.relnamespace = 'jobs'::regnamespace and c.relkind = 'r' order by 1";
        for table in texts(&db, tables).await {
            run(&db, &format!("vacuum full {table}")).await;
            run(&db, &format!("reindex table concurrently {table}")).await;
            let key = format!(
                "select conname::text from pg_constraint where conrelid = '{table}'::regclass and contype = 'p'"
            );
            for key in texts(&db, &key).await {
                run(&db, &format!("cluster {table} using {key}")).await;
            }
            run(&db, &format!("call public.swap('{table}')")).await;
            run(&db, "drop table public.swapped").await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let (one, two, ()) = tokio::join!(work(1), work(2), rewrite());
    assert!(one > 0 && two > 0);
    comes_true(&db, "count(*) = 0 from jobs.scheduled").await;
    let take = "select count(jobs.complete(id, token)) from unnest('{q1,q2}'::text[]) q, jobs.fetch(q, 10000)";
    let mut rest = 0;
    loop {
        match number(&db, take).await {
            0 => break,
            taken => rest += taken,
        }
    }
    let finished = "select count(*) from jobs.jobs where state = 'completed' and queue like 'q%'";
    assert_eq!(number(&db, finished).await, one + two + rest);
    let others = "count(*) = 0 from jobs.jobs where state <> 'completed' and queue like 'q%'";
    assert!(is(&db, others).await);
    assert_eq!(text(&db, &args).await, before);
    let finding = "select coalesce(string_agg(message, ', '), '') from jobs.health() where finding in ('table_changed', 'foreign_trigger')";
    assert_eq!(text(&db, finding).await, "");
    // A session that begins now goes the fast way.
    let db = cluster.connect("rewritten").await;
    run(&db, "select jobs.insert('k', queue => 'q'); select jobs.complete(id, token) from jobs.fetch('q')").await;
    let slow = "select ident from pg_backend_memory_contexts where name = 'CachedPlanSource' and ident ~ '(INSERT INTO|DELETE FROM) jobs\\.(job|ready|running|finished) '";
    assert_eq!(texts(&db, slow).await, [""; 0]);
}

// --- row security --------------------------------------------------------------------------------

/// Policies hold for the owner only if that is forced, and the owner is no superuser any more. They
/// could hide one of a job's rows and show another.
#[tokio::test]
async fn row_security_that_hides_rows_from_the_owner_is_an_error() {
    let cluster = idle().start();
    let postgres = cluster.connect("postgres").await;
    run(&postgres, "create role keeper superuser login").await;
    run(&postgres, "create database secured owner keeper").await;
    let keeper = as_role(&cluster, "keeper", "secured").await;
    run(&keeper, "create extension jobs").await;
    run(&postgres, "alter role keeper nosuperuser").await;
    let db = cluster.connect("secured").await;
    run(
        &db,
        r#"select jobs.insert('unique', unique_opts => '{"by_kind": true}');
           select jobs.insert('running', queue => 'r') from generate_series(1, 2);
           select jobs.fetch('r')"#,
    )
    .await;
    let unique = r#"select jobs.insert('unique', unique_opts => '{"by_kind": true}')"#;
    let complete = "select jobs.complete(job_id, token) from jobs.running";
    let later = "select jobs.insert('k', scheduled_at => '2999-01-01 00:00Z')";
    let fetch = "select jobs.fetch('r')";
    let all = "select string_agg(j::text, ' ' order by id) from jobs.jobs j";
    let before = text(&db, all).await;
    for (table, calls) in [
        ("job", [unique, fetch]),
        ("ready", [unique, fetch]),
        ("scheduled", [later, later]),
        ("running", [fetch, complete]),
        ("finished", [complete, complete]),
        ("unique_claim", [unique, unique]),
    ] {
        let rows =
            format!("alter table jobs.{table} enable row level security, force row level security");
        run(&db, &format!("create policy hides on jobs.{table} using (false); {rows}")).await;
        for call in calls {
            let refused = db.batch_execute(call).await.expect_err(call);
            let error = refused.as_db_error().expect(call);
            assert_eq!(error.code().code(), "42501", "{table}: {call}: {error:?}");
            let said = format!("row-level security is forced on table jobs.{table}");
            assert_eq!(error.message(), said, "{call}");
            let mend = format!("ALTER TABLE jobs.{table} NO FORCE ROW LEVEL SECURITY;");
            assert_eq!(error.hint(), Some(&*mend), "{call}");
        }
        // Without that, the owner sees all.
        run(&db, &format!("alter table jobs.{table} no force row level security")).await;
        for call in calls {
            run(&db, &format!("begin; {call}; rollback")).await;
        }
        let undo = format!(
            "drop policy hides on jobs.{table}; alter table jobs.{table} disable row level security"
        );
        run(&db, &undo).await;
        assert_eq!(text(&db, all).await, before, "{table}");
    }
    run(&db, unique).await;
    run(&db, complete).await;
}
