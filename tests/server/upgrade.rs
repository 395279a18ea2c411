//! From one version to the next: the upgrade script makes what a new installation makes, the jobs
//! are kept, and the new library works with the old version's SQL until the script is run.
//!
//! What every upgrade must do is tried with one that is planted here, with one from the first
//! release candidate, and with those from each version that was released: ops/packaging/release
//! keeps their install scripts in sql/install/.

use std::collections::BTreeSet;

use jobs_tests::upgrade::{CANDIDATE, PLANTED, TEMPLATE, VERSION, planted_script, released};
use jobs_tests::{
    Builder, Client, Cluster, SOON, comes_true, count, number, poll_until, run, text,
};

/// All that the catalog says of the extension: what each of its objects is made of, who may use it,
/// its COMMENT.
const SNAPSHOT: &str = r#"
with member as (
  select d.classid, d.objid from pg_depend d
   where d.refclassid = 'pg_extension'::regclass and d.refobjid = (select oid from pg_extension where extname = 'jobs') and d.deptype = 'e'),
relation as (select c.* from member m join pg_class c on m.classid = 'pg_class'::regclass and c.oid = m.objid)
select 'object ' || pg_describe_object(classid, objid, 0) || ': ' || coalesce(obj_description(objid, classid::regclass::text::name), '') from member
union all select 'schema ' || nspname || ' ' || coalesce(nspacl::text, '') from member join pg_namespace n on classid = 'pg_namespace'::regclass and n.oid = objid
union all select 'type ' || typname || ' ' || coalesce(typacl::text, '') || ' ' || coalesce((select string_agg(enumlabel, ',' order by enumsortorder) from pg_enum where enumtypid = t.oid), '')
       || coalesce((select string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ',' order by a.attnum) from pg_attribute a where a.attrelid = t.typrelid and a.attnum > 0), '')
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

async fn snapshot(db: &Client) -> BTreeSet<String> {
    // Definitions are written with names that the search path does not have.
    run(db, "set search_path = pg_catalog").await;
    let rows = db.query(SNAPSHOT, &[]).await.expect("a snapshot");
    rows.iter().map(|row| row.get(0)).collect()
}

/// What the planted upgrade does: something of each kind that there is.
const CHANGES: &str = r"
ALTER TABLE jobs.job SET (fillfactor = 90);
ALTER TABLE jobs.error ADD COLUMN planted text;
CREATE TABLE jobs.planted (n integer NOT NULL PRIMARY KEY);
CREATE FUNCTION jobs.planted() RETURNS integer LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp RETURN 1;
";

/// From one version to another.
#[derive(Clone, Debug)]
struct Upgrade {
    from: String,
    to: String,
}

impl Upgrade {
    /// The planted one.
    fn planted() -> Upgrade {
        Upgrade { from: VERSION.into(), to: PLANTED.into() }
    }

    /// Those to this version.
    fn to_this() -> Vec<Upgrade> {
        let to = |from| Upgrade { from, to: VERSION.into() };
        let candidate = std::iter::once(CANDIDATE.into());
        candidate.chain(released()).map(to).collect()
    }

    fn all() -> Vec<Upgrade> {
        [vec![Upgrade::planted()], Upgrade::to_this()].concat()
    }

    /// A database with the old version; of the name there may be one for each.
    async fn database(&self, cluster: &Cluster, name: &str) -> Client {
        let name = self.name(name);
        let postgres = cluster.connect("postgres").await;
        run(&postgres, &format!("create database \"{name}\"")).await;
        let db = cluster.connect(&name).await;
        run(&db, &format!("create extension jobs version '{}'", self.from)).await;
        db
    }

    fn name(&self, name: &str) -> String {
        format!("{name} {}", self.from)
    }

    fn statement(&self) -> String {
        format!("alter extension jobs update to '{}'", self.to)
    }
}

fn servers() -> Builder {
    Cluster::builder().with_upgrade(CHANGES)
}

fn idle() -> Builder {
    servers().set("jobs.enabled", "off")
}

