//! The tables that are read and written without statements, as their install script makes them (sql/20_tables.sql), and
//! the numbers of their columns.

use pgrx::pg_sys::{InvalidOid, Oid};

use super::types::*;
use crate::pg::name::Name;
use crate::pg::table::Shape;

/// Whatever type `jobs.state` has.
const ENUM: Oid = InvalidOid;

pub static JOB_SEQ: Name = Name::new(c"job_seq");
pub static SCHEDULED_DUE: Name = Name::new(c"scheduled_due");
pub static SCHEDULED_EXPIRES: Name = Name::new(c"scheduled_expires");
pub static READY_EXPIRES: Name = Name::new(c"ready_expires");
pub static FINISHED_BY_AGE: Name = Name::new(c"finished_by_age");
pub static READY_REQUEUED: Name = Name::new(c"ready_requeued");

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
}

pub static JOB: Shape = Shape {
    name: Name::new(c"job"),
    key: Name::new(c"job_pkey"),
    columns: &[
        INT8, AT, AT, AT, AT, SPAN, INT4, INT2, TEXT, TEXT, JSONB, JSONB, TEXTS, JSONB, BYTEA, TEXT,
    ],
    not_null: 7,
    partial: &[],
};

/// Without a primary key.
pub static ERROR: Shape = Shape {
    name: Name::new(c"error"),
    key: Name::new(c"error_by_job"),
    columns: &[INT8, AT, INT8, AT, INT4, ENUM, TEXT, JSONB],
    not_null: 5,
    partial: &[],
};

pub static ANSWER: Shape = Shape {
    name: Name::new(c"answer"),
    key: Name::new(c"answer_pkey"),
    columns: &[INT8, INT8, AT, AT, ENUM],
    not_null: 4,
    partial: &[],
};

pub static UNIQUE_FOLDED: Shape = Shape {
    name: Name::new(c"unique_folded"),
    key: Name::new(c"unique_folded_pkey"),
    columns: &[BYTEA, INT8],
    not_null: 2,
    partial: &[],
};

pub mod claim {
    pub const KEY: i32 = 1;
    pub const JOBS: i32 = 2;
    pub const HOLD_ENDS_AT: i32 = 3;
}

pub static UNIQUE_CLAIM: Shape = Shape {
    name: Name::new(c"unique_claim"),
    key: Name::new(c"unique_claim_pkey"),
    columns: &[BYTEA, INT8S, ATS],
    not_null: 2,
    partial: &[],
};

pub static UNIQUE_RETURN: Shape = Shape {
    name: Name::new(c"unique_return"),
    key: Name::new(c"unique_return_pkey"),
    columns: &[BYTEA, INT8, INT8],
    not_null: 3,
    partial: &[],
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
    key: Name::new(c"ready_pkey"),
    columns: &[INT8, INT8, AT, AT, INT4, INT2, TEXT],
    not_null: 5,
    partial: &[
        ("ready_requeued", |row| {
            row.big(ready::SEQ) != row.big(ready::JOB_ID)
        }),
        ("ready_expires", |row| row.big(ready::EXPIRES_AT).is_some()),
    ],
};

pub mod scheduled {
    pub const DUE_AT: i32 = 2;
    pub const EXPIRES_AT: i32 = 3;
    pub const STATE: i32 = 5;
}

pub static SCHEDULED: Shape = Shape {
    name: Name::new(c"scheduled"),
    key: Name::new(c"scheduled_pkey"),
    columns: &[INT8, AT, AT, INT4, ENUM, TEXT],
    not_null: 5,
    partial: &[("scheduled_expires", |row| {
        row.big(scheduled::EXPIRES_AT).is_some()
    })],
};

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
    key: Name::new(c"running_pkey"),
    columns: &[
        INT8, INT8, AT, AT, AT, AT, AT, AT, INT8, INT4, SPAN, TEXT, TEXT, JSONB, TEXT,
    ],
    not_null: 6,
    partial: &[],
};

pub mod finished {
    pub const JOB_ID: i32 = 1;
    pub const FINALIZED_AT: i32 = 2;
    pub const SCHEDULED_AT: i32 = 5;
    pub const STATE: i32 = 8;
}

pub static FINISHED: Shape = Shape {
    name: Name::new(c"finished"),
    key: Name::new(c"finished_pkey"),
    columns: &[INT8, AT, INT8, AT, AT, AT, INT4, ENUM, TEXT, TEXT, JSONB],
    not_null: 4,
    partial: &[],
};
