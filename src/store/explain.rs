//! What is known of a job that does not run: the facts from which `src/explain.rs` tells why. All
//! statements see what the caller's snapshot shows.

use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::health::line;
use super::limits::latest_start;
use super::place::JOINED_TO_ITS_ROW;
use super::queue::Queue;
use super::spi::{Arg, Row, Snapshot, Value, big, plans, rows, text};
use super::types::*;
use super::{activity, config_cache, permits, workers};

/// More jobs in front of a job are not counted.
pub const MOST_IN_FRONT: i64 = 10_000;

/// What is known of a job.
pub struct Facts {
    pub now: i64,
    pub job: Job,
    /// Of a running job.
    pub lease: Option<Lease>,
    /// Of a job that waits and has not expired.
    pub waiting: Option<Waiting>,
}

rows! {
    /// A job, and where it is.
    pub struct Job {
        pub id: i64,
        pub kind: String,
        /// That which its running attempt was fetched from, else that of the job.
        pub queue: String,
        pub state: State,
        pub attempt: i32,
        pub max_attempts: i32,
        pub expires_at: Option<i64>,
        pub finalized_at: Option<i64>,
        /// The worker that holds or finished it; empty: none.
        pub worker: String,
        pub cancel_reason: Option<String>,
        /// The first line of the latest error.
        pub last_error: Option<String>,
        pub maintenance_is_paused: bool,
        pub waits: bool,
        pub due_at: Option<i64>,
    }

    /// The lease of a running job.
    pub struct Lease {
        pub attempted_at: i64,
        pub lease_expires_at: i64,
        pub deadline_at: Option<i64>,
        pub cancel_requested_at: Option<i64>,
        /// When its worker was last seen, if that is lost.
        pub worker_lost_at: Option<i64>,
        /// `None` also for a caller who may not see it.
        pub progress: Option<String>,
    }

    /// The limits of a queue, and how much of them is taken.
    #[derive(Default)]
    pub struct Limits {
        pub paused_at: Option<i64>,
        pub paused_by: Option<String>,
        pub pause_reason: Option<String>,
        pub concurrency: Option<i32>,
        /// How many jobs of the queue have a slot, and the first of them.
        pub taken: i64,
        pub running: Vec<i64>,
        /// How many jobs may start, and within what time.
        pub rate: Option<i32>,
        pub rate_period: Option<i64>,
        /// When the next job may start.
        pub free_at: Option<i64>,
    }

    /// The limit by key that holds the job back, or that the next fetch would hold it by.
    pub struct HeldBy {
        pub name: String,
        /// `None`: it has no keys, or the caller may not see them.
        pub key: Option<String>,
        pub concurrency: Option<i32>,
        pub rate: Option<i32>,
        pub rate_period: Option<i64>,
        pub paused_at: Option<i64>,
        pub paused_by: Option<String>,
        pub pause_reason: Option<String>,
        /// How many jobs run under it with this key, and the first of them.
        pub taken: i64,
        pub running: Vec<i64>,
        /// When the next job may start.
        pub free_at: Option<i64>,
    }

    /// The order by key that holds the job back.
    pub struct Order {
        /// `None`: the caller may not see it.
        pub key: Option<String>,
        pub is_strict: bool,
        /// The first jobs of the key that come before it.
        pub in_front: Vec<i64>,
        /// The discarded job that blocks the key.
        pub blocked_by: Option<i64>,
    }

    /// How many jobs a fetch takes before it, and the first of them.
    #[derive(Default)]
    pub struct InFront {
        pub jobs: i64,
        pub first: Vec<i64>,
    }
}

/// What a waiting job waits for.
pub struct Waiting {
    /// Whether a fetch could take it now, if nothing else were in the way.
    pub is_due: bool,
    pub limits: Limits,
    pub held_by: Option<HeldBy>,
    pub order: Option<Order>,
    /// Whether there was no fetch from the queue lately.
    pub is_left: bool,
    pub fetched_at: Option<i64>,
    /// The queue's workers, if a command keeps them from fetching.
    pub quiet: Option<String>,
    /// The latest fetch, if none lately has asked for the job's kind.
    pub passed_over_at: Option<i64>,
    pub in_front: InFront,
}

