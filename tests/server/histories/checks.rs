//! The checker itself: histories written by hand, which it must accept or report.

use super::model::*;
use super::search::check;
use super::written::*;

#[track_caller]
fn accepts(transactions: impl Into<Vec<Transaction>>) {
    let checked = check(&history(transactions));
    assert!(checked.is_ok(), "{}", checked.unwrap_err());
}

#[track_caller]
fn reports(transactions: impl Into<Vec<Transaction>>) {
    assert!(check(&history(transactions)).is_err(), "it finds an explanation");
}

#[test]
fn a_duplicate_may_be_told_before_the_rival_knows_of_its_commit() {
    let rival = transaction(0, RC, [call(0, 1, [inserted(1)]), end(2, 9, true)]);
    accepts([rival.clone(), alone(1, 3, 4, skipped(1, Available))]);
    reports([rival, alone(1, 0, 1, skipped(1, Available))]);
}

#[test]
fn two_inserts_of_one_key_are_reported() {
    reports([alone(0, 0, 5, inserted(1)), alone(1, 0, 5, inserted(2))]);
    accepts([
        alone(0, 0, 5, inserted(1)),
        alone(0, 6, 7, cancelled(1)),
        alone(1, 4, 8, inserted(2)),
    ]);
}

#[test]
fn an_insert_while_another_one_holds_the_key_is_reported() {
    // Both roll back, so that the jobs are no matter: it is the holding.
    let one = |session, from| {
        transaction(
            session,
            RC,
            [call(from, from + 1, [inserted(from as i64)]), end(20, 21, false)],
        )
    };
    reports([one(0, 1), one(1, 5)]);
}

#[test]
fn a_savepoint_rolled_back_gives_the_key_back() {
    let steps = |undone| {
        let mut steps = vec![Step::Savepoint(span(0, 1)), call(2, 3, [inserted(1)])];
        if undone {
            steps.push(Step::RollbackTo(span(4, 5)));
        }
        steps.push(end(20, 21, true));
        transaction(0, RC, steps)
    };
    accepts([steps(true), alone(1, 6, 7, inserted(2))]);
    reports([steps(false), alone(1, 6, 7, inserted(2))]);
}

#[test]
fn whoever_waits_for_a_rollback_inserts() {
    let rival = transaction(0, RC, [call(0, 1, [inserted(1)]), end(10, 11, false)]);
    accepts([rival.clone(), alone(1, 2, 12, inserted(2))]);
    reports([rival, alone(1, 2, 12, skipped(1, Available))]);
}

#[test]
fn a_skip_that_names_the_older_job_is_reported() {
    let layers = |reply| {
        let other = Fact::Insert {
            key: 0,
            new: New { by_state: vec![Running], ..new(OnConflict::Skip) },
            reply: Reply::Inserted { id: 2, state: Available, replaced: None },
        };
        [
            alone(0, 0, 1, inserted(1)),
            alone(0, 2, 3, other),
            alone(0, 4, 5, skipped(reply, Available)),
        ]
    };
    accepts(layers(2));
    reports(layers(1));
}

#[test]
fn a_skip_that_tells_another_state_is_reported() {
    let work = |state| {
        [alone(0, 0, 1, inserted(1)), alone(0, 2, 3, fetched(1)), alone(1, 4, 5, skipped(1, state))]
    };
    accepts(work(Running));
    reports(work(Available));
}

#[test]
fn an_insert_by_a_stale_snapshot_is_reported() {
    let late = |snapshot, reply| {
        let steps = [
            call(snapshot, snapshot + 1, [Fact::Look(Vec::new())]),
            call(20, 21, reply),
            end(22, 23, true),
        ];
        [transaction(0, RR, steps), alone(1, 10, 11, inserted(1)), alone(1, 12, 13, cancelled(1))]
    };
    reports(late(0, vec![inserted(2)]));
    let seen = [
        call(14, 15, [Fact::Look(vec![(1, Cancelled)])]),
        call(20, 21, [inserted(2)]),
        end(22, 23, true),
    ];
    accepts([
        transaction(0, RR, seen),
        alone(1, 10, 11, inserted(1)),
        alone(1, 12, 13, cancelled(1)),
    ]);
}

