//! The server crashes again and again under work that limits and orders by key rule.

use jobs_tests::keyed::{By, Limit, Order, Plan, Scene, history};
use jobs_tests::{Cluster, Mode};

use super::crashes::expecting_crashes;

async fn crash(scene: &Scene) {
    for (n, percent) in [20, 40, 60, 80].into_iter().enumerate() {
        scene.is_at(percent).await;
        if n % 2 == 0 {
            scene.cluster.kill9();
            scene.cluster.start_again();
        } else {
            scene.cluster.restart(Mode::Immediate);
        }
    }
}

async fn outlives_crashes(plan: Plan) {
    let starts = plan.starts;
    let told = history(expecting_crashes(Cluster::builder()), plan, crash).await;
    assert_eq!(told.broken, [""; 0]);
    assert!(told.starts >= starts, "{}", told.starts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn limits_outlive_crashes() {
    let limits = [Limit::of("tenant", By::T, 2), Limit::rate_of("rate", "r", By::T, 10)];
    outlives_crashes(Plan::of(limits, None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn orders_outlive_crashes() {
    let limits = [Limit::of("others", By::U, 3)];
    outlives_crashes(Plan::of(limits, Some(Order::of(true, true)))).await;
}
