//! Limits by key, as a second protocol: fetches take permits in turn, jobs without one are held,
//! and the ends of attempts hand their places on (`src/store/permits.rs`). One limit, one key, one
//! queue and kind; each session is one transaction.

use crate::database::{FROZEN, Id, Version, View, Xid, Xids, only};
use crate::explore::{Action, Exploration, Protocol};
use crate::properties::Holds;
use crate::scenario::LAST_AT_START;
use crate::scenario::Level::{self, ReadCommitted, RepeatableRead};
use crate::scenarios::Control;
use crate::transaction::{Say, numbers};

const SESSIONS: usize = 4;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Lane,
    /// The lane, where the job does not count for the gate.
    Released,
    Held,
    /// With a permit, which is written and deleted with this row.
    Running,
    Done,
}
use Place::{Done, Held, Lane, Released, Running};

/// What a transaction does, by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Insert,
    /// Of at most this many jobs.
    Fetch(usize),
    Complete,
    Release,
    /// Maintenance promotes jobs for which there is room.
    Sweep,
}

/// A session: one transaction.
type Program = (Level, &'static [Op]);

/// What the protocol does wrong, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Fetches do not take turns.
    OutOfTurn,
    /// Only permits that a snapshot shows are counted.
    CountCommitted,
    /// The end of an attempt promotes two jobs, whatever room there is.
    HandOnTwice,
    /// The end of an attempt promotes no job.
    KeepPlace,
    /// A fetch drops a job for which there is no room.
    Drop,
    /// Maintenance promotes no job.
    NoSweep,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    programs: [Program; SESSIONS],
    /// Where jobs 1, 2, .. are at the beginning.
    start: &'static [Place],
    /// How many jobs may run.
    limit: usize,
    fault: Fault,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Session {
    call: usize,
    /// The number of steps of the call that are done.
    step: u8,
    /// The snapshot of a transaction that keeps one.
    snapshot: Option<Xids>,
    /// The jobs that the fetch took out of the lane and has no place for yet.
    picked: Vec<Id>,
    /// How many jobs may start, or go into the lane, as of the last count.
    room: usize,
    is_over: bool,
}

/// Everything. A job is a row in each place that some session sees it in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    rows: Vec<Version<(Id, Place)>>,
    /// Transactions that are committed but not yet visible to every session.
    committed: Xids,
    /// Whose turn it is.
    turn: Option<usize>,
    sessions: [Session; SESSIONS],
}

impl State {
    fn count(&self, place: Place, is_meant: impl Fn(&Version<(Id, Place)>) -> bool) -> usize {
        self.rows.iter().filter(|version| version.row.1 == place && is_meant(version)).count()
    }

