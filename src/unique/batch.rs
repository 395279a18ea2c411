//! Jobs that are inserted in one go: what is decided of each, and how it is written.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jobs_core::key::Key;
use jobs_core::policy::{OnConflict, Policy};
use jobs_core::state::State;
use jobs_core::verdict::{self, Member, Verdict};
use pgrx::PgSqlErrorCode as Code;
use pgrx::check_for_interrupts;
use smallvec::SmallVec;

use super::insert::{Candidate, Outcome, Replacement};
use super::lock::impatiently;
use super::under::{self, Under, cutoff, decide};
use crate::error::{Error, Result};
use crate::fault;
use crate::pg::subxact;
use crate::store::claims::{self, Holder, Listed, Lists};
use crate::store::insert::{self, NewJob};
use crate::store::place::{self, Place};
use crate::transition;

/// What is decided of a candidate so far.
#[derive(Clone)]
enum Decision {
    Insert,
    Existing(Holder),
    Earlier(usize),
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

/// Jobs that are inserted in one go.
pub(super) struct Batch<'a> {
    candidates: &'a [Candidate<'a>],
    /// whether errors name an element
    numbered: bool,
    /// the candidates of each key, in order
    groups: HashMap<Key, SmallVec<[usize; 1]>>,
    /// Whether some policy may replace or update other jobs. Mostly none: to read thousands of candidates in the order of
    /// their keys, each with its policy, takes more time than to know that.
    some_touch_others: bool,
    /// whether some policy does not wait, for the same reason
    some_do_not_wait: bool,
    /// the jobs under each key that is known to have a claim
    under: BTreeMap<Key, Under>,
    decisions: Vec<Decision>,
    ids: Vec<Option<i64>>,
}

