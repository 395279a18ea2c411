//! One periodic job: its definition, its ticks, and what can be done with it.

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::queue;
use crate::console::fields::{given, hidden, reason};
use crate::console::interval::words;
use crate::console::json::tree;
use crate::console::page::Screen;
use crate::console::parts::{self, Align, Kind};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Query, Visit};

/// What a `Periodic` is read from.
pub(super) const COLUMNS: &str =
    "name, cron, time_zone, kind, queue, next_run_at, last_run_at, last_error, defined_at,
    paused_at, paused_by, pause_reason, last_ticks";

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

/// What is inserted at each tick; what is not said has its default.
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

/// Where a periodic job is shown. The name may have any character, so it is not part of the path.
pub(super) fn path(name: &str) -> String {
    parts::link("/periodic/job", &[("name", name)])
}

#[derive(Deserialize)]
pub(crate) struct Name {
    name: String,
}

pub(crate) async fn periodic_job(
    visit: Visit,
    Query(at): Query<Name>,
) -> Result<Response, Problem> {
    let not_found = || Problem::not_found(&format!("periodic job {}", at.name));
    let sql = format!("select {COLUMNS} from jobs.periodic where name = $1");
    let found: Option<Periodic> = visit.row(&sql, &[&at.name]).await?;
    let one = found.ok_or_else(not_found)?;
    let inserted: Option<Inserted> = visit
        .row(
            "select args::text, unique_opts::text, priority, max_attempts, tags, meta::text,
                    timeout, retry::text
               from jobs.periodic where name = $1",
            &[&at.name],
        )
        .await?;
    let inserted = inserted.ok_or_else(not_found)?;
    let main = html! {
        p.path { a href=(visit.url("/periodic")) { "Periodic jobs" } }
        @if let Some(paused) = one.paused() { p { (paused) } }
        @if let Some(error) = &one.last_error { p.bad { (error) } }
        div.actions { (actions(&visit, &one, &path(&one.name))) }
        (parts::key_values(&one.says(&visit)))
        section aria-labelledby="ticks" {
            h2 #ticks { "Latest ticks" }
            @if one.last_ticks.is_empty() {
                p { "No tick has been dealt with yet." }
            } @else {
                (one.ticks(&visit))
            }
        }
        section aria-labelledby="inserted" {
            h2 #inserted { "What is inserted" }
            (parts::key_values(&inserted.says(&visit)))
        }
        p {
            a href=(visit.url(&parts::link("/audit", &[("target", &one.name)]))) {
                "Who has changed it"
            }
        }
    };
    Ok(visit.page(Screen::Periodic, &one.name, main))
}

impl Periodic {
    /// When it runs; what counts from one moment on goes by no clock.
    pub(super) fn runs(&self) -> Markup {
        let has_clock = !self.cron.trim_start().starts_with("every");
        html! { code { (self.cron) } @if has_clock { ", " (self.time_zone) } }
    }

    /// Since when it is paused, by whom and why.
    pub(super) fn paused(&self) -> Option<Markup> {
        self.paused_at.map(|at| {
            html! {
                (parts::state("paused")) " " (parts::ago(at))
                @if let Some(by) = &self.paused_by { " by " bdi { (by) } }
                @if let Some(reason) = &self.pause_reason { ": " bdi { (reason) } }
            }
        })
    }

    pub(super) fn next(&self) -> Markup {
        match self.next_run_at {
            Some(at) => parts::until(at),
            None if self.paused_at.is_some() => html! { "paused" },
            None => html! { "never" },
        }
    }

    fn says(&self, visit: &Visit) -> Vec<(&'static str, Markup)> {
        let kind = parts::link("/jobs", &[("kind", &self.kind)]);
        vec![
            ("Runs", self.runs()),
            ("Next", self.next()),
            (
                "Last",
                self.last_run_at.map_or_else(parts::none, parts::ago),
            ),
            ("Kind", html! { a href=(visit.url(&kind)) { (self.kind) } }),
            (
                "Queue",
                html! { a href=(visit.url(&queue::path(&self.queue))) { (self.queue) } },
            ),
            ("Defined", parts::ago(self.defined_at)),
        ]
    }

    /// The latest ticks, the newest last, as a row of dots.
    pub(super) fn ticks_in_short(&self, visit: &Visit) -> Markup {
        html! {
            ol.ticks {
                @for tick in self.last_ticks.iter().rev() {
                    @let at = tick.at.format("%Y-%m-%d %H:%M:%S UTC");
                    @let said = format!("{}, {at}", tick.became());
                    @let job = tick.job_id.map(|id| visit.url(&format!("/jobs/{id}")));
                    li {
                        // Without a job it is no link.
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
            ("Became", Align::Text),
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
                            a href=(visit.url(&format!("/jobs/{id}"))) { (id) }
                        }
                    }
                    td.wide { (tick.error.as_deref().unwrap_or_default()) }
                }
            }
        };
        parts::table("Latest ticks", &columns, rows)
    }
}

