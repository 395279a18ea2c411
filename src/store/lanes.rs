//! Where rows of `ready` and `scheduled` are looked for from: whoever puts one in says so,
//! whichever way it was put in. Then, when the floors show it, it counts for the queue's bound.

use pgrx::pg_sys::Oid;

use super::bounds;
use super::direct::shapes;
use crate::shmem::floors::{self, Lane};

/// A job was put into a lane of `ready`.
pub fn put_ready(queue: &str, priority: i16, seq: i64) {
    floors::inserted(shapes::READY.name.oid(), queue, Lane::Ready(priority), seq);
    bounds::put(queue);
}

/// A job was put into `scheduled`.
pub fn put_scheduled(queue: &str, due_at: i64) {
    for whose in [Whose::Queue(queue), Whose::All] {
        let (table, queue) = whose.floor();
        floors::inserted(table, queue, Lane::Scheduled, due_at);
    }
    bounds::put(queue);
}

/// Whose scheduled jobs are meant. Both have a floor.
#[derive(Clone, Copy)]
pub(super) enum Whose<'a> {
    /// those of this queue
    Queue(&'a str),
    /// those of all queues, as they come due
    All,
}

impl Whose<'_> {
    /// What their floor is known by.
    pub fn floor(&self) -> (Oid, &str) {
        match self {
            Whose::Queue(queue) => (shapes::SCHEDULED.name.oid(), queue),
            // No queue has this name, and an index may be built anew under another OID.
            Whose::All => (shapes::SCHEDULED.name.oid(), ""),
        }
    }
}

/// Which scheduled jobs are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// all of them
    All,
    /// those that may be left
    FromFloor,
}

/// From when on a queue may have scheduled jobs: those that were due before are gone.
pub fn scheduled_from(queue: &str, reach: Reach) -> i64 {
    let from_floor = || {
        let floors = floors::of(shapes::SCHEDULED.name.oid(), queue);
        floors.map(|floors| floors.of(Lane::Scheduled))
    };
    let floor = (reach == Reach::FromFloor).then(from_floor).flatten();
    floor.unwrap_or(floors::LOWEST)
}
