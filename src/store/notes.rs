//! Notes on keys: what has become of their jobs without the claims having been written.
//!
//! A session with something to say appends a note, and does not wait for the claim's lock.
//! The holder of that lock deletes notes. Maintenance takes those that are due without it.

use jobs_core::key::Key;
use pgrx::pg_sys::{Datum, Oid};

use super::claims::{key_arg, key_args};
use super::spi::{Arg, Plan, big, column, plans};
use super::types::*;
use crate::pg::{memory, transaction};

/// What a note says, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NoteKind {
    /// A final job that the list of its claim leaves out. Written under the claim's lock.
    Folded = b'f',
    /// A job that released its hold early.
    Released = b'h',
    /// The claim may be superfluous.
    Orphaned = b'o',
    /// A job that returned from a final state, and counts as if its claim listed it.
    Returned = b'r',
}

impl NoteKind {
    /// As a value of its column.
    pub(super) fn datum(self) -> Datum {
        Datum::from(self as u8 as usize)
    }
}

/// A note, by its primary key.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    pub key: Key,
    pub kind: NoteKind,
    /// The id of a folded job or of one that released its hold, the transaction of an orphaned key,
    /// else a number of its own.
    pub seq: i64,
}

/// How long a released hold is remembered after its end, in microseconds: a session that looks
/// right then may have read the clock a moment ago.
const RELEASES_KEPT: i64 = 60 * 1_000_000;

/// Folds jobs. The caller has locked their claims.
pub(super) fn fold(jobs: &[(Key, i64)]) {
    for_pairs(&FOLD, INT8, jobs);
}

/// Says that a final job returns: from now on it counts under its key also if it had been folded.
/// Never waits. Maintenance sees to it that such notes do not pile up.
pub fn returned(key: Key, id: i64, now: i64) {
    RETURN.execute(&[key_arg(key), big(id)]);
    orphaned([(key, now)]);
}

/// Ends the holds of jobs before they run out at the times beside them. Never waits.
pub fn release_holds(holds: &[(i64, i64)]) {
    if holds.is_empty() {
        return;
    }
    RELEASE.execute(&[
        column(INT8, holds, |(id, _)| big(*id)),
        column(AT, holds, |(_, ends_at)| big(ends_at.saturating_add(RELEASES_KEPT))),
    ]);
}

/// Has maintenance look whether the claims of these keys can go, from the times beside them on.
/// Never waits.
pub fn orphaned(keys: impl IntoIterator<Item = (Key, i64)>) {
    let keys: Vec<(Key, i64)> = keys.into_iter().collect();
    for_pairs(&ORPHAN, AT, &keys);
}

/// Deletes notes that a new list was made from, or that it contradicts. The caller has locked the
/// claims. What maintenance is at work on, or has deleted since an old snapshot, is left to it.
pub(super) fn delete(notes: &[Note]) {
    let is_latest = transaction::is_read_committed();
    let is_ours = |note: &&Note| is_latest || note.kind != NoteKind::Released;
    let notes: Vec<&Note> = notes.iter().filter(is_ours).collect();
    memory::in_parts(&notes, |some| {
        DELETE.execute(&[
            column(BYTEA, some, |note| key_arg(note.key)),
            column(CHAR, some, |note| Some(note.kind.datum())),
            column(INT8, some, |note| big(note.seq)),
        ]);
    });
}

/// Deletes what says that jobs were folded or have returned. The caller has locked their claims,
/// and deletes the jobs.
pub fn delete_of_jobs(jobs: &[(Key, i64)]) {
    for_pairs(&DELETE_OF_JOBS, INT8, jobs);
}

/// Deletes what is said of jobs under keys whose claims are deleted.
pub(super) fn delete_of_keys(keys: &[Key]) {
    let also_releases = Datum::from(transaction::is_read_committed());
    DELETE_OF_KEYS.execute(&[key_args(keys), Some(also_releases)]);
}

/// Deletes notes of no use: of jobs that are gone, and all but the last that say that one has
/// returned. The caller has locked the claims of these keys.
pub fn tidy<'a>(keys: impl IntoIterator<Item = &'a Key>) {
    let keys: Vec<Key> = keys.into_iter().copied().collect();
    if !keys.is_empty() {
        TIDY.execute(&[key_args(&keys)]);
    }
}

/// Notes that were due, and are taken away now.
#[derive(Default)]
pub struct Due {
    /// Keys to look at, as often as they have a note.
    pub orphaned: Vec<Key>,
    /// How many other notes, which are no longer needed.
    pub others: usize,
}

/// Takes away so many notes that are due, but none on these keys.
pub fn take_due(now: i64, limit: i64, but: &[Key]) -> Due {
    take(&TAKE_DUE, &[big(now), big(limit), key_args(but)])
}

/// Takes away the notes on one key that are due.
pub fn take_due_of(now: i64, key: Key) -> Due {
    take(&TAKE_DUE_OF, &[big(now), key_arg(key)])
}

/// The keys that so many notes are on that are due, but not these.
pub fn due(now: i64, limit: i64, but: &[Key]) -> Vec<Key> {
    let args = [big(now), big(limit), key_args(but)];
    DUE.values(&args)
}

