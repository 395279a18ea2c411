//! A look at what no snapshot shows: rows that other transactions are just inserting.

use pgrx::pg_sys::{self, Datum, Oid};

use super::versions;

/// What there is, whatever snapshots show.
#[derive(PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// a row that is there to stay, be it locked
    Row,
    /// a row that another transaction, still open, has inserted or is deleting
    InProgress,
}

/// What there is with this bytea as the first column of the index.
pub fn look(table: Oid, index: Oid, value: Datum) -> Found {
    // SAFETY: the sequence of any index scan; an error unwinds and Postgres cleans up.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let table = pg_sys::table_open(table, lock);
        let index = pg_sys::index_open(index, lock);
        let slot = pg_sys::table_slot_create(table, std::ptr::null_mut());
        let mut snapshot = pg_sys::SnapshotData {
            snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            ..std::mem::zeroed()
        };
        let mut key: pg_sys::ScanKeyData = std::mem::zeroed();
        pg_sys::ScanKeyInit(
            &mut key,
            1,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::Oid::from(pg_sys::F_BYTEAEQ),
            value,
        );
        let scan = versions::begin_index_scan(table, index, &mut snapshot, 1);
        pg_sys::index_rescan(scan, &mut key, 1, std::ptr::null_mut(), 0);
        let mut found = Found::Nothing;
        // A dirty snapshot says of each row which open transaction, not our own, made or
        // is deleting it.
        while found != Found::InProgress
            && pg_sys::index_getnext_slot(scan, pg_sys::ScanDirection::ForwardScanDirection, slot)
        {
            let others = [snapshot.xmin, snapshot.xmax];
            found = match others.iter().all(|id| *id == pg_sys::InvalidTransactionId) {
                true => Found::Row,
                false => Found::InProgress,
            };
        }
        pg_sys::index_endscan(scan);
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        pg_sys::index_close(index, lock);
        pg_sys::table_close(table, lock);
        found
    }
}
