//! What was counted of jobs, by minute, queue and kind: what each call counts, the rows that it
//! becomes, and what is read of them and of shared memory together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, Ordering};

use jobs_core::history::{Counts, Event, Time};

use super::catalog;
use super::job::NewJob;
use super::place::TakenRow;
use super::spi::{Plan, Snapshot, Tuples, big, bigs, text};
use super::types::*;
use crate::pg::role::as_role;
use crate::pg::{extension, transaction};
use crate::shmem;
use crate::shmem::history::{self, Copied, MINUTE};
use crate::shmem::tally::{self, Delta, Pair};

/// Jobs were inserted.
pub fn inserted(jobs: &[(i64, &NewJob)]) {
    let mut rest = jobs;
    while let [(_, first), ..] = rest {
        let is_alike = |(_, job): &&(i64, &NewJob)| {
            Rc::ptr_eq(&job.common, &first.common) && job.created_at == first.created_at
        };
        let count = rest.iter().take_while(is_alike).count();
        let pair = tally::pair(&first.common.queue, &first.common.kind);
        tally::count(pair, first.created_at, Event::Inserted, count as u64);
        rest = &rest[count..];
    }
}

/// An attempt began of a job that was due then; the number of its queue and kind.
pub fn started(queue: &str, kind: &str, now: i64, due_at: i64) -> i32 {
    let pair = tally::pair(queue, kind);
    let waited = now.saturating_sub(due_at);
    tally::measure(pair, now, Event::Started, Time::Wait, waited);
    tally::key(pair)
}

/// An attempt that is over, or a job that became final without one.
pub struct Ended {
    /// the job
    pub id: i64,
    /// the number of the queue and kind that it was fetched with
    pub key: Option<i32>,
    /// the queue, where the job has another one by now
    pub queue: Option<String>,
    /// when the attempt began
    pub began_at: Option<i64>,
}

/// An attempt of a job that was taken out of where it was has ended so, if it was running.
pub fn attempt_ended(id: i64, row: &TakenRow, event: Event, now: i64) {
    note_ended(id, row, row.attempted_at, event, now);
}

/// A job became final, whose attempt has been counted.
pub fn became(id: i64, row: &TakenRow, event: Event, now: i64) {
    note_ended(id, row, None, event, now);
}

fn note_ended(id: i64, row: &TakenRow, began_at: Option<i64>, event: Event, now: i64) {
    let ended = Ended {
        id,
        key: row.history_key,
        queue: row.queue.clone(),
        began_at,
    };
    all_ended(vec![ended], event, now);
}

/// All of these ended so.
pub fn all_ended(mut ended: Vec<Ended>, event: Event, now: i64) {
    let note = |pair: Pair, ended: &Ended| match ended.began_at {
        Some(at) => tally::measure(pair, now, event, Time::Run, now.saturating_sub(at)),
        None => tally::count(pair, now, event, 1),
    };
    ended.retain(|ended| match ended.key.and_then(tally::by_key) {
        Some(pair) => {
            note(pair, ended);
            false
        }
        None => true,
    });
    if ended.is_empty() {
        return;
    }
    let ids: Vec<i64> = ended.iter().map(|ended| ended.id).collect();
    let names = NAMES.list(&[bigs(&ids)], |rows, row| {
        Some((rows.big(row, 1)?, (rows.text(row, 2)?, rows.text(row, 3)?)))
    });
    let names: HashMap<i64, (String, String)> = names.into_iter().collect();
    for ended in &ended {
        if let Some((queue, kind)) = names.get(&ended.id) {
            let queue = ended.queue.as_ref().unwrap_or(queue);
            note(tally::pair(queue, kind), ended);
        }
    }
}

/// Writes what the transaction that is about to end has counted and shared memory has no room for.
/// Nobody is called as the extension's owner any more. A transaction that has been made read-only
/// since is not to fail because of counts.
pub fn write(deltas: Vec<Delta>) {
    if transaction::is_read_only() {
        return;
    }
    let append = || {
        for delta in &deltas {
            let (queue, kind) = (text(&delta.queue), text(&delta.kind));
            APPEND.execute(&[big(delta.minute), queue, kind, bigs(&delta.counts)]);
        }
    };
    // No statement is under way whose snapshot would do.
    transaction::with_latest_snapshot(|| {
        // It may just have been dropped.
        let extension = catalog::find().filter(|_| extension::complaint().is_none());
        if let Some(extension) = extension {
            as_role(extension.owner, append);
        }
    });
}

type ByPair = BTreeMap<(String, String), Counts>;
type ByMinute = BTreeMap<(i64, String, String), Counts>;

/// The minute of which this session has written what was before it.
static WRITTEN_BEFORE: AtomicI64 = AtomicI64::new(i64::MIN);

