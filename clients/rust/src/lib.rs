#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod control;
mod engine;
mod error;
mod executor;
mod fetch;
mod finish;
mod handler;
mod insert;
mod job;
mod link;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
pub mod testing;
#[cfg(test)]
mod tests;
mod unique;
mod worker;

pub use engine::Handle;
pub use error::{ClientError, Error, Result, cancel, snooze};
pub use executor::Executor;
pub use handler::{AfterInsert, Blocking, Handler, Handling, Middleware};
pub use insert::{
    Inserted, JobResult, NewJob, Producer, State, Want, insert, insert_many, wait_for,
};
pub use job::{Job, JobInfo, Reason};
#[cfg(feature = "tls")]
pub use link::trust;
pub use link::{connect, connect_hearing};
#[cfg(feature = "opentelemetry")]
pub use opentelemetry::OpenTelemetry;
pub use tokio_util::sync::CancellationToken;
pub use unique::{By, OnConflict, Unique};
pub use worker::{Options, Queue, Worker};
