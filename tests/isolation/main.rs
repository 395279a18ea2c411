//! The suite `isolation`: interleavings of two to four sessions. Postgres' isolationtester runs
//! each specification of `specs/`, and what it prints becomes a line for each permutation
//! (`permutation.rs`), which `expected/` has as well.

mod permutation;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use jobs_tests::Cluster;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/isolation");

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
    for directory in ["specs", "expected"] {
        for file in fs::read_dir(Path::new(HERE).join(directory)).expect(directory) {
            let path = file.expect(directory).path();
            let name = path.file_stem().expect("a name").to_string_lossy();
            assert!(ALL.contains(&&*name), "{} is no test", path.display());
            named.remove(&*name);
        }
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
    let read = |path: String| fs::read_to_string(Path::new(HERE).join(path)).unwrap_or_default();
    let spec = read(format!("specs/{name}.spec"));
    let came = permutation::lines(&spec, &isolationtester(&cluster, name));
    let differences = differences(&read(format!("expected/{name}.out")), &came);
    assert!(differences.is_empty(), "\n{differences}");
}

/// What isolationtester prints of a specification.
fn isolationtester(cluster: &Cluster, name: &str) -> String {
    let create = "create extension jobs";
    let created = cluster.bin("psql").args(["-X", "-q", "-d", "postgres", "-c", create]).status();
    assert!(created.is_ok_and(|status| status.success()), "{create}");
    let spec = fs::File::open(Path::new(HERE).join(format!("specs/{name}.spec")));
    let pgxs = cluster.bin("pg_config").arg("--pgxs").output().expect("pg_config");
    let pgxs = String::from_utf8(pgxs.stdout).expect("UTF-8");
    let src = Path::new(pgxs.trim()).ancestors().nth(2).expect("it is in src/makefiles");
    let tester = src.join("test/isolation/isolationtester");
    let connection =
        format!("host={} user=postgres dbname=postgres", cluster.directory().display());
    let output = cluster
        .program(&tester)
        .arg(connection)
        .env_remove("RUST_BACKTRACE")
        .env("PGOPTIONS", "-c intervalstyle=postgres_verbose")
        .stdin(spec.expect(name))
        .stderr(Stdio::inherit())
        .output()
        .expect("isolationtester");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
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
