//! When queues were last fetched from, and for which kinds, in shared memory: who sees jobs wait
//! wants to know whether a worker takes some. Hints, as all of it: a server that was started anew
//! knows of none.
//!
//! Who needs room takes the earliest of a few places. Sessions that do so at once may take each
//! other's.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicU64};

use pgrx::prelude::*;

use super::things::Queue;

/// Queues, and kinds of them, that can be told apart.
const PLACES: usize = 4096;
/// Where one may be.
const WAYS: usize = 4;
/// A time is not written anew so soon, in microseconds: sessions that fetch from one queue would
/// keep taking its memory from each other.
const COARSE: i64 = 500_000;

/// A queue, or a kind of one, and its latest fetch.
#[derive(Default)]
struct Place {
    /// Its number; 0 if the place is free.
    thing: AtomicU64,
    /// When that was; 0 if it is not known yet.
    at: AtomicI64,
}

struct Shared([Place; PLACES]);

shared!(SHARED: Shared = c"jobs fetches", Shared(std::array::from_fn(|_| Place::default())));

/// A session fetches from a queue, whether there is a job or not; `None`: jobs of any kind.
pub fn note(queue: &Queue, kinds: Option<&[String]>, now: i64) {
    if !super::is_preloaded() {
        return;
    }
    let note = |thing| {
        let place = find(thing).unwrap_or_else(|| settle(thing));
        // Also where the clock was put back.
        if (now - place.at.load(Relaxed)).abs() >= COARSE {
            place.at.store(now, Relaxed);
        }
    };
    note(queue.number());
    match kinds {
        None => note(queue.kind(None)),
        Some(kinds) => {
            for kind in kinds {
                note(queue.kind(Some(kind)));
            }
        }
    }
}

/// When that was last; `None`: not since the server was started, or so many queues ago that it is
/// forgotten.
pub fn last(queue: &Queue) -> Option<i64> {
    at(queue.number())
}

/// When that was last by a session that would have taken a job of this kind.
pub fn last_for(queue: &Queue, kind: &str) -> Option<i64> {
    let asked = [None, Some(kind)].map(|kind| at(queue.kind(kind)));
    asked.into_iter().flatten().max()
}

fn at(thing: u64) -> Option<i64> {
    let place = super::is_preloaded().then(|| find(thing)).flatten()?;
    let at = place.at.load(Relaxed);
    (at != 0).then_some(at)
}

fn places(thing: u64) -> &'static [Place] {
    let first = (thing as usize % (PLACES / WAYS)) * WAYS;
    &SHARED.get().0[first..first + WAYS]
}

fn find(thing: u64) -> Option<&'static Place> {
    let is = |place: &&Place| place.thing.load(Relaxed) == thing;
    places(thing).iter().find(is)
}

/// Takes the place of the earliest. Two sessions may take two for one thing: then the time in one
/// of them is never found.
fn settle(thing: u64) -> &'static Place {
    let at = |place: &&Place| place.at.load(Relaxed);
    let earliest = places(thing).iter().min_by_key(at);
    let earliest = earliest.expect("there are some");
    // First: no reader may take the time of one for that of the other.
    earliest.at.store(0, SeqCst);
    earliest.thing.store(thing, SeqCst);
    earliest
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::super::things::Queue;
    use super::{COARSE, PLACES, last, last_for, note};

    #[pg_test]
    fn a_queue_is_known_by_its_latest_fetch_until_many_others_came() {
        let now = 1_000 * COARSE;
        let [a, b] = ["fetches a", "fetches b"].map(Queue::named);
        assert_eq!(last(&a), None);
        note(&a, None, now);
        note(&a, None, now + 1);
        assert_eq!(last(&a), Some(now));
        note(&a, None, now + COARSE);
        assert_eq!(last(&a), Some(now + COARSE));
        // The clock is put back.
        note(&a, None, now - COARSE);
        assert_eq!(last(&a), Some(now - COARSE));
        assert_eq!(last(&b), None);
        let other = |n: usize| Queue::named(&format!("fetches {n}"));
        for n in 0..PLACES * 8 {
            note(&other(n), None, now + n as i64);
        }
        assert_eq!(last(&a), None);
        assert!(last(&other(PLACES * 8 - 1)).is_some());
    }

    #[pg_test]
    fn a_kind_is_asked_for_by_its_name_or_by_who_takes_any() {
        let (now, kinds) = (1_000 * COARSE, ["k1".to_string(), "k2".to_string()]);
        let queue = &Queue::named("kinds");
        note(queue, Some(&kinds), now);
        assert_eq!(last(queue), Some(now));
        assert_eq!(last_for(queue, "k2"), Some(now));
        assert_eq!(last_for(queue, "k3"), None);
        note(queue, None, now + COARSE);
        assert_eq!(last_for(queue, "k2"), Some(now + COARSE));
        assert_eq!(last_for(queue, "k3"), Some(now + COARSE));
    }
}
