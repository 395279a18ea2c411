//! Managing calls by name, such as for a queue or a worker.

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::console::fields::{given, hidden, reason};
use crate::console::http::is_path;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::{Change, Visit};

/// The name that a page shows.
#[derive(Deserialize)]
pub(crate) struct Name {
    pub(super) name: String,
}

/// A managing call that takes a name and a reason.
pub(super) struct Call {
    pub(super) path: &'static str,
    pub(super) function: &'static str,
    /// The button that opens the question, the question about `{name}`, and the button that
    /// confirms.
    pub(super) label: &'static str,
    pub(super) question: &'static str,
    pub(super) button: &'static str,
    pub(super) look: Look,
}

/// The form of a call.
#[derive(Deserialize)]
pub(crate) struct Form {
    pub(super) name: String,
    /// The page that the form was on.
    pub(super) back: String,
    pub(super) reason: String,
}

impl Call {
    /// Offers the call if the role may make it. The form returns to the path.
    pub(super) fn offer(&self, visit: &Visit, name: &str, back: &str) -> Markup {
        let fields = html! {
            (hidden("name", name))
            (hidden("back", back))
            (reason())
            (parts::button(self.button, self.look))
        };
        let (before, after) = self.question.split_once("{name}").unwrap_or((self.question, ""));
        let has_name = before.len() < self.question.len();
        let question = html! { (before) @if has_name { (text(name)) } (after) };
        html! {
            @if visit.may(self.function) {
                (parts::confirm(self.label, question, visit.form(self.path, fields)))
            }
        }
    }

    /// Makes the call and says so: `what` comes before the name, `done` after it.
    pub(super) async fn run(
        &self,
        change: Change<Form>,
        what: &str,
        done: &str,
    ) -> Result<Response, Problem> {
        let Form { name, back, reason } = &change.form;
        let sql = format!("select from jobs.{}($1, $2)", self.function);
        change.run(&sql, &[name, &given(reason)]).await?;
        let back = if is_path(back) { back } else { "/" };
        Ok(change.done(back, format!("{what} {name} {done}")))
    }
}

/// The time, role and reason of a change.
pub(super) fn since(at: Option<DateTime<Utc>>, by: Option<&str>, reason: Option<&str>) -> Markup {
    html! {
        @if let Some(at) = at { " " (parts::ago(at)) }
        @if let Some(by) = by { " by " (text(by)) }
        @if let Some(reason) = reason { ": " (text(reason)) }
    }
}
