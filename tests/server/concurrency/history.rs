//! What sessions were told, and whether it fits together with what the database holds in the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What an insert answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Inserted(i64),
    Skipped(i64),
}

/// One key that a session inserted, and whether that was committed.
#[derive(Clone, Copy, Debug)]
pub struct Insert {
    pub key: i32,
    pub reply: Reply,
    pub committed: bool,
}

/// A job in the database.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub id: i64,
    pub key: i32,
}

/// What is wrong with a history of inserts: every key of a committed insert has exactly one job,
/// the one that everybody was told of, and nothing is left of what was rolled back.
pub fn check_inserts(history: &[Insert], jobs: &[Job]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_key: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for job in jobs {
        by_key.entry(job.key).or_default().push(job.id);
    }
    for (key, ids) in &by_key {
        if ids.len() > 1 {
            wrong.push(format!("key {key} has {} jobs: {ids:?}", ids.len()));
        }
    }
    let keys: HashMap<i64, i32> = jobs.iter().map(|job| (job.id, job.key)).collect();
    let mut inserted: BTreeMap<i64, bool> = BTreeMap::new();
    for insert in history {
        let (id, what) = match insert.reply {
            Reply::Inserted(id) => (id, "inserted"),
            Reply::Skipped(id) => (id, "skipped to"),
        };
        if insert.reply == Reply::Inserted(id)
            && inserted.insert(id, insert.committed) == Some(insert.committed)
        {
            wrong.push(format!("job {id} was inserted twice"));
        }
        let found = keys.get(&id);
        if insert.committed && found != Some(&insert.key) {
            wrong.push(format!(
                "key {}: job {id} is lost, which a committed transaction was told it {what}",
                insert.key
            ));
        }
    }
    for job in jobs {
        match inserted.get(&job.id) {
            Some(true) => {}
            Some(false) => wrong.push(format!("job {} is there, but was rolled back", job.id)),
            None => wrong.push(format!("job {} is there, but nobody inserted it", job.id)),
        }
    }
    wrong
}

/// A job that a worker got.
#[derive(Clone, Copy, Debug)]
pub struct Fetched {
    pub id: i64,
    pub token: i64,
    pub attempt: i32,
}

/// What a worker was told when it said that it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Completed,
    /// The token is not current.
    Refused,
    /// The connection broke, so the job may or may not have been completed.
    Unknown,
}

/// A call of complete, or an element of complete_many.
#[derive(Clone, Copy, Debug)]
pub struct Finish {
    pub id: i64,
    pub token: i64,
    pub answer: Answer,
}

/// A job in the end.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub id: i64,
    pub completed: bool,
    pub token: Option<i64>,
    pub attempt: i32,
}

/// What is wrong with a history of work: every job was completed exactly once, by who got it last.
pub fn check_work(fetches: &[Fetched], finishes: &[Finish], outcomes: &[Outcome]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_job: BTreeMap<i64, Vec<Fetched>> = BTreeMap::new();
    let mut tokens: BTreeSet<i64> = BTreeSet::new();
    for fetched in fetches {
        by_job.entry(fetched.id).or_default().push(*fetched);
        if !tokens.insert(fetched.token) {
            wrong.push(format!("token {} was given twice", fetched.token));
        }
    }
    let mut accepted: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for finish in finishes {
        if finish.answer == Answer::Completed {
            accepted.entry(finish.id).or_default().insert(finish.token);
        }
    }
    let known: BTreeSet<i64> = outcomes.iter().map(|outcome| outcome.id).collect();
    for id in by_job.keys().filter(|id| !known.contains(id)) {
        wrong.push(format!("job {id} was fetched, but is lost"));
    }
    for outcome in outcomes {
        let id = outcome.id;
        if !outcome.completed {
            wrong.push(format!("job {id} is not completed"));
            continue;
        }
        let mut attempts = by_job.remove(&id).unwrap_or_default();
        attempts.sort_by_key(|fetched| fetched.attempt);
        if attempts.windows(2).any(|pair| pair[0].attempt == pair[1].attempt) {
            wrong.push(format!("job {id}: two workers had one attempt"));
        }
        let last = attempts.last();
        if last.map(|last| last.attempt) != Some(outcome.attempt) {
            wrong.push(format!(
                "job {id} was completed in attempt {}, which nobody fetched",
                outcome.attempt
            ));
        }
        let token = last.map(|last| last.token);
        if outcome.token != token {
            wrong.push(format!("job {id} was completed by a stale token"));
        }
        let accepted = accepted.remove(&id).unwrap_or_default();
        if accepted.len() > 1 {
            wrong.push(format!("job {id} was completed {} times", accepted.len()));
        }
        if accepted.iter().any(|accepted| Some(*accepted) != token) {
            wrong.push(format!("job {id}: a stale token was accepted"));
        }
        let maybe = finishes.iter().any(|finish| {
            finish.id == id
                && Some(finish.token) == token
                && matches!(finish.answer, Answer::Completed | Answer::Unknown)
        });
        if !maybe {
            wrong.push(format!("job {id} is completed, but its worker was not told so"));
        }
    }
    wrong
}
