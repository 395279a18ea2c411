//! How many jobs there are, by queue and state: counted where a table is short, else as maintenance
//! has counted them before.

use std::collections::BTreeMap;

use jobs_core::interval::Interval;
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::columns::parameters;
use super::permits;
use super::spi::{Plan, Snapshot, Tuples, big, column, plans, rows, text};
use super::types::*;
use crate::pg::jsonb::Jsonb;
use crate::pg::{lock, time};

/// A table with more rows is not counted on request.
pub const SHORT: i64 = 10_000;
/// More queues are not looked at one by one on request.
const MANY: i64 = 10_000;
/// The turn of who keeps counts.
const KEEPING: i64 = 2;

/// Whether this transaction may write counts: no other one has since it began to.
pub fn is_our_turn() -> bool {
    lock::is_our_turn(KEEPING)
}

/// A table that jobs are in.
pub struct StateTable {
    pub name: &'static str,
    pub states: &'static [State],
    is_long: Plan,
    count: &'static Plan,
    part: &'static Plan,
    keep_queues: Plan,
}

/// How many jobs of a queue are in a state.
pub type Counts = BTreeMap<(String, State), i64>;

/// What was counted of a table in parts.
#[derive(Default)]
pub struct Counted {
    counts: Counts,
    /// Since when the oldest available job of each queue has been waiting.
    oldest: BTreeMap<String, i64>,
}

rows! {
    /// Counts that were made before.
    pub struct KeptCounts {
        pub counted_at: i64,
        /// How long the count took, in microseconds.
        pub took: i64,
        /// How many changes the table had seen by then.
        pub changes: i64,
    }
}

/// From where on the next part of a long table is counted.
#[derive(Clone, Debug)]
pub enum Position {
    /// Queue, priority and place in the lane.
    Lane(String, i16, i64),
    /// By the job's id.
    Job(i64),
}

impl StateTable {
    /// Whether it is too long to be counted on request.
    pub fn is_long(&self, snapshot: Snapshot) -> bool {
        self.is_long.run_as_of(snapshot, &[big(SHORT)], |rows| !rows.is_empty())
    }

    /// Counts all of it, or the first so many rows, as the calling statement sees it.
    pub fn count(&self, most: Option<i64>) -> Counts {
        let most = big(most.unwrap_or(i64::MAX));
        self.count.run_as_of(Snapshot::Callers, &[most], sum)
    }

    pub fn begin(&self) -> Position {
        if self.name == "ready" {
            Position::Lane(String::new(), i16::MIN, i64::MIN)
        } else {
            Position::Job(i64::MIN)
        }
    }

    /// Counts so many rows from there on; where to continue, if there may be more.
    pub fn count_part(&self, from: &Position, rows: i64, to: &mut Counted) -> Option<Position> {
        let mut args = match from {
            Position::Lane(queue, priority, seq) => {
                vec![text(queue), Some(Datum::from(*priority)), big(*seq)]
            }
            Position::Job(id) => vec![big(*id)],
        };
        args.push(big(rows));
        self.part.run(&args, |found| {
            let counted = add(&mut to.counts, found);
            for row in 0..found.len() {
                let head = found.get(row, "queue").zip(found.get(row, "since"));
                if let Some((queue, since)) = head {
                    let oldest = to.oldest.entry(queue).or_insert(since);
                    *oldest = since.min(*oldest);
                }
            }
            if counted < rows {
                return None;
            }
            // Lanes are in their order, so it continues at the last one.
            Some(match from {
                Position::Lane(..) => {
                    let last = found.len() - 1;
                    Position::Lane(
                        found.get(last, "queue")?,
                        found.get(last, "priority")?,
                        found.get(last, "last")?,
                    )
                }
                Position::Job(_) => {
                    let last = (0..found.len()).filter_map(|row| found.get(row, "last")).max();
                    Position::Job(last?)
                }
            })
        })
    }

    pub fn kept(&self, snapshot: Snapshot) -> Option<KeptCounts> {
        KEPT.row_as_of(snapshot, &[text(self.name)])
    }

    /// Rows inserted and deleted so far, by the server's statistics.
    pub fn changes(&self) -> i64 {
        CHANGES.value(&[text(self.name)]).unwrap_or(0)
    }

