//! The suite `drivers`: drivers and ORMs as their users use them. The programs of
//! clients/examples/ run, each against a database of its own, and what they print and leave in the
//! queue is compared with what docs/ promise. A part is a part of a driver's name.

mod node_rust;
mod outbox;
mod pgbouncer;
mod python_java_ruby;

use std::fmt::Display;
use std::process::{Command, ExitCode};

use jobs_tests::checks::{Checks, Outcome, suite};
use jobs_tests::{Cluster, ROOT};

/// The tests of a driver's program.
type Runs = fn(&mut Driver);

/// The databases.
const DRIVERS: [(&str, Runs); 14] = [
    ("psycopg", python_java_ruby::runs),
    ("sqlalchemy", python_java_ruby::runs),
    ("django", python_java_ruby::django),
    ("jdbc", python_java_ruby::runs),
    ("activerecord", python_java_ruby::runs),
    ("outbox", outbox::directly),
    ("pgbouncer", pgbouncer::runs),
    ("node_postgres", node_rust::runs),
    ("drizzle", node_rust::runs),
    ("prisma", node_rust::runs),
    ("knex", node_rust::runs),
    ("tokio_postgres", node_rust::runs),
    ("sqlx", node_rust::runs),
    ("diesel", node_rust::runs),
];

fn main() -> ExitCode {
    suite(drivers)
}

fn drivers(checks: &mut Checks) {
    let settings = Cluster::builder().set("max_worker_processes", 64);
    let cluster = settings.with_tcp().start();
    cluster.psql("postgres", "create role app login; create role owner login");
    let mut found = false;
    for (name, runs) in DRIVERS {
        if checks.wants(name) {
            found = true;
            create_database(&cluster, name);
            let port = cluster.port();
            runs(&mut Driver {
                checks,
                cluster: &cluster,
                name,
                database: name.into(),
                port,
                is_pooled: false,
            });
        }
    }
    let named = found.then_some(()).ok_or(String::new());
    let part = checks.part().to_string();
    checks.check(format!("there is a driver whose name has {part:?}"), named);
    checks.end(cluster);
}

/// A fresh database with the extension. The role app owns it, and may produce and work.
fn create_database(cluster: &Cluster, name: &str) {
    cluster.psql("postgres", &format!("create database \"{name}\" owner app"));
    cluster.psql(
        name,
        "create extension jobs; select jobs.grant_producer('app'), jobs.grant_worker('app')",
    );
}

/// A driver whose program runs.
struct Driver<'a> {
    checks: &'a mut Checks,
    cluster: &'a Cluster,
    name: &'static str,
    database: String,
    port: u16,
    /// Behind a pooler that gives each transaction another connection.
    is_pooled: bool,
}

impl Driver<'_> {
    fn check(&mut self, what: impl Display, outcome: Outcome) {
        self.checks.check(format!("{}: {what}", self.name), outcome);
    }

    fn refuses(&mut self, what: impl Display, outcome: Outcome) {
        self.checks.refuses(format!("{}: {what}", self.name), outcome);
    }

    /// By the Unix socket, as superuser.
    fn sql(&self, script: &str) -> String {
        self.cluster.psql(&self.database, script)
    }

    /// A program of clients/examples/ that finds its database by psql's variables and
    /// `DATABASE_URL`.
    fn program(&self, program: &str, user: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["120", program]).current_dir(ROOT);
        command.env("PGHOST", "127.0.0.1").env("PGPORT", self.port.to_string());
        command.env("PGUSER", user).env("PGDATABASE", &self.database);
        command.env("DATABASE_URL", self.url(user));
        command
    }

    fn url(&self, user: &str) -> String {
        format!("postgresql://{user}@127.0.0.1:{}/{}", self.port, self.database)
    }
}
