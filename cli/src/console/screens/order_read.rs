//! Reads orders of queues and their keys.

use maud::{Markup, html};
use serde::Deserialize;

use super::list;
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::Visit;

/// The columns of an `Order`. Larger weights are not edited.
pub(super) const COLUMNS: &str =
    "queue, by::text, strict, on_discard, fair, waiting_keys, blocked_keys,
    case when octet_length(weights::text) <= 65536 then weights::text end as weights,
    coalesce(octet_length(weights::text) > 65536, false) as is_too_large";

#[derive(Deserialize)]
pub(super) struct Order {
    pub(super) queue: String,
    /// What makes the key of a job, as JSON.
    pub(super) by: String,
    pub(super) strict: bool,
    pub(super) on_discard: String,
    pub(super) fair: bool,
    /// As JSON. A role that may not see args does not see them.
    pub(super) weights: Option<String>,
    pub(super) is_too_large: bool,
    pub(super) waiting_keys: i64,
    pub(super) blocked_keys: i64,
}

/// A key of an order.
#[derive(Deserialize)]
pub(super) struct Key {
    /// As JSON. A role that may not see args does not see it.
    pub(super) key: Option<String>,
    pub(super) waiting: i64,
    pub(super) running: i64,
    pub(super) weight: Option<f64>,
    pub(super) blocked_by: Option<i64>,
}

/// The order of a queue, if it has one.
pub(super) async fn look(visit: &Visit, queue: &str) -> Result<Option<Order>, Problem> {
    let sql = format!("select {COLUMNS} from jobs.orders where queue = $1");
    visit.row(&sql, &[&queue]).await
}

/// The blocked keys, and those with most waiting jobs.
pub(super) async fn keys(visit: &Visit, queue: &str) -> Result<Vec<Key>, Problem> {
    let sql = "select key::text, waiting, running, weight, blocked_by from jobs.order_keys
        where queue = $1
        order by blocked_by is null, waiting desc, running desc, order_keys.key limit $2";
    visit.rows(sql, &[&queue, &list::ROWS]).await
}

/// The order of a queue in words.
pub(super) fn said(order: Option<&Order>) -> Markup {
    let Some(order) = order else {
        return html! { "Jobs start by priority, then in the order in which they became available." };
    };
    let name = match (order.strict, order.fair) {
        (true, true) => "Strict and fair",
        (true, false) => "Strict",
        _ => "Fair",
    };
    html! {
        (name) " by " code { (text(&order.by)) } "."
        @if order.on_discard == "block" { " A discarded job blocks its key." }
    }
}
