//! Final jobs past their retention are deleted, together with the claims that no job
//! needs any more, and with the answers that no client can still be asking for.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use jobs_core::key::Key;
use jobs_core::state::State;

use super::{Round, Singly, Task, Thing};
use crate::pg::time;
use crate::settings::Retention;
use crate::store::maintain::{self, Old, Queues};
use crate::store::{claims, config, extension, place};
use crate::worker::cleared;

pub const TASK: Task = Task {
    name: "prune",
    run,
    singly: Some(Singly { find, handle }),
};

/// How long the answers of finishing calls are remembered, in microseconds.
const ANSWERS_KEPT: i64 = 3600 * 1_000_000;

fn run(limit: i64, but: &[Thing]) -> Round {
    let (now, but) = (time::now(), Thing::jobs(but));
    let mut pruned = 0;
    for_each_group(|group| {
        let horizon = now.saturating_sub(group.kept);
        let old = group.past_retention(horizon, limit, &but);
        let found = old.len();
        // Others of the same moment may be left.
        let latest = old.last().map_or(horizon, |old| old.finalized_at - 1);
        let done = prune(old);
        if done == found && but.is_empty() {
            // So that the next round does not walk over what this one has deleted.
            let is_all = found < limit as usize;
            cleared::note(group.id, if is_all { horizon } else { latest });
        }
        pruned += done;
    });
    let forgotten = maintain::forget_answers(now - ANSWERS_KEPT, limit);
    Round::of(pruned + forgotten, limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let (now, but) = (time::now(), Thing::jobs(but));
    let mut found = Vec::new();
    for_each_group(|group| {
        let old = group.past_retention(now.saturating_sub(group.kept), limit, &but);
        found.extend(old.into_iter().map(|old| Thing::Job(old.id)));
    });
    found
}

/// When the next final job will be past its retention.
pub fn next_due() -> Option<i64> {
    let mut next = None;
    for_each_group(|group| {
        let oldest = maintain::oldest_final(group.state, cleared::up_to(group.id));
        let due = oldest.map(|at| at.saturating_add(group.kept));
        next = next.into_iter().chain(due).min();
    });
    next
}

fn handle(thing: &Thing) -> bool {
    if let Thing::Job(id) = thing
        && let Some(place) = place::locate(*id)
        && place.lock(false)
    {
        prune(vec![Old {
            id: *id,
            key: place.unique_key,
            finalized_at: 0,
            may_have_errors: true,
        }]) > 0
    } else {
        false
    }
}

/// Final jobs that are kept for the same time.
struct Group<'a> {
    id: u64,
    state: State,
    queues: Queues<'a>,
    /// in microseconds
    kept: i64,
}

impl Group<'_> {
    /// Those that became final before `horizon` and were not dealt with yet, but not these.
    fn past_retention(&self, horizon: i64, limit: i64, but: &[i64]) -> Vec<Old> {
        let since = cleared::up_to(self.id);
        if since >= horizon {
            return Vec::new();
        }
        maintain::past_retention(&self.queues, self.state, since, horizon, limit, but)
    }
}

/// Every group of jobs that are not kept for ever.
fn for_each_group(mut work: impl FnMut(&Group)) {
    let retention = Retention::current();
    let extension = extension::find().map(|extension| extension.oid);
    for state in config::FINAL {
        let own = config::queues_with_retention(state);
        let names: Vec<String> = own.iter().map(|(queue, _)| queue.clone()).collect();
        let mut times = vec![(Queues::AllBut(&names), retention.of(state))];
        times.extend(own.iter().map(|(queue, kept)| (Queues::One(queue), *kept)));
        for (queues, kept) in times {
            if let Some(kept) = kept {
                let mut hasher = DefaultHasher::new();
                (extension, state, &queues, kept).hash(&mut hasher);
                work(&Group {
                    id: hasher.finish().max(1),
                    state,
                    queues,
                    kept,
                });
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
    let keys: BTreeSet<Key> = jobs.iter().filter_map(|job| job.key).collect();
    let locks = maintain::lock_claims(&keys);
    let free: Vec<Old> = jobs
        .into_iter()
        .filter(|job| job.key.is_none_or(|key| !locks.busy.contains(&key)))
        .collect();
    maintain::erase_finished(&free);
    let unique: Vec<(Key, i64)> = free
        .iter()
        .filter_map(|job| Some((job.key?, job.id)))
        .collect();
    claims::forget_aside(&unique);
    let gone: HashSet<i64> = free.iter().map(|job| job.id).collect();
    maintain::reap_claims_of(&locks, &gone, time::now());
    free.len()
}
