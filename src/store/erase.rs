//! Deleting jobs with all that belongs to them but their claims.

use super::direct::{self, shapes};
use super::effects;
use super::place::{Place, TakenRow};
use super::spi::{bigs, plans};
use super::types::*;

/// Deletes a job that was taken out of its place.
pub fn one(place: &Place, row: &TakenRow) {
    ERASE_JOBS.execute(&[bigs(&[place.id])]);
    records(&[place.id]);
    effects::deleted(place.id, place.unique_key, row.gate);
}

/// Deletes final jobs. The caller has locked them.
pub(super) fn finished(ids: &[i64]) {
    if ids.is_empty() {
        return;
    }
    for plan in [&ERASE_FINISHED, &ERASE_JOBS] {
        plan.execute(&[bigs(ids)]);
    }
    records(ids);
}

/// Deletes the errors and answers of jobs that are deleted.
pub(super) fn records(ids: &[i64]) {
    if ids.is_empty() {
        return;
    }
    for (plan, shape) in [(&ERASE_ERRORS, &shapes::ERROR), (&ERASE_ANSWERS, &shapes::ANSWER)] {
        if !direct::is_empty(shape) {
            plan.execute(&[bigs(ids)]);
        }
    }
}

plans! {
    ERASE_FINISHED(INT8S) = "DELETE FROM jobs.finished WHERE job_id = ANY ($1)";
    ERASE_JOBS(INT8S) = "DELETE FROM jobs.job WHERE id = ANY ($1)";
    ERASE_ERRORS(INT8S) = "DELETE FROM jobs.error WHERE job_id = ANY ($1)";
    // Other sessions forget any answers by their age: locked ones are left to them.
    ERASE_ANSWERS(INT8S) =
        "DELETE FROM jobs.answer WHERE ctid = ANY (ARRAY(
           SELECT a.ctid FROM jobs.answer a WHERE a.job_id = ANY ($1) FOR UPDATE SKIP LOCKED))";
}
