//! Jobs that were not begun before `expires_at` are discarded.

use super::Task;
use crate::pg::time;
use crate::store::{maintain, place};

pub const TASK: Task = Task {
    name: "expire",
    run,
};

fn run(limit: i64) -> usize {
    maintain::expire(
        time::now(),
        limit,
        place::details_of_type("expired").datum(),
    )
}
