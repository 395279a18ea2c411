//! What limits and orders by key have in common as models: one gate, with one queue and kind. Jobs
//! are in its lane, or are held; each session is one transaction. [`Gate`] is what differs.

use std::fmt::Debug;

use crate::database::{FROZEN, Id, Version, View, Xid, Xids, only};
use crate::explore::{Action, Exploration, Protocol};
use crate::properties::Holds;
use crate::scenario::LAST_AT_START;
use crate::scenario::Level::{self, ReadCommitted, RepeatableRead};
use crate::transaction::{Say, numbers};

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
use Place::{Done, Held, Lane, Released, Running, Turn as HasTurn};

/// What a transaction does, by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Insert,
    /// Of at most this many jobs.
    Fetch(usize),
    Complete,
    /// The attempt does not count; the job is available again.
    Release,
    /// A job is cancelled before it starts, or before it starts again.
    Cancel,
    CancelHeld,
    /// Maintenance promotes jobs for which there is room.
    Sweep,
}

/// A session: one transaction.
pub type Program = (Level, &'static [Op]);

pub const NOTHING: Program = (ReadCommitted, &[]);
pub const INSERT: Program = (ReadCommitted, &[Op::Insert]);
pub const FETCH: Program = (ReadCommitted, &[Op::Fetch(1)]);
pub const COMPLETE: Program = (ReadCommitted, &[Op::Complete]);
pub const RELEASE: Program = (ReadCommitted, &[Op::Release]);
pub const SWEEP: Program = (ReadCommitted, &[Op::Sweep]);
pub const PROGRAMS: &[Program] = &[
    NOTHING,
    INSERT,
    FETCH,
    (ReadCommitted, &[Op::Fetch(2)]),
    COMPLETE,
    (ReadCommitted, &[Op::Complete, Op::Fetch(1)]),
    SWEEP,
    RELEASE,
    (RepeatableRead, &[Op::Fetch(2)]),
    (RepeatableRead, &[Op::Complete, Op::Fetch(1)]),
];

/// What the protocol does wrong, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The end of an attempt promotes two jobs, whatever room there is.
    HandOnTwice,
    /// The end of an attempt promotes no job.
    KeepPlace,
    /// A fetch drops a job for which there is no room.
    Drop,
    /// Maintenance promotes no job.
    NoSweep,
    /// Fetches do not take turns.
    OutOfTurn,
    /// Only permits that a snapshot shows are counted.
    CountCommitted,
    /// Nobody heeds that a job has the turn.
    Heedless,
    /// A job that is released has its turn no longer.
    LoseTurn,
    /// A job that is final keeps its turn.
    KeepTurn,
    /// Who promotes passes over a job that another one has locked.
    PassOver,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<G> {
    pub gate: G,
    pub programs: [Program; SESSIONS],
    /// Where jobs 1, 2, .. are at the beginning.
    pub start: &'static [Place],
    pub fault: Fault,
}

impl<G> Scenario<G> {
    /// A mistake, and who meets.
    pub const fn with(
        gate: G,
        fault: Fault,
        [first, second, third]: [Program; 3],
        start: &'static [Place],
    ) -> Self {
        Scenario { gate, programs: [first, second, third, NOTHING], start, fault }
    }
}

/// All that is explored: a fetch, and one of `second`, meet every two programs.
pub fn scenarios<G: Copy>(
    second: &[Program],
    programs: &[Program],
    starts: &[(G, &'static [Place])],
) -> Vec<Scenario<G>> {
    let mut all = vec![];
    for &second in second {
        for (n, &third) in programs.iter().enumerate() {
            for &fourth in &programs[n..] {
                let of = |&(gate, start)| Scenario {
                    gate,
                    programs: [FETCH, second, third, fourth],
                    start,
                    fault: Fault::None,
                };
                all.extend(starts.iter().map(of));
            }
        }
    }
    all
}

/// What a limit and an order each do by themselves.
pub trait Gate: Copy + Debug + Send + Sync + 'static {
    const PROPERTIES: &'static [(&'static str, Holds<Scenario<Self>>)];
    /// Jobs here have a place, or will have.
    const COUNTED: &'static [Place];

    /// How many places there are.
    fn limit(&self) -> usize;
    /// Whether a job here has started and has the turn.
    fn has_turn(_: Place) -> bool {
        false
    }
    /// Whether the call ends with promoting jobs.
    fn hands_on(op: Op) -> bool;
    /// How many more jobs an insert finds room for in the lane.
    fn room_to_insert(turn: &Turn<Self>) -> usize;
    /// Which of the picked jobs may start: as many as there is room for, from the first one on.
    fn admit(turn: &mut Turn<Self>);
    /// Looks for room for jobs that are held.
    fn look(turn: &mut Turn<Self>);
    /// Takes jobs that are held and may be promoted. `None`: one is gone since the snapshot.
    fn take_held(turn: &mut Turn<Self>, op: Op) -> Option<Vec<Id>>;
    /// A job starts.
    fn starts(_: &mut Turn<Self>, _: Id) {}
    /// A job ends its attempt, or is cancelled.
    fn ends(_: &mut Turn<Self>, _: Id, _: Op) {}
}

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
pub struct Turn<'a, G> {
    pub scenario: &'a Scenario<G>,
    pub state: &'a mut State,
    pub session: usize,
    pub say: &'a mut Say,
}

