//! What operators say of kinds and queues: defaults of a kind; whether a queue is paused, its
//! limits, how long its jobs are kept.

use jobs_core::interval::Interval;
use jobs_core::state::State;
use pgrx::pg_sys::{Datum, Oid};

use super::spi::{Plan, Snapshot, Tuples, big, text};
use super::types::*;
use crate::pg::jsonb::Jsonb;
use crate::pg::jsonb::OwnedJsonb;
use crate::pg::name::Name;
use crate::pg::time;

/// What jobs of a kind are inserted with where the insert says nothing; `None`: the system's
/// default.
#[derive(Clone, Default)]
pub struct Kind {
    /// where
    pub queue: Option<String>,
    /// lower runs first
    pub priority: Option<i16>,
    /// all tries
    pub max_attempts: Option<i32>,
    /// how long an attempt may run
    pub timeout: Option<Interval>,
    /// how it is retried
    pub retry: Option<OwnedJsonb>,
    /// what it is unique by
    pub unique_opts: Option<OwnedJsonb>,
}

/// What is given of a job but its kind and args; `None` is the default.
#[derive(Clone, Default)]
pub struct Options {
    /// its policy
    pub unique: Option<Jsonb>,
    /// where
    pub queue: Option<String>,
    /// lower runs first
    pub priority: Option<i16>,
    /// when it is due
    pub scheduled_at: Option<i64>,
    /// all tries, the first one too
    pub max_attempts: Option<i32>,
    /// for finding it
    pub tags: Option<Vec<String>>,
    /// an object of any members
    pub meta: Option<Jsonb>,
    /// how long one try may run
    pub timeout: Option<Interval>,
    /// when it is tried again
    pub retry: Option<Jsonb>,
    /// when it is of no use any more
    pub expires_at: Option<i64>,
    /// whether it waits to be activated
    pub pending: bool,
}

/// What is set of a queue.
#[derive(Clone, Default)]
pub struct Queue {
    /// nothing is fetched
    pub is_paused: bool,
    /// when a pause ended during which jobs waited
    pub resumed_at: Option<i64>,
    /// the most jobs that run at a time
    pub concurrency: Option<i32>,
    /// the most jobs that start in a period, and the period
    pub rate: Option<(i32, Interval)>,
    /// the most jobs that wait
    pub max_waiting: Option<i32>,
    /// how long jobs of each final state are kept, in microseconds; the inner `None`: for ever
    pub retention: [Option<Option<i64>>; 3],
}

impl Queue {
    /// How long a job in this state is kept, if the queue says so.
    pub fn retention(&self, state: State) -> Option<Option<i64>> {
        self.retention[state.final_number()?]
    }
}

/// What hardly any queue has.
#[derive(Clone, Copy)]
pub enum Rare {
    /// a retention of its own
    Retention,
    /// a bound on the jobs that wait
    Bound,
}

/// The defaults of a kind.
pub fn kind(name: &str) -> Kind {
    let kind = KIND.first(&[text(name)], |rows| Kind {
        queue: rows.get(0, "queue"),
        priority: rows.get(0, "priority"),
        max_attempts: rows.get(0, "max_attempts"),
        timeout: rows.get(0, "timeout"),
        retry: rows.get(0, "retry"),
        unique_opts: rows.get(0, "unique_opts"),
    });
    kind.unwrap_or_default()
}

/// What is set of a queue.
pub fn queue(name: &str, seen: Snapshot) -> Queue {
    let queue = QUEUE.first_as_of(seen, &[text(name)], |rows| Queue {
        is_paused: rows.given(0, "is_paused"),
        concurrency: rows.get(0, "concurrency"),
        rate: rows.get(0, "rate").zip(rows.get(0, "rate_period")),
        max_waiting: rows.get(0, "max_waiting"),
        retention: kept(rows),
        resumed_at: rows.get(0, "resumed_at"),
    });
    queue.unwrap_or_default()
}

/// Whether some queue has this.
pub fn some(what: Rare, seen: Snapshot) -> bool {
    SOME[what as usize].run_as_of(seen, &[], |rows| !rows.is_empty())
}

