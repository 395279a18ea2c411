//! Periodic jobs whose time has come are inserted.

use super::{Round, Singly, Task, Thing};
use crate::pg::time;
use crate::store::periodic_schedule as store;
use crate::ticks;

pub const TASK: Task = Task { name: "periodic", run, singly: Some(Singly { find, handle }) };

/// As many as are dealt with in a round.
const MOST: i64 = 16;

fn run(limit: i64, but: &[Thing]) -> Round {
    let now = time::now();
    // Each is a subtransaction, and a transaction has room for few of them.
    let limit = limit.min(MOST);
    let mut handled = 0;
    for definition in &store::due(now, limit, &Thing::periodic(but)) {
        pgrx::check_for_interrupts!();
        handled += usize::from(ticks::run(definition, now));
    }
    Round::of(handled, limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let due = store::due(time::now(), limit, &Thing::periodic(but));
    let name = |one: store::Periodic| Thing::Periodic(one.definition.name);
    due.into_iter().map(name).collect()
}

fn handle(thing: &Thing) -> bool {
    let now = time::now();
    if let Thing::Periodic(name) = thing
        && let Some(definition) = store::lock(name)
        && definition.next_run_at.is_some_and(|at| at <= now)
    {
        ticks::run(&definition, now)
    } else {
        false
    }
}
