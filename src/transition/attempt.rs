//! How attempts end, by whatever call: their workers, of one or of many at once, or the rescue of
//! those whose leases ran out.

use std::collections::BTreeSet;

use jobs_core::interval::Interval;
use jobs_core::retry::{Retry, Tried};
use jobs_core::state::State;
use smallvec::SmallVec;

use crate::pg::jsonb::Jsonb;
use crate::pg::{server, time};
use crate::store::finish::{self, Attempt, Then, Wait};
use crate::store::moves::{self, Answer, ErrorRow, Move, To, Tries};
use crate::store::place::{self, Place, TakenRow};
use crate::store::used::{self, Used};

/// What a finishing call says of an attempt, or a rescue.
#[derive(Clone, Copy)]
pub struct Finishing<'a> {
    pub id: i64,
    pub token: i64,
    pub ending: Ending<'a>,
}

/// How an attempt ended.
#[derive(Clone, Copy)]
pub enum Ending<'a> {
    /// Completed, with this output.
    Complete(Option<Jsonb>),
    Fail(Failure<'a>),
    /// The attempt does not count, and the job is put off.
    Snooze(Interval),
    /// The attempt does not count, and the job is released.
    Release,
    /// Its worker cancels the job, for this reason.
    Cancel(Option<&'a str>),
}

impl Ending<'_> {
    /// The call that says so of one job.
    pub fn call(&self) -> &'static str {
        match self {
            Ending::Complete(_) => "complete",
            Ending::Fail(_) => "fail",
            Ending::Snooze(_) => "snooze",
            // Who cancels asks to, and gives the job back.
            Ending::Release | Ending::Cancel(_) => "release",
        }
    }
}

/// Why an attempt failed.
#[derive(Clone, Copy)]
pub struct Failure<'a> {
    pub error: &'a str,
    /// Type, code, trace and so on.
    pub details: Option<Jsonb>,
    /// `None`: the job's policy
    pub retry_in: Option<Interval>,
    pub retryable: bool,
    pub by: By,
}

/// Who says that an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    Worker,
    /// The server: the worker's lease ran out.
    LostLease,
    /// The server: the attempt's time was over.
    Timeout,
    /// The server: no fetch can return what the job carries.
    Fetch,
}

/// The outcome of a job.
#[derive(Clone, Copy)]
pub struct Became {
    pub state: State,
    /// When the job can run again.
    pub scheduled_at: Option<i64>,
}

/// What came of an attempt that was to end.
pub enum Outcome {
    /// The attempt has ended.
    Ended(Became),
    /// An earlier call, of which this is a repetition, has ended the attempt.
    Before(Became),
    /// The token is not current.
    Stale {
        /// The call that has used the token, if one has.
        used: Option<Used>,
        /// The job, if it exists.
        place: Option<Place>,
    },
    /// Another session still had the job locked. Nothing was changed.
    Locked { place: Option<Place> },
}

pub fn end_one(said: &Finishing) -> Outcome {
    let one = std::slice::from_ref(said);
    let mut outcomes = end_each(one, Wait::ForAll);
    outcomes.next().expect("one of one")
}

/// Ends attempts; what came of each, in order. A token that is not current spoils nothing else, nor
/// does a job that another session still has locked after the wait.
pub fn end_each<'a>(
    said: &'a [Finishing<'a>],
    wait: Wait,
) -> impl Iterator<Item = Outcome> + use<'a> {
    let found = end_in_time(said, wait);
    let pairs = said.iter().zip(found);
    pairs.map(move |(said, found)| match found {
        Found::Ended(became) => Outcome::Ended(became),
        Found::Locked => locked(said),
        Found::Stale => look_up(said, wait),
    })
}

fn locked(said: &Finishing) -> Outcome {
    let place = place::locate(said.id);
    Outcome::Locked { place }
}