fn difference(left: &BTreeSet<String>, right: &BTreeSet<String>) -> Vec<String> {
    let only = |one: &BTreeSet<String>, other: &BTreeSet<String>, sign| {
        one.difference(other).map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [only(left, right, '-'), only(right, left, '+')].concat()
}

/// Whoever may rename the schema can plant another. A superuser's upgrade would run what is in it.
#[tokio::test]
async fn an_upgrade_runs_nothing_in_a_planted_schema() {
    let cluster = idle().start();
    let upgrade = Upgrade::planted();
    let db = upgrade.database(&cluster, "planted").await;
    let statement = upgrade.statement();
    // It has whatever the script alters before it calls the trap.
    run(&db, "create role thief; create table public.caught (by text);
         alter schema jobs rename to ours; create schema jobs authorization thief;
         create function jobs.installed() returns void language sql as $$ insert into public.caught values (current_user) $$;
         alter function jobs.installed() owner to thief").await;
    let refused = async |why: &str| {
        let result = db.batch_execute(&statement).await;
        let error = result.expect_err(why);
        let error = error.as_db_error().expect(why);
        assert_eq!(error.code().code(), "55000", "{why}: {error:?}");
        assert_eq!(error.message(), "schema jobs is not the extension's own", "{why}");
        assert!(error.hint().is_some(), "{why}");
        assert_eq!(count(&db, "public.caught").await, 0, "{why}");
    };
    refused("planted").await;
    run(&db, "alter schema jobs owner to postgres").await;
    refused("planted by the owner").await;
    run(&db, "drop schema jobs cascade").await;
    refused("renamed").await;
    run(&db, "alter schema ours rename to jobs; alter schema jobs owner to thief").await;
    refused("another's").await;
    run(&db, "alter schema jobs owner to postgres; alter function jobs.installed() owner to thief")
        .await;
    refused("another's function").await;
    run(&db, "alter function jobs.installed() owner to postgres").await;
    run(&db, &statement).await;
}

#[tokio::test]
async fn an_upgrade_makes_what_a_new_installation_makes() {
    let cluster = idle().start();
    let fresh = snapshot(&cluster.database("new").await).await;
    assert!(fresh.len() > 300, "{}", fresh.len());
    for upgrade in Upgrade::to_this() {
        let upgraded = upgrade.database(&cluster, "upgraded").await;
        run(&upgraded, &upgrade.statement()).await;
        let different = difference(&fresh, &snapshot(&upgraded).await);
        assert!(different.is_empty(), "{upgrade:?}\n{}", different.join("\n"));
    }
    // Control: an upgrade that makes something else is seen, and so is each kind of difference.
    let upgrade = Upgrade::planted();
    let changed = upgrade.database(&cluster, "changed").await;
    run(&changed, &upgrade.statement()).await;
    let different = difference(&fresh, &snapshot(&changed).await).join("\n");
    for seen in [
        "+ column error 10 planted text",
        "+ object function jobs.planted()",
        "+ relation planted r",
        "+ relation job r {fillfactor=90}",
        "+ extension planted",
    ] {
        assert!(different.contains(seen), "{seen} is not in\n{different}");
    }
    let same = cluster.database("same").await;
    let different = difference(&fresh, &snapshot(&same).await);
    assert!(different.is_empty(), "{}", different.join("\n"));
    for change in [
        "comment on view jobs.queues is 'something else'",
        "grant select on jobs.queues to pg_monitor",
        "drop index jobs.error_by_age",
        "alter table jobs.job alter column kind drop not null",
        "create or replace view jobs.errors as select e.job_id, e.attempt, e.at, e.error, e.details, e.worker, (select j.kind from jobs.job j where j.id = e.job_id) as job_kind from jobs.error e where true and e.attempt > 0",
        "alter function jobs.maintain() cost 7",
        "alter table jobs.ready set (fillfactor = 50)",
        "alter table jobs.error replica identity default",
    ] {
        run(&same, "begin").await;
        run(&same, change).await;
        let different = difference(&fresh, &snapshot(&same).await);
        assert!(!different.is_empty(), "not seen: {change}");
        run(&same, "rollback").await;
    }
}

/// What is wrong with a script of the extension, if anything is.
///
/// A GRANT or REVOKE in an upgrade script has Postgres take all rights to the object, those that
/// users granted too, for what the extension comes with; dumps leave that out. `jobs.installed()`
/// knows better.
fn complaint(script: &str, is_upgrade: bool) -> Option<&'static str> {
    let code = |script: &str| -> String {
        let is_code = |line: &&str| !line.is_empty() && !line.starts_with("--");
        script.lines().filter(is_code).collect::<Vec<_>>().join("\n")
    };
    // As each upgrade script begins: it does nothing in a schema that is not the extension's own.
    let (first, _) = TEMPLATE.split_once("-- All that is changed").expect("a template");
    let changes = |line: &str| line.starts_with("GRANT ") || line.starts_with("REVOKE ");
    if is_upgrade && !code(script).starts_with(&code(first)) {
        Some("it does not look whose schema it is")
    } else if !script.trim_end().ends_with("\nSELECT jobs.installed();") {
        Some("it does not leave rights to the last statement")
    } else if script.lines().any(changes) {
        Some("it grants or revokes")
    } else {
        None
    }
}

#[test]
fn scripts_look_whose_schema_it_is_and_leave_rights_to_the_last_statement() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../sql");
    let (mut ends, mut upgrades) = (0, 0);
    for entry in std::fs::read_dir(scripts).expect("the scripts") {
        let path = entry.expect("a file").path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_upgrade = name.starts_with("jobs--");
        if is_upgrade || name.starts_with("90_") {
            let script = std::fs::read_to_string(&path).expect("a script");
            assert_eq!(complaint(&script, is_upgrade), None, "{name}");
            upgrades += usize::from(is_upgrade);
            ends += usize::from(!is_upgrade);
        }
    }
    assert_eq!(ends, 1);
    assert_eq!(upgrades, released().len(), "an upgrade script from each version that was released");
    let planted = planted_script(CHANGES);
    assert_eq!(complaint(&planted, true), None);
    // Control: what is missing is seen.
    for (wrong, why) in [
        (planted.replace("n.nspowner = e.extowner", "true"), "it does not look whose schema it is"),
        (
            planted.replace("SELECT jobs.installed();", ""),
            "it does not leave rights to the last statement",
        ),
        (planted_script("GRANT SELECT ON jobs.planted TO clerk;\n"), "it grants or revokes"),
    ] {
        assert_eq!(complaint(&wrong, true), Some(why));
    }
}

