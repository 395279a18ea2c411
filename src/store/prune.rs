//! Final jobs that nothing keeps any more, and answers that are not needed any more. As in
//! [`super::due`]: a bounded number of rows, none that is locked, and none without its job.

use jobs_core::key::Key;
use jobs_core::state::State;

use super::columns::delete_some;
use super::kept::Kept;
use super::queue::Queue;
use super::retention::{self, Term};
use super::spi::{Tuples, big, bigs, plans, text};
use super::types::*;
use super::{direct, effects, erase};
use crate::pg::time;
use crate::settings::Retention;

/// The rule that final jobs go by. Those of a rule are in the order in which they are due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Jobs in a state whose setting applies, by when they became final.
    Aged(State),
    /// Jobs kept for a time of their own, by when it ends.
    Kept,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 4] = [
        Rule::Aged(State::Completed),
        Rule::Aged(State::Cancelled),
        Rule::Aged(State::Discarded),
        Rule::Kept,
    ];

    pub(super) fn number(self) -> usize {
        let is = |rule: &Rule| *rule == self;
        Rule::ALL.iter().position(is).expect("these are all")
    }

    /// How long after that they are kept; `None`: for ever.
    fn kept(self, system: Retention) -> Option<i64> {
        match self {
            Rule::Aged(state) => system.of(state),
            Rule::Kept => Some(0),
        }
    }

    /// Up to when those are due by now that are in the order of a time; `None`: none ever is.
    pub fn horizon(self, now: i64, system: Retention) -> Option<i64> {
        self.kept(system).map(|kept| now.saturating_sub(kept))
    }

    /// Where the first one is in their order; `None`: there is none, or they are kept for ever.
    pub fn first(self, system: Retention) -> Option<i64> {
        self.kept(system)?;
        direct::prune::first(self).unwrap_or_else(|| match self {
            Rule::Aged(state) => FIRST_AGED.value(&[text(state.as_str())]),
            Rule::Kept => FIRST_KEPT.value(&[]),
        })
    }
}

/// When final jobs are to be looked at next, but for what becomes final until then.
pub fn next_due() -> Option<i64> {
    let system = Retention::current();
    let due = |rule: Rule| {
        let first = rule.first(system)?;
        rule.kept(system).map(|kept| first.saturating_add(kept))
    };
    let due = Rule::ALL.into_iter().filter_map(due);
    // Who follows a change may have to wait for others: every second is enough.
    let change = retention::has_changed().then(|| time::now() + 1_000_000);
    due.chain(direct::prune::look_again()).chain(change).min()
}

/// A final job that goes.
pub struct Old {
    pub id: i64,
    /// The key that it was inserted under.
    pub key: Option<Key>,
}

/// The outcome of final jobs that were due.
#[derive(Default)]
pub struct Dealt {
    /// Jobs that are deleted, with their errors and answers.
    pub erased: Vec<Old>,
    /// Jobs that are kept for longer than their rows said.
    pub kept: Vec<i64>,
}

impl Dealt {
    /// How many that were.
    pub fn count(&self) -> usize {
        self.erased.len() + self.kept.len()
    }
}

/// Which final jobs are meant.
pub struct Wanted<'a> {
    pub rule: Rule,
    /// From here on in the rule's order, where the first one is.
    pub from: i64,
    /// Up to here in the rule's order.
    pub horizon: i64,
    /// Only jobs that nothing keeps at this time.
    pub now: i64,
    /// The system's retention.
    pub system: Retention,
    pub limit: i64,
    /// Skip these jobs.
    pub but: &'a [i64],
}

pub struct Final {
    pub id: i64,
    /// The key that it was inserted under.
    pub key: Option<Key>,
    pub state: State,
    pub finalized_at: i64,
    /// Until when its row says it is kept.
    pub kept_until: Option<i64>,
    /// `None`: not known yet
    pub queue: Option<Queue>,
    pub scheduled_at: Option<i64>,
    /// How its unique policy keeps it.
    pub kept: Option<Kept>,
}

impl Final {
    /// When it goes.
    pub fn term(&self, system: Retention) -> Term {
        let unique = self.kept.zip(self.scheduled_at);
        let unique = unique.and_then(|(kept, at)| kept.until_everywhere(self.state, at));
        let queue = self.queue.as_ref();
        let own = queue.and_then(|queue| retention::of_queue(queue, self.state));
        Term::of(self.finalized_at, own, unique, system.of(self.state))
    }
}

/// Deletes final jobs that nothing keeps any more, and notes of others until when they are kept.
pub fn deal_with(wanted: &Wanted) -> Dealt {
    let Some(mut dealt) = direct::prune::deal_with(wanted) else {
        let due = lock_due(wanted);
        return deal_with_locked(due, wanted.now, wanted.system);
    };
    erase::records(&dealt.erased.iter().map(|job| job.id).collect::<Vec<_>>());
    dealt.kept = keep_on(&dealt.kept, wanted.system);
    effects::pruned(&dealt.erased);
    dealt
}

/// Final jobs that are to be dealt with: locked.
pub fn lock_due(wanted: &Wanted) -> Vec<Final> {
    let (horizon, limit, but) = (big(wanted.horizon), big(wanted.limit), bigs(wanted.but));
    match wanted.rule {
        Rule::Aged(state) => AGED.run(&[horizon, limit, but, text(state.as_str())], read_all),
        Rule::Kept => KEPT.run(&[horizon, limit, but], read_all),
    }
}

/// These final jobs, locked, but for those that another session has locked.
pub fn lock(ids: &[i64]) -> Vec<Final> {
    THESE.run(&[bigs(ids)], read_all)
}

