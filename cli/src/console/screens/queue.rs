//! One queue: its jobs, its limits, who works on it.

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::audit;
use super::history::{self, Span};
use super::named::{self, Call, Form};
use super::queue_limits::{self, Limits};
use super::worker::{self, Worker};
use crate::console::interval::words;
use crate::console::page::Screen;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Query, Visit};

/// What a `Queue` is read from.
pub(super) const COLUMNS: &str =
    "queue, available, scheduled, pending, running, retryable, completed, cancelled, discarded,
    oldest_available_at, paused, paused_at, paused_by, pause_reason,
    concurrency, rate, rate_period, max_waiting, estimated, counted_at,
    retention_completed, retention_cancelled, retention_discarded";

#[derive(Default, Deserialize)]
pub(super) struct Queue {
    pub(super) queue: String,
    available: i64,
    scheduled: i64,
    pending: i64,
    running: i64,
    retryable: i64,
    completed: i64,
    cancelled: i64,
    discarded: i64,
    pub(super) oldest_available_at: Option<DateTime<Utc>>,
    pub(super) paused: bool,
    paused_at: Option<DateTime<Utc>>,
    paused_by: Option<String>,
    pause_reason: Option<String>,
    pub(super) concurrency: Option<i32>,
    pub(super) rate: Option<i32>,
    pub(super) rate_period: Option<String>,
    pub(super) max_waiting: Option<i32>,
    /// The states whose count was made before, at `counted_at`.
    estimated: Vec<String>,
    counted_at: Option<DateTime<Utc>>,
    pub(super) retention_completed: Option<String>,
    pub(super) retention_cancelled: Option<String>,
    pub(super) retention_discarded: Option<String>,
}

/// Where a queue is shown.
pub(super) fn path(name: &str) -> String {
    named::path("/queue", name)
}

/// A link to it.
pub(super) fn link(visit: &Visit, name: &str) -> Markup {
    named::link(visit, "/queue", name)
}

#[derive(Deserialize)]
pub(crate) struct QueueQuery {
    name: String,
    #[serde(default)]
    since: Span,
}

pub(crate) async fn queue(
    visit: Visit,
    Query(asked): Query<QueueQuery>,
) -> Result<Response, Problem> {
    if asked.name.is_empty() {
        return Err(Problem::not_found("queue without a name"));
    }
    let queue = look(&visit, &asked.name).await?;
    let set = Limits::of(&queue);
    page(&visit, &queue, asked.since, &set, None).await
}

/// The queue as it is. One that has no jobs, and of which nothing is set, is no other than one
/// that nobody has ever used.
pub(super) async fn look(visit: &Visit, name: &str) -> Result<Queue, Problem> {
    let sql = format!("select {COLUMNS} from jobs.queues where queue = $1");
    let found = visit.row(&sql, &[&name]).await?;
    Ok(found.unwrap_or_else(|| Queue {
        queue: name.into(),
        ..Queue::default()
    }))
}

/// The page, with these limits in the form, and what is wrong with them.
pub(super) async fn page(
    visit: &Visit,
    queue: &Queue,
    since: Span,
    limits: &Limits,
    wrong: Option<&Problem>,
) -> Result<Response, Problem> {
    let name = &queue.queue;
    let history = history::read(visit, since, Some(name)).await?;
    let sql = format!(
        "select {} from jobs.workers where $1 = any(queues)
          order by status = 'lost', worker limit 20",
        worker::COLUMNS
    );
    let workers: Vec<Worker> = visit.rows(&sql, &[name]).await?;
    let main = html! {
        p.path { a href=(visit.url("/queues")) { "Queues" } }
        (visit.live("jobs-of-queue", &path(name), html! {
            @if let Some(paused) = queue.paused() { p { (paused) } }
            (queue.counts(visit))
        }))
        div.actions { (actions(visit, queue, &path(name))) }
        section aria-labelledby="limits" {
            h2 #limits { "Limits" }
            @if visit.may("configure_queue") {
                (queue_limits::form(visit, queue, limits, wrong))
            } @else {
                (queue_limits::shown(queue))
            }
        }
        section aria-labelledby="history" {
            div.section-head {
                h2 #history { "History" }
                (since.tabs(|since| visit.url(&parts::link(&path(name), [("since", since)]))))
            }
            (history::charts(since, &history))
        }
        section aria-labelledby="workers-of-queue" {
            h2 #workers-of-queue { "Workers" }
            @if workers.is_empty() {
                p { "No worker says that it fetches from this queue." }
            } @else {
                ul {
                    @for worker in &workers {
                        li {
                            (worker::link(visit, &worker.worker)) " " (parts::state(&worker.status))
                            ", runs " (parts::number(worker.running))
                        }
                    }
                }
            }
        }
        (audit::link(visit, name, "Who has changed this queue"))
    };
    Ok(visit.with_form(Screen::Queues, name, main, wrong))
}

