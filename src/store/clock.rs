//! Stored times that lie ahead of the clock. A clock that was ahead and was put back leaves them
//! behind: past events lie in the future, and durations that count from these end late by as much.
//! Maintenance cuts them: events are dated now, and ends are brought forward by as much.
//!
//! Times that a person or program chose are kept: when a scheduled job is due or expires. So are
//! records of the history and the audit.

use std::sync::atomic::{AtomicBool, Ordering};

use jobs_core::key::Key;
use jobs_core::state::State;

use super::moves::{self, To};
use super::spi::{big, plans, rows};
use super::types::*;
use super::{config_cache, limits, notes, place};
use crate::pg::time;
use crate::shmem::leases;

/// Times up to this far ahead of the clock are not cut, in microseconds: small corrections of
/// clocks are normal. The statements below have it as well.
const TOLERATED: i64 = 60 * 1_000_000;

/// A lease was read that began ahead of the clock.
static HAS_LEASE_AHEAD: AtomicBool = AtomicBool::new(false);

/// Whether what happened lies ahead of the clock.
pub fn is_ahead(at: i64, now: i64) -> bool {
    at > now.saturating_add(TOLERATED)
}

/// Notes when a lease that was read began.
pub(super) fn lease_began(at: i64, now: i64) {
    if is_ahead(at, now) {
        HAS_LEASE_AHEAD.store(true, Ordering::Relaxed);
    }
}

/// How far stored times lie ahead of the clock, if they do.
pub fn ahead() -> Option<i64> {
    let leases = || RUNNING_LATEST.value(&[]);
    let has_lease = HAS_LEASE_AHEAD.swap(false, Ordering::Relaxed);
    let lease = has_lease.then(leases).flatten();
    let latest: i64 = LATEST.value(&[]).max(lease)?;
    let ahead = latest.saturating_sub(time::now());
    (ahead > TOLERATED).then_some(ahead)
}

/// Jobs that were looked at.
pub struct Page {
    /// The last of them; `None` when there are no more.
    pub last: Option<i64>,
    /// How many were inserted ahead of the clock, and are cut.
    pub cut: usize,
}

/// Cuts the jobs that were inserted ahead of the clock, of so many after this one, with their holds
/// and windows, except locked ones.
pub fn cut_jobs(after_id: i64, limit: i64) -> Page {
    let (last, cut) = CUT_JOBS.run(&[big(after_id), big(limit)], |rows| {
        let job = |row| Some((rows.get(row, "id")?, rows.get(row, "key")));
        let cut: Vec<(i64, Option<Key>)> = (0..rows.len()).filter_map(job).collect();
        (rows.get(0, "last"), cut)
    });
    // Others may have been folded for a final job that is now kept for less long.
    for (id, key) in &cut {
        if let Some(key) = key {
            notes::returned(*key, *id, time::now());
        }
    }
    Page { last, cut: cut.len() }
}

/// Cuts times ahead of the clock in all tables but those of jobs and schedules, up to `limit` of
/// each. Returns how many in all, and whether there may be more.
pub fn cut_others(limit: i64) -> (usize, bool) {
    let failed = CUT_ERRORS
        .list(&[big(limit)], |rows, row| Some(rows.get(row, "job_id").zip(rows.get(row, "by"))));
    for (id, by) in failed.iter().flatten() {
        retry_earlier(*id, *by);
    }
    let mut cut = failed.len();
    let mut more = cut as i64 >= limit;
    for plan in [&CUT_FINISHED, &CUT_ANSWERS] {
        let done = plan.execute(&[big(limit)]);
        cut += done;
        more |= done as i64 >= limit;
    }
    let ends: Vec<i64> = CUT_LEASES.values(&[]);
    ends.iter().for_each(|end| leases::noted(*end));
    cut += ends.len() + limits::cut_all_starts();
    let queues = CUT_QUEUES.execute(&[]);
    if queues > 0 {
        config_cache::changed();
    }
    cut += queues;
    let small = [&CUT_WORKERS, &CUT_COMMANDS, &CUT_PAUSE, &CUT_TASKS, &CUT_COUNTS];
    cut += small.map(|plan| plan.execute(&[])).iter().sum::<usize>();
    (cut, more)
}

/// Has a job, which the caller has locked, retried earlier by so much.
fn retry_earlier(id: i64, by: i64) {
    let place = place::locate(id).filter(|place| place.state == State::Retryable);
    if let Some(row) = place.and_then(|place| place.take())
        && let Some(due_at) = row.scheduled_at
    {
        let to = To::Scheduled(State::Retryable, due_at.saturating_sub(by));
        moves::put_one(id, row, to, time::now());
    }
}

/// Records in the audit how many times were cut and how far ahead of the clock they lay.
pub fn note(by: i64, cut: i64) {
    NOTE.execute(&[big(time::now()), big(by), big(cut)]);
}

/// How far stored times lie ahead of the clock, if they do; leases are looked at in any case.
pub(super) fn lies_ahead(now: i64) -> Option<i64> {
    let latest: i64 = LATEST.value(&[]).max(RUNNING_LATEST.value(&[]))?;
    is_ahead(latest, now).then(|| latest.saturating_sub(now))
}

