//! Support for the tests in this directory: private Postgres clusters and small helpers.
//!
//! `./dev test server` builds and installs the extension, then runs the tests. A test looks like
//! this:
//!
//! ```ignore
//! #[tokio::test]
//! async fn inserts() {
//!     let cluster = Cluster::start();
//!     let db = cluster.database("inserts").await; // created, with the extension in it
//!     let row = db.query_one("select id from jobs.insert('email')", &[]).await.unwrap();
//! }
//! ```
//!
//! A cluster is stopped and removed when it goes out of scope, and its log must then be clean: see
//! [`Cluster::allow`].

#[path = "support/checks.rs"]
pub mod checks;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/figures.rs"]
pub mod figures;
#[path = "support/functions.rs"]
pub mod functions;
#[path = "support/helpers.rs"]
mod helpers;
#[path = "support/journal.rs"]
pub mod journal;
#[path = "support/keyed.rs"]
pub mod keyed;
#[path = "support/listener.rs"]
mod listener;
#[path = "support/load.rs"]
pub mod load;
#[path = "support/log.rs"]
pub mod log;
#[path = "support/need.rs"]
mod need;
#[path = "support/pgbouncer.rs"]
pub mod pgbouncer;
#[path = "support/stopping.rs"]
mod stopping;
#[path = "support/upgrade.rs"]
pub mod upgrade;

pub use cluster::{Builder, Cluster, Mode, free_port, scratch_directory};
pub use helpers::{
    LEVELS, SOON, as_role, becomes, blocked, blocked_until, comes_true, count, every_task_worked,
    flood, history_is_written, insert, is, move_cell, mover, number, poll_until, promptly, quiet,
    returns, rng, row_of, rows, rows_of, run, scalar, seconds, sqlstate, state, text, texts, with,
    work_for_every_task, worker_goes_on, workers, workers_become,
};
pub use jobs_cluster::{Postgres, as_owner, owned_directory, state_directory};
pub use listener::Listener;
pub use need::{MOVE_CELLS, ROOT, cache, dev, dev_of, need, pgjobs, program, target_directory};
pub use stopping::Stopping;
pub use tokio_postgres::Client;
