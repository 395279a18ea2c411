//! The extension as the catalog has it: whose it is, and whether the schema `jobs` is its own.
//!
//! All that the extension has is looked up by name in the schema `jobs`, and used with the rights
//! of its owner. So before anything is looked up, it is asked whether that schema is the
//! extension's: a superuser may have renamed it, and another role made one of that name.

use std::ffi::CStr;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Oid, SysCacheIdentifier};
use pgrx::prelude::*;

use super::remembered::Remembered;
use super::{catalog_rows, text, versions};

/// The extension and its schema.
const NAME: &CStr = c"jobs";

/// The object id of the schema, once it is known to be the extension's.
static SCHEMA: Remembered = Remembered::nothing();

/// The schema `jobs`. An error unless it is the extension's: 55000, or 3F000 where there is
/// neither.
///
/// Asked for before every statement, so it is looked at only once, and again when something has
/// been changed.
#[inline]
pub fn schema() -> Oid {
    SCHEMA.or_else(look).unwrap_or_else(|displaced| {
        displaced.report().report(PgLogLevel::ERROR);
        unreachable!("reporting an error does not return")
    })
}

/// What is wrong with the schema, if anything is; for callers that continue without it.
pub fn complaint() -> Option<ErrorReport> {
    SCHEMA.or_else(look).err().map(|displaced| displaced.report())
}

/// Whether a role has the rights of the extension's owner: it is that role, a member of it, or a
/// superuser.
pub fn is_owned_by(role: Oid) -> bool {
    // SAFETY: a catalog look-up; an error where there is no extension.
    let extension = unsafe { pg_sys::get_extension_oid(NAME.as_ptr(), false) };
    versions::owns_extension(extension, role)
}

/// Runs `work` as if a script of the extension had not called it: what is granted and revoked then
/// is not noted as what the extension itself comes with, which dumps leave out.
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

/// The schema `jobs` is another one, or belongs to another role.
struct Displaced {
    extension: Oid,
    /// The object that has the name.
    found: Oid,
}

#[cold]
fn look() -> Result<Oid, Displaced> {
    // SAFETY: look-ups in the catalog.
    let (extension, found) = unsafe {
        let extension = pg_sys::get_extension_oid(NAME.as_ptr(), true);
        // Without an extension there is mostly no such schema either, which Postgres says itself.
        let may_miss = extension != pg_sys::InvalidOid;
        (extension, pg_sys::get_namespace_oid(NAME.as_ptr(), may_miss))
    };
    let is_ours = found != pg_sys::InvalidOid
        && is_member(found, extension)
        && versions::owns_extension(extension, owner_of_schema(found));
    is_ours.then_some(found).ok_or(Displaced { extension, found })
}

fn is_member(schema: Oid, extension: Oid) -> bool {
    // SAFETY: a catalog look-up.
    let of = unsafe { pg_sys::getExtensionOfObject(pg_sys::NamespaceRelationId, schema) };
    of == extension && of != pg_sys::InvalidOid
}

/// The owner of a schema; invalid if it has just been dropped.
fn owner_of_schema(schema: Oid) -> Oid {
    let owner = |schema: &pg_sys::FormData_pg_namespace| schema.nspowner;
    // SAFETY: that is what the cache has.
    let found = unsafe { catalog_rows::read(SysCacheIdentifier::NAMESPACEOID, schema, owner) };
    found.unwrap_or(pg_sys::InvalidOid)
}

/// The schema that belongs to an extension, and its name as it stands in statements.
fn schema_of(extension: Oid) -> Option<(Oid, String)> {
    let mut found = None;
    let look = |schema: &pg_sys::FormData_pg_namespace| {
        if found.is_none() && is_member(schema.oid, extension) {
            // SAFETY: names end with a zero byte.
            let name = unsafe { text::quoted(schema.nspname.data.as_ptr()) };
            found = Some((schema.oid, name));
        }
    };
    // SAFETY: that is what the catalog has.
    unsafe { catalog_rows::for_each(pg_sys::NamespaceRelationId, look) };
    found
}

impl Displaced {
    fn report(&self) -> ErrorReport {
        let hint = match schema_of(self.extension) {
            Some((own, _)) if own == self.found => {
                "Return it with ALTER SCHEMA jobs OWNER TO the role that this shows: SELECT extowner::regrole FROM pg_extension WHERE extname = 'jobs';".into()
            }
            Some((_, name)) => {
                let first = match self.found == pg_sys::InvalidOid {
                    true => "",
                    false => " after you rename the other schema",
                };
                format!("Restore its name: ALTER SCHEMA {name} RENAME TO jobs{first}.")
            }
            None => "The extension has lost its schema: run DROP EXTENSION jobs, then CREATE EXTENSION jobs.".into(),
        };
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "schema \"jobs\" does not belong to extension \"jobs\"",
            "jobs",
        )
        .set_detail("The extension's schema was renamed, or another role owns it.")
        .set_hint(hint)
    }
}
