//! Reading rows of our own tables: along an index, those of one page, or all of them.

use std::cell::UnsafeCell;

use pgrx::FromDatum;
use pgrx::itemptr::{item_pointer_get_block_number, item_pointer_set_all};
use pgrx::pg_sys::{
    self, BTEqualStrategyNumber as EQUAL, BTGreaterEqualStrategyNumber as FROM,
    BTGreaterStrategyNumber as ABOVE, BTLessEqualStrategyNumber as UP_TO, Datum, Oid,
};

use super::index::{Index, IndexShape};
use super::row::{NewRow, Row, Tid};
use super::table::Table;
use super::versions;

const FORWARD: pg_sys::ScanDirection::Type = pg_sys::ScanDirection::ForwardScanDirection;

impl Table {
    /// Hands over the rows of the page that this place is in.
    pub fn for_each_beside(&self, tid: Tid, seen: &Seen, work: impl FnMut(&Row)) {
        // SAFETY: it is where a row is.
        let page = unsafe { item_pointer_get_block_number(&tid) };
        let (mut first, mut last) = (tid, tid);
        item_pointer_set_all(&mut first, page, 1);
        item_pointer_set_all(&mut last, page, u16::MAX - 1);
        // SAFETY: the table is open, and the snapshot lives as long as the scan.
        unsafe {
            let scan = pg_sys::table_beginscan_tidrange(
                self.relation,
                seen.as_ptr(),
                &mut first,
                &mut last,
            );
            let next = |slot| pg_sys::table_scan_getnextslot_tidrange(scan, FORWARD, slot);
            self.walk(scan, seen, next, work);
        }
    }

    /// Hands over all rows, in no order.
    pub fn for_each(&self, seen: &Seen, work: impl FnMut(&Row)) {
        let none = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe {
            let scan = pg_sys::table_beginscan(self.relation, seen.as_ptr(), 0, none);
            let next = |slot| pg_sys::table_scan_getnextslot(scan, FORWARD, slot);
            self.walk(scan, seen, next, work);
        }
    }

    /// Hands over the rows of a scan, and ends it.
    unsafe fn walk(
        &self,
        scan: pg_sys::TableScanDesc,
        seen: &Seen,
        next: impl Fn(*mut pg_sys::TupleTableSlot) -> bool,
        mut work: impl FnMut(&Row),
    ) {
        // SAFETY: the scan is of this table.
        unsafe {
            let slot = pg_sys::table_slot_create(self.relation, std::ptr::null_mut());
            while next(slot) {
                pgrx::check_for_interrupts!();
                work(&seen.row_in(slot));
            }
            pg_sys::table_endscan(scan);
            pg_sys::ExecDropSingleTupleTableSlot(slot);
        }
    }

    /// Whether an index has no entry at all, also none of rows that are gone or just being
    /// inserted.
    pub fn is_empty(&self, index: &IndexShape) -> bool {
        let seen = Seen::dirty();
        let mut scan = self.scan(index, &seen, 0);
        scan.find(&[]);
        // SAFETY: the scan was begun.
        unsafe { pg_sys::index_getnext_tid(scan.scan, scan.direction).is_null() }
    }

    /// The first text in an index's first column that is above this one, of whatever row, be it one
    /// that is gone.
    pub fn first_above(&self, index: &IndexShape, text: Datum) -> Option<String> {
        let seen = Seen::now();
        let mut scan = self.scan(index, &seen, 1);
        // SAFETY: the scan is this function's own; the entry lives as long as it stays where it is.
        unsafe {
            (*scan.scan).xs_want_itup = true;
            scan.find(&[Key::text_above(1, text)]);
            if pg_sys::index_getnext_tid(scan.scan, scan.direction).is_null() {
                return None;
            }
            let mut values = [Datum::null(); pg_sys::INDEX_MAX_KEYS as usize];
            let mut nulls = [false; pg_sys::INDEX_MAX_KEYS as usize];
            let (entry, desc) = ((*scan.scan).xs_itup, (*scan.scan).xs_itupdesc);
            pg_sys::index_deform_tuple(entry, desc, values.as_mut_ptr(), nulls.as_mut_ptr());
            String::from_datum(values[0], nulls[0])
        }
    }

