//! The life of the background worker: databases that are closed, copied, renamed and moved under
//! it, crashes and shutdowns, settings that change, prepared transactions, too few processes, and
//! what it costs when nothing is to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jobs_tests::{
    Builder, Client, Cluster, Mode, SOON, becomes, comes_true, count, flood, history_is_written,
    insert, number, poll_until, promptly, quiet, row_of, run, scalar, seconds, sqlstate, state,
    text, texts, with, worker_goes_on, workers, workers_become,
};
use tokio_postgres::NoTls;

/// Jobs that take the worker two minutes, if it takes [`small_steps`] and no session has it
/// [`hurry`].
const CROWD: i64 = 1_200;

/// Passes in small steps: many short transactions, and the next pass soon after.
fn small_steps() -> Builder {
    Cluster::builder().set("jobs.batch_size", 10).set("jobs.interval", "10ms")
}

/// A job that is due in a moment, in a queue of its own.
async fn soon_due(db: &Client) -> i64 {
    insert(db, "'x', queue => 'own', scheduled_at => clock_timestamp() + '0.1 s'").await
}

async fn waiting(db: &Client) -> i64 {
    count(db, "jobs.scheduled").await
}

/// Gives the worker a crowd to handle and waits until it is in the middle of that. Each step
/// takes a while, however fast the machine is.
async fn keep_busy(db: &Client) {
    run(
        db,
        "create or replace function public.dawdle() returns trigger language plpgsql
           as 'begin perform pg_sleep((select seconds from public.pace)); return null; end';
         create table if not exists public.pace (seconds float8);
         delete from public.pace;
         insert into public.pace values (1);
         create or replace trigger dawdle after insert on jobs.ready
           for each statement execute function public.dawdle()",
    )
    .await;
    flood(db, CROWD).await;
    let all = waiting(db).await;
    poll_until("the worker has begun", SOON, async || waiting(db).await < all).await;
    assert!(waiting(db).await > 0, "and is not done yet");
}

/// Where the worker was kept busy, the rest takes no longer than it must.
async fn hurry(db: &Client) {
    run(
        db,
        "create table if not exists public.pace (seconds float8);
         update public.pace set seconds = 0",
    )
    .await;
}

/// Has the worker come, and leaves it with nothing to do.
async fn keep_idle(db: &Client, database: &str) {
    run(db, "select jobs.installed()").await;
    workers_become(db, database, 1).await;
}

async fn nothing_waits(db: &Client) {
    hurry(db).await;
    poll_until("all that was due is available", SOON, async || waiting(db).await == 0).await;
}

