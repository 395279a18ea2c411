//! Jobs that are inserted in one go. This file is the protocol and what it keeps; what is decided,
//! how claims are acquired and how jobs are written have a file each.

mod acquire;
mod decide;
mod write;

use std::collections::BTreeMap;
use std::num::NonZeroI64;

use jobs_core::key::Key;
use jobs_core::policy::{OnConflict, Policy};
use jobs_core::state::State;

use super::holders::Holders;
use super::single::{Candidate, Outcome, Replacement};
use crate::error::Result;
use crate::fault;
use crate::pg::memory;
use crate::store::claims::Lists;
use crate::store::look::StoredHolder;

/// What is decided of a candidate so far.
enum Decision {
    Insert,
    Existing(Box<StoredHolder>),
    Updated(Box<StoredHolder>),
    Earlier(u32),
    Busy,
    /// It may touch other jobs, and is decided under the lock.
    Singly,
    Replaced(Box<Replacement>),
}

/// The first candidate that its policy rejects, and what it duplicates: a job, or an
/// earlier candidate.
struct Rejected {
    index: usize,
    existing: Option<i64>,
    state: Option<State>,
}

/// The candidates of one key, by the place of the key among all, which are in ascending order.
type Group = u32;

/// Jobs that are inserted in one go. There may be a million of them: what is kept of each is small,
/// and what is known of the jobs under their keys is kept for as many keys as are looked at
/// together.
pub(super) struct Batch<'a> {
    candidates: &'a [Candidate],
    /// Whether errors name an element.
    numbered: bool,
    /// Candidates with a key, by key, and within a key in their order.
    order: Vec<u32>,
    /// Where the candidates of each key begin in `order`, and where the last ones end.
    begins: Vec<u32>,
    /// Whether some policy may replace or update other jobs. Mostly none: to read thousands of
    /// candidates in the order of their keys, each with its policy, takes more time than to know
    /// that.
    some_touch_others: bool,
    /// Whether some policy does not wait, for the same reason.
    some_do_not_wait: bool,
    /// The keys that are known to have a claim.
    taken: Vec<bool>,
    /// The holders of the keys that were looked at last, where there is a claim.
    holders: BTreeMap<Group, Holders>,
    rejected: Option<Rejected>,
    decisions: Vec<Decision>,
    ids: Vec<Option<NonZeroI64>>,
}

impl<'a> Batch<'a> {
    /// One job, of which errors name no element.
    pub(super) fn of_one(candidate: &'a Candidate) -> Result<Batch<'a>> {
        Batch::new(std::slice::from_ref(candidate), false)
    }

    /// Jobs of which errors name the element.
    pub(super) fn of_many(candidates: &'a [Candidate]) -> Result<Batch<'a>> {
        Batch::new(candidates, true)
    }

    fn new(candidates: &'a [Candidate], numbered: bool) -> Result<Batch<'a>> {
        let key = |index: &u32| candidates[*index as usize].job.unique_key;
        let mut order = memory::room(candidates.len())?;
        order.extend((0..candidates.len() as u32).filter(|index| key(index).is_some()));
        order.sort_unstable_by_key(|index| (key(index), *index));
        let mut begins = memory::room(order.len() + 1)?;
        let is_first = |at: &usize| *at == 0 || key(&order[*at]) != key(&order[*at - 1]);
        begins.extend((0..order.len()).filter(is_first).map(|at| at as u32));
        let mut taken = memory::room(begins.len())?;
        taken.resize(begins.len(), false);
        begins.push(order.len() as u32);
        let some = |is: fn(&Policy) -> bool| {
            let mut policies = candidates.iter().filter_map(|c| c.policy.as_deref());
            policies.any(is)
        };
        let mut decisions = memory::room(candidates.len())?;
        decisions.resize_with(candidates.len(), || Decision::Insert);
        let mut ids = memory::room(candidates.len())?;
        ids.resize(candidates.len(), None);
        Ok(Batch {
            candidates,
            numbered,
            order,
            begins,
            some_touch_others: some(touches_others),
            some_do_not_wait: some(|policy| !policy.wait),
            taken,
            holders: BTreeMap::new(),
            rejected: None,
            decisions,
            ids,
        })
    }

    /// Inserts all of them: the protocol.
    pub(super) fn insert(mut self) -> Result<Vec<Outcome>> {
        let mut groups: Vec<Group> = memory::room(self.taken.len())?;
        groups.extend(0..self.taken.len() as Group);
        memory::in_parts(&groups, |some| {
            self.look_for_decision(some);
            for group in self.holders.keys() {
                self.taken[*group as usize] = true;
            }
            self.decide(some);
        });
        self.refuse()?;
        groups.retain(|group| self.inserts(*group));
        self.take_all_ids();
        let mut fresh = self.claim(&groups)?;
        for &group in &groups {
            let is_fresh = &mut fresh[group as usize];
            *is_fresh = *is_fresh && self.is_settled_by_claim(group);
        }
        let is_fresh = |group: Group| fresh[group as usize];
        // A candidate that may touch other jobs is dealt with for itself, unless it is the
        // only one of a free key.
        let (together, singly): (Vec<Group>, Vec<Group>) =
            groups.into_iter().partition(|group| !self.touches_others(*group) || is_fresh(*group));
        self.defer(&singly);
        // What was taken, or was not there to be looked at before, is looked at again now
        // that it is locked.
        let mut lists = Lists::default();
        let (new, taken): (Vec<Group>, Vec<Group>) =
            together.into_iter().partition(|group| is_fresh(*group));
        memory::in_parts(&taken, |some| {
            fault::with_outer_snapshot(|| self.look(some));
            self.decide(some);
            for &group in some {
                let inserted: Vec<usize> = self.inserted(group).collect();
                self.take_late_ids(group, &inserted);
                self.list(group, &mut lists);
            }
        });
        self.refuse()?;
        let several = |group: &&Group| self.inserted(**group).nth(1).is_some();
        let several: Vec<Group> = new.iter().filter(several).copied().collect();
        self.holders.clear();
        several.iter().for_each(|group| self.list(*group, &mut lists));
        self.write()?;
        lists.write();
        self.insert_singly(&singly)?;
        self.outcomes()
    }

    /// The candidates of a key, in their order.
    fn indexes(&self, group: Group) -> impl Iterator<Item = usize> + Clone + use<'_> {
        let [begin, end] = [0, 1].map(|next| self.begins[group as usize + next] as usize);
        self.order[begin..end].iter().map(|index| *index as usize)
    }

    fn key(&self, group: Group) -> Key {
        let first = self.order[self.begins[group as usize] as usize];
        let key = self.candidates[first as usize].job.unique_key;
        key.expect("it has one")
    }

    fn policy(&self, index: usize) -> &'a Policy {
        self.candidates[index].policy.as_deref().expect("only unique jobs have a key")
    }

    /// The candidates of a key that are to be inserted.
    fn inserted(&self, group: Group) -> impl Iterator<Item = usize> + Clone + use<'_> {
        let is_inserted = |index: &usize| matches!(self.decisions[*index], Decision::Insert);
        self.indexes(group).filter(is_inserted)
    }

