//! Parts of pages.

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, Render, html};
use serde::Serialize;

use crate::filter::STATES;
pub(crate) use crate::terminal::{number_text, plural};
use crate::times::duration_text;

/// Adds pairs to the query of a path. Empty values are left out.
pub(crate) fn link(path: &str, of: impl Serialize) -> String {
    let all = serde_urlencoded::to_string(of).unwrap_or_default();
    let pairs = all.split('&').filter(|pair| !pair.is_empty() && !pair.ends_with('='));
    pairs.fold(path.into(), |link, pair| {
        let mark = if link.contains('?') { '&' } else { '?' };
        format!("{link}{mark}{pair}")
    })
}

/// A state as word and colour. Also for those of workers: busy, idle, quiet, stop, lost.
pub(crate) fn state(name: &str) -> Markup {
    let others = ["busy", "quiet", "stop", "lost", "paused", "idle", "gone", "skipped", "failed"];
    let class = STATES.into_iter().chain(others).find(|known| *known == name);
    html! { span class={ "state " (class.unwrap_or("unknown")) } { (name) } }
}

/// How bad a finding of jobs.health() is.
pub(crate) fn severity(name: &str) -> Markup {
    html! { span class={ "severity " (severity_class(name)) } { (name) } }
}

pub(crate) fn severity_class(name: &str) -> &'static str {
    let known = ["critical", "warning", "info", "ok"];
    let class = known.into_iter().find(|known| *known == name);
    class.unwrap_or("info")
}

fn exact(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}

fn time_tag(at: DateTime<Utc>, text: &str) -> Markup {
    let machine = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    html! { time datetime=(machine) title=(exact(at)) { (text) } }
}

/// How long ago, or in how long; the exact time is its title.
pub(crate) fn ago(at: DateTime<Utc>) -> Markup {
    time_tag(at, &relative(at))
}

/// A time in the future; a past one is due.
pub(crate) fn until(at: DateTime<Utc>) -> Markup {
    match at > Utc::now() {
        true => ago(at),
        false => time_tag(at, &format!("due {}", relative(at))),
    }
}

fn relative(at: DateTime<Utc>) -> String {
    match (Utc::now() - at).num_milliseconds() as f64 / 1000.0 {
        s if s >= 1.0 => format!("{} ago", roughly(s)),
        s if s > -1.0 => "now".into(),
        s => format!("in {}", roughly(-s)),
    }
}

/// An absolute time; its title has milliseconds.
pub(crate) fn exactly(at: DateTime<Utc>) -> Markup {
    time_tag(at, &at.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// A duration in its largest unit, as relative times have it.
fn roughly(seconds: f64) -> String {
    let units = [(86400.0, "d"), (3600.0, "h"), (60.0, "min")];
    for (length, unit) in units {
        // A duration that rounds up to the next unit is shown in that.
        if seconds >= length * 0.995 {
            return format!("{} {unit}", number_text((seconds / length).round().max(1.0) as i64));
        }
    }
    format!("{} s", seconds.floor())
}

/// 12,345.
pub(crate) fn number(value: i64) -> Markup {
    html! { span.number { (number_text(value)) } }
}

/// A number of jobs, with ~ for an estimate.
pub(crate) fn count(value: i64, is_estimated: bool) -> Markup {
    html! {
        @if is_estimated {
            span.number.zero[value == 0] title="Estimated by maintenance" { "~" (number_text(value)) }
        } @else if value == 0 {
            span.number.zero { "0" }
        } @else {
            (number(value))
        }
    }
}

/// As [`duration_text`].
pub(crate) fn duration(seconds: f64) -> Markup {
    html! { span.number { (duration_text(seconds)) } }
}

/// 12 B, 3.4 kB, 1.2 MB.
pub(crate) fn bytes(value: usize) -> String {
    match value as f64 {
        v if v < 1000.0 => format!("{value} B"),
        v if v < 999_950.0 => format!("{:.1} kB", v / 1e3),
        v => format!("{:.1} MB", v / 1e6),
    }
}

/// An empty value.
pub(crate) fn none() -> Markup {
    html! { span.none { span aria-hidden="true" { "–" } span.visually-hidden { "none" } } }
}

/// An empty list: what that means and what to do.
pub(crate) fn empty(title: &str, what_to_do: Markup) -> Markup {
    html! { div.empty { p.empty-title { (title) } p { (what_to_do) } } }
}

/// A list of pairs.
pub(crate) fn key_values(pairs: Markup) -> Markup {
    html! { dl.key-values { (pairs) } }
}

/// A label and its value.
pub(crate) fn pair(label: &str, value: Markup) -> Markup {
    html! { div { dt { (label) } dd { (value) } } }
}

/// Labels, each with its number of jobs or keys.
pub(crate) fn counts<'a>(all: impl IntoIterator<Item = (&'a str, i64)>) -> Markup {
    html! {
        dl.counts {
            @for (label, number) in all { div { dt { (label) } dd { (count(number, false)) } } }
        }
    }
}

