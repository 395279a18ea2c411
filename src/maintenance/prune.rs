//! Final jobs past their retention, which their own uniqueness does not keep, are deleted, together with the claims that no job
//! needs any more, and with the answers that no client can still be asking for.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use jobs_core::key::Key;
use jobs_core::state::State;

use super::{Round, Singly, Task, Thing, half, rotate};
use crate::pg::time;
use crate::settings::Retention;
use crate::shmem::cleared;
use crate::store::prune::{self, Old, PastRetention, Queues, Wanted};
use crate::store::{claims, config, extension, place, reap};

pub const TASK: Task = Task {
    name: "prune",
    run,
    singly: Some(Singly { find, handle }),
};

/// How long the answers of finishing calls are remembered, in microseconds.
const ANSWERS_KEPT: i64 = 3600 * 1_000_000;

/// How often a round has begun.
static ROUND: AtomicUsize = AtomicUsize::new(0);
/// The group that a round was at last: if it failed, there.
static LAST: AtomicU64 = AtomicU64::new(0);

fn run(limit: i64, but: &[Thing]) -> Round {
    let (now, but) = (time::now(), Thing::jobs(but));
    let round = ROUND.fetch_add(1, Ordering::Relaxed);
    // However fast answers come, jobs are pruned as well.
    let forget = |most| prune::forget_answers(now - ANSWERS_KEPT, most);
    let half = half(limit, round);
    let mut forgotten = forget(half);
    let mut pruned = 0;
    for_each_group(round, |group| {
        let left = limit as usize - forgotten - pruned;
        if left == 0 {
            return;
        }
        LAST.store(group.id, Ordering::Relaxed);
        let found = group.prune(now, left as i64, &but);
        if found.jobs.len() == left {
            // The next round does not walk over what this one has deleted. Others of the latest moment may be left.
            let up_to = found.latest - 1;
            cleared::pass_over(group.id, up_to);
            // Nor do the next transactions walk over what is kept on.
            if but.is_empty() {
                let before_busy = found.first_busy.map_or(up_to, |at| at - 1);
                cleared::note(group.id, up_to.min(before_busy), found.kept);
            }
        } else if but.is_empty() {
            let up_to = found.first_busy.map_or(group.horizon(now), |at| at - 1);
            cleared::note(group.id, up_to, found.kept);
        }
        pruned += found.jobs.len();
    });
    if forgotten == half as usize {
        forgotten += forget(limit - (forgotten + pruned) as i64);
    }
    Round::of(pruned + forgotten, limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let (now, but) = (time::now(), Thing::jobs(but));
    let mut found = Vec::new();
    let last = LAST.load(Ordering::Relaxed);
    for is_last in [true, false] {
        for_each_group(0, |group| {
            // What is locked here and not dealt with stays locked in a transaction of the caller's.
            let limit = limit - found.len() as i64;
            if limit > 0 && (group.id == last) == is_last {
                let old = group
                    .wanted(now, limit, &but)
                    .map(|w| prune::past_retention(&w));
                let old = old.unwrap_or_default().jobs;
                found.extend(old.iter().map(|old| Thing::Job(old.id)));
            }
        });
    }
    found
}

/// When the next final job will be past its retention.
pub fn next_due() -> Option<i64> {
    let mut next = None;
    for_each_group(0, |group| {
        let oldest = prune::oldest_final(group.state, cleared::up_to(group.id));
        let due = oldest.map(|at| at.saturating_add(group.kept));
        let again = cleared::looked_through_again(group.id);
        next = next.into_iter().chain(due).chain(again).min();
    });
    next
}

fn handle(thing: &Thing) -> bool {
    if let Thing::Job(id) = thing
        && let Some(place) = place::locate(*id)
        && place.lock(false)
    {
        let key = place.unique_key;
        let old = [Old { id: *id, key }];
        prune::erase_finished(&old);
        clear_claims(&old);
        true
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
    /// Those that became final before are past their retention.
    fn horizon(&self, now: i64) -> i64 {
        now.saturating_sub(self.kept)
    }

    /// Those past their retention that were not dealt with yet, but not these, if there can be any.
    fn wanted<'a>(&'a self, now: i64, limit: i64, but: &'a [i64]) -> Option<Wanted<'a>> {
        let wanted = Wanted {
            queues: &self.queues,
            state: self.state,
            since: cleared::up_to(self.id),
            horizon: self.horizon(now),
            now,
            limit,
            but,
        };
        (wanted.since < wanted.horizon).then_some(wanted)
    }

    /// Prunes those.
    fn prune(&self, now: i64, limit: i64, but: &[i64]) -> PastRetention {
        let Some(wanted) = self.wanted(now, limit, but) else {
            return PastRetention::default();
        };
        let erased = prune::erase_past_retention(&wanted).unwrap_or_else(|| {
            let old = prune::past_retention(&wanted);
            prune::erase_finished(&old.jobs);
            old
        });
        clear_claims(&erased.jobs);
        erased
    }
}

/// Every group of jobs that are not kept for ever, another one first in each round.
fn for_each_group(round: usize, mut work: impl FnMut(&Group)) {
    let retention = Retention::current();
    let extension = extension::find().map(|extension| extension.oid);
    let mut states = config::FINAL;
    rotate(&mut states, round);
    for state in states {
        let own = config::queues_with_retention(state);
        let names: Vec<String> = own.iter().map(|(queue, _)| queue.clone()).collect();
        let mut times = vec![(Queues::AllBut(&names), retention.of(state))];
        times.extend(own.iter().map(|(queue, kept)| (Queues::One(queue), *kept)));
        rotate(&mut times, round / config::FINAL.len());
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

/// Deletes the claims that no job needs any more now that these are deleted. Where somebody is at work on one, a note
/// is left, so that no claim is ever left without anyone to delete it.
fn clear_claims(erased: &[Old]) {
    let keys: BTreeSet<Key> = erased.iter().filter_map(|job| job.key).collect();
    if keys.is_empty() {
        return;
    }
    let gone: HashSet<i64> = erased.iter().map(|job| job.id).collect();
    let (keys, busy) = reap::delete_claims_of(keys, &gone);
    let locks = reap::lock_claims(&keys);
    let now = time::now();
    claims::note_orphans(busy.union(&locks.busy), now);
    let locked: Vec<(Key, i64)> = erased
        .iter()
        .filter_map(|job| Some((job.key?, job.id)))
        .filter(|(key, _)| locks.locked.contains(key))
        .collect();
    claims::forget_beside(&locked);
    reap::reap_claims(&locks.locked, now);
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
