//! The tables that are read and written without statements, as their install script makes them
//! (sql/20_tables.sql).

use crate::pg::index::{IndexShape, Predicate};
use crate::pg::name::Name;
use crate::pg::table::Shape;
use crate::store::columns::columns;
pub use crate::store::job::job;

/// Ids of jobs and positions in lanes.
pub static JOB_SEQ: Name = Name::new(c"job_seq");

pub static JOB: Shape = Shape {
    name: Name::new(c"job"),
    key: IndexShape::key(c"job_pkey", &[job::ID]),
    others: &[],
    columns: job::TYPES,
    not_null: job::NOT_NULL,
};

/// A table each: its columns, its key, and the other indexes that are used.
macro_rules! tables {
    ($($shape:ident $name:literal as $columns:ident { $($column:tt)* }
        $kind:ident $key:literal ($($part:ident),*)
        $($(#[$about:meta])* $index:ident $index_name:literal ($($of:ident),*)
            $(: $predicate:ident($($what:ident),*))?)*;)*) => {$(
        columns! { $columns { $($column)* } }

        pub static $shape: Shape = Shape {
            name: Name::new($name),
            key: IndexShape::$kind($key, &[$($columns::$part),*]),
            others: &[$(&$index),*],
            columns: $columns::TYPES,
            not_null: $columns::NOT_NULL,
        };
        $($(#[$about])*
        pub static $index: IndexShape = IndexShape {
            $(predicate: Some(Predicate::$predicate($($columns::$what),*)),)?
            ..IndexShape::of_all($index_name, &[$($columns::$of),*])
        };)*
    )*};
}
tables! {
    ERROR c"error" as error {
        JOB_ID: INT8 not null,
        AT: AT not null,
        TOKEN: INT8,
        SCHEDULED_AT: AT,
        ATTEMPT: INT4 not null,
        STATE: ENUM not null,
        WORKER: TEXT,
        ERROR: TEXT not null,
        DETAILS: JSONB,
    } of_all c"error_by_job" (JOB_ID, AT);

    ANSWER c"answer" as answer {
        JOB_ID: INT8 not null,
        TOKEN: INT8 not null,
        AT: AT not null,
        SCHEDULED_AT: AT,
        STATE: ENUM not null,
    } key c"answer_pkey" (JOB_ID, TOKEN);

    UNIQUE_CLAIM c"unique_claim" as claim {
        KEY: BYTEA not null,
        JOBS: INT8S not null,
        HOLD_ENDS_AT: ATS,
    } key c"unique_claim_pkey" (KEY);

    UNIQUE_NOTE c"unique_note" as note {
        KEY: BYTEA not null,
        KIND: CHAR not null,
        SEQ: INT8 not null,
        JOB_ID: INT8,
        DUE_AT: AT,
    } key c"unique_note_pkey" (KEY, KIND, SEQ)
        UNIQUE_NOTE_DUE c"unique_note_due" (DUE_AT): NotNull(DUE_AT);

    READY c"ready" as ready {
        SEQ: INT8 not null,
        JOB_ID: INT8 not null,
        SCHEDULED_AT: AT,
        AVAILABLE_AT: AT,
        EXPIRES_AT: AT,
        ATTEMPT: INT4 not null,
        PRIORITY: INT2 not null,
        QUEUE: TEXT not null,
        GATE: INT8,
    } key c"ready_pkey" (QUEUE, PRIORITY, SEQ, JOB_ID)
        /// Jobs that became available later than they were inserted.
        READY_REQUEUED c"ready_requeued" (JOB_ID): Differ(SEQ, JOB_ID)
        READY_EXPIRES c"ready_expires" (EXPIRES_AT): NotNull(EXPIRES_AT)
        READY_GATE c"ready_gate" (GATE, SEQ): NotNull(GATE);

    SCHEDULED c"scheduled" as scheduled {
        JOB_ID: INT8 not null,
        DUE_AT: AT not null,
        EXPIRES_AT: AT,
        ATTEMPT: INT4 not null,
        STATE: ENUM not null,
        QUEUE: TEXT not null,
        GATE: INT8,
        SEQ: INT8,
        SCHEDULED_AT: AT,
        AVAILABLE_AT: AT,
        PRIORITY: INT2,
        KIND: TEXT,
        LIMIT_NAME: TEXT,
        LIMIT_KEY: JSONB,
    } key c"scheduled_pkey" (JOB_ID)
        SCHEDULED_DUE c"scheduled_due" (QUEUE, DUE_AT)
        SCHEDULED_NEXT c"scheduled_next" (DUE_AT)
        SCHEDULED_EXPIRES c"scheduled_expires" (EXPIRES_AT): NotNull(EXPIRES_AT)
        /// Available jobs that a limit holds.
        SCHEDULED_HELD c"scheduled_held" (GATE, QUEUE, KIND, PRIORITY, SEQ): NotNull(GATE);

    RUNNING c"running" as running {
        JOB_ID: INT8 not null,
        TOKEN: INT8 not null,
        ATTEMPTED_AT: AT not null,
        LEASE_EXPIRES_AT: AT not null,
        DEADLINE_AT: AT,
        SCHEDULED_AT: AT,
        HOLD_ENDS_AT: AT,
        CANCEL_REQUESTED_AT: AT,
        SLOT: INT8,
        ATTEMPT: INT4 not null,
        HISTORY_KEY: INT4,
        LEASE: SPAN,
        WORKER: TEXT not null,
        CANCEL_REASON: TEXT,
        PROGRESS: JSONB,
        QUEUE: TEXT,
        GATES: INT8S,
        PERMIT: INT8,
    } key c"running_pkey" (JOB_ID);

    TURN c"turn" as turn {
        GATE: INT8 not null,
        JOB_ID: INT8 not null,
        IS_BLOCKED: BOOL not null,
        QUEUE: TEXT not null,
        KEY: TEXT not null,
    } key c"turn_pkey" (GATE, JOB_ID)
        TURN_JOB c"turn_job" (JOB_ID);

    PERMIT c"permit" as permit {
        GATE: INT8 not null,
        N: INT8 not null,
        JOB_ID: INT8 not null,
        NAME: TEXT not null,
        KEY: TEXT,
    } key c"permit_pkey" (GATE, N);

    LIMIT_START c"limit_start" as limit_start {
        GATE: INT8 not null,
        N: INT8 not null,
        AT: AT not null,
        NAME: TEXT not null,
        KEY: JSONB,
    } key c"limit_start_pkey" (GATE, N);

    FINISHED c"finished" as finished {
        JOB_ID: INT8 not null,
        FINALIZED_AT: AT not null,
        TOKEN: INT8,
        ATTEMPTED_AT: AT,
        SCHEDULED_AT: AT,
        CANCEL_REQUESTED_AT: AT,
        KEPT_UNTIL: AT,
        ATTEMPT: INT4 not null,
        STATE: ENUM not null,
        IS_KEPT: BOOL not null,
        WORKER: TEXT,
        CANCEL_REASON: TEXT,
        OUTPUT: JSONB,
    } key c"finished_pkey" (JOB_ID)
        FINISHED_BY_AGE c"finished_by_age" (STATE, IS_KEPT, FINALIZED_AT)
        /// Those that the settings alone do not tell about.
        FINISHED_KEPT c"finished_kept" (KEPT_UNTIL): NotNull(KEPT_UNTIL);
}

/// Tables that calls write to.
pub static WRITTEN: [&Shape; 11] = [
    &JOB,
    &READY,
    &SCHEDULED,
    &RUNNING,
    &FINISHED,
    &ANSWER,
    &UNIQUE_CLAIM,
    &UNIQUE_NOTE,
    &TURN,
    &PERMIT,
    &LIMIT_START,
];

/// Tables that calls only read.
pub static READ: [&Shape; 1] = [&ERROR];
