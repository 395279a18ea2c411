//! Direct access: what the statements of [`super`] do, done with the tables and indexes themselves.
//! docs/internals/direct-access.md says why, and when that may be.
//!
//! Each file stands beside the statement file of the same name; `walk` and `shapes` are only here.
//! Its functions answer `None` where a table was not opened, before they have done anything. Then
//! the caller runs the statement, which answers alike.

pub mod bounds;
pub mod claims;
pub mod due;
pub mod fetch;
pub mod finish;
pub mod insert;
pub mod look;
pub mod moves;
pub mod permits;
pub mod prune;
pub mod reap;
pub mod shapes;
pub mod turns;
pub mod wait;
mod walk;

use crate::pg::table::{Shape, Table};

/// Whether a table has no rows at all, as far as can be told without a statement.
pub fn is_empty(shape: &'static Shape) -> bool {
    let table = Table::open_to_read(shape, &shape.key);
    table.is_some_and(|table| table.is_empty(&shape.key))
}

/// Opens a table to be written to, if rows are to be; `None`: use a statement.
fn open_if(is_needed: bool, shape: &'static Shape) -> Option<Option<Table>> {
    match is_needed {
        true => Table::open(shape).map(Some),
        false => Some(None),
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::shapes;
    use crate::pg::table::Table;

    /// How many of all tables can be opened to be written, and to be read along each of their
    /// indexes.
    fn opened() -> (usize, usize) {
        let written = shapes::WRITTEN.iter();
        let read = written.clone().chain(&shapes::READ).flat_map(|shape| {
            let indexes = std::iter::once(&shape.key).chain(shape.others.iter().copied());
            indexes.filter_map(|index| Table::open_to_read(shape, index))
        });
        let written = written.filter_map(|shape| Table::open(shape));
        (written.count(), read.count())
    }

    #[pg_test]
    fn nothing_is_opened_with_direct_access_off() {
        let (tables, indexes) = (shapes::WRITTEN.len(), opened().1);
        assert!(indexes > tables + shapes::READ.len());
        for (setting, expected) in [("off", (0, 0)), ("on", (tables, indexes))] {
            Spi::run(&format!("SET LOCAL jobs.direct_access = {setting}")).expect("set");
            assert_eq!(opened(), expected);
        }
    }
}
