//! The list of jobs.

use std::sync::Arc;

use axum::Router;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use maud::{Markup, html};
use serde::Deserialize;

use super::bulk_action;
use super::fields;
use super::filter::Filter;
use super::find::{self, Count, Found, From};
use super::http::see_other;
use super::page::Screen;
use super::parts;
use super::problem::Problem;
use super::visit::{Query, Visit, optional};
use super::{App, job, job_rows};

/// How many ids, the latest ones, are read for suggestions.
const LATEST: i64 = 2_000;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/jobs", get(list))
        .route("/jobs/suggestions", get(suggestions))
}

#[derive(Deserialize)]
struct Asked {
    #[serde(flatten)]
    filter: Filter,
    /// A job that is gone to.
    #[serde(default)]
    id: String,
    /// Jobs below this id.
    #[serde(default, deserialize_with = "optional")]
    from: Option<i64>,
    /// Jobs above this id.
    #[serde(default, deserialize_with = "optional")]
    to: Option<i64>,
}

async fn list(visit: Visit, Query(asked): Query<Asked>) -> Result<Response, Problem> {
    if let Some(id) = fields::given(&asked.id) {
        return to_job(&visit, id);
    }
    let filter = &asked.filter;
    let counts = find::counts(&visit, &filter.queue).await?;
    let mut from = match (asked.from, asked.to) {
        (Some(id), _) => From::Below(id),
        (None, Some(id)) => From::Above(id),
        (None, None) => From::Top,
    };
    let mut found = find::jobs(&visit, filter, &counts, from).await?;
    // The first page is always full, if there are so many.
    if matches!(from, From::Above(_)) && !found.has_more && found.looked_to.is_none() {
        from = From::Top;
        found = find::jobs(&visit, filter, &counts, from).await?;
    }
    let rows = job_rows::rows(&visit, &found.ids).await?;
    let (newer, older) = pages(&visit, filter, &found, from);
    let main = html! {
        (states(&visit, filter, &counts))
        (form(&visit, filter))
        (bulk_action::offers(&visit, filter))
        @if !rows.is_empty() { (job_rows::table(&visit, "Jobs, the newest first", &rows)) }
        @match found.looked_to {
            Some(id) => (further(&visit, filter, from, id).await?),
            None if rows.is_empty() => (nothing(&visit, filter)),
            None => {}
        }
        (parts::pager(newer, older))
    };
    // A page further down stays as it is, unless somebody asks for it again.
    Ok(match from {
        From::Top => visit.page(Screen::Jobs, "Jobs", main),
        _ => visit.still(Screen::Jobs, "Jobs", main),
    })
}

fn to_job(visit: &Visit, id: &str) -> Result<Response, Problem> {
    let digits = id.trim_start_matches('#').replace([',', '_'], "");
    let id: i64 = digits.parse().map_err(|_| {
        Problem::bad_input(
            format!("{id:?} is no id of a job."),
            "An id is a whole number.",
        )
    })?;
    Ok(see_other(&visit.url(&job::path(id))))
}

/// Links to the page of newer jobs and to that of older ones.
fn pages(
    visit: &Visit,
    filter: &Filter,
    found: &Found,
    from: From,
) -> (Option<String>, Option<String>) {
    let link = |name, id: i64| visit.url(&filter.path("/jobs", &[(name, &id.to_string())]));
    let (Some(first), Some(last)) = (found.ids.first(), found.ids.last()) else {
        let to_the_top = || visit.url(&filter.path("/jobs", &[]));
        return (matches!(from, From::Below(_)).then(to_the_top), None);
    };
    let has_newer = !matches!(from, From::Top);
    let has_older = found.has_more || matches!(from, From::Above(_));
    (
        has_newer.then(|| link("to", *first)),
        has_older.then(|| link("from", *last)),
    )
}

/// The states as tabs, with how many jobs are in each where that is known.
fn states(visit: &Visit, filter: &Filter, counts: &[Count]) -> Markup {
    let of_queue = Filter {
        state: filter.state.clone(),
        queue: filter.queue.clone(),
        ..Filter::default()
    };
    let is_counted = of_queue.pairs() == filter.pairs();
    let url = |state: &str| {
        let filter = Filter {
            state: state.into(),
            ..filter.clone()
        };
        visit.url(&filter.path("/jobs", &[]))
    };
    html! {
        nav.tabs aria-label="State" {
            a href=(url("")) aria-current=[filter.state.is_empty().then_some("page")] { "All" }
            @for state in parts::STATES {
                a href=(url(state)) aria-current=[(filter.state == state).then_some("page")] {
                    (state)
                    @if let Some(count) = counts.iter().find(|count| is_counted && count.state == state) {
                        " " (parts::count(count.in_queue, count.is_estimated))
                    }
                }
            }
        }
    }
}