    /// Whether a candidate of a key needs its claim.
    fn inserts(&self, group: Group) -> bool {
        self.inserted(group).next().is_some() || self.has_single(group)
    }

    /// Whether a candidate of a key is to be decided under the lock.
    fn has_single(&self, group: Group) -> bool {
        let mut indexes = self.indexes(group);
        indexes.any(|index| matches!(self.decisions[index], Decision::Singly))
    }

    /// Whether a candidate of a key may replace or update other jobs.
    fn touches_others(&self, group: Group) -> bool {
        let mut indexes = self.indexes(group);
        self.some_touch_others && indexes.any(|index| touches_others(self.policy(index)))
    }

    /// Whether it is settled which job is inserted under a key once no other session has it.
    fn is_settled_by_claim(&self, group: Group) -> bool {
        !self.touches_others(group)
            || (self.indexes(group).nth(1).is_none() && !self.has_single(group))
    }

    /// Defers the candidates of some keys, which are locked: they are inserted singly.
    fn defer(&mut self, groups: &[Group]) {
        for &group in groups {
            for at in self.begins[group as usize]..self.begins[group as usize + 1] {
                let decision = &mut self.decisions[self.order[at as usize] as usize];
                if !matches!(decision, Decision::Busy) {
                    *decision = Decision::Singly;
                }
            }
        }
    }

    /// The id that was taken for a candidate.
    fn id(&self, index: usize) -> i64 {
        self.ids[index].expect("it was taken").get()
    }

    fn outcomes(self) -> Result<Vec<Outcome>> {
        let mut outcomes = memory::room(self.candidates.len())?;
        let decided = self.decisions.into_iter().zip(self.ids);
        outcomes.extend(decided.map(|(decision, id)| match decision {
            Decision::Insert => Outcome::Inserted(id.expect("ids were taken").get()),
            Decision::Existing(holder) => Outcome::Existing(holder),
            Decision::Updated(holder) => Outcome::Updated(holder),
            Decision::Earlier(index) => Outcome::Earlier(index as usize),
            Decision::Busy => Outcome::Busy,
            Decision::Replaced(replacement) => Outcome::Replaced(replacement),
            Decision::Singly => unreachable!("it was decided under the lock"),
        }));
        Ok(outcomes)
    }
}

/// Whether a policy lets an insert replace or update other jobs.
fn touches_others(policy: &Policy) -> bool {
    matches!(policy.on_conflict, OnConflict::Replace(_) | OnConflict::Update(_))
}
