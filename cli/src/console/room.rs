//! Limits how much user text a page shows, so that it stays loadable.

use std::cell::Cell;

use maud::{Markup, html};

use super::parts::{bytes, none};

/// The largest page.
pub(crate) const LARGEST: usize = 2_000_000;
/// How much of it may be user text. The rest is our own text and values of forms.
const ROOM: usize = 1_000_000;
/// How many characters of a text are shown in a list.
const SHORT: usize = 2_000;
/// How many characters of a text are shown if it is the content of the page.
const LONG: usize = 20_000;

tokio::task_local! {
    /// How much room the page has left.
    static LEFT: Cell<usize>;
}

/// Makes a page with its own limit.
pub(crate) async fn page<T>(made: impl Future<Output = T>) -> T {
    LEFT.scope(Cell::new(ROOM), made).await
}

/// A user's text. Its writing direction does not affect ours.
pub(crate) fn text(text: &str) -> Markup {
    cut(text, SHORT)
}

/// A long text, such as a trace.
pub(crate) fn long(text: &str) -> Markup {
    cut(text, LONG)
}

/// A text that may be missing.
pub(crate) fn optional(it: Option<&str>) -> Markup {
    html! { @if let Some(it) = it { (text(it)) } @else { (none()) } }
}

fn cut(text: &str, most: usize) -> Markup {
    let shown = |most| match text.char_indices().nth(most) {
        None => html! { bdi { (text) } },
        Some((end, _)) => {
            html! { bdi { (text[..end]) "…" } span.quiet { " (" (bytes(text.len())) " total)" } }
        }
    };
    fitting(shown(most)).unwrap_or_else(|| shown(20))
}

/// Markup of user text, if the page has room for it.
pub(crate) fn fitting(markup: Markup) -> Option<Markup> {
    let length = markup.0.len();
    // Outside a page there is no limit.
    let left = LEFT.try_with(|left| left.get().checked_sub(length).map(|rest| left.set(rest)));
    left.unwrap_or(Some(())).map(|()| markup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        let short = text("a <b>").into_string();
        assert_eq!(short, "<bdi>a &lt;b&gt;</bdi>");
        let cut = text(&"ä".repeat(3_000)).into_string();
        assert_eq!(cut.matches('ä').count(), SHORT);
        assert!(cut.contains("…</bdi>") && cut.contains("(6.0 kB total)"), "{cut}");
    }

    #[tokio::test]
    async fn a_page_has_room_for_so_much() {
        let texts =
            page(async { (0..1_000).map(|_| text(&"\"".repeat(2_000)).0).collect::<String>() });
        let texts = texts.await;
        assert!(texts.len() < LARGEST, "{}", texts.len());
        assert!(texts.ends_with("&quot;…</bdi><span class=\"quiet\"> (2.0 kB total)</span>"));
    }
}
