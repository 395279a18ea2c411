//! What follows when jobs move. Code that writes rows reports the move to one function here, for
//! one job or many, and that function does the rest. Nothing else counts, notes or announces a
//! move: `ops/scripts/layers.py` and the suite `server:effects` check that.
//!
//! | move | history | floors | who is told | limits | keys |
//! |---|---|---|---|---|---|
//! | [`inserted`] | inserted | spot | queue | | |
//! | [`promoted`] | | spot | queue, unless by a fetch | order | |
//! | [`started`] | started, wait | | queue, if due jobs are left | taken | holds released |
//! | [`ended`] | | | queue, of a freed slot | freed | |
//! | .. completed | completed, run | | job | turn ended | holds released |
//! | [`moved`] to wait | failed, run | spot | queue | order | returned, if it was final |
//! | .. final | failed, its end, run | | job | turn ended, or blocks | hold released, if replaced |
//! | [`expired`] | discarded | | job | turn ended | |
//! | [`asked_to_stop`] | | | worker | | |
//! | [`deleted`] | | | job | turn ended | orphaned |
//! | [`pruned`] | | | | | claims deleted or orphaned |
//!
//! A job that leaves a lane otherwise than by its start hands its place there on (`held::left`).
//! A floor also counts for the queue's bound. [`started`] says when the first lease ends.
//! [`inserted`], [`ended`] and [`moved`] also have the background worker look: something may be due
//! earlier than it knows.

use jobs_core::counts::Event;
use jobs_core::key::Key;
use jobs_core::state::State;

use super::fetch::{Fetch, Room, Started};
use super::finish::Ended;
use super::held::{self, OnInsert};
use super::history::{self, Over};
use super::job::NewJob;
use super::moves::{Move, To};
use super::prune::Old;
use super::queue::Queue;
use super::{bounds, lanes, limits, notes, permits, reap, turns};
use crate::pg::time;
use crate::shmem::commit::{self, Work};
use crate::shmem::{announce, leases};

/// The place of a job that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// The end of its lane.
    Ready { priority: i16, seq: i64 },
    /// Its earlier place in the same lane.
    Back { priority: i16, seq: i64 },
    /// Until it is due: scheduled, retryable or pending.
    Scheduled { due_at: i64 },
}

impl Spot {
    /// The priority and the position of an available job.
    fn place(self) -> Option<(i16, i64)> {
        match self {
            Spot::Ready { priority, seq } | Spot::Back { priority, seq } => Some((priority, seq)),
            Spot::Scheduled { .. } => None,
        }
    }
}

/// The queue of a job that was put to wait, and its place.
pub type Arrived = (Queue, Spot);

/// Who is told that due jobs are available.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Sessions that wait for jobs of the queue.
    All,
    /// Nobody: a fetch looks at them, and [`started`] tells of those it leaves.
    Fetch,
}

/// Jobs wait, and their rows are written.
fn arrived<'a>(jobs: impl ExactSizeIterator<Item = (&'a Queue, Spot)>, told: Told) {
    let are_counted = jobs.len() > 1 && bounds::are_set();
    let mut lowest = None;
    let mut latest = None;
    for (queue, spot) in jobs {
        match spot {
            Spot::Ready { priority, seq } | Spot::Back { priority, seq } => {
                let lane = (queue, priority);
                // Mostly the next jobs of a lane are above the first.
                if lowest.is_none_or(|(known, lowest)| known != lane || seq < lowest) {
                    lanes::put_ready(queue, priority, seq);
                    lowest = Some((lane, seq));
                } else if are_counted {
                    bounds::put(queue);
                }
            }
            Spot::Scheduled { due_at } => lanes::put_scheduled(queue, due_at),
        }
        let is_new = matches!(spot, Spot::Ready { .. });
        if told == Told::Fetch || latest == Some((queue, is_new)) {
            continue;
        }
        match spot {
            Spot::Ready { .. } => announce::available(queue),
            // A pending job.
            Spot::Scheduled { due_at: i64::MAX } => continue,
            // A job that is back was available, but a look may have met neither of its rows.
            Spot::Back { .. } | Spot::Scheduled { .. } => announce::waits(queue),
        }
        latest = Some((queue, is_new));
    }
}

fn finished<'a>(jobs: impl Iterator<Item = Over<'a>> + Clone, event: Event, may_block: bool) {
    jobs.clone().for_each(|job| announce::over(job.id));
    turns::over(jobs.clone().map(|job| job.id), may_block);
    history::over(jobs, event);
}

pub(super) fn inserted(jobs: &[(i64, &NewJob)], held: &OnInsert) {
    history::inserted(jobs);
    let spot = |n: usize, id: i64, job: &NewJob| match job.state {
        State::Available if held.is_held(n) => Spot::Scheduled { due_at: i64::MAX },
        State::Available => Spot::Ready { priority: job.common.priority, seq: held.seq(n, id) },
        _ => Spot::Scheduled { due_at: job.due_at() },
    };
    let jobs_in_order = jobs.iter().enumerate();
    let spots = jobs_in_order.map(|(n, (id, job))| (&job.common.queue, spot(n, *id, job)));
    arrived(spots, Told::All);
    let is_never_due = |(_, job): &(i64, &NewJob)| {
        job.state == State::Available && job.common.expires_at.is_none()
    };
    commit::wake_worker(match jobs.iter().all(is_never_due) {
        true => Work::Available,
        false => Work::MayBeDue,
    });
}

