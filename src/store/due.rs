//! What has come due and maintenance is to act on: scheduled jobs, those that expire, leases that
//! ran out. Every statement takes a bounded number of rows, skips what another session has locked,
//! and leaves rows alone whose job is not there: while a dump is being restored it may yet come.

use std::collections::HashMap;

use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::columns::delete_some;
use super::lanes::Reach;
use super::queue::Queue;
use super::spi::{Plan, Snapshot, Value, big, bigs, column, plans, rows, text};
use super::types::*;
use super::{direct, effects, retention};
use crate::shmem::leases;

/// Queues that have due jobs, and from when on to look for those of each.
///
/// Where more than `most` jobs are due, not all queues may be told: then those come first that
/// follow `after` by their names, which becomes the last one of them.
pub fn queues_with_due(
    now: i64,
    most: i64,
    after: &mut String,
    reach: Reach,
) -> Vec<(String, i64)> {
    direct::due::queues_with_due(now, most as usize, after, reach)
        .unwrap_or_else(|| queues_by_statement(now, most as usize, after))
}

fn queues_by_statement(now: i64, most: usize, after: &mut String) -> Vec<(String, i64)> {
    let queues = QUEUES_WITH_DUE
        .list(&[big(now), text(after)], |rows, row| Some((rows.get(row, "queue")?, i64::MIN)));
    // No more of them than `most` have their turn now: the next ones are first the next time.
    if let Some((last, _)) = queues.iter().take(most).next_back() {
        after.clone_from(last);
    }
    queues
}

/// Whether a queue has jobs that are due but not yet ready.
pub fn has_due(queue: &Queue, now: i64) -> bool {
    let by_statement = || HAS_DUE.execute(&[queue.arg(), big(now)]) > 0;
    direct::due::has_due(queue, now).unwrap_or_else(by_statement)
}

/// Jobs of a queue that are due, but not these.
pub fn scheduled(queue: &Queue, now: i64, limit: i64, but: &[i64]) -> Vec<i64> {
    DUE.values(&[queue.arg(), big(now), big(limit), bigs(but)])
}

/// Discards available and waiting jobs whose `expires_at` has passed, but not these; how many.
pub fn expire(now: i64, limit: i64, details: Datum, but: &[i64]) -> usize {
    // Planned while hardly any job expires, the statements read all that waits.
    let is_due = |first: &Plan| first.value(&[]).is_some_and(|at: i64| at <= now);
    // Held jobs first: others come in the places of those in lanes.
    [(&EXPIRE_SCHEDULED, &NEXT_SCHEDULED_EXPIRES), (&EXPIRE_READY, &NEXT_READY_EXPIRES)]
        .into_iter()
        .filter(|(_, first)| is_due(first))
        .fold(0, |expired, (plan, _)| {
            let left = big(limit - expired as i64);
            let gone = plan.list(&[big(now), left, bigs(but), Some(details)], |rows, row| {
                Some((rows.get::<i64>(row, "job_id")?, rows.get::<i64>(row, "gate")))
            });
            let count = gone.len();
            effects::expired(&gone, now);
            let finalized = gone.into_iter().map(|(id, _)| (id, now));
            retention::keep(finalized, State::Discarded);
            expired + count
        })
}

/// Those jobs, but not these.
pub fn expired(now: i64, limit: i64, but: &[i64]) -> Vec<i64> {
    [&EXPIRED_READY, &EXPIRED_SCHEDULED]
        .into_iter()
        .flat_map(|plan| plan.values(&[big(now), big(limit), bigs(but)]))
        .collect()
}

/// A lease that ran out, locked.
pub struct Expired {
    pub id: i64,
    pub token: i64,
    /// Whether the attempt timed out, rather than its lease expired.
    pub timed_out: bool,
}

/// Whose leases are meant.
pub enum Leases<'a> {
    /// This job's lease.
    Of(i64),
    /// The leases of all jobs but these.
    But(&'a [i64]),
}

/// Leases that ran out, oldest ids first. One that a heartbeat was to renew while another session
/// had it locked continues.
pub fn expired_leases(now: i64, limit: i64, whose: &Leases) -> Vec<Expired> {
    let (plan, whose) = match whose {
        Leases::Of(id) => (&EXPIRED_LEASES_OF, bigs(&[*id])),
        Leases::But(but) => match direct::due::expired_leases(now, limit, but) {
            Some(ids) if ids.is_empty() => return Vec::new(),
            Some(ids) => (&EXPIRED_LEASES_OF, bigs(&ids)),
            None => (&EXPIRED_LEASES, bigs(but)),
        },
    };
    let mut expired: Vec<Lease> = plan.rows(&[big(now), big(limit), whose]);
    let noted = noted_ends(&expired);
    for lease in &mut expired {
        lease.lease_expires_at =
            noted.get(&lease.job_id).copied().unwrap_or(lease.lease_expires_at);
    }
    let (over, go_on): (Vec<_>, Vec<_>) =
        expired.iter().partition(|lease| lease.lease_expires_at <= now);
    renew(&go_on);
    over.into_iter().map(Lease::expired).collect()
}

