//! The table of the keys of a limit or an order.

use maud::{Markup, html};

use crate::console::parts::{self, Align};

/// A key. Its counts are in the order of the table's columns.
pub(super) struct Row<const N: usize> {
    /// None if the role may not see it.
    pub(super) key: Option<Markup>,
    pub(super) notes: Markup,
    pub(super) counts: [Markup; N],
    pub(super) actions: Option<Markup>,
}

pub(super) fn table<const N: usize>(
    counts: [&'static str; N],
    rows: impl Iterator<Item = Row<N>>,
) -> Markup {
    let mut columns = vec![("Key", Align::Wide)];
    columns.extend(counts.map(|label| (label, Align::Number)));
    columns.push(("Actions", Align::Actions));
    let rows = html! {
        @for row in rows {
            tr {
                th.wide scope="row" {
                    @match row.key {
                        Some(key) => (key),
                        None => span.quiet { "Not visible to this role" },
                    }
                    (row.notes)
                }
                @for count in row.counts { td.number { (count) } }
                td.actions { @if let Some(actions) = row.actions { (actions) } }
            }
        }
    };
    parts::table("Keys", &columns, rows)
}