/// A part of a page with a heading. The id is unique on the page.
pub(crate) fn section(id: &str, heading: &str, content: Markup) -> Markup {
    html! { section aria-labelledby=(id) { h2 #(id) { (heading) } (content) } }
}

/// How long ago, if there is a time.
pub(crate) fn ago_or_none(at: Option<DateTime<Utc>>) -> Markup {
    at.map_or_else(none, ago)
}

/// How a column is set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Text,
    Number,
    /// Takes the remaining width and is cut off if there is none.
    Wide,
    /// Buttons; the head says it to screen readers only.
    Actions,
}

/// A table in a box of its own, in which it scrolls. `rows` are `tr` elements. The cells of a
/// number column have the class `number`, those of buttons `actions`, wide ones `wide`.
pub(crate) fn table(caption: &str, columns: &[(&str, Align)], rows: Markup) -> Markup {
    html! {
        div.table role="group" aria-label=(caption) tabindex="0" {
            table {
                caption.visually-hidden { (caption) }
                thead { tr { @for (name, align) in columns { (head(name, *align)) } } }
                tbody { (rows) }
            }
        }
    }
}

fn head(name: &str, align: Align) -> Markup {
    let class = match align {
        Align::Text => None,
        Align::Number => Some("number"),
        Align::Wide => Some("wide"),
        Align::Actions => Some("actions"),
    };
    html! {
        th scope="col" class=[class] {
            @if align == Align::Actions { span.visually-hidden { (name) } } @else { (name) }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The main action of a page.
    Primary,
    Plain,
    /// An action that cannot be undone.
    Danger,
}

impl Look {
    fn class(self) -> &'static str {
        match self {
            Self::Primary => "button primary",
            Self::Plain => "button",
            Self::Danger => "button danger",
        }
    }
}

/// A button that submits its form.
pub(crate) fn button(label: &str, look: Look) -> Markup {
    html! { button type="submit" class=(look.class()) { (label) } }
}

/// A link that looks like a button.
pub(crate) fn link_button(label: &str, url: &str, look: Look) -> Markup {
    html! { a class=(look.class()) href=(url) { (label) } }
}

/// A button that opens a question with a form; works without JavaScript.
pub(crate) fn confirm(label: &str, question: impl Render, form: Markup) -> Markup {
    html! {
        details.confirm name="confirm" {
            summary.button { (label) }
            div.panel {
                p { (question) }
                (form)
                button.link type="button" data-close hidden { "Close" }
            }
        }
    }
}

/// Links with label, URL, and whether the link is the current page.
pub(crate) fn tabs(label: &str, all: &[(&str, String, bool)]) -> Markup {
    html! {
        nav.tabs aria-label=(label) {
            @for (label, url, is_current) in all {
                a href=(url) aria-current=[is_current.then_some("page")] { (label) }
            }
        }
    }
}

/// A chart, which a script draws: `{"at": [unix seconds], "unit", "series": [{"label", "tone",
/// "values"}]}`. A table has the same data.
pub(crate) fn chart(label: &str, data: &serde_json::Value) -> Markup {
    html! {
        figure.chart {
            figcaption { (label) }
            div.plot data-chart=(data.to_string()) aria-hidden="true" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
            (-1000, "\u{2212}1,000"),
            (i64::MIN, "\u{2212}9,223,372,036,854,775,808"),
        ];
        for (value, text) in cases {
            assert_eq!(number_text(value), text);
        }
    }

    #[test]
    fn relative_times_have_one_unit() {
        let cases = [
            (1.0, "1 s"),
            (59.0, "59 s"),
            (60.0, "1 min"),
            (3599.0, "1 h"),
            (5400.0, "2 h"),
            (86400.0 * 3.0, "3 d"),
        ];
        for (seconds, text) in cases {
            assert_eq!(roughly(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn links_are_encoded() {
        let of = [("queue", "a&b=c/d"), ("kind", ""), ("tag", "ü")];
        assert_eq!(link("/jobs", of), "/jobs?queue=a%26b%3Dc%2Fd&tag=%C3%BC");
        assert_eq!(link("/jobs?page=2", [("tag", "=")]), "/jobs?page=2&tag=%3D");
        assert_eq!(link("/jobs", [("tag", "")]), "/jobs");
    }

    #[test]
    fn what_users_control_is_escaped() {
        let markup = state("<script>").into_string();
        assert!(!markup.contains("<script>"), "{markup}");
        let markup = table("\"><script>", &[("<b>", Align::Text)], html! {}).into_string();
        assert!(!markup.contains("<script>") && !markup.contains("<b>"), "{markup}");
    }
}
