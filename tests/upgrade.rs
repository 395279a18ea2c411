//! From one version to the next: the upgrade script makes what a new installation makes, the jobs are kept, and the new
//! library works with the old version's SQL until the script is run.
//!
//! The old version's install script is frozen in sql/install/; ./dev puts it beside the new one.

use std::collections::BTreeSet;
use std::time::Duration;

use jobs_tests::{Client, Cluster, poll_until};

/// Less than the minute after which the worker comes by itself.
const SOON: Duration = Duration::from_secs(45);
/// The version that is upgraded from.
const OLD: &str = "0.1.0";

/// All that the catalog says of the extension: what each of its objects is made of, who may use it, its COMMENT.
const SNAPSHOT: &str = r#"
with member as (
  select d.classid, d.objid from pg_depend d
   where d.refclassid = 'pg_extension'::regclass and d.refobjid = (select oid from pg_extension where extname = 'jobs') and d.deptype = 'e'),
relation as (select c.* from member m join pg_class c on m.classid = 'pg_class'::regclass and c.oid = m.objid)
select 'object ' || pg_describe_object(classid, objid, 0) || ': ' || coalesce(obj_description(objid, classid::regclass::text::name), '') from member
union all select 'schema ' || nspname || ' ' || coalesce(nspacl::text, '') from member join pg_namespace n on classid = 'pg_namespace'::regclass and n.oid = objid
union all select 'type ' || typname || ' ' || coalesce(typacl::text, '') || ' ' || coalesce((select string_agg(enumlabel, ',' order by enumsortorder) from pg_enum where enumtypid = t.oid), '')
  from member join pg_type t on classid = 'pg_type'::regclass and t.oid = objid
union all select 'function ' || pg_get_functiondef(p.oid) || coalesce(proacl::text, '') || p.proleakproof || p.procost
  from member join pg_proc p on classid = 'pg_proc'::regclass and p.oid = objid
union all select 'relation ' || relname || ' ' || relkind::text || ' ' || coalesce(reloptions::text, '') || ' ' || coalesce(relacl::text, '') || relpersistence::text || relrowsecurity || relreplident::text from relation
union all select 'view ' || relname || ' ' || pg_get_viewdef(oid) from relation where relkind = 'v'
union all select 'column ' || r.relname || ' ' || a.attnum || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || a.attcollation::regcollation || ' '
       || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || coalesce(col_description(r.oid, a.attnum), '') || coalesce(a.attacl::text, '') || a.attstorage::text
  from relation r join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
union all select 'constraint ' || conname || ' ' || pg_get_constraintdef(c.oid) from relation r join pg_constraint c on c.conrelid = r.oid
union all select 'index ' || pg_get_indexdef(i.indexrelid) from relation r join pg_index i on i.indrelid = r.oid
union all select 'sequence ' || relname || ' ' || s.seqincrement || ' ' || s.seqmin || ' ' || s.seqmax || ' ' || s.seqcache || ' ' || s.seqcycle from relation r join pg_sequence s on s.seqrelid = r.oid
union all select 'trigger ' || pg_get_triggerdef(t.oid) from relation r join pg_trigger t on t.tgrelid = r.oid
union all select 'dumped ' || c.oid::regclass || ' ' || c.condition from pg_extension, unnest(extconfig, extcondition) c(oid, condition) where extname = 'jobs'
union all select 'initial rights ' || pg_describe_object(i.classoid, i.objoid, i.objsubid) || ' ' || i.initprivs::text from pg_init_privs i join member m on m.classid = i.classoid and m.objid = i.objoid
union all select 'task ' || task from jobs.maintenance_task
union all select 'extension ' || extversion || ' ' || extrelocatable || ' ' || extnamespace::regnamespace from pg_extension where extname = 'jobs'
"#;

async fn run(db: &Client, sql: &str) {
    db.batch_execute(sql).await.expect(sql);
}

async fn number(db: &Client, sql: &str) -> i64 {
    db.query_one(sql, &[]).await.expect(sql).get(0)
}

async fn snapshot(db: &Client) -> BTreeSet<String> {
    // Definitions are written with names that the search path does not have.
    run(db, "set search_path = pg_catalog").await;
    let rows = db.query(SNAPSHOT, &[]).await.expect("a snapshot");
    rows.iter().map(|row| row.get(0)).collect()
}

/// A database with the old version.
async fn old_database(cluster: &Cluster, name: &str) -> Client {
    let postgres = cluster.connect("postgres").await;
    run(&postgres, &format!("create database {name}")).await;
    let db = cluster.connect(name).await;
    run(&db, &format!("create extension jobs version '{OLD}'")).await;
    db
}

