//! Waiting for jobs, and for what is asked of a worker.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::cell;
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::fault::{self, Fault};
use crate::pg::array::Array;
use crate::pg::role::{as_role, called, owner_of};
use crate::pg::{procedure, time};
use crate::shmem::waiters::{self, QUEUES, Taken, WORKERS};
use crate::shmem::{self, things};
use crate::store::queue::Queue;
use crate::store::wait::{self, Look};
use crate::store::{config_cache, limits, workers};

/// How often to look for what causes no wake-up: a prepared transaction's commit, a dump being
/// restored.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often to look where no commit can wake the session.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// How long a job is kept back for which the session's last call has returned, and that is still
/// there: another session may have it locked, or it may be of a kind that the caller does not take.
/// If the next call returned at once, the caller would look for it in an endless loop. Each call in
/// a row that ends so keeps it back for twice as long, up to [`LOOK_AGAIN`], where commits wake.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Of how many queues a session remembers what it saw there.
const MOST_SEEN: usize = 10_000;

thread_local! {
    /// The job in front of each queue that the last call for that queue saw. Behind a pooler many
    /// workers share a session, each with queues of its own.
    static SEEN: RefCell<BTreeMap<u64, i64>> = const { RefCell::new(BTreeMap::new()) };
    /// How long the next call keeps those back.
    static KEPT_BACK: Cell<Duration> = const { Cell::new(AGAIN_AFTER) };
    /// The worker of the last call that had one, and what had been asked of it by then.
    static HEARD: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

#[pg_extern(sql = false)]
fn wait(
    queue: Option<&str>,
    timeout: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) {
    or_raise(|| {
        check::primary()?;
        let queues = [check::queue(queue)?];
        own(&queues, fcinfo)?;
        Wait::run("jobs.wait", timeout, fcinfo, |wait| wait_for_jobs(&queues, None, wait))
    })
}

/// Waits for jobs of several queues, and for what is asked of a worker.
#[pg_extern(sql = false)]
fn wait_any(
    queues: Option<Array>,
    timeout: Option<pgrx::datum::Interval>,
    worker: Option<&str>,
    fcinfo: pg_sys::FunctionCallInfo,
) {
    or_raise(|| {
        check::primary()?;
        let queues = check::queues(queues)?;
        let worker = worker.map(|worker| check::name("worker", Some(worker)));
        let worker = worker.transpose()?;
        own(&queues, fcinfo)?;
        Wait::run("jobs.wait_any", timeout, fcinfo, |wait| {
            wait_for_jobs(&queues, worker.as_deref(), wait)
        })
    })
}

/// Refuses to wait for what a fetch would refuse. It looks with the rights of the extension.
fn own(queues: &[Queue], fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    as_role(owner_of(called(fcinfo)), || {
        cell::serving()?;
        cell::own_queues(queues)
    })
}

/// A call that waits. Between its looks it has no snapshot, transaction id or lock.
pub(super) struct Wait {
    /// The role whose rights its looks have.
    owner: pg_sys::Oid,
    begun: Instant,
    timeout: Duration,
}

impl Wait {
    /// Ends the transaction that the procedure `name` was called in, and does what it is for.
    pub fn run(
        name: &str,
        timeout: Option<pgrx::datum::Interval>,
        fcinfo: pg_sys::FunctionCallInfo,
        body: impl FnOnce(&Wait),
    ) -> Result<()> {
        let timeout = check::given("timeout", timeout)?;
        let timeout = check::not_negative("timeout", check::interval(timeout))?;
        if !procedure::may_end_transaction(fcinfo) {
            return Err(Error::in_transaction(name));
        }
        let owner = owner_of(called(fcinfo));
        let now = time::now();
        let timeout = time::add(now, timeout).saturating_sub(now);
        procedure::run(|| {
            // Ends the snapshot that every CALL begins with.
            procedure::next_transaction();
            body(&Wait {
                owner,
                begun: Instant::now(),
                timeout: Duration::from_micros(timeout as u64),
            });
        });
        Ok(())
    }

    pub fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.timeout
    }

    /// Looks with the rights of the extension, in a transaction of its own.
    pub fn look<T>(&self, look: impl FnOnce() -> T) -> T {
        procedure::in_transaction(|| as_role(self.owner, look))
    }

    /// How long until it looks by itself: so often, or as often as without a seat.
    pub fn pause(&self, seat: Option<&Taken>, again: Duration) -> Duration {
        match seat {
            _ if fault::is_on(Fault::NoLooks) => self.timeout,
            Some(_) => again,
            None => POLL,
        }
    }

    /// Sleeps until woken, or the time is over; whether a commit did it.
    pub fn sleep(&self, seat: Option<&Taken>, at_most: Duration) -> bool {
        let left = self.timeout.saturating_sub(self.begun.elapsed());
        let until = Instant::now() + at_most.min(left);
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
}

/// Returns when there may be a job, or something new is asked of the worker.
fn wait_for_jobs(queues: &[Queue], worker: Option<&str>, wait: &Wait) {
    let mut things: Vec<u64> = queues.iter().map(|queue| queue.number()).collect();
    things.extend(worker.map(things::worker));
    let kinds = QUEUES | worker.map_or(0, |_| WORKERS);
    let seat = waiters::take_seat(kinds);
    let seat = seat.as_ref();
    if let Some(seat) = seat {
        seat.wait_for(things.into_iter());
    }
    let mut requests = worker.map(|worker| Requests::begin(worker, wait));
    let mut woken = false;
    while !wait.is_over() {
        if let Some(seat) = seat {
            seat.forget();
        }
        if requests.as_mut().is_some_and(|requests| requests.are_new(wait)) {
            return;
        }
        let (now, found) = look(queues, worker, wait);
        let mut pause = wait.pause(seat, LOOK_AGAIN);
        let (is_any, is_new) = remember(&found.heads);
        if is_new || is_any && woken {
            KEPT_BACK.set(AGAIN_AFTER);
            return;
        }
        let kept_back = KEPT_BACK.get();
        if is_any && wait.begun.elapsed() >= kept_back {
            let most = seat.map_or(AGAIN_AFTER, |_| LOOK_AGAIN);
            KEPT_BACK.set((kept_back * 2).min(most));
            return;
        }
        if is_any {
            pause = pause.min(kept_back);
        }
        if let Some(due_at) = found.due_at {
            pause = pause.min(Duration::from_micros(due_at.abs_diff(now)));
        }
        woken = wait.sleep(seat, pause);
    }
}

/// What is asked of a worker: that one of its jobs stops, or a command. What comes between two
/// calls of a session is new to the second one.
struct Requests<'a> {
    worker: &'a str,
    number: u64,
    /// Requests up to the last call.
    heard: u64,
    now: u64,
    looked: Instant,
}

