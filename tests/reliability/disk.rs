//! The disk is full: what cannot be written is refused, what was acknowledged stays, and work goes
//! on once there is room.
//!
//! These want small file systems, which tests/reliability.sh mounts: `JOBS_RELIABILITY_SMALL_DISK`
//! is one, empty and as large as it says.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jobs_tests::{Cluster, SOON, poll_until, promptly, rng, run, seconds, sqlstate, workers};

use super::crashes::{expecting_crashes, reconnected};
use jobs_tests::figures::{duration, figure};
use jobs_tests::journal::{Pruning, assert_whole};
use jobs_tests::load::{DATABASE, Load};

/// For so long there is room; more load would fill the small disk by itself.
const AT_MOST: Duration = Duration::from_secs(10);

fn small_disk() -> PathBuf {
    std::env::var("JOBS_RELIABILITY_SMALL_DISK")
        .expect("a small file system: run this through ./dev test reliability")
        .into()
}

/// A directory on the small disk that belongs to the server's user.
fn own_directory(cluster: &Cluster, name: &str) -> PathBuf {
    let directory = small_disk().join(name);
    fs::create_dir(&directory).unwrap();
    let owner = fs::metadata(cluster.data()).unwrap();
    chown(&directory, Some(owner.uid()), Some(owner.gid())).unwrap();
    directory
}

/// A foreign file, which takes whatever is left.
fn fill_up() -> PathBuf {
    let file = small_disk().join("somebody else's");
    let status = Command::new("dd")
        .arg("if=/dev/zero")
        .arg("bs=16k")
        .arg(format!("of={}", file.display()))
        .stderr(std::process::Stdio::null())
        .status();
    assert!(!status.unwrap().success(), "the disk is not small");
    file
}

fn move_away(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status().unwrap();
    assert!(status.success());
    fs::remove_dir_all(from).unwrap();
    symlink(to, from).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[ignore = "needs a small file system"]
async fn tables_on_a_full_disk() {
    let case = "disk_tables";
    let cluster = Cluster::builder().set("jobs.interval", "100 ms").start();
    let directory = own_directory(&cluster, "tables");
    let postgres = cluster.connect("postgres").await;
    run(&postgres, &format!("create tablespace small location '{}'", directory.display())).await;
    run(&postgres, &format!("create database {DATABASE} tablespace small")).await;
    let db = cluster.connect(DATABASE).await;
    run(&db, "create extension jobs").await;
    let load = Load::begin_in(&db, &cluster, &mut rng(), 3, 3).await;
    load.resumed_since(Instant::now()).await;
    tokio::time::sleep((duration() / 4).min(AT_MOST)).await;

    let file = fill_up();
    // Until inserts are refused, whatever room there is in the tables' own pages.
    let sql = r#"select jobs.insert_batch('fill', array_fill(to_jsonb(repeat(md5(random()::text), 50)), array[500]), queue => 'fill')"#;
    let refused = loop {
        let code = sqlstate(db.batch_execute(sql).await);
        if code != "00000" {
            break code;
        }
    };
    assert_eq!(refused, "53100", "disk_full");
    seconds(2.0).await;
    assert_whole(&db).await;

    let freed = Instant::now();
    fs::remove_file(file).unwrap();
    load.resumed_since(freed).await;
    figure(
        case,
        "time_until_clients_insert_and_complete_again",
        format!("{:.2} s", freed.elapsed().as_secs_f64()),
    );
    assert_whole(&db).await;
    run(&db, "select jobs.delete_many(queue => 'fill')").await;
    let ended = load.end(&db, Pruning::Nothing).await;
    ended.assert_right(&db, case).await;
    // The database goes before its disk does.
    drop(db);
    assert_eq!(cluster.violations(), "");
    promptly(&postgres, &format!("drop database {DATABASE}")).await;
    promptly(&postgres, "drop tablespace small").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[ignore = "needs a small file system"]
async fn wal_on_a_full_disk() {
    let case = "disk_WAL";
    let builder = Cluster::builder()
        .set("jobs.interval", "100 ms")
        .set("fsync", "on")
        .set("max_wal_size", "32MB")
        .set("min_wal_size", "32MB")
        .set("wal_recycle", "off");
    let cluster = expecting_crashes(builder)
        .allow(u32::MAX, "53100 .* (PANIC|FATAL): ")
        .allow(u32::MAX, "was terminated by signal 6")
        .make();
    move_away(&cluster.data().join("pg_wal"), &own_directory(&cluster, "wal"));
    cluster.start_again();
    let load = Load::begin(&cluster, &mut rng(), 3, 3).await;
    load.resumed_since(Instant::now()).await;
    tokio::time::sleep((duration() / 4).min(AT_MOST)).await;

    let file = fill_up();
    let filler = cluster.connect(DATABASE).await;
    poll_until("the server gives up", Duration::from_secs(60), async || {
        let _ = filler.batch_execute("create table if not exists public.filler (t text); insert into public.filler select repeat(md5(n::text), 20) from generate_series(1, 2000) n").await;
        filler.is_closed()
    })
    .await;
    // It cannot even recover: the postmaster ends, or tries.
    seconds(2.0).await;
    let freed = Instant::now();
    fs::remove_file(file).unwrap();
    let is_down = || {
        !Path::new(&format!(
            "/proc/{}",
            fs::read_to_string(cluster.data().join("postmaster.pid"))
                .unwrap_or_default()
                .lines()
                .next()
                .unwrap_or("none")
        ))
        .exists()
    };
    let mut restarted = false;
    // It may end only now, while it tries.
    let keep_up = async {
        for _ in 0..300 {
            if is_down() {
                restarted = true;
                cluster.start_again();
            }
            seconds(0.2).await;
        }
    };
    tokio::select! {
        () = load.resumed_since(freed) => {}
        () = keep_up => panic!("the server is not back after a minute"),
    }
    figure(
        case,
        "time_until_clients_insert_and_complete_again",
        format!("{:.2} s", freed.elapsed().as_secs_f64()),
    );
    figure(
        case,
        "the_server",
        if restarted { "ended, and was started again" } else { "recovered by itself" },
    );
    let db = reconnected(&cluster).await;
    poll_until("the background worker is back", SOON, async || workers(&db, DATABASE).await == 1)
        .await;
    assert_whole(&db).await;
    let ended = load.end(&db, Pruning::Nothing).await;
    ended.assert_right(&db, case).await;
    assert_eq!(cluster.violations(), "");
}
