//! What happened in histories, so that the test cannot go idle, and the telling of one.

use std::collections::BTreeMap;

use super::model::*;

/// How often what happened.
#[derive(Debug, Default)]
pub struct Counts(BTreeMap<&'static str, usize>);

/// What must have happened, on average at least so often in a hundred histories.
const LEAST: [(&str, usize); 13] = [
    ("inserted", 100),
    ("skipped", 100),
    ("rejected", 10),
    ("replaced", 10),
    ("updated", 10),
    ("busy", 5),
    ("waited", 20),
    ("fetched", 50),
    ("finished", 20),
    ("managed", 50),
    ("40001", 10),
    ("rollback", 50),
    ("rollback to savepoint", 10),
];

impl Counts {
    pub fn add(&mut self, history: &History) {
        for transaction in &history.transactions {
            for step in &transaction.steps {
                match step {
                    Step::Call(call) => self.add_call(history, transaction, call),
                    Step::RollbackTo(_) => self.count("rollback to savepoint"),
                    Step::End { committed: false, .. } => self.count("rollback"),
                    Step::End { .. } => self.count("commit"),
                    _ => {}
                }
            }
        }
    }

    fn add_call(&mut self, history: &History, transaction: &Transaction, call: &Call) {
        for fact in &call.facts {
            self.count(match fact {
                Fact::Insert { reply: Reply::Inserted { replaced: Some(_), .. }, .. } => "replaced",
                Fact::Insert { reply: Reply::Inserted { .. }, .. } => "inserted",
                Fact::Insert { reply: Reply::Skipped { state: Some(state), .. }, new, .. } => {
                    match &new.on_conflict {
                        OnConflict::Update { states, .. } if states.contains(state) => "updated",
                        _ => "skipped",
                    }
                }
                Fact::Insert { reply: Reply::Skipped { .. }, .. } => "skipped",
                Fact::Insert { reply: Reply::Rejected { .. }, .. } => "rejected",
                Fact::Insert { reply: Reply::Busy, .. } => "busy",
                Fact::Fetch { .. } => "fetched",
                Fact::Finish { reply: Ok(_), .. } => "finished",
                Fact::Finish { reply: Err(Refusal::Locked), .. } => "locked",
                Fact::Finish { .. } => "lease lost",
                Fact::Manage { reply: Ok(_), .. } => "managed",
                Fact::Manage { .. } => "refused",
                Fact::Look(_) => "looked",
            });
        }
        match call.error.as_deref() {
            Some("40001") => self.count("40001"),
            Some("40P01") => self.count("40P01"),
            _ => {}
        }
        if call.maintains {
            self.count("maintained");
        }
        if has_waited(history, transaction, call) {
            self.count("waited");
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Panics unless enough of everything has happened.
    pub fn assert_not_idle(&self, histories: usize) {
        for (what, least) in LEAST {
            let count = self.0.get(what).copied().unwrap_or(0);
            assert!(
                count * 100 >= least * histories,
                "{what}: only {count} in {histories} histories: {self:?}"
            );
        }
    }
}

/// Whether an insert came while another transaction held the key, and was answered after that one
/// had begun to end.
fn has_waited(history: &History, transaction: &Transaction, call: &Call) -> bool {
    let inserts = |call: &Call, keys: &[usize]| {
        call.facts.iter().any(|fact| match fact {
            Fact::Insert { key, reply: Reply::Inserted { .. }, .. } => keys.contains(key),
            _ => false,
        })
    };
    let mut rivals =
        history.transactions.iter().filter(|rival| rival.session != transaction.session);
    rivals.any(|rival| {
        let mut before = rival.calls().filter(|other| other.span.end < call.span.begin);
        let end = rival.steps.last().expect("transactions end").span();
        end.begin > call.span.begin
            && end.begin < call.span.end
            && before.any(|other| inserts(other, &call.keys))
    })
}

/// A history in words: what was said, in the order in which it was begun.
pub fn tell(history: &History) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        for step in &transaction.steps {
            let text = match step {
                Step::Call(call) => call.text.clone(),
                Step::Savepoint(_) => "savepoint".into(),
                Step::Release(_) => "release savepoint".into(),
                Step::RollbackTo(_) => "rollback to savepoint".into(),
                Step::End { committed, .. } => {
                    if *committed { "commit" } else { "rollback" }.into()
                }
            };
            let Span { begin, end } = step.span();
            let (session, level) = (transaction.session, transaction.level);
            lines.push((
                begin,
                format!(
                    "  [{begin}-{end}] session {session}, transaction {number} ({level}): {text}"
                ),
            ));
        }
    }
    lines.sort_by_key(|(begin, _)| *begin);
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    lines.join("\n")
}