#[test]
fn an_insert_by_a_stale_snapshot_need_not_know_of_what_is_gone() {
    let begin = alone(1, 0, 1, inserted(1));
    let steps = [
        call(2, 3, [Fact::Look(vec![(1, Available)])]),
        call(20, 21, [inserted(3)]),
        end(22, 23, true),
    ];
    let late = transaction(0, RR, steps);
    let delete = |id| managed(id, Manage::Delete, Available);
    let first = alone(1, 4, 5, delete(1));
    let second = alone(1, 6, 7, inserted(2));
    accepts([begin.clone(), late.clone(), first.clone()]);
    reports([begin.clone(), late.clone(), first.clone(), second.clone()]);
    accepts([begin, late, first, second, alone(1, 8, 9, delete(2))]);
}

#[test]
fn a_change_by_a_stale_snapshot_is_reported() {
    let steps = [
        call(2, 3, [Fact::Look(vec![(1, Available)])]),
        call(8, 9, [cancelled(1)]),
        end(10, 11, true),
    ];
    let stale = transaction(0, RR, steps);
    reports([alone(1, 0, 1, inserted(1)), stale.clone(), alone(1, 4, 5, fetched(1))]);
    accepts([alone(1, 0, 1, inserted(1)), stale]);
}

#[test]
fn busy_without_a_rival_is_reported() {
    let busy = alone(0, 5, 6, insert(OnConflict::Skip, Reply::Busy));
    let rival = |until| transaction(1, RC, [call(0, 1, [inserted(1)]), end(until, until, false)]);
    accepts([busy.clone(), rival(5)]);
    reports([busy.clone(), rival(4)]);
    reports([busy]);
}

#[test]
fn who_was_told_of_an_error_may_still_be_rolling_back() {
    let busy = alone(0, 5, 6, insert(OnConflict::Skip, Reply::Busy));
    let rival = transaction(1, RC, [failed(0, 1, "23505"), end(0, 1, false)]);
    let next = |until| alone(1, 2, until, Fact::Look(Vec::new()));
    accepts([rival.clone(), busy.clone()]);
    accepts([rival.clone(), next(5), busy.clone()]);
    reports([rival, next(4), busy]);
}

#[test]
fn a_job_that_is_lost_after_a_skip_is_reported() {
    let reply = |seen: &[(i64, State)]| {
        [
            alone(0, 0, 1, inserted(1)),
            alone(1, 2, 3, skipped(1, Available)),
            alone(2, 9, 10, Fact::Look(seen.to_vec())),
        ]
    };
    accepts(reply(&[(1, Available)]));
    reports(reply(&[]));
    reports(reply(&[(1, Available), (2, Available)]));
}

#[test]
fn a_retried_job_that_is_forgotten_is_reported() {
    let before = [
        alone(0, 0, 1, inserted(1)),
        alone(0, 2, 3, cancelled(1)),
        alone(0, 4, 5, managed(1, Manage::Retry, Available)),
    ];
    let then = |fact| [&before[..], &[alone(1, 6, 7, fact)]].concat();
    accepts(then(skipped(1, Available)));
    reports(then(inserted(2)));
}

#[test]
fn a_replacement_shows_neither_or_both_to_nobody() {
    let replaces = alone(0, 2, 9, replaced(2, 1));
    let look = |seen: &[(i64, State)]| {
        let look = alone(1, 3, 4, Fact::Look(seen.to_vec()));
        [alone(0, 0, 1, inserted(1)), replaces.clone(), look]
    };
    accepts(look(&[(1, Available)]));
    accepts(look(&[(1, Cancelled), (2, Available)]));
    reports(look(&[(1, Cancelled)]));
    reports(look(&[(1, Available), (2, Available)]));
}

