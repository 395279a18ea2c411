//! What is decided of a new job, and which jobs a key still has to know.

use std::collections::BTreeSet;

use jobs_core::interval::Interval;
use jobs_core::policy::{
    Field, Fields, Hold, HoldUntil, OnConflict, Policy, Replace, Updates, Window, WindowFrom,
};
use jobs_core::state::{State, States};
use jobs_core::verdict::{Existing, Holder, Job, Verdict, decide, fold};
use proptest::prelude::*;
use proptest::sample::select;

/// A job that is there, inserted and due at the time that is its id, kept for ever.
fn holder(id: i64, state: State) -> Holder {
    at(id, state, [id, id, i64::MAX])
}

fn at(id: i64, state: State, [created_at, scheduled_at, finalized_at]: [i64; 3]) -> Holder {
    let job = Job { state, created_at, scheduled_at, finalized_at, queue: 0, kept_until: i64::MIN };
    Holder { id, job: Some(job), holds: false }
}

fn holding(holder: Holder) -> Holder {
    Holder { holds: true, ..holder }
}

fn gone(id: i64) -> Holder {
    Holder { id, job: None, holds: false }
}

fn by_state(states: &[State]) -> Policy {
    Policy { by_state: States::of(states), ..Policy::default() }
}

fn on_conflict(policy: Policy, on_conflict: OnConflict) -> Policy {
    Policy { on_conflict, ..policy }
}

fn replace(except_schedule: bool, reject_final: bool) -> OnConflict {
    OnConflict::Replace(Replace { except_schedule, reject_final })
}

fn skip(id: i64, state: impl Into<Option<State>>) -> Verdict {
    let state = state.into();
    Verdict::Skip(Existing { id, state })
}

fn reject(id: i64, state: impl Into<Option<State>>) -> Verdict {
    let state = state.into();
    Verdict::Reject(Existing { id, state })
}

#[test]
fn only_states_of_the_new_policy_conflict() {
    for state in State::ALL {
        for other in State::ALL {
            let expected = if state == other { skip(1, state) } else { Verdict::Insert };
            assert_eq!(decide(&by_state(&[state]), &[holder(1, other)], None), expected);
        }
    }
    assert_eq!(decide(&Policy::default(), &[], None), Verdict::Insert);
    assert_eq!(decide(&by_state(&[]), &[holder(1, State::Running)], None), Verdict::Insert);
}

#[test]
fn the_newest_that_conflicts_is_answered_with() {
    let holders = [
        holder(4, State::Completed),
        holder(1, State::Running),
        holder(3, State::Available),
        holder(2, State::Running),
    ];
    let policy = by_state(&[State::Running, State::Available]);
    assert_eq!(decide(&policy, &holders, None), skip(3, State::Available));
    let policy = on_conflict(policy, OnConflict::Reject);
    assert_eq!(decide(&policy, &holders, None), reject(3, State::Available));
}

#[test]
fn only_younger_jobs_conflict() {
    let job = at(1, State::Running, [10, 20, i64::MAX]);
    for (from, cutoff, conflicts) in [
        (WindowFrom::CreatedAt, 9, true),
        (WindowFrom::CreatedAt, 10, false),
        (WindowFrom::CreatedAt, 19, false),
        (WindowFrom::ScheduledAt, 10, true),
        (WindowFrom::ScheduledAt, 19, true),
        (WindowFrom::ScheduledAt, 20, false),
    ] {
        let policy = Policy {
            window: Some(Window { length: Interval::of_micros(1), from }),
            ..Policy::default()
        };
        let expected = if conflicts { skip(1, State::Running) } else { Verdict::Insert };
        assert_eq!(decide(&policy, &[job], Some(cutoff)), expected);
        // A window that goes back beyond all time.
        assert_eq!(decide(&policy, &[job], None), skip(1, State::Running));
        // The window does not matter to a hold.
        assert_eq!(decide(&policy, &[holding(job)], Some(cutoff)), skip(1, State::Running));
    }
    // Without a window nothing is too old.
    assert_eq!(decide(&Policy::default(), &[job], Some(99)), skip(1, State::Running));
}

