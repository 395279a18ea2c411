//! Lists of what has a name: a filter, the rows of one page, and what is said where there are none.

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

/// Which rows are shown, and in which order. No list has all of these fields.
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
    /// How many rows come before the page. There are no more than so many.
    pub(super) fn offset(&self) -> i64 {
        self.page.clamp(0, 1_000_000) * ROWS
    }

    /// Whether it has all rows, but for a part of their names.
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
    /// What one row is.
    pub(super) of: &'static str,
    pub(super) columns: &'static [(&'static str, Align)],
}

/// What it has.
pub(super) struct Found {
    /// How many rows there are, and how many the filter finds.
    pub(super) total: i64,
    pub(super) found: i64,
    /// What is said of all of them.
    pub(super) lead: Markup,
    /// The fields of the filter.
    pub(super) fields: Markup,
    pub(super) rows: Vec<Markup>,
    /// What is said where there are no rows, if that is not the filter's doing.
    pub(super) nothing: Option<Markup>,
}

impl List {
    pub(super) fn path(&self, selection: &Selection) -> String {
        parts::link(self.path, selection)
    }

    pub(super) fn page(&self, visit: &Visit, selection: &Selection, found: Found) -> Response {
        let main = html! {
            p.lead {
                (found.lead)
                @if found.found != found.total {
                    "; the filter finds " (parts::number(found.found))
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
                (self.unlike(visit, &format!("No {} is like that", self.of), html! {}))
            }
        };
        visit.page(self.screen, self.title, main)
    }

    /// Where a filter finds nothing.
    pub(super) fn unlike(&self, visit: &Visit, title: &str, more: Markup) -> Markup {
        let all = html! { (more) a href=(visit.url(self.path)) { "Show all " (self.of) "s" } };
        parts::empty(title, all)
    }

    fn pager(&self, visit: &Visit, selection: &Selection, found: i64) -> Markup {
        let first = selection.offset();
        let end = found.min(first + ROWS);
        let page = |page| {
            let selection = Selection {
                page,
                ..selection.clone()
            };
            visit.url(&self.path(&selection))
        };
        let said = html! {
            span {
                (parts::number(first + 1)) "–" (parts::number(end)) " of " (parts::number(found))
            }
        };
        let before = (first > 0).then(|| ("← Before", page(selection.page - 1)));
        let after = (end < found).then(|| ("After →", page(selection.page + 1)));
        paging::pager(before, said, after)
    }
}

/// The id of a row, so that a refresh takes it for the same one wherever it is by then. A question
/// that is open in it stays that of its row. A name can have characters that an id cannot.
pub(super) fn row_id(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("row-{:016x}", hasher.finish())
}
