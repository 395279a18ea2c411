//! Periodic jobs whose time has come are inserted.

use super::Task;
use crate::periodic;
use crate::pg::time;
use crate::store;

pub const TASK: Task = Task {
    name: "periodic",
    run,
};

fn run(limit: i64) -> usize {
    let now = time::now();
    let due = store::periodic::due(now, limit);
    for definition in &due {
        pgrx::check_for_interrupts!();
        periodic::run(definition, now);
    }
    due.len()
}
