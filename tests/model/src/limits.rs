//! Limits by key, as a second protocol: fetches take permits in turn, jobs without one are held,
//! and the ends of attempts hand their places on (`src/store/permits.rs`). One limit, one key, one
//! queue and kind; each session is one transaction.

use crate::database::{FROZEN, Id, Version};
use crate::explore::{Action, Exploration, Protocol};
use crate::gate::{self, Place, SESSIONS, Session, State, Turn, at_most_in, xid_of};
use crate::properties::Holds;
use crate::scenario::LAST_AT_START;
use crate::scenario::Level::{self, ReadCommitted, RepeatableRead};
use crate::scenarios::Control;
use crate::transaction::{Say, numbers};

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

impl Turn<'_, Scenario> {
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
        let Session { call, step, room, .. } = *self.me();
        let op = calls.get(call);
        if self.is_around(level, op.is_some()) {
            return Some(());
        }
        let op = op?;
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
        self.go_on(is_last);
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
        gate::begin(rows.collect(), self.programs.map(|(_, calls)| !calls.is_empty()))
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

const AT_MOST: &str = "no more jobs run than may, whichever transactions commit";
const ONE_PLACE: &str = "every job is in one place";
const HANDED_ON_ONCE: &str = "every place is handed on once";
const NONE_WAITS: &str = "no job waits while there is room";

fn at_most(of: &Exploration<Scenario>, state: &State) -> bool {
    at_most_in(state, &[Running]) <= of.scenario.limit
}

fn is_in_one_place(of: &Exploration<Scenario>, state: &State) -> bool {
    gate::is_in_one_place(state, of.scenario.start.len())
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
        let programs = [program, NOTHING, NOTHING, NOTHING];
        gate::alone(&Scenario { programs, ..of.scenario }, state)
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
