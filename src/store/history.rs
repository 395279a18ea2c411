//! What was counted of jobs, by minute, queue and kind: what each call counts, the rows that it
//! becomes, and what is read of them and of shared memory together.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, Ordering};

use jobs_core::counts::{Counts, Event, Time};
use pgrx::pg_sys::Oid;

use super::catalog;
use super::columns::delete_some;
use super::job::NewJob;
use super::spi::{Snapshot, Tuples, big, bigs, plans, text};
use super::types::*;
use crate::fault;
use crate::pg::memory::Scratch;
use crate::pg::role::as_role;
use crate::pg::{extension, lock, report, transaction};
use crate::settings;
use crate::shmem;
use crate::shmem::entries::{self, Counted, MINUTE};
use crate::shmem::tally::{self, Pair};

/// Jobs were inserted.
pub fn inserted(jobs: &[(i64, &NewJob)]) {
    let is_alike = |one: &NewJob, next: &NewJob| {
        Rc::ptr_eq(&one.common, &next.common) && one.created_at / MINUTE == next.created_at / MINUTE
    };
    for alike in jobs.chunk_by(|(_, one), (_, next)| is_alike(one, next)) {
        let (_, first) = alike[0];
        let pair = tally::pair(first.common.queue.name(), &first.common.kind);
        tally::count(pair, first.created_at, Event::Inserted, alike.len() as u64, None);
    }
}

/// An attempt started at a job that had waited since then.
pub fn started(pair: Pair, now: i64, since: i64) {
    let waited = now.saturating_sub(since);
    tally::count(pair, now, Event::Started, 1, Some((Time::Wait, waited)));
}

/// An attempt that ended, or a job that became final.
#[derive(Clone, Copy, Default)]
pub struct Over<'a> {
    pub id: i64,
    /// Of the queue and kind that the job was fetched with.
    pub key: Option<i32>,
    /// The queue it was fetched from, if the job has another by now.
    pub queue: Option<&'a str>,
    /// When the attempt began, if its time counts.
    pub began_at: Option<i64>,
    pub ended_at: i64,
}

impl Over<'_> {
    fn count(&self, pair: Pair, event: Event) {
        let ran = |began_at| (Time::Run, self.ended_at.saturating_sub(began_at));
        tally::count(pair, self.ended_at, event, 1, self.began_at.map(ran));
    }
}

/// Counts attempts and jobs that ended this way. Reads the queues and kinds that this session does
/// not know.
pub fn over<'a>(all: impl Iterator<Item = Over<'a>>, event: Event) {
    let mut unknown = Vec::new();
    for one in all {
        match one.key.and_then(tally::by_key) {
            Some(pair) => one.count(pair, event),
            None => unknown.push(one),
        }
    }
    if unknown.is_empty() {
        return;
    }
    let unknown: HashMap<i64, Over> = unknown.into_iter().map(|one| (one.id, one)).collect();
    let ids: Vec<i64> = unknown.keys().copied().collect();
    let names = NAMES.list(&[bigs(&ids)], |rows, row| {
        let text = |column| rows.get::<String>(row, column);
        Some((rows.get(row, "id")?, text("queue")?, text("kind")?))
    });
    for (id, queue, kind) in &names {
        if let Some(one) = unknown.get(id) {
            one.count(tally::pair(one.queue.unwrap_or(queue), kind), event);
        }
    }
}

/// Writes what the transaction that is about to end has counted and shared memory has no room for.
/// The session no longer acts as the extension's owner. A transaction that has been made read-only
/// since is not to fail because of counts.
pub fn write(deltas: Vec<Counted>) {
    if transaction::is_read_only() {
        return;
    }
    let append = || {
        for delta in &deltas {
            let (queue, kind) = (text(&delta.queue), text(&delta.kind));
            let counts = bigs(&delta.counts.to_store());
            APPEND.execute(&[big(delta.minute), queue, kind, counts]);
        }
    };
    let append = || {
        fault::exhaust();
        Scratch::new().within(append)
    };
    let append_as_owner = || {
        // It may just have been dropped.
        let extension = catalog::find().filter(|_| extension::complaint().is_none());
        if let Some(extension) = extension {
            as_role(extension.owner, append);
        }
    };
    // No statement is under way, so there is neither a snapshot that would do nor a reserve.
    report::kept(|| transaction::with_latest_snapshot(append_as_owner));
}

/// What was counted, by time, queue and kind.
type CountsByMinute = BTreeMap<(i64, String, String), Counts>;

/// The minute of which this session has written all that was before it.
static WRITTEN_BEFORE: AtomicI64 = AtomicI64::new(i64::MIN);
/// The turn of who writes minutes.
const WRITING: i64 = 1;

