//! Every function again and again in one session, whose memory must not grow: what Postgres counts
//! in its contexts, and what the process has beside them.

use std::fs;

use jobs_tests::{Client, Cluster, number, run, seconds};

use jobs_tests::figures::{duration, figure, variable};
use jobs_tests::functions::{Function, functions};

/// A function's successful call as PL/pgSQL, where `f` and `i` are variables; and how much rarer
/// than others it is called. A failing call in a savepoint: `fails`, empty: with nulls. Each clears
/// away what it has made.
struct Call {
    name: &'static str,
    rarer: u64,
    works: &'static str,
    fails: &'static str,
}

const fn call(name: &'static str, works: &'static str, fails: &'static str) -> Call {
    Call { name, rarer: 1, works, fails }
}

const fn rare(name: &'static str, works: &'static str) -> Call {
    Call { name, rarer: 10, works, fails: "" }
}

/// In `works`: inserts a job, and fetches it into `f`.
const TAKE: &str =
    "perform jobs.insert('leak', queue => 'leak'); select * into strict f from jobs.fetch('leak');";
/// In `fails`: makes the database a cell; what fails afterwards takes that back.
const CELL: &str = "perform jobs.set_cell(1); perform jobs.place_queue('*', 1)";
/// Deletes what is left.
const CLEAR: &str = "perform jobs.cancel(j.job_id, force => true) from jobs.running j; perform jobs.delete_many(queue => 'leak')";

