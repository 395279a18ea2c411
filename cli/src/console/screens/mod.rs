//! The screens: a file for each, or for a part of one. They use the files of `console`, never the
//! other way round; its table of routes alone names them.

pub(super) mod audit;
pub(super) mod bulk;
mod bulk_offers;
pub(super) mod cells;
pub(super) mod failures;
mod history;
pub(super) mod job;
pub(super) mod job_actions;
pub(super) mod job_carried;
pub(super) mod job_edit;
mod job_errors;
mod job_read;
mod job_timeline;
mod job_unique;
mod jobs_find;
pub(super) mod jobs_list;
mod jobs_table;
pub(super) mod limit;
mod limit_read;
mod limit_set;
pub(super) mod limits;
mod list;
pub(super) mod maintenance;
mod named;
pub(super) mod overview;
pub(super) mod periodic;
pub(super) mod periodic_job;
pub(super) mod queue;
pub(super) mod queue_limits;
mod queue_read;
pub(super) mod queues;
pub(super) mod unique;
pub(super) mod unique_try;
pub(super) mod worker;
pub(super) mod workers;
