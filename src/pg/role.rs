//! Acting as somebody else for a while.

use pgrx::pg_sys::{self, Datum, Oid};

/// Runs `work` with the rights of a role and nothing more: what others may have attached
/// to the tables must not run as superuser, and no operator in a caller's schema may run at all.
/// An abort restores role and search_path by itself.
pub fn as_role<T>(role: Oid, work: impl FnOnce() -> T) -> T {
    let (mut before, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: saves, sets and restores within one transaction.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut before, &mut context);
        pg_sys::SetUserIdAndSecContext(
            role,
            context
                | (pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION)
                    as i32,
        );
        let nesting = pg_sys::NewGUCNestLevel();
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            c"pg_catalog, pg_temp".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        let done = work();
        pg_sys::AtEOXact_GUC(false, nesting);
        pg_sys::SetUserIdAndSecContext(before, context);
        done
    }
}

/// The owner of a function or procedure; `None` if it is gone.
pub fn owner_of(function: Oid) -> Option<Oid> {
    // SAFETY: a catalog look-up with the type that the cache has; the row is read while it is held.
    unsafe {
        let row = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::PROCOID as i32,
            Datum::from(function),
        );
        if row.is_null() {
            return None;
        }
        let owner = (*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_proc>()).proowner;
        pg_sys::ReleaseSysCache(row);
        Some(owner)
    }
}