rows! {
    /// A lease that ran out as its row says, locked.
    pub struct Lease {
        pub job_id: i64,
        pub token: i64,
        pub lease_expires_at: i64,
        pub deadline_at: Option<i64>,
    }
}

impl Lease {
    fn expired(&self) -> Expired {
        let timed_out = |deadline| self.lease_expires_at >= deadline;
        Expired {
            id: self.job_id,
            token: self.token,
            timed_out: self.deadline_at.is_some_and(timed_out),
        }
    }
}

/// When leases end, by their jobs, as the latest heartbeats say that could not be written.
fn noted_ends(leases: &[Lease]) -> HashMap<i64, i64> {
    if leases.is_empty() {
        return HashMap::new();
    }
    let args = [
        column(INT8, leases, |lease| big(lease.job_id)),
        column(INT8, leases, |lease| big(lease.token)),
        column(AT, leases, |lease| big(lease.lease_expires_at)),
    ];
    // Also of those that came since this transaction took its snapshot.
    let ends = NOTED_ENDS.list_as_of(Snapshot::Latest, &args, |rows, row| {
        rows.get(row, "job_id").zip(rows.get(row, "goes_on_until"))
    });
    ends.into_iter().collect()
}

/// Deletes up to so many notes of heartbeats that say nothing any more; whether there may be more.
pub fn forget_heartbeats(now: i64, limit: i64) -> bool {
    FORGET_HEARTBEATS.execute(&[big(now), big(limit)]) as i64 >= limit
}

/// Has leases, which are locked, end when they do.
fn renew(leases: &[&Lease]) {
    if leases.is_empty() {
        return;
    }
    RENEW.execute(&[
        column(INT8, leases, |lease| big(lease.job_id)),
        column(AT, leases, |lease| big(lease.lease_expires_at)),
    ]);
    leases.iter().for_each(|lease| leases::noted(lease.lease_expires_at));
}

/// When something will be due next for maintenance, but for final jobs, after a pass that looked at
/// what was due then. What is only to be cleared away can wait for the next pass.
pub fn next_due(looked_at: i64) -> Option<i64> {
    let next = |plan: &Plan| plan.value(&[]);
    let lease = match leases::none_before() {
        Some(at) => Some(at),
        None => direct::due::first_lease(looked_at).unwrap_or_else(|| {
            let args = [big(looked_at), big(again(looked_at))];
            NEXT_LEASE.value(&args)
        }),
    };
    let scheduled = direct::due::first_due().unwrap_or_else(|| next(&NEXT_SCHEDULED));
    let others = [&NEXT_READY_EXPIRES, &NEXT_SCHEDULED_EXPIRES, &NEXT_PERIODIC];
    [lease, scheduled]
        .into_iter()
        .chain(others.map(next))
        .flatten()
        .map(|at| unless_looked_at(at, looked_at))
        .min()
}

/// When to look for what is due at this time: what was so when a pass looked, and is still there,
/// could not be done. A time that is over would hide all others that come.
pub fn unless_looked_at(at: i64, looked_at: i64) -> i64 {
    match at <= looked_at {
        true => again(looked_at),
        false => at,
    }
}

fn again(looked_at: i64) -> i64 {
    looked_at.saturating_add(leases::LOOK_AGAIN)
}

/// Whether some transaction of this database is prepared.
pub fn has_prepared() -> bool {
    HAS_PREPARED.execute(&[]) > 0
}

// Walks from queue to queue along the index instead of reading all that waits.
pub(super) fn queues_of(table: &str) -> String {
    format!(
        "WITH RECURSIVE q AS (
           (SELECT t.queue FROM {table} t ORDER BY t.queue LIMIT 1)
           UNION ALL
           SELECT (SELECT t.queue FROM {table} t WHERE t.queue > q.queue ORDER BY t.queue LIMIT 1)
             FROM q WHERE q.queue IS NOT NULL) "
    )
}

// Locked: what a column is of each.
fn select_expired(column: &str, table: &str) -> String {
    format!(
        "SELECT t.{column} FROM {table} t WHERE t.expires_at <= $1 AND t.job_id <> ALL ($3)
            AND EXISTS (SELECT FROM jobs.job j WHERE j.id = t.job_id) LIMIT $2 FOR UPDATE SKIP LOCKED"
    )
}

