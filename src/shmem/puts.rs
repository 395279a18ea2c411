//! How many jobs were put into the queues that have a bound, ever: so a session that has counted
//! what waits in one knows how many more there can be by now.
//!
//! Who puts a job there notes it once the row is there, and before it commits. So who first asks
//! here and then counts, also what others are just inserting, has missed none that was noted
//! before. A job that is rolled back, or taken out again, stays noted. Queues may share a number:
//! then there only seem to be more.

use std::sync::atomic::{AtomicU64, Ordering};

use pgrx::prelude::*;

use super::things::Queue;

const NUMBERS: usize = 1024;

struct Shared([AtomicU64; NUMBERS]);

shared!(SHARED: Shared = c"jobs puts", Shared([const { AtomicU64::new(0) }; NUMBERS]));

/// A job was put into a queue of this database.
pub fn note(queue: &Queue) {
    if let Some(number) = number(queue) {
        number.fetch_add(1, Ordering::SeqCst);
    }
}

/// How many were, since the server was started; `None`: they are not counted.
pub fn noted(queue: &Queue) -> Option<u64> {
    number(queue).map(|number| number.load(Ordering::SeqCst))
}

fn number(queue: &Queue) -> Option<&'static AtomicU64> {
    super::is_preloaded().then(|| &SHARED.get().0[queue.number() as usize % NUMBERS])
}