impl<G: Gate> Turn<'_, G> {
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

    /// How many jobs may be promoted beside those in the lane.
    pub fn most(&mut self, op: Op, in_lane: usize) -> usize {
        let room = self.me().room.saturating_sub(in_lane);
        match (op, self.scenario.fault) {
            (Op::Sweep, _) => room,
            (_, Fault::HandOnTwice) => 2,
            (_, Fault::KeepPlace) => 0,
            _ => room.min(1),
        }
    }

    /// What comes before and after the calls: whether that was the step.
    fn is_around(&mut self, level: Level, has_call: bool) -> bool {
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

    /// Takes the next step. `None`: the transaction fails with 40001.
    fn step(&mut self) -> Option<()> {
        let (level, calls) = self.scenario.programs[self.session];
        let Session { call, step, room, .. } = *self.me();
        let op = calls.get(call);
        if self.is_around(level, op.is_some()) {
            return Some(());
        }
        let (op, fault) = (*op?, self.scenario.fault);
        let is_last = match (op, step) {
            (Op::Insert, 0) => {
                let room = G::room_to_insert(self);
                self.say.say(|| format!("finds room for {room} more in the lane"));
                self.me().room = room;
                false
            }
            (Op::Insert, _) => {
                let (id, place) =
                    (LAST_AT_START + xid_of(self.session), if room == 0 { Held } else { Lane });
                self.say.say(|| format!("inserts job {id}: {place:?}"));
                self.put(id, place);
                true
            }
            (Op::Fetch(most), 0) => {
                let picked = self.take(&[Lane, Released], most)?;
                self.say.say(|| format!("takes {} out of the lane", numbers("job", &picked)));
                self.me().picked = picked;
                self.me().picked.is_empty()
            }
            (Op::Fetch(_), 1) => {
                if fault != Fault::OutOfTurn {
                    self.state.turn = Some(self.session);
                }
                G::admit(self);
                false
            }
            (Op::Fetch(_), 2) => {
                self.state.turn = None;
                let picked = &mut self.me().picked;
                let started: Vec<Id> = picked.drain(..room.min(picked.len())).collect();
                let is_last = picked.is_empty();
                self.say.say(|| format!("starts {}", numbers("job", &started)));
                for id in started {
                    G::starts(self, id);
                    self.put(id, Running);
                }
                is_last
            }
            (Op::Fetch(_), 3) => {
                let others = std::mem::take(&mut self.me().picked);
                let is_dropped = fault == Fault::Drop;
                let verb = if is_dropped { "drops" } else { "holds" };
                self.say.say(|| format!("{verb} {}", numbers("job", &others)));
                others.into_iter().filter(|_| !is_dropped).for_each(|id| self.put(id, Held));
                !G::hands_on(op)
            }
            (Op::Complete | Op::Release | Op::Cancel | Op::CancelHeld, 0) => {
                let (verb, from, to): (_, &[Place], _) = match op {
                    Op::Complete => ("completes", &[Running], Done),
                    Op::Release => ("releases", &[Running], Released),
                    Op::Cancel => ("cancels", &[Lane, Released], Done),
                    _ => ("cancels", &[Held], Done),
                };
                let ended = self.take(from, 1)?;
                self.say.say(|| format!("{verb} {}", numbers("job", &ended)));
                for id in &ended {
                    self.put(*id, to);
                    G::ends(self, *id, op);
                }
                ended.is_empty() || !G::hands_on(op)
            }
            (Op::Sweep, 0) | (Op::Complete | Op::Release | Op::Cancel, 1) | (Op::Fetch(_), 4) => {
                G::look(self);
                false
            }
            _ => {
                let promoted = G::take_held(self, op)?;
                self.say.say(|| format!("promotes {}", numbers("job", &promoted)));
                promoted.into_iter().for_each(|id| self.put(id, Lane));
                true
            }
        };
        let me = self.me();
        (me.call, me.step) = if is_last { (call + 1, 0) } else { (call, step + 1) };
        Some(())
    }
}