/// What is to be said of an attempt that was not among those that ended at first: that of the first
/// time, if it is the same call, whatever its other arguments are: a client that has lost an answer
/// may not know them any more.
///
/// The token may be current by now: its fetch may have committed while others of the jobs were
/// waited for.
fn look_up(said: &Finishing, wait: Wait) -> Outcome {
    loop {
        pgrx::check_for_interrupts!();
        let used = used::by(said.id, said.token);
        if let Some(used) = &used
            && used.may_be(said.ending.call())
        {
            return Outcome::Before(Became { state: used.state, scheduled_at: used.scheduled_at });
        }
        let place = place::locate(said.id);
        let is_held = |place: &Place| place.is_held_with(said.token);
        if !place.as_ref().is_some_and(is_held) {
            return Outcome::Stale { used, place };
        }
        match end_in_time(std::slice::from_ref(said), wait)[0] {
            Found::Ended(became) => return Outcome::Ended(became),
            Found::Locked => return locked(said),
            Found::Stale => {}
        }
    }
}

/// Mostly there is one.
type Each<T> = SmallVec<[T; 1]>;

/// How an attempt was found that was to end.
#[derive(Clone, Copy)]
enum Found {
    Ended(Became),
    Stale,
    /// Another session still had the job locked.
    Locked,
}

/// Ends the attempts whose tokens are current.
pub fn end(said: &[Finishing]) {
    end_in_time(said, Wait::ForAll);
}

/// Ends the attempts whose tokens are current and whose jobs no other session has locked, or is
/// waited for. Of those that are said twice the first one counts.
fn end_in_time(said: &[Finishing], wait: Wait) -> Each<Found> {
    let mut order: Each<usize> = (0..said.len()).collect();
    let pair = |n: &usize| (said[*n].id, said[*n].token);
    order.sort_by_key(pair);
    order.dedup_by_key(|n| pair(&*n));
    let attempts: Each<Attempt> = order
        .iter()
        .map(|n| Attempt {
            id: said[*n].id,
            token: said[*n].token,
            then: match said[*n].ending {
                Ending::Complete(output) => Then::Completed(output),
                _ => Then::Taken,
            },
        })
        .collect();
    let ended = finish::end(&attempts, wait);
    let mut found: Each<Found> = smallvec::smallvec![Found::Stale; said.len()];
    if !ended.locked.is_empty() {
        let locked: BTreeSet<_> = ended.locked.iter().map(|n| pair(&order[*n])).collect();
        let are_locked = (0..said.len()).filter(|n| locked.contains(&pair(n)));
        are_locked.for_each(|n| found[n] = Found::Locked);
    }
    for one in &ended.completed {
        found[order[one.n]] = Found::Ended(Became { state: State::Completed, scheduled_at: None });
    }
    let taken = ended.taken.into_iter().map(|(n, row)| (order[n], row));
    put(said, taken.collect(), &mut found);
    found
}

/// Puts jobs where they go that were taken, in the order in which their attempts were said.
fn put(said: &[Finishing], mut taken: Vec<(usize, TakenRow)>, found: &mut [Found]) {
    if taken.is_empty() {
        return;
    }
    taken.sort_unstable_by_key(|(n, _)| *n);
    // Not before: taking them may have waited for a cancel request.
    let now = time::now();
    let ids: Vec<i64> = taken.iter().map(|(n, _)| said[*n].id).collect();
    let tries = moves::tries(&ids);
    let (mut moves, mut errors) = (Vec::with_capacity(taken.len()), Vec::new());
    for ((n, mut row), tries) in taken.into_iter().zip(tries) {
        // A lease without a job was left from something that went wrong.
        let Some(tries) = tries else {
            continue;
        };
        let (one, scheduled_at) = match said[n].ending {
            Ending::Fail(failure) => {
                let (one, error) = failed(&said[n], &failure, row, &tries, now);
                let scheduled_at = error.scheduled_at;
                errors.push(error);
                (one, scheduled_at)
            }
            Ending::Snooze(delay) => given_back(&said[n], row, Some(time::add(now, delay)), now),
            Ending::Release => given_back(&said[n], row, None, now),
            Ending::Cancel(reason) => {
                if row.cancel_requested_at.is_none() {
                    row.cancel_requested_at = Some(now);
                    row.cancel_reason = reason.map(str::to_string);
                }
                given_back(&said[n], row, None, now)
            }
            Ending::Complete(_) => unreachable!("its job is completed where it is taken"),
        };
        let state = one.to.state();
        found[n] = Found::Ended(Became { state, scheduled_at });
        moves.push(one);
    }
    moves::note_errors(&errors);
    moves::put(&moves, now);
}

