//! The jobs under a key, and what a policy decides by them.

use std::collections::BTreeMap;

use jobs_core::key::Key;
use jobs_core::policy::Policy;
use jobs_core::state::State;
use jobs_core::verdict::{self, Holder, Job, Verdict};

use crate::fault::{self, Fault};
use crate::pg::time;
use crate::settings::Retention;
use crate::store::claims::{ListedHolder, Lists};
use crate::store::look::{self, StoredHolder, StoredJob, UnderKey};
use crate::store::notes::NoteKind;

/// The jobs under a key that has a claim.
pub(super) struct Holders {
    /// In the order of their ids.
    holders: Vec<StoredHolder>,
    /// What the verdict goes by, one for each.
    counted: Vec<Holder>,
    /// Notes that a new list makes superfluous, and their numbers.
    notes: Vec<(NoteKind, i64)>,
}

/// The jobs under a key that a policy decides by, if it has a claim. Takes no lock.
pub(super) fn look(key: Key, policy: &Policy) -> Option<Holders> {
    let found = look::look(key)?;
    if found.is_outdated && asks_for_final(policy) {
        let mut all = look::look_at_all(&[key]);
        return all.remove(&key).map(Holders::new);
    }
    Some(Holders::new(found))
}

/// The jobs under each key that has a claim. Takes no lock.
///
/// A folded job, which is final, counts for nothing as long as the one that it was folded for is
/// there. Where that is not certain and `all` is wanted, everything is read anew, in one snapshot.
pub(super) fn look_many(keys: &[Key], all: impl Fn(&Key) -> bool) -> BTreeMap<Key, Holders> {
    let mut found = look::look_many(keys);
    let outdated: Vec<Key> = found
        .iter()
        .filter_map(|(key, found)| (found.is_outdated && all(key)).then_some(*key))
        .collect();
    if !outdated.is_empty() {
        for key in &outdated {
            found.remove(key);
        }
        found.extend(look::look_at_all(&outdated));
    }
    found.into_iter().map(|(key, found)| (key, Holders::new(found))).collect()
}

/// Whether final jobs can be duplicates.
pub(super) fn asks_for_final(policy: &Policy) -> bool {
    policy.by_state.iter().any(State::is_final)
}

impl Holders {
    fn new(found: UnderKey) -> Holders {
        let retention = Retention::current();
        let now = time::now();
        let (mut holders, notes) = found.take_apart();
        for holder in &mut holders {
            holder.cut(now);
            holder.hold_ends_at = holder.hold_ends_at.filter(|ends_at| *ends_at > now);
        }
        holders.retain(|holder| holder.job.is_some() || holder.hold_ends_at.is_some());
        let counted = holders
            .iter_mut()
            .map(|holder| {
                // Past its retention and its own period and window it counts as gone, pruned or
                // not.
                holder.job = holder.job.take().filter(|job| is_kept(job, retention, now));
                Holder {
                    id: holder.id,
                    job: holder.job.as_ref().map(counts),
                    holds: holder.hold_ends_at.is_some(),
                }
            })
            .collect();
        Holders { holders, counted, notes }
    }

    /// A job that was decided by.
    pub(super) fn holder(&self, id: i64) -> &StoredHolder {
        self.find(id).expect("decisions are of these jobs")
    }

    /// The id of the job that was inserted last, of those that are left.
    pub(super) fn newest(&self) -> Option<i64> {
        self.holders.last().map(|holder| holder.id)
    }

    /// A job that may be gone by now.
    pub(super) fn find(&self, id: i64) -> Option<&StoredHolder> {
        self.holders.iter().find(|holder| holder.id == id)
    }

    /// Adds to new lists which jobs stay in the list of the key, and which are folded.
    pub(super) fn fold_into(&self, key: Key, lists: &mut Lists) {
        let blindly = fault::is_on(Fault::FoldBlindly);
        let mut kept = verdict::fold(&self.counted);
        if blindly {
            kept.drain(..kept.len().saturating_sub(1));
        }
        for holder in &self.holders {
            if kept.contains(&holder.id) {
                lists.list(ListedHolder { key, id: holder.id, hold_ends_at: holder.hold_ends_at });
            } else if !blindly {
                lists.fold(key, holder.id);
            }
        }
        lists.drop_notes(key, &self.notes);
    }
}

fn is_kept(job: &StoredJob, retention: Retention, now: i64) -> bool {
    let own = job.queue.settings().retention(job.state);
    match (job.finalized_at, own.unwrap_or(retention.of(job.state))) {
        (Some(at), Some(kept)) => {
            at.saturating_add(kept) > now || job.kept_until().is_some_and(|until| until > now)
        }
        _ => true,
    }
}

fn counts(job: &StoredJob) -> Job {
    Job {
        state: job.state,
        created_at: job.created_at,
        scheduled_at: job.scheduled_at,
        finalized_at: job.finalized_at.unwrap_or(i64::MAX),
        queue: job.queue.number(),
        kept_until: job.kept_until().unwrap_or(i64::MIN),
    }
}

/// Decides a job inserted `now` by the jobs under its key.
pub(super) fn decide(policy: &Policy, holders: Option<&Holders>, now: i64) -> Verdict {
    let counted = holders.map_or(&[][..], |holders| &holders.counted);
    verdict::decide(policy, counted, cutoff(policy, now))
}

/// Where a policy's window begins; `None` if it has none, or one that goes back further
/// than time does.
pub(super) fn cutoff(policy: &Policy, now: i64) -> Option<i64> {
    policy.window.and_then(|window| time::ago(now, window.length))
}

/// What an insert with a key would be told now: the newest job that conflicts, if one
/// does, and the word for what would happen.
pub fn foresee(policy: &Policy, key: Key) -> (Option<StoredHolder>, &'static str) {
    let holders = look(key, policy);
    let verdict = decide(policy, holders.as_ref(), time::now());
    let id = match &verdict {
        Verdict::Insert => None,
        Verdict::Skip(existing) | Verdict::Reject(existing) => Some(existing.id),
        Verdict::Replace { cancel, .. } => cancel.last().copied(),
        Verdict::Update { id, .. } => Some(*id),
    };
    let holder = id.zip(holders);
    let holder = holder.map(|(id, holders)| holders.holder(id).clone());
    (holder, verdict.as_str())
}