#[test]
fn a_replacement_of_a_job_that_conflicts_no_more_is_reported() {
    // It waits for the fetch: what runs then is none of its business.
    let waits = |replaced| Fact::Insert {
        key: 0,
        new: New { by_state: vec![Available], ..new(OnConflict::Replace) },
        reply: Reply::Inserted { id: 2, state: Available, replaced },
    };
    let worker = transaction(0, RC, [call(2, 3, [fetched(1)]), end(6, 7, true)]);
    let then =
        |replaced| [alone(0, 0, 1, inserted(1)), worker.clone(), alone(1, 4, 9, waits(replaced))];
    accepts(then(None));
    reports(then(Some(1)));
}

#[test]
fn one_job_is_not_completed_after_it_was_replaced() {
    let begin =
        [alone(0, 0, 1, inserted(1)), alone(0, 2, 3, fetched(1)), alone(1, 4, 5, replaced(2, 1))];
    reports([&begin[..], &[alone(0, 6, 7, completed(1))]].concat());
    let refused =
        Fact::Finish { job: 1, token: 10, what: Finish::Complete, reply: Err(Refusal::WrongState) };
    accepts([&begin[..], &[alone(0, 6, 7, refused)]].concat());
}

#[test]
fn two_transactions_cannot_change_one_job_at_once() {
    let change = |session| transaction(session, RC, [call(2, 3, [cancelled(1)]), end(8, 9, false)]);
    accepts([alone(0, 0, 1, inserted(1)), change(0)]);
    reports([alone(0, 0, 1, inserted(1)), change(0), change(1)]);
}

#[test]
fn an_error_that_explains_nothing_is_reported() {
    let fails = |level, code| [transaction(0, level, [failed(0, 1, code), end(2, 3, false)])];
    accepts(fails(RR, "40001"));
    accepts(fails(RC, "40P01"));
    reports(fails(RC, "40001"));
    reports(fails(RC, "55P03"));
    reports(fails(RC, "XX000"));
}

#[test]
fn what_is_past_its_retention_is_gone_to_inserts_only() {
    let reply =
        |transactions: Vec<Transaction>| check(&History { gone: vec![Completed], transactions });
    let begin =
        [alone(0, 0, 1, inserted(1)), alone(0, 2, 3, fetched(1)), alone(0, 4, 5, completed(1))];
    let then = |fact| reply([&begin[..], &[alone(1, 6, 7, fact)]].concat());
    assert!(then(skipped(1, Completed)).is_err());
    assert!(then(inserted(2)).is_ok());
    let delete = |reply| then(Fact::Manage { job: 1, what: Manage::Delete, reply });
    assert!(delete(Ok(Completed)).is_ok() && delete(Err(Refusal::Unknown)).is_ok());
}

#[test]
fn what_its_own_window_keeps_counts_past_its_retention() {
    let reply = |by_state: &[State], fact| {
        let first = Fact::Insert {
            key: 0,
            new: New {
                by_state: by_state.to_vec(),
                window: Some("created_at"),
                ..new(OnConflict::Skip)
            },
            reply: Reply::Inserted { id: 1, state: Available, replaced: None },
        };
        check(&History {
            gone: vec![Completed],
            transactions: vec![
                alone(0, 0, 1, first),
                alone(0, 2, 3, fetched(1)),
                alone(0, 4, 5, completed(1)),
                alone(1, 6, 7, fact),
            ],
        })
    };
    assert!(reply(&[Completed], skipped(1, Completed)).is_ok());
    assert!(reply(&[Completed], inserted(2)).is_err());
    assert!(reply(&[Available], skipped(1, Completed)).is_err());
    assert!(reply(&[Available], inserted(2)).is_ok());
}

