//! The maintenance tasks, one file each. A task handles a bounded number of rows at a
//! time and skips what somebody else has locked; what it leaves, the next round finds.

mod claims;
mod expire;
mod periodic;
mod prune;
mod rescue;
mod schedule;

use pgrx::PgMemoryContexts;

use crate::settings;

/// A maintenance task.
pub struct Task {
    /// its name, as `jobs.maintain()` shows it
    pub name: &'static str,
    /// one round over at most so many rows; how many it handled
    run: fn(limit: i64) -> usize,
}

/// All of them, in the order in which they run.
pub const ALL: [&Task; 6] = [
    &schedule::TASK,
    &periodic::TASK,
    &expire::TASK,
    &rescue::TASK,
    &prune::TASK,
    &claims::TASK,
];

/// What a round did.
pub struct Round {
    /// rows handled
    pub rows: usize,
    /// there may be more
    pub more: bool,
}

/// One round of a task. What it allocates in the server's memory goes with it.
pub fn round(task: &Task) -> Round {
    let limit = settings::BATCH_SIZE.get() as usize;
    let mut memory = PgMemoryContexts::new("a round of maintenance");
    // SAFETY: nothing of the round but a number is used afterwards.
    let rows = unsafe { memory.switch_to(|_| (task.run)(limit as i64)) };
    Round {
        rows,
        more: rows >= limit,
    }
}

/// Rounds of a task until nothing is left; rows handled.
pub fn run_until_done(task: &Task) -> usize {
    let mut total = 0;
    loop {
        pgrx::check_for_interrupts!();
        let round = round(task);
        total += round.rows;
        if !round.more {
            return total;
        }
    }
}
