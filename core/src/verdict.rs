//! Whether a new job is a duplicate of those that were inserted under the same key.

use crate::policy::Policy;
use crate::state::State;

/// An existing job that was inserted as unique under the new job's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The job's id; later jobs have higher ones.
    pub id: i64,
    /// The state it is in.
    pub state: State,
    /// Whether it is final and past its retention: it counts as gone, pruned or not.
    pub expired: bool,
}

/// What is to be done with a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing conflicts with it.
    Insert,
    /// An existing job conflicts with it: the newest that does.
    Duplicate {
        /// The existing job's id.
        id: i64,
        /// The state it is in.
        state: State,
    },
}

/// Decides by the new job's policy; what existing jobs were inserted with does not matter.
pub fn decide(policy: &Policy, members: &[Member]) -> Verdict {
    members
        .iter()
        .filter(|member| !member.expired && policy.by_state.contains(member.state))
        .max_by_key(|member| member.id)
        .map_or(Verdict::Insert, |member| Verdict::Duplicate {
            id: member.id,
            state: member.state,
        })
}

/// The jobs under a key, now that another one joins them: those that have to be at hand, and those
/// that can be put aside, because they are past their retention or a newer job in the same final
/// state answers for them. One that comes back by a retry is at hand again.
///
/// This is what keeps the list short, however often a key is used within its retention.
pub fn fold(members: &[Member]) -> (Vec<i64>, Vec<i64>) {
    let superseded = |member: &Member| {
        member.state.is_final()
            && members
                .iter()
                .any(|other| other.state == member.state && other.id > member.id && !other.expired)
    };
    let (kept, aside): (Vec<&Member>, Vec<&Member>) = members
        .iter()
        .partition(|member| !member.expired && !superseded(member));
    let ids = |members: Vec<&Member>| members.into_iter().map(|member| member.id).collect();
    (ids(kept), ids(aside))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy;

    fn decide(by_state: &[&str], members: &[(i64, State, bool)]) -> Verdict {
        let policy = policy::parse(&json!({ "by_kind": true, "by_state": by_state }), &|_| None)
            .unwrap()
            .unwrap();
        let members: Vec<_> = members
            .iter()
            .map(|&(id, state, expired)| Member { id, state, expired })
            .collect();
        super::decide(&policy, &members)
    }

    #[test]
    fn only_states_of_the_policy_conflict() {
        assert_eq!(decide(&["running"], &[]), Verdict::Insert);
        assert_eq!(
            decide(
                &["running"],
                &[(1, State::Available, false), (2, State::Completed, false)]
            ),
            Verdict::Insert
        );
        assert_eq!(
            decide(&["discarded"], &[(1, State::Discarded, false)]),
            Verdict::Duplicate {
                id: 1,
                state: State::Discarded
            }
        );
    }

    #[test]
    fn the_newest_that_conflicts_is_answered_with() {
        assert_eq!(
            decide(
                &["running", "available"],
                &[
                    (4, State::Completed, false),
                    (1, State::Running, false),
                    (3, State::Available, false),
                    (2, State::Running, false)
                ]
            ),
            Verdict::Duplicate {
                id: 3,
                state: State::Available
            }
        );
    }

    #[test]
    fn an_expired_job_is_gone() {
        assert_eq!(
            decide(&["completed"], &[(1, State::Completed, true)]),
            Verdict::Insert
        );
        assert_eq!(
            decide(
                &["completed"],
                &[(2, State::Completed, true), (1, State::Completed, false)]
            ),
            Verdict::Duplicate {
                id: 1,
                state: State::Completed
            }
        );
    }

    #[test]
    fn folding_keeps_live_jobs_and_the_newest_of_each_final_state() {
        let member = |id, state, expired| Member { id, state, expired };
        let members = [
            member(1, State::Completed, false),
            member(2, State::Completed, false),
            member(3, State::Completed, true),
            member(4, State::Discarded, false),
            member(5, State::Running, false),
            member(6, State::Running, false),
            member(7, State::Cancelled, true),
        ];
        assert_eq!(fold(&members), (vec![2, 4, 5, 6], vec![1, 3, 7]));
        assert_eq!(fold(&[]), (vec![], vec![]));
    }
}
