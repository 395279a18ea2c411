//! `jobs`: a job queue in Postgres. docs/architecture.md is the way in.

use pgrx::prelude::*;

mod api;
mod attempt;
mod check;
mod config_cache;
mod error;
mod fault;
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
pgrx::extension_sql_file!(
    "../sql/20_tables.sql",
    name = "tables",
    requires = ["schema"]
);
pgrx::extension_sql_file!("../sql/30_views.sql", name = "views", requires = ["tables"]);
pgrx::extension_sql_file!(
    "../sql/40_produce.sql",
    name = "produce",
    requires = ["views"]
);
pgrx::extension_sql_file!("../sql/50_work.sql", name = "work", requires = ["produce"]);
pgrx::extension_sql_file!(
    "../sql/55_configure.sql",
    name = "configure",
    requires = ["work"]
);
pgrx::extension_sql_file!(
    "../sql/56_periodic.sql",
    name = "periodic",
    requires = ["configure"]
);
pgrx::extension_sql_file!(
    "../sql/57_workers.sql",
    name = "workers",
    requires = ["periodic"]
);
pgrx::extension_sql_file!(
    "../sql/60_maintain.sql",
    name = "maintain",
    requires = ["workers"]
);
pgrx::extension_sql_file!(
    "../sql/70_observe.sql",
    name = "observe",
    requires = ["maintain"]
);
pgrx::extension_sql_file!(
    "../sql/75_check.sql",
    name = "check",
    requires = ["observe"]
);
pgrx::extension_sql_file!(
    "../sql/80_access.sql",
    name = "access",
    requires = ["check"]
);
pgrx::extension_sql_file!(
    "../sql/90_finish.sql",
    name = "finish",
    requires = ["access"]
);

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
    // Without preload there is no worker, and nobody to wake.
    if pg::server::is_preloading() {
        shmem::register();
        worker::register();
    }
}

/// What `cargo pgrx test` asks for.
#[cfg(test)]
pub mod pg_test {
    /// Nothing to set up.
    pub fn setup(_options: Vec<&str>) {}

    /// Preloaded, but without a worker that could act between two statements of a test.
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["shared_preload_libraries = 'jobs'", "jobs.enabled = off"]
    }
}
