//! What may need attention about the work itself: what fails, what runs too long, what is not
//! fetched, what is paused. `src/health.rs` decides.
//!
//! What fails and what is usual is told by the latest jobs, of which so many are looked at, and
//! only where there is reason to.

use std::collections::HashMap;

use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::activity;
use super::count::heads;
use super::health::{Thresholds, line};
use super::periodic_schedule::BUSY;
use super::spi::{big, column, plans, rows, text};
use super::types::*;
use crate::settings::Retention;

/// How far back failed attempts are looked at, in microseconds.
pub const LATELY: i64 = 600_000_000;
/// Fewer failed attempts are none to speak of.
pub const FEWEST_FAILED: i64 = 10;
/// Jobs that have been running for less are ignored, in microseconds.
const SHORTEST_RUN: i64 = 60_000_000;
/// More are not counted.
pub const COUNTED: i64 = 1000;
/// More discarded jobs are not counted.
pub const MOST_DISCARDED: i64 = 10_000;
/// How many of the latest completed jobs are looked at.
pub const LATEST: i64 = 10_000;

#[derive(Default)]
pub struct Work {
    /// Of each queue that is not paused the job that has been available for longest; that of the
    /// queue that has waited for longest first.
    pub oldest: Vec<Oldest>,
    /// Queues with jobs that have waited, and no worker; when each was fetched from last.
    pub unattended: Vec<(String, Option<i64>)>,
    /// Jobs that were discarded in the last hour.
    pub discarded: i64,
    /// Jobs whose leases ended a minute ago and before.
    pub expired_leases: i64,
    /// Attempts that failed lately, the latest first.
    pub failed: Vec<Failed>,
    /// The latest completed jobs, if enough attempts failed.
    pub completed: Vec<Completed>,
    /// Jobs that have run for a minute, the longest first.
    pub long: Vec<Long>,
    /// How long jobs of a kind take, if there are any of these.
    pub usual: Vec<Usual>,
    /// Paused queues whose jobs wait.
    pub paused: Vec<Paused>,
    /// Paused limits, and keys of limits, that hold jobs.
    pub limits_paused: Vec<PausedLimit>,
    pub keys_blocked: Vec<BlockedKey>,
    /// Those that hold most jobs first.
    pub lost: Vec<Lost>,
    pub periodic_failed: Vec<PeriodicFailed>,
}

rows! {
    /// The job that has waited for longest in a queue.
    pub struct Oldest {
        pub queue: String,
        pub since: i64,
        pub id: i64,
    }

    /// Attempts of a kind and queue that failed.
    pub struct Failed {
        pub kind: String,
        pub queue: String,
        pub attempts: i64,
        /// The latest of them.
        pub at: i64,
        pub job_id: i64,
    }

    /// Jobs of a kind and queue that were completed.
    pub struct Completed {
        pub kind: String,
        pub queue: String,
        pub jobs: i64,
        /// The first of them.
        pub since: i64,
    }

    /// Running jobs of a kind that began before [`Usual::long_since`].
    pub struct Long {
        pub kind: String,
        pub jobs: i64,
        /// The oldest of them.
        pub job_id: i64,
        pub attempted_at: i64,
    }

    /// How long the latest jobs of a kind took, in microseconds.
    pub struct Usual {
        pub kind: String,
        /// 95 of 100.
        pub mostly: i64,
        pub longest: i64,
    }

    /// A paused queue whose jobs wait.
    pub struct Paused {
        pub queue: String,
        pub paused_at: i64,
        pub paused_by: Option<String>,
        pub pause_reason: Option<String>,
        /// How many wait; one more than [`COUNTED`] stands for all above.
        pub jobs: i64,
    }

    /// A paused limit, or key of one, that holds jobs.
    pub struct PausedLimit {
        pub name: String,
        pub is_key: bool,
        /// `None` also for a caller who may not see it.
        pub key: Option<String>,
        pub paused_at: i64,
        pub paused_by: Option<String>,
        pub pause_reason: Option<String>,
        /// As [`Paused::jobs`].
        pub jobs: i64,
    }

    /// A key of an order that a discarded job blocks, and that has jobs waiting.
    pub struct BlockedKey {
        pub queue: String,
        /// `None`: the caller may not see it.
        pub key: Option<String>,
        pub job_id: i64,
        /// As [`Paused::jobs`].
        pub jobs: i64,
    }

    /// A lost worker that holds jobs.
    pub struct Lost {
        pub worker: String,
        pub running: i64,
        pub last_seen_at: i64,
        pub last_lease_expires_at: i64,
    }

    /// A periodic job whose latest tick has no job, and why.
    pub struct PeriodicFailed {
        pub name: String,
        pub error: String,
    }
}

