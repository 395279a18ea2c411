//! Histories written by hand.

use super::model::*;

pub const RC: &str = "read committed";
pub const RR: &str = "repeatable read";

pub fn new(on_conflict: OnConflict) -> New {
    New {
        by_state: vec![Available, Scheduled, Pending, Running, Retryable, Completed],
        on_conflict,
        wait: true,
        window: None,
        hold: None,
        state: Available,
    }
}

pub fn insert(on_conflict: OnConflict, reply: Reply) -> Fact {
    Fact::Insert { key: 0, new: new(on_conflict), reply }
}

pub fn inserted(id: i64) -> Fact {
    insert(OnConflict::Skip, Reply::Inserted { id, state: Available, replaced: None })
}

pub fn skipped(id: i64, state: State) -> Fact {
    insert(OnConflict::Skip, Reply::Skipped { id, state: Some(state) })
}

pub fn replaced(id: i64, replaced: i64) -> Fact {
    insert(OnConflict::Replace, Reply::Inserted { id, state: Available, replaced: Some(replaced) })
}

pub fn managed(job: i64, what: Manage, state: State) -> Fact {
    Fact::Manage { job, what, reply: Ok(state) }
}

pub fn cancelled(job: i64) -> Fact {
    managed(job, Manage::Cancel { force: true }, Cancelled)
}

pub fn fetched(job: i64) -> Fact {
    Fact::Fetch { job, token: job * 10 }
}

pub fn completed(job: i64) -> Fact {
    Fact::Finish { job, token: job * 10, what: Finish::Complete, reply: Ok(Completed) }
}

pub fn span(begin: u64, end: u64) -> Span {
    Span { begin, end }
}

pub fn call(begin: u64, end: u64, facts: impl Into<Vec<Fact>>) -> Step {
    let facts = facts.into();
    let is_insert = |fact: &Fact| matches!(fact, Fact::Insert { .. });
    Step::Call(Call {
        span: span(begin, end),
        text: format!("{facts:?}"),
        keys: facts.iter().filter(|fact| is_insert(fact)).map(|_| 0).collect(),
        facts,
        error: None,
        maintains: false,
    })
}

pub fn failed(begin: u64, end: u64, code: &str) -> Step {
    let Step::Call(call) = call(begin, end, []) else {
        unreachable!();
    };
    Step::Call(Call { error: Some(code.into()), keys: vec![0], ..call })
}

pub fn end(begin: u64, end: u64, committed: bool) -> Step {
    Step::End { span: span(begin, end), committed }
}

pub fn transaction(
    session: usize,
    level: &'static str,
    steps: impl Into<Vec<Step>>,
) -> Transaction {
    Transaction { session, level, steps: steps.into() }
}

/// A call that is a transaction.
pub fn alone(session: usize, begin: u64, until: u64, fact: Fact) -> Transaction {
    transaction(session, RC, [call(begin, until, [fact]), end(begin, until, true)])
}

pub fn history(transactions: impl Into<Vec<Transaction>>) -> History {
    History { gone: Vec::new(), transactions: transactions.into() }
}
