//! Maintenance: `src/maintenance/prune_task.rs` and `claims_task.rs`, with `src/store/prune.rs` and
//! `reap.rs`.

use crate::database::{Id, Key, Note, Version};
use crate::scenario::Fault;
use crate::session::{Fate, Step};
use crate::transaction::{Turn, numbers};

impl Turn<'_> {
    /// Deletes the jobs past their retention that nobody has locked.
    pub fn begin_prune(&mut self) {
        let own = self.own();
        let view = self.view();
        let database = &self.state.database;
        let is_meant = |version: &Version<crate::database::Job>| {
            let is_free = !database.is_in_progress(version, own)
                && database.in_the_way(version, own).is_none();
            version.row.state.is_final() && view.sees(version) && version.gone.is_none() && is_free
        };
        let jobs = database.jobs.iter().filter(|version| is_meant(version));
        let pruned: Vec<(Key, Id)> =
            jobs.map(|version| (version.row.key, version.row.id)).collect();
        if pruned.is_empty() || self.scenario.kept {
            self.say.say(|| "finds no job to prune".into());
            return self.me().end_call();
        }
        let by = self.xid();
        for version in &mut self.state.database.jobs {
            if version.gone.is_none() && pruned.contains(&(version.row.key, version.row.id)) {
                version.gone = Some(by);
            }
        }
        self.say.say(|| {
            let ids: Vec<Id> = pruned.iter().map(|(_, id)| *id).collect();
            format!("prunes {}", numbers("job", &ids))
        });
        let by_statement = !self.is_direct()
            || !self.is_read_committed()
            || self.scenario.fault == Fault::ReapInOneStatement;
        for (key, _) in &pruned {
            self.me().fates[key.0 as usize] = if by_statement { Fate::Lock } else { Fate::Look };
        }
        self.me().pruned = pruned;
        match self.first(Fate::Look) {
            None => self.then(Step::LockClaims),
            Some(key) => self.then(Step::LookAtClaim(key)),
        }
    }

    fn first(&mut self, fate: Fate) -> Option<Key> {
        let fates = self.me().fates;
        Self::keys().into_iter().find(|key| fates[key.0 as usize] == fate)
    }

    fn has_pruned(&mut self, key: Key, id: Id) -> bool {
        self.me().pruned.contains(&(key, id))
    }

    /// Looks at a claim without a snapshot. Of one that is being updated it may meet neither
    /// version.
    pub fn look_at_claim(&mut self, key: Key) {
        let own = self.own();
        let is_missed = self.choice == 1;
        let there = self.state.database.claim_there(key, own);
        let passes_over = self.scenario.fault == Fault::PrunePassesOver;
        let fate = match there.filter(|_| !is_missed) {
            None if is_missed && !passes_over => Fate::Lock,
            None => Fate::None,
            Some(at) => {
                let version = self.state.database.claims[key.0 as usize][at].clone();
                let mut jobs = version.row.jobs.iter();
                if self.state.database.is_in_progress(&version, own) {
                    Fate::Busy
                } else if !jobs.all(|id| self.has_pruned(key, *id)) {
                    Fate::Lock
                } else {
                    self.me().target[key.0 as usize] = Some(at as u8);
                    Fate::Superfluous
                }
            }
        };
        self.say.say(|| {
            let found = match fate {
                Fate::Busy => "somebody is at work on it",
                Fate::Superfluous => "it lists no other job",
                _ if is_missed => "it meets no version",
                Fate::None => "there is none",
                _ => "it lists other jobs",
            };
            format!("looks at the claim of key {key} and finds that {found}")
        });
        self.me().fates[key.0 as usize] = fate;
        match self.first(Fate::Look) {
            None => self.next_delete(),
            Some(key) => self.then(Step::LookAtClaim(key)),
        }
    }

    /// Looks whether a note names a job under the key whose claim is to go.
    pub fn look_at_notes(&mut self, key: Key) {
        let own = self.own();
        let database = &self.state.database;
        let names_job = |version: &Version<Note>| {
            let counts = !matches!(version.row, Note::Orphaned(_));
            counts && version.row.key() == key && database.is_there(version, own)
        };
        let looks = self.scenario.fault != Fault::PruneWithoutLookAtNotes;
        let is_needed = looks && database.notes.iter().any(names_job);
        self.say.say(|| {
            if !looks {
                return format!("does not look at the notes on key {key}");
            }
            let what = if is_needed { "a" } else { "no" };
            format!("finds {what} job in the notes on key {key}")
        });
        if is_needed {
            self.me().fates[key.0 as usize] = Fate::Lock;
            self.me().target[key.0 as usize] = None;
            return self.next_delete();
        }
        self.then(Step::DeleteClaim(key));
    }

    fn next_delete(&mut self) {
        match self.first(Fate::Superfluous) {
            None => self.then(Step::LockClaims),
            Some(key) => self.then(Step::LookAtNotes(key)),
        }
    }

    /// Deletes the very row that was looked at, unless somebody has locked or changed it.
    pub fn delete_claim(&mut self, key: Key) {
        let own = self.own();
        let at = self.me().target[key.0 as usize].take().expect("it was found") as usize;
        let version = &self.state.database.claims[key.0 as usize][at];
        let is_busy =
            version.gone.is_some() || self.state.database.in_the_way(version, own).is_some();
        if is_busy {
            self.say.say(|| format!("finds that somebody is at work on the claim of key {key}"));
            self.me().fates[key.0 as usize] = Fate::Busy;
        } else {
            self.say.say(|| format!("deletes the claim of key {key}"));
            let by = self.xid();
            self.state.database.claims[key.0 as usize][at].gone = Some(by);
            self.me().fates[key.0 as usize] = Fate::None;
        }
        self.next_delete();
    }

    /// Takes the notes away that are due.
    pub fn begin_claims_task(&mut self) {
        let own = self.own();
        let view = self.view();
        let database = &mut self.state.database;
        let is_meant = |version: &Version<Note>| {
            matches!(version.row, Note::Orphaned(_)) && view.sees(version)
        };
        let mut taken: Vec<usize> = vec![];
        for (n, version) in database.notes.iter().enumerate() {
            if is_meant(version) && database.in_the_way(version, own).is_none() {
                taken.push(n);
            }
        }
        if taken.is_empty() {
            self.say.say(|| "finds no note".into());
            return self.me().end_call();
        }
        if taken.iter().any(|n| self.state.database.notes[*n].gone.is_some()) {
            return self.fail_to_serialize();
        }
        let by = self.xid();
        for n in taken {
            let note = &mut self.state.database.notes[n];
            note.gone = Some(by);
            let key = note.row.key();
            self.say.say(|| format!("takes a note about key {key}"));
            self.me().fates[key.0 as usize] = Fate::Lock;
        }
        self.then(Step::LockClaims);
    }

    /// Locks the claims that are to be looked at, and skips those that another session has locked.
    pub fn lock_claims(&mut self) {
        let own = self.own();
        let view = self.view();
        for key in Self::keys() {
            if self.me().fates[key.0 as usize] != Fate::Lock {
                continue;
            }
            if self.scenario.fault == Fault::ReapInOneStatement {
                self.say.say(|| format!("does not lock the claim of key {key} for itself"));
                self.me().fates[key.0 as usize] = Fate::Locked;
                continue;
            }
            let Some(at) = self.state.database.claim_seen(key, view) else {
                self.say.say(|| format!("sees no claim of key {key}"));
                continue;
            };
            let version = &self.state.database.claims[key.0 as usize][at];
            if self.state.database.in_the_way(version, own).is_some() {
                self.say.say(|| format!("skips the claim of key {key}, which is locked"));
                continue;
            }
            if version.gone.is_some() {
                return self.fail_to_serialize();
            }
            let by = self.xid();
            self.say.say(|| format!("locks the claim of key {key}"));
            self.state.database.claims[key.0 as usize][at].locked = Some(by);
            self.me().fates[key.0 as usize] = Fate::Locked;
        }
        if self.me().fates.iter().all(|fate| *fate == Fate::None) {
            self.say.say(|| "has no other claim to look at".into());
            return self.me().end_call();
        }
        self.then(Step::Tidy);
    }

    /// Leaves notes on keys whose claims are there and were not locked; tidies those on the others.
    pub fn tidy(&mut self) {
        let view = self.view();
        let is_prune = !self.me().pruned.is_empty();
        for key in Self::keys() {
            let fate = self.me().fates[key.0 as usize];
            let is_seen = || self.state.database.claim_seen(key, view).is_some();
            let is_busy = fate == Fate::Busy || fate == Fate::Lock && is_seen();
            if is_busy {
                self.say.say(|| format!("leaves a note about key {key}"));
                self.leave(Note::Orphaned(key));
            }
            if fate != Fate::Locked {
                continue;
            }
            let by = self.xid();
            let pruned = self.me().pruned.clone();
            let database = &self.state.database;
            let exists = |id: Id| database.job_seen(id, view).is_some();
            let notes: Vec<(Id, Id)> = database
                .notes
                .iter()
                .filter(|version| view.sees(version))
                .filter_map(|version| match version.row {
                    Note::Returned(of, id, note) if of == key => Some((id, note)),
                    _ => None,
                })
                .collect();
            let leaves_returns = self.scenario.fault == Fault::PruneLeavesReturns;
            let is_superfluous = |note: &Note| match *note {
                Note::Folded(of, id) if of == key => match is_prune {
                    true => pruned.contains(&(key, id)),
                    false => !exists(id),
                },
                Note::Returned(of, id, _) if of == key && is_prune => {
                    !leaves_returns && pruned.contains(&(key, id))
                }
                Note::Returned(of, id, note) if of == key => {
                    let is_later = |(other, later): &(Id, Id)| *other == id && *later > note;
                    !exists(id) || notes.iter().any(is_later)
                }
                _ => false,
            };
            let going: Vec<Note> =
                database.notes.iter().map(|version| version.row).filter(is_superfluous).collect();
            self.state.database.delete_notes(view, by, |note| going.contains(note));
        }
        self.say.say(|| "tidies the notes on the keys".into());
        let is_left = self.me().fates.contains(&Fate::Locked);
        if is_left {
            self.then(Step::Reap);
        } else {
            self.me().end_call();
        }
    }

    /// Deletes the claims under which there is no job, with the notes that name jobs.
    pub fn reap(&mut self) {
        let own = self.own();
        let view = self.view();
        for key in Self::keys() {
            if self.me().fates[key.0 as usize] != Fate::Locked {
                continue;
            }
            let Some(at) = self.state.database.claim_seen(key, view) else {
                continue;
            };
            let version = &self.state.database.claims[key.0 as usize][at];
            let of_key = |version: &Version<Note>| match version.row {
                Note::Folded(of, id) | Note::Returned(of, id, _) if of == key => Some(id),
                _ => None,
            };
            let notes = self.state.database.notes.iter();
            let notes = notes.filter(|version| view.sees(version)).filter_map(of_key);
            let mut jobs = version.row.jobs.iter().copied().chain(notes);
            if jobs.any(|id| self.exists(id, view)) {
                self.say.say(|| format!("finds that the claim of key {key} is needed"));
                continue;
            }
            if self.scenario.fault == Fault::ReapInOneStatement
                && let Some(xid) = self.state.database.in_the_way(version, own)
            {
                self.me().target[key.0 as usize] = Some(at as u8);
                self.say
                    .say(|| format!("sees no job under key {key} and wants to delete its claim"));
                return self.wait_for(xid, Step::ReapNewest(key));
            }
            self.delete_with_notes(key, at);
        }
        self.me().end_call();
    }

    /// Goes on to delete a claim, without a new look at the jobs.
    pub fn reap_newest(&mut self, key: Key) {
        let own = self.own();
        let claims = &self.state.database.claims[key.0 as usize];
        let mut at = self.state.sessions[self.session].target[key.0 as usize].expect("it was found")
            as usize;
        while claims[at].gone.is_some_and(|gone| !self.state.database.is_open(gone, own))
            && claims[at].moved
        {
            at += 1;
        }
        let version = &claims[at];
        if let Some(xid) = self.state.database.in_the_way(version, own) {
            self.me().target[key.0 as usize] = Some(at as u8);
            return self.wait_for(xid, Step::ReapNewest(key));
        }
        let is_gone = version.gone.is_some();
        self.me().target[key.0 as usize] = None;
        if !is_gone {
            self.delete_with_notes(key, at);
        }
        self.me().end_call();
    }

    fn delete_with_notes(&mut self, key: Key, at: usize) {
        let by = self.xid();
        let view = self.view();
        self.say.say(|| format!("deletes the claim of key {key}"));
        self.state.database.claims[key.0 as usize][at].gone = Some(by);
        self.state
            .database
            .delete_notes(view, by, |note| note.key() == key && !matches!(note, Note::Orphaned(_)));
    }
}
