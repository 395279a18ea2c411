//! What operators and monitoring look at: the functions behind the views, health, metrics.

use std::collections::BTreeMap;

use jobs_core::counts::{Event, Time};
use jobs_core::state::State;
use jobs_core::visible;
use pgrx::pg_sys;
use pgrx::prelude::*;

use jobs_core::interval::Interval;

use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::explain;
use crate::health;
use crate::maintenance;
use crate::pg::reply::{Cell, Rows};
use crate::pg::role::{as_definer, called};
use crate::pg::spi::Snapshot;
use crate::pg::time;
use crate::shmem::entries::MINUTE;
use crate::shmem::{self, databases};
use crate::store::count::{self, Counts, StateTable, TABLES};
use crate::store::health::Thresholds;
use crate::store::{self, metrics, show};

/// A queue's row of `jobs.queues`.
#[derive(Default)]
struct Queue {
    counts: BTreeMap<State, i64>,
    oldest: Option<i64>,
}

/// Behind the view `jobs.queues`.
#[pg_extern(sql = false)]
fn count_queues(fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    or_raise(|| Ok(queues(fcinfo)))
}

fn queues(fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    let mut rows = Rows::new(fcinfo);
    if count::are_many(Snapshot::Callers) {
        return rows;
    }
    let mut queues: BTreeMap<String, Queue> = BTreeMap::new();
    let mut estimated = Vec::new();
    let mut counted_at: Option<i64> = None;
    for table in &TABLES {
        let counts = if table.is_long(Snapshot::Callers) {
            estimated.extend(table.states);
            let (counts, at) = kept(table);
            counted_at = counted_at.into_iter().chain(at).min();
            counts
        } else {
            table.count(None)
        };
        for ((queue, state), count) in counts {
            *queues.entry(queue).or_default().counts.entry(state).or_default() += count;
        }
    }
    for (queue, oldest) in count::oldest_available() {
        queues.entry(queue).or_default().oldest = Some(oldest);
    }
    for (name, queue) in queues {
        let count = |state| Cell::Big(queue.counts.get(&state).copied().unwrap_or(0));
        rows.push(vec![
            Cell::Text(name),
            count(State::Available),
            count(State::Scheduled),
            count(State::Pending),
            count(State::Running),
            count(State::Retryable),
            count(State::Completed),
            count(State::Cancelled),
            count(State::Discarded),
            queue.oldest.map_or(Cell::Null, Cell::At),
            Cell::States(estimated.clone()),
            counted_at.map_or(Cell::Null, Cell::At),
        ]);
    }
    rows
}

/// What maintenance has counted, and when; where it never did, as much of it as is counted at all.
fn kept(table: &'static StateTable) -> (Counts, Option<i64>) {
    match table.kept(Snapshot::Callers) {
        Some(kept) => (count::kept_counts(table), Some(kept.counted_at)),
        None => (table.count(Some(count::SHORT)), None),
    }
}

/// Behind the view `jobs.maintenance`.
#[pg_extern(sql = false)]
fn idle_runs(fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    or_raise(|| {
        let mut rows = Rows::new(fcinfo);
        for run in databases::idle_runs() {
            rows.push(vec![
                Cell::Text(maintenance::ALL[run.task].name.into()),
                Cell::At(run.at),
                Cell::Span(run.duration),
            ]);
        }
        Ok(rows)
    })
}

/// Whether there is shared memory.
#[pg_extern(sql = false)]
fn is_preloaded() -> bool {
    shmem::is_preloaded()
}

#[pg_extern(sql = false)]
fn health(
    old_snapshot: Option<pgrx::datum::Interval>,
    oldest_available: Option<pgrx::datum::Interval>,
    lock_wait: Option<pgrx::datum::Interval>,
    dead_rows: Option<i64>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    or_raise(|| {
        let from = Thresholds {
            old_snapshot: threshold("old_snapshot", old_snapshot)?,
            oldest_available: threshold("oldest_available", oldest_available)?,
            lock_wait: threshold("lock_wait", lock_wait)?,
            dead_rows,
        };
        // Asked before the rights are the owner's.
        let sees_payload = store::explain::sees_payload();
        Ok(as_definer(called(fcinfo), || findings(from, sees_payload, fcinfo)))
    })
}

