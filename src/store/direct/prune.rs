//! Final jobs without statements: which are due, and deleting them.

use std::cell::Cell;
use std::time::{Duration, Instant};

use jobs_core::key::Key as UniqueKey;

use super::look;
use super::shapes::{self, finished, job};
use crate::pg::index::IndexShape;
use crate::pg::page_lookup::PageLookup;
use crate::pg::row::{Row, Tid};
use crate::pg::scan::{Key, Scan, Seen};
use crate::pg::table::{self, Deleted, Table};
use crate::pg::{subxact, time, transaction};
use crate::shmem;
use crate::store::kept::Kept;
use crate::store::prune::{Dealt, Final, Old, Rule, Wanted};
use crate::store::queue::Queue;

/// The queue that a job belongs to now; `None`: use a statement.
pub fn queue_of(id: i64) -> Option<Option<Queue>> {
    let table = Table::open_to_read(&shapes::JOB, &shapes::JOB.key)?;
    let seen = Seen::latest();
    let mut scan = table.scan(&shapes::JOB.key, &seen, 1);
    let job = scan.first(&[Key::big(1, id)]);
    Some(job.and_then(|job| job.str(job::QUEUE).map(Queue::named)))
}

/// By what the first job of a rule is found that is there, be it one that comes or goes right now;
/// `None`: use a statement.
pub fn first(rule: Rule) -> Option<Option<i64>> {
    let index = rule.index();
    let table = Table::open_to_read(&shapes::FINISHED, index)?;
    transaction::make_visible();
    let begun = Instant::now();
    let floor = Floor::of(rule);
    let seen = Seen::dirty();
    let mut scan = table.scan(index, &seen, rule.keys());
    rule.find(&table, &mut scan, floor.map_or(i64::MIN, |floor| floor.at), i64::MAX);
    let found = scan.next().and_then(|row| row.big(rule.column()));
    Floor::note(rule, floor, begun, found);
    Some(found)
}

/// When to look below the floors again.
pub fn look_again() -> Option<i64> {
    let now = Instant::now();
    let floors = FLOORS.get().into_iter().flatten();
    let left = |floor: Floor| floor.until.duration_since(now);
    floors
        .filter(|floor| floor.until > now)
        .map(|floor| time::now() + left(floor).as_micros() as i64)
        .min()
}

/// Below it there was nothing but entries of what is gone. Until vacuum takes them away, walking
/// over them may take long. So a worker does that for no more than a hundredth of its time, and
/// believes meanwhile that nothing has come there.
#[derive(Clone, Copy)]
struct Floor {
    at: i64,
    until: Instant,
}

impl Floor {
    /// What takes no longer needs none.
    const SHORT: Duration = Duration::from_millis(1);
    const ONE_PART_IN: u32 = 100;

    fn of(rule: Rule) -> Option<Floor> {
        FLOORS.get()[rule.number()].filter(|floor| floor.until > Instant::now())
    }

    fn note(rule: Rule, before: Option<Floor>, begun: Instant, found: Option<i64>) {
        if !shmem::is_worker() {
            return;
        }
        let took = begun.elapsed();
        let until = match before {
            Some(floor) => Some(floor.until),
            None => (took >= Floor::SHORT).then(|| begun + took * Floor::ONE_PART_IN),
        };
        // What comes later is not below.
        let now = time::now();
        let at = found.map_or(now, |at| at.min(now));
        let mut floors = FLOORS.get();
        floors[rule.number()] = until.map(|until| Floor { at, until });
        FLOORS.set(floors);
    }
}

thread_local! {
    static FLOORS: Cell<[Option<Floor>; 4]> = const { Cell::new([None; 4]) };
}

impl Rule {
    /// The index that they are found along.
    fn index(self) -> &'static IndexShape {
        match self {
            Rule::Aged(_) => &shapes::FINISHED_BY_AGE,
            Rule::Kept => &shapes::FINISHED_KEPT,
        }
    }

    /// The column that they are in the order of.
    fn column(self) -> i32 {
        match self {
            Rule::Aged(_) => finished::FINALIZED_AT,
            Rule::Kept => finished::KEPT_UNTIL,
        }
    }

    fn find(self, finished: &Table, scan: &mut Scan, from: i64, to: i64) {
        match self {
            Rule::Aged(state) => scan.find(&[
                Key::label(1, finished.label(finished::STATE, state.as_str())),
                Key::bool(2, false),
                Key::at_from(3, from),
                Key::at_to(3, to),
            ]),
            Rule::Kept => scan.find(&[Key::at_from(1, from), Key::at_to(1, to)]),
        }
    }

    fn keys(self) -> usize {
        match self {
            Rule::Aged(_) => 4,
            Rule::Kept => 2,
        }
    }
}