impl Queue {
    /// How many of its jobs are in a state.
    pub(super) fn counted(&self, state: &str) -> Markup {
        parts::count(
            self.in_state(state),
            self.estimated.iter().any(|one| one == state),
        )
    }

    fn in_state(&self, state: &str) -> i64 {
        match state {
            "available" => self.available,
            "scheduled" => self.scheduled,
            "pending" => self.pending,
            "running" => self.running,
            "retryable" => self.retryable,
            "completed" => self.completed,
            "cancelled" => self.cancelled,
            _ => self.discarded,
        }
    }

    /// How many they are, with a link to them.
    pub(super) fn count(&self, visit: &Visit, state: &str) -> Markup {
        if self.in_state(state) == 0 {
            return self.counted(state);
        }
        let path = parts::link("/jobs", [("queue", &*self.queue), ("state", state)]);
        html! { a href=(visit.url(&path)) { (self.counted(state)) } }
    }

    fn counts(&self, visit: &Visit) -> Markup {
        html! {
            dl.counts {
                @for state in parts::STATES {
                    div { dt { (parts::state(state)) } dd { (self.count(visit, state)) } }
                }
            }
            p.quiet {
                @match self.oldest_available_at {
                    Some(since) => {
                        "The oldest available job became due " (parts::ago(since)) "."
                    }
                    None => "No job is available.",
                }
                @if let Some(at) = self.counted_at {
                    " Counts with a ~ were made " (parts::ago(at)) "."
                }
            }
        }
    }

    /// Since when it is paused, by whom and why.
    pub(super) fn paused(&self) -> Option<Markup> {
        let (by, reason) = (self.paused_by.as_deref(), self.pause_reason.as_deref());
        let paused =
            || html! { (parts::state("paused")) (named::since(self.paused_at, by, reason)) };
        self.paused.then(paused)
    }

    pub(super) fn limits_in_short(&self) -> Option<String> {
        let mut said = Vec::new();
        if let Some(most) = self.concurrency {
            said.push(format!("{most} run"));
        }
        if let (Some(rate), Some(period)) = (self.rate, &self.rate_period) {
            said.push(format!("{rate} start within {}", words(period)));
        }
        if let Some(most) = self.max_waiting {
            said.push(format!("{most} wait"));
        }
        (!said.is_empty()).then(|| format!("At most {}", said.join(", ")))
    }
}

const PAUSE: Call = Call {
    path: "/queue/pause",
    function: "pause_queue",
    label: "Pause",
    question: "Nobody fetches from {name} until it is resumed. Jobs that run go on.",
    button: "Pause it",
    look: Look::Danger,
};

const RESUME: Call = Call {
    path: "/queue/resume",
    function: "resume_queue",
    label: "Resume",
    question: "Jobs of {name} can be fetched again.",
    button: "Resume it",
    look: Look::Primary,
};

pub(super) fn actions(visit: &Visit, queue: &Queue, back: &str) -> Markup {
    let call = if queue.paused { RESUME } else { PAUSE };
    call.offer(visit, &queue.queue, back)
}

pub(crate) async fn pause(change: Change<Form>) -> Result<Response, Problem> {
    PAUSE.run(change, "Queue", "is paused.").await
}

pub(crate) async fn resume(change: Change<Form>) -> Result<Response, Problem> {
    RESUME.run(change, "Queue", "goes on.").await
}
