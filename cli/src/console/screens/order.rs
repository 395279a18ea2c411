//! The order of one queue: its keys, and what can be changed.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::limit::LIST;
use super::list;
use super::named::{Call, Form, Name};
use super::order_read::{self, Key, Order};
use super::setting::Setting;
use super::{keys, order_set};
use crate::console::fields::{given, hidden, reason};
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::{Change, Only, Query, Visit};

pub(crate) async fn order(
    visit: Visit,
    Query(Name { name }): Query<Name>,
) -> Result<Response, Problem> {
    if name.is_empty() {
        return Err(Problem::no_page());
    }
    let order = order_read::look(&visit, &name).await?;
    let set = order_set::setting(&name, order.as_ref());
    page(&visit, order.as_ref(), &set, None).await
}

/// The page with this setting in the form, and its problem.
async fn page(
    visit: &Visit,
    order: Option<&Order>,
    set: &Setting,
    wrong: Option<&Problem>,
) -> Result<Response, Problem> {
    let name = &*set.name;
    let keys = match order {
        Some(_) => order_read::keys(visit, name).await?,
        None => Vec::new(),
    };
    let main = html! {
        p.path { a href=(visit.url(LIST)) { "Limits" } " / Queue " (links::queue(visit, name)) }
        (visit.live("keys-of-order", &links::order_path(name), html! {
            p { (order_read::said(order)) }
            @if let Some(order) = order {
                (parts::counts([
                    ("Waiting keys", order.waiting_keys),
                    ("Blocked keys", order.blocked_keys),
                ]))
            }
        }))
        @if order.is_some() {
            div.actions { (REMOVE.offer(visit, name, &links::queue_path(name))) }
            (parts::section("keys", "Keys", html! {
                (shown(visit, name, &keys))
            }))
        }
        @if visit.may("order_queue") && visit.sees_payload() {
            (parts::section("order", "Order", html! {
                @if order.is_some_and(|order| order.is_too_large) {
                    p.quiet { "The weights are too large to edit here. Use jobs.order_queue." }
                } @else {
                    (order_set::form(visit, set, wrong))
                }
            }))
        }
        (links::audit(visit, name))
    };
    Ok(visit.with_form(Screen::Limits, &format!("Order of {name}"), main, wrong))
}

fn shown(visit: &Visit, queue: &str, keys: &[Key]) -> Markup {
    let rows = keys.iter().map(|key| keys::Row {
        key: key.key.as_ref().map(|value| html! { code { (text(value)) } }),
        notes: html! {
            @if let Some(id) = key.blocked_by {
                div.quiet { "blocked by discarded job " (links::job(visit, id)) }
            }
        },
        counts: [
            parts::count(key.waiting, false),
            parts::count(key.running, false),
            key.weight.map_or_else(parts::none, |weight| html! { (weight) }),
        ],
        actions: key
            .key
            .as_ref()
            .filter(|_| key.blocked_by.is_some())
            .map(|value| unblocking(visit, queue, value)),
    });
    html! {
        @if keys.is_empty() {
            p { "No key has waiting or running jobs, or is blocked." }
        } @else {
            (keys::table(["Waiting", "Running", "Weight"], rows))
            @if keys.len() as i64 >= list::ROWS {
                p.quiet { "Up to " (parts::number(list::ROWS)) " keys: blocked ones, then those with most waiting jobs." }
            }
        }
    }
}

pub(crate) async fn set(mut change: Change<Setting>) -> Result<Response, Problem> {
    let order = order_read::look(&change.visit, &change.form.name).await?;
    let now = order_set::setting(&change.form.name, order.as_ref()).values;
    let Err(wrong) = order_set::define(&mut change, &now).await else {
        let name = &change.form.name;
        return Ok(change.done(&links::order_path(name), format!("Order of queue {name} saved.")));
    };
    page(&change.visit, order.as_ref(), &change.form, Some(&wrong)).await
}

const REMOVE: Call = Call {
    path: "/order/remove",
    function: "order_queue",
    label: "Remove",
    question: "Removes the order of {name}. Its jobs start by priority, and blocked keys are unblocked.",
    button: "Remove order",
    look: Look::Danger,
};

pub(crate) async fn remove(change: Change<Form>) -> Result<Response, Problem> {
    let Form { name, reason, .. } = &change.form;
    let sql = "select from jobs.order_queue($1, null, reason => $2)";
    change.run(sql, &[name, &given(reason)]).await?;
    Ok(change.done(&links::queue_path(name), format!("Queue {name} no longer has an order.")))
}

fn unblocking(visit: &Visit, queue: &str, key: &str) -> Markup {
    let question = "Its next job can start. The discarded job does not change.";
    let fields = html! {
        (hidden("name", queue))
        (hidden("key", key))
        (reason())
        (parts::button("Unblock key", Look::Primary))
    };
    html! {
        @if visit.may("unblock") {
            (parts::confirm("Unblock", question, visit.form("/order/unblock", fields)))
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct UnblockForm {
    name: String,
    /// As JSON.
    key: String,
    reason: String,
}

pub(crate) async fn unblock(change: Change<UnblockForm>) -> Result<Response, Problem> {
    let UnblockForm { name, key, reason } = &change.form;
    let sql = "select jobs.unblock($1, $2::text::jsonb, $3)";
    let Only(job) = change.call::<Only<Option<i64>>>(sql, &[name, key, &given(reason)]).await?;
    let outcome = if job.is_some() { "is unblocked" } else { "was not blocked" };
    Ok(change.done(&links::order_path(name), format!("Key {key} of queue {name} {outcome}.")))
}
