//! Reads limits and their keys.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::named;
use super::queue_read::at_most;
use crate::console::links;
use crate::console::parts;
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::Visit;

/// The columns of a `Limit`.
pub(super) const COLUMNS: &str =
    "name, by::text, queues, kinds, concurrency, rate, rate_period, keys, running, held,
    paused_at, paused_by, pause_reason";

#[derive(Deserialize)]
pub(super) struct Limit {
    pub(super) name: String,
    /// What makes the key of a job, as JSON.
    pub(super) by: Option<String>,
    queues: Option<Vec<String>>,
    kinds: Option<Vec<String>>,
    pub(super) concurrency: Option<i32>,
    pub(super) rate: Option<i32>,
    pub(super) rate_period: Option<String>,
    pub(super) keys: Option<i64>,
    pub(super) running: Option<i64>,
    pub(super) held: i64,
    pub(super) paused_at: Option<DateTime<Utc>>,
    paused_by: Option<String>,
    pause_reason: Option<String>,
}

/// The columns of a `Key`.
const KEY_COLUMNS: &str =
    "key::text, concurrency, rate, rate_period, running, held, oldest_held_at, next_start_at,
    paused_at, overridden";

/// A key of a limit.
#[derive(Default, Deserialize)]
pub(super) struct Key {
    /// As JSON. A role that may not see args does not see it.
    pub(super) key: Option<String>,
    pub(super) concurrency: Option<i32>,
    pub(super) rate: Option<i32>,
    pub(super) rate_period: Option<String>,
    pub(super) running: i64,
    pub(super) held: i64,
    pub(super) oldest_held_at: Option<DateTime<Utc>>,
    pub(super) next_start_at: Option<DateTime<Utc>>,
    pub(super) paused_at: Option<DateTime<Utc>>,
    pub(super) overridden: bool,
}

pub(super) async fn look(visit: &Visit, name: &str) -> Result<Limit, Problem> {
    let sql = format!("select {COLUMNS} from jobs.limits where name = $1");
    let found = visit.row(&sql, &[&name]).await?;
    found.ok_or_else(|| Problem::not_found(&format!("Limit {name}")))
}

/// The keys with most held jobs.
pub(super) async fn keys(visit: &Visit, name: &str, most: i64) -> Result<Vec<Key>, Problem> {
    let sql = format!(
        "select {KEY_COLUMNS} from jobs.limit_keys where name = $1
          order by held desc, running desc, limit_keys.key limit $2"
    );
    visit.rows(&sql, &[&name, &most]).await
}

/// A key of a limit, which need not have jobs.
pub(super) async fn key(visit: &Visit, name: &str, key: &str) -> Result<Key, Problem> {
    let sql = format!(
        "select {KEY_COLUMNS} from jobs.limit_keys
          where name = $1 and limit_keys.key = $2::text::jsonb"
    );
    Ok(visit.row(&sql, &[&name, &key]).await?.unwrap_or_default())
}

impl Limit {
    /// The queue whose own limit it is.
    pub(super) fn queue(&self) -> Option<&str> {
        self.name.strip_prefix("queue/")
    }

    pub(super) fn link(&self, visit: &Visit) -> Markup {
        match self.queue() {
            Some(queue) => html! { "Queue " (links::queue(visit, queue)) },
            None => links::limit(visit, &self.name),
        }
    }

    /// When, by whom and why it was paused.
    pub(super) fn paused(&self) -> Option<Markup> {
        self.paused_at.map(|at| {
            let (by, reason) = (self.paused_by.as_deref(), self.pause_reason.as_deref());
            html! { (parts::state("paused")) (named::since(Some(at), by, reason)) }
        })
    }

    pub(super) fn at_most(&self) -> Option<String> {
        at_most(self.concurrency, self.rate, self.rate_period.as_deref(), None)
    }

    /// The jobs that it covers, and what makes their keys.
    pub(super) fn covers(&self, visit: &Visit) -> Markup {
        let kind = |kind: &str| {
            let path = parts::link("/jobs", [("kind", kind)]);
            html! { a href=(visit.url(&path)) { (text(kind)) } }
        };
        html! {
            @if let (Some(queues), None) = (&self.queues, self.queue()) {
                (list("Queue", queues, |queue| links::queue(visit, queue)))
            }
            @if let Some(kinds) = &self.kinds { (list("Kind", kinds, kind)) }
            @if let Some(by) = &self.by { "For each key of " code { (text(by)) } "." }
        }
    }
}

fn list(noun: &str, names: &[String], link: impl Fn(&str) -> Markup) -> Markup {
    html! {
        (noun) @if names.len() > 1 { "s" }
        @for (n, name) in names.iter().enumerate() {
            @if n > 0 { "," }
            " " (link(name))
        }
        ". "
    }
}

impl Key {
    pub(super) fn at_most(&self) -> Option<String> {
        at_most(self.concurrency, self.rate, self.rate_period.as_deref(), None)
    }

    /// What its jobs wait for, and since when.
    pub(super) fn notes(&self) -> Markup {
        html! {
            @if let Some(at) = self.paused_at { div.quiet { (parts::state("paused")) " " (parts::ago(at)) } }
            @if self.overridden {
                div.quiet { "Override: " @match self.at_most() { Some(most) => (most), None => "no limit" } }
            }
            @if let Some(since) = self.oldest_held_at { div.quiet { "oldest held " (parts::ago(since)) } }
            @if let Some(at) = self.next_start_at { div.quiet { "next start " (parts::ago(at)) } }
        }
    }
}
