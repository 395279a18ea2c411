//! Tables that are too long to be counted on request are counted now and then, a part a
//! round, and what was counted is kept for `jobs.queues`. The minutes of `jobs.history` that are
//! over are written, and old ones forgotten.

use std::cell::RefCell;

use pgrx::pg_sys::Oid;

use super::{Round, Task};
use crate::pg::spi::Snapshot;
use crate::pg::time;
use crate::settings;
use crate::shmem::{self, databases};
use crate::store::catalog::{self, Extension};
use crate::store::count::{self, Counted, KeptCounts, Position, StateTable, TABLES};
use crate::store::history;

pub const TASK: Task = Task {
    name: "statistics",
    run: |limit, _but| {
        let (forgotten, more) =
            history::keep(time::now(), settings::kept(&settings::RETENTION_HISTORY), limit);
        let round = run();
        Round { rows: round.rows + forgotten, more: round.more || more, ..round }
    },
    singly: None,
};

/// Rows that a round counts: nothing is locked or written by that, so it may be more than a batch.
const PART: i64 = 50_000;
/// Not counted again so soon, in microseconds.
const LEAST_PAUSE: i64 = 10 * 1_000_000;
/// Counting takes at most one part in so many of the time.
const PAUSE_PER_WORK: i64 = 200;

/// What was counted so long ago is not gone on with, in microseconds.
const TOO_OLD: i64 = 60 * 1_000_000;

/// A table that is being counted.
struct Counting {
    /// A count of another installation of the extension is dropped.
    extension: Oid,
    /// When it was last continued. A count that a session left long ago is dropped.
    touched: i64,
    table: &'static StateTable,
    next: Position,
    counted: Counted,
    /// Microseconds so far.
    took: i64,
    changes: i64,
}

/// What was found when it was last looked whether a table is long.
#[derive(Clone, Copy)]
struct Length {
    is_long: bool,
    at: i64,
    /// In microseconds.
    took: i64,
}

thread_local! {
    static LENGTHS: RefCell<[Option<Length>; TABLES.len()]> = const { RefCell::new([None; TABLES.len()]) };
    static COUNTING: RefCell<Option<Counting>> = const { RefCell::new(None) };
}

fn run() -> Round {
    let Some(Extension { oid, .. }) = catalog::find() else {
        return Round::default();
    };
    // Where workers take short turns, there is no time for that.
    if shmem::is_preloaded() && databases::is_crowded() {
        return Round::default();
    }
    // Taken out, so that after an error it begins anew.
    let under_way = COUNTING.take().filter(|counting| {
        let age = time::now() - counting.touched;
        counting.extension == oid && (0..TOO_OLD).contains(&age)
    });
    match under_way {
        Some(counting) => go_on(counting),
        None => begin(oid),
    }
}

/// Finds a table that is to be counted.
fn begin(extension: Oid) -> Round {
    let mut forgotten = 0;
    // Then short tables are counted, too.
    let are_many = count::are_many(Snapshot::Own);
    for (number, table) in TABLES.iter().enumerate() {
        if !are_many && !is_long(number, table) {
            forgotten += usize::from(table.kept(Snapshot::Own).is_some() && table.forget());
            continue;
        }
        let changes = table.changes();
        if table.kept(Snapshot::Own).is_none_or(|kept| is_stale(&kept, changes)) {
            // Otherwise it would be counted in vain, and again in each pass.
            if !count::is_our_turn() {
                break;
            }
            let counting = Counting {
                extension,
                touched: time::now(),
                table,
                next: table.begin(),
                counted: Counted::default(),
                took: 0,
                changes,
            };
            return go_on(counting);
        }
    }
    Round { rows: forgotten, ..Round::default() }
}

/// Whether a table is long. Where that takes its time, because of many dead rows, the worker does
/// not look each time.
fn is_long(number: usize, table: &StateTable) -> bool {
    let begun = time::now();
    let known = LENGTHS.with_borrow(|lengths| lengths[number]);
    let is_fresh = |known: &Length| {
        let pause = known.took.saturating_mul(PAUSE_PER_WORK).min(TOO_OLD);
        shmem::is_worker() && (0..pause).contains(&(begun - known.at))
    };
    if let Some(known) = known.filter(is_fresh) {
        return known.is_long;
    }
    let is_long = table.is_long(Snapshot::Own);
    let at = time::now();
    let took = at - begun;
    LENGTHS.with_borrow_mut(|lengths| lengths[number] = Some(Length { is_long, at, took }));
    is_long
}

/// Whether it is time to count again. The clock may have been put back.
fn is_stale(kept: &KeptCounts, changes: i64) -> bool {
    let pause = LEAST_PAUSE.max(kept.took.saturating_mul(PAUSE_PER_WORK));
    let age = time::now() - kept.counted_at;
    let may_have_changed = kept.changes != changes || changes == 0;
    may_have_changed && !(0..pause).contains(&age)
}

fn go_on(mut counting: Counting) -> Round {
    let begun = time::now();
    let next = counting.table.count_part(&counting.next, PART, &mut counting.counted);
    let now = time::now();
    counting.took += now - begun;
    let (mut rows, mut more) = (0, true);
    match next {
        Some(next) => {
            counting.next = next;
            counting.touched = now;
            COUNTING.set(Some(counting));
        }
        None => {
            rows = counting.counted.rows();
            // Where another session is counting as well, that will do. Else the next one may be as
            // long.
            more = counting.table.keep(
                &counting.counted,
                &KeptCounts { counted_at: now, took: counting.took, changes: counting.changes },
            );
        }
    }
    Round { rows, more, ..Round::default() }
}
