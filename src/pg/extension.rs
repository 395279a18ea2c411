//! The extension as the catalog has it: whose it is, and whether the schema `jobs` is its own.
//!
//! All that the extension has is looked up by name in the schema `jobs`, and used with the rights of its owner. So before
//! anything is looked up, it is asked whether that schema is the extension's: a superuser may have renamed it, and somebody
//! else made one of that name.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Datum, Oid, SysCacheIdentifier};
use pgrx::prelude::*;

use super::versions;

/// The extension and its schema.
const NAME: &CStr = c"jobs";

/// The object id of the schema, once it is known to be the extension's; 0: it is to be looked at.
static SCHEMA: AtomicU32 = AtomicU32::new(0);
/// How often it was forgotten, from 1 on; 0: nobody has told Postgres to tell us of changes.
static FORGOTTEN: AtomicU32 = AtomicU32::new(0);

/// The schema `jobs`. An error unless it is the extension's: 55000, or 3F000 where there is neither.
///
/// Asked for before every statement, so it is looked at only once, and again when some schema has been changed.
#[inline]
pub fn schema() -> Oid {
    match SCHEMA.load(Ordering::Relaxed) {
        0 => look().unwrap_or_else(|displaced| {
            displaced.report().report(PgLogLevel::ERROR);
            unreachable!("reporting an error does not return")
        }),
        known => Oid::from(known),
    }
}

/// The same as a question, for who goes on without it: what is wrong, if anything is.
pub fn complaint() -> Option<ErrorReport> {
    match SCHEMA.load(Ordering::Relaxed) {
        0 => look().err().map(|displaced| displaced.report()),
        _ => None,
    }
}

/// Whether a role has the rights of the extension's owner: it is that role, a member of it, or a superuser.
pub fn is_owned_by(role: Oid) -> bool {
    // SAFETY: a catalog look-up; an error where there is no extension.
    let extension = unsafe { pg_sys::get_extension_oid(NAME.as_ptr(), false) };
    versions::owns_extension(extension, role)
}

/// Runs `work` as if a script of the extension had not called it: what is granted and revoked then is not noted as what
/// the extension itself comes with, which dumps leave out.
pub fn by_hand<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a variable of this process; after an error Postgres resets it with the script.
    unsafe {
        let is_script = pg_sys::creating_extension;
        pg_sys::creating_extension = false;
        let done = work();
        pg_sys::creating_extension = is_script;
        done
    }
}

/// The schema `jobs` is another one, or somebody else's.
struct Displaced {
    extension: Oid,
    /// what is called so
    found: Oid,
}

#[cold]
fn look() -> Result<Oid, Displaced> {
    if FORGOTTEN.load(Ordering::Relaxed) == 0 {
        FORGOTTEN.store(1, Ordering::Relaxed);
        let cache = SysCacheIdentifier::NAMESPACENAME as i32;
        // SAFETY: once a session; the callback lives as long as the library, which is never unloaded.
        unsafe { pg_sys::CacheRegisterSyscacheCallback(cache, Some(forget), Datum::null()) };
    }
    let before = FORGOTTEN.load(Ordering::Relaxed);
    // SAFETY: look-ups in the catalog.
    let (extension, found) = unsafe {
        let extension = pg_sys::get_extension_oid(NAME.as_ptr(), true);
        // Without an extension there is mostly no such schema either, which Postgres says itself.
        let may_miss = extension != pg_sys::InvalidOid;
        (
            extension,
            pg_sys::get_namespace_oid(NAME.as_ptr(), may_miss),
        )
    };
    let is_ours = found != pg_sys::InvalidOid
        && is_member(found, extension)
        && versions::owns_extension(extension, owner_of_schema(found));
    if !is_ours {
        return Err(Displaced { extension, found });
    }
    // What was heard of meanwhile may be later than what was seen.
    if FORGOTTEN.load(Ordering::Relaxed) == before {
        SCHEMA.store(found.to_u32(), Ordering::Relaxed);
    }
    Ok(found)
}

#[pg_guard]
unsafe extern "C-unwind" fn forget(_argument: Datum, _cache: i32, _hash: u32) {
    SCHEMA.store(0, Ordering::Relaxed);
    let next = FORGOTTEN.load(Ordering::Relaxed).wrapping_add(1).max(1);
    FORGOTTEN.store(next, Ordering::Relaxed);
}

/// Whether a schema is a member of an extension.
fn is_member(schema: Oid, extension: Oid) -> bool {
    // SAFETY: a catalog look-up.
    let of = unsafe { pg_sys::getExtensionOfObject(pg_sys::NamespaceRelationId, schema) };
    of == extension && of != pg_sys::InvalidOid
}

/// The owner of a schema; invalid if it has just been dropped.
fn owner_of_schema(schema: Oid) -> Oid {
    // SAFETY: a catalog look-up with the type that the cache has; the row is read while it is held.
    unsafe {
        let cache = SysCacheIdentifier::NAMESPACEOID as i32;
        let row = pg_sys::SearchSysCache1(cache, Datum::from(schema));
        if row.is_null() {
            return pg_sys::InvalidOid;
        }
        let owner = (*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_namespace>()).nspowner;
        pg_sys::ReleaseSysCache(row);
        owner
    }
}

/// The schema that belongs to an extension, and its name as it stands in statements.
fn schema_of(extension: Oid) -> Option<(Oid, String)> {
    let mut found = None;
    // SAFETY: reads a catalog from beginning to end.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let table = pg_sys::table_open(pg_sys::NamespaceRelationId, lock);
        let scan = pg_sys::table_beginscan_catalog(table, 0, std::ptr::null_mut());
        while found.is_none() {
            let row = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if row.is_null() {
                break;
            }
            let schema = &*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_namespace>();
            if is_member(schema.oid, extension) {
                let name = pg_sys::quote_identifier(schema.nspname.data.as_ptr());
                found = Some((schema.oid, CStr::from_ptr(name).to_string_lossy().into()));
            }
        }
        pg_sys::table_endscan(scan);
        pg_sys::table_close(table, lock);
    }
    found
}

impl Displaced {
    /// What is wrong, and what mends it.
    fn report(&self) -> ErrorReport {
        let hint = match schema_of(self.extension) {
            Some((own, _)) if own == self.found => {
                "Give it back: ALTER SCHEMA jobs OWNER TO the role that SELECT extowner::regrole FROM pg_extension WHERE extname = 'jobs' shows.".into()
            }
            Some((_, name)) => {
                let first = match self.found == pg_sys::InvalidOid {
                    true => "",
                    false => " once the other one has made room",
                };
                format!("Give it its name back: ALTER SCHEMA {name} RENAME TO jobs{first}.")
            }
            None => "The extension has no schema any more: DROP EXTENSION jobs, then CREATE EXTENSION jobs.".into(),
        };
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "schema \"jobs\" is not that of the extension \"jobs\"",
            "jobs",
        )
        .set_detail(
            "The extension's schema was renamed, or is owned by another role than the extension.",
        )
        .set_hint(hint)
    }
}
