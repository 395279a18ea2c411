//! Names of what the install script makes: tables, indexes, sequences, labels of enums.

use std::convert::Infallible;
use std::ffi::{CStr, CString};

use pgrx::direct_function_call;
use pgrx::pg_sys::{self, Datum, Oid};

use super::extension;
use super::remembered::Remembered;

/// The name of a table, index or sequence of schema `jobs`, and its object id as this session
/// remembers it.
pub struct Name {
    name: &'static CStr,
    remembered: Remembered,
}

impl Name {
    pub const fn new(name: &'static CStr) -> Name {
        Name { name, remembered: Remembered::nothing() }
    }

    pub fn as_str(&self) -> &'static str {
        self.name.to_str().expect("it is ASCII")
    }

    /// The object id; invalid if there is no such thing.
    pub fn oid(&self) -> Oid {
        let look = || {
            let schema = extension::schema();
            // SAFETY: a look-up in the catalog's cache.
            Ok(unsafe { pg_sys::get_relname_relid(self.name.as_ptr(), schema) })
        };
        let Ok::<_, Infallible>(oid) = self.remembered.or_else(look);
        oid
    }
}

/// The next value of a sequence of schema `jobs`.
pub fn next_value(sequence: &Name) -> i64 {
    let sequence = Some(Datum::from(sequence.oid()));
    // SAFETY: the function takes a sequence and never answers null.
    let next = unsafe { direct_function_call::<i64>(pg_sys::nextval_oid, &[sequence]) };
    next.expect("sequences have values")
}

pub fn label_of(of: Oid, label: &str) -> Datum {
    let label = CString::new(label).expect("labels have no zero byte");
    // SAFETY: a catalog look-up with the types that the cache has.
    unsafe {
        Datum::from(pg_sys::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::ENUMTYPOIDNAME as i32,
            pg_sys::Anum_pg_enum_oid as i16,
            Datum::from(of),
            Datum::from(label.as_ptr()),
            Datum::null(),
            Datum::null(),
        ))
    }
}
