//! How the jobs of a batch are written, with the lists of their claims.

use std::collections::BTreeMap;
use std::num::NonZeroI64;

use jobs_core::key::Key;
use jobs_core::verdict::Verdict;
use pgrx::check_for_interrupts;

use super::super::holders::{Holders, decide};
use super::super::single::Replacement;
use super::acquire::touched;
use super::{Batch, Decision, Group};
use crate::error::{Error, Result};
use crate::pg::memory;
use crate::store::claims::{ListedHolder, Lists};
use crate::store::insert;
use crate::store::job::NewJob;
use crate::store::place::Place;
use crate::transition::on_conflict;

impl Batch<'_> {
    /// Takes an id for a candidate that has none.
    fn take_id(&mut self, index: usize) {
        let new = || NonZeroI64::new(insert::id()).expect("ids are above 0");
        self.ids[index].get_or_insert_with(new);
    }

    /// Takes ids for those that are to be inserted.
    pub(super) fn take_all_ids(&mut self) {
        for index in 0..self.candidates.len() {
            check_for_interrupts!();
            if matches!(self.decisions[index], Decision::Insert) {
                self.take_id(index);
            }
        }
    }

    /// Takes ids for candidates of a key in their order, behind those of all jobs under it: rivals
    /// may have taken theirs later than the batch did. The caller has locked the key.
    pub(super) fn take_late_ids(&mut self, group: Group, indexes: &[usize]) {
        let mut latest = self.holders.get(&group).and_then(Holders::newest);
        for &index in indexes {
            let id = self.ids[index].filter(|id| Some(id.get()) > latest);
            self.ids[index] = id;
            // A new one is later than all that were taken.
            latest = id.map(NonZeroI64::get).or(Some(i64::MAX));
        }
        for &index in indexes {
            self.take_id(index);
        }
    }

    /// Adds to new lists what is to be under a key: jobs that were looked at, and those that are to
    /// be inserted.
    pub(super) fn list(&self, group: Group, lists: &mut Lists) {
        if self.inserts(group) {
            if let Some(holders) = self.holders.get(&group) {
                holders.fold_into(self.key(group), lists);
            }
            for index in self.inserted(group) {
                lists.list(self.listing(index));
            }
        }
    }

    /// A candidate that is to be inserted, as its key's claim lists it.
    pub(super) fn listing(&self, index: usize) -> ListedHolder {
        let job = &self.candidates[index].job;
        let key = job.unique_key.expect("it has one");
        listing(key, self.id(index), job)
    }

    pub(super) fn write(&self) -> Result<()> {
        let mut rows = memory::room(self.candidates.len())?;
        let inserted = (0..self.candidates.len())
            .filter(|&index| matches!(self.decisions[index], Decision::Insert));
        rows.extend(inserted.map(|index| (self.id(index), &self.candidates[index].job)));
        insert::many(&rows)
    }

    /// Inserts the candidates of keys that are locked, one after the other in their order.
    pub(super) fn insert_singly(&mut self, groups: &[Group]) -> Result<()> {
        let candidates = groups.iter().flat_map(|&group| {
            let indexes = self.indexes(group);
            indexes.map(move |index| (index, group))
        });
        // Busy ones stay so: their keys are not locked.
        let in_order: BTreeMap<usize, Group> = candidates
            .filter(|(index, _)| !matches!(self.decisions[*index], Decision::Busy))
            .collect();
        self.lock_touched(&in_order);
        for (index, group) in in_order {
            self.decisions[index] = self.insert_next(group, index)?;
        }
        Ok(())
    }

    /// Decides a candidate by what is there now. What it will touch is locked: a session that had
    /// it before may have changed what conflicts, so it is decided anew until that makes no
    /// difference.
    fn decide_next(&mut self, group: Group, index: usize) -> Result<(Verdict, Vec<Place>)> {
        let policy = self.policy(index);
        let now = self.candidates[index].job.created_at;
        loop {
            check_for_interrupts!();
            self.look_for_decision(&[group]);
            let verdict = decide(policy, self.holders.get(&group), now);
            let locks = touched(&verdict).into_iter();
            let locks =
                locks.map(|id| on_conflict::locked(self.holders[&group].holder(id), &verdict));
            let Some(places) = locks.collect::<Result<Option<Vec<Place>>>>()? else {
                continue;
            };
            if places.is_empty() {
                return Ok((verdict, places));
            }
            self.look_for_decision(&[group]);
            if decide(policy, self.holders.get(&group), now) == verdict {
                return Ok((verdict, places));
            }
        }
    }

    /// Decides a candidate by what is there now, and does it.
    fn insert_next(&mut self, group: Group, index: usize) -> Result<Decision> {
        let job = &self.candidates[index].job;
        let (verdict, places) = self.decide_next(group, index)?;
        match verdict {
            Verdict::Replace { cancel, schedule_of } => {
                let holders = &self.holders[&group];
                for place in &places {
                    on_conflict::replaced(place, holders.holder(place.id).hold_ends_at)?;
                }
                let schedule = schedule_of.and_then(|id| holders.holder(id).job.as_ref());
                let job = job.clone().rescheduled(schedule.map(|job| job.scheduled_at));
                Ok(Decision::Replaced(Box::new(Replacement {
                    id: self.insert_alone(group, index, &job)?,
                    replaced: *cancel.last().expect("there is one at least"),
                    state: job.state,
                    scheduled_at: job.scheduled_at(),
                })))
            }
            Verdict::Insert => {
                self.insert_alone(group, index, job)?;
                Ok(Decision::Insert)
            }
            Verdict::Skip(existing) => {
                let existing = self.holders[&group].holder(existing.id);
                Ok(Decision::Existing(Box::new(existing.clone())))
            }
            Verdict::Reject(existing) => {
                // What this batch inserted is rolled back with it.
                let own = NonZeroI64::new(existing.id);
                let id = Some(existing.id).filter(|_| !self.ids.contains(&own));
                let index = self.numbered.then_some(index + 1);
                Err(Error::duplicate(id, existing.state, index))
            }
            Verdict::Update { id, fields, .. } => {
                let before = self.holders[&group].holder(id).clone();
                on_conflict::updated(&places[0], fields, job)?;
                self.look_for_decision(&[group]);
                // Its retention may be over by now.
                let after = self.holders.get(&group).and_then(|holders| holders.find(id));
                Ok(Decision::Updated(Box::new(after.cloned().unwrap_or(before))))
            }
        }
    }

    /// Inserts one job under a key that is locked; its id.
    fn insert_alone(&mut self, group: Group, index: usize, job: &NewJob) -> Result<i64> {
        // Also of what was replaced: it is final by now.
        self.look(&[group]);
        self.take_late_ids(group, &[index]);
        let id = self.id(index);
        insert::many(&[(id, job)])?;
        let (key, mut lists) = (self.key(group), Lists::default());
        self.holders[&group].fold_into(key, &mut lists);
        lists.list(listing(key, id, job));
        lists.write();
        Ok(id)
    }
}

fn listing(key: Key, id: i64, job: &NewJob) -> ListedHolder {
    ListedHolder { key, id, hold_ends_at: job.hold_ends_at() }
}
