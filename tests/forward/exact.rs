//! Exactly once.

use std::time::Duration;

use jobs_tests::{Cluster, Mode, count, number, poll_until, rng, run, seconds, text};
use rand::Rng;
use tokio::process::Child;

use super::{
    FORGETFUL, LONG, Pair, STOPS, arrive, assert_exact, different, end_sessions, insert, place,
    said, spawned,
};

/// Kills forwarders between their insert at the queue and their delete at the source. Returns how
/// many rows there are then.
async fn kill_between(pair: &Pair, times: i64) -> i64 {
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    run(&outbox, STOPS).await;
    for time in 0..times {
        insert(&outbox, 3 * time + 1, 3 * time + 3).await;
        let mut forwarder = pair.forward();
        arrive(&jobs, 3 * time + 3).await;
        forwarder.kill().await.unwrap();
        end_sessions(&outbox).await;
    }
    assert_eq!(count(&outbox, "jobs.outbox").await, 3 * times, "none was deleted");
    run(&outbox, "select pg_advisory_unlock(7)").await;
    assert_eq!(pair.once().await.0, 0);
    3 * times
}

#[tokio::test]
async fn a_forwarder_is_killed_100_times_between_insert_and_delete() {
    let pair = Pair::start().await;
    let rows = kill_between(&pair, 100).await;
    assert_exact(&pair.outbox().await, &pair.jobs().await, rows).await;
}

#[tokio::test]
async fn control_a_queue_without_its_memory_doubles() {
    let pair = Pair::start().await;
    let jobs = pair.jobs().await;
    run(&jobs, FORGETFUL).await;
    let rows = kill_between(&pair, 3).await;
    assert_eq!(different(&jobs).await, rows);
    assert!(count(&jobs, "jobs.jobs").await > rows);
}

/// Inserts ascending numbers into a queue of its own, until it is told to end. What is written with
/// each says that it was committed.
async fn write(pair: &Pair, writer: i64, rows: i64) {
    let mut outbox = pair.outbox().await;
    let mut n = 0;
    while n < rows {
        let number = writer * 1_000_000 + n;
        let written = format!(
            "insert into written values ({number}); select jobs.insert('k', '{number}', queue => 'w{writer}')"
        );
        // Ends both or none. Where it may have been committed, the number is left.
        if outbox.batch_execute(&written).await.is_err() {
            let config = pair.source.config();
            poll_until("the outbox is back", LONG, async || {
                config.clone().dbname("shop").connect(tokio_postgres::NoTls).await.is_ok()
            })
            .await;
            outbox = pair.outbox().await;
        }
        n += 1;
        if n % 10 == 0 {
            tokio::task::yield_now().await;
            seconds(0.001).await;
        }
    }
}

const WRITTEN: &str = "create table written (n bigint primary key)";

/// What was written has arrived, and nothing else. Ends the forwarders first: one that runs tells
/// the queue of its last deletions with its next batch or report.
async fn assert_written<const N: usize>(pair: &Pair, forwarders: [Child; N]) {
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    drop(forwarders);
    end_sessions(&outbox).await;
    let (code, said) = pair.once().await;
    assert_eq!(code, 0, "{said}");
    let rows = count(&outbox, "written").await;
    assert_exact(&outbox, &jobs, rows).await;
    let written: i64 = number(&outbox, "select sum(n)::bigint from written").await;
    let sum = "select sum(args::bigint)::bigint from jobs.jobs";
    assert_eq!(number(&jobs, sum).await, written);
}

