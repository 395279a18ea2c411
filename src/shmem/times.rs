//! A time for each of many things, in shared memory, for as many things as there is room for.
//!
//! Things are numbers, never 0. Who needs room takes that of the earliest of a few: a time that is
//! far ahead keeps it no longer than others. Sessions that do so at once may take each other's:
//! these are hints.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use pgrx::PGRXSharedMemory;

/// Where a thing may be.
const WAYS: usize = 4;
/// A thing that is not given its time anew keeps others from its place for so long at most.
const LONGEST: i64 = 3600 * 1_000_000;

/// A thing, and its time.
#[derive(Default)]
struct Place {
    /// 0: free
    thing: AtomicU64,
    /// 0: none yet
    at: AtomicI64,
    /// its time, or before: who needs room takes the place where this is earliest
    kept_until: AtomicI64,
}

/// Times of up to so many things.
pub struct Times<const PLACES: usize>([Place; PLACES]);

// SAFETY: atomics only.
unsafe impl<const PLACES: usize> PGRXSharedMemory for Times<PLACES> {}

impl<const PLACES: usize> Times<PLACES> {
    /// Nothing is known.
    pub fn new() -> Times<PLACES> {
        Times(std::array::from_fn(|_| Place::default()))
    }

    /// The time of a thing; `None`: it has none, or it was forgotten.
    pub fn get(&self, thing: u64) -> Option<i64> {
        let at = self.find(thing)?.at.load(Ordering::Relaxed);
        (at != 0).then_some(at)
    }

    /// Gives a thing a time, now, if that differs from the one that it has by so much at least.
    pub fn set(&self, thing: u64, at: i64, least: i64, now: i64) {
        let place = self.find(thing).unwrap_or_else(|| self.settle(thing));
        if (at - place.at.load(Ordering::Relaxed)).abs() >= least {
            place.at.store(at, Ordering::Relaxed);
            let kept_until = at.min(now.saturating_add(LONGEST));
            place.kept_until.store(kept_until, Ordering::Relaxed);
        }
    }

    fn places(&self, thing: u64) -> &[Place] {
        let first = (thing as usize % (PLACES / WAYS)) * WAYS;
        &self.0[first..first + WAYS]
    }

    fn find(&self, thing: u64) -> Option<&Place> {
        let is = |place: &&Place| place.thing.load(Ordering::Relaxed) == thing;
        self.places(thing).iter().find(is)
    }

    /// Takes the place that is kept for the shortest time. Two sessions may take two for one thing:
    /// then the time in one of them is never found.
    fn settle(&self, thing: u64) -> &Place {
        let kept_until = |place: &&Place| place.kept_until.load(Ordering::Relaxed);
        let earliest = self.places(thing).iter().min_by_key(kept_until);
        let earliest = earliest.expect("there are some");
        // First: nobody is to take the time of one for that of the other.
        earliest.at.store(0, Ordering::SeqCst);
        earliest.thing.store(thing, Ordering::SeqCst);
        earliest
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::{LONGEST, Times, WAYS};

    #[pg_test]
    fn what_ends_in_days_makes_room_when_it_was_not_heard_of_for_long() {
        const DAYS: i64 = 100 * LONGEST;
        let times = Times::<WAYS>::new();
        let known = |things: &[u64]| -> Vec<bool> {
            let is_known = |thing: &u64| times.get(*thing).is_some();
            things.iter().map(is_known).collect()
        };
        for thing in [1, 2, 3] {
            times.set(thing, DAYS, 0, 1);
        }
        times.set(4, LONGEST / 4, 0, 1);
        times.set(5, LONGEST / 2, 0, 1);
        assert_eq!(known(&[1, 2, 3, 4, 5]), [true, true, true, false, true]);
        // Of one something is heard again.
        let now = 2 * LONGEST;
        times.set(2, DAYS, 0, now);
        for thing in [6, 7, 8] {
            times.set(thing, now + LONGEST / 2 + thing as i64, 0, now);
        }
        assert_eq!(
            known(&[1, 2, 3, 5, 6, 7, 8]),
            [false, true, false, false, true, true, true]
        );
        assert_eq!(times.get(2), Some(DAYS));
    }
}
