//! Uniqueness: from options to a policy and a key, and from a key to a decision.

mod batch;
mod holders;
mod insert;
mod lock;
pub mod policy;

pub use holders::foresee;
pub use insert::{Candidate, Outcome, insert_many, insert_one};
pub use lock::impatiently;
