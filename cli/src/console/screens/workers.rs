//! Workers: those that work, those that are idle, and those that are lost.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::worker::{self, Worker};
use crate::console::fields::{self, given};
use crate::console::page::Screen;
use crate::console::paging;
use crate::console::parts::{self, Align, Kind};
use crate::console::problem::Problem;
use crate::console::visit::{Query, Visit};

/// Which workers are shown.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct List {
    filter: String,
    queue: String,
    show: String,
    page: i64,
}

const SHOWS: [(&str, &str); 5] = [
    ("", "all workers"),
    ("busy", "with jobs"),
    ("idle", "idle ones"),
    ("commanded", "quiet or to stop"),
    ("lost", "lost ones"),
];

#[derive(Default, Deserialize)]
struct Found {
    total: i64,
    busy: i64,
    lost: i64,
    running: i64,
    found: i64,
    workers: Vec<Worker>,
}

pub(crate) async fn workers(visit: Visit, Query(list): Query<List>) -> Result<Response, Problem> {
    let found = look(&visit, &list).await?;
    let main = html! {
        p.lead {
            (parts::number(found.total)) @if found.total == 1 { " worker" } @else { " workers" }
            ", " (parts::number(found.busy)) " with jobs, "
            (parts::number(found.running)) " jobs run"
            @if found.lost > 0 { ", " (parts::number(found.lost)) " lost" }
            @if found.found != found.total { "; the filter finds " (parts::number(found.found)) }
        }
        form.filter method="get" action=(visit.url("/workers")) role="search" {
            (fields::suggesting("filter", "Name has", &list.filter, &[]))
            (fields::suggesting("queue", "Of queue", &list.queue, &[]))
            (fields::choice("show", "Show", &SHOWS, &list.show))
            (parts::button("Filter", Kind::Plain))
        }
        @if found.workers.is_empty() {
            (nothing(&visit, &list))
        } @else {
            (table(&visit, &list, &found.workers))
            (paging::pager(list.page, found.found, |page| visit.url(&list.at(page).path())))
        }
    };
    Ok(visit.page(Screen::Workers, "Workers", main))
}

async fn look(visit: &Visit, list: &List) -> Result<Found, Problem> {
    let sql = format!(
        "with w as materialized (select {columns} from jobs.workers), f as (
           select * from w
            where ($1::text is null or position(lower($1) in lower(worker)) > 0)
              and ($2::text is null or $2 = any(queues))
              and case $3::text
                  when 'busy' then running > 0
                  when 'idle' then running = 0 and status <> 'lost'
                  when 'commanded' then command is not null
                  when 'lost' then status = 'lost'
                  else true end)
         select (select count(*) from w) as total,
                (select count(*) from w where running > 0) as busy,
                (select count(*) from w where status = 'lost') as lost,
                (select coalesce(sum(running), 0)::bigint from w) as running,
                (select count(*) from f) as found,
                array(select to_jsonb(p) from (
                  select * from f order by status = 'lost' and running = 0, worker
                   limit $4::bigint offset $5::bigint) p) as workers",
        columns = worker::COLUMNS
    );
    let offset = paging::offset(list.page);
    let (name, queue) = (given(&list.filter), given(&list.queue));
    let found = visit
        .row(&sql, &[&name, &queue, &list.show, &paging::ROWS, &offset])
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
            "/workers",
            &[
                ("filter", &self.filter),
                ("queue", &self.queue),
                ("show", &self.show),
                ("page", &paging::number(self.page)),
            ],
        )
    }
}

fn nothing(visit: &Visit, list: &List) -> Markup {
    if [&list.filter, &list.queue, &list.show]
        .iter()
        .any(|filter| !filter.is_empty())
    {
        let all = html! { a href=(visit.url("/workers")) { "Show all workers" } };
        return parts::empty("No worker is like that", all);
    }
    parts::empty(
        "No worker is here",
        html! {
            "A worker is shown when it says that it is there, or when it holds a job. Start one: "
            code { "jobs work -- my-program" }
        },
    )
}

fn table(visit: &Visit, list: &List, workers: &[Worker]) -> Markup {
    let columns = [
        ("Worker", Align::Wide),
        ("Status", Align::Text),
        ("Jobs", Align::Number),
        ("Queues", Align::Text),
        ("Kinds", Align::Text),
        ("Actions", Align::Actions),
    ];
    let back = list.path();
    let rows = html! { @for worker in workers { (row(visit, worker, &back)) } };
    parts::table("Workers", &columns, rows)
}

fn row(visit: &Visit, worker: &Worker, back: &str) -> Markup {
    html! {
        tr #(paging::row_id(&worker.worker)) {
            th.wide scope="row" {
                a href=(visit.url(&worker::path(&worker.worker))) { (worker.worker) }
                div.quiet { (worker.seen()) }
                @if let Some(command) = worker.commanded() { div.quiet { (command) } }
            }
            td { (worker.status()) }
            td.number {
                (worker.places())
                @if let Some(since) = worker.oldest_attempted_at {
                    div.quiet { "longest " (parts::ago(since)) }
                }
            }
            td { (worker.queues(visit)) }
            td { (worker.kinds(visit)) }
            td.actions { (worker::commands(visit, worker, back)) }
        }
    }
}
