//! What a session does with its transaction: what it sees, what it writes as, its subtransactions,
//! how it ends.

use crate::database::{A, B, Database, Key, Version, View, Xid, Xids, only, session_of};
use crate::scenario::{Level, Scenario};
use crate::session::{Session, Step, Wait};

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The state of the database.
    pub database: Database,
    /// The state of each session.
    pub sessions: [Session; 3],
    /// The first violation, if any.
    pub wrong: Option<Wrong>,
}

/// What must not happen in a step. What must not be is in [`crate::properties`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// A job was inserted despite a conflicting job.
    Conflict,
    /// An answer named a job that does not conflict or is not the newest.
    Answer,
    /// A call reported a key as busy that no other session was using.
    Busy,
    /// The id of a job is not above the ids of all earlier jobs under its key.
    Order,
}

/// Numbers of something, in words.
pub fn numbers(of: &str, numbers: &[u8]) -> String {
    let s = match numbers {
        [] => return format!("no {of}"),
        [_] => "",
        _ => "s",
    };
    let numbers: Vec<String> = numbers.iter().map(u8::to_string).collect();
    format!("{of}{s} {}", numbers.join(" and "))
}

/// What is said of a step, if somebody wants to know.
pub struct Say(Option<String>);

impl Say {
    /// Nobody wants to know.
    pub fn nothing() -> Say {
        Say(None)
    }

    /// Somebody does.
    pub fn all() -> Say {
        Say(Some(String::new()))
    }

    /// Says more of the step.
    pub fn say(&mut self, words: impl FnOnce() -> String) {
        if let Some(said) = &mut self.0 {
            let words = words();
            if !said.is_empty() && !words.is_empty() {
                said.push_str("; ");
            }
            said.push_str(&words);
        }
    }

    /// What was said.
    pub fn said(self) -> String {
        self.0.unwrap_or_default()
    }
}

/// A session that takes a step.
pub struct Turn<'a> {
    /// The scenario under exploration.
    pub scenario: &'a Scenario,
    /// The state that the step changes.
    pub state: &'a mut State,
    /// The index of the session.
    pub session: usize,
    /// The index of the chosen outcome.
    pub choice: usize,
    /// The description of the step.
    pub say: &'a mut Say,
}