rows! {
    /// That stored times lay ahead of the clock, which had been put back.
    pub struct PutBack {
        /// When they were brought forward.
        pub at: i64,
        /// How many, and how far ahead they lay.
        pub times: String,
        pub ahead: String,
    }
}

/// The latest time that times were brought forward, within a day.
pub(super) fn put_back() -> Option<PutBack> {
    PUT_BACK.rows(&[]).pop()
}

// What the audit calls it.
const ACTION: &str = "'clock put back'";

// From when on a time lies ahead. Read once, so that an index can be used.
const AHEAD: &str = "(SELECT clock_timestamp() + interval '1 minute')";

// A table in which what happened is dated now, up to so many rows.
fn cut(table: &str, column: &str, and: &str, set: &str) -> String {
    format!(
        "UPDATE {table} t SET {set} FROM (SELECT c.ctid, c.{column} - clock_timestamp() AS by FROM {table} c WHERE {and}c.{column} > {AHEAD} LIMIT $1 FOR UPDATE SKIP LOCKED) o WHERE t.ctid = o.ctid"
    )
}

// A time that is at most now; null stays null, which LEAST would not leave.
fn past(column: &str) -> String {
    format!(
        "{column} = CASE WHEN t.{column} > clock_timestamp() THEN clock_timestamp() ELSE t.{column} END"
    )
}

// A short table with two such times.
fn cut_short(table: &str, one: &str, other: &str) -> String {
    format!(
        "UPDATE {table} t SET {}, {} WHERE t.ctid = ANY (ARRAY(SELECT c.ctid FROM {table} c WHERE GREATEST(c.{one}, c.{other}) > {AHEAD} FOR UPDATE SKIP LOCKED))",
        past(one),
        past(other)
    )
}

fn cut_one(table: &str, column: &str) -> String {
    format!(
        "UPDATE {table} t SET {column} = clock_timestamp() WHERE t.ctid = ANY (ARRAY(SELECT c.ctid FROM {table} c WHERE c.{column} > {AHEAD} FOR UPDATE SKIP LOCKED))"
    )
}