#[test]
fn a_hold_conflicts_in_every_state_and_after_it() {
    let policy = by_state(&[]);
    for state in State::ALL {
        assert_eq!(decide(&policy, &[holding(holder(1, state))], None), skip(1, state));
    }
    assert_eq!(decide(&policy, &[holding(gone(1))], None), skip(1, None));
    assert_eq!(decide(&policy, &[gone(1)], None), Verdict::Insert);
    assert_eq!(
        decide(
            &on_conflict(Policy::default(), OnConflict::Reject),
            &[holding(gone(2)), holder(1, State::Running)],
            None
        ),
        reject(2, None)
    );
    // The new job's own hold says nothing about others.
    let own = Policy {
        hold: Some(Hold { length: Interval::of_micros(1), until: HoldUntil::Success }),
        ..by_state(&[])
    };
    assert_eq!(decide(&own, &[holder(1, State::Running)], None), Verdict::Insert);
}

#[test]
fn replacing_cancels_all_that_conflict_and_are_not_final() {
    let holders = [
        holder(5, State::Completed),
        holder(4, State::Running),
        holder(1, State::Scheduled),
        holder(3, State::Pending),
        holding(holder(2, State::Available)),
        holding(gone(6)),
        holder(7, State::Retryable),
    ];
    let policy = on_conflict(
        by_state(&[State::Completed, State::Running, State::Scheduled]),
        replace(false, false),
    );
    assert_eq!(
        decide(&policy, &holders, None),
        Verdict::Replace { cancel: vec![1, 2, 4], schedule_of: None }
    );
    let none = on_conflict(by_state(&[State::Discarded]), replace(true, false));
    assert_eq!(decide(&none, &[holder(1, State::Running)], None), Verdict::Insert);
}

#[test]
fn final_jobs_are_not_replaced() {
    let every = || by_state(&State::ALL);
    for state in State::FINAL {
        for except_schedule in [false, true] {
            let holders = [holder(1, state), holder(2, state), gone(3)];
            let skips = on_conflict(every(), replace(except_schedule, false));
            assert_eq!(decide(&skips, &holders, None), skip(2, state));
            let rejects = on_conflict(every(), replace(except_schedule, true));
            assert_eq!(decide(&rejects, &holders, None), reject(2, state));
        }
    }
    // One that is gone and holds cannot be cancelled either.
    let skips = on_conflict(every(), replace(false, false));
    assert_eq!(decide(&skips, &[holding(gone(1))], None), skip(1, None));
}

