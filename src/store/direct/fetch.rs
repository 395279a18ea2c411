//! Starting attempts without statements: out of `ready`, into `running`.

use std::cell::RefCell;

use pgrx::pg_sys::Datum;

use super::shapes::{self, job, running};
use super::walk::{self, How, seen};
use crate::pg::jsonb::Jsonb;
use crate::pg::row::{NewRow, Row};
use crate::pg::scan::{Key, Scan, Seen};
use crate::pg::table::Table;
use crate::pg::{array, time, transaction};
use crate::shmem::tally;
use crate::store::fetch::{
    DEFAULT_LEASE, DEFAULT_TIMEOUT, Emit, Fetch, Limits, Picked, RETURNED, Room, Started, not_seen,
};
use crate::store::permits::{Covered, Permit, Subject};
use crate::store::queue::Queue;
use crate::store::spi::{Arg, big, bigs, text};
use crate::store::turns;
use crate::store::types::*;

/// Starts attempts and hands the jobs over; `None`: use a statement.
pub fn start(
    queue: &Queue,
    fetch: &Fetch,
    tokens: &[i64],
    room: &Room,
    limits: Option<&Limits>,
    emit: Emit,
) -> Option<(Vec<Started>, usize)> {
    let jobs = Table::open_to_read(&shapes::JOB, &shapes::JOB.key)?;
    let running = Table::open(&shapes::RUNNING)?;
    let taken = take(How::Take, &jobs, queue, fetch, tokens.len())?;
    // Taken after the rows were: it shows their jobs.
    let seen = Seen::now();
    let mut scan = jobs.scan(&shapes::JOB.key, &seen, 1);
    let (taken, held) = match limits {
        None => {
            turns::taken(queue, &taken);
            (taken.into_iter().map(|one| (one, Permit::default(), None)).collect(), 0)
        }
        Some(limits) => {
            let covered = taken.iter().map(|one| covered(limits, &mut scan, one.job_id)).collect();
            limits.admit(taken, covered)
        }
    };
    let resumed_at = queue.settings().resumed_at;
    let lease = fetch.lease.map(time::interval_datum);
    let worker = text(fetch.worker);
    let no_meta = Jsonb::empty_object().datum();
    let no_tags = array::build(TEXT, &[]);
    let (mut rows, mut started) =
        (Vec::with_capacity(taken.len()), Vec::with_capacity(taken.len()));
    for (taken, permit, row) in taken {
        let job = match row {
            Some(JobRow(row)) => scan.show(row),
            None => match scan.first(&[Key::big(1, taken.job_id)]) {
                Some(job) => job,
                None => {
                    not_seen(taken.job_id);
                    continue;
                }
            },
        };
        let n = started.len();
        let permit = Some(permit).filter(|permit| !permit.gates.is_empty());
        let timeout = job.datum(job::TIMEOUT).map_or(DEFAULT_TIMEOUT, time::read_datum);
        let deadline = timeout.is_positive().then(|| time::add(fetch.now, timeout));
        let lease_ends = match fetch.lease {
            Some(lease) => time::add(fetch.now, lease),
            None => deadline.unwrap_or_else(|| time::add(fetch.now, DEFAULT_LEASE)),
        };
        let lease_ends = deadline.map_or(lease_ends, |deadline| deadline.min(lease_ends));
        let hold_ends_at = job.big(job::HOLD_ENDS_AT).filter(|ends_at| *ends_at > fetch.now);
        let hold_until = hold_ends_at.and_then(|_| job.text(job::HOLD_UNTIL));
        let holds_until = |what: &str| hold_ends_at.filter(|_| hold_until.as_deref() == Some(what));
        let attempt = Some(Datum::from(taken.attempt + 1));
        let (due_at, since) = waits(&taken, &job, resumed_at);
        let kind = job.str(job::KIND).expect("it is not null");
        let pair = tally::pair(queue.name(), kind);
        rows.push(running.row_of(&[
            (running::JOB_ID, big(taken.job_id)),
            (running::TOKEN, big(tokens[n])),
            (running::ATTEMPTED_AT, big(fetch.now)),
            (running::LEASE_EXPIRES_AT, big(lease_ends)),
            (running::DEADLINE_AT, deadline.and_then(big)),
            (running::SCHEDULED_AT, taken.scheduled_at.and_then(big)),
            (running::HOLD_ENDS_AT, holds_until("success").and_then(big)),
            (running::SLOT, room.slots.and_then(|slots| big(slots[n]))),
            (running::ATTEMPT, attempt),
            (running::HISTORY_KEY, Some(Datum::from(pair.key))),
            (running::LEASE, lease),
            (running::WORKER, worker),
            (running::GATES, permit.as_ref().and_then(|permit| bigs(&permit.gates))),
            (running::PERMIT, permit.and_then(|permit| big(permit.n))),
        ]));
        let priority = job.small(job::PRIORITY).expect("it is not null");
        let columns: [Arg; RETURNED + 1] = [
            big(taken.job_id),
            big(tokens[n]),
            attempt,
            job.datum(job::KIND),
            job.datum(job::ARGS),
            job.datum(job::META).or(Some(no_meta)),
            job.datum(job::QUEUE),
            Some(Datum::from(i32::from(priority))),
            job.datum(job::TAGS).or(Some(no_tags)),
            job.datum(job::MAX_ATTEMPTS),
            job.datum(job::CREATED_AT),
            big(due_at),
            big(fetch.now),
            big(lease_ends),
            deadline.and_then(big),
            big(since),
        ];
        let values = columns.iter().map(|value| value.unwrap_or(Datum::null())).collect();
        emit(values, columns.iter().map(Option::is_none).collect());
        started.push(Started {
            id: taken.job_id,
            pair,
            since,
            hold_ends_at: holds_until("start"),
            lease_ends_at: lease_ends,
        });
    }
    running.insert(rows);
    drop(scan);
    drop(seen);
    transaction::make_visible();
    Some((started, held))
}

