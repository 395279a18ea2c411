//! Jobs that limits held back can start: places became free without a job to hand them to, the time
//! of a rate has come, or a limit was changed. Starts that no longer count are forgotten.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::{Round, Task, Thing};
use crate::pg::time;
use crate::shmem;
use crate::store::{config_cache, held, permits, turns};

pub const TASK: Task = Task { name: "limits", run, singly: None };

/// How often all starts are looked at.
const FORGET_EVERY: Duration = Duration::from_secs(60);

thread_local! {
    /// The gate that was looked at last.
    static AFTER: Cell<i64> = const { Cell::new(i64::MIN) };
    /// When starts were forgotten.
    static FORGOT: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn run(limit: i64, _but: &[Thing]) -> Round {
    let (promoted, last) = held::look_after(AFTER.get(), limit);
    AFTER.set(last.unwrap_or(i64::MIN));
    let is_rest = FORGOT.get().is_some_and(|at| at.elapsed() < FORGET_EVERY);
    let forgotten = match shmem::is_worker() && is_rest {
        true => 0,
        false => {
            turns::repair(&config_cache::rules(), limit);
            permits::forget_starts(time::now(), limit)
        }
    };
    let has_more = forgotten as i64 >= limit || promoted as i64 >= limit;
    if !is_rest && (forgotten as i64) < limit {
        FORGOT.set(Some(Instant::now()));
    }
    // Where nothing was to be done, the other gates have time until the next pass.
    Round {
        rows: promoted + forgotten,
        more: has_more || last.is_some() && promoted > 0,
        failed: Vec::new(),
    }
}
