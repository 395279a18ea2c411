//! Jobs that are due become available.

use super::Task;
use crate::pg::time;
use crate::store::{fetch, maintain};

pub const TASK: Task = Task {
    name: "schedule",
    run,
};

fn run(limit: i64) -> usize {
    let now = time::now();
    maintain::queues_with_due(now)
        .iter()
        .map(|queue| fetch::promote_due(queue, now, limit))
        .sum()
}
