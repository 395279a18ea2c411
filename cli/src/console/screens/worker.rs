//! One worker: what it runs, what it says of itself, and what it is commanded.

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::named::{self, Call, Form, Name};
use crate::console::json::tree;
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Align, Look, pair};
use crate::console::problem::Problem;
use crate::console::room::{self, text};
use crate::console::visit::{Change, Query, Visit};

/// What a `Worker` is read from.
pub(super) const COLUMNS: &str =
    "worker, running, queues, kinds, oldest_attempted_at, next_lease_expires_at, expired,
    cancel_requested, status, first_seen_at, last_seen_at, concurrency, version, info::text,
    command, commanded_at, commanded_by, command_reason";

#[derive(Deserialize)]
pub(super) struct Worker {
    pub(super) worker: String,
    pub(super) running: i64,
    pub(super) queues: Vec<String>,
    kinds: Vec<String>,
    pub(super) oldest_attempted_at: Option<DateTime<Utc>>,
    next_lease_expires_at: Option<DateTime<Utc>>,
    expired: i64,
    cancel_requested: i64,
    pub(super) status: String,
    first_seen_at: Option<DateTime<Utc>>,
    pub(super) last_seen_at: Option<DateTime<Utc>>,
    concurrency: Option<i32>,
    version: Option<String>,
    info: Option<String>,
    command: Option<String>,
    commanded_at: Option<DateTime<Utc>>,
    commanded_by: Option<String>,
    command_reason: Option<String>,
}

/// A job that a worker holds.
#[derive(Deserialize)]
struct Held {
    id: i64,
    kind: String,
    queue: String,
    attempted_at: Option<DateTime<Utc>>,
    lease_expires_at: Option<DateTime<Utc>>,
    cancel_requested_at: Option<DateTime<Utc>>,
}

pub(crate) async fn worker(
    visit: Visit,
    Query(Name { name }): Query<Name>,
) -> Result<Response, Problem> {
    let sql = format!("select {COLUMNS} from jobs.workers where worker = $1");
    let found: Option<Worker> = visit.row(&sql, &[&name]).await?;
    let worker = found.ok_or_else(|| Problem::not_found(&format!("worker {name}")))?;
    let sql = "
        select id, kind, queue, attempted_at, lease_expires_at, cancel_requested_at
          from jobs.jobs where state = 'running' and worker = $1
         order by attempted_at limit 100";
    let jobs: Vec<Held> = visit.rows(sql, &[&worker.worker]).await?;
    let main = html! {
        p.path { a href=(visit.url("/workers")) { "Workers" } }
        p { (worker.status()) @if let Some(command) = worker.commanded() { ", " (command) } }
        div.actions { (commands(&visit, &worker, &links::worker_path(&worker.worker))) }
        (worker.says(&visit))
        section aria-labelledby="held" {
            h2 #held { "Jobs that it holds" }
            @if jobs.is_empty() { p { "None." } } @else { (held(&visit, &jobs)) }
            @if worker.running > jobs.len() as i64 {
                p.quiet {
                    "These are the " (jobs.len()) " oldest of " (parts::number(worker.running)) "."
                }
            }
        }
        @if let Some(info) = &worker.info {
            section aria-labelledby="info" {
                h2 #info { "What it says of itself" }
                (tree(info, 1, None))
            }
        }
    };
    Ok(visit.page(Screen::Workers, &worker.worker, main))
}

fn held(visit: &Visit, jobs: &[Held]) -> Markup {
    let columns = [
        ("Job", Align::Number),
        ("Kind", Align::Text),
        ("Queue", Align::Text),
        ("Began", Align::Number),
        ("Lease until", Align::Number),
        ("Asked to stop", Align::Number),
    ];
    let time = |at: Option<DateTime<Utc>>| html! { @if let Some(at) = at { (parts::ago(at)) } };
    let rows = html! {
        @for job in jobs {
            tr {
                th.number scope="row" { (links::job(visit, job.id)) }
                td { (text(&job.kind)) }
                td { (text(&job.queue)) }
                td.number { (time(job.attempted_at)) }
                td.number { (time(job.lease_expires_at)) }
                td.number { (time(job.cancel_requested_at)) }
            }
        }
    };
    parts::table("Jobs that it holds", &columns, rows)
}

