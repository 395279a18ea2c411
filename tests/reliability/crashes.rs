//! Processes of the server die under load.

use std::time::{Duration, Instant};

use jobs_tests::{Client, Cluster, Mode, SOON, number, poll_until, rng, seconds, workers};
use rand::Rng;
use rand::rngs::StdRng;

use jobs_tests::figures::{duration, figure, middle_and_longest};
use jobs_tests::journal::{Pruning, assert_whole};
use jobs_tests::load::{DATABASE, Load};

/// A server for it, with what its log has then.
fn server(fsync: &str) -> Cluster {
    let builder = Cluster::builder().set("fsync", fsync).set("jobs.interval", "100 ms");
    expecting_crashes(builder).start()
}

/// Sessions that end, and are turned away while the server recovers.
pub fn expecting_crashes(builder: jobs_tests::Builder) -> jobs_tests::Builder {
    builder
        .allow(u32::MAX, "was terminated by signal 9")
        .allow(u32::MAX, "57P0[123] .* FATAL: ")
        .allow(u32::MAX, "terminating connection due to unexpected postmaster exit")
}

/// A session that is there after a crash.
pub async fn reconnected(cluster: &Cluster) -> Client {
    let config = cluster.config().dbname(DATABASE).clone();
    poll_until("the server is back", SOON, async || {
        config.connect(tokio_postgres::NoTls).await.is_ok()
    })
    .await;
    cluster.connect(DATABASE).await
}

/// For at least so many rounds puts a server under load and hurts it again and again; then nothing
/// is lost and nothing doubled.
async fn again_and_again(
    case: &str,
    fsync: &str,
    rounds: usize,
    hurt: impl AsyncFn(&Cluster, &mut StdRng, usize) -> &'static str,
) {
    let cluster = server(fsync);
    let mut rng = rng();
    let load = Load::begin(&cluster, &mut rng, 3, 3).await;
    load.resumed_since(Instant::now()).await;
    let begun = Instant::now();
    let (mut times, mut worker_times) = (Vec::new(), Vec::new());
    let mut hurts = std::collections::BTreeMap::<&str, u32>::new();
    while begun.elapsed() < duration() || times.len() < rounds {
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..1000))).await;
        let moment = Instant::now();
        let what = hurt(&cluster, &mut rng, times.len()).await;
        *hurts.entry(what).or_default() += 1;
        load.resumed_since(moment).await;
        times.push(moment.elapsed());
        let db = reconnected(&cluster).await;
        poll_until("the background workers are back", SOON, async || background_workers(&db).await)
            .await;
        worker_times.push(moment.elapsed());
        assert_whole(&db).await;
    }
    let db = reconnected(&cluster).await;
    let ended = load.end(&db, Pruning::Nothing).await;
    assert_whole(&db).await;
    for (what, count) in hurts {
        figure(case, what, count);
    }
    figure(case, "time_until_clients_insert_and_complete_again", middle_and_longest(&times));
    figure(
        case,
        "time_until_the_background_worker_is_there_again",
        middle_and_longest(&worker_times),
    );
    ended.assert_right(&db, case).await;
}

/// One of the server's processes of a kind; none: it is just being started.
async fn process(cluster: &Cluster, like: &str) -> Option<i32> {
    let db = reconnected(cluster).await;
    let sql = format!(
        "select pid from pg_stat_activity where {like} and pid <> pg_backend_pid() order by random() limit 1"
    );
    db.query_opt(&sql, &[]).await.ok()?.map(|row| row.get(0))
}

/// Terminates a process and waits until it is gone.
async fn terminate(cluster: &Cluster, pid: i32) {
    let db = reconnected(cluster).await;
    let there =
        format!("select count(pg_terminate_backend(pid)) from pg_stat_activity where pid = {pid}");
    poll_until("it ends", SOON, async || number(&db, &there).await == 0).await;
}

/// Those that maintain the database of the load, and the one that starts them.
async fn background_workers(db: &Client) -> bool {
    let launchers = "select count(*) from pg_stat_activity where backend_type = 'jobs launcher'";
    workers(db, DATABASE).await == 1 && number(db, launchers).await == 1
}

async fn kill_or_terminate(
    cluster: &Cluster,
    round: usize,
    like: &str,
    words: [&'static str; 2],
) -> &'static str {
    let pid = loop {
        if let Some(pid) = process(cluster, like).await {
            break pid;
        }
        seconds(0.01).await;
    };
    if round.is_multiple_of(2) {
        let bystander = cluster.connect(DATABASE).await;
        cluster.kill9_backend(pid);
        poll_until("all sessions end", SOON, async || bystander.is_closed()).await;
        return words[0];
    }
    terminate(cluster, pid).await;
    words[1]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn backends_die() {
    again_and_again("backends", "off", 4, async |cluster, _, round| {
        let client = "backend_type = 'client backend' and application_name = 'load'";
        kill_or_terminate(
            cluster,
            round,
            client,
            ["sessions_killed_with_SIGKILL", "sessions_terminated"],
        )
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn background_workers_die() {
    again_and_again("worker", "off", 4, async |cluster, _, round| match round / 2 % 2 {
        0 => {
            let words = ["worker_killed_with_SIGKILL", "worker_terminated"];
            kill_or_terminate(
                cluster,
                round,
                "backend_type = 'jobs worker' and datname = 'load'",
                words,
            )
            .await
        }
        _ => {
            let words = ["launcher_killed_with_SIGKILL", "launcher_terminated"];
            kill_or_terminate(cluster, round, "backend_type = 'jobs launcher'", words).await
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn postmasters_die() {
    // With fsync as in production: recovery then begins with a sync of all files, which is most of
    // the time.
    again_and_again("postmaster", "on", 2, async |cluster, _, round| {
        if round.is_multiple_of(2) {
            cluster.kill9();
            cluster.start_again();
            return "postmaster_killed_with_SIGKILL";
        }
        cluster.restart(Mode::Immediate);
        "immediate_shutdowns"
    })
    .await;
}

/// The launcher ends alone, without a crash: the next one must know the workers that are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_launcher_starts_no_second_worker() {
    let cluster = server("off");
    let load = Load::begin(&cluster, &mut rng(), 1, 1).await;
    let db = reconnected(&cluster).await;
    poll_until("the background workers are there", SOON, async || background_workers(&db).await)
        .await;
    let launcher = process(&cluster, "backend_type = 'jobs launcher'").await;
    terminate(&cluster, launcher.expect("a launcher")).await;
    poll_until("the launcher is back", SOON, async || background_workers(&db).await).await;
    for _ in 0..30 {
        assert_eq!(workers(&db, DATABASE).await, 1);
        seconds(0.1).await;
    }
    load.end(&db, Pruning::Nothing).await.assert_right(&db, "control").await;
}