/// The tables whose changes make what was read before stale.
pub fn tables() -> [Oid; 3] {
    static KIND: Name = Name::new(c"kind");
    static QUEUE: Name = Name::new(c"queue");
    static COMMAND: Name = Name::new(c"worker_command");
    [&KIND, &QUEUE, &COMMAND].map(Name::oid)
}

/// Writes the defaults of a kind: those of the options that it can have. Whether they are others
/// than before.
pub fn set_kind(name: &str, defaults: &Options) -> bool {
    SET_KIND.execute(&[
        text(name),
        defaults.queue.as_deref().and_then(text),
        defaults.priority.map(Datum::from),
        defaults.max_attempts.map(Datum::from),
        defaults.timeout.map(time::interval_datum),
        defaults.retry.map(Jsonb::datum),
        defaults.unique.map(Jsonb::datum),
    ]) > 0
}

/// Takes back the defaults of a kind; whether there were any.
pub fn remove_kind(name: &str) -> bool {
    REMOVE_KIND.execute(&[text(name)]) > 0
}

/// Pauses a queue; whether it was not paused before.
pub fn pause(queue: &str, at: i64, by: &str, reason: Option<&str>) -> bool {
    let reason = reason.and_then(text);
    PAUSE.execute(&[text(queue), big(at), text(by), reason]) > 0
}

/// Lets a queue go on; whether it was paused. Waits for who is pausing it.
pub fn resume(queue: &str, at: i64) -> bool {
    let is_paused = IS_PAUSED.value(&[text(queue)]);
    let is_resumed = is_paused == Some(true) && RESUME.execute(&[text(queue), big(at)]) > 0;
    FORGET_QUEUE.execute(&[text(queue)]);
    is_resumed
}

/// Forgets that up to so many queues were resumed before then, of which nothing else is set and no
/// job waits; how many.
pub fn forget_resumed(before: i64, limit: i64) -> usize {
    FORGET_RESUMED.execute(&[big(before), big(limit)])
}

/// Writes the limits of a queue and how long its jobs are kept, none: takes them back; whether that
/// is another time than before. `None`: all of it is as before.
pub fn set_queue(queue: &str, settings: &Queue) -> Option<bool> {
    // So that it can be locked, and nobody else changes it meanwhile.
    let before = loop {
        MAKE_QUEUE.execute(&[text(queue)]);
        if let Some(before) = LOCK_QUEUE.first(&[text(queue)], kept) {
            break before;
        }
    };
    let micros = |kept: Option<Option<i64>>| kept.map(|kept| Datum::from(kept.unwrap_or(-1)));
    let [completed, cancelled, discarded] = settings.retention.map(micros);
    let set = SET_QUEUE.execute(&[
        text(queue),
        settings.concurrency.map(Datum::from),
        settings.rate.map(|(rate, _)| Datum::from(rate)),
        settings
            .rate
            .map(|(_, period)| time::interval_datum(period)),
        settings.max_waiting.map(Datum::from),
        completed,
        cancelled,
        discarded,
    ]);
    FORGET_QUEUE.execute(&[text(queue)]);
    (set > 0).then(|| before != settings.retention)
}

/// How long jobs are kept, as it is stored.
fn kept(rows: &Tuples) -> [Option<Option<i64>>; 3] {
    let columns = ["completed", "cancelled", "discarded"];
    columns.map(|state| {
        let micros: i64 = rows.get(0, &format!("retention_{state}"))?;
        Some((micros >= 0).then_some(micros))
    })
}

