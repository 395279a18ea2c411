//! Lists by name: a filter, the rows of one page, and a text for an empty list.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::response::Response;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::console::fields::given;
use crate::console::page::Screen;
use crate::console::paging;
use crate::console::parts::{self, Align, Look};
use crate::console::visit::Visit;

/// How many rows a page has.
pub(super) const ROWS: i64 = 100;

/// The rows to show and their order. No list uses all of these fields.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Selection {
    pub(super) filter: String,
    pub(super) queue: String,
    pub(super) show: String,
    pub(super) sort: String,
    #[serde(skip_serializing_if = "is_first")]
    page: i64,
}

fn is_first(page: &i64) -> bool {
    *page <= 0
}

impl Selection {
    /// How many rows come before the page, within a limit.
    pub(super) fn offset(&self) -> i64 {
        self.page.clamp(0, 1_000_000) * ROWS
    }

    /// Whether it selects by name alone.
    pub(super) fn is_by_name(&self) -> bool {
        is_first(&self.page) && self.queue.is_empty() && self.show.is_empty()
    }

    pub(super) fn is_all(&self) -> bool {
        self.is_by_name() && given(&self.filter).is_none()
    }
}

/// A list.
pub(super) struct List {
    pub(super) screen: Screen,
    pub(super) title: &'static str,
    pub(super) path: &'static str,
    /// The noun for one row.
    pub(super) of: &'static str,
    pub(super) columns: &'static [(&'static str, Align)],
}

/// The content of a list.
pub(super) struct Found {
    /// The number of rows, and of those that match the filter.
    pub(super) total: i64,
    pub(super) found: i64,
    /// The summary above the list.
    pub(super) lead: Markup,
    /// The fields of the filter.
    pub(super) fields: Markup,
    pub(super) rows: Vec<Markup>,
    /// The text for an empty list, unless the filter is the cause.
    pub(super) nothing: Option<Markup>,
}

impl List {
    pub(super) fn path(&self, selection: &Selection) -> String {
        parts::link(self.path, selection)
    }

    pub(super) fn page(&self, visit: &Visit, selection: &Selection, found: Found) -> Response {
        self.page_with(visit, selection, found, html! {})
    }

    /// The page with more below the list.
    pub(super) fn page_with(
        &self,
        visit: &Visit,
        selection: &Selection,
        found: Found,
        more: Markup,
    ) -> Response {
        let main = html! {
            p.lead {
                (found.lead)
                @if found.found != found.total {
                    "; " (parts::number(found.found)) " matching"
                }
            }
            form.filter method="get" action=(visit.url(self.path)) role="search" {
                (found.fields)
                (parts::button("Filter", Look::Plain))
            }
            @if !found.rows.is_empty() {
                (parts::table(self.title, self.columns, html! { @for row in &found.rows { (row) } }))
                (self.pager(visit, selection, found.found))
            } @else if let Some(nothing) = found.nothing {
                (nothing)
            } @else {
                (self.unlike(visit, html! {}))
            }
            (more)
        };
        visit.page(self.screen, self.title, main)
    }

    /// The text for a filter without matches.
    pub(super) fn unlike(&self, visit: &Visit, more: Markup) -> Markup {
        let all = html! { (more) a href=(visit.url(self.path)) { "Show all " (self.of) "s" } };
        parts::empty(&format!("No {} matches the filter", self.of), all)
    }

    fn pager(&self, visit: &Visit, selection: &Selection, found: i64) -> Markup {
        let first = selection.offset();
        let end = found.min(first + ROWS);
        let page = |page| {
            let selection = Selection { page, ..selection.clone() };
            visit.url(&self.path(&selection))
        };
        let said = html! {
            span {
                (parts::number(first + 1)) "–" (parts::number(end)) " of " (parts::number(found))
            }
        };
        let before = (first > 0).then(|| ("← Previous", page(selection.page - 1)));
        let after = (end < found).then(|| ("Next →", page(selection.page + 1)));
        paging::pager(before, said, after)
    }
}

/// The id of a row, so that a refresh recognizes the row when it moves, and keeps its open
/// question. Hashed, since a name can have characters that an id cannot.
pub(super) fn row_id(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("row-{:016x}", hasher.finish())
}
