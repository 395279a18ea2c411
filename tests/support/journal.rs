//! What clients were told, and whether the database agrees with it.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::Client;

/// What became of a job that a producer wanted, as far as the producer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Acknowledged, with this id.
    Inserted(i64),
    /// Acknowledged, as a duplicate of another one.
    Skipped,
    /// An error, or rolled back: it must not be there.
    Refused,
    /// The connection went while it was being committed: it may be there.
    Unknown,
}

/// What all clients were told. Producers number the jobs that they want; the number is in the args,
/// as `n`.
#[derive(Default)]
pub struct Journal {
    /// What became of each number.
    pub wanted: HashMap<i64, Fate>,
    /// Those of these that came with a row of their producer's own, in one transaction.
    pub with_own: HashSet<i64>,
    /// Ids that an acknowledged insertion has replaced.
    pub replaced: HashSet<i64>,
    /// Jobs whose completion was acknowledged, each once.
    pub completed: HashSet<i64>,
    /// What else happened, for the report.
    pub counts: BTreeMap<&'static str, u64>,
    /// What was wrong at once.
    pub wrong: Vec<String>,
}

impl Journal {
    /// Counts what else happened.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// How many jobs had such a fate.
    pub fn fates(&self, like: fn(&Fate) -> bool) -> usize {
        self.wanted.values().filter(|fate| like(fate)).count()
    }

    /// How many insertions were acknowledged.
    pub fn inserted(&self) -> usize {
        self.fates(|fate| matches!(fate, Fate::Inserted(_)))
    }

    /// Notes a completion that was acknowledged.
    pub fn complete(&mut self, id: i64) {
        if !self.completed.insert(id) {
            self.wrong.push(format!("two completions of job {id} were acknowledged"));
        }
    }
}

/// Whether final jobs were pruned meanwhile: then only what was done tells about them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pruning {
    /// Every job is still there.
    Nothing,
    /// Final jobs can be gone.
    Final,
}

/// Everything that the database says differently, once all work is done. Empty: nothing lost,
/// nothing doubled.
pub async fn differences(db: &Client, journal: &Journal, pruning: Pruning) -> Vec<String> {
    let mut wrong = journal.wrong.clone();
    let there = there(db).await;
    let done = counts(db, "select job_id, count(*) from public.done group by 1").await;
    let own = counts(db, "select n, count(*) from public.own group by 1").await;

    // Jobs against the journal.
    let mut numbers = HashSet::new();
    for (id, (n, state)) in &there {
        if !numbers.insert(*n) {
            wrong.push(format!("number {n} is there twice, the second is job {id}"));
        }
        match journal.wanted.get(n) {
            Some(Fate::Inserted(own)) if own == id => {}
            Some(Fate::Unknown) => {}
            other => wrong.push(format!("job {id} of number {n} is there: {other:?}")),
        }
        let times = done.get(id).copied().unwrap_or(0);
        let expected = i64::from(state == "completed");
        if times != expected {
            wrong.push(format!("job {id} is {state} and was done {times} times"));
        }
        if !["completed", "cancelled"].contains(&state.as_str()) {
            wrong.push(format!("job {id} ended as {state}"));
        }
    }
    // The journal against jobs.
    let mut seen = HashSet::new();
    for (n, fate) in &journal.wanted {
        if let Fate::Inserted(id) = fate {
            if !seen.insert(id) {
                wrong.push(format!("id {id} was given out twice"));
            }
            let times = done.get(id).copied().unwrap_or(0);
            let gone = pruning == Pruning::Final && (times == 1 || journal.replaced.contains(id));
            if !there.contains_key(id) && !gone {
                wrong.push(format!("job {id} of number {n} is lost, done {times} times"));
            }
        }
    }
    // A producer's own row comes with its job, or neither.
    for n in own.keys().chain(&journal.with_own) {
        let has_job = match (pruning, journal.wanted.get(n)) {
            (Pruning::Final, Some(Fate::Inserted(_))) => true,
            _ => numbers.contains(n),
        };
        if own.contains_key(n) != has_job {
            wrong.push(format!(
                "number {n} has a row of its producer's: {}, and a job: {has_job}",
                !has_job
            ));
        }
    }
    for (id, times) in &done {
        if *times != 1 {
            wrong.push(format!("job {id} was done {times} times"));
        }
        if pruning == Pruning::Nothing && !there.contains_key(id) {
            wrong.push(format!("job {id} was done and is not there"));
        }
    }
    for id in &journal.completed {
        if !done.contains_key(id) {
            wrong.push(format!("the completion of job {id} is lost"));
        }
    }
    if pruning == Pruning::Nothing {
        // These keys are held by every job that is not cancelled, so each has had one.
        let twice = "select args->>'once', count(*) from jobs.jobs where args ? 'once' and state <> 'cancelled' group by 1 having count(*) > 1";
        for row in db.query(twice, &[]).await.unwrap() {
            wrong.push(format!(
                "key {} has {} jobs",
                row.get::<_, String>(0),
                row.get::<_, i64>(1)
            ));
        }
    }
    wrong
}

/// Jobs that must not be there side by side, at any moment.
pub async fn rivals(db: &Client) -> Vec<String> {
    let sql = "select args->>'alone', count(*) from jobs.jobs
                where args ? 'alone' and state in ('available', 'scheduled', 'pending', 'running', 'retryable') group by 1 having count(*) > 1";
    let rows = db.query(sql, &[]).await.unwrap();
    rows.iter()
        .map(|row| {
            format!("key {} has {} jobs at once", row.get::<_, String>(0), row.get::<_, i64>(1))
        })
        .collect()
}

/// Every job: its number and state.
async fn there(db: &Client) -> HashMap<i64, (i64, String)> {
    let sql = "select id, (args->>'n')::bigint, state::text from jobs.jobs where args ? 'n'";
    let rows = db.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect()
}

async fn counts(db: &Client, sql: &str) -> HashMap<i64, i64> {
    let rows = db.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// The invariants of any moment.
pub async fn assert_whole(db: &Client) {
    let found = "select invariant || ': ' || violations || ' ' || job_ids::text from jobs.check()";
    let rows = db.query(found, &[]).await.expect("jobs.check()");
    let mut wrong: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    wrong.extend(rivals(db).await);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