/// Jobs in several states, some unique.
async fn fill(db: &Client) {
    run(db, "select jobs.insert('waiting', queue => 'w', unique_opts => '{\"by_kind\": true}');
         select jobs.insert('later', queue => 'l', scheduled_at => clock_timestamp() + '1 hour');
         select jobs.insert('held', queue => 'h', unique_opts => '{\"by_kind\": true, \"hold_for\": \"PT1H\"}');
         select jobs.complete(id, token) from jobs.fetch('h');
         select jobs.insert('running', queue => 'r');
         select jobs.fetch('r', worker => 'w1');
         select jobs.insert('failing', queue => 'f', max_attempts => 1);
         select jobs.fail(id, token, 'broken') from jobs.fetch('f');
         select jobs.pause_queue('w');
         select jobs.schedule('tick', '@daily', 'tick')").await;
}

#[tokio::test]
async fn the_jobs_and_the_rights_are_kept_and_sessions_go_on() {
    let cluster = idle().start();
    run(&cluster.connect("postgres").await, "create role clerk").await;
    for upgrade in Upgrade::all() {
        let db = upgrade.database(&cluster, "kept").await;
        run(&db, "grant usage on schema jobs to clerk; grant execute on all functions in schema jobs to clerk; grant select on jobs.queues to clerk;
             create view public.report as select queue, available from jobs.queues;
             create view public.failures as select job_id, error from jobs.errors").await;
        fill(&db).await;
        let other = cluster.connect(&upgrade.name("kept")).await;
        let all = "select string_agg(j::text, ' ' order by id) from jobs.jobs j";
        let before = text(&other, all).await;
        let insert = other
            .prepare("select id from jobs.insert('waiting', unique_opts => '{\"by_kind\": true}')")
            .await
            .unwrap();
        let fetch = other.prepare("select id from jobs.fetch('n')").await.unwrap();
        other.query(&insert, &[]).await.unwrap();
        other.query(&fetch, &[]).await.unwrap();
        run(&db, &upgrade.statement()).await;
        let after = text(&other, all).await;
        assert_eq!(before, after, "{upgrade:?}");
        // A session that has used the old version goes on, with what it has prepared.
        let duplicate: i64 = other.query_one(&insert, &[]).await.unwrap().get(0);
        assert_eq!(duplicate, 1, "{upgrade:?}");
        run(&other, "select jobs.insert('new', queue => 'n')").await;
        assert_eq!(other.query(&fetch, &[]).await.unwrap().len(), 1);
        run(&other, "select jobs.complete(id, token) from jobs.jobs where worker = 'w1'").await;
        assert_eq!(number(&db, FAILED_TASKS).await, 0, "{upgrade:?}");
        assert_eq!(count(&db, "public.failures").await, 1);
        // A view may call a function that was not there before: who reads it is granted that by
        // jobs.grant_viewer.
        run(&db, "select jobs.grant_viewer('clerk')").await;
        run(
            &db,
            "set role clerk; select jobs.insert('by the clerk'); select available from jobs.queues",
        )
        .await;
    }
}

/// Tasks of maintenance that do not work.
const FAILED_TASKS: &str = "select count(*) from jobs.maintain() where error is not null";

#[tokio::test]
async fn the_new_library_works_with_the_old_versions_sql() {
    let cluster =
        servers().set("jobs.interval", "50ms").set("jobs.retention_completed", "1s").start();
    for upgrade in Upgrade::to_this() {
        let db = upgrade.database(&cluster, "old").await;
        fill(&db).await;
        run(
            &db,
            "select jobs.insert('due', queue => 'd', scheduled_at => clock_timestamp() + '0.3 s');
             select jobs.insert('lost', queue => 'x', max_attempts => 1);
             select jobs.fetch('x', lease => '0.3 s')",
        )
        .await;
        let is = async |kind: &str, state: &str| {
            let sql = format!(
                "select count(*) from jobs.jobs where kind = '{kind}' and state = '{state}'"
            );
            number(&db, &sql).await == 1
        };
        poll_until("it is due", SOON, async || is("due", "available").await).await;
        poll_until("it is rescued", SOON, async || is("lost", "discarded").await).await;
        comes_true(&db, "count(*) = 0 from jobs.jobs where kind = 'held'").await;
        assert_eq!(number(&db, FAILED_TASKS).await, 0, "{upgrade:?}");
        let available = "select sum(available)::bigint from jobs.queues";
        assert_eq!(number(&db, available).await, 2, "{upgrade:?}");
    }
    assert!(!cluster.log().contains("failed"), "{}", cluster.log());
}

#[tokio::test]
async fn an_upgrade_while_maintenance_is_at_work() {
    let cluster = servers().set("jobs.interval", "10ms").set("jobs.batch_size", 100).start();
    for upgrade in Upgrade::all() {
        // A machine may be so busy that we come too late to see it at work.
        let (mut at_work, mut round) = (0, 0);
        while at_work < 3 {
            round += 1;
            assert!(round < 50, "maintenance was never at work");
            let db = upgrade.database(&cluster, &format!("ticking{round}")).await;
            run(&db, "select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[20000]), scheduled_at => clock_timestamp() + '1 s')").await;
            comes_true(&db, "count(*) > 0 from jobs.ready").await;
            let left = count(&db, "jobs.scheduled").await;
            at_work += i32::from(left > 0);
            run(&db, &upgrade.statement()).await;
            poll_until("it goes on", SOON, async || count(&db, "jobs.ready").await == 20_000).await;
            comes_true(
                &db,
                "count(*) = 1 from jobs.maintenance where task = 'schedule' and rows_total > 0",
            )
            .await;
        }
    }
    // That it waited no longer than a second for what the upgrade had locked is as it should be.
    let log = cluster.log();
    let failed = |line: &&str| line.contains("failed") && !line.contains("lock timeout");
    assert_eq!(log.lines().find(failed), None);
}

#[tokio::test]
async fn an_upgrade_and_transactions_at_work_do_not_deadlock() {
    let cluster = idle().start();
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
    for upgrade in Upgrade::all() {
        for (round, steps) in orders.iter().enumerate() {
            let name = format!("order{round}");
            let db = upgrade.database(&cluster, &name).await;
            run(&db, "select jobs.insert_batch('k', array_fill('1'::jsonb, array[10]))").await;
            let worker = cluster.connect(&upgrade.name(&name)).await;
            let watcher = cluster.connect("postgres").await;
            run(&worker, "begin").await;
            run(&worker, steps[0]).await;
            let statement = upgrade.statement();
            let upgrading = tokio::spawn(async move { db.batch_execute(&statement).await });
            for step in &steps[1..] {
                // For a lock, or for the next time that it tries to get all of them.
                comes_true(&watcher, "count(*) = 1 from pg_stat_activity where query like 'alter extension %' and wait_event in ('relation', 'PgSleep')").await;
                run(&worker, step).await;
            }
            assert!(!upgrading.is_finished());
            run(&worker, "commit").await;
            upgrading.await.unwrap().unwrap();
            assert!(count(&worker, "jobs.maintenance").await > 0);
        }
        // Whoever is not patient says so.
        let db = upgrade.database(&cluster, "impatient").await;
        let worker = cluster.connect(&upgrade.name("impatient")).await;
        run(&worker, "begin; select jobs.insert('x')").await;
        run(&db, "set lock_timeout = '0.3 s'").await;
        let refused = db.batch_execute(&upgrade.statement()).await;
        assert_eq!(jobs_tests::sqlstate(refused), "55P03", "{upgrade:?}");
    }
}
