//! Definitions of periodic jobs, and how far each of them has come.

use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

use super::columns::columns;
use super::config::Options;
use super::spi::{Row, Snapshot, Tuples, big, plans, text, texts};
use super::types::*;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;

/// Why a tick is put off that has to wait for a lock: it says nothing about the job.
pub const BUSY: &str = "another transaction is inserting a job with the same unique key";

/// What is inserted when.
pub struct Definition {
    pub name: String,
    pub cron: String,
    pub time_zone: String,
    pub kind: String,
    pub args: Jsonb,
    /// What becomes of missed ticks.
    pub missed: Missed,
    /// Options of the jobs; never `scheduled_at`, `expires_at` or `pending`.
    pub options: Options,
}

/// What becomes of ticks that are late because nothing ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The latest missed tick gets its job.
    Once,
    /// No missed tick gets a job.
    Skip,
}

impl Missed {
    /// Both, as SQL has them.
    pub const WORDS: [&str; 2] = ["once", "skip"];

    /// What a word of these means.
    pub fn of(word: &str) -> Option<Missed> {
        [Missed::Once, Missed::Skip].into_iter().find(|missed| missed.word() == word)
    }

    fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// A definition that is there, locked.
pub struct Periodic {
    pub definition: Definition,
    /// When it was last defined.
    pub defined_at: i64,
    /// When it runs next; `None` for never.
    pub next_run_at: Option<i64>,
    /// Its latest tick that was handled.
    pub last_run_at: Option<i64>,
    pub is_paused: bool,
}

/// The outcome of a tick.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its job, or the one that its job duplicates.
    pub job: Option<i64>,
    pub skipped: bool,
    /// Why there is no job.
    pub error: Option<String>,
}

/// Defines a periodic job, or puts the definition in the place of the one of the same name.
pub fn put(definition: &Definition, now: i64, next_run_at: Option<i64>) {
    BEGIN_SEQUENCE.execute(&[]);
    PUT.execute(&row(definition, now, next_run_at));
}

columns! {
    /// What is stored of a definition, which not all columns of `periodic_schedule` are.
    stored {
        DEFINED_AT: AT = big(now),
        NEXT_RUN_AT: AT = next_run_at.and_then(big),
        NAME: TEXT = text(&new.name),
        CRON: TEXT = text(&new.cron),
        TIME_ZONE: TEXT = text(&new.time_zone),
        KIND: TEXT = text(&new.kind),
        ARGS: JSONB = Some(new.args.datum()),
        UNIQUE_OPTS: JSONB = new.options.unique_opts.map(Jsonb::datum),
        QUEUE: TEXT = new.options.queue.as_deref().and_then(text),
        PRIORITY: INT2 = new.options.priority.into_datum(),
        MAX_ATTEMPTS: INT4 = new.options.max_attempts.into_datum(),
        TAGS: TEXTS = new.options.tags.clone().and_then(IntoDatum::into_datum),
        META: JSONB = new.options.meta.map(Jsonb::datum),
        TIMEOUT: SPAN = new.options.timeout.map(time::interval_datum),
        RETRY: JSONB = new.options.retry.map(Jsonb::datum),
        MISSED: TEXT = text(new.missed.word()),
    }
    /// The values of a definition.
    pub fn row(new: &Definition, now: i64, next_run_at: Option<i64>);
}

/// Whether a definition that is there is this one.
pub fn says(there: &Periodic, definition: &Definition) -> bool {
    // As it is in all that a definition does not say.
    let same = row(definition, there.defined_at, there.next_run_at);
    SAME.execute(&same) > 0
}

/// Stops the ticks of a definition.
pub fn pause(name: &str, at: i64, by: &str, reason: Option<&str>) {
    PAUSE.execute(&[text(name), big(at), text(by), reason.and_then(text)]);
}

/// Makes them continue with this one.
pub fn resume(name: &str, next_run_at: Option<i64>) {
    RESUME.execute(&[text(name), next_run_at.map(Datum::from)]);
}

/// Takes a definition away; whether there was one.
pub fn remove(name: &str) -> bool {
    REMOVE.execute(&[text(name)]) > 0
}

/// The definition of this name, locked.
pub fn lock(name: &str) -> Option<Periodic> {
    LOCK.row(&[text(name)])
}

/// The definition of this name, locked, unless another session has it locked.
pub fn lock_free(name: &str) -> Option<Periodic> {
    LOCK_FREE.row(&[text(name)])
}

/// Brings the times of a definition forward that lie ahead of the clock.
pub fn cut(name: &str, defined_at: i64, last_run_at: Option<i64>, next_run_at: Option<i64>) {
    CUT.execute(&[
        text(name),
        big(defined_at),
        last_run_at.and_then(big),
        next_run_at.and_then(big),
    ]);
}

