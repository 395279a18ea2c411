//! Periodic jobs whose time has come are inserted. A definition that fails is nobody else's trouble:
//! `crate::periodic` sees to that.

use super::{Round, Task};
use crate::periodic;
use crate::pg::time;
use crate::store;

pub const TASK: Task = Task {
    name: "periodic",
    run: |limit, _but| run(limit),
    singly: None,
};

fn run(limit: i64) -> Round {
    let now = time::now();
    let mut handled = 0;
    for definition in &store::periodic::due(now, limit) {
        pgrx::check_for_interrupts!();
        handled += usize::from(periodic::run(definition, now));
    }
    Round::of(handled, limit)
}
