//! Completing jobs without statements: out of `running`, into `finished`.

use std::collections::BTreeSet;

use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::shapes::{self, finished, running};
use crate::pg::jsonb::Jsonb;
use crate::pg::row::Row;
use crate::pg::scan::{Key, Scan, Seen};
use crate::pg::table::{Deleted, Table};
use crate::pg::transaction;
use crate::store::finish::Completed;
use crate::store::history::Ended;
use crate::store::retention;
use crate::store::spi::big;

/// Completes the jobs whose tokens are current; `None`: use a statement.
pub fn complete(
    pairs: &BTreeSet<(i64, i64)>,
    now: i64,
    output: Option<Jsonb>,
) -> Option<Completed> {
    let running = Table::open(&shapes::RUNNING)?;
    let finished = Table::open(&shapes::FINISHED)?;
    let state = finished.label(finished::STATE, State::Completed.as_str());
    let mut completed = Completed::default();
    let mut rows = Vec::with_capacity(pairs.len());
    let mut complete = |lease: &Row, id: i64, token: i64| {
        // The lease is deleted, so the transaction has an id.
        let kept_until = retention::kept_until(id, State::Completed, now);
        rows.push(finished.row_of(&[
            (finished::JOB_ID, big(id)),
            (finished::FINALIZED_AT, big(now)),
            (finished::TOKEN, big(token)),
            (finished::ATTEMPTED_AT, lease.datum(running::ATTEMPTED_AT)),
            (finished::SCHEDULED_AT, lease.datum(running::SCHEDULED_AT)),
            (
                finished::CANCEL_REQUESTED_AT,
                lease.datum(running::CANCEL_REQUESTED_AT),
            ),
            (finished::KEPT_UNTIL, kept_until.and_then(big)),
            (finished::IS_KEPT, Some(Datum::from(kept_until.is_some()))),
            (finished::ATTEMPT, lease.datum(running::ATTEMPT)),
            (finished::STATE, Some(state)),
            (finished::WORKER, lease.datum(running::WORKER)),
            (finished::CANCEL_REASON, lease.datum(running::CANCEL_REASON)),
            (finished::OUTPUT, output.map(Jsonb::datum)),
        ]));
        let held = lease
            .big(running::HOLD_ENDS_AT)
            .filter(|ends_at| *ends_at > now);
        completed.pairs.insert((id, token));
        completed.held.extend(held.map(|ends_at| (id, ends_at)));
        completed.slots.extend(lease.big(running::SLOT));
        completed.ended.push(Ended {
            id,
            key: lease.int(running::HISTORY_KEY),
            queue: lease.text(running::QUEUE),
            began_at: lease.big(running::ATTEMPTED_AT),
        });
    };
    transaction::make_visible();
    let seen = Seen::now();
    let mut scan = running.scan(&shapes::RUNNING.key, &seen, 1);
    for (id, token) in pairs {
        pgrx::check_for_interrupts!();
        if take_lease(&running, &mut scan, *id, *token, &mut complete) == Deleted::Moved {
            // A heartbeat has renewed it meanwhile: look at what is there now.
            loop {
                let seen = Seen::now();
                let mut scan = running.scan(&shapes::RUNNING.key, &seen, 1);
                if take_lease(&running, &mut scan, *id, *token, &mut complete) != Deleted::Moved {
                    break;
                }
            }
        }
    }
    drop(scan);
    drop(seen);
    finished.insert(rows);
    transaction::make_visible();
    Some(completed)
}

/// Deletes the lease of a job if the token is current, after it was shown to `take`. Waits for who
/// has it locked.
fn take_lease(
    running: &Table,
    scan: &mut Scan,
    id: i64,
    token: i64,
    take: &mut impl FnMut(&Row, i64, i64),
) -> Deleted {
    scan.find(&[Key::big(1, id)]);
    let Some(lease) = scan
        .next()
        .filter(|lease| lease.big(running::TOKEN) == Some(token))
    else {
        return Deleted::Gone;
    };
    let deleted = running.delete(lease.tid(), true);
    deleted.fail_to_serialize();
    if deleted == Deleted::Done {
        take(&lease, id, token);
    }
    deleted
}
