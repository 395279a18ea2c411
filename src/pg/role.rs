//! Acting as another role for a while.

use pgrx::pg_sys::{self, FunctionCallInfo, Oid, SysCacheIdentifier};
use pgrx::prelude::*;

use super::{catalog_rows, path, text};

/// Runs `work` with the rights of a role and nothing more: what others may have attached
/// to the tables must not run as superuser, and no operator in a caller's schema may run at all.
pub fn as_role<T>(role: Oid, work: impl FnOnce() -> T) -> T {
    let restricted = pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION;
    switched(role, restricted, || {
        // SAFETY: begun and ended within one transaction.
        let nesting = unsafe { pg_sys::NewGUCNestLevel() };
        let done = path::pinned(work);
        // What it has set is as it was, too.
        // SAFETY: ends what was begun above.
        unsafe { pg_sys::AtEOXact_GUC(false, nesting) };
        done
    })
}

/// Runs `work` with the rights of the owner of the function that is called, as SECURITY DEFINER
/// would, but without setting a search_path, which takes a twentieth of an insert: what runs as a
/// statement gets one from [`super::spi`].
pub fn as_definer<T>(function: Oid, work: impl FnOnce() -> T) -> T {
    let owner = owner_of(function);
    switched(owner, pg_sys::SECURITY_LOCAL_USERID_CHANGE, work)
}

/// An abort switches back by itself.
fn switched<T>(role: Oid, security: u32, work: impl FnOnce() -> T) -> T {
    let (mut before, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: saves, sets and restores within one transaction.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut before, &mut context);
        pg_sys::SetUserIdAndSecContext(role, context | security as i32);
        let done = work();
        pg_sys::SetUserIdAndSecContext(before, context);
        done
    }
}

pub fn current() -> Oid {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetUserId() }
}

/// The name of the role that the session acts as, by SET ROLE or as it logged in, whichever role
/// owns the functions that are being called.
pub fn caller() -> String {
    // SAFETY: the server allocates the name of a role, and null says that it was dropped.
    unsafe {
        let role = pg_sys::GetOuterUserId();
        let name = pg_sys::GetUserNameFromId(role, true);
        match name.is_null() {
            true => role.to_u32().to_string(),
            false => text::copied(name),
        }
    }
}

/// The function or procedure that is being called.
pub fn called(call: FunctionCallInfo) -> Oid {
    // SAFETY: set by the caller.
    unsafe { (*(*call).flinfo).fn_oid }
}

/// The owner of the function or procedure that was called. An error if it has been dropped
/// meanwhile.
pub fn owner_of(function: Oid) -> Oid {
    let owner = |function: &pg_sys::FormData_pg_proc| function.proowner;
    // SAFETY: that is what the cache has.
    let Some(owner) = (unsafe { catalog_rows::read(SysCacheIdentifier::PROCOID, function, owner) })
    else {
        ereport!(
            ERROR,
            PgSqlErrorCode::ERRCODE_UNDEFINED_FUNCTION,
            "the function that was called has been dropped"
        );
    };
    owner
}
