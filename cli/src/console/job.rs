//! One job: why it is where it is, what happened to it, what it carries.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::job_errors::Errors;
use super::job_rows::readable;
use super::page::Screen;
use super::parts;
use super::problem::Problem;
use super::tree::tree;
use super::visit::{Path, Query, Visit, optional};
use super::{App, job_change, job_errors, timeline};

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/jobs/{id}", get(page))
        .route("/jobs/{id}/raw", get(raw))
        .merge(job_change::routes())
}

/// What a job carries. Null for a role that may not see it.
const CARRIED: [&str; 4] = ["args", "meta", "progress", "output"];

#[derive(Deserialize)]
pub(crate) struct Job {
    pub(crate) id: i64,
    pub(crate) state: String,
    pub(crate) queue: String,
    pub(crate) kind: String,
    pub(crate) priority: i32,
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    pub(crate) tags: Vec<String>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) scheduled_at: DateTime<Utc>,
    pub(crate) attempted_at: Option<DateTime<Utc>>,
    pub(crate) finalized_at: Option<DateTime<Utc>>,
    pub(crate) expires_at: Option<DateTime<Utc>>,
    /// In seconds; negative: none.
    timeout: f64,
    pub(crate) lease_expires_at: Option<DateTime<Utc>>,
    pub(crate) deadline_at: Option<DateTime<Utc>>,
    pub(crate) cancel_requested_at: Option<DateTime<Utc>>,
    pub(crate) cancel_reason: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) retry: String,
    unique_key: Option<String>,
    args: Option<Carried>,
    meta: Option<Carried>,
    progress: Option<Carried>,
    output: Option<Carried>,
}

/// A JSON text; one that is larger than a page shows is not fetched, only its size.
#[derive(Deserialize)]
struct Carried {
    size: usize,
    text: Option<String>,
}

macro_rules! carried {
    ($name:literal) => {
        concat!(
            ", (select jsonb_build_object('size', octet_length(t), 'text', case when octet_length(t) <= 262144 then t end)
                  from (select ", $name, "::text as t) c where t is not null) as ", $name
        )
    };
}

const JOB: &str = concat!(
    "select id, state, queue, kind, priority, attempt, max_attempts, tags, created_at, ",
    readable!("scheduled_at"),
    " as scheduled_at, attempted_at, finalized_at, ",
    readable!("expires_at"),
    " as expires_at, extract(epoch from timeout)::float8 as timeout, lease_expires_at, deadline_at,
      cancel_requested_at, cancel_reason, worker, retry::text, unique_key",
    carried!("args"),
    carried!("meta"),
    carried!("progress"),
    carried!("output"),
    " from jobs.jobs where id = $1"
);

/// The job as it is now.
pub(crate) async fn look(visit: &Visit, id: i64) -> Result<Job, Problem> {
    let job = visit.row(JOB, &[&id]).await?;
    job.ok_or_else(|| Problem::not_found(&format!("job {id}")))
}

#[derive(Deserialize)]
struct Asked {
    /// Which page of errors, from 1 on.
    #[serde(default, deserialize_with = "optional")]
    errors: Option<i64>,
}

async fn page(
    visit: Visit,
    Path(id): Path<i64>,
    Query(asked): Query<Asked>,
) -> Result<Response, Problem> {
    let job = look(&visit, id).await?;
    let reasons = reasons(&visit, id).await?;
    let errors = job_errors::page(&visit, id, asked.errors.unwrap_or(1)).await?;
    let timeline = timeline::of(&visit, &job, errors.count).await?;
    let holders = match &job.unique_key {
        Some(key) => holders(&visit, key).await?,
        None => None,
    };
    let path = match asked.errors {
        Some(page) => format!("/jobs/{id}?errors={page}"),
        None => format!("/jobs/{id}"),
    };
    let main = html! {
        (region(&visit, &job, "job", &path, html! {
            (job.head(&visit))
            (job.why(&visit, &reasons))
        }))
        (job_change::actions(&visit, &job))
        (region(&visit, &job, "what-happened", &path, html! {
            (timeline)
            (job.carried(&visit))
            (errors_shown(&visit, &job, &errors))
            (job.unique(&visit, holders.as_ref()))
            (job.settings())
        }))
        p { a href=(visit.url(&format!("/audit?target={id}"))) { "Who has managed this job" } }
    };
    Ok(visit.still(Screen::Jobs, &format!("Job {id}"), main))
}

