//! Final jobs past their retention are deleted, together with the claims that no job
//! needs any more, and with the answers that no client can still be asking for.

use std::collections::BTreeSet;

use jobs_core::key::Key;
use jobs_core::state::State;

use super::{Round, Singly, Task, Thing};
use crate::pg::time;
use crate::settings::Retention;
use crate::store::maintain::{self, Queues};
use crate::store::{claims, config, place};

pub const TASK: Task = Task {
    name: "prune",
    run,
    singly: Some(Singly { find, handle }),
};

/// How long the answers of finishing calls are remembered, in microseconds.
const ANSWERS_KEPT: i64 = 3600 * 1_000_000;

/// A job that is to go, and the key that it was inserted under.
type Old = (i64, Option<Key>);

fn run(limit: i64, but: &[Thing]) -> Round {
    let (now, but) = (time::now(), Thing::jobs(but));
    let mut pruned = 0;
    for_each_retention(now, |queues, state, horizon| {
        pruned += prune(maintain::past_retention(
            queues, state, horizon, limit, &but,
        ));
    });
    let forgotten = maintain::forget_answers(now - ANSWERS_KEPT, limit);
    Round::of(pruned + forgotten, limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let (mut found, but) = (Vec::new(), Thing::jobs(but));
    for_each_retention(time::now(), |queues, state, horizon| {
        let old = maintain::past_retention(queues, state, horizon, limit, &but);
        found.extend(old.into_iter().map(|(id, _)| Thing::Job(id)));
    });
    found
}

fn handle(thing: &Thing) {
    if let Thing::Job(id) = thing
        && let Some(place) = place::locate(*id)
        && place.lock(false)
    {
        prune(vec![(*id, place.unique_key)]);
    }
}

/// Every time for which jobs of a final state are kept, with whose it is and what is too old now.
fn for_each_retention(now: i64, mut work: impl FnMut(&Queues, State, i64)) {
    let retention = Retention::current();
    for state in config::FINAL {
        let own = config::queues_with_retention(state);
        let names: Vec<String> = own.iter().map(|(queue, _)| queue.clone()).collect();
        let mut times = vec![(Queues::AllBut(&names), retention.of(state))];
        times.extend(own.iter().map(|(queue, kept)| (Queues::One(queue), *kept)));
        for (queues, kept) in times {
            if let Some(kept) = kept {
                work(&queues, state, now.saturating_sub(kept));
            }
        }
    }
}

/// Deletes final jobs that the caller has locked. The claims are locked first: a job whose claim
/// somebody is at work on waits for the next pass, so that no claim is ever left without anyone to
/// delete it.
fn prune(jobs: Vec<Old>) -> usize {
    if jobs.is_empty() {
        return 0;
    }
    let keys: BTreeSet<Key> = jobs.iter().filter_map(|(_, key)| *key).collect();
    let locks = maintain::lock_claims(&keys);
    let free: Vec<Old> = jobs
        .into_iter()
        .filter(|(_, key)| key.is_none_or(|key| !locks.busy.contains(&key)))
        .collect();
    maintain::erase_finished(&free.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    let unique: Vec<(Key, i64)> = free
        .iter()
        .filter_map(|(id, key)| Some(((*key)?, *id)))
        .collect();
    claims::forget_aside(&unique);
    maintain::reap_claims(&locks.locked, time::now());
    free.len()
}
