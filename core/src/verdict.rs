//! Whether a new job is a duplicate of those that were inserted under the same key, and what
//! follows.

use crate::policy::{Fields, OnConflict, Policy, WindowFrom};
use crate::state::State;

/// An existing job that was inserted as unique under the new job's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The job's id; later jobs have higher ones.
    pub id: i64,
    /// The job, unless it is gone: deleted, or final, past its retention and not kept by its own
    /// period or window any more, pruned or not.
    pub job: Option<Job>,
    /// Whether its own hold has neither run out nor been released. It outlives the job.
    pub holds: bool,
}

/// What counts of a job that is there. Times are in microseconds since 2000-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The state it is in.
    pub state: State,
    /// When it was inserted.
    pub created_at: i64,
    /// When it is or was due.
    pub scheduled_at: i64,
    /// If it is final: when it became so, which is what its retention counts from.
    pub finalized_at: i64,
    /// A number for its queue: how long final jobs are kept may differ between queues.
    pub queue: u64,
    /// If it is final: until when its own period or window keeps it, whatever its retention;
    /// [`i64::MIN`] if neither does.
    pub kept_until: i64,
}

impl Holder {
    fn state(&self) -> Option<State> {
        self.job.map(|job| job.state)
    }

    fn is_live(&self) -> bool {
        self.state().is_some_and(|state| !state.is_final())
    }

    fn conflicts(&self, policy: &Policy, cutoff: Option<i64>) -> bool {
        let counts = |job: Job| {
            let younger = match (policy.window, cutoff) {
                (Some(window), Some(cutoff)) => job.time(window.from) > cutoff,
                _ => true,
            };
            policy.by_state.contains(job.state) && younger
        };
        self.holds || self.job.is_some_and(counts)
    }
}

impl Job {
    fn time(&self, from: WindowFrom) -> i64 {
        match from {
            WindowFrom::CreatedAt => self.created_at,
            WindowFrom::ScheduledAt => self.scheduled_at,
        }
    }

    /// Whether this final job counts whenever the other one does, as long as neither changes.
    fn covers(&self, other: &Job) -> bool {
        self.state == other.state
            && self.created_at >= other.created_at
            && self.scheduled_at >= other.scheduled_at
            && self.finalized_at >= other.finalized_at
            && self.queue == other.queue
            && self.kept_until >= other.kept_until
    }
}

/// An existing job that a new one is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Existing {
    /// Its id.
    pub id: i64,
    /// The state it is in; nothing if it is gone and only its hold is left.
    pub state: Option<State>,
}

/// What is to be done with a new job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing conflicts with it: it is inserted.
    Insert,
    /// Nothing is written; this is the answer: the newest job that conflicts.
    Skip(Existing),
    /// The insert fails because of this one: the newest job that conflicts.
    Reject(Existing),
    /// It is inserted in the place of others.
    Replace {
        /// The jobs to cancel, with the end of their holds: all that conflict and are not final. In
        /// ascending order, so that the last one is the newest; there is at least one.
        cancel: Vec<i64>,
        /// The one of them whose `scheduled_at` the new job takes over.
        schedule_of: Option<i64>,
    },
    /// Nothing is inserted; this job, the newest that conflicts, takes values of the new one.
    Update {
        /// The job's id.
        id: i64,
        /// The state it is in.
        state: State,
        /// The fields it takes: at least one.
        fields: Fields,
    },
}

impl Verdict {
    /// The verdict in a word: `insert`, `skip`, `reject`, `replace` or `update`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Insert => "insert",
            Verdict::Skip(_) => "skip",
            Verdict::Reject(_) => "reject",
            Verdict::Replace { .. } => "replace",
            Verdict::Update { .. } => "update",
        }
    }
}

/// Decides by the new job's policy; of what existing jobs were inserted with, only their holds
/// matter.
///
/// `cutoff` is the clock less the policy's window, which is calendar arithmetic and so the
/// caller's: only later jobs are young enough. Without it every job is: there is no window, or it
/// goes back further than time does.
pub fn decide(policy: &Policy, holders: &[Holder], cutoff: Option<i64>) -> Verdict {
    let conflicting = || holders.iter().filter(|holder| holder.conflicts(policy, cutoff));
    let Some(newest) = conflicting().max_by_key(|holder| holder.id) else {
        return Verdict::Insert;
    };
    let existing = Existing { id: newest.id, state: newest.state() };
    match policy.on_conflict {
        OnConflict::Skip => Verdict::Skip(existing),
        OnConflict::Reject => Verdict::Reject(existing),
        OnConflict::Replace(replace) => {
            let mut live: Vec<_> = conflicting().filter(|holder| holder.is_live()).collect();
            live.sort_unstable_by_key(|holder| holder.id);
            match live.last() {
                None if replace.reject_final => Verdict::Reject(existing),
                None => Verdict::Skip(existing),
                Some(newest) => Verdict::Replace {
                    schedule_of: (replace.except_schedule
                        && newest.state() == Some(State::Scheduled))
                    .then_some(newest.id),
                    cancel: live.iter().map(|holder| holder.id).collect(),
                },
            }
        }
        OnConflict::Update(updates) => match existing.state {
            Some(state) if !updates.of(state).is_empty() => {
                Verdict::Update { id: existing.id, state, fields: updates.of(state) }
            }
            _ => Verdict::Skip(existing),
        },
    }
}

/// Which of the jobs under a key still have to be known there, now that another one joins them:
/// those that hold the key, those on their way, and of each final state those that no newer one
/// covers, whatever window is looked through and whichever of retention, period and window ends.
/// Usually that is one of each; one that comes back by a retry joins again.
///
/// This is what keeps the list short, however often a key is used within its retention.
pub fn fold(holders: &[Holder]) -> Vec<i64> {
    let mut newest_first: Vec<&Holder> = holders.iter().collect();
    newest_first.sort_unstable_by_key(|holder| std::cmp::Reverse(holder.id));
    let mut kept = Vec::new();
    // The final jobs among those kept: they cover what is older.
    let mut finals: Vec<Job> = Vec::new();
    for holder in newest_first {
        let covered = match holder.job {
            None => true,
            Some(_) if holder.is_live() => false,
            Some(job) => {
                let covered = finals.iter().any(|newer| newer.covers(&job));
                if !covered {
                    finals.push(job);
                }
                covered
            }
        };
        if holder.holds || !covered {
            kept.push(holder.id);
        }
    }
    kept.reverse();
    kept
}
