//! Ending attempts without statements: out of `running`, those that are completed into `finished`.

use std::cell::Cell;

use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::open_if;
use super::shapes::{self, finished, running};
use crate::pg::jsonb::Jsonb;
use crate::pg::row::{NewRow, Row};
use crate::pg::scan::{Key, Scan, Seen};
use crate::pg::table::{Deleted, Table};
use crate::pg::{time, transaction};
use crate::store::finish::{Attempt, Completed, Ended, Pauses, Then, Wait};
use crate::store::permits::Permit;
use crate::store::place::TakenRow;
use crate::store::retention;
use crate::store::spi::big;

/// Ends attempts whose tokens are current; `None`: use a statement.
pub fn end(attempts: &[Attempt], wait: Wait) -> Option<Ended> {
    let completes = |attempt: &Attempt| matches!(attempt.then, Then::Completed(_));
    let running = Table::open(&shapes::RUNNING)?;
    let finished = open_if(attempts.iter().any(completes), &shapes::FINISHED)?;
    let completion = finished.as_ref().map(|table| Completion {
        table,
        state: table.label(finished::STATE, State::Completed.as_str()),
    });
    let mut ended = Ended::default();
    let mut rows = Vec::with_capacity(attempts.len());
    transaction::make_visible();
    let seen = Seen::now();
    let mut scan = running.scan(&shapes::RUNNING.key, &seen, 1);
    let now = Cell::new(time::now());
    for (n, attempt) in attempts.iter().enumerate() {
        pgrx::check_for_interrupts!();
        let mut take = |lease: &Row| {
            ended.slots.extend(lease.big(running::SLOT));
            let permit = lease.big(running::PERMIT).zip(lease.bigs(running::GATES));
            ended.permits.extend(permit.map(|(n, gates)| Permit { n, gates }));
            match (attempt.then, &completion) {
                (Then::Completed(output), Some(completion)) => {
                    rows.push(completion.row(attempt, lease, output, now.get()));
                    ended.completed.push(Completed {
                        n,
                        id: attempt.id,
                        history_key: lease.int(running::HISTORY_KEY),
                        queue: lease.text(running::QUEUE),
                        began_at: lease.big(running::ATTEMPTED_AT),
                        ended_at: now.get(),
                        hold_ends_at: lease.big(running::HOLD_ENDS_AT),
                    });
                }
                _ => ended.taken.push((n, taken(lease))),
            }
        };
        let mut pauses = Pauses::of(wait);
        let mut deleted = take_lease(&running, &mut scan, attempt, wait, &mut take);
        // A heartbeat has renewed it meanwhile, or whoever has it locked may be done: look at what
        // is there now. If that is a cancel request, the job ends after it.
        while deleted == Deleted::Moved || deleted == Deleted::Locked && pauses.once_more() {
            now.set(time::now());
            let seen = Seen::now();
            let mut scan = running.scan(&shapes::RUNNING.key, &seen, 1);
            deleted = take_lease(&running, &mut scan, attempt, wait, &mut take);
        }
        if deleted == Deleted::Locked {
            ended.locked.push(n);
        }
    }
    drop(scan);
    drop(seen);
    if let Some(finished) = &finished {
        finished.insert(rows);
    }
    transaction::make_visible();
    Some(ended)
}

/// What makes jobs completed.
struct Completion<'a> {
    table: &'a Table,
    /// As the column has it.
    state: Datum,
}

impl Completion<'_> {
    /// The row of a job that had this lease. That is deleted, so the transaction has an id.
    fn row(&self, attempt: &Attempt, lease: &Row, output: Option<Jsonb>, now: i64) -> NewRow {
        let kept_until = retention::kept_until(attempt.id, State::Completed, now);
        self.table.row_of(&[
            (finished::JOB_ID, big(attempt.id)),
            (finished::FINALIZED_AT, big(now)),
            (finished::TOKEN, big(attempt.token)),
            (finished::ATTEMPTED_AT, lease.datum(running::ATTEMPTED_AT)),
            (finished::SCHEDULED_AT, lease.datum(running::SCHEDULED_AT)),
            (finished::CANCEL_REQUESTED_AT, lease.datum(running::CANCEL_REQUESTED_AT)),
            (finished::KEPT_UNTIL, kept_until.and_then(big)),
            (finished::IS_KEPT, Some(Datum::from(kept_until.is_some()))),
            (finished::ATTEMPT, lease.datum(running::ATTEMPT)),
            (finished::STATE, Some(self.state)),
            (finished::WORKER, lease.datum(running::WORKER)),
            (finished::CANCEL_REASON, lease.datum(running::CANCEL_REASON)),
            (finished::OUTPUT, output.map(Jsonb::datum)),
        ])
    }
}

/// What the lease of a job says that goes elsewhere.
fn taken(lease: &Row) -> TakenRow {
    TakenRow {
        attempt: lease.int(running::ATTEMPT).expect("it is not null"),
        scheduled_at: lease.big(running::SCHEDULED_AT),
        attempted_at: lease.big(running::ATTEMPTED_AT),
        worker: lease.text(running::WORKER),
        cancel_requested_at: lease.big(running::CANCEL_REQUESTED_AT),
        cancel_reason: lease.text(running::CANCEL_REASON),
        token: None,
        available_at: None,
        history_key: lease.int(running::HISTORY_KEY),
        queue: lease.text(running::QUEUE),
        gate: None,
    }
}

/// Deletes the lease of a job if the token is current, after it was shown to `take`.
fn take_lease(
    running: &Table,
    scan: &mut Scan,
    attempt: &Attempt,
    wait: Wait,
    take: &mut impl FnMut(&Row),
) -> Deleted {
    let Some(lease) = scan
        .first(&[Key::big(1, attempt.id)])
        .filter(|lease| lease.big(running::TOKEN) == Some(attempt.token))
    else {
        return Deleted::Gone;
    };
    let deleted = running.delete(lease.tid(), !wait.has_end());
    deleted.fail_to_serialize();
    if deleted == Deleted::Done {
        take(&lease);
    }
    deleted
}
