//! Where rows of `ready` and `scheduled` are looked for from: a session that puts one in says so,
//! whichever way it was put in. Then, when the floors show it, it counts for the queue's bound.

use super::bounds;
use super::direct::shapes;
use super::queue::Queue;
use crate::shmem::floors::{self, Lane, Rows};

/// A job was put into a lane of `ready`.
pub fn put_ready(queue: &Queue, priority: i16, seq: i64) {
    floors::inserted(ready(queue), Lane::Ready(priority), seq);
    bounds::put(queue);
}

/// A job was put into `scheduled`.
pub fn put_scheduled(queue: &Queue, due_at: i64) {
    for whose in [Whose::Queue(queue), Whose::All] {
        floors::inserted(whose.rows(), Lane::Scheduled, due_at);
    }
    bounds::put(queue);
}

/// The available jobs of a queue.
pub(super) fn ready(queue: &Queue) -> Rows {
    Rows::of(shapes::READY.name.oid(), Some(queue))
}

/// Whose scheduled jobs are meant. Both have a floor.
#[derive(Clone, Copy)]
pub(super) enum Whose<'a> {
    Queue(&'a Queue),
    /// Of all queues, as they come due.
    All,
}

impl Whose<'_> {
    pub fn rows(&self) -> Rows {
        let queue = match self {
            Whose::Queue(queue) => Some(&***queue),
            Whose::All => None,
        };
        // An index may be built anew under another OID.
        Rows::of(shapes::SCHEDULED.name.oid(), queue)
    }
}

/// Which scheduled jobs are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    All,
    FromFloor,
}

/// From when on a queue may have scheduled jobs: those that were due before are gone.
pub fn scheduled_from(queue: &Queue, reach: Reach) -> i64 {
    let from_floor = || {
        let floors = Whose::Queue(queue).rows().floors();
        floors.map(|floors| floors.of(Lane::Scheduled))
    };
    let floor = (reach == Reach::FromFloor).then(from_floor).flatten();
    floor.unwrap_or(floors::LOWEST)
}