    /// Begins to scan the table along one of its indexes.
    pub fn scan<'a>(&'a self, index: &IndexShape, seen: &'a Seen, keys: usize) -> Scan<'a> {
        let is = |open: &&Index| match open.shape {
            Some(shape) => std::ptr::eq(shape, index),
            // SAFETY: an open index.
            None => unsafe { (*open.relation).rd_id == index.name.oid() },
        };
        let index = self.indexes.iter().find(is);
        let index = index.expect("the table has its indexes");
        // SAFETY: both are open, and the snapshot lives as long as the scan.
        unsafe {
            Scan {
                slot: pg_sys::table_slot_create(self.relation, std::ptr::null_mut()),
                scan: versions::begin_index_scan(
                    self.relation,
                    index.relation,
                    seen.as_ptr(),
                    keys,
                ),
                direction: FORWARD,
                seen,
            }
        }
    }
}

/// What a scan sees.
pub enum Seen {
    /// Rows of a snapshot taken when this was made or, by isolation level, when the transaction
    /// began.
    Snapshot(pg_sys::Snapshot),
    /// Also rows that others are just inserting or deleting; none that are gone.
    Dirty(Box<UnsafeCell<pg_sys::SnapshotData>>),
}

impl Seen {
    /// What is committed now, or what the transaction sees, and what it has done itself.
    pub fn now() -> Seen {
        // SAFETY: popped when this is dropped, or by Postgres after an error.
        unsafe {
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            Seen::Snapshot(pg_sys::GetActiveSnapshot())
        }
    }

    /// What is committed now, whatever the transaction sees, and what it has done itself.
    pub fn latest() -> Seen {
        // SAFETY: as above.
        unsafe {
            pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
            Seen::Snapshot(pg_sys::GetActiveSnapshot())
        }
    }

    /// What exists, visible or not.
    pub fn dirty() -> Seen {
        Seen::Dirty(Box::new(UnsafeCell::new(pg_sys::SnapshotData {
            snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            ..Default::default()
        })))
    }

    fn as_ptr(&self) -> pg_sys::Snapshot {
        match self {
            Seen::Snapshot(snapshot) => *snapshot,
            Seen::Dirty(snapshot) => snapshot.get(),
        }
    }

    /// The row that a scan has just found, and whether another session, still at it, is inserting
    /// or deleting it.
    fn row_in(&self, slot: *mut pg_sys::TupleTableSlot) -> Row {
        let [is_new, is_going] = match self {
            Seen::Snapshot(_) => [false; 2],
            Seen::Dirty(snapshot) => {
                // SAFETY: the scan has written it, and does not now.
                let snapshot = unsafe { &*snapshot.get() };
                [snapshot.xmin, snapshot.xmax].map(|other| other != pg_sys::InvalidTransactionId)
            }
        };
        Row { slot, is_in_progress: is_new || is_going, is_new }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if matches!(self, Seen::Snapshot(_)) && !std::thread::panicking() {
            // SAFETY: the one that now() or latest() pushed.
            unsafe { pg_sys::PopActiveSnapshot() };
        }
    }
}

/// A condition on a column of an index (from 1): equal to a value, above it, from or up to it.
pub struct Key {
    column: i16,
    strategy: u32,
    function: u32,
    value: Datum,
}

