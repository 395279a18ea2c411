//! Queues with a bound on the jobs that wait: an insert that does not fit is refused, before it
//! writes a job.
//!
//! Counting takes as long as there are jobs, so not every insert can do it. A session that has
//! counted remembers how many there were, together with those that others were just inserting. With
//! what was put into the queue since ([`puts`]) that is never less than there are. While even so
//! many leave room, nothing is counted.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::config::Rare;
use super::job::NewJob;
use super::queue::Queue;
use super::spi::{Snapshot, Value, big, plans};
use super::types::*;
use super::{config_cache, direct};
use crate::error::{Error, Result};
use crate::fault::{self, Fault};
use crate::pg::invalidation;
use crate::shmem::puts;

/// What was counted is counted again after this, since rows can come in without our knowing (COPY,
/// replication) ..
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Looks take at most one part in so many of the time.
const SHARE: u32 = 200;

/// Jobs of a queue that wait.
#[derive(Clone, Copy, Default)]
pub(super) struct Waiting {
    /// Jobs that are committed, or this transaction's own.
    pub there: usize,
    /// These, and jobs that others are just inserting.
    pub all: usize,
}

/// What was counted of a queue.
struct Counted {
    most: i64,
    /// How many jobs had been put into the queue before.
    puts: u64,
    good_until: Instant,
}

#[derive(Default)]
struct Remembered {
    /// [`invalidation::heard`] before: until a bound is set no session notes what is put there
    since: u64,
    queues: HashMap<String, Counted>,
}

thread_local! {
    static REMEMBERED: RefCell<Remembered> = RefCell::default();
}

/// Whether some queue has a bound.
pub(super) fn are_set() -> bool {
    config_cache::some(Rare::Bound)
}

fn bound(queue: &Queue) -> Option<i64> {
    are_set().then(|| queue.settings_now().max_waiting).flatten().map(i64::from)
}

/// A job was put into `ready` or `scheduled`, and is in the floors.
pub(super) fn put(queue: &Queue) {
    if bound(queue).is_some() {
        puts::note(queue);
    }
}

/// Refuses new jobs whose queues have no room for all of them.
pub(super) fn admit<'a>(jobs: impl Iterator<Item = &'a NewJob>) -> Result<()> {
    if !are_set() {
        return Ok(());
    }
    let mut new: BTreeMap<&str, (&Queue, i64)> = BTreeMap::new();
    for job in jobs {
        let queue = &job.common.queue;
        new.entry(queue.name()).or_insert((queue, 0)).1 += 1;
    }
    for (queue, new) in new.into_values() {
        if let Some(bound) = bound(queue)
            && most(queue).is_none_or(|most| most + new > bound)
        {
            let depth = count(queue, bound);
            if depth + new > bound {
                return Err(Error::queue_full(queue.name(), new, depth, bound));
            }
        }
    }
    Ok(())
}

/// How many wait at the most, by what was counted before.
fn most(queue: &Queue) -> Option<i64> {
    let puts = puts::noted(queue)?;
    REMEMBERED.with_borrow(|remembered| {
        let counted = remembered.queues.get(queue.name())?;
        let is_good =
            remembered.since == invalidation::heard() && Instant::now() < counted.good_until;
        is_good.then(|| counted.most + puts.wrapping_sub(counted.puts) as i64)
    })
}

/// How many wait, up to the bound.
fn count(queue: &Queue, bound: i64) -> i64 {
    let (begun, since) = (Instant::now(), invalidation::heard());
    let puts = puts::noted(queue);
    let Some(waiting) = direct::bounds::count(queue, bound as usize) else {
        let args = [queue.arg(), big(bound)];
        return COUNT.value_as_of(Snapshot::Latest, &args).unwrap_or(0);
    };
    if let Some(puts) = puts {
        let rest = AGAIN_AFTER.max(begun.elapsed() * SHARE);
        let counted = Counted {
            most: match fault::is_on(Fault::CountCommitted) {
                true => waiting.there,
                false => waiting.all,
            } as i64,
            puts,
            good_until: Instant::now() + rest,
        };
        REMEMBERED.with_borrow_mut(|remembered| {
            if remembered.since != since {
                *remembered = Remembered { since, ..Remembered::default() };
            }
            remembered.queues.insert(queue.name().to_string(), counted);
        });
    }
    waiting.there as i64
}

plans! {
    COUNT(TEXT, INT8) =
        "SELECT count(*) FROM (
           SELECT 1 FROM jobs.scheduled s WHERE s.queue = $1
           UNION ALL
           SELECT 1 FROM jobs.ready r WHERE r.queue = $1 LIMIT $2) w";
}
