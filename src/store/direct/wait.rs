//! What a session that waits looks at, without statements.

use super::due;
use super::walk::{self, How};
use crate::store::queue::Queue;
use crate::store::wait::First;

/// The first jobs of a queue; `None`: use a statement.
pub fn first(queue: &Queue, now: i64) -> Option<First> {
    // In this order: what becomes ready between the two is seen by the second.
    let scheduled = due::first_of(queue)?;
    let ready = walk::take(How::Await, queue, now, 1, &|_| true)?;
    Some((ready.first().map(|found| found.seq), scheduled))
}