plans! {
    // The latest of what happened, of what is found by an index or is short. Entries of what is
    // gone are not walked over: only those of the latest jobs, and those that lie ahead.
    LATEST() =
        "SELECT max(t.at) FROM (
           SELECT max(j.created_at) AS at FROM jobs.job j WHERE j.id > (SELECT s.last_value - 10000 FROM jobs.job_seq s)
           UNION ALL
           SELECT f.at
             FROM (VALUES ('completed'::jobs.state), ('cancelled'), ('discarded')) s(state), unnest('{{false,true}}'::boolean[]) k(is_kept), LATERAL (
                    SELECT f.finalized_at AS at FROM jobs.finished f
                     WHERE f.state = s.state AND f.is_kept = k.is_kept AND f.finalized_at > {AHEAD}
                     ORDER BY f.finalized_at DESC LIMIT 1) f
           UNION ALL
           SELECT max(w.last_seen_at) FROM jobs.worker w
           UNION ALL
           SELECT max(GREATEST(m.last_run_at, m.last_error_at)) FROM jobs.maintenance_task m) t";
    RUNNING_LATEST() = "SELECT max(r.attempted_at) FROM jobs.running r";
    PUT_BACK() =
        "SELECT a.at, a.arguments ->> 'times' AS times, a.arguments ->> 'ahead' AS ahead FROM jobs.audit_record a
          WHERE a.at > (SELECT clock_timestamp() - interval '1 day') AND a.action = {ACTION} ORDER BY a.at DESC LIMIT 1";
    // A job whose claim is locked is left, with its hold there.
    CUT_JOBS(INT8, INT8) =
        "WITH page AS MATERIALIZED (
           SELECT j.id, j.created_at, j.hold_ends_at, j.unique_key FROM jobs.job j WHERE j.id > $1 ORDER BY j.id LIMIT $2),
         claim AS MATERIALIZED (
           SELECT c.key FROM jobs.unique_claim c
            WHERE c.key = ANY (ARRAY(SELECT p.unique_key FROM page p WHERE p.created_at > {AHEAD}
                                      AND p.hold_ends_at IS NOT NULL)) FOR UPDATE SKIP LOCKED),
         job AS MATERIALIZED (
           SELECT j.id, j.unique_key, j.created_at - clock_timestamp() AS by FROM jobs.job j
            WHERE j.id = ANY (ARRAY(SELECT p.id FROM page p WHERE p.created_at > {AHEAD}
                                     AND (p.hold_ends_at IS NULL OR p.unique_key IN (SELECT c.key FROM claim c))))
              AND j.created_at > {AHEAD}
              FOR UPDATE SKIP LOCKED),
         cut AS (
           UPDATE jobs.job j SET created_at = j.created_at - o.by, hold_ends_at = j.hold_ends_at - o.by, unique_until = j.unique_until - o.by
             FROM job o WHERE j.id = o.id),
         held AS (
           UPDATE jobs.unique_claim c
              SET hold_ends_at = (SELECT array_agg(l.ends_at - COALESCE(o.by, '0') ORDER BY l.n)
                                    FROM unnest(c.jobs, c.hold_ends_at) WITH ORDINALITY AS l(id, ends_at, n) LEFT JOIN job o ON o.id = l.id)
            WHERE c.key IN (SELECT l.key FROM claim l) AND c.hold_ends_at IS NOT NULL)
         SELECT p.last, o.id, CASE WHEN EXISTS (SELECT FROM jobs.finished f WHERE f.job_id = o.id) THEN o.unique_key END AS key
           FROM (SELECT max(p.id) AS last FROM page p) p LEFT JOIN job o ON true";
    // Of up to so many jobs. The latest error says by how much a job is to be retried earlier:
    // where that is locked, its errors stay as well.
    CUT_ERRORS(INT8) =
        "WITH failed AS MATERIALIZED (
           SELECT e.job_id, max(e.at) - clock_timestamp() AS by FROM jobs.error e WHERE e.at > {AHEAD}
            GROUP BY e.job_id LIMIT $1),
         retry AS MATERIALIZED (
           SELECT s.job_id FROM jobs.scheduled s
            WHERE s.job_id = ANY (ARRAY(SELECT f.job_id FROM failed f)) AND s.state = 'retryable' FOR UPDATE SKIP LOCKED),
         cut AS (
           UPDATE jobs.error e SET at = clock_timestamp() FROM failed f
            WHERE e.job_id = f.job_id AND e.at > {AHEAD}
              AND (e.job_id IN (SELECT r.job_id FROM retry r)
                   OR NOT EXISTS (SELECT FROM jobs.scheduled s WHERE s.job_id = e.job_id AND s.state = 'retryable'))
           RETURNING e.job_id, f.by)
         SELECT r.job_id, (extract(epoch FROM c.by) * 1000000)::bigint AS by
           FROM (SELECT DISTINCT c.job_id, c.by FROM cut c) c LEFT JOIN retry r ON r.job_id = c.job_id";
    CUT_FINISHED(INT8) =>
        cut("jobs.finished", "finalized_at", "c.state IN ('completed', 'cancelled', 'discarded') AND c.is_kept IN (false, true) AND ", "finalized_at = t.finalized_at - o.by, kept_until = t.kept_until - o.by, attempted_at = CASE WHEN t.attempted_at > t.finalized_at - o.by THEN t.finalized_at - o.by ELSE t.attempted_at END,
             scheduled_at = CASE WHEN t.scheduled_at <= t.finalized_at THEN LEAST(t.scheduled_at, t.finalized_at - o.by) ELSE t.scheduled_at END");
    CUT_ANSWERS(INT8) => cut("jobs.answer", "at", "", "at = t.at - o.by");
    // A lease that ends before its attempt began was given by a heartbeat since the clock was put
    // back. Others are cut, but not to less than the fetch asked for. Leases of attempts that began
    // before the clock was ahead are kept: a heartbeat may ask for any length.
    CUT_LEASES() =
        "UPDATE jobs.running t
            SET attempted_at = t.attempted_at - o.by, deadline_at = t.deadline_at - o.by,
                scheduled_at = CASE WHEN t.scheduled_at <= t.attempted_at THEN LEAST(t.scheduled_at, t.attempted_at - o.by) ELSE t.scheduled_at END,
                cancel_requested_at = CASE WHEN t.cancel_requested_at > clock_timestamp() THEN clock_timestamp() ELSE t.cancel_requested_at END,
                lease_expires_at = LEAST(t.deadline_at - o.by, t.lease_expires_at,
                  CASE WHEN t.lease_expires_at > t.attempted_at THEN GREATEST(t.lease_expires_at - o.by, clock_timestamp() + COALESCE(t.lease, '1 hour')) END)
           FROM (SELECT r.ctid, GREATEST(r.attempted_at - clock_timestamp(), '0') AS by FROM jobs.running r
                  WHERE GREATEST(r.attempted_at, r.cancel_requested_at) > {AHEAD}
                    FOR UPDATE OF r SKIP LOCKED) o
          WHERE t.ctid = o.ctid RETURNING t.lease_expires_at";
    CUT_WORKERS() => cut_short("jobs.worker", "first_seen_at", "last_seen_at");
    CUT_COMMANDS() => cut_short("jobs.worker_command", "commanded_at", "seen_at");
    CUT_TASKS() => cut_short("jobs.maintenance_task", "last_run_at", "last_error_at");
    CUT_QUEUES() => cut_short("jobs.queue", "paused_at", "resumed_at");
    CUT_PAUSE() => cut_one("jobs.maintenance_pause", "paused_at");
    CUT_COUNTS() => cut_one("jobs.kept_count", "counted_at");
    NOTE(AT, INT8, INT8) =
        "INSERT INTO jobs.audit_record (at, role, login_role, application_name, action, arguments)
         VALUES ($1, current_user, session_user, current_setting('application_name'), {ACTION}, jsonb_build_object('ahead', date_trunc('second', $2 * interval '1 microsecond'), 'times', $3))";
}
