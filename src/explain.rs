//! Why a job does not run now: a function for each reason, which says nothing where the reason does
//! not hold. [`REASONS`] has them in the order in which they are shown, the decisive one first.

use jobs_core::state::State;
use jobs_core::words::{behind_colon, by, duration, many, quoted_name};

use crate::cell::{self, Home};
use crate::pg::time::shown;
use crate::store::explain::{self, Facts, HeldBy, Waiting};

pub struct Reason {
    pub reason: String,
    pub detail: String,
    /// Until when it holds, where that is known.
    pub until: Option<i64>,
    /// The jobs that it is about.
    pub by_ids: Option<Vec<i64>>,
}

impl Reason {
    fn new(reason: impl Into<String>, detail: String) -> Reason {
        Reason { reason: reason.into(), detail, until: None, by_ids: None }
    }
}

/// The reasons of a job in any state.
const REASONS: [fn(&Facts) -> Option<Reason>; 3] = [is_final, running, expired];

type ToWait = fn(&Facts, &Waiting) -> Option<Reason>;

/// Those of a job that waits, each with whether it keeps the next fetch from taking the job.
const REASONS_TO_WAIT: [(ToWait, bool); 12] = [
    (wrong_cell, true),
    (pending, true),
    (due_later, true),
    (queue_paused, true),
    (queue_limit, true),
    (queue_rate, true),
    (limit_paused, true),
    (limit, true),
    (order, true),
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
        let detail =
            format!("the next fetch from queue {} returns it", quoted_name(&facts.job.queue));
        reasons.push(Reason::new("next", detail + &made_available(&facts)));
    }
    Some(reasons)
}

fn is_final(facts: &Facts) -> Option<Reason> {
    let at = shown(facts.job.finalized_at?);
    let because = |text: &Option<String>| behind_colon(text.as_deref());
    let detail = match facts.job.state {
        State::Completed => {
            format!("completed at {at} by worker {}", quoted_name(&facts.job.worker))
        }
        State::Cancelled => format!("cancelled at {at}{}", because(&facts.job.cancel_reason)),
        _ => format!("discarded at {at}{}", because(&facts.job.last_error)),
    };
    Some(Reason::new("final", detail))
}

fn running(facts: &Facts) -> Option<Reason> {
    let lease = facts.lease.as_ref()?;
    let since = shown(lease.attempted_at);
    let (attempt, most) = (facts.job.attempt, facts.job.max_attempts);
    let worker = quoted_name(&facts.job.worker);
    let mut detail = format!("held by worker {worker} since {since}, attempt {attempt} of {most}");
    let ends_at = shown(lease.lease_expires_at);
    let is_over = lease.lease_expires_at <= facts.now;
    detail += &match is_over {
        true => format!(
            "; the lease expired at {ends_at}, and maintenance rescues the job{}",
            but_paused(facts)
        ),
        false => format!("; the lease expires at {ends_at}"),
    };
    if let Some(at) = lease.deadline_at {
        detail += &format!("; the attempt times out at {}", shown(at));
    }
    if let Some(at) = lease.cancel_requested_at {
        let reason = behind_colon(facts.job.cancel_reason.as_deref());
        detail += &format!("; cancellation was requested at {}{reason}", shown(at));
    }
    if let Some(at) = lease.worker_lost_at {
        detail += &format!("; the worker is lost and was last seen at {}", shown(at));
    }
    if let Some(progress) = &lease.progress {
        detail += &format!("; progress {progress}");
    }
    Some(Reason {
        until: (!is_over).then_some(lease.lease_expires_at),
        ..Reason::new("running", detail)
    })
}

fn expired(facts: &Facts) -> Option<Reason> {
    let at = facts.job.expires_at.filter(|at| *at <= facts.now)?;
    if facts.job.finalized_at.is_some() || facts.lease.is_some() {
        return None;
    }
    let (at, but_paused) = (shown(at), but_paused(facts));
    let detail =
        format!("expired at {at}: no fetch returns it, and maintenance discards it{but_paused}");
    Some(Reason::new("expired", detail))
}

fn wrong_cell(facts: &Facts, _: &Waiting) -> Option<Reason> {
    if let Err(retired) = cell::serving() {
        return Some(Reason::new("wrong cell", retired.to_string()));
    }
    let lives = match cell::elsewhere(facts.job.id)? {
        Home::Cell(cell) => format!("in cell {cell}"),
        Home::Here | Home::Nowhere => "in no cell".into(),
    };
    let queue = quoted_name(&facts.job.queue);
    Some(Reason::new("wrong cell", format!("this job of queue {queue} lives {lives}")))
}

fn pending(facts: &Facts, _: &Waiting) -> Option<Reason> {
    let detail = format!("waiting for jobs.activate({})", facts.job.id);
    (facts.job.state == State::Pending).then(|| Reason::new("pending", detail))
}

fn due_later(facts: &Facts, _: &Waiting) -> Option<Reason> {
    let due_at = facts.job.due_at.filter(|at| *at > facts.now)?;
    let (name, failed) = match facts.job.state {
        State::Retryable => {
            let (attempt, most) = (facts.job.attempt, facts.job.max_attempts);
            let error = behind_colon(facts.job.last_error.as_deref());
            (
                "retryable",
                format!("attempt {attempt} of {most} failed{error}; the next attempt is "),
            )
        }
        _ => ("scheduled", String::new()),
    };
    Some(Reason {
        until: Some(due_at),
        ..Reason::new(name, format!("{failed}due at {}", shown(due_at)))
    })
}

