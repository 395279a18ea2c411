//! What a caller is told of input that is huge: which parameter it was, and no more than the
//! beginning of it.

use jobs_tests::{Client, quiet, run};

use jobs_tests::functions::{Function, Parameter, functions};

/// No message, DETAIL or HINT is longer, in characters: a few quotations of 100, and the words
/// around them.
const LONGEST: usize = 1000;

/// Stands for a text of 200,000 characters.
const HUGE: &str = "@";
const HUGE_TEXTS: [&str; 3] =
    ["repeat('x', 200000)", "repeat('日本', 100000)", "repeat('0', 200000)"];

/// Huge values of a type.
fn values(parameter: &Parameter) -> Vec<&'static str> {
    match (parameter.name.as_str(), parameter.type_name.as_str()) {
        ("unique_opts", "jsonb") => vec![
            r#"{"@": 1}"#,
            r#"{"by_args": "@"}"#,
            r#"{"by_args": ["@..b"]}"#,
            r#"{"by_args": ["@\\"]}"#,
            r#"{"by_args": ["@", "@a", "b@"]}"#,
            r#"{"by_meta": ["@"]}"#,
            r#"{"by_state": ["@"]}"#,
            r#"{"by_period": "@"}"#,
            r#"{"by_period": "          1 month@"}"#,
            r#"{"by_kind": true, "window": "@"}"#,
            r#"{"by_kind": true, "window_from": "@", "window": 1}"#,
            r#"{"by_kind": true, "hold_until": "@", "hold_for": 1}"#,
            r#"{"by_kind": true, "on_conflict": "@"}"#,
            r#"{"by_kind": true, "on_conflict": {"@": 1}}"#,
            r#"{"by_kind": true, "on_conflict": {"update": {"@": 1}}}"#,
            r#"{"by_kind": true, "on_conflict": {"update": {"*": ["@"]}}}"#,
            r#"{"key": ["@"]}"#,
            r#"{"wait": "@"}"#,
            r#"{"oban": {"@": 1}}"#,
            r#"{"oban": {"states": "@"}}"#,
            r#"{"oban": {"states": ["@"]}}"#,
            r#"{"oban": {"fields": ["@"]}}"#,
            r#"{"oban": {"period": "@"}}"#,
            r#"{"oban": {"period": ["@", "@", "@"]}}"#,
            r#"{"oban": {"period": [1, "@"]}}"#,
            r#"{"oban": {"timestamp": "@"}}"#,
            r#"{"oban": {"replace": ["@"]}}"#,
            r#"{"oban": {"replace": {"@": []}}}"#,
            r#"{"faktory": {"@": 1}}"#,
            r#"{"faktory": {"unique_for": 1, "unique_until": "@"}}"#,
            r#"{"ojs": {"@": 1}}"#,
            r#"{"ojs": {"keys": ["@"]}}"#,
            r#"{"ojs": {"keys": ["@", "@"]}}"#,
            r#"{"ojs": {"keys": ["args"], "args_keys": ["@"]}}"#,
            r#"{"ojs": {"keys": ["meta"], "meta_keys": ["@", "@"]}}"#,
            r#"{"ojs": {"period": "@"}}"#,
            r#"{"ojs": {"states": ["@"]}}"#,
            r#"{"ojs": {"on_conflict": "@"}}"#,
        ],
        ("retry", "jsonb") => vec![
            r#""@""#,
            r#"{"@": 1}"#,
            r#"{"strategy": "@"}"#,
            r#"{"initial": "@"}"#,
            r#"{"initial": ["@"]}"#,
            r#"{"max": "@"}"#,
            r#"{"coefficient": "@"}"#,
            r#"{"jitter": "@"}"#,
            r#"{"non_retryable": ["@*"]}"#,
            r#"{"non_retryable": ["@*.*"]}"#,
            r#"{"non_retryable": [["@"]]}"#,
        ],
        ("jobs", "jsonb") => vec![
            r#""@""#,
            r#"{"@": 1}"#,
            r#"["@"]"#,
            r#"[{"@": 1}]"#,
            r#"[{"@": null}]"#,
            r#"[{"kind": "@"}]"#,
            r#"[{"kind": ["@"]}]"#,
            r#"[{"kind": "k", "queue": "@"}]"#,
            r#"[{"kind": "k", "priority": "@"}]"#,
            r#"[{"kind": "k", "scheduled_at": "@"}]"#,
            r#"[{"kind": "k", "expires_at": "@"}]"#,
            r#"[{"kind": "k", "tags": "@"}]"#,
            r#"[{"kind": "k", "tags": [["@"]]}]"#,
            r#"[{"kind": "k", "timeout": "@"}]"#,
            r#"[{"kind": "k", "pending": "@"}]"#,
            r#"[{"kind": "k", "unique_opts": {"@": 1}}]"#,
            r#"[{"kind": "k", "retry": {"@": 1}}]"#,
        ],
        (_, "jsonb") => vec![r#"{"@": "@"}"#, r#"["@"]"#],
        (_, "text") => vec![
            "@",
            "\n@",
            "every @",
            "every           1 month@",
            "* * * * @",
            "@ * * * *",
            "*/@ * * * *",
            "1-@ * * * *",
            "0/@ * * * *",
            "0 @ * * * * *",
            "Europe/@",
        ],
        (_, "text[]") => vec!["{@}", "{a,\"\n@\"}"],
        _ => vec![],
    }
}

