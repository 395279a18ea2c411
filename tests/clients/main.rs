//! The suite `clients`: the worker libraries of clients/. The cases of clients/conformance, each
//! library with a driver of its own, its example, and what its registry would refuse. A part is a
//! library or `control`.

mod go;
mod python;
mod rust;
mod typescript;

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use jobs_tests::checks::{Checks, Outcome, feed, holds, same, succeeds, suite};
use jobs_tests::pgbouncer::{PgBouncer, need_pgbouncer};
use jobs_tests::{Cluster, ROOT, need, pgjobs, scratch_directory, state_directory};
use regex::Regex;

/// What the cases do to connections and servers, and what handlers say, is logged.
const EXPECTED: [(u32, &str); 12] = [
    (u32::MAX, "57P01 .* FATAL: +terminating connection due to administrator command"),
    (u32::MAX, "57P0[13] .* FATAL: +the database system is (starting up|shutting down)"),
    (u32::MAX, "57P01 .* ERROR: +mine"),
    (u32::MAX, "53300 .* FATAL: +too many connections for role .conformance_outside"),
    (u32::MAX, "28000 .* FATAL: +role .(conformance_(nobody|shut)|without rights' [0-9]+). "),
    (u32::MAX, "28P01 .* FATAL: +password authentication failed for user .conformance_password."),
    (u32::MAX, "3D000 .* FATAL: +database .(conformance_absent|no_such_database). "),
    // A case drops its own database.
    (u32::MAX, "57P01 jobs worker : FATAL: +terminating background worker"),
    (u32::MAX, "3D000 jobs worker : FATAL: +database [0-9]+ does not exist"),
    // A network that falls silent keeps connections that have not said yet who they are.
    (u32::MAX, "57014 .* FATAL: +canceling authentication due to timeout"),
    // Too much memory is what an output with too many elements takes.
    (8, "XX000 .* ERROR: +invalid memory alloc request size"),
    (u32::MAX, "XX000 .* (CONTEXT|STATEMENT): "),
];

fn main() -> ExitCode {
    suite(|checks| {
        if !checks.has(
            "the runner",
            "pip install, apt-get install",
            &["need_python", "clients", "clients/conformance/requirements.txt"],
        ) || !checks.has("faketime", "apt-get install faketime", &["need_packages", "faketime"])
        {
            return;
        }
        if let Err(error) = need_pgbouncer() {
            return checks.cannot("pgbouncer", "apt-get download pgbouncer", &error);
        }
        let libraries: [(&str, Conforms); 5] = [
            ("go", go::conforms),
            ("rust", rust::conforms),
            ("typescript", typescript::conforms),
            ("python", python::conforms),
            ("control", python::control),
        ];
        let program = match pgjobs() {
            Ok(program) => program,
            Err(said) => return checks.check("the program is built", Err(said)),
        };
        for (name, conforms) in libraries {
            if checks.wants(name) {
                Library::begins(checks, name, program, conforms);
            }
        }
    })
}

/// The tests of a library.
type Conforms = fn(&mut Library);

/// A library, and what its programs need: a server, and PgBouncer before it, with a database for
/// each of two modes.
struct Library<'a> {
    checks: &'a mut Checks,
    cluster: &'a Cluster,
    name: &'static str,
    environment: Vec<(&'static str, String)>,
    scratch: &'a Path,
}

