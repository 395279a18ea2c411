//! Cells: what is kept of one by dumps, upgrades and standbys, and one job per key over several,
//! whatever their clients believe.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use jobs_tests::{
    Builder, Client, Cluster, MOVE_CELLS, Mode, SOON, blocked, comes_true, count, is, move_cell,
    mover, number, poll_until, quiet, row_of, rows_of, run, seconds, sqlstate, text, texts,
};
use serde_json::Value;
use tokio::process::Command;
use tokio_postgres::error::SqlState;

use super::dump::programs::{create, dump, restore};

/// A database that is cell 3 and takes everything.
async fn third(cluster: &Cluster, name: &str) -> Client {
    let db = cluster.database(name).await;
    run(&db, "select jobs.set_cell(3)").await;
    run(&db, "select jobs.place_queue('*', 3)").await;
    db
}

#[tokio::test]
async fn a_restored_cell_keeps_its_number_and_is_retired() {
    let cluster = Cluster::quiet();
    let db = third(&cluster, "before").await;
    run(&db, "select jobs.place_queue('mail', 5), jobs.set_cell_address(5, 'host=five')").await;
    let last = number(&db, "select id from jobs.insert('k')").await;
    let identity = "select identity::text from jobs.cells where is_self";
    let before = text(&db, identity).await;
    let file = dump(&cluster, "dump", &["-Fc"]).await;
    create(&cluster, "after").await;
    restore(&cluster, "after", &file, &[]).await;

    let copy = cluster.connect("after").await;
    for view in ["placements", "cells"] {
        let rows = format!("select (to_jsonb(v) - 'retired_at')::text from jobs.{view} v");
        assert_eq!(texts(&copy, &rows).await, texts(&db, &rows).await, "{view}");
    }
    let error = copy.batch_execute("select jobs.insert('k')").await.unwrap_err();
    let error = error.as_db_error().expect("an error of the server");
    assert_eq!(error.code().code(), "JB001");
    assert_eq!(error.detail(), Some(r#"{"cell": 3, "retired": true}"#));
    assert!(is(&copy, "retired_at is not null from jobs.cells where is_self").await);
    assert!(is(&copy, "count(*) = 1 from jobs.health() where finding = 'cell_retired'").await);
    assert_eq!(count(&copy, "jobs.jobs").await, 1);
    run(&db, "select jobs.insert('k')").await;

    run(&copy, "select jobs.reinstate_cell()").await;
    assert_eq!(number(&copy, "select id from jobs.insert('k')").await, last + 1);
    assert_ne!(text(&copy, identity).await, before, "a copy is another one");
    assert_eq!(
        sqlstate(copy.batch_execute("select jobs.insert('k', queue => 'mail')").await),
        "JB001"
    );
    assert_eq!(count(&copy, "jobs.check()").await, 0);
}

/// The row of a cell may come while maintenance already looks what stands in its way.
#[tokio::test]
async fn a_copy_is_not_maintained_as_its_restore_ends() {
    let (cluster, db) = quiet("copy").await;
    let restore = cluster.connect("copy").await;
    run(&db, "select nextval('jobs.job_seq')").await;
    // With this lock, maintenance stops where it asks for sessions of pg_restore.
    run(
        &restore,
        "set application_name = 'pg_restore'; begin; lock pg_database in access exclusive mode;
         insert into jobs.cell (cell, is_self, system_identifier, database_id) values (3, true, 1, 1)",
    )
    .await;
    let errors = "select distinct coalesce(error, '') from jobs.maintain()";
    let maintenance = tokio::spawn(async move { texts(&db, errors).await });
    blocked(&restore, 1).await;
    run(&restore, "set application_name = 'restored'; commit").await;
    let why = "the cell is retired; jobs.reinstate_cell() has it take writes again";
    assert_eq!(maintenance.await.unwrap(), [why]);
}

#[tokio::test]
async fn a_dump_of_another_cell_is_not_restored_here() {
    let cluster = Cluster::quiet();
    third(&cluster, "before").await;
    let file = dump(&cluster, "dump", &["-Fc", "--data-only"]).await;
    let other = cluster.database("other").await;
    run(&other, "select jobs.set_cell(5)").await;
    let args = ["-e", "-d", "other", &file];
    let (ok, said) = super::dump::programs::try_run(&cluster, "pg_restore", &args).await;
    assert!(!ok && said.contains("cell_self"), "{said}");
    assert_eq!(number(&other, "select cell::bigint from jobs.cells where is_self").await, 5);
}

/// Makes the data of a stopped server anew: all of these tests are copies of one server.
fn initialise(cluster: &Cluster) {
    let (data, settings) = (cluster.data(), cluster.data().join("postgresql.conf"));
    let before = fs::read(&settings).expect("settings");
    fs::remove_dir_all(&data).expect("the data");
    let mut initdb = cluster.bin("initdb");
    initdb.args(["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]);
    let made = initdb.args(["--locale=C.UTF-8", "-D"]).arg(&data).output().expect("initdb");
    assert!(made.status.success(), "{made:?}");
    fs::write(settings, before).expect("settings");
}

#[tokio::test]
async fn an_upgraded_cell_is_retired_until_it_is_reinstated() {
    let old = Cluster::quiet();
    drop(third(&old, "before").await);
    old.stop(Mode::Fast);
    let new = Cluster::builder().set("jobs.enabled", "off").make();
    initialise(&new);
    old.upgrade_to(&new, &[]);
    new.start_again();
    let db = new.connect("before").await;
    assert_eq!(sqlstate(db.batch_execute("select jobs.insert('k')").await), "JB001");
    run(&db, "select jobs.reinstate_cell()").await;
    assert_eq!(number(&db, "select id >> 43 from jobs.insert('k')").await, 3);
}

#[tokio::test]
async fn a_standby_that_takes_over_is_the_same_cell() {
    let cluster = Cluster::quiet();
    let db = third(&cluster, "cell").await;
    run(&db, "select jobs.insert('k')").await;
    let row = row_of(&db, "select id, token from jobs.fetch()").await;
    let (id, token): (i64, i64) = (row.get(0), row.get(1));
    let standby = cluster.standby();
    let replica = standby.connect("cell").await;
    comes_true(&replica, "count(*) = 1 from jobs.running").await;
    assert_eq!(number(&replica, "select jobs.cell_for('k')::bigint").await, 3);
    assert_eq!(sqlstate(replica.batch_execute("select jobs.insert('k')").await), "25006");
    assert_eq!(count(&replica, "jobs.health() where finding ~ '^cell_'").await, 0);
    let alone = "jobs.health() where finding = 'cell_unreplicated'";
    assert_eq!(count(&db, alone).await, 1);
    cluster.set("synchronous_standby_names", "*");
    cluster.reload();
    comes_true(&db, &format!("count(*) = 0 from {alone}")).await;
    cluster.stop(Mode::Immediate);
    standby.promote();
    assert!(is(&replica, &format!("jobs.complete({id}, {token}) = 'completed'")).await);
    assert_eq!(number(&replica, "select id >> 43 from jobs.insert('k')").await, 3);
}

/// Cells 1 and 2 of one server, `one` and `two`, and its standby.
async fn server_of_two() -> (Cluster, Cluster) {
    let old = Cluster::quiet();
    for (cell, name) in [(1, "one"), (2, "two")] {
        let db = old.database(name).await;
        run(&db, &format!("select jobs.set_cell({cell}), jobs.place_queue('*', {cell})")).await;
    }
    let new = old.standby();
    (old, new)
}

const INSERT: &str = "select id from jobs.insert('k')";

#[tokio::test]
async fn a_server_is_split_while_clients_insert() {
    let (old, new) = server_of_two().await;
    let two = old.connect("two").await;
    let unique =
        r#"select id from jobs.insert('u', unique_opts => '{"by_queue": true}', queue => 'u')"#;
    let held = number(&two, unique).await;
    let token = number(&two, "select token from jobs.fetch('u')").await;
    let client = tokio::spawn(async move {
        let mut inserted = 0;
        while two.query_one(INSERT, &[]).await.is_ok() {
            inserted += 1;
        }
        (inserted, sqlstate(two.query_one(INSERT, &[]).await))
    });
    move_cell(MOVE_CELLS, &old, &new, "two").await;

    let (inserted, ended) = client.await.unwrap();
    assert_eq!(ended, "JB001");
    let there = new.connect("two").await;
    assert_eq!(count(&there, "jobs.jobs where kind = 'k'").await, inserted);
    assert_eq!(number(&there, unique).await, held);
    assert!(is(&there, &format!("jobs.complete({held}, {token}) = 'completed'")).await);
    // Each cell takes writes in one place, and says in the other one where that is.
    for (takes, refuses, name) in [(&old, &new, "one"), (&new, &old, "two")] {
        run(&takes.connect(name).await, INSERT).await;
        let error = refuses.connect(name).await.batch_execute(INSERT).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        let home = format!("{} dbname='{name}'", takes.place());
        assert!(error.hint().unwrap().contains(&home), "{error:?}");
    }
}

#[tokio::test]
async fn no_cell_moves_to_a_standby_of_another_server() {
    let (old, _new) = server_of_two().await;
    let other = Cluster::builder().set("jobs.enabled", "off").make();
    initialise(&other);
    other.start_again();
    let standby = other.standby();
    let said = mover(MOVE_CELLS, &old, &standby, "two").output().await.unwrap();
    assert!(!said.status.success(), "{said:?}");
    let error = String::from_utf8_lossy(&said.stderr);
    assert!(error.contains("NEW is not a standby of OLD"), "{error}");
    assert!(is(&standby.connect("postgres").await, "pg_is_in_recovery()").await);
    for name in ["one", "two"] {
        let db = old.connect(name).await;
        assert_eq!(count(&db, "jobs.audit where action = 'retire_cell'").await, 0);
        run(&db, INSERT).await;
    }
}

/// Two cells of a server, and its standby, which follows no more.
async fn server_that_is_not_followed() -> (Cluster, Cluster) {
    let (old, new) = server_of_two().await;
    let replica = new.connect("postgres").await;
    run(&replica, "alter system reset primary_conninfo").await;
    new.reload();
    comes_true(&old.connect("postgres").await, "count(*) = 0 from pg_stat_replication").await;
    // Commits that wait for the standby wait for ever.
    old.set("synchronous_standby_names", "*");
    old.reload();
    (old, new)
}

/// Both cells of a server were retired so often, and take writes again, although no standby
/// confirms that.
async fn both_are_reinstated(old: &Cluster, times: i64) {
    for name in ["one", "two"] {
        let db = old.connect(name).await;
        for function in ["retire_cell", "reinstate_cell"] {
            let calls = format!("jobs.audit where action = '{function}'");
            assert_eq!(count(&db, &calls).await, times, "{name}");
        }
        run(&db, &format!("set synchronous_commit = local; {INSERT}")).await;
    }
}

#[tokio::test]
async fn cells_are_reinstated_if_the_standby_does_not_follow() {
    let (old, new) = server_that_is_not_followed().await;
    let mut mover = mover(MOVE_CELLS, &old, &new, "two");
    let said = mover.env("MOVE_CELLS_WAIT", "1").output().await.unwrap();
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let error = String::from_utf8_lossy(&said.stderr);
    assert!(error.contains("NEW has not followed within 1 s"), "{error}");
    both_are_reinstated(&old, 1).await;
    assert!(is(&new.connect("postgres").await, "pg_is_in_recovery()").await);
}

#[tokio::test]
async fn cells_are_reinstated_if_the_move_is_stopped() {
    let (old, new) = server_that_is_not_followed().await;
    for (times, signal) in (1..).zip(["HUP", "INT", "TERM"]) {
        let mut mover = mover(MOVE_CELLS, &old, &new, "two");
        let mut moving = mover.env("MOVE_CELLS_WAIT", "3600").spawn().unwrap();
        for name in ["one", "two"] {
            let db = old.connect(name).await;
            comes_true(&db, "retired_at is not null from jobs.cells where is_self").await;
        }
        let pid = moving.id().unwrap().to_string();
        Command::new("kill").args(["-s", signal, &pid]).status().await.unwrap();
        assert_eq!(moving.wait().await.unwrap().code(), Some(1), "{signal}");
        both_are_reinstated(&old, times).await;
    }
}

#[tokio::test]
async fn control_a_standby_that_is_only_promoted_gives_out_the_same_ids() {
    let (old, new) = server_of_two().await;
    new.promote();
    let [here, there] = [old.connect("two").await, new.connect("two").await];
    assert_eq!(number(&here, INSERT).await, number(&there, INSERT).await);
}

#[tokio::test]
async fn the_background_worker_of_a_retired_cell_writes_nothing() {
    let cluster = Cluster::builder().set("jobs.interval", "10ms").start();
    let db = third(&cluster, "cell").await;
    run(&db, "select jobs.schedule('tick', 'every 1 second', 'tick')").await;
    comes_true(&db, "count(*) > 0 from jobs.jobs where kind = 'tick'").await;
    run(&db, "select jobs.unschedule('tick'), jobs.insert('expired', queue => 'e')").await;
    run(
        &db,
        "select jobs.fetch('e', lease => '1 ms'); select jobs.schedule('tock', 'every 1 second', 'tock');
         select jobs.retire_cell('host=new')",
    )
    .await;
    let sum = "select string_agg(md5(j::text), '' order by id) from jobs.jobs j";
    let before = text(&db, sum).await;
    comes_true(&db, "clock_timestamp() > next_run_at + interval '1 s' from jobs.periodic").await;
    assert_eq!(text(&db, sum).await, before);
    run(&db, "select jobs.reinstate_cell()").await;
    comes_true(&db, "count(*) > 0 from jobs.jobs where kind = 'tock'").await;
    comes_true(&db, "count(*) = 0 from jobs.running").await;
}

/// What programs of all cells need. Settings of queues, orders of those that are not in all cells,
/// and periodic jobs are their cells' own.
#[tokio::test]
async fn one_file_gives_all_cells_one_digest() {
    const FILE: &str = r#"select jobs.place_queue('*', 0), jobs.place_queue('mail', 1);
        select jobs.spread_queue('sync', '{"by_args": ["tenant"]}', '{0,1}');
        select jobs.define_kind('email', queue => 'mail', timeout => '1 hour', unique_opts => '{"by_queue": true}');
        select jobs.define_kind('report', queue => 'reports'), jobs.define_kind('pull', queue => 'sync');
        select jobs.define_limit('total', queues => '{mail}', rate => 2, rate_period => '1 minute'), jobs.define_limit('tenant', '{"by_args": ["t"]}', '{mail}', concurrency => 1);
        select jobs.override_limit('tenant', '"a"', 5), jobs.order_queue('sync', '{"by_args": ["tenant"]}', fair => true)"#;
    const DIGEST: &str = "select settings_digest from jobs.cells where is_self";
    let cluster = Cluster::quiet();
    let mut digests = Vec::new();
    for (cell, queue) in [(0, "reports"), (1, "mail")] {
        let db = cluster.database(&format!("cell{cell}")).await;
        run(&db, &format!("select jobs.set_cell({cell})")).await;
        run(&db, FILE).await;
        let own = format!(
            "select jobs.configure_queue('{queue}', concurrency => 2), jobs.schedule('p', '@daily', 'k', queue => '{queue}'),
                    jobs.order_queue('{queue}', '{{\"by_kind\": true}}', strict => true)"
        );
        run(&db, &own).await;
        digests.push(text(&db, DIGEST).await);
        for change in [
            "undefine_kind('pull')",
            "override_limit('tenant', '\"a\"')",
            "drop_limit('total')",
            "order_queue('sync', '{\"by_args\": [\"tenant\"]}', fair => true, weights => '{\"a\": 2}')",
        ] {
            let before = text(&db, DIGEST).await;
            run(&db, &format!("select jobs.{change}")).await;
            assert_ne!(text(&db, DIGEST).await, before, "{change}");
        }
        // Of a queue that is not in all cells the others know no order.
        run(&db, "select jobs.place_queue('third', 2)").await;
        let before = text(&db, DIGEST).await;
        run(&db, "select jobs.order_queue('sync', null)").await;
        assert_eq!(text(&db, DIGEST).await, before);
    }
    assert_eq!(digests[0], digests[1]);
}

/// The vectors that programs compute by themselves, in SQL: with 1024 cells in their order.
#[tokio::test]
async fn sql_places_the_vectors_as_programs_do() {
    const CELLS: u64 = 1024;
    let vectors = include_str!("../../core/tests/core/vectors/dimensions.json");
    let vectors: Vec<Value> = serde_json::from_str(vectors).unwrap();
    let (_cluster, db) = quiet("vectors").await;
    run(&db, "select jobs.set_cell(0)").await;
    let mut queues: BTreeMap<String, usize> = BTreeMap::new();
    for vector in &vectors {
        let by = vector["by"].to_string();
        let next = queues.len();
        let queue = *queues.entry(by.clone()).or_insert(next);
        if queue == next {
            let spread = format!(
                "select jobs.spread_queue('q{queue}', $1::text::jsonb, array(select generate_series(0, 1023)))"
            );
            db.execute(&spread, &[&by]).await.unwrap();
        }
        let given = |name: &str| vector[name].as_str().map(str::to_string);
        let sql = format!(
            "select jobs.cell_for('k', coalesce($1::text::jsonb, '{{}}'), queue => 'q{queue}', meta => $2::text::jsonb)"
        );
        let placed = db.query_one(&sql, &[&given("args"), &given("meta")]).await;
        match given("hash") {
            Some(hash) => {
                let home = (hash.parse::<u64>().unwrap() % CELLS) as i32;
                assert_eq!(placed.unwrap().get::<_, i32>(0), home, "{vector}");
            }
            None => assert_eq!(sqlstate(placed), "22023", "{vector}"),
        }
    }
}

/// Cells of one server, and clients that insert into them.
const CELLS: i32 = 3;
const CLIENTS: usize = 16;
const KEYS: i32 = 400;
const KILLS: i32 = 10;
/// Before each kill.
const ANSWERS: usize = 80;

/// What is known of inserts: of each key, the ids that were answered with.
type Answers = Arc<Mutex<BTreeMap<i32, Vec<i64>>>>;

/// Every client inserts unique jobs again and again, half of them by a map that is wrong; clients,
/// sessions and the server are killed. The keys, each with the ids of its jobs over all cells, and
/// what was answered.
async fn history(builder: Builder) -> (BTreeMap<i32, Vec<i64>>, BTreeMap<i32, Vec<i64>>, Cluster) {
    let cluster = builder.set("jobs.interval", "50ms").set("restart_after_crash", "on").start();
    cluster.allow(u32::MAX, "57P0[0-9]|FATAL|terminating connection|was terminated by signal 9|server process|all server processes|unexpected EOF|could not receive|could not send");
    for cell in 0..CELLS {
        let db = cluster.database(&format!("cell{cell}")).await;
        run(&db, &format!("select jobs.set_cell({cell})")).await;
        run(&db, "select jobs.spread_queue('q', '{\"by_args\": [\"tenant\"]}', '{0,1,2}')").await;
        run(&db, "select jobs.place_queue('*', 0)").await;
    }
    let answers = Answers::default();
    let ends = Arc::new(AtomicBool::new(false));
    let cluster = Arc::new(cluster);
    let mut clients = tokio::task::JoinSet::new();
    let begin = |n: usize| {
        let (cluster, answers, ends) = (cluster.clone(), answers.clone(), ends.clone());
        async move { client(&cluster, n.is_multiple_of(2), &answers, &ends).await }
    };
    let mut latest: Vec<_> = (0..CLIENTS).map(|n| clients.spawn(begin(n))).collect();
    let answered = || answers.lock().unwrap().values().map(Vec::len).sum::<usize>();
    for round in 0..KILLS {
        let enough = answered() + ANSWERS;
        poll_until("clients insert", SOON, async || answered() >= enough).await;
        match round % 4 {
            3 => {
                cluster.kill9();
                cluster.start_again();
                continue;
            }
            1 => {
                // Whatever they have called, no session reads how it ends.
                for (n, client) in latest.iter_mut().enumerate().take(CLIENTS / 2) {
                    client.abort();
                    *client = clients.spawn(begin(n));
                }
                continue;
            }
            _ => {}
        }
        let Some(db) = try_connect(&cluster, round % CELLS).await else { continue };
        let victim = "select pid from pg_stat_activity where application_name = 'client' and pid <> pg_backend_pid() order by random() limit 1";
        if let Ok(Some(row)) = db.query_opt(victim, &[]).await {
            cluster.kill9_backend(row.get(0));
        }
    }
    ends.store(true, Ordering::Relaxed);
    while let Some(done) = clients.join_next().await {
        assert!(done.is_ok() || done.is_err_and(|error| error.is_cancelled()));
    }
    let mut jobs: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for cell in 0..CELLS {
        let is_up = || async { try_connect(&cluster, cell).await.is_some() };
        poll_until("the server takes connections", SOON, is_up).await;
        let db = try_connect(&cluster, cell).await.expect("a connection");
        for row in rows_of(&db, "select (args->>'tenant')::integer, id from jobs.job").await {
            jobs.entry(row.get(0)).or_default().push(row.get(1));
        }
        assert_eq!(count(&db, "jobs.check()").await, 0);
    }
    let answers = std::mem::take(&mut *answers.lock().unwrap());
    let cluster = Arc::into_inner(cluster).expect("all clients have ended");
    (jobs, answers, cluster)
}

async fn try_connect(cluster: &Cluster, cell: i32) -> Option<Client> {
    let mut config = cluster.config();
    config.dbname(format!("cell{cell}")).application_name("client");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.ok()?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Some(client)
}

/// Inserts jobs until the end, each where a map says: a right one, or a shuffled one. It follows a
/// refusal once.
async fn client(cluster: &Cluster, is_right: bool, answers: &Answers, ends: &AtomicBool) {
    let mut connections: BTreeMap<i32, Client> = BTreeMap::new();
    while !ends.load(Ordering::Relaxed) {
        let key = rand::random_range(0..KEYS);
        let mut cell = rand::random_range(0..CELLS);
        for _ in 0..2 {
            let Some(db) = reach(cluster, cell, &mut connections).await else { break };
            if is_right {
                let home =
                    format!("select jobs.cell_for('k', '{{\"tenant\": {key}}}', queue => 'q')");
                match db.query_one(&home, &[]).await {
                    Ok(row) => cell = row.get(0),
                    Err(_) => break,
                }
            }
            let Some(db) = reach(cluster, cell, &mut connections).await else { break };
            let insert = format!(
                r#"select id from jobs.insert('k', '{{"tenant": {key}}}', '{{"by_queue": true, "by_args": true}}', 'q')"#
            );
            match db.query_one(&insert, &[]).await {
                Ok(row) => {
                    answers.lock().unwrap().entry(key).or_default().push(row.get(0));
                    break;
                }
                Err(error) if error.code() == Some(&SqlState::from_code("JB001")) => {
                    let detail =
                        error.as_db_error().and_then(|error| error.detail()).expect("a detail");
                    let detail: Value = serde_json::from_str(detail).expect("JSON");
                    cell = detail["cell"].as_i64().expect("a cell") as i32;
                }
                Err(_) => {
                    connections.clear();
                    break;
                }
            }
        }
    }
}

async fn reach<'a>(
    cluster: &Cluster,
    cell: i32,
    connections: &'a mut BTreeMap<i32, Client>,
) -> Option<&'a Client> {
    if connections.get(&cell).is_none_or(|db| db.is_closed()) {
        let Some(db) = try_connect(cluster, cell).await else {
            seconds(0.05).await;
            return None;
        };
        connections.insert(cell, db);
    }
    connections.get(&cell)
}

/// What is wrong with the keys of a history.
fn wrong(jobs: &BTreeMap<i32, Vec<i64>>, answers: &BTreeMap<i32, Vec<i64>>) -> Vec<String> {
    let several = jobs.iter().filter(|(_, ids)| ids.len() > 1);
    let mut wrong: Vec<String> =
        several.map(|(key, ids)| format!("key {key} has jobs {ids:?}")).collect();
    for (key, ids) in answers {
        for id in ids {
            if jobs.get(key).is_none_or(|jobs| !jobs.contains(id)) {
                wrong.push(format!("job {id} of key {key} is lost"));
            }
        }
    }
    wrong
}

#[tokio::test]
async fn a_key_has_one_job_over_all_cells() {
    let (jobs, answers, _cluster) = history(Cluster::builder()).await;
    let wrong = wrong(&jobs, &answers);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn without_the_judgement_keys_have_several() {
    let builder = Cluster::builder().faults("any_cell");
    let (jobs, answers, _cluster) = history(builder).await;
    let wrong = wrong(&jobs, &answers);
    assert!(wrong.iter().any(|wrong| wrong.contains(" has jobs ")), "{wrong:?}");
}