fn take(plan: &Plan, args: &[Arg]) -> Due {
    let mut due = Due::default();
    let notes =
        plan.list(args, |rows, row| Some((rows.get(row, "key")?, rows.get::<i8>(row, "kind")?)));
    for (key, kind) in notes {
        match kind == NoteKind::Orphaned as i8 {
            true => due.orphaned.push(key),
            false => due.others += 1,
        }
    }
    due
}

/// Runs a statement for keys and what is beside them: jobs, or times.
fn for_pairs(plan: &Plan, of: Oid, pairs: &[(Key, i64)]) {
    memory::in_parts(pairs, |some| {
        plan.execute(&[
            column(BYTEA, some, |(key, _)| key_arg(*key)),
            column(of, some, |(_, value)| big(*value)),
        ]);
    });
}

fn select_due(column: &str) -> String {
    format!(
        "SELECT n.{column} FROM jobs.unique_note n WHERE n.due_at <= $1 AND n.key <> ALL ($3)
           ORDER BY n.due_at LIMIT $2 FOR UPDATE SKIP LOCKED"
    )
}

plans! {
    FOLD(BYTEAS, INT8S) =
        "INSERT INTO jobs.unique_note (key, kind, seq, job_id)
         SELECT n.key, 'f', n.id, n.id FROM unnest($1, $2) AS n(key, id) ON CONFLICT DO NOTHING";
    RETURN(BYTEA, INT8) =
        "INSERT INTO jobs.unique_note (key, kind, seq, job_id) VALUES ($1, 'r', nextval('jobs.job_seq'), $2)";
    // A job that starts again has released its hold before. The session that wrote that note has
    // committed: he had the job, as this transaction has it now.
    RELEASE(INT8S, ATS) =
        "INSERT INTO jobs.unique_note (key, kind, seq, job_id, due_at)
         SELECT j.unique_key, 'h', j.id, j.id, u.due_at
           FROM unnest($1, $2) AS u(id, due_at) JOIN jobs.job j ON j.id = u.id
          WHERE NOT EXISTS (SELECT FROM jobs.unique_note n
                             WHERE n.key = j.unique_key AND n.kind = 'h' AND n.seq = j.id)
         ON CONFLICT DO NOTHING";
    // A transaction says it once of a key, so that no session waits for another's note. Said again
    // it writes nothing, unless it is for an earlier time: the next one would walk over each
    // version. Only a note of a dump may have the number of a later transaction: then that one has
    // it looked at no later than it said.
    ORPHAN(BYTEAS, ATS) =
        "INSERT INTO jobs.unique_note AS n (key, kind, seq, due_at)
         SELECT u.key, 'o', pg_current_xact_id()::text::bigint, u.due_at FROM unnest($1, $2) AS u(key, due_at)
         ON CONFLICT (key, kind, seq) DO UPDATE SET due_at = excluded.due_at WHERE excluded.due_at < n.due_at";
    DELETE(BYTEAS, CHARS, INT8S) =
        "DELETE FROM jobs.unique_note WHERE ctid = ANY (ARRAY(
           SELECT n.ctid FROM unnest($1, $2, $3) AS u(key, kind, seq)
             JOIN jobs.unique_note n ON n.key = u.key AND n.kind = u.kind AND n.seq = u.seq
              FOR UPDATE OF n SKIP LOCKED))";
    DELETE_OF_JOBS(BYTEAS, INT8S) =
        "DELETE FROM jobs.unique_note WHERE ctid = ANY (ARRAY(
           SELECT n.ctid FROM unnest($1, $2) AS u(key, id)
             JOIN jobs.unique_note n ON n.key = u.key AND n.kind = 'f' AND n.seq = u.id
            UNION ALL
           SELECT n.ctid FROM unnest($1, $2) AS u(key, id)
             JOIN jobs.unique_note n ON n.key = u.key AND n.kind = 'r' AND n.job_id = u.id))";
    DELETE_OF_KEYS(BYTEAS, BOOL) =
        "DELETE FROM jobs.unique_note WHERE ctid = ANY (ARRAY(
           SELECT n.ctid FROM jobs.unique_note n
            WHERE n.key = ANY ($1) AND (n.kind IN ('f', 'r') OR n.kind = 'h' AND $2) FOR UPDATE SKIP LOCKED))";
    TIDY(BYTEAS) =
        "WITH note AS MATERIALIZED (
           SELECT n.key, n.kind, n.seq,
                  row_number() OVER (PARTITION BY n.key, n.kind, n.job_id ORDER BY n.seq DESC) > 1
                    OR NOT EXISTS (SELECT FROM jobs.job j WHERE j.id = n.job_id) AS is_superfluous
             FROM jobs.unique_note n WHERE n.key = ANY ($1) AND n.kind IN ('f', 'r'))
         DELETE FROM jobs.unique_note n USING note u
          WHERE u.is_superfluous AND n.key = u.key AND n.kind = u.kind AND n.seq = u.seq";
    DUE(AT, INT8, BYTEAS) => select_due("key");
    TAKE_DUE(AT, INT8, BYTEAS) =
        "DELETE FROM jobs.unique_note WHERE ctid = ANY (ARRAY({select_due})) RETURNING key, kind",
        select_due = select_due("ctid");
    TAKE_DUE_OF(AT, BYTEA) =
        "DELETE FROM jobs.unique_note WHERE ctid = ANY (ARRAY(
           SELECT n.ctid FROM jobs.unique_note n WHERE n.key = $2 AND n.due_at <= $1 FOR UPDATE SKIP LOCKED))
         RETURNING key, kind";
}