impl Turn<'_> {
    /// The session.
    pub fn me(&mut self) -> &mut Session {
        &mut self.state.sessions[self.session]
    }

    /// All of its transactions.
    pub fn own(&self) -> Xids {
        self.state.sessions[self.session].own()
    }

    /// Its isolation level.
    pub fn level(&self) -> Level {
        let transaction = self.state.sessions[self.session].transaction;
        self.scenario.programs[self.session][transaction as usize].0
    }

    /// Whether statements see what is committed when they begin.
    pub fn is_read_committed(&self) -> bool {
        self.level() == Level::ReadCommitted
    }

    /// Whether claims are written without statements.
    pub fn is_direct(&self) -> bool {
        self.scenario.direct && self.level() != Level::Serializable
    }

    /// What a statement sees that begins now.
    pub fn view(&mut self) -> View {
        let committed = self.state.database.committed;
        let own = self.own();
        if self.is_read_committed() {
            return View(committed | own);
        }
        View(*self.me().snapshot.get_or_insert(committed) | own)
    }

    /// The (sub)transaction that it writes as.
    pub fn xid(&mut self) -> Xid {
        let session = self.session;
        for depth in 0..=self.me().depth as usize {
            let xids = self.me().xids;
            if xids[depth] == 0 {
                self.me().xids[depth] = self.state.database.free_xid(session, &xids);
            }
        }
        let me = self.me();
        me.xids[me.depth as usize]
    }

    /// Goes on with this step.
    pub fn then(&mut self, step: Step) {
        self.me().step = step;
    }

    /// Waits until a transaction has ended, and goes on with this step then.
    pub fn wait_for(&mut self, xid: Xid, step: Step) {
        let rival = session_of(xid) + 1;
        self.say.say(|| format!("waits for session {rival}"));
        let me = self.me();
        me.wait = Some(Wait::End(xid));
        me.step = step;
    }

    /// Begins a subtransaction.
    pub fn begin_sub(&mut self) {
        self.me().depth += 1;
    }

    /// Ends it; what it did stays, if the transaction is committed.
    pub fn release_sub(&mut self) {
        let depth = self.me().depth as usize;
        let xids = self.me().xids;
        if xids[depth] != 0 {
            self.state.database.hand_over(xids[depth], xids[depth - 1]);
            for session in &mut self.state.sessions {
                if session.wait == Some(Wait::End(xids[depth])) {
                    session.wait = Some(Wait::End(xids[depth - 1]));
                }
            }
        }
        let mine = self.session as u8;
        for (holder, at) in self.state.database.advisory.iter_mut().flatten() {
            if *holder == mine && *at as usize == depth {
                *at -= 1;
            }
        }
        let me = self.me();
        me.xids[depth] = 0;
        me.depth -= 1;
    }

    /// Rolls it back.
    pub fn roll_back_sub(&mut self) {
        self.say.say(|| "rolls its subtransaction back".into());
        self.undo_level();
        self.me().depth -= 1;
    }

    fn undo_level(&mut self) {
        let depth = self.me().depth as usize;
        let xid = std::mem::take(&mut self.me().xids[depth]);
        if xid != 0 {
            self.state.database.roll_back(xid);
            self.wake(Wait::End(xid));
        }
        self.unlock_keys(depth as u8);
    }

    /// Lets go of the advisory locks that were taken in this depth or deeper.
    fn unlock_keys(&mut self, depth: u8) {
        for key in [A, B] {
            let held = &mut self.state.database.advisory[key.0 as usize];
            if held.is_some_and(|(by, at)| by as usize == self.session && at >= depth) {
                *held = None;
                self.wake(Wait::Lock(key));
            }
        }
    }

    fn wake(&mut self, ended: Wait) {
        for session in &mut self.state.sessions {
            if session.wait == Some(ended) {
                session.wait = None;
            }
        }
    }

    /// Commits the transaction.
    pub fn commit(&mut self) {
        self.say.say(|| "commits".into());
        let xid = self.me().xids[0];
        if xid != 0 {
            self.state.database.unlock(xid);
            self.state.database.committed |= only(xid);
            self.wake(Wait::End(xid));
        }
        self.unlock_keys(0);
        self.end();
    }

    /// Rolls the transaction back.
    pub fn roll_back(&mut self) {
        while self.me().depth > 0 {
            self.undo_level();
            self.me().depth -= 1;
        }
        self.undo_level();
        self.end();
    }

    /// Fails, since others have changed what its snapshot shows.
    pub fn fail_to_serialize(&mut self) {
        self.say.say(|| "fails with 40001 and rolls back".into());
        self.roll_back();
    }

    fn end(&mut self) {
        let next = self.me().transaction + 1;
        let has_next = (next as usize) < self.scenario.programs[self.session].len();
        *self.me() = Session {
            transaction: next,
            step: if has_next { Step::Next } else { Step::Ended },
            ..Session::default()
        };
        if !has_next {
            self.me().transaction = 0;
        }
    }

    /// Its session is gone.
    pub fn crash(&mut self) {
        self.roll_back();
        *self.me() = Session { step: Step::Ended, ..Session::default() };
    }

    /// Whether another session is at work on a key.
    pub fn has_rival(&self, key: Key) -> bool {
        let database = &self.state.database;
        let own = self.own();
        let has_lock = database.advisory[key.0 as usize]
            .is_some_and(|(holder, _)| holder as usize != self.session);
        let is_at_work = |version: &Version<_>| {
            database.is_open(version.by, own) || database.in_the_way(version, own).is_some()
        };
        has_lock || database.claims[key.0 as usize].iter().any(is_at_work)
    }

    /// Remembers which keys others are at work on, where the call does not want to wait for that.
    pub fn note_rivals(&mut self) {
        let items = self.state.sessions[self.session].items.iter();
        let keys: Vec<Key> = items.filter(|item| !item.new.wait).map(|item| item.new.key).collect();
        for key in keys {
            if self.has_rival(key) {
                self.me().rivals |= 1 << key.0;
            }
        }
    }
}
