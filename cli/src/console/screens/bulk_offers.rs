//! Links to the bulk actions.

use maud::{Markup, html};

use crate::bulk::Action;
use crate::console::parts::{self, Look};
use crate::console::visit::Visit;
use crate::filter::Filter;

/// Links to the bulk actions on all jobs of the list.
pub(crate) fn offers(visit: &Visit, filter: &Filter) -> Markup {
    let may: Vec<_> = Action::ALL
        .into_iter()
        .filter(|action| visit.may(&action.function()))
        .filter(|action| filter.state.is_empty() || action.changes(&filter.state))
        .collect();
    if may.is_empty() || filter.is_empty() {
        return html! {};
    }
    let can: Vec<_> = may.iter().filter(|action| action.cannot(filter).is_empty()).collect();
    let cannot = may.iter().find(|action| !action.cannot(filter).is_empty());
    html! {
        div.actions {
            @for action in can {
                @let url = visit.url(&filter.path("/bulk", &[("do", action.name())]));
                (parts::link_button(&format!("{} all …", action.title()), &url, Look::Plain))
            }
            @if let Some(action) = cannot {
                p.quiet {
                    "jobs." (action.function()) " cannot filter by " (action.cannot(filter)[0])
                    ". Remove that filter to act on all jobs."
                }
            }
        }
    }
}
