//! Names of what the install script makes: tables, indexes, sequences, labels of enums.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pgrx::direct_function_call;
use pgrx::pg_sys::{self, Datum, Oid, SysCacheIdentifier};
use pgrx::prelude::*;

use super::extension;

/// The name of a table, index or sequence of schema `jobs`, and its object id as this session remembers it.
pub struct Name {
    name: &'static CStr,
    /// the number of the memory, and the object id
    remembered: AtomicU64,
}

/// Counts how often everything was forgotten: any change of a relation or schema may change what a name means.
static MEMORY: AtomicU32 = AtomicU32::new(0);

impl Name {
    /// A name.
    pub const fn new(name: &'static CStr) -> Name {
        Name {
            name,
            remembered: AtomicU64::new(0),
        }
    }

    /// The name itself.
    pub fn as_str(&self) -> &'static str {
        self.name.to_str().expect("it is ASCII")
    }

    /// The object id; invalid if there is no such thing.
    pub fn oid(&self) -> Oid {
        let memory = MEMORY.load(Ordering::Relaxed);
        let remembered = self.remembered.load(Ordering::Relaxed);
        if memory != 0 && (remembered >> 32) as u32 == memory {
            return Oid::from(remembered as u32);
        }
        if memory == 0 {
            MEMORY.store(1, Ordering::Relaxed);
            for cache in [
                SysCacheIdentifier::RELNAMENSP,
                SysCacheIdentifier::NAMESPACENAME,
            ] {
                // SAFETY: once a session; the callback lives as long as the library, which is never unloaded.
                unsafe {
                    pg_sys::CacheRegisterSyscacheCallback(cache as i32, Some(forget), Datum::null())
                };
            }
        }
        let memory = MEMORY.load(Ordering::Relaxed);
        let schema = extension::schema();
        // SAFETY: a look-up in the catalog's cache.
        let oid = unsafe { pg_sys::get_relname_relid(self.name.as_ptr(), schema) };
        let remembered = u64::from(memory) << 32 | u64::from(oid.to_u32());
        self.remembered.store(remembered, Ordering::Relaxed);
        oid
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn forget(_argument: Datum, _cache: i32, _hash: u32) {
    let next = MEMORY.load(Ordering::Relaxed).wrapping_add(1).max(1);
    MEMORY.store(next, Ordering::Relaxed);
}

/// The next value of a sequence of schema `jobs`.
pub fn next_value(sequence: &Name) -> i64 {
    let sequence = Some(Datum::from(sequence.oid()));
    // SAFETY: the function takes a sequence and never answers null.
    let next = unsafe { direct_function_call::<i64>(pg_sys::nextval_oid, &[sequence]) };
    next.expect("sequences have values")
}

/// A label of an enum.
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
