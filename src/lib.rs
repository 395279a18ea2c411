//! `jobs`: a job queue in Postgres. docs/architecture.md is the way in.

use pgrx::prelude::*;

mod api;
mod cell;
mod check;
mod error;
mod explain;
mod fault;
mod health;
mod maintenance;
mod options;
mod pg;
mod settings;
mod shmem;
mod store;
mod ticks;
mod transition;
mod unique;
mod worker;

pgrx::pg_module_magic!(name = c"jobs", version = c"0.1.0");

// The schema, in reading order. Everything SQL sees is declared there.
pgrx::extension_sql_file!("../sql/10_schema.sql", name = "schema", bootstrap);
macro_rules! behind {
    ($($before:literal: $name:literal in $file:literal,)*) => {
        $(pgrx::extension_sql_file!($file, name = $name, requires = [$before]);)*
    };
}
behind! {
    "schema": "tables" in "../sql/20_tables.sql",
    "tables": "views" in "../sql/30_views.sql",
    "views": "produce" in "../sql/40_produce.sql",
    "produce": "forward" in "../sql/45_forward.sql",
    "forward": "work" in "../sql/50_work.sql",
    "work": "limits" in "../sql/54_limits.sql",
    "limits": "order" in "../sql/54_order.sql",
    "order": "configure" in "../sql/55_configure.sql",
    "configure": "periodic" in "../sql/56_periodic.sql",
    "periodic": "workers" in "../sql/57_workers.sql",
    "workers": "cells" in "../sql/58_cells.sql",
    "cells": "maintain" in "../sql/60_maintain.sql",
    "maintain": "observe" in "../sql/70_observe.sql",
    "observe": "check" in "../sql/75_check.sql",
    "check": "access" in "../sql/80_access.sql",
    "access": "finish" in "../sql/90_finish.sql",
}

/// Called when the library is loaded: at the server's start if preloaded, else in each
/// session that uses it.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    pg::backtrace::never();
    pg::memory::reserve();
    jobs_core::interrupt::ask(|| {
        pgrx::check_for_interrupts!();
    });
    settings::define();
    pg::guc::reserve_prefix(c"jobs");
    pg::planner::register();
    shmem::tally::register(store::history::write);
    // Without preload there is no worker to wake.
    if pg::server::is_preloading() {
        shmem::register();
        worker::register();
    }
}

/// What `cargo pgrx test` asks for; the suite `pgtest` has a server with the same settings.
#[cfg(test)]
pub mod pg_test {
    pub fn setup(_options: Vec<&str>) {}

    /// Preloaded, but without a worker that could act between two statements of a test.
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["shared_preload_libraries = 'jobs'", "jobs.enabled = off"]
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    /// What runs the tests must see that it fails, and with which error.
    #[pg_test(error = "panics on purpose")]
    fn panics_on_purpose() {
        panic!("panics on purpose");
    }
}
