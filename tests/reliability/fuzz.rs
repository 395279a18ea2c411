//! Calls of every function with all that is nasty: an error that is meant for the caller, or an
//! answer, and nothing else.
//!
//! `JOBS_RELIABILITY_SEEDS` are numbers to begin with, separated by commas. Two sessions and the
//! background worker are at it at the same time, so a seed repeats the calls, not how they meet.
//! (tests/server/policy_fuzz.rs is about what policies mean; here they only must not break
//! anything.)

use std::collections::BTreeMap;
use std::time::Instant;

use jobs_tests::{Client, run, with};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use jobs_tests::figures::{duration, figure, variable};
use jobs_tests::functions::{Function, Parameter, functions};

/// What a type's arguments are chosen from, as SQL: first what makes sense, then the rest.
fn values(parameter: &Parameter) -> Vec<&'static str> {
    let name = parameter.name.as_str();
    match parameter.type_name.as_str() {
        "boolean" => vec!["true", "false", "null"],
        "integer" => vec![
            "1",
            "2",
            "100",
            "null",
            "0",
            "-1",
            "10000",
            "10001",
            "32767",
            "32768",
            "-32769",
            "2147483647",
            "-2147483648",
        ],
        "bigint" => vec![
            "(select id from public.held order by random() limit 1)",
            "(select token from public.held order by random() limit 1)",
            "(select max(id) from jobs.jobs)",
            "1",
            "7",
            "null",
            "0",
            "-1",
            "9223372036854775807",
            "-9223372036854775808",
            "9007199254740992",
        ],
        "double precision" => {
            vec!["1", "null", "0", "-1", "'NaN'", "'infinity'", "'-infinity'", "1e308", "5e-324"]
        }
        "interval" => vec![
            "'1 second'",
            "'0'",
            "'10 ms'",
            "'1 hour'",
            "null",
            "'-1 second'",
            "'-1 microsecond'",
            "'1 month'",
            "'1 mon -30 days'",
            "'178000000 years'",
            "'-178000000 years'",
            "'2147483647 days'",
            "'9223372036854 seconds'",
            "'1 year 1 month 1 day 01:01:01.000001'",
        ],
        "timestamp with time zone" => vec![
            "clock_timestamp()",
            "clock_timestamp() + '10 ms'",
            "clock_timestamp() + '1 hour'",
            "clock_timestamp() - '1 hour'",
            "null",
            "'epoch'",
            "'infinity'",
            "'-infinity'",
            "'4714-11-24 00:00:00+00 BC'",
            "'294276-12-31 23:59:59.999999+00'",
            "'0001-01-01 00:00+00'",
            "'2024-02-29 23:59:60+00'",
        ],
        "text" => {
            let sane = match name {
                "kind" | "queue" => vec!["'a'", "'b'", "'default'"],
                "worker" => vec!["'a'", "'fuzzed'"],
                "want" => vec!["'all'", "'any'"],
                "role" => vec!["'fuzzed'", "'fuzzed too'"],
                "cron" => vec![
                    "'* * * * *'",
                    "'@daily'",
                    "'every 1 second'",
                    "'every 90 minutes'",
                    "'0 0 29 2 *'",
                    "'60 * * * *'",
                    "'*/0 * * * *'",
                    "'every 0'",
                    "'every -1 s'",
                    "'0 0 31 2 *'",
                    "'1-5/999999999999 * * * *'",
                ],
                "time_zone" => {
                    vec!["'UTC'", "'Europe/Berlin'", "'Nowhere/Else'", "'<+99>-99'", "'EST5EDT'"]
                }
                "error_like" => vec!["'%'", "'a_'", r"'\'", r"'\\%'"],
                _ => vec!["'a'", "'b'"],
            };
            let nasty = vec![
                "null",
                "''",
                "' '",
                "E'\\x01'",
                "E'a\\nb'",
                "'ä😀'",
                "E'e\\u0301'",
                "E'\\uFFFF'",
                "repeat('x', 127)",
                "repeat('x', 128)",
                "repeat('ä', 100000)",
                "'''; drop schema jobs cascade; --'",
                "'%s%n%x'",
                "'{}'",
                "'null'",
                "'*'",
            ];
            [sane, nasty].concat()
        }
        "jsonb" => {
            let sane = match name {
                "unique_opts" => vec![
                    r#"'{"by_args": true}'"#,
                    r#"'{"by_kind": true, "on_conflict": "replace"}'"#,
                    r#"'{"key": "k", "on_conflict": "reject"}'"#,
                    r#"'{"by_args": ["a"], "hold_for": 1}'"#,
                    r#"'{"by_queue": true, "on_conflict": {"update": {"*": ["args", "priority", "scheduled_at", "tags", "queue"]}}}'"#,
                    r#"'{"key": "k", "window": "1 second", "wait": false}'"#,
                    r#"'{"oban": true}'"#,
                    r#"'{"faktory": {"unique_for": 0.5}}'"#,
                    r#"'{"ojs": {"keys": ["type", "args"]}}'"#,
                    r#"'{"oban": {"period": [1e400, "minutes"]}}'"#,
                    r#"'{"by_period": 1e-300}'"#,
                    r#"'{"by_period": "PT9223372036854775807S"}'"#,
                    r#"'{"hold_for": 1e15, "by_state": []}'"#,
                    r#"'{"by_args": ["a..b", "", "\\."]}'"#,
                    r#"'{"by_state": [null]}'"#,
                ],
                "retry" => vec![
                    r#"'"oban"'"#,
                    r#"'{"strategy": "constant", "initial": 0.01}'"#,
                    r#"'{"strategy": "exponential", "coefficient": 1e308, "max": 1e308}'"#,
                    r#"'{"strategy": "polynomial", "initial": 1e-320, "coefficient": -1}'"#,
                    r#"'{"jitter": 2}'"#,
                    r#"'{"non_retryable": [1]}'"#,
                ],
                "jobs" => vec![
                    r#"'[{"kind": "a"}]'"#,
                    r#"'[{"kind": "a", "unique_opts": {"by_args": true}}, {"kind": "a", "unique_opts": {"by_args": true}}]'"#,
                    r#"'[{"kind": "b", "pending": true}, {"kind": "b", "scheduled_at": "infinity"}]'"#,
                    r#"'[{"kind": "a", "args": null}]'"#,
                    r#"'[{"kind": 1}]'"#,
                    r#"'[{"kind": "a", "priority": 1e400}]'"#,
                    r#"'[[]]'"#,
                    r#"(select jsonb_agg(jsonb_build_object('kind', 'a', 'args', n, 'unique_opts', '{"by_args": true}'::jsonb)) from generate_series(1, 300) n)"#,
                ],
                "results" => vec![
                    r#"(select jsonb_agg(jsonb_build_object('id', id, 'token', token) || '{"do": "complete", "output": null}') from public.held)"#,
                    r#"(select jsonb_agg(jsonb_build_object('id', id, 'token', token) || '{"do": "fail", "error": "e", "retry_in": "PT1S"}') from (select * from public.held order by random() limit 2) held)"#,
                    r#"(select jsonb_agg(jsonb_build_object('id', id, 'token', token) || '{"do": "release"}') from (select * from public.held order by random() limit 2) held)"#,
                    r#"(select jsonb_agg(jsonb_build_object('id', id, 'token', token) || '{"do": "snooze", "delay": 1e-300}') from public.held)"#,
                    r#"'[{"id": 1e400, "token": 1, "do": "release"}]'"#,
                    r#"'[{"id": 1, "token": -9223372036854775809, "do": "release"}]'"#,
                    r#"'[{"id": 1, "token": 1, "do": "snooze", "delay": 1e300}]'"#,
                    r#"'[{"id": 1, "token": 1, "do": {"fail": []}}]'"#,
                    r#"'[[{"id": 1}]]'"#,
                ],
                _ => vec![r#"'{"a": 1}'"#, r#"'{"a": {"b": "x"}}'"#, r#"'{"type": "x"}'"#],
            };
            let nasty = vec![
                "null",
                "'null'",
                "'[]'",
                "'{}'",
                "'0'",
                "'-0.0'",
                "'1e400'",
                "'-1e-400'",
                "'123456789012345678901234567890.123456789'",
                r#"'"\ud83d\ude00"'"#,
                r#"'"e\u0301"'"#,
                "to_jsonb('NaN'::text)",
                "(repeat('[', 900) || repeat(']', 900))::jsonb",
                "(repeat('{\"a\":', 4000) || '1' || repeat('}', 4000))::jsonb",
                "to_jsonb(repeat('x', 200000))",
                "(select jsonb_object_agg(n, n) from generate_series(1, 3000) n)",
                r#"'{"": ""}'"#,
                r#"'{"\u00e9": 1, "e\u0301": 2}'"#,
                "to_jsonb(array_fill(0, array[5000]))",
            ];
            [sane, nasty].concat()
        }
        "text[]" => vec![
            "'{a}'",
            "'{a,b,default}'",
            "null",
            "'{}'",
            "'{a,null}'",
            "'{{a,b},{c,d}}'",
            "'[5:6]={a,b}'",
            "array_fill('a'::text, array[3000])",
            "array['', E'\\x02']",
            "array[repeat('x', 100000)]",
            "'{a,a,a}'",
        ],
        "jsonb[]" => vec![
            "array['{\"a\": 1}', '{\"a\": 2}']::jsonb[]",
            "array['{\"a\": 1}', '{\"a\": 1}']::jsonb[]",
            "array(select to_jsonb(n) from generate_series(1, 300) n)",
            "null",
            "'{}'",
            "array[null]::jsonb[]",
            "array[['1', '2'], ['3', '4']]::jsonb[]",
            "'[0:0]={1}'",
            "array['null', '1e400']::jsonb[]",
            "array_fill('{}'::jsonb, array[2000])",
        ],
        "bigint[]" => vec![
            "array(select id from public.held order by id limit 5)",
            "array(select token from public.held order by id limit 5)",
            "null",
            "'{}'",
            "'{1,null}'",
            "'{{1,2},{3,4}}'",
            "'[-3:-2]={1,2}'",
            "array_fill(7::bigint, array[3000])",
            "'{9223372036854775807,-1,0}'",
        ],
        "uuid" => vec![
            "'00000000-0000-0000-0000-00000000000a'",
            "gen_random_uuid()",
            "null",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        ],
        "uuid[]" => vec![
            "array[gen_random_uuid()]",
            "array[gen_random_uuid(), gen_random_uuid()]",
            "'{}'",
            "null",
            "array[null]::uuid[]",
            "'{00000000-0000-0000-0000-00000000000a,00000000-0000-0000-0000-00000000000a}'",
            "array[[gen_random_uuid(), gen_random_uuid()]]",
            "'[-3:-3]={00000000-0000-0000-0000-00000000000a}'",
            "array(select gen_random_uuid() from generate_series(1, 300))",
        ],
        "integer[]" => vec!["'{1}'", "'{1,2}'", "null", "'{}'", "'{1,1}'", "'{1,null}'", "'{-1}'"],
        "jobs.state[]" => vec![
            "'{available}'",
            "'{completed,running}'",
            "enum_range(null::jobs.state)",
            "null",
            "'{}'",
            "'{available,null}'",
            "'{{available},{running}}'",
            "'[7:7]={pending}'",
        ],
        other => panic!("no values of type {other}, which {name} has: tests/reliability/fuzz.rs"),
    }
}

