//! Outcomes of jobs.

use jobs_core::state::State;
use pgrx::pg_sys::{Datum, Oid};

use super::spi::{bigs, plans};
use super::types::*;
use crate::pg::jsonb::Jsonb;

/// The outcome of a job.
pub struct Outcome {
    /// Its place among the jobs asked for, from 1.
    pub ord: i32,
    pub id: i64,
    /// `None`: there is no such job
    pub state: Option<State>,
    /// Its output, if the reader may see it.
    pub output: Option<Jsonb>,
    /// The latest error, if the reader may see it.
    pub error: Option<String>,
    pub finalized_at: Option<i64>,
}

/// Hands over the outcome of each of these jobs, in order, as far as a role may see it: what jobs
/// carry and their errors as in the views.
pub fn of(ids: &[i64], reader: Oid, mut emit: impl FnMut(Outcome)) {
    RESULTS.run(&[bigs(ids), Some(Datum::from(reader))], |rows| {
        for row in 0..rows.len() {
            emit(Outcome {
                ord: rows.given(row, "ord"),
                id: rows.given(row, "id"),
                state: rows.get(row, "state"),
                output: rows.raw(row, "output").map(Jsonb::from_datum),
                error: rows.get(row, "error"),
                finalized_at: rows.get(row, "finalized_at"),
            });
        }
    });
}

plans! {
    // By their keys, whatever the planner thinks of how many there are.
    RESULTS(INT8S, OID) =
        "SELECT n.ord::integer, n.id,
                CASE WHEN j.id IS NULL THEN NULL WHEN f.job_id IS NOT NULL THEN f.state::text
                     ELSE COALESCE((SELECT 'running' FROM jobs.running r WHERE r.job_id = n.id),
                                   (SELECT s.state::text FROM jobs.scheduled s WHERE s.job_id = n.id), 'available') END AS state,
                CASE WHEN (SELECT pg_catalog.has_table_privilege($2, 'jobs.job'::pg_catalog.regclass::oid, 'SELECT')) THEN f.output END AS output,
                CASE WHEN j.id IS NOT NULL AND (SELECT pg_catalog.has_table_privilege($2, 'jobs.errors'::pg_catalog.regclass::oid, 'SELECT'))
                     THEN (SELECT e.error FROM jobs.error e WHERE e.job_id = n.id ORDER BY e.at DESC LIMIT 1) END AS error,
                CASE WHEN j.id IS NOT NULL THEN f.finalized_at END AS finalized_at
           FROM unnest($1) WITH ORDINALITY AS n(id, ord)
           LEFT JOIN LATERAL (SELECT j.id FROM jobs.job j WHERE j.id = n.id OFFSET 0) j ON true
           LEFT JOIN LATERAL (SELECT f.* FROM jobs.finished f WHERE f.job_id = n.id OFFSET 0) f ON true
          ORDER BY n.ord";
}
