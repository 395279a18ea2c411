//! The list of queues: how many jobs each has, and its settings.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::list::{self, Found, List, Selection};
use super::queue;
use super::queue_read::{self, Queue};
use crate::console::fields::{self, given};
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Align, Look};
use crate::console::problem::Problem;
use crate::console::role::Parameters;
use crate::console::visit::{Query, Visit};

/// The list.
const QUEUES: List = List {
    screen: Screen::Queues,
    title: "Queues",
    path: "/queues",
    of: "queue",
    columns: &[
        ("Queue", Align::Wide),
        ("Available", Align::Number),
        ("Running", Align::Number),
        ("Scheduled", Align::Number),
        ("Retryable", Align::Number),
        ("Discarded", Align::Number),
        ("Actions", Align::Actions),
    ],
};

const SHOWS: [(&str, &str); 4] = [
    ("", "All"),
    ("waiting", "With available jobs"),
    ("paused", "Paused"),
    ("limited", "With limits"),
];

const SORTS: [(&str, &str); 6] = [
    ("", "Name"),
    ("available", "Most available"),
    ("oldest", "Longest wait"),
    ("running", "Most running"),
    ("retryable", "Most retryable"),
    ("discarded", "Most discarded"),
];

#[derive(Deserialize)]
struct Looked {
    /// The number of queues, of paused ones, and of those that match the filter.
    total: i64,
    paused: i64,
    found: i64,
    queues: Vec<Queue>,
}

pub(crate) async fn queues(
    visit: Visit,
    Query(selection): Query<Selection>,
) -> Result<Response, Problem> {
    let looked = look(&visit, &selection).await?;
    let back = QUEUES.path(&selection);
    let found = Found {
        total: looked.total,
        found: looked.found,
        lead: html! {
            (parts::plural(looked.total, "queue"))
            @if looked.paused > 0 { ", " (parts::number(looked.paused)) " paused" }
        },
        fields: html! {
            (fields::suggesting("filter", "Name", &selection.filter, &[]))
            (fields::choice("show", "Show", &SHOWS, &selection.show))
            (fields::choice("sort", "Sort", &SORTS, &selection.sort))
        },
        rows: looked.queues.iter().map(|queue| row(&visit, queue, &back)).collect(),
        nothing: nothing(&visit, &selection),
    };
    Ok(QUEUES.page(&visit, &selection, found))
}

/// One query for everything, since the view computes its counts each time.
async fn look(visit: &Visit, selection: &Selection) -> Result<Looked, Problem> {
    let order = match selection.sort.as_str() {
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
        columns = queue_read::COLUMNS
    );
    let Selection { filter, show, .. } = selection;
    let of: Parameters = &[&given(filter), show, &list::ROWS, &selection.offset()];
    visit.one(&sql, of).await
}

fn nothing(visit: &Visit, selection: &Selection) -> Option<Markup> {
    if selection.is_all() {
        return Some(parts::empty(
            "No queues yet",
            html! {
                "A queue exists once it has a job. Insert one: "
                code { "SELECT jobs.insert('mail.send', queue => 'mail');" }
            },
        ));
    }
    // It may be the name of a queue that has no jobs yet.
    let name = given(&selection.filter).filter(|_| selection.is_by_name())?;
    let more = html! {
        @if visit.may("configure_queue") || visit.may("pause_queue") {
            "You can configure " (links::queue(visit, name)) " before its first job. "
        }
    };
    Some(QUEUES.unlike(visit, more))
}

fn row(visit: &Visit, queue: &Queue, back: &str) -> Markup {
    let count = |state| html! { td.number { (queue.count(visit, state)) } };
    html! {
        tr #(list::row_id(&queue.queue)) {
            th.wide scope="row" {
                (links::queue(visit, &queue.queue))
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
                    @let form = visit.url(&format!("{}#limits", links::queue_path(&queue.queue)));
                    " " (parts::link_button("Edit limits", &form, Look::Plain))
                }
            }
        }
    }
}
