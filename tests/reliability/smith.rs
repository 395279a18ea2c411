//! Queries of sqlsmith over the views, tables and functions of a database with jobs in it: errors,
//! but no internal one and no crash.

use std::process::{Command, Stdio};

use jobs_tests::{Client, Cluster, run};

use jobs_tests::figures::{duration, figure, variable};
use jobs_tests::journal::assert_whole;

/// The role of sqlsmith may do what an admin of jobs may, read the tables, and nothing to the
/// machine or the server. It chooses its functions from what `pg_proc` has: here ours, and harmless
/// ones to make arguments of.
const SETUP: &str = r#"
    create role smith login; select jobs.grant_admin('smith');
    grant usage on schema jobs to smith; grant select on all tables in schema jobs to smith;
    create schema smith; grant usage on schema smith to smith;
    create view smith.pg_proc as select * from pg_catalog.pg_proc
      where pronamespace = 'jobs'::regnamespace and prokind = 'f' and proname <> 'installed'
         or pronamespace = 'pg_catalog'::regnamespace and proname in ('lower', 'md5', 'abs', 'int8larger', 'int4larger', 'jsonb_typeof', 'jsonb_pretty',
              'interval_larger', 'justify_interval', 'timestamptz_larger', 'make_interval', 'texteq', 'int84eq');
    grant select on smith.pg_proc to smith;
    select jobs.insert_batch('k', array(select jsonb_build_object('n', n) from generate_series(1, 40) n), '{"by_args": true}');
    select jobs.insert('later', scheduled_at => now() + '1 hour'), jobs.insert('held', pending => true);
    select jobs.complete(id, token) from jobs.fetch(max_jobs => 10);
    select jobs.fail(id, token, 'x') from jobs.fetch(max_jobs => 10);
    select count(*) from jobs.fetch(max_jobs => 5);
    -- Its long and deep queries are not what this is about.
    alter role smith set statement_timeout = '500 ms'; alter role smith set search_path = smith, pg_catalog, jobs;
    select jobs.schedule('nightly', '@daily', 'k'), jobs.configure_queue('limited', 3), jobs.define_kind('k', priority => 2)
"#;

/// Lets sqlsmith send so many queries; how many ended in an error. Panics if it could not go on.
fn send(cluster: &Cluster, queries: u64, seed: u64) -> u64 {
    let output = Command::new("sqlsmith")
        .arg(format!(
            "--target=host={} port=5432 user=smith dbname=smith",
            cluster.directory().display()
        ))
        .args([
            format!("--seed={seed}"),
            format!("--max-queries={queries}"),
            "--exclude-catalog".into(),
        ])
        .stdin(Stdio::null())
        .output()
        .expect("sqlsmith");
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    cluster.log().lines().filter(|line| line.contains(" ERROR: ")).count() as u64
}

async fn prepared(cluster: &Cluster) -> Client {
    let db = cluster.database("smith").await;
    run(&db, SETUP).await;
    db
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sqlsmith"]
async fn sqlsmith() {
    let cluster = Cluster::builder().set("track_functions", "all").start();
    let db = prepared(&cluster).await;
    let queries = variable("JOBS_RELIABILITY_QUERIES", 150 * duration().as_secs());
    let seed = variable("JOBS_RELIABILITY_SMITH_SEED", 1);
    let errors = send(&cluster, queries, seed);
    let calls = "select coalesce(sum(calls), 0)::bigint, count(*) from pg_stat_user_functions where schemaname = 'jobs'";
    let row = db.query_one(calls, &[]).await.unwrap();
    let (calls, functions): (i64, i64) = (row.get(0), row.get(1));
    figure("sqlsmith", "queries", queries);
    figure("sqlsmith", "seed", seed);
    figure("sqlsmith", "of_them_with_an_error", errors);
    figure("sqlsmith", "calls_of_functions_of_jobs", format!("{calls}, of {functions} functions"));
    assert!(
        calls > 0 && errors < queries,
        "it did not get anywhere: {calls} calls, {errors} errors"
    );
    assert_whole(&db).await;
    // The log is looked through when the cluster is dropped.
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sqlsmith"]
async fn control_an_internal_error_is_found_by_sqlsmith() {
    let cluster = Cluster::start();
    let db = prepared(&cluster).await;
    // Several, so that it takes one.
    for n in 0..10 {
        let plant = format!(
            "create function jobs.planted{n}() returns bigint language plpgsql as $$ begin raise 'planted' using errcode = 'XX000'; end $$;
             grant execute on function jobs.planted{n}() to smith"
        );
        run(&db, &plant).await;
    }
    let found = (1..=10).find_map(|seed| {
        send(&cluster, 300, seed);
        cluster.scan_log().err()
    });
    let found = found.expect("one of them is called, if not with the first seed");
    assert!(found.contains("planted"), "{found}");
    cluster.allow(u32::MAX, "XX000 client backend smith: ");
}
