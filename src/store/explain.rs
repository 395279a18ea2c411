//! Why a job does not run now. Each branch of the statement is a reason, and says where it comes
//! among the others (n), its name, what is behind it, until when it holds, and the jobs that it is
//! about. All of it is what one snapshot shows.

use pgrx::pg_sys::Datum;

use super::health::line;
use super::limits::latest_start;
use super::place::joined_to_its_row;
use super::spi::{Plan, Snapshot, Tuples, big, text};
use super::types::*;
use super::{activity, workers};

/// Whether the caller may see what jobs carry.
pub fn sees_payload() -> bool {
    SEES_PAYLOAD.value(&[]) == Some(true)
}

/// The column of a reason that has text of callers in it.
pub const DETAIL: i32 = 2;

/// Hands the reasons to `take`, the decisive one first; `None`: there is no such job.
pub fn reasons<T>(
    id: i64,
    now: i64,
    sees_payload: bool,
    take: impl FnOnce(&Tuples) -> T,
) -> Option<T> {
    let (queue, kind): (String, String) =
        QUEUE.first_as_of(Snapshot::Callers, &[big(id)], |rows| {
            rows.get(0, "queue").zip(rows.get(0, "kind"))
        })??;
    let fetched_at = activity::last_fetched(&queue);
    let is_left_since = |since| activity::is_unattended(&queue, fetched_at, since, now);
    let is_left = is_left_since(now - activity::UNATTENDED);
    let quiet = workers::quiet_for(&queue)
        .filter(|quiet| is_left || quiet.are_all && is_left_since(quiet.commanded_at));
    let args = [
        big(id),
        big(now),
        Some(Datum::from(sees_payload)),
        Some(Datum::from(is_left)),
        fetched_at.map(Datum::from),
        text(&queue),
        quiet.and_then(|quiet| text(&quiet.names)),
        activity::passes_over(&queue, &kind, now).map(Datum::from),
    ];
    REASONS.first_as_of(Snapshot::Callers, &args, take)
}

// A time as people read it, in the session's time zone.
macro_rules! at {
    ($time:literal) => {
        concat!("to_char(", $time, ", 'YYYY-MM-DD HH24:MI:SS.MS OF')")
    };
}

static SEES_PAYLOAD: Plan = Plan::new(
    "SELECT pg_catalog.has_table_privilege('jobs.job'::pg_catalog.regclass, 'SELECT')",
    &[],
);

static QUEUE: Plan = Plan::new(
    "SELECT COALESCE(r.queue, j.queue) AS queue, j.kind FROM jobs.job j LEFT JOIN jobs.running r ON r.job_id = j.id WHERE j.id = $1",
    &[INT8],
);

