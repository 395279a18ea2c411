//! A row of one of our own tables: one that was found, and one that is yet to be inserted.

use pgrx::FromDatum;
use pgrx::pg_sys::{self, Datum};

/// A column's value; `None` is null.
pub type Value = Option<Datum>;

/// Where a version of a row is. It stays there while this transaction has it locked, and, even if
/// another session deletes it, while the transaction has a snapshot from before: that of the
/// statement that called us, or the worker's own.
pub type Tid = pg_sys::ItemPointerData;

/// A row that a scan has found. What is read of it points into it, and it is gone with the next.
pub struct Row {
    pub(super) slot: *mut pg_sys::TupleTableSlot,
    /// Another transaction is inserting or deleting it.
    pub is_in_progress: bool,
    /// Another transaction is inserting it.
    pub is_new: bool,
}

impl Row {
    /// A column (from 1).
    pub fn datum(&self, column: i32) -> Value {
        // SAFETY: the callers know the table's columns.
        unsafe {
            let (slot, n) = (self.slot, column as usize - 1);
            if i32::from((*slot).tts_nvalid) < column {
                pg_sys::slot_getsomeattrs_int(slot, column);
            }
            (!*(*slot).tts_isnull.add(n)).then_some(*(*slot).tts_values.add(n))
        }
    }

    /// A column that is a bigint or a timestamptz.
    pub fn big(&self, column: i32) -> Option<i64> {
        self.datum(column).map(|datum| datum.value() as i64)
    }

    pub fn int(&self, column: i32) -> Option<i32> {
        self.datum(column).map(|datum| datum.value() as i32)
    }

    pub fn small(&self, column: i32) -> Option<i16> {
        self.datum(column).map(|datum| datum.value() as i16)
    }

    pub fn bool(&self, column: i32) -> Option<bool> {
        self.datum(column).map(|datum| datum.value() != 0)
    }

    /// A column that is bigint[] without nulls.
    pub fn bigs(&self, column: i32) -> Option<Vec<i64>> {
        // SAFETY: the column is bigint[].
        self.datum(column).and_then(|datum| unsafe { Vec::<i64>::from_datum(datum, false) })
    }

    pub fn bytes(&self, column: i32) -> Option<&[u8]> {
        // SAFETY: the column is bytea; it points into the row, or into the memory of the call.
        self.datum(column).and_then(|datum| unsafe { <&[u8]>::from_datum(datum, false) })
    }

    /// A column that is text, in place where it can be.
    pub fn str(&self, column: i32) -> Option<&str> {
        // SAFETY: the column is text; it points into the row, or into the memory of the call.
        self.datum(column).and_then(|datum| unsafe { <&str>::from_datum(datum, false) })
    }

    pub fn text(&self, column: i32) -> Option<String> {
        // SAFETY: the column is text.
        self.datum(column).and_then(|datum| unsafe { String::from_datum(datum, false) })
    }

    /// A copy, which outlives the next row.
    pub fn copy(&self) -> NewRow {
        let mut is_copy = false;
        // SAFETY: the slot has a row.
        unsafe {
            let row = pg_sys::ExecFetchSlotHeapTuple(self.slot, false, &mut is_copy);
            NewRow(if is_copy { row } else { pg_sys::heap_copytuple(row) })
        }
    }

    pub fn tid(&self) -> Tid {
        // SAFETY: the slot has a row.
        unsafe { (*self.slot).tts_tid }
    }
}

/// A row that is yet to be inserted, or that was kept. It has copied its values.
pub struct NewRow(pub(super) pg_sys::HeapTuple);

impl NewRow {
    /// Puts it into a slot, which owns it from now on: it would have to make a copy of what is
    /// not its own.
    pub(super) unsafe fn store(self, slot: *mut pg_sys::TupleTableSlot) {
        // SAFETY: a slot of rows of this kind, as the caller promises.
        unsafe { pg_sys::ExecStoreHeapTuple(self.0, slot, true) };
    }
}
