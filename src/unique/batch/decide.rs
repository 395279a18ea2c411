//! What is decided of the jobs of a batch.

use std::collections::BTreeMap;

use jobs_core::key::Key;
use jobs_core::policy::{OnConflict, Policy};
use jobs_core::state::State;
use jobs_core::verdict::{self, Verdict};
use pgrx::check_for_interrupts;

use super::super::holders::{self, Holders, cutoff, decide};
use super::{Batch, Decision, Group, Rejected};
use crate::error::{Error, Result};

impl Batch<'_> {
    /// Looks at the jobs under some keys, with a snapshot of now, as far as their candidates are
    /// decided by them.
    pub(super) fn look_for_decision(&mut self, groups: &[Group]) {
        let asks_for_final = |group: Group| {
            let mut indexes = self.indexes(group);
            indexes.any(|index| holders::asks_for_final(self.policy(index)))
        };
        self.holders = self.look_at(groups, asks_for_final);
    }

    /// Looks at everything under some keys: their lists are to be written.
    pub(super) fn look(&mut self, groups: &[Group]) {
        self.holders = self.look_at(groups, |_| true);
    }

    fn look_at(&self, groups: &[Group], all: impl Fn(Group) -> bool) -> BTreeMap<Group, Holders> {
        let keys: Vec<Key> = groups.iter().map(|group| self.key(*group)).collect();
        // Both are in ascending order.
        let group_of = |key: &Key| groups[keys.binary_search(key).expect("it was looked for")];
        let found = holders::look_many(&keys, |key| all(group_of(key)));
        let found = found.into_iter();
        found.map(|(key, holders)| (group_of(&key), holders)).collect()
    }

    /// Decides the candidates of some keys that were looked at, by the jobs under the key and by
    /// those of the batch that come before them.
    pub(super) fn decide(&mut self, groups: &[Group]) {
        for &group in groups {
            // Of the candidates to be inserted so far, in each state the newest and the one
            // that is due last: if none of these conflicts, no other one does.
            let mut inserted: BTreeMap<State, [usize; 2]> = BTreeMap::new();
            for at in self.begins[group as usize]..self.begins[group as usize + 1] {
                check_for_interrupts!();
                let index = self.order[at as usize] as usize;
                if matches!(self.decisions[index], Decision::Busy) {
                    continue;
                }
                let policy = self.policy(index);
                let now = self.candidates[index].job.created_at;
                let predecessors: Vec<verdict::Holder> = inserted
                    .values()
                    .flatten()
                    .map(|&earlier| self.candidates[earlier].as_holder(earlier))
                    .collect();
                let decision = match verdict::decide(policy, &predecessors, cutoff(policy, now)) {
                    Verdict::Skip(earlier) | Verdict::Reject(earlier) => {
                        Decision::Earlier(earlier.id as u32)
                    }
                    Verdict::Replace { .. } | Verdict::Update { .. } => Decision::Singly,
                    Verdict::Insert => match decide(policy, self.holders.get(&group), now) {
                        Verdict::Insert => Decision::Insert,
                        Verdict::Skip(existing) | Verdict::Reject(existing) => {
                            let existing = self.holders[&group].holder(existing.id);
                            Decision::Existing(Box::new(existing.clone()))
                        }
                        Verdict::Replace { .. } | Verdict::Update { .. } => Decision::Singly,
                    },
                };
                if matches!(decision, Decision::Singly) {
                    // Those behind it depend on what it does.
                    self.defer(std::slice::from_ref(&group));
                    break;
                }
                if matches!(decision, Decision::Insert) {
                    let job = &self.candidates[index].job;
                    let [newest, last] = inserted.entry(job.state).or_insert([index; 2]);
                    *newest = index;
                    if job.scheduled_at() >= self.candidates[*last].job.scheduled_at() {
                        *last = index;
                    }
                } else if rejects(policy)
                    && self.rejected.as_ref().is_none_or(|first| index < first.index)
                {
                    self.rejected = Some(self.rejected(index, &decision));
                }
                self.decisions[index] = decision;
            }
        }
    }

    fn rejected(&self, index: usize, decision: &Decision) -> Rejected {
        let (existing, state) = match decision {
            Decision::Existing(existing) => (Some(existing.id), existing.state()),
            Decision::Earlier(earlier) => {
                let earlier = &self.candidates[*earlier as usize];
                (None, Some(earlier.job.state))
            }
            _ => unreachable!("only duplicates are rejected"),
        };
        Rejected { index, existing, state }
    }

    /// The error if a candidate was rejected.
    pub(super) fn refuse(&mut self) -> Result<()> {
        self.rejected.take().map_or(Ok(()), |rejected| {
            let index = self.numbered.then_some(rejected.index + 1);
            Err(Error::duplicate(rejected.existing, rejected.state, index))
        })
    }
}

/// Whether a policy lets an insert fail because of another job.
fn rejects(policy: &Policy) -> bool {
    match policy.on_conflict {
        OnConflict::Reject => true,
        OnConflict::Replace(replace) => replace.reject_final,
        OnConflict::Skip | OnConflict::Update(_) => false,
    }
}