impl<'a> Requests<'a> {
    fn begin(worker: &'a str, wait: &Wait) -> Requests<'a> {
        let number = things::worker(worker);
        let now = requests(worker, number, wait);
        let before = HEARD.get().filter(|(worker, _)| *worker == number);
        Requests {
            worker,
            number,
            heard: before.map_or(now, |(_, heard)| heard),
            now,
            looked: Instant::now(),
        }
    }

    /// Whether something is. It is new only once.
    fn are_new(&mut self, wait: &Wait) -> bool {
        // Without shared memory all that runs has to be read.
        if shmem::is_preloaded() || self.looked.elapsed() >= LOOK_AGAIN {
            self.now = requests(self.worker, self.number, wait);
            self.looked = Instant::now();
        }
        HEARD.set(Some((self.number, self.now)));
        self.now != self.heard
    }
}

/// What is asked of a worker, as a number that is another one when more is. Without shared memory
/// the tables say it.
fn requests(worker: &str, number: u64, wait: &Wait) -> u64 {
    match shmem::is_preloaded() {
        true => waiters::requests(number),
        false => wait.look(|| workers::requests(worker)),
    }
}

/// Remembers the first job of each queue. Returns whether there is any, and whether one is new.
fn remember(heads: &[(u64, Option<i64>)]) -> (bool, bool) {
    SEEN.with_borrow_mut(|seen| {
        if seen.len() > MOST_SEEN.max(2 * heads.len()) {
            seen.clear();
        }
        let (mut is_any, mut is_new) = (false, false);
        for (queue, head) in heads {
            let before = match head {
                Some(head) => seen.insert(*queue, *head),
                None => seen.remove(queue),
            };
            is_any |= head.is_some();
            is_new |= head.is_some() && before != *head;
        }
        (is_any, is_new)
    })
}

#[derive(Default)]
struct QueueHeads {
    /// The first job of each queue.
    heads: Vec<(u64, Option<i64>)>,
    /// When the next one is due.
    due_at: Option<i64>,
}

fn look(queues: &[Queue], worker: Option<&str>, wait: &Wait) -> (i64, QueueHeads) {
    let now = time::now();
    let mut found = QueueHeads::default();
    wait.look(|| {
        // Who gets nothing anyway waits for another command.
        if worker.and_then(config_cache::command).is_some() {
            return;
        }
        for queue in queues {
            let look = with_room(queue, now);
            found.heads.push((queue.number(), look.head));
            found.due_at = found.due_at.into_iter().chain(look.due_at).min();
        }
    });
    (now, found)
}

/// What of a queue could be fetched: nothing while it is paused or as full as it may be.
fn with_room(queue: &Queue, now: i64) -> Look {
    let set = queue.settings();
    let is_full = || set.concurrency.is_some_and(|limit| !limits::has_free_slot(queue, limit));
    if set.is_paused() || is_full() {
        return Look::default();
    }
    let mut look = wait::look(queue, now);
    if let Some(period) = set.rate_period
        && let Some(free_at) = limits::next_start(queue, now, period)
    {
        look.due_at = look.head.take().map(|_| free_at).or(look.due_at.map(|at| at.max(free_at)));
    }
    look
}