/// A part of the page that is refreshed, unless the job is final: only a call by hand changes it
/// then.
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
    until: Option<DateTime<Utc>>,
    by_ids: Option<Vec<i64>>,
}

async fn reasons(visit: &Visit, id: i64) -> Result<Vec<Reason>, Problem> {
    let sql = concat!(
        "select reason, detail, ",
        readable!("until"),
        " as until, by_ids from jobs.explain($1)"
    );
    match visit.rows(sql, &[&id]).await {
        // It was deleted a moment ago.
        Err(gone) if gone.sqlstate() == Some("P0002") => {
            Err(Problem::not_found(&format!("job {id}")))
        }
        reasons => reasons,
    }
}

/// The jobs under a key.
#[derive(Deserialize)]
struct Holders {
    holders: Vec<i64>,
    until: Option<DateTime<Utc>>,
    states: Vec<(i64, String)>,
}

async fn holders(visit: &Visit, key: &str) -> Result<Option<Holders>, Problem> {
    let sql = concat!(
        "select c.holders, ",
        readable!("c.until"),
        " as until, (select coalesce(jsonb_agg(jsonb_build_array(h.id, j.state)), '[]')
                       from unnest(c.holders[1:20]) h(id),
                            lateral (select state from jobs.jobs where id = h.id offset 0) j) as states
          from jobs.unique_claims c where c.key_bytes = decode($1, 'hex')"
    );
    visit.row(sql, &[&key]).await
}

impl Job {
    /// Whether it has been neither fetched for good nor given up.
    pub(crate) fn is_final(&self) -> bool {
        self.finalized_at.is_some()
    }

    pub(crate) fn waits(&self) -> bool {
        !self.is_final() && self.state != "running"
    }

    fn head(&self, visit: &Visit) -> Markup {
        let jobs = |of: (&str, &str)| visit.url(&parts::link("/jobs", &[of]));
        html! {
            p.lead {
                (parts::state(&self.state)) " "
                a href=(jobs(("kind", &self.kind))) { strong { bdi { (self.kind) } } }
                " in queue " a href=(jobs(("queue", &self.queue))) { bdi { (self.queue) } }
                ", attempt " (self.attempt) " of " (self.max_attempts)
                @if let Some(worker) = &self.worker {
                    ", worker " a href=(visit.url(&parts::link("/worker", &[("name", worker)]))) { bdi { (worker) } }
                }
                @for tag in &self.tags { " " a.tag href=(jobs(("tag", tag))) { bdi { (tag) } } }
            }
        }
    }

