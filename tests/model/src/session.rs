//! A session: where it is in its program, its transaction, and what it remembers of the call it is
//! in.

use jobs_core::policy::Policy;
use jobs_core::verdict::{self, Holder, Verdict};

use crate::database::{Id, Job, KEYS, Key, Xid, Xids};
use crate::scenario::New;
use jobs_core::state::State;

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The end of a transaction or subtransaction.
    End(Xid),
    /// The advisory lock of a key.
    Lock(Key),
}

/// The next step of a session. Those of a batch say which of its claims is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Step {
    /// Begins the next call of the transaction, or commits.
    #[default]
    Next,
    /// Finds the keys that have a claim, without a snapshot.
    FindClaims,
    /// Reads the jobs in the lists of the keys.
    Look(Why),
    /// Reads all jobs and notes of keys whose lists are outdated.
    LookAtAll(Why),
    /// Takes the advisory lock. The flag tells whether the session has waited.
    TakeLock(bool),
    /// Tries to take the advisory lock without waiting.
    TryLock,
    /// Inserts the claim together with the only job.
    InsertWithClaim,
    /// Inserts several claims in one subtransaction.
    InsertTogether(u8),
    /// Inserts a claim without a statement.
    InsertDirectly(u8, Try),
    /// Locks a claim without a statement.
    LockDirectly(u8, Try),
    /// Locks the newest version of a claim after the previous holder has ended.
    LockNewest(u8, Try),
    /// Inserts or locks a claim by a statement.
    ByStatement(u8),
    /// Checks whether another session is changing a claim.
    IsInProgress(u8),
    /// Checks whether another session has locked a claim.
    IsLocked(u8),
    /// Inserts or locks claims by a statement that does not wait.
    TryByStatement(u8),
    /// Writes the jobs and the lists of the claimed keys.
    Write,
    /// Waits for the transaction that moves a job, then reads again.
    Chase,
    /// Pruning reads the claim of a key.
    LookAtClaim(Key),
    /// Pruning reads the notes of a key.
    LookAtNotes(Key),
    /// Pruning deletes the claim of a key.
    DeleteClaim(Key),
    /// Locks the claims of the keys to check, without waiting.
    LockClaims,
    /// Writes notes for claims that other sessions have locked, and tidies the notes of the others.
    Tidy,
    /// Deletes the claims that no job needs.
    Reap,
    /// Deletes a claim after the wait, without reading the jobs again.
    ReapNewest(Key),
    /// The session has ended.
    Ended,
}

/// What a look is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Looks for an answer without a lock.
    First,
    /// Looks again after waiting for the advisory lock.
    Locked,
    /// Determines which claims are needed.
    Batch,
    /// Decides under the locked claims.
    Again,
}

/// How often a claim was tried already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Try {
    /// The first try.
    First,
    /// The second and last try.
    Last,
}

/// A job under a key, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The id of the job.
    pub id: Id,
    /// The state of the job and when it became final. `None` means that its retention has elapsed.
    pub job: Option<(State, Id)>,
}

impl Seen {
    /// As the rules of the core want it. Of one insertion after the other the later one is due
    /// later.
    pub fn holder(self) -> Holder {
        Holder {
            id: i64::from(self.id),
            job: self.job.map(|(state, finalized_at)| verdict::Job {
                state,
                created_at: i64::from(self.id),
                scheduled_at: i64::from(self.id),
                finalized_at: i64::from(finalized_at),
                queue: 0,
                kept_until: i64::MIN,
            }),
            holds: false,
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        match self.job {
            Some((state, _)) => format!("{state} job {}", self.id),
            None => format!("job {}, past its retention", self.id),
        }
    }

    /// A job as it is, by what retention says.
    pub fn of(job: &Job, kept: bool) -> Seen {
        let counts = kept || !job.state.is_final();
        Seen { id: job.id, job: counts.then_some((job.state, job.finalized_at)) }
    }
}

/// What the rules decide by these jobs: the one that is in the way, if one is.
pub fn decide(policy: &Policy, seen: &[Seen]) -> Option<Id> {
    let holders: Vec<Holder> = seen.iter().map(|seen| seen.holder()).collect();
    match verdict::decide(policy, &holders, None) {
        Verdict::Insert => None,
        Verdict::Skip(existing) => Some(existing.id as Id),
        other => unreachable!("{other:?} is of other policies"),
    }
}

/// What is decided of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The call inserts the job.
    Insert,
    /// The given job conflicts.
    Existing(Id),
    /// Another session is using the key.
    Busy,
}

/// A job that is to be inserted, and what is known of its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// The job to insert.
    pub new: New,
    /// The decision so far.
    pub decision: Decision,
    /// The id taken for the job.
    pub id: Id,
    /// Whether the key is known to have a claim.
    pub is_taken: bool,
    /// Whether this call has inserted the claim.
    pub is_fresh: bool,
    /// Whether jobs outside the list may count.
    pub is_outdated: bool,
    /// The jobs seen under the key.
    pub seen: Vec<Seen>,
    /// The numbers of the notes about retried jobs.
    pub returns: Vec<Id>,
}

/// What becomes of a key that maintenance looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Maintenance ignores the key.
    #[default]
    None,
    /// Maintenance must read the claim.
    Look,
    /// The claim can be deleted unless a note names a job.
    Superfluous,
    /// Maintenance must lock the claim.
    Lock,
    /// Maintenance has locked the claim.
    Locked,
    /// Another session is using the claim.
    Busy,
}

impl Item {
    /// Nothing is known yet.
    pub fn new(new: New) -> Item {
        Item {
            new,
            decision: Decision::Insert,
            id: 0,
            is_taken: false,
            is_fresh: false,
            is_outdated: false,
            seen: vec![],
            returns: vec![],
        }
    }
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Session {
    /// The index of the current transaction in the program.
    pub transaction: u8,
    /// The number of completed calls in the transaction.
    pub call: u8,
    /// The next step.
    pub step: Step,
    /// The event that the session waits for.
    pub wait: Option<Wait>,
    /// The numbers of the transaction and its subtransactions. 0 means not yet assigned.
    pub xids: [Xid; 3],
    /// The nesting depth of subtransactions.
    pub depth: u8,
    /// The snapshot of the transaction, or of the call with `Fault::OuterSnapshot`.
    pub snapshot: Option<Xids>,
    /// The jobs of the call.
    pub items: Vec<Item>,
    /// The order in which the claims are taken.
    pub order: Vec<u8>,
    /// The number of leading claims in `order` for which the call waits.
    pub patient: u8,
    /// The claim version per key to lock or delete.
    pub target: [Option<u8>; KEYS],
    /// The position in `order` of the first claim to insert together or try by one statement.
    pub from: u8,
    /// The job to move.
    pub job: Id,
    /// The set of keys that other sessions used while the call did not wait.
    pub rivals: u8,
    /// The jobs that the session prunes.
    pub pruned: Vec<(Key, Id)>,
    /// The fate of each key.
    pub fates: [Fate; KEYS],
}

impl Session {
    /// All of its transactions.
    pub fn own(&self) -> Xids {
        self.xids.iter().filter(|xid| **xid != 0).fold(0, |all, xid| all | 1 << xid)
    }

    /// Forgets what the last call needed.
    pub fn end_call(&mut self) {
        let Session { transaction, call, xids, snapshot, .. } = *self;
        *self = Session { transaction, call: call + 1, xids, snapshot, ..Session::default() };
    }
}