fn form(visit: &Visit, filter: &Filter) -> Markup {
    let is_open = [&filter.worker, &filter.error, &filter.after, &filter.before]
        .iter()
        .any(|value| !value.is_empty());
    html! {
        form.filter method="get" action=(visit.url("/jobs")) role="search" {
            (fields::hidden("state", &filter.state))
            @if !filter.failed_after.is_empty() {
                (fields::hidden("failed_after", &filter.failed_after))
            }
            (suggesting(visit, "kind", "Kind", &filter.kind))
            (suggesting(visit, "queue", "Queue", &filter.queue))
            (suggesting(visit, "tag", "Tag", &filter.tag))
            (fields::suggesting("id", "Id", "", &[]))
            details.more open[is_open] {
                summary { "More" }
                div.fields {
                    (fields::suggesting("error", "Latest error has", &filter.error, &[]))
                    (suggesting(visit, "worker", "Worker", &filter.worker))
                    (fields::time("after", "Inserted from", &filter.after))
                    (fields::time("before", "Inserted before", &filter.before))
                }
            }
            (parts::button("Filter", parts::Kind::Primary))
            @if !filter.is_empty() {
                a.button href=(visit.url("/jobs")) { "Clear" }
            }
        }
    }
}

/// A field whose suggestions come when it is used: there may be thousands of queues.
fn suggesting(visit: &Visit, name: &str, label: &str, value: &str) -> Markup {
    let list = format!("{name}-suggestions");
    html! {
        div.field {
            label for=(name) { (label) }
            input #(name) type="search" name=(name) value=(value) autocomplete="off" list=(list)
                hx-get=(visit.url(&format!("/jobs/suggestions?of={name}")))
                hx-trigger="focus once, input changed delay:300ms" hx-params=(name)
                hx-target={ "#" (list) } hx-swap="innerHTML";
            datalist #(list) {}
        }
    }
}

/// What may be meant by what somebody types.
#[derive(Deserialize)]
struct Typed {
    of: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    queue: String,
    #[serde(default)]
    tag: String,
    #[serde(default)]
    worker: String,
}

async fn suggestions(visit: Visit, Query(typed): Query<Typed>) -> Result<Response, Problem> {
    // Kinds and tags are those of the latest jobs, and kinds also those that have defaults.
    let (text, source) = match &*typed.of {
        "queue" => (typed.queue, "select queue as name from jobs.queues"),
        "worker" => (typed.worker, "select worker as name from jobs.workers"),
        "tag" => (
            typed.tag,
            "select unnest(tags) as name from jobs.jobs where id > $2",
        ),
        _ => (
            typed.kind,
            "select kind as name from jobs.kinds
             union all select kind from jobs.jobs where id > $2",
        ),
    };
    #[derive(Deserialize)]
    struct Name {
        name: String,
    }
    let latest = find::last_id(&visit).await? - LATEST;
    let sql = format!(
        "select distinct name from ({source}) s
          where position(lower($1) in lower(name)) > 0 and $2::bigint is not null
          order by name limit 50"
    );
    let names: Vec<Name> = visit.rows(&sql, &[&text, &latest]).await?;
    let options = html! { @for one in &names { option value=(one.name) {} } };
    Ok(Html(options.into_string()).into_response())
}

/// Where the time was over before there were enough jobs.
async fn further(visit: &Visit, filter: &Filter, from: From, id: i64) -> Result<Markup, Problem> {
    let (name, direction) = match from {
        From::Above(_) => ("to", "up to"),
        _ => ("from", "down to"),
    };
    let url = visit.url(&filter.path("/jobs", &[(name, &id.to_string())]));
    looked(visit, direction, id, &url, "Look further").await
}

/// How far has been looked, up or down to an id, and a link to more.
pub(super) async fn looked(
    visit: &Visit,
    direction: &str,
    id: i64,
    url: &str,
    label: &str,
) -> Result<Markup, Problem> {
    let inserted = find::inserted_about(visit, id).await?;
    Ok(html! {
        p.further role="status" {
            "All jobs " (direction) " number " (parts::number(id))
            @if let Some(at) = inserted { ", inserted " (parts::ago(at)) "," }
            " have been looked at. "
            a.button href=(url) { (label) }
        }
    })
}

fn nothing(visit: &Visit, filter: &Filter) -> Markup {
    match filter.is_empty() {
        true => parts::empty(
            "There are no jobs",
            html! {
                "A program inserts one with " code { "SELECT jobs.insert('kind', '{\"n\": 1}')" } "; "
                "final ones are deleted some time after they ended."
            },
        ),
        false => parts::empty(
            "No job is like that",
            html! {
                "Looked for " (filter.in_words()) ". "
                a href=(visit.url("/jobs")) { "Show all jobs" } "."
            },
        ),
    }
}