impl Usual {
    /// A job of the kind that began before this time has been running for long.
    fn long_since(&self, now: i64) -> i64 {
        let most = self.longest.max(self.mostly.saturating_mul(10));
        now - most.max(SHORTEST_RUN)
    }
}

pub(super) fn facts(from: &Thresholds, now: i64, sees_payload: bool) -> Work {
    let unattended_since = now - activity::UNATTENDED;
    let since = from.oldest_available.map_or(i64::MIN, |span| now - span);
    let oldest: Vec<Oldest> = OLDEST.rows(&[big(since.max(unattended_since))]);
    let waiting = oldest.iter().filter(|oldest| oldest.since < unattended_since);
    let waiting = waiting.map(|oldest| oldest.queue.clone());
    let waiting = waiting.take(COUNTED as usize).collect();
    let lately = now - LATELY;
    let kept = big(Retention::current().of(State::Completed).unwrap_or(-1));
    let failed: Vec<Failed> = FAILED.rows(&[big(lately), kept, big(LATELY)]);
    let are_suspect =
        are_many(&failed, |failed| &failed.kind) || are_many(&failed, |failed| &failed.queue);
    let usual: Vec<Usual> = match LONGEST_RUN.value::<i64>(&[]) {
        Some(began) if began < now - SHORTEST_RUN => USUAL.rows(&[]),
        _ => Vec::new(),
    };
    let long = match usual.is_empty() {
        true => Vec::new(),
        false => LONG.rows(&[
            column(TEXT, &usual, |usual| text(&usual.kind)),
            column(AT, &usual, |usual| big(usual.long_since(now))),
        ]),
    };
    Work {
        unattended: activity::unattended(waiting, unattended_since, now),
        oldest,
        discarded: DISCARDED.value(&[]).unwrap_or(0),
        expired_leases: EXPIRED_LEASES.value(&[]).unwrap_or(0),
        completed: if are_suspect { COMPLETED.rows(&[big(lately)]) } else { Vec::new() },
        failed,
        usual,
        long,
        paused: PAUSED.rows(&[]),
        limits_paused: LIMITS_PAUSED.rows(&[Some(Datum::from(sees_payload))]),
        keys_blocked: KEYS_BLOCKED.rows(&[Some(Datum::from(sees_payload))]),
        lost: LOST.rows(&[]),
        periodic_failed: PERIODIC_FAILED.rows(&[text(BUSY)]),
    }
}

/// Whether some of a name are enough to look further.
fn are_many(failed: &[Failed], name: impl Fn(&Failed) -> &str) -> bool {
    let mut attempts = HashMap::new();
    failed.iter().any(|failed| {
        let sum = attempts.entry(name(failed)).or_insert(0);
        *sum += failed.attempts;
        *sum >= FEWEST_FAILED
    })
}

/// The first line of the error of an attempt.
pub fn error_of(failed: &Failed) -> Option<String> {
    ERROR.value(&[big(failed.job_id), big(failed.at)])
}

