//! Notes on keys that are due: claims that lost a job while they were let alone, or the hold of a
//! job that is gone, go when no other job needs them, and of the notes only those stay that say
//! something.

use jobs_core::key::Key;

use super::{Round, Singly, Task, Thing};
use crate::pg::time;
use crate::store::notes::{self, Due};
use crate::store::reap;

pub const TASK: Task = Task { name: "claims", run, singly: Some(Singly { find, handle }) };

fn run(limit: i64, but: &[Thing]) -> Round {
    let now = time::now();
    let due = notes::take_due(now, limit, &Thing::keys(but));
    Round::of(deal_with(&due, now), limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let due = notes::due(time::now(), limit, &Thing::keys(but));
    due.into_iter().map(Thing::Key).collect()
}

fn handle(thing: &Thing) -> bool {
    let Thing::Key(key) = thing else {
        return false;
    };
    let now = time::now();
    deal_with(&notes::take_due_of(now, *key), now) > 0
}

/// Clears away what the keys do not need any more; of how many notes, but for those on keys that
/// another session is at work on.
fn deal_with(due: &Due, now: i64) -> usize {
    let locks = reap::lock_claims(&due.orphaned.iter().copied().collect());
    // These are looked at again, after all others that are due by now.
    notes::orphaned(locks.busy.iter().map(|key| (*key, now)));
    notes::tidy(&locks.locked);
    reap::reap_claims(&locks.locked, time::now());
    let is_free = |key: &&Key| !locks.busy.contains(key);
    due.orphaned.iter().filter(is_free).count() + due.others
}
