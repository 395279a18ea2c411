//! The overview: findings, counts, history, queues and workers.

use std::time::Duration;

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::history::{self, Span};
use super::queue_read::{self, Queue};
use super::worker::{self, Worker};
use super::workers;
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Align};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::{Query, Visit};
use crate::finding::Finding;
use crate::visible;

/// How long results of jobs.health() are shared: it is expensive, and its findings can wait.
pub(super) const HEALTH_KEPT: Duration = Duration::from_secs(30);
pub(super) const HEALTH: &str = "select * from jobs.health()";
/// How many queues and workers are shown here.
const SHORT: i64 = 8;
/// How many findings are shown unfolded, so that numbers and charts fit on the first screen.
const WORST: usize = 3;

#[derive(Deserialize)]
pub(crate) struct OverviewQuery {
    #[serde(default)]
    since: Span,
}

#[derive(Deserialize)]
struct Queues {
    all: i64,
    available: i64,
    running: i64,
    scheduled: i64,
    retryable: i64,
    discarded: i64,
    /// The states whose numbers are estimates.
    estimated: Vec<String>,
    busiest: Vec<Queue>,
}

/// Of all queues, as `q`.
const QUEUES: &str = "
select count(*) as all, coalesce(sum(available), 0)::bigint as available,
    coalesce(sum(running), 0)::bigint as running, coalesce(sum(scheduled), 0)::bigint as scheduled,
    coalesce(sum(retryable), 0)::bigint as retryable,
    coalesce(sum(discarded), 0)::bigint as discarded,
    (select coalesce(jsonb_agg(distinct e), '[]') from q, unnest(q.estimated) e) as estimated,
    (select coalesce(jsonb_agg(b), '[]') from (
        select * from q order by running + available desc, queue limit $1) b) as busiest
from q";

#[derive(Deserialize)]
struct Workers {
    all: i64,
    lost: i64,
    concurrency: Option<i64>,
    busiest: Vec<Worker>,
}

/// Of all workers, as `w`.
const WORKERS: &str = "
select count(*) filter (where status <> 'lost') as all,
    count(*) filter (where status = 'lost') as lost,
    (sum(concurrency) filter (where status <> 'lost'))::bigint as concurrency,
    (select coalesce(jsonb_agg(b), '[]') from (
        select * from w order by status = 'lost', running desc, worker limit $1) b) as busiest
from w";

pub(crate) async fn show(
    visit: Visit,
    Query(asked): Query<OverviewQuery>,
) -> Result<Response, Problem> {
    let findings = visit.rows_kept::<Finding>(HEALTH_KEPT, HEALTH, &[]);
    let sql = [
        format!(
            "with q as materialized (select {} from jobs.queues) {QUEUES}",
            queue_read::COLUMNS
        ),
        format!("with w as materialized (select {} from jobs.workers) {WORKERS}", worker::COLUMNS),
    ];
    let queues = visit.one::<Queues>(&sql[0], &[&SHORT]);
    let workers = visit.one::<Workers>(&sql[1], &[&SHORT]);
    let history = history::read(&visit, asked.since, None);
    let (findings, queues, workers, history) =
        tokio::try_join!(findings, queues, workers, history)?;
    let main = html! {
        (findings_of(&visit, &findings))
        (tiles(&visit, &queues, &workers))
        div.section-head {
            h2 { "History" }
            (asked.since.tabs(|since| visit.url(&format!("/?since={since}"))))
        }
        (history::charts(asked.since, &history))
        div.columns {
            (queues_of(&visit, &queues))
            (workers_of(&visit, &workers))
        }
    };
    Ok(visit.page(Screen::Overview, "Overview", main))
}

/// The worst findings, and the others folded.
fn findings_of(visit: &Visit, findings: &[Finding]) -> Markup {
    let (worst, others) = findings.split_at(findings.len().min(WORST));
    html! {
        section.findings aria-labelledby="health" {
            h2 #health.visually-hidden { "Health" }
            @if findings.is_empty() {
                p.all-well { (parts::severity("ok")) "Nothing needs attention." }
            }
            @for finding in worst { (shown(visit, finding)) }
            @if !others.is_empty() {
                details.more-findings {
                    summary { (parts::plural(others.len() as i64, "more finding")) }
                    @for finding in others { (shown(visit, finding)) }
                }
            }
        }
    }
}

