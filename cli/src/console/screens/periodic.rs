//! The list of periodic jobs, with their latest ticks.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::list::{self, Found, List, Selection};
use super::periodic_job::{self, Periodic};
use crate::console::fields::{self, given};
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Align};
use crate::console::problem::Problem;
use crate::console::role::Parameters;
use crate::console::room::text;
use crate::console::visit::{Query, Visit};

/// The list.
const PERIODIC: List = List {
    screen: Screen::Periodic,
    title: "Periodic jobs",
    path: "/periodic",
    of: "periodic job",
    columns: &[
        ("Name", Align::Wide),
        ("Kind", Align::Text),
        ("Queue", Align::Text),
        ("Next tick", Align::Number),
        ("Last tick", Align::Number),
        ("Latest ticks", Align::Text),
        ("Actions", Align::Actions),
    ],
};

const SHOWS: [(&str, &str); 4] =
    [("", "All"), ("failing", "Failing"), ("paused", "Paused"), ("running", "Active")];

#[derive(Deserialize)]
struct Looked {
    total: i64,
    paused: i64,
    failing: i64,
    found: i64,
    definitions: Vec<Periodic>,
}

pub(crate) async fn periodic(
    visit: Visit,
    Query(selection): Query<Selection>,
) -> Result<Response, Problem> {
    let looked = look(&visit, &selection).await?;
    let back = PERIODIC.path(&selection);
    let found = Found {
        total: looked.total,
        found: looked.found,
        lead: html! {
            (parts::plural(looked.total, "definition"))
            @if looked.paused > 0 { ", " (parts::number(looked.paused)) " paused" }
            @if looked.failing > 0 { ", " (parts::number(looked.failing)) " failing" }
        },
        fields: html! {
            (fields::suggesting("filter", "Name or kind", &selection.filter, &[]))
            (fields::choice("show", "Show", &SHOWS, &selection.show))
        },
        rows: looked.definitions.iter().map(|one| row(&visit, one, &back)).collect(),
        nothing: selection.is_all().then(nothing),
    };
    Ok(PERIODIC.page(&visit, &selection, found))
}

async fn look(visit: &Visit, selection: &Selection) -> Result<Looked, Problem> {
    // Reads the ticks and the states of their jobs only for the shown rows.
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
    let Selection { filter, show, .. } = selection;
    let of: Parameters = &[&given(filter), show, &list::ROWS, &selection.offset()];
    visit.one(&sql, of).await
}

fn nothing() -> Markup {
    parts::empty(
        "No periodic jobs yet",
        html! {
            "Define one: "
            code { "SELECT jobs.schedule('nightly report', '30 2 * * *', 'report');" }
        },
    )
}

fn row(visit: &Visit, one: &Periodic, back: &str) -> Markup {
    html! {
        tr #(list::row_id(&one.name)) {
            th.wide scope="row" {
                a href=(visit.url(&links::periodic_job_path(&one.name))) { (text(&one.name)) }
                div.quiet { (one.runs()) }
                @if let Some(paused) = one.paused() { div.quiet { (paused) } }
                @if let Some(error) = &one.last_error { div.bad { (text(error)) } }
            }
            td { a href=(visit.url(&parts::link("/jobs", [("kind", &one.kind)]))) { (text(&one.kind)) } }
            td { (links::queue(visit, &one.queue)) }
            td.number { (one.next()) }
            td.number { @match one.last_run_at { Some(at) => (parts::ago(at)), None => "never" } }
            td { (one.ticks_in_short(visit)) }
            td.actions { (periodic_job::actions(visit, one, back)) }
        }
    }
}
