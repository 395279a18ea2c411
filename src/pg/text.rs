//! Texts of the server's, which end with a zero byte, as strings of our own.

use std::ffi::{CStr, c_char};

use pgrx::pg_sys::{self, Datum, Oid};

/// What a text says.
pub unsafe fn copied(text: *const c_char) -> String {
    // SAFETY: the callers' promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A name as a statement needs it.
pub unsafe fn quoted(name: *const c_char) -> String {
    // SAFETY: the callers give a text.
    unsafe { copied(pg_sys::quote_identifier(name)) }
}

/// What the output function of its type makes of a value.
pub unsafe fn printed(function: impl Into<Oid>, value: Datum) -> String {
    // SAFETY: the callers give the function of the value's type.
    unsafe { copied(pg_sys::OidOutputFunctionCall(function.into(), value)) }
}