// What is in front: the jobs of ready before this one, and of those that are due the ones that the
// next fetch puts before it; a fetch makes 1000 of them available. Lower priorities and its own are
// read apart: where rows are compared, (priority, seq) < .., the scan goes on to the lane's end.
static REASONS: Plan = Plan::new(
    concat!(
        "WITH j AS MATERIALIZED (
           SELECT j.id, j.kind, j.priority, j.max_attempts, j.expires_at, j.queue AS job_queue,
                  CASE WHEN r.job_id IS NOT NULL THEN 'running' ELSE COALESCE(s.state::text, f.state::text, 'available') END AS state,
                  COALESCE(a.seq, b.seq) AS seq, COALESCE(r.attempt, s.attempt, f.attempt) AS attempt,
                  CASE WHEN s.state = 'pending' THEN j.scheduled_at ELSE s.due_at END AS due_at,
                  COALESCE(r.worker, f.worker) AS worker, r.attempted_at, r.lease_expires_at, r.deadline_at, r.cancel_requested_at,
                  COALESCE(r.cancel_reason, f.cancel_reason) AS cancel_reason, r.progress, f.finalized_at,
                  (SELECT ",
        line!("e.error"),
        " FROM jobs.error e WHERE e.job_id = j.id ORDER BY e.at DESC LIMIT 1) AS last_error,
                  CASE WHEN EXISTS (SELECT FROM jobs.maintenance_pause) THEN ', but maintenance is paused: jobs.resume_maintenance' ELSE '' END AS but_paused
             FROM jobs.job j ",
        joined_to_its_row!(),
        " WHERE j.id = $1 AND COALESCE(a.job_id, b.job_id, r.job_id, s.job_id, f.job_id) IS NOT NULL),
         w AS MATERIALIZED (
           SELECT j.*, $6 AS queue, j.state = 'available' OR j.state <> 'pending' AND j.due_at <= $2 AS is_due, COALESCE(j.seq, 9223372036854775807) AS position,
                  q.paused_at, ' by ' || q.paused_by || COALESCE(' (' || q.pause_reason || ')', '') AS paused_by, q.concurrency, q.rate, q.rate_period,
                  CASE WHEN q.concurrency IS NOT NULL THEN (SELECT count(*) FROM jobs.queue_slot s WHERE s.queue = $6 AND s.job_id IS NOT NULL) END AS taken,
                  CASE WHEN q.rate IS NOT NULL THEN (SELECT LEAST(s.free_at, ",
        latest_start!("$2", "q.rate_period"),
        ") FROM jobs.queue_start s WHERE s.queue = $6 ORDER BY s.free_at LIMIT 1) END AS free_at
             FROM j LEFT JOIN jobs.queue q ON q.queue = $6
            WHERE j.state IN ('available', 'scheduled', 'retryable', 'pending') AND (j.expires_at IS NULL OR j.expires_at > $2)),
         front AS MATERIALIZED (
           SELECT r.job_id, r.priority, r.seq, NULL::timestamptz AS due_at
             FROM w, LATERAL (
               SELECT r.job_id, r.priority, r.seq
                 FROM ((SELECT r.* FROM jobs.ready r WHERE r.priority < w.priority ORDER BY r.priority, r.seq)
                       UNION ALL
                       (SELECT r.* FROM jobs.ready r WHERE r.priority = w.priority AND r.seq < w.position ORDER BY r.seq)) r
                WHERE r.queue = $6 AND (r.expires_at IS NULL OR r.expires_at > $2) LIMIT 10001) r
            WHERE w.is_due
           UNION ALL
           SELECT s.job_id, d.priority, NULL, s.due_at
             FROM w, LATERAL (
               SELECT s.job_id, s.due_at FROM jobs.scheduled s
                WHERE s.queue = $6 AND s.due_at <= $2 AND (s.expires_at IS NULL OR s.expires_at > $2) ORDER BY s.due_at LIMIT 1000) s
             JOIN jobs.job d ON d.id = s.job_id
            WHERE w.is_due AND s.job_id <> w.id
              AND (d.priority < w.priority OR d.priority = w.priority AND w.seq IS NULL AND (s.due_at, s.job_id) < (w.due_at, w.id))),
         behind AS MATERIALIZED (SELECT count(*) AS n FROM front),
         reason(n, reason, detail, until, by_ids) AS (
           SELECT 1, 'final', CASE j.state WHEN 'completed' THEN format('worker %s completed it at %s', j.worker, ",
        at!("j.finalized_at"),
        ")                         WHEN 'cancelled' THEN 'it was cancelled at ' || ",
        at!("j.finalized_at"),
        " || COALESCE(': ' || j.cancel_reason, '')
                                   ELSE 'it was discarded at ' || ",
        at!("j.finalized_at"),
        " || COALESCE(': ' || j.last_error, '') END,
                  NULL::timestamptz, NULL::bigint[]
             FROM j WHERE j.finalized_at IS NOT NULL
           UNION ALL
           SELECT 2, 'running', format('worker %s has had it since %s, attempt %s of %s', j.worker, ",
        at!("j.attempted_at"),
        ", j.attempt, j.max_attempts)
                  || CASE WHEN j.lease_expires_at <= $2 THEN '; its lease ran out at ' || ",
        at!("j.lease_expires_at"),
        " || ' and maintenance takes it away' || j.but_paused ELSE '; its lease ends at ' || ",
        at!("j.lease_expires_at"),
        " END
                  || COALESCE('; its time ends at ' || ",
        at!("j.deadline_at"),
        ", '') || COALESCE('; it was asked to stop at ' || ",
        at!("j.cancel_requested_at"),
        " || COALESCE(': ' || j.cancel_reason, ''), '')
                  || COALESCE('; the worker is lost, last seen at ' || (SELECT ",
        at!("w.last_seen_at"),
        " FROM jobs.workers w WHERE w.worker = j.worker AND w.status = 'lost'), '')
                  || COALESCE('; progress ' || CASE WHEN $3 THEN j.progress::text END, ''),
                  CASE WHEN j.lease_expires_at > $2 THEN j.lease_expires_at END, NULL
             FROM j WHERE j.attempted_at IS NOT NULL
           UNION ALL
           SELECT 3, 'expired', 'it expired at ' || ",
        at!("j.expires_at"),
        " || ': no fetch returns it, and maintenance discards it' || j.but_paused, NULL, NULL
             FROM j WHERE j.finalized_at IS NULL AND j.attempted_at IS NULL AND j.expires_at <= $2
           UNION ALL
           SELECT 4, 'pending', format('it waits for jobs.activate(%s)', w.id), NULL, NULL FROM w WHERE w.state = 'pending'
           UNION ALL
           SELECT 5, CASE w.state WHEN 'pending' THEN 'scheduled' ELSE w.state END, CASE w.state WHEN 'retryable' THEN format('attempt %s of %s failed%s; ', w.attempt, w.max_attempts, ': ' || w.last_error) ELSE '' END
                  || 'it is due at ' || ",
        at!("w.due_at"),
        ", w.due_at, NULL
             FROM w WHERE w.due_at > $2
           UNION ALL
           SELECT 6, 'queue paused', format('queue %s was paused at %s%s: jobs.resume_queue lets it go on', w.queue, ",
        at!("w.paused_at"),
        ", w.paused_by), NULL, NULL
             FROM w WHERE w.paused_at IS NOT NULL
           UNION ALL
           SELECT 7, 'queue limit', format('%s jobs of queue %s run, and no more than %s may', w.taken, w.queue, w.concurrency), NULL,
                  ARRAY(SELECT s.job_id FROM jobs.queue_slot s WHERE s.queue = $6 AND s.job_id IS NOT NULL ORDER BY s.n LIMIT 10)
             FROM w WHERE w.taken >= w.concurrency
           UNION ALL
           SELECT 8, 'queue rate', format('%s jobs of queue %s have started within %s, and no more may', w.rate, w.queue, w.rate_period), w.free_at, NULL
             FROM w WHERE w.free_at > $2
           UNION ALL
           SELECT 9, 'no worker',
                  concat_ws('; ', CASE WHEN $4 THEN COALESCE(format('nobody has fetched from queue %s since ', w.queue) || ",
        at!("$5"),
        ",         format('nobody is known to have fetched from queue %s', w.queue)) END,
                    format('workers of queue %s are quiet until jobs.resume_worker: ', w.queue) || $7), NULL, NULL
             FROM w WHERE w.is_due AND ($4 OR $7 IS NOT NULL)
           UNION ALL
           SELECT 10, 'kind not asked for', format('queue %s is fetched from, the latest at ', w.queue) || ",
        at!("$8"),
        " || format(', and no fetch of the last 5 minutes has asked for kind %s', w.kind), NULL, NULL
             FROM w WHERE w.is_due AND $8 IS NOT NULL
           UNION ALL
           SELECT 11, CASE WHEN b.n > 10000 THEN 'behind more than 10000 jobs' ELSE format('behind %s jobs', b.n) END,
                  format('they come before it in queue %s, by a lower priority number or for longer', w.queue), NULL,
                  ARRAY(SELECT f.job_id FROM front f ORDER BY f.priority, f.seq, f.due_at, f.job_id LIMIT 10)
             FROM w, behind b WHERE b.n > 0
           UNION ALL
           SELECT 12, 'next', format('the next fetch from queue %s gets it', w.queue), NULL, NULL
             FROM w, behind b
            WHERE w.is_due AND b.n = 0 AND $8 IS NULL AND w.paused_at IS NULL AND COALESCE(w.taken < w.concurrency, true) AND COALESCE(w.free_at <= $2, true)
           )
         SELECT r.reason,
                r.detail || CASE WHEN r.n > 10 AND w.due_at <= $2 THEN format('; it was due at %s, and a fetch makes it available', ",
        at!("w.due_at"),
        ") ELSE '' END,
                r.until, r.by_ids
           FROM reason r LEFT JOIN w ON true ORDER BY r.n"
    ),
    &[INT8, AT, BOOL, BOOL, AT, TEXT, TEXT, AT],
);
