//! Strict orders by key, as a third protocol: a job has the turn of its key from its start until it
//! is final, other jobs are held, and the head is handed over (`src/store/turns.rs`). One key; each
//! session is one transaction.

use Place::{Held, Lane, Released, Running, Turn as HasTurn};

use crate::database::{Id, Version, View, only};
use crate::explore::Exploration;
use crate::gate::{
    self, COMPLETE, FETCH, Fault, Gate, HANDED_ON_ONCE, INSERT, NONE_WAITS, NOTHING, ONE_PLACE, Op,
    PROGRAMS, Place, Program, RELEASE, SWEEP, Scenario, State, Turn, at_most_in, is_handed_on_once,
    is_in_one_place, none_waits, xid_of,
};
use crate::properties::Holds;
use crate::scenario::Level::ReadCommitted;
use crate::scenarios::Control;
use crate::transaction::numbers;

/// One job at a time.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Positions in the lane say nothing of the order: a fetch does not compare them with those of
    /// held jobs.
    is_fair: bool,
}

impl Turn<'_, Order> {
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
}

impl Gate for Order {
    const PROPERTIES: &'static [(&'static str, Holds<Scenario<Self>>)] = &[
        (ONE_TURN, has_one_turn),
        (IN_ORDER, is_in_order),
        (KEEPS_TURN, keeps_turn),
        (ONE_PLACE, is_in_one_place),
        (HANDED_ON_ONCE, is_handed_on_once),
        (NONE_WAITS, none_waits),
    ];
    const COUNTED: &'static [Place] = &[Lane, HasTurn];

    fn limit(&self) -> usize {
        1
    }

    fn has_turn(place: Place) -> bool {
        [Running, Released].contains(&place)
    }

    fn hands_on(op: Op) -> bool {
        !matches!(op, Op::Release | Op::CancelHeld)
    }

    fn room_to_insert(turn: &Turn<Self>) -> usize {
        let now = turn.now();
        let there = |place| turn.state.count(place, |version| now.is_there(version));
        usize::from(there(Held) + there(Lane) == 0 && !turn.is_taken(0))
    }

    fn admit(turn: &mut Turn<Self>) {
        let now = turn.now();
        let picked = std::mem::take(&mut turn.me().picked);
        let (mut admitted, mut others): (Vec<Id>, Vec<Id>) =
            picked.into_iter().partition(|id| turn.has_turn(*id));
        if let Some(first) = others.first().copied() {
            let is_before = |place| {
                let is =
                    |version: &Version<(Id, Place)>| version.row.0 < first && now.sees(version);
                turn.state.count(place, is) > 0
            };
            let is_behind = is_before(Lane) || !turn.scenario.gate.is_fair && is_before(Held);
            let is_given = !admitted.is_empty() && turn.scenario.fault != Fault::Heedless;
            if !is_given && !turn.is_taken(first) && !is_behind {
                admitted.push(others.remove(0));
            }
        }
        turn.say.say(|| format!("gives the turn to {}", numbers("job", &admitted)));
        turn.me().room = admitted.len();
        admitted.extend(others);
        turn.me().picked = admitted;
    }

    fn look(turn: &mut Turn<Self>) {
        let is_taken = turn.is_taken(0);
        turn.me().room = usize::from(!is_taken);
        turn.say.say(|| format!("finds the turn {}", if is_taken { "taken" } else { "free" }));
    }

    /// The head, if nobody is in the lane. Nobody is passed over.
    fn take_held(turn: &mut Turn<Self>, op: Op) -> Option<Vec<Id>> {
        let (now, view) = (turn.now(), turn.view());
        let in_lane = turn.state.count(Lane, |version| match op {
            Op::Sweep => view.sees(version),
            _ => now.is_there(version),
        });
        let most = turn.most(op, in_lane);
        let seen = if op == Op::Sweep { view } else { now };
        let xid = xid_of(turn.session);
        let rows = turn.state.rows.iter_mut();
        let mut held: Vec<_> =
            rows.filter(|version| version.row.1 == Held && seen.sees(version)).collect();
        held.sort_unstable_by_key(|version| version.row.0);
        let is_free = |version: &Version<(Id, Place)>| version.gone.is_none();
        let mut taken = Vec::new();
        for version in held {
            if taken.len() == most || !is_free(version) && turn.scenario.fault != Fault::PassOver {
                break;
            }
            if is_free(version) {
                version.gone = Some(xid);
                taken.push(version.row.0);
            }
        }
        Some(taken)
    }

    fn starts(turn: &mut Turn<Self>, id: Id) {
        if !turn.has_turn(id) {
            turn.put(id, HasTurn);
        }
    }

    fn ends(turn: &mut Turn<Self>, id: Id, op: Op) {
        let keeps = match op {
            Op::Release => turn.scenario.fault != Fault::LoseTurn,
            Op::Complete => turn.scenario.fault == Fault::KeepTurn,
            _ => false,
        };
        let (now, xid) = (turn.now(), xid_of(turn.session));
        let is_own =
            |version: &&mut Version<(Id, Place)>| version.row == (id, HasTurn) && now.sees(version);
        if let Some(version) = turn.state.rows.iter_mut().find(is_own).filter(|_| !keeps) {
            version.gone = Some(xid);
        }
    }
}

const ONE_TURN: &str = "no two jobs have the turn or run, whichever transactions commit";
const IN_ORDER: &str = "no job has the turn while an earlier one waits to start";
const KEEPS_TURN: &str = "a job that has started has the turn until it is final";

fn has_one_turn(_: &Exploration<Scenario<Order>>, state: &State) -> bool {
    [HasTurn, Running].iter().all(|place| at_most_in(state, &[*place]) <= 1)
}

/// For whoever has written that a job has the turn. Jobs that were there at the beginning became
/// available in the order of their ids, and before all others.
fn is_in_order(of: &Exploration<Scenario<Order>>, state: &State) -> bool {
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

fn keeps_turn(_: &Exploration<Scenario<Order>>, state: &State) -> bool {
    gate::views(state).all(|view| {
        let rows =
            || state.rows.iter().filter(|version| view.sees(version)).map(|version| version.row);
        let mut started = rows().filter(|(_, place)| Order::has_turn(*place));
        started.all(|(id, _)| rows().any(|row| row == (id, HasTurn)))
    })
}

const CANCEL_HELD: Program = (ReadCommitted, &[Op::CancelHeld]);
const STARTS: &[&[Place]] =
    &[&[], &[Lane, Held], &[Running, Held, Held], &[Released, Held], &[Held, Held]];

/// All that is explored.
pub fn scenarios() -> Vec<Scenario<Order>> {
    let cancels = [(ReadCommitted, &[Op::Cancel] as &[Op]), CANCEL_HELD];
    let both = |&start| [false, true].map(|is_fair| (Order { is_fair }, start));
    let starts: Vec<_> = STARTS.iter().flat_map(both).collect();
    gate::scenarios(&[FETCH, COMPLETE, SWEEP], &[PROGRAMS, &cancels].concat(), &starts)
}

const fn with(fault: Fault, programs: [Program; 3], start: &'static [Place]) -> Scenario<Order> {
    Scenario::with(Order { is_fair: true }, fault, programs, start)
}

/// Mistakes that must be found.
pub const CONTROLS: &[Control<Scenario<Order>>] = &[
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
