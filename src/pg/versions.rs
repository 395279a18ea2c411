//! What differs between the majors of Postgres: all of it is here.

use pgrx::pg_sys::{self, IndexScanDesc, Relation, Snapshot};

/// Begins to scan a table along one of its indexes, both open. The snapshot must live as long as
/// the scan.
pub unsafe fn begin_index_scan(
    table: Relation,
    index: Relation,
    snapshot: Snapshot,
    keys: usize,
) -> IndexScanDesc {
    let keys = keys as i32;
    // SAFETY: as the caller promises.
    #[cfg(not(feature = "pg18"))]
    unsafe {
        pg_sys::index_beginscan(table, index, snapshot, keys, 0)
    }
    // SAFETY: as the caller promises.
    #[cfg(feature = "pg18")]
    unsafe {
        let nobody_counts = std::ptr::null_mut();
        pg_sys::index_beginscan(table, index, snapshot, nobody_counts, keys, 0)
    }
}

/// What `simple_table_tuple_update` says about the indexes.
#[cfg(feature = "pg15")]
pub type IndexUpdates = bool;
/// What `simple_table_tuple_update` says about the indexes.
#[cfg(not(feature = "pg15"))]
pub type IndexUpdates = pg_sys::TU_UpdateIndexes::Type;

/// Whether an update needs new entries in the indexes. Those that sum up whole pages are not ours.
pub fn has_moved(indexes: IndexUpdates) -> bool {
    #[cfg(feature = "pg15")]
    return indexes;
    #[cfg(not(feature = "pg15"))]
    return indexes == pg_sys::TU_UpdateIndexes::TU_All;
}

pub unsafe fn columns<'a>(row: pg_sys::TupleDesc) -> &'a [pg_sys::FormData_pg_attribute] {
    // SAFETY: a row's description has as many columns as it says.
    unsafe {
        let count = (*row).natts as usize;
        #[cfg(not(feature = "pg18"))]
        return (*row).attrs.as_slice(count);
        // They follow each other, behind a shorter form of them.
        #[cfg(feature = "pg18")]
        return match count {
            0 => &[],
            _ => std::slice::from_raw_parts(pg_sys::TupleDescAttr(row, 0), count),
        };
    }
}

/// Whether some of a table's columns are computed from others.
pub fn has_generated(constraints: &pg_sys::TupleConstr) -> bool {
    #[cfg(feature = "pg18")]
    return constraints.has_generated_stored || constraints.has_generated_virtual;
    #[cfg(not(feature = "pg18"))]
    return constraints.has_generated_stored;
}

/// This session's counter of its transactions.
pub fn local_transaction() -> u32 {
    // SAFETY: reads a variable of this process.
    unsafe {
        let process = &*pg_sys::MyProc;
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return process.lxid;
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return process.vxid.lxid;
    }
}

/// Has a signal of this process handled by this function.
pub unsafe fn handle_signal(signal: u32, handler: unsafe extern "C-unwind" fn(i32)) {
    // SAFETY: as the caller promises.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(signal as i32, Some(handler));
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(signal as i32, Some(handler));
    }
}

/// A date and time in fields, as `DecodeDateTime` reads them.
#[derive(Default)]
pub struct DateTime {
    /// `DTK_DATE` for a finite time.
    pub kind: i32,
    /// Year to second.
    pub parts: pg_sys::pg_tm,
    pub fraction: pg_sys::fsec_t,
    /// Seconds west of UTC.
    pub zone: i32,
}

/// Reads a date and time that is cut into fields; nothing if it is none.
pub unsafe fn decode_date_time(
    start: *mut *mut std::ffi::c_char,
    kind: *mut i32,
    count: i32,
) -> Option<DateTime> {
    let mut found = DateTime::default();
    #[cfg(not(feature = "pg15"))]
    let mut bad_zone = pg_sys::DateTimeErrorExtra::default();
    // SAFETY: the parts live through the call, and there are as many as it is told.
    let code = unsafe {
        pg_sys::DecodeDateTime(
            start,
            kind,
            count,
            &mut found.kind,
            &mut found.parts,
            &mut found.fraction,
            &mut found.zone,
            #[cfg(not(feature = "pg15"))]
            &mut bad_zone,
        )
    };
    (code == 0).then_some(found)
}

/// Whether a role has the rights of the owner of an extension.
pub fn owns_extension(extension: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: catalog look-ups; an error if the extension is gone.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::pg_extension_ownercheck(extension, role);
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_ownercheck(pg_sys::ExtensionRelationId, extension, role);
    }
}
