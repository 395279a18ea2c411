//! The control of this suite: a cluster whose log has a bad line, or whose tables have what must
//! not be there, is found out, also when nobody asks.

use jobs_tests::{Cluster, Mode, run, scalar, sqlstate, with};

#[tokio::test]
async fn a_lost_session_is_found_unless_declared() {
    let cluster = Cluster::builder().without_preload().start();
    let victim = cluster.connect("postgres").await;
    let pid: i32 = scalar(&victim, "select pg_backend_pid()").await;
    let other = cluster.connect("postgres").await;
    other.query_one("select pg_terminate_backend($1, 60000)", &[&pid]).await.unwrap();

    let found = cluster.scan_log().expect_err("the FATAL line");
    assert!(found.contains("terminating connection due to administrator command"), "{found}");

    cluster.allow(1, "terminating connection due to administrator command");
    cluster.assert_clean_log();
}

#[tokio::test]
async fn an_ordinary_error_and_a_shutdown_are_not() {
    let cluster = Cluster::builder().without_preload().start();
    let client = cluster.connect("postgres").await;
    assert_eq!(sqlstate(client.batch_execute("select 1 / 0").await), "22012");
    cluster.restart(Mode::Fast); // ends the client's session
    cluster.assert_clean_log();
}

#[tokio::test]
async fn killing_the_postmaster_is_survived() {
    let cluster = Cluster::builder().without_preload().start();
    let client = cluster.connect("postgres").await;
    run(&client, "create table t as select 1 as x").await;
    cluster.kill9();
    cluster.start_again();
    let client = cluster.connect("postgres").await;
    assert_eq!(scalar::<i32>(&client, "select x from t").await, 1);
}

#[tokio::test]
async fn a_standby_follows_and_is_promoted() {
    let cluster = Cluster::builder().without_preload().start();
    let client = cluster.connect("postgres").await;
    run(&client, "create table t as select 1 as x").await;
    let standby = cluster.standby();
    let read = standby.connect("postgres").await;
    assert_eq!(sqlstate(read.batch_execute("insert into t values (2)").await), "25006");
    standby.promote();
    run(&read, "insert into t values (2)").await;
}

#[tokio::test]
#[should_panic(expected = "the server's log is not clean")]
async fn a_dropped_cluster_scans_its_log() {
    let cluster = Cluster::builder().without_preload().start();
    let client = cluster.connect("postgres").await;
    let _ = client.query_one("select pg_terminate_backend(pg_backend_pid())", &[]).await;
}

#[tokio::test]
async fn a_row_that_must_not_be_there_is_found_unless_declared() {
    let (cluster, db) = with("broken", &[]).await;
    run(&db, "select jobs.insert('k'); delete from jobs.ready").await;
    let found = cluster.violations();
    assert!(found.starts_with("broken|one_place|1|{1}|"), "{found}");
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(cluster)));
    let said = dropped.expect_err("it is found");
    let said = said.downcast::<String>().expect("a message");
    assert!(said.contains("broken|one_place|1|{1}|"), "{said}");

    let (cluster, db) = with("broken", &[]).await;
    run(&db, "select jobs.insert('k'); delete from jobs.ready").await;
    cluster.allow_violations();
}
