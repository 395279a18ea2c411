//! The protocol that keeps keys unique, as a model that [`stateright`] explores exhaustively: every
//! order in which three sessions can take their steps, each of which may be rolled back or gone
//! before each of them. [`limits`] and [`turns`] are two more. `README.md` beside this says what is
//! modelled and what is not.

#![forbid(unsafe_code)]

mod claim;
pub mod database;
pub mod explore;
mod gate;
mod insert;
pub mod limits;
mod look;
mod maintain;
mod manage;
pub mod properties;
pub mod report;
pub mod scenario;
pub mod scenarios;
pub mod session;
pub mod transaction;
pub mod turns;
