//! Queries of sqlsmith over the views, tables and functions of a database with jobs in it: errors, but no internal one and no crash.

use std::process::{Command, Stdio};

use jobs_tests::{Cluster, number};

use super::crashes::assert_whole;
use super::figures::{duration, figure, variable};

/// The role of sqlsmith may do what an admin of jobs may, read the tables, and nothing to the machine or the server.
/// It chooses its functions from what `pg_proc` has: here ours, and harmless ones to make arguments of.
const SETUP: &str = r#"
    create role smith login; select jobs.grant_admin('smith');
    grant usage on schema jobs to smith; grant select on all tables in schema jobs to smith;
    create schema smith; grant usage on schema smith to smith;
    create view smith.pg_proc as select * from pg_catalog.pg_proc
      where pronamespace = 'jobs'::regnamespace and prokind = 'f' and proname not in ('fetch', 'fetch_any')
         or pronamespace = 'pg_catalog'::regnamespace and provolatile = 'i' and prokind = 'f' and oid::bigint % 5 = 0
            and prorettype in ('int8'::regtype, 'text'::regtype, 'jsonb'::regtype, 'interval'::regtype, 'timestamptz'::regtype, 'bool'::regtype, 'int4'::regtype);
    grant select on smith.pg_proc to smith;
    select jobs.insert_batch('k', array(select jsonb_build_object('n', n) from generate_series(1, 40) n), '{"by_args": true}');
    select jobs.insert('later', scheduled_at => now() + '1 hour'), jobs.insert('held', pending => true);
    select jobs.complete(id, token) from jobs.fetch(max_jobs => 10);
    select jobs.fail(id, token, 'x') from jobs.fetch(max_jobs => 10);
    select count(*) from jobs.fetch(max_jobs => 5);
    select jobs.schedule('nightly', '@daily', 'k'), jobs.configure_queue('limited', 3), jobs.define_kind('k', priority => 2)
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sqlsmith"]
async fn sqlsmith() {
    let cluster = Cluster::builder()
        .set("track_functions", "all")
        .set("log_statement", "none")
        .start();
    let db = cluster.database("smith").await;
    db.batch_execute(SETUP).await.unwrap();
    // Long and deep ones of its queries are not what this is about.
    db.batch_execute("alter role smith set statement_timeout = '500 ms'; alter role smith set search_path = smith, pg_catalog, jobs")
        .await
        .unwrap();
    let queries = variable("JOBS_RELIABILITY_QUERIES", 150 * duration().as_secs());
    let seed = variable("JOBS_RELIABILITY_SMITH_SEED", 1);
    let output = Command::new("sqlsmith")
        .arg(format!("--target=host={} port=5432 user=smith dbname=smith", cluster.directory().display()))
        .args([format!("--seed={seed}"), format!("--max-queries={queries}"), "--exclude-catalog".into()])
        .stdin(Stdio::null())
        .output()
        .expect("sqlsmith");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("error: server"), "{}: {said}", output.status);
    let log = cluster.log();
    let errors = log.lines().filter(|line| line.contains(" ERROR: ")).count();
    let calls = number(&db, "select coalesce(sum(calls), 0)::bigint from pg_stat_user_functions where schemaname = 'jobs'").await;
    figure("sqlsmith", "queries", queries);
    figure("sqlsmith", "seed", seed);
    figure("sqlsmith", "of_them_with_an_error", errors);
    figure("sqlsmith", "calls_of_functions_of_jobs", calls);
    assert!(calls > 0 && (errors as u64) < queries, "it did not get anywhere: {calls} calls, {errors} errors");
    assert_whole(&db).await;
}
