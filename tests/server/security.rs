//! Attacks for which it takes several sessions, or the background worker.
//! tests/pg_regress/sql/attacks.sql has the others.

use std::time::Duration;

use jobs_tests::{
    Client, Cluster, SOON, as_role, count, every_task_worked, number, quiet, row_of, rows_of, run,
    seconds, sqlstate, text, with, work_for_every_task, worker_goes_on,
};

/// A database that never had a job may be one that is being restored: maintenance waits for the
/// first, and looks once a second.
async fn begin(db: &Client) {
    run(db, "select jobs.insert('first', queue => 'first')").await;
    seconds(1.2).await;
}

/// Operators and functions that maintenance may use, in the schema evil of whoever is connected:
/// each writes down who ran it.
async fn make_evil(db: &Client) {
    run(db, "create schema evil;
         create table evil.log (what text, who text default current_user);
         grant usage on schema evil to public;
         grant all on evil.log to public;
         create function evil.caught(what text) returns boolean language plpgsql as
           $$ begin insert into evil.log (what) values (what); return true; end $$;
         do $$
         declare o record;
         begin
           for o in select oid, oprname, oprleft::regtype as l, oprright::regtype as r, oprresult::regtype as result from pg_operator
                     where oprname in ('=', '<>', '<', '<=', '>', '>=', '||', '+', '-', '->', '->>') and oprleft <> 0
                       and array[oprleft, oprright] <@ array['bool', 'int2', 'int4', 'int8', 'text', 'name', 'oid', 'bytea', 'timestamptz', 'interval', 'jsonb']::regtype[]::oid[] loop
             execute format('create function evil.o%s(%s, %s) returns %s language plpgsql as %L', o.oid, o.l, o.r, o.result,
                            format('begin perform evil.caught(%L); return null; end', 'operator ' || o.oprname));
             execute format('create operator evil.%s (function = evil.o%s, leftarg = %s, rightarg = %s)', o.oprname, o.oid, o.l, o.r);
           end loop;
         end $$;
         create function evil.clock_timestamp() returns timestamptz language plpgsql as
           $$ begin perform evil.caught('clock_timestamp'); return '-infinity'; end $$;").await;
}

/// The owner of a database who is no superuser may set what its sessions begin with, those of the
/// background worker too.
#[tokio::test]
async fn settings_of_a_database_do_not_turn_the_worker() {
    let cluster = Cluster::builder().set("jobs.interval", "50ms").start();
    let postgres = cluster.connect("postgres").await;
    run(&postgres, "create role mallory login").await;
    run(&postgres, "create database hers owner mallory").await;
    let db = cluster.connect("hers").await;
    run(&db, "create extension jobs").await;
    let mallory = as_role(&cluster, "mallory", "hers").await;
    make_evil(&mallory).await;
    // Its name from 16 on.
    let parallel = match count(&db, "pg_settings where name = 'debug_parallel_query'").await {
        0 => "force_parallel_mode = on",
        _ => "debug_parallel_query = on",
    };
    let has_transaction_timeout =
        "select count(*) from pg_settings where name = 'transaction_timeout'";
    if number(&db, has_transaction_timeout).await == 1 {
        run(&mallory, "alter database hers set transaction_timeout = '1 ms'").await;
    }
    for setting in [
        "search_path = evil, pg_temp, pg_catalog, public",
        "statement_timeout = 1",
        "lock_timeout = 1",
        "idle_in_transaction_session_timeout = 1",
        "default_transaction_read_only = on",
        "default_transaction_isolation = serializable",
        "default_transaction_deferrable = on",
        "row_security = off",
        "transform_null_equals = on",
        "standard_conforming_strings = off",
        "array_nulls = off",
        "datestyle = 'German'",
        "intervalstyle = 'sql_standard'",
        "timezone = 'Pacific/Apia'",
        "plan_cache_mode = force_custom_plan",
        parallel,
        "enable_indexscan = off",
        "application_name = 'pg_restore'",
        "client_min_messages = error",
    ] {
        run(&mallory, &format!("alter database hers set {setting}")).await;
    }
    // What only a superuser may set for others is not hers to set.
    for setting in ["session_preload_libraries = 'x'", "jobs.enabled = off"] {
        let refused = mallory.batch_execute(&format!("alter database hers set {setting}")).await;
        assert!(["42501", "55P02"].contains(&sqlstate(refused).as_str()), "{setting}");
    }

    // `db` is older than the settings. Work for every task, for a worker that begins now.
    run(&db, "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity where backend_type = 'jobs worker'").await;
    cluster.allow(u32::MAX, "jobs worker : FATAL: +terminating background worker");
    work_for_every_task(&db).await;
    every_task_worked(&db).await;
    assert_eq!(count(&db, "evil.log").await, 0, "nothing of hers was run");
    // It would end the sessions of others.
    let reset = "do $$ begin if exists (select from pg_settings where name = 'transaction_timeout')
        then alter database hers reset transaction_timeout; end if; end $$";
    run(&db, reset).await;

    // Control: a session of the superuser that is not careful runs it.
    let careless = cluster.connect("hers").await;
    run(
        &careless,
        "set default_transaction_read_only = off; set statement_timeout = 0;
         set default_transaction_isolation = 'read committed'",
    )
    .await;
    run(&careless, "select 1::int8 = 2::int8, clock_timestamp()").await;
    assert_eq!(
        count(&db, "evil.log where who = 'postgres' and what in ('operator =', 'clock_timestamp')")
            .await,
        2
    );
}

/// What somebody who was given too much has attached to the tables is run with the rights of the
/// extension's owner, never with those of the server's superuser, and it cannot become somebody
/// else for what comes after it.
#[tokio::test]
async fn the_worker_has_no_more_rights_than_the_owner_of_the_extension() {
    let cluster = Cluster::builder().set("jobs.interval", "50ms").start();
    let postgres = cluster.connect("postgres").await;
    run(&postgres, "create role mallory; create role installer login superuser").await;
    run(&postgres, "create database hers owner installer").await;
    let installer = as_role(&cluster, "installer", "hers").await;
    run(&installer, "create extension jobs").await;
    // Installed by a superuser who is none any more.
    run(&postgres, "alter role installer nosuperuser").await;
    let db = cluster.connect("hers").await;
    begin(&db).await;
    // What is asked of the server with the owner's rights does not need a superuser's.
    run(&db, "select count(*) from jobs.health(); select count(*) from jobs.metrics(); select count(*) from jobs.maintain();
         table jobs.queues; table jobs.maintenance; select jobs.grant_viewer('mallory'); select jobs.revoke('mallory')").await;
    run(&db, "create table public.log (what text, who text default current_user);
         grant all on public.log to public;
         create function public.try(statement text) returns void language plpgsql as $$
         begin
           execute statement;
           insert into public.log (what) values ('done: ' || statement);
         exception when others then
           insert into public.log (what) values (sqlstate || ': ' || statement);
         end $$;
         create function public.trap() returns trigger language plpgsql set search_path = public as $$
         begin
           perform try(s) from unnest('{alter role installer superuser,create table jobs_trap_copy as table pg_authid,set role postgres,reset role,set session authorization postgres,create temp table jobs_trap ()}'::text[]) s;
           -- Left behind, this would be the end of all maintenance.
           perform set_config('default_transaction_read_only', 'on', false);
           return new;
         end $$;
         create trigger trap after insert on jobs.ready for each row execute function public.trap()").await;

    worker_goes_on(&db).await;
    assert_eq!(
        text(&db, "select string_agg(distinct who, ' ') from public.log").await,
        "installer"
    );
    assert_eq!(
        text(&db, "select string_agg(what, e'\\n' order by what collate \"C\") from public.log")
            .await,
        [
            "42501: alter role installer superuser",
            "42501: create table jobs_trap_copy as table pg_authid",
            "42501: create temp table jobs_trap ()",
            "42501: reset role",
            "42501: set role postgres",
            "42501: set session authorization postgres",
        ]
        .join("\n")
    );
    // The next task is run by the owner again, and the worker is well.
    run(&db, "drop trigger trap on jobs.ready; truncate public.log").await;
    worker_goes_on(&db).await;

    // Control: run by a superuser, it does all of that.
    run(&db, "create table public.bait (); create trigger trap after insert on public.bait for each row execute function public.trap();
         begin; insert into public.bait default values").await;
    assert!(count(&db, "public.log where who = 'postgres' and what like 'done: %'").await >= 4);
    run(&db, "rollback").await;
}

/// Anybody may set application_name. Maintenance waits for a session called pg_restore only where
/// that could restore jobs.
#[tokio::test]
async fn nobody_holds_up_maintenance_by_a_name() {
    let (cluster, db) = with("names", &[("jobs.interval", "50ms")]).await;
    run(&db, "create role mallory login").await;
    begin(&db).await;
    let mallory = as_role(&cluster, "mallory", "names").await;
    run(&mallory, "set application_name = 'pg_restore'").await;
    let maintained = "select count(*) from jobs.maintain() where error is null";
    let restoring = "select count(*) from jobs.health() where finding = 'restoring'";
    let tasks = count(&db, "jobs.maintenance_task").await;
    assert_eq!(number(&db, maintained).await, tasks);
    assert_eq!(number(&db, restoring).await, 0);
    worker_goes_on(&db).await;
    // Called after the background worker, neither.
    run(&mallory, "set application_name = 'jobs worker'").await;
    assert_eq!(number(&db, maintained).await, tasks);

    // Control: a superuser's session of that name is a restore.
    let restore = cluster.connect("names").await;
    run(&restore, "set application_name = 'pg_restore'").await;
    assert_eq!(number(&db, maintained).await, 0);
    assert_eq!(number(&db, restoring).await, 1);
}

/// The advisory lock shows who waits for whom; whoever takes it can make others wait, and nothing
/// else.
#[tokio::test]
async fn an_advisory_lock_that_a_stranger_holds_delays_and_decides_nothing() {
    let (cluster, db) = quiet("locks").await;
    run(&db, "create role mallory login; create role producer login; select jobs.grant_producer('producer')").await;
    let producer = as_role(&cluster, "producer", "locks").await;
    let other = as_role(&cluster, "producer", "locks").await;
    let mallory = as_role(&cluster, "mallory", "locks").await;
    let lock = number(
        &db,
        "select lock_id from jobs.explain_unique('k', unique_opts => '{\"by_kind\": true}')",
    )
    .await;
    run(&mallory, &format!("select pg_advisory_lock({lock})")).await;

    let insert = "select jobs.insert('k', unique_opts => '{\"by_kind\": true}')";
    run(&producer, "set lock_timeout = '300ms'").await;
    assert_eq!(sqlstate(producer.batch_execute(insert).await), "55P03");
    // Who does not want to wait is told so; a batch takes no such lock.
    let busy = row_of(&producer, "select id is null and unique_skipped_as_duplicate from jobs.insert('k', unique_opts => '{\"by_kind\": true, \"wait\": false}')").await;
    assert!(busy.get::<_, bool>(0));
    run(&producer, "select jobs.insert_batch('k', '{1,2}', '{\"by_kind\": true}')").await;
    assert_eq!(count(&db, "jobs.jobs").await, 1);
    // What is committed answers without the lock.
    run(&other, insert).await;
    assert_eq!(count(&db, "jobs.jobs").await, 1);
}

/// A notification that another role has sent is seen, and what it says is not so.
#[tokio::test]
async fn a_forged_notification_is_a_hint_that_leads_nowhere() {
    let (cluster, db) = quiet("forged").await;
    run(&db, "create role mallory login; create role worker login; select jobs.grant_worker('worker'); select jobs.insert('k')").await;
    let worker = as_role(&cluster, "worker", "forged").await;
    let mallory = as_role(&cluster, "mallory", "forged").await;
    let row = row_of(&worker, "select id, token from jobs.fetch(worker => 'w')").await;
    let (id, token): (i64, i64) = (row.get(0), row.get(1));
    run(&mallory, &format!("notify jobs, '{{\"cancel\": {id}}}'; notify jobs, '{{\"queue\": \"default\"}}'; notify jobs, 'nonsense'")).await;
    let reply = worker
        .query_one("select cancel_requested from jobs.heartbeat($1, $2)", &[&id, &token])
        .await
        .unwrap();
    assert!(!reply.get::<_, bool>(0));
    assert!(rows_of(&worker, "select id from jobs.fetch()").await.is_empty());
    // A worker that waits is woken by commits, not by these.
    let before = std::time::Instant::now();
    let (waited, ()) =
        tokio::join!(worker.batch_execute("call jobs.wait(timeout => '700 ms')"), async {
            seconds(0.1).await;
            run(&mallory, "notify jobs, '{\"queue\": \"default\"}'").await;
        });
    waited.unwrap();
    assert!(before.elapsed() >= Duration::from_millis(650));
    assert_eq!(
        text(&db, &format!("select state::text from jobs.jobs where id = {id}")).await,
        "running"
    );
}

/// While it waits, a worker's session looks at the tables with other rights than its own: by
/// nothing of hers.
#[tokio::test]
async fn waiting_runs_nothing_of_the_waiting_role() {
    let (cluster, db) = quiet("waiting").await;
    run(&db, "create role mallory login; grant create, temp on database waiting to mallory; select jobs.grant_worker('mallory')").await;
    let mallory = as_role(&cluster, "mallory", "waiting").await;
    make_evil(&mallory).await;
    run(&mallory, "create temp view ready as select evil.caught('ready') as x; create temp view scheduled as select evil.caught('scheduled') as x;
         create temp view queue as select evil.caught('queue') as x;
         set search_path = pg_temp, evil, pg_catalog").await;
    let (waited, ()) = tokio::join!(
        tokio::time::timeout(SOON, mallory.batch_execute("call jobs.wait(timeout => '1 h')")),
        async {
            seconds(0.3).await;
            run(&db, "select jobs.insert('k')").await;
        }
    );
    waited.expect("it returns").unwrap();
    let who = row_of(
        &mallory,
        "select current_user::pg_catalog.text, pg_catalog.current_setting('search_path')",
    )
    .await;
    assert_eq!(
        (who.get::<_, &str>(0), who.get::<_, &str>(1)),
        ("mallory", "pg_temp, evil, pg_catalog"),
        "as before"
    );
    assert_eq!(count(&db, "evil.log").await, 0);
    run(&mallory, "select 1::int8 = 2::int8").await;
    assert_eq!(count(&db, "evil.log").await, 1, "control");
}

#[tokio::test]
async fn rights_are_changed_by_several_at_the_same_time() {
    let (cluster, db) = quiet("rights").await;
    let other = cluster.connect("rights").await;
    run(&db, "create role one; create role two").await;
    for (first, second) in [
        ("select jobs.grant_admin('one')", "select jobs.grant_producer('two')"),
        ("select jobs.grant_viewer('two')", "select jobs.revoke('one')"),
        ("select jobs.revoke('two')", "select jobs.grant_worker('one')"),
    ] {
        run(&db, "begin").await;
        run(&db, first).await;
        let commit = async {
            seconds(0.3).await;
            // Neither is in the way of work.
            run(&db, "select jobs.insert('k'); commit").await;
        };
        let (done, ()) = tokio::join!(other.batch_execute(second), commit);
        assert_eq!(sqlstate(done), "00000", "{second} beside {first}");
    }
    let rights = "select count(*) from unnest(array['one', 'two']) r(name) where has_function_privilege(r.name, 'jobs.complete(bigint, bigint, jsonb)', 'execute')";
    assert_eq!(number(&db, rights).await, 1);
}

/// Postgres shares the names of the libraries that it loads, and the first one has them.
#[tokio::test]
async fn a_library_with_a_function_of_the_same_name_is_not_taken_for_ours() {
    let cluster = Cluster::builder().make();
    let library = cluster.directory().join("other.so");
    let source = cluster.directory().join("other.c");
    let code = "#include \"postgres.h\"\n#include \"fmgr.h\"\nPG_MODULE_MAGIC;\nPG_FUNCTION_INFO_V1(insert_wrapper);\n\
                Datum insert_wrapper(PG_FUNCTION_ARGS) { PG_RETURN_NULL(); }\n";
    std::fs::write(&source, code).expect("a source");
    let headers = cluster.bin("pg_config").arg("--includedir-server").output();
    let headers = String::from_utf8(headers.expect("pg_config").stdout).expect("a path");
    let compiled = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-I", headers.trim(), "-o"])
        .args([&library, &source])
        .status();
    assert!(compiled.expect("cc").success());
    cluster.set("shared_preload_libraries", format!("{}, jobs", library.display()));
    cluster.start_again();
    let db = cluster.database("names").await;
    run(
        &db,
        &format!(
            "create function other(out a int, out b int) language c as '{}', 'insert_wrapper'",
            library.display()
        ),
    )
    .await;
    let id = "select id from jobs.insert('k')";
    assert_eq!(number(&db, id).await, 1);
    run(&db, "select other()").await;
    assert_eq!(number(&db, id).await, 2);
}
