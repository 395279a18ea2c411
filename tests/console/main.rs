//! The suite `console`: the console on the jobs of clients/examples/company, by HTTP
//! (cli/tests/console) and in Debian's browser (tests/browser). A part is `http`, `browser` or
//! `controls`; `http/NAME` and `browser/NAME` are the tests of that name.

use std::process::{Command, ExitCode};

use jobs_tests::checks::{Checks, Outcome, feed, holds, suite};
use jobs_tests::{Cluster, ROOT, dev, pgjobs, state_directory};
use regex::Regex;

/// The database of the company's jobs.
const COMPANY: &str = "company";

/// What the tests do to sessions and servers is logged.
const EXPECTED: [(u32, &str); 5] = [
    (1000, "57P01 .* FATAL: +terminating connection due to administrator command"),
    (1000, "57P0[13] .* FATAL: +the database system is (starting up|shutting down)"),
    (1000, "28P01 .* FATAL: +password authentication failed"),
    (1000, "28000 .* FATAL: +role .* (is not permitted to log in|does not exist)"),
    (1000, "53300 .* FATAL: +too many connections for role"),
];

fn main() -> ExitCode {
    suite(console)
}

fn console(checks: &mut Checks) {
    if !checks.has("the company", "pip install", &["need_company"]) {
        return;
    }
    let builder = Cluster::builder().with_tcp().set("max_worker_processes", 64);
    let builder =
        EXPECTED.iter().fold(builder, |builder, (times, line)| builder.allow(*times, line));
    let cluster = builder.start();
    // The control writes to the tables by hand.
    cluster.allow_violations();
    let (socket, port) = (cluster.directory().display().to_string(), cluster.port().to_string());
    dev(&["create_company", &cluster.data().display().to_string(), &socket, &port])
        .expect("a company");
    let works = dev(&["run_company", &socket, &port, "--once"])
        .and_then(|_| dev(&["give_past", &socket, &port, "--odd"]));
    checks.check("the company's jobs are there", works.map(|_| ()));
    checks.check("and all invariants hold", in_order(&cluster));
    if let Err(said) = pgjobs() {
        return checks.check("the program is built", Err(said));
    }
    let part = checks.part().to_string();
    let (kind, name) = part.split_once('/').unwrap_or((&part, ""));
    if ["", "http"].contains(&kind) {
        http(checks, &cluster, name);
    }
    if ["", "browser"].contains(&kind)
        && checks.has("the browser", "apt-get install chromium, npm ci", &["need_browser"])
    {
        browser(checks, &cluster, name);
    }
    if ["", "controls"].contains(&kind) {
        cluster.psql(COMPANY, "update jobs.scheduled set due_at = 'infinity' where job_id = (select job_id from jobs.scheduled where state = 'retryable' limit 1)");
        checks.refuses("control: what does not hold is found", in_order(&cluster));
    }
    checks.end(cluster);
}

fn in_order(cluster: &Cluster) -> Outcome {
    let wrong = cluster.psql(COMPANY, "select * from jobs.check()");
    holds(wrong.is_empty(), wrong)
}

fn url(cluster: &Cluster) -> String {
    format!("postgresql://127.0.0.1:{}/{COMPANY}", cluster.port())
}

fn http(checks: &mut Checks, cluster: &Cluster, name: &str) {
    let test = |arguments: &[&str]| {
        let mut test = Command::new("cargo");
        test.current_dir(ROOT).args([
            "test",
            "--quiet",
            "-p",
            "postgres-jobs-cli",
            "--test",
            "console",
            "--",
        ]);
        test.env("JOBS_COMPANY_URL", url(cluster))
            .env("JOBS_RESTART", cluster.pg_ctl_line("-m fast -w restart"));
        test.args(arguments);
        test
    };
    // One of them promotes it.
    let standby = cluster.standby();
    // Most of them wait for something.
    let mut all = test(&["--test-threads", "6", name]);
    all.env("JOBS_STANDBY_URL", url(&standby))
        .env("JOBS_STANDBY_LOG", standby.data().join("server.log"));
    checks.add_cargo(all.env("JOBS_PROMOTE", standby.pg_ctl_line("-w promote")));
    checks.end(standby);
    // What disturbs all others.
    checks.add_cargo(&mut test(&["--ignored", "--test-threads", "1"]));
}

/// Counts tests by the last lines of Node's runner.
fn browser(checks: &mut Checks, cluster: &Cluster, name: &str) {
    const TEST: &str = r#"exec bash "$0/dev" call with_console "" node --test --test-name-pattern "$1" "$2/console.test.mjs""#;
    let mut node = Command::new("bash");
    node.args(["-c", TEST, ROOT, name]).arg(state_directory().join("browser"));
    let (_, said) = feed(node.env("JOBS_COMPANY_URL", url(cluster)), "");
    println!("{said}");
    let counted = |what: &str| {
        let line = Regex::new(&format!("(?m)^(?:#|ℹ) {what} ([0-9]+)$")).expect("a regex");
        line.captures_iter(&said).last().map_or(0, |line| line[1].parse().expect("a number"))
    };
    match (counted("pass"), counted("fail")) {
        (0, 0) => checks.check("a test in the browser", Err(String::new())),
        (passed, failed) => checks.add(passed, failed),
    }
}
