//! The events of a history that concern one key.

use std::collections::HashMap;

use super::model::*;

/// The key that each job is under.
pub type KeyOf = HashMap<i64, usize>;

/// The key of each job that an insert was told of.
pub fn keys(history: &History) -> KeyOf {
    let facts = history.transactions.iter().flat_map(Transaction::calls);
    let mut keys = KeyOf::new();
    for fact in facts.flat_map(|call| &call.facts) {
        if let Fact::Insert { key, reply, .. } = fact {
            match reply {
                Reply::Inserted { id, .. }
                | Reply::Skipped { id, .. }
                | Reply::Rejected { id, .. } => {
                    keys.insert(*id, *key);
                }
                Reply::Busy => {}
            }
        }
    }
    keys
}

/// An event of a session.
pub enum Event<'a> {
    Snapshot,
    Fact(&'a Fact, &'a Call),
    Savepoint,
    Release,
    RollbackTo,
    End { committed: bool },
}

pub struct Timed<'a> {
    pub span: Span,
    pub event: Event<'a>,
    pub has_snapshot: bool,
}

/// The events of each session that concern a key.
pub fn events<'a>(history: &'a History, key: usize, keys: &KeyOf) -> Vec<Vec<Timed<'a>>> {
    let sessions = history.transactions.iter().map(|t| t.session + 1).max();
    let mut events: Vec<Vec<Timed>> = (0..sessions.unwrap_or(0)).map(|_| Vec::new()).collect();
    for transaction in &history.transactions {
        let concerns = |fact: &Fact| match fact {
            Fact::Insert { key: k, .. } => *k == key,
            Fact::Look(_) => true,
            Fact::Fetch { job, .. } | Fact::Finish { job, .. } | Fact::Manage { job, .. } => {
                keys.get(job) == Some(&key)
            }
        };
        let mut facts = transaction.calls().flat_map(|call| &call.facts);
        if !facts.any(concerns) {
            continue;
        }
        let has_snapshot = transaction.has_snapshot();
        let mut add = |span, event| {
            events[transaction.session].push(Timed { span, event, has_snapshot });
        };
        if let (true, Some(first)) = (has_snapshot, transaction.calls().next()) {
            add(first.span, Event::Snapshot);
        }
        for step in &transaction.steps {
            match step {
                Step::Call(call) => {
                    for fact in call.facts.iter().filter(|fact| concerns(fact)) {
                        add(call.span, Event::Fact(fact, call));
                    }
                }
                Step::Savepoint(span) => add(*span, Event::Savepoint),
                Step::Release(span) => add(*span, Event::Release),
                Step::RollbackTo(span) => add(*span, Event::RollbackTo),
                Step::End { span, committed } => add(*span, Event::End { committed: *committed }),
            }
        }
    }
    events
}
