//! How long final jobs are kept. Most go by the setting of their state, which may change at any
//! time, so nothing is written down of them. A row of `finished` that says until when it is kept is
//! of a queue with a retention of its own, or was found to be kept by its uniqueness.
//!
//! What a row says is only when to look: pruning goes by what is set then. So a row
//! that says too little costs a look. One that says too much is found by
//! [`super::prune::set_anew`], which follows a change. For that it must be known who may still go
//! by what was set before:
//!
//! * A transaction that makes a job final has an id when it asks here.
//! * It is told what is committed then, whatever its own snapshot, or what it last read, if no
//!   session has said since that it changed. Sessions are told that before the locks of a change
//!   are released.

use jobs_core::state::State;

use super::config::{self, Rare};
use super::queue::Queue;
use super::spi::{Snapshot, big, bigs, column, plans, rows};
use super::types::*;
use super::{config_cache, direct};
use crate::pg::{lock, time};

/// When a final job goes.
pub struct Term {
    /// The end of the retention, as far as is known now.
    pub until: i64,
    /// The value for its row.
    pub kept_until: Option<i64>,
}

impl Term {
    /// Of a job that became final then, whose queue and whose uniqueness keep it for so long.
    pub fn of(
        finalized_at: i64,
        own: Option<Option<i64>>,
        unique: Option<i64>,
        system: Option<i64>,
    ) -> Term {
        let end = time::end_of(finalized_at, own.unwrap_or(system));
        let until = unique.map_or(end, |unique| unique.max(end));
        let is_of_system = own.is_none() && until == end;
        Term { until, kept_until: (!is_of_system).then_some(until) }
    }
}

/// How long the queue keeps jobs of a state, if it has a retention of its own.
pub fn of_queue(queue: &Queue, state: State) -> Option<Option<i64>> {
    if !config_cache::some(Rare::Retention) {
        return None;
    }
    queue.settings_now().retention(state)
}

/// What the row of a job is to say that becomes final then. The transaction has written something.
pub fn kept_until(id: i64, state: State, finalized_at: i64) -> Option<i64> {
    if !config_cache::some(Rare::Retention) {
        return None;
    }
    let queue = direct::prune::queue_of(id)
        .unwrap_or_else(|| QUEUE.value_as_of(Snapshot::Latest, &[big(id)]))?;
    let own = of_queue(&queue, state)?;
    Some(time::end_of(finalized_at, Some(own?)))
}

/// Notes it of jobs that have just become final, by a statement, each with its time.
pub fn keep(finalized: impl Iterator<Item = (i64, i64)>, state: State) {
    if config_cache::some(Rare::Retention) {
        let until = |(id, at)| Some((id, Some(kept_until(id, state, at)?)));
        set(&finalized.filter_map(until).collect::<Vec<_>>());
    }
}

/// Notes it of a final job that has another queue, or is due at another time. What its uniqueness
/// keeps is seen later.
pub fn keep_anew(id: i64, state: State) {
    if let Some(at) = FINALIZED_AT.value(&[big(id)]) {
        set(&[(id, kept_until(id, state, at))]);
    }
}

/// Notes until when final jobs are kept.
pub(super) fn set(jobs: &[(i64, Option<i64>)]) {
    if jobs.is_empty() {
        return;
    }
    SET.execute(&[
        column(INT8, jobs, |(id, _)| big(*id)),
        column(AT, jobs, |(_, until)| until.and_then(big)),
    ]);
}

/// Has maintenance look at all final jobs, once the transaction commits.
pub fn note_change() {
    NOTE_CHANGE.execute(&[]);
}

rows! {
    /// A change whose final jobs are looked at.
    pub struct Change {
        /// The transaction that made it.
        pub made_by: i64,
        /// The highest job id at that time.
        pub after_id: i64,
    }
}

/// The changes that can be followed now: locked. No session goes by what was set before them.
pub fn changes() -> Vec<Change> {
    if HAS_CHANGED.execute(&[]) == 0 {
        return Vec::new();
    }
    if is_told_everywhere() {
        SETTLE.execute(&[]);
    }
    CHANGES.rows(&[])
}

/// Whether there are any.
pub fn has_changed() -> bool {
    HAS_CHANGED.execute(&[]) > 0
}

/// Notes how far the final jobs were looked at; `None`: all were.
pub fn note_progress(changes: &[i64], after_id: Option<i64>) {
    match after_id {
        Some(after_id) => PROGRESS.execute(&[bigs(changes), big(after_id)]),
        None => FOLLOWED.execute(&[bigs(changes)]),
    };
}

/// Whether all sessions were told of every change that this transaction sees: a change of a queue
/// keeps its lock until all were told of it.
fn is_told_everywhere() -> bool {
    lock::nobody_writes(config::tables()[1])
}

plans! {
    QUEUE(INT8) = "SELECT j.queue FROM jobs.job j WHERE j.id = $1";
    FINALIZED_AT(INT8) = "SELECT f.finalized_at FROM jobs.finished f WHERE f.job_id = $1";
    SET(INT8S, ATS) =
        "UPDATE jobs.finished f SET kept_until = n.until, is_kept = n.until IS NOT NULL
           FROM unnest($1, $2) AS n(id, until) WHERE f.job_id = n.id AND f.kept_until IS DISTINCT FROM n.until";
    NOTE_CHANGE() =
        "INSERT INTO jobs.retention_change (made_by, after_id, since, is_settled)
         VALUES (pg_current_xact_id()::text::bigint, 0, pg_current_xact_id(), false)
         ON CONFLICT (made_by) DO UPDATE SET after_id = 0, since = excluded.since, is_settled = false";
    HAS_CHANGED() = "SELECT FROM jobs.retention_change LIMIT 1";
    // Of another server, after a restore, no session goes by what was set there. Such a transaction
    // may look like a future one.
    SETTLE() =
        "UPDATE jobs.retention_change SET since = pg_current_xact_id(), is_settled = true
          WHERE ctid = ANY (ARRAY(
            SELECT c.ctid FROM jobs.retention_change c
             WHERE NOT c.is_settled AND c.since IS DISTINCT FROM pg_current_xact_id_if_assigned()
                OR c.since > pg_snapshot_xmax(pg_current_snapshot())
               FOR UPDATE SKIP LOCKED))";
    CHANGES() =
        "SELECT c.made_by, c.after_id FROM jobs.retention_change c
          WHERE c.is_settled
            AND (c.since < pg_snapshot_xmin(pg_current_snapshot())
                 OR c.since = pg_current_xact_id_if_assigned() AND c.since = pg_snapshot_xmin(pg_current_snapshot()))
          ORDER BY c.after_id, c.made_by LIMIT 1000 FOR UPDATE SKIP LOCKED";
    PROGRESS(INT8S, INT8) =
        "UPDATE jobs.retention_change SET after_id = $2 WHERE made_by = ANY ($1)";
    FOLLOWED(INT8S) = "DELETE FROM jobs.retention_change WHERE made_by = ANY ($1)";
}
