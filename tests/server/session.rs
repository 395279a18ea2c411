//! A session stays as it was, whatever somebody's triggers set while the extension is at work; and
//! theirs run with what the session has set.

use std::collections::BTreeMap;

use jobs_tests::{Client, blocked, quiet, rows_of, run, sqlstate};

/// What the extension sets for itself, with what a session may have set and what a trigger sets.
const SETTINGS: [(&str, &str, &str); 13] = [
    ("lock_timeout", "7s", "9s"),
    ("plan_cache_mode", "auto", "force_custom_plan"),
    ("jit", "on", "off"),
    ("enable_seqscan", "on", "off"),
    ("enable_bitmapscan", "on", "off"),
    ("enable_hashjoin", "on", "off"),
    ("enable_mergejoin", "on", "off"),
    ("enable_memoize", "on", "off"),
    ("enable_indexscan", "off", "on"),
    ("enable_indexonlyscan", "off", "on"),
    ("enable_tidscan", "off", "on"),
    ("enable_nestloop", "off", "on"),
    ("enable_sort", "off", "on"),
];

/// All that a session calls, in an order in which each finds what it is for. `:id` and `:token` are
/// those of the last fetch.
const CALLS: [&str; 24] = [
    "select id from jobs.insert('k')",
    "select id from jobs.insert('k', '1', '{\"by_args\": true}')",
    "select id from jobs.insert('k', '2', '{\"by_args\": true, \"wait\": false}')",
    "select id from jobs.insert('k', '2', '{\"by_args\": true, \"wait\": false, \"on_conflict\": \"replace\"}')",
    "select count(*) from jobs.insert_batch('k', '{3,4}', '{\"by_args\": true}')",
    "select count(*) from jobs.insert_batch('k', '{4,5,6}', '{\"by_args\": true, \"wait\": false, \"on_conflict\": \"replace\"}')",
    "select id from jobs.insert('k', '1', '{\"by_args\": true, \"on_conflict\": {\"update\": {\"*\": [\"priority\"]}}}', priority => 2)",
    "select id from jobs.insert('k', scheduled_at => clock_timestamp() + '1 ms')",
    "select jobs.configure_queue('limited', concurrency => 2)",
    "select id from jobs.insert('k', queue => 'limited')",
    "select id, token from jobs.fetch('limited')",
    "select jobs.heartbeat(:id, :token)",
    "select jobs.complete(:id, :token)",
    "select id, token from jobs.fetch()",
    "select jobs.fail(:id, :token, 'x', retry_in => '1 day')",
    "select id, token from jobs.fetch()",
    "select jobs.snooze(:id, :token, '1 day')",
    "select id, token from jobs.fetch()",
    "select jobs.release(:id, :token)",
    "select jobs.cancel(:id)",
    "select jobs.retry(:id)",
    "select jobs.delete(:id)",
    "select jobs.schedule('p', '* * * * *', 'k', unique_opts => '{\"by_kind\": true}')",
    "select count(*) from jobs.maintain()",
];

/// Has every table that jobs go through call a function for each row that is written.
const ATTACH: &str = "
    do $$ declare name text; begin
      for name in select relname from pg_class where relnamespace = 'jobs'::regnamespace and relkind = 'r' loop
        execute format('create trigger sets before insert or update or delete on jobs.%I for each row execute function public.sets()', name);
      end loop;
    end $$";