static KIND: Plan = Plan::new(
    "SELECT k.queue, k.priority, k.max_attempts, k.timeout, k.retry, k.unique_opts FROM jobs.kind k WHERE k.kind = $1",
    &[TEXT],
);
static QUEUE: Plan = Plan::new(
    "SELECT q.paused_at IS NOT NULL AS is_paused, q.concurrency, q.rate, q.rate_period, q.max_waiting, q.retention_completed, q.retention_cancelled,
            q.retention_discarded, q.resumed_at
       FROM jobs.queue q WHERE q.queue = $1",
    &[TEXT],
);
// By `Rare`.
static SOME: [Plan; 2] = [
    Plan::new(
        "SELECT FROM jobs.queue q
          WHERE COALESCE(q.retention_completed, q.retention_cancelled, q.retention_discarded) IS NOT NULL LIMIT 1",
        &[],
    ),
    Plan::new(
        "SELECT FROM jobs.queue q WHERE q.max_waiting IS NOT NULL LIMIT 1",
        &[],
    ),
];
static SET_KIND: Plan = Plan::new(
    "INSERT INTO jobs.kind AS k (kind, queue, priority, max_attempts, timeout, retry, unique_opts) VALUES ($1, $2, $3, $4, $5, $6, $7)
     ON CONFLICT (kind) DO UPDATE
        SET queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
            timeout = excluded.timeout, retry = excluded.retry, unique_opts = excluded.unique_opts
      WHERE NOT record_image_eq(k, excluded)",
    &[TEXT, TEXT, INT2, INT4, SPAN, JSONB, JSONB],
);
static REMOVE_KIND: Plan = Plan::new("DELETE FROM jobs.kind WHERE kind = $1", &[TEXT]);
static PAUSE: Plan = Plan::new(
    "INSERT INTO jobs.queue AS q (queue, paused_at, paused_by, pause_reason) VALUES ($1, $2, $3, $4)
     ON CONFLICT (queue) DO UPDATE
        SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
      WHERE q.paused_at IS NULL",
    &[TEXT, AT, TEXT, TEXT],
);
static IS_PAUSED: Plan = Plan::new(
    "SELECT q.paused_at IS NOT NULL FROM jobs.queue q WHERE q.queue = $1 FOR UPDATE",
    &[TEXT],
);
static RESUME: Plan = Plan::new(
    "UPDATE jobs.queue
        SET paused_at = NULL, paused_by = NULL, pause_reason = NULL,
            resumed_at = CASE WHEN EXISTS (SELECT FROM jobs.ready r WHERE r.queue = $1)
                                OR EXISTS (SELECT FROM jobs.scheduled s WHERE s.queue = $1 AND s.due_at <= $2) THEN $2 END
      WHERE queue = $1",
    &[TEXT, AT],
);
static MAKE_QUEUE: Plan = Plan::new(
    "INSERT INTO jobs.queue (queue) VALUES ($1) ON CONFLICT DO NOTHING",
    &[TEXT],
);
static LOCK_QUEUE: Plan = Plan::new(
    "SELECT q.retention_completed, q.retention_cancelled, q.retention_discarded FROM jobs.queue q WHERE q.queue = $1 FOR UPDATE",
    &[TEXT],
);
static SET_QUEUE: Plan = Plan::new(
    "UPDATE jobs.queue
        SET concurrency = $2, rate = $3, rate_period = $4, max_waiting = $5,
            retention_completed = $6, retention_cancelled = $7, retention_discarded = $8
      WHERE queue = $1
        AND NOT record_image_eq(
              ROW (concurrency, rate, rate_period, max_waiting, retention_completed, retention_cancelled, retention_discarded),
              ROW ($2, $3, $4, $5, $6, $7, $8))",
    &[TEXT, INT4, INT4, SPAN, INT4, INT8, INT8, INT8],
);
// Whether a queue is paused or has a setting. One that is neither is like those that were never
// named. The view jobs.queues has the list, too.
macro_rules! is_set {
    () => {
        "num_nonnulls(q.paused_at, q.concurrency, q.rate, q.max_waiting, q.retention_completed, q.retention_cancelled, q.retention_discarded) > 0"
    };
}
static FORGET_QUEUE: Plan = Plan::new(
    concat!(
        "DELETE FROM jobs.queue q WHERE q.queue = $1 AND q.resumed_at IS NULL AND NOT ",
        is_set!()
    ),
    &[TEXT],
);
static FORGET_RESUMED: Plan = Plan::new(
    concat!(
        "DELETE FROM jobs.queue
          WHERE ctid = ANY (ARRAY(
            SELECT q.ctid FROM jobs.queue q
             WHERE q.resumed_at < $1 AND NOT ",
        is_set!(),
        "      AND NOT EXISTS (SELECT FROM jobs.ready r WHERE r.queue = q.queue)
               AND NOT EXISTS (SELECT FROM jobs.scheduled s WHERE s.queue = q.queue AND s.due_at <= q.resumed_at)
             LIMIT $2 FOR UPDATE SKIP LOCKED))"
    ),
    &[AT, INT8],
);
