//! What answers and errors say.

use tokio_postgres::SimpleQueryMessage;

use super::generate::Say;
use super::model::*;

/// What went wrong in a task of maintenance, but for what may happen to any transaction.
pub fn wrong_task(row: &[Option<String>]) -> Option<String> {
    let error = row[1].clone()?;
    let is_usual = ["serialize", "deadlock"].iter().any(|usual| error.contains(usual));
    (!is_usual).then_some(error)
}

pub fn cells(message: &SimpleQueryMessage) -> Option<Vec<Option<String>>> {
    match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).map(str::to_string)).collect())
        }
        _ => None,
    }
}

fn number(cell: &Option<String>) -> Option<i64> {
    cell.as_ref().map(|text| text.parse().expect("a number"))
}

fn state(cell: &Option<String>) -> Option<State> {
    cell.as_deref().map(state_of)
}

/// What rows say.
pub fn facts(say: &Say, rows: &[Vec<Option<String>>]) -> Vec<Fact> {
    let reply = |row: &Vec<Option<String>>| match (number(&row[0]), row[2].as_deref()) {
        (None, _) => Reply::Busy,
        (Some(id), Some("t")) => Reply::Skipped { id, state: state(&row[1]) },
        (Some(id), _) => Reply::Inserted {
            id,
            state: state(&row[1]).expect("a state"),
            replaced: number(&row[3]),
        },
    };
    let answer = || Ok(state(&rows[0][0]).expect("a state"));
    match say {
        Say::Insert(..) | Say::InsertMany(_) | Say::InsertBatch(..) => {
            let elements = say.elements();
            assert_eq!(rows.len(), elements.len());
            let pairs = elements.into_iter().zip(rows);
            pairs.map(|((key, new), row)| Fact::Insert { key, new, reply: reply(row) }).collect()
        }
        Say::Fetch(_) => {
            let lease =
                |row: &Vec<Option<String>>| number(&row[0]).zip(number(&row[1])).expect("a lease");
            rows.iter().map(lease).map(|(job, token)| Fact::Fetch { job, token }).collect()
        }
        Say::Finish((job, token), what) => {
            vec![Fact::Finish { job: *job, token: *token, what: *what, reply: answer() }]
        }
        Say::CompleteMany(_) | Say::FailMany(..) | Say::FinishMany(_) => {
            let reply = |row: &Vec<Option<String>>| match row[2].as_deref() {
                // complete_many tells the state that the job has by now.
                Some("t") if matches!(say, Say::CompleteMany(_)) => Ok(Completed),
                Some("t") => Ok(state(&row[1]).expect("a state")),
                _ if row.last() == Some(&Some("locked".into())) => Err(Refusal::Locked),
                _ => Err(Refusal::NotDone),
            };
            let ends = say.ends();
            assert_eq!(rows.len(), ends.len());
            let pairs = ends.into_iter().zip(rows);
            pairs
                .map(|(((job, token), what), row)| Fact::Finish {
                    job,
                    token,
                    what,
                    reply: reply(row),
                })
                .collect()
        }
        Say::Manage(job, what) => vec![Fact::Manage { job: *job, what: *what, reply: answer() }],
        Say::Look => {
            let seen = rows
                .iter()
                .map(|row| (number(&row[0]).expect("an id"), state(&row[1]).expect("a state")));
            vec![Fact::Look(seen.collect())]
        }
        Say::Maintain => Vec::new(),
    }
}

/// What an error says.
pub fn refused(say: &Say, code: &str, detail: &str) -> Vec<Fact> {
    let refusal = match code {
        "P0002" => Refusal::Unknown,
        "55000" => Refusal::WrongState,
        "23505" => return rejected(say, detail),
        _ => return Vec::new(),
    };
    match say {
        Say::Finish((job, token), what) => {
            vec![Fact::Finish { job: *job, token: *token, what: *what, reply: Err(refusal) }]
        }
        Say::Manage(job, what) => {
            vec![Fact::Manage { job: *job, what: *what, reply: Err(refusal) }]
        }
        _ => Vec::new(),
    }
}

/// What the error says that a duplicate got. What became of the elements of a batch that come
/// before is not known, so it says nothing if one of them has the same key.
fn rejected(say: &Say, detail: &str) -> Vec<Fact> {
    let detail: serde_json::Value = serde_json::from_str(detail).expect("DETAIL is JSON");
    let index = detail["index"].as_u64().map_or(0, |index| index as usize - 1);
    let elements = say.elements();
    let (key, new) = elements[index].clone();
    let is_first = elements[..index].iter().all(|(other, _)| *other != key);
    match detail["existing_job_id"].as_i64() {
        Some(id) if is_first => {
            let state = detail["existing_job_state"].as_str().map(state_of);
            vec![Fact::Insert { key, new, reply: Reply::Rejected { id, state } }]
        }
        _ => Vec::new(),
    }
}
