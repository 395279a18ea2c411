//! Strict orders by key, as a third protocol: a job has the turn of its key from its start until it
//! is final, other jobs are held, and the head is handed over (`src/store/turns.rs`). One key; each
//! session is one transaction.

use Place::{Done, Held, Lane, Released, Running, Turn as HasTurn};

use crate::database::{FROZEN, Id, Version, View, only};
use crate::explore::{Action, Exploration, Protocol};
use crate::gate::{self, Place, SESSIONS, Session, State, Turn, at_most_in, xid_of};
use crate::properties::Holds;
use crate::scenario::LAST_AT_START;
use crate::scenario::Level::{self, ReadCommitted, RepeatableRead};
use crate::scenarios::Control;
use crate::transaction::{Say, numbers};

/// What a transaction does, by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Insert,
    /// Of at most this many jobs.
    Fetch(usize),
    Complete,
    /// The attempt does not count; the job is available again, with its turn.
    Release,
    /// A job is cancelled before it starts, or before it starts again.
    Cancel,
    CancelHeld,
    /// Maintenance promotes the head where nobody has the turn.
    Sweep,
}

/// A session: one transaction.
type Program = (Level, &'static [Op]);

/// What the protocol does wrong, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Nobody heeds that a job has the turn.
    Heedless,
    /// The end of an attempt promotes two jobs.
    HandOnTwice,
    /// A job that is released has its turn no longer.
    LoseTurn,
    /// A job that is final keeps its turn.
    KeepTurn,
    /// Who promotes passes over a job that another one has locked.
    PassOver,
    /// Maintenance promotes no job.
    NoSweep,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    programs: [Program; SESSIONS],
    /// Where jobs 1, 2, .. are at the beginning. Those that have started have the turn.
    start: &'static [Place],
    /// Positions in the lane say nothing of the order: a fetch does not compare them with those of
    /// held jobs.
    is_fair: bool,
    fault: Fault,
}

