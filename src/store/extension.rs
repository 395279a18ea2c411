//! The extension itself, as the catalog has it.

use pgrx::pg_sys::Oid;

use super::spi::Plan;

/// Its object id and its owner; `None` if the database does not have it.
pub fn find() -> Option<(Oid, Oid)> {
    FIND.run(&[], |rows| {
        let oid = |column| {
            rows.datum(0, column)
                .map(|datum| Oid::from(datum.value() as u32))
        };
        if rows.is_empty() {
            None
        } else {
            oid(1).zip(oid(2))
        }
    })
}

static FIND: Plan = Plan::new(
    "SELECT e.oid, e.extowner FROM pg_catalog.pg_extension e WHERE e.extname = 'jobs'",
    &[],
);
