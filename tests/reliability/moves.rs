//! A cell moves from server to server under load, by ops/move-cells. `JOBS_MOVES` says how often.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use jobs_tests::{
    Cluster, MOVE_CELLS, Mode, is, move_cell, number, rng, run, scratch_directory, sqlstate,
};
use rand::Rng;
use rand::rngs::StdRng;

use jobs_tests::figures::{figure, middle_and_longest, variable};
use jobs_tests::journal::{Pruning, assert_whole};
use jobs_tests::load::{DATABASE, Load};

/// A server with a cell under load.
async fn begin(rng: &mut StdRng) -> (Cluster, Load) {
    let builder = Cluster::builder().set("jobs.interval", "100 ms");
    // Clients of the old server that have not noticed yet when it stops.
    let server = builder.allow(u32::MAX, "57P01 client backend load: FATAL: ").start();
    let db = server.database(DATABASE).await;
    run(&db, "select jobs.set_cell(1), jobs.place_queue('*', 1)").await;
    let load = Load::begin_in(&db, &server, rng, 3, 3).await;
    (server, load)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_cell_moves_and_nothing_is_lost_or_doubled() {
    let case = "moves";
    let mut rng = rng();
    let (mut server, load) = begin(&mut rng).await;
    let mut times = Vec::new();
    for n in 0..variable("JOBS_MOVES", 10) {
        let standby = server.standby();
        load.resumed_since(Instant::now()).await;
        tokio::time::sleep(Duration::from_millis(rng.random_range(100..1000))).await;
        let db = server.connect(DATABASE).await;
        let unique = format!(
            r#"select id from jobs.insert('held', unique_opts => '{{"key": "{n}", "by_queue": true}}', queue => 'held')"#
        );
        let id = number(&db, &unique).await;
        let token = number(&db, "select token from jobs.fetch('held', lease => '1 hour')").await;
        let moment = Instant::now();
        move_cell(MOVE_CELLS, &server, &standby, DATABASE).await;
        load.move_to(&standby);
        load.resumed_since(Instant::now()).await;
        times.push(moment.elapsed());
        assert_eq!(sqlstate(db.batch_execute("select jobs.insert('k')").await), "JB001");
        let db = standby.connect(DATABASE).await;
        assert!(is(&db, &format!("jobs.complete({id}, {token}) = 'completed'")).await);
        assert_eq!(number(&db, &unique).await, id);
        assert_whole(&db).await;
        server = standby;
    }
    let db = server.connect(DATABASE).await;
    let ended = load.end(&db, Pruning::Nothing).await;
    assert_whole(&db).await;
    figure(case, "moves", times.len());
    figure(case, "time_until_clients_insert_and_complete_again", middle_and_longest(&times));
    ended.assert_right(&db, case).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn control_a_cell_that_moves_without_being_retired_loses_jobs() {
    let retire = "jobs.retire_cell(:'to', 'move-cells')";
    let script = fs::read_to_string(MOVE_CELLS).unwrap();
    assert!(script.contains(retire));
    let directory = scratch_directory();
    let careless = directory.path().join("move-cells");
    fs::write(&careless, script.replace(retire, "1")).unwrap();
    fs::set_permissions(&careless, fs::Permissions::from_mode(0o755)).unwrap();

    let (server, load) = begin(&mut rng()).await;
    let standby = server.standby();
    load.resumed_since(Instant::now()).await;
    move_cell(&careless, &server, &standby, DATABASE).await;
    load.resumed_since(Instant::now()).await; // at the old server
    load.move_to(&standby);
    server.stop(Mode::Fast);
    load.resumed_since(Instant::now()).await;
    let ended = load.end(&standby.connect(DATABASE).await, Pruning::Nothing).await;
    let says = |what| ended.differences.iter().any(|one| one.contains(what));
    assert!(says("is lost") || says("was given out twice"), "{:?}", ended.differences);
}
