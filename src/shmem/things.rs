//! What sessions wait for, and what is kept of queues, as numbers that are the same in all
//! processes. Two things with one number only wake somebody for nothing.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::pg::server;

/// A queue of this database among those of all. Never 0.
pub fn queue_here(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (server::database().to_u32(), name).hash(&mut hasher);
    hasher.finish().max(1)
}

/// A kind of a queue of this database; `None`: any kind. Never 0.
pub fn kind_here(queue: &str, kind: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (queue_here(queue), kind).hash(&mut hasher);
    hasher.finish().max(1)
}

/// A queue: a job of it may be ready.
pub fn queue(name: &str) -> u64 {
    named('q', name)
}

/// A worker: one of its jobs is asked to stop, or it has another command.
pub fn worker(name: &str) -> u64 {
    named('w', name)
}

/// A job: it is final, or gone. Every job has a number of its own.
pub fn job(id: i64) -> u64 {
    // The end of MurmurHash3: ids that follow each other are far from each other.
    let mut number = id as u64;
    number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

fn named(prefix: char, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (prefix, name).hash(&mut hasher);
    hasher.finish()
}
