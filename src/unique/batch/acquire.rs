//! How a batch acquires the claims of its keys, and the jobs that it replaces or updates.

use std::collections::{BTreeMap, BTreeSet};

use jobs_core::key::Key;
use jobs_core::state::State;
use jobs_core::verdict::Verdict;
use pgrx::PgSqlErrorCode as Code;
use pgrx::check_for_interrupts;

use super::super::advisory_lock::no_wait;
use super::super::holders::decide;
use super::{Batch, Decision, Group};
use crate::error::{Error, Result};
use crate::pg::{memory, subxact};
use crate::store::claims::{self, ListedHolder};
use crate::store::place;

/// Up to so many keys that take a statement are looked at one by one right away, instead of being
/// tried all by one.
const FEW: usize = 16;

impl Batch<'_> {
    /// Inserts or locks the claims of some keys; which of all keys were inserted.
    ///
    /// Keys that a candidate waits for come first, in their order, so that batches cannot
    /// deadlock; then, without waiting for rivals, those that no candidate waits for.
    pub(super) fn claim(&mut self, groups: &[Group]) -> Result<Vec<bool>> {
        let (patient, impatient): (Vec<Group>, Vec<Group>) =
            groups.iter().copied().partition(|group| {
                !self.some_do_not_wait || self.indexes(*group).any(|index| self.policy(index).wait)
            });
        let mut fresh = memory::room(self.taken.len())?;
        fresh.resize(self.taken.len(), false);
        self.claims(&patient)?.claim_or_lock(|group| fresh[group as usize] = true);
        let busy = self.claims(&impatient)?.claim_no_wait(|group| fresh[group as usize] = true);
        for group in busy {
            for index in self.indexes(group).collect::<Vec<_>>() {
                self.decisions[index] = Decision::Busy;
            }
        }
        Ok(fresh)
    }

    /// The claims of some keys as they are inserted where there are none.
    fn claims<'c>(&'c self, groups: &'c [Group]) -> Result<Claims<'c>> {
        let listing = |&group: &Group| match self.inserted(group).next() {
            Some(index) if self.is_settled_by_claim(group) => self.listing(index),
            // What is decided under the lock is not listed yet; until then no job has id 0.
            _ => ListedHolder { key: self.key(group), id: 0, hold_ends_at: None },
        };
        let mut listed = memory::room(groups.len())?;
        listed.extend(groups.iter().map(listing));
        Ok(Claims { groups, listed, taken: &self.taken, is_single: !self.numbered })
    }

    /// Locks the jobs that several candidates will replace or update: first those that wait, so
    /// that no session fetches them, then the running ones in the order in which a completion of
    /// many jobs takes them. So neither waits for the other with something that the other one
    /// needs.
    pub(super) fn lock_touched(&mut self, candidates: &BTreeMap<usize, Group>) {
        if candidates.len() < 2 {
            return;
        }
        let groups: BTreeSet<Group> = candidates.values().copied().collect();
        let groups: Vec<Group> = groups.into_iter().collect();
        let [waiting, mut running] = self.touched(candidates, &groups);
        if !waiting.is_empty() {
            place::lock_waiting(&waiting);
            // Some may have been fetched before.
            [_, running] = self.touched(candidates, &groups);
        }
        place::lock_running(&running);
    }

    /// The jobs that candidates of some keys will replace or update, as far as can be seen: those
    /// that wait, and those that run.
    fn touched(
        &mut self,
        candidates: &BTreeMap<usize, Group>,
        groups: &[Group],
    ) -> [BTreeSet<i64>; 2] {
        let (mut waiting, mut running) = (BTreeSet::new(), BTreeSet::new());
        memory::in_parts(groups, |some| {
            self.look_for_decision(some);
            for (group, holders) in &self.holders {
                let indexes = self.indexes(*group);
                for index in indexes.filter(|index| candidates.contains_key(index)) {
                    let created_at = self.candidates[index].job.created_at;
                    let verdict = decide(self.policy(index), Some(holders), created_at);
                    for id in touched(&verdict) {
                        match holders.holder(id).state() {
                            Some(State::Running) => running.insert(id),
                            Some(state) if !state.is_final() => waiting.insert(id),
                            _ => false,
                        };
                    }
                }
            }
        });
        [waiting, running]
    }
}

/// Claims of some keys that are to be inserted or locked.
struct Claims<'a> {
    groups: &'a [Group],
    /// The jobs that they list.
    listed: Vec<ListedHolder>,
    /// Which of all keys are known to have a claim.
    taken: &'a [bool],
    /// Of a single insert.
    is_single: bool,
}

