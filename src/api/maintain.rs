//! Section 6 of the contract: maintenance on demand.

use pgrx::prelude::*;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::check;
use crate::error::OrRaise;
use crate::pg::answer::{Cell, Rows};
use crate::pg::{subxact, time};
use crate::worker::{tasks, wake};

/// Runs every maintenance task once. See the COMMENT in sql/60_maintain.sql.
#[pg_extern(sql = false)]
fn maintain(fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    check::writable().or_raise();
    let mut rows = Rows::new(fcinfo);
    for task in tasks::ALL {
        let begun = time::now();
        let (done, error) = match subxact::attempt(|| tasks::run_until_done(task)) {
            Ok(done) => (done, None),
            Err(error) => match subxact::describe(&error) {
                // Whoever cancels means the whole call.
                (Code::ERRCODE_QUERY_CANCELED, _) => error.rethrow(),
                (_, message) => (0, Some(message)),
            },
        };
        rows.push(vec![
            Cell::Text(task.name.into()),
            Cell::Big(done as i64),
            Cell::Span(time::now() - begun),
            error.map_or(Cell::Null, Cell::Text),
        ]);
    }
    rows
}

/// The end of the install script. See the COMMENT in sql/60_maintain.sql.
#[pg_extern(sql = false)]
fn installed() {
    check::encoding().or_raise();
    wake::at_commit();
}