/// Writes minutes that are over and forgets old ones, up to so many; how many it has forgotten, and
/// whether there may be more to do. A worker does it once a minute, when it finds what came late,
/// and each second while a session holds an entry back. Where another session is at it, it is left
/// to that session.
pub fn keep(now: i64, retention: Option<i64>, limit: i64) -> (usize, bool) {
    let minute = now.div_euclid(MINUTE) * MINUTE;
    let is_done = WRITTEN_BEFORE.load(Ordering::Relaxed) == minute;
    let is_idle = is_done && entries::next_due().is_none_or(|due| due > now);
    if shmem::is_worker() && is_idle || !lock::is_our_turn(WRITING) {
        return (0, false);
    }
    let closed = entries::close(minute);
    let written = transaction::with_latest_snapshot(|| written(&closed));
    let (mut are_to_free, mut totals) = (false, Totals::new(minute));
    for counted in &closed {
        let serial = counted.serial.expect("it is an entry");
        match written.get(&serial) {
            // It is committed.
            Some(transaction) if !transaction::is_ours(*transaction) => entries::free(serial),
            Some(_) => (),
            None => {
                write_minute(counted, &mut totals);
                are_to_free = true;
            }
        }
    }
    let mut minutes = CountsByMinute::new();
    let folded = FOLD.run(&[big(minute), big(limit)], |rows| {
        add_rows(rows, |at| at, &mut minutes);
        rows.len()
    });
    for ((minute, queue, kind), counts) in minutes {
        let counted = Counted { serial: None, minute, queue, kind, counts };
        write_minute(&counted, &mut totals);
    }
    totals.put_others();
    let forgotten = retention.map_or(0, |kept| {
        let horizon = now.saturating_sub(kept).saturating_sub(MINUTE);
        FORGET_TOTALS.execute(&[big(horizon), big(limit)]);
        FORGET.execute(&[big(horizon), big(limit)])
    });
    let is_more = folded.max(forgotten) >= limit as usize;
    // A round that fails does not get here, and is repeated.
    let is_all = !is_more && !are_to_free;
    let before = if is_all { minute } else { i64::MIN };
    WRITTEN_BEFORE.store(before, Ordering::Relaxed);
    (forgotten, is_more)
}

/// Writes what was counted in a minute, and adds it to what was counted since the server began.
fn write_minute(counted: &Counted, totals: &mut Totals) {
    let (queue, kind, at) = (text(&counted.queue), text(&counted.kind), big(counted.minute));
    if counted.counts == Counts::default() {
        return;
    }
    let stored = bigs(&counted.counts.to_store());
    KEEP.execute(&[at, counted.serial.and_then(big), queue, kind, stored]);
    totals.add(counted);
}

/// The queue and kind of all those that have no counters of their own.
pub const OTHERS: &str = "(others)";
/// The rows of `jobs.metrics` of a queue and kind, at most: events, and two histograms.
pub const SERIES: usize = 6 + 2 * (*UP_TO.end() - *UP_TO.start() + 4) as usize;
/// Up to where times are counted there, in microseconds: powers of 4, from a millisecond to 5
/// hours.
pub const UP_TO: std::ops::RangeInclusive<u32> = 5..=17;
/// A queue and kind of which nothing was counted for so long makes room for others, in
/// microseconds.
const IDLE: i64 = 60 * MINUTE;

/// Of how many queues and kinds there are counters: for three of four rows of `jobs.metrics`.
fn most_totals() -> usize {
    settings::metrics_max_series() / 4 * 3 / SERIES
}

/// What was counted since the server began. Those that come when there is no room count together,
/// so that no counter of `jobs.metrics` steps back.
struct Totals {
    minute: i64,
    /// How many more fit, once that is known.
    room: Option<usize>,
    others: Counts,
}

impl Totals {
    fn new(minute: i64) -> Totals {
        let (room, others) = (None, Counts::default());
        Totals { minute, room, others }
    }

    fn add(&mut self, counted: &Counted) {
        let Counted { queue, kind, .. } = counted;
        let names = [text(queue), text(kind), big(entries::epoch())];
        let before: Option<Option<Vec<i64>>> = TOTAL.first(&names, |rows| rows.get(0, "counts"));
        if before.is_none() && !self.has_room() {
            self.others.add_all(&counted.counts);
            return;
        }
        let mut total = counted.counts.clone();
        total.add_stored(&before.flatten().unwrap_or_default());
        put_total(queue, kind, counted.minute, &total);
    }

