//! The limits of a queue, and for how long it keeps its jobs. They are shown as they are set, or in
//! a form that sets all of them.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::history::Span;
use super::named::{Call, Form};
use super::queue::{self, Queue};
use crate::console::fields::{self, given, hidden, line};
use crate::console::interval::{self, words};
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Visit};

/// What the fields of the form say. An empty one sets no limit.
#[derive(Deserialize)]
pub(crate) struct Limits {
    name: String,
    concurrency: String,
    rate: String,
    rate_period: String,
    max_waiting: String,
    retention_completed: String,
    retention_cancelled: String,
    retention_discarded: String,
    /// What was set when the form was shown.
    was: String,
    reason: String,
}

/// The names of the fields, and their labels.
const FIELDS: [(&str, &str); 7] = [
    ("concurrency", "Run at a time"),
    ("rate", "Start within a period"),
    ("rate_period", "Period"),
    ("max_waiting", "Wait at most"),
    ("retention_completed", "Keep completed jobs for"),
    ("retention_cancelled", "Keep cancelled jobs for"),
    ("retention_discarded", "Keep discarded jobs for"),
];

fn help(field: &str) -> &'static str {
    match field {
        "concurrency" => "Jobs, on all workers: 1 to 10,000. Empty: no limit.",
        "rate" => "Jobs: 1 to 100,000. Empty: no limit.",
        "rate_period" => "Such as 1 minute. It goes with the field before.",
        "max_waiting" => "Jobs: an insert beyond that is refused. Empty: no bound.",
        _ => "Such as 7 days, or for ever. Empty: as the server's settings say.",
    }
}

impl Limits {
    /// What is set of a queue.
    pub(super) fn of(queue: &Queue) -> Limits {
        let number = |limit: Option<i32>| limit.map(|limit| limit.to_string()).unwrap_or_default();
        let time = |limit: &Option<String>| limit.as_deref().map(words).unwrap_or_default();
        let mut set = Limits {
            name: queue.queue.clone(),
            concurrency: number(queue.concurrency),
            rate: number(queue.rate),
            rate_period: time(&queue.rate_period),
            max_waiting: number(queue.max_waiting),
            retention_completed: time(&queue.retention_completed),
            retention_cancelled: time(&queue.retention_cancelled),
            retention_discarded: time(&queue.retention_discarded),
            was: String::new(),
            reason: String::new(),
        };
        set.was = set.line();
        set
    }

    /// Name, label and value of each field.
    fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        let values = [
            &self.concurrency,
            &self.rate,
            &self.rate_period,
            &self.max_waiting,
            &self.retention_completed,
            &self.retention_cancelled,
            &self.retention_discarded,
        ];
        let all = FIELDS.into_iter().zip(values);
        all.map(|((name, label), value)| (name, label, &**value))
    }

    /// Every limit that is set.
    fn set(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = self.fields().map(|(_, label, value)| (label, value));
        all.filter(|(_, value)| !value.is_empty())
    }

    fn line(&self) -> String {
        let said = self.set().map(|(label, value)| format!("{label}: {value}"));
        said.collect::<Vec<_>>().join(", ")
    }
}

/// Shown to who may not change them.
pub(super) fn shown(queue: &Queue) -> Markup {
    let limits = Limits::of(queue);
    html! {
        @if limits.was.is_empty() {
            p { "None. The server's settings say how long jobs are kept." }
        } @else {
            (parts::key_values(html! {
                @for (label, value) in limits.set() { (parts::pair(label, html! { (value) })) }
            }))
        }
    }
}

pub(super) fn form(
    visit: &Visit,
    queue: &Queue,
    limits: &Limits,
    wrong: Option<&Problem>,
) -> Markup {
    html! {
        (fields::wrong(wrong, &FIELDS.map(|(name, _)| name)))
        (visit.form("/queue/limits#limits", html! {
            (hidden("name", &limits.name))
            (hidden("was", &limits.was))
            div.fields {
                @for (name, label, value) in limits.fields() {
                    (line(name, label, help(name), value, wrong))
                }
            }
            (line("reason", "Reason", "For the audit.", &limits.reason, wrong))
            div.actions { (parts::button("Set these limits", Look::Primary)) }
        }))
        @if !Limits::of(queue).was.is_empty() {
            (RESET.offer(visit, &limits.name, &queue::path(&limits.name)))
        }
    }
}

pub(crate) async fn set(mut change: Change<Limits>) -> Result<Response, Problem> {
    let queue = queue::look(&change.visit, &change.form.name).await?;
    let Err(wrong) = configure(&change, &queue).await else {
        let name = &change.form.name;
        return Ok(change.done(
            &queue::path(name),
            format!("The limits of queue {name} are set."),
        ));
    };
    // Whoever has read what is set now can set the same again.
    change.form.was = Limits::of(&queue).was;
    let since = Span::default();
    queue::page(&change.visit, &queue, since, &change.form, Some(&wrong)).await
}

async fn configure(change: &Change<Limits>, queue: &Queue) -> Result<(), Problem> {
    let form = &change.form;
    let is_set = Limits::of(queue).was;
    if is_set != form.was {
        let now = match &*is_set {
            "" => "there are none",
            set => set,
        };
        let message = format!("Somebody else has changed these limits meanwhile. Now {now}.");
        return Err(Problem::bad_input(
            message,
            "Set yours again to replace that.",
        ));
    }
    let configured = change
        .run(
            "select from jobs.configure_queue($1, $2, $3, $4::text::interval, $5::text::interval,
                    $6::text::interval, $7::text::interval, $8, $9)",
            &[
                &form.name,
                &number("concurrency", &form.concurrency)?,
                &number("rate", &form.rate)?,
                &interval_of(&form.rate_period),
                &interval_of(&form.retention_completed),
                &interval_of(&form.retention_cancelled),
                &interval_of(&form.retention_discarded),
                &number("max_waiting", &form.max_waiting)?,
                &given(&form.reason),
            ],
        )
        .await;
    configured
        .map_err(|wrong| wrong.about_quoted(form.fields().map(|(name, _, value)| (name, value))))
}

const RESET: Call = Call {
    path: "/queue/reset",
    function: "reset_queue",
    label: "Take all limits back",
    question: "{name} has no limits then, and keeps jobs as the server's settings say.",
    button: "Take them back",
    look: Look::Danger,
};

pub(crate) async fn reset(change: Change<Form>) -> Result<Response, Problem> {
    RESET.run(change, "Queue", "has no limits any more.").await
}

fn number(field: &str, text: &str) -> Result<Option<i32>, Problem> {
    let Some(text) = given(text) else {
        return Ok(None);
    };
    text.replace([',', ' '], "").parse().map(Some).map_err(|_| {
        let message = format!("{text:?} is no whole number of jobs.");
        Problem::bad_input(message, "Leave it empty for no limit.").about(field)
    })
}

fn interval_of(text: &str) -> Option<&str> {
    given(text).map(interval::typed)
}