impl<'a> Batch<'a> {
    /// One job, of which errors name no element.
    pub(super) fn of_one(candidate: &'a Candidate<'a>) -> Batch<'a> {
        Batch::new(std::slice::from_ref(candidate), false)
    }

    /// Jobs of which errors name the element.
    pub(super) fn of_many(candidates: &'a [Candidate<'a>]) -> Batch<'a> {
        Batch::new(candidates, true)
    }

    fn new(candidates: &'a [Candidate<'a>], numbered: bool) -> Batch<'a> {
        let mut groups: HashMap<Key, SmallVec<[usize; 1]>> = HashMap::new();
        for (index, candidate) in candidates.iter().enumerate() {
            if let Some(key) = candidate.job.unique_key {
                groups.entry(key).or_default().push(index);
            }
        }
        let some = |is: fn(&Policy) -> bool| {
            let mut policies = candidates.iter().filter_map(|c| c.policy.as_deref());
            policies.any(is)
        };
        Batch {
            candidates,
            numbered,
            groups,
            some_touch_others: some(touches_others),
            some_do_not_wait: some(|policy| !policy.wait),
            under: BTreeMap::new(),
            decisions: vec![Decision::Insert; candidates.len()],
            ids: vec![None; candidates.len()],
        }
    }

    /// Inserts all of them: the protocol.
    pub(super) fn insert(mut self) -> Result<Vec<Outcome>> {
        let mut keys: Vec<Key> = self.groups.keys().copied().collect();
        keys.sort_unstable();
        self.look_for_decision(&keys);
        self.decide(&keys)?;
        let contested: Vec<Key> = keys.into_iter().filter(|key| self.inserts(*key)).collect();
        self.take_ids();
        let mut fresh = self.claim(&contested);
        fresh.retain(|key| self.is_settled_by_claim(*key));
        // A candidate that may touch other jobs is dealt with for itself, unless it is the
        // only one of a key that nobody had.
        let (together, singly): (Vec<Key>, Vec<Key>) = contested.into_iter().partition(|key| {
            !self.touches_others(*key) || (self.is_settled_by_claim(*key) && fresh.contains(key))
        });
        self.set_aside(&singly);
        // What was taken, or was not there to be looked at before, is looked at again now
        // that it is locked.
        let taken: Vec<Key> = together
            .into_iter()
            .filter(|key| !fresh.contains(key))
            .collect();
        fault::with_outer_snapshot(|| self.look(&taken));
        self.decide(&taken)?;
        for key in &taken {
            self.drop_early_ids(*key);
        }
        self.take_ids();
        self.write(&fresh, &taken);
        self.insert_singly(&singly)?;
        Ok(self.outcomes())
    }

    fn policy(&self, index: usize) -> &'a Policy {
        self.candidates[index]
            .policy
            .as_deref()
            .expect("only unique jobs have a key")
    }

    /// Looks at the jobs under some keys, with a snapshot of now, as far as their candidates are
    /// decided by them.
    fn look_for_decision(&mut self, keys: &[Key]) {
        let found = under::look_many(keys, |key| {
            let mut indexes = self.groups[key].iter();
            indexes.any(|&index| under::asks_for_final(self.policy(index)))
        });
        self.replace_under(keys, found);
    }

    /// Looks at everything under some keys: their lists are to be written.
    fn look(&mut self, keys: &[Key]) {
        self.replace_under(keys, under::look_many(keys, |_| true));
    }

    fn replace_under(&mut self, keys: &[Key], found: BTreeMap<Key, Under>) {
        for key in keys {
            self.under.remove(key);
        }
        self.under.extend(found);
    }

    /// Decides the candidates of some keys, by the jobs under the key and by those of
    /// the batch that come before them.
    fn decide(&mut self, keys: &[Key]) -> Result<()> {
        let mut rejected: Option<Rejected> = None;
        for key in keys {
            // Of the candidates to be inserted so far, in each state the newest and the one
            // that is due last: if none of these conflicts, no other one does.
            let mut inserted: BTreeMap<State, [usize; 2]> = BTreeMap::new();
            for &index in &self.groups[key] {
                check_for_interrupts!();
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
                        Decision::Earlier(earlier.id as usize)
                    }
                    Verdict::Replace { .. } | Verdict::Update { .. } => Decision::Singly,
                    Verdict::Insert => match decide(policy, self.under.get(key), now) {
                        Verdict::Insert => Decision::Insert,
                        Verdict::Skip(existing) | Verdict::Reject(existing) => {
                            Decision::Existing(self.under[key].holder(existing.id).clone())
                        }
                        Verdict::Replace { .. } | Verdict::Update { .. } => Decision::Singly,
                    },
                };
                if matches!(decision, Decision::Singly) {
                    // Those behind it depend on what it does.
                    self.set_aside(std::slice::from_ref(key));
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
                    && rejected.as_ref().is_none_or(|first| index < first.index)
                {
                    rejected = Some(self.rejected(index, &decision));
                }
                self.decisions[index] = decision;
            }
        }
        rejected.map_or(Ok(()), |rejected| {
            let index = self.numbered.then_some(rejected.index + 1);
            Err(Error::duplicate(rejected.existing, rejected.state, index))
        })
    }

    fn rejected(&self, index: usize, decision: &Decision) -> Rejected {
        let (existing, state) = match decision {
            Decision::Existing(existing) => (Some(existing.id), existing.state()),
            Decision::Earlier(earlier) => (None, Some(self.candidates[*earlier].job.state)),
            _ => unreachable!("only duplicates are rejected"),
        };
        Rejected {
            index,
            existing,
            state,
        }
    }

    /// The candidates of a key that are to be inserted.
    fn inserted(&self, key: Key) -> impl Iterator<Item = usize> + '_ {
        self.groups[&key]
            .iter()
            .copied()
            .filter(|&index| matches!(self.decisions[index], Decision::Insert))
    }

    /// Drops the id of a candidate if a rival took its job's later, and that job is there now: ids
    /// under a key are in the order of insertion. The caller has locked the key.
    fn drop_early_id(&mut self, key: Key, index: usize) {
        let newest = self.under.get(&key).and_then(Under::newest);
        let id = &mut self.ids[index];
        *id = id.filter(|id| Some(*id) > newest);
    }

    /// Drops the ids of a key's candidates that are not in the order of their insertion, behind
    /// jobs of rivals and behind each other.
    fn drop_early_ids(&mut self, key: Key) {
        let mut latest = self.under.get(&key).and_then(Under::newest);
        for index in self.inserted(key).collect::<Vec<_>>() {
            let id = self.ids[index].filter(|id| Some(*id) > latest);
            self.ids[index] = id;
            // A new one is later than all that were taken.
            latest = id.or(Some(i64::MAX));
        }
    }

    /// Whether it is settled who inserts under a key once nobody else has it.
    fn is_settled_by_claim(&self, key: Key) -> bool {
        !self.touches_others(key) || (self.groups[&key].len() == 1 && !self.has_single(key))
    }

    /// Whether a candidate of a key needs its claim.
    fn inserts(&self, key: Key) -> bool {
        self.inserted(key).next().is_some() || self.has_single(key)
    }

    /// Whether a candidate of a key is to be decided under the lock.
    fn has_single(&self, key: Key) -> bool {
        self.groups[&key]
            .iter()
            .any(|&index| matches!(self.decisions[index], Decision::Singly))
    }

    /// Whether a candidate of a key may replace or update other jobs.
    fn touches_others(&self, key: Key) -> bool {
        self.some_touch_others
            && self.groups[&key]
                .iter()
                .any(|&index| touches_others(self.policy(index)))
    }

    /// Leaves the candidates of some keys, which are locked, to be inserted singly.
    fn set_aside(&mut self, keys: &[Key]) {
        for key in keys {
            for &index in &self.groups[key] {
                if !matches!(self.decisions[index], Decision::Busy) {
                    self.decisions[index] = Decision::Singly;
                }
            }
        }
    }

    /// Inserts the candidates of keys that are locked, one after the other in their order.
    fn insert_singly(&mut self, keys: &[Key]) -> Result<()> {
        let candidates = keys.iter().flat_map(|&key| {
            let indexes = self.groups[&key].iter();
            indexes.map(move |&index| (index, key))
        });
        // Busy ones stay so: their keys are not locked.
        let in_order: BTreeMap<usize, Key> = candidates
            .filter(|(index, _)| !matches!(self.decisions[*index], Decision::Busy))
            .collect();
        self.lock_touched(&in_order);
        for (index, key) in in_order {
            self.decisions[index] = self.insert_next(key, index)?;
        }
        Ok(())
    }

    /// Locks the jobs that several candidates will replace or update: first those that wait, so that nobody fetches them, then
    /// the running ones in the order in which a completion of many jobs takes them. So neither waits for the other with
    /// something that the other one needs.
    fn lock_touched(&mut self, candidates: &BTreeMap<usize, Key>) {
        if candidates.len() < 2 {
            return;
        }
        let keys: BTreeSet<Key> = candidates.values().copied().collect();
        let keys: Vec<Key> = keys.into_iter().collect();
        self.look_for_decision(&keys);
        let waiting = self.touched(candidates, |state| {
            !state.is_final() && state != State::Running
        });
        if !waiting.is_empty() {
            place::lock_waiting(&waiting);
            // Some may have been fetched before.
            self.look_for_decision(&keys);
        }
        place::lock_running(&self.touched(candidates, |state| state == State::Running));
    }

    /// The jobs in some states that candidates will replace or update, as far as can be seen.
    fn touched(
        &self,
        candidates: &BTreeMap<usize, Key>,
        is_meant: fn(State) -> bool,
    ) -> BTreeSet<i64> {
        let mut ids = BTreeSet::new();
        for (&index, key) in candidates {
            if let Some(under) = self.under.get(key) {
                let created_at = self.candidates[index].job.created_at;
                let verdict = decide(self.policy(index), Some(under), created_at);
                let is_meant = |id: &i64| under.holder(*id).state().is_some_and(is_meant);
                ids.extend(touched(&verdict).into_iter().filter(is_meant));
            }
        }
        ids
    }

    /// Decides a candidate by what is there now. What it will touch is locked: whoever had it
    /// before may have changed what conflicts, so it is decided anew until that makes no difference.
    fn decide_next(&mut self, key: Key, index: usize) -> Result<(Verdict, Vec<Place>)> {
        let policy = self.policy(index);
        let now = self.candidates[index].job.created_at;
        loop {
            check_for_interrupts!();
            self.look_for_decision(&[key]);
            let verdict = decide(policy, self.under.get(&key), now);
            let locks = touched(&verdict).into_iter();
            let locks = locks.map(|id| transition::locked(self.under[&key].holder(id), &verdict));
            let Some(places) = locks.collect::<Result<Option<Vec<Place>>>>()? else {
                continue;
            };
            if places.is_empty() {
                return Ok((verdict, places));
            }
            self.look_for_decision(&[key]);
            if decide(policy, self.under.get(&key), now) == verdict {
                return Ok((verdict, places));
            }
        }
    }

    /// Decides a candidate by what is there now, and does it.
    fn insert_next(&mut self, key: Key, index: usize) -> Result<Decision> {
        let job = &self.candidates[index].job;
        let (verdict, places) = self.decide_next(key, index)?;
        match verdict {
            Verdict::Replace {
                cancel,
                schedule_of,
            } => {
                let under = &self.under[&key];
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
                    id: self.insert_under(key, index, &job),
                    replaced: *cancel.last().expect("there is one at least"),
                    state: job.state,
                    scheduled_at: job.scheduled_at(),
                })))
            }
            Verdict::Insert => {
                self.insert_under(key, index, job);
                Ok(Decision::Insert)
            }
            Verdict::Skip(existing) => {
                let existing = self.under[&key].holder(existing.id);
                Ok(Decision::Existing(existing.clone()))
            }
            Verdict::Reject(existing) => {
                // What this batch inserted is rolled back with it.
                let id = Some(existing.id).filter(|id| !self.ids.contains(&Some(*id)));
                let index = self.numbered.then_some(index + 1);
                Err(Error::duplicate(id, existing.state, index))
            }
            Verdict::Update { id, fields, .. } => {
                let before = self.under[&key].holder(id).clone();
                transition::updated(&places[0], fields, job);
                self.look_for_decision(&[key]);
                // Its retention may be over by now.
                let after = self.under.get(&key).and_then(|under| under.find(id));
                Ok(Decision::Existing(after.cloned().unwrap_or(before)))
            }
        }
    }

    /// Inserts one job under a key that is locked; its id.
    fn insert_under(&mut self, key: Key, index: usize, job: &NewJob) -> i64 {
        // Also of what was replaced: it is final by now.
        self.look(&[key]);
        self.drop_early_id(key, index);
        let id = *self.ids[index].get_or_insert_with(|| insert::ids(1)[0]);
        insert::many(&[(id, job)]);
        let mut lists = Lists::default();
        self.under[&key].fold_into(key, &mut lists);
        lists.list(listing(key, id, job));
        lists.write();
        id
    }

    /// Takes ids for those that are to be inserted and have none.
    fn take_ids(&mut self) {
        let needy: Vec<usize> = (0..self.candidates.len())
            .filter(|&index| {
                matches!(self.decisions[index], Decision::Insert) && self.ids[index].is_none()
            })
            .collect();
        if !needy.is_empty() {
            for (index, id) in needy.iter().zip(insert::ids(needy.len())) {
                self.ids[*index] = Some(id);
            }
        }
    }

    /// Inserts or locks the claims of some keys; those that were inserted.
    ///
    /// Keys that a candidate waits for come first, in their order, so that batches cannot
    /// deadlock; then, without waiting for rivals, those that no candidate waits for.
    fn claim(&mut self, keys: &[Key]) -> BTreeSet<Key> {
        let (patient, impatient): (Vec<Key>, Vec<Key>) = keys.iter().copied().partition(|key| {
            !self.some_do_not_wait
                || self.groups[key]
                    .iter()
                    .any(|&index| self.policy(index).wait)
        });
        let mut fresh = self.claim_or_lock(&self.listings(&patient));
        for key in self.claim_impatiently(&self.listings(&impatient), &mut fresh) {
            for &index in &self.groups[&key] {
                self.decisions[index] = Decision::Busy;
            }
        }
        fresh
    }

    /// Inserts or locks claims without waiting for rivals; adds those that were inserted. The keys that somebody is at work on.
    fn claim_impatiently(&self, claims: &[Listed], fresh: &mut BTreeSet<Key>) -> Vec<Key> {
        if claims.is_empty() {
            return Vec::new();
        }
        // Who keeps everybody from writing claims (CREATE INDEX, LOCK TABLE) is at work on no key, and is waited for as by
        // any statement.
        claims::let_write();
        let mut rest = self.claim_at_once(claims, fresh);
        // Where a taken key takes a statement, nobody need be at work on the one that is next, nor on any other.
        let by_statement = !claims::can_claim_or_lock_directly();
        if by_statement
            && rest.len() > FEW
            && let Some(more) = without_waiting(|| self.claim_or_lock(rest))
        {
            fresh.extend(more);
            rest = &[];
        }
        let mut busy = Vec::new();
        while let [claim, behind @ ..] = rest {
            let (claims, behind) = if by_statement {
                (rest, &[][..])
            } else {
                (std::slice::from_ref(claim), behind)
            };
            busy.extend(self.claim_unless_contended(claims, fresh));
            rest = self.claim_at_once(behind, fresh);
        }
        busy
    }

    /// The rest, from the first on that somebody is at work on, or that takes a statement.
    fn claim_at_once<'c>(&self, claims: &'c [Listed], fresh: &mut BTreeSet<Key>) -> &'c [Listed] {
        let is_taken = |key: &Key| self.is_taken(key);
        &claims[claims::claim_or_lock_directly(claims, is_taken, false, fresh)..]
    }

    /// Inserts or locks claims unless somebody is at work on their keys; those keys.
    fn claim_unless_contended(&self, claims: &[Listed], fresh: &mut BTreeSet<Key>) -> Vec<Key> {
        let mut busy = Vec::new();
        let mut rest = claims.to_vec();
        loop {
            rest.retain(|claim| {
                check_for_interrupts!();
                let is_contended = is_contended(claim.key);
                if is_contended {
                    busy.push(claim.key);
                }
                !is_contended
            });
            if rest.is_empty() {
                return busy;
            }
            // If that takes too long somebody has come in between, or it was the server
            // that had to be waited for, as while the table grows: look again.
            if let Some(inserted) = without_waiting(|| self.claim_or_lock(&rest)) {
                fresh.extend(inserted);
                return busy;
            }
        }
    }

    fn claim_or_lock(&self, claims: &[Listed]) -> BTreeSet<Key> {
        claims::claim_or_lock(claims, |key| self.is_taken(key))
    }

    /// Whether a key is known to have a claim.
    fn is_taken(&self, key: &Key) -> bool {
        self.under.contains_key(key)
    }

    /// The claims of some keys as they are inserted where there are none.
    fn listings(&self, keys: &[Key]) -> Vec<Listed> {
        let listing = |&key| match self.inserted(key).next() {
            Some(index) if self.is_settled_by_claim(key) => self.listing(key, index),
            // What is decided under the lock is not listed yet; until then no job has id 0.
            _ => Listed {
                key,
                id: 0,
                hold_ends_at: None,
            },
        };
        keys.iter().map(listing).collect()
    }

    /// Writes the jobs, and which jobs are under the keys that this did not settle.
    fn write(&self, fresh: &BTreeSet<Key>, taken: &[Key]) {
        let rows: Vec<(i64, &NewJob)> = (0..self.candidates.len())
            .filter(|&index| matches!(self.decisions[index], Decision::Insert))
            .map(|index| {
                (
                    self.ids[index].expect("ids were taken"),
                    &self.candidates[index].job,
                )
            })
            .collect();
        insert::many(&rows);
        let mut lists = Lists::default();
        let more = fresh
            .iter()
            .filter(|key| self.inserted(**key).nth(1).is_some());
        for &key in taken.iter().chain(more).filter(|key| self.inserts(**key)) {
            if let Some(under) = self.under.get(&key) {
                under.fold_into(key, &mut lists);
            }
            for index in self.inserted(key) {
                lists.list(self.listing(key, index));
            }
        }
        lists.write();
    }

    /// A candidate that is to be inserted, as its key's claim lists it.
    fn listing(&self, key: Key, index: usize) -> Listed {
        let id = self.ids[index].expect("ids were taken");
        listing(key, id, &self.candidates[index].job)
    }

    fn outcomes(self) -> Vec<Outcome> {
        self.decisions
            .into_iter()
            .zip(self.ids)
            .map(|(decision, id)| match decision {
                Decision::Insert => Outcome::Inserted(id.expect("ids were taken")),
                Decision::Existing(holder) => Outcome::Existing(holder),
                Decision::Earlier(index) => Outcome::Earlier(index),
                Decision::Busy => Outcome::Busy,
                Decision::Replaced(replacement) => Outcome::Replaced(replacement),
                Decision::Singly => unreachable!("it was decided under the lock"),
            })
            .collect()
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

/// Runs `work` in a subtransaction in which no lock is waited for longer than a
/// millisecond; `None` if one would have to be. Where a transaction has too many of these, it waits for who has come
/// since it was looked for rivals.
fn without_waiting<T>(work: impl FnOnce() -> T) -> Option<T> {
    if !subxact::has_room() {
        return Some(work());
    }
    match impatiently(|| subxact::attempt(work)) {
        Ok(done) => Some(done),
        Err(error) if subxact::describe(&error).0 == Code::ERRCODE_LOCK_NOT_AVAILABLE => None,
        Err(error) => subxact::rethrow(*error),
    }
}