const CALLS: &[Call] = &[
    call("activate", "select id into i from jobs.insert('leak', queue => 'leak', pending => true); perform jobs.activate(i); CLEAR", "perform jobs.activate(-1)"),
    call("cancel", "select id into i from jobs.insert('leak', queue => 'leak'); perform jobs.cancel(i, 'for a reason'); CLEAR", "perform jobs.cancel(-1)"),
    call("cancel_many", "perform jobs.insert('leak', queue => 'leak'); perform jobs.cancel_many(queue => 'leak'); CLEAR", "perform jobs.cancel_many()"),
    call("cell_for", "perform jobs.cell_for('leak', '{\"a\": 1}', queue => 'leak')", "CELL; perform jobs.spread_queue('leak', '{\"by_args\": [\"a\"]}', '{1,2,3}'); perform jobs.cell_for('leak', '{\"a\": 1}', queue => 'leak'); perform jobs.cell_for('leak', queue => 'leak')"),
    rare("check", "perform jobs.check()"),
    call("complete", "TAKE perform jobs.complete(f.id, f.token, '{\"a\": [1, 2]}'); CLEAR", "TAKE perform jobs.complete(f.id, f.token + 1)"),
    call("complete_many", "TAKE perform jobs.complete_many(array[f.id], array[f.token]); CLEAR", "perform jobs.complete_many('{1}', '{}')"),
    call("configure_queue", "perform jobs.configure_queue('limited', 1 + (random() * 5)::int, 10, '1 minute', max_waiting => 5)", "perform jobs.configure_queue('limited', -1)"),
    rare("count_queues", "perform jobs.count_queues()"),
    call("define_kind", "perform jobs.define_kind('defined', priority => (random() * 9)::int)", "perform jobs.define_kind('defined', retry => '\"no such\"')"),
    call("define_limit", "perform jobs.define_limit('defined', '{\"by_args\": [\"a\"]}', '{b,a}', concurrency => 1 + (random() * 9)::int); perform jobs.drop_limit('defined')", "perform jobs.define_limit('defined', '{}')"),
    call("delete", "select id into i from jobs.insert('leak', queue => 'leak'); perform jobs.delete(i)", "perform jobs.delete(-1)"),
    call("delete_many", "perform jobs.insert('leak', queue => 'leak'); perform jobs.delete_many(queue => 'leak')", "perform jobs.delete_many()"),
    call("drop_limit", "perform jobs.define_limit('dropped', rate => 1, rate_period => '1 s'); perform jobs.drop_limit('dropped')", "perform jobs.drop_limit('')"),
    call("explain", "select id into i from jobs.insert('leak', queue => 'leak'); perform jobs.explain(i); CLEAR", "perform jobs.explain(-1)"),
    call("explain_unique", "perform jobs.explain_unique('leak', '{\"a\": {\"b\": 1.50}}', '{\"by_args\": true, \"by_period\": 60}')", "perform jobs.explain_unique('leak', '{}', '{\"by_arg\": true}')"),
    call("fail", "TAKE perform jobs.fail(f.id, f.token, 'an error', details => '{\"type\": \"x\"}'); CLEAR", "TAKE perform jobs.fail(f.id, f.token, 'an error', retry_in => '-1 s')"),
    call("fail_many", "TAKE perform jobs.fail_many(array[f.id], array[f.token], '{\"an error\"}', array['{\"type\": \"x\"}']::jsonb[]); CLEAR", "perform jobs.fail_many('{1}', '{1}', '{null}')"),
    call("fetch", "TAKE perform jobs.release(f.id, f.token); CLEAR", "perform jobs.fetch('leak', 0)"),
    call("fetch_any", "perform jobs.insert('leak', queue => 'leak'); select * into strict f from jobs.fetch_any('{nothing,leak}'); perform jobs.release(f.id, f.token); CLEAR", "perform jobs.fetch_any('{a,null}')"),
    call("finish_many", "TAKE perform jobs.finish_many(jsonb_build_array(jsonb_build_object('id', f.id, 'token', f.token, 'do', 'fail', 'error', 'e'))); CLEAR", "perform jobs.finish_many('[{\"id\": 1, \"token\": 1, \"do\": \"fial\"}]')"),
    rare("grant_admin", "perform jobs.grant_admin('leaker')"),
    rare("grant_application", "perform jobs.grant_application('leaker')"),
    rare("grant_operator", "perform jobs.grant_operator('leaker')"),
    rare("grant_producer", "perform jobs.grant_producer('leaker')"),
    rare("grant_viewer", "perform jobs.grant_viewer('leaker')"),
    rare("grant_worker", "perform jobs.grant_worker('leaker')"),
    call("forward", "perform jobs.forward(gen_random_uuid(), array[u.key], '[{\"kind\": \"leak\", \"queue\": \"leak\"}]') from (select gen_random_uuid() as key) u; CLEAR", "perform jobs.forward(gen_random_uuid(), array[gen_random_uuid()], '[{\"kid\": 1}]')"),
    call("forward_report", "perform jobs.forward_report('00000000-0000-0000-0000-00000000000a', 'leak', 1, now(), 0)", "perform jobs.forward_report(null, 'leak', 1, now(), 0)"),
    call("forwarded_open", "perform jobs.forwarded_open('00000000-0000-0000-0000-00000000000a')", "perform jobs.forwarded_open(null)"),
    rare("health", "perform jobs.health()"),
    call("heartbeat", "TAKE perform jobs.heartbeat(f.id, f.token, '1 minute', '{\"done\": 0.5}'); CLEAR", "perform jobs.heartbeat(-1, 1)"),
    call("heartbeat_many", "TAKE perform jobs.heartbeat_many(array[f.id], array[f.token]); CLEAR", "perform jobs.heartbeat_many('{1}', '{null}')"),
    call("history", "perform jobs.history('leak', 'leak', '1 day', '1 hour')", "perform jobs.history(step => '1 second')"),
    call("idle_runs", "perform jobs.idle_runs()", ""),
    call(
        "insert",
        "perform jobs.insert('leak', '{\"a\": \"ä\", \"b\": [1, 2.50]}', '{\"by_args\": [\"a\"]}', queue => 'leak', tags => '{x,y}', retry => '{\"strategy\": \"linear\"}');
         perform jobs.insert('leak', '{\"a\": \"ä\", \"b\": [3]}', '{\"by_args\": [\"a\"]}', queue => 'leak');
         perform jobs.insert('leak', '{\"a\": \"ä\"}', '{\"by_args\": [\"a\"], \"on_conflict\": \"replace\"}', queue => 'leak', scheduled_at => now() + '1 hour'); CLEAR",
        "perform jobs.insert('leak', '{}', '{\"by_args\": [\"a\", 1]}')",
    ),
    call(
        "insert_batch",
        "perform jobs.insert_batch('leak', array(select jsonb_build_object('n', n) from generate_series(1, 5) n), '{\"by_args\": true}', queue => 'leak'); CLEAR",
        "perform jobs.insert_batch('leak', array['{}', null]::jsonb[])",
    ),
    call(
        "insert_many",
        "perform jobs.insert_many('[{\"kind\": \"leak\", \"queue\": \"leak\"}, {\"kind\": \"leak\", \"queue\": \"leak\", \"unique_opts\": {\"by_kind\": true}}]'); CLEAR",
        "perform jobs.insert_many('[{\"kind\": \"leak\"}, {\"kid\": \"leak\"}]')",
    ),
    call("installed", "perform jobs.installed()", ""),
    call("is_copy_of_cell", "perform jobs.is_copy_of_cell()", ""),
    call("is_preloaded", "perform jobs.is_preloaded()", ""),
    call("last_id", "perform jobs.last_id()", ""),
    rare("maintain", "perform jobs.insert('leak', queue => 'leak', expires_at => now() + '1 us'); perform jobs.maintain(); CLEAR"),
    rare("metrics", "perform jobs.metrics()"),
    call("ojs_manifest", "perform jobs.ojs_manifest()", ""),
    call("order_key", "perform jobs.order_key('{\"by_args\": [\"a\"]}', 'q', 'k', '{\"a\": 1}', null)", "perform jobs.order_key('{}', 'q', 'k', null, null)"),
    call("order_queue", "perform jobs.order_queue('ordered', '{\"by_args\": [\"a\"]}', true, fair => true, weights => '{\"b\": 2}'); perform jobs.order_queue('ordered', null)", "perform jobs.order_queue('ordered', '{}')"),
    call("order_weight", "perform jobs.order_weight('{\"by_args\": [\"a\"]}', '{\"b\": 2}', '\"b\"')", "perform jobs.order_weight('{}', '{}', '1')"),
    call("override_limit", "perform jobs.define_limit('keyed', '{\"by_args\": [\"a\"]}', concurrency => 1); perform jobs.override_limit('keyed', '[1, 2]', 3); perform jobs.drop_limit('keyed')", "perform jobs.override_limit('no such', '1')"),
    call("pause_limit", "perform jobs.define_limit('keyed', '{\"by_args\": [\"a\"]}', concurrency => 1); perform jobs.pause_limit('keyed', '1', 'r'); perform jobs.drop_limit('keyed')", "perform jobs.pause_limit('no such')"),
    call("pause_maintenance", "perform jobs.pause_maintenance(); perform jobs.resume_maintenance()", ""),
    call("pause_periodic", "perform jobs.schedule('managed', '@daily', 'leak', queue => 'leak'); perform jobs.pause_periodic('managed', 'r'); perform jobs.resume_periodic('managed')", "perform jobs.pause_periodic('no such')"),
    call("pause_queue", "perform jobs.pause_queue('paused'); perform jobs.resume_queue('paused')", ""),
    call("place_queue", "null", "CELL; perform jobs.insert('leak', queue => 'leak'); perform jobs.place_queue('leak', 2)"),
    call("quiet_worker", "perform jobs.quiet_worker('leaker', 'why'); perform jobs.resume_worker('leaker')", "perform jobs.quiet_worker('')"),
    call("reinstate_cell", "null", "CELL; perform jobs.retire_cell('a'); perform jobs.reinstate_cell(); perform 1 / 0"),
    call("release", "TAKE perform jobs.release(f.id, f.token); CLEAR", "perform jobs.release(-1, 1)"),
    call("reset_queue", "perform jobs.configure_queue('taken back', 2); perform jobs.reset_queue('taken back')", "perform jobs.reset_queue('')"),
    call("resume_limit", "perform jobs.define_limit('keyed', '{\"by_args\": [\"a\"]}', concurrency => 1); perform jobs.pause_limit('keyed'); perform jobs.resume_limit('keyed'); perform jobs.drop_limit('keyed')", "perform jobs.resume_limit('no such')"),
    call("resume_maintenance", "perform jobs.resume_maintenance()", ""),
    call("resume_periodic", "perform jobs.schedule('managed', '@daily', 'leak', queue => 'leak'); perform jobs.pause_periodic('managed'); perform jobs.resume_periodic('managed')", "perform jobs.resume_periodic('no such')"),
    call("resume_queue", "perform jobs.pause_queue('paused'); perform jobs.resume_queue('paused')", "perform jobs.resume_queue('')"),
    call("resume_worker", "perform jobs.quiet_worker('leaker'); perform jobs.resume_worker('leaker')", "perform jobs.resume_worker(null)"),
    call("results", "TAKE perform jobs.complete(f.id, f.token, '{\"a\": 1}'); perform jobs.results(array[f.id, -1]); CLEAR", "perform jobs.results('{1,null}')"),
    call("retire_cell", "null", "CELL; perform jobs.retire_cell('a'); perform jobs.insert('leak')"),
    call("retry", "TAKE perform jobs.complete(f.id, f.token); perform jobs.retry(f.id, true); CLEAR", "perform jobs.retry(-1)"),
    call("retry_many", "TAKE perform jobs.complete(f.id, f.token); perform jobs.retry_many(queue => 'leak', error_like => '%', states => '{completed}'); perform jobs.retry_many(queue => 'leak', reset => true); CLEAR", "perform jobs.retry_many(max_jobs => 0)"),
    rare("revoke", "perform jobs.grant_worker('leaker'); perform jobs.revoke('leaker')"),
    call("run_periodic", "perform jobs.schedule('managed', '@daily', 'leak', queue => 'leak'); perform jobs.run_periodic('managed'); CLEAR", "perform jobs.run_periodic('no such')"),
    call("schedule", "perform jobs.schedule('leak', '*/5 3 * * 1-5', 'leak', time_zone => 'Europe/Berlin')", "perform jobs.schedule('leak', '* * *', 'leak')"),
    call("set_cell", "null", "CELL; perform jobs.set_cell(-1)"),
    call("set_cell_address", "null", "CELL; perform jobs.set_cell_address(2, 'a'); perform jobs.set_cell_address(2, '')"),
    rare("settings_digest", "perform jobs.settings_digest()"),
    call("show", "select id into i from jobs.insert('leak', queue => 'leak'); perform jobs.show(i); CLEAR", "perform jobs.show(-1)"),
    call("snooze", "TAKE perform jobs.snooze(f.id, f.token, '1 hour'); CLEAR", "perform jobs.snooze(-1, 1, '1 hour')"),
    call("spread_queue", "null", "CELL; perform jobs.spread_queue('leak', '{\"by_args\": [\"a\"]}', '{1,2}'); perform jobs.insert('leak', queue => 'leak')"),
    call("stop_worker", "perform jobs.stop_worker('leaker', 'why'); perform jobs.resume_worker('leaker')", "perform jobs.stop_worker('')"),
    call("takes_queue", "perform jobs.takes_queue('leak')", "perform jobs.takes_queue('')"),
    rare("top", "perform jobs.top()"),
    call("unblock", "perform jobs.unblock('leak', '1')", "perform jobs.unblock('leak', null)"),
    call("undefine_kind", "perform jobs.define_kind('taken back', priority => 3); perform jobs.undefine_kind('taken back')", "perform jobs.undefine_kind('')"),
    call("unplace_queue", "null", "CELL; perform jobs.place_queue('leak', 2); perform jobs.unplace_queue('leak'); perform 1 / 0"),
    call("unique_key", "perform jobs.unique_key('leak', '{\"b\": 1e3, \"a\": \"é\"}', '{\"by_args\": true, \"by_queue\": true}')", "perform jobs.unique_key('leak', null)"),
    call("unschedule", "perform jobs.schedule('gone', '@daily', 'leak'); perform jobs.unschedule('gone')", ""),
    call("update", "select id into i from jobs.insert('leak', queue => 'leak'); perform jobs.update(i, '{\"x\": 1}', priority => 3, tags => '{a}'); CLEAR", "perform jobs.update(-1, priority => 3)"),
    call("worker_beat", "perform jobs.worker_beat('leaker', '{a,b}', 1 + (random() * 100)::int, '{\"version\": \"1\"}')", "perform jobs.worker_beat('leaker', '{a,null}', 1)"),
    call("worker_leave", "perform jobs.worker_beat('leaker', '{a}', 1); perform jobs.worker_leave('leaker')", "perform jobs.worker_leave('')"),
    // A procedure that ends transactions: it is called by itself.
    call("wait", "", ""),
    call("wait_any", "", ""),
    call("wait_for", "", ""),
];

