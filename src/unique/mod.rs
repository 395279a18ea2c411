//! Uniqueness: from options to a policy and a key, and from a key to a decision.

pub mod decide;
pub mod lock;
pub mod policy;

pub use decide::{Candidate, Outcome, foresee, insert_many, insert_one};
