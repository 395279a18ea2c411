//! More databases than shared memory has places for: only those with the extension take one, and
//! those beyond are maintained all the same. The build with faults has two, so that a handful
//! of databases is enough. A bound is far below the ten minutes after which a database without the
//! extension is visited again.

use jobs_tests::{
    Builder, Client, Cluster, Listener, Mode, SOON, becomes, comes_true, insert, is, poll_until,
    promptly, run,
};

use crate::wait::woken_by;

const NO_PLACE: &str = "count(*) = 1 from jobs.health() where finding = 'no_place'";
const HAS_PLACE: &str = "count(*) = 0 from jobs.health() where finding = 'no_place'";

fn with_two_places(faults: &str) -> Builder {
    Cluster::builder().faults(faults).set("autovacuum", "off")
}

fn two_places() -> Cluster {
    with_two_places("few_places").start()
}

/// A session in a new database, a copy of another one.
async fn copied(cluster: &Cluster, postgres: &Client, from: &str, name: &str) -> Client {
    let copy = format!("create database {name} template {from} strategy file_copy");
    promptly(postgres, &copy).await;
    cluster.connect(name).await
}

/// What is due is done, and who listens hears of it.
async fn is_maintained(cluster: &Cluster, db: &Client, database: &str) {
    let mut listener = Listener::new(cluster, database).await;
    let due = insert(db, "'k', queue => 'due', scheduled_at => clock_timestamp() + '2 s'").await;
    let lost = insert(db, "'k', queue => 'lost', max_attempts => 1").await;
    run(db, "select jobs.fetch('lost', lease => '1 s')").await;
    becomes(db, due, "available").await;
    becomes(db, lost, "discarded").await;
    let heard = async { while listener.next().await != r#"{"queue": "due"}"# {} };
    tokio::time::timeout(SOON, heard).await.expect(database);
}

#[tokio::test]
async fn databases_without_the_extension_take_no_place() {
    let cluster = two_places();
    let postgres = cluster.connect("postgres").await;
    let mut plain = Vec::new();
    for n in 0..4 {
        plain.push(copied(&cluster, &postgres, "template1", &format!("plain{n}")).await);
    }
    // A worker has been in each of them.
    comes_true(
        &postgres,
        "count(*) = 4 from pg_stat_database where datname ~ '^plain' and xact_commit > 0",
    )
    .await;
    for name in ["one", "two"] {
        let db = cluster.database(name).await;
        assert!(is(&db, HAS_PLACE).await, "{name}");
        is_maintained(&cluster, &db, name).await;
    }
}

#[tokio::test]
async fn databases_beyond_the_places_are_maintained() {
    let cluster = two_places();
    let postgres = cluster.connect("postgres").await;
    drop(cluster.database("pattern").await);
    let taken = cluster.database("taken").await;
    let mut beyond = Vec::new();
    for name in ["three", "four", "five", "six"] {
        let db = copied(&cluster, &postgres, "pattern", name).await;
        // The launcher finds out by itself that a copy has the extension.
        comes_true(&db, NO_PLACE).await;
        beyond.push((name, db));
    }
    let [three, four, five, six] = &beyond[..] else {
        unreachable!("there are four");
    };
    let check = async |(name, db): &(&str, Client)| is_maintained(&cluster, db, name).await;
    tokio::join!(check(three), check(four), check(five), check(six));

    // A place that becomes free is for one of them, and the other ones do without as before.
    run(&taken, "begin; select jobs.insert('wakes'); drop extension jobs; commit").await;
    poll_until("one of them has a place", SOON, async || {
        let mut found = 0;
        for (_, db) in &beyond {
            found += usize::from(is(db, HAS_PLACE).await);
        }
        found == 1
    })
    .await;
    // CREATE EXTENSION asks for a place, and finds none.
    run(&taken, "create extension jobs").await;
    assert!(is(&taken, NO_PLACE).await);
    is_maintained(&cluster, &taken, "taken").await;
    cluster.restart(Mode::Fast);
    let db = cluster.connect("six").await;
    is_maintained(&cluster, &db, "six").await;
}

/// No session counts what is prepared there.
#[tokio::test]
async fn a_prepared_transaction_wakes_who_waits_in_a_database_beyond_the_places() {
    let cluster = with_two_places("few_places,no_looks")
        .set("jobs.enabled", "off")
        .set("max_prepared_transactions", 1)
        .start();
    for name in ["one", "two"] {
        drop(cluster.database(name).await);
    }
    let db = cluster.database("three").await;
    run(&db, "begin; select jobs.insert('k', queue => 'q'); prepare transaction 'later'").await;
    assert!(is(&db, NO_PLACE).await);
    let waits = cluster.connect("three").await;
    woken_by(&db, waits, "q", "commit prepared 'later'").await;
}