/// Writes minutes that are over and forgets old ones, up to so many; how many it has forgotten, and
/// whether there may be more to do. A worker does it once a minute, and when it finds what came
/// late.
pub fn keep(now: i64, retention: Option<i64>, limit: i64) -> (usize, bool) {
    let minute = now.div_euclid(MINUTE) * MINUTE;
    let is_done = WRITTEN_BEFORE.swap(minute, Ordering::Relaxed) == minute;
    if shmem::is_worker() && is_done && history::next_due().is_none_or(|due| due > now) {
        return (0, false);
    }
    let mut totals = ByPair::new();
    let mut total = |queue: &str, kind: &str, counts: &Counts| {
        let pair = (queue.to_owned(), kind.to_owned());
        totals.entry(pair).or_default().add_all(counts);
    };
    let taken = history::take(minute, limit as usize, transaction::subtransaction());
    for entry in &taken {
        let stored = entry.counts.to_store();
        if !stored.is_empty() {
            let (queue, kind) = (text(&entry.queue), text(&entry.kind));
            let (at, serial) = (big(entry.minute), big(entry.serial));
            KEEP.execute(&[at, serial, queue, kind, bigs(&stored)]);
            total(&entry.queue, &entry.kind, &entry.counts);
        }
    }
    let mut minutes = ByMinute::new();
    let args = [big(minute), big(limit)];
    let folded = FOLD.run(&args, |rows| {
        add_rows(rows, |at| at, &mut minutes);
        rows.len()
    });
    for ((at, queue, kind), counts) in &minutes {
        let stored = bigs(&counts.to_store());
        KEEP.execute(&[big(*at), None, text(queue), text(kind), stored]);
        total(queue, kind, counts);
    }
    for ((queue, kind), counts) in &totals {
        add_to_total(queue, kind, minute, counts);
    }
    let forgotten = retention.map_or(0, |kept| {
        let horizon = [
            big(now.saturating_sub(kept).saturating_sub(MINUTE)),
            big(limit),
        ];
        FORGET_TOTALS.execute(&horizon);
        FORGET.execute(&horizon)
    });
    let is_more = taken.len().max(folded).max(forgotten) >= limit as usize;
    if is_more {
        WRITTEN_BEFORE.store(i64::MIN, Ordering::Relaxed);
    }
    (forgotten, is_more)
}

/// Counters of earlier runs of the server begin anew: what was lost with its memory would look like
/// a step back.
fn add_to_total(queue: &str, kind: &str, now: i64, counts: &Counts) {
    let (epoch, mut sum) = (history::epoch(), counts.clone());
    let pair = [text(queue), text(kind)];
    ENSURE_TOTAL.execute(&[pair[0], pair[1], big(epoch), big(now)]);
    LOCK_TOTAL.run(&[pair[0], pair[1], big(epoch)], |rows| {
        if !rows.is_empty() {
            sum.add_stored(&rows.bigs(0, 1).expect("it is not null"));
        }
    });
    let sum = bigs(&sum.to_store());
    SET_TOTAL.execute(&[pair[0], pair[1], big(epoch), big(now), sum]);
}

/// What was counted from then on, in steps of so many microseconds. What commits meanwhile counts
/// or does not, and nothing counts twice.
pub fn since(from: i64, step: i64, queue: Option<&str>, kind: Option<&str>) -> ByMinute {
    let copies = history::copies();
    transaction::with_latest_snapshot(|| {
        let begin = |at: i64| at.div_euclid(step) * step;
        let (mut found, mut written) = (ByMinute::new(), HashSet::new());
        let args = [big(from), queue.and_then(text), kind.and_then(text)];
        SINCE.run_as_of(Snapshot::Callers, &args, |rows| {
            add_rows(rows, begin, &mut found);
            written.extend((0..rows.len()).filter_map(|row| rows.big(row, 5)));
        });
        let is_meant = |copy: &Copied| {
            copy.minute >= from
                && queue.is_none_or(|queue| queue == copy.queue)
                && kind.is_none_or(|kind| kind == copy.kind)
                && !written.contains(&copy.serial)
        };
        for copy in copies.into_iter().filter(is_meant) {
            let place = (begin(copy.minute), copy.queue, copy.kind);
            found.entry(place).or_default().add_all(&copy.counts);
        }
        found.retain(|_, counts| *counts != Counts::default());
        found
    })
}

