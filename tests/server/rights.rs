//! What others than the owner may have come by: default privileges, grants by hand, a schema of the
//! same name, settings of a database, plans of another role. security.rs has attacks by who has
//! been granted what he is to have.

use jobs_tests::upgrade::PLANTED;
use jobs_tests::{
    Client, Cluster, SOON, as_role, comes_true, count, every_task_worked, number, poll_until,
    quiet, rows, run, seconds, sqlstate, texts, with, work_for_every_task,
};

use crate::dump::programs;

async fn code(db: &Client, sql: &str) -> String {
    sqlstate(db.batch_execute(sql).await)
}

/// Each privilege that a role other than its owner has on an object of the extension:
/// `grantee privilege object`.
const FOREIGN: &str = "
    with member as (select d.classid, d.objid from pg_depend d join pg_extension e on d.refobjid = e.oid
                     where d.refclassid = 'pg_extension'::regclass and e.extname = 'jobs' and d.deptype = 'e'),
    object(classid, oid, acl, owner, name) as (
      select 'pg_class'::regclass, c.oid, coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::\"char\", c.relowner)), c.relowner, c.relname::text from pg_class c
      union all select 'pg_class'::regclass, c.oid, a.attacl, c.relowner, c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
      union all select 'pg_proc'::regclass, p.oid, coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner, p.proname from pg_proc p
      union all select 'pg_type'::regclass, t.oid, coalesce(t.typacl, acldefault('T', t.typowner)), t.typowner, t.typname from pg_type t
       where t.typcategory <> 'A' and not exists (select from pg_class c where c.oid = t.typrelid and c.relkind <> 'c')
      union all select 'pg_namespace'::regclass, n.oid, coalesce(n.nspacl, acldefault('n', n.nspowner)), n.nspowner, n.nspname from pg_namespace n)
    select concat_ws(' ', coalesce(g.rolname, 'public'), e.privilege_type, o.name)
      from member m join object o on o.classid = m.classid and o.oid = m.objid, aclexplode(o.acl) e left join pg_roles g on g.oid = e.grantee
     where e.grantee <> o.owner
     order by 1";

/// All that ALTER DEFAULT PRIVILEGES can give.
async fn give_everything_by_default(db: &Client) {
    for to in ["app with grant option", "public"] {
        for what in ["tables", "sequences", "routines", "types", "schemas"] {
            let sql =
                format!("alter default privileges for role postgres grant all on {what} to {to}");
            run(db, &sql).await;
        }
    }
}

/// What a superuser once set for what he makes is not meant for the tables of an extension: with
/// TRIGGER on one of them, who has it would have the rights of their owner.
#[tokio::test]
async fn default_privileges_give_nothing_of_a_new_installation() {
    let cluster = Cluster::quiet();
    let postgres = cluster.connect("postgres").await;
    run(&postgres, "create role app login").await;
    run(&postgres, "create database given").await;
    let db = cluster.connect("given").await;
    give_everything_by_default(&db).await;
    // Control: they are in force.
    run(&db, "create table public.given ()").await;
    assert!(
        count(&db, "pg_class, aclexplode(relacl) where relname = 'given' and grantee <> relowner")
            .await
            > 10
    );
    // In a subtransaction, too.
    for install in
        ["create extension jobs", "begin; savepoint a; create extension jobs; release a; commit"]
    {
        run(&db, "drop extension if exists jobs").await;
        run(&db, install).await;
        assert_eq!(texts(&db, FOREIGN).await, [""; 0], "{install}");
    }
    let app = as_role(&cluster, "app", "given").await;
    run(&app, "create function pg_temp.trap() returns trigger language plpgsql as $$ begin alter role app superuser; return new; end $$").await;
    for refused in [
        "create trigger trap before insert on jobs.job for each row execute function pg_temp.trap()",
        "insert into jobs.job default values",
        "select jobs.grant_admin('app')",
        "select jobs.insert('k')",
        "create table jobs.mine ()",
        "select nextval('jobs.job_seq')",
    ] {
        assert_eq!(code(&app, refused).await, "42501", "{refused}");
    }
    // Who is to have something is granted it, and it is found in a dump.
    run(&db, "select jobs.grant_producer('app')").await;
    run(&app, "select jobs.insert('k')").await;
}

