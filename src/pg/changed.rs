//! What is different about our own tables from how their install script makes them, in words: all
//! that [`Table::open`] says no to, and indexes that were left behind unfinished. Triggers and
//! rules are found by a statement, which looks at views, too; those that foreign keys have made are
//! told here.

use std::ffi::CStr;

use pgrx::pg_sys::{self, Oid};

use super::index::{Index, Upkeep};
use super::table::{MOST_COLUMNS, Shape, Table, members};
use super::text::quoted;
use super::versions;

pub struct Difference {
    pub what: String,
    pub mend: String,
    /// An invalid index, which may still be in the making.
    pub index: Option<Oid>,
}

impl Difference {
    fn new(what: String, mend: String) -> Difference {
        let index = None;
        Difference { what, mend, index }
    }
}

/// What is left to do where something of the extension's own is gone.
const ANEW: &str =
    "Restore a backup; or, to lose all jobs: DROP EXTENSION jobs CASCADE; CREATE EXTENSION jobs;";

/// What shows the columns of a table, also those that were dropped.
fn to_see(name: &str) -> String {
    format!("Its columns: SELECT * FROM pg_attribute WHERE attrelid = 'jobs.{name}'::regclass;")
}

/// What is different about a table. Any index may be added to one that calls do not write to.
pub fn differences(shape: &'static Shape, is_written: bool) -> Vec<Difference> {
    let name = shape.name.as_str();
    let lock = pg_sys::AccessShareLock as i32;
    // SAFETY: a relation that is open until the end.
    unsafe {
        let Some(table) = Table::open_as_it_is(shape, lock) else {
            let what = format!("table jobs.{name} does not exist");
            return vec![Difference::new(what, ANEW.into())];
        };
        let mut found = Vec::new();
        let mut add = |what: String, mend: String| {
            let what = format!("table jobs.{name} {what}, which makes calls slower");
            found.push(Difference::new(what, mend));
        };
        attached(&table, name, &mut add);
        columns(&table, shape, &mut add);
        let invalid = indexes(&table, shape, is_written, &mut add);
        let relation = &*table.relation;
        let triggers = match relation.trigdesc.as_ref() {
            Some(all) => std::slice::from_raw_parts(all.triggers, all.numtriggers as usize),
            None => &[],
        };
        let is_told =
            !relation.rd_rules.is_null() || triggers.iter().any(|trigger| !trigger.tgisinternal);
        if found.is_empty() && !is_told && !table.is_as_made(shape) {
            let what =
                format!("table jobs.{name} is not as it was created, which makes calls slower");
            found.push(Difference::new(what, to_see(name)));
        }
        found.extend(invalid);
        found
    }
}

/// Row security, parents and children.
unsafe fn attached(table: &Table, name: &str, add: &mut dyn FnMut(String, String)) {
    // SAFETY: the table is open.
    unsafe {
        let class = &*(*table.relation).rd_rel;
        if class.relrowsecurity || class.relforcerowsecurity {
            add(
                "has row-level security".into(),
                format!(
                    "ALTER TABLE jobs.{name} DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;"
                ),
            );
        }
        if class.relhassubclass || class.relispartition {
            add(
                "has a parent or children".into(),
                format!(
                    "These are: SELECT inhrelid::regclass AS child, inhparent::regclass AS parent FROM pg_inherits WHERE 'jobs.{name}'::regclass IN (inhrelid, inhparent); Detach them with NO INHERIT or DETACH PARTITION, then: ANALYZE jobs.{name};"
                ),
            );
        }
    }
}

/// Columns, and what is said of them.
unsafe fn columns(table: &Table, shape: &Shape, add: &mut dyn FnMut(String, String)) {
    // SAFETY: the table is open.
    unsafe {
        let name = shape.name.as_str();
        let columns = versions::columns((*table.relation).rd_att);
        if columns.len() > MOST_COLUMNS {
            add(
                "has had too many columns added".into(),
                "Dump and restore the database. ".to_string() + &to_see(name),
            );
        }
        for (n, column) in columns.iter().enumerate() {
            let named = quoted(column.attname.data.as_ptr());
            match shape.columns.get(n) {
                Some(_) if column.attisdropped => {
                    add(format!("lacks its column {}", n + 1), ANEW.into())
                }
                Some(wanted) if *wanted != pg_sys::InvalidOid && column.atttypid != *wanted => {
                    let wanted = CStr::from_ptr(pg_sys::format_type_be(*wanted));
                    let wanted = wanted.to_string_lossy();
                    add(
                        format!("has another type for column {named}"),
                        format!("ALTER TABLE jobs.{name} ALTER COLUMN {named} TYPE {wanted};"),
                    );
                }
                None if !column.attisdropped => add(
                    format!("has column {named}"),
                    format!("ALTER TABLE jobs.{name} DROP COLUMN {named};"),
                ),
                _ if column.atthasdef => add(
                    format!("has a default for column {named}"),
                    format!("ALTER TABLE jobs.{name} ALTER COLUMN {named} DROP DEFAULT;"),
                ),
                _ => {}
            }
        }
        let constraints = (*(*table.relation).rd_att).constr.as_ref();
        if let Some(constraints) = constraints {
            let checks = match constraints.num_check {
                0 => &[],
                count => std::slice::from_raw_parts(constraints.check, count.into()),
            };
            for check in checks {
                let check = quoted(check.ccname);
                add(
                    format!("has constraint {check}"),
                    format!("ALTER TABLE jobs.{name} DROP CONSTRAINT {check};"),
                );
            }
        }
    }
}

/// Indexes that were added, changed or dropped; returns those that are not valid.
unsafe fn indexes(
    table: &Table,
    shape: &'static Shape,
    is_written: bool,
    add: &mut dyn FnMut(String, String),
) -> Vec<Difference> {
    let mut invalid = Vec::new();
    let mut missing: Vec<_> =
        std::iter::once(&shape.key).chain(shape.others.iter().copied()).collect();
    // SAFETY: the table is open, and each index while it is looked at.
    unsafe {
        let name = shape.name.as_str();
        let lock = pg_sys::AccessShareLock as i32;
        for index in members(pg_sys::RelationGetIndexList(table.relation)) {
            let oid = index.oid_value;
            let index = pg_sys::index_open(oid, lock);
            let named = quoted((*(*index).rd_rel).relname.data.as_ptr());
            let form = &*(*index).rd_index;
            missing.retain(|shape| !shape.is(index, table.relation));
            if is_written && matches!(Index::to_write(index), Upkeep::Unknown) {
                add(
                    format!("has index {named}, which is not on plain columns"),
                    format!("DROP INDEX jobs.{named};"),
                );
            }
            if !form.indisvalid {
                let costs = match form.indisready {
                    true => "each write maintains it, but no query uses it",
                    false => "nothing maintains or uses it, but it prevents HOT updates",
                };
                invalid.push(Difference {
                    what: format!("index jobs.{named} of table jobs.{name} is invalid: {costs}"),
                    mend: format!("DROP INDEX jobs.{named}; or, to keep it: REINDEX INDEX CONCURRENTLY jobs.{named};"),
                    index: Some(oid),
                });
            }
            pg_sys::index_close(index, pg_sys::NoLock as i32);
        }
        for index in missing {
            let named = index.name.as_str();
            let other = match index.name.oid() == pg_sys::InvalidOid {
                true => String::new(),
                false => format!("DROP INDEX IF EXISTS jobs.{named}; "),
            };
            add(
                format!("lacks its index {named} as it was created"),
                other + &index.definition(shape, table),
            );
        }
    }
    invalid
}
