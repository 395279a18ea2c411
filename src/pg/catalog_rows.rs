//! Rows of Postgres' own catalogs, read without statements.

use pgrx::pg_sys::{self, Datum, Oid, SysCacheIdentifier};

/// Reads the row of an object that a cache has; `None`: there is no such object. The rows of the
/// cache begin as `Form`.
pub unsafe fn read<Form, T>(
    cache: SysCacheIdentifier::Type,
    object: Oid,
    read: impl FnOnce(&Form) -> T,
) -> Option<T> {
    // SAFETY: the row is held while it is read, and is as the caller promises.
    unsafe {
        let row = pg_sys::SearchSysCache1(cache as i32, Datum::from(object));
        if row.is_null() {
            return None;
        }
        let found = read(&*pg_sys::GETSTRUCT(row).cast());
        pg_sys::ReleaseSysCache(row);
        Some(found)
    }
}

/// Hands over all rows of a catalog, which begin as `Form`.
pub unsafe fn for_each<Form>(catalog: Oid, mut work: impl FnMut(&Form)) {
    // SAFETY: rows are read while the scan is open, and are as the caller promises.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let table = pg_sys::table_open(catalog, lock);
        let scan = pg_sys::table_beginscan_catalog(table, 0, std::ptr::null_mut());
        while let Some(row) =
            pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection).as_mut()
        {
            work(&*pg_sys::GETSTRUCT(row).cast());
        }
        pg_sys::table_endscan(scan);
        pg_sys::table_close(table, lock);
    }
}