    /// Takes the room for one more, if there is some.
    fn has_room(&mut self) -> bool {
        let minute = self.minute;
        let room = self.room.get_or_insert_with(|| {
            let left = || {
                let count: i64 = COUNT_TOTALS.value(&[]).unwrap_or(0);
                most_totals().saturating_sub(count as usize)
            };
            match left() {
                0 => {
                    FORGET_TOTALS.execute(&[big(minute - IDLE), big(i64::MAX)]);
                    left()
                }
                left => left,
            }
        });
        let has_room = *room > 0;
        *room = room.saturating_sub(1);
        has_room
    }

    fn put_others(self) {
        if self.others != Counts::default() {
            let mut total = self.others;
            let names = [text(OTHERS), text(OTHERS), big(entries::epoch())];
            let before: Option<Vec<i64>> = TOTAL.value(&names);
            total.add_stored(&before.unwrap_or_default());
            put_total(OTHERS, OTHERS, self.minute, &total);
        }
    }
}

fn put_total(queue: &str, kind: &str, at: i64, total: &Counts) {
    let counts = bigs(&total.to_store());
    PUT_TOTAL.execute(&[text(queue), text(kind), big(entries::epoch()), big(at), counts]);
}

/// Rows that are read at once, and some more of the same minute.
const PAGE: usize = 1000;

/// Hands over what was counted from then on, in steps of so many microseconds, and in order. What
/// commits meanwhile counts or does not, and nothing counts twice.
pub fn since(
    from: i64,
    step: i64,
    [queue, kind]: [Option<&str>; 2],
    mut take: impl FnMut(i64, String, String, Counts),
) {
    let copies = entries::copies();
    transaction::with_latest_snapshot(|| {
        let begin = |at: i64| at.div_euclid(step) * step;
        let names = [queue.and_then(text), kind.and_then(text)];
        let is_meant = |copy: &Counted| {
            copy.minute >= from
                && queue.is_none_or(|queue| queue == copy.queue)
                && kind.is_none_or(|kind| kind == copy.kind)
        };
        let mut found = CountsByMinute::new();
        add_copies(copies.into_iter().filter(is_meant).collect(), begin, &mut found);
        let args = [big(from), names[0], names[1]];
        DELTAS.run_as_of(Snapshot::Callers, &args, |rows| add_rows(rows, begin, &mut found));
        let mut next = Some(from);
        while let Some(from) = next {
            let args = [big(from), names[0], names[1], big(PAGE as i64)];
            next = MINUTES.run_as_of(Snapshot::Callers, &args, |rows| {
                add_rows(rows, begin, &mut found);
                let last = rows.len().checked_sub(1).filter(|last| *last + 1 >= PAGE)?;
                rows.get(last, "at").map(|at: i64| at + 1)
            });
            // What is yet to be read adds to nothing before this.
            let open = next.map_or(i64::MAX, begin);
            let rest = found.split_off(&(open, String::new(), String::new()));
            for ((at, queue, kind), counts) in std::mem::replace(&mut found, rest) {
                if counts != Counts::default() {
                    take(at, queue, kind, counts);
                }
            }
        }
    });
}

/// All that was counted since the server began, by queue and kind. What is not yet written is of
/// those that have counters, or may get them, or of the others.
pub fn totals() -> impl Iterator<Item = (String, String, Counts)> {
    let copies = entries::copies();
    let most = most_totals();
    let found = transaction::with_latest_snapshot(|| {
        let mut found = CountsByMinute::new();
        let others = (0, OTHERS.to_owned(), OTHERS.to_owned());
        let args = [big(entries::epoch()), big(most as i64 + 1)];
        TOTALS.run_as_of(Snapshot::Callers, &args, |rows| {
            add_rows(rows, |_| 0, &mut found);
        });
        let mut add = |of: CountsByMinute| {
            for (name, counts) in of {
                let has_room = found.len() < most || found.contains_key(&name);
                let name = if has_room { name } else { others.clone() };
                found.entry(name).or_default().add_all(&counts);
            }
        };
        let mut recent = CountsByMinute::new();
        add_copies(copies, |_| 0, &mut recent);
        add(recent);
        UNWRITTEN.run_as_of(Snapshot::Callers, &[], |rows| {
            for row in 0..rows.len() {
                let mut one = CountsByMinute::new();
                add_row(rows, row, |_| 0, &mut one);
                add(one);
            }
        });
        found
    });
    let any = found.into_iter().filter(|(_, counts)| *counts != Counts::default());
    any.map(|((_, queue, kind), counts)| (queue, kind, counts))
}

