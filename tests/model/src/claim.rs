//! How claims are taken, with and without statements: `src/unique/batch/acquire.rs`, and
//! `src/store/claims.rs`.

use jobs_core::state::State;

use crate::database::{Claim, Job, Key, Version};
use crate::scenario::Fault;
use crate::session::{Decision, Item, Step, Try, Why};
use crate::transaction::Turn;

/// From so many new keys on their claims are inserted together (32 there).
const WORTH_A_SUBTRANSACTION: usize = 2;

impl Turn<'_> {
    /// Inserts the claim together with the only job.
    pub fn insert_with_claim(&mut self) {
        let own = self.own();
        let key = self.me().items[0].new.key;
        self.me().items[0].id = self.next_number();
        let there = self.state.database.claim_there(key, own);
        if !self.is_direct()
            && let Some(at) = there
        {
            // A statement waits for who is inserting or deleting it.
            let version = &self.state.database.claims[key.0 as usize][at];
            let changed_by = [Some(version.by), version.gone];
            let mut changed_by = changed_by.into_iter().flatten();
            if let Some(xid) = changed_by.find(|xid| self.state.database.is_open(*xid, own)) {
                return self.wait_for(xid, Step::InsertWithClaim);
            }
            let view = self.view();
            if !view.sees(&self.state.database.claims[key.0 as usize][at]) {
                return self.fail_to_serialize();
            }
        }
        if there.is_some() {
            self.say.say(|| format!("finds that key {key} is claimed by now"));
            self.me().items[0].id = 0;
            return self.then(Step::Look(Why::Batch));
        }
        self.say.say(|| format!("inserts the claim of key {key} and the job"));
        self.insert_claim(0);
        self.insert_job(0);
        self.end_insert();
    }

    pub(crate) fn insert_claim(&mut self, n: usize) {
        let by = self.xid();
        let Item { new, id, .. } = self.me().items[n];
        let claim = Claim { jobs: vec![id] };
        self.state.database.claims[new.key.0 as usize].push(Version::new(claim, by));
        self.me().items[n].is_fresh = true;
        self.check_fresh(n);
    }

    pub(crate) fn insert_job(&mut self, n: usize) {
        let by = self.xid();
        let Item { new, id, .. } = self.me().items[n];
        let job =
            Job { id, key: new.key, state: State::Available, finalized_at: 0, has_returned: false };
        self.state.database.jobs.push(Version::new(job, by));
    }

    /// It is decided which claims are needed: ids are taken, and the order is settled. Those that
    /// nobody need wait for come last.
    pub(crate) fn begin_claims(&mut self) {
        let mut order = vec![];
        for wait in [true, false] {
            for n in 0..self.me().items.len() {
                let item = &self.me().items[n];
                if item.decision == Decision::Insert && item.new.wait == wait {
                    order.push(n as u8);
                }
            }
            if wait {
                self.me().patient = order.len() as u8;
            }
        }
        for n in 0..self.me().items.len() {
            if self.me().items[n].decision == Decision::Insert {
                self.me().items[n].id = self.next_number();
            }
        }
        self.me().order = order;
        self.begin_list(0);
    }

    /// Where the list ends that this claim is in: of those that are waited for, or of the others.
    pub(crate) fn end_of_list(&mut self, at: u8) -> u8 {
        let me = self.me();
        if at < me.patient { me.patient } else { me.order.len() as u8 }
    }

    pub(crate) fn is_taken(&mut self, at: u8) -> bool {
        let n = self.me().order[at as usize] as usize;
        self.me().items[n].is_taken
    }

    /// Begins to take the claims from this one on.
    pub(crate) fn begin_list(&mut self, at: u8) {
        if at as usize == self.me().order.len() {
            return self.claimed();
        }
        let end = self.end_of_list(at);
        let new = (at..end).take_while(|at| !self.is_taken(*at)).count();
        if self.is_direct() && self.scenario.room && new >= WORTH_A_SUBTRANSACTION {
            self.me().from = at;
            return self.then(Step::InsertTogether(at));
        }
        self.begin_claim(at);
    }

    /// Begins to take one claim.
    pub(crate) fn begin_claim(&mut self, at: u8) {
        let step = match (self.is_direct(), self.is_taken(at)) {
            (false, _) => return self.give_up_directly(at),
            (true, true) if self.is_read_committed() => Step::LockDirectly(at, Try::First),
            (true, true) => Step::InsertDirectly(at, Try::Last),
            (true, false) => Step::InsertDirectly(at, Try::First),
        };
        self.then(step);
    }

    /// A claim is taken, without a statement.
    pub(crate) fn next_directly(&mut self, at: u8) {
        if at + 1 == self.end_of_list(at) {
            self.begin_list(at + 1);
        } else {
            self.begin_claim(at + 1);
        }
    }

    /// Somebody is at work on a claim, or it takes a statement.
    pub(crate) fn give_up_directly(&mut self, at: u8) {
        if at < self.me().patient {
            return self.then(Step::ByStatement(at));
        }
        self.me().from = at;
        self.then(Step::IsInProgress(at));
    }

    /// The key of a claim, and which job it is of.
    pub(crate) fn claim_at(&mut self, at: u8) -> (Key, usize) {
        let n = self.me().order[at as usize] as usize;
        (self.me().items[n].new.key, n)
    }

    /// Inserts the claims of new keys, one after the other, and rolls all of them back when one is
    /// taken.
    pub fn insert_together(&mut self, at: u8) {
        if self.me().from == at {
            self.begin_sub();
        }
        let own = self.own();
        let (key, n) = self.claim_at(at);
        if self.state.database.claim_there(key, own).is_some() {
            self.say.say(|| format!("finds that key {key} is claimed by now"));
            let from = self.me().from;
            for at in from..at {
                let (_, n) = self.claim_at(at);
                self.me().items[n].is_fresh = false;
            }
            self.roll_back_sub();
            return self.begin_claim(from);
        }
        self.say.say(|| format!("inserts the claim of key {key}"));
        self.insert_claim(n);
        let end = self.end_of_list(at);
        if at + 1 < end && !self.is_taken(at + 1) {
            return self.then(Step::InsertTogether(at + 1));
        }
        self.release_sub();
        self.next_directly(at);
    }

    /// Inserts a claim unless one is there, whoever may be inserting that. Never waits.
    pub fn insert_directly(&mut self, at: u8, which: Try) {
        let own = self.own();
        let (key, n) = self.claim_at(at);
        if self.state.database.claim_there(key, own).is_none() {
            self.say.say(|| format!("inserts the claim of key {key}"));
            self.insert_claim(n);
            return self.next_directly(at);
        }
        self.say.say(|| format!("finds that key {key} is claimed"));
        if which == Try::First && self.is_read_committed() {
            self.then(Step::LockDirectly(at, Try::Last));
        } else {
            self.give_up_directly(at);
        }
    }

    /// Locks the claim that it sees.
    pub fn lock_directly(&mut self, at: u8, which: Try) {
        let own = self.own();
        let view = self.view();
        let is_patient = at < self.me().patient;
        let (key, _) = self.claim_at(at);
        let Some(found) = self.state.database.claim_seen(key, view) else {
            self.say.say(|| format!("sees no claim of key {key} to lock"));
            return self.not_locked(at, which);
        };
        let version = &self.state.database.claims[key.0 as usize][found];
        match self.state.database.in_the_way(version, own) {
            None => self.lock_claim(key, found, at),
            Some(xid) if is_patient => {
                self.me().target[key.0 as usize] = Some(found as u8);
                self.say.say(|| format!("wants the claim of key {key}"));
                self.wait_for(xid, Step::LockNewest(at, which));
            }
            Some(_) => {
                self.say.say(|| format!("finds the claim of key {key} locked"));
                self.not_locked(at, which);
            }
        }
    }

    /// Goes on once who had the claim has ended: to its newest version.
    pub fn lock_newest(&mut self, at: u8, which: Try) {
        let own = self.own();
        let (key, _) = self.claim_at(at);
        let claims = &self.state.database.claims[key.0 as usize];
        let mut newest = self.state.sessions[self.session].target[key.0 as usize]
            .expect("it was found") as usize;
        loop {
            let version = &claims[newest];
            if let Some(xid) = self.state.database.in_the_way(version, own) {
                self.me().target[key.0 as usize] = Some(newest as u8);
                return self.wait_for(xid, Step::LockNewest(at, which));
            }
            match (version.gone, version.moved) {
                (None, _) => break,
                (Some(_), true) => newest += 1,
                (Some(_), false) => {
                    self.say.say(|| format!("finds that the claim of key {key} is gone"));
                    self.me().target[key.0 as usize] = None;
                    return self.not_locked(at, which);
                }
            }
        }
        self.me().target[key.0 as usize] = None;
        self.lock_claim(key, newest, at);
    }

    pub(crate) fn lock_claim(&mut self, key: Key, found: usize, at: u8) {
        let by = self.xid();
        self.say.say(|| format!("locks the claim of key {key}"));
        self.state.database.claims[key.0 as usize][found].locked = Some(by);
        self.next_directly(at);
    }

    pub(crate) fn not_locked(&mut self, at: u8, which: Try) {
        if which == Try::First {
            self.then(Step::InsertDirectly(at, Try::Last));
        } else {
            self.give_up_directly(at);
        }
    }

    /// INSERT .. ON CONFLICT DO UPDATE .. WHERE false: inserts or locks the claim, or says whom it
    /// has to wait for. `None`: neither; its snapshot is too old.
    pub(crate) fn insert_or_lock(&mut self, at: u8) -> Option<Result<(), u8>> {
        let own = self.own();
        let view = self.view();
        let (key, n) = self.claim_at(at);
        let Some(found) = self.state.database.claim_there(key, own) else {
            self.say.say(|| format!("inserts the claim of key {key}"));
            self.insert_claim(n);
            return Some(Ok(()));
        };
        let version = &self.state.database.claims[key.0 as usize][found];
        if self.state.database.is_open(version.by, own) {
            return Some(Err(version.by));
        }
        if let Some(xid) = self.state.database.in_the_way(version, own) {
            return Some(Err(xid));
        }
        if !view.sees(version) {
            return None;
        }
        let by = self.xid();
        self.say.say(|| format!("locks the claim of key {key}"));
        self.state.database.claims[key.0 as usize][found].locked = Some(by);
        Some(Ok(()))
    }

    /// Inserts or locks a claim, and waits for who is at work on it.
    pub fn by_statement(&mut self, at: u8) {
        match self.insert_or_lock(at) {
            None => self.fail_to_serialize(),
            Some(Err(xid)) => {
                let (key, _) = self.claim_at(at);
                self.say.say(|| format!("wants the claim of key {key}"));
                self.wait_for(xid, Step::ByStatement(at));
            }
            Some(Ok(())) if at + 1 == self.me().patient => self.begin_list(at + 1),
            Some(Ok(())) => self.then(Step::ByStatement(at + 1)),
        }
    }

    /// Whether somebody is inserting, changing or deleting the claim.
    pub fn is_in_progress(&mut self, at: u8) {
        let own = self.own();
        let (key, n) = self.claim_at(at);
        let database = &self.state.database;
        let is_in_progress = |version: &Version<Claim>| {
            database.is_there(version, own) && database.is_in_progress(version, own)
        };
        if database.claims[key.0 as usize].iter().any(is_in_progress) {
            self.busy(at, n);
        } else {
            self.say.say(|| format!("finds that nobody is writing the claim of key {key}"));
            self.then(Step::IsLocked(at));
        }
    }

    /// Whether somebody has it locked.
    pub fn is_locked(&mut self, at: u8) {
        let own = self.own();
        let view = self.view();
        let (key, n) = self.claim_at(at);
        let seen = self.state.database.claim_seen(key, view);
        let is_there = self.state.database.claim_there(key, own).is_some_and(|at| {
            let version = &self.state.database.claims[key.0 as usize][at];
            !self.state.database.is_in_progress(version, own)
        });
        let version = seen.map(|seen| &self.state.database.claims[key.0 as usize][seen]);
        match version {
            Some(version) if self.state.database.in_the_way(version, own).is_some() => {
                self.busy(at, n);
            }
            Some(version) if version.gone.is_some() => self.fail_to_serialize(),
            // A claim that an old snapshot does not show, be it locked.
            None if !self.is_read_committed() && is_there => self.fail_to_serialize(),
            _ => {
                self.say.say(|| format!("finds that nobody has locked the claim of key {key}"));
                self.next_check(at);
            }
        }
    }

    pub(crate) fn busy(&mut self, at: u8, n: usize) {
        self.say.say(|| "finds that somebody is at work on the key".into());
        self.me().items[n].decision = Decision::Busy;
        self.next_check(at);
    }

    fn next_check(&mut self, at: u8) {
        let from = self.me().from;
        if self.is_direct() && self.is_read_committed() {
            // Where nobody is at work on the claim, it is tried again.
            let is_busy = self.next_of_statement(at) != Some(at);
            return self.begin_list(at + u8::from(is_busy));
        }
        let next = self.next_of_statement(at + 1).map(Step::IsInProgress);
        let next = next.or_else(|| self.next_of_statement(from).map(Step::TryByStatement));
        match next {
            Some(step) => self.then(step),
            None => self.claimed(),
        }
    }

    /// The next claim from this one on that nobody is known to be at work on. One statement tries
    /// all of them.
    fn next_of_statement(&mut self, from: u8) -> Option<u8> {
        let me = self.me();
        let is_left = |at: &u8| {
            let item = &me.items[me.order[*at as usize] as usize];
            item.decision == Decision::Insert
        };
        (from..me.order.len() as u8).find(is_left)
    }

    /// Inserts or locks a claim in a subtransaction that gives up if it would have to wait. Single
    /// jobs wait where the transaction has too many of these already.
    pub fn try_by_statement(&mut self, at: u8) {
        let may_wait = !self.scenario.room && self.me().items.len() == 1
            || self.scenario.fault == Fault::WaitWithoutSubtransaction;
        let from = self.me().from;
        let first = self.next_of_statement(from).expect("this one is left");
        if !may_wait && at == first {
            self.begin_sub();
        }
        match self.insert_or_lock(at) {
            None => self.fail_to_serialize(),
            Some(Err(xid)) if may_wait => self.wait_for(xid, Step::TryByStatement(at)),
            Some(Err(_)) => {
                self.say.say(|| "would have to wait".into());
                for at in first..at {
                    let (_, n) = self.claim_at(at);
                    self.me().items[n].is_fresh = false;
                }
                self.roll_back_sub();
                self.then(Step::IsInProgress(first));
            }
            Some(Ok(())) => match self.next_of_statement(at + 1) {
                Some(next) => self.then(Step::TryByStatement(next)),
                None => {
                    if !may_wait {
                        self.release_sub();
                    }
                    self.claimed();
                }
            },
        }
    }

    /// All claims are taken that are needed.
    pub(crate) fn claimed(&mut self) {
        let is_busy = |item: &Item| item.decision == Decision::Busy;
        let inserts = |item: &Item| item.decision == Decision::Insert;
        let items = &self.me().items;
        let is_left = items.iter().any(inserts);
        if !is_left && items.iter().any(is_busy) {
            return self.end_insert();
        }
        let is_taken = items.iter().any(|item| inserts(item) && !item.is_fresh);
        self.then(if is_taken { Step::Look(Why::Again) } else { Step::Write });
    }
}
