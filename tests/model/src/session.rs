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
    /// the end of a transaction or subtransaction
    End(Xid),
    /// the advisory lock of a key
    Lock(Key),
}

/// The next step of a session. Those of a batch say which of its claims is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Step {
    /// to begin the next call of its transaction, or to commit
    #[default]
    Next,
    /// to find out, without a snapshot, which keys have a claim
    FindClaims,
    /// to look at what stands under the keys
    Look(Why),
    /// to look at all that stands under keys whose lists are not certain
    LookAtAll(Why),
    /// to take the advisory lock; whether it had to wait
    TakeLock(bool),
    /// to try it
    TryLock,
    /// to insert the claim together with the only job
    InsertWithClaim,
    /// to insert claims many at once, in a subtransaction
    InsertTogether(u8),
    /// to insert a claim, without a statement
    InsertDirectly(u8, Try),
    /// to lock one, without a statement
    LockDirectly(u8, Try),
    /// the same, once who had it locked has ended
    LockNewest(u8, Try),
    /// to insert or lock one by a statement
    ByStatement(u8),
    /// whether somebody is at work on a key
    IsInProgress(u8),
    /// the same: is its claim locked
    IsLocked(u8),
    /// to insert or lock claims by a statement that does not wait
    TryByStatement(u8),
    /// to write the jobs, and the lists of the keys that were taken
    Write,
    /// to wait for who moves a job, and then to look again
    Chase,
    /// pruning: to look at the claim of a key
    LookAtClaim(Key),
    /// pruning: to look at the notes on it
    LookAtNotes(Key),
    /// pruning: to delete it
    DeleteClaim(Key),
    /// to lock the claims of the keys that are to be looked at, but not to wait
    LockClaims,
    /// to leave notes about those that somebody has locked, and to tidy the notes on the others
    Tidy,
    /// to delete those that no job needs
    Reap,
    /// the second half of that, if it is wrong
    ReapNewest(Key),
    /// nothing any more
    Ended,
}

/// What a look is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// an answer without any lock
    First,
    /// the same, once the lock was waited for
    Locked,
    /// to decide which claims are needed
    Batch,
    /// to decide under the locked claims
    Again,
}

/// How often a claim was tried already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Try {
    /// the first thing that is tried
    First,
    /// the second
    Last,
}

/// A job under a key, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// its id
    pub id: Id,
    /// its state, and when it became final; `None`: its retention is over
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
        Seen {
            id: job.id,
            job: counts.then_some((job.state, job.finalized_at)),
        }
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
    /// it is to be inserted
    Insert,
    /// this one exists
    Existing(Id),
    /// somebody is at work on its key
    Busy,
}

/// A job that is to be inserted, and what is known of its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// the job
    pub new: New,
    /// what is decided so far
    pub decision: Decision,
    /// the id that was taken for it
    pub id: Id,
    /// whether the key is known to have a claim
    pub is_taken: bool,
    /// whether this call has inserted it
    pub is_fresh: bool,
    /// whether more than the list may count
    pub is_outdated: bool,
    /// the jobs under the key
    pub seen: Vec<Seen>,
    /// the notes of jobs that have returned
    pub returns: Vec<Id>,
}

/// What becomes of a key that maintenance looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fate {
    /// it is not looked at
    #[default]
    None,
    /// it is to be looked at
    Look,
    /// its claim can go if no note names a job
    Superfluous,
    /// its claim is to be locked
    Lock,
    /// it is locked
    Locked,
    /// somebody is at work on it
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
    /// which transaction of its program it is in
    pub transaction: u8,
    /// how many of its calls are done
    pub call: u8,
    /// what it does next
    pub step: Step,
    /// what it waits for
    pub wait: Option<Wait>,
    /// the transaction and the subtransactions in it, so far as they have a number
    pub xids: [Xid; 3],
    /// how deep in subtransactions it is
    pub depth: u8,
    /// the snapshot of the transaction, or the one that a call goes by which is wrong
    pub snapshot: Option<Xids>,
    /// the jobs of the call
    pub items: Vec<Item>,
    /// the order in which their claims are taken, and how many of them may be waited for
    pub order: Vec<u8>,
    /// see `order`
    pub patient: u8,
    /// the claim of each key that it is about to lock or delete
    pub target: [Option<u8>; KEYS],
    /// where the claims begin that are inserted together, or tried by one statement
    pub from: u8,
    /// the job that it is about to move
    pub job: Id,
    /// keys that somebody else was at work on while the call did not want to wait
    pub rivals: u8,
    /// jobs that it prunes
    pub pruned: Vec<(Key, Id)>,
    /// what becomes of keys
    pub fates: [Fate; KEYS],
}

impl Session {
    /// All of its transactions.
    pub fn own(&self) -> Xids {
        self.xids
            .iter()
            .filter(|xid| **xid != 0)
            .fold(0, |all, xid| all | 1 << xid)
    }

    /// Forgets what the last call needed.
    pub fn end_call(&mut self) {
        let Session {
            transaction,
            call,
            xids,
            snapshot,
            ..
        } = *self;
        *self = Session {
            transaction,
            call: call + 1,
            xids,
            snapshot,
            ..Session::default()
        };
    }
}