/// Where a job goes whose attempt failed, and its error.
fn failed<'a>(
    said: &Finishing,
    failure: &Failure<'a>,
    mut row: TakenRow,
    tries: &Tries,
    now: i64,
) -> (Move, ErrorRow<'a>) {
    let is_over = row.attempt >= tries.max_attempts
        || !failure.retryable
        || is_given_up(&tries.retry, failure.details);
    let (to, scheduled_at) = if row.cancel_requested_at.is_some() {
        (To::Finished(State::Cancelled), None)
    } else if is_over {
        (To::Finished(State::Discarded), None)
    } else {
        match due_at(failure, row.attempt, tries, now) {
            due_at if due_at <= now => (To::Ready, Some(now)),
            due_at => (To::Scheduled(State::Retryable, due_at), Some(due_at)),
        }
    };
    let token = (failure.by == By::Worker).then_some(said.token);
    let error = ErrorRow {
        job_id: said.id,
        at: now,
        attempt: row.attempt,
        token,
        state: to.state(),
        scheduled_at,
        worker: row.worker.clone(),
        error: failure.error,
        details: failure.details,
    };
    match to {
        To::Ready => row.scheduled_at = scheduled_at,
        _ => row.token = token,
    }
    let one = Move { has_failed: true, ..Move::new(said.id, row, to) };
    (one, error)
}

/// When a job is tried again.
fn due_at(failure: &Failure, attempt: i32, tries: &Tries, now: i64) -> i64 {
    if let Some(delay) = failure.retry_in {
        return time::add(now, delay);
    }
    let is_lost = failure.by == By::LostLease;
    let delay = tries.retry.after_lease.filter(|_| is_lost);
    let delay = delay.unwrap_or_else(|| {
        let tried = Tried {
            attempt: attempt.try_into().unwrap_or(1),
            errors_before: tries.errors.try_into().unwrap_or(u32::MAX),
            max_attempts: tries.max_attempts.try_into().unwrap_or(1),
        };
        tries.retry.delay_micros(tried, unit_random())
    });
    now.saturating_add(delay)
}

/// Whether a policy does not try again after an error of the type that its details say.
fn is_given_up(policy: &Retry, details: Option<Jsonb>) -> bool {
    // Details may be long: they are only taken apart where their type is needed.
    let details = details.filter(|_| !policy.non_retryable.is_empty());
    let Some(mut members) = details.and_then(Jsonb::members) else {
        return false;
    };
    let error_type = members.find(|(name, _)| *name == "type");
    policy.gives_up_on(error_type.and_then(|(_, value)| value.as_str()))
}

/// Where a job goes whose attempt does not count, and when it can run again: put off until then, or
/// available at once.
fn given_back(
    said: &Finishing,
    mut row: TakenRow,
    until: Option<i64>,
    now: i64,
) -> (Move, Option<i64>) {
    let (to, scheduled_at) = if row.cancel_requested_at.is_some() {
        row.token = Some(said.token);
        (To::Finished(State::Cancelled), None)
    } else {
        row.attempt -= 1;
        row.available_at = until.is_none().then_some(now);
        let to = until.map_or(To::Ready, |due_at| To::Scheduled(State::Scheduled, due_at));
        (to, until)
    };
    let answer = Answer { token: said.token, state: to.state(), scheduled_at: until };
    let one = Move { answer: Some(answer), ..Move::new(said.id, row, to) };
    (one, scheduled_at)
}

/// A random number in [0, 1), for jitter.
fn unit_random() -> f64 {
    (server::random() >> 11) as f64 / (1u64 << 53) as f64
}
