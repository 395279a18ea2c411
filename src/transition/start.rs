//! How a fetch starts attempts: from which queues, within which limits, and whether there are
//! enough jobs.

use jobs_core::interval::Interval;

use super::attempt::{self, By, Ending, Failure, Finishing};
use super::due::promote;
use crate::fault::{self, Fault};
use crate::pg::reply::Rows;
use crate::pg::{lock, server, subxact, time};
use crate::settings::LONGEST_ROW;
use crate::shmem::commit::{self, Work};
use crate::shmem::fetches;
use crate::store::effects::Told;
use crate::store::fetch::{self, Began, Emit, Fetch, Room};
use crate::store::queue::Queue;
use crate::store::{clock, config_cache, due, limits, moves, workers};

/// Due jobs that a fetch moves at least, so that a crowd of them is moved in few steps.
const DUE_AT_LEAST: usize = 1000;
/// Where a fetch has passed over more jobs than these, it looks for no others in their place.
const MOST_PASSED_OVER: usize = 1000;

/// Starts attempts at up to so many jobs of these queues and hands them over; at none if there are
/// fewer than `least`, or if the worker has a command.
pub fn attempts(
    queues: &[Queue],
    fetch: &Fetch,
    wanted: usize,
    least: Option<AtLeast>,
    rows: &mut Rows,
) {
    if config_cache::command(fetch.worker).is_some() {
        workers::seen(fetch.worker, fetch.now);
        return;
    }
    for queue in queues {
        fetches::note(queue, fetch.kinds, fetch.now);
    }
    let taken = match least {
        None => take(queues, fetch, wanted, &mut |values, nulls| {
            rows.push_datums((values, nulls));
        }),
        Some(least) => least.take(queues, fetch, wanted, rows),
    };
    if taken < wanted {
        commit::wake_worker(Work::MayBeDue);
    }
}

/// Starts attempts at up to so many jobs; how many. Others come in the place of jobs that no fetch
/// can return, which are discarded, and of those that a limit holds back.
fn take(queues: &[Queue], fetch: &Fetch, wanted: usize, emit: Emit) -> usize {
    let (mut left, mut over) = (wanted, 0);
    for queue in queues {
        loop {
            let mut too_long = Vec::new();
            let mut pass_on = |values: Vec<_>, nulls| match fetch::too_long(&values) {
                None => emit(values, nulls),
                Some(length) => too_long.push((fetch::id_and_token(&values), length)),
            };
            let began = take_from(queue, fetch, left, &mut pass_on);
            left -= began.started - too_long.len();
            let passed_over = too_long.len() + began.held;
            over += passed_over;
            discard(&too_long);
            if left == 0 || passed_over == 0 || over > MOST_PASSED_OVER {
                break;
            }
        }
        if left == 0 {
            break;
        }
    }
    wanted - left
}

/// Ends attempts at jobs whose rows would be too long to be returned, for good.
fn discard(too_long: &[((i64, i64), u64)]) {
    if too_long.is_empty() {
        return;
    }
    let error = |length| {
        format!(
            "the job cannot be fetched: its args, meta and tags have {length} bytes of text, and at most {LONGEST_ROW} can be returned"
        )
    };
    let errors: Vec<String> = too_long.iter().map(|(_, length)| error(length)).collect();
    let details = moves::details_of_type("too_long");
    let said: Vec<Finishing> = too_long
        .iter()
        .zip(&errors)
        .map(|(((id, token), _), error)| Finishing {
            id: *id,
            token: *token,
            ending: Ending::Fail(Failure {
                error,
                details: Some(details),
                retry_in: None,
                retryable: false,
                by: By::Fetch,
            }),
        })
        .collect();
    attempt::end(&said);
}

