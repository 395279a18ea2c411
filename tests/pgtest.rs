//! The suite `pgtest`: every function of src/ with the attribute `pg_test`, in a session of its own
//! whose transaction is rolled back. `error = ".."` in the attribute says how it ends. A part is a
//! part of a function's name.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};

use jobs_tests::checks::{Checks, Outcome, feed, output, same, suite};
use jobs_tests::{Cluster, ROOT};
use regex::Regex;

fn main() -> ExitCode {
    suite(in_the_server)
}

fn in_the_server(checks: &mut Checks) {
    let cluster = Cluster::builder()
        .faults("")
        .set("jobs.enabled", "off")
        .set("autovacuum", "off")
        .allow(6, "panics.on.purpose")
        .start();
    let tests = tests();
    cluster.psql("postgres", "create extension jobs; create schema tests");
    for (name, _) in &tests {
        cluster.psql("postgres", &format!("create function tests.{name}() returns void language c as '$libdir/jobs', '{name}_wrapper'"));
    }
    let wanted = tests.iter().filter(|(name, _)| checks.wants(name));
    let wanted: Vec<_> = wanted.collect();
    for (name, error) in &wanted {
        checks.check(name, ends(&cluster, name, error));
    }
    if wanted.is_empty() {
        checks.check(format!("a test is named {}", checks.part()), Err(String::new()));
    }
    checks.check(
        "what the library exports is the extension's functions and these tests",
        has_all(&cluster),
    );
    let on_purpose = |error| ends(&cluster, "panics_on_purpose", error);
    checks.refuses("control: a panic is a failure", on_purpose(""));
    checks.refuses("control: another error than expected is one", on_purpose("another error"));
    let content = ends(&cluster, "databases_have_names_in_any_encoding", "an error");
    checks.refuses("control: an error that does not come is one", content);
    cluster.psql("postgres", "drop function tests.panics_on_purpose");
    checks.refuses("control: a test that is not in the library is one", on_purpose(""));
    checks.refuses("control: a test that is not known is found", has_all(&cluster));
    checks.end(cluster);
}

/// The name of each, and the error that it ends with.
fn tests() -> Vec<(String, String)> {
    let attribute =
        Regex::new(r#"#\[pg_test(?:\(error = "(.*)"\))?\]\n *fn (\w+)"#).expect("a regex");
    let mut files = Command::new("find");
    let files = output(files.current_dir(ROOT).args(["src", "-name", "*.rs"])).expect("src");
    let mut all = Vec::new();
    for file in files.lines() {
        let text = std::fs::read_to_string(Path::new(ROOT).join(file)).expect("a file");
        for found in attribute.captures_iter(&text) {
            let error = found.get(1).map_or("", |error| error.as_str());
            all.push((found[2].to_string(), error.to_string()));
        }
    }
    all
}

/// A session that is lost says nothing more.
fn ends(cluster: &Cluster, name: &str, error: &str) -> Outcome {
    let mut psql = cluster.bin("psql");
    psql.args(["-X", "-q", "-A", "-t", "-d", "postgres"]);
    let script = format!("begin;\nselect tests.{name}();\n\\echo ended: :LAST_ERROR_MESSAGE\n");
    let (_, said) = feed(&mut psql, &script);
    let end = format!("ended: {error}");
    let ended = said.lines().any(|line| line.trim_end() == end.trim_end());
    ended.then_some(()).ok_or(said)
}

fn has_all(cluster: &Cluster) -> Outcome {
    let known =
        cluster.psql("postgres", "select prosrc from pg_proc where probin = '$libdir/jobs'");
    let library = cluster.postgres().config("--pkglibdir").join("jobs.so");
    let symbols =
        output(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).expect("nm");
    let exported =
        symbols.lines().filter_map(|line| line.split_once(" pg_finfo_").map(|(_, name)| name));
    let sorted = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join("\n");
    same(&sorted(known.lines().collect()), &sorted(exported.collect()))
}
