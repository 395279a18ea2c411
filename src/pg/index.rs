//! Indexes of our own tables: what they are as the install script makes them, which rows are in
//! them, and how an entry gets into one.
//!
//! What an index is stands in the catalog, whatever it is called: it may have been dropped and
//! made another one of the same name, or left one behind that was never finished.

use pgrx::pg_sys::{self, Datum, NodeTag, Oid, Relation};

use super::name::Name;
use super::row::Row;
use super::table::{Shape, Table, members};
use super::versions;

/// The order of times, of "char", of enums and of booleans. Postgres has no words for them.
const DATETIME_FAMILY: Oid = Oid::from_u32(434);
const CHAR_FAMILY: Oid = Oid::from_u32(429);
const ENUM_FAMILY: Oid = Oid::from_u32(3522);
const BOOL_FAMILY: Oid = Oid::from_u32(424);

/// An index as its install script makes it: a B-tree, ascending, texts in the order of their bytes.
pub struct IndexShape {
    pub name: Name,
    /// Its columns, as numbers of the table's.
    pub columns: &'static [i32],
    pub is_unique: bool,
    /// Which rows it has; `None` for all.
    pub predicate: Option<Predicate>,
}

/// What the rows of a partial index have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Predicate {
    /// This column (from 1) is not null.
    NotNull(i32),
    /// These two bigint columns differ.
    Differ(i32, i32),
}

impl IndexShape {
    /// The index of a primary key.
    pub const fn key(name: &'static std::ffi::CStr, columns: &'static [i32]) -> IndexShape {
        IndexShape { is_unique: true, ..IndexShape::of_all(name, columns) }
    }

    /// Another index of all rows.
    pub const fn of_all(name: &'static std::ffi::CStr, columns: &'static [i32]) -> IndexShape {
        IndexShape { name: Name::new(name), columns, is_unique: false, predicate: None }
    }

    /// The statement that makes it.
    pub(super) unsafe fn definition(&self, shape: &Shape, table: &Table) -> String {
        // SAFETY: the table is open.
        let columns = unsafe { versions::columns((*table.relation).rd_att) };
        let column = |number: i32| pgrx::name_data_to_str(&columns[number as usize - 1].attname);
        let (name, of) = (self.name.as_str(), shape.name.as_str());
        let on: Vec<&str> = self.columns.iter().map(|number| column(*number)).collect();
        let on = on.join(", ");
        if self.is_unique {
            return format!("ALTER TABLE jobs.{of} ADD CONSTRAINT {name} PRIMARY KEY ({on});");
        }
        let rows = match self.predicate {
            None => String::new(),
            Some(Predicate::NotNull(one)) => format!(" WHERE {} IS NOT NULL", column(one)),
            Some(Predicate::Differ(one, other)) => {
                format!(" WHERE {} <> {}", column(one), column(other))
            }
        };
        format!("CREATE INDEX {name} ON jobs.{of} ({on}){rows};")
    }