/// Jobs of a queue are available at these priorities and positions: they came due, or nothing holds
/// them any more.
pub(super) fn promoted(queue: &Queue, places: &[(i16, i64)], told: Told) {
    are_in(queue, places, told);
    turns::settle(queue, places);
}

/// Likewise, and each is where its turn is.
pub(super) fn placed(queue: &Queue, places: &[(i16, i64)]) {
    are_in(queue, places, Told::All);
}

/// A fetch found jobs at these priorities and positions, which may have arrived without our code,
/// as by COPY.
pub(super) fn found(queue: &Queue, places: &[(i16, i64)]) {
    are_in(queue, places, Told::Fetch);
}

fn are_in(queue: &Queue, places: &[(i16, i64)], told: Told) {
    let spot = |&(priority, seq): &(i16, i64)| (queue, Spot::Ready { priority, seq });
    arrived(places.iter().map(spot), told);
}

/// A fetch started attempts at jobs of a queue.
pub(super) fn started(queue: &Queue, fetch: &Fetch, room: &Room, jobs: &[Started]) {
    for one in jobs {
        history::started(one.pair, fetch.now, one.since);
    }
    if jobs.len() < room.promoted {
        announce::available(queue);
    }
    let held = jobs.iter().filter_map(|one| Some((one.id, one.hold_ends_at?)));
    notes::release_holds(&held.collect::<Vec<_>>());
    if let Some(first) = jobs.iter().map(|one| one.lease_ends_at).min() {
        leases::noted(first);
    }
    if let Some(slots) = room.slots {
        let ids: Vec<i64> = jobs.iter().map(|one| one.id).collect();
        limits::occupy(slots, &ids);
    }
    if let Some((starts, period)) = room.starts {
        limits::start(&starts[..jobs.len()], fetch.now, period);
    }
}

/// Attempts ended. Jobs that are not completed are [`moved`] next.
pub(super) fn ended(ended: &Ended) {
    for queue in limits::free(&ended.slots) {
        announce::available(&queue);
    }
    permits::free(&ended.permits);
    if ended.completed.is_empty() {
        return;
    }
    finished(ended.completed.iter().map(|one| one.over()), Event::Completed, false);
    let held = ended.completed.iter().filter_map(|one| {
        let ends_at = one.hold_ends_at.filter(|at| *at > one.ended_at)?;
        Some((one.id, ends_at))
    });
    notes::release_holds(&held.collect::<Vec<_>>());
    commit::wake_worker(Work::MayBeDue);
}

/// Jobs that were taken out of their places were put elsewhere, at that time.
pub(super) fn moved(moves: &[Move], waiting: &[Arrived], at: i64) {
    let failed = moves.iter().filter(|one| one.has_failed);
    history::over(failed.map(|one| one.over(at)), Event::Failed);
    for (state, event) in
        [(State::Discarded, Event::Discarded), (State::Cancelled, Event::Cancelled)]
    {
        let are_so = moves.iter().filter(|one| one.to == To::Finished(state));
        // The failed attempt has counted its time.
        let over = are_so.map(|one| Over {
            began_at: one.row.attempted_at.filter(|_| !one.has_failed),
            ..one.over(at)
        });
        finished(over, event, state == State::Discarded);
    }
    turns::returned(moves.iter().filter(|one| one.to.waits()).map(|one| one.id));
    arrived(waiting.iter().map(|(queue, spot)| (queue, *spot)), Told::All);
    for of_queue in waiting.chunk_by(|a, b| a.0 == b.0) {
        let places: Vec<_> = of_queue.iter().filter_map(|(_, spot)| spot.place()).collect();
        turns::settle(&of_queue[0].0, &places);
    }
    held::left(moves.iter().filter_map(|one| one.row.gate));
    for one in moves {
        if let Some(ends_at) = one.releases {
            notes::release_holds(&[(one.id, ends_at)]);
        }
        if let Some(key) = one.returns_under {
            notes::returned(key, one.id, at);
        }
    }
    commit::wake_worker(Work::MayBeDue);
}

/// Jobs that waited were discarded: they did not start in time. Of those in lanes, the gates that
/// they counted for there.
pub(super) fn expired(jobs: &[(i64, Option<i64>)], now: i64) {
    let over = jobs.iter().map(|(id, _)| Over { id: *id, ended_at: now, ..Over::default() });
    finished(over, Event::Discarded, false);
    held::left(jobs.iter().filter_map(|(_, gate)| *gate));
}

/// The worker of a running job was asked to stop.
pub fn asked_to_stop(id: i64, worker: &str) {
    announce::cancelled(id, worker);
}

/// A call deleted a job; where it was in a lane, this is the gate that it counted for there.
pub(super) fn deleted(id: i64, key: Option<Key>, gate: Option<i64>) {
    announce::over(id);
    turns::over([id].into_iter(), false);
    held::left(gate.into_iter());
    if let Some(key) = key {
        notes::orphaned([(key, time::now())]);
    }
}

/// Maintenance deleted final jobs whose retention is over.
pub(super) fn pruned(jobs: &[Old]) {
    reap::clear_claims(jobs);
}

/// A queue was resumed or has other limits, so a fetch may get more.
pub fn opened(queue: &Queue) {
    announce::available(queue);
}
