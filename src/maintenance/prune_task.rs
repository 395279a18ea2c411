//! Final jobs past their retention, which their own uniqueness does not keep, are deleted, together
//! with the claims that no job needs any more, with the answers that no client can still be asking
//! for, with what was managed long ago, with keys that no outbox can have any more, with workers
//! that were not seen for a day, and with commands for workers that may never come back.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use super::{Round, Singly, Task, Thing, half, rotate};
use crate::pg::time;
use crate::settings::{RETENTION_AUDIT, RETENTION_FORWARDED, Retention, kept};
use crate::shmem;
use crate::store::prune::{self, Rule, Wanted};
use crate::store::{audit, config, config_cache, forwarded, workers};

pub const TASK: Task = Task { name: "prune", run, singly: Some(Singly { find, handle }) };

/// How long the answers of finishing calls are remembered, in microseconds.
const ANSWERS_KEPT: i64 = 3600 * 1_000_000;

/// How long a worker is shown after it was seen last, in microseconds.
const WORKERS_SHOWN: i64 = 86_400 * 1_000_000;
/// How long a command is kept after its worker was seen last, in microseconds.
const COMMANDS_KEPT: i64 = 30 * 86_400 * 1_000_000;
/// How often the background worker looks for those, in microseconds: there is no index for that.
const WORKERS_EVERY: i64 = 60 * 1_000_000;

/// When it did so last.
static LOOKED_FOR_WORKERS: AtomicI64 = AtomicI64::new(0);
/// How often a round has begun.
static ROUND: AtomicUsize = AtomicUsize::new(0);
/// The rule that a round was at last: if it failed, there.
static LAST: AtomicUsize = AtomicUsize::new(0);

fn run(limit: i64, but: &[Thing]) -> Round {
    let (now, system, but) = (time::now(), Retention::current(), Thing::jobs(but));
    let round = ROUND.fetch_add(1, Ordering::Relaxed);
    // However fast answers come, jobs are pruned as well.
    type Forget = fn(i64, i64) -> usize;
    let kinds: [(Option<i64>, Forget); 3] = [
        (Some(ANSWERS_KEPT), prune::forget_answers),
        (kept(&RETENTION_AUDIT), audit::forget),
        (kept(&RETENTION_FORWARDED), forwarded::forget),
    ];
    let forget = |most| {
        kinds.iter().fold(0, |forgotten, (kept, forget)| {
            let left = most - forgotten as i64;
            forgotten + kept.map_or(0, |kept| forget(now - kept, left))
        })
    };
    let half = half(limit, round);
    let mut forgotten = forget(half);
    // What is due by that is dealt with in this round.
    let more = prune::set_anew(limit, system);
    let (mut pruned, mut dealt_with) = (0, 0);
    let mut rules = [0, 1, 2, 3];
    rotate(&mut rules, round);
    for rule in rules {
        let left = limit - (forgotten + dealt_with) as i64;
        if left == 0 {
            break;
        }
        LAST.store(rule, Ordering::Relaxed);
        if let Some(wanted) = wanted(Rule::ALL[rule], now, system, left, &but) {
            let dealt = prune::deal_with(&wanted);
            pruned += dealt.erased.len();
            dealt_with += dealt.count();
        }
    }
    if forgotten == half as usize {
        forgotten += forget(limit - (forgotten + dealt_with) as i64);
    }
    let mut round = Round::of(dealt_with + forgotten, limit);
    round.rows = pruned + forgotten + forget_workers(now, limit);
    round.more |= more;
    round
}

/// Forgets workers and outboxes that were not seen for long, commands of workers, and when queues
/// were resumed; how much.
fn forget_workers(now: i64, limit: i64) -> usize {
    let since = now - LOOKED_FOR_WORKERS.load(Ordering::Relaxed);
    if shmem::is_worker() && (0..WORKERS_EVERY).contains(&since) {
        return 0;
    }
    LOOKED_FOR_WORKERS.store(now, Ordering::Relaxed);
    let commands = workers::forget_commands(now - COMMANDS_KEPT, limit);
    if commands > 0 {
        config_cache::changed();
    }
    let workers = workers::forget(now - WORKERS_SHOWN, limit);
    let forget = |kept| forwarded::forget_outboxes(now - kept, limit);
    let outboxes = kept(&RETENTION_FORWARDED).map_or(0, forget);
    commands + workers + outboxes + config::forget_resumed(now - WORKERS_EVERY, limit)
}

/// What is due of a rule, if anything is.
fn wanted(rule: Rule, now: i64, system: Retention, limit: i64, but: &[i64]) -> Option<Wanted<'_>> {
    let horizon = rule.horizon(now, system)?;
    let from = rule.first(system).filter(|first| *first <= horizon)?;
    Some(Wanted { rule, from, horizon, now, system, limit, but })
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let (now, system, but) = (time::now(), Retention::current(), Thing::jobs(but));
    let mut found = Vec::new();
    let mut rules = [0, 1, 2, 3];
    rotate(&mut rules, LAST.load(Ordering::Relaxed));
    for rule in rules {
        // What is locked here and not dealt with stays locked in a transaction of the caller's.
        let left = limit - found.len() as i64;
        if let Some(wanted) = wanted(Rule::ALL[rule], now, system, left, &but) {
            found.extend(prune::lock_due(&wanted).iter().map(|job| Thing::Job(job.id)));
        }
    }
    found
}

fn handle(thing: &Thing) -> bool {
    let Thing::Job(id) = thing else {
        return false;
    };
    let locked = prune::lock(&[*id]);
    let dealt = prune::deal_with_locked(locked, time::now(), Retention::current());
    !dealt.erased.is_empty()
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
