//! The overview: what needs attention, how much happens, and how fast.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::App;
use super::history::{self, Range};
use super::page::Screen;
use super::parts::{self, Align};
use super::problem::Problem;
use super::visit::{Query, Visit};

/// jobs.health() looks at much, and finds nothing that could not wait for so long.
const HEALTH_KEPT: Duration = Duration::from_secs(30);
/// How many queues and workers are shown here.
const SHORT: i64 = 8;
/// How many findings are shown at once. Figures and charts are to be on the first screen.
const WORST: usize = 3;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route("/", get(show))
}

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    since: Range,
}

#[derive(Deserialize)]
struct Finding {
    severity: String,
    finding: String,
    message: String,
    hint: Option<String>,
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

#[derive(Deserialize)]
struct Queue {
    queue: String,
    available: i64,
    running: i64,
    oldest_available_at: Option<DateTime<Utc>>,
    paused: bool,
    concurrency: Option<i64>,
    is_estimated: bool,
}

const QUEUES: &str = "
with q as materialized (
    select queue, available, running, scheduled, retryable, discarded, oldest_available_at, paused,
        concurrency, 'available' = any (estimated) as is_estimated, estimated
    from jobs.queues)
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

#[derive(Deserialize)]
struct Worker {
    worker: String,
    running: i64,
    concurrency: Option<i64>,
    queues: Option<Vec<String>>,
    status: Option<String>,
    last_seen_at: Option<DateTime<Utc>>,
}

const WORKERS: &str = "
with w as materialized (
    select worker, running, concurrency, queues, status, last_seen_at from jobs.workers)
select count(*) filter (where status is distinct from 'lost') as all,
    count(*) filter (where status = 'lost') as lost,
    (sum(concurrency) filter (where status is distinct from 'lost'))::bigint as concurrency,
    (select coalesce(jsonb_agg(b), '[]') from (
        select * from w order by status = 'lost', running desc, worker limit $1) b) as busiest
from w";

async fn show(visit: Visit, Query(asked): Query<Asked>) -> Result<Response, Problem> {
    let findings = visit.rows_kept::<Finding>(HEALTH_KEPT, "select * from jobs.health()", &[]);
    let queues = visit.row::<Queues>(QUEUES, &[&SHORT]);
    let workers = visit.row::<Workers>(WORKERS, &[&SHORT]);
    let history = history::read(&visit, asked.since, None);
    let (findings, queues, workers, history) =
        tokio::try_join!(findings, queues, workers, history)?;
    let (queues, workers) = (queues.expect("one row"), workers.expect("one row"));
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

/// The worst ones, which come first, and the others on demand.
fn findings_of(visit: &Visit, findings: &[Finding]) -> Markup {
    let (worst, others) = findings.split_at(findings.len().min(WORST));
    html! {
        section.findings aria-labelledby="health" {
            h2 #health.visually-hidden { "Health" }
            @if findings.is_empty() {
                p.all-well { (parts::severity("well")) "All is well: nothing needs attention." }
            }
            @for finding in worst { (finding.shown(visit)) }
            @if !others.is_empty() {
                details.more-findings {
                    summary { (others.len()) " more" }
                    @for finding in others { (finding.shown(visit)) }
                }
            }
        }
    }
}

impl Finding {
    fn shown(&self, visit: &Visit) -> Markup {
        html! {
            div class={ "finding " (parts::severity_class(&self.severity)) } {
                (parts::severity(&self.severity))
                div.finding-text {
                    p { (self.message) }
                    @if let Some(hint) = &self.hint {
                        details { summary { "What to do" } p { code { (hint) } } }
                    }
                }
                @if let Some((label, path)) = screen_of(&self.finding) {
                    a.finding-link href=(visit.url(path)) { (label) }
                }
            }
        }
    }
}

/// Where more is to be seen about a finding.
fn screen_of(finding: &str) -> Option<(&'static str, &'static str)> {
    Some(match finding {
        "discarded" | "mostly_failing" => ("Failures", "/failures"),
        "oldest_available" | "queue_paused" | "no_worker" => ("Queues", "/queues"),
        "running_long" => ("Running jobs", "/jobs?state=running"),
        "expired_leases" => ("Workers", "/workers"),
        "periodic_failed" => ("Periodic jobs", "/periodic"),
        "worker_not_running" | "maintenance_paused" | "maintenance_failing" | "restoring" => {
            ("Maintenance", "/maintenance")
        }
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
        ("Oldest due", Align::Number),
    ];
    let rows = html! {
        @for queue in &queues.busiest {
            tr {
                td.wide {
                    a href=(visit.url(&parts::link("/queue", &[("name", &queue.queue)]))) { (queue.queue) }
                    @if queue.paused { " " (parts::state("paused")) }
                }
                td.number { (parts::count(queue.available, queue.is_estimated)) }
                td.number {
                    (parts::count(queue.running, false))
                    @if let Some(most) = queue.concurrency { span.unit { "of " (parts::number(most)) } }
                }
                td.number {
                    @match queue.oldest_available_at {
                        Some(at) => (parts::ago(at)),
                        None => (parts::none()),
                    }
                }
            }
        }
    };
    let more = queues.all - queues.busiest.len() as i64;
    html! {
        section {
            h2 { "Busiest queues" }
            @if queues.busiest.is_empty() {
                (parts::empty("No queues yet", html! {
                    "A queue is there once it has a job. Insert one: " code { "jobs insert hello" }
                }))
            } @else {
                (parts::table("Busiest queues", &columns, rows))
            }
            @if more > 0 {
                p { a href=(visit.url("/queues")) { (parts::number(more)) " more queues" } }
            }
        }
    }
}

fn workers_of(visit: &Visit, workers: &Workers) -> Markup {
    let columns = [
        ("Worker", Align::Wide),
        ("Status", Align::Text),
        ("Running", Align::Number),
        ("Seen", Align::Number),
    ];
    let rows = html! {
        @for worker in &workers.busiest {
            @let queues = worker.queues.as_deref().unwrap_or_default().join(", ");
            tr {
                td.wide title={ "Queues: " (queues) } {
                    a href=(visit.url(&parts::link("/worker", &[("name", &worker.worker)]))) { (worker.worker) }
                }
                td { (parts::state(worker.status.as_deref().unwrap_or("run"))) }
                td.number {
                    (parts::count(worker.running, false))
                    @if let Some(most) = worker.concurrency { span.unit { "of " (parts::number(most)) } }
                }
                td.number {
                    @match worker.last_seen_at {
                        Some(at) => (parts::ago(at)),
                        None => (parts::none()),
                    }
                }
            }
        }
    };
    let more = workers.all + workers.lost - workers.busiest.len() as i64;
    html! {
        section {
            h2 { "Workers" }
            @if workers.busiest.is_empty() {
                (parts::empty("No workers", html! {
                    "Nobody holds jobs or says that it is there. Start one: "
                    code { "jobs work -- ./your-program" }
                }))
            } @else {
                (parts::table("Workers", &columns, rows))
            }
            @if more > 0 {
                p { a href=(visit.url("/workers")) { (parts::number(more)) " more workers" } }
            }
        }
    }
}