impl Worker {
    pub(super) fn status(&self) -> Markup {
        html! {
            (parts::state(&self.status))
            @if self.expired > 0 {
                strong.bad { ", " (parts::number(self.expired)) " leases have run out" }
            }
            @if self.cancel_requested > 0 {
                ", " (parts::number(self.cancel_requested)) " jobs asked to stop"
            }
        }
    }

    /// What it is commanded, by whom and why.
    pub(super) fn commanded(&self) -> Option<Markup> {
        self.command.as_ref().map(|command| {
            html! {
                "told to "
                @match command.as_str() { "quiet" => "fetch no more", command => (command) }
                (named::since(
                    self.commanded_at,
                    self.commanded_by.as_deref(),
                    self.command_reason.as_deref(),
                ))
            }
        })
    }

    /// Which version it is of, and when it was seen.
    pub(super) fn seen(&self) -> Markup {
        html! {
            @if let Some(version) = &self.version { "version " (text(version)) }
            @if self.version.is_some() && self.last_seen_at.is_some() { ", " }
            @if let Some(at) = self.last_seen_at { "seen " (parts::ago(at)) }
        }
    }

    /// How many jobs it runs, of how many that it can.
    pub(super) fn places(&self) -> Markup {
        html! {
            (parts::count(self.running, false))
            @if let Some(most) = self.concurrency { " of " (parts::number(most.into())) }
        }
    }

    pub(super) fn queues(&self, visit: &Visit) -> Markup {
        few(&self.queues, |name| links::queue(visit, name))
    }

    pub(super) fn kinds(&self, visit: &Visit) -> Markup {
        let path = |kind: &str| parts::link("/jobs", [("state", "running"), ("kind", kind)]);
        few(
            &self.kinds,
            |kind| html! { a href=(visit.url(&path(kind))) { (text(kind)) } },
        )
    }

    fn says(&self, visit: &Visit) -> Markup {
        parts::key_values(html! {
            (pair("Jobs", self.places()))
            (pair("Queues", self.queues(visit)))
            (pair("Kinds", self.kinds(visit)))
            (pair("Version", room::optional(self.version.as_deref())))
            (pair("First seen", parts::ago_or_none(self.first_seen_at)))
            (pair("Last seen", parts::ago_or_none(self.last_seen_at)))
            (pair("First lease to run out", parts::ago_or_none(self.next_lease_expires_at)))
        })
    }
}

/// The first names of a list, and how many there are beside them.
fn few(names: &[String], shown: impl Fn(&str) -> Markup) -> Markup {
    const SHOWN: usize = 5;
    html! {
        @if names.is_empty() { (parts::none()) }
        @for (n, name) in names.iter().take(SHOWN).enumerate() {
            @if n > 0 { ", " }
            (shown(name))
        }
        @if names.len() > SHOWN {
            " and " (names.len() - SHOWN) " more"
        }
    }
}

const QUIET: Call = Call {
    path: "/worker/quiet",
    function: "quiet_worker",
    label: "Quiet",
    question: "{name} fetches no more until it is resumed. What it runs goes on.",
    button: "Quiet it",
    look: Look::Danger,
};

const STOP: Call = Call {
    path: "/worker/stop",
    function: "stop_worker",
    label: "Stop",
    question: "{name} fetches no more, and its program ends once what it runs is done. One that \
             starts again under this name has the same command.",
    button: "Stop it",
    look: Look::Danger,
};

const RESUME: Call = Call {
    path: "/worker/resume",
    function: "resume_worker",
    label: "Resume",
    question: "{name} can fetch again.",
    button: "Resume it",
    look: Look::Primary,
};

/// What a worker can be commanded, but for what it is.
pub(super) fn commands(visit: &Visit, worker: &Worker, back: &str) -> Markup {
    let (name, command) = (&worker.worker, worker.command.as_deref());
    html! {
        @if command.is_some() { (RESUME.offer(visit, name, back)) }
        @if command != Some("quiet") { (QUIET.offer(visit, name, back)) }
        @if command != Some("stop") { (STOP.offer(visit, name, back)) }
    }
}

pub(crate) async fn quiet(change: Change<Form>) -> Result<Response, Problem> {
    QUIET.run(change, "Worker", "is to fetch no more.").await
}

pub(crate) async fn stop(change: Change<Form>) -> Result<Response, Problem> {
    STOP.run(change, "Worker", "is to stop.").await
}

pub(crate) async fn resume(change: Change<Form>) -> Result<Response, Problem> {
    RESUME.run(change, "Worker", "can fetch again.").await
}
