//! Uniqueness: from options to a policy and a key, and from a key to a decision.

mod advisory_lock;
mod batch;
mod holders;
pub mod policy;
mod single;

pub use advisory_lock::no_wait;
pub use holders::foresee;
pub use single::{Candidate, Outcome, insert_many, insert_one};