    /// Rolls the transaction of a session back, if it is not committed.
    fn end(&mut self, session: usize) {
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
    fn settle(&mut self) {
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

const fn xid_of(session: usize) -> Xid {
    session as Xid + 1
}

/// A session that takes a step.
struct Turn<'a> {
    scenario: &'a Scenario,
    state: &'a mut State,
    session: usize,
    say: &'a mut Say,
}

impl Turn<'_> {
    fn me(&mut self) -> &mut Session {
        &mut self.state.sessions[self.session]
    }

    /// What the session sees without a snapshot: what is committed, and its own.
    fn now(&self) -> View {
        View(self.state.committed | only(xid_of(self.session)))
    }

    /// What a statement sees that begins now.
    fn view(&self) -> View {
        let snapshot = self.state.sessions[self.session].snapshot;
        snapshot.map_or(self.now(), |seen| View(seen | only(xid_of(self.session))))
    }

    fn put(&mut self, id: Id, place: Place) {
        self.state.rows.push(Version::new((id, place), xid_of(self.session)));
    }

    /// Deletes the first jobs that a statement sees in these places, but passes over those that
    /// others are deleting. `None`: one is gone since the snapshot.
    fn take(&mut self, from: &[Place], most: usize) -> Option<Vec<Id>> {
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

    /// How many more jobs may start, by a dirty look.
    fn count_room(&mut self) {
        let (now, Scenario { limit, fault, .. }) = (self.now(), *self.scenario);
        let running = self.state.count(Running, |version| match fault {
            Fault::CountCommitted => now.sees(version),
            _ => now.is_there(version),
        });
        self.me().room = limit.saturating_sub(running);
        self.say.say(|| format!("finds {running} of {limit} places taken"));
    }

    /// Has jobs that are held back to the lane, as far as there is room beside those in it.
    fn promote(&mut self, op: Op) -> Option<()> {
        let view = self.view();
        let in_lane = self.state.count(Lane, |version| view.sees(version));
        let room = self.me().room.saturating_sub(in_lane);
        let most = match (op, self.scenario.fault) {
            (Op::Sweep, _) => room,
            (_, Fault::HandOnTwice) => 2,
            (_, Fault::KeepPlace) => 0,
            _ => room.min(1),
        };
        let promoted = self.take(&[Held], most)?;
        self.say.say(|| format!("promotes {}", numbers("job", &promoted)));
        promoted.into_iter().for_each(|id| self.put(id, Lane));
        Some(())
    }

    /// Takes the next step. `None`: the transaction fails with 40001.
    fn step(&mut self) -> Option<()> {
        let (level, calls) = self.scenario.programs[self.session];
        if level != ReadCommitted && self.me().snapshot.is_none() {
            self.say.say(|| "takes its snapshot".into());
            self.me().snapshot = Some(self.state.committed);
            return Some(());
        }
        let Session { call, step, room, .. } = *self.me();
        let Some(op) = calls.get(call) else {
            self.say.say(|| "commits".into());
            self.state.committed |= only(xid_of(self.session));
            self.state.end(self.session);
            return Some(());
        };
        let is_last = match (op, step) {
            (Op::Insert, 0) => {
                let (now, limit) = (self.now(), self.scenario.limit);
                let there = |place| self.state.count(place, |version| now.is_there(version));
                let room = if there(Held) > 0 { 0 } else { limit.saturating_sub(there(Lane)) };
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
                let picked = self.take(&[Lane, Released], *most)?;
                self.say.say(|| format!("takes {} out of the lane", numbers("job", &picked)));
                self.me().picked = picked;
                self.me().picked.is_empty()
            }
            (Op::Fetch(_), 1) => {
                if self.scenario.fault != Fault::OutOfTurn {
                    self.state.turn = Some(self.session);
                }
                self.count_room();
                false
            }
            (Op::Fetch(_), 2) => {
                self.state.turn = None;
                let picked = &mut self.me().picked;
                let started: Vec<Id> = picked.drain(..room.min(picked.len())).collect();
                let is_last = picked.is_empty();
                self.say.say(|| format!("starts {}", numbers("job", &started)));
                started.into_iter().for_each(|id| self.put(id, Running));
                is_last
            }
            (Op::Fetch(_), _) => {
                let full = std::mem::take(&mut self.me().picked);
                let is_dropped = self.scenario.fault == Fault::Drop;
                let verb = if is_dropped { "drops" } else { "holds" };
                self.say.say(|| format!("{verb} {}", numbers("job", &full)));
                full.into_iter().filter(|_| !is_dropped).for_each(|id| self.put(id, Held));
                true
            }
            (Op::Complete | Op::Release, 0) => {
                let ended = self.take(&[Running], 1)?;
                self.say.say(|| format!("ends the attempt of {}", numbers("job", &ended)));
                let to = if *op == Op::Complete { Done } else { Released };
                ended.iter().for_each(|id| self.put(*id, to));
                ended.is_empty()
            }
            (Op::Sweep, 0) | (_, 1) => {
                self.count_room();
                false
            }
            (op, _) => {
                self.promote(*op)?;
                true
            }
        };
        let me = self.me();
        (me.call, me.step) = if is_last { (call + 1, 0) } else { (call, step + 1) };
        Some(())
    }
}

impl Protocol for Scenario {
    type State = State;
    const PROPERTIES: &'static [(&'static str, Holds<Self>)] = &[
        (AT_MOST, at_most),
        (ONE_PLACE, is_in_one_place),
        (HANDED_ON_ONCE, is_handed_on_once),
        (NONE_WAITS, none_waits),
    ];

