//! What of Postgres the protocol rests on: versions of rows, snapshots, locks of rows that last as
//! long as their transaction, subtransactions, advisory locks, and a unique index that sees what
//! nobody has committed yet.
//!
//! A transaction that was rolled back leaves nothing behind, so whatever stands somewhere is
//! committed or in progress.

use std::fmt;

use jobs_core::state::State;

/// How many sessions there are.
pub const SESSIONS: usize = 3;
/// How many keys there are.
pub const KEYS: usize = 2;
/// As many (sub)transactions of one session can be told apart at a time.
const PER_SESSION: u8 = 5;

/// A transaction or subtransaction. 0: one whose changes everybody sees.
pub type Xid = u8;
/// A set of transactions.
pub type Xids = u32;
/// A number of the sequence: the id of a job, or of a note. 0: none.
pub type Id = u8;

/// What everybody sees.
pub const FROZEN: Xid = 0;

/// The set of one transaction.
pub const fn only(xid: Xid) -> Xids {
    1 << xid
}

/// Whose transaction this is.
pub const fn session_of(xid: Xid) -> usize {
    ((xid - 1) / PER_SESSION) as usize
}

/// A unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u8);

/// One key.
pub const A: Key = Key(0);
/// The other one.
pub const B: Key = Key(1);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["A", "B"][self.0 as usize])
    }
}

/// A version of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version<T> {
    /// The content of the row.
    pub row: T,
    /// The transaction that wrote the version.
    pub by: Xid,
    /// The transaction that deleted the row or wrote its next version.
    pub gone: Option<Xid>,
    /// Whether the row has a next version.
    pub moved: bool,
    /// The transaction that holds the row lock.
    pub locked: Option<Xid>,
}

impl<T> Version<T> {
    /// A version that was just written.
    pub fn new(row: T, by: Xid) -> Self {
        Version { row, by, gone: None, moved: false, locked: None }
    }
}

/// A row of `unique_claim`, without its key: the jobs that it lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// The ids of the jobs in ascending order.
    pub jobs: Vec<Id>,
}

/// A job, wherever its row is: one snapshot sees it in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job {
    /// The id of the job.
    pub id: Id,
    /// The unique key of the job.
    pub key: Key,
    /// The state of the job: available or completed.
    pub state: State,
    /// When the job became final, if it is final.
    pub finalized_at: Id,
    /// Whether the job was retried.
    pub has_returned: bool,
}

/// A row of `unique_note`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Note {
    /// A final job that the list omits.
    Folded(Key, Id),
    /// A job that was retried, and the number of the note.
    Returned(Key, Id, Id),
    /// A key whose claim maintenance must check.
    Orphaned(Key),
}

impl Note {
    /// The key that it is on.
    pub fn key(&self) -> Key {
        match *self {
            Note::Folded(key, _) | Note::Returned(key, ..) | Note::Orphaned(key) => key,
        }
    }
}

/// The database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Database {
    /// The versions of the claims per key, in the order of writing.
    pub claims: [Vec<Version<Claim>>; KEYS],
    /// The versions of all jobs.
    pub jobs: Vec<Version<Job>>,
    /// The versions of all notes.
    pub notes: Vec<Version<Note>>,
    /// Transactions that are committed but not yet visible to every session.
    pub committed: Xids,
    /// The holder of the advisory lock per key, and the subtransaction depth at which it was taken.
    pub advisory: [Option<(u8, u8)>; KEYS],
}

/// What a statement sees: what these transactions have written.
#[derive(Clone, Copy, Debug)]
pub struct View(pub Xids);

impl View {
    /// Whether the transaction is among these, or everybody sees what it wrote.
    pub fn has(self, xid: Xid) -> bool {
        xid == FROZEN || self.0 & only(xid) != 0
    }

    /// Whether it sees this version.
    pub fn sees<T>(self, version: &Version<T>) -> bool {
        self.has(version.by) && !version.gone.is_some_and(|gone| self.has(gone))
    }

    /// Whether a version is there by a dirty look: inserts of others that are open count, their
    /// deletes do not.
    pub fn is_there<T>(self, version: &Version<T>) -> bool {
        !version.gone.is_some_and(|gone| self.has(gone))
    }
}

impl Database {
    /// Whether a transaction is still open, and is none of these.
    pub fn is_open(&self, xid: Xid, own: Xids) -> bool {
        !View(self.committed | own).has(xid)
    }

    /// Whether somebody who is still open, and not one of these, has written the version or is
    /// deleting it.
    pub fn is_in_progress<T>(&self, version: &Version<T>, own: Xids) -> bool {
        self.is_open(version.by, own) || version.gone.is_some_and(|gone| self.is_open(gone, own))
    }

    /// Whether a version is there, whoever may see it: what a dirty snapshot shows, and what a
    /// unique index takes for a duplicate.
    pub fn is_there<T>(&self, version: &Version<T>, own: Xids) -> bool {
        View(self.committed | own).is_there(version)
    }

    /// Who keeps these from changing or locking a version: who has locked it or changes it.
    pub fn in_the_way<T>(&self, version: &Version<T>, own: Xids) -> Option<Xid> {
        let holders = [version.gone, version.locked];
        let mut holders = holders.into_iter().flatten();
        holders.find(|holder| self.is_open(*holder, own))
    }

    /// The claim of a key that is there, whoever may see it.
    pub fn claim_there(&self, key: Key, own: Xids) -> Option<usize> {
        let versions = &self.claims[key.0 as usize];
        versions.iter().rposition(|version| self.is_there(version, own))
    }

    /// The claim of a key that a statement sees.
    pub fn claim_seen(&self, key: Key, view: View) -> Option<usize> {
        let versions = &self.claims[key.0 as usize];
        versions.iter().rposition(|version| view.sees(version))
    }