fn shown(visit: &Visit, found: &Finding) -> Markup {
    html! {
        div class={ "finding " (parts::severity_class(&found.severity)) } {
            (parts::severity(&found.severity))
            div.finding-text {
                p { (text(&found.message)) }
                @if let Some(hint) = &found.hint {
                    details { summary { "Suggested fix" } p { code { (text(hint)) } } }
                }
            }
            @if let Some((label, path)) = screen_of(&found.finding) {
                a.finding-link href=(visit.url(path)) { (label) }
            }
        }
    }
}

/// The screen with details about a finding.
fn screen_of(finding: &str) -> Option<(&'static str, &'static str)> {
    Some(match finding {
        "discarded" | "mostly_failing" => ("Failures", "/failures"),
        "oldest_available" | "queue_paused" | "no_worker" => ("Queues", "/queues"),
        "limit_paused" | "key_blocked" => ("Limits", "/limits"),
        "running_long" => ("Running jobs", "/jobs?state=running"),
        "expired_leases" => ("Workers", "/workers"),
        "clock_moved" => ("Audit", "/audit"),
        "periodic_failed" => ("Periodic jobs", "/periodic"),
        "worker_not_running"
        | "no_place"
        | "maintenance_paused"
        | "maintenance_failing"
        | "restoring" => ("Maintenance", "/maintenance"),
        _ => return None,
    })
}

fn tiles(visit: &Visit, queues: &Queues, workers: &Workers) -> Markup {
    let states = [
        ("available", queues.available),
        ("running", queues.running),
        ("scheduled", queues.scheduled),
        ("retryable", queues.retryable),
        ("discarded", queues.discarded),
    ];
    html! {
        ul.tiles aria-label="Jobs by state" {
            @for (state, number) in states {
                li {
                    a href=(visit.url(&format!("/jobs?state={state}"))) {
                        (parts::state(state))
                        span.tile-number { (parts::count(number, queues.estimated.iter().any(|one| one == state))) }
                    }
                }
            }
            li {
                a href=(visit.url("/workers")) {
                    span.tile-name { "workers" }
                    span.tile-number {
                        (parts::number(workers.all))
                    }
                    @if let Some(concurrency) = workers.concurrency {
                        span.tile-name { "concurrency " (parts::number(concurrency)) }
                    }
                }
            }
        }
    }
}

fn queues_of(visit: &Visit, queues: &Queues) -> Markup {
    let columns = [
        ("Queue", Align::Wide),
        ("Available", Align::Number),
        ("Running", Align::Number),
        ("Oldest available", Align::Number),
    ];
    let rows = html! {
        @for queue in &queues.busiest {
            tr {
                td.wide {
                    (links::queue(visit, &queue.queue))
                    @if queue.paused { " " (parts::state("paused")) }
                }
                td.number { (queue.counted("available")) }
                td.number {
                    (queue.counted("running"))
                    @if let Some(most) = queue.concurrency { " of " (parts::number(most.into())) }
                }
                td.number { (parts::ago_or_none(queue.oldest_available_at)) }
            }
        }
    };
    let more = queues.all - queues.busiest.len() as i64;
    html! {
        section {
            h2 { "Busiest queues" }
            @if queues.busiest.is_empty() {
                (parts::empty("No queues yet", html! {
                    "A queue exists once it has a job. Insert one: " code { "pgjobs insert hello" }
                }))
            } @else {
                (parts::table("Busiest queues", &columns, rows))
            }
            @if more > 0 {
                p { a href=(visit.url("/queues")) { (parts::plural(more, "more queue")) } }
            }
        }
    }
}

fn workers_of(visit: &Visit, workers: &Workers) -> Markup {
    let columns = [
        ("Worker", Align::Wide),
        ("Status", Align::Text),
        ("Running", Align::Number),
        ("Last seen", Align::Number),
    ];
    let rows = html! {
        @for worker in &workers.busiest {
            tr {
                td.wide title={ "Queues: " (visible::line(&worker.queues.join(", "))) } {
                    (links::worker(visit, &worker.worker))
                }
                td { (parts::state(&worker.status)) }
                td.number { (worker.places()) }
                td.number { (parts::ago_or_none(worker.last_seen_at)) }
            }
        }
    };
    let more = workers.all + workers.lost - workers.busiest.len() as i64;
    html! {
        section {
            h2 { "Workers" }
            @if workers.busiest.is_empty() {
                (workers::nothing())
            } @else {
                (parts::table("Workers", &columns, rows))
            }
            @if more > 0 {
                p { a href=(visit.url("/workers")) { (parts::plural(more, "more worker")) } }
            }
        }
    }
}
