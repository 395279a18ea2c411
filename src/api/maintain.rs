//! Maintenance on demand, and whether there is any.

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::check;
use crate::error::{Result, or_raise};
use crate::maintenance::{self, PassedOver, Task};
use crate::pg::reply::{Cell, Rows};
use crate::pg::{subxact, time};
use crate::settings;
use crate::shmem::commit::{self, Work};
use crate::store::audit;
use crate::store::run_log::{self, Run};

/// Rounds grow up to so many batches: each is a subtransaction, and a transaction has room for few
/// of them.
const MOST_BATCHES: i64 = 64;
/// Of that room each task leaves so much for every task behind it.
const FOR_EACH_TASK: usize = 4;

#[pg_extern(sql = false)]
fn maintain(fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    or_raise(|| maintain_all(fcinfo))
}

fn maintain_all(fcinfo: pg_sys::FunctionCallInfo) -> Result<Rows> {
    check::writable()?;
    let mut rows = Rows::new(fcinfo);
    // Maintenance cannot be paused until this transaction ends.
    let hindrance = run_log::hindrance();
    let is_to_do = hindrance.is_none() && run_log::has_begun();
    let mut over = PassedOver::default();
    let runs: Vec<(&str, Run)> = maintenance::ALL
        .iter()
        .enumerate()
        .map(|(n, task)| {
            let behind = maintenance::ALL.len() - n;
            let _reserve = subxact::Reserve::of((FOR_EACH_TASK * behind) as u32);
            let run = match is_to_do {
                true => run_until_done(task, &mut over),
                false => Run { at: time::now(), is_clean: true, ..Run::default() },
            };
            (task.name, run)
        })
        .collect();
    if hindrance.is_none() {
        let note = || runs.iter().for_each(|(task, run)| run_log::note(task, run));
        // Another session may be noting a run, too: that is no reason to undo these.
        let _ = subxact::attempt_unless_cancelled(note);
    }
    for (task, run) in runs {
        let hindrance = hindrance.as_ref().map(|hindrance| hindrance.why.clone());
        let error = hindrance.or(run.error);
        rows.push(vec![
            Cell::Text(task.into()),
            Cell::Big(run.rows),
            Cell::Span(run.duration),
            error.map_or(Cell::Null, Cell::Text),
        ]);
    }
    Ok(rows)
}

/// Turns of a task until nothing is left.
fn run_until_done(task: &Task, over: &mut PassedOver) -> Run {
    let begun = time::now();
    let mut run = Run::default();
    let (batch, mut batches) = (i64::from(settings::BATCH_SIZE.get()), 1);
    let mut more = true;
    while more {
        pgrx::check_for_interrupts!();
        if !subxact::has_room() {
            run.error = Some(format!(
                "there is more to do: call jobs.maintain() again, in another transaction{}",
                run.error.map_or(String::new(), |error| format!(" ({error})"))
            ));
            break;
        }
        let turn = maintenance::turn(task, batch * batches, over, &mut |round| {
            let round = subxact::attempt_unless_cancelled(round);
            Ok::<_, std::convert::Infallible>(round.map_err(|(_, message)| message))
        });
        let Ok(turn) = turn;
        more = turn.more;
        // What fails is rolled back, so that is to be little.
        batches = match turn.errors.is_empty() {
            true => (2 * batches).min(MOST_BATCHES),
            false => 1,
        };
        run.is_clean = turn.errors.is_empty() && turn.passed_over == 0;
        run.rows += turn.rows as i64;
        run.failures += turn.errors.len() as i64;
        run.error = turn.errors.into_iter().next_back().or(run.error);
    }
    run.at = time::now();
    run.duration = run.at - begun;
    run
}

#[pg_extern(sql = false)]
fn pause_maintenance(reason: Option<&str>, fcinfo: pg_sys::FunctionCallInfo) {
    or_raise(|| {
        check::managing(reason)?;
        if run_log::begin_pause(time::now()) {
            audit::note(fcinfo, None);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn resume_maintenance(reason: Option<&str>, fcinfo: pg_sys::FunctionCallInfo) {
    or_raise(|| {
        check::managing(reason)?;
        if run_log::end_pause() {
            audit::note(fcinfo, None);
        }
        commit::wake_worker(Work::MayBeDue);
        Ok(())
    })
}
