//! What is written down of maintenance: the runs of its tasks, that it is paused; and whether this
//! is a database to be maintained at all just now.

use jobs_core::interval::Interval;
use pgrx::pg_sys::Datum;

use super::cells;
use super::spi::{Snapshot, plans, text};
use super::types::*;
use crate::pg::name::Name;
use crate::pg::{lock, time};

/// What maintenance has to know before it begins.
#[derive(Default)]
pub struct Standing {
    /// Why nothing can be done now.
    pub hindrance: Option<Hindrance>,
    /// Tasks whose last run failed.
    pub failing: Vec<String>,
}

/// Why nothing is to be done now.
pub struct Hindrance {
    pub why: String,
    /// No commit tells when it is over.
    pub is_passing: bool,
}

/// A run of a task, or several in a row.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// When the last one ended.
    pub at: i64,
    /// In microseconds.
    pub duration: i64,
    pub rows: i64,
    /// How many things failed.
    pub failures: i64,
    /// No failure is left.
    pub is_clean: bool,
    pub error: Option<String>,
}

/// The longest text of an error that is kept, in characters.
const LONGEST_ERROR: usize = 1000;

/// Whether anything is in the way of maintenance, and what has been failing.
pub fn standing() -> Standing {
    Standing { hindrance: hindrance(), failing: FAILING.values(&[]) }
}

/// Why nothing is to be done now, if so. Otherwise maintenance can be paused only once this
/// transaction has ended.
pub fn hindrance() -> Option<Hindrance> {
    // What is restored may say that this is a copy of a cell, so that is asked last.
    pause().or_else(restoring).or_else(cells::hindrance)
}

/// Whether maintenance is paused, or the cell is retired. Otherwise maintenance can be paused only
/// once this transaction has ended, so that nothing is maintained any more then.
pub fn is_paused() -> bool {
    pause().or_else(cells::hindrance).is_some()
}

fn restoring() -> Option<Hindrance> {
    let is_restored = IS_BEING_RESTORED.value(&[]) == Some(true);
    is_restored.then(|| Hindrance {
        why: "pg_restore is connected to the database".into(),
        is_passing: false,
    })
}

fn pause() -> Option<Hindrance> {
    // Who pauses does not let that in.
    if !lock::try_to_lock_rows(MAINTENANCE_PAUSE.oid()) {
        return Some(Hindrance { why: "maintenance is being paused".into(), is_passing: true });
    }
    // Also what is committed since this transaction took its snapshot.
    let by: Option<String> = PAUSED_BY.value_as_of(Snapshot::Latest, &[]);
    by.map(|who| Hindrance {
        why: format!("maintenance was paused by {who}; jobs.resume_maintenance() resumes it"),
        is_passing: false,
    })
}

/// Whether a job was ever inserted here. A dump fills tables first and sets sequences after that,
/// so while rows are restored the sequence is as it was made: what is done now could meet rows that
/// are still ahead.
pub fn has_begun() -> bool {
    HAS_BEGUN.value(&[]) == Some(true)
}

/// Notes a run, unless another session is noting one of that task just now.
pub fn note(task: &str, run: &Run) {
    let error: Option<String> =
        run.error.as_deref().map(|error| error.chars().take(LONGEST_ERROR).collect());
    NOTE.execute(&[
        text(task),
        Some(Datum::from(run.at)),
        Some(time::interval_datum(Interval::of_micros(run.duration))),
        Some(Datum::from(run.rows)),
        Some(Datum::from(run.failures)),
        Some(Datum::from(run.is_clean)),
        error.as_deref().and_then(text),
    ]);
}

/// Pauses maintenance; whether it was not paused before. Waits for transactions that are
/// maintaining.
pub fn begin_pause(at: i64) -> bool {
    // Reading continues.
    KEEP_OTHERS_OUT.execute(&[]);
    PAUSE.execute(&[Some(Datum::from(at))]) > 0
}

/// Resumes it; whether it was paused.
pub fn end_pause() -> bool {
    RESUME.execute(&[]) > 0
}

// Any session can be called pg_restore; a role that restores jobs can act as the owner of its
// tables.
pub(super) const RESTORING: &str =
    "EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity(NULL) a
              WHERE a.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
                AND a.application_name = 'pg_restore'
                AND pg_catalog.pg_has_role(a.usesysid, (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = 'jobs.job'::pg_catalog.regclass), 'MEMBER'))";

static MAINTENANCE_PAUSE: Name = Name::new(c"maintenance_pause");

plans! {
    HAS_BEGUN() = "SELECT s.is_called FROM jobs.job_seq s";
    PAUSED_BY() = "SELECT p.paused_by FROM jobs.maintenance_pause p";
    IS_BEING_RESTORED() = "SELECT {RESTORING}";
    FAILING() = "SELECT t.task FROM jobs.maintenance_task t WHERE t.failures > 0";
    NOTE(TEXT, AT, SPAN, INT8, INT8, BOOL, TEXT) =
        "UPDATE jobs.maintenance_task
            SET last_run_at = $2, duration = $3, rows = $4, rows_total = rows_total + $4,
                failures = CASE WHEN $6 THEN 0 WHEN $5 > 0 THEN failures + 1 ELSE failures END, failures_total = failures_total + $5,
                last_error_at = CASE WHEN $5 > 0 THEN $2 ELSE last_error_at END,
                last_error = CASE WHEN $5 > 0 THEN $7 ELSE last_error END
          WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM jobs.maintenance_task t WHERE t.task = $1 FOR UPDATE SKIP LOCKED))";
    KEEP_OTHERS_OUT() = "LOCK TABLE jobs.maintenance_pause IN EXCLUSIVE MODE";
    PAUSE(AT) =
        "INSERT INTO jobs.maintenance_pause (paused_at, paused_by) VALUES ($1, session_user) ON CONFLICT DO NOTHING";
    RESUME() = "DELETE FROM jobs.maintenance_pause";
}
