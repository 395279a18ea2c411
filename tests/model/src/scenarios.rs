//! The scenarios that are explored: every three of a family's programs, with every start.

use crate::database::{A, B, Key};
use crate::properties;
use crate::scenario::Level::{self, ReadCommitted, RepeatableRead, Serializable};
use crate::scenario::{Fault, New, Op, Program, Rule, Scenario, Start, Transaction};

const fn new(key: Key, rule: Rule) -> New {
    New { key, rule, wait: true }
}

const fn not_waiting(key: Key) -> New {
    New { key, rule: Rule::Live, wait: false }
}

macro_rules! program {
    ($level:expr, $($call:expr),+) => {{
        const PROGRAM: Program = &[($level, &[$($call),+])];
        PROGRAM
    }};
}

const A_JOB: Op = Op::Insert(new(A, Rule::Live));
const A_EVER: Op = Op::Insert(new(A, Rule::Ever));
const A_NOT_WAITING: Op = Op::Insert(not_waiting(A));
const B_JOB: Op = Op::Insert(new(B, Rule::Live));
const BOTH: Op = Op::Batch([new(A, Rule::Live), new(B, Rule::Live)]);
const BOTH_BACKWARD: Op = Op::Batch([new(B, Rule::Live), new(A, Rule::Live)]);
const BOTH_EVER: Op = Op::Batch([new(B, Rule::Ever), new(A, Rule::Ever)]);
const BOTH_NOT_WAITING: Op = Op::Batch([not_waiting(A), not_waiting(B)]);
const ONE_WAITING: Op = Op::Batch([not_waiting(A), new(B, Rule::Live)]);

/// Inserts a job under key A.
pub const INSERT: Program = program!(ReadCommitted, A_JOB);
/// Inserts a job under key A, where completed jobs are duplicates, too.
pub const INSERT_EVER: Program = program!(ReadCommitted, A_EVER);
/// Inserts a job under key A, unless somebody is at work on the key.
pub const INSERT_NOT_WAITING: Program = program!(ReadCommitted, A_NOT_WAITING);
/// Inserts jobs under both keys.
pub const BATCH: Program = program!(ReadCommitted, BOTH);
/// Inserts jobs under both keys, given in the other order.
pub const BATCH_BACKWARD: Program = program!(ReadCommitted, BOTH_BACKWARD);
/// Completes a job under key A.
pub const COMPLETE: Program = program!(ReadCommitted, Op::Complete(A));
/// Retries one.
pub const RETRY: Program = program!(ReadCommitted, Op::Retry(A));
/// Deletes one.
pub const DELETE: Program = program!(ReadCommitted, Op::Delete(A));
/// Maintenance: deletes what is past its retention.
pub const PRUNE: Program = program!(ReadCommitted, Op::Prune);
/// Maintenance: looks at claims that were noted.
pub const CLAIMS: Program = program!(ReadCommitted, Op::Claims);
/// Two jobs under the two keys, one by one.
const ONE_BY_ONE: Program = program!(ReadCommitted, A_JOB, B_JOB);
/// A job is inserted, and completed in the next transaction.
const USE: Program =
    &[(ReadCommitted, &[A_JOB] as &[Op]) as Transaction, (ReadCommitted, &[Op::Complete(A)])];
/// A job under key A is retried, and completed again.
const RETRY_AND_COMPLETE: Program = &[
    (ReadCommitted, &[Op::Retry(A)] as &[Op]) as Transaction,
    (ReadCommitted, &[Op::Complete(A)]),
];
/// Inserts a job under key A, by one snapshot.
const INSERT_BY_OLD_SNAPSHOT: Program = program!(RepeatableRead, A_JOB);
/// Inserts jobs under both keys by statements, and waits for the second one only.
const ONE_WAITS: Program = program!(Serializable, ONE_WAITING);
/// Maintenance: both tasks.
const MAINTAIN: Program =
    &[(ReadCommitted, &[Op::Prune] as &[Op]) as Transaction, (ReadCommitted, &[Op::Claims])];

/// Programs whose sessions meet each other.
pub struct Family {
    /// The name of the family.
    pub name: &'static str,
    /// The programs of the first session.
    pub subject: &'static [Program],
    /// The programs of the other two sessions.
    pub others: &'static [Program],
    /// The initial contents of the database.
    pub starts: &'static [Start],
    /// Whether completed jobs are within their retention.
    pub kept: &'static [bool],
    /// Whether claims are written without statements.
    pub direct: &'static [bool],
    /// Whether single inserts take the advisory lock.
    pub lock: bool,
    /// Whether transactions have room for subtransactions.
    pub room: bool,
}

