//! One job: the reasons for its state, its timeline and its payload.

use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::job_errors::Errors;
use super::job_read::{Job, look};
use super::jobs_table::TAGS;
use super::{cells, job_actions, job_errors, job_timeline, job_unique};
use crate::console::http::see_other;
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, pair};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::{Path, Query, Visit, optional};
use crate::times;

#[derive(Deserialize)]
pub(crate) struct JobQuery {
    /// Which page of errors, from 1 on.
    #[serde(default, deserialize_with = "optional")]
    errors: Option<i64>,
}

pub(crate) async fn page(
    visit: Visit,
    Path(id): Path<i64>,
    Query(asked): Query<JobQuery>,
) -> Result<Response, Problem> {
    let job = match look(&visit, id).await {
        Err(gone)
            if gone.status == StatusCode::NOT_FOUND && cells::is_elsewhere(&visit, id).await? =>
        {
            let cell = links::cell_of(id);
            return Ok(see_other(&links::in_cell(&visit.app, cell, &links::job_path(id))));
        }
        job => job?,
    };
    let reasons = reasons(&visit, id).await?;
    let errors = job_errors::page(&visit, id, asked.errors.unwrap_or(1)).await?;
    let timeline = job_timeline::of(&visit, &job, errors.count).await?;
    let claim = match &job.unique_key {
        Some(key) => job_unique::claim(&visit, id, key).await?,
        None => None,
    };
    let path = match asked.errors {
        Some(page) => format!("{}?errors={page}", links::job_path(id)),
        None => links::job_path(id),
    };
    let main = html! {
        (region(&visit, &job, "job", &path, html! {
            (job.head(&visit))
            (job.why(&visit, &reasons))
        }))
        (job_actions::actions(&visit, &job))
        (region(&visit, &job, "what-happened", &path, html! {
            (timeline)
            (job.carried(&visit))
            (errors_shown(&visit, &job, &errors))
            (job.unique(&visit, claim.as_ref()))
            (job.settings())
        }))
        (links::audit(&visit, &id.to_string()))
    };
    Ok(visit.still(Screen::Jobs, &format!("Job {id}"), main))
}

/// A part of the page that is refreshed, unless the job is final: then only a call by hand changes
/// it.
fn region(visit: &Visit, job: &Job, id: &str, path: &str, part: Markup) -> Markup {
    match job.is_final() {
        true => html! { div id=(id) { (part) } },
        false => visit.live(id, path, part),
    }
}

fn errors_shown(visit: &Visit, job: &Job, errors: &Errors) -> Markup {
    html! { @if errors.count > 0 { (errors.shown(visit, job.id)) } }
}

/// A reason of jobs.explain.
#[derive(Deserialize)]
struct Reason {
    reason: String,
    detail: Option<String>,
    #[serde(deserialize_with = "times::bounded_option")]
    until: Option<DateTime<Utc>>,
    by_ids: Option<Vec<i64>>,
}

async fn reasons(visit: &Visit, id: i64) -> Result<Vec<Reason>, Problem> {
    let sql = "select reason, detail, until, by_ids from jobs.explain($1)";
    match visit.rows(sql, &[&id]).await {
        // It has been deleted.
        Err(gone) if gone.sqlstate() == Some("P0002") => {
            Err(Problem::not_found(&format!("Job {id}")))
        }
        reasons => reasons,
    }
}

impl Job {
    fn head(&self, visit: &Visit) -> Markup {
        let jobs = |of: (&str, &str)| visit.url(&parts::link("/jobs", [of]));
        html! {
            p.lead {
                (parts::state(&self.state)) " "
                a href=(jobs(("kind", &self.kind))) { strong { (text(&self.kind)) } }
                " in queue " a href=(jobs(("queue", &self.queue))) { (text(&self.queue)) }
                ", attempt " (self.attempt) " of " (self.max_attempts)
                @if visit.app.is_cell() { ", cell " (links::cell_of(self.id)) }
                @if let Some(worker) = &self.worker {
                    ", worker " (links::worker(visit, worker))
                }
                @for tag in self.tags.iter().take(TAGS) {
                    " " a.tag href=(jobs(("tag", tag))) { (text(tag)) }
                }
                @if self.tags.len() > TAGS { " and " (parts::plural((self.tags.len() - TAGS) as i64, "more tag")) }
            }
        }
    }

    /// The decisive reason, and those that would apply without it.
    fn why(&self, visit: &Visit, reasons: &[Reason]) -> Markup {
        let title = match &*self.state {
            "running" => "Current attempt",
            _ if self.is_final() => "Outcome",
            _ => "Reason for waiting",
        };
        html! {
            section.card.why aria-labelledby="why" {
                h2 #why { (title) }
                ul.reasons {
                    @for reason in reasons {
                        li {
                            @match &reason.detail {
                                // The state shows the reason already.
                                Some(detail) if !self.waits() => (text(&sentence(detail))),
                                Some(detail) => { strong { (reason.reason) } ": " (text(detail)) }
                                None => strong { (reason.reason) },
                            }
                            @if let Some(until) = reason.until.filter(|_| self.waits()) { " (" (parts::until(until)) ")" }
                            @if let Some(ids) = &reason.by_ids { (links(visit, ids)) }
                        }
                    }
                }
            }
        }
    }

    fn settings(&self) -> Markup {
        let expires = self.expires_at.map_or_else(parts::none, parts::exactly);
        let timeout = match self.timeout < 0.0 {
            true => html! { "no limit" },
            false => parts::duration(self.timeout),
        };
        html! {
            section.card aria-labelledby="settings" {
                h2 #settings { "Options" }
                (parts::key_values(html! {
                    (pair("Priority", html! { (self.priority) }))
                    (pair("Timeout", timeout))
                    (pair("Retry policy", html! { code { (text(&self.retry)) } }))
                    (pair("Expires", expires))
                }))
            }
        }
    }
}

/// A sentence with a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(rest).chain(['.']).collect()
}

fn links(visit: &Visit, ids: &[i64]) -> Markup {
    html! {
        @if !ids.is_empty() {
            " by "
            @for (n, id) in ids.iter().enumerate() {
                @if n > 0 { ", " }
                a href=(visit.url(&links::job_path(*id))) { "job " (id) }
            }
        }
    }
}
