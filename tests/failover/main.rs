//! The suite `failover`: cells under pg_auto_failover, with load, whose primaries are killed, cut
//! off and stopped. `JOBS_FAILOVERS` says how often each.

mod cells;
mod network;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jobs_tests::checks::{Checks, Outcome, holds, output, suite};
use jobs_tests::figures::{figure, middle_and_longest, variable};
use jobs_tests::journal::{Fate, Journal, Pruning, assert_whole, differences};
use jobs_tests::load::{DATABASE, Load};
use jobs_tests::{Postgres, is, poll_until, rng, row_of, run, seconds};
use rand::Rng;
use rand::rngs::StdRng;

use crate::cells::{Cell, Cells, Roles, connected};
use crate::network::Network;

/// Within this time clients insert and complete again.
const AGAIN: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    suite(failover)
}

fn failover(checks: &mut Checks) {
    let engine = format!("postgresql-{}-auto-failover", Postgres::installed().major());
    let packages = ["need_packages", "iproute2", &engine];
    if !checks.has("failover", format!("apt-get install {engine}"), &packages) {
        return;
    }
    let network = match Network::make() {
        Ok(network) => network,
        Err(error) => return checks.skip("failover", "a network namespace", error),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut cells = runtime.block_on(Cells::start(network)).expect("a monitor");
    let ended = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(primaries_fail(checks, &mut cells));
    }));
    if ended.is_err() {
        checks.check("primaries fail", Err(cells.log_tails()));
    }
}

/// What happens to a primary.
#[derive(Clone, Copy)]
enum Hurt {
    /// All its processes, the keeper among them, get SIGKILL.
    Killed,
    /// Its link is down, while it goes on.
    CutOff,
    /// All its processes get SIGSTOP, and SIGCONT once another one has taken over.
    Stopped,
}

impl Hurt {
    const ALL: [(Hurt, &str); 3] =
        [(Hurt::Killed, "killed"), (Hurt::CutOff, "cut_off"), (Hurt::Stopped, "stopped")];

    fn begin(self, cells: &mut Cells, node: u8) -> Outcome {
        match self {
            Hurt::Killed => cells.kill(node),
            Hurt::CutOff => cells.network().connect(node, false),
            Hurt::Stopped => cells.network().signal(node, "STOP"),
        }
    }

    fn end(self, cells: &mut Cells, node: u8) -> Outcome {
        match self {
            Hurt::Killed => {
                cells.run(node);
                Ok(())
            }
            Hurt::CutOff => cells.network().connect(node, true),
            Hurt::Stopped => cells.network().signal(node, "CONT"),
        }
    }
}

async fn primaries_fail(checks: &mut Checks, cells: &mut Cells) {
    let mut rng = rng();
    let cell = cells.add("a", [2, 3]).await.expect("a cell");
    let neighbour = cells.add("b", [4, 5]).await.expect("a cell");
    let load = begin(cells, &cell, &mut rng, 3).await;
    let elsewhere = begin(cells, &neighbour, &mut rng, 1).await;
    let often = std::env::var("JOBS_RELIABILITY_REPORT").map_or(1, |_| 10);
    let mut times = Hurt::ALL.map(|_| Vec::new());
    for _ in 0..variable("JOBS_FAILOVERS", often) {
        for ((hurt, name), times) in Hurt::ALL.iter().zip(&mut times) {
            let waited = failover_of(cells, &cell, &load, &elsewhere, *hurt, &mut rng).await;
            times.extend(waited.as_ref().ok());
            checks.check(format!("the primary is {name}"), waited.map(|_| ()));
        }
    }
    for ((_, name), times) in Hurt::ALL.iter().zip(times) {
        figure("failover", &format!("primaries_{name}"), times.len());
        let key = format!("time_until_clients_insert_and_complete_again,_primary_{name}");
        figure("failover", &key, middle_and_longest(&times));
    }
    for (cell, load, case) in [(&cell, load, "failover"), (&neighbour, elsewhere, "neighbour")] {
        let db = cells.primary(cell, DATABASE).await;
        let ended = load.end(&db, Pruning::Nothing).await;
        assert_whole(&db).await;
        ended.assert_right(&db, case).await;
    }
    checks.check("nothing is lost and nothing doubled", Ok(()));
    checks.check("control: asynchronous replication loses", is_lost(cells, &cell).await);
    checks.check("the servers' logs are clean", cells.logs_are_clean(&cell));
}

async fn begin(cells: &Cells, cell: &Cell, rng: &mut StdRng, clients: usize) -> Load {
    let postgres = cells.primary(cell, "postgres").await;
    run(&postgres, &format!("create database {DATABASE}")).await;
    let db = cells.primary(cell, DATABASE).await;
    let number = cell.nodes[0];
    let become_cell = format!("select jobs.set_cell({number}), jobs.place_queue('*', {number})");
    run(&db, &format!("create extension jobs; {become_cell}")).await;
    let servers = cell.nodes.map(|node| cells.server(node, DATABASE)).to_vec();
    Load::begin_at(&db, servers, rng, clients, clients).await
}