    /// Whether an open index of a table is this one, and rows can be looked for along it.
    pub(super) unsafe fn is(&self, index: Relation, table: Relation) -> bool {
        // SAFETY: both are open.
        unsafe {
            if (*index).rd_id != self.name.oid() {
                return false;
            }
            let (form, count) = (&*(*index).rd_index, self.columns.len());
            let columns = versions::columns((*table).rd_att);
            let is_in_order = |(n, column): (usize, &i32)| {
                let (family, collation) = order_of(columns[*column as usize - 1].atttypid);
                *(*index).rd_opfamily.add(n) == family
                    && *(*index).rd_indcollation.add(n) == collation
                    && *(*index).rd_indoption.add(n) == 0
            };
            let is_on = |numbers: &[i16]| {
                let numbers = numbers.iter().copied().map(i32::from);
                numbers.eq(self.columns.iter().copied())
            };
            form.indisvalid
                && form.indrelid == (*table).rd_id
                && (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
                && form.indnkeyatts as usize == count
                && is_on(form.indkey.values.as_slice(count))
                && (!self.is_unique || form.indisunique && form.indimmediate)
                && self.columns.iter().enumerate().all(is_in_order)
                && Predicate::of(index) == Some(self.predicate)
                && (!form.indcheckxmin || is_old(index))
        }
    }
}

/// The order of a type's values in an index: operator family and collation.
fn order_of(of: Oid) -> (Oid, Oid) {
    let none = pg_sys::InvalidOid;
    match of {
        pg_sys::TEXTOID => (pg_sys::TEXT_BTREE_FAM_OID, pg_sys::C_COLLATION_OID),
        pg_sys::INT8OID | pg_sys::INT4OID | pg_sys::INT2OID => {
            (pg_sys::INTEGER_BTREE_FAM_OID, none)
        }
        pg_sys::TIMESTAMPTZOID => (DATETIME_FAMILY, none),
        pg_sys::BOOLOID => (BOOL_FAMILY, none),
        pg_sys::CHAROID => (CHAR_FAMILY, none),
        pg_sys::BYTEAOID => (pg_sys::BYTEA_BTREE_FAM_OID, none),
        _ => (ENUM_FAMILY, none),
    }
}

/// Whether no snapshot of this transaction can show a row that an index lacks because it was made
/// when that was changed already.
unsafe fn is_old(index: Relation) -> bool {
    // SAFETY: the index is open.
    unsafe {
        let row = &*(*(*index).rd_indextuple).t_data;
        let frozen = pg_sys::HEAP_XMIN_FROZEN as u16;
        row.t_infomask & frozen == frozen
            || pg_sys::TransactionIdPrecedes(row.t_choice.t_heap.t_xmin, pg_sys::TransactionXmin)
    }
}

impl Predicate {
    /// Which rows are in an index; the inner `None`: all. `None`: it is none of these.
    unsafe fn of(index: Relation) -> Option<Option<Predicate>> {
        // SAFETY: the index is open.
        unsafe {
            if is_null((*index).rd_indextuple, pg_sys::Anum_pg_index_indpred) {
                return Some(None);
            }
            if (*index).rd_indpred.is_null() {
                // Reads it, and keeps it with the index.
                pg_sys::RelationGetIndexPredicate(index);
            }
            let [condition] = members((*index).rd_indpred) else {
                return None;
            };
            Predicate::read(condition.ptr_value.cast()).map(Some)
        }
    }

    unsafe fn read(condition: *mut pg_sys::Node) -> Option<Predicate> {
        // SAFETY: a node of the server's, of the type that it says.
        unsafe {
            match (*condition).type_ {
                NodeTag::T_NullTest => {
                    let test = &*condition.cast::<pg_sys::NullTest>();
                    let is_not_null = test.nulltesttype == pg_sys::NullTestType::IS_NOT_NULL;
                    let column = column_of(test.arg.cast())?;
                    (is_not_null && !test.argisrow).then_some(Predicate::NotNull(column))
                }
                NodeTag::T_OpExpr => {
                    let compared = &*condition.cast::<pg_sys::OpExpr>();
                    let [one, other] = members(compared.args) else {
                        return None;
                    };
                    let differ = Predicate::Differ(
                        column_of(one.ptr_value.cast())?,
                        column_of(other.ptr_value.cast())?,
                    );
                    (compared.opfuncid == Oid::from(pg_sys::F_INT8NE)).then_some(differ)
                }
                _ => None,
            }
        }
    }

    fn holds(self, row: &Row) -> bool {
        match self {
            Predicate::NotNull(column) => row.datum(column).is_some(),
            Predicate::Differ(one, other) => {
                let (one, other) = (row.big(one), row.big(other));
                one.is_some() && other.is_some() && one != other
            }
        }
    }
}

/// The number of the column that an expression is.
unsafe fn column_of(of: *mut pg_sys::Node) -> Option<i32> {
    // SAFETY: a node of the server's, of the type that it says.
    unsafe {
        let is_column = (*of).type_ == NodeTag::T_Var;
        let number = is_column.then(|| i32::from((*of.cast::<pg_sys::Var>()).varattno));
        number.filter(|number| *number > 0)
    }
}

pub(super) struct Index {
    pub(super) relation: Relation,
    /// What it was opened as, if it was opened by its name: a while later the name may be that of
    /// another one (REINDEX .. CONCURRENTLY), which is not open.
    pub(super) shape: Option<&'static IndexShape>,
    predicate: Option<Predicate>,
}

/// What there is to do about an index when a row is written.
pub(super) enum Upkeep {
    Entry(Index),
    /// The index is not ready yet, or never will be.
    Nothing,
    /// The index needs more than this module does.
    Unknown,
}

impl Index {
    /// One that is only looked into.
    pub(super) fn to_read(relation: Relation, shape: &'static IndexShape) -> Index {
        Index { relation, shape: Some(shape), predicate: None }
    }

