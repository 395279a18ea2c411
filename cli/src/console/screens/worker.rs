//! One worker: its jobs, its info and its command.

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

/// The columns of a `Worker`.
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
    let worker = found.ok_or_else(|| Problem::not_found(&format!("Worker {name}")))?;
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
        (parts::section("held", "Running jobs", html! {
            @if jobs.is_empty() { p { "None." } } @else { (held(&visit, &jobs)) }
            @if worker.running > jobs.len() as i64 {
                p.quiet {
                    "The oldest " (jobs.len()) " of " (parts::number(worker.running)) "."
                }
            }
        }))
        @if let Some(info) = &worker.info {
            (parts::section("info", "Reported info", html! {
                (tree(info, 1, None))
            }))
        }
    };
    Ok(visit.page(Screen::Workers, &worker.worker, main))
}

fn held(visit: &Visit, jobs: &[Held]) -> Markup {
    let columns = [
        ("Job", Align::Number),
        ("Kind", Align::Text),
        ("Queue", Align::Text),
        ("Started", Align::Number),
        ("Lease expires", Align::Number),
        ("Cancel requested", Align::Number),
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
    parts::table("Running jobs", &columns, rows)
}

impl Worker {
    pub(super) fn status(&self) -> Markup {
        html! {
            (parts::state(&self.status))
            @if self.expired > 0 {
                strong.bad { ", " (parts::plural(self.expired, "expired lease")) }
            }
            @if self.cancel_requested > 0 {
                ", " (parts::plural(self.cancel_requested, "cancel request"))
            }
        }
    }

    /// Its command, with the time, role and reason.
    pub(super) fn commanded(&self) -> Option<Markup> {
        self.command.as_ref().map(|command| {
            html! {
                "told to "
                @match command.as_str() { "quiet" => "be quiet", command => (command) }
                (named::since(
                    self.commanded_at,
                    self.commanded_by.as_deref(),
                    self.command_reason.as_deref(),
                ))
            }
        })
    }

    /// Its version, and when it was last seen.
    pub(super) fn seen(&self) -> Markup {
        html! {
            @if let Some(version) = &self.version { "version " (text(version)) }
            @if self.version.is_some() && self.last_seen_at.is_some() { ", " }
            @if let Some(at) = self.last_seen_at { "seen " (parts::ago(at)) }
        }
    }

    /// The number of its running jobs, and its concurrency.
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
        few(&self.kinds, |kind| html! { a href=(visit.url(&path(kind))) { (text(kind)) } })
    }

    fn says(&self, visit: &Visit) -> Markup {
        parts::key_values(html! {
            (pair("Running", self.places()))
            (pair("Queues", self.queues(visit)))
            (pair("Kinds", self.kinds(visit)))
            (pair("Version", room::optional(self.version.as_deref())))
            (pair("First seen", parts::ago_or_none(self.first_seen_at)))
            (pair("Last seen", parts::ago_or_none(self.last_seen_at)))
            (pair("Next lease expiry", parts::ago_or_none(self.next_lease_expires_at)))
        })
    }
}

/// The first names of a list, and the number of the others.
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
    question: "{name} stops fetching until you resume it. Its running jobs are unaffected.",
    button: "Quiet worker",
    look: Look::Danger,
};

const STOP: Call = Call {
    path: "/worker/stop",
    function: "stop_worker",
    label: "Stop",
    question: "{name} stops fetching, and its program exits once its running jobs are done. A worker \
             that starts under this name later receives the same command.",
    button: "Stop worker",
    look: Look::Danger,
};

const RESUME: Call = Call {
    path: "/worker/resume",
    function: "resume_worker",
    label: "Resume",
    question: "{name} fetches again.",
    button: "Resume worker",
    look: Look::Primary,
};

/// The commands for a worker, except its present one.
pub(super) fn commands(visit: &Visit, worker: &Worker, back: &str) -> Markup {
    let (name, command) = (&worker.worker, worker.command.as_deref());
    html! {
        @if command.is_some() { (RESUME.offer(visit, name, back)) }
        @if command != Some("quiet") { (QUIET.offer(visit, name, back)) }
        @if command != Some("stop") { (STOP.offer(visit, name, back)) }
    }
}

pub(crate) async fn quiet(change: Change<Form>) -> Result<Response, Problem> {
    QUIET.run(change, "Worker", "is told to be quiet.").await
}

pub(crate) async fn stop(change: Change<Form>) -> Result<Response, Problem> {
    STOP.run(change, "Worker", "is told to stop.").await
}

pub(crate) async fn resume(change: Change<Form>) -> Result<Response, Problem> {
    RESUME.run(change, "Worker", "is resumed.").await
}