    /// Keeps what was counted, unless another session keeps something; whether it did. Of many
    /// queues each has a row of its own.
    pub fn keep(&self, counted: &Counted, kept: &KeptCounts) -> bool {
        if !is_our_turn() {
            return false;
        }
        let mut queues: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
        for ((queue, state), count) in &counted.counts {
            let states = queues.entry(queue).or_default();
            states.insert(state.as_str(), *count);
        }
        let (were_many, count) = (are_many(Snapshot::Own), queues.len() as i64);
        let others = OTHERS_ARE_MANY.execute(&[text(self.name), big(MANY)]) > 0;
        let are_many = count > MANY || others;
        let document = match are_many {
            true => "{}".into(),
            false => serde_json::to_string(&queues).expect("names and numbers"),
        };
        KEEP.execute(&[
            text(self.name),
            big(kept.counted_at),
            Some(time::interval_datum(Interval::of_micros(kept.took))),
            big(kept.changes),
            Some(Jsonb::from_text(&document).datum()),
            big(count),
        ]);
        if were_many != are_many {
            // They are counted anew, into the other place.
            FORGET_OTHERS.execute(&[text(self.name)]);
            FORGET_QUEUES.execute(&[]);
        }
        if are_many {
            self.keep_queues(&queues, &counted.oldest);
        }
        true
    }

    fn keep_queues(
        &self,
        queues: &BTreeMap<&str, BTreeMap<&str, i64>>,
        oldest: &BTreeMap<String, i64>,
    ) {
        let rows: Vec<_> = queues.iter().collect();
        let mut columns = vec![column(TEXT, &rows, |(queue, _)| text(queue))];
        for state in self.states {
            let count = |counts: &BTreeMap<&str, i64>| counts.get(state.as_str()).copied();
            columns.push(column(INT8, &rows, |(_, counts)| count(counts).and_then(big)));
            if *state == State::Available {
                let oldest = |queue| oldest.get(queue).copied();
                columns.push(column(AT, &rows, |(queue, _)| oldest(**queue).and_then(big)));
            }
        }
        self.keep_queues.execute(&columns);
        FORGET_EMPTY.execute(&[]);
    }

    /// Forgets what is kept: the table is short; whether there was something.
    pub fn forget(&self) -> bool {
        is_our_turn() && FORGET.execute(&[text(self.name)]) > 0
    }
}

impl Counted {
    pub fn rows(&self) -> usize {
        self.counts.len()
    }
}

/// Whether there are so many queues that all that is known of them is what is kept.
pub fn are_many(seen: Snapshot) -> bool {
    ARE_MANY.run_as_of(seen, &[big(MANY)], |rows| !rows.is_empty())
}

/// What was counted before, as the calling statement sees it.
pub fn kept_counts(table: &StateTable) -> Counts {
    KEPT_COUNTS.run_as_of(Snapshot::Callers, &[text(table.name)], sum)
}

fn sum(rows: &Tuples) -> Counts {
    let mut counts = Counts::new();
    add(&mut counts, rows);
    counts
}

/// Since when the jobs wait that are next in their lanes or held, the oldest of each queue, as the
/// calling statement sees it.
pub fn oldest_available() -> Vec<(String, i64)> {
    let oldest = if permits::are_here() { &OLDEST } else { &OLDEST_IN_LANES };
    oldest.list_as_of(Snapshot::Callers, &[], |rows, row| {
        rows.get(row, "queue").zip(rows.get(row, "since"))
    })
}

/// Adds up rows of queue, state, count; how many rows of the table those are. Without a queue are
/// those whose job is not there, which while a dump is being restored may yet come.
fn add(counts: &mut Counts, rows: &Tuples) -> i64 {
    let mut total = 0;
    for row in 0..rows.len() {
        let count = rows.get(row, "count").unwrap_or(0);
        total += count;
        if let Some(place) = rows.get(row, "queue").zip(rows.get(row, "state")) {
            *counts.entry(place).or_default() += count;
        }
    }
    total
}

