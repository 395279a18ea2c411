//! Jobs found by what they are, for operations on many of them.

use std::borrow::Cow;

use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::spi::{big, plans, text, texts};
use super::types::*;

/// Which jobs; `None`: whatever it is.
pub struct Filter<'a> {
    pub queue: Option<Cow<'a, str>>,
    pub kind: Option<Cow<'a, str>>,
    pub states: Vec<State>,
    pub tag: Option<&'a str>,
    pub created_before: Option<i64>,
    /// Only jobs whose latest error matches this pattern.
    pub error_like: Option<&'a str>,
    /// Only jobs whose latest error came after this time.
    pub failed_after: Option<i64>,
    /// Include jobs with a request to cancel.
    pub with_cancel_requested: bool,
    pub max_jobs: usize,
}

/// The ids of the jobs that a filter finds, ascending: calls with a filter lock in that order,
/// whether jobs wait or run.
pub fn jobs(filter: &Filter) -> Vec<i64> {
    let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
    let mut args = vec![
        filter.queue.as_deref().and_then(text),
        filter.kind.as_deref().and_then(text),
        texts(&states),
        filter.tag.and_then(text),
        filter.created_before.map(Datum::from),
        Some(Datum::from(filter.with_cancel_requested)),
        big(filter.max_jobs as i64),
    ];
    let by_error = filter.error_like.is_some() || filter.failed_after.is_some();
    if by_error {
        args.push(filter.error_like.and_then(text));
        args.push(filter.failed_after.map(Datum::from));
    }
    let plan = if by_error { &FIND_FAILED } else { &FIND };
    plan.values(&args)
}

fn find(more: &str) -> String {
    format!(
        "SELECT j.id FROM jobs.jobs j
          WHERE ($1 IS NULL OR j.queue = $1) AND ($2 IS NULL OR j.kind = $2) AND j.state = ANY ($3::jobs.state[])
            AND ($4 IS NULL OR $4 = ANY (j.tags)) AND ($5 IS NULL OR j.created_at < $5)
            AND ($6 OR j.cancel_requested_at IS NULL) {more} ORDER BY j.id LIMIT $7"
    )
}

plans! {
    FIND(TEXT, TEXT, TEXTS, TEXT, AT, BOOL, INT8) => find("");
    // The latest error is looked up for each job that the rest leaves.
    FIND_FAILED(TEXT, TEXT, TEXTS, TEXT, AT, BOOL, INT8, TEXT, AT) =>
        find("AND ($8 IS NULL OR j.last_error LIKE $8) AND ($9 IS NULL OR j.last_error_at > $9)");
}
