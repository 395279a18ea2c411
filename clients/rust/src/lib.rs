#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

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
pub mod testing;
#[cfg(test)]
mod tests;
mod unique;
mod worker;

pub use error::{ClientError, Error, Result, cancel, snooze};
pub use executor::Executor;
pub use handle::Handle;
pub use handler::{AfterInsert, Blocking, Handler, Handling, Middleware};
pub use insert::{JobResult, Producer, Want, insert, insert_many, wait_for};
pub use job::{Job, JobInfo, Reason, State};
#[cfg(feature = "tls")]
pub use link::trust;
pub use link::{connect, connect_hearing};
pub use new_job::{Inserted, NewJob};
#[cfg(feature = "opentelemetry")]
pub use opentelemetry::OpenTelemetry;
pub use tokio_util::sync::CancellationToken;
pub use unique::{By, OnConflict, Unique};
pub use worker::{Options, Queue, Worker};
