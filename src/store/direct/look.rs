//! What stands under one key, where that is simple: joining all the places where a job may be costs
//! a statement more to begin than to do.

use jobs_core::key::Key;
use jobs_core::state::State;
use pgrx::IntoDatum;

use super::claims::key_is;
use super::shapes::{self, claim, finished, job, ready, running, scheduled};
use crate::fault::{self, Fault};
use crate::pg::index::IndexShape;
use crate::pg::row::Row;
use crate::pg::scan::{Key as By, Seen};
use crate::pg::table::{Shape, Table};
use crate::pg::{time, transaction};
use crate::store::kept::Kept;
use crate::store::look::{StoredHolder, StoredJob};
use crate::store::notes::NoteKind;
use crate::store::queue::Queue;

/// More jobs than these are looked for by a statement.
const FEW: usize = 4;

/// The jobs in the list of a key, each as it is now, if it is still there; `None`: the key has no
/// claim. `Err`: there is more to it, use a statement. All of one moment. Takes no lock.
pub fn listed(key: Key) -> Result<Option<Vec<StoredHolder>>, ()> {
    let claims = Table::open_to_read(&shapes::UNIQUE_CLAIM, &shapes::UNIQUE_CLAIM.key).ok_or(())?;
    transaction::make_visible();
    let seen = Seen::now();
    let mut scan = claims.scan(&shapes::UNIQUE_CLAIM.key, &seen, 1).backward();
    let Some(found) = scan.first(&[key_is(key)]) else {
        return Ok(None);
    };
    let ids = found.bigs(claim::JOBS).ok_or(())?;
    if ids.len() > FEW || found.datum(claim::HOLD_ENDS_AT).is_some() {
        return Err(());
    }
    // An old snapshot may show two.
    if !transaction::is_read_committed() && scan.next().is_some() {
        return Err(());
    }
    drop(scan);
    let look = Look { seen };
    let returned = [key_is(key), By::char(2, NoteKind::Returned as u8)];
    let notes = &shapes::UNIQUE_NOTE;
    if look.find(notes, &notes.key, &returned, |_, _| ())?.is_some() {
        return Err(());
    }
    let holder = |id| Ok(StoredHolder { id, job: look.job(id)?, hold_ends_at: None });
    let holders = ids.into_iter().map(holder);
    holders.collect::<Result<_, ()>>().map(Some)
}

/// Those of some keys that have a claim, be it of a transaction that is still open; `None`: use a
/// statement. Takes no lock.
pub fn claimed(keys: &[Key]) -> Option<Vec<Key>> {
    let claims = Table::open_to_read(&shapes::UNIQUE_CLAIM, &shapes::UNIQUE_CLAIM.key)?;
    transaction::make_visible();
    let (now, dirty) = (Seen::now(), Seen::dirty());
    let scan = |seen| claims.scan(&shapes::UNIQUE_CLAIM.key, seen, 1).backward();
    let (mut visible, mut there) = (scan(&now), scan(&dirty));
    let mut is_visible = |key: &Key| visible.first(&[key_is(*key)]).is_some();
    // The server is to know that a serializable transaction has looked. It writes claims by a
    // statement anyway.
    let only_visible = transaction::is_serializable() || fault::is_on(Fault::ClaimBlindly);
    let mut has_claim = |key: &Key| {
        pgrx::check_for_interrupts!();
        if only_visible {
            return is_visible(key);
        }
        there.find(&[key_is(*key)]);
        // What has no entry is invisible. Of a row that is updated right now, neither version may
        // be met without a snapshot.
        there.look().is_some_and(|is_met| is_met || is_visible(key))
    };
    Some(keys.iter().copied().filter(|key| has_claim(key)).collect())
}

struct Look {
    seen: Seen,
}

impl Look {
    fn find<T>(
        &self,
        shape: &'static Shape,
        index: &'static IndexShape,
        keys: &[By],
        read: impl FnOnce(&Table, &Row) -> T,
    ) -> Result<Option<T>, ()> {
        let table = Table::open_to_read(shape, index).ok_or(())?;
        let mut scan = table.scan(index, &self.seen, keys.len());
        scan.find(keys);
        Ok(scan.next().map(|row| read(&table, &row)))
    }

