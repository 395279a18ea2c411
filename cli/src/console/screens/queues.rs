//! Queues: how many jobs each has, and what is set of it.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::queue::{self, Queue};
use crate::console::fields::{self, given};
use crate::console::page::Screen;
use crate::console::paging;
use crate::console::parts::{self, Align, Kind};
use crate::console::problem::Problem;
use crate::console::visit::{Query, Visit};

/// Which queues are shown, and in which order.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct List {
    filter: String,
    show: String,
    sort: String,
    page: i64,
}

const SHOWS: [(&str, &str); 4] = [
    ("", "all queues"),
    ("waiting", "with available jobs"),
    ("paused", "paused ones"),
    ("limited", "with limits"),
];

const SORTS: [(&str, &str); 6] = [
    ("", "by name"),
    ("available", "most available first"),
    ("oldest", "longest wait first"),
    ("running", "most running first"),
    ("retryable", "most retryable first"),
    ("discarded", "most discarded first"),
];

#[derive(Default, Deserialize)]
struct Found {
    /// How many queues there are, how many of them are paused, and how many the filter finds.
    total: i64,
    paused: i64,
    found: i64,
    queues: Vec<Queue>,
}

pub(crate) async fn queues(visit: Visit, Query(list): Query<List>) -> Result<Response, Problem> {
    let found = look(&visit, &list).await?;
    let main = html! {
        p.lead {
            (parts::number(found.total)) @if found.total == 1 { " queue" } @else { " queues" }
            @if found.paused > 0 { ", " (parts::number(found.paused)) " paused" }
            @if found.found != found.total { "; the filter finds " (parts::number(found.found)) }
        }
        form.filter method="get" action=(visit.url("/queues")) role="search" {
            (fields::suggesting("filter", "Name has", &list.filter, &[]))
            (fields::choice("show", "Show", &SHOWS, &list.show))
            (fields::choice("sort", "Order", &SORTS, &list.sort))
            (parts::button("Filter", Kind::Plain))
        }
        @if found.queues.is_empty() {
            (nothing(&visit, &list))
        } @else {
            (table(&visit, &list, &found.queues))
            (paging::pager(list.page, found.found, |page| visit.url(&list.at(page).path())))
        }
    };
    Ok(visit.page(Screen::Queues, "Queues", main))
}

/// All of it by one look, as every count of the view is made anew.
async fn look(visit: &Visit, list: &List) -> Result<Found, Problem> {
    let order = match list.sort.as_str() {
        "available" => "available desc,",
        "oldest" => "oldest_available_at nulls last,",
        "running" => "running desc,",
        "retryable" => "retryable desc,",
        "discarded" => "discarded desc,",
        _ => "",
    };
    let sql = format!(
        "with q as materialized (select {columns} from jobs.queues), f as (
           select * from q
            where ($1::text is null or position(lower($1) in lower(queue)) > 0)
              and case $2::text
                  when 'paused' then paused
                  when 'limited' then coalesce(concurrency, rate, max_waiting) is not null
                  when 'waiting' then available > 0
                  else true end)
         select (select count(*) from q) as total, (select count(*) from q where paused) as paused,
                (select count(*) from f) as found,
                array(select to_jsonb(p) from (
                  select * from f order by {order} queue limit $3::bigint offset $4::bigint
                ) p) as queues",
        columns = queue::COLUMNS
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

    /// Whether it has all queues, but for a part of their names.
    fn is_by_name(&self) -> bool {
        self.show.is_empty() && self.page <= 0
    }

    fn path(&self) -> String {
        parts::link(
            "/queues",
            &[
                ("filter", &self.filter),
                ("show", &self.show),
                ("sort", &self.sort),
                ("page", &paging::number(self.page)),
            ],
        )
    }
}

fn nothing(visit: &Visit, list: &List) -> Markup {
    match given(&list.filter) {
        Some(name) if list.is_by_name() => parts::empty(
            "No queue has that in its name",
            html! {
                @if visit.may("configure_queue") || visit.may("pause_queue") {
                    "What is set of it counts once it has jobs: "
                    a href=(visit.url(&queue::path(name))) { (name) } ". "
                }
                a href=(visit.url("/queues")) { "Show all queues" }
            },
        ),
        None if list.is_by_name() => parts::empty(
            "There is no queue yet",
            html! {
                "A queue begins with its first job: "
                code { "SELECT jobs.insert('mail.send', queue => 'mail');" }
            },
        ),
        _ => parts::empty(
            "No queue is like that",
            html! { a href=(visit.url("/queues")) { "Show all queues" } },
        ),
    }
}

fn table(visit: &Visit, list: &List, queues: &[Queue]) -> Markup {
    let columns = [
        ("Queue", Align::Wide),
        ("Available", Align::Number),
        ("Running", Align::Number),
        ("Scheduled", Align::Number),
        ("Retryable", Align::Number),
        ("Discarded", Align::Number),
        ("Actions", Align::Actions),
    ];
    let back = list.path();
    let rows = html! { @for queue in queues { (row(visit, queue, &back)) } };
    parts::table("Queues", &columns, rows)
}

fn row(visit: &Visit, queue: &Queue, back: &str) -> Markup {
    let count = |state| html! { td.number { (queue.count(visit, state)) } };
    html! {
        tr #(paging::row_id(&queue.queue)) {
            th.wide scope="row" {
                a href=(visit.url(&queue::path(&queue.queue))) { (queue.queue) }
                @if let Some(paused) = queue.paused() { div.quiet { (paused) } }
                @if let Some(limits) = queue.limits_in_short() { div.quiet { (limits) } }
            }
            td.number {
                (queue.count(visit, "available"))
                @if let Some(since) = queue.oldest_available_at {
                    div.quiet { "oldest " (parts::ago(since)) }
                }
            }
            td.number {
                (queue.count(visit, "running"))
                @if let Some(limit) = queue.concurrency { " of " (parts::number(limit.into())) }
            }
            (count("scheduled"))
            (count("retryable"))
            (count("discarded"))
            td.actions {
                (queue::actions(visit, queue, back))
                @if visit.may("configure_queue") {
                    @let form = visit.url(&format!("{}#limits", queue::path(&queue.queue)));
                    " " (parts::link_button("Limits", &form, Kind::Plain))
                }
            }
        }
    }
}