/// Bytes used in the session's contexts, and bytes of the process that it shares with no session.
#[derive(Clone, Copy)]
struct Memory {
    used: i64,
    anonymous: i64,
}

async fn memory(db: &Client, pid: i64) -> Memory {
    Memory {
        used: number(db, "select sum(used_bytes)::bigint from pg_backend_memory_contexts").await,
        anonymous: anonymous_memory(pid),
    }
}

/// RssAnon of a process, in bytes.
pub fn anonymous_memory(pid: i64) -> i64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    1024 * line.trim().trim_end_matches(" kB").parse::<i64>().expect("kB")
}

/// What a call that is repeated may leave behind. The slack is for what grows once, such as a table
/// that doubles.
const BYTES_A_CALL: i64 = 16;
const SLACK: i64 = 16 << 10;
/// The process takes whole pages, and malloc keeps some.
const ANONYMOUS_SLACK: i64 = 384 << 10;

/// What grew from the end of the second tenth of the calls to the last one, where that is too much.
/// What grows once is not a leak: it must do so twice.
async fn leak(db: &Client, pid: i64, sql: &str, calls: u64) -> Option<String> {
    let mut found = None;
    for _ in 0..2 {
        found = None;
        let mut early = memory(db, pid).await;
        for n in 1..=calls {
            db.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            if n == calls / 5 {
                early = memory(db, pid).await;
            }
        }
        let late = memory(db, pid).await;
        let counted = (calls - calls / 5) as i64;
        let (used, anonymous) = (late.used - early.used, late.anonymous - early.anonymous);
        if used > SLACK + BYTES_A_CALL * counted
            || anonymous > ANONYMOUS_SLACK + 2 * BYTES_A_CALL * counted
        {
            found = Some(format!(
                "{sql}: {used} bytes in contexts, {anonymous} in the process, after {counted} calls"
            ));
        } else {
            break;
        }
    }
    found
}

