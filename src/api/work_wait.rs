//! Waiting for jobs.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::check;
use crate::config_cache;
use crate::error::{Error, Result, answer};
use crate::fault::{self, Fault};
use crate::pg::role::{as_role, called, owner_of};
use crate::pg::{procedure, time};
use crate::shmem::announce;
use crate::shmem::waiters::{self, Taken};
use crate::store::limits;
use crate::store::wait::{self, Look};

/// How often to look for what wakes nobody: a prepared transaction's commit, a dump being restored.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often to look where no commit can wake the session.
const POLL: Duration = Duration::from_millis(100);
/// How long a job is kept back that the session was told of the last time, and that is still
/// there: somebody may have it locked, or it may be of a kind that the caller does not take.
/// Told at once, the caller would look for it in an endless loop.
const TOLD: Duration = Duration::from_millis(100);

thread_local! {
    /// The queue and the job that the last call returned for.
    static LAST: Cell<Option<(u64, i64)>> = const { Cell::new(None) };
}

/// Waits for jobs. See the COMMENT in sql/50_work.sql.
#[pg_extern(sql = false)]
fn wait(
    queue: Option<&str>,
    timeout: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) {
    let run = || -> Result<()> {
        check::primary()?;
        let queue = check::name("queue", queue)?.to_string();
        let timeout = check::given("timeout", timeout)?;
        let timeout = check::not_negative("timeout", check::interval(timeout))?;
        if !procedure::may_end_transaction(fcinfo) {
            return Err(Error::in_transaction("jobs.wait"));
        }
        let owner = owner_of(called(fcinfo));
        let now = time::now();
        let timeout = time::add(now, timeout).saturating_sub(now);
        procedure::run(|| {
            // Ends the snapshot that every CALL begins with.
            procedure::next_transaction();
            wait_for(&queue, Duration::from_micros(timeout as u64), owner);
        });
        Ok(())
    };
    answer(run);
}

fn wait_for(queue: &str, timeout: Duration, owner: pg_sys::Oid) {
    let hash = announce::hash(queue);
    let seat = waiters::take_seat(hash);
    let begun = Instant::now();
    let mut woken = false;
    while begun.elapsed() < timeout {
        if let Some(seat) = &seat {
            seat.forget();
        }
        let (now, look) = look(queue, owner);
        let mut pause = match seat {
            _ if fault::is_on(Fault::NoLooks) => timeout,
            Some(_) => LOOK_AGAIN,
            None => POLL,
        };
        if let Some(head) = look.head {
            let told = LAST.replace(Some((hash, head))) == Some((hash, head));
            if !told || woken || begun.elapsed() >= TOLD {
                return;
            }
            pause = pause.min(TOLD);
        } else {
            LAST.set(None);
        }
        if let Some(due_at) = look.due_at {
            pause = pause.min(Duration::from_micros(due_at.abs_diff(now)));
        }
        woken = sleep(
            seat.as_ref(),
            pause.min(timeout - begun.elapsed().min(timeout)),
        );
    }
}

/// Looks at the queue with the rights of the extension, in a transaction of its own.
fn look(queue: &str, owner: pg_sys::Oid) -> (i64, Look) {
    config_cache::forget();
    let now = time::now();
    let look = procedure::in_transaction(|| as_role(owner, || with_room(queue, now)));
    (now, look)
}

/// What of a queue could be fetched: nothing while it is paused or as full as it may be.
fn with_room(queue: &str, now: i64) -> Look {
    let set = config_cache::queue(queue).unwrap_or_default();
    let is_full = || {
        set.concurrency
            .is_some_and(|limit| !limits::has_free_slot(queue, limit))
    };
    if set.is_paused || is_full() {
        return Look::default();
    }
    let mut look = wait::look(queue, now);
    if let (Some(_), Some(free_at)) = (set.rate, limits::next_start(queue))
        && free_at > now
    {
        look.due_at = look
            .head
            .take()
            .map(|_| free_at)
            .or(look.due_at.map(|at| at.max(free_at)));
    }
    look
}

/// Sleeps until woken; whether a commit did it.
fn sleep(seat: Option<&Taken>, at_most: Duration) -> bool {
    let until = Instant::now() + at_most;
    loop {
        // First: a lock that the look waited for may have used up the latch.
        if seat.is_some_and(Taken::is_woken) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        procedure::sleep(until.saturating_duration_since(Instant::now()));
    }
}