    fn begin(&self) -> State {
        let rows = (1..).zip(self.start).map(|(id, place)| Version::new((id, *place), FROZEN));
        let session =
            |(_, calls): Program| Session { is_over: calls.is_empty(), ..Session::default() };
        State {
            rows: rows.collect(),
            committed: 0,
            turn: None,
            sessions: self.programs.map(session),
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, session) in state.sessions.iter().enumerate().filter(|(_, one)| !one.is_over) {
            let call = self.programs[n].1.get(session.call);
            let wants_turn = session.step == 1 && matches!(call, Some(Op::Fetch(_)));
            if !wants_turn || state.turn.is_none() {
                actions.push(Action::Step(n as u8, 0));
            }
            if (session.call, session.step) != (0, 0) {
                actions.push(Action::RollBack(n as u8));
            }
        }
    }

    fn act(&self, state: &mut State, action: Action, say: &mut Say) {
        let session = action.session();
        let mut turn = Turn { scenario: self, state, session, say };
        if matches!(action, Action::RollBack(_)) {
            say.say(|| "is rolled back".into());
            state.end(session);
        } else if turn.step().is_none() {
            say.say(|| "fails with 40001 and rolls back".into());
            state.end(session);
        }
        state.settle();
    }

    fn without_fault(self) -> Self {
        Scenario { fault: Fault::None, ..self }
    }
}

const AT_MOST: &str = "no more jobs run than may, whichever transactions commit";
const ONE_PLACE: &str = "every job is in one place";
const HANDED_ON_ONCE: &str = "every place is handed on once";
const NONE_WAITS: &str = "no job waits while there is room";

/// How many rows of these places there are at most, whichever open transactions commit.
fn at_most_in(state: &State, places: &[Place]) -> usize {
    let rows = || state.rows.iter().filter(|version| places.contains(&version.row.1));
    let view = View(state.committed);
    let seen = rows().filter(|version| view.sees(version)).count() as isize;
    let added = (0..SESSIONS).map(xid_of).filter(|xid| !view.has(*xid)).map(|xid| {
        let with = View(state.committed | only(xid));
        (rows().filter(|version| with.sees(version)).count() as isize - seen).max(0)
    });
    (seen + added.sum::<isize>()) as usize
}

fn at_most(of: &Exploration<Scenario>, state: &State) -> bool {
    at_most_in(state, &[Running]) <= of.scenario.limit
}

/// For sessions between two calls, and for one that is not at work.
fn is_in_one_place(of: &Exploration<Scenario>, state: &State) -> bool {
    let start: Vec<Id> = (1..).take(of.scenario.start.len()).collect();
    let own = (0..SESSIONS).filter(|n| state.sessions[*n].step == 0).map(|n| only(xid_of(n)));
    own.chain([0]).all(|own| {
        let view = View(state.committed | own);
        let seen = state.rows.iter().filter(|version| view.sees(version));
        let mut ids: Vec<Id> = seen.map(|version| version.row.0).collect();
        ids.sort_unstable();
        ids.starts_with(&start) && ids.is_sorted_by(|a, b| a < b)
    })
}

/// Where jobs are only fetched and completed, the lane has jobs for the places that are free.
fn is_handed_on_once(of: &Exploration<Scenario>, state: &State) -> bool {
    let Scenario { programs, start, limit, .. } = of.scenario;
    let mut calls = programs.iter().flat_map(|(_, calls)| *calls);
    let is_fair = start.iter().filter(|place| [&Lane, &Running].contains(place)).count() <= limit;
    !is_fair
        || !calls.all(|call| matches!(call, Op::Fetch(_) | Op::Complete))
        || at_most_in(state, &[Lane, Running]) <= limit
}

/// Once everybody has ended, and after one sweep where more than one session was at work, no job
/// is held for which there is room beside the lane. If work goes on, every job ends.
fn none_waits(of: &Exploration<Scenario>, state: &State) -> bool {
    if state.sessions.iter().any(|session| !session.is_over) {
        return true;
    }
    let Scenario { programs, limit, fault, .. } = of.scenario;
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
    let count = |place| state.count(place, |_| true);
    if count(Held) > 0 && count(Running) + count(Lane) < limit {
        return false;
    }
    for _ in 0..state.rows.len() {
        for program in [FETCH, COMPLETE, sweep] {
            state = alone(program, &state);
        }
    }
    state.rows.iter().all(|version| version.row.1 == Done)
}