fn difference(left: &BTreeSet<String>, right: &BTreeSet<String>) -> Vec<String> {
    let only = |one: &BTreeSet<String>, other: &BTreeSet<String>, sign| {
        one.difference(other)
            .map(|line| format!("{sign} {line}"))
            .collect::<Vec<_>>()
    };
    [only(left, right, '-'), only(right, left, '+')].concat()
}

/// How each upgrade script begins, comments left out: it does nothing in a schema that is not the extension's own.
const FIRST: &str = r"SET LOCAL search_path = pg_catalog, pg_temp;
DO $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_catalog.pg_extension e
      JOIN pg_catalog.pg_namespace n ON n.nspname = 'jobs' AND n.nspowner = e.extowner
      JOIN pg_catalog.pg_proc p ON p.oid = pg_catalog.to_regprocedure('jobs.installed()') AND p.proowner = e.extowner
     WHERE e.extname = 'jobs'
       AND 2 = (SELECT pg_catalog.count(*) FROM pg_catalog.pg_depend d
                 WHERE (d.classid, d.objid) IN (('pg_catalog.pg_namespace'::pg_catalog.regclass, n.oid), ('pg_catalog.pg_proc'::pg_catalog.regclass, p.oid))
                   AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid AND d.deptype = 'e'))
  THEN
    RAISE EXCEPTION 'schema jobs is not the extension''s own'
      USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'The schema and jobs.installed() must belong to the extension, and to the role that owns it.',
            HINT = 'Rename the schema that has the name now, and the extension''s own back to jobs; ALTER SCHEMA .. OWNER TO and ALTER FUNCTION .. OWNER TO give back what another role owns.';
  END IF;
END $$;
";

/// Whoever may rename the schema can plant another. A superuser's upgrade would run what is in it.
#[tokio::test]
async fn an_upgrade_runs_nothing_in_a_planted_schema() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = old_database(&cluster, "planted").await;
    // It has whatever the script alters before it calls the trap.
    run(
        &db,
        "create role thief; create table public.caught (by text);
         alter schema jobs rename to ours; create schema jobs authorization thief;
         create function jobs.installed() returns void language sql as $$ insert into public.caught values (current_user) $$;
         alter function jobs.installed() owner to thief",
    )
    .await;
    let refused = async |why: &str| {
        let result = db.batch_execute("alter extension jobs update").await;
        let error = result.expect_err(why);
        let error = error.as_db_error().expect(why);
        assert_eq!(error.code().code(), "55000", "{why}: {error:?}");
        assert_eq!(
            error.message(),
            "schema jobs is not the extension's own",
            "{why}"
        );
        assert!(error.hint().is_some(), "{why}");
        assert_eq!(
            number(&db, "select count(*) from public.caught").await,
            0,
            "{why}"
        );
    };
    refused("planted").await;
    run(&db, "alter schema jobs owner to postgres").await;
    refused("planted by the owner").await;
    run(&db, "drop schema jobs cascade").await;
    refused("renamed").await;
    run(
        &db,
        "alter schema ours rename to jobs; alter schema jobs owner to thief",
    )
    .await;
    refused("another's").await;
    run(
        &db,
        "alter schema jobs owner to postgres; alter function jobs.installed() owner to thief",
    )
    .await;
    refused("another's function").await;
    run(&db, "alter function jobs.installed() owner to postgres").await;
    run(&db, "alter extension jobs update").await;
}

#[tokio::test]
async fn an_upgrade_makes_what_a_new_installation_makes() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let new = cluster.database("new").await;
    let upgraded = old_database(&cluster, "upgraded").await;
    run(&upgraded, "alter extension jobs update").await;
    let fresh = snapshot(&new).await;
    assert!(fresh.len() > 300, "{}", fresh.len());
    let different = difference(&fresh, &snapshot(&upgraded).await);
    assert!(different.is_empty(), "{}", different.join("\n"));
    // Control: each kind of difference is seen.
    for change in [
        "comment on view jobs.queues is 'something else'",
        "grant select on jobs.queues to pg_monitor",
        "drop index jobs.error_by_age",
        "alter table jobs.job alter column kind drop not null",
        "create or replace view jobs.errors as select e.job_id, e.attempt, e.at, e.error, e.details from jobs.error e where true and e.attempt > 0",
        "alter function jobs.maintain() cost 7",
        "alter table jobs.ready set (fillfactor = 50)",
        "alter table jobs.error replica identity default",
    ] {
        run(&upgraded, "begin").await;
        run(&upgraded, change).await;
        let different = difference(&fresh, &snapshot(&upgraded).await);
        assert!(!different.is_empty(), "not seen: {change}");
        run(&upgraded, "rollback").await;
    }
}

