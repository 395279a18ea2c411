//! The background processes.
//!
//! A launcher without a database ([`launcher`]) starts a worker for each database that has the
//! extension ([`database`]). It stays as long as there is work and goes when there is none, or when
//! a session wants to drop, rename or copy its database.
//! What it does are the tasks of [`crate::maintenance`], which `jobs.maintain()` runs as well.

mod database;
mod journal;
mod launcher;
mod notify;
mod process;

pub use launcher::register;
