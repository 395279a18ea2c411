//! Links to the pages before and after this one.

use maud::{Markup, html};

/// A link: its label and its URL.
type Link = (&'static str, String);

/// Pages of a list in order of time.
pub(crate) fn by_time(newer: Option<String>, older: Option<String>) -> Markup {
    let [newer, older] =
        [("← Newer", newer), ("Older →", older)].map(|(label, url)| url.map(|url| (label, url)));
    pager(newer, html! {}, older)
}

/// Links with a text about this page between them.
pub(crate) fn pager(previous: Option<Link>, said: Markup, next: Option<Link>) -> Markup {
    html! {
        @if previous.is_some() || next.is_some() {
            nav.pager aria-label="Pages" {
                @if let Some((label, url)) = previous { a.button rel="prev" href=(url) { (label) } }
                (said)
                @if let Some((label, url)) = next { a.button rel="next" href=(url) { (label) } }
            }
        }
    }
}
