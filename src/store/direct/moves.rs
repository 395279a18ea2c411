//! Putting jobs where they go without statements.

use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::open_if;
use super::shapes::{self, answer, finished, job, ready, scheduled};
use crate::pg::row::{NewRow, Row};
use crate::pg::scan::{Key, Seen};
use crate::pg::table::Table;
use crate::pg::{name, transaction};
use crate::store::effects::{Arrived, Spot};
use crate::store::moves::{Answer, Move, To, Tries, read_retry};
use crate::store::place::TakenRow;
use crate::store::queue::Queue;
use crate::store::retention;
use crate::store::spi::{big, text};

/// How often jobs are tried; `None`: use a statement.
pub fn tries(ids: &[i64]) -> Option<Vec<Option<Tries>>> {
    let jobs = Table::open_to_read(&shapes::JOB, &shapes::JOB.key)?;
    let errors = Table::open_to_read(&shapes::ERROR, &shapes::ERROR.key)?;
    transaction::make_visible();
    let seen = Seen::now();
    let mut of_jobs = jobs.scan(&shapes::JOB.key, &seen, 1);
    let mut of_errors = errors.scan(&shapes::ERROR.key, &seen, 1);
    let read = |id: &i64| {
        pgrx::check_for_interrupts!();
        let job = of_jobs.first(&[Key::big(1, *id)])?;
        let (max_attempts, retry) = (job.int(job::MAX_ATTEMPTS), job.datum(job::RETRY));
        let mut errors = 0;
        of_errors.find(&[Key::big(1, *id)]);
        while of_errors.next().is_some() {
            errors += 1;
        }
        Some(Tries {
            max_attempts: max_attempts.expect("it is not null"),
            errors,
            retry: read_retry(retry),
        })
    };
    Some(ids.iter().map(read).collect())
}

/// Puts jobs where they go, and says of those that wait where; `None`: use statements.
pub fn put(moves: &[Move], at: i64) -> Option<Vec<Arrived>> {
    let any = |is: &dyn Fn(&Move) -> bool| moves.iter().any(is);
    let is_final = |one: &Move| matches!(one.to, To::Finished(_));
    let is_ready = |one: &Move| matches!(one.to, To::Ready | To::Back(_));
    let waits = |one: &Move| matches!(one.to, To::Scheduled(..));
    let finished = open_if(any(&is_final), &shapes::FINISHED)?;
    let ready = open_if(any(&is_ready), &shapes::READY)?;
    let scheduled = open_if(any(&waits), &shapes::SCHEDULED)?;
    let answers = open_if(any(&|one| one.answer.is_some()), &shapes::ANSWER)?;
    let jobs = Table::open_to_read(&shapes::JOB, &shapes::JOB.key)?;
    let mut put = Put::default();
    transaction::make_visible();
    let seen = Seen::now();
    let mut scan = jobs.scan(&shapes::JOB.key, &seen, 1);
    let mut job_of = |id| scan.first(&[Key::big(1, id)]);
    for one in moves {
        pgrx::check_for_interrupts!();
        match (one.to, &finished, &ready, &scheduled) {
            (To::Finished(state), Some(table), _, _) => {
                let row = finished_row(table, one.id, state, at, &one.row);
                put.finished.push(row);
            }
            (To::Ready | To::Back(_), _, Some(table), _) => {
                let Some(job) = job_of(one.id) else {
                    continue;
                };
                let priority = job.small(job::PRIORITY).expect("it is not null");
                let (seq, spot) = match one.to {
                    To::Back(seq) => (seq, Spot::Back { priority, seq }),
                    _ => {
                        let seq = name::next_value(&shapes::JOB_SEQ);
                        (seq, Spot::Ready { priority, seq })
                    }
                };
                put.ready.push(ready_row(table, &job, seq, one));
                put.arrived.push(arrived(&job, spot));
            }
            (To::Scheduled(state, due_at), _, _, Some(table)) => {
                let Some(job) = job_of(one.id) else {
                    continue;
                };
                put.scheduled.push(scheduled_row(table, &job, state, due_at, &one.row));
                put.arrived.push(arrived(&job, Spot::Scheduled { due_at }));
            }
            _ => unreachable!("it is open"),
        }
        if let (Some(table), Some(answer)) = (&answers, one.answer) {
            put.answers.push(answer_row(table, one.id, at, answer));
        }
    }
    drop(scan);
    drop(seen);
    for (table, rows) in [
        (&finished, put.finished),
        (&ready, put.ready),
        (&scheduled, put.scheduled),
        (&answers, put.answers),
    ] {
        if let Some(table) = table {
            table.insert(rows);
        }
    }
    transaction::make_visible();
    Some(put.arrived)
}