// The latest completed jobs, at most 10,000.
fn latest(which: &str) -> String {
    format!(
        "(SELECT f.job_id, f.attempted_at, f.finalized_at
           FROM unnest('{{false,true}}'::boolean[]) AS k(is_kept), LATERAL (
                  SELECT f.job_id, f.attempted_at, f.finalized_at FROM jobs.finished f
                   WHERE f.state = 'completed' AND f.is_kept = k.is_kept{which}
                    ORDER BY f.finalized_at DESC LIMIT 10000) f
          ORDER BY f.finalized_at DESC LIMIT 10000) l"
    )
}

plans! {
    // What a paused limit or a blocked key holds is another finding.
    OLDEST(AT) =
        "{heads}SELECT h.queue, min(h.since) AS since, (array_agg(h.id ORDER BY h.since))[1] AS id FROM head h
          WHERE NOT EXISTS (SELECT FROM jobs.queue q WHERE q.queue = h.queue AND q.paused_at IS NOT NULL)
            AND NOT EXISTS (SELECT FROM jobs.limit_rule r WHERE r.name = h.limit_name AND r.paused_at IS NOT NULL)
            AND NOT EXISTS (SELECT FROM jobs.limit_key_rule k WHERE k.gate = h.gate AND k.paused_at IS NOT NULL)
            AND NOT EXISTS (SELECT FROM jobs.turn t WHERE t.gate = h.gate AND t.is_blocked)
          GROUP BY h.queue HAVING min(h.since) < $1 ORDER BY min(h.since)",
        heads = heads(true);
    DISCARDED() =
        "SELECT count(*)
           FROM (SELECT FROM jobs.finished f
                  WHERE f.state = 'discarded' AND f.is_kept IN (false, true) AND f.finalized_at > clock_timestamp() - interval '1 hour' LIMIT 10001) d";
    EXPIRED_LEASES() =
        "SELECT count(*) FROM jobs.running r WHERE r.lease_expires_at < clock_timestamp() - interval '1 minute'";
    // What expired was no attempt. Where completed jobs go at once, nothing is known.
    FAILED(AT, INT8, INT8) of_ranges =
        "SELECT j.kind, j.queue, count(*) AS attempts, max(e.at) AS at, (array_agg(e.job_id ORDER BY e.at DESC))[1] AS job_id
           FROM (SELECT e.job_id, e.at FROM jobs.error e
                  WHERE e.at > $1 AND e.state <> 'cancelled' AND (e.details ->> 'type') IS DISTINCT FROM 'expired' LIMIT 10000) e
           JOIN jobs.job j ON j.id = e.job_id LEFT JOIN jobs.queue q ON q.queue = j.queue
          WHERE COALESCE(q.retention_completed, $2) NOT BETWEEN 0 AND $3 - 1
          GROUP BY j.kind, j.queue ORDER BY max(e.at) DESC";
    ERROR(INT8, AT) =
        "SELECT {line} FROM jobs.error e WHERE e.job_id = $1 AND e.at = $2 LIMIT 1",
        line = line("e.error");
    COMPLETED(AT) =
        "SELECT j.kind, j.queue, count(*) AS jobs, min(l.finalized_at) AS since FROM {latest} JOIN jobs.job j ON j.id = l.job_id GROUP BY j.kind, j.queue",
        latest = latest(" AND f.finalized_at > $1");
    LONGEST_RUN() = "SELECT min(r.attempted_at) FROM jobs.running r";
    LONG(TEXTS, ATS) =
        "SELECT j.kind, count(*) AS jobs, (array_agg(r.job_id ORDER BY r.attempted_at))[1] AS job_id, min(r.attempted_at) AS attempted_at
           FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id JOIN unnest($1, $2) u(kind, since) ON u.kind = j.kind
          WHERE r.attempted_at < u.since GROUP BY j.kind ORDER BY min(r.attempted_at) LIMIT 20";
    USUAL() =
        "SELECT j.kind, (extract(epoch FROM percentile_disc(0.95) WITHIN GROUP (ORDER BY l.finalized_at - l.attempted_at)) * 1000000)::bigint AS mostly,
                (extract(epoch FROM max(l.finalized_at - l.attempted_at)) * 1000000)::bigint AS longest
           FROM {latest} JOIN jobs.job j ON j.id = l.job_id WHERE l.attempted_at IS NOT NULL GROUP BY j.kind HAVING count(*) >= 20",
        latest = latest("");
    PAUSED() =
        "SELECT q.queue, q.paused_at, q.paused_by, q.pause_reason, w.jobs
           FROM (SELECT * FROM jobs.queue q WHERE q.paused_at IS NOT NULL ORDER BY q.paused_at LIMIT 1000) q, LATERAL (SELECT count(*) AS jobs FROM (
                  SELECT 1 FROM jobs.ready r WHERE r.queue = q.queue
                  UNION ALL
                  SELECT 1 FROM jobs.scheduled s WHERE s.queue = q.queue AND s.due_at <= clock_timestamp() LIMIT 1001) x) w
          WHERE w.jobs > 0 ORDER BY q.paused_at";
    // Walks from gate to gate along the index, and only if a whole limit is paused.
    LIMITS_PAUSED(BOOL) =
        "WITH RECURSIVE gate AS (
           (SELECT s.gate, s.limit_name FROM jobs.scheduled s
             WHERE s.gate IS NOT NULL AND EXISTS (SELECT FROM jobs.limit_rule r WHERE r.paused_at IS NOT NULL) ORDER BY s.gate LIMIT 1)
           UNION ALL
           SELECT n.gate, n.limit_name FROM gate g,
                  LATERAL (SELECT s.gate, s.limit_name FROM jobs.scheduled s WHERE s.gate > g.gate ORDER BY s.gate LIMIT 1) n),
         held AS MATERIALIZED (SELECT g.gate, g.limit_name FROM gate g LIMIT 1000)
         SELECT p.name, p.is_key, CASE WHEN $1 THEN p.key::text END AS key, p.paused_at, p.paused_by, p.pause_reason, w.jobs
           FROM (SELECT r.name, false AS is_key, NULL::jsonb AS key, r.paused_at, r.paused_by, r.pause_reason,
                        ARRAY(SELECT h.gate FROM held h WHERE h.limit_name = r.name) AS gates
                   FROM jobs.limit_rule r WHERE r.paused_at IS NOT NULL
                 UNION ALL
                 (SELECT k.name, true, k.key, k.paused_at, k.paused_by, k.pause_reason, ARRAY[k.gate]
                    FROM jobs.limit_key_rule k WHERE k.paused_at IS NOT NULL ORDER BY k.paused_at LIMIT 1000)) p,
                LATERAL (SELECT count(*) AS jobs FROM (SELECT FROM jobs.scheduled s WHERE s.gate = ANY (p.gates) LIMIT 1001) x) w
          WHERE w.jobs > 0 ORDER BY p.paused_at, p.name";
    KEYS_BLOCKED(BOOL) =
        "SELECT t.queue, CASE WHEN $1 THEN t.key::jsonb::text END AS key, t.job_id, w.jobs
           FROM (SELECT * FROM jobs.turn t WHERE t.is_blocked ORDER BY t.queue, t.job_id LIMIT 1000) t,
                LATERAL (SELECT count(*) AS jobs FROM (SELECT FROM jobs.scheduled s WHERE s.gate = t.gate LIMIT 1001) x) w
          WHERE w.jobs > 0";
    LOST() =
        "SELECT w.worker, w.running, w.last_seen_at, w.last_lease_expires_at FROM jobs.workers w
          WHERE w.status = 'lost' AND w.running > 0 ORDER BY w.running DESC, w.worker";
    PERIODIC_FAILED(TEXT) =
        "SELECT p.name, {line} AS error FROM jobs.periodic_schedule p
          WHERE p.last_error IS NOT NULL AND p.last_error <> $1 AND p.paused_at IS NULL ORDER BY p.name LIMIT 1000",
        line = line("p.last_error");
}
