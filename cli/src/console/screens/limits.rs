//! The list of limits, of the own limits of queues, and of orders of queues.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::limit;
use super::limit_read::{self, Limit};
use super::list::{self, Found, List, Selection};
use super::order_read::{self, Order};
use crate::console::fields::{self, given};
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Align};
use crate::console::problem::Problem;
use crate::console::role::Parameters;
use crate::console::visit::{Query, Visit};

/// The list.
const LIMITS: List = List {
    screen: Screen::Limits,
    title: "Limits",
    path: limit::LIST,
    of: "limit",
    columns: &[
        ("Limit", Align::Wide),
        ("Keys", Align::Number),
        ("Running", Align::Number),
        ("Held", Align::Number),
        ("Actions", Align::Actions),
    ],
};

const SHOWS: [(&str, &str); 4] =
    [("", "All"), ("held", "With held jobs"), ("paused", "Paused"), ("queues", "Of queues")];

const SORTS: [(&str, &str); 3] = [("", "Name"), ("held", "Most held"), ("running", "Most running")];

#[derive(Deserialize)]
struct Looked {
    total: i64,
    paused: i64,
    found: i64,
    limits: Vec<Limit>,
}

pub(crate) async fn limits(
    visit: Visit,
    Query(selection): Query<Selection>,
) -> Result<Response, Problem> {
    let looked = look(&visit, &selection).await?;
    let orders = orders(&visit, &selection).await?;
    let back = LIMITS.path(&selection);
    let found = Found {
        total: looked.total,
        found: looked.found,
        lead: html! {
            (parts::plural(looked.total, "limit"))
            @if looked.paused > 0 { ", " (parts::number(looked.paused)) " paused" }
        },
        fields: html! {
            (fields::suggesting("filter", "Name", &selection.filter, &[]))
            (fields::choice("show", "Show", &SHOWS, &selection.show))
            (fields::choice("sort", "Sort", &SORTS, &selection.sort))
        },
        rows: looked.limits.iter().map(|limit| row(&visit, limit, &back)).collect(),
        nothing: selection.is_all().then(nothing),
    };
    Ok(LIMITS.page_with(&visit, &selection, found, table_of(&visit, &orders)))
}

/// Orders of queues with this name, those with most blocked keys first.
async fn orders(visit: &Visit, selection: &Selection) -> Result<Vec<Order>, Problem> {
    if !selection.is_by_name() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "select {columns} from jobs.orders
          where $1::text is null or position(lower($1) in lower(queue)) > 0
          order by blocked_keys desc, queue limit $2",
        columns = order_read::COLUMNS
    );
    visit.rows(&sql, &[&given(&selection.filter), &list::ROWS]).await
}

fn table_of(visit: &Visit, orders: &[Order]) -> Markup {
    const COLUMNS: &[(&str, Align)] =
        &[("Queue", Align::Wide), ("Waiting keys", Align::Number), ("Blocked keys", Align::Number)];
    html! {
        @if !orders.is_empty() {
            (parts::section("orders", "Orders", html! {
                (parts::table("Orders", COLUMNS, html! {
                    @for order in orders {
                        tr {
                            th.wide scope="row" {
                                (links::order(visit, &order.queue))
                                div.quiet { (order_read::said(Some(order))) }
                            }
                            td.number { (parts::count(order.waiting_keys, false)) }
                            td.number { (parts::count(order.blocked_keys, false)) }
                        }
                    }
                }))
                @if orders.len() as i64 >= list::ROWS {
                    p.quiet { "The " (parts::number(list::ROWS)) " queues with most blocked keys." }
                }
            }))
        }
    }
}

/// One query for everything, since the view computes its counts each time.
async fn look(visit: &Visit, selection: &Selection) -> Result<Looked, Problem> {
    let order = match selection.sort.as_str() {
        "held" => "held desc,",
        "running" => "running desc nulls last,",
        _ => "",
    };
    let sql = format!(
        "with l as materialized (select {columns} from jobs.limits), f as (
           select * from l
            where ($1::text is null or position(lower($1) in lower(name)) > 0)
              and case $2::text when 'held' then held > 0 when 'paused' then paused_at is not null
                                when 'queues' then name like 'queue/%' else true end)
         select (select count(*) from l) as total,
                (select count(*) from l where paused_at is not null) as paused,
                (select count(*) from f) as found,
                array(select to_jsonb(p) from (
                  select * from f order by {order} name limit $3::bigint offset $4::bigint
                ) p) as limits",
        columns = limit_read::COLUMNS
    );
    let Selection { filter, show, .. } = selection;
    let of: Parameters = &[&given(filter), show, &list::ROWS, &selection.offset()];
    visit.one(&sql, of).await
}

fn nothing() -> Markup {
    parts::empty(
        "No limits yet",
        html! {
            "Define one: "
            code {
                "SELECT jobs.define_limit('tenants', '{\"by_args\": [\"tenant\"]}', concurrency => 2);"
            }
        },
    )
}

fn row(visit: &Visit, limit: &Limit, back: &str) -> Markup {
    html! {
        tr #(list::row_id(&limit.name)) {
            th.wide scope="row" {
                (limit.link(visit))
                @if let Some(paused) = limit.paused() { div.quiet { (paused) } }
                @if let Some(most) = limit.at_most() { div.quiet { (most) } }
                div.quiet { (limit.covers(visit)) }
            }
            td.number { @match limit.keys { Some(keys) => (parts::count(keys, false)), None => (parts::none()) } }
            td.number { @match limit.running { Some(jobs) => (parts::count(jobs, false)), None => (parts::none()) } }
            td.number { (parts::count(limit.held, false)) }
            td.actions { @if limit.queue().is_none() { (limit::actions(visit, limit, back)) } }
        }
    }
}
