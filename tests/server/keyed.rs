//! Limits and orders by key under all that can happen (`tests/support/keyed.rs`), and what must be
//! found of builds that are wrong.

use std::time::Duration;

use jobs_tests::keyed::{self, By, Limit, Order, Plan, QUEUES, Scene, Told};
use jobs_tests::{Cluster, number};

use crate::dump::programs::copy;
use crate::order::cell_of_two;

/// Two jobs of a tenant at a time, seven of all; of kind `r`, ten of a tenant and 20 of all start
/// in a period.
fn limited() -> Plan {
    let tenant = Limit::of("tenant", By::T, 2);
    let mut all = Limit::of("all", By::Nothing, 7);
    all.queues = QUEUES;
    let rates = [("rate", By::T, 10), ("rate of all", By::Nothing, 20)];
    let [rate, rate_of_all] = rates.map(|(name, by, rate)| Limit::rate_of(name, "r", by, rate));
    Plan::of([tenant, all, rate, rate_of_all], None)
}

/// A session is killed, with which all others end.
async fn crash(scene: &Scene) {
    scene.is_at(30).await;
    let db = scene.connect().await;
    let session = "select pid::bigint from pg_stat_activity where application_name = 'keyed' and pid <> pg_backend_pid() limit 1";
    scene.cluster.kill9_backend(number(&db, session).await as i32);
}

/// Later, all go on in a restored copy.
async fn crash_and_restore(scene: &Scene) {
    crash(scene).await;
    scene.is_at(60).await;
    scene.move_to_copy(copy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_and_everything_is_done_whatever_happens() {
    holds(limited(), crash_and_restore).await;
}

/// What a history finds broken with a fault.
async fn broken_by(fault: &str, plan: Plan) -> String {
    let builder = Cluster::builder().faults(fault);
    let plan = Plan { at_most: Duration::from_secs(30), ..plan };
    let told = keyed::history(builder, plan, async |_| {}).await;
    told.cluster.allow_violations();
    told.broken.join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_fetches_that_count_out_of_turn_break_limits() {
    let broken = broken_by("permit_out_of_turn", limited()).await;
    assert!(broken.contains(" run under "), "{broken}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_fetches_that_heed_no_rate_break_limits() {
    let broken = broken_by("no_rates", limited()).await;
    assert!(broken.contains(" starts of "), "{broken}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_history_tells_of_ends_that_keep_their_places() {
    let broken = broken_by("keep_places", limited()).await;
    assert!(broken.contains("maintenance had to help"), "{broken}");
}

/// An order beside a limit.
fn ordered(is_strict: bool, is_fair: bool) -> Plan {
    Plan::of([Limit::of("others", By::U, 3)], Some(Order::of(is_strict, is_fair)))
}

async fn holds(plan: Plan, harm: impl AsyncFnOnce(&Scene)) -> Told {
    let starts = plan.starts;
    let told = keyed::history(Cluster::builder(), plan, harm).await;
    assert_eq!(told.broken, [""; 0]);
    assert!(told.starts >= starts, "{}", told.starts);
    told
}

/// Each of two cells has its own tenants.
async fn holds_over_two_cells(plan: Plan) {
    let cell = |cell| {
        let setup = QUEUES.iter().map(|queue| cell_of_two(cell, queue)).collect();
        Plan { setup, changes: false, fetchers: 12, inserters: 4, starts: 750, ..plan.clone() }
    };
    let (one, other) = tokio::join!(holds(cell(0), crash), holds(cell(1), crash));
    assert!(!one.tenants.is_empty() && !other.tenants.is_empty());
    let mut tenants: Vec<i64> = one.tenants.into_iter().chain(other.tenants).collect();
    tenants.sort_unstable();
    assert_eq!(tenants, [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_order_holds_and_everything_is_done_whatever_happens() {
    holds(ordered(true, false), crash_and_restore).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_order_holds_beside_shares() {
    holds(ordered(true, true), crash_and_restore).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_order_holds_beside_shares_over_two_cells() {
    holds_over_two_cells(Plan::of([], Some(Order::of(true, true)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_beside_a_fair_order_over_two_cells() {
    let limit = Limit::of("tenant", By::T, 2);
    holds_over_two_cells(Plan::of([limit], Some(Order::of(false, true)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_order_loses_nothing_whatever_happens() {
    holds(ordered(false, true), crash_and_restore).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_turn_that_two_jobs_have_breaks_the_order() {
    let broken = broken_by("turn_twice", ordered(true, false)).await;
    assert!(broken.contains(" has the turn"), "{broken}");
    assert!(broken.contains(" starts before "), "{broken}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_turn_that_a_final_job_keeps_stalls() {
    let broken = broken_by("keep_turns", ordered(true, false)).await;
    assert!(broken.contains("maintenance had to help"), "{broken}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_discarded_job_that_does_not_block_is_found() {
    let order = Order { blocks: true, ..Order::of(true, false) };
    let plan = Plan { changes: false, ..Plan::of([], Some(order)) };
    let broken = broken_by("no_blocks", plan).await;
    assert!(broken.contains(" has the turn"), "{broken}");
}