#[tokio::test]
async fn two_forwarders_are_killed_at_random_while_three_sessions_insert() {
    let pair = Pair::start().await;
    run(&pair.outbox().await, WRITTEN).await;
    let mut rng = rng();
    let mut forwarders = [pair.forward(), pair.forward()];
    let kills = async {
        for _ in 0..60 {
            seconds(rng.random_range(0.0..0.12)).await;
            let one = rng.random_range(0..2);
            forwarders[one].kill().await.unwrap();
            forwarders[one] = pair.forward();
        }
    };
    let writers =
        async { tokio::join!(write(&pair, 1, 2000), write(&pair, 2, 2000), write(&pair, 3, 2000)) };
    tokio::join!(kills, writers);
    assert_written(&pair, forwarders).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_server_crashes_under_load() {
    let pair = Pair::start().await;
    run(&pair.outbox().await, WRITTEN).await;
    let forwarder = pair.forward();
    let crashes = async {
        for cluster in [&pair.source, &pair.queue, &pair.source, &pair.queue] {
            seconds(0.3).await;
            tokio::task::block_in_place(|| cluster.restart(Mode::Immediate));
        }
    };
    tokio::join!(crashes, write(&pair, 1, 3000));
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    arrive(&jobs, count(&outbox, "written").await).await;
    assert_written(&pair, [forwarder]).await;
}

/// A standby takes over from a server that was stopped.
async fn fail_over(primary: &Cluster, standby: &Cluster) {
    primary.stop(Mode::Fast);
    standby.promote();
}

#[tokio::test]
async fn either_server_fails_over() {
    let pair = Pair::start().await;
    let (source, queue) = (pair.source.standby(), pair.queue.standby());
    let from = place(&[&pair.source, &source], "shop");
    let to = place(&[&pair.queue, &queue], "queue");
    let forwarder = spawned(&["--from", &from, "--to", &to]);
    insert(&pair.outbox().await, 1, 50).await;
    arrive(&pair.jobs().await, 50).await;

    fail_over(&pair.source, &source).await;
    let outbox = source.connect("shop").await;
    insert(&outbox, 51, 100).await;
    arrive(&pair.jobs().await, 100).await;

    fail_over(&pair.queue, &queue).await;
    let jobs = queue.connect("queue").await;
    insert(&outbox, 101, 150).await;
    arrive(&jobs, 150).await;
    drop(forwarder);
    end_sessions(&outbox).await;
    let (code, said) = said(&["--from", &from, "--to", &to, "--once"]).await;
    assert_eq!(code, 0, "{said}");
    assert_exact(&outbox, &jobs, 150).await;
}

/// An outbox with five rows that were forwarded is restored from a dump that still has them, and
/// gets two more. Returns how many jobs there are then.
async fn restore(pair: &Pair) -> i64 {
    let outbox = pair.outbox().await;
    insert(&outbox, 1, 5).await;
    let dump = pair.source.directory().join("dump").display().to_string();
    let ran = |program: &str, args: &[&str]| {
        let output = pair.source.bin(program).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    ran("pg_dump", &["-Fc", "-f", &dump, "shop"]);
    assert_eq!(pair.once().await.0, 0);
    assert_eq!(count(&outbox, "jobs.outbox").await, 0);
    ran("createdb", &["-T", "template0", "restored"]);
    ran("pg_restore", &["-d", "restored", &dump]);
    let restored = pair.source.connect("restored").await;
    assert_eq!(count(&restored, "jobs.outbox").await, 5);
    insert(&restored, 6, 7).await;
    let from = place(&[&pair.source], "restored");
    let (code, said) = said(&["--from", &from, "--to", &pair.to(), "--once"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(count(&restored, "jobs.outbox").await, 0);
    count(&pair.jobs().await, "jobs.jobs").await
}

#[tokio::test]
async fn a_restored_outbox_inserts_only_what_is_new() {
    let pair = Pair::start().await;
    assert_eq!(restore(&pair).await, 7);
    assert_exact(&pair.outbox().await, &pair.jobs().await, 7).await;
}

#[tokio::test]
async fn control_without_its_memory_the_queue_takes_restored_rows_again() {
    let pair = Pair::start().await;
    run(&pair.jobs().await, FORGETFUL).await;
    assert_eq!(restore(&pair).await, 12);
}

#[tokio::test]
async fn unique_jobs_are_unique_and_options_arrive() {
    let pair = Pair::start().await;
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    run(&jobs, "select jobs.define_kind('defined', queue => 'of the kind', priority => 7)").await;
    run(
        &outbox,
        r#"select jobs.insert('u', '{"user": 1}', '{"by_args": true}') from generate_series(1, 3);
        select jobs.insert('u', '{"user": 1.0}', '{"by_args": true}');
        select jobs.insert('defined');
        select jobs.insert('all', '[1, "ü", 1.10]', queue => 'ä', priority => -3, scheduled_at => '2999-01-01 00:00+00', max_attempts => 4, tags => '{a,"b c"}',
          meta => '{"m": null}', timeout => '90 s', retry => '"oban"', expires_at => '2999-02-01 00:00+00');
        select jobs.insert_batch('batch', array['1', '2']::jsonb[], pending => true);
        select jobs.insert_many('[{"kind": "many"}]')"#,
    )
    .await;
    assert_eq!(pair.once().await.0, 0);
    assert_eq!(count(&jobs, "jobs.jobs where kind = 'u'").await, 1);
    assert_eq!(count(&jobs, "jobs.jobs where kind in ('batch', 'many')").await, 3);
    let queue = "select queue || priority from jobs.jobs where kind = 'defined'";
    assert_eq!(text(&jobs, queue).await, "of the kind7");
    let all = r#"jobs.jobs where kind = 'all' and state = 'scheduled' and args::text = '[1, "ü", 1.10]' and queue = 'ä' and priority = -3 and scheduled_at = '2999-01-01 00:00+00'
        and max_attempts = 4 and tags = '{a,"b c"}' and meta = '{"m": null}' and timeout = '90 s' and retry = '"oban"' and expires_at = '2999-02-01 00:00+00'"#;
    assert_eq!(count(&jobs, all).await, 1);
}

#[tokio::test]
async fn more_rows_than_a_batch_has_arrive_in_order() {
    let pair = Pair::start().await;
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    insert(&outbox, 1, 3500).await;
    assert_eq!(tokio::time::timeout(Duration::from_secs(600), pair.once()).await.unwrap().0, 0);
    assert_exact(&outbox, &jobs, 3500).await;
}
