//! What sessions do: little programs, and what is there when they begin. The steps of each are in
//! [`crate::protocol`].

use jobs_core::policy::Policy;
use jobs_core::state::{State, States};

use crate::database::{A, Claim, Database, FROZEN, Id, Job, Key, Note, Version};

/// An isolation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// each statement sees what is committed when it begins
    ReadCommitted,
    /// all statements see what was committed when the first one began
    RepeatableRead,
    /// the same, and claims are written by statements only; the failures that are its own are not
    /// modelled: any step may fail
    Serializable,
}

/// What counts as a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// an available job
    Live,
    /// a completed job, too
    Ever,
}

impl Rule {
    /// The policy that says so.
    pub fn policy(self) -> Policy {
        let by_state = match self {
            Rule::Live => States::of(&[State::Available]),
            Rule::Ever => States::of(&[State::Available, State::Completed]),
        };
        Policy {
            by_state,
            ..Policy::default()
        }
    }

    /// Whether final jobs can be duplicates.
    pub fn asks_for_final(self) -> bool {
        self == Rule::Ever
    }
}

/// A job that is to be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct New {
    /// its key
    pub key: Key,
    /// what it is a duplicate of
    pub rule: Rule,
    /// whether to wait for who is inserting its key
    pub wait: bool,
}

/// What is done in a transaction, by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `jobs.insert`
    Insert(New),
    /// `jobs.insert_batch` of jobs with different keys
    Batch([New; 2]),
    /// an available job of this key is completed
    Complete(Key),
    /// a final job of this key is retried
    Retry(Key),
    /// a job of this key is deleted
    Delete(Key),
    /// maintenance deletes final jobs past their retention
    Prune,
    /// maintenance looks at the claims that were noted
    Claims,
}

/// A transaction.
pub type Transaction = (Level, &'static [Op]);
/// What a session does.
pub type Program = &'static [Transaction];

/// What the protocol does wrong, on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fault {
    /// nothing
    #[default]
    None,
    /// the look under the locked claim sees what the call's own statement sees
    OuterSnapshot,
    /// claims are deleted by the statement that waits for their locks, so with a snapshot from
    /// before
    ReapInOneStatement,
    /// nobody takes the advisory lock
    NoAdvisoryLock,
    /// pruning deletes a claim that lists no other job, whatever the notes say
    PruneWithoutLookAtNotes,
    /// pruning passes over a claim of which a dirty snapshot shows no version
    PrunePassesOver,
    /// a new list drops all notes of jobs that have returned, not only those that it was made from
    ForgetAllReturns,
    /// claims are locked in the order in which the jobs were given
    Unordered,
    /// a delete leaves no note
    DeleteWithoutNote,
    /// pruning leaves the notes that a job has returned which it prunes
    PruneLeavesReturns,
    /// a list that is written by an old snapshot folds jobs that may be gone, and orphans no key
    NoNoteByOldSnapshot,
    /// who does not want to wait does, where there is no room for a subtransaction
    WaitWithoutSubtransaction,
}

/// What is there when everybody begins, all of it committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// nothing
    Empty,
    /// a completed job under key A
    Completed,
    /// an available job under key A
    Available,
    /// a completed job under key A, in the list, and an older one that was folded for it
    Folded,
    /// nothing but the claim of key A, whose job was deleted, and the note for maintenance
    Orphaned,
}

/// What is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scenario {
    /// what each session does
    pub programs: [Program; 3],
    /// what is there
    pub start: Start,
    /// Whether completed jobs are within their retention; else they count as gone, and maintenance
    /// prunes them.
    pub kept: bool,
    /// Whether claims are written without statements; else somebody has attached something to their
    /// table.
    pub direct: bool,
    /// Whether single inserts take the advisory lock; else they are a transaction's seventeenth and
    /// later ones.
    pub lock: bool,
    /// whether transactions have room for subtransactions
    pub room: bool,
    /// what is wrong
    pub fault: Fault,
}

/// Numbers up to this one are those of the start, and stay as they are.
pub const LAST_AT_START: Id = 4;

impl Start {
    /// The database.
    pub fn database(self) -> Database {
        let job = |id, state| Job {
            id,
            key: A,
            state,
            finalized_at: if state == State::Completed { id + 2 } else { 0 },
            has_returned: false,
        };
        let (jobs, listed, folded): (Vec<Job>, Option<Vec<Id>>, Vec<Id>) = match self {
            Start::Empty => (vec![], None, vec![]),
            Start::Completed => (vec![job(1, State::Completed)], Some(vec![1]), vec![]),
            Start::Available => (vec![job(1, State::Available)], Some(vec![1]), vec![]),
            Start::Folded => (
                vec![job(1, State::Completed), job(2, State::Completed)],
                Some(vec![2]),
                vec![1],
            ),
            Start::Orphaned => (vec![], Some(vec![1]), vec![]),
        };
        let folded = folded.into_iter().map(|id| Note::Folded(A, id));
        let note = (self == Start::Orphaned).then_some(Note::Orphaned(A));
        let claims = listed.into_iter().map(|jobs| Claim { jobs });
        let frozen = |claim| Version::new(claim, FROZEN);
        Database {
            jobs: jobs
                .into_iter()
                .map(|job| Version::new(job, FROZEN))
                .collect(),
            claims: [claims.map(frozen).collect(), vec![]],
            notes: folded
                .chain(note)
                .map(|row| Version::new(row, FROZEN))
                .collect(),
            ..Database::default()
        }
    }
}
