//! Who may do what: the statements that grant and revoke. Roles and objects cannot be parameters of these, so
//! their text is made here, of names that the catalog has quoted.

use std::ffi::CString;

use pgrx::pg_sys;

use super::spi::{Arg, Plan, text};
use super::types::*;
use crate::pg::array;

/// The name of a role as it stands in statements; `None`: there is no such role.
pub fn role(name: &str) -> Option<String> {
    ROLE.run(&[text(name)], |rows| {
        if rows.is_empty() {
            None
        } else {
            rows.text(0, 1)
        }
    })
}

/// Lets a role call these functions and procedures, whatever their parameters.
pub fn grant_functions(role: &str, names: &[&str]) {
    let names: Vec<Arg> = names.iter().map(|name| text(name)).collect();
    let names = [Some(array::build(TEXT, &names))];
    for function in list(&FUNCTIONS, &names) {
        execute(&format!("GRANT EXECUTE ON ROUTINE {function} TO {role}"));
    }
}

/// Lets a role call every function and procedure but these.
pub fn grant_functions_but(role: &str, names: &[&str]) {
    let names: Vec<Arg> = names.iter().map(|name| text(name)).collect();
    let names = [Some(array::build(TEXT, &names))];
    for function in list(&OTHER_FUNCTIONS, &names) {
        execute(&format!("GRANT EXECUTE ON ROUTINE {function} TO {role}"));
    }
}

/// Lets a role see the schema and its types, without which nothing else is of use.
pub fn grant_schema(role: &str) {
    execute(&format!("GRANT USAGE ON SCHEMA jobs TO {role}"));
    execute(&format!("GRANT USAGE ON TYPE jobs.state TO {role}"));
}

/// Lets a role read every view.
pub fn grant_views(role: &str) {
    for view in list(&VIEWS, &[]) {
        execute(&format!("GRANT SELECT ON {view} TO {role}"));
    }
}

/// Lets a role see what jobs carry, in the views too.
pub fn grant_payload(role: &str) {
    execute(&format!("GRANT SELECT ON jobs.job TO {role}"));
}

/// Takes everything away from a role.
pub fn revoke(role: &str) {
    for what in [
        "ALL ROUTINES IN SCHEMA jobs",
        "ALL TABLES IN SCHEMA jobs",
        "ALL SEQUENCES IN SCHEMA jobs",
        "TYPE jobs.state",
        "SCHEMA jobs",
    ] {
        execute(&format!("REVOKE ALL ON {what} FROM {role}"));
    }
}

fn list(plan: &Plan, args: &[Arg]) -> Vec<String> {
    plan.run(args, |rows| {
        (0..rows.len())
            .filter_map(|row| rows.text(row, 1))
            .collect()
    })
}

fn execute(statement: &str) {
    let statement = CString::new(statement).expect("names have no zero byte");
    // SAFETY: the SPI protocol; an error unwinds through here and Postgres cleans up.
    unsafe {
        pg_sys::SPI_connect();
        let code = pg_sys::SPI_execute(statement.as_ptr(), false, 0);
        assert!(code >= 0, "{statement:?} failed: {code}");
        pg_sys::SPI_finish();
    }
}

static ROLE: Plan = Plan::new(
    "SELECT quote_ident(r.rolname) FROM pg_catalog.pg_roles r WHERE r.rolname = $1",
    &[TEXT],
);
macro_rules! functions {
    ($which:literal) => {
        concat!(
            "SELECT p.oid::pg_catalog.regprocedure::text FROM pg_catalog.pg_proc p
              WHERE p.pronamespace = 'jobs'::pg_catalog.regnamespace AND p.proname ",
            $which,
            " ORDER BY 1"
        )
    };
}
static FUNCTIONS: Plan = Plan::new(functions!("= ANY ($1)"), &[TEXTS]);
static OTHER_FUNCTIONS: Plan = Plan::new(functions!("<> ALL ($1)"), &[TEXTS]);
static VIEWS: Plan = Plan::new(
    "SELECT c.oid::pg_catalog.regclass::text FROM pg_catalog.pg_class c
      WHERE c.relnamespace = 'jobs'::pg_catalog.regnamespace AND c.relkind = 'v' ORDER BY 1",
    &[],
);
