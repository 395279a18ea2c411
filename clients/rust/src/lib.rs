#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod connect;
mod connection;
mod control;
mod error;
mod fetch;
mod finish;
mod handler;
mod insert;
mod job;
mod middleware;
#[cfg(feature = "opentelemetry")]
mod telemetry;
pub mod testing;
#[cfg(test)]
mod tests;
mod unique;
mod worker;

pub use connect::connect;
pub use connection::Executor;
pub use error::{ClientError, Error, cancel, discard, retry_in, snooze};
pub use handler::{AsyncHandler, BlockingHandler, Handling};
pub use insert::{
    Inserted, JobResult, NewJob, Producer, State, Want, insert, insert_many, wait_for,
};
pub use job::{Job, JobInfo};
pub use middleware::{AfterInsert, Middleware};
#[cfg(feature = "opentelemetry")]
pub use telemetry::OpenTelemetry;
pub use tokio_util::sync::CancellationToken;
pub use unique::{By, OnConflict, Unique};
pub use worker::{Handle, Queue, Worker};