/// A row of `job` that was kept.
pub struct JobRow(NewRow);

/// What limits say of a job, with its row; `None`: it is gone.
fn covered(limits: &Limits, jobs: &mut Scan, id: i64) -> Option<Covered> {
    let row = jobs.first(&[Key::big(1, id)])?;
    let subject = Subject {
        queue: limits.queue.name(),
        kind: row.str(job::KIND)?,
        args: Jsonb::from_datum(row.datum(job::ARGS)?),
        meta: row.datum(job::META).map(Jsonb::from_datum),
        priority: row.small(job::PRIORITY)?,
    };
    let covered = Covered::of(limits.rules, &subject, id, row.big(job::EXPIRES_AT));
    Some(Covered { row: Some(JobRow(row.copy())), ..covered })
}

/// Takes jobs of a queue that a fetch wants, or looks at them; `None`: use a statement.
fn take(how: How, jobs: &Table, queue: &Queue, fetch: &Fetch, most: usize) -> Option<Vec<Picked>> {
    let Some(kinds) = fetch.kinds else {
        return walk::take(how, queue, fetch.now, most, &|_| true);
    };
    transaction::make_visible();
    // As new as the walk: a job that was given another kind has another row in its lane.
    let seen = seen();
    let scan = RefCell::new(jobs.scan(&shapes::JOB.key, &seen, 1));
    let wants = |id| {
        let mut scan = scan.borrow_mut();
        let job = scan.first(&[Key::big(1, id)]);
        let kind = job.and_then(|job| job.text(job::KIND));
        kind.is_some_and(|kind| kinds.contains(&kind))
    };
    walk::take(how, queue, fetch.now, most, &wants)
}

/// Since when each of up to so many jobs is available that a fetch could start now; `None`: use a
/// statement.
pub fn available_since(queue: &Queue, fetch: &Fetch, most: usize) -> Option<Vec<i64>> {
    let jobs = Table::open_to_read(&shapes::JOB, &shapes::JOB.key)?;
    let found = take(How::Look, &jobs, queue, fetch, most)?;
    let seen = Seen::now();
    let mut scan = jobs.scan(&shapes::JOB.key, &seen, 1);
    let resumed_at = queue.settings().resumed_at;
    let since = found.iter().filter_map(|found| {
        let job = scan.first(&[Key::big(1, found.job_id)])?;
        Some(waits(found, &job, resumed_at).1)
    });
    Some(since.collect())
}

/// When a job was due, and since when it waits, as `count::waits_since` has it.
fn waits(taken: &Picked, job: &Row, resumed_at: Option<i64>) -> (i64, i64) {
    let created_at = job.big(job::CREATED_AT).expect("it is not null");
    let due_at = taken.scheduled_at.or(job.big(job::SCHEDULED_AT));
    let due_at = due_at.unwrap_or(created_at);
    let later = [taken.available_at, resumed_at].into_iter().flatten();
    (due_at, later.fold(due_at.max(created_at), i64::max))
}