/// Rows of each table, and what waits.
#[derive(Default)]
struct Put {
    finished: Vec<NewRow>,
    ready: Vec<NewRow>,
    scheduled: Vec<NewRow>,
    answers: Vec<NewRow>,
    arrived: Vec<Arrived>,
}

fn arrived(job: &Row, spot: Spot) -> Arrived {
    (Queue::named(job.str(job::QUEUE).expect("it is not null")), spot)
}

fn ready_row(table: &Table, job: &Row, seq: i64, one: &Move) -> NewRow {
    let first = job.big(job::SCHEDULED_AT).or(job.big(job::CREATED_AT));
    let scheduled_at = one.row.scheduled_at.filter(|at| Some(*at) != first);
    table.row_of(&[
        (ready::SEQ, big(seq)),
        (ready::JOB_ID, big(one.id)),
        (ready::SCHEDULED_AT, scheduled_at.and_then(big)),
        (ready::AVAILABLE_AT, one.row.available_at.and_then(big)),
        (ready::EXPIRES_AT, job.datum(job::EXPIRES_AT)),
        (ready::ATTEMPT, Some(Datum::from(one.row.attempt))),
        (ready::PRIORITY, job.datum(job::PRIORITY)),
        (ready::QUEUE, job.datum(job::QUEUE)),
    ])
}

fn scheduled_row(table: &Table, job: &Row, state: State, due_at: i64, row: &TakenRow) -> NewRow {
    table.row_of(&[
        (scheduled::JOB_ID, job.datum(job::ID)),
        (scheduled::DUE_AT, big(due_at)),
        (scheduled::EXPIRES_AT, job.datum(job::EXPIRES_AT)),
        (scheduled::ATTEMPT, Some(Datum::from(row.attempt))),
        (scheduled::STATE, Some(table.label(scheduled::STATE, state.as_str()))),
        (scheduled::QUEUE, job.datum(job::QUEUE)),
    ])
}

fn finished_row(table: &Table, id: i64, state: State, at: i64, row: &TakenRow) -> NewRow {
    let kept_until = retention::kept_until(id, state, at);
    table.row_of(&[
        (finished::JOB_ID, big(id)),
        (finished::FINALIZED_AT, big(at)),
        (finished::TOKEN, row.token.and_then(big)),
        (finished::ATTEMPTED_AT, row.attempted_at.and_then(big)),
        (finished::SCHEDULED_AT, row.scheduled_at.and_then(big)),
        (finished::CANCEL_REQUESTED_AT, row.cancel_requested_at.and_then(big)),
        (finished::KEPT_UNTIL, kept_until.and_then(big)),
        (finished::ATTEMPT, Some(Datum::from(row.attempt))),
        (finished::STATE, Some(table.label(finished::STATE, state.as_str()))),
        (finished::IS_KEPT, Some(Datum::from(kept_until.is_some()))),
        (finished::WORKER, row.worker.as_deref().and_then(text)),
        (finished::CANCEL_REASON, row.cancel_reason.as_deref().and_then(text)),
    ])
}

fn answer_row(table: &Table, id: i64, at: i64, answer: Answer) -> NewRow {
    table.row_of(&[
        (answer::JOB_ID, big(id)),
        (answer::TOKEN, big(answer.token)),
        (answer::AT, big(at)),
        (answer::SCHEDULED_AT, answer.scheduled_at.and_then(big)),
        (answer::STATE, Some(table.label(answer::STATE, answer.state.as_str()))),
    ])
}