/// Half of the time one of the first few, which make sense.
fn value(rng: &mut StdRng, parameter: &Parameter) -> String {
    let values = values(parameter);
    let first = values.len().min(3);
    let value = if rng.random() { values[..first].choose(rng) } else { values.choose(rng) };
    format!("{} => {}::{}", parameter.name, value.unwrap(), parameter.type_name)
}

fn call(rng: &mut StdRng, function: &Function) -> String {
    let Function { name, parameters, is_procedure } = function;
    let takes_token = parameters.iter().any(|p| p.name == "token") && rng.random();
    let mut arguments = Vec::new();
    for parameter in parameters {
        if parameter.has_default && rng.random_range(0..3) > 0 {
            continue;
        }
        arguments.push(match parameter.name.as_str() {
            "id" | "token" if takes_token => format!("{0} => held.{0}", parameter.name),
            _ => value(rng, parameter),
        });
    }
    let arguments = arguments.join(", ");
    if *is_procedure {
        format!("call jobs.{name}({arguments})")
    } else if takes_token {
        format!(
            "select * from (select id, token from public.held order by random() limit 1) held, jobs.{name}({arguments})"
        )
    } else {
        format!("select * from jobs.{name}({arguments})")
    }
}

/// What a caller may be told: of bad values (22, and where a cast refuses them, 54), of duplicates,
/// of being read only or in a transaction, of rivals, of what is not there or in another state, of
/// time that is up.
fn is_for_callers(code: &str) -> bool {
    code.starts_with("22")
        || code.starts_with("54")
        || [
            "23505", "25001", "25006", "40001", "40P01", "42704", "55000", "55P03", "57014",
            "P0002", "0LP01", "0A000",
        ]
        .contains(&code)
}

