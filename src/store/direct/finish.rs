//! Ending attempts without statements: out of `running`, those that are completed into `finished`.

use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::open_if;
use super::shapes::{self, finished, running};
use crate::pg::jsonb::Jsonb;
use crate::pg::row::{NewRow, Row};
use crate::pg::scan::{Key, Scan, Seen};
use crate::pg::table::{Deleted, Table};
use crate::pg::transaction;
use crate::store::finish::{Attempt, Ended, Pauses, Then, Wait};
use crate::store::history;
use crate::store::place::TakenRow;
use crate::store::retention;
use crate::store::spi::big;

/// Ends attempts whose tokens are current; `None`: use a statement.
pub fn end(attempts: &[Attempt], now: i64, wait: Wait) -> Option<Ended> {
    let completes = |attempt: &Attempt| matches!(attempt.then, Then::Completed(_));
    let running = Table::open(&shapes::RUNNING)?;
    let finished = open_if(attempts.iter().any(completes), &shapes::FINISHED)?;
    let completion = finished.as_ref().map(|table| Completion {
        table,
        state: table.label(finished::STATE, State::Completed.as_str()),
        now,
    });
    let mut ended = Ended::default();
    let mut rows = Vec::with_capacity(attempts.len());
    let mut end = |lease: &Row, n: usize| {
        ended.slots.extend(lease.big(running::SLOT));
        match (attempts[n].then, &completion) {
            (Then::Completed(output), Some(completion)) => {
                rows.push(completion.row(&attempts[n], lease, output));
                let one = history::Ended {
                    id: attempts[n].id,
                    key: lease.int(running::HISTORY_KEY),
                    queue: lease.text(running::QUEUE),
                    began_at: lease.big(running::ATTEMPTED_AT),
                };
                ended.complete(n, lease.big(running::HOLD_ENDS_AT), now, one);
            }
            _ => ended.taken.push((n, taken(lease))),
        }
    };
    let mut pauses = Pauses::of(wait);
    let mut locked = end_free(&running, attempts, 0..attempts.len(), wait, &mut end);
    while !locked.is_empty() && pauses.once_more() {
        locked = end_free(&running, attempts, locked.into_iter(), wait, &mut end);
    }
    ended.locked = locked;
    if let Some(finished) = &finished {
        finished.insert(rows);
    }
    transaction::make_visible();
    Some(ended)
}

/// Ends those of the attempts, by their places, whose leases nobody else has locked, or is waited
/// for; those that are left.
fn end_free(
    running: &Table,
    attempts: &[Attempt],
    places: impl Iterator<Item = usize>,
    wait: Wait,
    end: &mut impl FnMut(&Row, usize),
) -> Vec<usize> {
    transaction::make_visible();
    let seen = Seen::now();
    let mut scan = running.scan(&shapes::RUNNING.key, &seen, 1);
    let mut locked = Vec::new();
    for n in places {
        pgrx::check_for_interrupts!();
        let mut take = |lease: &Row| end(lease, n);
        let mut taken = take_lease(running, &mut scan, &attempts[n], wait, &mut take);
        while taken == Deleted::Moved {
            // A heartbeat has renewed it meanwhile: look at what is there now.
            let seen = Seen::now();
            let mut scan = running.scan(&shapes::RUNNING.key, &seen, 1);
            taken = take_lease(running, &mut scan, &attempts[n], wait, &mut take);
        }
        if taken == Deleted::Locked {
            locked.push(n);
        }
    }
    locked
}

/// What makes jobs completed.
struct Completion<'a> {
    table: &'a Table,
    /// as the column has it
    state: Datum,
    now: i64,
}

impl Completion<'_> {
    /// The row of a job that had this lease. That is deleted, so the transaction has an id.
    fn row(&self, attempt: &Attempt, lease: &Row, output: Option<Jsonb>) -> NewRow {
        let kept_until = retention::kept_until(attempt.id, State::Completed, self.now);
        self.table.row_of(&[
            (finished::JOB_ID, big(attempt.id)),
            (finished::FINALIZED_AT, big(self.now)),
            (finished::TOKEN, big(attempt.token)),
            (finished::ATTEMPTED_AT, lease.datum(running::ATTEMPTED_AT)),
            (finished::SCHEDULED_AT, lease.datum(running::SCHEDULED_AT)),
            (
                finished::CANCEL_REQUESTED_AT,
                lease.datum(running::CANCEL_REQUESTED_AT),
            ),
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
        history_key: lease.int(running::HISTORY_KEY),
        queue: lease.text(running::QUEUE),
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