    /// The decisive reason first, and those that would hold without it.
    fn why(&self, visit: &Visit, reasons: &[Reason]) -> Markup {
        let title = match &*self.state {
            "running" => "What it does",
            _ if self.is_final() => "What became of it",
            _ => "Why it does not run",
        };
        html! {
            section.card.why aria-labelledby="why" {
                h2 #why { (title) }
                ul.reasons {
                    @for reason in reasons {
                        li {
                            @match &reason.detail {
                                // The state has said it.
                                Some(detail) if !self.waits() => (sentence(detail)),
                                Some(detail) => { strong { (reason.reason) } ": " (detail) }
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

    fn carried(&self, visit: &Visit) -> Markup {
        let all = [&self.args, &self.meta, &self.progress, &self.output];
        html! {
            @for (name, carried) in CARRIED.into_iter().zip(all) {
                // What a job does not have is not shown; what is hidden may be there.
                @let is_empty = carried.as_ref().is_some_and(|carried| name == "meta" && carried.size == 2);
                @let may_be = name == "args" || !visit.sees_payload() && (name == "meta" || self.may_have(name));
                @if may_be || carried.is_some() && !is_empty {
                    section.card aria-labelledby=(name) {
                        h2 id=(name) { (titled(name)) }
                        (self.shown(visit, name, carried.as_ref()))
                    }
                }
            }
        }
    }

    fn may_have(&self, name: &str) -> bool {
        match &*self.state {
            "running" => name == "progress",
            "completed" => name == "output",
            _ => false,
        }
    }

    fn shown(&self, visit: &Visit, name: &str, carried: Option<&Carried>) -> Markup {
        let raw = visit.url(&format!("/jobs/{}/raw?what={name}", self.id));
        match carried {
            Some(Carried {
                text: Some(text), ..
            }) => tree(text, 2, Some(&raw)),
            Some(Carried { size, .. }) => html! {
                p { (parts::bytes(*size)) ": too large to be shown here. " a href=(raw) { "Raw" } }
            },
            None if visit.sees_payload() => html! { p.quiet { "None." } },
            None => html! { p.quiet { "Hidden from your role." } },
        }
    }

    fn unique(&self, visit: &Visit, holders: Option<&Holders>) -> Markup {
        let Some(key) = &self.unique_key else {
            return html! {};
        };
        let url = visit.url(&parts::link("/unique", &[("search", key)]));
        html! {
            section.card aria-labelledby="unique" {
                h2 #unique { "Unique key" }
                p { a href=(url) { code { (key) } } }
                @match holders {
                    None => p { "No job is under this key any more." },
                    Some(holders) => (self.under_the_key(visit, holders)),
                }
            }
        }
    }

    fn under_the_key(&self, visit: &Visit, holders: &Holders) -> Markup {
        let state = |id: i64| holders.states.iter().find(|(of, _)| *of == id);
        html! {
            @if !holders.holders.contains(&self.id) {
                p { "A later job has taken its place under the key:" }
            } @else {
                p { "Under this key, which another insert looks at:" }
            }
            ul.holders {
                @for id in holders.holders.iter().take(20) {
                    li {
                        @if *id == self.id { "this job" } @else {
                            a href=(visit.url(&format!("/jobs/{id}"))) { "job " (id) }
                        }
                        @match state(*id) {
                            Some((_, state)) => { " " (parts::state(state)) }
                            None => " (gone; its hold goes on)",
                        }
                    }
                }
                @if holders.holders.len() > 20 { li { "and " (holders.holders.len() - 20) " more" } }
            }
            @if let Some(until) = holders.until { p { "The key is held until " (parts::exactly(until)) "." } }
        }
    }

    fn settings(&self) -> Markup {
        let time = |at: Option<DateTime<Utc>>| match at {
            Some(at) => parts::exactly(at),
            None => parts::none(),
        };
        let timeout = match self.timeout < 0.0 {
            true => html! { "no limit" },
            false => parts::duration(self.timeout),
        };
        let pairs = [
            ("Priority", html! { (self.priority) }),
            ("Timeout of an attempt", timeout),
            ("Retry policy", html! { code { (self.retry) } }),
            ("Expires", time(self.expires_at)),
        ];
        html! {
            section.card aria-labelledby="settings" {
                h2 #settings { "Options" }
                (parts::key_values(&pairs))
            }
        }
    }
}

/// With a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(rest).chain(['.']).collect()
}

fn titled(name: &str) -> &'static str {
    match name {
        "args" => "Args",
        "meta" => "Meta",
        "progress" => "Progress",
        _ => "Output",
    }
}

fn links(visit: &Visit, ids: &[i64]) -> Markup {
    html! {
        @if !ids.is_empty() {
            " by "
            @for (n, id) in ids.iter().enumerate() {
                @if n > 0 { ", " }
                a href=(visit.url(&format!("/jobs/{id}"))) { "job " (id) }
            }
        }
    }
}

#[derive(Deserialize)]
struct What {
    what: String,
}

/// What a job carries, as the text that Postgres has.
async fn raw(
    visit: Visit,
    Path(id): Path<i64>,
    Query(asked): Query<What>,
) -> Result<Response, Problem> {
    #[derive(Deserialize)]
    struct Text {
        text: Option<String>,
    }
    let Some(name) = CARRIED.into_iter().find(|name| *name == asked.what) else {
        return Err(Problem::no_page());
    };
    let sql = format!("select {name}::text as text from jobs.jobs where id = $1");
    let found: Option<Text> = visit.row(&sql, &[&id]).await?;
    match found {
        None => Err(Problem::not_found(&format!("job {id}"))),
        Some(Text { text: None }) if !visit.sees_payload() => Err(Problem::forbidden(
            format!("The {name} of jobs are hidden from your role."),
            "A role that may SELECT from jobs.job sees what jobs carry.",
        )),
        Some(Text { text }) => {
            let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
            Ok((kind, text.unwrap_or_default()).into_response())
        }
    }
}
