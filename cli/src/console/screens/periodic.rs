//! Periodic jobs: when they run, and what became of the latest ticks.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::periodic_job::{self, Periodic};
use super::queue;
use crate::console::fields::{self, given};
use crate::console::page::Screen;
use crate::console::paging;
use crate::console::parts::{self, Align, Kind};
use crate::console::problem::Problem;
use crate::console::visit::{Query, Visit};

/// Which definitions are shown.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct List {
    filter: String,
    show: String,
    page: i64,
}

const SHOWS: [(&str, &str); 4] = [
    ("", "all of them"),
    ("failing", "with an error"),
    ("paused", "paused ones"),
    ("running", "those that are not paused"),
];

#[derive(Default, Deserialize)]
struct Found {
    total: i64,
    paused: i64,
    failing: i64,
    found: i64,
    definitions: Vec<Periodic>,
}

pub(crate) async fn periodic(visit: Visit, Query(list): Query<List>) -> Result<Response, Problem> {
    let found = look(&visit, &list).await?;
    let main = html! {
        p.lead {
            (parts::number(found.total))
            @if found.total == 1 { " definition" } @else { " definitions" }
            @if found.paused > 0 { ", " (parts::number(found.paused)) " paused" }
            @if found.failing > 0 { ", " (parts::number(found.failing)) " with an error" }
            @if found.found != found.total { "; the filter finds " (parts::number(found.found)) }
        }
        form.filter method="get" action=(visit.url("/periodic")) role="search" {
            (fields::suggesting("filter", "Name or kind has", &list.filter, &[]))
            (fields::choice("show", "Show", &SHOWS, &list.show))
            (parts::button("Filter", Kind::Plain))
        }
        @if found.definitions.is_empty() {
            (nothing(&visit, &list))
        } @else {
            (table(&visit, &list, &found.definitions))
            (paging::pager(list.page, found.found, |page| visit.url(&list.at(page).path())))
        }
    };
    Ok(visit.page(Screen::Periodic, "Periodic jobs", main))
}

async fn look(visit: &Visit, list: &List) -> Result<Found, Problem> {
    // The ticks, with the states of their jobs, only of what is shown.
    let sql = format!(
        "with d as materialized (
           select name, kind, paused_at is not null as is_paused, last_error is not null as fails
             from jobs.periodic), f as (
           select name from d
            where ($1::text is null or position(lower($1) in lower(name || ' ' || kind)) > 0)
              and case $2::text when 'failing' then fails when 'paused' then is_paused
                                when 'running' then not is_paused else true end)
         select (select count(*) from d) as total,
                (select count(*) from d where is_paused) as paused,
                (select count(*) from d where fails) as failing, (select count(*) from f) as found,
                array(select to_jsonb(p) from (
                  select {columns} from jobs.periodic where name = any(array(
                    select name from f order by name limit $3::bigint offset $4::bigint))
                   order by name) p) as definitions",
        columns = periodic_job::COLUMNS
    );
    let offset = paging::offset(list.page);
    let of = given(&list.filter);
    let found = visit
        .row(&sql, &[&of, &list.show, &paging::ROWS, &offset])
        .await?;
    Ok(found.unwrap_or_default())
}

impl List {
    /// This list at another page.
    fn at(&self, page: i64) -> List {
        List {
            page,
            ..self.clone()
        }
    }

    fn path(&self) -> String {
        parts::link(
            "/periodic",
            &[
                ("filter", &self.filter),
                ("show", &self.show),
                ("page", &paging::number(self.page)),
            ],
        )
    }
}

fn nothing(visit: &Visit, list: &List) -> Markup {
    if [&list.filter, &list.show]
        .iter()
        .any(|filter| !filter.is_empty())
    {
        let all = html! { a href=(visit.url("/periodic")) { "Show all of them" } };
        return parts::empty("No periodic job is like that", all);
    }
    parts::empty(
        "There is no periodic job yet",
        html! {
            "Define one: "
            code { "SELECT jobs.schedule('nightly report', '30 2 * * *', 'report');" }
        },
    )
}

fn table(visit: &Visit, list: &List, definitions: &[Periodic]) -> Markup {
    let columns = [
        ("Name", Align::Wide),
        ("Kind", Align::Text),
        ("Queue", Align::Text),
        ("Next", Align::Number),
        ("Last", Align::Number),
        ("Latest ticks", Align::Text),
        ("Actions", Align::Actions),
    ];
    let back = list.path();
    let rows = html! { @for one in definitions { (row(visit, one, &back)) } };
    parts::table("Periodic jobs", &columns, rows)
}

fn row(visit: &Visit, one: &Periodic, back: &str) -> Markup {
    html! {
        tr #(paging::row_id(&one.name)) {
            th.wide scope="row" {
                a href=(visit.url(&periodic_job::path(&one.name))) { (one.name) }
                div.quiet { (one.runs()) }
                @if let Some(paused) = one.paused() { div.quiet { (paused) } }
                @if let Some(error) = &one.last_error { div.bad { (error) } }
            }
            td { a href=(visit.url(&parts::link("/jobs", &[("kind", &one.kind)]))) { (one.kind) } }
            td { a href=(visit.url(&queue::path(&one.queue))) { (one.queue) } }
            td.number { (one.next()) }
            td.number { @match one.last_run_at { Some(at) => (parts::ago(at)), None => "never" } }
            td { (one.ticks_in_short(visit)) }
            td.actions { (periodic_job::actions(visit, one, back)) }
        }
    }
}
