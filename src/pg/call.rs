//! What the function that is being called was given, whatever its parameters are called.

use jobs_core::text::nfc;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid, SysCacheIdentifier};

use super::role::called;
use super::{text, time};

/// A call of a function that manages something.
pub struct Call {
    pub function: String,
    /// The first argument, if it is required: what the call is about.
    pub target: Option<String>,
    pub reason: Option<String>,
    /// Other arguments that are not null.
    pub given: Vec<Given>,
}

/// An argument as text that its form says how to read.
pub struct Given {
    pub name: String,
    /// The type that its text has.
    pub form: &'static str,
    pub text: String,
}

/// What is not repeated elsewhere: what jobs carry.
const PAYLOAD: [&str; 2] = ["args", "meta"];

impl Call {
    pub fn of(call: FunctionCallInfo) -> Call {
        // SAFETY: the cache's row is held while it is read; a function that runs has one, and as
        // many parameters as its call has arguments, all of them with names.
        unsafe {
            let row = pg_sys::SearchSysCache1(
                SysCacheIdentifier::PROCOID as i32,
                Datum::from(called(call)),
            );
            assert!(!row.is_null(), "the function that was called is there");
            let mut types = std::ptr::null_mut();
            let mut names = std::ptr::null_mut();
            let mut modes = std::ptr::null_mut();
            pg_sys::get_func_arg_info(row, &mut types, &mut names, &mut modes);
            let function: &pg_sys::FormData_pg_proc = &*pg_sys::GETSTRUCT(row).cast();
            let has_target = function.pronargs > function.pronargdefaults;
            let mut made = Call {
                function: text::copied(function.proname.data.as_ptr()),
                target: None,
                reason: None,
                given: Vec::new(),
            };
            for n in 0..(*call).nargs as usize {
                let Some(value) = pgrx::pg_getarg_datum(call, n) else {
                    continue;
                };
                let (name, of) = (text::copied(*names.add(n)), *types.add(n));
                match name.as_str() {
                    _ if n == 0 && has_target => {
                        made.target = Some(nfc(&output(of, value)).into_owned())
                    }
                    "reason" => made.reason = Some(output(of, value)),
                    _ => made.given.push(given(name, of, value)),
                }
            }
            pg_sys::ReleaseSysCache(row);
            made
        }
    }
}

fn given(name: String, of: Oid, value: Datum) -> Given {
    let (form, text) = match of {
        _ if PAYLOAD.contains(&name.as_str()) => ("json", "true".into()),
        pg_sys::BOOLOID => ("json", (value.value() != 0).to_string()),
        pg_sys::INT4OID | pg_sys::INT8OID | pg_sys::JSONBOID => ("json", output(of, value)),
        pg_sys::TIMESTAMPTZOID => ("text", time::json_at(value.value() as i64)),
        // SAFETY: a catalog look-up.
        _ if unsafe { pg_sys::get_element_type(of) } != pg_sys::InvalidOid => {
            ("list", output(of, value))
        }
        _ => ("text", output(of, value)),
    };
    Given { name, form, text }
}

/// A value as Postgres writes it.
fn output(of: Oid, value: Datum) -> String {
    let (mut function, mut is_varlena) = (pg_sys::InvalidOid, false);
    // SAFETY: the value is of that type.
    unsafe {
        pg_sys::getTypeOutputInfo(of, &mut function, &mut is_varlena);
        text::printed(function, value)
    }
}