impl Turn<'_, Scenario> {
    /// Whether a job has the turn, by a dirty look, but not this one.
    fn is_taken(&self, but: Id) -> bool {
        let now = self.now();
        let is_other =
            |version: &Version<(Id, Place)>| version.row.0 != but && now.is_there(version);
        self.scenario.fault != Fault::Heedless && self.state.count(HasTurn, is_other) > 0
    }

    fn has_turn(&self, id: Id) -> bool {
        let now = self.now();
        self.state.count(HasTurn, |version| version.row.0 == id && now.sees(version)) > 0
    }

    fn end_turn(&mut self, id: Id) {
        let (now, xid) = (self.now(), xid_of(self.session));
        let is_own =
            |version: &&mut Version<(Id, Place)>| version.row == (id, HasTurn) && now.sees(version);
        if let Some(version) = self.state.rows.iter_mut().find(is_own) {
            version.gone = Some(xid);
        }
    }

    /// Whether the turn can pass on.
    fn look(&mut self) {
        let is_taken = self.is_taken(0);
        self.me().room = usize::from(!is_taken);
        self.say.say(|| {
            if is_taken { "finds the turn taken".into() } else { "finds the turn free".into() }
        });
    }

    /// Has the head back to the lane, if nobody is there. Nobody is passed over.
    fn promote(&mut self, op: Op) {
        let Scenario { fault, .. } = *self.scenario;
        let (now, view) = (self.now(), self.view());
        let in_lane = self.state.count(Lane, |version| match op {
            Op::Sweep => view.sees(version),
            _ => now.is_there(version),
        });
        let most = match (op, fault) {
            (Op::Complete, Fault::HandOnTwice) => 2,
            _ => self.me().room.saturating_sub(in_lane),
        };
        let seen = if op == Op::Sweep { view } else { now };
        let xid = xid_of(self.session);
        let mut held: Vec<_> = self
            .state
            .rows
            .iter_mut()
            .filter(|version| version.row.1 == Held && seen.sees(version))
            .collect();
        held.sort_unstable_by_key(|version| version.row.0);
        let is_free = |version: &Version<(Id, Place)>| version.gone.is_none();
        let mut promoted = Vec::new();
        for version in held {
            if promoted.len() == most || !is_free(version) && fault != Fault::PassOver {
                break;
            }
            if is_free(version) {
                version.gone = Some(xid);
                promoted.push(version.row.0);
            }
        }
        self.say.say(|| format!("promotes {}", numbers("job", &promoted)));
        promoted.into_iter().for_each(|id| self.put(id, Lane));
    }

    /// Who of those that the fetch has taken may start comes first.
    fn admit(&mut self) {
        let now = self.now();
        let mut picked = std::mem::take(&mut self.me().picked);
        let (mut admitted, mut others): (Vec<Id>, Vec<Id>) =
            picked.drain(..).partition(|id| self.has_turn(*id));
        if let Some(first) = others.first().copied() {
            let is_before = |place| {
                let is =
                    |version: &Version<(Id, Place)>| version.row.0 < first && now.sees(version);
                self.state.count(place, is) > 0
            };
            let is_behind = is_before(Lane) || !self.scenario.is_fair && is_before(Held);
            let is_given = !admitted.is_empty() && self.scenario.fault != Fault::Heedless;
            if !is_given && !self.is_taken(first) && !is_behind {
                admitted.push(others.remove(0));
            }
        }
        self.say.say(|| format!("gives the turn to {}", numbers("job", &admitted)));
        self.me().room = admitted.len();
        admitted.extend(others);
        self.me().picked = admitted;
    }

    /// Takes the next step. `None`: the transaction fails with 40001.
    fn step(&mut self) -> Option<()> {
        let (level, calls) = self.scenario.programs[self.session];
        let Session { call, step, room, .. } = *self.me();
        let op = calls.get(call);
        if self.is_around(level, op.is_some()) {
            return Some(());
        }
        let op = *op?;
        let is_last = match (op, step) {
            (Op::Insert, 0) => {
                let now = self.now();
                let there = |place| self.state.count(place, |version| now.is_there(version));
                let is_alone = there(Held) + there(Lane) == 0 && !self.is_taken(0);
                self.say
                    .say(|| format!("finds {} else", if is_alone { "nobody" } else { "somebody" }));
                self.me().room = usize::from(is_alone);
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
                self.state.turn = Some(self.session);
                self.admit();
                false
            }
            (Op::Fetch(_), 2) => {
                self.state.turn = None;
                let picked = &mut self.me().picked;
                let started: Vec<Id> = picked.drain(..room).collect();
                let is_last = picked.is_empty();
                self.say.say(|| format!("starts {}", numbers("job", &started)));
                for id in started {
                    if !self.has_turn(id) {
                        self.put(id, HasTurn);
                    }
                    self.put(id, Running);
                }
                is_last
            }
            (Op::Fetch(_), 3) => {
                let others = std::mem::take(&mut self.me().picked);
                self.say.say(|| format!("holds {}", numbers("job", &others)));
                others.into_iter().for_each(|id| self.put(id, Held));
                false
            }
            (Op::Complete, 0) => {
                let ended = self.take(&[Running], 1)?;
                self.say.say(|| format!("completes {}", numbers("job", &ended)));
                for id in &ended {
                    self.put(*id, Done);
                    if self.scenario.fault != Fault::KeepTurn {
                        self.end_turn(*id);
                    }
                }
                ended.is_empty()
            }
            (Op::Release, _) => {
                let ended = self.take(&[Running], 1)?;
                self.say.say(|| format!("releases {}", numbers("job", &ended)));
                for id in ended {
                    self.put(id, Released);
                    if self.scenario.fault == Fault::LoseTurn {
                        self.end_turn(id);
                    }
                }
                true
            }
            (Op::Cancel | Op::CancelHeld, 0) => {
                let from: &[Place] = if op == Op::Cancel { &[Lane, Released] } else { &[Held] };
                let ended = self.take(from, 1)?;
                self.say.say(|| format!("cancels {}", numbers("job", &ended)));
                for id in &ended {
                    self.put(*id, Done);
                    self.end_turn(*id);
                }
                ended.is_empty() || op == Op::CancelHeld
            }
            (Op::Sweep, 0) | (Op::Complete | Op::Cancel, 1) | (Op::Fetch(_), 4) => {
                self.look();
                false
            }
            (op, _) => {
                self.promote(op);
                true
            }
        };
        self.go_on(is_last);
        Some(())
    }
}

