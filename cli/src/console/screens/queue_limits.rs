//! The limits and retentions of a queue.

use axum::response::Response;
use maud::{Markup, html};

use super::named::{Call, Form};
use super::queue_read::Queue;
use super::setting::Setting;
use crate::console::fields::{given, line};
use crate::console::interval::{self, words};
use crate::console::links;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Visit};

/// The names of the fields, and their labels.
const FIELDS: [(&str, &str); 7] = [
    ("concurrency", "Concurrency"),
    ("rate", "Rate"),
    ("rate_period", "Rate period"),
    ("max_waiting", "Max waiting"),
    ("retention_completed", "Completed retention"),
    ("retention_cancelled", "Cancelled retention"),
    ("retention_discarded", "Discarded retention"),
];

fn help(field: &str) -> &'static str {
    match field {
        "concurrency" => "Jobs running at once, on all workers (1 to 10,000). Empty: no limit.",
        "rate" => "Jobs started per rate period (1 to 100,000). Empty: no limit.",
        "rate_period" => "Such as 1 minute. Required with a rate.",
        "max_waiting" => "Jobs that may wait; further inserts are refused. Empty: no limit.",
        _ => "How long jobs are kept, such as 7 days or forever. Empty: the server's default.",
    }
}

/// The form of a queue. An empty value means no limit.
pub(super) fn setting(queue: &Queue) -> Setting {
    Setting::of(&queue.queue, FIELDS.map(|(name, _)| (name, value(queue, name))))
}

/// The label and value of every limit that is set.
fn limits(set: &Setting) -> impl Iterator<Item = (&'static str, &str)> {
    let all = FIELDS.into_iter().map(|(name, label)| (label, set.get(name)));
    all.filter(|(_, value)| !value.is_empty())
}

fn value(queue: &Queue, name: &str) -> String {
    let (number, time) = (number_value, period_value);
    match name {
        "concurrency" => number(queue.concurrency),
        "rate" => number(queue.rate),
        "rate_period" => time(&queue.rate_period),
        "max_waiting" => number(queue.max_waiting),
        "retention_completed" => time(&queue.retention_completed),
        "retention_cancelled" => time(&queue.retention_cancelled),
        _ => time(&queue.retention_discarded),
    }
}

/// The value of a field with a number.
pub(super) fn number_value(limit: Option<i32>) -> String {
    limit.map(|limit| limit.to_string()).unwrap_or_default()
}

/// The value of a field with an interval.
pub(super) fn period_value(limit: &Option<String>) -> String {
    limit.as_deref().map(words).unwrap_or_default()
}

fn names() -> [&'static str; 7] {
    FIELDS.map(|(name, _)| name)
}

/// The limits, for a role that may not change them.
pub(super) fn shown(queue: &Queue) -> Markup {
    let set = setting(queue);
    html! {
        @if limits(&set).next().is_none() {
            p { "No limits. The server's default retention applies." }
        } @else {
            (parts::key_values(html! {
                @for (label, value) in limits(&set) { (parts::pair(label, html! { (value) })) }
            }))
        }
    }
}

pub(super) fn form(visit: &Visit, queue: &Queue, set: &Setting, wrong: Option<&Problem>) -> Markup {
    let fields = html! {
        div.fields {
            @for (name, label) in FIELDS { (line(name, label, help(name), set.get(name), wrong)) }
        }
    };
    html! {
        (set.form(visit, "/queue/limits#limits", wrong, &names(), fields, "Save limits"))
        @if limits(&setting(queue)).next().is_some() {
            (RESET.offer(visit, &set.name, &links::queue_path(&set.name)))
        }
    }
}

/// Sets all limits in one call. Unchanged fields get their present value.
pub(super) async fn configure(change: &mut Change<Setting>, queue: &Queue) -> Result<(), Problem> {
    let now = setting(queue).values;
    let changed = change.form.values.changed(names(), &now)?;
    let value = |name| changed.get(name).map_or(now.get(name), |text| text);
    let form = &change.form;
    let configured = change
        .run(
            "select from jobs.configure_queue($1, $2, $3, $4::text::interval, $5::text::interval,
                    $6::text::interval, $7::text::interval, $8, $9)",
            &[
                &form.name,
                &number("concurrency", value("concurrency"))?,
                &number("rate", value("rate"))?,
                &interval_of(value("rate_period")),
                &interval_of(value("retention_completed")),
                &interval_of(value("retention_cancelled")),
                &interval_of(value("retention_discarded")),
                &number("max_waiting", value("max_waiting"))?,
                &form.reason(),
            ],
        )
        .await;
    configured.map_err(|wrong| form.about(wrong, names()))
}

const RESET: Call = Call {
    path: "/queue/reset",
    function: "reset_queue",
    label: "Reset limits",
    question: "Removes all limits of {name} and restores the server's default retention.",
    button: "Reset limits",
    look: Look::Danger,
};

pub(crate) async fn reset(change: Change<Form>) -> Result<Response, Problem> {
    RESET.run(change, "Queue", "no longer has limits.").await
}

pub(super) fn number(field: &str, text: &str) -> Result<Option<i32>, Problem> {
    let Some(text) = given(text) else {
        return Ok(None);
    };
    text.replace([',', ' '], "").parse().map(Some).map_err(|_| {
        let message = format!("Invalid number: {text:?}.");
        Problem::bad_input(message, "Enter a whole number, or leave the field empty for no limit.")
            .about(field)
    })
}

pub(super) fn interval_of(text: &str) -> Option<&str> {
    given(text).map(interval::typed)
}
