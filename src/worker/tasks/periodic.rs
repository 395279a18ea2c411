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
    let mut handled = 0;
    for definition in &store::periodic::due(now, limit) {
        pgrx::check_for_interrupts!();
        handled += usize::from(periodic::run(definition, now));
    }
    handled
}