/// Starts attempts at up to so many jobs of a queue.
fn take_from(queue: &Queue, fetch: &Fetch, wanted: usize, emit: Emit) -> Began {
    let set = queue.settings();
    if set.is_paused() {
        return Began::default();
    }
    let mut most = wanted;
    let slots = set.concurrency.map(|limit| limits::lock_slots(queue, limit, most));
    most = slots.as_ref().map_or(most, Vec::len);
    let starts = set.rate_period.map(|period| {
        let starts = limits::lock_starts(queue, most, fetch.now, period);
        most = starts.len();
        (starts, period)
    });
    if most == 0 {
        return Began::default();
    }
    let promoted = match due::has_due(queue, fetch.now) {
        true => promote(queue, fetch.now, wanted.max(DUE_AT_LEAST), Told::Fetch),
        false => 0,
    };
    let room = Room {
        slots: slots.as_deref(),
        starts: starts.as_ref().map(|(starts, period)| (&starts[..], *period)),
        promoted,
    };
    let tokens: Vec<i64> = (0..most).map(|_| new_token()).collect();
    fetch::start(queue, fetch, &tokens, &room, emit)
}

/// By so many locks fetches take turns that want several jobs at least.
const TURNS: u64 = 16;

/// How many jobs a fetch is to get at least.
pub struct AtLeast {
    pub jobs: usize,
    /// Once a job has been available for so long, fewer are enough. `None`: never.
    pub linger: Option<Interval>,
}

impl AtLeast {
    /// Starts attempts at up to so many jobs, or at none; how many.
    ///
    /// What turns out to be too little is released, by a subtransaction that is rolled back.
    /// Another fetch that asks for so many must not pass over those jobs meanwhile: for it they may
    /// be enough. So fetches that want several jobs of a queue take turns. They may do so with
    /// those of other queues: [`TURNS`] numbers are locked at most, however many queues there are.
    fn take(&self, queues: &[Queue], fetch: &Fetch, wanted: usize, rows: &mut Rows) -> usize {
        let turns = queues.iter().map(|queue| (queue.number() % TURNS) as i64);
        let turns = turns.filter(|_| !fault::is_on(Fault::OutOfTurn));
        lock::in_turn(turns.collect(), || {
            if !self.are_there(queues, fetch) {
                return 0;
            }
            let is_enough = |taken: &(usize, i64)| self.is_met(taken.0, taken.1, fetch.now);
            let taken = subxact::kept_if(is_enough, || {
                let mut first = i64::MAX;
                let mut emit = |values: Vec<_>, nulls| {
                    first = first.min(fetch::since(&values));
                    rows.push_datums((values, nulls));
                };
                let count = take(queues, fetch, wanted, &mut emit);
                (count, first)
            });
            if is_enough(&taken) {
                taken.0
            } else {
                rows.clear();
                0
            }
        })
    }

    /// Whether there are enough jobs, as far as limits of queues are left aside. Due ones are made
    /// available for that.
    fn are_there(&self, queues: &[Queue], fetch: &Fetch) -> bool {
        let (mut count, mut first) = (0, i64::MAX);
        for queue in queues {
            if queue.settings().is_paused() {
                continue;
            }
            if due::has_due(queue, fetch.now) {
                promote(queue, fetch.now, self.jobs.max(DUE_AT_LEAST), Told::All);
            }
            for since in fetch::available_since(queue, fetch, self.jobs - count) {
                count += 1;
                first = first.min(since);
            }
            if count >= self.jobs {
                break;
            }
        }
        self.is_met(count, first, fetch.now)
    }

    /// Whether so many jobs are enough, of which the first is available since then. Where that lies
    /// ahead, the clock was put back, and it is not known how long it has waited.
    fn is_met(&self, count: usize, first: i64, now: i64) -> bool {
        let has_waited = |linger| time::add(first, linger) <= now || clock::is_ahead(first, now);
        count >= self.jobs || count > 0 && self.linger.is_some_and(has_waited)
    }
}

/// A new random token: 1 to 2^53 - 1, which a JSON number and a double hold exactly.
fn new_token() -> i64 {
    (server::random() >> 11).max(1) as i64
}