#[derive(Default)]
struct Answers {
    codes: BTreeMap<String, u64>,
    calls: u64,
    transactions: u64,
}

/// Transactions of a few calls each, until the time is over and there were enough.
async fn calls(db: &Client, functions: &[Function], seed: u64, least: u64) -> Answers {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut answers = Answers::default();
    let begun = Instant::now();
    while begun.elapsed() < duration() || answers.calls < least {
        let level = ["read committed", "repeatable read", "serializable"].choose(&mut rng).unwrap();
        let read_only = rng.random_range(0..6) == 0;
        let function = functions.choose(&mut rng).unwrap();
        let mut script = Vec::new();
        if !function.is_procedure || rng.random_range(0..4) == 0 {
            script.push(format!(
                "begin isolation level {level}{}",
                if read_only { " read only" } else { "" }
            ));
            // Procedures have to be alone.
            for n in 0..rng.random_range(1..4) {
                script.push(format!("savepoint s{n}"));
                let function = if n == 0 { function } else { functions.choose(&mut rng).unwrap() };
                script.push(call(&mut rng, function));
            }
            script.push(["commit", "commit", "rollback"].choose(&mut rng).unwrap().to_string());
        } else {
            script.push(call(&mut rng, function));
        }
        answers.transactions += 1;
        for sql in &script {
            let is_call = sql.contains("jobs.");
            answers.calls += u64::from(is_call);
            let Err(error) = db.simple_query(sql).await else {
                continue;
            };
            let shown = &sql[..sql.floor_char_boundary(2000)];
            let Some(error) = error.as_db_error() else {
                panic!("seed {seed}: the session is lost after {shown}: {error}");
            };
            let code = error.code().code();
            assert!(
                is_for_callers(code) && !error.message().contains("panicked"),
                "seed {seed}: {level} {shown}: {error:?}"
            );
            if error.routine() == Some("jobs") {
                // Ours say which parameter was bad.
                let is_named = error.column().is_some_and(|name| !name.is_empty());
                let is_about_input = ["22023", "22004"].contains(&code);
                assert_eq!(is_named, is_about_input, "seed {seed}: {shown}: {error:?}");
            }
            *answers.codes.entry(code.into()).or_default() += 1;
            if is_call && script.len() > 1 {
                // The others go on from the savepoint before it.
                let savepoint = script
                    [..script.iter().position(|one| std::ptr::eq(one, sql)).unwrap()]
                    .last()
                    .unwrap();
                let back = savepoint.replace("savepoint", "rollback to");
                db.simple_query(&back)
                    .await
                    .unwrap_or_else(|error| panic!("seed {seed}: {back}: {error}"));
            } else if script.len() > 1 {
                let _ = db.simple_query("rollback").await; // it failed at its commit
            }
        }
        if answers.transactions.is_multiple_of(20) {
            refill(db).await;
        }
    }
    answers
}