impl Tick {
    /// What became of it: the state that its job is in, or why it has none.
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
    fn says(&self, visit: &Visit) -> Vec<(&'static str, Markup)> {
        let json = |text: &Option<String>| match text {
            Some(text) => tree(text, 1, None),
            None => parts::none(),
        };
        let number = |number: Option<i32>| match number {
            Some(number) => parts::number(number.into()),
            None => html! { "as the kind says" },
        };
        let payload = |text: &Option<String>| match visit.sees_payload() {
            true => json(text),
            false => html! { "Your role may not see what jobs carry." },
        };
        let timeout = self
            .timeout
            .as_deref()
            .map_or("as the kind says".into(), words);
        vec![
            ("Args", payload(&self.args)),
            ("Meta", payload(&self.meta)),
            ("Unique options", json(&self.unique_opts)),
            ("Priority", number(self.priority)),
            ("Attempts", number(self.max_attempts)),
            ("Timeout", html! { (timeout) }),
            ("Retry", json(&self.retry)),
            (
                "Tags",
                html! { (self.tags.as_deref().unwrap_or_default().join(", ")) },
            ),
        ]
    }
}

/// The forms that pause, resume and run it, and come back to the path.
pub(super) fn actions(visit: &Visit, one: &Periodic, back: &str) -> Markup {
    let form = |path: &str, label: &str, kind| {
        visit.form(
            path,
            html! {
                (hidden("name", &one.name))
                (hidden("back", back))
                (reason())
                (parts::button(label, kind))
            },
        )
    };
    let (name, is_paused) = (&one.name, one.paused_at.is_some());
    html! {
        @if visit.may("run_periodic") {
            (parts::confirm(
                "Run now",
                &format!("Inserts the job of {name} now, beside its ticks, which come as ever."),
                form("/periodic/run", "Run it now", Kind::Primary),
            ))
        }
        @if is_paused && visit.may("resume_periodic") {
            (parts::confirm(
                "Resume",
                &format!(
                    "{name} goes on with the next tick. Those of the pause are not made up for."
                ),
                form("/periodic/resume", "Resume it", Kind::Primary),
            ))
        }
        @if !is_paused && visit.may("pause_periodic") {
            (parts::confirm(
                "Pause",
                &format!("{name} has no ticks until it is resumed. Its jobs that are there stay."),
                form("/periodic/pause", "Pause it", Kind::Danger),
            ))
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct Action {
    name: String,
    back: String,
    reason: String,
}

impl Action {
    /// The page that the form was on: a list of periodic jobs, or the one.
    fn back(&self) -> &str {
        if self.back.starts_with("/periodic") {
            &self.back
        } else {
            "/periodic"
        }
    }
}

pub(crate) async fn pause(change: Change<Action>) -> Result<Response, Problem> {
    let form = &change.form;
    let reason = given(&form.reason);
    change
        .run(
            "select from jobs.pause_periodic($1, $2)",
            &[&form.name, &reason],
        )
        .await?;
    Ok(change.done(
        form.back(),
        format!("Periodic job {} is paused.", form.name),
    ))
}

pub(crate) async fn resume(change: Change<Action>) -> Result<Response, Problem> {
    let form = &change.form;
    let reason = given(&form.reason);
    change
        .run(
            "select from jobs.resume_periodic($1, $2)",
            &[&form.name, &reason],
        )
        .await?;
    Ok(change.done(form.back(), format!("Periodic job {} goes on.", form.name)))
}

/// A job that was asked for.
#[derive(Deserialize)]
struct Run {
    id: i64,
    began: DateTime<Utc>,
}

#[derive(Deserialize)]
struct Age {
    is_new: bool,
}

pub(crate) async fn run(change: Change<Action>) -> Result<Response, Problem> {
    let form = &change.form;
    let reason = given(&form.reason);
    let run: Option<Run> = change
        .call(
            "select jobs.run_periodic($1, $2) as id, now() as began",
            &[&form.name, &reason],
        )
        .await?;
    let Run { id, began } = run.ok_or_else(|| Problem::not_found("such job"))?;
    // A duplicate was there before the call.
    let age: Option<Age> = change
        .visit
        .row(
            "select created_at >= $2 as is_new from jobs.jobs where id = $1",
            &[&id, &began],
        )
        .await?;
    let message = match age {
        Some(Age { is_new: false }) => {
            format!(
                "Nothing was inserted: the job of {} would be a duplicate of this one.",
                form.name
            )
        }
        _ => format!("Job {id} of {} is inserted.", form.name),
    };
    Ok(change.done(&format!("/jobs/{id}"), message))
}