impl<G: Gate> Protocol for Scenario<G> {
    type State = State;
    const PROPERTIES: &'static [(&'static str, Holds<Self>)] = G::PROPERTIES;

    /// Sessions before their first step; those without a call are over.
    fn begin(&self) -> State {
        let jobs = || (1..).zip(self.start.iter().copied());
        let turns = jobs().filter(|(_, place)| G::has_turn(*place)).map(|(id, _)| (id, HasTurn));
        let session =
            |(_, calls): Program| Session { is_over: calls.is_empty(), ..Session::default() };
        State {
            rows: jobs().chain(turns).map(|row| Version::new(row, FROZEN)).collect(),
            committed: 0,
            turn: None,
            sessions: self.programs.map(session),
        }
    }

    /// Only one session at a time goes on with what they take turns at.
    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, session) in state.sessions.iter().enumerate().filter(|(_, one)| !one.is_over) {
            let Session { call, step, .. } = *session;
            let takes_turn =
                step == 1 && matches!(self.programs[n].1.get(call), Some(Op::Fetch(_)));
            if state.turn.is_none() || !takes_turn {
                actions.push(Action::Step(n as u8, 0));
            }
            if (call, step) != (0, 0) {
                actions.push(Action::RollBack(n as u8));
            }
        }
    }

    fn act(&self, state: &mut State, action: Action, say: &mut Say) {
        let session = action.session();
        let mut turn = Turn { scenario: self, state, session, say };
        if matches!(action, Action::RollBack(_)) {
            turn.say.say(|| "is rolled back".into());
            turn.state.end(session);
        } else if turn.step().is_none() {
            turn.say.say(|| "fails with 40001 and rolls back".into());
            turn.state.end(session);
        }
        turn.state.settle();
    }

    fn without_fault(self) -> Self {
        Scenario { fault: Fault::None, ..self }
    }
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

pub const ONE_PLACE: &str = "every job is in one place";
pub const HANDED_ON_ONCE: &str = "every place is handed on once";
pub const NONE_WAITS: &str = "no job waits while there is room";

/// Jobs of the beginning, and others.
pub fn is_in_one_place<G: Gate>(of: &Exploration<Scenario<G>>, state: &State) -> bool {
    let start: Vec<Id> = (1..).take(of.scenario.start.len()).collect();
    views(state).all(|view| {
        let seen =
            state.rows.iter().filter(|version| version.row.1 != HasTurn && view.sees(version));
        let mut ids: Vec<Id> = seen.map(|version| version.row.0).collect();
        ids.sort_unstable();
        ids.starts_with(&start) && ids.is_sorted_by(|a, b| a < b)
    })
}

/// Where jobs are only fetched and completed, the lane has jobs for the places that are free.
pub fn is_handed_on_once<G: Gate>(of: &Exploration<Scenario<G>>, state: &State) -> bool {
    let mut calls = of.scenario.programs.iter().flat_map(|(_, calls)| *calls);
    let is_kept = |state: &State| at_most_in(state, G::COUNTED) <= of.scenario.gate.limit();
    !calls.all(|call| matches!(call, Op::Fetch(_) | Op::Complete))
        || is_kept(state)
        || !is_kept(&of.scenario.begin())
}

/// Once everybody has ended, and after one sweep where more than one session was at work, no job
/// is held for which there is room. If work goes on, every job ends.
pub fn none_waits<G: Gate>(of: &Exploration<Scenario<G>>, state: &State) -> bool {
    if state.sessions.iter().any(|session| !session.is_over) {
        return true;
    }
    let Scenario { gate, programs, fault, .. } = of.scenario;
    let sweep = if fault == Fault::NoSweep { NOTHING } else { SWEEP };
    let alone = |program, state: &State| {
        let alone = Scenario { programs: [program, NOTHING, NOTHING, NOTHING], ..of.scenario };
        let mut state = State { sessions: alone.begin().sessions, ..state.clone() };
        while !state.sessions[0].is_over {
            alone.act(&mut state, Action::Step(0, 0), &mut Say::nothing());
        }
        state
    };
    let is_alone = programs.iter().filter(|(_, calls)| !calls.is_empty()).count() == 1;
    let mut state = if is_alone { state.clone() } else { alone(sweep, state) };
    if state.count(Held, |_| true) > 0 && at_most_in(&state, G::COUNTED) < gate.limit() {
        return false;
    }
    // A fetch may only have the head of an order and another job change places.
    for _ in 0..2 * state.rows.len() {
        for program in [FETCH, COMPLETE, sweep] {
            state = alone(program, &state);
        }
    }
    state.rows.iter().all(|version| version.row.1 == Done)
}