#[test]
fn the_schedule_is_that_of_the_newest_if_it_was_scheduled() {
    for (except_schedule, holders, schedule_of) in [
        (true, vec![holder(1, State::Scheduled)], Some(1)),
        (false, vec![holder(1, State::Scheduled)], None),
        (true, vec![holder(2, State::Scheduled), holder(1, State::Scheduled)], Some(2)),
        (true, vec![holder(1, State::Scheduled), holder(2, State::Available)], None),
        (true, vec![holder(1, State::Scheduled), holder(2, State::Completed)], Some(1)),
        (true, vec![holder(1, State::Retryable)], None),
        (true, vec![holder(1, State::Pending)], None),
        (true, vec![holder(1, State::Running)], None),
    ] {
        let policy = on_conflict(by_state(&State::ALL), replace(except_schedule, true));
        match decide(&policy, &holders, None) {
            Verdict::Replace { schedule_of: found, .. } => {
                assert_eq!(found, schedule_of, "{holders:?}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_update_is_for_the_states_that_it_names() {
    let args = Fields::from_iter([Field::Args]);
    let everywhere =
        on_conflict(by_state(&State::ALL), OnConflict::Update(Updates::in_every_state(args)));
    for state in State::ALL {
        assert_eq!(
            decide(&everywhere, &[holder(1, state)], None),
            Verdict::Update { id: 1, state, fields: args }
        );
    }
    // Only the newest that conflicts is looked at.
    assert_eq!(
        decide(&everywhere, &[holder(1, State::Running), holding(gone(2))], None),
        skip(2, None)
    );
    let options = serde_json::json!({
        "by_state": ["available", "running"], "on_conflict": { "update": { "available": ["args"] } },
    });
    let policy = jobs_core::policy::parse(&options, &|_| None).unwrap().unwrap();
    assert_eq!(decide(&policy, &[holder(1, State::Available)], None).as_str(), "update");
    assert_eq!(decide(&policy, &[holder(1, State::Running)], None), skip(1, State::Running));
    assert_eq!(
        decide(&policy, &[holder(1, State::Available), holder(2, State::Running)], None),
        skip(2, State::Running)
    );
}

#[test]
fn verdicts_have_words() {
    for (verdict, word) in [
        (Verdict::Insert, "insert"),
        (skip(1, None), "skip"),
        (reject(1, None), "reject"),
        (Verdict::Replace { cancel: vec![1], schedule_of: None }, "replace"),
        (Verdict::Update { id: 1, state: State::Running, fields: Fields::default() }, "update"),
    ] {
        assert_eq!(verdict.as_str(), word);
    }
}

#[test]
fn folding_keeps_live_jobs_holds_and_the_newest_of_each_final_state() {
    let holders = [
        holder(6, State::Running),
        holder(1, State::Completed),
        holder(2, State::Completed),
        gone(3),
        holder(4, State::Discarded),
        holder(5, State::Running),
        holding(gone(7)),
        holding(holder(8, State::Cancelled)),
        holder(9, State::Cancelled),
    ];
    assert_eq!(fold(&holders), [2, 4, 5, 6, 7, 8, 9]);
    assert!(fold(&[]).is_empty());
}

#[test]
fn folding_keeps_a_final_job_that_another_window_or_a_later_time_would_find() {
    for (older, kept) in [
        ([10, 10, 10], false),
        ([9, 9, 9], false),
        ([11, 10, 10], true),
        ([10, 11, 10], true),
        ([10, 10, 11], true),
    ] {
        let holders = [at(1, State::Completed, older), at(2, State::Completed, [10; 3])];
        assert_eq!(fold(&holders).contains(&1), kept, "{older:?}");
        assert!(fold(&holders).contains(&2));
    }
}

/// Used over and over, a key has to know no more jobs than at first.
#[test]
fn a_key_that_is_cycled_stays_short() {
    let mut holders = Vec::new();
    for id in 0..1000 {
        holders.push(holder(id, State::FINAL[id as usize % 3]));
        let kept = fold(&holders);
        holders.retain(|holder| kept.contains(&holder.id));
        assert!(holders.len() <= 3);
    }
}

fn any_state() -> impl Strategy<Value = State> {
    select(State::ALL.to_vec())
}

fn any_holders() -> impl Strategy<Value = Vec<Holder>> {
    let kept_until = prop_oneof![Just(i64::MIN), 0..6_i64, Just(i64::MAX)];
    let times = (0..6_i64, 0..6_i64, 0..6_i64, kept_until);
    let job = (any_state(), times, 0..2_u64).prop_map(
        |(state, (created_at, scheduled_at, finalized_at, kept_until), queue)| Job {
            state,
            created_at,
            scheduled_at,
            finalized_at,
            queue,
            kept_until,
        },
    );
    let holder = (prop::option::weighted(0.9, job), prop::bool::weighted(0.1));
    prop::collection::vec(holder, 0..8)
        .prop_map(|holders| {
            (1..)
                .zip(holders)
                .map(|(id, (job, holds))| Holder { id, job, holds })
                .collect::<Vec<_>>()
        })
        .prop_shuffle()
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let fields = select(vec![Fields::default(), Fields::from_iter([Field::Args, Field::Tags])]);
    let ways = prop_oneof![
        Just(OnConflict::Skip),
        Just(OnConflict::Reject),
        (any::<bool>(), any::<bool>()).prop_map(|(schedule, reject)| replace(schedule, reject)),
        fields.prop_map(|fields| OnConflict::Update(Updates::in_every_state(fields))),
    ];
    let from = select(vec![WindowFrom::CreatedAt, WindowFrom::ScheduledAt]);
    let states = prop::collection::vec(any_state(), 0..8);
    (states, prop::option::of(from), ways).prop_map(|(states, from, on_conflict)| Policy {
        by_state: States::of(&states),
        window: from.map(|from| Window { length: Interval::of_micros(1), from }),
        on_conflict,
        ..Policy::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The rule of docs/uniqueness.md, word by word.
    #[test]
    fn the_verdict_follows_from_the_jobs_that_conflict(
        policy in any_policy(), holders in any_holders(), cutoff in prop::option::of(-1..6_i64),
    ) {
        let conflicting: Vec<&Holder> = holders.iter().filter(|holder| {
            let counts = holder.job.is_some_and(|job| {
                let at = match policy.window.map(|window| window.from) {
                    None => i64::MAX,
                    Some(WindowFrom::CreatedAt) => job.created_at,
                    Some(WindowFrom::ScheduledAt) => job.scheduled_at,
                };
                policy.by_state.contains(job.state) && cutoff.is_none_or(|cutoff| at > cutoff)
            });
            counts || holder.holds
        }).collect();
        let ids: BTreeSet<i64> = conflicting.iter().map(|holder| holder.id).collect();
        let live: BTreeSet<i64> = conflicting
            .iter()
            .filter(|holder| holder.job.is_some_and(|job| !job.state.is_final()))
            .map(|holder| holder.id)
            .collect();
        match decide(&policy, &holders, cutoff) {
            Verdict::Insert => prop_assert!(ids.is_empty()),
            Verdict::Skip(existing) | Verdict::Reject(existing) => {
                prop_assert_eq!(Some(&existing.id), ids.last());
                let holder = holders.iter().find(|holder| holder.id == existing.id).unwrap();
                prop_assert_eq!(existing.state, holder.job.map(|job| job.state));
                if let OnConflict::Replace(_) = policy.on_conflict {
                    prop_assert!(live.is_empty());
                }
            }
            Verdict::Replace { cancel, schedule_of } => {
                prop_assert!(!cancel.is_empty());
                prop_assert!(cancel.iter().eq(&live));
                prop_assert!(schedule_of.is_none_or(|id| Some(&id) == cancel.last()));
            }
            Verdict::Update { id, fields, .. } => {
                prop_assert_eq!(Some(&id), ids.last());
                prop_assert!(!fields.is_empty());
            }
        }
    }

    /// Until a job changes, what was folded away would not have made a difference: to no policy, in
    /// no window, and at no time, as one retention, period and window after the other ends.
    #[test]
    fn folding_changes_no_verdict(
        policy in any_policy(), holders in any_holders(), cutoff in prop::option::of(-1..6_i64), now in -1..6_i64, longer in 0..4_i64,
    ) {
        let at = |holders: &[Holder]| -> Vec<Holder> {
            holders.iter().map(|holder| Holder {
                job: holder.job.filter(|job| {
                    !job.state.is_final() || job.finalized_at + longer * job.queue as i64 > now || job.kept_until > now
                }),
                ..*holder
            }).collect()
        };
        let ids = fold(&holders);
        prop_assert!(ids.is_sorted());
        let kept: Vec<Holder> = holders.iter().copied().filter(|holder| ids.contains(&holder.id)).collect();
        prop_assert_eq!(decide(&policy, &at(&kept), cutoff), decide(&policy, &at(&holders), cutoff));
    }
}