fn queue_paused(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let (queue, at) = (quoted_name(&facts.job.queue), shown(waiting.limits.paused_at?));
    let by = by(waiting.limits.paused_by.as_deref(), waiting.limits.pause_reason.as_deref());
    let detail = format!("queue {queue} was paused at {at}{by}; jobs.resume_queue resumes it");
    Some(Reason::new("queue paused", detail))
}

fn queue_limit(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let (most, taken, queue) =
        (waiting.limits.concurrency?, waiting.limits.taken, quoted_name(&facts.job.queue));
    let jobs = many(taken, "running job");
    let detail = format!("queue {queue} has {jobs}, and its concurrency is {most}");
    (taken >= i64::from(most)).then(|| Reason {
        by_ids: Some(waiting.limits.running.clone()),
        ..Reason::new("queue limit", detail)
    })
}

fn queue_rate(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let free_at = waiting.limits.free_at.filter(|at| *at > facts.now)?;
    let (queue, limits) = (quoted_name(&facts.job.queue), &waiting.limits);
    let jobs = many(limits.rate?.into(), "job");
    let period = duration(limits.rate_period?);
    let detail = format!("queue {queue} has reached its rate of {jobs} in {period}");
    Some(Reason { until: Some(free_at), ..Reason::new("queue rate", detail) })
}

fn limit_paused(_: &Facts, waiting: &Waiting) -> Option<Reason> {
    let held_by = waiting.held_by.as_ref()?;
    let at = shown(held_by.paused_at?);
    let by = by(held_by.paused_by.as_deref(), held_by.pause_reason.as_deref());
    let detail = format!("{} was paused at {at}{by}; jobs.resume_limit resumes it", named(held_by));
    Some(held("limit paused", held_by, detail))
}

/// Why a limit holds the job back, or that it is about to let it go.
fn limit(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let held_by = waiting.held_by.as_ref().filter(|limit| limit.paused_at.is_none())?;
    let name = named(held_by);
    if let Some(most) = held_by.concurrency.filter(|most| held_by.taken >= i64::from(*most)) {
        let jobs = many(held_by.taken, "running job");
        let detail = format!("{name} has {jobs}, and its concurrency is {most}");
        return Some(held("limit", held_by, detail));
    }
    let used_up = held_by.free_at.filter(|at| *at > facts.now);
    if let (Some(until), Some(rate), Some(period)) = (used_up, held_by.rate, held_by.rate_period) {
        let (jobs, period) = (many(rate.into(), "job"), duration(period));
        let detail = format!("{name} has reached its rate of {jobs} in {period}");
        return Some(Reason { until: Some(until), ..held("limit", held_by, detail) });
    }
    let detail =
        format!("{name} has held the job back, and returns it to its queue within seconds");
    Some(held("limit", held_by, detail))
}

/// A limit's reason, with the jobs that run under its key.
fn held(reason: &str, by: &HeldBy, detail: String) -> Reason {
    let by_ids = Some(by.running.clone()).filter(|running| !running.is_empty());
    Reason { by_ids, ..Reason::new(reason, detail) }
}

/// Which jobs of its key come before it.
fn order(_: &Facts, waiting: &Waiting) -> Option<Reason> {
    let order = waiting.order.as_ref()?;
    let key = order.key.as_ref().map_or("its key".into(), |key| format!("key {key}"));
    let detail = match order.blocked_by {
        Some(id) => {
            format!(
                "discarded job {id} blocks {key}; jobs.unblock, retry or delete of it unblocks it"
            )
        }
        None if order.is_strict => {
            format!("jobs of {key} that became available earlier come first, one at a time")
        }
        None => format!("jobs of {key} that became available earlier come first"),
    };
    Some(Reason { by_ids: Some(order.in_front.clone()), ..Reason::new("order", detail) })
}

/// A limit, and the key under which it holds a job back.
fn named(held_by: &HeldBy) -> String {
    let key = held_by.key.as_ref().map(|key| format!(" with key {key}")).unwrap_or_default();
    format!("limit {}{key}", quoted_name(&held_by.name))
}

fn no_worker(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let queue = quoted_name(&facts.job.queue);
    let left = waiting.is_left.then(|| match waiting.fetched_at {
        Some(at) => format!("no worker has fetched from queue {queue} since {}", shown(at)),
        None => format!("no worker has fetched from queue {queue}"),
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
    let (queue, at, kind) =
        (quoted_name(&facts.job.queue), shown(at), quoted_name(&facts.job.kind));
    let detail = format!(
        "workers fetched from queue {queue}, most recently at {at}, but none asked for kind {kind} in the last 5 minutes"
    );
    Some(Reason::new("kind not asked for", detail))
}

fn behind(facts: &Facts, waiting: &Waiting) -> Option<Reason> {
    let name = match waiting.in_front.jobs {
        0 => return None,
        many if many > explain::MOST_IN_FRONT => {
            format!("behind more than {} jobs", explain::MOST_IN_FRONT)
        }
        some => format!("behind {some} jobs"),
    };
    let queue = quoted_name(&facts.job.queue);
    let detail =
        format!("jobs with a lower priority number or a longer wait come first in queue {queue}");
    Some(Reason {
        by_ids: Some(waiting.in_front.first.clone()),
        ..Reason::new(name, detail + &made_available(facts))
    })
}

fn made_available(facts: &Facts) -> String {
    let due_at = facts.job.due_at.filter(|at| *at <= facts.now);
    due_at.map_or_else(String::new, |at| {
        format!("; it was due at {}, and a fetch makes it available", shown(at))
    })
}

fn but_paused(facts: &Facts) -> &'static str {
    match facts.job.maintenance_is_paused {
        true => ", but maintenance is paused until jobs.resume_maintenance",
        false => "",
    }
}