const STARTS: &[Start] =
    &[Start::Empty, Start::Completed, Start::Available, Start::Folded, Start::Orphaned];
const BOTH_WAYS: &[bool] = &[true, false];

const AT_WORK: &[Program] =
    &[INSERT, INSERT_EVER, INSERT_NOT_WAITING, BATCH, COMPLETE, RETRY, DELETE, PRUNE, CLAIMS];

const fn insert_at(level: Level) -> &'static [Program] {
    match level {
        ReadCommitted => {
            const PROGRAMS: &[Program] = &[INSERT, INSERT_EVER, ONE_BY_ONE, USE];
            PROGRAMS
        }
        RepeatableRead => {
            const PROGRAMS: &[Program] = &[
                INSERT_BY_OLD_SNAPSHOT,
                program!(RepeatableRead, A_EVER),
                program!(RepeatableRead, BOTH),
                program!(RepeatableRead, A_NOT_WAITING),
                program!(RepeatableRead, Op::Retry(A)),
            ];
            PROGRAMS
        }
        Serializable => {
            const PROGRAMS: &[Program] = &[
                program!(Serializable, A_JOB),
                program!(Serializable, BOTH),
                program!(Serializable, ONE_WAITING),
            ];
            PROGRAMS
        }
    }
}

/// All that is explored.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "single inserts",
        subject: insert_at(ReadCommitted),
        others: AT_WORK,
        starts: STARTS,
        kept: BOTH_WAYS,
        direct: &[true],
        lock: true,
        room: true,
    },
    Family {
        name: "without the lock",
        subject: insert_at(ReadCommitted),
        others: AT_WORK,
        starts: STARTS,
        kept: BOTH_WAYS,
        direct: &[true],
        lock: false,
        room: true,
    },
    Family {
        name: "batches",
        subject: &[BATCH, BATCH_BACKWARD, program!(ReadCommitted, BOTH_EVER)],
        others: AT_WORK,
        starts: STARTS,
        kept: BOTH_WAYS,
        direct: &[true],
        lock: true,
        room: true,
    },
    Family {
        name: "wait: false",
        subject: &[
            INSERT_NOT_WAITING,
            program!(ReadCommitted, BOTH_NOT_WAITING),
            program!(ReadCommitted, ONE_WAITING),
        ],
        others: AT_WORK,
        starts: STARTS,
        kept: BOTH_WAYS,
        direct: &[true],
        lock: true,
        room: true,
    },
    Family {
        name: "no subtransactions",
        subject: &[
            BATCH,
            INSERT_NOT_WAITING,
            program!(ReadCommitted, BOTH_NOT_WAITING),
            program!(ReadCommitted, ONE_WAITING),
        ],
        others: AT_WORK,
        starts: STARTS,
        kept: BOTH_WAYS,
        direct: BOTH_WAYS,
        lock: true,
        room: false,
    },
    Family {
        name: "maintenance",
        subject: &[MAINTAIN, PRUNE, CLAIMS],
        others: AT_WORK,
        starts: STARTS,
        kept: &[false],
        direct: BOTH_WAYS,
        lock: true,
        room: true,
    },
    Family {
        name: "repeatable read",
        subject: insert_at(RepeatableRead),
        others: AT_WORK,
        starts: STARTS,
        kept: BOTH_WAYS,
        direct: &[true],
        lock: true,
        room: true,
    },
    Family {
        name: "serializable",
        subject: insert_at(Serializable),
        others: AT_WORK,
        starts: STARTS,
        kept: BOTH_WAYS,
        direct: &[true],
        lock: true,
        room: true,
    },
    Family {
        name: "statements",
        subject: &[INSERT, BATCH_BACKWARD, program!(ReadCommitted, ONE_WAITING)],
        others: AT_WORK,
        starts: STARTS,
        kept: BOTH_WAYS,
        direct: &[false],
        lock: true,
        room: true,
    },
];

impl Family {
    /// Its scenarios, with this fault.
    pub fn scenarios(&self, fault: Fault) -> impl Iterator<Item = Scenario> {
        let mut all = vec![];
        for &subject in self.subject {
            for (n, &second) in self.others.iter().enumerate() {
                for &third in &self.others[n..] {
                    for &start in self.starts {
                        for &kept in self.kept {
                            for &direct in self.direct {
                                all.push(Scenario {
                                    programs: [subject, second, third],
                                    start,
                                    kept,
                                    direct,
                                    lock: self.lock,
                                    room: self.room,
                                    fault,
                                });
                            }
                        }
                    }
                }
            }
        }
        all.into_iter()
    }
}

