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

columns! {
    error {
        JOB_ID: INT8 not null,
        AT: AT not null,
        TOKEN: INT8,
        SCHEDULED_AT: AT,
        ATTEMPT: INT4 not null,
        STATE: ENUM not null,
        WORKER: TEXT,
        ERROR: TEXT not null,
        DETAILS: JSONB,
    }
}

/// Without a primary key.
pub static ERROR: Shape = Shape {
    name: Name::new(c"error"),
    key: IndexShape::on(c"error_by_job", &[error::JOB_ID, error::AT], None),
    others: &[],
    columns: error::TYPES,
    not_null: error::NOT_NULL,
};

columns! {
    answer {
        JOB_ID: INT8 not null,
        TOKEN: INT8 not null,
        AT: AT not null,
        SCHEDULED_AT: AT,
        STATE: ENUM not null,
    }
}

pub static ANSWER: Shape = Shape {
    name: Name::new(c"answer"),
    key: IndexShape::key(c"answer_pkey", &[answer::JOB_ID, answer::TOKEN]),
    others: &[],
    columns: answer::TYPES,
    not_null: answer::NOT_NULL,
};

columns! {
    claim {
        KEY: BYTEA not null,
        JOBS: INT8S not null,
        HOLD_ENDS_AT: ATS,
    }
}

pub static UNIQUE_CLAIM: Shape = Shape {
    name: Name::new(c"unique_claim"),
    key: IndexShape::key(c"unique_claim_pkey", &[claim::KEY]),
    others: &[],
    columns: claim::TYPES,
    not_null: claim::NOT_NULL,
};

columns! {
    note {
        KEY: BYTEA not null,
        KIND: CHAR not null,
        SEQ: INT8 not null,
        JOB_ID: INT8,
        DUE_AT: AT,
    }
}

pub static UNIQUE_NOTE: Shape = Shape {
    name: Name::new(c"unique_note"),
    key: IndexShape::key(c"unique_note_pkey", &[note::KEY, note::KIND, note::SEQ]),
    others: &[&UNIQUE_NOTE_DUE],
    columns: note::TYPES,
    not_null: note::NOT_NULL,
};

pub static UNIQUE_NOTE_DUE: IndexShape = IndexShape::on(
    c"unique_note_due",
    &[note::DUE_AT],
    Some(Predicate::NotNull(note::DUE_AT)),
);

columns! {
    ready {
        SEQ: INT8 not null,
        JOB_ID: INT8 not null,
        SCHEDULED_AT: AT,
        AVAILABLE_AT: AT,
        EXPIRES_AT: AT,
        ATTEMPT: INT4 not null,
        PRIORITY: INT2 not null,
        QUEUE: TEXT not null,
    }
}

pub static READY: Shape = Shape {
    name: Name::new(c"ready"),
    key: IndexShape::key(c"ready_pkey", &[ready::QUEUE, ready::PRIORITY, ready::SEQ]),
    others: &[&READY_REQUEUED, &READY_EXPIRES],
    columns: ready::TYPES,
    not_null: ready::NOT_NULL,
};

/// Jobs that became available later than they were inserted.
pub static READY_REQUEUED: IndexShape = IndexShape::on(
    c"ready_requeued",
    &[ready::JOB_ID],
    Some(Predicate::Differ(ready::SEQ, ready::JOB_ID)),
);
pub static READY_EXPIRES: IndexShape = IndexShape::on(
    c"ready_expires",
    &[ready::EXPIRES_AT],
    Some(Predicate::NotNull(ready::EXPIRES_AT)),
);

columns! {
    scheduled {
        JOB_ID: INT8 not null,
        DUE_AT: AT not null,
        EXPIRES_AT: AT,
        ATTEMPT: INT4 not null,
        STATE: ENUM not null,
        QUEUE: TEXT not null,
    }
}

pub static SCHEDULED: Shape = Shape {
    name: Name::new(c"scheduled"),
    key: IndexShape::key(c"scheduled_pkey", &[scheduled::JOB_ID]),
    others: &[&SCHEDULED_DUE, &SCHEDULED_NEXT, &SCHEDULED_EXPIRES],
    columns: scheduled::TYPES,
    not_null: scheduled::NOT_NULL,
};

pub static SCHEDULED_DUE: IndexShape = IndexShape::on(
    c"scheduled_due",
    &[scheduled::QUEUE, scheduled::DUE_AT],
    None,
);
pub static SCHEDULED_NEXT: IndexShape =
    IndexShape::on(c"scheduled_next", &[scheduled::DUE_AT], None);
pub static SCHEDULED_EXPIRES: IndexShape = IndexShape::on(
    c"scheduled_expires",
    &[scheduled::EXPIRES_AT],
    Some(Predicate::NotNull(scheduled::EXPIRES_AT)),
);

columns! {
    running {
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
    }
}

pub static RUNNING: Shape = Shape {
    name: Name::new(c"running"),
    key: IndexShape::key(c"running_pkey", &[running::JOB_ID]),
    others: &[],
    columns: running::TYPES,
    not_null: running::NOT_NULL,
};

columns! {
    finished {
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
    }
}

pub static FINISHED: Shape = Shape {
    name: Name::new(c"finished"),
    key: IndexShape::key(c"finished_pkey", &[finished::JOB_ID]),
    others: &[&FINISHED_BY_AGE, &FINISHED_KEPT],
    columns: finished::TYPES,
    not_null: finished::NOT_NULL,
};

pub static FINISHED_BY_AGE: IndexShape = IndexShape::on(
    c"finished_by_age",
    &[finished::STATE, finished::IS_KEPT, finished::FINALIZED_AT],
    None,
);
/// Those that the settings alone do not tell about.
pub static FINISHED_KEPT: IndexShape = IndexShape::on(
    c"finished_kept",
    &[finished::KEPT_UNTIL],
    Some(Predicate::NotNull(finished::KEPT_UNTIL)),
);

/// Tables that calls write to.
pub static WRITTEN: [&Shape; 8] = [
    &JOB,
    &READY,
    &SCHEDULED,
    &RUNNING,
    &FINISHED,
    &ANSWER,
    &UNIQUE_CLAIM,
    &UNIQUE_NOTE,
];

/// Tables that calls only read.
pub static READ: [&Shape; 1] = [&ERROR];