/// Deletes them or notes until when they are kept.
pub fn deal_with_locked(jobs: Vec<Final>, now: i64, system: Retention) -> Dealt {
    let mut dealt = Dealt::default();
    let mut kept = Vec::new();
    for job in jobs {
        let term = job.term(system);
        if term.until <= now {
            dealt.erased.push(Old { id: job.id, key: job.key });
        } else if term.kept_until != job.kept_until {
            kept.push((job.id, term.kept_until));
            dealt.kept.push(job.id);
        }
    }
    let ids: Vec<i64> = dealt.erased.iter().map(|job| job.id).collect();
    erase::finished(&ids);
    retention::set(&kept);
    effects::pruned(&dealt.erased);
    dealt
}

/// Notes until when they are kept; those that it could be noted of.
fn keep_on(ids: &[i64], system: Retention) -> Vec<i64> {
    if ids.is_empty() {
        return Vec::new();
    }
    let term = |job: &Final| (job.id, job.term(system).kept_until);
    let kept: Vec<_> = lock(ids).iter().map(term).collect();
    retention::set(&kept);
    kept.into_iter().map(|(id, _)| id).collect()
}

/// Looks at up to so many final jobs after retentions were changed, and notes until when they are
/// kept by now; whether there may be more to look at at once.
pub fn set_anew(limit: i64, system: Retention) -> bool {
    let changes = retention::changes();
    let Some(after_id) = changes.first().map(|change| change.after_id) else {
        return false;
    };
    let these = changes.iter().filter(|change| change.after_id == after_id);
    let these: Vec<i64> = these.map(|change| change.made_by).collect();
    let (last, count): (_, i64) = NEXT
        .run(&[big(after_id), big(limit)], |rows| (rows.get(0, "last"), rows.given(0, "count")));
    let Some(last) = last else {
        retention::note_progress(&these, None);
        return these.len() < changes.len();
    };
    let has_another_term = |job: &Final| job.term(system).kept_until != job.kept_until;
    let mut wrong = BETWEEN.run(&[big(after_id), big(last)], read_all);
    wrong.retain(has_another_term);
    let wrong: Vec<i64> = wrong.iter().map(|job| job.id).collect();
    let done = keep_on(&wrong, system);
    // A locked one is looked at again.
    let left = wrong.into_iter().filter(|id| !done.contains(id)).min();
    let is_over = count < limit && left.is_none();
    let up_to = left.map_or(last, |id| id - 1);
    retention::note_progress(&these, (!is_over).then_some(up_to));
    left.is_none() && (!is_over || these.len() < changes.len())
}

fn read_all(rows: &Tuples) -> Vec<Final> {
    (0..rows.len())
        .map(|row| Final {
            id: rows.given(row, "job_id"),
            key: rows.get(row, "unique_key"),
            state: rows.given(row, "state"),
            finalized_at: rows.given(row, "finalized_at"),
            kept_until: rows.get(row, "kept_until"),
            queue: rows.get(row, "queue"),
            scheduled_at: rows.get(row, "scheduled_at"),
            kept: Kept::read(rows, row),
        })
        .collect()
}

/// Deletes remembered answers from before `horizon`; how many.
pub fn forget_answers(horizon: i64, limit: i64) -> usize {
    FORGET_ANSWERS.execute(&[big(horizon), big(limit)])
}

fn final_jobs(which: &str) -> String {
    format!(
        "SELECT f.job_id, j.unique_key, f.state::text, f.finalized_at, f.kept_until, j.queue,
                COALESCE(f.scheduled_at, j.scheduled_at, j.created_at) AS scheduled_at, j.unique_until, j.unique_window, j.unique_final
           FROM jobs.finished f JOIN jobs.job j ON j.id = f.job_id WHERE {which}"
    )
}

plans! {
    // The job is locked as well, so that what it was updated to meanwhile is looked at.
    AGED(AT, INT8, INT8S, TEXT) =>
        final_jobs("f.state = $4::jobs.state AND NOT f.is_kept AND f.finalized_at <= $1 AND f.job_id <> ALL ($3)
              ORDER BY f.finalized_at LIMIT $2 FOR UPDATE OF f, j SKIP LOCKED");
    KEPT(AT, INT8, INT8S) =>
        final_jobs("f.kept_until <= $1 AND f.job_id <> ALL ($3)
              ORDER BY f.kept_until LIMIT $2 FOR UPDATE OF f, j SKIP LOCKED");
    THESE(INT8S) => final_jobs("f.job_id = ANY ($1) FOR UPDATE OF f, j SKIP LOCKED");
    NEXT(INT8, INT8) =
        "SELECT max(n.job_id) AS last, count(*) FROM (
           SELECT f.job_id FROM jobs.finished f WHERE f.job_id > $1 ORDER BY f.job_id LIMIT $2) n";
    // Jobs that go by the settings, and of whose queue nothing is set, are as they should be.
    BETWEEN(INT8, INT8) =>
        final_jobs("f.job_id > $1 AND f.job_id <= $2
                AND (f.is_kept OR EXISTS (
                  SELECT FROM jobs.queue q WHERE q.queue = j.queue
                     AND COALESCE(q.retention_completed, q.retention_cancelled, q.retention_discarded) IS NOT NULL))");
    FIRST_AGED(TEXT) =
        "SELECT min(f.finalized_at) FROM jobs.finished f WHERE f.state = $1::jobs.state AND NOT f.is_kept";
    FIRST_KEPT() = "SELECT min(f.kept_until) FROM jobs.finished f WHERE f.kept_until IS NOT NULL";
    FORGET_ANSWERS(AT, INT8) => delete_some("answer", "t.at <= $1 ORDER BY t.at");
}
