//! Whatever inserts jobs has the options of `jobs.insert`: the other functions, the libraries, the
//! program.

use jobs_tests::{Client, with};

/// What a schedule says by itself of each job.
const OF_A_TICK: [&str; 3] = ["scheduled_at", "expires_at", "pending"];

/// Where options are declared, one a line: a file, and what is before the first of each group.
const DECLARED: [(&str, &[&str]); 5] = [
    (include_str!("../../clients/go/insert.go"), &["type InsertOpts struct {"]),
    (
        include_str!("../../clients/python/src/postgres_jobs/produce.py"),
        &["class Defaults(", "class InsertOptions(", "class Options("],
    ),
    (include_str!("../../clients/rust/src/new_job.rs"), &["pub struct NewJob {"]),
    (include_str!("../../clients/typescript/src/insert.ts"), &["export interface InsertOptions<"]),
    (include_str!("../../cli/src/insert.rs"), &["struct Insert {"]),
];

#[tokio::test]
async fn whatever_inserts_has_every_option() {
    let (_cluster, db) = with("options", &[]).await;
    let all = parameters(&db, "insert").await;
    assert_eq!(all[..2], ["kind", "args"]);
    assert_eq!(parameters(&db, "insert_batch").await, all);
    let scheduled = parameters(&db, "schedule").await;
    let of_a_job = |option: &&String| !OF_A_TICK.contains(&option.as_str());
    for option in all.iter().filter(of_a_job) {
        assert!(scheduled.contains(option), "schedule lacks {option}");
    }
    for (file, begins) in DECLARED {
        assert_eq!(lacking(&all[2..], file, begins), [""; 0], "{begins:?}");
    }
    // Control.
    let (file, begins) = DECLARED[0];
    assert_eq!(
        lacking(&["queue".into(), "time_out".into(), "colour".into()], file, begins),
        ["colour"]
    );
}

/// The names of a function's parameters.
async fn parameters(db: &Client, function: &str) -> Vec<String> {
    let sql = "select proargnames[:pronargs] from pg_proc where oid = ('jobs.' || $1)::regproc";
    db.query_one(sql, &[&function]).await.unwrap().get(0)
}

/// Those of these options that are not declared there, in whatever style the language has. The
/// program's `--at` and `--unique` are short.
fn lacking<'a>(options: &'a [String], file: &str, begins: &[&str]) -> Vec<&'a str> {
    let is_inside = |line: &&str| line.is_empty() || line.starts_with([' ', '\t']);
    let name = |line: &str| {
        let line = line.trim_start().trim_start_matches("pub ");
        let name = line.split(|c: char| !c.is_alphanumeric() && c != '_').next();
        name.unwrap_or_default().replace('_', "").to_lowercase()
    };
    let group = |begin: &&str| {
        let (_, declared) = file.split_once(begin).expect(begin);
        declared.lines().skip(1).take_while(is_inside).map(name).collect::<Vec<_>>()
    };
    let names: Vec<String> = begins.iter().flat_map(group).collect();
    let is_there = |option: &str| {
        [option, option.trim_end_matches("_opts"), option.trim_start_matches("scheduled_")]
            .iter()
            .any(|form| names.contains(&form.replace('_', "")))
    };
    options.iter().map(String::as_str).filter(|option| !is_there(option)).collect()
}
