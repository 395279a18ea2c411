//! Claims that lost a job by delete go when no other job needs them.

use super::Task;
use crate::store::{claims, maintain};

pub const TASK: Task = Task {
    name: "claims",
    run,
};

fn run(limit: i64) -> usize {
    let keys = maintain::take_orphans(limit);
    let busy = maintain::lock_claims(&keys);
    // Somebody is at work on these: they are looked at again.
    busy.iter().for_each(|key| claims::note_orphan(*key));
    maintain::reap_claims(&keys.difference(&busy).copied().collect());
    keys.len() - busy.len()
}
