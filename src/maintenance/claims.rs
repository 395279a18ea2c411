//! Claims that lost a job while they were let alone, or the hold of a job that is gone, go when no other job
//! needs them; and what stands beside claims is kept short.

use std::sync::atomic::{AtomicUsize, Ordering};

use jobs_core::key::Key;

use super::{Round, Singly, Task, Thing, half};
use crate::pg::time;
use crate::store::{claims, reap};

pub const TASK: Task = Task {
    name: "claims",
    run,
    singly: Some(Singly { find, handle }),
};

/// How long what gave a hold back is kept after the hold's end, in microseconds: whoever looks
/// right then may have read the clock a moment ago.
const RELEASES_KEPT: i64 = 60 * 1_000_000;

fn run(limit: i64, but: &[Thing]) -> Round {
    static ROUND: AtomicUsize = AtomicUsize::new(0);
    let now = time::now();
    let forget = |most| reap::forget_releases(now - RELEASES_KEPT, most);
    // Keys that somebody is at work on are there again in each round.
    let half = half(limit, ROUND.fetch_add(1, Ordering::Relaxed));
    let mut forgotten = forget(half) as i64;
    let notes = reap::take_orphans(now, limit - forgotten, &Thing::keys(but));
    let looked_at = look_at(&notes, now);
    if forgotten == half {
        forgotten += forget(limit - forgotten - notes.len() as i64) as i64;
    }
    Round::of(looked_at + forgotten as usize, limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let orphans = reap::orphans(time::now(), limit, &Thing::keys(but));
    orphans.into_iter().map(Thing::Key).collect()
}

fn handle(thing: &Thing) -> bool {
    let Thing::Key(key) = thing else {
        return false;
    };
    let now = time::now();
    look_at(&reap::take_notes_of(now, *key), now) > 0
}

/// Clears away what these keys do not need any more; at how many nobody else is at work.
fn look_at(notes: &[Key], now: i64) -> usize {
    let locks = reap::lock_claims(&notes.iter().copied().collect());
    // Somebody is at work on these: they are looked at again.
    claims::note_orphans(&locks.busy, now);
    reap::tidy_claims(&locks.locked);
    reap::reap_claims(&locks.locked, time::now());
    notes.iter().filter(|key| !locks.busy.contains(key)).count()
}