/// So many jobs there are, each in exactly one place.
async fn assert_each_in_one_place(db: &Client, jobs: i64) {
    let row = row_of(db, "select count(*), count(distinct job_id), count(j.id), (select count(*) from jobs.job)
               from (select job_id from jobs.ready union all select job_id from jobs.scheduled
                     union all select job_id from jobs.running union all select job_id from jobs.finished) place
               left join jobs.job j on j.id = place.job_id").await;
    let counts: Vec<i64> = (0..4).map(|column| row.get(column)).collect();
    assert_eq!(counts, [jobs; 4], "places, jobs in them, those that are known, all jobs");
}

// --- databases that change under the worker ------------------------------------------------------

/// The setting has another name from 16 on.
const FORCE_PARALLEL: &str = "select set_config(name, 'on', false) from pg_settings where name in ('force_parallel_mode', 'debug_parallel_query')";

#[tokio::test]
async fn a_closed_database_is_left_alone_until_it_is_open_again() {
    let cluster = small_steps().start();
    let postgres = cluster.connect("postgres").await;
    let open = cluster.database("open").await;
    // A session that was there before may stay in a database that is closed.
    let db = cluster.database("closed").await;
    for (close, reopen) in [
        (
            "alter database closed allow_connections false",
            "alter database closed allow_connections true",
        ),
        ("alter database closed is_template true", "alter database closed is_template false"),
        // What is left of a DROP DATABASE that was interrupted.
        (
            "update pg_database set datconnlimit = -2 where datname = 'closed'",
            "update pg_database set datconnlimit = -1 where datname = 'closed'",
        ),
    ] {
        keep_busy(&db).await;
        run(&postgres, close).await;
        workers_become(&postgres, "closed", 0).await;
        let rest = waiting(&db).await;
        assert!(rest > 0, "{close}: it left its work half done");
        let id = soon_due(&db).await;
        worker_goes_on(&open).await;
        seconds(1.5).await;
        assert_eq!(state(&db, id).await.unwrap(), "scheduled", "{close}");
        assert_eq!(waiting(&db).await, rest + 1, "{close}");
        assert_eq!(workers(&postgres, "closed").await, 0, "{close}");
        run(&postgres, reopen).await;
        // Whoever asks for work has the launcher look at the list of databases.
        soon_due(&open).await;
        nothing_waits(&db).await;
    }
    assert_each_in_one_place(&db, 3 * (CROWD + 1)).await;
}

#[tokio::test]
async fn a_connection_limit_is_for_clients() {
    let (cluster, db) = with("limited", &[]).await;
    run(
        &db,
        "create role client login; grant connect on database limited to client;
         alter database limited connection limit 0",
    )
    .await;
    // The limit is there: a client is refused.
    cluster.allow(1, "53300 .*FATAL:  too many connections for database");
    let mut client = cluster.config();
    client.user("client").dbname("limited");
    assert_eq!(sqlstate(client.connect(NoTls).await), "53300");
    workers_become(&db, "limited", 0).await;
    worker_goes_on(&db).await;
}

#[tokio::test]
async fn a_copied_database_and_its_copy_are_both_cared_for() {
    let cluster = small_steps().start();
    let postgres = cluster.connect("postgres").await;
    for (name, jobs) in [("idle", 0), ("busy", CROWD)] {
        let db = cluster.database(name).await;
        let later =
            insert(&db, "'x', queue => 'own', scheduled_at => clock_timestamp() + '4 s'").await;
        if jobs == 0 {
            keep_idle(&db, name).await;
        } else {
            keep_busy(&db).await;
        }
        drop(db);
        let copy = format!("copy_of_{name}");
        promptly(&postgres, &format!("create database {copy} template {name}")).await;
        for database in [name, &copy] {
            let db = cluster.connect(database).await;
            hurry(&db).await;
            becomes(&db, later, "available").await;
            nothing_waits(&db).await;
            assert_each_in_one_place(&db, jobs + 1).await;
        }
    }
}

#[tokio::test]
async fn a_renamed_database_is_known_by_its_new_name() {
    let cluster = small_steps().set("jobs.databases", "before").start();
    let postgres = cluster.connect("postgres").await;
    let db = cluster.database("before").await;
    keep_busy(&db).await;
    drop(db);
    promptly(&postgres, "alter database before rename to after").await;
    let db = cluster.connect("after").await;
    let rest = waiting(&db).await;
    assert!(rest > 0, "it was renamed in the middle of the work");
    let id = soon_due(&db).await;
    // Being asked, the launcher looks at the list of databases.
    seconds(2.0).await;
    assert_eq!(waiting(&db).await, rest + 1, "only the old name is listed");
    assert_eq!(workers(&db, "after").await, 0);
    cluster.set("jobs.databases", "before, after");
    cluster.reload();
    hurry(&db).await;
    becomes(&db, id, "available").await;
    nothing_waits(&db).await;
    // Idle, and to a name that is in the list already.
    keep_idle(&db, "after").await;
    drop(db);
    promptly(&postgres, "alter database after rename to before").await;
    let db = cluster.connect("before").await;
    worker_goes_on(&db).await;
    assert_each_in_one_place(&db, CROWD + 2).await;
}

#[tokio::test]
async fn a_database_is_moved_to_another_tablespace_under_the_worker() {
    let cluster = small_steps().set("allow_in_place_tablespaces", "on").start();
    let postgres = cluster.connect("postgres").await;
    run(&postgres, "create tablespace elsewhere location ''").await;
    let mut db = cluster.database("moved").await;
    keep_idle(&db, "moved").await;
    for (round, tablespace) in ["elsewhere", "pg_default"].into_iter().enumerate() {
        drop(db);
        promptly(&postgres, &format!("alter database moved set tablespace {tablespace}")).await;
        db = cluster.connect("moved").await;
        hurry(&db).await;
        worker_goes_on(&db).await;
        nothing_waits(&db).await;
        if round == 0 {
            keep_busy(&db).await;
        }
    }
    assert_each_in_one_place(&db, CROWD + 2).await;
}

#[tokio::test]
async fn the_list_of_databases_takes_any_name_and_changes_at_work() {
    let cluster = small_steps().set("jobs.databases", " plain,Two Words , UPPER,,\"a, b\"").start();
    let plain = cluster.database("plain").await;
    let words = cluster.database("Two Words").await;
    let upper = cluster.database("UPPER").await;
    let comma = cluster.database("a, b").await;
    // Names are taken as they are.
    let lower = cluster.database("upper").await;
    let left_alone = soon_due(&lower).await;
    for db in [&plain, &words, &upper, &comma] {
        worker_goes_on(db).await;
    }
    keep_busy(&plain).await;
    cluster.set("jobs.databases", "Two Words, upper");
    cluster.reload();
    workers_become(&plain, "plain", 0).await;
    let rest = waiting(&plain).await;
    assert!(rest > 0, "it stopped half-way");
    becomes(&lower, left_alone, "available").await;
    worker_goes_on(&words).await;
    let id = soon_due(&upper).await;
    seconds(2.0).await;
    assert_eq!(state(&upper, id).await.unwrap(), "scheduled");
    assert_eq!(waiting(&plain).await, rest);
    cluster.set("jobs.databases", "");
    cluster.reload();
    becomes(&upper, id, "available").await;
    nothing_waits(&plain).await;
    assert_each_in_one_place(&plain, CROWD + 1).await;
}

#[tokio::test]
async fn workers_do_not_come_and_go_while_the_extension_is_being_dropped() {
    // Then the postmaster tells of each process that it starts.
    let cluster = Cluster::builder().set("log_min_messages", "debug1").start();
    let started = || {
        let line = "starting background worker process \"jobs worker\"";
        cluster.log().matches(line).count()
    };
    let db = cluster.database("dropping").await;
    let id = insert(&db, "'x', scheduled_at => clock_timestamp() + '0.5 s'").await;
    let (before, begun) = (started(), Instant::now());
    run(&db, "begin; drop extension jobs").await;
    seconds(4.0).await;
    poll_until("a process comes", SOON, async || started() > before).await;
    let (tries, took) = (started() - before, begun.elapsed());
    assert!(
        tries <= took.as_secs() as usize + 2,
        "{tries} processes in {took:?}, for a job that is due and cannot be handled"
    );
    run(&db, "rollback").await;
    becomes(&db, id, "available").await;
}

// --- crashes and shutdowns -----------------------------------------------------------------------

/// The process of this kind, which may have to be waited for.
async fn process(db: &Client, kind: &str) -> i32 {
    let sql = "select pid from pg_stat_activity where backend_type = $1";
    poll_until(kind, SOON, async || db.query_opt(sql, &[&kind]).await.unwrap().is_some()).await;
    db.query_one(sql, &[&kind]).await.unwrap().get(0)
}

/// A connection, as soon as the server lets one in.
async fn reconnect(cluster: &Cluster, database: &str) -> Client {
    let config = cluster.config().dbname(database).clone();
    poll_until("the server is back", SOON, async || config.connect(NoTls).await.is_ok()).await;
    cluster.connect(database).await
}

#[tokio::test]
async fn nothing_is_lost_or_done_twice_when_the_server_crashes_at_work() {
    const HELD: i64 = 20;
    let cluster = small_steps().start();
    cluster.allow(u32::MAX, "57P03 .* FATAL: +the database system is");
    let mut db = cluster.database("crash").await;
    run(&db, "select jobs.schedule('tick', 'every 1 second', 'tick', queue => 'ticks')").await;
    let victims = [Some("client backend"), Some("jobs worker"), Some("jobs launcher"), None];
    for (round, victim) in (1..).zip(victims) {
        // Leases that run out while the server is down.
        run(&db, &format!("select jobs.insert('held', queue => 'held', max_attempts => 1) from generate_series(1, {HELD});
                 select jobs.fetch('held', {HELD}, lease => '2 s')")).await;
        keep_busy(&db).await;
        match victim {
            Some(kind) => {
                let session = cluster.connect("postgres").await;
                let client = cluster.connect("postgres").await;
                let pid = if kind == "client backend" {
                    number(&client, "select pg_backend_pid()::bigint").await as i32
                } else {
                    process(&session, kind).await
                };
                cluster.kill9_backend(pid);
                // Once another one than the victim has ended, the server lets nobody in before it
                // is back.
                poll_until("the other sessions end", SOON, async || {
                    session.batch_execute("").await.is_err()
                })
                .await;
            }
            None => cluster.restart(Mode::Immediate),
        }
        db = reconnect(&cluster, "crash").await;
        let what = victim.unwrap_or("immediate shutdown");
        assert!(waiting(&db).await > 0, "{what}: in the middle of the work");
        hurry(&db).await;
        poll_until(what, SOON, async || {
            count(&db, "jobs.scheduled where queue = 'default'").await == 0
                && count(&db, "jobs.running").await == 0
        })
        .await;
        let counts = "select count(*) from jobs.jobs where";
        assert_eq!(
            number(&db, &format!("{counts} kind = 'flood' and state = 'available'")).await,
            round * CROWD,
            "{what}"
        );
        assert_eq!(
            number(&db, &format!("{counts} kind = 'held' and state = 'discarded'")).await,
            round * HELD,
            "{what}"
        );
        assert_eq!(count(&db, "jobs.errors").await, round * HELD, "{what}: each lost lease once");
        let ticks = number(&db, &format!("{counts} kind = 'tick'")).await;
        poll_until("ticks go on", SOON, async || {
            number(&db, &format!("{counts} kind = 'tick'")).await > ticks
        })
        .await;
    }
    run(&db, "select jobs.unschedule('tick')").await;
    assert_eq!(
        number(
            &db,
            "select count(*) - count(distinct scheduled_at) from jobs.jobs where kind = 'tick'"
        )
        .await,
        0,
        "no tick twice"
    );
    let ticks = count(&db, "jobs.jobs where kind = 'tick'").await;
    assert_each_in_one_place(&db, 4 * (CROWD + HELD) + ticks).await;
}

/// Stops the server, which fails if a session has not ended within a minute.
async fn stop(cluster: &Cluster, mode: Mode) {
    // Connections that were dropped are closed by tasks of this thread.
    seconds(0.2).await;
    cluster.stop(mode);
}

#[tokio::test]
async fn a_smart_shutdown_waits_for_sessions_but_not_for_the_worker() {
    let cluster = small_steps().start();
    let db = cluster.database("smart").await;
    keep_idle(&db, "smart").await;
    drop(db);
    // Less than the time that an idle worker stays.
    stop(&cluster, Mode::Smart).await;

    cluster.start_again();
    let db = cluster.connect("smart").await;
    keep_busy(&db).await;
    drop(db);
    stop(&cluster, Mode::Smart).await;

    cluster.start_again();
    let db = cluster.connect("smart").await;
    assert!(waiting(&db).await > 0, "it did not wait for the work");
    nothing_waits(&db).await;
    assert_each_in_one_place(&db, CROWD).await;
}

#[tokio::test]
async fn a_fast_shutdown_ends_a_worker_that_waits_for_a_lock() {
    let (cluster, db) = with("locked", &[]).await;
    let id = soon_due(&db).await;
    run(&db, "begin; lock table jobs.scheduled in access exclusive mode").await;
    let postgres = cluster.connect("postgres").await;
    comes_true(&postgres, "count(*) = 1 from pg_stat_activity where backend_type = 'jobs worker' and wait_event_type = 'Lock'").await;
    stop(&cluster, Mode::Fast).await;
    cluster.start_again();
    let db = cluster.connect("locked").await;
    becomes(&db, id, "available").await;
}

// --- settings ------------------------------------------------------------------------------------

/// Changes a setting and waits until the server's processes have read it.
async fn change(cluster: &Cluster, db: &Client, name: &str, value: &str) {
    let show = async || -> String {
        let row = db.query_one(&format!("show {name}"), &[]).await;
        row.unwrap().get(0)
    };
    let before = show().await;
    cluster.set(name, value);
    cluster.reload();
    poll_until(name, SOON, async || show().await != before).await;
    // All processes are told at once, but not all of them are as fast as this session.
    seconds(0.3).await;
}

#[tokio::test]
async fn the_size_of_a_batch_changes_on_reload() {
    let (cluster, db) = with("batches", &[]).await;
    for (size, transactions) in [("1000", 1), ("10", 6), ("30", 2)] {
        change(&cluster, &db, "jobs.batch_size", size).await;
        let before = number(&db, "select coalesce(max(id), 0) from jobs.jobs").await;
        flood(&db, 60).await;
        nothing_waits(&db).await;
        let sql =
            format!("select count(distinct xmin::text) from jobs.ready where job_id > {before}");
        assert_eq!(number(&db, &sql).await, transactions, "{size}");
    }
}

#[tokio::test]
async fn retention_changes_on_reload() {
    let (cluster, db) = with(
        "retention",
        &[
            ("jobs.interval", "50ms"),
            ("jobs.retention_completed", "-1"),
            ("jobs.retention_cancelled", "-1"),
            ("jobs.retention_discarded", "-1"),
        ],
    )
    .await;
    run(&db, "select jobs.insert(k, queue => k, max_attempts => 1) from unnest(array['completed', 'cancelled', 'discarded']) k;
         select jobs.complete(id, token) from jobs.fetch('completed');
         select jobs.fail(id, token, 'no') from jobs.fetch('discarded');
         select jobs.cancel(id) from jobs.jobs where kind = 'cancelled'").await;
    let finished = async || -> String {
        // Has the worker look now and not at its next visit.
        run(&db, "select jobs.installed()").await;
        let sql = "select coalesce(string_agg(state::text, ' ' order by state::text), '') from jobs.finished";
        scalar(&db, sql).await
    };
    let mut kept = vec!["cancelled", "completed", "discarded"];
    for gone in ["completed", "discarded", "cancelled"] {
        for _ in 0..4 {
            assert_eq!(finished().await, kept.join(" "));
            seconds(0.4).await;
        }
        change(&cluster, &db, &format!("jobs.retention_{gone}"), "1s").await;
        kept.retain(|state| *state != gone);
        poll_until(gone, SOON, async || finished().await == kept.join(" ")).await;
    }
}

#[tokio::test]
async fn the_log_level_changes_on_reload() {
    let (cluster, db) = with("talk", &[]).await;
    let said = |process: &str| {
        let of_process = format!(" {process} ");
        let log = cluster.log();
        log.lines().filter(|line| line.contains(&of_process) && line.contains("DEBUG:")).count()
    };
    keep_idle(&db, "talk").await;
    assert_eq!((said("jobs worker"), said("jobs launcher")), (0, 0));
    // The worker is there and idle.
    change(&cluster, &db, "jobs.log_min_messages", "debug5").await;
    run(&db, "select jobs.installed()").await;
    poll_until("they talk", SOON, async || said("jobs worker") > 0 && said("jobs launcher") > 0)
        .await;
    assert_eq!(said("client backend"), 0, "it is the worker's own level");
    change(&cluster, &db, "jobs.log_min_messages", "warning").await;
    let all_had_a_turn = async || {
        worker_goes_on(&db).await;
        workers_become(&db, "talk", 0).await;
        keep_idle(&db, "talk").await;
    };
    // In the middle of one they may talk on.
    all_had_a_turn().await;
    let before = (said("jobs worker"), said("jobs launcher"));
    all_had_a_turn().await;
    assert_eq!((said("jobs worker"), said("jobs launcher")), before);
}

#[tokio::test]
async fn the_interval_changes_on_reload() {
    let (cluster, db) = with("interval", &[("jobs.interval", "50ms")]).await;
    // From a deletion to the pass that clears the key away, which can wait, where a pass is just
    // over.
    let clear = async || {
        let id = insert(&db, r#"'k', unique_opts => '{"by_kind": true}'"#).await;
        run(&db, &format!("select jobs.delete({id})")).await;
        let claims = "select count(*) from jobs.unique_claims";
        poll_until("the key is cleared away", SOON, async || number(&db, claims).await == 0).await;
    };
    let latency = async || {
        clear().await;
        let begun = Instant::now();
        clear().await;
        begun.elapsed()
    };
    let becomes_short = async || {
        poll_until("it is short", 2 * SOON, async || latency().await < Duration::from_secs(1))
            .await;
    };
    becomes_short().await;
    change(&cluster, &db, "jobs.interval", "3s").await;
    // Not at once: with a new minute the worker writes what was counted, and clears keys, too.
    poll_until("it is long", 2 * SOON, async || latency().await > Duration::from_secs(2)).await;
    change(&cluster, &db, "jobs.interval", "50ms").await;
    becomes_short().await;
}

// --- prepared transactions -----------------------------------------------------------------------

#[tokio::test]
async fn a_prepared_transaction_that_locks_jobs_is_in_nobodys_way() {
    let (cluster, db) = with("prepared", &[("jobs.interval", "50ms")]).await;
    // It has jobs locked: cancelled, updated, completed, and a claim.
    let unique = r#"unique_opts => '{"by_kind": true}'"#;
    let cancelled = insert(&db, "'cancelled', scheduled_at => clock_timestamp() + '5 s'").await;
    let updated = insert(&db, "'updated', queue => 'never', expires_at => clock_timestamp() + '5 s', unique_opts => '{\"by_kind\": true}'").await;
    let completed = insert(&db, "'completed', queue => 'c'").await;
    let pruned = insert(&db, &format!("'pruned', {unique}")).await;
    run(
        &db,
        "select jobs.cancel(id) from jobs.jobs where kind = 'pruned';
         create table public.held as select id, token from jobs.fetch('c', lease => '5 s')",
    )
    .await;
    run(
        &db,
        &format!(
            r#"begin;
               select jobs.cancel({cancelled});
               select jobs.insert('updated', queue => 'never', priority => 2, unique_opts => '{{"by_kind": true, "on_conflict": {{"update": {{"available": ["priority"]}}}}}}');
               select jobs.complete(id, token) from public.held;
               select jobs.insert('pruned', {unique});
               prepare transaction 'locks'"#
        ),
    )
    .await;
    change(&cluster, &db, "jobs.retention_cancelled", "1s").await;
    seconds(5.2).await;
    // Now all of them are due, and cannot be handled. What else is due is, of every task.
    let id = soon_due(&db).await;
    becomes(&db, id, "available").await;
    let expiring =
        insert(&db, "'x', queue => 'never', expires_at => clock_timestamp() + '0.1 s'").await;
    becomes(&db, expiring, "discarded").await;
    insert(&db, "'x', queue => 'r', max_attempts => 1").await;
    let rescued = number(&db, "select id from jobs.fetch('r', lease => '0.1 s')").await;
    becomes(&db, rescued, "discarded").await;
    let other = insert(&db, "'x', queue => 'never'").await;
    run(&db, &format!("select jobs.cancel({other})")).await;
    poll_until("it is pruned", SOON, async || state(&db, other).await.is_none()).await;
    let states = async || {
        [state(&db, cancelled).await, state(&db, updated).await, state(&db, completed).await]
            .map(|state| state.unwrap_or_default())
    };
    assert_eq!(states().await, ["scheduled", "available", "running"]);
    assert_eq!(state(&db, pruned).await, None, "only its claim is locked");
    assert!(!cluster.log().contains("maintenance failed"));

    run(&db, "commit prepared 'locks'").await;
    // The completed job's lease ran out, but it was completed in time.
    poll_until("the rest is done", SOON, async || states().await == ["", "discarded", "completed"])
        .await;
    // Of no use to anybody but the next pass, so nothing wakes the worker for it.
    run(&db, "select jobs.maintain()").await;
    comes_true(&db, "count(*) = 0 from jobs.unique_note where kind = 'o'").await;
    let holder = "select count(*) from jobs.unique_claims c join jobs.jobs j on array[j.id] = c.holders where kind = 'pruned'";
    assert_eq!(number(&db, holder).await, 1, "the claim is the other job's");
    assert_eq!(count(&db, &format!("jobs.errors where job_id = {completed}")).await, 0);
}

// --- what was prepared ---------------------------------------------------------------------------

#[tokio::test]
async fn what_was_prepared_is_seen_to_when_it_commits_also_after_a_restart() {
    let cluster = Cluster::builder().without_visits().start();
    let db = cluster.database("prepared").await;
    let due = async |db: &Client, name: &str| {
        let due =
            "'k', queue => 'late', max_attempts => 1, scheduled_at => clock_timestamp() + '50 ms'";
        run(db, "begin").await;
        let id = insert(db, due).await;
        run(db, &format!("prepare transaction '{name}'")).await;
        id
    };
    let leased = async |db: &Client, name: &str| {
        let id = insert(db, "'k', queue => 'q', max_attempts => 1").await;
        run(db, "begin").await;
        let fetch = "select id from jobs.fetch('q', lease => '50 ms')";
        assert_eq!(number(db, fetch).await, id);
        run(db, &format!("prepare transaction '{name}'")).await;
        id
    };
    // No session comes back for what was over before it was prepared, though it is not committed
    // yet.
    let quiet = async |db: &Client| {
        workers_become(db, "prepared", 1).await;
        poll_until("no worker comes for a while", SOON, async || {
            for _ in 0..30 {
                if workers(db, "prepared").await > 0 {
                    return false;
                }
                seconds(0.05).await;
            }
            true
        })
        .await;
    };
    let seen_to = async |db: &Client, name: &str, id: i64, wanted: &str| {
        run(db, &format!("commit prepared '{name}'")).await;
        becomes(db, id, wanted).await;
    };
    let (first, second) = (due(&db, "due 1").await, due(&db, "due 2").await);
    let (third, fourth) = (leased(&db, "leased 1").await, leased(&db, "leased 2").await);
    quiet(&db).await;
    seen_to(&db, "due 1", first, "available").await;
    workers_become(&db, "prepared", 0).await;
    seen_to(&db, "leased 1", third, "discarded").await;

    // No session remembers then what they made.
    drop(db);
    cluster.restart(Mode::Immediate);
    let db = cluster.connect("prepared").await;
    quiet(&db).await;
    seen_to(&db, "due 2", second, "available").await;
    workers_become(&db, "prepared", 0).await;
    seen_to(&db, "leased 2", fourth, "discarded").await;

    // Once there are none any more, others' prepared transactions start no worker.
    history_is_written(&db).await;
    workers_become(&db, "prepared", 0).await;
    run(&db, "create table public.t (n int)").await;
    run(&db, "begin; insert into public.t values (1); prepare transaction 't'").await;
    run(&db, "commit prepared 't'").await;
    for _ in 0..20 {
        seconds(0.05).await;
        assert_eq!(workers(&db, "prepared").await, 0);
    }
}

// --- the regular visit ---------------------------------------------------------------------------

/// Both wait for the visit that comes once a minute, and so they wait together.
#[tokio::test]
async fn a_regular_visit_finds_what_wakes_nobody_and_costs_next_to_nothing() {
    tokio::join!(the_visit_finds_what_was_changed_by_hand(), idling_costs_next_to_nothing());
}

async fn the_visit_finds_what_was_changed_by_hand() {
    let (_cluster, db) = with("by_hand", &[]).await;
    insert(&db, "'late', queue => 'late', scheduled_at => clock_timestamp() + '1 day'").await;
    workers_become(&db, "by_hand", 1).await;
    workers_become(&db, "by_hand", 0).await;
    let begun = Instant::now();
    run(&db, "begin; update jobs.scheduled set due_at = clock_timestamp()").await;
    assert_eq!(waiting(&db).await, 1);
    run(&db, "commit").await;
    poll_until("the regular visit", 4 * SOON, async || waiting(&db).await == 0).await;
    println!("found by the visit after {:?}", begun.elapsed());
}

async fn idling_costs_next_to_nothing() {
    let cluster = Cluster::builder()
        .set("autovacuum", "off")
        .set("checkpoint_timeout", "1h")
        // Without a standby the server does not note by itself which transactions run.
        .set("wal_level", "minimal")
        .set("max_wal_senders", 0)
        .start();
    let db = cluster.database("quiet").await;
    insert(&db, "'x', scheduled_at => clock_timestamp() + '1 h'").await;
    workers_become(&db, "quiet", 1).await;
    history_is_written(&db).await;
    all_workers_ended(&db).await;
    let launcher = process(&db, "jobs launcher").await as u32;
    let cpu = || cluster.cpu_of(launcher) + cluster.cpu_of_ended_children();
    // The first visit tidies up what creating the extension left.
    let cpu_before = cpu();
    keep_idle(&db, "quiet").await;
    all_workers_ended(&db).await;
    let visit = cpu() - cpu_before;
    // Also a visit that no session sees leaves that.
    let last = "select max(last_run_at)::text from jobs.maintenance";
    let last_before = text(&db, last).await;
    let (cpu_before, wal_before, begun) = (cpu(), wal(&db).await, Instant::now());
    // No session comes or goes meanwhile: all children of the postmaster that end are workers.
    poll_until("the regular visit", 4 * SOON, async || {
        seconds(0.2).await;
        text(&db, last).await != last_before
    })
    .await;
    tokio::time::sleep(Duration::from_secs(65).saturating_sub(begun.elapsed())).await;
    all_workers_ended(&db).await;
    let used = cpu() - cpu_before;
    let share = used.as_secs_f64() / begun.elapsed().as_secs_f64();
    println!(
        "{used:?} in {:?}, after a visit of {visit:?}: {:.4} % of a core",
        begun.elapsed(),
        share * 100.0
    );
    assert_eq!(wal(&db).await, wal_before, "no WAL");
    // On a machine where a visit takes so long, no more than that one.
    assert!(
        share < 0.001 || (share < 0.003 && used <= 2 * visit),
        "{:.4} % of a core, {used:?} where a visit takes {visit:?}",
        share * 100.0
    );
    flood(&db, 50_000).await;
    poll_until("the crowd is done", 4 * SOON, async || waiting(&db).await == 1).await;
    all_workers_ended(&db).await;
    assert!(cpu() - cpu_before > 2 * used, "control: work is measured");
    assert_ne!(wal(&db).await, wal_before, "control: and written");
}

/// And their processor time is known: that of a child counts when its end has been noticed.
async fn all_workers_ended(db: &Client) {
    workers_become(db, "quiet", 0).await;
    seconds(0.5).await;
}

async fn wal(db: &Client) -> String {
    scalar(db, "select pg_current_wal_insert_lsn()::text").await
}

// --- processes -----------------------------------------------------------------------------------

#[tokio::test]
async fn nothing_of_ours_runs_while_the_server_is_upgraded() {
    let (cluster, db) = with("upgraded", &[]).await;
    workers_become(&db, "upgraded", 0).await;
    let id = soon_due(&db).await;
    becomes(&db, id, "available").await;
    drop(db);
    cluster.stop(Mode::Fast);
    cluster.start_with("-b");
    let db = cluster.connect("upgraded").await;
    let later = soon_due(&db).await;
    for sql in ["begin; select jobs.insert('x'); prepare transaction 'x'", "commit prepared 'x'"] {
        run(&db, sql).await;
    }
    seconds(1.0).await;
    assert_eq!(ours(&db).await, 0);
    assert_eq!(shared_memory(&db).await, 0);
    assert_eq!(state(&db, later).await.unwrap(), "scheduled");
    // Every way in that would use shared memory.
    for sql in [
        "select jobs.complete(id, token) from jobs.fetch('default', 1)",
        "select jobs.cancel(id) from jobs.insert('y', queue => 'q')",
        "call jobs.wait(timeout => '0.1 s', queue => 'nothing here')",
    ] {
        run(&db, sql).await;
    }
    assert_eq!(number(&db, "select rows from jobs.maintain() where task = 'schedule'").await, 1);
    assert_eq!(state(&db, later).await.unwrap(), "available");
    drop(db);
    cluster.restart(Mode::Fast);
    let db = cluster.connect("upgraded").await;
    worker_goes_on(&db).await;
}

/// Processes of the extension, in whatever database.
async fn ours(db: &Client) -> i64 {
    count(db, "pg_stat_activity where backend_type like 'jobs%'").await
}

/// Pieces of shared memory of the extension.
async fn shared_memory(db: &Client) -> i64 {
    count(db, "pg_shmem_allocations where name like 'jobs%'").await
}

#[tokio::test]
async fn work_resumes_when_others_leave_processes() {
    // One for the server's own launcher of logical replication, one for ours, one for a worker.
    let cluster =
        Cluster::builder().set("max_worker_processes", 3).set("max_parallel_workers", 3).start();
    cluster.allow(40, "57P01 parallel worker : FATAL: ");
    let complaints = || {
        let lines: Vec<String> = cluster.log().lines().map(String::from).collect();
        let said = |line: &String| line.contains("could not start a background worker");
        let at: Vec<usize> = (0..lines.len()).filter(|n| said(&lines[*n])).collect();
        for n in &at {
            assert!(
                lines[*n].contains("LOG:  jobs: could not")
                    && lines[*n].contains(" jobs launcher "),
                "{}",
                lines[*n]
            );
            let hint = lines.get(n + 1).expect("a hint");
            assert!(hint.contains("HINT:  Raise max_worker_processes."), "{hint}");
        }
        at.len()
    };
    let db = cluster.database("starved").await;
    let greedy = cluster.connect("starved").await;
    run(&greedy, FORCE_PARALLEL).await;
    for _ in 0..2 {
        let taken = greedy.cancel_token();
        let is_over = AtomicBool::new(false);
        let ((), done) = tokio::join!(
            async {
                let parallel =
                    "select count(*) from pg_stat_activity where backend_type = 'parallel worker'";
                let begun = Instant::now();
                while number(&db, parallel).await == 0 {
                    assert!(begun.elapsed() < SOON, "the process is not taken");
                    seconds(1.0).await;
                    if number(&db, parallel).await == 0 {
                        // Our own worker had the process just then.
                        taken.cancel_query(NoTls).await.unwrap();
                    }
                }
                let id = soon_due(&db).await;
                poll_until("it says so", SOON, async || complaints() == 1).await;
                seconds(3.0).await;
                assert_eq!(complaints(), 1, "once, and not again within a minute");
                assert_eq!(state(&db, id).await.unwrap(), "scheduled");
                is_over.store(true, Ordering::SeqCst);
                taken.cancel_query(NoTls).await.unwrap();
                becomes(&db, id, "available").await;
            },
            async {
                loop {
                    let done = greedy.batch_execute("select pg_sleep(60)").await;
                    if is_over.load(Ordering::SeqCst) {
                        return done;
                    }
                }
            }
        );
        assert_eq!(sqlstate(done), "57014");
    }
}

#[tokio::test]
async fn many_databases_share_few_processes() {
    const DATABASES: usize = 20;
    let cluster = Cluster::builder().set("max_worker_processes", 5).start();
    let postgres = cluster.connect("postgres").await;
    drop(cluster.database("pattern").await);
    let mut databases = Vec::new();
    for n in 0..DATABASES {
        let name = format!("db{n}");
        promptly(&postgres, &format!("create database {name} template pattern strategy file_copy"))
            .await;
        databases.push(cluster.connect(&name).await);
    }
    // All at once, and each has something to do every second.
    let mut jobs = Vec::new();
    for db in &databases {
        run(db, "select jobs.schedule('tick', 'every 1 second', 'tick')").await;
        jobs.push(soon_due(db).await);
    }
    let begun = Instant::now();
    for (db, id) in databases.iter().zip(&jobs) {
        poll_until("every database had its turn", 4 * SOON, async || {
            state(db, *id).await.unwrap() == "available"
        })
        .await;
    }
    println!("a turn of all took {:?}", begun.elapsed());
    // And again: nobody is forgotten.
    let before: Vec<i64> = ticks(&databases).await;
    let begun = Instant::now();
    poll_until("every database has its next turn", 4 * SOON, async || {
        let now = ticks(&databases).await;
        now.iter().zip(&before).all(|(now, before)| now > before)
    })
    .await;
    println!("the next one {:?}", begun.elapsed());
    assert_eq!(cluster.log().matches("could not start a background worker").count(), 1);
}

async fn ticks(databases: &[Client]) -> Vec<i64> {
    let mut ticks = Vec::new();
    for db in databases {
        ticks.push(count(db, "jobs.jobs where kind = 'tick'").await);
    }
    ticks
}

#[tokio::test]
async fn without_preload_nothing_runs_by_itself() {
    let cluster = Cluster::builder().without_preload().start();
    let db = cluster.database("plain").await;
    let ids = due_and_lost(&db).await;
    // The library came with the first call here; by LOAD in a session that calls nothing.
    let loading = cluster.connect("postgres").await;
    let known = "select count(*) from pg_settings where name = 'jobs.enabled'";
    assert_eq!(number(&loading, known).await, 0);
    run(&loading, "load 'jobs'").await;
    assert_eq!(number(&loading, known).await, 1, "control: it is loaded");
    assert_nothing_by_itself(&db, ids).await;
    assert_eq!((ours(&db).await, shared_memory(&db).await), (0, 0));
    cluster.reload();
    assert_nothing_by_itself(&db, ids).await;
    assert_eq!(ours(&db).await, 0);
    // Waiting, and telling others, do without shared memory.
    run(&db, "call jobs.wait(timeout => '0.1 s', queue => 'nothing here')").await;
    maintain_by_hand(&db, ids).await;
}

#[tokio::test]
async fn switched_off_nothing_runs_by_itself() {
    let (_cluster, db) = quiet("plain").await;
    let ids = due_and_lost(&db).await;
    run(&db, "load 'jobs'").await;
    assert_nothing_by_itself(&db, ids).await;
    assert_eq!(ours(&db).await, 1, "the launcher alone, which waits for a reload");
    maintain_by_hand(&db, ids).await;
}

async fn assert_nothing_by_itself(db: &Client, [due, lost]: [i64; 2]) {
    seconds(1.5).await;
    assert_eq!(state(db, due).await.unwrap(), "scheduled");
    assert_eq!(state(db, lost).await.unwrap(), "running");
    let workers = "pg_stat_activity where backend_type = 'jobs worker'";
    assert_eq!(count(db, workers).await, 0);
}

async fn maintain_by_hand(db: &Client, [due, lost]: [i64; 2]) {
    let tasks = texts(db, "select task || ' ' || rows || coalesce(error, '') from jobs.maintain() where rows > 0 or error is not null order by 1").await;
    assert_eq!(tasks, ["rescue 1", "schedule 1"]);
    assert_eq!(state(db, due).await.unwrap(), "available");
    assert_eq!(state(db, lost).await.unwrap(), "discarded");
}

/// A job that is due in a moment, and one whose lease is over then.
async fn due_and_lost(db: &Client) -> [i64; 2] {
    let lost = insert(db, "'lost', queue => 'lost', max_attempts => 1").await;
    run(db, "select jobs.fetch('lost', lease => '0.1 s')").await;
    [soon_due(db).await, lost]
}
