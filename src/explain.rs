//! Why a job does not run now: a function for each reason, which says nothing where the reason does
//! not hold. [`REASONS`] has them in the order in which they are shown, the decisive one first.

use jobs_core::state::State;
use jobs_core::words::{behind_colon, by};

use crate::pg::time::shown;
use crate::store::explain::{self, Facts, Waiting};

/// A reason why a job does not run.
pub struct Reason {
    /// Its name.
    pub reason: String,
    /// What is behind it, in words.
    pub detail: String,
    /// Until when it holds, where that is known.
    pub until: Option<i64>,
    /// The jobs that it is about.
    pub by_ids: Option<Vec<i64>>,
}

impl Reason {
    fn new(reason: impl Into<String>, detail: String) -> Reason {
        Reason {
            reason: reason.into(),
            detail,
            until: None,
            by_ids: None,
        }
    }
}

/// The reasons of a job in any state.
const REASONS: [fn(&Facts) -> Option<Reason>; 3] = [is_final, running, expired];

type ToWait = fn(&Facts, &Waiting) -> Option<Reason>;

/// Those of a job that waits, each with whether it keeps the next fetch from taking the job.
const REASONS_TO_WAIT: [(ToWait, bool); 8] = [
    (pending, true),
    (due_later, true),
    (queue_paused, true),
    (queue_limit, true),
    (queue_rate, true),
    (no_worker, false),
    (kind_not_asked_for, true),
    (behind, true),
];

/// Every reason that holds; `None`: there is no such job.
pub fn reasons(id: i64, now: i64, sees_payload: bool) -> Option<Vec<Reason>> {
    let facts = explain::facts(id, now, sees_payload)?;
    let mut reasons: Vec<Reason> = REASONS.iter().filter_map(|reason| reason(&facts)).collect();
    let Some(waiting) = &facts.waiting else {
        return Some(reasons);
    };
    let mut is_next = true;
    for (reason, keeps_waiting) in REASONS_TO_WAIT {
        let reason = reason(&facts, waiting);
        is_next &= reason.is_none() || !keeps_waiting;
        reasons.extend(reason);
    }
    if is_next {
        let detail = format!("the next fetch from queue {} gets it", facts.queue);
        reasons.push(Reason::new(
            "next",
            detail + &made_available(&facts, waiting),
        ));
    }
    Some(reasons)
}

fn is_final(facts: &Facts) -> Option<Reason> {
    let at = shown(facts.finalized_at?);
    let because = |text: &Option<String>| behind_colon(text.as_deref());
    let detail = match facts.state {
        State::Completed => format!("worker {} completed it at {at}", facts.worker),
        State::Cancelled => format!("it was cancelled at {at}{}", because(&facts.cancel_reason)),
        _ => format!("it was discarded at {at}{}", because(&facts.last_error)),
    };
    Some(Reason::new("final", detail))
}

fn running(facts: &Facts) -> Option<Reason> {
    let lease = facts.lease.as_ref()?;
    let since = shown(lease.attempted_at);
    let (worker, attempt, most) = (&facts.worker, facts.attempt, facts.max_attempts);
    let mut detail =
        format!("worker {worker} has had it since {since}, attempt {attempt} of {most}");
    let ends_at = shown(lease.expires_at);
    let is_over = lease.expires_at <= facts.now;
    detail += &match is_over {
        true => format!(
            "; its lease ran out at {ends_at} and maintenance takes it away{}",
            but_paused(facts)
        ),
        false => format!("; its lease ends at {ends_at}"),
    };
    if let Some(at) = lease.deadline_at {
        detail += &format!("; its time ends at {}", shown(at));
    }
    if let Some(at) = lease.cancel_requested_at {
        let reason = behind_colon(facts.cancel_reason.as_deref());
        detail += &format!("; it was asked to stop at {}{reason}", shown(at));
    }
    if let Some(at) = lease.worker_lost_at {
        detail += &format!("; the worker is lost, last seen at {}", shown(at));
    }
    if let Some(progress) = &lease.progress {
        detail += &format!("; progress {progress}");
    }
    Some(Reason {
        until: (!is_over).then_some(lease.expires_at),
        ..Reason::new("running", detail)
    })
}

