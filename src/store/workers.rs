//! Workers: which ones say that they are there, and what operators command them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use pgrx::pg_sys::Datum;

use super::columns::delete_some;
use super::queue::Queue;
use super::spi::{Snapshot, Value, big, plans, text, texts};
use super::types::*;
use crate::pg::jsonb::Jsonb;

/// A worker that has a command, and is seen again so soon, is not written down, in microseconds.
const SEEN_FOR: i64 = 86_400 * 1_000_000;
/// Who says the same again so soon is not written down, in microseconds.
const SAME_FOR: i64 = 3 * 1_000_000;

/// What an operator commands a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Fetch no more.
    Quiet,
    /// Fetch no more, and stop once the running jobs have ended.
    Stop,
}

impl Command {
    /// As it is stored, and as `jobs.worker_beat` answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Command::Quiet => "quiet",
            Command::Stop => "stop",
        }
    }
}

/// What a worker says of itself.
pub struct Beat<'a> {
    pub worker: &'a str,
    /// The queues that it fetches from.
    pub queues: &'a [String],
    /// How many jobs it runs at a time.
    pub concurrency: i32,
    /// What else it reports.
    pub info: Option<Jsonb>,
}

/// Writes down that a worker is there.
pub fn beat(beat: &Beat, now: i64) {
    let said = [
        text(beat.worker),
        texts(beat.queues),
        Some(Datum::from(beat.concurrency)),
        beat.info.map(Jsonb::datum),
        big(now),
    ];
    if SAID.execute(&[&said[..], &[big(now - SAME_FOR)]].concat()) == 0 {
        SAY.execute(&said);
    }
}

/// Forgets a worker that stops and holds no jobs. Returns whether it was known.
pub fn leave(worker: &str) -> bool {
    LEAVE.execute(&[text(worker)]) > 0
}

/// Workers that say that they fetch from a queue, and are not to.
pub struct Quiet {
    pub names: String,
    /// When the last of them got its command.
    pub commanded_at: i64,
    /// Whether no other worker reports that it fetches from the queue.
    pub are_all: bool,
}

/// The quiet workers of a queue, if there are any, as the calling statement sees it; those that are
/// lost do not count.
pub fn quiet_for(queue: &Queue) -> Option<Quiet> {
    QUIET.run_as_of(Snapshot::Callers, &[queue.arg()], |rows| {
        Some(Quiet {
            names: rows.get(0, "names")?,
            commanded_at: rows.get(0, "commanded_at")?,
            are_all: rows.get(0, "are_all")?,
        })
    })
}

/// The commands of all workers.
pub fn commands() -> HashMap<String, Command> {
    let command = |name: &str| match name {
        "stop" => Command::Stop,
        _ => Command::Quiet,
    };
    let commands = COMMANDS.list(&[], |rows, row| {
        let named: String = rows.get(row, "command")?;
        Some((rows.get(row, "worker")?, command(&named)))
    });
    commands.into_iter().collect()
}

/// What is asked of a worker: a number that is another one when its command is, or another of its
/// jobs is asked to stop.
pub fn requests(worker: &str) -> u64 {
    REQUESTS.run(&[text(worker)], |rows| {
        let mut hasher = DefaultHasher::new();
        let at = |column| rows.get::<i64>(0, column);
        (at("cancel_requested_at"), at("commanded_at")).hash(&mut hasher);
        hasher.finish()
    })
}

/// Gives a worker a command, in the place of the one that it had; whether that is another one.
pub fn give(worker: &str, command: Command, reason: Option<&str>, by: &str, now: i64) -> bool {
    let args = [text(worker), text(command.as_str()), reason.and_then(text), text(by), big(now)];
    GIVE.execute(&args) > 0
}

/// Writes down that a worker which has a command is still there.
pub fn seen(worker: &str, now: i64) {
    SEEN.execute(&[text(worker), big(now), big(now - SEEN_FOR)]);
}

/// Removes the command of a worker; whether it had one.
pub fn resume(worker: &str) -> bool {
    RESUME.execute(&[text(worker)]) > 0
}

/// Forgets up to so many workers that were not seen since then; how many.
pub fn forget(seen_before: i64, limit: i64) -> usize {
    FORGET.execute(&[big(seen_before), big(limit)])
}

/// Forgets the commands of up to so many workers that were not seen since then; how many.
pub fn forget_commands(seen_before: i64, limit: i64) -> usize {
    FORGET_COMMANDS.execute(&[big(seen_before), big(limit)])
}

plans! {
    // Whether a worker has said the same a moment ago. (The clock may have been put back.)
    SAID(TEXT, TEXTS, INT4, JSONB, AT, AT) =
        "SELECT FROM jobs.worker w
          WHERE w.worker = $1 AND record_image_eq(ROW (w.queues, w.concurrency, w.info), ROW ($2, $3, $4))
            AND w.last_seen_at <= $5 AND w.last_seen_at > $6";
    SAY(TEXT, TEXTS, INT4, JSONB, AT) =
        "INSERT INTO jobs.worker (worker, queues, concurrency, info, first_seen_at, last_seen_at) VALUES ($1, $2, $3, $4, $5, $5)
         ON CONFLICT (worker) DO UPDATE
            SET queues = excluded.queues, concurrency = excluded.concurrency, info = excluded.info, last_seen_at = excluded.last_seen_at";
    LEAVE(TEXT) =
        "DELETE FROM jobs.worker w
          WHERE w.worker = $1 AND NOT EXISTS (SELECT FROM jobs.running r WHERE r.worker = w.worker)";
    QUIET(TEXT) =
        "SELECT string_agg(w.worker, ', ' ORDER BY w.worker) FILTER (WHERE w.command IS NOT NULL) AS names,
                max(w.commanded_at) AS commanded_at, bool_and(w.command IS NOT NULL) AS are_all
           FROM jobs.workers w
          WHERE $1 = ANY (w.queues) AND w.last_seen_at IS NOT NULL AND w.status <> 'lost'";
    COMMANDS() = "SELECT c.worker, c.command FROM jobs.worker_command c";
    REQUESTS(TEXT) =
        "SELECT (SELECT max(r.cancel_requested_at) FROM jobs.running r WHERE r.worker = $1) AS cancel_requested_at,
                (SELECT c.commanded_at FROM jobs.worker_command c WHERE c.worker = $1) AS commanded_at";
    GIVE(TEXT, TEXT, TEXT, TEXT, AT) =
        "INSERT INTO jobs.worker_command AS c (worker, command, command_reason, commanded_at, seen_at, commanded_by) VALUES ($1, $2, $3, $5, $5, $4)
         ON CONFLICT (worker) DO UPDATE
            SET command = excluded.command, command_reason = excluded.command_reason, commanded_at = excluded.commanded_at, seen_at = excluded.seen_at,
                commanded_by = excluded.commanded_by
          WHERE c.command <> excluded.command";
    // Its sessions do not wait for each other.
    SEEN(TEXT, AT, AT) =
        "UPDATE jobs.worker_command SET seen_at = $2
          WHERE worker = (SELECT c.worker FROM jobs.worker_command c WHERE c.worker = $1 AND c.seen_at < $3 FOR UPDATE SKIP LOCKED)";
    RESUME(TEXT) = "DELETE FROM jobs.worker_command WHERE worker = $1";
    FORGET(AT, INT8) => delete_some("worker", "t.last_seen_at < $1");
    FORGET_COMMANDS(AT, INT8) => delete_some(
        "worker_command",
        "t.seen_at < $1 AND NOT EXISTS (SELECT FROM jobs.running r WHERE r.worker = t.worker)",
    );
}
