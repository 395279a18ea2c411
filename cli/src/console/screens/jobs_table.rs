//! Jobs as rows of a table.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::console::links;
use crate::console::parts::{self, Align};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::Visit;
use crate::times;
use crate::visible;

/// How many tags of a job are shown.
pub(super) const TAGS: usize = 20;

#[derive(Deserialize)]
pub(crate) struct Row {
    pub(crate) id: i64,
    state: String,
    queue: String,
    kind: String,
    attempt: i32,
    max_attempts: i32,
    tags: Vec<String>,
    created_at: DateTime<Utc>,
    #[serde(deserialize_with = "times::bounded")]
    scheduled_at: DateTime<Utc>,
    attempted_at: Option<DateTime<Utc>>,
    finalized_at: Option<DateTime<Utc>>,
    is_asked_to_stop: bool,
    worker: Option<String>,
    last_error: Option<String>,
}

/// The existing jobs with these ids, newest first.
pub(crate) async fn rows(visit: &Visit, ids: &[i64]) -> Result<Vec<Row>, Problem> {
    let sql = "
        select id, state, queue, kind, attempt, max_attempts, tags, created_at, scheduled_at,
               attempted_at, finalized_at, cancel_requested_at is not null as is_asked_to_stop,
               worker, left(split_part(last_error, E'\\n', 1), 200) as last_error
          from jobs.jobs where id = any($1) order by id desc";
    visit.rows(sql, &[&ids]).await
}

pub(crate) fn table(visit: &Visit, caption: &str, rows: &[Row]) -> Markup {
    let columns = [
        ("Job", Align::Number),
        ("Kind", Align::Text),
        ("State", Align::Text),
        ("Time", Align::Text),
        ("Queue", Align::Text),
        ("Attempt", Align::Number),
        ("Worker or error", Align::Wide),
    ];
    let rows = html! { @for row in rows { (row.shown(visit)) } };
    parts::table(caption, &columns, rows)
}

impl Row {
    fn shown(&self, visit: &Visit) -> Markup {
        let url = visit.url(&links::job_path(self.id));
        let of_queue = parts::link("/jobs", [("queue", &self.queue)]);
        html! {
            tr {
                td.number { a href=(url) { (self.id) } }
                th scope="row" {
                    a href=(url) { (text(&self.kind)) }
                    @for tag in self.tags.iter().take(TAGS) { " " span.tag { (text(tag)) } }
                    @if self.tags.len() > TAGS { " and " (parts::plural((self.tags.len() - TAGS) as i64, "more tag")) }
                }
                td {
                    (parts::state(&self.state))
                    @if self.state == "running" && self.is_asked_to_stop {
                        div.quiet { "cancel requested" }
                    }
                }
                td { (self.when()) }
                td { a href=(visit.url(&of_queue)) { (text(&self.queue)) } }
                td.number { (self.attempt) " of " (self.max_attempts) }
                td.wide {
                    @match (&*self.state, &self.worker, &self.last_error) {
                        ("running" | "completed", Some(worker), _) => (text(worker)),
                        (_, _, Some(error)) => span.error title=(visible::line(error)) { (text(error)) },
                        _ => (parts::none()),
                    }
                }
            }
        }
    }

    /// The time that matters in the job's state.
    fn when(&self) -> Markup {
        match (&*self.state, self.attempted_at, self.finalized_at) {
            (_, _, Some(at)) | ("running", Some(at), _) => parts::ago(at),
            ("scheduled" | "retryable" | "available", ..) => parts::until(self.scheduled_at),
            _ => parts::ago(self.created_at),
        }
    }
}
