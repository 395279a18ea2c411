//! Fields of forms: a label, a value, a help text and a problem.

use maud::{Markup, html};

use super::problem::Problem;

/// A field of one line. A problem with this field is shown below it.
pub(crate) fn line(
    name: &str,
    label: &str,
    help: &str,
    value: &str,
    wrong: Option<&Problem>,
) -> Markup {
    with_notes(name, label, help, wrong, |notes| {
        html! {
            input #(name) type="text" name=(name) value=(value) autocomplete="off"
                aria-describedby=[notes.ids()] aria-invalid=[notes.is_invalid()];
        }
    })
}

/// A field of several lines, for JSON.
pub(crate) fn area(
    name: &str,
    label: &str,
    help: &str,
    value: &str,
    wrong: Option<&Problem>,
) -> Markup {
    with_notes(name, label, help, wrong, |notes| {
        html! {
            // A browser drops a leading line break.
            textarea #(name) name=(name) rows="4" spellcheck="false" autocomplete="off"
                aria-describedby=[notes.ids()] aria-invalid=[notes.is_invalid()] { "\n" (value) }
        }
    })
}

fn with_notes(
    name: &str,
    label: &str,
    help: &str,
    wrong: Option<&Problem>,
    element: impl FnOnce(&Notes<'_>) -> Markup,
) -> Markup {
    let wrong = wrong.filter(|wrong| wrong.field() == Some(name));
    let notes = Notes { name, help, wrong };
    html! { div.field { label for=(name) { (label) } (element(&notes)) (notes) } }
}

/// A field of a filter with suggestions.
pub(crate) fn suggesting(name: &str, label: &str, value: &str, suggestions: &[String]) -> Markup {
    let list = (!suggestions.is_empty()).then(|| format!("{name}-suggestions"));
    html! {
        div.field {
            label for=(name) { (label) }
            input #(name) type="search" name=(name) value=(value) autocomplete="off" list=[&list];
            @if let Some(list) = &list {
                datalist #(list) { @for one in suggestions { option value=(one) {} } }
            }
        }
    }
}

/// A time of a filter.
pub(crate) fn date_time(name: &str, label: &str, value: &str) -> Markup {
    html! {
        div.field {
            label for=(name) { (label) " (UTC)" }
            input #(name) type="datetime-local" name=(name) value=(value);
        }
    }
}

/// A choice of values, each with the text that is shown.
pub(crate) fn choice(name: &str, label: &str, options: &[(&str, &str)], chosen: &str) -> Markup {
    html! {
        div.field {
            label for=(name) { (label) }
            select #(name) name=(name) {
                @for (value, text) in options {
                    option value=(value) selected[*value == chosen] { (text) }
                }
            }
        }
    }
}

/// The reason of an action, for the audit. A page can have several.
pub(crate) fn reason() -> Markup {
    html! {
        label.field {
            "Reason"
            input type="text" name="reason" autocomplete="off" placeholder="For the audit";
        }
    }
}

/// A problem, unless it is shown below one of these fields.
pub(crate) fn wrong(wrong: Option<&Problem>, fields: &[&str]) -> Markup {
    let is_beside = |wrong: &Problem| wrong.field().is_some_and(|field| fields.contains(&field));
    html! {
        @if let Some(wrong) = wrong.filter(|wrong| !is_beside(wrong)) {
            div.wrong role="alert" { (wrong.said()) }
        }
    }
}

/// A hidden field.
pub(crate) fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}

/// A typed text, or none if it is blank.
pub(crate) fn given(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

/// The notes below a field.
struct Notes<'a> {
    name: &'a str,
    help: &'a str,
    wrong: Option<&'a Problem>,
}

impl<'a> Notes<'a> {
    fn is_invalid(&self) -> Option<&'static str> {
        self.wrong.map(|_| "true")
    }

    /// The ids for screen readers.
    fn ids(&self) -> Option<String> {
        let wrong = self.wrong.map(|_| format!("{}-wrong", self.name));
        let help = (!self.help.is_empty()).then(|| format!("{}-help", self.name));
        let ids: Vec<_> = wrong.into_iter().chain(help).collect();
        (!ids.is_empty()).then(|| ids.join(" "))
    }
}

impl maud::Render for Notes<'_> {
    fn render(&self) -> Markup {
        html! {
            @if let Some(wrong) = self.wrong {
                div.wrong id={ (self.name) "-wrong" } role="alert" { (wrong.said()) }
            }
            @if !self.help.is_empty() {
                p.help id={ (self.name) "-help" } { (self.help) }
            }
        }
    }
}