/// All that was counted since the server began.
pub fn totals() -> ByPair {
    let copies = history::copies();
    transaction::with_latest_snapshot(|| {
        let mut found = ByPair::new();
        TOTALS.run_as_of(Snapshot::Callers, &[big(history::epoch())], |rows| {
            for row in 0..rows.len() {
                let (Some(queue), Some(kind)) = (rows.text(row, 1), rows.text(row, 2)) else {
                    continue;
                };
                let counts = rows.bigs(row, 3).unwrap_or_default();
                found.entry((queue, kind)).or_default().add_stored(&counts);
            }
        });
        let from = copies.iter().map(|copy| copy.minute).min();
        let from = [big(from.unwrap_or(i64::MAX))];
        let written: HashSet<i64> = ENTRIES.run_as_of(Snapshot::Callers, &from, |rows| {
            (0..rows.len()).filter_map(|row| rows.big(row, 1)).collect()
        });
        for copy in copies
            .into_iter()
            .filter(|copy| !written.contains(&copy.serial))
        {
            let counts = found.entry((copy.queue, copy.kind)).or_default();
            counts.add_all(&copy.counts);
        }
        found.retain(|_, counts| *counts != Counts::default());
        found
    })
}

/// Adds rows of a time, a queue, a kind and counts.
fn add_rows(rows: &Tuples, begin: impl Fn(i64) -> i64, to: &mut ByMinute) {
    for row in 0..rows.len() {
        let names = rows.text(row, 2).zip(rows.text(row, 3));
        if let Some((at, (queue, kind))) = rows.big(row, 1).zip(names) {
            let counts = rows.bigs(row, 4).unwrap_or_default();
            let place = (begin(at), queue, kind);
            to.entry(place).or_default().add_stored(&counts);
        }
    }
}

static NAMES: Plan = Plan::new(
    "SELECT j.id, j.queue, j.kind FROM jobs.job j WHERE j.id = ANY ($1)",
    &[INT8S],
);
static APPEND: Plan = Plan::new(
    "INSERT INTO jobs.history_delta (at, queue, kind, counts) VALUES ($1, $2, $3, $4)",
    &[AT, TEXT, TEXT, INT8S],
);
static KEEP: Plan = Plan::new(
    "INSERT INTO jobs.history_bucket (at, entry, queue, kind, counts) VALUES ($1, $2, $3, $4, $5)",
    &[AT, INT8, TEXT, TEXT, INT8S],
);
static FOLD: Plan = Plan::new(
    "DELETE FROM jobs.history_delta WHERE ctid = ANY (ARRAY(
       SELECT d.ctid FROM jobs.history_delta d WHERE d.at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))
     RETURNING at, queue, kind, counts",
    &[AT, INT8],
);
static ENSURE_TOTAL: Plan = Plan::new(
    "INSERT INTO jobs.history_total (queue, kind, epoch, at, counts) VALUES ($1, $2, $3, $4, '{}') ON CONFLICT DO NOTHING",
    &[TEXT, TEXT, INT8, AT],
);
static LOCK_TOTAL: Plan = Plan::new(
    "SELECT CASE WHEN t.epoch = $3 THEN t.counts ELSE '{}' END
       FROM jobs.history_total t WHERE t.queue = $1 AND t.kind = $2 FOR UPDATE",
    &[TEXT, TEXT, INT8],
);
static SET_TOTAL: Plan = Plan::new(
    "UPDATE jobs.history_total SET epoch = $3, at = $4, counts = $5 WHERE queue = $1 AND kind = $2",
    &[TEXT, TEXT, INT8, AT, INT8S],
);
static FORGET: Plan = Plan::new(
    "DELETE FROM jobs.history_bucket WHERE ctid = ANY (ARRAY(
       SELECT b.ctid FROM jobs.history_bucket b WHERE b.at <= $1 ORDER BY b.at LIMIT $2 FOR UPDATE SKIP LOCKED))",
    &[AT, INT8],
);
static FORGET_TOTALS: Plan = Plan::new(
    "DELETE FROM jobs.history_total WHERE ctid = ANY (ARRAY(
       SELECT t.ctid FROM jobs.history_total t WHERE t.at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))",
    &[AT, INT8],
);
static SINCE: Plan = Plan::new(
    "SELECT b.at, b.queue, b.kind, b.counts, b.entry FROM jobs.history_bucket b
      WHERE b.at >= $1 AND ($2 IS NULL OR b.queue = $2) AND ($3 IS NULL OR b.kind = $3)
     UNION ALL
     SELECT d.at, d.queue, d.kind, d.counts, NULL FROM jobs.history_delta d
      WHERE d.at >= $1 AND ($2 IS NULL OR d.queue = $2) AND ($3 IS NULL OR d.kind = $3)",
    &[AT, TEXT, TEXT],
);
static TOTALS: Plan = Plan::new(
    "SELECT t.queue, t.kind, t.counts FROM jobs.history_total t WHERE t.epoch = $1
     UNION ALL
     SELECT d.queue, d.kind, d.counts FROM jobs.history_delta d",
    &[INT8],
);
static ENTRIES: Plan = Plan::new(
    "SELECT b.entry FROM jobs.history_bucket b WHERE b.at >= $1 AND b.entry IS NOT NULL",
    &[AT],
);
