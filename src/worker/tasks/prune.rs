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
        let found = group.prune(horizon, limit, &but);
        if found.done == found.of && but.is_empty() {
            if found.of < limit as usize {
                cleared::note(group.id, horizon);
            } else {
                // The next round does not walk over what this one has deleted. Others of the latest moment may be left.
                cleared::pass_over(group.id, found.latest - 1);
            }
        }
        let done = found.done;
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
            rows: None,
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

/// What was found to be pruned.
#[derive(Default)]
struct Found {
    /// how many
    of: usize,
    /// how many of them were pruned
    done: usize,
    /// when the latest became final
    latest: i64,
}

impl Group<'_> {
    /// Prunes those that became final before `horizon` and were not dealt with yet, but not these.
    fn prune(&self, horizon: i64, limit: i64, but: &[i64]) -> Found {
        let since = cleared::up_to(self.id);
        if since >= horizon {
            return Found::default();
        }
        let walked =
            maintain::erase_past_retention(&self.queues, self.state, since, horizon, limit, but);
        match walked {
            Some(walked) => Found {
                of: walked.erased + walked.unique.len() + walked.busy,
                latest: walked.latest,
                done: walked.erased + prune(walked.unique),
            },
            None => {
                let old = self.past_retention(horizon, limit, but);
                Found {
                    of: old.len(),
                    latest: old.last().map_or(horizon, |old| old.finalized_at),
                    done: prune(old),
                }
            }
        }
    }

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
    let going: HashSet<i64> = jobs.iter().map(|job| job.id).collect();
    let (keys, mut busy) = maintain::delete_claims_of(keys, &going);
    let locks = maintain::lock_claims(&keys);
    busy.extend(locks.busy);
    let free: Vec<Old> = jobs
        .into_iter()
        .filter(|job| job.key.is_none_or(|key| !busy.contains(&key)))
        .collect();
    maintain::erase_finished(&free);
    let unique: Vec<(Key, i64)> = free
        .iter()
        .filter_map(|job| Some((job.key?, job.id)))
        .filter(|(key, _)| locks.locked.contains(key))
        .collect();
    claims::forget_aside(&unique);
    maintain::reap_claims(&locks.locked, time::now());
    free.len()
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    fn number(sql: &str) -> i64 {
        Spi::get_one(sql).expect(sql).expect(sql)
    }

    const PRUNED: &str = "SELECT rows FROM jobs.maintain() WHERE task = 'prune'";
    const AGE: &str = "UPDATE jobs.finished SET finalized_at = now() - interval '100 days'";

    #[pg_test]
    fn errors_go_with_a_job_that_was_tried_again_from_the_beginning() {
        let id = number("SELECT id FROM jobs.insert('k', queue => 'q')");
        Spi::run("SELECT jobs.fail(id, token, 'e', retryable => false) FROM jobs.fetch('q', 1)")
            .expect("fail");
        Spi::run(&format!("SELECT jobs.retry({id}, reset => true)")).expect("retry");
        Spi::run("SELECT jobs.complete(id, token) FROM jobs.fetch('q', 1)").expect("complete");
        assert_eq!(number("SELECT count(*) FROM jobs.error"), 1);
        Spi::run(AGE).expect("age");
        assert_eq!(number(PRUNED), 1);
        assert_eq!(number("SELECT count(*) FROM jobs.error"), 0);
    }

    #[pg_test]
    fn what_is_rolled_back_is_pruned_again() {
        // More than a round takes.
        Spi::run("SELECT FROM jobs.insert_batch('k', array_fill('1'::jsonb, array[10010]), queue => 'q')").expect("insert");
        for _ in 0..2 {
            Spi::run("WITH f AS MATERIALIZED (SELECT id, token FROM jobs.fetch('q', 10000)) SELECT FROM jobs.complete_many(array(SELECT id FROM f), array(SELECT token FROM f))").expect("complete");
        }
        Spi::run(AGE).expect("age");
        Spi::run(
            "DO $$ BEGIN PERFORM jobs.maintain(); RAISE 'back'; EXCEPTION WHEN OTHERS THEN END $$",
        )
        .expect("rolled back");
        assert_eq!(number("SELECT count(*) FROM jobs.finished"), 10010);
        assert_eq!(number(PRUNED), 10010);
    }
}