impl Protocol for Scenario {
    type State = State;
    const PROPERTIES: &'static [(&'static str, Holds<Self>)] = &[
        (ONE_TURN, has_one_turn),
        (IN_ORDER, is_in_order),
        (KEEPS_TURN, keeps_turn),
        (ONE_PLACE, is_in_one_place),
        (HANDED_ON_ONCE, is_handed_on_once),
        (NONE_WAITS, none_waits),
    ];

    fn begin(&self) -> State {
        let jobs = || (1..).zip(self.start);
        let started = jobs().filter(|(_, place)| [&Running, &Released].contains(place));
        let turns = started.map(|(id, _)| (id, HasTurn));
        let rows = jobs().map(|(id, place)| (id, *place)).chain(turns);
        let rows = rows.map(|row| Version::new(row, FROZEN)).collect();
        gate::begin(rows, self.programs.map(|(_, calls)| !calls.is_empty()))
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let takes_turn = |n: usize| {
            let Session { call, step, .. } = state.sessions[n];
            step == 1 && matches!(self.programs[n].1.get(call), Some(Op::Fetch(_)))
        };
        gate::actions(state, takes_turn, actions);
    }

    fn act(&self, state: &mut State, action: Action, say: &mut Say) {
        let turn = Turn { scenario: self, state, session: action.session(), say };
        gate::act(turn, action, Turn::step);
    }

    fn without_fault(self) -> Self {
        Scenario { fault: Fault::None, ..self }
    }
}

const ONE_TURN: &str = "no two jobs have the turn or run, whichever transactions commit";
const IN_ORDER: &str = "no job has the turn while an earlier one waits to start";
const KEEPS_TURN: &str = "a job that has started has the turn until it is final";
const ONE_PLACE: &str = "every job is in one place";
const HANDED_ON_ONCE: &str = "the turn is handed on once";
const NONE_WAITS: &str = "no job waits while nobody has the turn";

fn has_one_turn(_: &Exploration<Scenario>, state: &State) -> bool {
    [HasTurn, Running].iter().all(|place| at_most_in(state, &[*place]) <= 1)
}

/// For whoever has written that a job has the turn. Jobs that were there at the beginning became
/// available in the order of their ids, and before all others.
fn is_in_order(of: &Exploration<Scenario>, state: &State) -> bool {
    let is_there_at_start = |id: Id| usize::from(id) <= of.scenario.start.len();
    state.rows.iter().filter(|version| version.row.1 == HasTurn).all(|turn| {
        let view = View(state.committed | only(turn.by));
        let rows = || state.rows.iter().filter(|version| view.sees(version));
        let waits = |version: &&Version<(Id, Place)>| {
            let (id, place) = version.row;
            id < turn.row.0 && is_there_at_start(id) && [Lane, Held].contains(&place)
        };
        !view.sees(turn) || !rows().any(|version| waits(&version))
    })
}

fn keeps_turn(_: &Exploration<Scenario>, state: &State) -> bool {
    gate::views(state).all(|view| {
        let rows =
            || state.rows.iter().filter(|version| view.sees(version)).map(|version| version.row);
        let mut started = rows().filter(|(_, place)| [Running, Released].contains(place));
        started.all(|(id, _)| rows().any(|row| row == (id, HasTurn)))
    })
}

fn is_in_one_place(of: &Exploration<Scenario>, state: &State) -> bool {
    gate::is_in_one_place(state, of.scenario.start.len())
}

/// Where jobs are only fetched and completed.
fn is_handed_on_once(of: &Exploration<Scenario>, state: &State) -> bool {
    let Scenario { programs, start, .. } = of.scenario;
    let mut calls = programs.iter().flat_map(|(_, calls)| *calls);
    start.iter().filter(|place| **place != Held).count() > 1
        || !calls.all(|call| matches!(call, Op::Fetch(_) | Op::Complete))
        || at_most_in(state, &[Lane, HasTurn]) <= 1
}