/// Whether the caller may see what jobs carry.
pub fn sees_payload() -> bool {
    SEES_PAYLOAD.value(&[]) == Some(true)
}

/// What is known of a job; `None`: there is no such job.
pub fn facts(id: i64, now: i64, sees_payload: bool) -> Option<Facts> {
    let args = [big(id), big(now), Some(Datum::from(sees_payload))];
    let (job, lease) = JOB.first_as_of(Snapshot::Callers, &args, |rows| {
        let job = Job::read(rows, 0);
        let is_running = job.state == State::Running;
        (job, is_running.then(|| Lease::read(rows, 0)))
    })?;
    let waiting = job.waits.then(|| waiting(&job, now, sees_payload));
    Some(Facts { now, job, lease, waiting })
}

fn waiting(job: &Job, now: i64, sees_payload: bool) -> Waiting {
    let queue = &Queue::named(&job.queue);
    let is_due = match job.state {
        State::Available => true,
        State::Pending => false,
        _ => job.due_at.is_some_and(|at| at <= now),
    };
    let fetched_at = activity::last_fetched(queue);
    let is_left_since = |since| activity::is_unattended(queue, fetched_at, since, now);
    let is_left = is_left_since(now - activity::UNATTENDED);
    let quiet = workers::quiet_for(queue)
        .filter(|quiet| is_left || quiet.are_all && is_left_since(quiet.commanded_at));
    let seen = Snapshot::Callers;
    let limits: Option<Limits> = QUEUE.row_as_of(seen, &[queue.arg(), big(now)]);
    let args = [big(job.id), big(now), Some(Datum::from(sees_payload))];
    let held_by = || HELD_BY.row_as_of(seen, &[args[0], args[2]]);
    let held_by: Option<HeldBy> = permits::are_here().then(held_by).flatten();
    let order = || ORDER.row_as_of(seen, &[args[0], args[2]]);
    let order: Option<Order> = permits::are_here().then(order).flatten();
    let is_held = held_by.is_some() || order.is_some();
    let in_front = || IN_FRONT.row_as_of(seen, &args[..2]);
    Waiting {
        is_due,
        limits: limits.unwrap_or_default(),
        is_left,
        fetched_at,
        quiet: quiet.map(|quiet| quiet.names),
        passed_over_at: activity::passes_over(queue, &job.kind, now),
        in_front: (is_due && !is_held).then(in_front).flatten().unwrap_or_default(),
        held_by: if is_held { held_by } else { without_room(job.id, now, args[2]) },
        order,
    }
}

/// The first of the limits that cover a job that has no room for it.
fn without_room(id: i64, now: i64, sees_payload: Arg) -> Option<HeldBy> {
    let rules = config_cache::rules();
    if rules.is_empty() {
        return None;
    }
    let gates = permits::of_jobs(&rules, &[id], None).pop()?.gates;
    let limits = gates.iter().filter(|gate| rules[gate.rule].order.is_none());
    let mut limits = limits.filter_map(|gate| -> Option<HeldBy> {
        let (name, key) = (text(&rules[gate.rule].name), gate.key.as_deref().and_then(text));
        LIMIT.row_as_of(Snapshot::Callers, &[big(gate.id), sees_payload, name, key])
    });
    limits.find(|limit| !limit.has_room(now))
}

impl HeldBy {
    fn has_room(&self, now: i64) -> bool {
        self.paused_at.is_none()
            && self.concurrency.is_none_or(|most| self.taken < i64::from(most))
            && self.free_at.is_none_or(|at| at <= now)
    }
}