/// An upgrade takes what nobody but the owner may have, and lets alone what was granted.
#[tokio::test]
async fn an_upgrade_takes_what_default_privileges_gave_and_nothing_that_was_granted() {
    let cluster = Cluster::builder()
        .set("jobs.enabled", "off")
        .with_upgrade("CREATE TABLE jobs.planted (n integer);
             CREATE FUNCTION jobs.planted() RETURNS integer LANGUAGE sql SET search_path = pg_catalog, pg_temp RETURN 1;\n").start();
    let postgres = cluster.connect("postgres").await;
    run(&postgres, "create role app login; create role clerk login").await;
    run(&postgres, "create database old").await;
    let db = cluster.connect("old").await;
    give_everything_by_default(&db).await;
    // As if the installation had left them, and with grants by hand.
    run(&db, "create extension jobs;
         alter default privileges in schema jobs grant all on tables to app; alter default privileges in schema jobs grant execute on functions to clerk;
         grant all on all tables in schema jobs to app, public; grant all on all sequences in schema jobs to app, public;
         grant all on all routines in schema jobs to app, public; grant all on schema jobs to app, public; grant all on type jobs.state to app, public;
         grant usage on schema jobs to clerk;
         grant execute on function jobs.insert to clerk;
         grant select on jobs.jobs, jobs.job to clerk;
         grant usage on type jobs.state to clerk;
         grant select, trigger, update (args) on jobs.job to clerk").await;
    let before = texts(&db, FOREIGN).await;
    let has = |found: &[String], one: &str| found.iter().any(|line| line == one);
    for wrong in [
        "app TRIGGER job",
        "app DELETE ready",
        "public INSERT job",
        "app UPDATE job_seq",
        "app CREATE jobs",
        "clerk TRIGGER job",
        "clerk UPDATE job.args",
        "app INSERT jobs",
    ] {
        assert!(has(&before, wrong), "{wrong}: {before:?}");
    }
    run(&db, &format!("alter extension jobs update to '{PLANTED}'")).await;
    let after = texts(&db, FOREIGN).await;
    for line in &before {
        let words: Vec<&str> = line.split(' ').collect();
        let never = matches!(
            words[1],
            "INSERT" | "UPDATE" | "DELETE" | "TRUNCATE" | "REFERENCES" | "TRIGGER" | "CREATE"
        ) || words[2] == "job_seq" && words[1] == "USAGE"
            || words[0] == "public" && words[2] == "state";
        assert_eq!(has(&after, line), !never, "{line}");
    }
    // What the upgrade has made is the owner's alone.
    let new: Vec<&String> = after.iter().filter(|line| !before.contains(line)).collect();
    assert_eq!(new, [""; 0]);
    assert!(!after.iter().any(|line| line.ends_with(" planted")));
    let clerk = as_role(&cluster, "clerk", "old").await;
    run(&clerk, "select jobs.insert('k'); table jobs.jobs; table jobs.job").await;
    assert_eq!(code(&clerk, "update jobs.job set args = '1'").await, "42501");

    // In a dump there is what was granted, and restored it is again.
    let file = programs::file(&cluster, "dump.sql");
    programs::run(&cluster, "pg_dump", &["old", "-f", &file]).await;
    run(&postgres, "create database restored").await;
    programs::psql(&cluster, "restored", &file, &[]).await;
    let again = cluster.connect("restored").await;
    let of_clerk = |lines: Vec<String>| -> Vec<String> {
        lines.into_iter().filter(|line| line.starts_with("clerk")).collect()
    };
    assert_eq!(of_clerk(texts(&again, FOREIGN).await), of_clerk(after));
}

/// What was granted by the extension's functions is in a dump, where the installation had default
/// privileges, too.
#[tokio::test]
async fn what_was_granted_is_restored() {
    let cluster = Cluster::quiet();
    let postgres = cluster.connect("postgres").await;
    run(
        &postgres,
        "create role app login; create role viewer; create role worker; create role admin",
    )
    .await;
    run(&postgres, "create database before").await;
    run(&postgres, "create database after").await;
    let db = cluster.connect("before").await;
    give_everything_by_default(&db).await;
    run(&db, "create extension jobs;
         select jobs.grant_producer('app'), jobs.grant_viewer('viewer'), jobs.grant_worker('worker'), jobs.grant_admin('admin');
         grant select on jobs.job to viewer with grant option").await;
    let granted = texts(&db, FOREIGN).await;
    assert!(granted.len() > 50, "{granted:?}");
    let file = programs::file(&cluster, "dump");
    programs::run(&cluster, "pg_dump", &["-Fc", "before", "-f", &file]).await;
    // Into a database with such defaults, and by a session that has some, as well.
    let after = cluster.connect("after").await;
    give_everything_by_default(&after).await;
    programs::restore(&cluster, "after", &file, &[]).await;
    assert_eq!(texts(&after, FOREIGN).await, granted);
}

/// EXECUTE on a function that grants does not make somebody who may grant.
#[tokio::test]
async fn only_the_owner_and_superusers_grant_whatever_else_was_granted() {
    let cluster = Cluster::quiet();
    let postgres = cluster.connect("postgres").await;
    run(
        &postgres,
        "create role app login; create role owner login superuser; create role heir login in role owner; create role root login superuser;
         create role boss login; create role nobody").await;
    run(&postgres, "create database rights owner owner").await;
    let owner = as_role(&cluster, "owner", "rights").await;
    run(&owner, "create extension jobs").await;
    run(&postgres, "alter role owner nosuperuser").await;
    run(&owner, "grant usage on schema jobs to public; grant execute on all functions in schema jobs to public").await;
    let app = as_role(&cluster, "app", "rights").await;
    let root = as_role(&cluster, "root", "rights").await;
    let grants = [
        "select jobs.grant_admin('app')",
        "select jobs.grant_producer('app')",
        "select jobs.grant_worker('app')",
        "select jobs.grant_viewer('app')",
        "select jobs.revoke('owner')",
        "select jobs.installed()",
    ];
    for sql in grants {
        assert_eq!(code(&app, sql).await, "42501", "{sql}");
    }
    let error = app.batch_execute(grants[0]).await.expect_err("refused");
    let error = error.as_db_error().expect("an error of the server");
    assert_eq!(error.message(), "must be owner of extension jobs to grant and revoke");
    assert!(error.hint().is_some());
    for db in [&owner, &root, &as_role(&cluster, "heir", "rights").await] {
        run(db, "select jobs.grant_producer('nobody'); select jobs.revoke('nobody')").await;
    }
    // What counts is the role that calls, whoever the session belongs to.
    run(&root, "create schema s; grant all on schema s to public; set role app;
         create function s.hers(sql text) returns void language plpgsql security definer as $$ begin execute sql; end $$;
         reset role;
         create function s.his(sql text) returns void language plpgsql security definer as $$ begin execute sql; end $$").await;
    for sql in grants {
        assert_eq!(sqlstate(root.query("select s.hers($1)", &[&sql]).await), "42501", "{sql}");
        assert_eq!(code(&root, &format!("set role app; {sql}")).await, "42501", "{sql}");
        run(&root, "reset role").await;
    }
    run(&app, "select s.his('select jobs.grant_producer(''nobody'')')").await;
    run(&root, "set role owner; select jobs.revoke('nobody'); reset role").await;
    // As is left: the role is what it was, also after an error.
    assert_eq!(texts(&app, "select current_user::text").await, ["app"]);
}

/// What others may do with the extension's tables, what hangs on them and whose they are is what
/// jobs.health() tells of.
#[tokio::test]
async fn health_tells_of_what_others_have_come_by() {
    let (_cluster, db) = quiet("health").await;
    run(&db, "create role app; create role \"Mrs. X\"").await;
    let findings = "select finding || ': ' || message || ' ' || hint from jobs.health() where finding like 'foreign%' order by 1";
    run(&db, "select jobs.grant_admin('app'), jobs.grant_producer('app'), jobs.grant_worker('app'), jobs.grant_viewer('app')").await;
    assert_eq!(texts(&db, findings).await, [""; 0]);
    run(&db, "create function public.trap() returns trigger language plpgsql as $$ begin return new; end $$").await;
    for [made, found, mended] in rows(
        r#"
        grant trigger, insert, select on jobs.job to "Mrs. X" | foreign_right: Mrs. X has INSERT, TRIGGER on table jobs.job | REVOKE INSERT, TRIGGER ON TABLE jobs.job FROM "Mrs. X" CASCADE;
        grant references (id) on jobs.job to app | foreign_right: app has REFERENCES on table jobs.job | REVOKE REFERENCES ON TABLE jobs.job FROM app CASCADE;
        grant delete on jobs.errors to public | foreign_right: PUBLIC has DELETE on table jobs.errors | REVOKE DELETE ON TABLE jobs.errors FROM PUBLIC CASCADE;
        grant usage on sequence jobs.job_seq to app | foreign_right: app has USAGE on sequence jobs.job_seq | REVOKE USAGE ON SEQUENCE jobs.job_seq FROM app CASCADE;
        grant create on schema jobs to app | foreign_right: app has CREATE on schema jobs | REVOKE CREATE ON SCHEMA jobs FROM app CASCADE;
        create trigger "A trap" after insert on jobs.ready for each row execute function public.trap() | foreign_trigger: trigger "A trap" on jobs.ready calls public.trap() | DROP TRIGGER "A trap" ON jobs.ready;
        create rule trap as on insert to jobs.error do also nothing | foreign_trigger: rule trap on jobs.error | DROP RULE trap ON jobs.error;
        alter table jobs.running owner to app | foreign_owner: table jobs.running is owned by app | ALTER TABLE jobs.running OWNER TO postgres;
        alter function jobs.revoke(text, text) owner to app | foreign_owner: routine jobs.revoke(text,text) is owned by app | ALTER ROUTINE jobs.revoke(text,text) OWNER TO postgres;
        alter type jobs.state owner to app | foreign_owner: type jobs.state is owned by app | ALTER TYPE jobs.state OWNER TO postgres;
        alter view jobs.queues owner to app | foreign_owner: table jobs.queues is owned by app | ALTER TABLE jobs.queues OWNER TO postgres;
        "#,
    ) {
        run(&db, made).await;
        let is = texts(&db, findings).await;
        assert_eq!(is.len(), 1, "{made}: {is:?}");
        // Nothing else is said of it.
        assert_eq!(count(&db, "jobs.health() where finding in ('foreign_trigger', 'foreign_right', 'foreign_owner', 'table_changed')").await, 1, "{made}");
        assert!(is[0].starts_with(found), "{made}: {is:?}");
        assert!(is[0].ends_with(mended), "{made}: {is:?}");
        run(&db, mended).await;
        assert_eq!(texts(&db, findings).await, [""; 0], "{mended}");
    }
}

/// Whose schema is called jobs is asked before anything in it is used: its tables might be
/// somebody's views, which would be run with the rights of the extension's owner.
#[tokio::test]
async fn a_schema_of_the_same_name_is_not_taken_for_the_extensions() {
    let (cluster, db) = with("renamed", &[("jobs.interval", "50ms")]).await;
    run(&db, "create role app login; create role worker login; grant create on database renamed to app;
         select jobs.grant_worker('worker'), jobs.grant_producer('worker'), jobs.grant_viewer('worker');
         create table public.log (who text default current_user); grant insert on public.log to public;
         select jobs.insert('k', queue => 'q'); select jobs.insert('u', unique_opts => '{\"by_kind\": true}')").await;
    // Sessions that have used everything, and one that has not.
    let used = as_role(&cluster, "worker", "renamed").await;
    let calls = |schema: &str| {
        [
            "select {}.insert('k')",
            "select id from {}.insert('k')",
            "select {}.insert('u', unique_opts => '{\"by_kind\": true}')",
            "select {}.insert_batch('b', '{1,2}')",
            "select {}.insert_batch('b', '{1,2}', '{\"by_args\": true}')",
            "select {}.insert_many('[{\"kind\": \"k\"}]')",
            "select {}.fetch()",
            "select {}.fetch_any('{a,b}')",
            "select {}.complete_many('{1}', '{1}')",
            "select {}.heartbeat_many('{1}', '{1}')",
            "call {}.wait(timeout => '10 ms')",
            "select * from {}.queues",
            "select * from {}.top()",
            "select * from {}.check()",
            "select * from {}.health()",
            "select * from {}.metrics()",
        ]
        .map(|call| call.replace("{}.", &format!("{schema}.")))
    };
    for call in calls("jobs") {
        run(&used, &call).await;
    }
    let prepared = used.prepare("select id from jobs.insert('k')").await.unwrap();
    used.query(&prepared, &[]).await.unwrap();
    let jobs = count(&db, "jobs.job").await;
    run(&db, "select jobs.insert('due', scheduled_at => clock_timestamp() + '3 s')").await;

    run(&db, "alter schema jobs rename to mine").await;
    let app = as_role(&cluster, "app", "renamed").await;
    run(&app, "create schema jobs; grant all on schema jobs to public;
         create function jobs.caught() returns boolean language plpgsql as $$ begin insert into public.log default values; return true; end $$").await;
    // With the columns of the tables, so that statements on them can be planned.
    let tables = texts(&db, "select c.relname::text || ' as select ' || string_agg(format('null::%s as %I', format_type(a.atttypid, a.atttypmod), a.attname), ', ' order by a.attnum)
           from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          where c.relnamespace = 'mine'::regnamespace and c.relkind in ('r', 'v') group by c.oid").await;
    for table in tables {
        let name = table.split(' ').next().unwrap();
        run(&db, &format!("create view jobs.{table} where jobs.caught(); alter table jobs.{name} owner to app;
                 create rule trap as on insert to jobs.{name} do instead select jobs.caught()")).await;
    }
    run(&app, "create sequence jobs.job_seq").await;
    let fresh = as_role(&cluster, "worker", "renamed").await;
    for session in [&used, &fresh, &db] {
        for call in calls("mine") {
            let answer = session.batch_execute(&call).await;
            // It asks the extension's tables, which it knows by themselves, and no function.
            if call.contains("check()") {
                answer.expect(&call);
                continue;
            }
            let error = answer.expect_err(&call);
            let error = error.as_db_error().expect("an error of the server");
            assert_eq!(error.code().code(), "55000", "{call}: {error:?}");
            assert_eq!(error.message(), "schema \"jobs\" does not belong to extension \"jobs\"");
            assert!(
                error.hint().unwrap().contains("ALTER SCHEMA mine RENAME TO jobs"),
                "{error:?}"
            );
        }
    }
    // There is no such function any more.
    assert_eq!(sqlstate(used.query(&prepared, &[]).await), "42883");
    // The worker sees it as well, says so, and does nothing.
    poll_until("the worker says so", SOON, async || {
        cluster.log().contains(
            "jobs worker : WARNING:  schema \"jobs\" does not belong to extension \"jobs\"",
        )
    })
    .await;
    seconds(1.5).await;
    assert!(
        cluster.log().matches("jobs worker : WARNING:  schema").count() <= 3,
        "{}",
        cluster.log()
    );
    assert_eq!(count(&db, "public.log").await, 0);
    // Control: the traps are traps.
    run(&db, "insert into jobs.kind (kind) values ('k'); table jobs.ready").await;
    assert_eq!(count(&db, "public.log").await, 2);

    // A schema that was given away is no better.
    run(&db, "drop schema jobs cascade").await;
    assert_eq!(code(&used, "select mine.insert('k')").await, "55000");
    run(&db, "alter schema mine rename to jobs; alter schema jobs owner to app").await;
    let error = used.batch_execute("select jobs.insert('k')").await.expect_err("refused");
    let error = error.as_db_error().expect("an error of the server");
    assert_eq!(error.code().code(), "55000");
    assert!(error.hint().unwrap().contains("ALTER SCHEMA jobs OWNER TO"), "{error:?}");
    // As it was, all is well.
    run(&db, "alter schema jobs owner to postgres").await;
    for call in calls("jobs") {
        run(&used, &call).await;
        run(&fresh, &call).await;
    }
    used.query(&prepared, &[]).await.unwrap();
    assert!(count(&db, "jobs.job").await > jobs);
    comes_true(&db, "count(*) = 1 from jobs.jobs where kind = 'due' and state <> 'scheduled'")
        .await;
}

/// What the owner of a database, or a superuser, has set for its sessions is not for the background
/// worker.
#[tokio::test]
async fn no_setting_of_a_database_or_role_stops_maintenance() {
    let (cluster, db) =
        with("set", &[("jobs.interval", "50ms"), ("timezone", "Europe/Berlin")]).await;
    let other = cluster.connect("set").await;
    run(&db, "create role app; alter role app set search_path = nowhere").await;
    // Every setting that a session begins with: what it may be at worst.
    let mut settings: Vec<(String, String)> = [
        ("role", "app"),
        ("session_authorization", "app"),
        ("search_path", "nowhere, pg_temp"),
        ("statement_timeout", "1"),
        ("lock_timeout", "1"),
        ("idle_in_transaction_session_timeout", "1"),
        ("transaction_timeout", "1"),
        ("idle_session_timeout", "1"),
        ("default_transaction_read_only", "on"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_deferrable", "on"),
        ("row_security", "off"),
        ("session_replication_role", "replica"),
        ("datestyle", "German"),
        ("intervalstyle", "sql_standard"),
        ("timezone", "Pacific/Apia"),
        ("bytea_output", "escape"),
        ("xmloption", "document"),
        ("default_tablespace", "pg_global"),
        ("default_table_access_method", "heap"),
        ("temp_tablespaces", ""),
        ("temp_file_limit", "0"),
        ("work_mem", "64"),
        ("jit", "on"),
        ("jit_above_cost", "0"),
        ("plan_cache_mode", "force_custom_plan"),
        ("join_collapse_limit", "1"),
        ("geqo_threshold", "2"),
        ("cursor_tuple_fraction", "0"),
        ("force_parallel_mode", "on"),
        ("debug_parallel_query", "on"),
        ("min_parallel_table_scan_size", "0"),
        ("parallel_setup_cost", "0"),
        ("transform_null_equals", "on"),
        ("array_nulls", "off"),
        ("standard_conforming_strings", "off"),
        ("synchronous_commit", "off"),
        ("client_encoding", "LATIN1"),
        ("lc_messages", "C"),
        ("application_name", "pg_restore"),
        ("client_min_messages", "error"),
        ("track_activities", "off"),
        ("track_counts", "off"),
        ("seed", "0.5"),
        ("zero_damaged_pages", "on"),
    ]
    .map(|(name, value)| (name.to_string(), value.to_string()))
    .into();
    let switches = texts(
        &db,
        "select name from pg_settings where name like 'enable\\_%' and context = 'user'",
    )
    .await;
    settings.extend(switches.into_iter().map(|name| (name, "off".into())));
    let known = texts(&db, "select name from pg_settings union select unnest(array['role', 'session_authorization', 'seed'])").await;
    for (name, value) in settings {
        if known.iter().any(|one| one.eq_ignore_ascii_case(&name)) {
            run(&db, &format!("alter database set set {name} = '{value}'")).await;
        }
    }
    run(&db, "alter role postgres in database set set statement_timeout = 1; alter role postgres set default_transaction_read_only = on").await;
    // A worker that begins now, with work for every task. `db` and `other` are older than the
    // settings.
    run(&db, "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity where backend_type = 'jobs worker'").await;
    cluster.allow(u32::MAX, "jobs worker : FATAL: +terminating background worker");
    let lines = cluster.log().len();
    // It has their settings before it is connected, and is held up there: by its client_encoding.
    run(&other, "begin; lock table pg_catalog.pg_conversion in access exclusive mode").await;
    run(&db, "select jobs.insert('k', queue => 'k')").await;
    comes_true(&db, "count(*) = 1 from pg_locks where relation = 'pg_catalog.pg_conversion'::regclass and not granted",
    )
    .await;
    seconds(0.05).await;
    run(&other, "commit").await;
    work_for_every_task(&db).await;
    every_task_worked(&db).await;
    let log = cluster.log();
    let said: Vec<&str> =
        log[lines..].lines().filter(|line| line.contains("jobs worker")).collect();
    let said: Vec<&&str> =
        said.iter().filter(|line| !line.contains("terminating background worker")).collect();
    assert_eq!(said, [&""; 0]);
    // It has what the server's configuration says; the built-in default only where that says
    // nothing.
    run(&db, "create table public.seen (timezone text, work_mem text);
         create function public.see() returns trigger language plpgsql as $$
           begin insert into public.seen values (current_setting('timezone'), current_setting('work_mem')); return null; end $$;
         create trigger see after insert on jobs.job for each row when (new.kind = 'tick') execute function public.see()").await;
    comes_true(&db, "count(*) >= 1 from public.seen").await;
    let seen = "select distinct concat_ws(' ', timezone, work_mem) from public.seen";
    assert_eq!(texts(&db, seen).await, ["Europe/Berlin 4MB"]);
    // Such timeouts would end the sessions of others.
    run(&db, "alter role postgres reset all; alter role postgres in database set reset all; alter database set reset all").await;
}

/// Who executes a plan is who is asked whether he may, not who made it.
#[tokio::test]
async fn a_plan_is_no_right_to_call() {
    let (cluster, db) = quiet("plans").await;
    run(&db, "create role app login; create role other; grant other to app; select jobs.grant_producer('app');
         create schema s; grant all on schema s to public").await;
    let app = as_role(&cluster, "app", "plans").await;
    for call in [
        "select id from jobs.insert('k')",
        "select jobs.insert('k')",
        "select id from jobs.insert('k') limit 1 offset 0",
    ] {
        let prepared = app.prepare(call).await.unwrap();
        for _ in 0..7 {
            app.query(&prepared, &[]).await.unwrap();
        }
        // Taken away.
        run(&db, "revoke execute on function jobs.insert from app").await;
        assert_eq!(sqlstate(app.query(&prepared, &[]).await), "42501", "{call}");
        assert_eq!(code(&app, &format!("explain {call}")).await, "42501", "{call}");
        run(&db, "select jobs.grant_producer('app')").await;
        app.query(&prepared, &[]).await.unwrap();
        // By another role.
        run(&app, "set role other").await;
        assert_eq!(sqlstate(app.query(&prepared, &[]).await), "42501", "{call}");
        run(&app, "reset role").await;
        app.query(&prepared, &[]).await.unwrap();
        // In a function that is somebody else: one that may not, called by who may, and the other
        // way round.
        run(&app, &format!("create or replace function s.mine() returns void language plpgsql security definer as $$ begin perform * from ({call}) x; end $$")).await;
        run(&db, &format!("set role other; create or replace function s.theirs() returns void language plpgsql security definer as $$ begin perform * from ({call}) x; end $$; reset role")).await;
        run(&app, "select s.mine()").await;
        assert_eq!(code(&app, "select s.theirs()").await, "42501", "{call}");
        run(&app, "set role other; select s.mine(); reset role").await;
        run(&app, "drop function s.mine()").await;
        run(&db, "drop function s.theirs()").await;
        // A cursor was opened by who might.
        run(&app, "begin").await;
        assert_eq!(
            code(&app, &format!("set local role other; declare c cursor for {call}")).await,
            "42501"
        );
        run(&app, "rollback").await;
    }
    // Nobody has a library loaded by asking for a plan of what he may not call.
    run(&db, "create function s.broken(out a int, out b int) language c as '$libdir/jobs', 'unschedule_wrapper';
         revoke all on function s.broken from public;
         update pg_proc set probin = 'nowhere/no_such_library' where oid = 's.broken'::regproc").await;
    assert_eq!(code(&app, "explain select * from s.broken()").await, "42501");
    assert_eq!(code(&app, "prepare p as select * from s.broken(); execute p").await, "42501");
}

/// The table of docs/security.md, whose rows name functions with what each grant gives: a line for
/// each of them.
fn documented() -> Vec<String> {
    let page = include_str!("../../docs/security.md");
    let lines = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.trim_end_matches('|').split('|');
        let names = cells.next()?.trim().strip_suffix('`')?.to_string();
        let given: Vec<bool> = cells.map(|cell| cell.trim() == "yes").collect();
        let line = |name| format!("{name} {given:?}");
        (given.len() == GRANTS.len() && !names.contains("` "))
            .then(|| names.split("`, `").map(line).collect::<Vec<_>>())
    };
    let mut lines: Vec<String> = page.lines().filter_map(lines).flatten().collect();
    lines.sort();
    lines
}

/// In the order of that table's columns.
const GRANTS: [&str; 6] = ["producer", "worker", "viewer", "application", "operator", "admin"];

/// A function that nobody has decided about is in no line of the table.
#[tokio::test]
async fn grants_give_what_the_documentation_says_function_by_function() {
    let (_cluster, db) = quiet("grants").await;
    for grant in GRANTS {
        run(&db, &format!("create role {grant}")).await;
        run(&db, &format!("select jobs.grant_{grant}('{grant}')")).await;
    }
    let rows = db
        .query(
            "select p.proname::text, array(select has_function_privilege(g, p.oid, 'execute') from unnest($1::text[]) with ordinality as u(g, n) order by n)
               from pg_proc p where p.pronamespace = 'jobs'::regnamespace",
            &[&GRANTS.as_slice()],
        )
        .await
        .unwrap();
    let mut given: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {:?}", row.get::<_, &str>(0), row.get::<_, Vec<bool>>(1)))
        .collect();
    given.sort();
    assert_eq!(given, documented());
    // Nobody is given anything else than to read, and that column by column of each view.
    let rights = "select count(*) from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                   where c.relnamespace = 'jobs'::regnamespace and c.relkind = 'v' and not has_column_privilege($, c.oid, a.attnum, 'select')";
    for (grant, sees) in GRANTS.into_iter().zip([false, false, true, true, true, true]) {
        let unseen = number(&db, &rights.replace('$', &format!("'{grant}'"))).await;
        assert_eq!(unseen == 0, sees, "{grant} does not see {unseen} columns");
        let writes = format!("select count(*) from pg_class where relnamespace = 'jobs'::regnamespace and relkind in ('r', 'v')
                and has_table_privilege('{grant}', oid, 'insert, update, delete, truncate, references, trigger')");
        assert_eq!(number(&db, &writes).await, 0, "{grant} writes");
        run(&db, &format!("select jobs.revoke('{grant}'); drop role {grant}")).await;
    }
}