impl Claims<'_> {
    /// Inserts or locks all of them; tells which were inserted.
    fn claim_or_lock(&self, mut fresh: impl FnMut(Group)) {
        claims::claim_or_lock(
            &self.listed,
            |index| self.taken[self.groups[index] as usize],
            |index| fresh(self.groups[index]),
        );
    }

    /// Inserts or locks all claims without waiting for rivals. Tells which keys a session is at
    /// work on.
    fn claim_no_wait(&self, mut fresh: impl FnMut(Group)) -> Vec<Group> {
        let count = self.groups.len();
        if count == 0 {
            return Vec::new();
        }
        // A session that keeps all others from writing claims (CREATE INDEX, LOCK TABLE) is at work
        // on no key, and is waited for as by any statement.
        claims::let_write();
        let mut done = self.claim_at_once(0, &mut fresh);
        if !claims::can_claim_or_lock_directly() {
            return self.claim_by_statement(done, fresh);
        }
        let mut busy = Vec::new();
        while done < count {
            check_for_interrupts!();
            // Where no session is at work on it any more, it is tried again, which needs no
            // subtransaction.
            if is_contended(self.listed[done].key) {
                busy.push(self.groups[done]);
                done += 1;
            }
            done = self.claim_at_once(done, &mut fresh);
        }
        busy
    }

    /// Continues from one of them to the first that a session is at work on, or that takes a
    /// statement.
    fn claim_at_once(&self, from: usize, mut fresh: impl FnMut(Group)) -> usize {
        let groups = &self.groups[from..];
        let done = claims::claim_or_lock_directly(
            &self.listed[from..],
            |index| self.taken[groups[index] as usize],
            false,
            |index| fresh(groups[index]),
        );
        from + done
    }

    /// Inserts or locks claims from one of them on. Taken keys take a statement: one for all that
    /// no session is at work on.
    fn claim_by_statement(&self, from: usize, mut fresh: impl FnMut(Group)) -> Vec<Group> {
        let mut busy = Vec::new();
        let mut rest: Vec<usize> = (from..self.groups.len()).collect();
        // Of many, perhaps no session is at work on any.
        let mut look = rest.len() <= FEW;
        loop {
            if look {
                rest.retain(|index| {
                    check_for_interrupts!();
                    let is_contended = is_contended(self.listed[*index].key);
                    if is_contended {
                        busy.push(self.groups[*index]);
                    }
                    !is_contended
                });
                // Such a key gets no insert, but the session that has it locked may wait for us.
                let is_unseen = |index: &usize| claims::is_unseen(self.listed[*index].key);
                if rest.iter().any(is_unseen) {
                    Error::unseen_claim().raise();
                }
            }
            // If that takes too long another session has come in between, or it was the server
            // that had to be waited for, as while the table grows: look again.
            if rest.is_empty() || self.claim_in_a_moment(&rest, &mut fresh) {
                return busy;
            }
            look = true;
        }
    }

    /// Inserts or locks some of them if no lock has to be waited for; whether it did.
    fn claim_in_a_moment(&self, some: &[usize], fresh: impl FnMut(Group)) -> bool {
        let group = |index: usize| self.groups[some[index]];
        let inserted = self.without_waiting(|| {
            let mut inserted = Vec::new();
            let listed: Vec<ListedHolder> =
                some.iter().map(|at| self.listed[*at].clone()).collect();
            claims::claim_or_lock(
                &listed,
                |index| self.taken[group(index) as usize],
                |index| inserted.push(group(index)),
            );
            inserted
        });
        let is_done = inserted.is_some();
        inserted.into_iter().flatten().for_each(fresh);
        is_done
    }

    /// Runs `work` in a subtransaction in which no lock is waited for longer than a millisecond;
    /// `None` if one would have to be.
    ///
    /// A batch keeps at most one of these, so it takes that whatever room there is: a session that
    /// waits here may have claims that are behind those waited for, and meet a deadlock. A single
    /// job has none; since a transaction may insert many, without room it waits for rivals that
    /// have come since it looked for them.
    fn without_waiting<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if self.is_single && !subxact::has_room() {
            return Some(work());
        }
        match no_wait(|| subxact::attempt(work)) {
            Ok(done) => Some(done),
            Err(error) if subxact::describe(&error).0 == Code::ERRCODE_LOCK_NOT_AVAILABLE => None,
            Err(error) => subxact::rethrow(*error),
        }
    }
}

/// The jobs that a verdict changes.
pub(super) fn touched(verdict: &Verdict) -> Vec<i64> {
    match verdict {
        Verdict::Replace { cancel, .. } => cancel.clone(),
        Verdict::Update { id, .. } => vec![*id],
        Verdict::Insert | Verdict::Skip(_) | Verdict::Reject(_) => Vec::new(),
    }
}

/// Whether another session is at work on a key.
fn is_contended(key: Key) -> bool {
    subxact::kept_if(|_| false, || claims::is_contended(key))
}