impl Library<'_> {
    fn begins(checks: &mut Checks, name: &'static str, program: &Path, conforms: Conforms) {
        let mut builder = Cluster::builder().with_tcp().set("max_worker_processes", 64);
        for (times, line) in EXPECTED {
            builder = builder.allow(times, line);
        }
        let cluster = builder.start();
        // Of one role a password is asked.
        let rules = cluster.data().join("pg_hba.conf");
        let others = fs::read_to_string(&rules).expect("pg_hba.conf");
        let asks = "host all conformance_password 127.0.0.1/32 scram-sha-256\n";
        fs::write(&rules, format!("{asks}{others}")).expect("pg_hba.conf");
        cluster.psql("postgres", "select pg_reload_conf()");
        // The cases cut whatever they like.
        cluster.allow_violations();
        cluster.psql("postgres", "create database clients");
        cluster.psql("clients", "create extension jobs");
        let port = cluster.port();
        let pool =
            |mode| format!("{mode} = host=127.0.0.1 port={port} dbname=clients pool_mode={mode}\n");
        let settings = "default_pool_size = 40\nignore_startup_parameters = extra_float_digits";
        let pooler =
            PgBouncer::start(&cluster, &(pool("session") + &pool("transaction")), settings);
        let pooler = pooler.expect("PgBouncer");
        let scratch = scratch_directory();
        let mut library = Library {
            checks,
            cluster: &cluster,
            name,
            environment: vec![
                ("DATABASE_URL", format!("postgresql://postgres@127.0.0.1:{port}/clients")),
                ("JOBS_POOLED_URL", format!("postgresql://postgres@127.0.0.1:{}/", pooler.port)),
                ("JOBS_RESTART", cluster.pg_ctl_line("-m fast -w restart")),
                ("JOBS_PROGRAM", program.display().to_string()),
            ],
            scratch: scratch.path(),
        };
        conforms(&mut library);
        drop(pooler);
        checks.end(cluster);
    }

    fn check(&mut self, what: impl Display, outcome: Outcome) {
        self.checks.check(format!("{}: {what}", self.name), outcome);
    }

    fn cannot(&mut self, what: impl Display, tried: &str, error: &str) {
        self.checks.cannot(format!("{}: {what}", self.name), tried, error);
    }

    fn url(&self) -> &str {
        &self.environment[0].1
    }

    /// A program that finds its database, in the top of the checkout.
    fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(ROOT);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// A command of the library's own tools, in its directory. What waits for ever is to say which
    /// command it was.
    fn own(&self, directory: &str, command: &[&str]) -> Command {
        let mut own = self.program("timeout");
        own.current_dir(Path::new(ROOT).join("clients").join(directory));
        own.args(["-k", "10", "900"]).args(command);
        own
    }

    fn check_own(&mut self, what: &str, directory: &str, command: &[&str]) {
        let outcome = succeeds(&mut self.own(directory, command));
        self.check(what, outcome);
    }

    /// The conformance cases by a driver: how many passed and how many failed, and what was said.
    fn cases(
        &self,
        library: &str,
        options: &[&str],
        driver: &Command,
    ) -> (Option<(u32, u32)>, String) {
        let mut run = self.program(runner());
        run.arg("clients/conformance/run.py").arg(library).args(options).arg("--");
        run.arg(driver.get_program()).args(driver.get_args());
        let of_driver = driver.get_envs().filter_map(|(name, value)| Some((name, value?)));
        run.envs(of_driver);
        let (_, said) = feed(&mut run, "");
        let sum = Regex::new("^([0-9]+) passed, ([0-9]+) failed$").expect("a regex");
        let sum = said.lines().next_back().and_then(|line| sum.captures(line));
        let number = |text: &str| text.parse().expect("a number");
        (sum.map(|sum| (number(&sum[1]), number(&sum[2]))), said)
    }

    /// Each case is a test.
    fn every_case(&mut self, what: impl Display, options: &[&str], driver: &Command) {
        let (sum, said) = self.cases(self.name, options, driver);
        println!("{said}");
        if let Some((passed, failed)) = sum {
            self.checks.add(passed, failed);
        }
        self.check(what, holds(sum.is_some(), "the runner has no sum"));
    }

    /// docs/workers.md shows this file below the library's name, and the program works: it does a
    /// job, and ends in order.
    fn example(&mut self, file: &str, mut program: Command) {
        let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).expect(path);
        let page = read("docs/workers.md");
        let name = format!("*{}*", self.name);
        let below = page.lines().skip_while(|line| !line.to_lowercase().starts_with(&name));
        let shown = below
            .skip_while(|line| !line.starts_with("```"))
            .skip(1)
            .take_while(|line| *line != "```");
        let shown = shown.collect::<Vec<_>>().join("\n");
        self.check("docs/workers.md shows its example", same(&read(file), &shown));

        let sql = |script: &str| self.cluster.psql("clients", script).trim().to_string();
        let id = sql(
            r#"select id from jobs.insert('email.send', '{"to": "ada@example.org"}', queue => 'mail')"#,
        );
        let log = self.scratch.join("example.log");
        let output = || fs::OpenOptions::new().create(true).append(true).open(&log).expect("a log");
        let mut running = program
            .stdin(Stdio::null())
            .stdout(output())
            .stderr(output())
            .spawn()
            .expect("the example");
        let start = Instant::now();
        while sql(&format!("select state from jobs.jobs where id = {id}")) != "completed"
            && start.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = Command::new("kill").arg(running.id().to_string()).status();
        let status = running.wait().expect("the example");
        let said = fs::read_to_string(log).unwrap_or_default();
        let output = sql(&format!("select output from jobs.jobs where id = {id}"));
        let works = status.success()
            && said.contains("worker started")
            && said.contains("ada@example.org")
            && output == r#"{"sent": true}"#;
        self.check("the example works", holds(works, format!("{status}, {output}: {said}")));
    }
}

/// The Python that runs the cases.
fn runner() -> std::path::PathBuf {
    state_directory().join("clients/bin/python")
}

/// Installs packages for a library, if it can.
fn need_packages(library: &mut Library, packages: &[&str]) -> bool {
    let names = [&["need_packages"][..], packages].concat();
    let tried = format!("apt-get install {}", packages.join(" "));
    let needed = need(&names);
    needed.map_err(|error| library.cannot("its tools", &tried, &error)).is_ok()
}
