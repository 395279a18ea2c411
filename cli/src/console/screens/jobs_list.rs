//! The list of jobs.

use axum::response::{Html, IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::bulk_offers;
use super::jobs_find::{self, Count, Cursor, Found};
use super::jobs_table;
use crate::console::fields;
use crate::console::http::see_other;
use crate::console::links;
use crate::console::page::Screen;
use crate::console::paging;
use crate::console::parts;
use crate::console::problem::Problem;
use crate::console::visit::{Only, Query, Visit, optional};
use crate::filter::{Filter, STATES};

/// How many of the latest ids are read for suggestions.
const LATEST: i64 = 2_000;

#[derive(Deserialize)]
pub(crate) struct JobsQuery {
    #[serde(flatten)]
    filter: Filter,
    /// The id of a job to show.
    #[serde(default)]
    id: String,
    /// Jobs below this id.
    #[serde(default, deserialize_with = "optional")]
    from: Option<i64>,
    /// Jobs above this id.
    #[serde(default, deserialize_with = "optional")]
    to: Option<i64>,
}

pub(crate) async fn list(
    visit: Visit,
    Query(asked): Query<JobsQuery>,
) -> Result<Response, Problem> {
    if let Some(id) = fields::given(&asked.id) {
        return to_job(&visit, id);
    }
    let filter = &asked.filter;
    if !filter.args.is_empty() && !visit.sees_payload() {
        return Err(Problem::no_payload("args"));
    }
    let counts = jobs_find::counts(&visit, &filter.queue).await?;
    let mut cursor = match (asked.from, asked.to) {
        (Some(id), _) => Cursor::Below(id),
        (None, Some(id)) => Cursor::Above(id),
        (None, None) => Cursor::Top,
    };
    let mut found = jobs_find::jobs(&visit, filter, &counts, cursor).await?;
    // The first page is always full, if there are enough jobs.
    if cursor.is_up() && !found.has_more && found.looked_to.is_none() {
        cursor = Cursor::Top;
        found = jobs_find::jobs(&visit, filter, &counts, cursor).await?;
    }
    let rows = jobs_table::rows(&visit, &found.ids).await?;
    let (newer, older) = pages(&visit, filter, &found, cursor);
    let main = html! {
        (states(&visit, filter, &counts))
        (form(&visit, filter))
        (bulk_offers::offers(&visit, filter))
        @if !rows.is_empty() { (jobs_table::table(&visit, "Jobs, newest first", &rows)) }
        @match found.looked_to {
            Some(id) => (further(&visit, filter, cursor, id).await?),
            None if rows.is_empty() => (nothing(&visit, filter)),
            None => {}
        }
        (paging::by_time(newer, older))
    };
    // A page further down is not refreshed.
    Ok(match cursor {
        Cursor::Top => visit.page(Screen::Jobs, "Jobs", main),
        _ => visit.still(Screen::Jobs, "Jobs", main),
    })
}

fn to_job(visit: &Visit, id: &str) -> Result<Response, Problem> {
    Ok(see_other(&visit.url(&links::job_path(id_of(id)?))))
}

/// An id as people write it.
pub(super) fn id_of(id: &str) -> Result<i64, Problem> {
    let digits = id.trim_start_matches('#').replace([',', '_'], "");
    digits.parse().map_err(|_| {
        Problem::bad_input(format!("Invalid job ID: {id:?}."), "An ID is a whole number.")
    })
}

/// Links to the page of newer jobs and to that of older ones.
fn pages(
    visit: &Visit,
    filter: &Filter,
    found: &Found,
    cursor: Cursor,
) -> (Option<String>, Option<String>) {
    let link = |name, id: i64| visit.url(&filter.path("/jobs", &[(name, &id.to_string())]));
    let (Some(first), Some(last)) = (found.ids.first(), found.ids.last()) else {
        let to_the_top = || visit.url(&filter.path("/jobs", &[]));
        return (matches!(cursor, Cursor::Below(_)).then(to_the_top), None);
    };
    let has_newer = !matches!(cursor, Cursor::Top);
    let has_older = found.has_more || cursor.is_up();
    (has_newer.then(|| link("to", *first)), has_older.then(|| link("from", *last)))
}

/// The states as tabs, with the number of jobs in each if that is known.
fn states(visit: &Visit, filter: &Filter, counts: &[Count]) -> Markup {
    let of_queue =
        Filter { state: filter.state.clone(), queue: filter.queue.clone(), ..Filter::default() };
    let is_counted = of_queue == *filter;
    let url = |state: &str| {
        let filter = Filter { state: state.into(), ..filter.clone() };
        visit.url(&filter.path("/jobs", &[]))
    };
    html! {
        nav.tabs aria-label="State" {
            a href=(url("")) aria-current=[filter.state.is_empty().then_some("page")] { "All" }
            @for state in STATES {
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
    let Filter { worker, args, error, error_like, after, before, .. } = filter;
    let is_open =
        [worker, args, error, error_like, after, before].iter().any(|value| !value.is_empty());
    html! {
        form.filter method="get" action=(visit.url("/jobs")) role="search" {
            (fields::hidden("state", &filter.state))
            @if !filter.failed_after.is_empty() {
                (fields::hidden("failed_after", &filter.failed_after))
            }
            (suggesting(visit, "kind", "Kind", &filter.kind))
            (suggesting(visit, "queue", "Queue", &filter.queue))
            (suggesting(visit, "tag", "Tag", &filter.tag))
            (fields::suggesting("id", "ID", "", &[]))
            details.more open[is_open] {
                summary { "More filters" }
                div.fields {
                    @if error_like.is_empty() {
                        (fields::suggesting("error", "Error contains", error, &[]))
                    } @else {
                        (fields::suggesting("error_like", "Error matches", error_like, &[]))
                    }
                    (suggesting(visit, "worker", "Worker", worker))
                    (fields::suggesting("args", "Args contain", args, &[]))
                    (fields::date_time("after", "Inserted from", after))
                    (fields::date_time("before", "Inserted before", before))
                }
            }
            (parts::button("Filter", parts::Look::Primary))
            @if !filter.is_empty() {
                a.button href=(visit.url("/jobs")) { "Clear" }
            }
        }
    }
}

/// A field whose suggestions are loaded when it is used: there may be thousands of queues.
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

/// A partly typed name.
#[derive(Deserialize)]
pub(crate) struct Typed {
    of: String,
    #[serde(flatten)]
    filter: Filter,
}

pub(crate) async fn suggestions(
    visit: Visit,
    Query(typed): Query<Typed>,
) -> Result<Response, Problem> {
    // Kinds and tags of the latest jobs, and kinds with defaults.
    let filter = typed.filter;
    let (text, source) = match &*typed.of {
        "queue" => (filter.queue, "select queue as name from jobs.queues"),
        "worker" => (filter.worker, "select worker as name from jobs.workers"),
        "tag" => (filter.tag, "select unnest(tags) as name from jobs.jobs where id > $2"),
        _ => (
            filter.kind,
            "select kind as name from jobs.kinds
             union all select kind from jobs.jobs where id > $2",
        ),
    };
    let latest = jobs_find::last_id(&visit).await? - LATEST;
    let sql = format!(
        "select distinct name from ({source}) s
          where position(lower($1) in lower(name)) > 0 and $2::bigint is not null
          order by name limit 50"
    );
    let names: Vec<Only<String>> = visit.rows(&sql, &[&text, &latest]).await?;
    let options = html! { @for Only(name) in &names { option value=(name) {} } };
    Ok(Html(options.into_string()).into_response())
}

/// A search that ran out of time before it had enough jobs.
async fn further(
    visit: &Visit,
    filter: &Filter,
    cursor: Cursor,
    id: i64,
) -> Result<Markup, Problem> {
    let (name, direction) = match cursor {
        Cursor::Above(_) => ("to", "up to"),
        _ => ("from", "down to"),
    };
    let url = visit.url(&filter.path("/jobs", &[(name, &id.to_string())]));
    looked(visit, direction, id, &url, "Search further").await
}

/// How far the search went, up or down to an id, and a link to continue it.
pub(super) async fn looked(
    visit: &Visit,
    direction: &str,
    id: i64,
    url: &str,
    label: &str,
) -> Result<Markup, Problem> {
    let inserted = jobs_find::inserted_about(visit, id).await?;
    Ok(html! {
        p.further role="status" {
            "Searched " (direction) " job " (parts::number(id))
            @if let Some(at) = inserted { ", inserted " (parts::ago(at)) }
            ". "
            a.button href=(url) { (label) }
        }
    })
}

fn nothing(visit: &Visit, filter: &Filter) -> Markup {
    match filter.is_empty() {
        true => parts::empty(
            "No jobs yet",
            html! {
                "Insert one: " code { "SELECT jobs.insert('kind', '{\"n\": 1}');" }
                " Final jobs are deleted after their retention."
            },
        ),
        false => parts::empty(
            "No job matches the filter",
            html! {
                "Searched for " (filter.in_words()) ". "
                a href=(visit.url("/jobs")) { "Show all jobs" } "."
            },
        ),
    }
}