/// Makes `works_NAME` and `fails_NAME` of each function; what to call, and how often.
async fn prepare(db: &Client, functions: &[Function]) -> Vec<(String, u64)> {
    let calls_each =
        variable("JOBS_RELIABILITY_CALLS", (50 * duration().as_secs()).clamp(400, 20_000));
    let mut statements = Vec::new();
    for call in CALLS {
        let Call { name, rarer, works, fails } = call;
        let function = functions
            .iter()
            .find(|function| function.name == *name)
            .unwrap_or_else(|| panic!("there is no jobs.{name} any more"));
        let count = (calls_each / rarer).max(20);
        if function.is_procedure {
            let what = match *name {
                "wait" => "'leak'",
                "wait_any" => "'{leak,none}'",
                _ => "'{1,2}'",
            };
            statements.push((format!("call jobs.{name}({what}, '200 us')"), count));
            continue;
        }
        let nulls: Vec<String> = function
            .parameters
            .iter()
            .map(|p| format!("{} => null::{}", p.name, p.type_name))
            .collect();
        let fails = match *fails {
            "" => format!("perform jobs.{name}({})", nulls.join(", ")),
            fails => fails.replace("TAKE", TAKE).replace("CELL", CELL),
        };
        let works = works.replace("TAKE", TAKE).replace("CLEAR", CLEAR);
        let make = format!(
            "create function public.works_{name}() returns void language plpgsql as $f$ declare f record; i bigint; begin {works}; end $f$;
             create function public.fails_{name}() returns void language plpgsql as $f$ declare f record;
               begin begin {fails}; exception when others then null; end; end $f$"
        );
        db.batch_execute(&make).await.unwrap_or_else(|error| panic!("{make}: {error:?}"));
        statements.push((format!("select public.works_{name}()"), count));
        if !function.parameters.is_empty() {
            statements.push((format!("select public.fails_{name}()"), count));
        }
    }
    statements
}