/// Once everybody has ended, and after one sweep where more than one session was at work, nobody is
/// held if no job is in the lane or has the turn. If work goes on, every job ends.
fn none_waits(of: &Exploration<Scenario>, state: &State) -> bool {
    if state.sessions.iter().any(|session| !session.is_over) {
        return true;
    }
    let Scenario { programs, fault, .. } = of.scenario;
    let sweep = if fault == Fault::NoSweep { NOTHING } else { SWEEP };
    let alone = |program, state: &State| {
        let programs = [program, NOTHING, NOTHING, NOTHING];
        gate::alone(&Scenario { programs, ..of.scenario }, state)
    };
    let is_alone = programs.iter().filter(|(_, calls)| !calls.is_empty()).count() == 1;
    let mut state = if is_alone { state.clone() } else { alone(sweep, state) };
    let count = |place| state.count(place, |_| true);
    if count(Held) > 0 && count(Lane) + count(Released) + count(Running) == 0 {
        return false;
    }
    // A fetch may only have the head and another job change places.
    for _ in 0..2 * state.rows.len() {
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
const RELEASE: Program = (ReadCommitted, &[Op::Release]);
const CANCEL_HELD: Program = (ReadCommitted, &[Op::CancelHeld]);
const SWEEP: Program = (ReadCommitted, &[Op::Sweep]);
const PROGRAMS: &[Program] = &[
    NOTHING,
    INSERT,
    FETCH,
    FETCH_TWO,
    COMPLETE,
    RELEASE,
    (ReadCommitted, &[Op::Cancel]),
    CANCEL_HELD,
    SWEEP,
    (ReadCommitted, &[Op::Complete, Op::Fetch(1)]),
    (RepeatableRead, &[Op::Fetch(2)]),
    (RepeatableRead, &[Op::Complete, Op::Fetch(1)]),
];
const STARTS: &[&[Place]] =
    &[&[], &[Lane, Held], &[Running, Held, Held], &[Released, Held], &[Held, Held]];

/// All that is explored: a fetch, and a fetch, an end or maintenance, meet every two programs.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = vec![];
    for second in [FETCH, COMPLETE, SWEEP] {
        for (n, &third) in PROGRAMS.iter().enumerate() {
            for &fourth in &PROGRAMS[n..] {
                for start in STARTS {
                    all.extend([false, true].map(|is_fair| Scenario {
                        programs: [FETCH, second, third, fourth],
                        start,
                        is_fair,
                        fault: Fault::None,
                    }));
                }
            }
        }
    }
    all
}

const fn with(fault: Fault, programs: [Program; 3], start: &'static [Place]) -> Scenario {
    let [first, second, third] = programs;
    Scenario { programs: [first, second, third, NOTHING], start, is_fair: true, fault }
}

/// Mistakes that must be found.
pub const CONTROLS: &[Control<Scenario>] = &[
    Control {
        name: "taken-turn-not-heeded",
        why: "Fetches do not heed that a job has the turn. Job 1 runs, job 2 is in the lane.",
        scenario: with(Fault::Heedless, [FETCH, NOTHING, NOTHING], &[Running, Lane]),
        property: ONE_TURN,
    },
    Control {
        name: "turn-handed-on-twice",
        why: "The end of an attempt promotes two jobs. Job 1 runs, jobs 2 and 3 are held.",
        scenario: with(Fault::HandOnTwice, [COMPLETE, NOTHING, NOTHING], &[Running, Held, Held]),
        property: HANDED_ON_ONCE,
    },
    Control {
        name: "turn-lost-by-a-release",
        why: "A job that is released has its turn no longer. Job 1 runs.",
        scenario: with(Fault::LoseTurn, [RELEASE, NOTHING, NOTHING], &[Running, Held]),
        property: KEEPS_TURN,
    },
    Control {
        name: "turn-kept",
        why: "A job that is final keeps its turn. Job 1 runs, job 2 is held.",
        scenario: with(Fault::KeepTurn, [COMPLETE, NOTHING, NOTHING], &[Running, Held]),
        property: NONE_WAITS,
    },
    Control {
        name: "head-passed-over",
        why: "Maintenance passes over a held job that is locked, and a fetch does not see that it is held.\n\
              Jobs 1 and 2 are held.",
        scenario: with(Fault::PassOver, [CANCEL_HELD, SWEEP, FETCH], &[Held, Held]),
        property: IN_ORDER,
    },
    Control {
        name: "no-sweep-of-an-order",
        why: "Maintenance does not promote. An insert finds the turn taken, and the end of the attempt does not see the held job.\n\
              Job 1 runs.",
        scenario: with(Fault::NoSweep, [COMPLETE, INSERT, NOTHING], &[Running]),
        property: NONE_WAITS,
    },
];
