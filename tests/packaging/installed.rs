//! The package in Debian's own Postgres: installed, used by a cluster made for it, and removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jobs_tests::checks::{Checks, Outcome, holds, output, same, succeeds};
use jobs_tests::{log, upgrade};

use crate::Packaging;

/// The cluster's name.
const NAME: &str = "jobs_packaging";

pub fn works(checks: &mut Checks, packaging: &Packaging, package: &Path) {
    let debian = Debian { packaging, package: format!("postgresql-{}-jobs", packaging.major()) };
    let tried = format!("dpkg -i {}", package.file_name().expect("a name").display());
    let user = output(Command::new("id").arg("-un")).expect("id");
    if user.trim() != "root" {
        return checks.skip(
            "the package is installed",
            tried,
            format!("{} is not root", user.trim()),
        );
    }
    if let Err(said) = debian.is_free() {
        return checks.skip("the package is installed", tried, said);
    }
    let _guard = Guard(&debian);
    let created = debian.create();
    if created.is_err() {
        return checks.check("a cluster is created", created);
    }
    let without = debian.ask("postgres", "create extension jobs").map(|_| ());
    checks.finds("control: without the package there is no extension", "is not available", without);

    checks.check("the package is installed", succeeds(Command::new("dpkg").arg("-i").arg(package)));
    let unchanged = succeeds(Command::new("dpkg").args(["-V", &debian.package]));
    checks.check("all its files are as they were packed", unchanged);
    checks.refuses("what is installed already would be noticed", debian.is_free());
    let preloaded =
        debian.set("shared_preload_libraries", "jobs").and_then(|()| debian.control("restart"));
    checks.check("the library is preloaded by pg_conftool and a restart", preloaded);
    for database in ["fresh", "old"] {
        debian.ask("postgres", &format!("create database {database}")).expect("a database");
    }
    extension(checks, &debian);
    upgrades(checks, &debian);
    installcheck(checks, &debian);

    debian.control("stop").expect("pg_ctlcluster");
    let path = format!("/var/log/postgresql/postgresql-{}-{NAME}.log", packaging.major());
    let log = fs::read(path).expect("a log");
    let log = String::from_utf8_lossy(&log);
    let found = log::findings(&log, &[]).join("\n");
    checks.check("the cluster's log is clean", holds(found.is_empty(), &found));
    checks.check("cluster and package are removed", debian.remove());
    checks.check("and nothing of it is left", debian.is_free());
}

fn extension(checks: &mut Checks, debian: &Debian) {
    let version = &debian.packaging.version;
    let created =
        "create extension jobs; select extversion from pg_extension where extname = 'jobs'";
    checks.check(
        "CREATE EXTENSION installs the newest version",
        debian.says("fresh", version, created),
    );
    let inserted = r#"select string_agg(i::text, ' ') from (
        select (jobs.insert('mail', '{"to": 1}', '{"by_args": true}')).unique_skipped_as_duplicate as i from generate_series(1, 2)) s"#;
    checks.check("a job is inserted, once", debian.says("fresh", "false true", inserted));
    let completed = "select jobs.complete(id, token) from jobs.fetch()";
    checks.check("fetched and completed", debian.says("fresh", "completed", completed));
    let later = "select jobs.insert('later', scheduled_at => now() + interval '1 s')";
    debian.ask("fresh", later).expect("a job");
    let is_due = debian.soon("fresh", "state = 'available' from jobs.jobs where kind = 'later'");
    checks.check("the background worker makes a job available when it is due", is_due);
    let maintained = debian.soon("fresh", "bool_or(last_run_at is not null) from jobs.maintenance");
    checks.check("and writes down its maintenance", maintained);
}

fn upgrades(checks: &mut Checks, debian: &Debian) {
    let version = &debian.packaging.version;
    let released = upgrade::released();
    if released.is_empty() {
        println!("nothing was released yet: there is no earlier version to upgrade from");
        let available = "select count(*) from pg_available_extension_versions where name = 'jobs'";
        checks.check("and none is installed", debian.says("old", "1", available));
    }
    for old in released {
        let create = format!(
            "drop extension if exists jobs; create extension jobs version '{old}'; select jobs.insert('mail')"
        );
        debian.ask("old", &create).expect("an old version");
        let upgraded = "alter extension jobs update; select extversion from pg_extension where extname = 'jobs'";
        checks.check(
            format!("ALTER EXTENSION UPDATE from {old}"),
            debian.says("old", version, upgraded),
        );
        let kept = "select kind || ' ' || jobs.complete(id, token) from jobs.fetch()";
        checks.check("and its job is kept", debian.says("old", "mail completed", kept));
    }
    let another =
        debian.says("fresh", "0.0.0", "select extversion from pg_extension where extname = 'jobs'");
    checks.finds("control: another answer is refused", r"-0\.0\.0", another);
}

