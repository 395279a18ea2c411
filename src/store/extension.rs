//! The extension itself, as the catalog has it.

use pgrx::pg_sys::Oid;

use super::spi::Plan;

/// The extension of a database.
#[derive(Clone, Copy)]
pub struct Extension {
    /// its object id
    pub oid: Oid,
    /// its owner
    pub owner: Oid,
    /// whether what maintenance writes down has a place: not in a version that this library is newer than
    pub has_ledger: bool,
}

/// `None` if the database does not have it.
pub fn find() -> Option<Extension> {
    FIND.run(&[], |rows| {
        if rows.is_empty() {
            return None;
        }
        let oid = |column| {
            rows.datum(0, column)
                .map(|datum| Oid::from(datum.value() as u32))
        };
        Some(Extension {
            oid: oid(1)?,
            owner: oid(2)?,
            has_ledger: rows.bool(0, 3)?,
        })
    })
}

/// The name of the database.
pub fn database() -> String {
    DATABASE
        .run(&[], |rows| rows.text(0, 1))
        .expect("it has a name")
}

static FIND: Plan = Plan::new(
    "SELECT e.oid, e.extowner, pg_catalog.to_regclass('jobs.maintenance_task') IS NOT NULL
       FROM pg_catalog.pg_extension e WHERE e.extname = 'jobs'",
    &[],
);
static DATABASE: Plan = Plan::new("SELECT current_database()::text", &[]);
