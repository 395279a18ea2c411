//! What SQL calls: parse the arguments, call, answer. The declarations with names,
//! defaults and COMMENTs stand in sql/, one file a section, under the same names.
//!
//! Each function is one [`answer`](crate::error::answer): there errors become what a caller sees.

mod access;
mod configure;
mod fetch;
mod finish;
mod given;
mod insert;
mod maintain;
mod manage;
mod observe;
mod periodic;
mod unique;
mod wait;