// What is known of a limit; $2 is whether its key is shown.
fn limit(gate: &str) -> String {
    format!(
        "SELECT l.*, (SELECT count(*) FROM jobs.permit p WHERE p.gate = l.gate) AS taken,
                ARRAY(SELECT p.job_id FROM jobs.permit p WHERE p.gate = l.gate ORDER BY p.n LIMIT 10) AS running,
                (SELECT t.at + l.period FROM jobs.limit_start t WHERE t.gate = l.gate ORDER BY t.n DESC OFFSET l.rate - 1 LIMIT 1) AS free_at
           FROM (SELECT s.gate, s.limit_name AS name, CASE WHEN $2 THEN s.limit_key::text END AS key,
                        CASE WHEN k.is_override THEN k.concurrency ELSE r.concurrency END AS concurrency,
                        CASE WHEN k.is_override THEN k.rate ELSE r.rate END AS rate,
                        CASE WHEN k.is_override THEN k.rate_period ELSE r.rate_period END AS period,
                        (extract(epoch FROM CASE WHEN k.is_override THEN k.rate_period ELSE r.rate_period END) * 1000000)::bigint AS rate_period,
                        COALESCE(r.paused_at, k.paused_at) AS paused_at,
                        CASE WHEN r.paused_at IS NULL THEN k.paused_by ELSE r.paused_by END AS paused_by,
                        CASE WHEN r.paused_at IS NULL THEN k.pause_reason ELSE r.pause_reason END AS pause_reason
                   FROM ({gate}) s LEFT JOIN jobs.limit_rule r ON r.name = s.limit_name LEFT JOIN jobs.limit_key_rule k ON k.gate = s.gate
                  WHERE r.is_strict IS NULL) l"
    )
}