/// So that only the calls count, and nothing is left over by what is rolled back.
async fn session(cluster: &Cluster) -> (Client, i64) {
    let db = cluster.database("leaks").await;
    run(&db, "create role leaker; set client_min_messages = error").await;
    let pid = number(&db, "select pg_backend_pid()::bigint").await;
    (db, pid)
}

#[tokio::test]
async fn no_function_leaks() {
    let cluster = Cluster::start();
    let (db, pid) = session(&cluster).await;
    let functions = functions(&db).await;
    for function in &functions {
        assert!(
            CALLS.iter().any(|call| call.name == function.name),
            "jobs.{} has no entry in tests/reliability/leaks.rs",
            function.name
        );
    }
    let statements = prepare(&db, &functions).await;
    let (mut total, mut leaks) = (0, Vec::new());
    let mut before = None;
    for (sql, count) in &statements {
        leaks.extend(leak(&db, pid, sql, *count).await);
        total += count;
        if before.is_none() {
            before = Some(memory(&db, pid).await);
        }
    }
    let (before, after) = (before.unwrap(), memory(&db, pid).await);
    figure("leaks", "functions", functions.len());
    figure("leaks", "kinds_of_calls,_half_of_them_failing", statements.len());
    figure("leaks", "calls", total);
    figure(
        "leaks",
        "contexts_after_the_first_function_and_after_the_last",
        format!("{} kB, {} kB", before.used >> 10, after.used >> 10),
    );
    figure(
        "leaks",
        "the_process_likewise",
        format!("{} kB, {} kB", before.anonymous >> 10, after.anonymous >> 10),
    );
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[tokio::test]
async fn control_what_leaks_is_found() {
    let cluster = Cluster::start();
    let (db, pid) = session(&cluster).await;
    run(&db, "create sequence n;
         create function public.prepares() returns void language plpgsql as $$ begin execute format('prepare p%s as select 1', nextval('n')); end $$;
         create function public.sets() returns void language plpgsql as $$ begin perform set_config('leak.s' || nextval('n'), repeat('x', 5000), false); end $$;
         create function public.nothing() returns void language plpgsql as $$ begin perform nextval('n'); end $$").await;
    seconds(0.1).await;
    assert_eq!(leak(&db, pid, "select public.nothing()", 400).await, None);
    // In a context of Postgres, and (before 16) in none.
    for sql in ["select public.prepares()", "select public.sets()"] {
        let found = leak(&db, pid, sql, 400).await.unwrap_or_else(|| panic!("{sql} is not found"));
        println!("found: {found}");
    }
}