/// One that is good enough to get as far as the huge one.
fn good(parameter: &Parameter) -> &'static str {
    match (parameter.name.as_str(), parameter.type_name.as_str()) {
        ("cron", _) => "@daily",
        ("role", _) => "postgres",
        ("jobs", _) => "[]",
        ("args", "jsonb[]") => "{\"{}\"}",
        (_, "jsonb") => "{}",
        (_, "interval") => "1 s",
        (_, "bigint" | "integer") => "1",
        (_, "bigint[]") => "{1}",
        (_, "text[]") => "{}",
        _ => "k",
    }
}

/// The function's call with one huge value, each of the texts in turn.
fn calls(function: &Function, huge: &Parameter) -> Vec<String> {
    let mut calls = Vec::new();
    for value in values(huge) {
        for text in HUGE_TEXTS {
            let arguments = function.parameters.iter().filter_map(|parameter| {
                let Parameter { name, type_name, .. } = parameter;
                if name == &huge.name {
                    let value = value.replace('\n', "\\n").replace("\\\\", "\\\\\\\\");
                    Some(format!("{name} => replace(e'{value}', '{HUGE}', {text})::{type_name}"))
                } else if parameter.has_default {
                    None
                } else {
                    Some(format!("{name} => '{}'::{type_name}", good(parameter)))
                }
            });
            let arguments = arguments.collect::<Vec<_>>().join(", ");
            calls.push(match function.is_procedure {
                true => format!("call jobs.{}({arguments})", function.name),
                false => format!("select from jobs.{}({arguments})", function.name),
            });
        }
    }
    // A number of so many digits as Postgres can hold.
    if huge.type_name == "jsonb" && ["unique_opts", "retry", "jobs"].contains(&huge.name.as_str()) {
        for (opts, retry, jobs) in [
            (r#"{"by_period": 1@}"#, r#"{"initial": 1@}"#, r#"[{"kind": "k", "priority": 1@}]"#),
            (
                r#"{"by_period": 0.1@}"#,
                r#"{"coefficient": 1@}"#,
                r#"[{"kind": "k", "priority": 0.1@}]"#,
            ),
            (
                r#"{"by_kind": true, "window": 1@}"#,
                r#"{"jitter": 1@}"#,
                r#"[{"kind": "k", "timeout": 1@}]"#,
            ),
            (
                r#"{"oban": {"period": -1@}}"#,
                r#"{"max": -1@}"#,
                r#"[{"kind": "k", "max_attempts": -1@}]"#,
            ),
            (
                r#"{"ojs": {"period": 1@}}"#,
                r#"{"max": 0.1@}"#,
                r#"[{"kind": "k", "retry": {"max": 1@}}]"#,
            ),
        ] {
            let value = match huge.name.as_str() {
                "unique_opts" => opts,
                "retry" => retry,
                _ => jobs,
            };
            let value =
                format!("{} => replace('{value}', '@', repeat('7', 15000))::jsonb", huge.name);
            let others = function
                .parameters
                .iter()
                .filter(|parameter| !parameter.has_default && parameter.name != huge.name);
            let mut arguments: Vec<String> =
                others.map(|p| format!("{} => '{}'::{}", p.name, good(p), p.type_name)).collect();
            arguments.push(value);
            calls.push(format!("select from jobs.{}({})", function.name, arguments.join(", ")));
        }
    }
    calls
}

/// Whether what a call was refused with is short, and says what it is about; whether it was refused
/// at all.
async fn is_refused(db: &Client, call: &str) -> bool {
    let Err(error) = db.simple_query(call).await else {
        return false;
    };
    let error =
        error.as_db_error().unwrap_or_else(|| panic!("the session is lost after {call}: {error}"));
    let code = error.code().code();
    assert!(!code.starts_with("XX"), "{call}: {error:?}");
    for text in [Some(error.message()), error.detail(), error.hint()] {
        let length = text.unwrap_or_default().chars().count();
        assert!(length <= LONGEST, "{length} characters: {call}: {error:?}");
    }
    // Others are Postgres' own: of what a cast does not take.
    if error.routine() == Some("jobs") {
        let name = error.column().unwrap_or_default();
        assert_eq!(["22023", "22004"].contains(&code), !name.is_empty(), "{call}: {error:?}");
        let is_ours = |c: char| c.is_ascii_lowercase() || c == '_' || c == '*';
        assert!(name.chars().all(is_ours), "{call}: {name}");
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_values_are_cut() {
    let (_cluster, db) = quiet("errors").await;
    // A value that is accepted is reset.
    let mut refused = 0;
    let mut taken = Vec::new();
    for function in functions(&db).await {
        for parameter in &function.parameters {
            for call in calls(&function, parameter) {
                let undo = !function.is_procedure;
                if undo {
                    run(&db, "begin").await;
                }
                match is_refused(&db, &call).await {
                    true => refused += 1,
                    false => taken.push(call),
                }
                if undo {
                    run(&db, "rollback").await;
                }
            }
        }
    }
    assert!(refused > 500, "{refused} were refused, but not {taken:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn control_a_long_text_is_found() {
    let (cluster, db) = quiet("errors").await;
    let plant = "create function jobs.planted(kind text) returns void language plpgsql as
                 $$ begin raise 'no %', kind using errcode = '22023', column = 'kind'; end $$";
    run(&db, plant).await;
    let call = |text: &str| format!("select jobs.planted({text})");
    assert!(is_refused(&db, &call("'k'")).await);
    let session = cluster.connect("errors").await;
    let long = call("repeat('k', 1001)");
    let found = tokio::spawn(async move { is_refused(&session, &long).await }).await;
    assert!(found.is_err(), "it was not found");
}
