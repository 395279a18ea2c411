//! The suites `regress` and `regress_statements`: golden files. pg_regress runs each test of `sql/`
//! in a database of its own, so that none depends on what another one did, in the order of their
//! names. A test has its answers beside its statements (`psql.sh`). A part is a part of its name.

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
    let names = golden.names();
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

/// A copy of the tests: user postgres may not be able to read the checkout, and the control changes
/// a file. What psql.sh makes of a test is to be the test.
struct Golden<'a> {
    cluster: &'a Cluster,
    directory: PathBuf,
}

impl<'a> Golden<'a> {
    fn copy(cluster: &'a Cluster) -> Self {
        let directory = cluster.directory().join("golden");
        owned_directory(&directory);
        succeeds(Command::new("cp").args(["-r", &format!("{HERE}/.")]).arg(&directory))
            .expect("cp");
        let golden = Golden { cluster, directory };
        fs::create_dir(golden.directory.join("expected")).expect("a directory");
        for name in golden.names() {
            let test = golden.directory.join(format!("sql/{name}.sql"));
            fs::copy(test, golden.expected(&name)).expect("a test");
        }
        golden
    }

    fn names(&self) -> BTreeSet<String> {
        let tests = fs::read_dir(self.directory.join("sql")).expect("tests").map(|file| {
            let file = file.expect("a file").file_name().into_string().expect("a name");
            file.strip_suffix(".sql").expect("a test").into()
        });
        tests.collect()
    }

    fn expected(&self, name: &str) -> PathBuf {
        self.directory.join(format!("expected/{name}.out"))
    }

    /// Shows the difference, and keeps what came.
    fn test(&self, name: &str) -> Outcome {
        self.run(name, name).map_err(|said| {
            let keep = state_directory().join("results");
            fs::create_dir_all(&keep).expect("a directory");
            let keep = keep.join(format!("{name}.sql"));
            let _ = fs::copy(self.directory.join(format!("results/{name}.out")), &keep);
            let differences = fs::read_to_string(self.directory.join("regression.diffs"));
            format!(
                "{}\nif it is right: cp {} tests/pg_regress/sql/",
                differences.unwrap_or(said),
                keep.display()
            )
        })
    }

    fn make_wrong(&self, name: &str) {
        let expected = fs::read_to_string(self.expected(name)).expect("a test");
        let wrong = expected + "--> this must not be there\n";
        fs::write(self.expected(name), wrong).expect("a test");
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
            .arg(option("launcher", &self.directory.join("psql.sh")))
            .arg(format!("--dbname=regress_{database}"))
            .arg(name);
        output(&mut pg_regress).map(|_| ())
    }
}
