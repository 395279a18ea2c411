//! A time for each of many things, in shared memory, for as many things as there is room for.
//!
//! Things are numbers, never 0. Who needs room takes that of the earliest of a few. Sessions that
//! do so at once may take each other's: these are hints.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use pgrx::PGRXSharedMemory;

/// Where a thing may be.
const WAYS: usize = 4;

/// A thing, and its time.
#[derive(Default)]
struct Place {
    /// 0: free
    thing: AtomicU64,
    /// 0: none yet
    at: AtomicI64,
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

    /// Gives a thing a time, if that differs from the one that it has by so much at least.
    pub fn set(&self, thing: u64, at: i64, least: i64) {
        let place = self.find(thing).unwrap_or_else(|| self.settle(thing));
        if (at - place.at.load(Ordering::Relaxed)).abs() >= least {
            place.at.store(at, Ordering::Relaxed);
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

    /// Takes the place with the earliest time. Two sessions may take two for one thing: then the
    /// time in one of them is never found.
    fn settle(&self, thing: u64) -> &Place {
        let at = |place: &&Place| place.at.load(Ordering::Relaxed);
        let earliest = self.places(thing).iter().min_by_key(at);
        let earliest = earliest.expect("there are some");
        // First: nobody is to take the time of one for that of the other.
        earliest.at.store(0, Ordering::SeqCst);
        earliest.thing.store(thing, Ordering::SeqCst);
        earliest
    }
}