// The gates that they counted for in their lanes come with them.
fn discard_expired(table: &str, scheduled_at: &str, gate: &str) -> String {
    format!(
        "WITH gone AS MATERIALIZED (
           DELETE FROM {table}
            WHERE ctid = ANY (ARRAY({}))
           RETURNING job_id, attempt, {scheduled_at} AS scheduled_at, {gate}::bigint AS gate),
         outcome AS (
           INSERT INTO jobs.finished (job_id, finalized_at, state, is_kept, attempt, scheduled_at)
           SELECT job_id, $1, 'discarded', false, attempt, scheduled_at FROM gone),
         error AS (
           INSERT INTO jobs.error (job_id, at, attempt, state, error, details)
           SELECT job_id, $1, attempt, 'discarded', 'expired', $4 FROM gone)
         SELECT job_id, gate FROM gone",
        select_expired("ctid", table)
    )
}

fn select_leases(whose: &str) -> String {
    format!(
        "SELECT r.job_id, r.token, r.lease_expires_at, r.deadline_at
           FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
          WHERE r.lease_expires_at <= $1 AND r.job_id {whose} ORDER BY r.job_id LIMIT $2 FOR UPDATE OF r SKIP LOCKED"
    )
}

plans! {
    QUEUES_WITH_DUE(AT, TEXT) =
        "{queues_of}SELECT q.queue FROM q WHERE q.queue IS NOT NULL
            AND EXISTS (SELECT FROM jobs.scheduled s WHERE s.queue = q.queue AND s.due_at <= $1)
          ORDER BY q.queue <= $2, q.queue",
        queues_of = queues_of("jobs.scheduled");
    HAS_DUE(TEXT, AT) = "SELECT 1 FROM jobs.scheduled WHERE queue = $1 AND due_at <= $2 LIMIT 1";
    DUE(TEXT, AT, INT8, INT8S) =
        "SELECT s.job_id FROM jobs.scheduled s WHERE s.queue = $1 AND s.due_at <= $2 AND s.job_id <> ALL ($4)
            AND EXISTS (SELECT FROM jobs.job j WHERE j.id = s.job_id)
          ORDER BY s.due_at LIMIT $3 FOR UPDATE SKIP LOCKED";
    EXPIRED_READY(AT, INT8, INT8S) => select_expired("job_id", "jobs.ready");
    EXPIRED_SCHEDULED(AT, INT8, INT8S) => select_expired("job_id", "jobs.scheduled");
    EXPIRE_READY(AT, INT8, INT8S, JSONB) => discard_expired("jobs.ready", "scheduled_at", "(to_jsonb(ready) ->> 'gate')");
    EXPIRE_SCHEDULED(AT, INT8, INT8S, JSONB) =>
        discard_expired("jobs.scheduled", "COALESCE((to_jsonb(scheduled) ->> 'scheduled_at')::timestamptz, NULLIF(due_at, 'infinity'))", "NULL");
    EXPIRED_LEASES(AT, INT8, INT8S) => select_leases("<> ALL ($3)");
    EXPIRED_LEASES_OF(AT, INT8, INT8S) => select_leases("= ANY ($3)");
    NOTED_ENDS(INT8S, INT8S, ATS) =
        "SELECT DISTINCT ON (n.job_id) n.job_id, n.goes_on_until
           FROM unnest($1, $2, $3) AS l(id, token, ends_at)
           JOIN jobs.heartbeat_note n ON n.job_id = l.id AND n.token = l.token AND n.lease_expires_at = l.ends_at
          ORDER BY n.job_id, n.at DESC";
    FORGET_HEARTBEATS(AT, INT8) => delete_some(
        "heartbeat_note",
        "t.goes_on_until <= $1 OR NOT EXISTS (
           SELECT FROM jobs.running r WHERE r.job_id = t.job_id AND r.token = t.token AND r.lease_expires_at = t.lease_expires_at)",
    );
    RENEW(INT8S, ATS) =
        "UPDATE jobs.running r SET lease_expires_at = n.ends_at FROM unnest($1, $2) AS n(id, ends_at) WHERE r.job_id = n.id";
    NEXT_SCHEDULED() =
        "{queues_of}SELECT min((SELECT s.due_at FROM jobs.scheduled s WHERE s.queue = q.queue ORDER BY s.due_at LIMIT 1))
           FROM q WHERE q.queue IS NOT NULL",
        queues_of = queues_of("jobs.scheduled");
    HAS_PREPARED() of_catalogs =
        "SELECT FROM pg_catalog.pg_prepared_xacts WHERE database = current_database() LIMIT 1";
    NEXT_LEASE(AT, AT) =
        "SELECT min(CASE WHEN lease_expires_at <= $1 THEN $2 ELSE lease_expires_at END) FROM jobs.running";
    NEXT_READY_EXPIRES() = "SELECT min(expires_at) FROM jobs.ready WHERE expires_at IS NOT NULL";
    NEXT_SCHEDULED_EXPIRES() =
        "SELECT min(expires_at) FROM jobs.scheduled WHERE expires_at IS NOT NULL";
    NEXT_PERIODIC() = "SELECT min(next_run_at) FROM jobs.periodic_schedule";
}
