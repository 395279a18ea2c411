//! Jobs that are inserted in one go: what is decided of each, and how it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroI64;

use jobs_core::key::Key;
use jobs_core::policy::{OnConflict, Policy};
use jobs_core::state::State;
use jobs_core::verdict::{self, Member, Verdict};
use pgrx::PgSqlErrorCode as Code;
use pgrx::check_for_interrupts;

use super::insert::{Candidate, Outcome, Replacement};
use super::lock::impatiently;
use super::under::{self, Under, cutoff, decide};
use crate::error::{Error, Result};
use crate::fault;
use crate::pg::memory::{self, Scratch};
use crate::pg::subxact;
use crate::store::claims::{self, AT_ONCE, Holder, Listed, Lists};
use crate::store::insert;
use crate::store::job::NewJob;
use crate::store::place::{self, Place};
use crate::transition;

/// What is decided of a candidate so far.
enum Decision {
    Insert,
    Existing(Box<Holder>),
    Earlier(u32),
    Busy,
    /// it may touch other jobs: to be decided under the lock
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

/// Jobs that are inserted in one go. There may be a million of them: what is kept of each is small, and what is known of the jobs
/// under their keys is kept for as many keys as are looked at together.
pub(super) struct Batch<'a> {
    candidates: &'a [Candidate],
    /// whether errors name an element
    numbered: bool,
    /// the candidates that have a key, by their keys, those of one key in their order
    order: Vec<u32>,
    /// where the candidates of each key begin in that, and where the last ones end
    begins: Vec<u32>,
    /// Whether some policy may replace or update other jobs. Mostly none: to read thousands of candidates in the order of
    /// their keys, each with its policy, takes more time than to know that.
    some_touch_others: bool,
    /// whether some policy does not wait, for the same reason
    some_do_not_wait: bool,
    /// the keys that are known to have a claim
    taken: Vec<bool>,
    /// the jobs under those keys that were looked at last, where there is a claim
    under: BTreeMap<Group, Under>,
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
            under: BTreeMap::new(),
            rejected: None,
            decisions,
            ids,
        })
    }

    /// Inserts all of them: the protocol.
    pub(super) fn insert(mut self) -> Result<Vec<Outcome>> {
        let mut groups: Vec<Group> = memory::room(self.taken.len())?;
        groups.extend(0..self.taken.len() as Group);
        for_some(&groups, |some| {
            self.look_for_decision(some);
            for group in self.under.keys() {
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
        // only one of a key that nobody had.
        let (together, singly): (Vec<Group>, Vec<Group>) = groups
            .into_iter()
            .partition(|group| !self.touches_others(*group) || is_fresh(*group));
        self.set_aside(&singly);
        // What was taken, or was not there to be looked at before, is looked at again now
        // that it is locked.
        let mut lists = Lists::default();
        let (new, taken): (Vec<Group>, Vec<Group>) =
            together.into_iter().partition(|group| is_fresh(*group));
        for_some(&taken, |some| {
            fault::with_outer_snapshot(|| self.look(some));
            self.decide(some);
            for &group in some {
                self.drop_early_ids(group);
                self.list(group, &mut lists);
            }
        });
        self.refuse()?;
        let several = |group: &&Group| self.inserted(**group).nth(1).is_some();
        let several: Vec<Group> = new.iter().filter(several).copied().collect();
        self.under.clear();
        several
            .iter()
            .for_each(|group| self.list(*group, &mut lists));
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
        self.candidates[index]
            .policy
            .as_deref()
            .expect("only unique jobs have a key")
    }

    /// Looks at the jobs under some keys, with a snapshot of now, as far as their candidates are
    /// decided by them.
    fn look_for_decision(&mut self, groups: &[Group]) {
        let asks_for_final = |group: Group| {
            let mut indexes = self.indexes(group);
            indexes.any(|index| under::asks_for_final(self.policy(index)))
        };
        self.under = self.look_at(groups, asks_for_final);
    }

    /// Looks at everything under some keys: their lists are to be written.
    fn look(&mut self, groups: &[Group]) {
        self.under = self.look_at(groups, |_| true);
    }

    fn look_at(&self, groups: &[Group], all: impl Fn(Group) -> bool) -> BTreeMap<Group, Under> {
        let keys: Vec<Key> = groups.iter().map(|group| self.key(*group)).collect();
        // Both are in ascending order.
        let group_of = |key: &Key| groups[keys.binary_search(key).expect("it was looked for")];
        let found = under::look_many(&keys, |key| all(group_of(key)));
        let found = found.into_iter();
        found.map(|(key, under)| (group_of(&key), under)).collect()
    }

    /// Decides the candidates of some keys that were looked at, by the jobs under the key and by those of
    /// the batch that come before them.
    fn decide(&mut self, groups: &[Group]) {
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
                let predecessors: Vec<Member> = inserted
                    .values()
                    .flatten()
                    .map(|&earlier| self.candidates[earlier].as_member(earlier))
                    .collect();
                let decision = match verdict::decide(policy, &predecessors, cutoff(policy, now)) {
                    Verdict::Skip(earlier) | Verdict::Reject(earlier) => {
                        Decision::Earlier(earlier.id as u32)
                    }
                    Verdict::Replace { .. } | Verdict::Update { .. } => Decision::Singly,
                    Verdict::Insert => match decide(policy, self.under.get(&group), now) {
                        Verdict::Insert => Decision::Insert,
                        Verdict::Skip(existing) | Verdict::Reject(existing) => {
                            let existing = self.under[&group].holder(existing.id);
                            Decision::Existing(Box::new(existing.clone()))
                        }
                        Verdict::Replace { .. } | Verdict::Update { .. } => Decision::Singly,
                    },
                };
                if matches!(decision, Decision::Singly) {
                    // Those behind it depend on what it does.
                    self.set_aside(std::slice::from_ref(&group));
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
                    && self
                        .rejected
                        .as_ref()
                        .is_none_or(|first| index < first.index)
                {
                    self.rejected = Some(self.rejected(index, &decision));
                }
                self.decisions[index] = decision;
            }
        }
    }

    /// The error if a candidate was rejected.
    fn refuse(&mut self) -> Result<()> {
        self.rejected.take().map_or(Ok(()), |rejected| {
            let index = self.numbered.then_some(rejected.index + 1);
            Err(Error::duplicate(rejected.existing, rejected.state, index))
        })
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
        Rejected {
            index,
            existing,
            state,
        }
    }

    /// The candidates of a key that are to be inserted.
    fn inserted(&self, group: Group) -> impl Iterator<Item = usize> + Clone + use<'_> {
        let is_inserted = |index: &usize| matches!(self.decisions[*index], Decision::Insert);
        self.indexes(group).filter(is_inserted)
    }

    /// The id that was taken for a candidate.
    fn id(&self, index: usize) -> i64 {
        self.ids[index].expect("it was taken").get()
    }

    /// Takes an id for a candidate that has none.
    fn take_id(&mut self, index: usize) -> i64 {
        let id = &mut self.ids[index];
        let new = || NonZeroI64::new(insert::id()).expect("ids are above 0");
        id.get_or_insert_with(new).get()
    }

    /// Takes ids for those that are to be inserted.
    fn take_all_ids(&mut self) {
        for index in 0..self.candidates.len() {
            check_for_interrupts!();
            if matches!(self.decisions[index], Decision::Insert) {
                self.take_id(index);
            }
        }
    }

    /// Drops the id of a candidate if a rival took its job's later, and that job is there now: ids
    /// under a key are in the order of insertion. The caller has locked the key.
    fn drop_early_id(&mut self, group: Group, index: usize) {
        let newest = self.under.get(&group).and_then(Under::newest);
        let id = &mut self.ids[index];
        *id = id.filter(|id| Some(id.get()) > newest);
    }

    /// Takes new ids for a key's candidates that are not in the order of their insertion, behind
    /// jobs of rivals and behind each other.
    fn drop_early_ids(&mut self, group: Group) {
        let mut latest = self.under.get(&group).and_then(Under::newest);
        for index in self.inserted(group).collect::<Vec<_>>() {
            let id = self.ids[index].filter(|id| Some(id.get()) > latest);
            self.ids[index] = id;
            // A new one is later than all that were taken.
            latest = id.map(NonZeroI64::get).or(Some(i64::MAX));
        }
        for index in self.inserted(group).collect::<Vec<_>>() {
            self.take_id(index);
        }
    }

    /// Whether it is settled who inserts under a key once nobody else has it.
    fn is_settled_by_claim(&self, group: Group) -> bool {
        !self.touches_others(group)
            || (self.indexes(group).nth(1).is_none() && !self.has_single(group))
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

    /// Leaves the candidates of some keys, which are locked, to be inserted singly.
    fn set_aside(&mut self, groups: &[Group]) {
        for &group in groups {
            for at in self.begins[group as usize]..self.begins[group as usize + 1] {
                let decision = &mut self.decisions[self.order[at as usize] as usize];
                if !matches!(decision, Decision::Busy) {
                    *decision = Decision::Singly;
                }
            }
        }
    }

    /// Inserts the candidates of keys that are locked, one after the other in their order.
    fn insert_singly(&mut self, groups: &[Group]) -> Result<()> {
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

    /// Locks the jobs that several candidates will replace or update: first those that wait, so that nobody fetches them, then
    /// the running ones in the order in which a completion of many jobs takes them. So neither waits for the other with
    /// something that the other one needs.
    fn lock_touched(&mut self, candidates: &BTreeMap<usize, Group>) {
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

    /// The jobs that candidates of some keys will replace or update, as far as can be seen: those that wait, and those that run.
    fn touched(
        &mut self,
        candidates: &BTreeMap<usize, Group>,
        groups: &[Group],
    ) -> [BTreeSet<i64>; 2] {
        let (mut waiting, mut running) = (BTreeSet::new(), BTreeSet::new());
        for_some(groups, |some| {
            self.look_for_decision(some);
            for (group, under) in &self.under {
                let indexes = self.indexes(*group);
                for index in indexes.filter(|index| candidates.contains_key(index)) {
                    let created_at = self.candidates[index].job.created_at;
                    let verdict = decide(self.policy(index), Some(under), created_at);
                    for id in touched(&verdict) {
                        match under.holder(id).state() {
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

    /// Decides a candidate by what is there now. What it will touch is locked: whoever had it
    /// before may have changed what conflicts, so it is decided anew until that makes no difference.
    fn decide_next(&mut self, group: Group, index: usize) -> Result<(Verdict, Vec<Place>)> {
        let policy = self.policy(index);
        let now = self.candidates[index].job.created_at;
        loop {
            check_for_interrupts!();
            self.look_for_decision(&[group]);
            let verdict = decide(policy, self.under.get(&group), now);
            let locks = touched(&verdict).into_iter();
            let locks = locks.map(|id| transition::locked(self.under[&group].holder(id), &verdict));
            let Some(places) = locks.collect::<Result<Option<Vec<Place>>>>()? else {
                continue;
            };
            if places.is_empty() {
                return Ok((verdict, places));
            }
            self.look_for_decision(&[group]);
            if decide(policy, self.under.get(&group), now) == verdict {
                return Ok((verdict, places));
            }
        }
    }

    /// Decides a candidate by what is there now, and does it.
    fn insert_next(&mut self, group: Group, index: usize) -> Result<Decision> {
        let job = &self.candidates[index].job;
        let (verdict, places) = self.decide_next(group, index)?;
        match verdict {
            Verdict::Replace {
                cancel,
                schedule_of,
            } => {
                let under = &self.under[&group];
                for place in &places {
                    let hold = under.holder(place.id).hold_ends_at;
                    claims::release_holds(hold.map(|ends_at| (place.id, ends_at)).as_slice());
                    transition::cancelled(place, Some("replaced"));
                }
                let schedule = schedule_of.and_then(|id| under.holder(id).job.as_ref());
                let job = job
                    .clone()
                    .rescheduled(schedule.map(|job| job.scheduled_at));
                Ok(Decision::Replaced(Box::new(Replacement {
                    id: self.insert_under(group, index, &job),
                    replaced: *cancel.last().expect("there is one at least"),
                    state: job.state,
                    scheduled_at: job.scheduled_at(),
                })))
            }
            Verdict::Insert => {
                self.insert_under(group, index, job);
                Ok(Decision::Insert)
            }
            Verdict::Skip(existing) => {
                let existing = self.under[&group].holder(existing.id);
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
                let before = self.under[&group].holder(id).clone();
                transition::updated(&places[0], fields, job);
                self.look_for_decision(&[group]);
                // Its retention may be over by now.
                let after = self.under.get(&group).and_then(|under| under.find(id));
                Ok(Decision::Existing(Box::new(
                    after.cloned().unwrap_or(before),
                )))
            }
        }
    }

    /// Inserts one job under a key that is locked; its id.
    fn insert_under(&mut self, group: Group, index: usize, job: &NewJob) -> i64 {
        // Also of what was replaced: it is final by now.
        self.look(&[group]);
        self.drop_early_id(group, index);
        let id = self.take_id(index);
        insert::many(&[(id, job)]);
        let (key, mut lists) = (self.key(group), Lists::default());
        self.under[&group].fold_into(key, &mut lists);
        lists.list(listing(key, id, job));
        lists.write();
        id
    }

    /// Inserts or locks the claims of some keys; which of all keys were inserted.
    ///
    /// Keys that a candidate waits for come first, in their order, so that batches cannot
    /// deadlock; then, without waiting for rivals, those that no candidate waits for.
    fn claim(&mut self, groups: &[Group]) -> Result<Vec<bool>> {
        let (patient, impatient): (Vec<Group>, Vec<Group>) =
            groups.iter().copied().partition(|group| {
                !self.some_do_not_wait || self.indexes(*group).any(|index| self.policy(index).wait)
            });
        let mut fresh = memory::room(self.taken.len())?;
        fresh.resize(self.taken.len(), false);
        self.claims(&patient)?
            .claim_or_lock(|group| fresh[group as usize] = true);
        let busy = self
            .claims(&impatient)?
            .claim_impatiently(|group| fresh[group as usize] = true);
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
            _ => Listed {
                key: self.key(group),
                id: 0,
                hold_ends_at: None,
            },
        };
        let mut listed = memory::room(groups.len())?;
        listed.extend(groups.iter().map(listing));
        Ok(Claims {
            groups,
            listed,
            taken: &self.taken,
            is_single: !self.numbered,
        })
    }

    /// Adds to new lists what is to be under a key: jobs that were looked at, and those that are to be inserted.
    fn list(&self, group: Group, lists: &mut Lists) {
        if self.inserts(group) {
            if let Some(under) = self.under.get(&group) {
                under.fold_into(self.key(group), lists);
            }
            for index in self.inserted(group) {
                lists.list(self.listing(index));
            }
        }
    }

    /// Writes the jobs.
    fn write(&self) -> Result<()> {
        let mut rows = memory::room(self.candidates.len())?;
        let inserted = (0..self.candidates.len())
            .filter(|&index| matches!(self.decisions[index], Decision::Insert));
        rows.extend(inserted.map(|index| (self.id(index), &self.candidates[index].job)));
        insert::many(&rows);
        Ok(())
    }

    /// A candidate that is to be inserted, as its key's claim lists it.
    fn listing(&self, index: usize) -> Listed {
        let job = &self.candidates[index].job;
        let key = job.unique_key.expect("it has one");
        listing(key, self.id(index), job)
    }

    fn outcomes(self) -> Result<Vec<Outcome>> {
        let mut outcomes = memory::room(self.candidates.len())?;
        let decided = self.decisions.into_iter().zip(self.ids);
        outcomes.extend(decided.map(|(decision, id)| match decision {
            Decision::Insert => Outcome::Inserted(id.expect("ids were taken").get()),
            Decision::Existing(holder) => Outcome::Existing(holder),
            Decision::Earlier(index) => Outcome::Earlier(index as usize),
            Decision::Busy => Outcome::Busy,
            Decision::Replaced(replacement) => Outcome::Replaced(replacement),
            Decision::Singly => unreachable!("it was decided under the lock"),
        }));
        Ok(outcomes)
    }
}

/// Claims of some keys that are to be inserted or locked.
struct Claims<'a> {
    groups: &'a [Group],
    /// one for each of them
    listed: Vec<Listed>,
    /// of all keys, those that are known to have one
    taken: &'a [bool],
    /// not those of a batch
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

    /// The same without waiting for rivals, for all of them. The keys that somebody is at work on.
    fn claim_impatiently(&self, mut fresh: impl FnMut(Group)) -> Vec<Group> {
        let count = self.groups.len();
        if count == 0 {
            return Vec::new();
        }
        // Who keeps everybody from writing claims (CREATE INDEX, LOCK TABLE) is at work on no key, and is waited for as by
        // any statement.
        claims::let_write();
        let mut done = self.claim_at_once(0, &mut fresh);
        if !claims::can_claim_or_lock_directly() {
            return self.claim_by_statement(done, fresh);
        }
        let mut busy = Vec::new();
        while done < count {
            check_for_interrupts!();
            // Where nobody is at work on it any more, it is tried again, which needs no subtransaction.
            if is_contended(self.listed[done].key) {
                busy.push(self.groups[done]);
                done += 1;
            }
            done = self.claim_at_once(done, &mut fresh);
        }
        busy
    }

    /// Goes on from one of them to the first that somebody is at work on, or that takes a statement.
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

    /// The same from one of them on where a taken key takes a statement: one for all that nobody is at work on.
    fn claim_by_statement(&self, from: usize, mut fresh: impl FnMut(Group)) -> Vec<Group> {
        let mut busy = Vec::new();
        let mut rest: Vec<usize> = (from..self.groups.len()).collect();
        // Of many, nobody need be at work on any.
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
                // Nobody will insert under such a key, but who has it locked may wait for us.
                let is_unseen = |index: &usize| claims::is_unseen(self.listed[*index].key);
                if rest.iter().any(is_unseen) {
                    Error::unseen_claim().raise();
                }
            }
            // If that takes too long somebody has come in between, or it was the server
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
            let listed: Vec<Listed> = some.iter().map(|at| self.listed[*at].clone()).collect();
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

    /// Runs `work` in a subtransaction in which no lock is waited for longer than a millisecond; `None` if one would have to be.
    ///
    /// A batch keeps at most one of these, so it takes that whatever room there is: who waits here may have claims that are
    /// behind those waited for, and meet a deadlock. A single job has none; since a transaction may insert many, without
    /// room it waits for who has come since it was looked for rivals.
    fn without_waiting<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if self.is_single && !subxact::has_room() {
            return Some(work());
        }
        match impatiently(|| subxact::attempt(work)) {
            Ok(done) => Some(done),
            Err(error) if subxact::describe(&error).0 == Code::ERRCODE_LOCK_NOT_AVAILABLE => None,
            Err(error) => subxact::rethrow(*error),
        }
    }
}

/// Does some work for all keys, for as many at once as may be.
fn for_some(groups: &[Group], mut work: impl FnMut(&[Group])) {
    match groups {
        [] => {}
        [_] => work(groups),
        _ => {
            let scratch = Scratch::new();
            for some in groups.chunks(AT_ONCE) {
                scratch.within(|| work(some));
            }
        }
    }
}

fn listing(key: Key, id: i64, job: &NewJob) -> Listed {
    Listed {
        key,
        id,
        hold_ends_at: job.hold_ends_at(),
    }
}

/// The jobs that a verdict changes.
fn touched(verdict: &Verdict) -> Vec<i64> {
    match verdict {
        Verdict::Replace { cancel, .. } => cancel.clone(),
        Verdict::Update { id, .. } => vec![*id],
        Verdict::Insert | Verdict::Skip(_) | Verdict::Reject(_) => Vec::new(),
    }
}

/// Whether a policy lets an insert replace or update other jobs.
fn touches_others(policy: &Policy) -> bool {
    matches!(
        policy.on_conflict,
        OnConflict::Replace(_) | OnConflict::Update(_)
    )
}

/// Whether a policy lets an insert fail because of another job.
fn rejects(policy: &Policy) -> bool {
    match policy.on_conflict {
        OnConflict::Reject => true,
        OnConflict::Replace(replace) => replace.reject_final,
        OnConflict::Skip | OnConflict::Update(_) => false,
    }
}

/// Whether somebody else is at work on a key.
fn is_contended(key: Key) -> bool {
    subxact::attempt_and_keep(|| claims::is_contended(key), |_| false)
        .unwrap_or_else(|error| subxact::rethrow(*error))
}

/// Up to so many keys that take a statement are looked at one by one right away, instead of being tried all by one.
const FEW: usize = 16;
