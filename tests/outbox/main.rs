//! The suite `outbox`: `outbox/outbox.sql`, in databases without the extension. A part is a part of
//! a name below.

mod parity;
mod plain;

use std::path::Path;
use std::process::{Command, ExitCode};

use jobs_tests::checks::{Outcome, feed, holds, output, suite};
use jobs_tests::{Cluster, ROOT};
use regex::Regex;

const OUTBOX: &str = "outbox/outbox.sql";
/// Of its databases. Nobody in there is a superuser.
const ROLES: &str =
    "create role app login; create role producer login; create role forwarder login";

fn main() -> ExitCode {
    suite(|checks| {
        parity::runs(checks);
        plain::runs(checks);
    })
}

/// psql as one who may read the checkout, in its top.
fn psql(cluster: &Cluster, database: &str, user: &str) -> Command {
    let mut psql = cluster.client("psql");
    psql.args(["-X", "-q", "-At", "-d", database, "-U", user]).current_dir(ROOT);
    psql
}

/// What psql prints of a script, whether its statements succeed or not.
fn says(psql: &mut Command, script: &str) -> String {
    let (_, said) = feed(psql.args(["-f", "-"]), script);
    let place = Regex::new("(?m)^psql:[^ ]*: |^LOCATION: .*\n").expect("a regex");
    place.replace_all(&said, "").into_owned()
}

fn install(cluster: &Cluster, database: &str, user: &str) -> Outcome {
    let mut psql = psql(cluster, database, user);
    output(psql.args(["-v", "ON_ERROR_STOP=1", "-f", OUTBOX])).map(|_| ())
}

/// A database of app's with an outbox.
fn create_database(cluster: &Cluster, name: &str) {
    cluster.psql("postgres", &format!("create database \"{name}\" owner app"));
    install(cluster, name, "app").expect("an outbox");
}

/// A script of this directory, or what it prints.
fn read(name: &str) -> String {
    let path = Path::new(ROOT).join("tests/outbox").join(name);
    std::fs::read_to_string(path).expect(name)
}

/// An error with this message, and nothing done.
fn refused(outcome: Outcome, message: &str) -> Outcome {
    let said = outcome.err().unwrap_or_default();
    holds(said.contains(&format!("ERROR:  {message}\n")), said)
}
