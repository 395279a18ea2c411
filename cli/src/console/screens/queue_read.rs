//! Reads one queue.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::named;
use crate::console::interval::words;
use crate::console::parts::{self, number_text};
use crate::console::problem::Problem;
use crate::console::visit::Visit;

/// The columns of a `Queue`.
pub(super) const COLUMNS: &str =
    "queue, available, scheduled, pending, running, retryable, completed, cancelled, discarded,
    oldest_available_at, paused, paused_at, paused_by, pause_reason,
    concurrency, rate, rate_period, max_waiting, estimated, counted_at,
    retention_completed, retention_cancelled, retention_discarded";

#[derive(Default, Deserialize)]
pub(super) struct Queue {
    pub(super) queue: String,
    available: i64,
    scheduled: i64,
    pending: i64,
    running: i64,
    retryable: i64,
    completed: i64,
    cancelled: i64,
    discarded: i64,
    pub(super) oldest_available_at: Option<DateTime<Utc>>,
    pub(super) paused: bool,
    paused_at: Option<DateTime<Utc>>,
    paused_by: Option<String>,
    pause_reason: Option<String>,
    pub(super) concurrency: Option<i32>,
    pub(super) rate: Option<i32>,
    pub(super) rate_period: Option<String>,
    pub(super) max_waiting: Option<i32>,
    /// The states whose count was made before, at `counted_at`.
    estimated: Vec<String>,
    pub(super) counted_at: Option<DateTime<Utc>>,
    pub(super) retention_completed: Option<String>,
    pub(super) retention_cancelled: Option<String>,
    pub(super) retention_discarded: Option<String>,
}

/// The queue. One without jobs and settings is the same as one that was never used.
pub(super) async fn look(visit: &Visit, name: &str) -> Result<Queue, Problem> {
    let sql = format!("select {COLUMNS} from jobs.queues where queue = $1");
    let found = visit.row(&sql, &[&name]).await?;
    Ok(found.unwrap_or_else(|| Queue { queue: name.into(), ..Queue::default() }))
}

impl Queue {
    /// The number of its jobs in a state.
    pub(super) fn counted(&self, state: &str) -> Markup {
        parts::count(self.in_state(state), self.estimated.iter().any(|one| one == state))
    }

    fn in_state(&self, state: &str) -> i64 {
        match state {
            "available" => self.available,
            "scheduled" => self.scheduled,
            "pending" => self.pending,
            "running" => self.running,
            "retryable" => self.retryable,
            "completed" => self.completed,
            "cancelled" => self.cancelled,
            _ => self.discarded,
        }
    }

    /// The number of its jobs in a state, with a link to them.
    pub(super) fn count(&self, visit: &Visit, state: &str) -> Markup {
        if self.in_state(state) == 0 {
            return self.counted(state);
        }
        let path = parts::link("/jobs", [("queue", &*self.queue), ("state", state)]);
        html! { a href=(visit.url(&path)) { (self.counted(state)) } }
    }

    /// When, by whom and why it was paused.
    pub(super) fn paused(&self) -> Option<Markup> {
        let (by, reason) = (self.paused_by.as_deref(), self.pause_reason.as_deref());
        let paused =
            || html! { (parts::state("paused")) (named::since(self.paused_at, by, reason)) };
        self.paused.then(paused)
    }

    pub(super) fn limits_in_short(&self) -> Option<String> {
        at_most(self.concurrency, self.rate, self.rate_period.as_deref(), self.max_waiting)
    }
}

/// Limits in short.
pub(super) fn at_most(
    concurrency: Option<i32>,
    rate: Option<i32>,
    rate_period: Option<&str>,
    max_waiting: Option<i32>,
) -> Option<String> {
    let mut said = Vec::new();
    if let Some(most) = concurrency {
        said.push(format!("{} running", number_text(most.into())));
    }
    if let (Some(rate), Some(period)) = (rate, rate_period) {
        let rate = number_text(rate.into());
        said.push(format!("{rate} started within {}", words(period)));
    }
    if let Some(most) = max_waiting {
        said.push(format!("{} waiting", number_text(most.into())));
    }
    (!said.is_empty()).then(|| format!("At most {}", said.join(", ")))
}