/// One failover of a cell, until it has two servers again: how long its clients waited.
async fn failover_of(
    cells: &mut Cells,
    cell: &Cell,
    load: &Load,
    elsewhere: &Load,
    hurt: Hurt,
    rng: &mut StdRng,
) -> Result<Duration, String> {
    let Roles { primary, secondary } = cells.healthy(cell).await;
    load.resumed_since(Instant::now()).await;
    seconds(rng.random_range(0.3..1.0)).await;
    let begun = Instant::now();
    hurt.begin(cells, primary)?;
    seconds(0.1).await; // until it has taken effect
    let since = Instant::now();
    let intruder = Intruder::begin(cells, primary);
    elsewhere.resumed_since(since).await;
    load.resumed_since(since).await;
    let waited = begun.elapsed();
    works_by_libpq(&cells.url(cell, DATABASE))?;
    hurt.end(cells, primary)?;
    let roles = cells.healthy(cell).await;
    let taken = intruder.end().await;
    holds(taken.is_empty(), format!("the old primary acknowledged {taken:?}"))?;
    let expected = Roles { primary: secondary, secondary: primary };
    holds(roles == expected, format!("{roles:?} in place of {expected:?}"))?;
    assert_whole(&cells.primary(cell, DATABASE).await).await;
    holds(waited < AGAIN, format!("{waited:?} is longer than {AGAIN:?}"))?;
    Ok(waited)
}

/// A program of libpq that knows both servers inserts, fetches and completes.
fn works_by_libpq(url: &str) -> Outcome {
    let mut psql = Command::new(Postgres::installed().bindir.join("psql"));
    psql.args([url, "-X", "-qAt", "-v", "ON_ERROR_STOP=1"]);
    psql.args(["-c", "select state from jobs.insert('libpq', queue => 'libpq')"]);
    psql.args(["-c", "select jobs.complete(id, token) from jobs.fetch('libpq')"]);
    let said = output(&mut psql)?;
    holds(said == "available\ncompleted\n", said)
}

/// A client on the machine of the old primary, which inserts from the moment on at which another
/// one may take over.
struct Intruder {
    ends: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Intruder {
    fn begin(cells: &Cells, node: u8) -> Intruder {
        let ends = Arc::new(AtomicBool::new(false));
        let mut insert = cells.client_within(node, DATABASE);
        insert.args(["-c", "select id from jobs.insert('intruder', queue => 'intruder')"]);
        let stop = ends.clone();
        let task = tokio::task::spawn_blocking(move || {
            let mut acknowledged = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                acknowledged.extend(output(&mut insert));
                std::thread::sleep(Duration::from_millis(100));
            }
            acknowledged
        });
        Intruder { ends, task }
    }

    /// What was acknowledged to it.
    async fn end(self) -> Vec<String> {
        self.ends.store(true, Ordering::Relaxed);
        self.task.await.expect("the intruder")
    }
}

/// The documented price of asynchronous replication: what only the primary had is gone, its key can
/// be used again, and whoever compares with a journal sees it.
async fn is_lost(cells: &mut Cells, cell: &Cell) -> Outcome {
    const INSERT: &str = r#"select id, unique_skipped_as_duplicate from jobs.insert('load', '{"n": -1}', '{"key": "lost", "by_queue": true}')"#;
    cells.asynchronous(cell)?;
    let Roles { primary, secondary } = cells.healthy(cell).await;
    let db = connected(&cells.server(primary, DATABASE)).await.ok_or("no primary")?;
    let waits_for_nobody = "current_setting('synchronous_standby_names') = ''";
    poll_until("the primary waits for nobody", AGAIN, async || is(&db, waits_for_nobody).await)
        .await;
    cells.network().block(primary, secondary, true)?;
    let id: i64 = row_of(&db, INSERT).await.get(0);
    cells.kill(primary)?;
    let server = cells.server(secondary, DATABASE);
    poll_until("the standby takes over", AGAIN, async || match connected(&server).await {
        // The engine lets it take no writes for a moment after it has left recovery.
        Some(db) => is(&db, "current_setting('transaction_read_only') = 'off'").await,
        None => false,
    })
    .await;
    let db = connected(&server).await.ok_or("no server")?;
    let mut journal = Journal::default();
    journal.wanted.insert(-1, Fate::Inserted(id));
    let found = differences(&db, &journal, Pruning::Nothing).await;
    let lost = format!("job {id} of number -1 is lost, done 0 times");
    holds(found.contains(&lost), format!("not found: {lost}"))?;
    let again = row_of(&db, INSERT).await;
    holds(!again.get::<_, bool>(1), "its key is still held")
}
