//! One queue: its jobs, limits, order, history and workers.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::cells;
use super::history::{self, Span};
use super::named::{Call, Form};
use super::order_read;
use super::queue_limits;
use super::queue_read::{Queue, look};
use super::setting::Setting;
use super::worker::{self, Worker};
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Query, Visit};
use crate::filter::STATES;

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
        return Err(Problem::no_page());
    }
    let queue = look(&visit, &asked.name).await?;
    let set = queue_limits::setting(&queue);
    page(&visit, &queue, asked.since, &set, None).await
}

/// The page with these limits in the form, and their problem.
pub(super) async fn page(
    visit: &Visit,
    queue: &Queue,
    since: Span,
    limits: &Setting,
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
    let order = order_read::look(visit, name).await?;
    let placement = cells::placement(visit, name).await?;
    let main = html! {
        p.path { a href=(visit.url("/queues")) { "Queues" } }
        (visit.live("jobs-of-queue", &links::queue_path(name), html! {
            @if let Some(paused) = queue.paused() { p { (paused) } }
            (queue.counts(visit))
        }))
        (placement)
        div.actions { (actions(visit, queue, &links::queue_path(name))) }
        (parts::section("limits", "Limits", html! {
            @if visit.may("configure_queue") {
                (queue_limits::form(visit, queue, limits, wrong))
            } @else {
                (queue_limits::shown(queue))
            }
        }))
        (parts::section("order", "Order", html! {
            p {
                (order_read::said(order.as_ref()))
                @if let Some(order) = order.as_ref().filter(|order| order.blocked_keys > 0) {
                    " " (parts::plural(order.blocked_keys, "blocked key")) "."
                }
            }
            @if order.is_some() || visit.may("order_queue") {
                @let label = if order.is_some() { "View order" } else { "Set an order" };
                (parts::link_button(label, &visit.url(&links::order_path(name)), Look::Plain))
            }
        }))
        section aria-labelledby="history" {
            div.section-head {
                h2 #history { "History" }
                (since.tabs(|since| visit.url(&parts::link(&links::queue_path(name), [("since", since)]))))
            }
            (history::charts(since, &history))
        }
        (parts::section("workers-of-queue", "Workers", html! {
            @if workers.is_empty() {
                p { "No worker fetches from this queue." }
            } @else {
                ul {
                    @for worker in &workers {
                        li {
                            (links::worker(visit, &worker.worker)) " " (parts::state(&worker.status))
                            ", " (parts::number(worker.running)) " running"
                        }
                    }
                }
            }
        }))
        (links::audit(visit, name))
    };
    Ok(visit.with_form(Screen::Queues, name, main, wrong))
}

pub(crate) async fn set_limits(mut change: Change<Setting>) -> Result<Response, Problem> {
    let queue = look(&change.visit, &change.form.name).await?;
    let Err(wrong) = queue_limits::configure(&mut change, &queue).await else {
        let name = &change.form.name;
        return Ok(change.done(&links::queue_path(name), format!("Limits of queue {name} saved.")));
    };
    let since = Span::default();
    page(&change.visit, &queue, since, &change.form, Some(&wrong)).await
}

impl Queue {
    fn counts(&self, visit: &Visit) -> Markup {
        html! {
            dl.counts {
                @for state in STATES {
                    div { dt { (parts::state(state)) } dd { (self.count(visit, state)) } }
                }
            }
            p.quiet {
                @match self.oldest_available_at {
                    Some(since) => {
                        "The oldest available job became due " (parts::ago(since)) "."
                    }
                    None => "No jobs are available.",
                }
                @if let Some(at) = self.counted_at {
                    " Counts marked ~ are estimates from " (parts::ago(at)) "."
                }
            }
        }
    }
}

const PAUSE: Call = Call {
    path: "/queue/pause",
    function: "pause_queue",
    label: "Pause",
    question: "Workers fetch nothing from {name} until you resume it. Running jobs are unaffected.",
    button: "Pause queue",
    look: Look::Danger,
};

const RESUME: Call = Call {
    path: "/queue/resume",
    function: "resume_queue",
    label: "Resume",
    question: "Workers fetch from {name} again.",
    button: "Resume queue",
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
    RESUME.run(change, "Queue", "is resumed.").await
}
