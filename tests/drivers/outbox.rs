//! The drivers' programs, unchanged, in databases that have outbox/outbox.sql and no extension, as
//! a role that may only insert. They end where their worker begins, and `pgjobs forward` carries
//! their jobs to a queue, which must have the contents that it has without an outbox.

use std::process::Command;

use jobs_tests::checks::{output, same, succeeds};
use jobs_tests::{Cluster, ROOT, pgjobs};

use crate::python_java_ruby::example;
use crate::{Driver, create_database, node_rust, pgbouncer, python_java_ruby};

pub fn directly(driver: &mut Driver) {
    for name in pgbouncer::PROGRAMS.into_iter().chain(node_rust::PROGRAMS) {
        driver.name = name;
        driver.database = format!("outbox_{name}");
        create_outbox(driver.cluster, &driver.database);
        if node_rust::PROGRAMS.contains(&name) { node_rust(driver) } else { runs(driver) }
    }
    driver.name = "psycopg";
    driver.database = "not_granted".into();
    create_outbox(driver.cluster, "not_granted");
    driver.sql("select jobs.revoke('app')");
    if let Some(mut program) = example(driver, "app") {
        driver.checks.finds(
            "control: outbox: a role without the grant is refused",
            "permission denied for schema jobs",
            output(&mut program).map(|_| ()),
        );
    }
}

/// A database whose owner is no superuser, and a queue.
pub fn create_outbox(cluster: &Cluster, name: &str) {
    cluster.psql("postgres", &format!("create database \"{name}\" owner owner"));
    let mut psql = cluster.client("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "owner", "-d", name]);
    psql.args(["-f", "outbox/outbox.sql", "-c", "select jobs.grant_producer('app')"]);
    psql.args(["-c", "grant create on schema public to app"]);
    output(psql.current_dir(ROOT)).expect("an outbox");
    let queue = format!("{name}_queue");
    create_database(cluster, &queue);
    cluster.psql(&queue, "select jobs.grant_producer('owner')");
}

/// What an example prints before its worker begins, and what it leaves at the queue and here.
struct Expected {
    report: String,
    left: &'static str,
    leaves: String,
    orders: &'static str,
}

/// With each of these replaced.
fn with<const N: usize>(text: &str, changes: [(&str, &str); N]) -> String {
    changes.iter().fold(text.into(), |text, (from, to)| text.replace(from, to))
}

/// Nothing is a duplicate or rejected before the queue has it.
pub fn runs(driver: &mut Driver) {
    let Some(mut program) = example(driver, "app") else {
        return;
    };
    program.env("TZ", "America/New_York");
    let report = with(
        &python_java_ruby::report(driver.name, !driver.is_pooled),
        [
            ("duplicate: true", "duplicate: false"),
            ("rejected: 23505, names the job: true\n", ""),
            ("types: scheduled", "types: available"),
            ("1 skipped", "0 skipped"),
        ],
    );
    let (leaves, _) = python_java_ruby::LEAVES.split_once("error: ").expect("an error");
    let available = "available in shipping, priority 1, attempt 0";
    let leaves = with(
        leaves,
        [
            ("retryable in shipping, priority 1, attempt 1", available),
            ("completed in shipping, priority 1, attempt 1", available),
            (r#"{"ok": true}"#, ""),
        ],
    );
    let orders = "order 2 of Bob, shipped f";
    carries(driver, program, Expected { report, left: python_java_ruby::LEFT, leaves, orders });
}

fn node_rust(driver: &mut Driver) {
    let Some(program) = node_rust::example(driver) else {
        return;
    };
    let report = node_rust::report(driver.name);
    let rejected = report.lines().find(|line| line.starts_with("reject: ")).expect("a line");
    let report = with(
        &report,
        [
            ("skipped false, then true", "skipped false, then false"),
            (&format!("{rejected}\n"), ""),
            ("types: scheduled", "types: available"),
            ("6 of 12", "12 of 12"),
            ("false,false,true", "false,false,false"),
        ],
    );
    let (leaves, _) = node_rust::LEAVES.split_once("bad: ").expect("an error");
    let leaves = with(
        leaves,
        [
            ("bad discarded", "bad available"),
            ("ok completed", "ok available"),
            (r#"{"done": true}"#, "-"),
        ],
    );
    let orders = "Grace 3";
    carries(driver, program, Expected { report, left: node_rust::LEFT, leaves, orders });
}

fn carries(driver: &mut Driver, mut program: Command, expected: Expected) {
    let pooled = if driver.is_pooled { "pgbouncer, " } else { "" };
    let what = |what: &str| format!("{pooled}outbox: {what}");
    let ended = output(&mut program).map(|_| ());
    let printed = ended.clone().err().unwrap_or_default().to_lowercase();
    let name = driver.name;
    driver.checks.finds(
        format!("{name}: {}", what("it ends where its worker begins")),
        r"function jobs\.fetch\(.* does not exist",
        ended,
    );
    let (report, _) = expected.report.split_once("worker: ").expect("a worker");
    let lines: Vec<_> = printed.lines().take(report.lines().count()).collect();
    driver.check(what("it reports what it must"), same(&report.to_lowercase(), &lines.join("\n")));

    let (of_queue, of_orders) = expected.left.rsplit_once('\n').expect("the orders come last");
    let (queue, cluster) = (format!("{}_queue", driver.database), driver.cluster);
    let left = || cluster.psql(&queue, of_queue);
    let leaves = expected.leaves;
    driver.refuses(what("control: the forwarder brings the jobs"), same(&leaves, &left()));
    let url = |database| format!("postgresql://owner@127.0.0.1:{}/{database}", cluster.port());
    let forward = |program| {
        let mut forward = Command::new(program);
        forward.args(["forward", "--once", "--from", &url(&driver.database), "--to", &url(&queue)]);
        succeeds(&mut forward)
    };
    driver.checks.finds(
        format!("{name}: {}", what("the queue refuses the job with on_conflict reject")),
        "1 row refused",
        pgjobs().and_then(forward),
    );
    driver.check(what("the queue holds what it must"), same(&leaves, &left()));
    let order = same(expected.orders, &driver.sql(of_orders));
    driver.check(what("the order stays"), order);
}
