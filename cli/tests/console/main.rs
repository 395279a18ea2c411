//! What `pgjobs console` promises to any HTTP client, against the database of
//! clients/examples/company at JOBS_COMPANY_URL, which names no role.

mod actions;
mod attacks;
mod audit;
mod bulk;
mod cells;
mod connections;
mod edit;
mod line;
mod login;
mod roles;
mod screens;
mod service;
mod silence;
mod support;
mod uniqueness;