// Since when a job waits: the later of when it was due and when it was inserted, or became
// available again, or its queue was resumed. Without statements it is `waits` of `direct::fetch`.
pub(super) fn waits_since(ready: &str, job: &str) -> String {
    format!(
        "GREATEST(COALESCE({ready}.scheduled_at, {job}.scheduled_at), {job}.created_at, {ready}.available_at, (SELECT q.resumed_at FROM jobs.queue q WHERE q.queue = {job}.queue))"
    )
}

// The job that is next in each lane, lane for lane along the index, and since when it waits; of the
// first 10,000 lanes. Of many queues those are looked at whose oldest job waited longest when it
// was counted, but for paused ones. And the first of each priority of a queue and kind that a gate
// holds, of so many; the previous version's table has no gates.
pub(super) fn heads(has_gates: bool) -> String {
    let held = if has_gates { held_heads() } else { String::new() };
    format!(
        "WITH RECURSIVE lane AS (
           (SELECT r.queue, r.priority, r.job_id, r.scheduled_at, r.available_at FROM jobs.ready r
             WHERE NOT EXISTS (SELECT FROM jobs.kept_queue) ORDER BY r.queue, r.priority, r.seq LIMIT 1)
           UNION ALL
           SELECT n.queue, n.priority, n.job_id, n.scheduled_at, n.available_at
             FROM lane l, LATERAL (
               SELECT r.queue, r.priority, r.job_id, r.scheduled_at, r.available_at FROM jobs.ready r
                WHERE (r.queue, r.priority) > (l.queue, l.priority) ORDER BY r.queue, r.priority, r.seq LIMIT 1) n),
         head AS (SELECT l.queue, l.job_id AS id, {} AS since, NULL::bigint AS gate, NULL::text AS limit_name FROM (SELECT * FROM lane LIMIT 10000) l JOIN jobs.job j ON j.id = l.job_id
                  UNION ALL{held}
                  SELECT k.queue, h.id, h.since, NULL, NULL
                    FROM (SELECT k.queue FROM jobs.kept_queue k
                           WHERE k.available IS NOT NULL AND NOT EXISTS (SELECT FROM jobs.queue q WHERE q.queue = k.queue AND q.paused_at IS NOT NULL)
                           ORDER BY k.oldest_available_at LIMIT 1000) k,
                         LATERAL (
                           WITH RECURSIVE own AS (
                             (SELECT r.priority, r.job_id, r.scheduled_at, r.available_at FROM jobs.ready r
                               WHERE r.queue = k.queue ORDER BY r.priority, r.seq LIMIT 1)
                             UNION ALL
                             SELECT n.priority, n.job_id, n.scheduled_at, n.available_at
                               FROM own o, LATERAL (
                                 SELECT r.priority, r.job_id, r.scheduled_at, r.available_at FROM jobs.ready r
                                  WHERE r.queue = k.queue AND r.priority > o.priority ORDER BY r.priority, r.seq LIMIT 1) n)
                           SELECT j.id, {} AS since FROM own o JOIN jobs.job j ON j.id = o.job_id) h) ",
        waits_since("l", "j"),
        waits_since("o", "j")
    )
}

fn held_heads() -> String {
    format!(
        "
                  (WITH RECURSIVE held AS (
                     (SELECT s.* FROM jobs.scheduled s WHERE s.gate IS NOT NULL ORDER BY s.gate, s.queue, s.kind, s.priority, s.seq LIMIT 1)
                     UNION ALL
                     SELECT n.*
                       FROM held h, LATERAL (
                         SELECT s.* FROM jobs.scheduled s
                          WHERE s.gate IS NOT NULL AND (s.gate, s.queue, s.kind, s.priority) > (h.gate, h.queue, h.kind, h.priority)
                          ORDER BY s.gate, s.queue, s.kind, s.priority, s.seq LIMIT 1) n)
                   SELECT h.queue, h.job_id, {}, h.gate, h.limit_name FROM (SELECT * FROM held LIMIT 10000) h JOIN jobs.job j ON j.id = h.job_id)
                  UNION ALL",
        waits_since("h", "j")
    )
}

fn oldest(has_gates: bool) -> String {
    heads(has_gates) + "SELECT h.queue, min(h.since) AS since FROM head h GROUP BY h.queue"
}

