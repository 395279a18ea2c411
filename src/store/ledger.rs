//! What is written down of maintenance: the runs of its tasks, that it is paused; and whether this
//! is a database to be maintained at all just now.

use jobs_core::interval::Interval;
use pgrx::pg_sys::Datum;

use super::spi::{Plan, text};
use super::types::*;
use crate::pg::time;

/// What maintenance has to know before it begins.
#[derive(Default)]
pub struct Standing {
    /// why nothing is to be done now
    pub hindrance: Option<String>,
    /// tasks whose last run failed
    pub failing: Vec<String>,
}

/// A run of a task, or several in a row.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// when the last one ended
    pub at: i64,
    /// how long they took, in microseconds
    pub duration: i64,
    /// rows they handled
    pub rows: i64,
    /// how much they failed at
    pub failures: i64,
    /// nothing is left that they failed at
    pub is_clean: bool,
    /// the latest reason
    pub error: Option<String>,
}

/// The longest text of an error that is kept, in characters.
const LONGEST_ERROR: usize = 1000;

/// Whether anything is in the way of maintenance, and what has been failing. Asked only where there is a ledger (`Extension::has_ledger`).
pub fn standing() -> Standing {
    Standing {
        hindrance: hindrance(),
        failing: FAILING.run(&[], |rows| {
            (0..rows.len())
                .filter_map(|row| rows.text(row, 1))
                .collect()
        }),
    }
}

/// Why nothing is to be done now, if so.
pub fn hindrance() -> Option<String> {
    HINDRANCE.run(&[], |rows| {
        if let Some(who) = rows.text(0, 1) {
            Some(format!(
                "maintenance was paused by {who}; jobs.resume_maintenance() lets it go on"
            ))
        } else if rows.bool(0, 2) == Some(true) {
            Some("the database is being restored: pg_restore is connected to it".into())
        } else {
            None
        }
    })
}

/// Whether a job was ever inserted here. A dump fills tables first and sets sequences after that, so while rows are
/// restored the sequence is as it was made: what is done now could meet rows that are yet to come.
pub fn has_begun() -> bool {
    HAS_BEGUN.run(&[], |rows| rows.bool(0, 1) == Some(true))
}

/// Notes a run, unless somebody else is noting one of that task just now.
pub fn note(task: &str, run: &Run) {
    let error: Option<String> = run
        .error
        .as_deref()
        .map(|error| error.chars().take(LONGEST_ERROR).collect());
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

/// Pauses maintenance; what is paused stays as it is.
pub fn pause(at: i64) {
    PAUSE.execute(&[Some(Datum::from(at))]);
}

/// Lets it go on.
pub fn resume() {
    RESUME.execute(&[]);
}

static HAS_BEGUN: Plan = Plan::new("SELECT s.is_called FROM jobs.job_seq s", &[]);
// Anybody can call a session pg_restore; who restores jobs can act as the owner of its tables.
macro_rules! is_being_restored {
    () => {
        "EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity(NULL) a
                  WHERE a.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
                    AND a.application_name = 'pg_restore'
                    AND pg_catalog.pg_has_role(a.usesysid, (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = 'jobs.job'::pg_catalog.regclass), 'MEMBER'))"
    };
}
pub(super) use is_being_restored;

static HINDRANCE: Plan = Plan::new(
    concat!(
        "SELECT (SELECT p.paused_by FROM jobs.maintenance_pause p), ",
        is_being_restored!()
    ),
    &[],
);
static FAILING: Plan = Plan::new(
    "SELECT t.task FROM jobs.maintenance_task t WHERE t.failures > 0",
    &[],
);
static NOTE: Plan = Plan::new(
    "UPDATE jobs.maintenance_task
        SET last_run_at = $2, duration = $3, rows = $4, rows_total = rows_total + $4,
            failures = CASE WHEN $6 THEN 0 WHEN $5 > 0 THEN failures + 1 ELSE failures END, failures_total = failures_total + $5,
            last_error_at = CASE WHEN $5 > 0 THEN $2 ELSE last_error_at END,
            last_error = CASE WHEN $5 > 0 THEN $7 ELSE last_error END
      WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM jobs.maintenance_task t WHERE t.task = $1 FOR UPDATE SKIP LOCKED))",
    &[TEXT, AT, SPAN, INT8, INT8, BOOL, TEXT],
);
static PAUSE: Plan = Plan::new(
    "INSERT INTO jobs.maintenance_pause (paused_at, paused_by) VALUES ($1, session_user) ON CONFLICT DO NOTHING",
    &[AT],
);
static RESUME: Plan = Plan::new("DELETE FROM jobs.maintenance_pause", &[]);
