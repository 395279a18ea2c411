//! What an insert sees, and whether that is all there is: `src/unique/holders.rs`, and
//! `src/store/look.rs`.

use crate::database::{Id, Key, Note, View};
use crate::scenario::Fault;
use crate::session::{Decision, Item, Seen, Step, Why, decide};
use crate::transaction::{Turn, Wrong};

impl Turn<'_> {
    /// Which keys of a batch have a claim, be it of a transaction that is still open.
    pub fn find_claims(&mut self) {
        let view = self.view();
        let own = self.own();
        let is_missed = self.choice == 1;
        let only_visible = !self.is_direct();
        for n in 0..self.me().items.len() {
            let key = self.me().items[n].new.key;
            let is_seen = self.state.database.claim_seen(key, view).is_some();
            let is_there = self.state.database.claim_there(key, own).is_some();
            // Of a row that is updated right now neither version may be met: then the snapshot is
            // asked.
            self.me().items[n].is_taken = is_seen || is_there && !only_visible && !is_missed;
        }
        self.say.say(|| {
            let items = self.state.sessions[self.session].items.iter();
            let taken = items.filter(|item| item.is_taken).map(|item| item.new.key.to_string());
            match taken.collect::<Vec<_>>().as_slice() {
                [] => "finds no claim".into(),
                keys => format!("finds that there is a claim of {}", keys.join(" and ")),
            }
        });
        if self.me().items.iter().any(|item| item.is_taken) {
            self.then(Step::Look(Why::Batch));
        } else {
            self.decided(Why::Batch);
        }
    }

    /// Looks at the lists of the claims, with a snapshot of now.
    pub fn look(&mut self, why: Why) {
        let right = self.view();
        let mut view = right;
        if why == Why::Again
            && self.scenario.fault == Fault::OuterSnapshot
            && let Some(outer) = self.me().snapshot
        {
            view = View(outer | self.own());
        }
        for n in self.looked_at(why) {
            self.look_at(n, view, false);
        }
        self.say_seen(why);
        let is_wanted =
            |item: &Item| item.is_outdated && (why == Why::Again || item.new.rule.asks_for_final());
        let looked_at = self.looked_at(why);
        if looked_at.iter().any(|n| is_wanted(&self.me().items[*n])) {
            self.then(Step::LookAtAll(why));
        } else {
            self.me().items.iter_mut().for_each(|item| item.is_outdated = false);
        }
        for n in looked_at {
            if !is_wanted(&self.me().items[n]) {
                self.check_look(n, why, right);
            }
        }
        if self.me().step != Step::LookAtAll(why) {
            self.decided(why);
        }
    }

    /// Looks at all that stands under keys whose lists are not certain.
    pub fn look_at_all(&mut self, why: Why) {
        let view = self.view();
        for n in self.looked_at(why) {
            let item = &mut self.me().items[n];
            if std::mem::take(&mut item.is_outdated)
                && (why == Why::Again || item.new.rule.asks_for_final())
            {
                self.look_at(n, view, true);
                self.me().items[n].is_outdated = false;
                self.check_look(n, why, view);
            }
        }
        self.say.say(|| "looks at all that stands under the key".into());
        self.decided(why);
    }

    /// The jobs whose keys are looked at.
    pub(crate) fn looked_at(&mut self, why: Why) -> Vec<usize> {
        let is_batch = self.me().items.len() > 1;
        let is_meant = |item: &Item| match why {
            Why::First | Why::Locked => true,
            Why::Batch => item.is_taken || !is_batch,
            Why::Again => item.decision == Decision::Insert && !item.is_fresh,
        };
        let items = self.me().items.iter().enumerate();
        items.filter(|(_, item)| is_meant(item)).map(|(n, _)| n).collect()
    }

    pub(crate) fn look_at(&mut self, n: usize, view: View, all: bool) {
        let kept = self.scenario.kept;
        let is_batch = self.me().items.len() > 1;
        let database = &self.state.database;
        let item = &self.state.sessions[self.session].items[n];
        let key = item.new.key;
        let mut item = Item { seen: vec![], returns: vec![], is_outdated: false, ..item.clone() };
        let claims = &database.claims[key.0 as usize];
        // An old snapshot may show two: one that is gone by now, and one of its own transaction.
        let claims: Vec<_> = claims.iter().filter(|version| view.sees(version)).collect();
        if !is_batch || all {
            item.is_taken = !claims.is_empty();
        }
        let add = |item: &mut Item, id: Id| match database.job_seen(id, view) {
            None => item.is_outdated = true,
            Some(_) if item.seen.iter().any(|seen| seen.id == id) => {}
            Some(job) => item.seen.push(Seen::of(&job.row, kept)),
        };
        for claim in &claims {
            claim.row.jobs.iter().for_each(|id| add(&mut item, *id));
        }
        let notes = database.notes.iter().filter(|version| view.sees(version));
        for note in notes.filter(|_| !claims.is_empty()) {
            match note.row {
                Note::Returned(of, id, seq) if of == key => {
                    add(&mut item, id);
                    item.is_outdated = true;
                    item.returns.push(seq);
                }
                Note::Folded(of, id) if of == key && all => add(&mut item, id),
                _ => {}
            }
        }
        item.seen.sort_unstable_by_key(|seen| seen.id);
        item.returns.sort_unstable();
        self.me().items[n] = item;
    }

    pub(crate) fn say_seen(&mut self, why: Why) {
        let looked_at = self.looked_at(why);
        let items = &self.state.sessions[self.session].items;
        self.say.say(|| {
            let seen = |n: &usize| {
                let item = &items[*n];
                let seen: Vec<String> = item.seen.iter().map(Seen::words).collect();
                let under = match (item.is_taken, seen.is_empty()) {
                    (false, _) => "nothing".into(),
                    (true, true) => "no job".into(),
                    _ => seen.join(" and "),
                };
                format!("{under} under key {}", item.new.key)
            };
            let seen: Vec<String> = looked_at.iter().map(seen).collect();
            let again = if why == Why::Again { " again" } else { "" };
            format!("looks{again} and sees {}", seen.join(", "))
        });
    }

    /// All jobs that were inserted under a key, as a statement sees them; with `later` also those
    /// that were committed since.
    pub(crate) fn truth(&self, key: Key, view: View, later: bool) -> Vec<Seen> {
        let database = &self.state.database;
        let now = View(database.committed | self.own());
        let mut truth: Vec<Seen> = vec![];
        for job in database.jobs.iter().filter(|job| job.row.key == key) {
            let is_later =
                || later && now.sees(job) && database.job_seen(job.row.id, view).is_none();
            if view.sees(job) || is_later() {
                truth.push(Seen::of(&job.row, self.scenario.kept));
            }
        }
        truth
    }

    /// Whether what is decided by what was seen is what all jobs under the key would have decided.
    pub(crate) fn check_look(&mut self, n: usize, why: Why, view: View) {
        let item = &self.state.sessions[self.session].items[n];
        let policy = item.new.rule.policy();
        let found = decide(&policy, &item.seen);
        let key = item.new.key;
        if found.is_some() {
            if decide(&policy, &self.truth(key, view, false)) != found {
                self.wrong(Wrong::Answer);
            }
        } else if why == Why::Again && decide(&policy, &self.truth(key, view, true)).is_some() {
            self.wrong(Wrong::Conflict);
        }
    }

    /// Whether no job conflicts under a claim that was just inserted: nothing is looked at then.
    pub(crate) fn check_fresh(&mut self, n: usize) {
        let view = self.view();
        let item = &self.state.sessions[self.session].items[n];
        let (key, id) = (item.new.key, item.id);
        let truth = self.truth(key, view, true);
        if decide(&item.new.rule.policy(), &truth).is_some() {
            self.wrong(Wrong::Conflict);
        }
        self.check_order(id, &truth);
    }

    pub(crate) fn check_order(&mut self, id: Id, truth: &[Seen]) {
        if truth.iter().any(|seen| seen.id >= id) {
            self.wrong(Wrong::Order);
        }
    }
}