/// Deals with final jobs that are due; `None`: use statements.
pub fn deal_with(wanted: &Wanted) -> Option<Dealt> {
    if !transaction::is_read_committed() || !subxact::has_room() {
        return None;
    }
    // An insert may have given a job another queue since the snapshot was taken, where it is kept
    // for longer. That shows once its row of `finished` is deleted, which is undone then.
    subxact::kept_if(Option::is_some, || deal_as_seen(wanted))
}

/// Deletes by what one snapshot shows of the jobs. `None`, with some of them deleted, where that is
/// not true any more.
fn deal_as_seen(wanted: &Wanted) -> Option<Dealt> {
    let limit = wanted.limit as usize;
    let index = wanted.rule.index();
    let finished = Table::open(&shapes::FINISHED).filter(|table| table.has(index))?;
    let jobs = Table::open(&shapes::JOB)?;
    transaction::make_visible();
    let seen = Seen::now();
    let mut scan = finished.scan(index, &seen, wanted.rule.keys());
    wanted.rule.find(&finished, &mut scan, wanted.from, wanted.horizon);
    let read_job = |row: &Row| {
        let id = row.big(job::ID).expect("it is not null");
        Some((id, Job::read(row)))
    };
    let mut lookup = PageLookup::new(&jobs, &shapes::JOB.key, &seen, read_job);
    let mut dealt = Dealt::default();
    loop {
        let most = table::TOGETHER.min(limit - dealt.count());
        let found = next_final(&finished, &mut scan, wanted, most);
        // A scan that is at its end would begin anew.
        let is_over = found.len() < most;
        let mut whole = Vec::with_capacity(found.len());
        for (mut of, place) in found {
            pgrx::check_for_interrupts!();
            let id = || Key::big(1, of.id);
            let Some(job) = lookup.take(&of.id, id) else {
                continue;
            };
            let row = job.row;
            job.complete(&mut of);
            let term = of.term(wanted.system);
            if term.until <= wanted.now {
                whole.push((of, place, row));
            } else if term.kept_until != of.kept_until {
                dealt.kept.push(of.id);
            }
        }
        if !erase(&finished, &jobs, whole, &mut dealt) {
            return None;
        }
        if is_over || dealt.count() >= limit {
            break;
        }
    }
    drop((scan, lookup));
    drop(seen);
    transaction::make_visible();
    Some(dealt)
}

struct Job {
    queue: Option<Queue>,
    key: Option<UniqueKey>,
    kept: Option<Kept>,
    /// Unless its row of `finished` has another.
    scheduled_at: i64,
    /// The place of its row.
    row: Tid,
}

impl Job {
    fn read(row: &Row) -> Job {
        Job {
            queue: row.str(job::QUEUE).map(Queue::named),
            key: row.bytes(job::UNIQUE_KEY).and_then(UniqueKey::from_bytes),
            kept: look::kept(row),
            scheduled_at: row
                .big(job::SCHEDULED_AT)
                .or(row.big(job::CREATED_AT))
                .expect("it is not null"),
            row: row.tid(),
        }
    }

    /// Adds what is known of the job.
    fn complete(self, of: &mut Final) {
        of.key = self.key;
        of.queue = self.queue;
        of.kept = self.kept;
        of.scheduled_at.get_or_insert(self.scheduled_at);
    }
}

/// The next rows of a scan, but not those of these jobs, and where they are.
fn next_final(
    finished: &Table,
    scan: &mut Scan,
    wanted: &Wanted,
    most: usize,
) -> Vec<(Final, Tid)> {
    let mut found = Vec::with_capacity(most);
    while found.len() < most
        && let Some(row) = scan.next()
    {
        pgrx::check_for_interrupts!();
        let id = row.big(finished::JOB_ID).expect("it is not null");
        if wanted.but.contains(&id) {
            continue;
        }
        let state = match wanted.rule {
            Rule::Aged(state) => state,
            Rule::Kept => look::final_state(finished, &row),
        };
        let of = Final {
            id,
            key: None,
            state,
            finalized_at: row.big(finished::FINALIZED_AT).expect("it is not null"),
            kept_until: row.big(finished::KEPT_UNTIL),
            queue: None,
            scheduled_at: row.big(finished::SCHEDULED_AT),
            kept: None,
        };
        found.push((of, row.tid()));
    }
    found
}

/// Deletes both rows of each job; whether neither was changed by another session.
fn erase(finished: &Table, jobs: &Table, whole: Vec<(Final, Tid, Tid)>, dealt: &mut Dealt) -> bool {
    let mut job_rows = Vec::with_capacity(whole.len());
    for (of, place, job) in whole {
        if finished.delete(place, false) == Deleted::Done {
            dealt.erased.push(Old { id: of.id, key: of.key });
            job_rows.push(job);
        }
    }
    let deleted: Vec<Deleted> = job_rows.into_iter().map(|job| jobs.delete_at(job, true)).collect();
    !deleted.contains(&Deleted::Moved)
}