pub fn find(name: &str) -> Option<Definition> {
    FIND.row(&[text(name)]).map(|found: Periodic| found.definition)
}

pub fn names() -> Vec<String> {
    NAMES.values(&[])
}

/// The definitions that name this queue, or leave it to the defaults of their kind.
pub fn of_queue(queue: &str) -> Vec<Definition> {
    let found = OF_QUEUE.rows_as_of(Snapshot::Latest, &[text(queue)]);
    found.into_iter().map(|found: Periodic| found.definition).collect()
}

/// Definitions whose time has come, locked, but for those that another session has locked, and
/// these.
pub fn due(now: i64, limit: i64, but: &[&str]) -> Vec<Periodic> {
    DUE.rows(&[big(now), big(limit), texts(but)])
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
    PUT_OFF.execute(&[text(name), next_run_at.map(Datum::from), error.and_then(text)]);
}

impl Row for Periodic {
    fn read(rows: &Tuples, row: usize) -> Periodic {
        Periodic {
            defined_at: rows.given(row, "defined_at"),
            next_run_at: rows.get(row, "next_run_at"),
            last_run_at: rows.get(row, "last_run_at"),
            is_paused: rows.given(row, "is_paused"),
            definition: Definition {
                name: rows.given(row, "name"),
                cron: rows.given(row, "cron"),
                time_zone: rows.given(row, "time_zone"),
                kind: rows.given(row, "kind"),
                args: rows.given(row, "args"),
                missed: Missed::of(&rows.given::<String>(row, "missed")).unwrap_or(Missed::Once),
                options: Options::read(rows, row),
            },
        }
    }
}

fn select() -> String {
    format!(
        "SELECT {}, last_run_at, paused_at IS NOT NULL AS is_paused FROM jobs.periodic_schedule",
        stored::list()
    )
}

plans! {
    // A sequence that was used: see store::run_log::has_begun.
    BEGIN_SEQUENCE() = "SELECT nextval('jobs.job_seq') FROM jobs.job_seq WHERE NOT is_called";
    PUT[stored::TYPES] =
        "INSERT INTO jobs.periodic_schedule ({columns}) VALUES ({values})
         ON CONFLICT (name) DO UPDATE SET ({columns}) = ROW ({values}), last_error = NULL",
        columns = stored::list(),
        values = stored::parameters();
    SAME[stored::TYPES] =
        "SELECT FROM jobs.periodic_schedule WHERE name = $3 AND record_image_eq(ROW ({columns}), ROW ({values}))",
        columns = stored::list(),
        values = stored::parameters();
    PAUSE(TEXT, AT, TEXT, TEXT) =
        "UPDATE jobs.periodic_schedule SET paused_at = $2, paused_by = $3, pause_reason = $4, next_run_at = NULL WHERE name = $1";
    RESUME(TEXT, AT) =
        "UPDATE jobs.periodic_schedule SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, next_run_at = $2 WHERE name = $1";
    FIND(TEXT) = "{select} WHERE name = $1", select = select();
    NAMES() = "SELECT name FROM jobs.periodic_schedule";
    OF_QUEUE(TEXT) =
        "{select} p WHERE COALESCE(p.queue, (SELECT k.queue FROM jobs.kind k WHERE k.kind = p.kind), 'default') = $1",
        select = select();
    REMOVE(TEXT) = "DELETE FROM jobs.periodic_schedule WHERE name = $1";
    LOCK(TEXT) = "{select} WHERE name = $1 FOR UPDATE", select = select();
    LOCK_FREE(TEXT) = "{select} WHERE name = $1 FOR UPDATE SKIP LOCKED", select = select();
    CUT(TEXT, AT, AT, AT) =
        "UPDATE jobs.periodic_schedule
            SET defined_at = $2, last_run_at = $3, next_run_at = $4, paused_at = CASE WHEN paused_at > clock_timestamp() THEN clock_timestamp() ELSE paused_at END
          WHERE name = $1";
    DUE(AT, INT8, TEXTS) =
        "{select} WHERE next_run_at <= $1 AND name <> ALL ($3)
          ORDER BY next_run_at LIMIT $2 FOR UPDATE SKIP LOCKED",
        select = select();
    NOTE_TICK(TEXT, AT, AT, INT8, BOOL, TEXT) =
        "UPDATE jobs.periodic_schedule
            SET last_run_at = $2, next_run_at = $3, last_job_id = $4, last_skipped = $5, last_error = $6,
                last_ticks = jsonb_build_array(jsonb_build_object('at', $2, 'job_id', $4, 'skipped', $5, 'error', $6)) || (last_ticks - 9)
          WHERE name = $1";
    PUT_OFF(TEXT, AT, TEXT) =
        "UPDATE jobs.periodic_schedule SET next_run_at = $2, last_error = $3 WHERE name = $1";
}
