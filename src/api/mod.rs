//! What SQL calls: parse the arguments, call, reply. The declarations with names, defaults and
//! COMMENTs stand in sql/. A file here is named after the one there: `work_fetch` has what
//! sql/50_work.sql says of fetching.
//!
//! Each function is one [`or_raise`](crate::error::or_raise): there errors become what a caller
//! sees.

// As many as the function has in SQL.
#![allow(clippy::too_many_arguments)]

mod access;
mod cells;
mod configure;
mod forward;
mod limits;
mod maintain;
mod observe;
mod order;
mod parameters;
mod periodic;
mod produce_insert;
mod produce_unique;
mod work_fetch;
mod work_finish;
mod work_finish_many;
mod work_manage;
mod work_results;
mod work_wait;
mod workers;

use pgrx::pg_sys::FunctionCallInfo;

use crate::shmem::commit::{self, Work};
use crate::store::{audit, config_cache};

/// Has every session and the worker go by what was changed, and notes who did it.
fn changed(call: FunctionCallInfo) {
    config_cache::changed();
    commit::wake_worker(Work::MayBeDue);
    audit::note(call, None);
}
