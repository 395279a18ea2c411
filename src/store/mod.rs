//! Every statement that the extension runs, as kept plans. No SQL text stands anywhere
//! else in src/, and nothing here knows of policies: callers decide, the store does.
//!
//! What decides how fast a queue is goes to the tables without a statement where it can: [`direct`]
//! has the same answers, in files of the same names.

mod activity;
pub mod audit;
mod bounds;
pub mod catalog;
pub mod cells;
pub mod changes;
pub mod claims;
pub mod clock;
mod columns;
pub mod config;
pub mod config_cache;
pub mod count;
mod direct;
pub mod due;
pub mod effects;
pub mod erase;
pub mod explain;
pub mod fetch;
pub mod find;
pub mod finish;
pub mod forwarded;
pub mod health;
pub mod health_work;
pub mod held;
pub mod history;
pub mod insert;
pub mod job;
pub mod kept;
pub mod lanes;
pub mod limits;
pub mod look;
pub mod members;
pub mod metrics;
pub mod moves;
pub mod notes;
pub mod notifications;
pub mod periodic_schedule;
pub mod permits;
pub mod place;
pub mod privileges;
pub mod prune;
pub mod queue;
pub mod reap;
pub mod results;
pub mod retention;
pub mod rules;
pub mod run_log;
pub mod show;
pub mod turns;
pub mod used;
pub mod wait;
pub mod workers;

pub(crate) use crate::pg::spi;

/// The types of parameters, short enough to stand beside their statement.
pub(crate) mod types {
    use pgrx::pg_sys::{self, Oid};

    pub const OID: Oid = pg_sys::OIDOID;
    pub const BOOL: Oid = pg_sys::BOOLOID;
    pub const TEXT: Oid = pg_sys::TEXTOID;
    pub const INT2: Oid = pg_sys::INT2OID;
    pub const INT4: Oid = pg_sys::INT4OID;
    pub const INT8: Oid = pg_sys::INT8OID;
    pub const CHAR: Oid = pg_sys::CHAROID;
    pub const BYTEA: Oid = pg_sys::BYTEAOID;
    pub const JSONB: Oid = pg_sys::JSONBOID;
    pub const AT: Oid = pg_sys::TIMESTAMPTZOID;
    pub const SPAN: Oid = pg_sys::INTERVALOID;
    pub const UUID: Oid = pg_sys::UUIDOID;
    pub const TEXTS: Oid = pg_sys::TEXTARRAYOID;
    pub const INT8S: Oid = pg_sys::INT8ARRAYOID;
    pub const INT4S: Oid = pg_sys::INT4ARRAYOID;
    pub const BOOLS: Oid = pg_sys::BOOLARRAYOID;
    pub const JSONBS: Oid = pg_sys::JSONBARRAYOID;
    pub const CHARS: Oid = pg_sys::CHARARRAYOID;
    pub const BYTEAS: Oid = pg_sys::BYTEAARRAYOID;
    pub const ATS: Oid = pg_sys::TIMESTAMPTZARRAYOID;
    pub const UUIDS: Oid = pg_sys::UUIDARRAYOID;
    /// Of a column only: whatever type `jobs.state` has.
    pub const ENUM: Oid = pg_sys::InvalidOid;
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::fetch;
    use crate::pg::time;

    #[pg_test]
    fn views_have_the_durations_of_the_code() {
        let sql = "SELECT strpos(pg_get_viewdef('jobs.jobs'::regclass), format('%L::interval', $1::interval)) > 0";
        let args = [time::show(fetch::DEFAULT_TIMEOUT).into()];
        assert_eq!(Spi::get_one_with_args(sql, &args), Ok(Some(true)));
    }
}
