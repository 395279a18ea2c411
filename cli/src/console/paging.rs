//! Pages of a list that has an order and a known length.

use std::hash::{DefaultHasher, Hash, Hasher};

use maud::{Markup, html};

use super::parts;

/// How many rows a page has.
pub(super) const ROWS: i64 = 100;

/// How many rows come before a page. Pages count from 0; there are no more than so many.
pub(super) fn offset(page: i64) -> i64 {
    page.clamp(0, 1_000_000) * ROWS
}

/// The number of a page as the query of a URL has it.
pub(super) fn number(page: i64) -> String {
    if page > 0 {
        page.to_string()
    } else {
        String::new()
    }
}

/// The id of a row, so that a refresh takes it for the same one wherever it is by then: a question
/// that is open in it stays that of its row. A name can have characters that an id cannot.
pub(super) fn row_id(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("row-{:016x}", hasher.finish())
}

/// Links to the pages before and after this one, of so many rows.
pub(super) fn pager(page: i64, rows: i64, url: impl Fn(i64) -> String) -> Markup {
    let first = offset(page);
    let end = rows.min(first + ROWS);
    html! {
        @if rows > ROWS {
            nav.pager aria-label="Pages" {
                @if page > 0 { a.button rel="prev" href=(url(page - 1)) { "← Before" } }
                span {
                    (parts::number(first + 1)) "–" (parts::number(end))
                    " of " (parts::number(rows))
                }
                @if end < rows { a.button rel="next" href=(url(page + 1)) { "After →" } }
            }
        }
    }
}