/// A GRANT or REVOKE in an upgrade script has Postgres take all rights to the object, those that users granted too, for what the
/// extension comes with; dumps leave that out. `jobs.installed()` knows better.
#[test]
fn upgrade_scripts_look_whose_schema_it_is_and_leave_rights_to_the_last_statement() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../sql");
    let mut seen = 0;
    for entry in std::fs::read_dir(scripts).expect("the scripts") {
        let path = entry.expect("a file").path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !(name.starts_with("jobs--") || name.starts_with("90_")) {
            continue;
        }
        seen += 1;
        let script = std::fs::read_to_string(&path).expect("a script");
        assert!(
            script.trim_end().ends_with("\nSELECT jobs.installed();"),
            "{name}"
        );
        if name.starts_with("jobs--") {
            let code = |line: &&str| !line.is_empty() && !line.starts_with("--");
            let code: Vec<&str> = script.lines().filter(code).collect();
            assert!(code.join("\n").starts_with(FIRST), "{name}");
        }
        let changes = |line: &&str| line.starts_with("GRANT ") || line.starts_with("REVOKE ");
        assert_eq!(script.lines().find(changes), None, "{name}");
    }
    assert_eq!(seen, 2);
}

/// Jobs in several states, some unique.
async fn fill(db: &Client) {
    run(
        db,
        "select jobs.insert('waiting', queue => 'w', unique_opts => '{\"by_kind\": true}');
         select jobs.insert('later', queue => 'l', scheduled_at => clock_timestamp() + '1 hour');
         select jobs.insert('held', queue => 'h', unique_opts => '{\"by_kind\": true, \"hold_for\": \"PT1H\"}');
         select jobs.complete(id, token) from jobs.fetch('h');
         select jobs.insert('running', queue => 'r');
         select jobs.fetch('r', worker => 'w1');
         select jobs.insert('failing', queue => 'f', max_attempts => 1);
         select jobs.fail(id, token, 'broken') from jobs.fetch('f');
         select jobs.pause_queue('w');
         select jobs.schedule('tick', '@daily', 'tick')",
    )
    .await;
}

#[tokio::test]
async fn the_jobs_and_the_rights_are_kept_and_sessions_go_on() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let db = old_database(&cluster, "kept").await;
    run(&db, "create role clerk").await;
    run(
        &db,
        "grant usage on schema jobs to clerk; grant execute on all functions in schema jobs to clerk; grant select on jobs.queues to clerk;
         create view public.report as select queue, available from jobs.queues;
         create view public.failures as select job_id, error from jobs.errors",
    )
    .await;
    fill(&db).await;
    let other = cluster.connect("kept").await;
    let all = "select string_agg(j::text, ' ' order by id) from jobs.jobs j";
    let before: String = other.query_one(all, &[]).await.unwrap().get(0);
    let insert = other
        .prepare("select id from jobs.insert('waiting', unique_opts => '{\"by_kind\": true}')")
        .await
        .unwrap();
    let fetch = other
        .prepare("select id from jobs.fetch('n')")
        .await
        .unwrap();
    other.query(&insert, &[]).await.unwrap();
    other.query(&fetch, &[]).await.unwrap();
    run(&db, "alter extension jobs update").await;
    let after: String = other.query_one(all, &[]).await.unwrap().get(0);
    assert_eq!(before, after);
    // A session that has used the old version goes on, with what it has prepared.
    let duplicate: i64 = other.query_one(&insert, &[]).await.unwrap().get(0);
    assert_eq!(duplicate, 1);
    run(&other, "select jobs.insert('new', queue => 'n')").await;
    assert_eq!(other.query(&fetch, &[]).await.unwrap().len(), 1);
    run(
        &other,
        "select jobs.complete(id, token) from jobs.jobs where worker = 'w1'",
    )
    .await;
    assert_eq!(
        number(
            &db,
            "select count(*) from jobs.maintain() where error is not null"
        )
        .await,
        0
    );
    assert_eq!(number(&db, "select count(*) from public.failures").await, 1);
    // The view calls a function now: who reads it is granted that by jobs.grant_viewer.
    run(&db, "select jobs.grant_viewer('clerk')").await;
    run(
        &db,
        "set role clerk; select jobs.insert('by the clerk'); select available from jobs.queues",
    )
    .await;
}

