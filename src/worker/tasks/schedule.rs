//! Jobs that are due become available.

use super::Task;
use crate::pg::time;
use crate::store::{fetch, maintain};
use crate::worker::news;

pub const TASK: Task = Task {
    name: "schedule",
    run,
};

fn run(limit: i64) -> usize {
    let now = time::now();
    maintain::queues_with_due(now)
        .iter()
        .map(|queue| {
            let due = fetch::promote_due(queue, now, limit);
            if due > 0 {
                news::available(queue);
            }
            due
        })
        .sum()
}