/// So that there is something to hold: whatever the calls have paused, limited or granted.
async fn refill(db: &Client) {
    let sql = r#"select jobs.resume_maintenance(); select jobs.resume_queue('default'), jobs.configure_queue('default'), jobs.define_kind('held');
                 select jobs.insert_batch('held', array_fill('{}'::jsonb, array[5]));
                 insert into public.held select id, token from jobs.fetch(max_jobs => 5);
                 delete from public.held where ctid <> all (array(select ctid from public.held order by id desc limit 50))"#;
    for statement in sql.split(';') {
        if let Err(error) = db.simple_query(statement).await {
            let code =
                error.code().unwrap_or_else(|| panic!("the session is lost: {error}")).code();
            assert!(is_for_callers(code), "{statement}: {error:?}");
        }
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("JOBS_RELIABILITY_SEEDS") {
        Ok(seeds) => seeds
            .split(',')
            .map(|seed| seed.trim().parse().expect("JOBS_RELIABILITY_SEEDS are numbers"))
            .collect(),
        Err(_) => vec![rand::random(), rand::random()],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_function_with_all_that_is_nasty() {
    let (cluster, db) = with("fuzz", &[("jobs.interval", "50 ms")]).await;
    run(&db, "create table public.held (id bigint, token bigint); create role fuzzed; create role \"fuzzed too\"").await;
    refill(&db).await;
    let mut functions = functions(&db).await;
    // A database with a cell number would refuse nearly everything.
    functions.retain(|function| function.name != "set_cell");
    let least = variable("JOBS_RELIABILITY_FUZZ_CALLS", 1500);
    let seeds = seeds();
    println!(
        "JOBS_RELIABILITY_SEEDS={}",
        seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
    );
    let mut tasks = Vec::new();
    let count = functions.len();
    for seed in seeds {
        let functions = functions.clone();
        let session = cluster.connect("fuzz").await;
        run(&session, "set statement_timeout = '2 s'; set lock_timeout = '1 s'; set client_min_messages = error").await;
        tasks.push(tokio::spawn(async move { calls(&session, &functions, seed, least).await }));
    }
    let mut all = Answers::default();
    for task in tasks {
        let answers = task.await.unwrap();
        all.calls += answers.calls;
        all.transactions += answers.transactions;
        for (code, count) in answers.codes {
            *all.codes.entry(code).or_default() += count;
        }
    }
    figure("fuzz", "functions", count);
    figure("fuzz", "calls", all.calls);
    figure("fuzz", "transactions", all.transactions);
    let codes: Vec<String> =
        all.codes.iter().map(|(code, count)| format!("{code} {count}")).collect();
    figure("fuzz", "errors_by_SQLSTATE", codes.join(", "));
    // Both kinds of ends were there: values that are refused do not stop everything.
    let failed: u64 = all.codes.values().sum();
    assert!(
        failed > all.calls / 20 && failed < all.calls * 19 / 20,
        "{failed} of {} calls failed",
        all.calls
    );
    jobs_tests::journal::assert_whole(&cluster.connect("fuzz").await).await;
}

#[test]
fn control_an_internal_error_is_not_for_callers() {
    for code in ["XX000", "XX001", "57P02", "42601", "42883", "23502", "21000", "P0001"] {
        assert!(!is_for_callers(code), "{code}");
    }
    assert!(is_for_callers("22023"));
}
