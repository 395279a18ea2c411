//! Limits by key, as a second protocol: fetches take permits in turn, jobs without one are held,
//! and the ends of attempts hand their places on (`src/store/permits.rs`). One limit, one key, one
//! queue and kind; each session is one transaction.

use crate::database::Id;
use crate::explore::Exploration;
use crate::gate::{
    self, COMPLETE, FETCH, Fault, Gate, HANDED_ON_ONCE, INSERT, NONE_WAITS, NOTHING, ONE_PLACE, Op,
    PROGRAMS, Place, Program, Scenario, State, Turn, at_most_in, is_handed_on_once,
    is_in_one_place, none_waits,
};
use crate::properties::Holds;
use crate::scenarios::Control;

use Place::{Held, Lane, Released, Running};

/// How many jobs may run.
#[derive(Clone, Copy, Debug)]
pub struct Limit(usize);

impl Gate for Limit {
    const PROPERTIES: &'static [(&'static str, Holds<Scenario<Self>>)] = &[
        (AT_MOST, at_most),
        (ONE_PLACE, is_in_one_place),
        (HANDED_ON_ONCE, is_handed_on_once),
        (NONE_WAITS, none_waits),
    ];
    const COUNTED: &'static [Place] = &[Lane, Running];

    fn limit(&self) -> usize {
        self.0
    }

    fn hands_on(op: Op) -> bool {
        !matches!(op, Op::Fetch(_))
    }

    fn room_to_insert(turn: &Turn<Self>) -> usize {
        let now = turn.now();
        let there = |place| turn.state.count(place, |version| now.is_there(version));
        if there(Held) > 0 { 0 } else { turn.scenario.gate.0.saturating_sub(there(Lane)) }
    }

    fn admit(turn: &mut Turn<Self>) {
        Self::look(turn);
    }

    /// By a dirty look.
    fn look(turn: &mut Turn<Self>) {
        let (now, Scenario { gate: Limit(limit), fault, .. }) = (turn.now(), *turn.scenario);
        let running = turn.state.count(Running, |version| match fault {
            Fault::CountCommitted => now.sees(version),
            _ => now.is_there(version),
        });
        turn.me().room = limit.saturating_sub(running);
        turn.say.say(|| format!("finds {running} of {limit} places taken"));
    }

    fn take_held(turn: &mut Turn<Self>, op: Op) -> Option<Vec<Id>> {
        let view = turn.view();
        let in_lane = turn.state.count(Lane, |version| view.sees(version));
        let most = turn.most(op, in_lane);
        turn.take(&[Held], most)
    }
}

const AT_MOST: &str = "no more jobs run than may, whichever transactions commit";

fn at_most(of: &Exploration<Scenario<Limit>>, state: &State) -> bool {
    at_most_in(state, &[Running]) <= of.scenario.gate.0
}

const STARTS: &[(Limit, &[Place])] = &[
    (Limit(1), &[]),
    (Limit(1), &[Running, Held, Held]),
    (Limit(1), &[Lane, Held]),
    (Limit(1), &[Running, Lane, Released]),
    (Limit(2), &[Running, Running, Held]),
    (Limit(2), &[Running, Lane, Held]),
    (Limit(2), &[Running, Lane, Lane]),
];

/// All that is explored.
pub fn scenarios() -> Vec<Scenario<Limit>> {
    gate::scenarios(&[FETCH, COMPLETE], PROGRAMS, STARTS)
}

const fn with(fault: Fault, programs: [Program; 3], start: &'static [Place]) -> Scenario<Limit> {
    Scenario::with(Limit(1), fault, programs, start)
}

/// Mistakes that must be found.
pub const CONTROLS: &[Control<Scenario<Limit>>] = &[
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
