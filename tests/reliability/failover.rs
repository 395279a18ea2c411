//! The primary dies under load, its standby is promoted, and the clients move over.

use std::fs;
use std::time::{Duration, Instant};

use jobs_tests::{Cluster, SOON, comes_true, poll_until, rng, workers};
use rand::Rng;

use jobs_tests::figures::{duration, figure, middle_and_longest};
use jobs_tests::journal::{Pruning, assert_whole};
use jobs_tests::load::{DATABASE, Load};

use super::crashes::{expecting_crashes, reconnected};

/// A standby without which the primary acknowledges nothing from now on.
async fn synchronous_standby(primary: &Cluster) -> Cluster {
    let standby = primary.standby();
    primary.set("synchronous_standby_names", "*");
    primary.reload();
    let db = primary.connect(DATABASE).await;
    comes_true(&db, "count(*) = 1 from pg_stat_replication where sync_state = 'sync'").await;
    standby
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn primaries_die_and_standbys_take_over() {
    let case = "failover";
    let builder = Cluster::builder().set("jobs.interval", "100 ms").set("synchronous_commit", "on");
    let mut primary = expecting_crashes(builder).start();
    let mut rng = rng();
    let load = Load::begin(&primary, &mut rng, 3, 3).await;
    let begun = Instant::now();
    let (mut times, mut worker_times) = (Vec::new(), Vec::new());
    while begun.elapsed() < duration() || times.is_empty() {
        let standby = synchronous_standby(&primary).await;
        load.resumed_since(Instant::now()).await;
        tokio::time::sleep(Duration::from_millis(rng.random_range(300..1000))).await;
        assert_whole(&reconnected(&standby).await).await;
        let moment = Instant::now();
        primary.kill9();
        // What it had taken for itself it must not wait for: it would have nobody that confirms.
        standby.set("synchronous_standby_names", "");
        standby.promote();
        standby.reload();
        load.move_to(&standby);
        load.resumed_since(Instant::now()).await;
        times.push(moment.elapsed());
        let db = reconnected(&standby).await;
        poll_until("the background worker begins", SOON, async || {
            workers(&db, DATABASE).await == 1
        })
        .await;
        worker_times.push(moment.elapsed());
        assert_whole(&db).await;
        // It is never started again, and looks like it when it is dropped.
        fs::remove_file(primary.data().join("postmaster.pid")).unwrap();
        primary = standby;
    }
    let db = reconnected(&primary).await;
    let ended = load.end(&db, Pruning::Nothing).await;
    assert_whole(&db).await;
    figure(case, "failovers", times.len());
    figure(case, "time_until_clients_insert_and_complete_again", middle_and_longest(&times));
    figure(case, "time_until_the_background_worker_is_there", middle_and_longest(&worker_times));
    ended.assert_right(&db, case).await;
}
