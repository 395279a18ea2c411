//! What sessions wait for, and what is kept of queues, as numbers that are the same in all
//! processes. Two things with one number only wake a session for nothing.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::pg::server;

/// A queue of this database.
pub struct Queue {
    name: Box<str>,
    number: u64,
}

impl Queue {
    pub fn named(name: &str) -> Queue {
        Queue { name: name.into(), number: hash(('q', server::database().to_u32(), name)).max(1) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number among the queues of all databases. Never 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A kind of its jobs; `None`: any kind. Never 0.
    pub fn kind(&self, kind: Option<&str>) -> u64 {
        hash((self.number, kind)).max(1)
    }
}

/// A worker: one of its jobs is asked to stop, or it has another command.
pub fn worker(name: &str) -> u64 {
    hash(('w', name))
}

/// A job: it is final, or gone. Every job has a number of its own.
pub fn job(id: i64) -> u64 {
    spread(id as u64)
}

/// A number for each number: those that follow each other are far from each other. It is the end of
/// MurmurHash3.
pub(super) fn spread(mut number: u64) -> u64 {
    number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