    /// What is to be done for an open index where a row is written.
    pub(super) unsafe fn to_write(relation: Relation) -> Upkeep {
        // SAFETY: the index is open.
        unsafe {
            let form = &*(*relation).rd_index;
            if !form.indisready {
                return Upkeep::Nothing;
            }
            let has_columns = is_null((*relation).rd_indextuple, pg_sys::Anum_pg_index_indexprs);
            let is_plain = (*(*relation).rd_rel).relam == pg_sys::BTREE_AM_OID
                && !form.indisexclusion
                && (!form.indisunique || form.indimmediate)
                && has_columns;
            match Predicate::of(relation).filter(|_| is_plain) {
                None => Upkeep::Unknown,
                Some(predicate) => Upkeep::Entry(Index { relation, shape: None, predicate }),
            }
        }
    }

    /// Inserts an entry for a row that was just written; whether there is no other row like it, as
    /// far as that is asked.
    pub(super) unsafe fn insert(&self, table: Relation, row: &Row, duplicates: Duplicates) -> bool {
        if self.predicate.is_some_and(|predicate| !predicate.holds(row)) {
            return true;
        }
        // SAFETY: the index is open, and its columns are the table's.
        unsafe {
            let form = &*(*self.relation).rd_index;
            let mut values = [Datum::null(); pg_sys::INDEX_MAX_KEYS as usize];
            let mut nulls = [false; pg_sys::INDEX_MAX_KEYS as usize];
            let columns = form.indkey.values.as_slice(form.indnatts as usize);
            for (n, column) in columns.iter().enumerate() {
                let value = row.datum(i32::from(*column));
                (values[n], nulls[n]) = (value.unwrap_or(Datum::null()), value.is_none());
            }
            let check = match duplicates {
                _ if !form.indisunique => pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO,
                Duplicates::None => pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO,
                Duplicates::Refuse | Duplicates::RefuseOthers => {
                    pg_sys::IndexUniqueCheck::UNIQUE_CHECK_YES
                }
                Duplicates::Tell => pg_sys::IndexUniqueCheck::UNIQUE_CHECK_PARTIAL,
            };
            // Then there may be entries of older versions to be cleared away.
            let is_unchanged = matches!(duplicates, Duplicates::None | Duplicates::RefuseOthers);
            let (values, nulls, mut tid) = (values.as_mut_ptr(), nulls.as_mut_ptr(), row.tid());
            // Of no use to a btree.
            let mut info = pg_sys::IndexInfo::default();
            let is_first = pg_sys::index_insert(
                self.relation,
                values,
                nulls,
                &mut tid,
                table,
                check,
                is_unchanged,
                &mut info,
            );
            is_first || check != pg_sys::IndexUniqueCheck::UNIQUE_CHECK_PARTIAL
        }
    }
}

/// What to do about a row like another one in a unique index.
#[derive(Clone, Copy)]
pub(super) enum Duplicates {
    /// Reports a duplicate, and waits for no other transaction.
    Tell,
    /// Raises an error, after waiting for transactions that insert or delete the duplicate.
    Refuse,
    /// As [`Duplicates::Refuse`]; older versions of the row itself are none.
    RefuseOthers,
    /// Older versions of the row itself are the only duplicates.
    None,
}

/// Whether a column (from 1) of a catalogue's row is null.
unsafe fn is_null(row: pg_sys::HeapTuple, column: u32) -> bool {
    // SAFETY: a row that has nulls has a bit for each column, and it is set where there is a value.
    unsafe {
        let header = &*(*row).t_data;
        let bit = column as usize - 1;
        u32::from(header.t_infomask) & pg_sys::HEAP_HASNULL != 0
            && *header.t_bits.as_ptr().add(bit / 8) & 1 << (bit % 8) == 0
    }
}