fn findings(from: Thresholds, sees_payload: bool, fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    let mut rows = Rows::new(fcinfo);
    let line = |text: &str| Cell::Text(visible::line(text).into_owned());
    for (name, finding) in health::findings(&store::health::facts(from, sees_payload)) {
        let texts = [finding.severity.as_str(), name, &finding.message, &finding.hint];
        rows.push(texts.map(line).into());
    }
    rows
}

/// How long something has to last to be a finding, in microseconds. What lasts a century never is
/// one.
fn threshold(parameter: &str, given: Option<pgrx::datum::Interval>) -> Result<Option<i64>> {
    const LONGEST: i64 = 100 * 365 * 86_400 * 1_000_000;
    let Some(given) = given.map(check::interval) else {
        return Ok(None);
    };
    let span = check::not_negative(parameter, given)?.approximate_micros();
    Ok((span < LONGEST.into()).then_some(span as i64))
}

#[pg_extern(sql = false)]
fn metrics(fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    or_raise(|| {
        let mut rows = Rows::new(fcinfo);
        metrics::measure(|found| {
            for row in 0..found.len() {
                rows.push_datums(found.datums(row));
            }
        });
        Ok(rows)
    })
}

#[pg_extern(sql = false)]
fn explain(id: Option<i64>, fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    or_raise(|| {
        let id = check::given("id", id)?;
        let mut rows = Rows::new(fcinfo);
        let sees_payload = store::explain::sees_payload();
        let reasons =
            as_definer(called(fcinfo), || explain::reasons(id, time::now(), sees_payload));
        for one in reasons.ok_or_else(|| Error::unknown_job(id))? {
            rows.push(vec![
                Cell::Text(one.reason),
                Cell::Text(visible::line(&one.detail).into_owned()),
                one.until.map_or(Cell::Null, Cell::At),
                one.by_ids.map_or(Cell::Null, Cell::Bigs),
            ]);
        }
        Ok(rows)
    })
}

#[pg_extern(sql = false)]
fn history(
    queue: Option<&str>,
    kind: Option<&str>,
    since: Option<pgrx::datum::Interval>,
    step: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    or_raise(|| {
        let name = |parameter, name: Option<_>| {
            name.map(|name| check::name(parameter, Some(name))).transpose()
        };
        let (queue, kind) = (name("queue", queue)?, name("kind", kind)?);
        let since = check::interval(check::given("since", since)?);
        let since = check::positive("since", since)?;
        let step = whole_minutes("step", check::interval(check::given("step", step)?))?;
        let first = time::ago(time::now(), since).map_or(i64::MIN, |at| at.div_euclid(step) * step);
        let mut rows = Rows::new(fcinfo);
        store::history::since(
            first,
            step,
            [queue.as_deref(), kind.as_deref()],
            |at, queue, kind, counts| {
                let mut cells = vec![Cell::At(at), Cell::Text(queue), Cell::Text(kind)];
                cells.extend(Event::ALL.map(|event| Cell::Big(counts.of(event) as i64)));
                for time in [Time::Wait, Time::Run] {
                    let percentile =
                        |part| counts.percentile(time, part).map_or(Cell::Null, Cell::Span);
                    cells.extend([0.5, 0.95, 0.99].map(percentile));
                }
                rows.push(cells);
            },
        );
        Ok(rows)
    })
}

/// A duration of whole minutes, in microseconds.
fn whole_minutes(parameter: &str, value: Interval) -> Result<i64> {
    let value = check::positive(parameter, value)?;
    let micros = value.approximate_micros();
    if value.months == 0 && micros % i128::from(MINUTE) == 0 {
        return Ok(micros as i64);
    }
    let message = format!("{parameter} {:?} is not a number of whole minutes", time::show(value));
    let rule = format!("{parameter} must be one or more whole minutes, hours or days.");
    Err(Error::invalid(parameter, message, rule))
}

#[pg_extern(sql = false)]
fn show(id: Option<i64>) -> String {
    or_raise(|| {
        let id = check::given("id", id)?;
        let lines = show::lines(id);
        if lines.is_empty() {
            return Err(Error::unknown_job(id));
        }
        Ok(lines.join("\n"))
    })
}