    /// A job and where it is; one that is in no place at all is not there.
    fn job(&self, id: i64) -> Result<Option<StoredJob>, ()> {
        let id_is = [By::big(1, id)];
        let found = self.find(&shapes::JOB, &shapes::JOB.key, &id_is, |_, row| {
            let queue = Queue::named(row.str(job::QUEUE).expect("it is not null"));
            let created_at = row.big(job::CREATED_AT).expect("it is not null");
            let scheduled_at = row.big(job::SCHEDULED_AT).unwrap_or(created_at);
            let job = StoredJob {
                state: State::Available,
                queue,
                created_at,
                scheduled_at,
                finalized_at: None,
                kept: kept(row).map(Box::new),
            };
            (job, row.small(job::PRIORITY).expect("it is not null"))
        })?;
        let Some((mut job, priority)) = found else {
            return Ok(None);
        };
        let queue = job.queue.name().into_datum().expect("it is not null");
        let place = [By::text(1, queue), By::small(2, priority), By::big(3, id)];
        if self.find(&shapes::READY, &shapes::READY.key, &place, |_, _| ())?.is_some() {
            return Ok(Some(job));
        }
        let run = self.find(&shapes::RUNNING, &shapes::RUNNING.key, &id_is, |_, row| {
            row.big(running::SCHEDULED_AT)
        })?;
        if let Some(scheduled_at) = run {
            job.state = State::Running;
            job.scheduled_at = scheduled_at.unwrap_or(job.scheduled_at);
            return Ok(Some(job));
        }
        let end = self.find(&shapes::FINISHED, &shapes::FINISHED.key, &id_is, |table, row| {
            (
                final_state(table, row),
                row.big(finished::SCHEDULED_AT),
                row.big(finished::FINALIZED_AT),
            )
        })?;
        if let Some((state, scheduled_at, finalized_at)) = end {
            job.state = state;
            job.scheduled_at = scheduled_at.unwrap_or(job.scheduled_at);
            job.finalized_at = finalized_at;
            return Ok(Some(job));
        }
        let wait =
            self.find(&shapes::SCHEDULED, &shapes::SCHEDULED.key, &id_is, |table, row| {
                // A limit or an order holds those that are available.
                const WAITING: [State; 4] =
                    [State::Scheduled, State::Retryable, State::Pending, State::Available];
                let state = state(table, row, scheduled::STATE, &WAITING);
                let at = match state {
                    State::Available => row.big(scheduled::SCHEDULED_AT),
                    _ => row.big(scheduled::DUE_AT).filter(|at| *at != i64::MAX),
                };
                (state, at)
            })?;
        if let Some((state, scheduled_at)) = wait {
            job.state = state;
            job.scheduled_at = scheduled_at.unwrap_or(job.scheduled_at);
            return Ok(Some(job));
        }
        let back = self.find(&shapes::READY, &shapes::READY_REQUEUED, &id_is, |_, row| {
            row.big(ready::SCHEDULED_AT)
        })?;
        Ok(back.map(|scheduled_at| {
            job.scheduled_at = scheduled_at.unwrap_or(job.scheduled_at);
            job
        }))
    }
}

/// What a row of `job` says of what keeps it once it is final.
pub fn kept(row: &Row) -> Option<Kept> {
    Kept::of(
        row.big(job::UNIQUE_UNTIL),
        row.datum(job::UNIQUE_WINDOW).map(time::read_datum),
        row.small(job::UNIQUE_FINAL),
    )
}

/// The state in which a job has ended.
pub(super) fn final_state(table: &Table, row: &Row) -> State {
    state(table, row, finished::STATE, &State::FINAL)
}

/// Which of these states a column says.
fn state(table: &Table, row: &Row, column: i32, states: &[State]) -> State {
    let label = row.datum(column);
    let is = |state: &&State| label == Some(table.label(column, state.as_str()));
    *states.iter().find(is).expect("there are no others")
}
