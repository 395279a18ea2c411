#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cells;
mod control;
mod engine;
mod error;
mod executor;
mod fetch;
mod finish;
mod handle;
mod handler;
mod insert;
mod job;
mod link;
mod new_job;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod options;
mod report;
mod sync;
pub mod testing;
#[cfg(test)]
mod tests;
mod unique;
mod worker;

pub use cells::Cells;
pub use error::{ClientError, Error, Result, cancel, snooze};
pub use executor::Executor;
pub use handle::Handle;
pub use handler::{AfterInsert, Batch, Blocking, Handler, Handling, Limited, Middleware};
pub use insert::{JobResult, Producer, Want, insert, insert_many, wait_for};
pub use job::{Ending, Job, JobInfo, Reason, State};
#[cfg(feature = "tls")]
pub use link::trust;
pub use link::{connect, connect_hearing};
pub use new_job::{Inserted, Kind, KindOptions, NewJob, Periodic};
#[cfg(feature = "opentelemetry")]
pub use opentelemetry::OpenTelemetry;
pub use options::{Options, Queue};
pub use sync::Change;
pub use tokio_util::sync::CancellationToken;
pub use unique::{By, OnConflict, Unique};
pub use worker::Worker;