const NOTHING: Program = (ReadCommitted, &[]);
const INSERT: Program = (ReadCommitted, &[Op::Insert]);
const FETCH: Program = (ReadCommitted, &[Op::Fetch(1)]);
const FETCH_TWO: Program = (ReadCommitted, &[Op::Fetch(2)]);
const COMPLETE: Program = (ReadCommitted, &[Op::Complete]);
const SWEEP: Program = (ReadCommitted, &[Op::Sweep]);
const GO_ON: Program = (ReadCommitted, &[Op::Complete, Op::Fetch(1)]);
const PROGRAMS: &[Program] = &[
    NOTHING,
    INSERT,
    FETCH,
    FETCH_TWO,
    COMPLETE,
    GO_ON,
    SWEEP,
    (ReadCommitted, &[Op::Release]),
    (RepeatableRead, &[Op::Fetch(2)]),
    (RepeatableRead, &[Op::Complete, Op::Fetch(1)]),
];
/// Limits, and where jobs are.
const STARTS: &[(usize, &[Place])] = &[
    (1, &[]),
    (1, &[Running, Held, Held]),
    (1, &[Lane, Held]),
    (1, &[Running, Lane, Released]),
    (2, &[Running, Running, Held]),
    (2, &[Running, Lane, Held]),
    (2, &[Running, Lane, Lane]),
];

/// All that is explored: a fetch, and a fetch or an end, meet every two programs.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = vec![];
    for first in [FETCH, COMPLETE] {
        for (n, &third) in PROGRAMS.iter().enumerate() {
            for &fourth in &PROGRAMS[n..] {
                let of = |&(limit, start)| Scenario {
                    programs: [first, FETCH, third, fourth],
                    start,
                    limit,
                    fault: Fault::None,
                };
                all.extend(STARTS.iter().map(of));
            }
        }
    }
    all
}

const fn with(fault: Fault, programs: [Program; 3], start: &'static [Place]) -> Scenario {
    let [first, second, third] = programs;
    Scenario { programs: [first, second, third, NOTHING], start, limit: 1, fault }
}

/// Mistakes that must be found.
pub const CONTROLS: &[Control<Scenario>] = &[
    Control {
        name: "permits-out-of-turn",
        why: "Fetches count permits without taking turns. The limit is 1; jobs 1 and 2 are in the lane.",
        scenario: with(Fault::OutOfTurn, [FETCH, FETCH, NOTHING], &[Lane, Lane]),
        property: AT_MOST,
    },
    Control {
        name: "only-committed-permits",
        why: "Fetches count only committed permits. The limit is 1; jobs 1 and 2 are in the lane.",
        scenario: with(Fault::CountCommitted, [FETCH, FETCH, NOTHING], &[Lane, Lane]),
        property: AT_MOST,
    },
    Control {
        name: "place-handed-on-twice",
        why: "The end of an attempt promotes two jobs. The limit is 1; job 1 runs, jobs 2 and 3 are held.",
        scenario: with(Fault::HandOnTwice, [COMPLETE, NOTHING, NOTHING], &[Running, Held, Held]),
        property: HANDED_ON_ONCE,
    },
    Control {
        name: "place-kept",
        why: "The end of an attempt promotes no job. The limit is 1; job 1 runs, job 2 is held.",
        scenario: with(Fault::KeepPlace, [COMPLETE, NOTHING, NOTHING], &[Running, Held]),
        property: NONE_WAITS,
    },
    Control {
        name: "job-without-room-dropped",
        why: "A fetch drops a job for which there is no room. The limit is 1; job 1 runs, job 2 is in the lane.",
        scenario: with(Fault::Drop, [FETCH, NOTHING, NOTHING], &[Running, Lane]),
        property: ONE_PLACE,
    },
    Control {
        name: "no-sweep-after-an-insert",
        why: "Maintenance does not promote. An insert finds the lane full, and the end of the attempt does not see the held job.\n\
              The limit is 1; job 1 is in the lane.",
        scenario: with(Fault::NoSweep, [FETCH, COMPLETE, INSERT], &[Lane]),
        property: NONE_WAITS,
    },
    Control {
        name: "no-sweep-after-a-fetch",
        why: "Maintenance does not promote. A fetch finds no room, and the end of the attempt does not see the held job.\n\
              The limit is 1; job 1 runs, job 2 is in the lane.",
        scenario: with(Fault::NoSweep, [FETCH, COMPLETE, NOTHING], &[Running, Lane]),
        property: NONE_WAITS,
    },
];
