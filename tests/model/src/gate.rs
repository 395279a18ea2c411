//! What limits and orders by key have in common as models: one gate, with one queue and kind. Jobs
//! are in its lane, or are held; each session is one transaction.

use crate::database::{FROZEN, Id, Version, View, Xid, Xids, only};
use crate::explore::{Action, Protocol};
use crate::scenario::Level::{self, ReadCommitted};
use crate::transaction::Say;

pub const SESSIONS: usize = 4;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Its lane, where a fetch finds it.
    Lane,
    /// The lane, where the job does not count for the gate.
    Released,
    Held,
    /// With a permit, which is written and deleted with this row.
    Running,
    Done,
    /// The job has the turn, and is in another place, too.
    Turn,
}
use Place::Turn as HasTurn;

/// A session: one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Session {
    /// The number of calls that are done.
    pub call: usize,
    /// The number of steps of the call that are done.
    pub step: u8,
    /// The snapshot of a transaction that keeps one.
    pub snapshot: Option<Xids>,
    /// The jobs that the fetch took out of the lane and has no place for yet.
    pub picked: Vec<Id>,
    /// How many jobs may start, or go into the lane, as of the last count.
    pub room: usize,
    /// Whether the transaction has ended.
    pub is_over: bool,
}

/// Everything. A job is a row in each place that some session sees it in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// All versions of rows.
    pub rows: Vec<Version<(Id, Place)>>,
    /// Transactions that are committed but not yet visible to every session.
    pub committed: Xids,
    /// Whose turn it is.
    pub turn: Option<usize>,
    pub sessions: [Session; SESSIONS],
}

impl State {
    /// How many rows of a place are meant.
    pub fn count(&self, place: Place, is_meant: impl Fn(&Version<(Id, Place)>) -> bool) -> usize {
        self.rows.iter().filter(|version| version.row.1 == place && is_meant(version)).count()
    }

    /// Rolls the transaction of a session back, if it is not committed.
    pub fn end(&mut self, session: usize) {
        let xid = xid_of(session);
        if !View(self.committed).has(xid) {
            self.rows.retain(|version| version.by != xid);
            let deleted = self.rows.iter_mut().filter(|version| version.gone == Some(xid));
            deleted.for_each(|version| version.gone = None);
        }
        self.turn = self.turn.filter(|holder| *holder != session);
        self.sessions[session] = Session { is_over: true, ..Session::default() };
    }

    /// Forgets what makes no difference any more: who wrote what everybody sees.
    pub fn settle(&mut self) {
        let snapshots = || self.sessions.iter().filter_map(|session| session.snapshot);
        let seen_by_all = View(snapshots().fold(self.committed, |all, seen| all & seen));
        self.rows.retain(|version| version.gone.is_none_or(|gone| !seen_by_all.has(gone)));
        for version in self.rows.iter_mut().filter(|version| seen_by_all.has(version.by)) {
            version.by = FROZEN;
        }
        self.committed &= !seen_by_all.0;
        for snapshot in self.sessions.iter_mut().filter_map(|session| session.snapshot.as_mut()) {
            *snapshot &= !seen_by_all.0;
        }
        self.rows.sort_unstable();
    }
}

pub const fn xid_of(session: usize) -> Xid {
    session as Xid + 1
}

/// A session that takes a step.
pub struct Turn<'a, S> {
    pub scenario: &'a S,
    pub state: &'a mut State,
    pub session: usize,
    pub say: &'a mut Say,
}

