//! Uniqueness, whatever happens: random histories of sessions that get into each other's way under
//! a few keys: for each an order of events must exist that explains what every session was told.
//! `histories/model.rs` says what counts as an explanation.
//!
//! `JOBS_HISTORIES=n` runs so many. A history that nothing explains is printed with its seed;
//! `JOBS_SEED=<that>` makes all histories from this seed: what is said is then the same, as far as
//! the answers are, but not who comes first.
//!
//! The controls run the same against a build of the extension that can be told to be wrong
//! (`src/fault.rs`).

mod answers;
mod checks;
mod count;
mod effects;
mod events;
mod generate;
mod model;
mod plain;
mod run;
mod search;
mod written;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use count::Counts;
use generate::Plan;
use jobs_tests::{Client, Cluster, run};
use model::{Cancelled, Completed, State};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// How many histories are run.
const HISTORIES: usize = 1000;
/// From so many on everything must have happened in them.
const ENOUGH: usize = 500;
/// How many are run at a time with each retention.
const GROUPS: usize = 3;
/// The most sessions of a history, and the one that looks in the end.
const CLIENTS: usize = 5;

/// Final states with a retention of nothing, in the histories with even and odd seeds.
const GONE: [&[State]; 2] = [&[], &[Completed, Cancelled]];

/// What came of many histories.
struct Found {
    histories: usize,
    unexplained: Vec<String>,
    counts: Counts,
}

/// What all groups have in common.
struct Task {
    seed: Option<u64>,
    base: u64,
    histories: usize,
    /// Whether to stop at the first unexplained history.
    stop_at_first: bool,
    started: AtomicUsize,
    stop: AtomicBool,
    found: Mutex<Found>,
}

async fn clients(cluster: &Cluster, group: usize) -> Vec<Client> {
    let database = format!("group{group}");
    let mut clients = vec![cluster.database(&database).await];
    while clients.len() < CLIENTS {
        clients.push(cluster.connect(&database).await);
    }
    for client in &clients {
        let setting = "set statement_timeout = '30 s'";
        run(client, setting).await;
    }
    clients
}

/// Runs histories one after the other.
async fn group(task: Arc<Task>, clients: Vec<Client>, parity: u64) {
    let gone = GONE[parity as usize];
    while !task.stop.load(Ordering::Relaxed) {
        let number = task.started.fetch_add(1, Ordering::Relaxed);
        if number >= task.histories {
            return;
        }
        let seed = task.seed.unwrap_or((task.base + number as u64) * 2 + parity);
        let plan = Plan::new(seed, number, &mut StdRng::seed_from_u64(seed), !gone.is_empty());
        let history = run::run(&plan, &clients, gone).await;
        let checked = search::check(&history);
        let mut found = task.found.lock().expect("what was found");
        found.histories += 1;
        found.counts.add(&history);
        if let Err(wrong) = checked {
            let story = count::tell(&history);
            found.unexplained.push(format!("JOBS_SEED={seed} ({plan:?}): {wrong}\n{story}"));
            task.stop.fetch_or(task.stop_at_first, Ordering::Relaxed);
        }
    }
}

async fn many(fault: Option<&str>, most: usize, stop_at_first: bool) -> Found {
    let number = |name: &str| {
        let value = std::env::var(name).ok();
        value.map(|value| value.parse::<u64>().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let seed = number("JOBS_SEED");
    let task = Arc::new(Task {
        seed,
        base: u64::from(rand::random::<u32>()),
        histories: number("JOBS_HISTORIES").map_or(most, |number| number as usize),
        stop_at_first,
        started: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        found: Mutex::new(Found {
            histories: 0,
            unexplained: Vec::new(),
            counts: Counts::default(),
        }),
    });
    let begun = Instant::now();
    let (mut clusters, mut groups) = (Vec::new(), Vec::new());
    for (parity, gone) in (0..).zip(GONE) {
        if seed.is_some_and(|seed| seed % 2 != parity) {
            continue;
        }
        let mut builder = Cluster::builder()
            .set("jobs.enabled", "off")
            .set("deadlock_timeout", "10 ms")
            .set("synchronous_commit", "off")
            .set("max_parallel_workers_per_gather", 0)
            .set("log_min_error_statement", "panic");
        for state in gone {
            builder = builder.set(&format!("jobs.retention_{state}"), 0);
        }
        if let Some(fault) = fault {
            builder = builder.faults(fault);
        }
        let cluster = builder.start();
        if fault.is_some_and(|fault| !fault.is_empty()) {
            cluster.allow_violations(); // it finds the faults as well
        }
        for number in 0..GROUPS {
            let clients = clients(&cluster, number).await;
            groups.push((parity, clients));
        }
        clusters.push(cluster);
    }
    let ready = Instant::now();
    let groups: Vec<_> = groups
        .into_iter()
        .map(|(parity, clients)| tokio::spawn(group(task.clone(), clients, parity)))
        .collect();
    for group in groups {
        group.await.expect("a group");
    }
    let task = Arc::into_inner(task).expect("all groups ended");
    let found = task.found.into_inner().expect("what was found");
    for unexplained in &found.unexplained {
        println!("{unexplained}\n");
    }
    println!(
        "{} histories in {:?}, after {:?}; {} unexplained; {:?}",
        found.histories,
        ready.elapsed(),
        ready - begun,
        found.unexplained.len(),
        found.counts
    );
    found
}

fn assert_explained(found: &Found) {
    let count = found.unexplained.len();
    assert_eq!(count, 0, "histories that nothing explains: see above");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_is_explained() {
    let found = many(None, HISTORIES, false).await;
    assert_explained(&found);
    if found.histories >= ENOUGH {
        found.counts.assert_not_idle(found.histories);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_without_a_fault_the_build_with_faults_is_explained() {
    // The one above has looked at what histories have; this is about the build.
    let few = HISTORIES / 5;
    assert_explained(&many(Some(""), few, false).await);
}

async fn control(fault: &str) {
    // It is over with the first one that is found, which may take long.
    let found = many(Some(fault), 20 * HISTORIES, true).await;
    assert!(!found.unexplained.is_empty(), "{fault} is not found in {} histories", found.histories);
    println!("{fault} is found after {} histories", found.histories);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_look_with_the_snapshot_of_the_outer_statement_is_found() {
    control("outer_snapshot").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_reaping_in_one_statement_is_found() {
    control("reap_in_one_statement").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_list_that_is_folded_blindly_is_found() {
    control("fold_blindly").await;
}
