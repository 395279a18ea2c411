//! What sessions were told, and whether it fits together with what the database holds in the end.

use std::collections::{BTreeMap, BTreeSet};

/// What a committed transaction was told of a key.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub key: i32,
    pub id: i64,
    pub skipped: bool,
}

/// What is wrong with what committed transactions were told, where jobs are ids and keys: each key
/// has one job, which one transaction has inserted and all others skipped to.
pub fn check_inserts(told: &[Told], jobs: &[(i64, i32)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut keys = BTreeSet::new();
    for &(id, key) in jobs {
        if !keys.insert(key) {
            wrong.push(format!("key {key} has another job: {id}"));
        }
        match told.iter().filter(|told| told.id == id && !told.skipped).count() {
            1 => {}
            times => wrong.push(format!("job {id} is there and was inserted {times} times")),
        }
    }
    let jobs: BTreeMap<i64, i32> = jobs.iter().copied().collect();
    for told in told.iter().filter(|told| jobs.get(&told.id) != Some(&told.key)) {
        wrong.push(format!("job {} of key {} is lost", told.id, told.key));
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

/// What workers saw: jobs that they got, and each call of complete or element of complete_many, by
/// id and token.
#[derive(Clone, Default)]
pub struct Work {
    pub fetches: Vec<Fetched>,
    pub finishes: Vec<(i64, i64, Answer)>,
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
pub fn check_work(work: &Work, outcomes: &[Outcome]) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut tokens, mut attempts) = (BTreeSet::new(), BTreeSet::new());
    let mut last: BTreeMap<i64, (i32, i64)> = BTreeMap::new();
    for &Fetched { id, token, attempt } in &work.fetches {
        if !tokens.insert(token) {
            wrong.push(format!("token {token} was given twice"));
        }
        if !attempts.insert((id, attempt)) {
            wrong.push(format!("job {id}: two workers had one attempt"));
        }
        let last = last.entry(id).or_default();
        *last = (*last).max((attempt, token));
    }
    let told = |answers: &[Answer]| -> BTreeSet<(i64, Option<i64>)> {
        let told = work.finishes.iter().filter(|(_, _, answer)| answers.contains(answer));
        told.map(|&(id, token, _)| (id, Some(token))).collect()
    };
    let mut accepted = told(&[Answer::Completed]);
    let perhaps = told(&[Answer::Completed, Answer::Unknown]);
    for &Outcome { id, completed, token, attempt } in outcomes {
        accepted.remove(&(id, token));
        let got = last.remove(&id);
        if !completed {
            wrong.push(format!("job {id} is not completed"));
        } else if got.map(|(attempt, token)| (attempt, Some(token))) != Some((attempt, token)) {
            wrong.push(format!("job {id} was not completed by who got it last"));
        } else if !perhaps.contains(&(id, token)) {
            wrong.push(format!("job {id} is completed, but its worker was not told so"));
        }
    }
    wrong.extend(accepted.iter().map(|(id, _)| format!("job {id}: a stale token was accepted")));
    wrong.extend(last.keys().map(|id| format!("job {id} was fetched, but is lost")));
    wrong
}

#[test]
fn control_what_is_wrong_with_inserts_is_found() {
    let told = |key, id, skipped| Told { key, id, skipped };
    let good = vec![told(1, 10, false), told(1, 10, true), told(2, 12, false), told(2, 12, true)];
    let there = [(10, 1), (12, 2)];
    assert!(check_inserts(&good, &there).is_empty());
    let and = |more| [good.clone(), vec![more]].concat();
    for (told, jobs, wrong) in [
        (and(told(1, 13, false)), vec![(10, 1), (12, 2), (13, 1)], "key 1 has another job: 13"),
        (and(told(3, 13, false)), there.into(), "job 13 of key 3 is lost"),
        (and(told(2, 11, true)), there.into(), "job 11 of key 2 is lost"),
        // Rolled back.
        (good[..2].into(), there.into(), "job 12 is there and was inserted 0 times"),
        (and(told(1, 10, false)), there.into(), "job 10 is there and was inserted 2 times"),
    ] {
        assert_eq!(check_inserts(&told, &jobs), [wrong]);
    }
}

/// Job 1 was completed at once and its worker asked twice; job 2 was rescued, and its first worker
/// refused.
#[test]
fn control_what_is_wrong_with_work_is_found() {
    let fetched = |id, token, attempt| Fetched { id, token, attempt };
    let outcome = |id, token, attempt| Outcome { id, completed: true, token: Some(token), attempt };
    let work = Work {
        fetches: vec![fetched(1, 100, 1), fetched(2, 101, 1), fetched(2, 102, 2)],
        finishes: vec![
            (1, 100, Answer::Unknown),
            (1, 100, Answer::Completed),
            (2, 101, Answer::Refused),
            (2, 102, Answer::Completed),
        ],
    };
    let outcomes = vec![outcome(1, 100, 1), outcome(2, 102, 2)];
    assert!(check_work(&work, &outcomes).is_empty());
    type Doctor = fn(&mut Work, &mut Vec<Outcome>);
    let doctored: [(Doctor, &[&str]); 8] = [
        (|work, _| work.finishes[2].2 = Answer::Completed, &["job 2: a stale token was accepted"]),
        (
            |_, outcomes| outcomes[1].token = Some(101),
            &["job 2 was not completed by who got it last", "job 2: a stale token was accepted"],
        ),
        (|_, outcomes| outcomes[1].attempt = 1, &["job 2 was not completed by who got it last"]),
        (
            |work, _| work.finishes[3].2 = Answer::Refused,
            &["job 2 is completed, but its worker was not told so"],
        ),
        (
            |work, _| work.fetches[2].attempt = 1,
            &["job 2: two workers had one attempt", "job 2 was not completed by who got it last"],
        ),
        (
            |work, _| work.fetches.push(work.fetches[2]),
            &["token 102 was given twice", "job 2: two workers had one attempt"],
        ),
        (|_, outcomes| outcomes[0].completed = false, &["job 1 is not completed"]),
        (
            |_, outcomes| outcomes.truncate(1),
            &["job 2: a stale token was accepted", "job 2 was fetched, but is lost"],
        ),
    ];
    for (doctor, wrong) in doctored {
        let (mut work, mut outcomes) = (work.clone(), outcomes.clone());
        doctor(&mut work, &mut outcomes);
        assert_eq!(check_work(&work, &outcomes), wrong);
    }
}