    /// The version of a job that a statement sees.
    pub fn job_seen(&self, id: Id, view: View) -> Option<&Version<Job>> {
        let is = |version: &&Version<Job>| version.row.id == id && view.sees(version);
        self.jobs.iter().find(is)
    }

    /// Writes the next version of a claim.
    pub fn update_claim(&mut self, key: Key, at: usize, claim: Claim, by: Xid) {
        let versions = &mut self.claims[key.0 as usize];
        versions[at].gone = Some(by);
        versions[at].moved = true;
        versions.insert(at + 1, Version::new(claim, by));
    }

    /// Writes the next version of a job; it is the last one of it.
    pub fn update_job(&mut self, before: Job, after: Job, by: Xid) {
        let is_last = |version: &&mut Version<Job>| version.row == before && version.gone.is_none();
        let last = self.jobs.iter_mut().find(is_last);
        let last = last.expect("nobody else changes it");
        last.gone = Some(by);
        last.moved = true;
        self.jobs.push(Version::new(after, by));
    }

    /// Deletes the notes that a statement sees and that are meant.
    pub fn delete_notes(&mut self, view: View, by: Xid, is_meant: impl Fn(&Note) -> bool) {
        for version in &mut self.notes {
            if view.sees(version) && is_meant(&version.row) {
                version.gone = Some(by);
            }
        }
    }

    /// The first number of a session's transactions that stands nowhere.
    pub fn free_xid(&self, session: usize, taken: &[Xid]) -> Xid {
        let first = 1 + session as u8 * PER_SESSION;
        let is_free = |xid: &Xid| self.committed & only(*xid) == 0 && !taken.contains(xid);
        let mut all = first..first + PER_SESSION;
        all.find(is_free).expect("a session has few at a time")
    }

    /// What a (sub)transaction wrote is from now on what its parent wrote.
    pub fn hand_over(&mut self, xid: Xid, parent: Xid) {
        let pass = |holder: &mut Option<Xid>| {
            if *holder == Some(xid) {
                *holder = Some(parent);
            }
        };
        self.for_each(|by, gone, locked| {
            if *by == xid {
                *by = parent;
            }
            pass(gone);
            pass(locked);
        });
    }

    /// Lets go of the locks of a transaction.
    pub fn unlock(&mut self, xid: Xid) {
        self.for_each(|_, _, locked| *locked = locked.filter(|holder| *holder != xid));
    }

    fn for_each(&mut self, mut work: impl FnMut(&mut Xid, &mut Option<Xid>, &mut Option<Xid>)) {
        for v in self.claims.iter_mut().flatten() {
            work(&mut v.by, &mut v.gone, &mut v.locked);
        }
        for v in &mut self.jobs {
            work(&mut v.by, &mut v.gone, &mut v.locked);
        }
        for v in &mut self.notes {
            work(&mut v.by, &mut v.gone, &mut v.locked);
        }
    }

    /// Takes back all that a (sub)transaction has written.
    pub fn roll_back(&mut self, xid: Xid) {
        fn take_back<T>(versions: &mut Vec<Version<T>>, xid: Xid) {
            versions.retain(|version| version.by != xid);
            for version in versions {
                if version.gone == Some(xid) {
                    version.gone = None;
                    version.moved = false;
                }
            }
        }
        self.claims.iter_mut().for_each(|claims| take_back(claims, xid));
        take_back(&mut self.jobs, xid);
        take_back(&mut self.notes, xid);
        self.unlock(xid);
    }

    /// Forgets that these transactions were others' once: everybody sees them. `kept` are claims
    /// that somebody is about to lock; he is told where they are then.
    pub fn freeze(&mut self, seen_by_all: Xids, kept: &mut [[Option<u8>; KEYS]]) {
        let is_seen = |xid: Xid| xid != FROZEN && seen_by_all & only(xid) != 0;
        self.for_each(|by, gone, _| {
            if is_seen(*by) {
                *by = FROZEN;
            }
            if gone.is_some_and(is_seen) {
                *gone = Some(FROZEN);
            }
        });
        self.committed &= !seen_by_all;
        let is_left = |gone: Option<Xid>| gone != Some(FROZEN);
        self.jobs.retain(|version| is_left(version.gone));
        self.notes.retain(|version| is_left(version.gone));
        for (key, versions) in self.claims.iter_mut().enumerate() {
            let mut at = 0;
            while at < versions.len() {
                let is_here = |kept: &[Option<u8>; KEYS]| kept[key] == Some(at as u8);
                if is_left(versions[at].gone) || kept.iter().any(is_here) {
                    at += 1;
                    continue;
                }
                let is_deleted = !versions.remove(at).moved;
                if let Some(before) = at.checked_sub(1).map(|before| &mut versions[before])
                    && before.moved
                {
                    // What it was updated to is deleted, and forgotten now.
                    before.moved = !is_deleted;
                }
                for kept in kept.iter_mut().filter_map(|kept| kept[key].as_mut()) {
                    *kept -= u8::from(*kept as usize > at);
                }
            }
        }
    }

    /// All numbers of the sequence that stand somewhere.
    pub fn numbers(&mut self, mut work: impl FnMut(&mut Id)) {
        for version in self.claims.iter_mut().flatten() {
            version.row.jobs.iter_mut().for_each(&mut work);
        }
        for version in &mut self.jobs {
            work(&mut version.row.id);
            work(&mut version.row.finalized_at);
        }
        for version in &mut self.notes {
            match &mut version.row {
                Note::Folded(_, id) => work(id),
                Note::Returned(_, id, seq) => {
                    work(id);
                    work(seq);
                }
                Note::Orphaned(_) => {}
            }
        }
    }
}