macro_rules! keys {
    ($($name:ident($type:ty): $strategy:ident $function:ident;)*) => {
        impl Key {$(
            pub fn $name(column: i16, value: $type) -> Key {
                let (strategy, function) = ($strategy, pg_sys::$function);
                let value = Datum::from(value);
                Key { column, strategy, function, value }
            }
        )*}
    };
}
keys! {
    text(Datum): EQUAL F_TEXTEQ;
    text_above(Datum): ABOVE F_TEXT_GT;
    bytes(Datum): EQUAL F_BYTEAEQ;
    big(i64): EQUAL F_INT8EQ;
    big_from(i64): FROM F_INT8GE;
    big_to(i64): UP_TO F_INT8LE;
    small(i16): EQUAL F_INT2EQ;
    small_from(i16): FROM F_INT2GE;
    small_to(i16): UP_TO F_INT2LE;
    char(u8): EQUAL F_CHAREQ;
    label(Datum): EQUAL F_ENUM_EQ;
    bool(bool): EQUAL F_BOOLEQ;
    at_from(i64): FROM F_TIMESTAMPTZ_GE;
    at_to(i64): UP_TO F_TIMESTAMPTZ_LE;
}

/// A scan along an index.
pub struct Scan<'a> {
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
    direction: pg_sys::ScanDirection::Type,
    seen: &'a Seen,
}

impl Scan<'_> {
    /// From the end of the index to its beginning. Of equal entries the last is mostly the
    /// youngest, and what a row was before it was updated needs not be walked over.
    pub fn backward(mut self) -> Self {
        self.direction = pg_sys::ScanDirection::BackwardScanDirection;
        self
    }

    /// Begins anew with other keys, as many as before.
    pub fn find(&mut self, keys: &[Key]) {
        // SAFETY: the scan copies the keys; collation C is that of all our columns.
        unsafe {
            let mut scan_keys: Vec<pg_sys::ScanKeyData> = vec![std::mem::zeroed(); keys.len()];
            for (scan_key, key) in scan_keys.iter_mut().zip(keys) {
                let function = Oid::from(key.function);
                pg_sys::ScanKeyInit(scan_key, key.column, key.strategy as u16, function, key.value);
            }
            assert_eq!((*self.scan).numberOfKeys as usize, keys.len());
            pg_sys::index_rescan(
                self.scan,
                scan_keys.as_mut_ptr(),
                keys.len() as i32,
                std::ptr::null_mut(),
                0,
            );
        }
    }

    /// Begins anew with other keys; the first row.
    pub fn first(&mut self, keys: &[Key]) -> Option<Row> {
        self.find(keys);
        self.next()
    }

    /// Shows a row once more that was copied.
    pub fn show(&mut self, row: NewRow) -> Row {
        // SAFETY: a row of the slot's table.
        unsafe { pg_sys::ExecForceStoreHeapTuple(row.0, self.slot, true) };
        Row { slot: self.slot, is_in_progress: false, is_new: false }
    }

    pub fn next(&mut self) -> Option<Row> {
        // SAFETY: the scan was begun; the slot is of its table.
        let found = unsafe { pg_sys::index_getnext_slot(self.scan, self.direction, self.slot) };
        found.then(|| self.seen.row_in(self.slot))
    }

    /// After a row: the next one, else the first along one of these sets of keys.
    pub fn next_along<'k, const KEYS: usize>(
        &mut self,
        sets: &mut impl Iterator<Item = &'k [Key; KEYS]>,
    ) -> Option<Row> {
        self.next().or_else(|| sets.find_map(|keys| self.first(keys)))
    }

    /// Right after [`Scan::find`]: whether there is a row; `None` if the index has no entry either,
    /// not even of a row that this scan does not see.
    pub fn look(&mut self) -> Option<bool> {
        let mut has_entry = None;
        // SAFETY: as above.
        unsafe {
            while !pg_sys::index_getnext_tid(self.scan, self.direction).is_null() {
                if pg_sys::index_fetch_heap(self.scan, self.slot) {
                    return Some(true);
                }
                has_entry = Some(false);
            }
        }
        has_entry
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: begun by scan().
        unsafe {
            pg_sys::index_endscan(self.scan);
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
        }
    }
}
