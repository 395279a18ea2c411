//! Section 6 of the contract: maintenance on demand, and whether there is any.

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::check;
use crate::error::OrRaise;
use crate::pg::answer::{Cell, Rows};
use crate::pg::{subxact, time};
use crate::store::extension;
use crate::store::ledger::{self, Run};
use crate::worker::tasks::{self, PassedOver, Task};
use crate::worker::wake::{self, Work};

/// Runs every maintenance task once. See the COMMENT in sql/60_maintain.sql.
#[pg_extern(sql = false)]
fn maintain(fcinfo: pg_sys::FunctionCallInfo) -> Rows {
    check::writable().or_raise();
    let mut rows = Rows::new(fcinfo);
    let has_ledger = extension::find().is_some_and(|extension| extension.has_ledger);
    let mut over = PassedOver::default();
    for task in tasks::ALL {
        // Somebody may pause maintenance while it is under way.
        let hindrance = has_ledger.then(ledger::hindrance).flatten();
        let idle = hindrance.is_some() || !ledger::has_begun();
        let mut run = if idle {
            Run {
                at: time::now(),
                is_clean: true,
                ..Run::default()
            }
        } else {
            run_until_done(task, &mut over)
        };
        if has_ledger && hindrance.is_none() {
            // Somebody else may be noting a run, too: that is no reason to undo this one.
            let _ = subxact::attempt_unless_cancelled(|| ledger::note(task.name, &run));
        }
        if let Some(hindrance) = &hindrance {
            run.error = Some(hindrance.clone());
        }
        rows.push(vec![
            Cell::Text(task.name.into()),
            Cell::Big(run.rows),
            Cell::Span(run.duration),
            run.error.map_or(Cell::Null, Cell::Text),
        ]);
    }
    rows
}

/// Turns of a task until nothing is left.
fn run_until_done(task: &Task, over: &mut PassedOver) -> Run {
    let begun = time::now();
    let mut run = Run::default();
    let mut more = true;
    while more {
        pgrx::check_for_interrupts!();
        let turn = tasks::turn(task, over, &mut |round| {
            let round = subxact::attempt_unless_cancelled(round);
            Ok::<_, std::convert::Infallible>(round.map_err(|(_, message)| message))
        });
        let Ok(turn) = turn;
        more = turn.more;
        run.is_clean = turn.errors.is_empty() && turn.passed_over == 0;
        run.rows += turn.rows as i64;
        run.failures += turn.errors.len() as i64;
        run.error = turn.errors.into_iter().next_back().or(run.error);
    }
    run.at = time::now();
    run.duration = run.at - begun;
    run
}

/// Stops maintenance. See the COMMENT in sql/60_maintain.sql.
#[pg_extern(sql = false)]
fn pause_maintenance() {
    check::writable().or_raise();
    ledger::pause(time::now());
}

/// Lets it go on. See the COMMENT in sql/60_maintain.sql.
#[pg_extern(sql = false)]
fn resume_maintenance() {
    check::writable().or_raise();
    ledger::resume();
    wake::at_commit(Work::MayBeDue);
}

/// The end of the install script. See the COMMENT in sql/60_maintain.sql.
#[pg_extern(sql = false)]
fn installed() {
    check::encoding().or_raise();
    wake::at_commit(Work::MayBeDue);
}
