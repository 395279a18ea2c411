//! Decisions about a job's moves, for all callers: which jobs a fetch starts, how attempts end,
//! what calls by id do, what an insert does to an older job, and what happens to jobs whose time
//! has come. `src/store/` carries them out.

pub mod attempt;
pub mod by_id;
pub mod due;
pub mod on_conflict;
pub mod start;
