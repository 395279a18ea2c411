//! What sessions do: little programs, and what is there when they begin. The steps of each are in
//! [`crate::protocol`].

use jobs_core::policy::Policy;
use jobs_core::state::{State, States};

use crate::database::{A, Claim, Database, FROZEN, Id, Job, Key, Note, Version};

/// An isolation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Each statement sees what was committed before the statement began.
    ReadCommitted,
    /// All statements see what was committed before the first statement began.
    RepeatableRead,
    /// All statements share one snapshot, and only statements write claims. The model omits
    /// serialization failures: any step may fail.
    Serializable,
}

/// What counts as a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Only an available job is a duplicate.
    Live,
    /// Available and completed jobs are duplicates.
    Ever,
}

impl Rule {
    /// The policy that says so.
    pub fn policy(self) -> Policy {
        let by_state = match self {
            Rule::Live => States::of(&[State::Available]),
            Rule::Ever => States::of(&[State::Available, State::Completed]),
        };
        Policy { by_state, ..Policy::default() }
    }

    /// Whether final jobs can be duplicates.
    pub fn asks_for_final(self) -> bool {
        self == Rule::Ever
    }
}

/// A job that is to be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct New {
    /// The unique key.
    pub key: Key,
    /// The rule that decides what counts as a duplicate.
    pub rule: Rule,
    /// Whether the insert waits for another insert under its key.
    pub wait: bool,
}

/// What is done in a transaction, by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `jobs.insert`
    Insert(New),
    /// `jobs.insert_batch` of jobs with different keys
    Batch([New; 2]),
    /// Completes an available job of the key.
    Complete(Key),
    /// Retries a final job of the key.
    Retry(Key),
    /// Deletes a job of the key.
    Delete(Key),
    /// Maintenance deletes final jobs past their retention.
    Prune,
    /// Maintenance checks the claims that have a note.
    Claims,
}

/// A transaction.
pub type Transaction = (Level, &'static [Op]);
/// What a session does.
pub type Program = &'static [Transaction];

/// What the protocol does wrong, on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The protocol has no fault.
    #[default]
    None,
    /// The look under the locked claim uses the snapshot of the calling statement.
    OuterSnapshot,
    /// The statement that waits for the locks also deletes the claims, with an outdated snapshot.
    ReapInOneStatement,
    /// No session takes the advisory lock.
    NoAdvisoryLock,
    /// Pruning deletes a claim that lists no other job, without reading the notes.
    PruneWithoutLookAtNotes,
    /// Pruning skips a claim if a dirty snapshot shows no version of it.
    PrunePassesOver,
    /// A new list deletes all notes of retried jobs, including notes that it did not read.
    ForgetAllReturns,
    /// Claims are locked in the order of the given jobs.
    Unordered,
    /// A delete writes no note.
    DeleteWithoutNote,
    /// Pruning keeps the notes of retried jobs that it prunes.
    PruneLeavesReturns,
    /// A list written with an old snapshot folds jobs that may be deleted, without marking the key
    /// as orphaned.
    NoNoteByOldSnapshot,
    /// An insert without `wait` waits if there is no room for a subtransaction.
    WaitWithoutSubtransaction,
}

/// What is there when everybody begins, all of it committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// The database is empty.
    Empty,
    /// Key A has a completed job.
    Completed,
    /// Key A has an available job.
    Available,
    /// Key A has a completed job in its list and an older, folded job.
    Folded,
    /// Key A has only a claim, whose job was deleted, and a note for maintenance.
    Orphaned,
}

/// What is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scenario {
    /// The program of each session.
    pub programs: [Program; 3],
    /// The initial content of the database.
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
    /// Whether transactions have room for subtransactions.
    pub room: bool,
    /// The injected fault.
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
            Start::Folded => {
                (vec![job(1, State::Completed), job(2, State::Completed)], Some(vec![2]), vec![1])
            }
            Start::Orphaned => (vec![], Some(vec![1]), vec![]),
        };
        let folded = folded.into_iter().map(|id| Note::Folded(A, id));
        let note = (self == Start::Orphaned).then_some(Note::Orphaned(A));
        let claims = listed.into_iter().map(|jobs| Claim { jobs });
        let frozen = |claim| Version::new(claim, FROZEN);
        Database {
            jobs: jobs.into_iter().map(|job| Version::new(job, FROZEN)).collect(),
            claims: [claims.map(frozen).collect(), vec![]],
            notes: folded.chain(note).map(|row| Version::new(row, FROZEN)).collect(),
            ..Database::default()
        }
    }
}
