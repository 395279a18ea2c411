//! Addresses of jobs, queues, workers and periodic jobs, and links to them.

use std::fmt::Display;

use maud::{Markup, html};

use super::app::App;
use super::parts;
use super::room::text;
use super::visit::Visit;

/// Where a job is shown.
pub(crate) fn job_path(id: impl Display) -> String {
    format!("/jobs/{id}")
}

/// A link to a job that says its id.
pub(crate) fn job(visit: &Visit, id: i64) -> Markup {
    html! { a href=(visit.url(&job_path(id))) { (id) } }
}

/// The cell whose ids have this one.
pub(crate) fn cell_of(id: i64) -> i64 {
    id >> 43
}

/// A page in the cell with this number, whichever database that is.
pub(crate) fn in_cell(app: &App, cell: i64, path: &str) -> String {
    format!("{}cell/{cell}{path}", app.home())
}

pub(crate) fn queue_path(name: &str) -> String {
    named("/queue", name)
}

pub(crate) fn queue(visit: &Visit, name: &str) -> Markup {
    html! { a href=(visit.url(&queue_path(name))) { (text(name)) } }
}

pub(crate) fn limit_path(name: &str) -> String {
    named("/limit", name)
}

pub(crate) fn limit(visit: &Visit, name: &str) -> Markup {
    html! { a href=(visit.url(&limit_path(name))) { (text(name)) } }
}

/// A key is JSON.
pub(crate) fn limit_key_path(name: &str, key: &str) -> String {
    parts::link("/limit/key", [("name", name), ("key", key)])
}

pub(crate) fn limit_key(visit: &Visit, name: &str, key: &str) -> Markup {
    html! { a href=(visit.url(&limit_key_path(name, key))) { code { (text(key)) } } }
}

/// The order of a queue.
pub(crate) fn order_path(queue: &str) -> String {
    named("/order", queue)
}

pub(crate) fn order(visit: &Visit, queue: &str) -> Markup {
    html! { a href=(visit.url(&order_path(queue))) { (text(queue)) } }
}

pub(crate) fn worker_path(name: &str) -> String {
    named("/worker", name)
}

pub(crate) fn worker(visit: &Visit, name: &str) -> Markup {
    html! { a href=(visit.url(&worker_path(name))) { (text(name)) } }
}

pub(crate) fn periodic_job_path(name: &str) -> String {
    named("/periodic/job", name)
}

/// A link to the audit of a target.
pub(crate) fn audit(visit: &Visit, target: &str) -> Markup {
    let url = visit.url(&parts::link("/audit", [("target", target)]));
    html! { p { a href=(url) { "View audit" } } }
}

/// A name may have any character, so it is not part of the path.
fn named(page: &str, name: &str) -> String {
    parts::link(page, [("name", name)])
}
