//! Claims that lost a job by delete, or the hold of a job that is gone, go when no other job needs
//! them; and what stands beside claims is kept short.

use super::Task;
use crate::pg::time;
use crate::store::{claims, maintain};

pub const TASK: Task = Task {
    name: "claims",
    run,
};

/// How long what gave a hold back is kept after the hold's end, in microseconds: whoever looks
/// right then may have read the clock a moment ago.
const RELEASES_KEPT: i64 = 60 * 1_000_000;

fn run(limit: i64) -> usize {
    let now = time::now();
    let notes = maintain::take_orphans(now, limit);
    let locks = maintain::lock_claims(&notes.iter().copied().collect());
    // Somebody is at work on these: they are looked at again.
    for key in &locks.busy {
        claims::note_orphan(*key, now);
    }
    maintain::tidy_claims(&locks.locked);
    maintain::reap_claims(&locks.locked, time::now());
    let looked_at = notes.iter().filter(|key| !locks.busy.contains(key)).count();
    looked_at + maintain::forget_releases(now - RELEASES_KEPT, limit)
}
