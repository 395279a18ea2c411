//! Waiting until jobs are over, and their outcome.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::work_wait::Wait;
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::array::Array;
use crate::pg::reply::{Cell, Rows};
use crate::pg::role::{self, as_definer, called};
use crate::pg::server;
use crate::shmem::things;
use crate::shmem::waiters::{self, FEW, JOBS, Taken};
use crate::store::{results, wait};
use jobs_core::error::quoted;

/// How often to look for what causes no wake-up, such as a subscription that finishes jobs. Many
/// may wait here, each for a job of its own.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

#[pg_extern(sql = false)]
fn wait_for(
    ids: Option<Array>,
    timeout: Option<pgrx::datum::Interval>,
    want: Option<&str>,
    fcinfo: pg_sys::FunctionCallInfo,
) {
    or_raise(|| {
        let ids: BTreeSet<i64> = check::ids(ids)?.into_iter().collect();
        let ids: Vec<i64> = ids.into_iter().collect();
        let wants_all = wants_all(want)?;
        Wait::run("jobs.wait_for", timeout, fcinfo, |wait| {
            if wants_all {
                until_all(ids, wait);
            } else {
                until_any(&ids, wait);
            }
        })
    })
}

fn wants_all(want: Option<&str>) -> Result<bool> {
    match check::given("want", want)? {
        "all" => Ok(true),
        "any" => Ok(false),
        other => {
            let message = format!("want {} is not known", quoted(other));
            let rule = "want must be \"all\" or \"any\".";
            Err(Error::invalid("want", message, rule))
        }
    }
}

/// Returns when all are over. One that is not over yet keeps the others from mattering: only that
/// one is waited for. It is the one in the middle, so that there are few looks whatever the order
/// in which the jobs end.
fn until_all(mut left: Vec<i64>, wait: &Wait) {
    let seat = take_seat();
    let seat = seat.as_ref();
    while !wait.is_over() {
        let Some(awaited) = left.get(left.len() / 2).copied() else {
            return;
        };
        if let Some(seat) = seat {
            seat.wait_for([things::job(awaited)].into_iter());
        }
        left = wait.look(|| wait::not_over(&left));
        if left.binary_search(&awaited).is_ok() {
            wait.sleep(seat, wait.pause(seat, LOOK_AGAIN));
        }
    }
}

/// Returns when one of them is over.
fn until_any(ids: &[i64], wait: &Wait) {
    let seat = take_seat();
    let seat = seat.as_ref();
    if let Some(seat) = seat {
        seat.wait_for(ids.iter().map(|id| things::job(*id)));
    }
    let mut woken = false;
    while !wait.is_over() {
        if let Some(seat) = seat {
            seat.forget();
        }
        let begun = Instant::now();
        if ids.is_empty() || wait.look(|| wait::not_over(ids)).len() < ids.len() {
            return;
        }
        if woken && ids.len() > FEW {
            // It was another job. Looking is to take no more than half of the time.
            wait.sleep(None, begun.elapsed());
        }
        woken = wait.sleep(seat, wait.pause(seat, LOOK_AGAIN));
    }
}

/// A seat from which a commit wakes the session. On a standby none does, so it polls.
fn take_seat() -> Option<Taken> {
    let wakes = !server::is_standby();
    wakes.then(|| waiters::take_seat(JOBS)).flatten()
}

#[pg_extern(sql = false)]
fn results(ids: Option<Array>, fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    or_raise(|| {
        let ids = check::ids(ids)?;
        let mut rows = Rows::new(fcinfo);
        let reader = role::current();
        as_definer(called(fcinfo), || {
            results::of(&ids, reader, |result| {
                rows.push(vec![
                    Cell::Int(result.ord),
                    Cell::Big(result.id),
                    result.state.into(),
                    result.output.into(),
                    result.error.into(),
                    result.finalized_at.map_or(Cell::Null, Cell::At),
                ]);
            });
        });
        Ok(rows)
    })
}
