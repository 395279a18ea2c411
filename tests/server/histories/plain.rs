//! What is wrong whatever the order: errors that nothing explains, and giving up for nobody.

use super::model::*;

/// An error that no call may have.
pub fn wrong_error(history: &History) -> Option<String> {
    for transaction in &history.transactions {
        for call in transaction.calls() {
            let right = match call.error.as_deref() {
                None | Some("40P01") | Some("23505") | Some("55000") | Some("P0002") => true,
                Some("40001") => transaction.has_snapshot(),
                Some(_) => false,
            };
            if !right {
                return Some(format!("this error must not be: {}", call.text));
            }
        }
    }
    None
}

/// When a transaction is over for certain. A server tells of an error before it rolls back: who
/// failed outside of a transaction block has rolled back when the session's next call is answered.
fn over_by(history: &History, transaction: &Transaction) -> u64 {
    let end = transaction.end();
    let failed = |call: &Call| call.error.is_some() && call.span.end == end;
    if !transaction.calls().any(failed) {
        return end;
    }
    let mut later = history
        .transactions
        .iter()
        .filter(|other| other.session == transaction.session && other.end() > end)
        .filter_map(|other| other.steps.first());
    later.next().map_or(u64::MAX, |step| step.span().end)
}

/// An insert that gave up for a rival although no other transaction was at work on the key
/// meanwhile.
pub fn busy_without_rival(history: &History) -> Option<String> {
    let overlaps = |call: &Call, key: usize, rival: &Transaction| {
        let at_work = |other: &Call| other.maintains || other.keys.contains(&key);
        let begun = rival.calls().filter(|other| at_work(other)).map(|other| other.span.begin);
        begun.min().is_some_and(|begun| begun <= call.span.end)
            && over_by(history, rival) >= call.span.begin
    };
    for transaction in &history.transactions {
        for call in transaction.calls() {
            for fact in &call.facts {
                let Fact::Insert { key, reply: Reply::Busy, .. } = fact else {
                    continue;
                };
                let mut others = history.transactions.iter();
                if !others.any(|t| t.session != transaction.session && overlaps(call, *key, t)) {
                    return Some(format!(
                        "busy, but nobody else is at work on the key: {}",
                        call.text
                    ));
                }
            }
        }
    }
    None
}

/// A result that was left for a session that had the job locked although no other transaction was
/// open meanwhile.
pub fn locked_without_rival(history: &History) -> Option<String> {
    let is_locked = |fact: &Fact| matches!(fact, Fact::Finish { reply: Err(Refusal::Locked), .. });
    for transaction in &history.transactions {
        for call in transaction.calls() {
            if !call.facts.iter().any(is_locked) {
                continue;
            }
            let is_rival = |other: &Transaction| {
                let begun = other.steps.first().map(|step| step.span().begin);
                other.session != transaction.session
                    && begun.is_some_and(|begun| begun <= call.span.end)
                    && over_by(history, other) >= call.span.begin
            };
            if !history.transactions.iter().any(is_rival) {
                return Some(format!("locked, but by nobody: {}", call.text));
            }
        }
    }
    None
}
