//! Claims that lost a job by delete go when no other job needs them.

use super::Task;
use crate::store::{claims, maintain};

pub const TASK: Task = Task {
    name: "claims",
    run,
};

fn run(limit: i64) -> usize {
    let notes = maintain::take_orphans(limit);
    let locks = maintain::lock_claims(&notes.iter().copied().collect());
    // Somebody is at work on these: they are looked at again.
    locks.busy.iter().for_each(|key| claims::note_orphan(*key));
    maintain::reap_claims(&locks.locked);
    notes.iter().filter(|key| !locks.busy.contains(key)).count()
}
