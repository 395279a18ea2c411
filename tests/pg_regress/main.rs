//! The suites `regress` and `regress_statements`: golden files. pg_regress runs each test of `sql/`
//! in a database of its own, so that none depends on what another one did, in the order of their
//! names. Where majors of Postgres answer differently, `expected/NAME_1.out` is the other answer.
//! A part is a part of a test's name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use jobs_tests::checks::{Checks, Outcome, output, succeeds, suite};
use jobs_tests::{Cluster, owned_directory, state_directory};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pg_regress");

fn main() -> ExitCode {
    suite(golden)
}

fn golden(checks: &mut Checks) {
    let cluster = Cluster::builder()
        // Only jobs.maintain() acts, so that what a test sees does not depend on the clock.
        .set("jobs.enabled", "off")
        // It would change plans and reports between two statements.
        .set("autovacuum", "off")
        // A worker for each database.
        .set("max_worker_processes", 64)
        .start();
    // The tests write to the tables by hand.
    cluster.allow_violations();
    let golden = Golden::copy(&cluster);
    let names: BTreeSet<String> = ["sql", "expected"].iter().flat_map(|part| names(part)).collect();
    let wanted: Vec<_> = names.iter().filter(|name| checks.wants(name)).collect();
    for name in &wanted {
        checks.check(name, golden.test(name));
    }
    match wanted.last() {
        None => checks.check(format!("a test is named {}", checks.part()), Err(String::new())),
        Some(name) => {
            golden.make_wrong(name);
            checks.refuses(
                format!("control: a wrong expectation of {name} fails"),
                golden.run(name, "control"),
            );
        }
    }
    checks.end(cluster);
}

/// The names of tests in a directory.
fn names(part: &str) -> Vec<String> {
    let files = fs::read_dir(Path::new(HERE).join(part)).expect(part);
    let name = |file: std::io::Result<fs::DirEntry>| {
        let file = file.expect(part).file_name().into_string().expect("a name");
        let name = file.strip_suffix(".sql").or(file.strip_suffix(".out"))?;
        Some(match name.rsplit_once('_') {
            Some((test, "1" | "2" | "3")) => test.into(),
            _ => name.into(),
        })
    };
    files.filter_map(name).collect()
}

/// A copy of the tests: user postgres may not be able to read the checkout, and the control changes
/// a file.
struct Golden<'a> {
    cluster: &'a Cluster,
    directory: PathBuf,
}

impl<'a> Golden<'a> {
    fn copy(cluster: &'a Cluster) -> Self {
        let directory = cluster.directory().join("golden");
        owned_directory(&directory);
        let mut copy = Command::new("cp");
        copy.arg("-r").args(["sql", "expected"].map(|part| Path::new(HERE).join(part)));
        succeeds(copy.arg(&directory)).expect("cp");
        Golden { cluster, directory }
    }

    /// Shows the difference, and keeps what came.
    fn test(&self, name: &str) -> Outcome {
        if !self.directory.join(format!("sql/{name}.sql")).exists() {
            return Err(format!("expected/{name}.out has no sql/{name}.sql"));
        }
        // A test without its expectation would be silently green in other runners; here it fails
        // and shows all its output.
        let expected = self.directory.join(format!("expected/{name}.out"));
        fs::OpenOptions::new().append(true).create(true).open(expected).expect("expected");
        self.run(name, name).map_err(|said| {
            let keep = state_directory().join("results");
            fs::create_dir_all(&keep).expect("a directory");
            let _ = fs::copy(
                self.directory.join(format!("results/{name}.out")),
                keep.join(format!("{name}.out")),
            );
            let differences = fs::read_to_string(self.directory.join("regression.diffs"));
            format!(
                "{}\nif it is right: cp {}/{name}.out tests/pg_regress/expected/",
                differences.unwrap_or(said),
                keep.display()
            )
        })
    }

    fn make_wrong(&self, name: &str) {
        for answer in ["", "_1", "_2", "_3"] {
            let path = self.directory.join(format!("expected/{name}{answer}.out"));
            if let Ok(expected) = fs::read_to_string(&path) {
                fs::write(&path, expected + "this must not be there\n").expect("expected");
            }
        }
    }

    fn run(&self, name: &str, database: &str) -> Outcome {
        let _ = fs::remove_file(self.directory.join("regression.diffs"));
        let postgres = self.cluster.postgres();
        let pgxs = postgres.config("--pgxs");
        let of_source = pgxs.ancestors().nth(2).expect("the directory of pgxs");
        let mut pg_regress = self.cluster.program(&of_source.join("test/regress/pg_regress"));
        let option = |name: &str, value: &Path| format!("--{name}={}", value.display());
        pg_regress
            .arg(option("bindir", &postgres.bindir))
            .arg(option("host", self.cluster.directory()))
            .args(["--port=5432", "--user=postgres", "--load-extension=jobs"])
            .arg(option("inputdir", &self.directory))
            .arg(option("outputdir", &self.directory))
            .arg(format!("--dbname=regress_{database}"))
            .arg(name);
        output(&mut pg_regress).map(|_| ())
    }
}
