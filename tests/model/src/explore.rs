//! What may happen in a state: one session takes one step, or its transaction is rolled back, or it
//! is gone.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Model, Property};

use crate::database::{A, B, Id, KEYS, Key};
use crate::properties::{self, Holds, PROPERTIES};
use crate::scenario::{Fault, LAST_AT_START, Op, Scenario};
use crate::session::{Decision, Session, Step};
use crate::transaction::{Say, State, Turn};

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The session takes its next step. The number selects one of several outcomes.
    Step(u8, u8),
    /// The transaction of the session is rolled back.
    RollBack(u8),
    /// The session crashes.
    Crash(u8),
}

impl Action {
    /// Whose it is.
    pub fn session(self) -> usize {
        match self {
            Action::Step(session, _) | Action::RollBack(session) | Action::Crash(session) => {
                session as usize
            }
        }
    }
}

impl Scenario {
    /// The call that a session is in, or begins next.
    pub fn call(&self, session: usize, at: &Session) -> Option<Op> {
        let (_, calls) = self.programs[session].get(at.transaction as usize)?;
        calls.get(at.call as usize).copied()
    }

    /// How many things may happen when a session takes its next step.
    fn choices(&self, state: &State, session: usize) -> u8 {
        let me = &state.sessions[session];
        let call = self.call(session, me);
        let misses = |keys: &[Key]| {
            let own = me.own();
            let database = &state.database;
            let is_updated = |key: &Key| {
                let mut claims = database.claims[key.0 as usize].iter();
                claims.any(|version| {
                    version.moved && version.gone.is_some_and(|gone| database.is_open(gone, own))
                })
            };
            1 + u8::from(keys.iter().any(is_updated))
        };
        match (me.step, call) {
            (Step::Next, Some(op @ (Op::Complete(_) | Op::Retry(_) | Op::Delete(_)))) => {
                // It sees what it would see, and nothing comes of that.
                let mut state = state.clone();
                let mut say = Say::nothing();
                let mut turn = self.turn(&mut state, session, 0, &mut say);
                (turn.candidates(op).len() as u8).max(1)
            }
            (Step::Next, Some(Op::Batch(_))) => misses(&[A, B]),
            (Step::LookAtClaim(key), _) => misses(&[key]),
            _ => 1,
        }
    }

    fn turn<'a>(
        &'a self,
        state: &'a mut State,
        session: usize,
        choice: u8,
        say: &'a mut Say,
    ) -> Turn<'a> {
        Turn { scenario: self, state, session, choice: choice as usize, say }
    }

    /// Who did not want to wait remembers who was at work meanwhile; and what makes no difference
    /// any more is forgotten: who wrote what everybody sees, and by how much numbers differ.
    fn settle(&self, state: &mut State) {
        let mut say = Say::nothing();
        for session in 0..state.sessions.len() {
            self.turn(state, session, 0, &mut say).note_rivals();
        }
        let snapshots = state.sessions.iter().filter_map(|session| session.snapshot);
        let seen_by_all = snapshots.fold(state.database.committed, |all, seen| all & seen);
        for snapshot in state.sessions.iter_mut().filter_map(|session| session.snapshot.as_mut()) {
            *snapshot &= !seen_by_all;
        }
        let mut targets = [[None; KEYS]; 3];
        for (target, session) in targets.iter_mut().zip(&state.sessions) {
            *target = session.target;
        }
        state.database.freeze(seen_by_all, &mut targets);
        for (target, session) in targets.into_iter().zip(&mut state.sessions) {
            session.target = target;
        }
        state
            .database
            .jobs
            .sort_unstable_by_key(|version| (version.row.id, version.gone.is_none()));
        state.database.notes.sort_unstable();
        let mut used = 0u64;
        state.numbers(|number| used |= 1 << *number);
        let later = used >> (LAST_AT_START + 1) << (LAST_AT_START + 1);
        if later & (later + (1 << (LAST_AT_START + 1))) != 0 {
            state.numbers(|number| {
                if *number > LAST_AT_START {
                    let below = (later & ((1 << *number) - 1)).count_ones() as u8;
                    *number = LAST_AT_START + 1 + below;
                }
            });
            state.database.notes.sort_unstable();
        }
    }
}

impl State {
    /// All numbers of the sequence that stand somewhere.
    fn numbers(&mut self, mut work: impl FnMut(&mut Id)) {
        self.database.numbers(&mut work);
        for session in &mut self.sessions {
            work(&mut session.job);
            session.pruned.iter_mut().for_each(|(_, id)| work(id));
            for item in &mut session.items {
                work(&mut item.id);
                if let Decision::Existing(id) = &mut item.decision {
                    work(id);
                }
                for seen in &mut item.seen {
                    work(&mut seen.id);
                    if let Some((_, finalized_at)) = &mut seen.job {
                        work(finalized_at);
                    }
                }
                item.returns.iter_mut().for_each(&mut work);
            }
        }
    }
}