/// `make installcheck` against the packaged extension: tests that pass, and one of them against a
/// wrong expectation.
fn installcheck(checks: &mut Checks, debian: &Debian) {
    let packaging = debian.packaging;
    let copy = packaging.copy("installcheck");
    debian
        .ask("postgres", "alter system set jobs.enabled = off; select pg_reload_conf()")
        .expect("a setting");
    let check = || {
        let mut make = Command::new("make");
        make.args(["-s", "-C"]).arg(&copy).args(["installcheck", "REGRESS=insert fetch"]);
        make.arg(format!("PG_CONFIG={}", packaging.pg_config().display()));
        make.env("PGHOST", packaging.scratch).env("PGPORT", "5432").env("PGUSER", "postgres");
        succeeds(make.env("CARGO_TARGET_DIR", packaging.scratch.join("target")))
    };
    checks.check("make installcheck runs tests against it", check());
    let test = copy.join("tests/pg_regress/sql/fetch.sql");
    let text = fs::read_to_string(&test).expect("a test");
    fs::write(&test, text + "--> this must not be there\n").expect("a test");
    checks.finds(
        "control: make installcheck with a wrong expectation fails",
        "FAILED +fetch",
        check(),
    );
}

/// Debian's Postgres, with the cluster.
struct Debian<'a> {
    packaging: &'a Packaging<'a>,
    package: String,
}

impl Debian<'_> {
    fn configuration(&self) -> PathBuf {
        PathBuf::from(format!("/etc/postgresql/{}/{NAME}", self.packaging.major()))
    }

    /// Nothing is there that this suite has not put there, or forgot.
    fn is_free(&self) -> Outcome {
        let major = self.packaging.major();
        for file in [
            self.packaging.debian.join("lib/jobs.so"),
            PathBuf::from(format!("/usr/share/postgresql/{major}/extension/jobs.control")),
            self.configuration(),
        ] {
            let wrong = format!(
                "{} exists, and is not this suite's to overwrite (dpkg -P {}, pg_dropcluster)",
                file.display(),
                self.package
            );
            holds(!file.exists(), wrong)?;
        }
        let status = output(Command::new("dpkg-query").args([
            "-W",
            "-f",
            "${db:Status-Status}",
            &self.package,
        ]));
        let is_installed = status.is_ok_and(|status| status == "installed");
        holds(!is_installed, format!("{0} is installed (dpkg -P {0})", self.package))
    }

    fn create(&self) -> Outcome {
        let mut create = Command::new("pg_createcluster");
        create.args([self.packaging.major(), NAME, "--start-conf", "manual", "--socketdir"]);
        create
            .arg(self.packaging.scratch)
            .args(["--locale", "C.UTF-8", "-e", "UTF8", "--", "-A", "trust"]);
        succeeds(&mut create)?;
        for (name, value) in [
            ("port", "5432"), // nobody else's: there is only its socket
            ("listen_addresses", ""),
            ("log_line_prefix", "%m [%p] %e %b %d: "),
            ("max_prepared_transactions", "10"),
            ("fsync", "off"),
        ] {
            self.set(name, value)?;
        }
        self.control("start")
    }

    fn set(&self, name: &str, value: &str) -> Outcome {
        let major = self.packaging.major();
        succeeds(Command::new("pg_conftool").args([major, NAME, "set", name, value]))
    }

    /// What it says goes to a file: a server that it starts would keep a pipe open.
    fn control(&self, action: &str) -> Outcome {
        let mut control = Command::new("pg_ctlcluster");
        control.args(["--skip-systemctl-redirect", self.packaging.major(), NAME, action]);
        control.current_dir("/").env_remove("RUST_BACKTRACE");
        let (ended_well, said) = jobs_tests::checks::feed(&mut control, "");
        holds(ended_well, said)
    }

    /// By Debian's psql, as a user of the package has it.
    fn ask(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = Command::new(self.packaging.debian.join("bin/psql"));
        psql.current_dir("/")
            .args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-h"])
            .arg(self.packaging.scratch);
        output(
            psql.args(["-p", "5432", "-U", "postgres", "-d", database])
                .args(sql.split("; ").flat_map(|one| ["-c", one])),
        )
    }

    fn says(&self, database: &str, expected: &str, sql: &str) -> Outcome {
        same(expected, &self.ask(database, sql)?)
    }

    fn soon(&self, database: &str, condition: &str) -> Outcome {
        let start = Instant::now();
        while self.ask(database, &format!("select {condition}"))?.trim() != "t" {
            let wrong = format!("after a minute it is still not true that {condition}");
            holds(start.elapsed() < Duration::from_secs(60), wrong)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Also what is there only in part.
    fn remove(&self) -> Outcome {
        let is_known = output(Command::new("dpkg-query").args(["-W", &self.package])).is_ok();
        let package = if is_known {
            succeeds(Command::new("dpkg").args(["-r", &self.package]))
        } else {
            Ok(())
        };
        let mut drop = Command::new("pg_dropcluster");
        drop.args(["--stop", self.packaging.major(), NAME]);
        let cluster = if self.configuration().exists() { succeeds(&mut drop) } else { Ok(()) };
        package.and(cluster)
    }
}

/// When it is dropped, neither cluster nor package is left.
struct Guard<'a>(&'a Debian<'a>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}
