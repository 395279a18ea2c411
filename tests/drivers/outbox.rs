//! The programs of Python, Java and Ruby, unchanged, in databases that have outbox/outbox.sql and
//! no extension, as a role that may only insert. They end where their worker begins, and `pgjobs
//! forward` carries their jobs to a queue, which must hold what it holds without an outbox.

use std::process::Command;

use jobs_tests::checks::{output, same, succeeds};
use jobs_tests::{Cluster, ROOT, target_directory};

use crate::python_java_ruby::{LEAVES, LEFT, example, report};
use crate::{Driver, create_database, pgbouncer};

pub fn directly(driver: &mut Driver) {
    for name in pgbouncer::PROGRAMS {
        driver.name = name;
        driver.database = format!("outbox_{name}");
        create_outbox(driver.cluster, &driver.database);
        runs(driver);
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

/// Nothing is a duplicate or rejected before the queue has it.
pub fn runs(driver: &mut Driver) {
    let Some(mut program) = example(driver, "app") else {
        return;
    };
    let pooled = if driver.is_pooled { "pgbouncer, " } else { "" };
    let what = |what: &str| format!("{pooled}outbox: {what}");
    let ended = output(program.env("TZ", "America/New_York")).map(|_| ());
    let printed = ended.clone().err().unwrap_or_default().to_lowercase();
    let name = driver.name;
    driver.checks.finds(
        format!("{name}: {}", what("it ends where its worker begins")),
        r"function jobs\.fetch\(.* does not exist",
        ended,
    );
    let report = report(name, !driver.is_pooled)
        .replace("duplicate: true", "duplicate: false")
        .replace("rejected: 23505, names the job: true\n", "")
        .replace("types: scheduled", "types: available")
        .replace("1 skipped", "0 skipped");
    let (report, _) = report.split_once("worker: ").expect("a worker");
    let lines: Vec<_> = printed.lines().take(report.lines().count()).collect();
    driver.check(what("it reports what it must"), same(report, &lines.join("\n")));

    let (of_queue, of_orders) = LEFT.rsplit_once('\n').expect("the orders come last");
    let (queue, cluster) = (format!("{}_queue", driver.database), driver.cluster);
    let left = || cluster.psql(&queue, of_queue);
    let leaves: String = LEAVES
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("error: ") && !line.starts_with("order "))
        .collect();
    let leaves = leaves
        .replace(
            "retryable in shipping, priority 1, attempt 1",
            "available in shipping, priority 1, attempt 0",
        )
        .replace(
            "completed in shipping, priority 1, attempt 1",
            "available in shipping, priority 1, attempt 0",
        )
        .replace(r#"{"ok": true}"#, "");
    driver.refuses(what("control: the forwarder brings the jobs"), same(&leaves, &left()));
    let url = |database| format!("postgresql://owner@127.0.0.1:{}/{database}", cluster.port());
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "-p", "postgres-jobs-cli"]).current_dir(ROOT);
    let mut forward = Command::new(target_directory().join("debug/pgjobs"));
    forward.args(["forward", "--once", "--from", &url(&driver.database), "--to", &url(&queue)]);
    driver.checks.finds(
        format!("{name}: {}", what("the queue refuses the job with on_conflict reject")),
        "1 row refused",
        succeeds(&mut build).and_then(|()| succeeds(&mut forward)),
    );
    driver.check(what("the queue holds what it must"), same(&leaves, &left()));
    let order = same("order 2 of Bob, shipped f", &driver.sql(of_orders));
    driver.check(what("the order stays"), order);
}
