//! One periodic job: its definition, its ticks and its actions.

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::named::{self, Call, Form, Name};
use crate::console::fields::given;
use crate::console::interval::words;
use crate::console::json::tree;
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Align, Look, pair};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::{Change, Only, Query, Visit};

/// The columns of a `Periodic`.
pub(super) const COLUMNS: &str =
    "name, cron, time_zone, kind, queue, next_run_at, last_run_at, last_error, defined_at,
    missed, paused_at, paused_by, pause_reason, last_ticks";

#[derive(Deserialize)]
pub(super) struct Periodic {
    pub(super) name: String,
    cron: String,
    time_zone: String,
    pub(super) kind: String,
    pub(super) queue: String,
    next_run_at: Option<DateTime<Utc>>,
    pub(super) last_run_at: Option<DateTime<Utc>>,
    pub(super) last_error: Option<String>,
    defined_at: DateTime<Utc>,
    missed: String,
    paused_at: Option<DateTime<Utc>>,
    paused_by: Option<String>,
    pause_reason: Option<String>,
    last_ticks: Vec<Tick>,
}

#[derive(Deserialize)]
struct Tick {
    at: DateTime<Utc>,
    job_id: Option<i64>,
    state: Option<String>,
    skipped: Option<bool>,
    error: Option<String>,
}

/// The job of each tick. Unset options have their defaults.
#[derive(Deserialize)]
struct Inserted {
    args: Option<String>,
    unique_opts: Option<String>,
    priority: Option<i32>,
    max_attempts: Option<i32>,
    tags: Option<Vec<String>>,
    meta: Option<String>,
    timeout: Option<String>,
    retry: Option<String>,
}

pub(crate) async fn periodic_job(
    visit: Visit,
    Query(Name { name }): Query<Name>,
) -> Result<Response, Problem> {
    let not_found = || Problem::not_found(&format!("Periodic job {name}"));
    let sql = format!("select {COLUMNS} from jobs.periodic where name = $1");
    let found: Option<Periodic> = visit.row(&sql, &[&name]).await?;
    let one = found.ok_or_else(not_found)?;
    let sql = "
        select args::text, unique_opts::text, priority, max_attempts, tags, meta::text,
               timeout, retry::text
          from jobs.periodic where name = $1";
    let inserted: Option<Inserted> = visit.row(sql, &[&name]).await?;
    let inserted = inserted.ok_or_else(not_found)?;
    let main = html! {
        p.path { a href=(visit.url("/periodic")) { "Periodic jobs" } }
        @if let Some(paused) = one.paused() { p { (paused) } }
        @if let Some(error) = &one.last_error { p.bad { (text(error)) } }
        div.actions { (actions(&visit, &one, &links::periodic_job_path(&one.name))) }
        (one.says(&visit))
        (parts::section("ticks", "Latest ticks", html! {
            @if one.last_ticks.is_empty() {
                p { "No ticks yet." }
            } @else {
                (one.ticks(&visit))
            }
        }))
        (parts::section("inserted", "Inserted job", html! {
            (inserted.says(&visit))
        }))
        (links::audit(&visit, &one.name))
    };
    Ok(visit.page(Screen::Periodic, &one.name, main))
}

impl Periodic {
    /// Its schedule. An interval from a fixed time has no time zone.
    pub(super) fn runs(&self) -> Markup {
        let has_clock = !self.cron.trim_start().starts_with("every");
        html! { code { (text(&self.cron)) } @if has_clock { ", " (text(&self.time_zone)) } }
    }

    /// When, by whom and why it was paused.
    pub(super) fn paused(&self) -> Option<Markup> {
        self.paused_at.map(|at| {
            let (by, reason) = (self.paused_by.as_deref(), self.pause_reason.as_deref());
            html! { (parts::state("paused")) (named::since(Some(at), by, reason)) }
        })
    }

    pub(super) fn next(&self) -> Markup {
        match self.next_run_at {
            Some(at) => parts::until(at),
            None if self.paused_at.is_some() => html! { "paused" },
            None => html! { "never" },
        }
    }

    fn missed(&self) -> Markup {
        match self.missed.as_str() {
            "skip" => html! { "skipped" },
            _ => html! { "only the latest runs" },
        }
    }

    fn says(&self, visit: &Visit) -> Markup {
        let kind = parts::link("/jobs", [("kind", &self.kind)]);
        parts::key_values(html! {
            (pair("Schedule", self.runs()))
            (pair("Next tick", self.next()))
            (pair("Last tick", parts::ago_or_none(self.last_run_at)))
            (pair("Kind", html! { a href=(visit.url(&kind)) { (text(&self.kind)) } }))
            (pair("Queue", links::queue(visit, &self.queue)))
            (pair("Missed ticks", self.missed()))
            (pair("Defined", parts::ago(self.defined_at)))
        })
    }

