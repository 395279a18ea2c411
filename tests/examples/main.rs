//! The suite `examples`: the programs of clients/examples/ that are run alone. A part is
//! `checksum` or the language of a worker.

mod checksum;
mod workers;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use jobs_tests::Cluster;
use jobs_tests::checks::{Outcome, suite};

fn main() -> ExitCode {
    suite(|checks| {
        let cluster = Cluster::start();
        cluster.psql("postgres", "create database jobs");
        cluster.psql("jobs", "create extension jobs");
        if checks.wants("checksum") {
            checksum::runs(checks, &cluster);
        }
        for language in workers::LANGUAGES {
            if checks.wants(language) {
                workers::work(checks, &cluster, language);
            }
        }
        checks.end(cluster);
    })
}

fn sql(cluster: &Cluster, script: &str) -> String {
    cluster.psql("jobs", script)
}

/// Whether this is so within a minute: what comes behind SELECT, a boolean.
fn becomes(cluster: &Cluster, condition: &str) -> Outcome {
    let start = Instant::now();
    while sql(cluster, &format!("select {condition}")).trim() != "t" {
        if start.elapsed() > Duration::from_secs(60) {
            let left = "select queue, kind, state, attempt, count(*) from jobs.jobs where finalized_at is null group by 1, 2, 3, 4";
            let left = sql(cluster, left);
            return Err(format!("after a minute it is still not true that {condition}\n{left}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