impl Turn<'_> {
    /// The next number of the sequence.
    pub fn next_number(&mut self) -> Id {
        let mut last = LAST_AT_START;
        self.state.numbers(|number| last = last.max(*number));
        last + 1
    }

    /// Takes the next step.
    pub fn step(&mut self) {
        let call = self.scenario.call(self.session, &self.state.sessions[self.session]);
        match self.me().step {
            Step::Next => match call {
                None => self.commit(),
                Some(Op::Insert(new)) => self.begin_insert(&[new]),
                Some(Op::Batch(new)) => self.begin_insert(&new),
                Some(Op::Prune) => self.begin_prune(),
                Some(Op::Claims) => self.begin_claims_task(),
                Some(op) => self.begin_move(op),
            },
            Step::FindClaims => self.find_claims(),
            Step::Look(why) => self.look(why),
            Step::LookAtAll(why) => self.look_at_all(why),
            Step::TakeLock(has_waited) => self.take_lock(has_waited),
            Step::TryLock => self.try_lock(),
            Step::InsertWithClaim => self.insert_with_claim(),
            Step::InsertTogether(at) => self.insert_together(at),
            Step::InsertDirectly(at, which) => self.insert_directly(at, which),
            Step::LockDirectly(at, which) => self.lock_directly(at, which),
            Step::LockNewest(at, which) => self.lock_newest(at, which),
            Step::ByStatement(at) => self.by_statement(at),
            Step::IsInProgress(at) => self.is_in_progress(at),
            Step::IsLocked(at) => self.is_locked(at),
            Step::TryByStatement(at) => self.try_by_statement(at),
            Step::Write => self.write(),
            Step::Chase => self.move_job(call.expect("it moves a job")),
            Step::LookAtClaim(key) => self.look_at_claim(key),
            Step::LookAtNotes(key) => self.look_at_notes(key),
            Step::DeleteClaim(key) => self.delete_claim(key),
            Step::LockClaims => self.lock_claims(),
            Step::Tidy => self.tidy(),
            Step::Reap => self.reap(),
            Step::ReapNewest(key) => self.reap_newest(key),
            Step::Ended => unreachable!("it has ended"),
        }
    }
}

impl Protocol for Scenario {
    type State = State;
    const PROPERTIES: &'static [(&'static str, Holds<Self>)] = PROPERTIES;

    fn begin(&self) -> State {
        let session = |n: usize| Session {
            step: if self.programs[n].is_empty() { Step::Ended } else { Step::Next },
            ..Session::default()
        };
        State {
            database: self.start.database(),
            sessions: [session(0), session(1), session(2)],
            wrong: None,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, session) in state.sessions.iter().enumerate() {
            if session.step == Step::Ended {
                continue;
            }
            let number = n as u8;
            if session.wait.is_none() {
                let choices = self.choices(state, n);
                actions.extend((0..choices).map(|choice| Action::Step(number, choice)));
            }
            let has_begun = session.step != Step::Next || session.call > 0;
            let has_more = session.transaction as usize + 1 < self.programs[n].len();
            if has_begun && has_more {
                actions.push(Action::RollBack(number));
            }
            if has_begun {
                actions.push(Action::Crash(number));
            }
        }
    }

    fn act(&self, state: &mut State, action: Action, say: &mut Say) {
        match action {
            Action::Step(session, choice) => {
                self.turn(state, session as usize, choice, say).step();
            }
            Action::RollBack(session) => {
                say.say(|| "is rolled back".into());
                self.turn(state, session as usize, 0, say).roll_back();
            }
            Action::Crash(session) => {
                say.say(|| "is gone, and rolled back".into());
                self.turn(state, session as usize, 0, say).crash();
            }
        }
        self.settle(state);
    }

    fn without_fault(self) -> Self {
        Scenario { fault: Fault::None, ..self }
    }
}

/// A protocol that can be explored: one scenario of it.
pub trait Protocol: Copy + Debug + Send + Sync + 'static {
    /// What the sessions and the database are in.
    type State: Clone + Debug + Eq + Hash + Send + Sync + 'static;
    /// What must be true in every state.
    const PROPERTIES: &'static [(&'static str, Holds<Self>)];

    /// How it begins.
    fn begin(&self) -> Self::State;
    /// What may happen next.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Action>);
    /// Does it, and says what it was.
    fn act(&self, state: &mut Self::State, action: Action, say: &mut Say);
    /// The scenario without its injected fault.
    fn without_fault(self) -> Self;
}

/// What is explored, and which properties are asked for.
pub struct Exploration<P> {
    /// The scenario to explore.
    pub scenario: P,
    /// The only property to check. `None` checks all properties.
    pub property: Option<&'static str>,
}

impl<P: Protocol> Model for Exploration<P> {
    type State = P::State;
    type Action = Action;

    fn init_states(&self) -> Vec<P::State> {
        vec![self.scenario.begin()]
    }

    fn actions(&self, state: &P::State, actions: &mut Vec<Action>) {
        self.scenario.actions(state, actions);
    }

    fn next_state(&self, state: &P::State, action: Action) -> Option<P::State> {
        let mut next = state.clone();
        self.scenario.act(&mut next, action, &mut Say::nothing());
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let is_asked = |(name, _): &&(&str, _)| self.property.is_none_or(|asked| asked == *name);
        let asked = P::PROPERTIES.iter().filter(is_asked);
        asked.map(|(name, holds)| Property::always(name, *holds)).collect()
    }
}

/// The database once maintenance has nothing left to do, with nobody else at work.
pub fn maintained(scenario: &Scenario, state: &State) -> State {
    let alone = Scenario { programs: [properties::MAINTENANCE, &[], &[]], ..*scenario };
    let mut state = State { database: state.database.clone(), ..alone.begin() };
    loop {
        let before = state.database.clone();
        state.sessions = alone.begin().sessions;
        while state.sessions[0].step != Step::Ended {
            alone.act(&mut state, Action::Step(0, 0), &mut Say::nothing());
        }
        if state.database == before {
            return state;
        }
    }
}
