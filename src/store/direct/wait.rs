//! What a session that waits looks at, without statements.

use super::due;
use super::walk::{self, How};
use crate::store::wait::First;

/// The first jobs of a queue that nobody is just taking; `None`: use a statement.
pub fn first(queue: &str, now: i64) -> Option<First> {
    let ready = walk::take(How::Look, queue, now, 1, &|_| true)?;
    let ready = ready.first().map(|found| found.position);
    Some((ready, due::first_of(queue)?))
}
