//! Final jobs past their retention are deleted, together with the claims that no job
//! needs any more, and with the answers that no client can still be asking for.

use std::collections::BTreeSet;

use jobs_core::key::Key;
use jobs_core::state::State;

use super::Task;
use crate::pg::time;
use crate::settings::Retention;
use crate::store::maintain::{self, Queues};
use crate::store::{claims, config};

pub const TASK: Task = Task { name: "prune", run };

/// How long the answers of finishing calls are remembered, in microseconds.
const ANSWERS_KEPT: i64 = 3600 * 1_000_000;

fn run(limit: i64) -> usize {
    let now = time::now();
    let retention = Retention::current();
    let mut pruned = 0;
    for state in config::FINAL {
        let own = config::queues_with_retention(state);
        let names: Vec<String> = own.iter().map(|(queue, _)| queue.clone()).collect();
        let mut times = vec![(Queues::AllBut(&names), retention.of(state))];
        times.extend(own.iter().map(|(queue, kept)| (Queues::One(queue), *kept)));
        for (queues, kept) in times {
            if let Some(kept) = kept {
                pruned += prune(&queues, state, now.saturating_sub(kept), limit);
            }
        }
    }
    pruned + maintain::forget_answers(now - ANSWERS_KEPT, limit)
}

/// The claims are locked first: a job whose claim somebody is at work on waits for the
/// next pass, so that no claim is ever left without anyone to delete it.
fn prune(queues: &Queues, state: State, horizon: i64, limit: i64) -> usize {
    let jobs = maintain::past_retention(queues, state, horizon, limit);
    if jobs.is_empty() {
        return 0;
    }
    let keys: BTreeSet<Key> = jobs.iter().filter_map(|(_, key)| *key).collect();
    let locks = maintain::lock_claims(&keys);
    let free: Vec<(i64, Option<Key>)> = jobs
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