plans! {
    OLDEST() => oldest(true);
    OLDEST_IN_LANES() => oldest(false);
}

fn is_long(table: &str) -> String {
    format!("SELECT FROM jobs.{table} t OFFSET $1 LIMIT 1")
}

// Writes these columns of the rows in which they change, in the order of the key.
fn keep_queues(columns: &[&str]) -> String {
    let each = |of: fn(&str) -> String| columns.iter().map(|column| of(column)).collect::<String>();
    format!(
        "INSERT INTO jobs.kept_queue (queue{all})
         SELECT queue{new} FROM unnest({parameters}) AS n(queue{all}) FULL JOIN jobs.kept_queue k USING (queue)
          WHERE false{differs} ORDER BY queue
         ON CONFLICT (queue) DO UPDATE SET queue = EXCLUDED.queue{set}",
        all = each(|column| format!(", {column}")),
        new = each(|column| format!(", n.{column}")),
        parameters = parameters(columns.len() + 1),
        differs = each(|column| format!(" OR n.{column} IS DISTINCT FROM k.{column}")),
        set = each(|column| format!(", {column} = EXCLUDED.{column}")),
    )
}

/// Every table that jobs are in.
pub static TABLES: [StateTable; 4] = [
    StateTable {
        name: "ready",
        states: &[State::Available],
        is_long: Plan::built(|| is_long("ready"), &[INT8]),
        count: &COUNT_READY,
        part: &READY_PART,
        keep_queues: Plan::built(
            || keep_queues(&["available", "oldest_available_at"]),
            &[TEXTS, INT8S, ATS],
        ),
    },
    StateTable {
        name: "scheduled",
        states: &[State::Scheduled, State::Pending, State::Retryable],
        is_long: Plan::built(|| is_long("scheduled"), &[INT8]),
        count: &COUNT_SCHEDULED,
        part: &SCHEDULED_PART,
        keep_queues: Plan::built(
            || keep_queues(&["scheduled", "pending", "retryable"]),
            &[TEXTS, INT8S, INT8S, INT8S],
        ),
    },
    StateTable {
        name: "running",
        states: &[State::Running],
        is_long: Plan::built(|| is_long("running"), &[INT8]),
        count: &COUNT_RUNNING,
        part: &RUNNING_PART,
        keep_queues: Plan::built(|| keep_queues(&["running"]), &[TEXTS, INT8S]),
    },
    StateTable {
        name: "finished",
        states: &[State::Completed, State::Cancelled, State::Discarded],
        is_long: Plan::built(|| is_long("finished"), &[INT8]),
        count: &COUNT_FINISHED,
        part: &FINISHED_PART,
        keep_queues: Plan::built(
            || keep_queues(&["completed", "cancelled", "discarded"]),
            &[TEXTS, INT8S, INT8S, INT8S],
        ),
    },
];

const FORGET_COUNTS: &str = "UPDATE jobs.kept_count SET counted_at = NULL, took = NULL, changes = NULL, counts = NULL, queues = NULL";