    /// The latest ticks, the newest last, as a row of dots.
    pub(super) fn ticks_in_short(&self, visit: &Visit) -> Markup {
        html! {
            ol.ticks {
                @for tick in self.last_ticks.iter().rev() {
                    @let at = tick.at.format("%Y-%m-%d %H:%M:%S UTC");
                    @let said = format!("{}, {at}", tick.became());
                    @let job = tick.job_id.map(|id| visit.url(&links::job_path(id)));
                    li {
                        // Without a job it is not a link.
                        a.tick.(tick.became()) href=[job] title=(said) {
                            span.visually-hidden { (said) }
                        }
                    }
                }
            }
        }
    }

    fn ticks(&self, visit: &Visit) -> Markup {
        let columns = [
            ("Tick", Align::Text),
            ("Outcome", Align::Text),
            ("Job", Align::Number),
            ("Error", Align::Wide),
        ];
        let rows = html! {
            @for tick in &self.last_ticks {
                tr {
                    td { (parts::exactly(tick.at)) }
                    td { (parts::state(tick.became())) }
                    td.number {
                        @if let Some(id) = tick.job_id {
                            @if tick.skipped == Some(true) { "duplicate of " }
                            (links::job(visit, id))
                        }
                    }
                    td.wide { (text(tick.error.as_deref().unwrap_or_default())) }
                }
            }
        };
        parts::table("Latest ticks", &columns, rows)
    }
}

impl Tick {
    /// Its outcome: the state of its job, or why it has none.
    fn became(&self) -> &str {
        match (&self.state, self.job_id) {
            _ if self.skipped == Some(true) => "skipped",
            (Some(state), _) => state,
            (None, Some(_)) => "gone",
            (None, None) => "failed",
        }
    }
}

impl Inserted {
    fn says(&self, visit: &Visit) -> Markup {
        let json = |text: &Option<String>| match text {
            Some(text) => tree(text, 1, None),
            None => parts::none(),
        };
        let number = |number: Option<i32>| match number {
            Some(number) => parts::number(number.into()),
            None => html! { "kind's default" },
        };
        let payload = |text: &Option<String>| match visit.sees_payload() {
            true => json(text),
            false => html! { "Hidden from your role." },
        };
        let timeout = self.timeout.as_deref().map(words);
        let tags = self.tags.as_deref().unwrap_or_default().join(", ");
        parts::key_values(html! {
            (pair("Args", payload(&self.args)))
            (pair("Meta", payload(&self.meta)))
            (pair("Unique options", json(&self.unique_opts)))
            (pair("Priority", number(self.priority)))
            (pair("Max attempts", number(self.max_attempts)))
            (pair("Timeout", html! { (timeout.as_deref().unwrap_or("kind's default")) }))
            (pair("Retry policy", json(&self.retry)))
            (pair("Tags", text(&tags)))
        })
    }
}

const RUN: Call = Call {
    path: "/periodic/run",
    function: "run_periodic",
    label: "Run now",
    question: "Inserts a {name} job now. The schedule is unaffected.",
    button: "Insert job",
    look: Look::Primary,
};

const PAUSE: Call = Call {
    path: "/periodic/pause",
    function: "pause_periodic",
    label: "Pause",
    question: "{name} inserts no jobs until you resume it. Existing jobs are unaffected.",
    button: "Pause schedule",
    look: Look::Danger,
};

const RESUME: Call = Call {
    path: "/periodic/resume",
    function: "resume_periodic",
    label: "Resume",
    question: "{name} continues with its next tick. Ticks during the pause are skipped.",
    button: "Resume schedule",
    look: Look::Primary,
};

pub(super) fn actions(visit: &Visit, one: &Periodic, back: &str) -> Markup {
    let other = if one.paused_at.is_some() { RESUME } else { PAUSE };
    html! { (RUN.offer(visit, &one.name, back)) (other.offer(visit, &one.name, back)) }
}

pub(crate) async fn pause(change: Change<Form>) -> Result<Response, Problem> {
    PAUSE.run(change, "Periodic job", "is paused.").await
}

pub(crate) async fn resume(change: Change<Form>) -> Result<Response, Problem> {
    RESUME.run(change, "Periodic job", "is resumed.").await
}

/// A job that was run by hand.
#[derive(Deserialize)]
struct Run {
    id: i64,
    began: DateTime<Utc>,
}

pub(crate) async fn run(change: Change<Form>) -> Result<Response, Problem> {
    let form = &change.form;
    let reason = given(&form.reason);
    let sql = "select jobs.run_periodic($1, $2) as id, now() as began";
    let Run { id, began } = change.call(sql, &[&form.name, &reason]).await?;
    // A duplicate existed before the call.
    let sql = "select created_at >= $2 from jobs.jobs where id = $1";
    let is_new = change.visit.row(sql, &[&id, &began]).await?;
    let message = match is_new {
        Some(Only(false)) => {
            format!("Nothing inserted: the job of {} would duplicate this one.", form.name)
        }
        _ => format!("Job {id} of {} inserted.", form.name),
    };
    Ok(change.done(&links::job_path(id), message))
}
