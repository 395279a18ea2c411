//! New jobs without statements.

use jobs_core::state::State;

use super::shapes::{self, ready, scheduled};
use super::{claims, open_if};
use crate::pg::table::Table;
use crate::pg::transaction;
use crate::store::claims::ListedHolder;
use crate::store::held::OnInsert;
use crate::store::job::{NewJob, row};
use crate::store::spi::{Value, big};

/// Inserts jobs; `None`: use a statement. Each row is made when it is its turn: of many, few are in
/// memory at once.
pub fn many(jobs: &[(i64, &NewJob)], held: &OnInsert) -> Option<()> {
    Tables::open(jobs)?.insert(jobs, held);
    Some(())
}

/// Inserts one job together with its claim, if the key is free; whether it did. `None`: use a
/// statement. The claim comes first: if the key is taken, nothing else is written.
pub fn one_claiming(id: i64, job: &NewJob, held: &OnInsert) -> Option<bool> {
    let tables = Tables::open(&[(id, job)])?;
    let claim = ListedHolder {
        key: job.unique_key.expect("it is unique"),
        id,
        hold_ends_at: job.hold_ends_at(),
    };
    let is_first = claims::claim_if_new(&claim)?;
    if is_first {
        tables.insert(&[(id, job)], held);
    }
    Some(is_first)
}

struct Tables {
    jobs: Table,
    ready: Option<Table>,
    scheduled: Option<Table>,
}

impl Tables {
    /// Those that these jobs need.
    fn open(jobs: &[(i64, &NewJob)]) -> Option<Tables> {
        Some(Tables {
            ready: open_if(jobs.iter().any(is_ready), &shapes::READY)?,
            scheduled: open_if(!jobs.iter().all(is_ready), &shapes::SCHEDULED)?,
            jobs: Table::open(&shapes::JOB)?,
        })
    }

    fn insert(&self, new: &[(i64, &NewJob)], held: &OnInsert) {
        let rows = new.iter().map(|(id, job)| self.jobs.row(&row(job, *id)));
        self.jobs.insert(rows);
        let attempt = Some(0.into());
        if let Some(table) = &self.ready {
            let new = new.iter().enumerate();
            let new = new.filter(|(n, job)| is_ready(job) && !held.is_held(*n));
            table.insert(new.map(|(n, (id, job))| {
                table.row_of(&[
                    (ready::SEQ, big(held.seq(n, *id))),
                    (ready::JOB_ID, big(*id)),
                    (ready::EXPIRES_AT, job.common.expires_at.and_then(big)),
                    (ready::ATTEMPT, attempt),
                    (ready::PRIORITY, Some(job.common.priority.into())),
                    (ready::QUEUE, job.common.queue.arg()),
                    (ready::GATE, held.gate(n).and_then(big)),
                ])
            }));
        }
        if let Some(table) = &self.scheduled {
            let new = new.iter().filter(|job| !is_ready(job));
            table.insert(new.map(|(id, job)| {
                let state = table.label(scheduled::STATE, job.state.as_str());
                table.row_of(&[
                    (scheduled::JOB_ID, big(*id)),
                    (scheduled::DUE_AT, big(job.due_at())),
                    (scheduled::EXPIRES_AT, job.common.expires_at.and_then(big)),
                    (scheduled::ATTEMPT, attempt),
                    (scheduled::STATE, Some(state)),
                    (scheduled::QUEUE, job.common.queue.arg()),
                ])
            }));
        }
        transaction::make_visible();
    }
}

fn is_ready((_, job): &(i64, &NewJob)) -> bool {
    job.state == State::Available
}