plans! {
    COUNT_READY(INT8) =
        "SELECT t.queue, 'available' AS state, count(*) FROM (SELECT r.queue FROM jobs.ready r LIMIT $1) t GROUP BY t.queue";
    // The first of a lane is its head, but where the part begins within it.
    READY_PART(TEXT, INT2, INT8, INT8) =
        "SELECT t.queue, 'available' AS state, t.count, t.last, t.priority,
                CASE WHEN (t.queue, t.priority) <> ($1, $2) THEN (
                  SELECT {waits_since}
                    FROM jobs.ready r JOIN jobs.job j ON j.id = r.job_id
                   WHERE r.queue = t.queue AND r.priority = t.priority AND r.seq = t.first) END AS since
           FROM (SELECT t.queue, t.priority, count(*), max(t.seq) AS last, min(t.seq) AS first
                   FROM (SELECT r.queue, r.priority, r.seq FROM jobs.ready r WHERE (r.queue, r.priority, r.seq) > ($1, $2, $3)
                          ORDER BY r.queue, r.priority, r.seq LIMIT $4) t
                  GROUP BY t.queue, t.priority) t
          ORDER BY t.queue, t.priority",
        waits_since = waits_since("r", "j");
    COUNT_SCHEDULED(INT8) =
        "SELECT t.queue, t.state::text, count(*) FROM (SELECT s.queue, s.state FROM jobs.scheduled s LIMIT $1) t GROUP BY t.queue, t.state";
    SCHEDULED_PART(INT8, INT8) =
        "SELECT t.queue, t.state::text, count(*), max(t.job_id) AS last, NULL::timestamptz AS since
           FROM (SELECT s.queue, s.state, s.job_id FROM jobs.scheduled s WHERE s.job_id > $1 ORDER BY s.job_id LIMIT $2) t
          GROUP BY t.queue, t.state";
    COUNT_RUNNING(INT8) =
        "SELECT COALESCE(t.queue, j.queue) AS queue, 'running' AS state, count(*)
           FROM (SELECT r.job_id, r.queue FROM jobs.running r LIMIT $1) t JOIN jobs.job j ON j.id = t.job_id GROUP BY 1";
    RUNNING_PART(INT8, INT8) =
        "SELECT COALESCE(t.queue, j.queue) AS queue, 'running' AS state, count(*), max(t.job_id) AS last, NULL::timestamptz AS since
           FROM (SELECT r.job_id, r.queue FROM jobs.running r WHERE r.job_id > $1 ORDER BY r.job_id LIMIT $2) t LEFT JOIN jobs.job j ON j.id = t.job_id
          GROUP BY 1";
    COUNT_FINISHED(INT8) =
        "SELECT j.queue, t.state::text, count(*)
           FROM (SELECT f.job_id, f.state FROM jobs.finished f LIMIT $1) t JOIN jobs.job j ON j.id = t.job_id GROUP BY j.queue, t.state";
    FINISHED_PART(INT8, INT8) =
        "SELECT j.queue, t.state::text, count(*), max(t.job_id) AS last, NULL::timestamptz AS since
           FROM (SELECT f.job_id, f.state FROM jobs.finished f WHERE f.job_id > $1 ORDER BY f.job_id LIMIT $2) t
           LEFT JOIN jobs.job j ON j.id = t.job_id
          GROUP BY j.queue, t.state";
    KEPT(TEXT) =
        "SELECT k.counted_at, (EXTRACT(epoch FROM k.took) * 1000000)::bigint AS took, k.changes FROM jobs.kept_count k
          WHERE k.place = $1 AND k.counted_at IS NOT NULL AND k.took IS NOT NULL AND k.changes IS NOT NULL";
    KEPT_COUNTS(TEXT) =
        "SELECT q.key AS queue, s.key AS state, s.value::bigint AS count
           FROM jobs.kept_count k, LATERAL jsonb_each(k.counts) q, LATERAL jsonb_each_text(q.value) s WHERE k.place = $1";
    CHANGES(TEXT) =
        "SELECT pg_catalog.pg_stat_get_tuples_inserted(c.oid) + pg_catalog.pg_stat_get_tuples_deleted(c.oid)
           FROM pg_catalog.pg_class c WHERE c.relnamespace = 'jobs'::pg_catalog.regnamespace AND c.relname = $1";
    KEEP(TEXT, AT, SPAN, INT8, JSONB, INT8) =
        "UPDATE jobs.kept_count SET counted_at = $2, took = $3, changes = $4, counts = $5, queues = $6 WHERE place = $1";
    ARE_MANY(INT8) = "SELECT FROM jobs.kept_count k WHERE k.queues > $1 LIMIT 1";
    OTHERS_ARE_MANY(TEXT, INT8) =
        "SELECT FROM jobs.kept_count k WHERE k.place <> $1 AND k.queues > $2 LIMIT 1";
    FORGET_OTHERS(TEXT) = "{FORGET_COUNTS} WHERE place <> $1";
    FORGET_QUEUES() = "DELETE FROM jobs.kept_queue";
    FORGET_EMPTY() =
        "DELETE FROM jobs.kept_queue k
          WHERE num_nonnulls(k.available, k.scheduled, k.pending, k.running, k.retryable, k.completed, k.cancelled, k.discarded) = 0";
    FORGET(TEXT) = "{FORGET_COUNTS} WHERE place = $1";
}