fn expired(facts: &Facts) -> Option<Reason> {
    let at = facts.expires_at.filter(|at| *at <= facts.now)?;
    if facts.finalized_at.is_some() || facts.lease.is_some() {
        return None;
    }
    let (at, but_paused) = (shown(at), but_paused(facts));
    let detail =
        format!("it expired at {at}: no fetch returns it, and maintenance discards it{but_paused}");
    Some(Reason::new("expired", detail))
}

fn pending(facts: &Facts, _: &Waiting) -> Option<Reason> {
    let detail = format!("it waits for jobs.activate({})", facts.id);
    (facts.state == State::Pending).then(|| Reason::new("pending", detail))
}

fn due_later(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let due_at = waiting.due_at.filter(|at| *at > facts.now)?;
    let (name, failed) = match facts.state {
        State::Retryable => {
            let (attempt, most) = (facts.attempt, facts.max_attempts);
            let error = behind_colon(facts.last_error.as_deref());
            (
                "retryable",
                format!("attempt {attempt} of {most} failed{error}; "),
            )
        }
        _ => ("scheduled", String::new()),
    };
    Some(Reason {
        until: Some(due_at),
        ..Reason::new(name, format!("{failed}it is due at {}", shown(due_at)))
    })
}

fn queue_paused(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let (queue, at) = (&facts.queue, shown(waiting.paused_at?));
    let by = by(
        waiting.paused_by.as_deref(),
        waiting.pause_reason.as_deref(),
    );
    let detail = format!("queue {queue} was paused at {at}{by}: jobs.resume_queue lets it go on");
    Some(Reason::new("queue paused", detail))
}

fn queue_limit(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let (most, taken, queue) = (waiting.concurrency?, waiting.taken, &facts.queue);
    let detail = format!("{taken} jobs of queue {queue} run, and no more than {most} may");
    (taken >= i64::from(most)).then(|| Reason {
        by_ids: Some(waiting.running.clone()),
        ..Reason::new("queue limit", detail)
    })
}

fn queue_rate(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let free_at = waiting.free_at.filter(|at| *at > facts.now)?;
    let (rate, period) = waiting.rate.as_ref()?;
    let queue = &facts.queue;
    let detail =
        format!("{rate} jobs of queue {queue} have started within {period}, and no more may");
    Some(Reason {
        until: Some(free_at),
        ..Reason::new("queue rate", detail)
    })
}

fn no_worker(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let queue = &facts.queue;
    let left = waiting.is_left.then(|| match waiting.fetched_at {
        Some(at) => format!("nobody has fetched from queue {queue} since {}", shown(at)),
        None => format!("nobody is known to have fetched from queue {queue}"),
    });
    let quiet = waiting.quiet.as_ref().map(|names| {
        format!("workers of queue {queue} are quiet until jobs.resume_worker: {names}")
    });
    let detail: Vec<String> = left.into_iter().chain(quiet).collect();
    let holds = waiting.is_due && !detail.is_empty();
    holds.then(|| Reason::new("no worker", detail.join("; ")))
}

fn kind_not_asked_for(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let at = waiting.passed_over_at.filter(|_| waiting.is_due)?;
    let (queue, at, kind) = (&facts.queue, shown(at), &facts.kind);
    let detail = format!(
        "queue {queue} is fetched from, the latest at {at}, and no fetch of the last 5 minutes has asked for kind {kind}"
    );
    Some(Reason::new("kind not asked for", detail))
}

fn behind(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let name = match waiting.in_front {
        0 => return None,
        many if many > explain::MOST_IN_FRONT => {
            format!("behind more than {} jobs", explain::MOST_IN_FRONT)
        }
        some => format!("behind {some} jobs"),
    };
    let queue = &facts.queue;
    let detail =
        format!("they come before it in queue {queue}, by a lower priority number or for longer");
    Some(Reason {
        by_ids: Some(waiting.first_in_front.clone()),
        ..Reason::new(name, detail + &made_available(facts, waiting))
    })
}

fn made_available(facts: &Facts, waiting: &Waiting) -> String {
    let due_at = waiting.due_at.filter(|at| *at <= facts.now);
    due_at.map_or_else(String::new, |at| {
        format!(
            "; it was due at {}, and a fetch makes it available",
            shown(at)
        )
    })
}

fn but_paused(facts: &Facts) -> &'static str {
    match facts.maintenance_is_paused {
        true => ", but maintenance is paused: jobs.resume_maintenance",
        false => "",
    }
}
