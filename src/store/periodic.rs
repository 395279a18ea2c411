//! Definitions of periodic jobs, and how far each of them has come.

use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

use super::config::Options;
use super::spi::{Arg, Plan, Tuples, big, text};
use super::types::*;
use crate::pg::array;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;

/// What is inserted when.
pub struct Definition {
    /// what it is called
    pub name: String,
    /// its schedule
    pub cron: String,
    /// the time zone of the schedule
    pub time_zone: String,
    /// the jobs' kind
    pub kind: String,
    /// the jobs' args
    pub args: Jsonb,
    /// everything else about the jobs; never a `scheduled_at`, `expires_at` or `pending`
    pub options: Options,
}

/// A definition that is there, locked.
pub struct Periodic {
    /// as it was defined last
    pub definition: Definition,
    /// and when that was
    pub defined_at: i64,
    /// when it is to be looked at; `None`: never again
    pub next_run_at: Option<i64>,
    /// its latest tick that was dealt with
    pub last_run_at: Option<i64>,
}

/// What became of a tick.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// its job, or the one that its job would have been a duplicate of
    pub job: Option<i64>,
    /// whether its job was skipped as a duplicate
    pub skipped: bool,
    /// why there is no job
    pub error: Option<String>,
}

/// Defines a periodic job, or puts the definition in the place of the one of the same name.
pub fn put(definition: &Definition, now: i64, next_run_at: Option<i64>) {
    BEGIN_SEQUENCE.execute(&[]);
    let options = &definition.options;
    PUT.execute(&[
        big(now),
        next_run_at.map(Datum::from),
        text(&definition.name),
        text(&definition.cron),
        text(&definition.time_zone),
        text(&definition.kind),
        Some(definition.args.datum()),
        options.unique.map(Jsonb::datum),
        options.queue.as_deref().and_then(text),
        options.priority.map(Datum::from),
        options.max_attempts.map(Datum::from),
        options.tags.clone().and_then(IntoDatum::into_datum),
        options.meta.map(Jsonb::datum),
        options.timeout.map(time::interval_datum),
        options.retry.map(Jsonb::datum),
    ]);
}

/// Takes a definition away; whether there was one.
pub fn remove(name: &str) -> bool {
    REMOVE.execute(&[text(name)]) > 0
}

/// The definition of this name, locked.
pub fn lock(name: &str) -> Option<Periodic> {
    LOCK.run(&[text(name)], |rows| {
        (!rows.is_empty()).then(|| read(rows, 0))
    })
}

/// Definitions whose time has come, locked, but those that somebody else has locked, and these.
pub fn due(now: i64, limit: i64, but: &[&str]) -> Vec<Periodic> {
    let but: Vec<Arg> = but.iter().map(|name| text(name)).collect();
    let but = array::build(TEXT, &but);
    DUE.run(&[big(now), big(limit), Some(but)], |rows| {
        (0..rows.len()).map(|row| read(rows, row)).collect()
    })
}

/// Notes that a tick was dealt with.
pub fn note_tick(name: &str, tick: i64, next_run_at: Option<i64>, outcome: &Outcome) {
    NOTE_TICK.execute(&[
        text(name),
        big(tick),
        next_run_at.map(Datum::from),
        outcome.job.map(Datum::from),
        Some(Datum::from(outcome.skipped)),
        outcome.error.as_deref().and_then(text),
    ]);
}

/// Has a definition looked at later, and says why that is, if there is a reason.
pub fn put_off(name: &str, next_run_at: Option<i64>, error: Option<&str>) {
    PUT_OFF.execute(&[
        text(name),
        next_run_at.map(Datum::from),
        error.and_then(text),
    ]);
}

fn read(rows: &Tuples, row: usize) -> Periodic {
    let given = |column| rows.text(row, column).expect("not null");
    Periodic {
        defined_at: rows.big(row, 1).expect("not null"),
        next_run_at: rows.big(row, 2),
        last_run_at: rows.big(row, 3),
        definition: Definition {
            name: given(4),
            cron: given(5),
            time_zone: given(6),
            kind: given(7),
            args: rows.jsonb(row, 8).expect("not null"),
            options: Options {
                unique: rows.jsonb(row, 9),
                queue: rows.text(row, 10),
                priority: rows.int(row, 11),
                max_attempts: rows.int(row, 12),
                tags: rows.texts(row, 13),
                meta: rows.jsonb(row, 14),
                timeout: rows.span(row, 15),
                retry: rows.jsonb(row, 16),
                ..Options::default()
            },
        },
    }
}

macro_rules! columns {
    () => {
        "p.defined_at, p.next_run_at, p.last_run_at, p.name, p.cron, p.time_zone, p.kind, p.args, p.unique_opts, p.queue,
         p.priority, p.max_attempts, p.tags, p.meta, p.timeout, p.retry"
    };
}

// A sequence that was used: see store::ledger::has_begun.
static BEGIN_SEQUENCE: Plan = Plan::new(
    "SELECT nextval('jobs.job_seq') FROM jobs.job_seq WHERE NOT is_called",
    &[],
);

static PUT: Plan = Plan::new(
    "INSERT INTO jobs.periodic_schedule (defined_at, next_run_at, name, cron, time_zone, kind, args, unique_opts, queue,
            priority, max_attempts, tags, meta, timeout, retry)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
     ON CONFLICT (name) DO UPDATE SET
       defined_at = EXCLUDED.defined_at, next_run_at = EXCLUDED.next_run_at, cron = EXCLUDED.cron, time_zone = EXCLUDED.time_zone,
       kind = EXCLUDED.kind, args = EXCLUDED.args, unique_opts = EXCLUDED.unique_opts, queue = EXCLUDED.queue,
       priority = EXCLUDED.priority, max_attempts = EXCLUDED.max_attempts, tags = EXCLUDED.tags, meta = EXCLUDED.meta,
       timeout = EXCLUDED.timeout, retry = EXCLUDED.retry, last_error = NULL",
    &[
        AT, AT, TEXT, TEXT, TEXT, TEXT, JSONB, JSONB, TEXT, INT4, INT4, TEXTS, JSONB, SPAN, JSONB,
    ],
);

static REMOVE: Plan = Plan::new(
    "DELETE FROM jobs.periodic_schedule WHERE name = $1",
    &[TEXT],
);

static LOCK: Plan = Plan::new(
    concat!(
        "SELECT ",
        columns!(),
        " FROM jobs.periodic_schedule p WHERE p.name = $1 FOR UPDATE"
    ),
    &[TEXT],
);

static DUE: Plan = Plan::new(
    concat!(
        "SELECT ",
        columns!(),
        " FROM jobs.periodic_schedule p
          WHERE p.next_run_at <= $1 AND p.name <> ALL ($3)
          ORDER BY p.next_run_at LIMIT $2 FOR UPDATE OF p SKIP LOCKED"
    ),
    &[AT, INT8, TEXTS],
);

static NOTE_TICK: Plan = Plan::new(
    "UPDATE jobs.periodic_schedule
        SET last_run_at = $2, next_run_at = $3, last_job_id = $4, last_skipped = $5, last_error = $6
      WHERE name = $1",
    &[TEXT, AT, AT, INT8, BOOL, TEXT],
);

static PUT_OFF: Plan = Plan::new(
    "UPDATE jobs.periodic_schedule SET next_run_at = $2, last_error = $3 WHERE name = $1",
    &[TEXT, AT, TEXT],
);
