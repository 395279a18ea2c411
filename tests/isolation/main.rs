//! The suite `isolation`: interleavings of two to four sessions. Postgres' isolationtester runs
//! each specification of `specs/`, whose permutations say what each step answers
//! (`permutation.rs`).

mod permutation;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use jobs_tests::Cluster;
use jobs_tests::checks::feed;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/isolation");
const SETUP: &str = include_str!("setup.spec");

macro_rules! specifications {
    ($($name:ident)*) => {
        const ALL: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { as_expected(stringify!($name)); })*
    };
}
specifications! {
    cells forward serializable unique_batch unique_hold unique_locks unique_nowait unique_reap
    unique_single unique_takeover work_fetch work_finish_many work_heartbeat work_manage work_token
}

#[test]
fn every_specification_is_a_test() {
    let mut named: BTreeSet<String> = ALL.iter().map(|name| name.to_string()).collect();
    for file in fs::read_dir(Path::new(HERE).join("specs")).expect("specs") {
        let path = file.expect("a file").path();
        let name = path.file_stem().expect("a name").to_string_lossy();
        assert!(named.remove(&*name), "{} is no test", path.display());
    }
    assert!(named.is_empty(), "there is no file for {named:?}");
}

#[test]
fn a_wrong_expectation_fails() {
    let expected = "a1 b1... a2=1 b1=(2,x)(3,)\nb1!could not serialize access\n";
    assert_eq!(differences(expected, expected), "");
    for (right, wrong) in [("=1", "=2"), ("b1... a2=1", "a2=1 b1..."), ("b1!", "b2!")] {
        let came = expected.replacen(right, wrong, 1);
        assert_ne!(differences(expected, &came), "", "{came}");
    }
    assert_ne!(differences(expected, "a1 b1... a2=1 b1=(2,x)(3,)\n"), "");
    assert_ne!(differences(expected, &format!("{expected}a1\n")), "");
    assert_eq!(differences("a=1\nor a=2\nb=1\n", "a=2\nb=1\n"), "");
    assert_ne!(differences("a=1\nor a=2\nb=1\n", "a=3\nb=1\n"), "");
    assert_eq!(
        permutation::expected(
            "step a1 {}\npermutation a1 b1... c1(b1)...{x y} a2=1 b1=(2,x y) a1!\"no b\"\nor a1\n"
        ),
        (
            "step a1 {}\npermutation a1 b1 c1(b1) a2 a1\n".into(),
            "a1 b1... c1...{x y} a2=1 b1=(2,x y) a1!\"no b\"\nor a1\n".into()
        )
    );
}

/// Runs a specification and compares.
fn as_expected(name: &str) {
    let cluster = Cluster::builder()
        // What the background worker would do, a step does.
        .set("jobs.enabled", "off")
        // A discarded job is past its retention at once: unique_reap prunes it.
        .set("jobs.retention_discarded", 0)
        // It would change plans and reports between two statements.
        .set("autovacuum", "off")
        .start();
    let file = fs::read_to_string(format!("{HERE}/specs/{name}.spec"));
    let (spec, expected) = permutation::expected(&(SETUP.to_string() + &file.expect(name)));
    let came = permutation::lines(&spec, &isolationtester(&cluster, &spec));
    let differences = differences(&expected, &came);
    assert!(differences.is_empty(), "\n{differences}");
}

/// What isolationtester prints of a specification.
fn isolationtester(cluster: &Cluster, spec: &str) -> String {
    let create = "create extension jobs";
    let created = cluster.bin("psql").args(["-X", "-q", "-d", "postgres", "-c", create]).status();
    assert!(created.is_ok_and(|status| status.success()), "{create}");
    let pgxs = cluster.bin("pg_config").arg("--pgxs").output().expect("pg_config");
    let pgxs = String::from_utf8(pgxs.stdout).expect("UTF-8");
    let src = Path::new(pgxs.trim()).ancestors().nth(2).expect("it is in src/makefiles");
    let tester = src.join("test/isolation/isolationtester");
    let connection =
        format!("host={} user=postgres dbname=postgres", cluster.directory().display());
    let mut tester = cluster.program(&tester);
    tester.arg(connection).env_remove("RUST_BACKTRACE");
    tester.env("PGOPTIONS", "-c intervalstyle=postgres_verbose -c client_min_messages=warning");
    let (ended_well, printed) = feed(&mut tester, spec);
    assert!(ended_well, "{printed}");
    printed
}

/// The lines that are others than expected; empty: there are none. A line of the expectation that
/// begins with `or` is another answer for the one before, that of another major of Postgres.
fn differences(expected: &str, came: &str) -> String {
    let mut answers: Vec<Vec<&str>> = Vec::new();
    for line in expected.lines() {
        match (line.strip_prefix("or "), answers.last_mut()) {
            (Some(other), Some(last)) => last.push(other),
            _ => answers.push(vec![line]),
        }
    }
    let came: Vec<&str> = came.lines().collect();
    let mut differences = String::new();
    for n in 0..answers.len().max(came.len()) {
        let (answers, came) = (answers.get(n), came.get(n));
        if !answers.zip(came).is_some_and(|(answers, came)| answers.contains(came)) {
            let expected = answers.map(|answers| answers.join("\n     or ")).unwrap_or_default();
            let came = came.copied().unwrap_or_default();
            differences += &format!("line {}\nexpected {expected}\n    came {came}\n", n + 1);
        }
    }
    differences
}