/// Adds what entries had that no row has, as the snapshot of the moment shows them.
fn add_copies(copies: Vec<Counted>, begin: impl Fn(i64) -> i64, to: &mut CountsByMinute) {
    let written = written(&copies);
    for copy in copies {
        let is_written = copy.serial.is_some_and(|serial| written.contains_key(&serial));
        if !is_written {
            let place = (begin(copy.minute), copy.queue, copy.kind);
            to.entry(place).or_default().add_all(&copy.counts);
        }
    }
}

/// The entries that are in rows of the minutes of these, as the snapshot of the moment shows them,
/// each with the transaction that has written it.
fn written(counted: &[Counted]) -> HashMap<i64, u32> {
    let first = counted.iter().map(|counted| counted.minute).min();
    let from = [big(first.unwrap_or(i64::MAX))];
    let entries = ENTRIES.list_as_of(Snapshot::Callers, &from, |rows, row| {
        let made_by: Oid = rows.get(row, "xmin")?;
        Some((rows.get(row, "entry")?, made_by.to_u32()))
    });
    entries.into_iter().collect()
}

/// Adds rows of a time, a queue, a kind and counts.
fn add_rows(rows: &Tuples, begin: impl Fn(i64) -> i64, to: &mut CountsByMinute) {
    for row in 0..rows.len() {
        add_row(rows, row, &begin, to);
    }
}

fn add_row(rows: &Tuples, row: usize, begin: impl Fn(i64) -> i64, to: &mut CountsByMinute) {
    let (at, queue) = (rows.get(row, "at"), rows.get(row, "queue"));
    if let Some(((at, queue), kind)) = at.zip(queue).zip(rows.get(row, "kind")) {
        let counts: Vec<i64> = rows.get(row, "counts").unwrap_or_default();
        let place = (begin(at), queue, kind);
        to.entry(place).or_default().add_stored(&counts);
    }
}

plans! {
    NAMES(INT8S) = "SELECT j.id, j.queue, j.kind FROM jobs.job j WHERE j.id = ANY ($1)";
    APPEND(AT, TEXT, TEXT, INT8S) =
        "INSERT INTO jobs.history_delta (at, queue, kind, counts) VALUES ($1, $2, $3, $4)";
    KEEP(AT, INT8, TEXT, TEXT, INT8S) =
        "INSERT INTO jobs.history_bucket (at, entry, queue, kind, counts) VALUES ($1, $2, $3, $4, $5)";
    FOLD(AT, INT8) => delete_some("history_delta", "t.at < $1") + " RETURNING at, queue, kind, counts";
    TOTAL(TEXT, TEXT, INT8) =
        "SELECT CASE WHEN t.epoch = $3 THEN t.counts END AS counts FROM jobs.history_total t WHERE t.queue = $1 AND t.kind = $2";
    COUNT_TOTALS() = "SELECT count(*) FROM jobs.history_total";
    // Counters of another epoch begin anew: what was lost with its memory would look like a step
    // back.
    PUT_TOTAL(TEXT, TEXT, INT8, AT, INT8S) =
        "INSERT INTO jobs.history_total AS t (queue, kind, epoch, at, counts) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (queue, kind) DO UPDATE SET epoch = $3, at = GREATEST(t.at, $4), counts = $5";
    FORGET(AT, INT8) => delete_some("history_bucket", "t.at <= $1 ORDER BY t.at");
    FORGET_TOTALS(AT, INT8) => delete_some("history_total", "t.at <= $1");
    MINUTES(AT, TEXT, TEXT, INT8) =
        "SELECT b.at, b.queue, b.kind, b.counts FROM jobs.history_bucket b
          WHERE b.at >= $1 AND ($2 IS NULL OR b.queue = $2) AND ($3 IS NULL OR b.kind = $3)
          ORDER BY b.at FETCH FIRST $4 ROWS WITH TIES";
    DELTAS(AT, TEXT, TEXT) =
        "SELECT d.at, d.queue, d.kind, d.counts FROM jobs.history_delta d
          WHERE d.at >= $1 AND ($2 IS NULL OR d.queue = $2) AND ($3 IS NULL OR d.kind = $3)";
    TOTALS(INT8, INT8) =
        "SELECT t.at, t.queue, t.kind, t.counts FROM jobs.history_total t WHERE t.epoch = $1 ORDER BY t.at DESC LIMIT $2";
    UNWRITTEN() = "SELECT d.at, d.queue, d.kind, d.counts FROM jobs.history_delta d";
    ENTRIES(AT) =
        "SELECT b.entry, b.xmin FROM jobs.history_bucket b WHERE b.at >= $1 AND b.entry IS NOT NULL";
}