async fn settings(db: &Client) -> BTreeMap<String, String> {
    let names: Vec<&str> = SETTINGS.iter().map(|(name, ..)| *name).collect();
    let rows = db
        .query("select n, current_setting(n) from unnest($1::text[]) as n", &[&names])
        .await
        .expect("settings");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

fn expected(values: impl IntoIterator<Item = &'static str>) -> BTreeMap<String, String> {
    let names = SETTINGS.iter().map(|(name, ..)| name.to_string());
    names.zip(values.into_iter().map(str::to_string)).collect()
}

fn sessions_own() -> BTreeMap<String, String> {
    expected(SETTINGS.iter().map(|(_, value, _)| *value))
}

/// Sets what a session may have set.
async fn set(db: &Client) {
    for (name, value, _) in SETTINGS {
        run(db, &format!("set {name} = '{value}'")).await;
    }
}

/// A function for triggers that notes what it finds, and does that to each setting.
async fn trigger(db: &Client, does: &str) {
    let mut body = String::new();
    for (name, _, other) in SETTINGS {
        body += &format!(
            "insert into public.found values (tg_table_name, '{name}', current_setting('{name}')) on conflict do nothing;"
        );
        body += &does.replace(":name", name).replace(":other", other);
    }
    run(db, &format!("create table public.found (at text, name text, value text, unique (at, name, value));
             create function public.sets() returns trigger language plpgsql as $$ begin {body} return coalesce(new, old); end $$;
             {ATTACH}")).await;
}

/// Calls everything, each in a transaction of its own; `after` looks at the session after each.
async fn call_all(db: &Client, mut after: impl AsyncFnMut(&str)) {
    let (mut id, mut token) = (0i64, 0i64);
    for call in CALLS {
        let sql = call.replace(":id", &id.to_string()).replace(":token", &token.to_string());
        let rows = rows_of(db, &sql).await;
        if call.contains("jobs.fetch(") {
            (id, token) = (rows[0].get(0), rows[0].get(1));
        }
        after(call).await;
    }
}

/// Of each table that triggers were called for: the values of a setting that they found.
async fn found(db: &Client, name: &str) -> Vec<(String, String)> {
    let rows = db
        .query(
            "select distinct at, value from public.found where name = $1 order by 1, 2",
            &[&name],
        )
        .await
        .expect("found");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn what_triggers_set_for_their_transaction_ends_with_it() {
    let (_cluster, db) = quiet("local").await;
    let before = settings(&db).await;
    trigger(&db, "perform set_config(':name', ':other', true); set local :name = ':other';").await;
    set(&db).await;
    call_all(&db, async |call| {
        assert_eq!(settings(&db).await, sessions_own(), "after {call}");
    })
    .await;
    run(&db, "discard all").await;
    assert_eq!(settings(&db).await, before);
}

#[tokio::test]
async fn what_triggers_set_for_the_session_is_the_sessions() {
    let (_cluster, db) = quiet("session").await;
    let before = settings(&db).await;
    trigger(&db, "set :name = ':other';").await;
    call_all(&db, async |call| {
        assert_eq!(
            settings(&db).await,
            expected(SETTINGS.map(|(.., other)| other)),
            "after {call}"
        );
        run(&db, "reset all").await;
        assert_eq!(settings(&db).await, before, "after {call}");
    })
    .await;
    run(&db, "discard all").await;
    assert_eq!(settings(&db).await, before);
}

#[tokio::test]
async fn what_triggers_set_before_they_fail_is_undone() {
    let (_cluster, db) = quiet("failing").await;
    trigger(&db, "set :name = ':other'; set local :name = ':other'; if ':name' = 'enable_sort' then raise 'no' using errcode = 'P1234'; end if;").await;
    set(&db).await;
    for call in CALLS.iter().filter(|call| call.contains("insert")) {
        assert_eq!(sqlstate(db.query(*call, &[]).await), "P1234", "{call}");
        assert_eq!(settings(&db).await, sessions_own(), "after {call}");
        // Caught by a subtransaction, with the transaction going on.
        let caught = format!(
            "do $do$ begin perform {}; exception when sqlstate 'P1234' then null; end $do$; ",
            call.strip_prefix("select ").expect("a query")
        );
        run(&db, &format!("begin; {caught}")).await;
        assert_eq!(settings(&db).await, sessions_own(), "after {call}, caught");
        run(&db, "commit").await;
        assert_eq!(settings(&db).await, sessions_own(), "after {call}, caught");
    }
    // Maintenance goes on after one.
    run(&db, "select count(*) from jobs.maintain()").await;
    assert_eq!(settings(&db).await, sessions_own());
}

#[tokio::test]
async fn triggers_run_with_what_the_session_has_set() {
    let (_cluster, db) = quiet("own").await;
    trigger(&db, "").await;
    set(&db).await;
    call_all(&db, async |_| {}).await;
    for (name, value, _) in &SETTINGS[1..] {
        let found = found(&db, name).await;
        let tables: Vec<&str> = found.iter().map(|(table, _)| table.as_str()).collect();
        for table in ["job", "ready", "scheduled", "running", "finished", "error", "unique_claim"] {
            assert!(tables.contains(&table), "{table}: {tables:?}");
        }
        let others: Vec<_> = found.iter().filter(|(_, found)| found != value).collect();
        assert!(others.is_empty(), "{name}: {others:?}");
    }
}

/// The DETAIL of the error that a statement ends with.
async fn detail(db: &Client, sql: &str) -> Option<String> {
    let error = db.query(sql, &[]).await.expect_err(sql);
    let error = error.as_db_error().expect("the server's");
    error.detail().map(str::to_string)
}

/// Every server of these tests has `RUST_BACKTRACE` in its environment.
#[tokio::test]
async fn no_error_shows_a_backtrace() {
    let (_cluster, db) = quiet("backtrace").await;
    // Ours, with and without.
    for sql in [
        "select jobs.insert('k', max_attempts => 0)",
        "select jobs.cancel(4711)",
        "call jobs.wait(timeout => '-1 s')",
        "begin; select jobs.insert('k'); call jobs.wait()",
    ] {
        let error = db.batch_execute(sql).await.expect_err(sql);
        let detail = error.as_db_error().expect("the server's").detail();
        assert!(!detail.unwrap_or_default().contains('\n'), "{detail:?}");
        run(&db, "rollback").await;
    }
    // The server's own, and those of somebody's triggers, whether a subtransaction catches them on
    // the way or not.
    run(&db, "create function public.fails() returns trigger language plpgsql as $$ begin
           case new.kind when 'with' then raise 'no' using detail = 'a detail';
             when 'without' then raise 'no'; else new.max_attempts := 1 / 0; end case;
           return new; end $$;
         create trigger fails before insert on jobs.job for each row execute function public.fails()").await;
    for (kind, expected) in [("with", Some("a detail")), ("without", None), ("else", None)] {
        for call in [
            "insert('KIND')",
            "insert('KIND', unique_opts => '{\"by_kind\": true}')",
            "insert('KIND', unique_opts => '{\"by_kind\": true, \"wait\": false}')",
            "insert_batch('KIND', '{1,2}')",
            "insert_batch('KIND', '{1,2}', '{\"by_args\": true}')",
        ] {
            let sql = format!("select id from jobs.{}", call.replace("KIND", kind));
            assert_eq!(detail(&db, &sql).await.as_deref(), expected, "{sql}");
        }
    }
}

/// Not those that return rows of a type of ours: Postgres looks for the type before it calls them,
/// and the error is its own.
#[tokio::test]
async fn calls_that_the_extension_is_dropped_under_say_so() {
    let (cluster, db) = quiet("dropped").await;
    for call in [
        "select jobs.insert('k', unique_opts => '{\"by_kind\": true}')",
        "select jobs.complete(1, 1)",
        "select jobs.heartbeat(1, 1)",
        "select jobs.cancel(1)",
        "select jobs.schedule('s', '@daily', 's')",
    ] {
        let caller = cluster.connect("dropped").await;
        // What it remembers of the tables is about those that are dropped.
        run(&caller, "select jobs.insert('first'); select jobs.fetch('none')").await;
        run(&db, "begin; drop extension jobs").await;
        let calling = tokio::spawn(async move { sqlstate(caller.batch_execute(call).await) });
        blocked(&cluster.connect("postgres").await, 1).await;
        run(&db, "commit").await;
        let code = calling.await.unwrap();
        assert!(code != "00000" && !code.starts_with("XX"), "{call}: {code}");
        run(&db, "create extension jobs").await;
    }
}