/// A mistake, and what must be found because of it.
#[derive(Clone, Copy)]
pub struct Control<P> {
    /// The name of the control.
    pub name: &'static str,
    /// A description of the fault.
    pub why: &'static str,
    /// The scenario with the fault.
    pub scenario: P,
    /// The property that the fault violates.
    pub property: &'static str,
}

const fn with(fault: Fault, programs: [Program; 3], start: Start, kept: bool) -> Scenario {
    Scenario { programs, start, kept, direct: true, lock: true, room: true, fault }
}

/// Mistakes that were once made or argued about, and some that the model found.
pub const CONTROLS: &[Control<Scenario>] = &[
    Control {
        name: "look-in-the-same-statement",
        why: "The look under the locked claim sees what the statement saw that locked it.",
        scenario: with(Fault::OuterSnapshot, [INSERT, BATCH, &[]], Start::Empty, true),
        property: properties::NEVER_TWO,
    },
    Control {
        name: "reap-with-the-old-snapshot",
        why: "Claims are deleted by the statement that waits for their locks.",
        scenario: with(Fault::ReapInOneStatement, [INSERT, INSERT, PRUNE], Start::Completed, false),
        property: properties::NEVER_TWO,
    },
    Control {
        name: "no-advisory-lock",
        why: "Single inserts take no advisory lock. The lock is not what keeps keys unique: the family \"without the lock\" has\n\
              all other properties. What is lost is that a waiter waits before it has taken an id or written anything, and that\n\
              pg_locks shows which key it waits for.",
        scenario: with(Fault::NoAdvisoryLock, [INSERT, INSERT, &[]], Start::Empty, true),
        property: properties::SINGLES_WAIT_AT_THE_LOCK,
    },
    Control {
        name: "claim-deleted-while-a-job-returns",
        why: "Pruning deletes a claim that lists no other job, without a look at the notes on its key.",
        scenario: with(
            Fault::PruneWithoutLookAtNotes,
            [RETRY, PRUNE, INSERT],
            Start::Folded,
            false,
        ),
        property: properties::NEVER_TWO,
    },
    Control {
        name: "all-returns-forgotten",
        why: "A new list drops all notes of jobs that have returned, not only those that it was made from.",
        scenario: with(Fault::ForgetAllReturns, [INSERT, RETRY, &[]], Start::Folded, true),
        property: properties::NO_JOB_IS_LOST,
    },
    Control {
        name: "claims-out-of-order",
        why: "A batch takes its claims in the order in which the jobs were given.",
        scenario: with(Fault::Unordered, [BATCH, BATCH_BACKWARD, &[]], Start::Empty, true),
        property: properties::NOBODY_WAITS_FOR_EVER,
    },
    Control {
        name: "delete-without-note",
        why: "A delete leaves no note for maintenance.",
        scenario: with(Fault::DeleteWithoutNote, [DELETE, CLAIMS, &[]], Start::Completed, true),
        property: properties::NO_CLAIM_WITHOUT_NEED,
    },
    Control {
        name: "prune-passes-over",
        why: "Pruning passes over a claim of which a look without a snapshot meets no version, since it is updated right then.",
        scenario: with(Fault::PrunePassesOver, [INSERT, PRUNE, &[]], Start::Completed, false),
        property: properties::NO_NOTE_OF_NO_USE,
    },
    Control {
        name: "prune-leaves-returns",
        why: "Pruning leaves the notes that the jobs once returned which it prunes.",
        scenario: with(
            Fault::PruneLeavesReturns,
            [RETRY_AND_COMPLETE, INSERT, CLAIMS],
            Start::Completed,
            false,
        ),
        property: properties::NO_NOTE_OF_NO_USE,
    },
    Control {
        name: "no-note-by-an-old-snapshot",
        why: "An insert with an old snapshot folds jobs that are gone by now, and leaves no note for maintenance.",
        scenario: with(
            Fault::NoNoteByOldSnapshot,
            [INSERT_BY_OLD_SNAPSHOT, DELETE, CLAIMS],
            Start::Folded,
            false,
        ),
        property: properties::NO_NOTE_OF_NO_USE,
    },
    Control {
        name: "wait-without-a-subtransaction",
        why: "A batch that waits for one key and not for the other waits for both, since its transaction has no room for one\n\
              more subtransaction.",
        scenario: with(
            Fault::WaitWithoutSubtransaction,
            [ONE_WAITS, BATCH, INSERT],
            Start::Empty,
            true,
        ),
        property: properties::NOBODY_WAITS_FOR_EVER,
    },
];
