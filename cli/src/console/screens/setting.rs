//! Forms with settings.

use maud::{Markup, html};
use serde::Deserialize;

use crate::console::edited::Edited;
use crate::console::fields::{self, given, hidden, line};
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::Visit;

/// A form with the settings of something that has a name, such as a queue.
#[derive(Deserialize)]
pub(crate) struct Setting {
    pub(super) name: String,
    reason: String,
    #[serde(flatten)]
    pub(super) values: Edited,
}

impl Setting {
    /// The present settings.
    pub(super) fn of<'a>(name: &str, values: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        Self { name: name.into(), reason: String::new(), values: Edited::of(values) }
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.values.get(name)
    }

    pub(super) fn reason(&self) -> Option<&str> {
        given(&self.reason)
    }

    /// A problem with the field whose value it quotes.
    pub(super) fn about<'a>(
        &self,
        wrong: Problem,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Problem {
        wrong.about_quoted(names.into_iter().map(|name| (name, self.get(name))))
    }

    /// The form with these fields, of which `lines` show a problem below them.
    pub(super) fn form(
        &self,
        visit: &Visit,
        path: &str,
        wrong: Option<&Problem>,
        lines: &[&str],
        fields: Markup,
        button: &str,
    ) -> Markup {
        html! {
            (fields::wrong(wrong, lines))
            (visit.form(path, html! {
                (hidden("name", &self.name))
                (self.values.before())
                (fields)
                (line("reason", "Reason", "For the audit.", &self.reason, wrong))
                div.actions { (parts::button(button, Look::Primary)) }
            }))
        }
    }
}
