//! The list of workers: busy, idle and lost.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::list::{self, Found, List, Selection};
use super::worker::{self, Worker};
use crate::console::fields::{self, given};
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Align};
use crate::console::problem::Problem;
use crate::console::role::Parameters;
use crate::console::visit::{Query, Visit};

/// The list.
const WORKERS: List = List {
    screen: Screen::Workers,
    title: "Workers",
    path: "/workers",
    of: "worker",
    columns: &[
        ("Worker", Align::Wide),
        ("Status", Align::Text),
        ("Jobs", Align::Number),
        ("Queues", Align::Text),
        ("Kinds", Align::Text),
        ("Actions", Align::Actions),
    ],
};

const SHOWS: [(&str, &str); 5] = [
    ("", "All"),
    ("busy", "Busy"),
    ("idle", "Idle"),
    ("commanded", "Quiet or stopping"),
    ("lost", "Lost"),
];

#[derive(Deserialize)]
struct Looked {
    total: i64,
    busy: i64,
    lost: i64,
    running: i64,
    found: i64,
    workers: Vec<Worker>,
}

pub(crate) async fn workers(
    visit: Visit,
    Query(selection): Query<Selection>,
) -> Result<Response, Problem> {
    let looked = look(&visit, &selection).await?;
    let back = WORKERS.path(&selection);
    let found = Found {
        total: looked.total,
        found: looked.found,
        lead: html! {
            (parts::plural(looked.total, "worker")) ", " (parts::number(looked.busy)) " busy, "
            (parts::plural(looked.running, "running job"))
            @if looked.lost > 0 { ", " (parts::number(looked.lost)) " lost" }
        },
        fields: html! {
            (fields::suggesting("filter", "Name", &selection.filter, &[]))
            (fields::suggesting("queue", "Queue", &selection.queue, &[]))
            (fields::choice("show", "Show", &SHOWS, &selection.show))
        },
        rows: looked.workers.iter().map(|worker| row(&visit, worker, &back)).collect(),
        nothing: selection.is_all().then(nothing),
    };
    Ok(WORKERS.page(&visit, &selection, found))
}

async fn look(visit: &Visit, selection: &Selection) -> Result<Looked, Problem> {
    let sql = format!(
        "with w as materialized (select {columns} from jobs.workers), f as (
           select * from w
            where ($1::text is null or position(lower($1) in lower(worker)) > 0)
              and ($2::text is null or $2 = any(queues))
              and case $3::text
                  when 'busy' then running > 0
                  when 'idle' then status = 'idle'
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
    let Selection { filter, queue, show, .. } = selection;
    let of: Parameters = &[&given(filter), &given(queue), show, &list::ROWS, &selection.offset()];
    visit.one(&sql, of).await
}

pub(super) fn nothing() -> Markup {
    parts::empty(
        "No workers are running",
        html! { "Start one: " code { "pgjobs work -- ./your-program" } },
    )
}

fn row(visit: &Visit, worker: &Worker, back: &str) -> Markup {
    html! {
        tr #(list::row_id(&worker.worker)) {
            th.wide scope="row" {
                (links::worker(visit, &worker.worker))
                div.quiet { (worker.seen()) }
                @if let Some(command) = worker.commanded() { div.quiet { (command) } }
            }
            td { (worker.status()) }
            td.number {
                (worker.places())
                @if let Some(since) = worker.oldest_attempted_at {
                    div.quiet { "oldest " (parts::ago(since)) }
                }
            }
            td { (worker.queues(visit)) }
            td { (worker.kinds(visit)) }
            td.actions { (worker::commands(visit, worker, back)) }
        }
    }
}
