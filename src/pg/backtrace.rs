//! No backtraces in errors: what pgrx makes of one would be shown to users as DETAIL.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;

/// Has this library never capture one, whatever `RUST_BACKTRACE` says in the server's environment.
/// That is left as it is: others in the process may go by it. So the library looks once, and
/// remembers, while it says no.
pub fn never() {
    /// What the standard library looks for first.
    const FIRST: &str = "RUST_LIB_BACKTRACE";
    let before = env::var_os(FIRST);
    // SAFETY: called when the library is loaded, by a process with one thread.
    unsafe { env::set_var(FIRST, "0") };
    let status = Backtrace::capture().status();
    // SAFETY: as above.
    unsafe {
        match before {
            Some(value) => env::set_var(FIRST, value),
            None => env::remove_var(FIRST),
        }
    }
    debug_assert_eq!(status, BacktraceStatus::Disabled);
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::pg_sys::panic::CaughtError;
    use pgrx::prelude::*;

    use crate::pg::subxact;

    #[pg_test]
    fn a_panic_captures_none_whatever_the_environment_says() {
        // SAFETY: a session has one thread.
        unsafe { std::env::set_var("RUST_BACKTRACE", "full") };
        let failed = subxact::attempt(|| panic!("on purpose"));
        // SAFETY: a session has one thread.
        unsafe { std::env::remove_var("RUST_BACKTRACE") };
        let Err(error) = failed;
        let CaughtError::RustPanic { ereport, .. } = *error else {
            panic!("it was raised as another error");
        };
        assert_eq!(ereport.detail_with_backtrace(), None);
    }
}