impl<S> Turn<'_, S> {
    pub fn me(&mut self) -> &mut Session {
        &mut self.state.sessions[self.session]
    }

    /// What the session sees without a snapshot: what is committed, and its own.
    pub fn now(&self) -> View {
        View(self.state.committed | only(xid_of(self.session)))
    }

    /// What a statement sees that begins now.
    pub fn view(&self) -> View {
        let snapshot = self.state.sessions[self.session].snapshot;
        snapshot.map_or(self.now(), |seen| View(seen | only(xid_of(self.session))))
    }

    pub fn put(&mut self, id: Id, place: Place) {
        self.state.rows.push(Version::new((id, place), xid_of(self.session)));
    }

    /// Deletes the first jobs that a statement sees in these places, but passes over those that
    /// others are deleting. `None`: one is gone since the snapshot.
    pub fn take(&mut self, from: &[Place], most: usize) -> Option<Vec<Id>> {
        let (view, now, xid) = (self.view(), self.now(), xid_of(self.session));
        let rows = self.state.rows.iter_mut();
        let seen = rows.filter(|version| from.contains(&version.row.1) && view.sees(version));
        let mut free: Vec<_> =
            seen.filter(|version| version.gone.is_none_or(|gone| now.has(gone))).collect();
        free.sort_unstable_by_key(|version| version.row.0);
        free.truncate(most);
        let is_gone = free.iter().any(|version| version.gone.is_some());
        let take = |version: &mut Version<(Id, Place)>| {
            version.gone = Some(xid);
            version.row.0
        };
        (!is_gone).then(|| free.into_iter().map(take).collect())
    }

    /// What comes before and after the calls: whether that was the step.
    pub fn is_around(&mut self, level: Level, has_call: bool) -> bool {
        if level != ReadCommitted && self.me().snapshot.is_none() {
            self.say.say(|| "takes its snapshot".into());
            self.me().snapshot = Some(self.state.committed);
            return true;
        }
        if !has_call {
            self.say.say(|| "commits".into());
            self.state.committed |= only(xid_of(self.session));
            self.state.end(self.session);
        }
        !has_call
    }

    /// The step is done; the call may be, too.
    pub fn go_on(&mut self, is_last: bool) {
        let me = self.me();
        (me.call, me.step) = if is_last { (me.call + 1, 0) } else { (me.call, me.step + 1) };
    }
}

/// Sessions before their first step; those without a call are over.
pub fn begin(rows: Vec<Version<(Id, Place)>>, have_calls: [bool; SESSIONS]) -> State {
    let session = |has_call: bool| Session { is_over: !has_call, ..Session::default() };
    State { rows, committed: 0, turn: None, sessions: have_calls.map(session) }
}

/// What may happen next: only one session at a time goes on with what they take turns at.
pub fn actions(state: &State, takes_turn: impl Fn(usize) -> bool, actions: &mut Vec<Action>) {
    for (n, session) in state.sessions.iter().enumerate().filter(|(_, one)| !one.is_over) {
        if state.turn.is_none() || !takes_turn(n) {
            actions.push(Action::Step(n as u8, 0));
        }
        if (session.call, session.step) != (0, 0) {
            actions.push(Action::RollBack(n as u8));
        }
    }
}

/// Takes a step, or rolls back.
pub fn act<'a, S>(
    mut turn: Turn<'a, S>,
    action: Action,
    step: impl FnOnce(&mut Turn<'a, S>) -> Option<()>,
) {
    let session = action.session();
    if matches!(action, Action::RollBack(_)) {
        turn.say.say(|| "is rolled back".into());
        turn.state.end(session);
    } else if step(&mut turn).is_none() {
        turn.say.say(|| "fails with 40001 and rolls back".into());
        turn.state.end(session);
    }
    turn.state.settle();
}

/// A state in which a session has run alone.
pub fn alone<S: Protocol<State = State>>(alone: &S, state: &State) -> State {
    let mut state = State { sessions: alone.begin().sessions, ..state.clone() };
    while !state.sessions[0].is_over {
        alone.act(&mut state, Action::Step(0, 0), &mut Say::nothing());
    }
    state
}

/// How many rows of these places there are at most, whichever open transactions commit.
pub fn at_most_in(state: &State, places: &[Place]) -> usize {
    let rows = || state.rows.iter().filter(|version| places.contains(&version.row.1));
    let view = View(state.committed);
    let seen = rows().filter(|version| view.sees(version)).count() as isize;
    let added = (0..SESSIONS).map(xid_of).filter(|xid| !view.has(*xid)).map(|xid| {
        let with = View(state.committed | only(xid));
        (rows().filter(|version| with.sees(version)).count() as isize - seen).max(0)
    });
    (seen + added.sum::<isize>()) as usize
}

/// What sessions see between two calls, and one that is not at work.
pub fn views(state: &State) -> impl Iterator<Item = View> {
    let own = (0..SESSIONS).filter(|n| state.sessions[*n].step == 0).map(|n| only(xid_of(n)));
    own.chain([0]).map(|own| View(state.committed | own))
}

/// Whether every job is in one place, of so many at the beginning, and of others.
pub fn is_in_one_place(state: &State, at_start: usize) -> bool {
    let start: Vec<Id> = (1..).take(at_start).collect();
    views(state).all(|view| {
        let seen =
            state.rows.iter().filter(|version| version.row.1 != HasTurn && view.sees(version));
        let mut ids: Vec<Id> = seen.map(|version| version.row.0).collect();
        ids.sort_unstable();
        ids.starts_with(&start) && ids.is_sorted_by(|a, b| a < b)
    })
}