#[test]
fn a_replacement_leaves_out_what_an_old_snapshot_shows_and_is_gone_by_now() {
    let of = |by_state: &[State], on_conflict, reply| Fact::Insert {
        key: 0,
        new: New { by_state: by_state.to_vec(), ..new(on_conflict) },
        reply,
    };
    let reply = |id, replaced| Reply::Inserted { id, state: Available, replaced };
    let check = |gone: &[State]| {
        let old = transaction(
            1,
            RR,
            [
                call(2, 3, [skipped(1, Available)]),
                call(6, 7, [of(&[Completed], OnConflict::Skip, reply(2, None))]),
                call(8, 9, [of(&[Available], OnConflict::Replace, reply(3, Some(2)))]),
                end(10, 11, true),
            ],
        );
        check(&History {
            gone: gone.to_vec(),
            transactions: vec![alone(0, 0, 1, inserted(1)), alone(0, 4, 5, cancelled(1)), old],
        })
    };
    assert!(check(&[]).is_err());
    let checked = check(&[Cancelled]);
    assert!(checked.is_ok(), "{}", checked.unwrap_err());
}

#[test]
fn a_hold_outlives_its_job_until_it_is_given_back() {
    let holds = |until| {
        let new = New { hold: Some(until), ..new(OnConflict::Skip) };
        let reply = Reply::Inserted { id: 1, state: Available, replaced: None };
        [alone(0, 0, 1, Fact::Insert { key: 0, new, reply }), alone(0, 2, 3, fetched(1))]
    };
    let deleted =
        [alone(0, 4, 5, cancelled(1)), alone(0, 6, 7, managed(1, Manage::Delete, Cancelled))];
    let then = |until, fact| [&holds(until)[..], &deleted, &[alone(1, 8, 9, fact)]].concat();
    let held = insert(OnConflict::Skip, Reply::Skipped { id: 1, state: None });
    accepts(then(Until::Success, held.clone()));
    reports(then(Until::Success, inserted(2)));
    accepts(then(Until::Start, inserted(2)));
    reports(then(Until::Start, held));
}

#[test]
fn a_used_token_answers_the_same_call_alone() {
    let finished = |what, reply| Fact::Finish { job: 1, token: 10, what, reply };
    let after = |first: Fact, again: Fact| {
        [
            alone(0, 0, 1, inserted(1)),
            alone(0, 2, 3, fetched(1)),
            alone(0, 4, 5, first),
            alone(1, 6, 7, again),
        ]
    };
    let refused = Err(Refusal::WrongState);
    let fail = finished(Finish::Fail(Retryable), Ok(Retryable));
    accepts(after(completed(1), completed(1)));
    reports(after(completed(1), finished(Finish::Complete, refused)));
    accepts(after(fail.clone(), finished(Finish::Fail(Discarded), Ok(Retryable))));
    reports(after(fail.clone(), finished(Finish::Fail(Discarded), Ok(Discarded))));
    reports(after(fail.clone(), finished(Finish::Complete, Ok(Retryable))));
    accepts(after(fail, finished(Finish::Complete, refused)));
}

#[test]
fn a_result_is_left_for_who_has_its_job_locked() {
    let locked =
        Fact::Finish { job: 1, token: 10, what: Finish::Complete, reply: Err(Refusal::Locked) };
    let begin = [alone(0, 0, 1, inserted(1)), alone(0, 2, 3, fetched(1))];
    let cancels = transaction(1, RC, [call(4, 5, [cancelled(1)]), end(8, 9, false)]);
    let left = alone(0, 6, 7, locked);
    let then = |more: &[Transaction]| [&begin[..], more].concat();
    let is_open = transaction(1, RC, [call(4, 5, Vec::new()), end(8, 9, false)]);
    accepts(then(&[cancels, left.clone()]));
    reports(then(std::slice::from_ref(&left)));
    accepts(then(&[is_open.clone(), left.clone()]));
    reports(then(&[is_open, alone(0, 4, 5, completed(1)), left]));
}