#[tokio::test]
async fn the_new_library_works_with_the_old_versions_sql() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("jobs.retention_completed", "1s")
        .start();
    let db = old_database(&cluster, "old").await;
    fill(&db).await;
    run(
        &db,
        "select jobs.insert('due', queue => 'd', scheduled_at => clock_timestamp() + '0.3 s');
         select jobs.insert('lost', queue => 'x', max_attempts => 1);
         select jobs.fetch('x', lease => '0.3 s')",
    )
    .await;
    let is = async |kind: &str, state: &str| {
        let sql =
            format!("select count(*) from jobs.jobs where kind = '{kind}' and state = '{state}'");
        number(&db, &sql).await == 1
    };
    poll_until("what is due is available", SOON, async || {
        is("due", "available").await
    })
    .await;
    poll_until("what is lost is rescued", SOON, async || {
        is("lost", "discarded").await
    })
    .await;
    poll_until("what is old is pruned", SOON, async || {
        number(&db, "select count(*) from jobs.jobs where kind = 'held'").await == 0
    })
    .await;
    assert_eq!(
        number(
            &db,
            "select count(*) from jobs.maintain() where error is not null"
        )
        .await,
        0
    );
    assert_eq!(
        number(&db, "select sum(available)::bigint from jobs.queues").await,
        2
    );
    assert!(!cluster.log().contains("failed"), "{}", cluster.log());
}

#[tokio::test]
async fn an_upgrade_while_maintenance_is_at_work() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "10ms")
        .set("jobs.batch_size", 100)
        .start();
    for round in 0..5 {
        let name = format!("ticking{round}");
        let db = old_database(&cluster, &name).await;
        run(
            &db,
            "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[20000]), scheduled_at => clock_timestamp() + '1 s')",
        )
        .await;
        poll_until("it has begun", SOON, async || {
            number(&db, "select count(*) from jobs.ready").await > 0
        })
        .await;
        assert!(
            number(&db, "select count(*) from jobs.scheduled").await > 0,
            "still at work"
        );
        run(&db, "alter extension jobs update").await;
        poll_until("it goes on", SOON, async || {
            number(&db, "select count(*) from jobs.ready").await == 20_000
        })
        .await;
        poll_until("and it is written down", SOON, async || {
            number(
                &db,
                "select count(*) from jobs.maintenance where task = 'schedule' and rows_total > 0",
            )
            .await
                == 1
        })
        .await;
    }
    // That it waited no longer than a second for what the upgrade had locked is as it should be.
    let log = cluster.log();
    let failed = |line: &&str| line.contains("failed") && !line.contains("lock timeout");
    assert_eq!(log.lines().find(failed), None);
}

#[tokio::test]
async fn an_upgrade_and_transactions_at_work_do_not_deadlock() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    let orders = [
        // What each leaves locked until it ends, in different orders.
        [
            "select jobs.insert_batch('u', array['1'::jsonb], '{\"by_args\": true}')",
            "select jobs.fail(id, token, 'x') from jobs.fetch()",
            "select count(*) from jobs.jobs",
        ],
        [
            "select count(*) from jobs.errors",
            "select jobs.insert('u', '2', '{\"by_args\": true}')",
            "select jobs.delete(max(id)) from jobs.jobs where state = 'available'",
        ],
    ];
    for (round, steps) in orders.iter().enumerate() {
        let name = format!("order{round}");
        let db = old_database(&cluster, &name).await;
        run(
            &db,
            "select jobs.insert_batch('k', array_fill('1'::jsonb, array[10]))",
        )
        .await;
        let worker = cluster.connect(&name).await;
        run(&worker, "begin").await;
        run(&worker, steps[0]).await;
        let upgrade =
            tokio::spawn(async move { db.batch_execute("alter extension jobs update").await });
        for step in &steps[1..] {
            tokio::time::sleep(Duration::from_millis(300)).await;
            run(&worker, step).await;
        }
        assert!(!upgrade.is_finished());
        run(&worker, "commit").await;
        upgrade.await.unwrap().unwrap();
        assert!(number(&worker, "select count(*) from jobs.maintenance").await > 0);
    }
    // Whoever is not patient says so.
    let db = old_database(&cluster, "impatient").await;
    let worker = cluster.connect("impatient").await;
    run(&worker, "begin; select jobs.insert('x')").await;
    run(&db, "set lock_timeout = '0.3 s'").await;
    let refused = db.batch_execute("alter extension jobs update").await;
    assert_eq!(jobs_tests::sqlstate(refused), "55P03");
}
