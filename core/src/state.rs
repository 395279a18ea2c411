//! The states of a job, and sets of them.

use std::fmt;

/// Where a job is in its life. The order is that of the SQL enum `jobs.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// May be fetched now.
    Available,
    /// Waits for its time.
    Scheduled,
    /// Waits to be activated by a caller.
    Pending,
    /// Held by a worker under a lease.
    Running,
    /// Failed with attempts left; waits for its next try.
    Retryable,
    /// Done. Final.
    Completed,
    /// Given up by a caller. Final.
    Cancelled,
    /// Given up by the system: out of attempts, not retryable, or expired. Final.
    Discarded,
}

impl State {
    /// Every state, in order.
    pub const ALL: [State; 8] = [
        State::Available,
        State::Scheduled,
        State::Pending,
        State::Running,
        State::Retryable,
        State::Completed,
        State::Cancelled,
        State::Discarded,
    ];

    /// The final ones, in order.
    pub const FINAL: [State; 3] = [State::Completed, State::Cancelled, State::Discarded];

    /// Every state's name, in order.
    pub(crate) const NAMES: [&str; 8] = [
        "available",
        "scheduled",
        "pending",
        "running",
        "retryable",
        "completed",
        "cancelled",
        "discarded",
    ];

    /// The state's name in SQL and JSON.
    pub const fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The state of that name, exactly as [`as_str`](Self::as_str) spells it.
    #[expect(
        clippy::should_implement_trait,
        reason = "an unknown name is worded by the caller, not by an error type"
    )]
    pub fn from_str(name: &str) -> Option<State> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether nothing happens to the job any more by itself; exactly then it has a `finalized_at`.
    pub const fn is_final(self) -> bool {
        self.final_number().is_some()
    }

    /// Which of the [`FINAL`](Self::FINAL) ones it is, from 0.
    pub const fn final_number(self) -> Option<usize> {
        (self as usize).checked_sub(State::Completed as usize)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of states.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct States(u8);

impl States {
    /// The states in which an existing job counts as a duplicate unless the policy says otherwise:
    /// all but cancelled and discarded.
    pub const DEFAULT_UNIQUE: States = States::of(&[
        State::Available,
        State::Scheduled,
        State::Pending,
        State::Running,
        State::Retryable,
        State::Completed,
    ]);

    /// No state.
    pub const fn empty() -> Self {
        Self(0)
    }

    /// The states of a list; their order and repetition say nothing.
    pub const fn of(states: &[State]) -> Self {
        let mut set = Self::empty();
        let mut i = 0;
        while i < states.len() {
            set.insert(states[i]);
            i += 1;
        }
        set
    }

    /// Whether the state is one of them.
    pub const fn contains(self, state: State) -> bool {
        self.0 & (1 << state as u8) != 0
    }

    /// Adds a state; one that is there already changes nothing.
    pub const fn insert(&mut self, state: State) {
        self.0 |= 1 << state as u8;
    }

    /// The final states among them in a number: 1 is completed, 2 cancelled, 4 discarded.
    pub const fn final_bits(self) -> u8 {
        self.0 >> State::Completed as u8
    }

    /// The final states of such a number.
    pub const fn of_final_bits(bits: u8) -> Self {
        Self((bits & 7) << State::Completed as u8)
    }

    /// Whether there is no state in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The states in order.
    pub fn iter(self) -> impl Iterator<Item = State> {
        State::ALL.into_iter().filter(move |state| self.contains(*state))
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_states_are_bits() {
        for (states, bits) in [
            (States::DEFAULT_UNIQUE, 1),
            (States::of(&[State::Cancelled, State::Running]), 2),
            (States::of(&[State::Discarded]), 4),
            (States::of(&State::ALL), 7),
            (States::empty(), 0),
        ] {
            assert_eq!(states.final_bits(), bits, "{states:?}");
            let of_bits: Vec<State> = states.iter().filter(|state| state.is_final()).collect();
            assert_eq!(States::of_final_bits(bits), States::of(&of_bits));
        }
    }

    #[test]
    fn names_go_both_ways() {
        for state in State::ALL {
            assert_eq!(State::from_str(state.as_str()), Some(state));
            assert_eq!(format!("{state:?}").to_lowercase(), state.as_str());
        }
        assert_eq!(State::from_str("Running"), None);
        assert_eq!(State::from_str(""), None);
    }

    #[test]
    fn three_states_are_final() {
        let last: Vec<_> = State::ALL.into_iter().filter(|state| state.is_final()).collect();
        assert_eq!(last, [State::Completed, State::Cancelled, State::Discarded]);
        assert_eq!(last, State::FINAL);
        let numbers: Vec<_> = State::ALL.into_iter().filter_map(State::final_number).collect();
        assert_eq!(numbers, [0, 1, 2]);
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let mut states = States::empty();
        assert!(states.is_empty());
        states.insert(State::Running);
        states.insert(State::Available);
        states.insert(State::Running);
        assert!(!states.is_empty());
        assert_eq!(states.iter().collect::<Vec<_>>(), [State::Available, State::Running]);
        assert_eq!(states, States::of(&[State::Running, State::Available]));
        assert_eq!(States::of(&State::ALL).iter().collect::<Vec<_>>(), State::ALL);
    }

    #[test]
    fn the_default_leaves_out_cancelled_and_discarded() {
        for state in State::ALL {
            let left_out = matches!(state, State::Cancelled | State::Discarded);
            assert_eq!(States::DEFAULT_UNIQUE.contains(state), !left_out);
        }
    }
}
