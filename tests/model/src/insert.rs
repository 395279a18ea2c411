//! `jobs.insert` and `jobs.insert_batch`: `src/unique/single.rs` and `src/unique/batch/`, step by
//! step. What they see is in `look.rs`, how they take claims in `claim.rs`.

use jobs_core::verdict::fold;

use crate::database::{Claim, Id, Note, Version, View};
use crate::scenario::{Fault, New};
use crate::session::{Decision, Item, Seen, Step, Wait, Why, decide};
use crate::transaction::{Turn, Wrong, numbers};

impl Turn<'_> {
    /// Begins `jobs.insert`, or `jobs.insert_batch`.
    pub fn begin_insert(&mut self, new: &[New]) {
        let is_batch = new.len() > 1;
        self.say.say(|| {
            let keys: Vec<String> = new.iter().map(|new| new.key.to_string()).collect();
            let what = if is_batch { "a batch of jobs under keys" } else { "a job under key" };
            let how = if new[0].wait { "" } else { " and does not wait" };
            format!("inserts {what} {}{how}", keys.join(" and "))
        });
        let mut items: Vec<Item> = new.iter().map(|new| Item::new(*new)).collect();
        if self.scenario.fault != Fault::Unordered {
            items.sort_by_key(|item| item.new.key);
        }
        let committed = self.state.database.committed;
        if self.scenario.fault == Fault::OuterSnapshot && self.is_read_committed() {
            self.me().snapshot = Some(committed);
        }
        self.me().items = items;
        self.note_rivals();
        if is_batch {
            self.find_claims();
        } else {
            self.look(Why::First);
        }
    }

    pub(crate) fn end_insert(&mut self) {
        let items = std::mem::take(&mut self.me().items);
        let is_busy = |item: &Item| item.decision == Decision::Busy;
        for item in items.iter().filter(|item| is_busy(item)) {
            let had_rival = self.me().rivals & 1 << item.new.key.0 != 0;
            if !had_rival {
                self.wrong(Wrong::Busy);
            }
        }
        while self.me().depth > 0 {
            if items.iter().all(is_busy) {
                self.roll_back_sub();
            } else {
                self.release_sub();
            }
        }
        self.say.say(|| {
            let told = |item: &Item| match item.decision {
                Decision::Insert => format!("job {} is inserted", item.id),
                Decision::Existing(id) => format!("job {id} exists"),
                Decision::Busy => format!("key {} is busy", item.new.key),
            };
            let told: Vec<String> = items.iter().map(told).collect();
            format!("is told that {}", told.join(", "))
        });
        if self.is_read_committed() {
            self.me().snapshot = None;
        }
        self.me().end_call();
    }

    pub(crate) fn wrong(&mut self, wrong: Wrong) {
        self.state.wrong.get_or_insert(wrong);
    }

    /// What was looked for is seen.
    pub(crate) fn decided(&mut self, why: Why) {
        for n in 0..self.me().items.len() {
            let item = &mut self.me().items[n];
            let is_asked = match why {
                Why::Again => item.decision == Decision::Insert && !item.is_fresh,
                _ => true,
            };
            if is_asked {
                item.decision = match decide(&item.new.rule.policy(), &item.seen) {
                    None => Decision::Insert,
                    Some(id) => Decision::Existing(id),
                };
            }
        }
        let is_insert = |item: &Item| item.decision == Decision::Insert;
        if !self.me().items.iter().any(is_insert) {
            return self.end_insert();
        }
        let takes_lock = self.scenario.lock && self.scenario.fault != Fault::NoAdvisoryLock;
        match why {
            Why::First if !self.me().items[0].new.wait => self.then(Step::TryLock),
            Why::First if takes_lock => self.then(Step::TakeLock(false)),
            Why::First | Why::Locked => self.go_on_locked(),
            Why::Batch => self.begin_claims(),
            Why::Again => self.then(Step::Write),
        }
    }

    /// The lock is taken, if there is one.
    pub(crate) fn go_on_locked(&mut self) {
        let is_taken = self.me().items[0].is_taken;
        self.then(if is_taken { Step::Look(Why::Batch) } else { Step::InsertWithClaim });
    }

    /// Takes the advisory lock on the key of the only job.
    pub fn take_lock(&mut self, has_waited: bool) {
        let key = self.me().items[0].new.key;
        let mine = self.session as u8;
        match self.state.database.advisory[key.0 as usize] {
            Some((holder, _)) if holder != mine => {
                self.say.say(|| {
                    format!("waits for session {}, which has the lock on key {key}", holder + 1)
                });
                self.me().wait = Some(Wait::Lock(key));
                self.then(Step::TakeLock(true));
            }
            held => {
                self.say.say(|| format!("takes the advisory lock on key {key}"));
                let depth = self.me().depth;
                self.state.database.advisory[key.0 as usize] = held.or(Some((mine, depth)));
                if has_waited {
                    self.then(Step::Look(Why::Locked));
                } else {
                    self.go_on_locked();
                }
            }
        }
    }

    /// Takes it if it is free, in a subtransaction.
    pub fn try_lock(&mut self) {
        if !self.scenario.lock || !self.scenario.room {
            return self.look(Why::Batch);
        }
        self.begin_sub();
        let key = self.me().items[0].new.key;
        let mine = self.session as u8;
        match self.state.database.advisory[key.0 as usize] {
            Some((holder, _)) if holder != mine => {
                self.say.say(|| format!("finds that session {} has the lock on {key}", holder + 1));
                self.me().items[0].decision = Decision::Busy;
                self.end_insert();
            }
            held => {
                self.say.say(|| format!("takes the advisory lock on key {key}"));
                let depth = self.me().depth;
                self.state.database.advisory[key.0 as usize] = held.or(Some((mine, depth)));
                self.then(Step::Look(Why::Batch));
            }
        }
    }

    /// Writes the jobs, and the lists of the keys that were taken.
    pub fn write(&mut self) {
        let view = self.view();
        for n in 0..self.me().items.len() {
            let item = self.me().items[n].clone();
            if item.decision != Decision::Insert {
                continue;
            }
            let key = item.new.key;
            if !item.is_fresh {
                let newest = item.seen.iter().map(|seen| seen.id).max();
                if Some(item.id) <= newest {
                    // A rival took its job's id later.
                    self.me().items[n].id = self.next_number();
                }
                let id = self.me().items[n].id;
                let truth = self.truth(key, view, true);
                self.check_order(id, &truth);
            }
            self.insert_job(n);
            let id = self.me().items[n].id;
            self.say.say(|| format!("inserts job {id} under key {key}"));
            if !item.is_fresh {
                self.write_list(&item, id, view);
            }
        }
        self.end_insert();
    }

    pub(crate) fn write_list(&mut self, item: &Item, id: Id, view: View) {
        let by = self.xid();
        let key = item.new.key;
        let holders: Vec<_> = item.seen.iter().map(|seen| seen.holder()).collect();
        let kept = fold(&holders);
        let is_kept = |seen: &&Seen| kept.contains(&i64::from(seen.id));
        let (listed, folded): (Vec<Seen>, Vec<Seen>) =
            item.seen.iter().copied().partition(|seen| is_kept(&seen));
        let mut jobs: Vec<Id> = listed.iter().map(|seen| seen.id).collect();
        jobs.push(id);
        self.say.say(|| {
            let folded: Vec<Id> = folded.iter().map(|seen| seen.id).collect();
            let folded = match folded.is_empty() {
                true => String::new(),
                false => format!(", and folds {}", numbers("job", &folded)),
            };
            format!("lists {} under key {key}{folded}", numbers("job", &jobs))
        });
        let claim = self.state.database.claim_seen(key, view);
        let is_listed = |id: Id| jobs.contains(&id);
        self.state.database.delete_notes(
            view,
            by,
            |note| matches!(note, Note::Folded(of, id) if *of == key && is_listed(*id)),
        );
        for seen in &folded {
            let row = Note::Folded(key, seen.id);
            let own = self.own();
            let database = &mut self.state.database;
            let is_like = |version: &&Version<Note>| version.row == row;
            let mut like = database.notes.iter().filter(is_like);
            if !like.any(|version| database.is_there(version, own)) {
                self.state.database.notes.push(Version::new(row, by));
            }
        }
        // By an old snapshot it may be gone, and the note that its deletion left may be taken away.
        if !folded.is_empty()
            && !self.is_read_committed()
            && self.scenario.fault != Fault::NoNoteByOldSnapshot
        {
            self.leave(Note::Orphaned(key));
        }
        let all = self.scenario.fault == Fault::ForgetAllReturns;
        self.state.database.delete_notes(view, by, |note| {
            matches!(note, Note::Returned(of, _, seq) if *of == key && (all || item.returns.contains(seq)))
        });
        if let Some(at) = claim {
            self.state.database.update_claim(key, at, Claim { jobs: jobs.clone() }, by);
        }
    }
}
