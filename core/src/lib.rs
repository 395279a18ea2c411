//! The rules of the `jobs` queue that need no database.
//!
//! What makes two jobs the same ([`key`], over [`canonical`] JSON), what a caller may ask for
//! ([`policy`]), and what follows from it ([`verdict`]), with the small things they stand on:
//! [`state`]s, [`paths`] into JSON, [`interval`]s and [`period`]s; when a failed job is tried again
//! ([`retry`]), when a periodic one is due ([`schedule`]), in which cell a job lives
//! ([`dimension`]), what a [`limit`] counts by, whose turn it is in an [`order`], what is counted
//! of jobs ([`counts`]), and [`words`] for people. Nothing here reads a clock, draws a random
//! number or keeps state: the caller passes those in, so everything can be tested with plain
//! values.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod canonical;
pub mod counts;
pub mod dimension;
pub mod error;
pub mod interrupt;
pub mod interval;
pub mod key;
pub mod limit;
pub mod order;
pub mod paths;
pub mod period;
pub mod policy;
pub mod retry;
pub mod schedule;
pub mod state;
pub mod text;
pub mod verdict;
pub mod visible;
pub mod words;

mod given;
mod json;

pub use error::Invalid;