plans! {
    SEES_PAYLOAD() =
        "SELECT pg_catalog.has_table_privilege('jobs.job'::pg_catalog.regclass, 'SELECT')";
    JOB(INT8, AT, BOOL) =
        "SELECT p.*, p.state IN ('available', 'scheduled', 'retryable', 'pending') AND (p.expires_at IS NULL OR p.expires_at > $2) AS waits
           FROM (
             SELECT j.id, j.kind, COALESCE(r.queue, j.queue) AS queue, j.max_attempts, j.expires_at,
                    CASE WHEN r.job_id IS NOT NULL THEN 'running' ELSE COALESCE(s.state::text, f.state::text, 'available') END AS state,
                    COALESCE(r.attempt, s.attempt, f.attempt, 0) AS attempt,
                    CASE WHEN s.due_at = 'infinity' THEN j.scheduled_at ELSE s.due_at END AS due_at,
                    COALESCE(r.worker, f.worker, '') AS worker, r.attempted_at, r.lease_expires_at, r.deadline_at, r.cancel_requested_at,
                    COALESCE(r.cancel_reason, f.cancel_reason) AS cancel_reason, CASE WHEN $3 THEN r.progress::text END AS progress, f.finalized_at,
                    (SELECT w.last_seen_at FROM jobs.workers w WHERE w.worker = r.worker AND w.status = 'lost') AS worker_lost_at,
                    (SELECT {line} FROM jobs.error e WHERE e.job_id = j.id ORDER BY e.at DESC LIMIT 1) AS last_error,
                    EXISTS (SELECT FROM jobs.maintenance_pause) AS maintenance_is_paused
               FROM jobs.job j {JOINED_TO_ITS_ROW} WHERE j.id = $1 AND COALESCE(a.job_id, b.job_id, r.job_id, s.job_id, f.job_id) IS NOT NULL) p",
        line = line("e.error");
    QUEUE(TEXT, AT) =
        "SELECT q.paused_at, q.paused_by, q.pause_reason, q.concurrency, q.rate, (extract(epoch FROM q.rate_period) * 1000000)::bigint AS rate_period,
                (SELECT count(*) FROM jobs.queue_slot s WHERE s.queue = q.queue AND s.job_id IS NOT NULL) AS taken,
                ARRAY(SELECT s.job_id FROM jobs.queue_slot s WHERE s.queue = q.queue AND s.job_id IS NOT NULL ORDER BY s.n LIMIT 10) AS running,
                (SELECT LEAST(s.free_at, {latest_start}) FROM jobs.queue_start s WHERE s.queue = q.queue ORDER BY s.free_at LIMIT 1) AS free_at
           FROM jobs.queue q WHERE q.queue = $1",
        latest_start = latest_start("$2", "q.rate_period");
    HELD_BY(INT8, BOOL) => limit("SELECT s.gate, s.limit_name, s.limit_key FROM jobs.scheduled s WHERE s.job_id = $1 AND s.gate IS NOT NULL");
    LIMIT(INT8, BOOL, TEXT, TEXT) => limit("SELECT $1 AS gate, $3 AS limit_name, $4::jsonb AS limit_key");
    ORDER(INT8, BOOL) =
        "SELECT CASE WHEN $2 THEN s.limit_key::text END AS key, r.is_strict,
                (SELECT t.job_id FROM jobs.turn t WHERE t.gate = s.gate AND t.is_blocked ORDER BY t.job_id LIMIT 1) AS blocked_by,
                ARRAY(SELECT f.job_id FROM (
                        SELECT t.job_id, 1 AS n, 0::smallint AS priority, t.job_id AS seq FROM jobs.turn t WHERE t.gate = s.gate
                        UNION ALL
                        (SELECT a.job_id, 2, a.priority, a.seq FROM jobs.ready a
                          WHERE a.gate = s.gate AND NOT EXISTS (SELECT FROM jobs.turn t WHERE t.job_id = a.job_id) ORDER BY a.seq LIMIT 10)
                        UNION ALL
                        (SELECT h.job_id, 3, h.priority, h.seq FROM jobs.scheduled h
                          WHERE h.gate = s.gate AND h.queue = s.queue AND h.kind = s.kind AND (h.priority, h.seq) < (s.priority, s.seq)
                          ORDER BY h.priority, h.seq LIMIT 10)) f ORDER BY f.n, f.priority, f.seq LIMIT 10) AS in_front
           FROM jobs.scheduled s JOIN jobs.limit_rule r ON r.name = s.limit_name
          WHERE s.job_id = $1 AND s.gate IS NOT NULL AND r.is_strict IS NOT NULL";
    // The jobs of ready before this one, and of those that are due the ones that the next fetch
    // puts before it; a fetch makes 1000 of them available. Lower priorities and its own are read
    // apart: where rows are compared, (priority, seq) < .., the scan continues to the lane's end.
    IN_FRONT(INT8, AT) =
        "WITH w AS MATERIALIZED (
           SELECT j.id, j.queue, j.priority, COALESCE(a.seq, b.seq) AS seq, COALESCE(a.seq, b.seq, 9223372036854775807) AS position, s.due_at
             FROM jobs.job j {JOINED_TO_ITS_ROW} WHERE j.id = $1),
         front AS MATERIALIZED (
           SELECT r.job_id, r.priority, r.seq, NULL::timestamptz AS due_at
             FROM w, LATERAL (
               SELECT r.job_id, r.priority, r.seq
                 FROM ((SELECT r.* FROM jobs.ready r WHERE r.priority < w.priority ORDER BY r.priority, r.seq)
                       UNION ALL
                       (SELECT r.* FROM jobs.ready r WHERE r.priority = w.priority AND r.seq < w.position ORDER BY r.seq)) r
                WHERE r.queue = w.queue AND (r.expires_at IS NULL OR r.expires_at > $2) LIMIT 10001) r
           UNION ALL
           SELECT s.job_id, d.priority, NULL, s.due_at
             FROM w, LATERAL (
               SELECT s.job_id, s.due_at FROM jobs.scheduled s
                WHERE s.queue = w.queue AND s.due_at <= $2 AND (s.expires_at IS NULL OR s.expires_at > $2) ORDER BY s.due_at LIMIT 1000) s
             JOIN jobs.job d ON d.id = s.job_id
            WHERE s.job_id <> w.id
              AND (d.priority < w.priority OR d.priority = w.priority AND w.seq IS NULL AND (s.due_at, s.job_id) < (w.due_at, w.id)))
         SELECT count(*) AS jobs, ARRAY(SELECT f.job_id FROM front f ORDER BY f.priority, f.seq, f.due_at, f.job_id LIMIT 10) AS first FROM front";
}
