//! The tables that are read and written without statements, as their install script makes them (sql/20_tables.sql), and
//! the numbers of their columns.

use pgrx::pg_sys::{InvalidOid, Oid};

use super::types::*;
use crate::pg::index::{IndexShape, Predicate};
use crate::pg::name::Name;
use crate::pg::table::Shape;

/// Whatever type `jobs.state` has.
const ENUM: Oid = InvalidOid;

pub static JOB_SEQ: Name = Name::new(c"job_seq");

pub mod job {
    pub const ID: i32 = 1;
    pub const CREATED_AT: i32 = 2;
    pub const SCHEDULED_AT: i32 = 3;
    pub const HOLD_ENDS_AT: i32 = 5;
    pub const TIMEOUT: i32 = 6;
    pub const MAX_ATTEMPTS: i32 = 7;
    pub const PRIORITY: i32 = 8;
    pub const KIND: i32 = 9;
    pub const QUEUE: i32 = 10;
    pub const ARGS: i32 = 11;
    pub const META: i32 = 12;
    pub const TAGS: i32 = 13;
    pub const UNIQUE_KEY: i32 = 15;
    pub const HOLD_UNTIL: i32 = 16;
    pub const UNIQUE_UNTIL: i32 = 17;
    pub const UNIQUE_WINDOW: i32 = 18;
    pub const UNIQUE_FINAL: i32 = 19;
}

pub static JOB: Shape = Shape {
    name: Name::new(c"job"),
    key: IndexShape::key(c"job_pkey", &[1]),
    others: &[],
    columns: &[
        INT8, AT, AT, AT, AT, SPAN, INT4, INT2, TEXT, TEXT, JSONB, JSONB, TEXTS, JSONB, BYTEA,
        TEXT, AT, SPAN, INT2,
    ],
    not_null: 7,
};

/// Without a primary key.
pub static ERROR: Shape = Shape {
    name: Name::new(c"error"),
    key: IndexShape::on(c"error_by_job", &[1, 2], None),
    others: &[],
    columns: &[INT8, AT, INT8, AT, INT4, ENUM, TEXT, JSONB],
    not_null: 5,
};

pub static ANSWER: Shape = Shape {
    name: Name::new(c"answer"),
    key: IndexShape::key(c"answer_pkey", &[1, 2]),
    others: &[],
    columns: &[INT8, INT8, AT, AT, ENUM],
    not_null: 4,
};

pub static UNIQUE_FOLDED: Shape = Shape {
    name: Name::new(c"unique_folded"),
    key: IndexShape::key(c"unique_folded_pkey", &[1, 2]),
    others: &[],
    columns: &[BYTEA, INT8],
    not_null: 2,
};

pub mod claim {
    pub const KEY: i32 = 1;
    pub const JOBS: i32 = 2;
    pub const HOLD_ENDS_AT: i32 = 3;
}

pub static UNIQUE_CLAIM: Shape = Shape {
    name: Name::new(c"unique_claim"),
    key: IndexShape::key(c"unique_claim_pkey", &[1]),
    others: &[],
    columns: &[BYTEA, INT8S, ATS],
    not_null: 2,
};

pub static UNIQUE_RETURN: Shape = Shape {
    name: Name::new(c"unique_return"),
    key: IndexShape::key(c"unique_return_pkey", &[1, 2]),
    others: &[],
    columns: &[BYTEA, INT8, INT8],
    not_null: 3,
};

pub mod ready {
    pub const SEQ: i32 = 1;
    pub const JOB_ID: i32 = 2;
    pub const SCHEDULED_AT: i32 = 3;
    pub const EXPIRES_AT: i32 = 4;
    pub const ATTEMPT: i32 = 5;
    pub const PRIORITY: i32 = 6;
}

pub static READY: Shape = Shape {
    name: Name::new(c"ready"),
    key: IndexShape::key(c"ready_pkey", &[7, 6, 1]),
    others: &[&READY_REQUEUED, &READY_EXPIRES],
    columns: &[INT8, INT8, AT, AT, INT4, INT2, TEXT],
    not_null: 5,
};

/// Jobs that became available later than they were inserted.
pub static READY_REQUEUED: IndexShape = IndexShape::on(
    c"ready_requeued",
    &[2],
    Some(Predicate::Differ(ready::SEQ, ready::JOB_ID)),
);
pub static READY_EXPIRES: IndexShape = IndexShape::on(
    c"ready_expires",
    &[4],
    Some(Predicate::NotNull(ready::EXPIRES_AT)),
);

pub mod scheduled {
    pub const DUE_AT: i32 = 2;
    pub const EXPIRES_AT: i32 = 3;
    pub const STATE: i32 = 5;
    pub const QUEUE: i32 = 6;
}

pub static SCHEDULED: Shape = Shape {
    name: Name::new(c"scheduled"),
    key: IndexShape::key(c"scheduled_pkey", &[1]),
    others: &[&SCHEDULED_DUE, &SCHEDULED_NEXT, &SCHEDULED_EXPIRES],
    columns: &[INT8, AT, AT, INT4, ENUM, TEXT],
    not_null: 5,
};

pub static SCHEDULED_DUE: IndexShape = IndexShape::on(c"scheduled_due", &[6, 2], None);
pub static SCHEDULED_NEXT: IndexShape = IndexShape::on(c"scheduled_next", &[2], None);
pub static SCHEDULED_EXPIRES: IndexShape = IndexShape::on(
    c"scheduled_expires",
    &[3],
    Some(Predicate::NotNull(scheduled::EXPIRES_AT)),
);

pub mod running {
    pub const JOB_ID: i32 = 1;
    pub const TOKEN: i32 = 2;
    pub const ATTEMPTED_AT: i32 = 3;
    pub const LEASE_EXPIRES_AT: i32 = 4;
    pub const SCHEDULED_AT: i32 = 6;
    pub const HOLD_ENDS_AT: i32 = 7;
    pub const CANCEL_REQUESTED_AT: i32 = 8;
    pub const SLOT: i32 = 9;
    pub const ATTEMPT: i32 = 10;
    pub const WORKER: i32 = 12;
    pub const CANCEL_REASON: i32 = 13;
}

pub static RUNNING: Shape = Shape {
    name: Name::new(c"running"),
    key: IndexShape::key(c"running_pkey", &[1]),
    others: &[],
    columns: &[
        INT8, INT8, AT, AT, AT, AT, AT, AT, INT8, INT4, SPAN, TEXT, TEXT, JSONB, TEXT,
    ],
    not_null: 6,
};

pub mod finished {
    pub const JOB_ID: i32 = 1;
    pub const FINALIZED_AT: i32 = 2;
    pub const SCHEDULED_AT: i32 = 5;
    pub const STATE: i32 = 8;
}

pub static FINISHED: Shape = Shape {
    name: Name::new(c"finished"),
    key: IndexShape::key(c"finished_pkey", &[1]),
    others: &[&FINISHED_BY_AGE],
    columns: &[INT8, AT, INT8, AT, AT, AT, INT4, ENUM, TEXT, TEXT, JSONB],
    not_null: 4,
};

pub static FINISHED_BY_AGE: IndexShape = IndexShape::on(c"finished_by_age", &[8, 2], None);

/// Those that calls go to. Of the others it is only asked whether they are empty.
pub static ALL: [&Shape; 8] = [
    &JOB,
    &READY,
    &SCHEDULED,
    &RUNNING,
    &FINISHED,
    &UNIQUE_CLAIM,
    &UNIQUE_FOLDED,
    &UNIQUE_RETURN,
];
